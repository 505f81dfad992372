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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "support/maker.h"

enum { SEED = 20260801 };

/* What is being made.  */
struct model {
    struct maker maker;
    bool fp8;                         /* projections are F8_E4M3 with block scales */
    uint64_t shard_limit, shard_used; /* bytes; a new shard begins beyond */
    size_t shard;                     /* where tensors go now */
};

static void die(const char *what)
{
    fprintf(stderr, "make_checkpoint: %s\n", what);
    exit(1);
}

static struct maker_tensor *add(struct model *m, const char *prefix, const char *name,
                                uint32_t ndim, uint64_t a, uint64_t b, uint64_t c, uint64_t d,
                                uint64_t e)
{
    const uint64_t shape[] = {a, b, c, d, e};
    char full[160];
    snprintf(full, sizeof(full), "%s%s", prefix, name);
    struct maker_tensor *t = maker_add(&m->maker, full, FP8Q_BF16, ndim, shape, m->shard);

    if (m->shard_limit && m->shard_used > 0 && m->shard_used + maker_bytes(t) > m->shard_limit) {
        t->shard = m->shard += 1;
        m->maker.n_shards++;
        m->shard_used = 0;
    }
    m->shard_used += maker_bytes(t);
    return t;
}

static void matrix(struct model *m, const char *prefix, const char *name, uint64_t rows,
                   uint64_t cols)
{
    char scale[128];
    struct maker_tensor *t = add(m, prefix, name, 2, rows, cols, 0, 0, 0);
    if (!m->fp8 || !strstr(name, "_proj") || strstr(name, "eh_proj"))
        return;

    t->dtype = FP8Q_F8_E4M3;
    snprintf(scale, sizeof(scale), "%s_scale_inv", name);
    add(m, prefix, scale, 2, fp8q_ceil_div(rows, 128), fp8q_ceil_div(cols, 128), 0, 0, 0)->dtype =
        FP8Q_F32;
}

static void vector(struct model *m, const char *prefix, const char *name, uint64_t n)
{
    add(m, prefix, name, 1, n, 0, 0, 0, 0);
}

/* ---- architectures --------------------------------------------------------------------------- */

