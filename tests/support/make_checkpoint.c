/* SPDX-License-Identifier: Apache-2.0
 *
 * make_checkpoint.c - makes checkpoints of real architectures without Python, for the demo, tests
 * and benchmarks.
 *
 *     make_checkpoint KIND PATH
 *
 * KIND: tiny            Qwen2.5-VL, one directory of 2 MB
 *       vl-2gb          Qwen2.5-VL-like, 2.2 GB in two shards: the benchmark
 *       file-2gb        the same tensors in one file
 *       size=MB         Llama-like layers in one file of about that size
 *       shards=N,MB     Llama-like, N shards of MB each
 *       embeds=T,H      8 samples of T embeddings of width H that are much alike, to calibrate on
 *       many=N          N shards of 33 kB with one tensor each
 *       sparse=N,MB     as shards=N,MB, data sparse (reads as zeros)
 *       vl-3b           Qwen2.5-VL-3B: all headers, data sparse (reads as zeros)
 *       deepseek-v3-fp8 DeepSeek-V3 as published: FP8 with scales, some 92,000 tensors, data sparse
 *       deepseek-v3     DeepSeek-V3 in BF16: 163 shards, some 46,000 tensors, data sparse
 *
 * Values are about normal(0, 0.02) with some outliers, from a fixed seed: the same bytes
 * everywhere.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "format/jsonw.h"
#include "base/mem.h"
#include "format/safetensors.h"

struct tensor {
    char name[160];
    uint64_t shape[5];
    uint32_t ndim;
    enum fp8q_dtype dtype;
    size_t shard;
};

struct maker {
    struct tensor *tensors;
    size_t n, cap, n_shards;
    bool fp8;                         /* projections are F8_E4M3 with block scales */
    bool sparse, alike;               /* data left out; rows near a line */
    uint64_t shard_limit, shard_used; /* bytes; a new shard begins beyond */
    uint64_t seed;
};

static void die(const char *what)
{
    fprintf(stderr, "make_checkpoint: %s\n", what);
    exit(1);
}

static uint64_t bytes_of(const struct tensor *t)
{
    uint64_t n = 0;
    if (!fp8q_shape_count(t->shape, t->ndim, &n))
        die("a shape is too large");
    return n * fp8q_dtype_bits(t->dtype) / 8;
}

static void add(struct maker *m, const char *prefix, const char *name, uint32_t ndim, uint64_t a,
                uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    struct fp8q_error err = {0};
    if (fp8q_grow(&m->tensors, m->n, &m->cap, sizeof(*m->tensors), &err) != FP8Q_OK)
        die(err.message);
    struct tensor *t = &m->tensors[m->n];
    *t = (struct tensor){.shape = {a, b, c, d, e}, .ndim = ndim, .dtype = FP8Q_BF16};
    snprintf(t->name, sizeof(t->name), "%s%s", prefix, name);
    if (m->shard_limit && m->shard_used > 0 && m->shard_used + bytes_of(t) > m->shard_limit) {
        m->n_shards++;
        m->shard_used = 0;
    }
    m->shard_used += bytes_of(t);
    t->shard = m->n_shards;
    m->n++;
}

static void matrix(struct maker *m, const char *prefix, const char *name, uint64_t rows,
                   uint64_t cols)
{
    char scale[128];
    add(m, prefix, name, 2, rows, cols, 0, 0, 0);
    if (!m->fp8 || !strstr(name, "_proj") || strstr(name, "eh_proj"))
        return;
    m->tensors[m->n - 1].dtype = FP8Q_F8_E4M3;
    snprintf(scale, sizeof(scale), "%s_scale_inv", name);
    add(m, prefix, scale, 2, fp8q_ceil_div(rows, 128), fp8q_ceil_div(cols, 128), 0, 0, 0);
    m->tensors[m->n - 1].dtype = FP8Q_F32;
}

static void vector(struct maker *m, const char *prefix, const char *name, uint64_t n)
{
    add(m, prefix, name, 1, n, 0, 0, 0, 0);
}

/* ---- architectures --------------------------------------------------------------------------- */

