/* SPDX-License-Identifier: Apache-2.0
 *
 * record.c - records of finished shards.
 *
 *     "fp8q-record/2 SHARD HEADER-CRC SIZE\n"   tells the record of another plan
 *     size and times of the file               vouch for it without a read
 *     checksums of its pieces                  vouch for it where the times differ
 *     its scales                               for the sidecar, which comes last
 *     CRC of all that                          a record that is cut off counts as none
 *
 * Numbers are those of the machine: a record is read where it was written, or on its like.
 */
#include "convert/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"

/* What changes when a file is written to or replaced.  */
struct stamp {
    uint64_t size;
    int64_t mtime_s, mtime_ns, ctime_s, ctime_ns;
};

static struct stamp stamp_of(const struct stat *st)
{
    return (struct stamp){.size = (uint64_t)st->st_size,
                          .mtime_s = st->st_mtim.tv_sec,
                          .mtime_ns = st->st_mtim.tv_nsec,
                          .ctime_s = st->st_ctim.tv_sec,
                          .ctime_ns = st->st_ctim.tv_nsec};
}

static void unstamp(const struct stamp *stamp, struct stat *st)
{
    *st = (struct stat){.st_size = (off_t)stamp->size,
                        .st_mtim = {.tv_sec = stamp->mtime_s, .tv_nsec = stamp->mtime_ns},
                        .st_ctim = {.tv_sec = stamp->ctime_s, .tv_nsec = stamp->ctime_ns}};
}

static char *record_path(const char *record_dir, size_t shard, bool fresh)
{
    char name[64];
    snprintf(name, sizeof(name), "shard-%06zu.record", shard);
    return fresh ? fp8q_join_unique(record_dir, name) : fp8q_join(record_dir, name);
}

static void head_line(const struct fp8q_plan *plan, size_t shard, char line[128])
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    snprintf(line, 128, "fp8q-record/2 %zu %08x %llu\n", shard, (unsigned)s->header_crc32,
             (unsigned long long)s->size_bytes);
}

static uint64_t record_size(const struct fp8q_plan *plan, size_t shard)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    char line[128];
    head_line(plan, shard, line);
    return strlen(line) + sizeof(struct stamp) + s->n_pieces * sizeof(struct fp8q_piece_crc) +
           s->scale_bytes + sizeof(uint32_t);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void record_text(const struct fp8q_plan *plan, size_t shard,
                        const struct fp8q_record *record, struct fp8q_text *t)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    struct stamp stamp = stamp_of(&record->stat);
    char line[128];

    head_line(plan, shard, line);
    fp8q_text_puts(t, line);
    fp8q_text_add(t, (const char *)&stamp, sizeof(stamp));
    fp8q_text_add(t, (const char *)(record->crcs + s->first_piece),
                  s->n_pieces * sizeof(*record->crcs));
    fp8q_text_add(t, (const char *)record->scales, (size_t)s->scale_bytes);

    uint32_t crc = fp8q_crc32(0, t->data, t->len);
    fp8q_text_add(t, (const char *)&crc, sizeof(crc));
}

static int write_text(const char *path, const struct fp8q_text *t, struct fp8q_error *err)
{
    int fd;
    FP8Q_TRY(fp8q_create(path, &fd, err));
    int status = fp8q_pwrite(fd, t->data, t->len, 0, path, err);
    return fp8q_close_after(status, &fd, path, err);
}

/* Under a name of its own first: a record that is seen is whole.  */
static int write_and_name(const char *fresh, const char *path, const struct fp8q_text *t,
                          struct fp8q_error *err)
{
    FP8Q_TRY(write_text(fresh, t, err));
    return fp8q_rename(fresh, path, err);
}

static int put_text(const struct fp8q_text *t, size_t shard, const char *record_dir,
                    struct fp8q_error *err)
{
    char *path = record_path(record_dir, shard, false);
    char *fresh = record_path(record_dir, shard, true);
    int status = path && fresh ? write_and_name(fresh, path, t, err) : fp8q_fail_nomem(err);

    if (status != FP8Q_OK && fresh)
        (void)fp8q_unlink(fresh, NULL);
    free(path);
    free(fresh);
    return status;
}

int fp8q_record_write(const struct fp8q_plan *plan, size_t shard, const char *record_dir,
                      const struct fp8q_record *record, struct fp8q_error *err)
{
    struct fp8q_text t = {0};
    record_text(plan, shard, record, &t);
    int status = t.failed ? fp8q_fail_nomem(err) : put_text(&t, shard, record_dir, err);
    fp8q_text_reset(&t);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Takes a record's bytes apart once its length and CRC are right.  */
static bool take_apart(const struct fp8q_plan *plan, size_t shard, const char *data, size_t len,
                       struct fp8q_record *record)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    struct stamp stamp;
    char line[128];
    uint32_t end;

    /* The line has the header's checksum, so a record of another plan's shard is not taken.  */
    head_line(plan, shard, line);
    if (len != record_size(plan, shard) || memcmp(data, line, strlen(line)) != 0)
        return false;

    memcpy(&end, data + len - sizeof(end), sizeof(end));
    if (fp8q_crc32(0, data, len - sizeof(end)) != end)
        return false;

    const char *at = data + strlen(line);
    memcpy(&stamp, at, sizeof(stamp));
    unstamp(&stamp, &record->stat);
    at += sizeof(stamp);

    size_t crc_bytes = s->n_pieces * sizeof(*record->crcs);
    if (crc_bytes)
        memcpy(record->crcs + s->first_piece, at, crc_bytes);
    memcpy(record->scales, at + crc_bytes, (size_t)s->scale_bytes);
    return true;
}

