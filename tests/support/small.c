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
#include "support/maker.h"

static void must(int status, const struct fp8q_error *err)
{
    if (status == FP8Q_OK)
        return;
    fprintf(stderr, "small: %s\n", err->message);
    exit(70);
}

static const struct {
    const char *name;
    uint64_t shape[2];
    uint32_t ndim;
    size_t shard;
} tensors[] = {
    {"model.embed_tokens.weight", {8, 128}, 2, 0},
    {"model.layers.0.input_layernorm.weight", {128}, 1, 0},
    {"model.layers.0.mlp.down_proj.weight", {128, 256}, 2, 0},
    {"model.layers.0.mlp.gate_proj.weight", {256, 128}, 2, 1},
    {"model.layers.0.mlp.up_proj.weight", {256, 128}, 2, 1},
    {"model.norm.weight", {128}, 1, 1},
};

/* BF16 with changing signs and a zero now and then; each 128x128 block and each seed has another
 * largest value, so that scales differ.  */
struct values {
    uint64_t seed, state;
};

static void fill(void *ctx, const struct maker_tensor *t, uint64_t from, void *out, size_t len)
{
    struct values *v = ctx;
    uint16_t *values = out;
    if (from == 0)
        v->state = v->seed * 1000 + strlen(t->name) * 7 + (unsigned char)t->name[15];

    uint32_t spread = 0x3FF - (uint32_t)(v->seed % 64) * 5;
    for (size_t i = 0; i < len / 2; i++) {
        v->state = v->state * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(v->state >> 40), block = (uint32_t)((from / 2 + i) >> 14);
        uint32_t value = 0x3A00 + bits % spread + (block % 4 << 7) + (bits & 0x8000);
        values[i] = bits % 97 == 0 ? 0 : (uint16_t)value;
    }
}

/* The tensors in their shards, or all in one.  */
static struct maker make(struct values *values, bool one_shard)
{
    struct maker m = {.fill = fill, .ctx = values};
    for (size_t i = 0; i < sizeof(tensors) / sizeof(*tensors); i++)
        maker_add(&m, tensors[i].name, FP8Q_BF16, tensors[i].ndim, tensors[i].shape,
                  one_shard ? 0 : tensors[i].shard);
    return m;
}

void small_dir(const char *path, uint64_t seed)
{
    struct values values = {.seed = seed};
    struct maker m = make(&values, false);

    maker_write(&m, path,
                "{\n  \"model_type\": \"llama\",\n  \"hidden_size\": 128,\n"
                "  \"num_attention_heads\": 1\n}\n");
    maker_write_text(path, "tokenizer.json", "{\"version\": \"1.0\"}\n");
    maker_write_text(path, "extra/notes.txt", "kept as it is\n");
    maker_free(&m);
}

void small_file(const char *path, uint64_t seed)
{
    struct values values = {.seed = seed};
    struct maker m = make(&values, true);

    maker_write_shard(&m, 0, path);
    maker_free(&m);
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
        must(fp8q_copy_file(from, to, NULL, NULL, &err), &err);
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
