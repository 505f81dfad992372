/* SPDX-License-Identifier: Apache-2.0
 *
 * journal.c - commit.json, and the mark by which an output is known again.
 */
#include "destination/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"

/* ---- which output is it? --------------------------------------------------------------------- */

enum { LOOKED_AT = 1 << 20 };

/* The first bytes of a file hold every header and checksum.  @buf takes them.  */
static int read_beginning(const char *path, char *buf, struct stat *stat_out, size_t *n_out,
                          struct fp8q_error *err)
{
    int fd;
    FP8Q_TRY(fp8q_open_read(path, stat_out, &fd, err));
    *n_out = (size_t)fp8q_min_u64((uint64_t)stat_out->st_size, LOOKED_AT);
    int status = fp8q_pread(fd, buf, *n_out, 0, path, err);
    (void)fp8q_close(&fd, path, NULL);
    return status;
}

static int mark_file(const char *dir, const char *name, char *buf, uint32_t *crc,
                     struct fp8q_error *err)
{
    struct stat st = {0};
    size_t n = 0;

    char *path = fp8q_join(dir, name);
    int status = path ? read_beginning(path, buf, &st, &n, err) : fp8q_fail_nomem(err);
    free(path);
    FP8Q_TRY(status);

    /* Name and size count, too: two files of the same beginning are told apart.  */
    *crc = fp8q_crc32(*crc, name, strlen(name) + 1);
    *crc = fp8q_crc32(*crc, &st.st_size, sizeof(st.st_size));
    *crc = fp8q_crc32(*crc, buf, n);
    return FP8Q_OK;
}

static int mark_files(const char *dir, const struct fp8q_listing *files, char *buf,
                      uint32_t *crc_out, struct fp8q_error *err)
{
    *crc_out = 0;
    for (size_t i = 0; i < files->count; i++)
        FP8Q_TRY(mark_file(dir, files->names[i], buf, crc_out, err));
    return FP8Q_OK;
}

/* *@complete_out is false, and the result 0, if a listed file is not there.  */
int fp8q_mark_of(const char *dir, const struct fp8q_listing *files, uint32_t *crc_out,
                 bool *complete_out, struct fp8q_error *err)
{
    const char *missing;

    *crc_out = 0;
    *complete_out = false;
    FP8Q_TRY(fp8q_listing_missing(files, dir, &missing, err));
    if (missing)
        return FP8Q_OK;

    char *buf = malloc(LOOKED_AT);
    int status = buf ? mark_files(dir, files, buf, crc_out, err) : fp8q_fail_nomem(err);
    free(buf);
    *complete_out = status == FP8Q_OK;
    return status;
}

/* ---- commit.json ----------------------------------------------------------------------------- */

static int put(const struct fp8q_outdir *out, const struct fp8q_text *text, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_text_status(text, err));
    return fp8q_workdir_put(&out->names, FP8Q_COMMIT_NAME, text->data, false, err);
}

int fp8q_journal_write(const struct fp8q_outdir *out, const struct fp8q_lock_file *lock,
                       struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 1};
    uint32_t mark;
    bool complete;

    /* Of DST.partial, which is whole by now: it is how the next run knows the new output.  */
    FP8Q_TRY(fp8q_mark_of(out->names.partial, out->rules.files, &mark, &complete, err));

    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_uint(&w, "mark", mark);
    fp8q_listing_write(&out->old, "replaced", &w);
    fp8q_lock_file_json(lock, &w);
    fp8q_jsonw_close(&w, '}');

    int status = put(out, &w.text, err);
    fp8q_text_reset(&w.text);
    return status;
}

void fp8q_journal_reset(struct fp8q_journal *c)
{
    fp8q_listing_reset(&c->old);
    fp8q_lock_file_reset(&c->lock);
}

static int parse(const struct fp8q_json *json, struct fp8q_journal *c, struct fp8q_error *err)
{
    (void)fp8q_json_uint(fp8q_json_get(json, "mark"), &c->mark);
    FP8Q_TRY(fp8q_listing_parse(fp8q_json_get(json, "replaced"), &c->old, err));
    return fp8q_lock_file_parse(json, &c->lock, err);
}

int fp8q_journal_read(const struct fp8q_destination *names, struct fp8q_journal *c,
                      struct fp8q_error *err)
{
    struct fp8q_json *json;

    /* No checksum is as large, so a commit.json without a mark matches no output.  */
    *c = (struct fp8q_journal){.mark = UINT64_MAX};
    FP8Q_TRY(fp8q_workdir_get(names, FP8Q_COMMIT_NAME, &json, err));
    c->pending = json != NULL;
    if (!json)
        return FP8Q_OK;

    int status = parse(json, c, err);
    fp8q_json_free(json);
    if (status != FP8Q_OK)
        fp8q_journal_reset(c);
    return status;
}