static int read_text(const struct fp8q_plan *plan, size_t shard, const char *record_dir,
                     char **data_out, size_t *len_out, struct fp8q_error *err)
{
    char *path = record_path(record_dir, shard, false);
    *data_out = NULL;
    if (!path)
        return fp8q_fail_nomem(err);

    int status = fp8q_read_file_if_there(path, record_size(plan, shard), data_out, len_out, err);
    free(path);
    /* A larger file is no record of this shard.  */
    return status == FP8Q_E_FORMAT ? FP8Q_OK : status;
}

int fp8q_record_read(const struct fp8q_plan *plan, size_t shard, const char *record_dir,
                     struct fp8q_record *record, bool *found_out, struct fp8q_error *err)
{
    char *data;
    size_t len;

    *found_out = false;
    record->scales = NULL;
    FP8Q_TRY(read_text(plan, shard, record_dir, &data, &len, err));
    if (!data)
        return FP8Q_OK;

    record->scales = fp8q_array(plan->shards[shard].scale_bytes, 1);
    bool has_room = record->scales != NULL;
    *found_out = has_room && take_apart(plan, shard, data, len, record);
    free(data);

    if (!*found_out) {
        free(record->scales);
        record->scales = NULL;
    }
    return has_room ? FP8Q_OK : fp8q_fail_nomem(err);
}

/* ---- against the shard ----------------------------------------------------------------------- */

struct reader {
    int fd;
    const char *path;
    char *buf;
};

enum { CHUNK = 1 << 20 };

static int crc_of(const struct reader *r, uint64_t from, uint64_t to, uint32_t *crc_out,
                  struct fp8q_error *err)
{
    *crc_out = 0;
    for (uint64_t at = from; at < to;) {
        size_t n = (size_t)fp8q_min_u64(to - at, CHUNK);
        FP8Q_TRY(fp8q_pread(r->fd, r->buf, n, at, r->path, err));
        *crc_out = fp8q_crc32(*crc_out, r->buf, n);
        at += n;
    }
    return FP8Q_OK;
}

/* Header and tensors are all bytes of a shard.  */
static int compare_bytes(const struct fp8q_plan *plan, size_t shard, const struct reader *r,
                         const struct fp8q_piece_crc *crcs, bool *same_out, struct fp8q_error *err)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    uint32_t crc;

    FP8Q_TRY(crc_of(r, 0, s->data_start, &crc, err));
    *same_out = crc == s->header_crc32;

    for (size_t i = s->first_piece; i < s->first_piece + s->n_pieces && *same_out; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        const struct fp8q_out_tensor *t = &plan->tensors[p->output];

        FP8Q_TRY(crc_of(r, s->data_start + t->begin, s->data_start + t->end, &crc, err));
        *same_out = crc == crcs[i].output;

        const struct fp8q_out_tensor *scale =
            p->scale == SIZE_MAX ? NULL : &plan->tensors[p->scale];

        /* Scales in a sidecar are no bytes of this shard.  */
        if (!*same_out || !scale || scale->shard != shard)
            continue;
        FP8Q_TRY(crc_of(r, s->data_start + scale->begin, s->data_start + scale->end, &crc, err));
        *same_out = crc == crcs[i].scales;
    }
    return FP8Q_OK;
}

static int compare_file(const struct fp8q_plan *plan, size_t shard, const char *path, char *buf,
                        const struct fp8q_piece_crc *crcs, bool *same_out, struct fp8q_error *err)
{
    struct reader r = {.path = path, .buf = buf};
    FP8Q_TRY(fp8q_open_read(path, NULL, &r.fd, err));
    int status = compare_bytes(plan, shard, &r, crcs, same_out, err);
    (void)fp8q_close(&r.fd, path, NULL);
    return status;
}

int fp8q_record_vouches(const struct fp8q_plan *plan, size_t shard, const char *path,
                        const struct fp8q_record *record, bool *same_out, struct fp8q_error *err)
{
    struct stat st;
    bool there;

    *same_out = false;
    FP8Q_TRY(fp8q_lstat(path, &st, &there, err));

    if (!there || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != plan->shards[shard].size_bytes)
        return FP8Q_OK;

    struct stamp then = stamp_of(&record->stat), now = stamp_of(&st);
    *same_out = memcmp(&then, &now, sizeof(then)) == 0;
    if (*same_out)
        return FP8Q_OK;

    /* Touched, or copied with the tree: the bytes decide, at the price of a read.  */
    char *buf = malloc(CHUNK);
    int status = buf ? compare_file(plan, shard, path, buf, record->crcs, same_out, err)
                     : fp8q_fail_nomem(err);
    free(buf);
    return status;
}
