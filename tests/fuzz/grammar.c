/* SPDX-License-Identifier: Apache-2.0
 *
 * grammar.c - configs of some architecture with odd members and nested quantization configs; layers
 * of a decoder, stacked and single experts, towers and companions, of any dtype, with sizes of 0, 1
 * and beside 128; copies of one name in two shards, stale scales; values that end the types.
 */
#include "fuzz/grammar.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"

enum { MOST_BYTES = 1 << 20 };

unsigned next(struct input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

unsigned choose(struct input *in, unsigned n)
{
    return next(in) % n;
}

/* ---- config.json ------------------------------------------------------------------------------- */

static const char *const model_types[] = {
    "llama",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "qwen2_5_vl",
    "mixtral",
    "deepseek_v3",
    "qwen3_vl_moe",
    "qwen3_next",
    "phi3",
    "gemma3_text",
    "gpt_oss",
    "paligemma",
    "idefics3",
    "internvl",
    "llama4_text",
    "internvl_chat",
    "frobnicate",
    "openvla",
    "granitemoe",
    "whisper",
    "mistral3",
    "",
    "qwen3_5_moe",
};

static const char *const quantization_configs[] = {
    "{}",
    "null",
    "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128], \"activation_scheme\": "
    "\"dynamic\"}",
    "{\"quant_method\": \"fp8\", \"weight_block_size\": [32, 1e60]}",
    "{\"quant_method\": \"gptq\", \"bits\": 4}",
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", "
    "\"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": 8, \"type\": \"float\", "
    "\"strategy\": \"block\", \"block_structure\": [128, 128]}, \"targets\": [\"Linear\"]}}}",
    "{\"quant_method\": 7}",
    "[1, 2]",
};

static const char *const sections[] = {"text_config", "vision_config", "language_config",
                                       "llm_config", "thinker_config"};

static const char *const odd_members[] = {
    "\"tie_word_embeddings\": true",
    "\"tie_word_embeddings\": \"yes\"",
    "\"num_hidden_layers\": -1",
    "\"num_hidden_layers\": 1e60",
    "\"num_attention_heads\": 0",
    "\"hidden_size\": 128.5",
    "\"torch_dtype\": \"bfloat16\"",
    "\"architectures\": [\"X\", 3, null]",
    "\"type\": \"smolvla\"",
    "\"model_type\": \"qwen2\"",
    "\"num_experts\": 2",
    "\"text_config\": 5",
    "\"sliding_window\": null",
};

static void add_section(struct input *in, struct fp8q_text *out, const char *name)
{
    fp8q_text_printf(out, ", \"%s\": {\"hidden_size\": 128", name);
    if (choose(in, 2))
        fp8q_text_printf(out, ", \"model_type\": \"%s\"", PICK(in, model_types));
    if (choose(in, 3) == 1)
        fp8q_text_printf(out, ", \"quantization_config\": %s", PICK(in, quantization_configs));
    if (choose(in, 6) == 1)
        fp8q_text_puts(out, ", \"text_config\": {\"quantization_config\": {\"quant_method\": "
                            "\"fp8\"}}");
    fp8q_text_puts(out, "}");
}

/* NULL: there is none.  */
char *make_config(struct input *in)
{
    static const char *const others[] = {"[]", "null", "{\"model_type\": \"llama\"", "", "{}"};
    struct fp8q_text out = {0};
    unsigned kind = next(in);
    if (kind >= 250)
        return NULL;
    if (kind >= 244) {
        fp8q_text_puts(&out, PICK(in, others));
        return out.data;
    }

    fp8q_text_printf(&out, "{\"model_type\": \"%s\", \"hidden_size\": 128",
                     model_types[kind % (sizeof(model_types) / sizeof(*model_types))]);
    for (unsigned n = choose(in, 4); n > 0; n--)
        fp8q_text_printf(&out, ", %s", PICK(in, odd_members));
    for (unsigned n = choose(in, 3); n > 0; n--)
        add_section(in, &out, PICK(in, sections));
    if (choose(in, 8) == 1)
        fp8q_text_printf(&out, ", \"quantization_config\": %s", PICK(in, quantization_configs));
    fp8q_text_puts(&out, "}\n");
    return out.data;
}

/* ---- tensors ----------------------------------------------------------------------------------- */

static const uint64_t sizes[] = {128, 256, 1, 0, 64, 127, 129, 384, 2, 3};
static const enum fp8q_dtype dtypes[] = {
    FP8Q_BF16,    FP8Q_F16,         FP8Q_F32,     FP8Q_F64,         FP8Q_F8_E4M3, FP8Q_F8_E5M2,
    FP8Q_F8_E8M0, FP8Q_F8_E4M3FNUZ, FP8Q_I8,      FP8Q_U8,          FP8Q_I32,     FP8Q_I64,
    FP8Q_BOOL,    FP8Q_F4,          FP8Q_F6_E3M2, FP8Q_F8_E5M2FNUZ, FP8Q_U16,     FP8Q_C64};

static const char *const roots[] = {"model.",
                                    "",
                                    "model.language_model.",
                                    "language_model.model.",
                                    "model.visual.",
                                    "visual.",
                                    "vision_tower.encoder.",
                                    "image_tower.",
                                    "thinker.model.",
                                    "talker.model.",
                                    "transformer.",
                                    "encoder.",
                                    "model.vlm_with_expert.lm_expert.",
                                    "a b.\xc3\xa9."};

static const char *const modules[] = {"self_attn.q_proj",
                                      "self_attn.k_proj",
                                      "self_attn.v_proj",
                                      "self_attn.o_proj",
                                      "self_attn.qkv_proj",
                                      "mlp.gate_proj",
                                      "mlp.up_proj",
                                      "mlp.down_proj",
                                      "mlp.gate_up_proj",
                                      "mlp.gate",
                                      "mlp.shared_expert.up_proj",
                                      "mlp.experts.0.gate_proj",
                                      "mlp.experts.0.up_proj",
                                      "mlp.experts.0.down_proj",
                                      "mlp.experts.1.gate_proj",
                                      "mlp.experts.gate_up_proj",
                                      "mlp.experts.down_proj",
                                      "block_sparse_moe.input_linear",
                                      "moe.gate_proj",
                                      "block_sparse_moe.experts.0.w1",
                                      "linear_attn.in_proj_qkvz",
                                      "linear_attn.A_log",
                                      "input_layernorm",
                                      "self_attn.q_a_proj",
                                      "self_attn.kv_b_proj",
                                      "conv1d",
                                      "gate_up_proj_bias",
                                      "feed_forward.w2",
                                      "attn.qkv",
                                      "self_attn.q_norm"};

static const char *const suffixes[] = {".weight",
                                       ".weight",
                                       ".weight",
                                       "",
                                       ".bias",
                                       ".weight_scale",
                                       ".k_scale",
                                       ".weight_scale_inv",
                                       ".weight_packed",
                                       ".qweight",
                                       ".scales",
                                       ".input_scale",
                                       ".base_layer.weight"};

static const char *const companions[] = {"_scale_inv",        "_scale", "_scale_2", "_zero_point",
                                         "_scale_inv.weight", "_shape"};

static uint16_t normal_bf16(uint64_t r)
{
    return (uint16_t)(0x3C00 + r % 0x300 + (r & 0x8000));
}

static void fill(void *ctx, const struct maker_tensor *t, uint64_t from, void *out, size_t len)
{
    struct made *made = ctx;
    uint8_t *bytes = out;
    size_t width = fp8q_dtype_bits(t->dtype) / 8;
    if (from == 0)
        made->state = strlen(t->name) + t->shape[0];

    for (size_t i = 0; i < len; i++) {
        made->state = made->state * 6364136223846793005u + 1442695040888963407u;
        uint64_t r = made->state >> 33;
        bool top = width > 0 && i % width == width - 1; /* the byte with the sign */
        switch (made->values[t - made->maker.tensors]) {
        case VALUES_ZERO:
            bytes[i] = top ? (uint8_t)(r & 0x80) : 0;
            break;
        case VALUES_RANDOM_BITS:
            bytes[i] = (uint8_t)r;
            break;
        case VALUES_LARGEST: /* finite, near the end of F32, BF16 and F16 */
            bytes[i] = top                    ? (t->dtype == FP8Q_F16 ? 0x7B : 0x7F)
                       : t->dtype == FP8Q_F16 ? 0xFF
                                              : 0x7F;
            break;
        case VALUES_TINY:
            bytes[i] = top ? 0 : (uint8_t)(r & 3);
            break;
        case VALUES_ONE_NAN:
            bytes[i] = from + i < width ? 0xFF : 0x30;
            break;
        default: /* about one, in whatever float it is */
            if (width == 2 && t->dtype == FP8Q_BF16)
                bytes[i] = (uint8_t)(top ? normal_bf16(r) >> 8 : r);
            else if (t->dtype == FP8Q_F8_E4M3)
                bytes[i] = (uint8_t)(r % 0x7E | (r & 0x80));
            else
                bytes[i] = top ? (uint8_t)(0x3C | (r & 0x80)) : (uint8_t)r;
        }
    }
}

static uint64_t all_bytes(const struct maker *m)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->n; i++)
        sum += maker_bytes(&m->tensors[i]);
    return sum;
}

