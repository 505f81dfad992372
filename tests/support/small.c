/* SPDX-License-Identifier: Apache-2.0
 *
 * small.c - makes small checkpoints and takes digests of trees.
 */
#include "support/small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "base/crc.h"
#include "format/safetensors.h"

static void must(int status, const struct fp8q_error *err)
{
    if (status == FP8Q_OK)
        return;
    fprintf(stderr, "small: %s\n", err->message);
    exit(70);
}

struct small_tensor {
    const char *name;
    uint64_t shape[2];
    uint32_t ndim;
    unsigned shard;
};

static const struct small_tensor tensors[] = {
    {"model.embed_tokens.weight", {8, 128}, 2, 0},
    {"model.layers.0.input_layernorm.weight", {128}, 1, 0},
    {"model.layers.0.mlp.down_proj.weight", {128, 256}, 2, 0},
    {"model.layers.0.mlp.gate_proj.weight", {256, 128}, 2, 1},
    {"model.layers.0.mlp.up_proj.weight", {256, 128}, 2, 1},
    {"model.norm.weight", {128}, 1, 1},
};
enum { N_TENSORS = sizeof(tensors) / sizeof(*tensors) };

/* BF16 with changing signs and a zero now and then; each 128x128 block and each seed has another
 * largest value, so that scales differ.  */
static void fill(uint16_t *values, uint64_t n, uint64_t *seed)
{
    uint32_t spread = 0x3FF - (uint32_t)(*seed % 64) * 5;
    for (uint64_t i = 0; i < n; i++) {
        *seed = *seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(*seed >> 40);
        uint32_t value = 0x3A00 + bits % spread + ((uint32_t)(i >> 14) % 4 << 7) + (bits & 0x8000);
        values[i] = bits % 97 == 0 ? 0 : (uint16_t)value;
    }
}

/* Tensors of one shard, or all of them with @shard 2.  */
static void write_shard(const char *path, unsigned shard, uint64_t seed)
{
    struct fp8q_st_tensor entries[N_TENSORS];
    static const struct fp8q_st_pair pairs[] = {{"format", "pt", 6, 2}};
    struct fp8q_text file = {0};
    struct fp8q_error err = {0};
    size_t n = 0;
    uint64_t at = 0;
    for (size_t i = 0; i < N_TENSORS; i++) {
        const struct small_tensor *t = &tensors[i];
        uint64_t size = 2 * t->shape[0] * (t->ndim == 2 ? t->shape[1] : 1);
        if (shard != 2 && t->shard != shard)
            continue;
        entries[n++] = (struct fp8q_st_tensor){.name = t->name,
                                               .shape = t->shape,
                                               .ndim = t->ndim,
                                               .dtype = FP8Q_BF16,
                                               .begin = at,
                                               .end = at + size};
        at += size;
    }
    must(fp8q_st_emit(entries, n, pairs, 1, 0, &file, &err), &err);
    uint16_t *values = malloc((size_t)at);
    if (!values)
        exit(70);
    fill(values, at / 2, &seed);
    fp8q_text_add(&file, (const char *)values, (size_t)at);
    must(fp8q_write_file(path, file.data, file.len, &err), &err);
    fp8q_text_reset(&file);
    free(values);
}

static void write_in(const char *dir, const char *name, const char *text)
{
    struct fp8q_error err = {0};
    char *path = fp8q_join(dir, name);
    must(fp8q_make_parents(dir, name, &err), &err);
    must(fp8q_write_file(path, text, strlen(text), &err), &err);
    free(path);
}

void small_dir(const char *path, uint64_t seed)
{
    struct fp8q_error err = {0};
    struct fp8q_text index = {0};
    must(fp8q_mkdir(path, &err), &err);
    fp8q_text_puts(&index, "{\"metadata\": {\"total_size\": 199168}, \"weight_map\": {");
    for (size_t i = 0; i < N_TENSORS; i++)
        fp8q_text_printf(&index, "%s\"%s\": \"model-0000%u-of-00002.safetensors\"", i ? ", " : "",
                         tensors[i].name, tensors[i].shard + 1);
    fp8q_text_puts(&index, "}}\n");
    for (unsigned i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof(name), "model-0000%u-of-00002.safetensors", i + 1);
        char *shard = fp8q_join(path, name);
        write_shard(shard, i, seed + i);
        free(shard);
    }
    write_in(path, "model.safetensors.index.json", index.data);
    write_in(path, "config.json",
             "{\n  \"model_type\": \"llama\",\n  \"hidden_size\": 128,\n"
             "  \"num_attention_heads\": 1\n}\n");
    write_in(path, "tokenizer.json", "{\"version\": \"1.0\"}\n");
    write_in(path, "extra/notes.txt", "kept as it is\n");
    fp8q_text_reset(&index);
}

void small_file(const char *path, uint64_t seed)
{
    write_shard(path, 2, seed);
}

uint32_t tree_digest(const char *path)
{
    struct fp8q_error err = {0};
    struct stat st;
    bool there;
    char **names, *data;
    size_t n;
    must(fp8q_lstat(path, &st, &there, &err), &err);
    if (!there)
        return 0;
    uint32_t crc = fp8q_crc32(0, S_ISDIR(st.st_mode) ? "d" : "f", 1);
    if (!S_ISDIR(st.st_mode)) {
        must(fp8q_read_file(path, UINT64_MAX, &data, &n, &err), &err);
        crc = fp8q_crc32(crc, data, n);
        free(data);
        return crc;
    }
    must(fp8q_list_dir(path, &names, &n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        char *child = fp8q_join(path, names[i]);
        uint32_t inner = tree_digest(child);
        crc = fp8q_crc32(crc, names[i], strlen(names[i]) + 1);
        crc = fp8q_crc32(crc, &inner, sizeof(inner));
        free(child);
    }
    fp8q_names_free(names, n);
    return crc;
}

void tree_copy(const char *from, const char *to)
{
    struct fp8q_error err = {0};
    bool is_dir;
    char **names;
    size_t n;
    must(fp8q_is_dir(from, &is_dir, &err), &err);
    if (!is_dir) {
        must(fp8q_copy_file(from, to, NULL, &err), &err);
        return;
    }
    must(fp8q_mkdir(to, &err), &err);
    must(fp8q_list_dir(from, &names, &n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        char *a = fp8q_join(from, names[i]), *b = fp8q_join(to, names[i]);
        tree_copy(a, b);
        free(a);
        free(b);
    }
    fp8q_names_free(names, n);
}