static void attention(struct maker *m, const char *layer, uint64_t hidden, uint64_t q, uint64_t kv,
                      bool bias)
{
    vector(m, layer, "input_layernorm.weight", hidden);
    matrix(m, layer, "self_attn.q_proj.weight", q, hidden);
    matrix(m, layer, "self_attn.k_proj.weight", kv, hidden);
    matrix(m, layer, "self_attn.v_proj.weight", kv, hidden);
    matrix(m, layer, "self_attn.o_proj.weight", hidden, q);
    if (bias) {
        vector(m, layer, "self_attn.q_proj.bias", q);
        vector(m, layer, "self_attn.k_proj.bias", kv);
        vector(m, layer, "self_attn.v_proj.bias", kv);
    }
    vector(m, layer, "post_attention_layernorm.weight", hidden);
}

static void mlp(struct maker *m, const char *prefix, uint64_t hidden, uint64_t inner)
{
    matrix(m, prefix, "gate_proj.weight", inner, hidden);
    matrix(m, prefix, "up_proj.weight", inner, hidden);
    matrix(m, prefix, "down_proj.weight", hidden, inner);
}

static void decoder(struct maker *m, const char *root, uint64_t layers, uint64_t hidden,
                    uint64_t kv, uint64_t inner, uint64_t vocab, bool bias)
{
    char prefix[96], inside[128];
    matrix(m, root, "embed_tokens.weight", vocab, hidden);
    for (uint64_t i = 0; i < layers; i++) {
        snprintf(prefix, sizeof(prefix), "%slayers.%llu.", root, (unsigned long long)i);
        attention(m, prefix, hidden, hidden, kv, bias);
        snprintf(inside, sizeof(inside), "%smlp.", prefix);
        mlp(m, inside, hidden, inner);
    }
    vector(m, root, "norm.weight", hidden);
}

static void vision(struct maker *m, uint64_t depth, uint64_t hidden, uint64_t inner, uint64_t out,
                   uint64_t patch)
{
    char prefix[64];
    add(m, "visual.", "patch_embed.proj.weight", 5, hidden, 3, 2, patch, patch);
    for (uint64_t i = 0; i < depth; i++) {
        snprintf(prefix, sizeof(prefix), "visual.blocks.%llu.", (unsigned long long)i);
        vector(m, prefix, "norm1.weight", hidden);
        vector(m, prefix, "norm2.weight", hidden);
        matrix(m, prefix, "attn.qkv.weight", 3 * hidden, hidden);
        vector(m, prefix, "attn.qkv.bias", 3 * hidden);
        matrix(m, prefix, "attn.proj.weight", hidden, hidden);
        vector(m, prefix, "attn.proj.bias", hidden);
        matrix(m, prefix, "mlp.gate_proj.weight", inner, hidden);
        vector(m, prefix, "mlp.gate_proj.bias", inner);
        matrix(m, prefix, "mlp.up_proj.weight", inner, hidden);
        vector(m, prefix, "mlp.up_proj.bias", inner);
        matrix(m, prefix, "mlp.down_proj.weight", hidden, inner);
        vector(m, prefix, "mlp.down_proj.bias", hidden);
    }
    vector(m, "visual.", "merger.ln_q.weight", hidden);
    matrix(m, "visual.", "merger.mlp.0.weight", 4 * hidden, 4 * hidden);
    vector(m, "visual.", "merger.mlp.0.bias", 4 * hidden);
    matrix(m, "visual.", "merger.mlp.2.weight", out, 4 * hidden);
    vector(m, "visual.", "merger.mlp.2.bias", out);
}