/* The container refuses one name twice in a file, and 4-bit values that are no whole bytes.  */
static bool fits(const struct maker *m, const struct maker_tensor *t)
{
    uint64_t n;
    if (!fp8q_shape_count(t->shape, t->ndim, &n) || n * fp8q_dtype_bits(t->dtype) % 8 != 0)
        return false;
    for (size_t i = 0; i < m->n; i++)
        if (m->tensors[i].shard == t->shard && strcmp(m->tensors[i].name, t->name) == 0)
            return false;
    return all_bytes(m) + n * fp8q_dtype_bits(t->dtype) / 8 <= MOST_BYTES;
}

static void add(struct made *made, const char *name, enum fp8q_dtype dtype, uint32_t ndim,
                const uint64_t *shape, size_t shard, enum values values)
{
    struct maker *m = &made->maker;
    char copy[200];
    struct maker_tensor t = {.name = copy, .ndim = ndim, .dtype = dtype, .shard = shard};
    snprintf(copy, sizeof(copy), "%s", name);
    memcpy(t.shape, shape, ndim * sizeof(*shape));
    if (m->n >= MOST_TENSORS || !fits(m, &t))
        return;

    /* Of one name in two shards an index can name one only.  */
    bool copied = false;
    for (size_t i = 0; i < m->n; i++)
        copied = copied || strcmp(m->tensors[i].name, copy) == 0;
    made->values[m->n] = values;
    maker_add(m, copy, dtype, ndim, t.shape, shard)->unlisted = copied;
}

