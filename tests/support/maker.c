/* SPDX-License-Identifier: Apache-2.0
 *
 * maker.c - writes checkpoints, one shard after another, data in pieces of a megabyte.
 */
#include "support/maker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"
#include "format/jsonw.h"

static void must(int status, const struct fp8q_error *err)
{
    if (status == FP8Q_OK)
        return;
    fprintf(stderr, "maker: %s\n", err->message);
    exit(70);
}

static void *must_have(void *p)
{
    if (p)
        return p;
    fputs("maker: out of memory\n", stderr);
    exit(70);
}

struct maker_tensor *maker_add(struct maker *m, const char *name, enum fp8q_dtype dtype,
                               uint32_t ndim, const uint64_t *shape, size_t shard)
{
    struct fp8q_error err = {0};
    must(fp8q_grow(&m->tensors, m->n, &m->cap, sizeof(*m->tensors), &err), &err);
    struct maker_tensor *t = &m->tensors[m->n++];
    *t = (struct maker_tensor){
        .name = must_have(strdup(name)), .ndim = ndim, .dtype = dtype, .shard = shard};
    memcpy(t->shape, shape, ndim * sizeof(*shape));

    if (shard >= m->n_shards)
        m->n_shards = shard + 1;
    return t;
}

uint64_t maker_bytes(const struct maker_tensor *t)
{
    uint64_t n = 0;
    if (!fp8q_shape_count(t->shape, t->ndim, &n)) {
        fprintf(stderr, "maker: the shape of %s is too large\n", t->name);
        exit(70);
    }
    return n * fp8q_dtype_bits(t->dtype) / 8;
}

void maker_free(struct maker *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->tensors[i].name);
    free(m->tensors);
    m->tensors = NULL;
    m->n = m->cap = m->n_shards = 0;
}

static void write_data(const struct maker *m, const struct maker_tensor *t, int fd,
                       const char *path, uint64_t offset)
{
    enum { PIECE = 1 << 20 };
    static char buffer[PIECE];
    struct fp8q_error err = {0};
    uint64_t size = maker_bytes(t);

    for (uint64_t at = 0; at < size; at += PIECE) {
        size_t n = fp8q_min_size(PIECE, (size_t)(size - at));
        if (t->data)
            memcpy(buffer, (const char *)t->data + at, n);
        else if (m->fill)
            m->fill(m->ctx, t, at, buffer, n);
        else
            memset(buffer, 0, n);
        must(fp8q_pwrite(fd, buffer, n, offset + at, path, &err), &err);
    }
}

void maker_write_shard(const struct maker *m, size_t shard, const char *path)
{
    static const struct fp8q_st_pair format = {"format", "pt", 6, 2};
    struct fp8q_error err = {0};
    struct fp8q_text header = {0};
    struct fp8q_st_tensor *entries = must_have(calloc(m->n + 1, sizeof(*entries)));
    size_t n = 0;
    uint64_t end = 0;
    int fd;

    for (size_t i = 0; i < m->n; i++) {
        struct maker_tensor *t = &m->tensors[i];
        if (t->shard != shard)
            continue;
        entries[n++] = (struct fp8q_st_tensor){.name = t->name,
                                               .shape = t->shape,
                                               .ndim = t->ndim,
                                               .dtype = t->dtype,
                                               .begin = end,
                                               .end = end + maker_bytes(t)};
        end += maker_bytes(t);
    }
    must(fp8q_st_emit(entries, n, m->metadata ? m->metadata : &format,
                      m->metadata ? m->n_metadata : 1, 0, &header, &err),
         &err);
    must(fp8q_create(path, &fd, &err), &err);
    must(fp8q_pwrite(fd, header.data, header.len, 0, path, &err), &err);

    if (m->sparse && ftruncate(fd, (off_t)(header.len + end)) != 0) {
        perror(path);
        exit(70);
    }
    for (size_t i = 0, k = 0; i < m->n && !m->sparse; i++)
        if (m->tensors[i].shard == shard)
            write_data(m, &m->tensors[i], fd, path, header.len + entries[k++].begin);

    must(fp8q_close(&fd, path, &err), &err);
    fp8q_text_reset(&header);
    free(entries);
}

void maker_shard_name(char *name, size_t cap, size_t shard, size_t n_shards)
{
    if (n_shards == 1)
        snprintf(name, cap, "model.safetensors");
    else
        snprintf(name, cap, "model-%05zu-of-%05zu.safetensors", shard + 1, n_shards);
}

void maker_write_text(const char *dir, const char *name, const char *text)
{
    struct fp8q_error err = {0};
    char *path = must_have(fp8q_join(dir, name));
    must(fp8q_make_parents(dir, name, &err), &err);
    must(fp8q_write_file(path, text, strlen(text), &err), &err);
    free(path);
}

void maker_write_index(const struct maker *m, const char *dir)
{
    struct fp8q_error err = {0};
    struct fp8q_jsonw w = {.indent = 2};
    char name[64];
    uint64_t total = 0;
    for (size_t i = 0; i < m->n; i++)
        total += maker_bytes(&m->tensors[i]);

    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_open(&w, "metadata", '{');
    fp8q_jsonw_uint(&w, "total_size", total);
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_open(&w, "weight_map", '{');
    for (size_t i = 0; i < m->n; i++) {
        if (m->tensors[i].unlisted)
            continue;
        maker_shard_name(name, sizeof(name), m->tensors[i].shard, m->n_shards);
        fp8q_jsonw_string(&w, m->tensors[i].name, name);
    }
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_close(&w, '}');

    must(fp8q_text_status(&w.text, &err), &err);
    maker_write_text(dir, "model.safetensors.index.json", w.text.data);
    fp8q_text_reset(&w.text);
}

void maker_write(const struct maker *m, const char *dir, const char *config)
{
    struct fp8q_error err = {0};
    char name[64];
    must(fp8q_mkdir(dir, &err), &err);

    for (size_t i = 0; i < m->n_shards; i++) {
        maker_shard_name(name, sizeof(name), i, m->n_shards);
        char *path = must_have(fp8q_join(dir, name));
        maker_write_shard(m, i, path);
        free(path);
    }
    if (m->n_shards > 1)
        maker_write_index(m, dir);
    if (config)
        maker_write_text(dir, "config.json", config);
}