/* 61 layers and the MTP layer 61; three dense layers, then 256 experts and a shared one.  */
static void deepseek(struct maker *m)
{
    char prefix[96], inside[128];
    matrix(m, "model.", "embed_tokens.weight", 129280, 7168);
    for (unsigned i = 0; i < 62; i++) {
        snprintf(prefix, sizeof(prefix), "model.layers.%u.", i);
        vector(m, prefix, "input_layernorm.weight", 7168);
        matrix(m, prefix, "self_attn.q_a_proj.weight", 1536, 7168);
        vector(m, prefix, "self_attn.q_a_layernorm.weight", 1536);
        matrix(m, prefix, "self_attn.q_b_proj.weight", 24576, 1536);
        matrix(m, prefix, "self_attn.kv_a_proj_with_mqa.weight", 576, 7168);
        vector(m, prefix, "self_attn.kv_a_layernorm.weight", 512);
        matrix(m, prefix, "self_attn.kv_b_proj.weight", 32768, 512);
        matrix(m, prefix, "self_attn.o_proj.weight", 7168, 16384);
        vector(m, prefix, "post_attention_layernorm.weight", 7168);
        snprintf(inside, sizeof(inside), "%smlp.", prefix);
        if (i < 3) {
            mlp(m, inside, 7168, 18432);
            continue;
        }
        matrix(m, prefix, "mlp.gate.weight", 256, 7168);
        vector(m, prefix, "mlp.gate.e_score_correction_bias", 256);
        for (unsigned e = 0; e < 256; e++) {
            snprintf(inside, sizeof(inside), "%smlp.experts.%u.", prefix, e);
            mlp(m, inside, 7168, 2048);
        }
        snprintf(inside, sizeof(inside), "%smlp.shared_experts.", prefix);
        mlp(m, inside, 7168, 2048);
        if (i == 61) {
            matrix(m, prefix, "embed_tokens.weight", 129280, 7168);
            matrix(m, prefix, "eh_proj.weight", 7168, 14336);
            vector(m, prefix, "enorm.weight", 7168);
            vector(m, prefix, "hnorm.weight", 7168);
            matrix(m, prefix, "shared_head.head.weight", 129280, 7168);
            vector(m, prefix, "shared_head.norm.weight", 7168);
        }
    }
    vector(m, "model.", "norm.weight", 7168);
    matrix(m, "", "lm_head.weight", 129280, 7168);
}

/* ---- values and files ------------------------------------------------------------------------ */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

static uint16_t bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

/* The sum of four 16-bit numbers is near enough to a normal one.  */
static uint16_t random_weight(uint64_t *state)
{
    uint64_t r = next_random(state);
    float sum =
        (float)((r & 0xFFFF) + (r >> 16 & 0xFFFF) + (r >> 32 & 0xFFFF) + (r >> 48)) - 131070.0f;
    float x = sum * (0.02f / 37837.0f);
    return bf16((r & 0xFFF) == 0 ? x * 20 : x);
}

static void write_values(const struct maker *m, int fd, const char *path, const struct tensor *t,
                         uint64_t offset)
{
    enum { CHUNK = 1 << 19 };
    static uint16_t buffer[CHUNK];
    struct fp8q_error err = {0};
    uint64_t left = bytes_of(t) / 2, state = m->seed;
    for (const char *c = t->name; *c; c++)
        state = state * 31 + (unsigned char)*c;
    while (left > 0) {
        size_t n = left < CHUNK ? (size_t)left : CHUNK;
        for (size_t i = 0; i < n; i++)
            buffer[i] = t->ndim == 1 ? bf16(1.0f) : random_weight(&state);
        if (fp8q_pwrite(fd, buffer, n * 2, offset, path, &err) != FP8Q_OK)
            die(err.message);
        offset += n * 2;
        left -= n;
    }
}

/* Rows that lie near a line: what a calibration of correlated inputs needs.  */
static void write_alike(const struct maker *m, int fd, const char *path, const struct tensor *t,
                        uint64_t offset)
{
    struct fp8q_error err = {0};
    uint64_t state = m->seed, n = t->shape[0] * t->shape[1];
    uint16_t *values = fp8q_array(n, sizeof(*values));
    float *line = fp8q_array(t->shape[1], sizeof(*line));
    if (!values || !line)
        die("out of memory");
    for (uint64_t i = 0; i < t->shape[1]; i++)
        line[i] = (float)(next_random(&state) % 2001) / 1000 - 1;
    for (const char *c = t->name; *c; c++)
        state = state * 31 + (unsigned char)*c;
    for (uint64_t r = 0; r < t->shape[0]; r++) {
        float along = (float)(next_random(&state) % 2001) / 1000 - 1;
        for (uint64_t i = 0; i < t->shape[1]; i++)
            values[r * t->shape[1] + i] =
                bf16(along * line[i] + ((float)(next_random(&state) % 2001) / 1000 - 1) * 0.05f);
    }
    if (fp8q_pwrite(fd, values, (size_t)n * 2, offset, path, &err) != FP8Q_OK)
        die(err.message);
    free(line);
    free(values);
}