static enum values next_values(struct input *in)
{
    unsigned v = next(in);
    return v < 200 ? VALUES_NORMAL : (enum values)(v % N_VALUES);
}

/* The linears of one decoder layer, as they should be.  */
static void add_layer(struct input *in, struct made *made, const char *root, unsigned layer)
{
    static const char *const names[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                        "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                        "mlp.down_proj"};
    uint64_t hidden = choose(in, 4) ? 128 : PICK(in, sizes);
    uint64_t inner = choose(in, 4) ? 256 : PICK(in, sizes);
    enum fp8q_dtype dtype = choose(in, 4) ? FP8Q_BF16 : PICK(in, dtypes);
    size_t shard = choose(in, 3);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        uint64_t shape[2] = {i < 4 || i == 6 ? hidden : inner, i == 6 ? inner : hidden};
        char name[200];
        snprintf(name, sizeof(name), "%slayers.%u.%s.weight", root, layer, names[i]);
        add(made, name, dtype, 2, shape, shard, VALUES_NORMAL);
    }
}

static void add_one(struct input *in, struct made *made, const char *root)
{
    static const char *const stems[] = {"layers.0.", "layers.1.", "blocks.0.",
                                        "h.0.",      "",          "layers.10."};
    char name[200];
    uint64_t shape[4];
    uint32_t ndim = choose(in, 4) ? 2 : choose(in, 5);
    for (uint32_t i = 0; i < 4; i++)
        shape[i] = ndim > 2 && i == 0 ? choose(in, 3) : PICK(in, sizes);

    /* One choice a statement: a compiler may take arguments in any order.  */
    const char *stem = PICK(in, stems);
    const char *module = PICK(in, modules);
    const char *suffix = PICK(in, suffixes);
    enum fp8q_dtype dtype = choose(in, 2) ? FP8Q_BF16 : PICK(in, dtypes);
    size_t shard = choose(in, 3);
    snprintf(name, sizeof(name), "%s%s%s%s", root, stem, module, suffix);
    add(made, name, dtype, ndim, shape, shard, next_values(in));
}

