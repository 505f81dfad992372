/* SPDX-License-Identifier: Apache-2.0
 *
 * record.c - records of finished shards: a text line, checksums, scales, and a CRC over all of it.
 */
#include "convert/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/path.h"
#include "base/dir.h"
#include "base/crc.h"
#include "base/mem.h"

static char *record_path(const char *record_dir, size_t shard, bool fresh)
{
    char name[64];
    snprintf(name, sizeof(name), "shard-%06zu.record", shard);
    return (fresh ? fp8q_join_unique : fp8q_join)(record_dir, name);
}

/* Source tensors whose first piece feeds this shard; each belongs to exactly one.  */
static size_t sources_of(const struct fp8q_plan *plan, size_t shard, size_t *list)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    size_t n = 0, last = SIZE_MAX;
    for (size_t i = s->first_piece; i < s->first_piece + s->n_pieces; i++) {
        if (plan->pieces[i].source != last)
            list[n++] = plan->pieces[i].source;
        last = plan->pieces[i].source;
    }
    return n;
}

static void head_line(const struct fp8q_plan *plan, size_t shard, char line[128])
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    snprintf(line, 128, "fp8q-record/1 %zu %08x %llu\n", shard, (unsigned)s->header_crc32,
             (unsigned long long)s->size_bytes);
}

int fp8q_record_write(const struct fp8q_plan *plan, size_t shard, const char *record_dir,
                      const struct fp8q_results *results, const float *scales,
                      struct fp8q_error *err)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    struct fp8q_text t = {0};
    char line[128];
    size_t *sources = fp8q_array(s->n_pieces, sizeof(*sources));
    char *path = record_path(record_dir, shard, false),
         *fresh = record_path(record_dir, shard, true);
    int status = sources && path && fresh ? FP8Q_OK : fp8q_fail_nomem(err);
    if (status == FP8Q_OK) {
        size_t n = sources_of(plan, shard, sources);
        head_line(plan, shard, line);
        fp8q_text_puts(&t, line);
        for (size_t i = s->first_piece; i < s->first_piece + s->n_pieces; i++) {
            const struct fp8q_piece *p = &plan->pieces[i];
            uint32_t crc[2] = {results->output_crc[p->output],
                               p->scale == SIZE_MAX ? 0 : results->output_crc[p->scale]};
            fp8q_text_add(&t, (const char *)crc, sizeof(crc));
        }
        for (size_t i = 0; i < n; i++)
            fp8q_text_add(&t, (const char *)&results->source_crc[sources[i]], sizeof(uint32_t));
        fp8q_text_add(&t, (const char *)scales, (size_t)s->scale_bytes);
        uint32_t crc = fp8q_crc32(0, t.data, t.len);
        fp8q_text_add(&t, (const char *)&crc, sizeof(crc));
        status = fp8q_text_status(&t, err);
    }
    if (status == FP8Q_OK)
        status = fp8q_write_file(fresh, t.data, t.len, err);
    if (status == FP8Q_OK) {
        status = fp8q_rename(fresh, path, err);
        if (status != FP8Q_OK)
            (void)fp8q_remove_tree(fresh, NULL);
    }
    fp8q_text_reset(&t);
    free(sources);
    free(path);
    free(fresh);
    return status;
}

/* No record of this shard is larger.  */
static uint64_t record_limit(const struct fp8q_plan *plan, size_t shard)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    return s->scale_bytes + s->n_pieces * 3 * sizeof(uint32_t) + 256;
}

/* Takes a record's bytes apart once its length and CRC are right.  */
static bool take_apart(const struct fp8q_plan *plan, size_t shard, const char *data, size_t len,
                       const size_t *sources, size_t n_sources, struct fp8q_results *results,
                       float *scales)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    char line[128];
    uint32_t crc[2], end;
    head_line(plan, shard, line);
    uint64_t want = strlen(line) + s->n_pieces * sizeof(crc) + n_sources * sizeof(uint32_t) +
                    s->scale_bytes + sizeof(end);
    if (len != want || memcmp(data, line, strlen(line)) != 0)
        return false;
    memcpy(&end, data + len - sizeof(end), sizeof(end));
    if (fp8q_crc32(0, data, len - sizeof(end)) != end)
        return false;
    const char *at = data + strlen(line);
    for (size_t i = s->first_piece; i < s->first_piece + s->n_pieces; i++) {
        memcpy(crc, at, sizeof(crc));
        at += sizeof(crc);
        results->output_crc[plan->pieces[i].output] = crc[0];
        if (plan->pieces[i].scale != SIZE_MAX)
            results->output_crc[plan->pieces[i].scale] = crc[1];
    }
    for (size_t i = 0; i < n_sources; i++, at += sizeof(uint32_t))
        memcpy(&results->source_crc[sources[i]], at, sizeof(uint32_t));
    if (scales)
        memcpy(scales, at, (size_t)s->scale_bytes);
    return true;
}

int fp8q_record_read(const struct fp8q_plan *plan, size_t shard, const char *record_dir,
                     struct fp8q_results *results, float **scales_out, bool *found_out,
                     struct fp8q_error *err)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    char *data = NULL;
    size_t len = 0;
    *found_out = false;
    if (scales_out)
        *scales_out = NULL;
    size_t *sources = fp8q_array(s->n_pieces, sizeof(*sources));
    float *scales = scales_out ? fp8q_array(s->scale_bytes, 1) : NULL;
    char *path = record_path(record_dir, shard, false);
    int status = sources && path && (scales || !scales_out) ? FP8Q_OK : fp8q_fail_nomem(err);
    if (status == FP8Q_OK) /* a larger file is no record of this shard */
        status = fp8q_read_file_if_there(path, record_limit(plan, shard), &data, &len, err);
    if (status == FP8Q_E_FORMAT)
        status = FP8Q_OK;
    if (data) {
        size_t n = sources_of(plan, shard, sources);
        *found_out = take_apart(plan, shard, data, len, sources, n, results, scales);
    }
    if (*found_out && scales_out) {
        *scales_out = scales;
        scales = NULL;
    }
    free(scales);
    free(data);
    free(sources);
    free(path);
    return status;
}