static void write_shard(const struct maker *m, size_t shard, const char *path)
{
    struct fp8q_error err = {0};
    struct fp8q_text header = {0};
    struct fp8q_st_tensor *entries = fp8q_array(m->n, sizeof(*entries));
    const struct fp8q_st_pair format = {"format", "pt", 6, 2};
    size_t n = 0;
    uint64_t end = 0;
    int fd;
    for (size_t i = 0; i < m->n && entries; i++)
        if (m->tensors[i].shard == shard) {
            struct tensor *t = &m->tensors[i];
            entries[n++] = (struct fp8q_st_tensor){t->name,           t->shape, end,
                                                   end + bytes_of(t), t->ndim,  t->dtype};
            end += bytes_of(t);
        }
    if (!entries || fp8q_st_emit(entries, n, &format, 1, 0, &header, &err) != FP8Q_OK ||
        fp8q_create(path, &fd, &err) != FP8Q_OK ||
        fp8q_pwrite(fd, header.data, header.len, 0, path, &err) != FP8Q_OK)
        die(err.message);
    if (m->sparse && ftruncate(fd, (off_t)(header.len + end)) != 0)
        die("cannot size a file");
    for (size_t i = 0, k = 0; i < m->n && !m->sparse; i++)
        if (m->tensors[i].shard == shard)
            (m->alike ? write_alike : write_values)(m, fd, path, &m->tensors[i],
                                                    header.len + entries[k++].begin);
    if (fp8q_close(&fd, path, &err) != FP8Q_OK)
        die(err.message);
    fp8q_text_reset(&header);
    free(entries);
}

static void write_text(const char *dir, const char *name, const char *text)
{
    struct fp8q_error err = {0};
    char *path = fp8q_join(dir, name);
    if (!path || fp8q_write_file(path, text, strlen(text), &err) != FP8Q_OK)
        die(err.message);
    free(path);
}

static void shard_name(char *name, size_t cap, size_t i, size_t n)
{
    if (n == 1)
        snprintf(name, cap, "model.safetensors");
    else
        snprintf(name, cap, "model-%05zu-of-%05zu.safetensors", i + 1, n);
}

static void write_index(const struct maker *m, const char *dir)
{
    struct fp8q_jsonw w = {.indent = 2};
    char name[64];
    uint64_t total = 0;
    for (size_t i = 0; i < m->n; i++)
        total += bytes_of(&m->tensors[i]);
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_open(&w, "metadata", '{');
    fp8q_jsonw_uint(&w, "total_size", total);
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_open(&w, "weight_map", '{');
    for (size_t i = 0; i < m->n; i++) {
        shard_name(name, sizeof(name), m->tensors[i].shard, m->n_shards);
        fp8q_jsonw_string(&w, m->tensors[i].name, name);
    }
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_close(&w, '}');
    if (w.text.failed)
        die("out of memory");
    write_text(dir, "model.safetensors.index.json", w.text.data);
    fp8q_text_reset(&w.text);
}

static void write_checkpoint(struct maker *m, const char *dir, const char *config)
{
    char name[64];
    if (mkdir(dir, 0777) != 0)
        die("cannot create the directory (does it exist?)");
    m->n_shards++;
    for (size_t i = 0; i < m->n_shards; i++) {
        shard_name(name, sizeof(name), i, m->n_shards);
        char *path = fp8q_join(dir, name);
        if (!path)
            die("out of memory");
        write_shard(m, i, path);
        free(path);
    }
    if (m->n_shards > 1)
        write_index(m, dir);
    write_text(dir, "config.json", config);
}

static const char vl_config[] =
    "{\n  \"architectures\": [\n    \"Qwen2_5_VLForConditionalGeneration\"\n  ],\n"
    "  \"model_type\": \"qwen2_5_vl\",\n  \"hidden_size\": %d,\n  \"num_attention_heads\": %d,\n"
    "  \"num_key_value_heads\": 2,\n  \"num_hidden_layers\": %d,\n  \"tie_word_embeddings\": "
    "true,\n"
    "  \"torch_dtype\": \"bfloat16\",\n  \"vision_config\": {\n    \"model_type\": "
    "\"qwen2_5_vl\"\n  }\n}\n";
static const char llama_config[] =
    "{\n  \"model_type\": \"llama\",\n  \"hidden_size\": 2048,\n  \"num_attention_heads\": 16,\n"
    "  \"num_key_value_heads\": 2\n}\n";
static const char deepseek_config[] =
    "{\n  \"model_type\": \"deepseek_v3\",\n  \"hidden_size\": 7168,\n  \"num_attention_heads\": "
    "128,\n"
    "  \"num_key_value_heads\": 128,\n  \"moe_intermediate_size\": 2048,\n  \"num_hidden_layers\": "
    "61\n}\n";