/* A scale beside a weight that is there: rightly shaped, or not at all.  */
static void add_companion(struct input *in, struct made *made)
{
    if (made->maker.n == 0)
        return;
    const struct maker_tensor *of = &made->maker.tensors[choose(in, (unsigned)made->maker.n)];
    uint64_t shape[2] = {(of->shape[0] + 127) / 128, of->ndim > 1 ? (of->shape[1] + 127) / 128 : 1};
    char name[200];
    if (choose(in, 4) == 1) {
        unsigned which = choose(in, 2);
        shape[which] = PICK(in, sizes);
    }
    snprintf(name, sizeof(name), "%s%s", of->name, PICK(in, companions));

    enum fp8q_dtype dtype = choose(in, 3) ? FP8Q_F32 : PICK(in, dtypes);
    uint32_t ndim = choose(in, 8) ? 2 : choose(in, 2);
    size_t shard = choose(in, 2) ? of->shard : choose(in, 3);
    add(made, name, dtype, ndim, shape, shard, next_values(in));
}

static void add_stack(struct input *in, struct made *made, const char *root)
{
    uint64_t experts = choose(in, 3), hidden = PICK(in, sizes), inner = PICK(in, sizes);
    const uint64_t up[] = {experts, 2 * inner, hidden}, down[] = {experts, hidden, inner};
    enum fp8q_dtype dtype = choose(in, 4) ? FP8Q_BF16 : PICK(in, dtypes);
    size_t shard = choose(in, 3);
    char name[200];
    snprintf(name, sizeof(name), "%slayers.0.mlp.experts.gate_up_proj", root);
    add(made, name, dtype, 3, up, shard, next_values(in));
    snprintf(name, sizeof(name), "%slayers.0.mlp.experts.down_proj", root);
    shard = choose(in, 2) ? shard : choose(in, 3);
    add(made, name, dtype, 3, down, shard, next_values(in));
}

/* Changes a tensor that is there: another dtype, another size, other values, another shard.  */
static void change(struct input *in, struct made *made)
{
    if (made->maker.n == 0)
        return;
    unsigned i = choose(in, (unsigned)made->maker.n);
    struct maker_tensor *t = &made->maker.tensors[i], before = *t, copy;
    size_t place;
    switch (choose(in, 4)) {
    case 0:
        t->dtype = PICK(in, dtypes);
        break;
    case 1:
        place = t->ndim > 0 ? choose(in, t->ndim) : 0;
        if (t->ndim > 0)
            t->shape[place] = PICK(in, sizes);
        break;
    case 2:
        made->values[i] = (enum values)choose(in, N_VALUES);
        break;
    default: /* the same name again, elsewhere */
        copy = *t;
        place = choose(in, 3);
        add(made, copy.name, copy.dtype, copy.ndim, copy.shape, place, next_values(in));
        return;
    }
    uint64_t n;
    if (!fp8q_shape_count(t->shape, t->ndim, &n) || n * fp8q_dtype_bits(t->dtype) % 8 != 0 ||
        all_bytes(&made->maker) > MOST_BYTES)
        *t = before;
}

/* Shards are numbered without holes, so that what is written is what the index says.  */
static void number_shards(struct maker *m)
{
    size_t to[3], used = 0;
    for (size_t s = 0; s < 3; s++) {
        bool any = false;
        for (size_t i = 0; i < m->n; i++)
            any = any || m->tensors[i].shard == s;
        to[s] = any ? used++ : 0;
    }
    for (size_t i = 0; i < m->n; i++)
        m->tensors[i].shard = to[m->tensors[i].shard];
    m->n_shards = used ? used : 1;
}

void make_tensors(struct input *in, struct made *made)
{
    const char *root = PICK(in, roots);
    made->maker.fill = fill;
    made->maker.ctx = made;
    add_layer(in, made, root, 0);
    for (unsigned n = choose(in, 12); n > 0; n--) {
        switch (choose(in, 8)) {
        case 0:
            add_layer(in, made, choose(in, 2) ? root : PICK(in, roots), choose(in, 2));
            break;
        case 1:
            add_stack(in, made, root);
            break;
        case 2:
        case 3:
            add_companion(in, made);
            break;
        case 4:
        case 5:
            change(in, made);
            break;
        default:
            add_one(in, made, choose(in, 2) ? root : PICK(in, roots));
        }
    }
    number_shards(&made->maker);
}