static void attention(struct model *m, const char *layer, uint64_t hidden, uint64_t q, uint64_t kv,
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

static void mlp(struct model *m, const char *prefix, uint64_t hidden, uint64_t inner)
{
    matrix(m, prefix, "gate_proj.weight", inner, hidden);
    matrix(m, prefix, "up_proj.weight", inner, hidden);
    matrix(m, prefix, "down_proj.weight", hidden, inner);
}

static void decoder(struct model *m, const char *root, uint64_t layers, uint64_t hidden,
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

static void vision(struct model *m, uint64_t depth, uint64_t hidden, uint64_t inner, uint64_t out,
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
static void deepseek(struct model *m)
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

/* Every tensor has a state of its own, made of the seed and its name.  */
static uint64_t first_state(const struct maker_tensor *t)
{
    uint64_t state = SEED;
    for (const char *c = t->name; *c; c++)
        state = state * 31 + (unsigned char)*c;
    return state;
}

/* What a fill goes on with.  */
struct filling {
    uint64_t state;
    float *line, along; /* alike: the line, and where this row lies on it */
};

static void fill_random(void *ctx, const struct maker_tensor *t, uint64_t from, void *out,
                        size_t len)
{
    struct filling *f = ctx;
    uint16_t *values = out;
    if (from == 0)
        f->state = first_state(t);

    for (size_t i = 0; i < len / 2; i++)
        values[i] = t->ndim == 1 ? bf16(1.0f) : random_weight(&f->state);
}

/* From -1 to 1 in steps of a thousandth.  */
static float random_step(uint64_t *state)
{
    return (float)(next_random(state) % 2001) / 1000 - 1;
}

/* Rows that lie near a line: what a calibration of correlated inputs needs.  */
static void fill_alike(void *ctx, const struct maker_tensor *t, uint64_t from, void *out,
                       size_t len)
{
    struct filling *f = ctx;
    uint16_t *values = out;
    uint64_t cols = t->shape[1];
    if (from == 0) {
        uint64_t state = SEED;
        free(f->line);
        f->line = fp8q_array(cols, sizeof(*f->line));
        if (!f->line)
            die("out of memory");
        for (uint64_t i = 0; i < cols; i++)
            f->line[i] = random_step(&state);
        /* The name goes on from where the line ended.  */
        for (const char *c = t->name; *c; c++)
            state = state * 31 + (unsigned char)*c;
        f->state = state;
    }

    for (size_t i = 0; i < len / 2; i++) {
        uint64_t col = (from / 2 + i) % cols;
        if (col == 0)
            f->along = random_step(&f->state);
        values[i] = bf16(f->along * f->line[col] + random_step(&f->state) * 0.05f);
    }
}

/* ---- configs --------------------------------------------------------------------------------- */

/* Width, heads, inner width, layers, tokens, and the three parts of half a head that turn with time,
   height and width.  */
static const char vl_config[] =
    "{\n  \"architectures\": [\n    \"Qwen2_5_VLForConditionalGeneration\"\n  ],\n"
    "  \"model_type\": \"qwen2_5_vl\",\n  \"hidden_size\": %d,\n  \"num_attention_heads\": %d,\n"
    "  \"num_key_value_heads\": 2,\n  \"intermediate_size\": %d,\n  \"num_hidden_layers\": %d,\n"
    "  \"vocab_size\": %d,\n  \"hidden_act\": \"silu\",\n  \"rms_norm_eps\": 1e-06,\n"
    "  \"max_position_embeddings\": 32768,\n  \"rope_theta\": 1000000.0,\n"
    "  \"rope_scaling\": {\n    \"type\": \"mrope\",\n    \"mrope_section\": [%d, %d, %d]\n  },\n"
    "  \"tie_word_embeddings\": true,\n  \"torch_dtype\": \"bfloat16\",\n"
    "  \"vision_config\": {\n    \"model_type\": \"qwen2_5_vl\"\n  }\n}\n";
static const char llama_config[] =
    "{\n  \"model_type\": \"llama\",\n  \"hidden_size\": 2048,\n  \"num_attention_heads\": 16,\n"
    "  \"num_key_value_heads\": 2\n}\n";
static const char deepseek_config[] =
    "{\n  \"model_type\": \"deepseek_v3\",\n  \"hidden_size\": 7168,\n  \"num_attention_heads\": "
    "128,\n"
    "  \"num_key_value_heads\": 128,\n  \"moe_intermediate_size\": 2048,\n  \"num_hidden_layers\": "
    "61\n}\n";

/* A tokenizer.json whose tokens are the 256 bytes, so that the smallest checkpoint reads any text.  The bytes
   that cannot be seen have names from U+0100 on, as in GPT-2.  */
static void byte_tokenizer(const char *dir)
{
    char text[8192];
    size_t n =
        (size_t)snprintf(text, sizeof(text),
                         "{\"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": "
                         "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": "
                         "false}, \"model\": {\"type\": \"BPE\", \"vocab\": {");
    unsigned unseen = 0x100;

    for (unsigned byte = 0; byte < 256; byte++) {
        bool seen = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        unsigned code = seen ? byte : unseen++;
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s\"\\u%04x\": %u", byte ? ", " : "",
                              code, byte);
    }
    (void)snprintf(text + n, sizeof(text) - n, "}, \"merges\": []}}\n");
    maker_write_text(dir, "tokenizer.json", text);
}

/* Below 100 MB the layers are small ones, or one would be more than all.  */
static void llama(struct model *m, uint64_t megabytes)
{
    uint64_t hidden = megabytes < 100 ? 256 : 2048, kv = 256, inner = hidden * 11 / 4;
    uint64_t layer = 2 * (2 * hidden * hidden + 2 * kv * hidden + 3 * hidden * inner);
    uint64_t layers = megabytes * 1000000 / layer;
    decoder(m, "model.", layers ? layers : 1, hidden, kv, inner, 256, false);
}

/* Kinds with numbers in them; false for any other.  */
static bool numbered(struct model *m, const char *kind, const char *path)
{
    unsigned long n = 0, mb = 0;
    char prefix[64];

    if (sscanf(kind, "size=%lu", &mb) == 1) {
        llama(m, mb);
        maker_write_shard(&m->maker, 0, path);
    } else if (sscanf(kind, "shards=%lu,%lu", &n, &mb) == 2 ||
               sscanf(kind, "sparse=%lu,%lu", &n, &mb) == 2) {
        m->maker.sparse = kind[1] == 'p';
        m->shard_limit = mb * 1000000;
        llama(m, n * mb);
        maker_write(&m->maker, path, llama_config);
    } else if (sscanf(kind, "embeds=%lu,%lu", &n, &mb) == 2) {
        m->maker.fill = fill_alike;
        for (unsigned i = 0; i < 8; i++) {
            snprintf(prefix, sizeof(prefix), "%u.", i);
            matrix(m, prefix, "inputs_embeds", n, mb);
        }
        maker_write_shard(&m->maker, 0, path);
    } else if (sscanf(kind, "many=%lu", &n) == 1) {
        m->shard_limit = 1;
        for (unsigned long i = 0; i < n; i++) {
            snprintf(prefix, sizeof(prefix), "model.layers.%lu.mlp.", i);
            matrix(m, prefix, "down_proj.weight", 128, 128);
        }
        maker_write(&m->maker, path, llama_config);
    } else {
        return false;
    }
    return true;
}

static bool named(struct model *m, const char *kind, const char *path)
{
    char config[1024];

    if (strcmp(kind, "tiny") == 0) {
        m->shard_limit = 1500000;
        vision(m, 1, 128, 220, 256, 14);
        decoder(m, "model.", 2, 256, 128, 384, 512, true);
        snprintf(config, sizeof(config), vl_config, 256, 4, 384, 2, 512, 8, 12, 12);
        maker_write(&m->maker, path, config);
        byte_tokenizer(path);
    } else if (strcmp(kind, "vl-2gb") == 0 || strcmp(kind, "file-2gb") == 0) {
        bool one_file = kind[0] == 'f';
        m->shard_limit = one_file ? 0 : 1200000000;
        vision(m, 8, 1280, 3420, 2048, 14);
        decoder(m, "model.", 11, 2048, 256, 11008, 32768, true);
        snprintf(config, sizeof(config), vl_config, 2048, 16, 11008, 11, 32768, 16, 24, 24);
        if (one_file)
            maker_write_shard(&m->maker, 0, path);
        else
            maker_write(&m->maker, path, config);
    } else if (strcmp(kind, "vl-3b") == 0) {
        m->maker.sparse = true;
        m->shard_limit = 5000000000;
        vision(m, 32, 1280, 3420, 2048, 14);
        decoder(m, "model.", 36, 2048, 256, 11008, 151936, true);
        snprintf(config, sizeof(config), vl_config, 2048, 16, 11008, 36, 151936, 16, 24, 24);
        maker_write(&m->maker, path, config);
    } else if (strcmp(kind, "deepseek-v3") == 0 || strcmp(kind, "deepseek-v3-fp8") == 0) {
        m->maker.sparse = true;
        m->fp8 = strstr(kind, "-fp8") != NULL;
        m->shard_limit = 8440000000; /* counted before it becomes FP8: the same 163 shards */
        deepseek(m);
        maker_write(&m->maker, path, deepseek_config);
    } else {
        return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct filling filling = {.state = 0};
    struct model m = {.maker = {.fill = fill_random, .ctx = &filling}};
    if (argc != 3)
        die("usage: make_checkpoint KIND PATH (kinds are in the source's first comment)");

    if (!named(&m, argv[1], argv[2]) && !numbered(&m, argv[1], argv[2]))
        die("unknown kind (they are in the source's first comment)");
    free(filling.line);
    maker_free(&m.maker);
    return 0;
}