/* Below 100 MB the layers are small ones, or one would be more than all.  */
static void llama(struct maker *m, uint64_t megabytes)
{
    uint64_t hidden = megabytes < 100 ? 256 : 2048, kv = 256, inner = hidden * 11 / 4;
    uint64_t layer = 2 * (2 * hidden * hidden + 2 * kv * hidden + 3 * hidden * inner);
    uint64_t layers = megabytes * 1000000 / layer;
    decoder(m, "model.", layers ? layers : 1, hidden, kv, inner, 256, false);
}

int main(int argc, char **argv)
{
    struct maker m = {.seed = 20260801};
    char config[1024];
    unsigned long n = 0, mb = 0;
    if (argc != 3)
        die("usage: make_checkpoint KIND PATH (kinds are in the source's first comment)");
    const char *kind = argv[1], *path = argv[2];
    if (strcmp(kind, "tiny") == 0) {
        m.shard_limit = 1500000;
        vision(&m, 1, 128, 220, 256, 14);
        decoder(&m, "model.", 2, 256, 128, 384, 512, true);
        snprintf(config, sizeof(config), vl_config, 256, 4, 2);
        write_checkpoint(&m, path, config);
    } else if (strcmp(kind, "vl-2gb") == 0 || strcmp(kind, "file-2gb") == 0) {
        m.shard_limit = 1200000000;
        vision(&m, 8, 1280, 3420, 2048, 14);
        decoder(&m, "model.", 11, 2048, 256, 11008, 32768, true);
        snprintf(config, sizeof(config), vl_config, 2048, 16, 11);
        if (kind[0] == 'v') {
            write_checkpoint(&m, path, config);
        } else {
            for (size_t i = 0; i < m.n; i++)
                m.tensors[i].shard = 0;
            write_shard(&m, 0, path);
        }
    } else if (sscanf(kind, "size=%lu", &mb) == 1) {
        llama(&m, mb);
        write_shard(&m, 0, path);
    } else if (sscanf(kind, "shards=%lu,%lu", &n, &mb) == 2) {
        m.shard_limit = mb * 1000000;
        llama(&m, n * mb);
        write_checkpoint(&m, path, llama_config);
    } else if (sscanf(kind, "embeds=%lu,%lu", &n, &mb) == 2) {
        m.alike = true;
        for (unsigned i = 0; i < 8; i++) {
            char prefix[16];
            snprintf(prefix, sizeof(prefix), "%u.", i);
            matrix(&m, prefix, "inputs_embeds", n, mb);
        }
        write_shard(&m, 0, path);
    } else if (sscanf(kind, "sparse=%lu,%lu", &n, &mb) == 2) {
        m.sparse = true;
        m.shard_limit = mb * 1000000;
        llama(&m, n * mb);
        write_checkpoint(&m, path, llama_config);
    } else if (sscanf(kind, "many=%lu", &n) == 1) {
        m.shard_limit = 1;
        for (unsigned long i = 0; i < n; i++) {
            char prefix[64];
            snprintf(prefix, sizeof(prefix), "model.layers.%lu.mlp.", i);
            matrix(&m, prefix, "down_proj.weight", 128, 128);
        }
        write_checkpoint(&m, path, llama_config);
    } else if (strcmp(kind, "vl-3b") == 0) {
        m.sparse = true;
        m.shard_limit = 5000000000;
        vision(&m, 32, 1280, 3420, 2048, 14);
        decoder(&m, "model.", 36, 2048, 256, 11008, 151936, true);
        snprintf(config, sizeof(config), vl_config, 2048, 16, 36);
        write_checkpoint(&m, path, config);
    } else if (strcmp(kind, "deepseek-v3-fp8") == 0) {
        m.sparse = m.fp8 = true;
        m.shard_limit = 8440000000; /* counted before it became FP8: the same 163 shards */
        deepseek(&m);
        write_checkpoint(&m, path, deepseek_config);
    } else if (strcmp(kind, "deepseek-v3") == 0) {
        m.sparse = true;
        m.shard_limit = 8440000000;
        deepseek(&m);
        write_checkpoint(&m, path, deepseek_config);
    } else {
        die("unknown kind (they are in the source's first comment)");
    }
    free(m.tensors);
    return 0;
}
