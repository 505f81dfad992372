/* SPDX-License-Identifier: Apache-2.0
 *
 * test_engines_check.c - what `check` says of checkpoints that differ in one thing from a good one.
 */
#include "support/support.h"

#include "engines/check.h"
#include "engines/tp.h"
#include "support/maker.h"

/* Engines that do not load, or whose verdict is not known, as bits.  */
enum {
    VLLM = 1 << FP8Q_VLLM,
    SGLANG = 1 << FP8Q_SGLANG,
    HF = 1 << FP8Q_TRANSFORMERS,
    TRT = 1 << FP8Q_TRTLLM,
    LMDEPLOY = 1 << FP8Q_LMDEPLOY,
    LLAMA = 1 << FP8Q_LLAMA_CPP,
    ALL = (1 << FP8Q_N_ENGINES) - 1
};

#define MODEL                                                                                      \
    "\"model_type\": \"qwen3\", \"hidden_size\": 256, \"num_attention_heads\": 2, "                \
    "\"num_key_value_heads\": 2, \"head_dim\": 128"
#define FP8_OF(rest) "{" MODEL ", \"quantization_config\": {\"quant_method\": \"fp8\"" rest "}}"
#define MXFP8_OF(rest) "{" MODEL ", \"quantization_config\": {\"quant_method\": \"mxfp8\"" rest "}}"
#define BLOCKS ", \"weight_block_size\": [128, 128]"
#define DYNAMIC ", \"activation_scheme\": \"dynamic\""
#define LISTED ", \"modules_to_not_convert\": [\"lm_head\"], \"ignored_layers\": [\"lm_head\"]"
#define CT_OF(groups, rest)                                                                        \
    "{" MODEL ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", "             \
    "\"format\": \"float-quantized\", \"config_groups\": {" groups "}" rest "}}"
#define GROUP(name, strategy, inputs)                                                              \
    "\"" name "\": {\"targets\": [\"Linear\"], \"weights\": {\"strategy\": \"" strategy            \
    "\"}, \"input_activations\": {\"strategy\": \"" inputs "\"}}"
#define DOWN_BY_ROW                                                                                \
    "\"group_1\": {\"targets\": [\"re:.*down_proj$\"], \"weights\": {\"strategy\": \"channel\"}, " \
    "\"input_activations\": {\"strategy\": \"token\"}}"
#define MODELOPT_OF(algorithm, ignored)                                                            \
    "{" MODEL                                                                                      \
    ", \"quantization_config\": {\"quant_method\": \"modelopt\", \"quant_algo\": \"" algorithm     \
    "\", \"ignore\": [\"" ignored "\"]}}"
#define IGNORED ", \"ignore\": [\"re:.*lm_head$\"]"

static const char good[] = FP8_OF(BLOCKS DYNAMIC LISTED);
static const char good_ct[] = CT_OF(GROUP("group_0", "block", "group"), IGNORED);
static const char block_64_ct[] =
    "{" MODEL ", \"quantization_config\": {\"quant_method\": \"compressed-tensors\", "
    "\"format\": \"float-quantized\", \"config_groups\": {\"group_0\": {\"targets\": "
    "[\"Linear\"], \"weights\": {\"strategy\": \"block\", \"block_structure\": [64, 64]}, "
    "\"input_activations\": {\"strategy\": \"group\"}}}, \"ignore\": [\"re:.*lm_head$\"]}}";
static const char channel_ct[] = CT_OF(GROUP("group_0", "channel", "token"), IGNORED);

/* How one weight differs from the others.  */
struct odd {
    const char *name;         /* NULL: none does */
    uint64_t rows, cols;      /* 0: as the others */
    uint64_t grid[2];         /* of its scales; {0, 0}: one for 128x128, {1, 0}: one scale */
    enum fp8q_dtype dtype;    /* 0: F8_E4M3 */
    enum fp8q_dtype scale_in; /* 0: F32 */
    const char *scale_ending; /* NULL: as the others */
    bool is_float;            /* BF16, and no scales */
    bool cache_scale;         /* one for the cache of its outputs too */
};

struct sample {
    const char *what, *config;
    struct odd odd;
    unsigned stopped, unknown; /* engines */
    const char *id;            /* of the finding that says so; NULL: not the same for all */
    const char *file;          /* a further file in the directory, or NULL */
    bool one_scale;            /* of every weight, for all of it */
    bool by_row, mxfp8;
    bool input_scales;
    uint64_t block; /* rows and columns of one scale; 0: 128 */
};

static const char *const linears[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                      "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                      "mlp.down_proj"};

/* ---- making ---------------------------------------------------------------------------------- */

static void add(struct maker *m, const char *name, enum fp8q_dtype dtype, uint64_t rows,
                uint64_t cols)
{
    const uint64_t shape[2] = {rows, cols};
    maker_add(m, name, dtype, cols ? 2 : 1, shape, 0);
}

static void add_linear(struct maker *m, const struct sample *s, const char *linear)
{
    const char *ending =
        strstr(s->config, "fp8\"") && !s->one_scale ? ".weight_scale_inv" : ".weight_scale";
    bool is_odd = s->odd.name && strcmp(s->odd.name, linear) == 0;
    struct odd o = is_odd ? s->odd : (struct odd){.name = NULL};
    uint64_t rows = o.rows ? o.rows : 256, cols = o.cols ? o.cols : 256;
    uint64_t block = s->block ? s->block : 128;
    uint64_t grid_rows = (rows + block - 1) / block, grid_cols = (cols + block - 1) / block;
    char weight[200], scale[250];

    snprintf(weight, sizeof(weight), "model.layers.0.%s.weight", linear);
    snprintf(scale, sizeof(scale), "model.layers.0.%s%s", linear,
             o.scale_ending ? o.scale_ending : ending);
    if (o.cache_scale)
        add(m, "model.layers.0.self_attn.k_proj.k_scale", FP8Q_F32, 1, 0);
    if (o.is_float) {
        add(m, weight, FP8Q_BF16, rows, cols);
        return;
    }

    if (s->one_scale)
        grid_rows = 1, grid_cols = 0;
    if (s->by_row)
        grid_rows = rows, grid_cols = 1;
    if (s->mxfp8) {
        grid_rows = rows, grid_cols = cols / 32;
        o.scale_in = FP8Q_U8;
    }
    if (o.grid[0])
        grid_rows = o.grid[0], grid_cols = o.grid[1];
    add(m, weight, o.dtype ? o.dtype : FP8Q_F8_E4M3, rows, cols);
    add(m, scale, o.scale_in ? o.scale_in : FP8Q_F32, grid_rows, grid_cols);
    snprintf(scale, sizeof(scale), "model.layers.0.%s.input_scale", linear);
    if (s->input_scales)
        add(m, scale, FP8Q_F32, 1, 0);
}

static void add_stack(struct maker *m, const struct sample *s)
{
    const uint64_t shape[3] = {2, 256, 256}, grid[3] = {2, 2, 2};
    char name[200];

    snprintf(name, sizeof(name), "model.layers.0.%s", s->odd.name);
    maker_add(m, name, s->odd.is_float ? FP8Q_BF16 : FP8Q_F8_E4M3, 3, shape, 0);
    if (s->odd.is_float)
        return;
    snprintf(name, sizeof(name), "model.layers.0.%s%s", s->odd.name,
             strstr(s->config, "fp8\"") ? "_scale_inv" : "_scale");
    maker_add(m, name, FP8Q_F32, 3, grid, 0);
}

static void make(const struct sample *s, const char *dir)
{
    struct maker m = {.n = 0};
    for (size_t i = 0; i < sizeof(linears) / sizeof(*linears); i++)
        add_linear(&m, s, linears[i]);

    if (s->odd.name && strstr(s->odd.name, "experts.0"))
        add_linear(&m, s, s->odd.name);
    else if (s->odd.name && strstr(s->odd.name, "experts"))
        add_stack(&m, s);

    /* A head in high precision, unless it is the odd one.  */
    if (s->odd.name && strcmp(s->odd.name, "lm_head") == 0) {
        add(&m, "lm_head.weight", FP8Q_F8_E4M3, 256, 256);
        add(&m, strstr(s->config, "fp8\"") ? "lm_head.weight_scale_inv" : "lm_head.weight_scale",
            FP8Q_F32, 2, 2);
    } else {
        add(&m, "lm_head.weight", FP8Q_BF16, 256, 256);
    }

    maker_write(&m, dir, s->config);
    if (s->file)
        maker_write_text(dir, s->file, "x");
    maker_free(&m);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Engines whose verdict is @weight; each must say so by a finding called @id.  */
static unsigned engines_with(const struct fp8q_engines_report *r, enum fp8q_weight_of weight,
                             const char *id, const char *what)
{
    unsigned found = 0;
    for (unsigned e = 0; e < FP8Q_N_ENGINES; e++) {
        const struct fp8q_judgement *j = &r->engines[e];
        /* lmdeploy reads no compressed-tensors, whatever else is wrong.  */
        bool named = e == FP8Q_LMDEPLOY && !j->reading;
        if (j->worst != weight)
            continue;
        for (size_t i = 0; i < j->count; i++) {
            named =
                named || (id && j->items[i].weight == weight && strcmp(j->items[i].id, id) == 0);
            if (j->items[i].weight == FP8Q_STOPS && !j->items[i].change)
                fail_msg("%s: %s stops, and nothing says what to change", what, j->items[i].id);
        }
        if (weight != FP8Q_NOTE && id && !named)
            fail_msg("%s: %s: no finding \"%s\", the first is \"%s\": %s", what,
                     fp8q_engines[e].word, id, j->items[0].id, j->items[0].message);
        found |= 1U << e;
    }
    return found;
}

static void ask(const struct sample *s, unsigned ways, struct fp8q_engines_report *report_out,
                struct fp8q_ckpt **ckpt_out)
{
    struct fp8q_warnings warnings = {0};
    struct fp8q_error err = {0};
    char *dir = temp_dir_make(), path[300];
    snprintf(path, sizeof(path), "%s/x", dir);
    make(s, path);

    assert_ok(fp8q_ckpt_open(path, ckpt_out, &warnings, &err), &err);
    assert_ok(fp8q_engines_check(*ckpt_out, &warnings, ways, report_out, &err), &err);
    fp8q_warnings_reset(&warnings);
    temp_dir_remove(dir);
}

static void expect(const struct sample *s, unsigned ways)
{
    struct fp8q_engines_report report;
    struct fp8q_ckpt *ckpt;
    ask(s, ways, &report, &ckpt);

    unsigned stopped = engines_with(&report, FP8Q_STOPS, s->id, s->what);
    unsigned unknown = engines_with(&report, FP8Q_UNSURE, s->id, s->what);
    if (stopped != s->stopped || unknown != s->unknown)
        fail_msg("%s: stopped %#x, expected %#x; unknown %#x, expected %#x", s->what, stopped,
                 s->stopped, unknown, s->unknown);
    fp8q_engines_reset(&report);
    fp8q_ckpt_close(ckpt);
}

static void expect_all(const struct sample *samples, size_t n)
{
    for (size_t i = 0; i < n; i++)
        expect(&samples[i], 0);
}
#define EXPECT(samples) expect_all(samples, sizeof(samples) / sizeof(*(samples)))

/* ---- tests ----------------------------------------------------------------------------------- */

static void good_ones_load(void **state)
{
    static const struct sample samples[] = {
        {.what = "fp8", .config = good},
        {.what = "compressed-tensors",
         .config = good_ct,
         .stopped = LMDEPLOY,
         .id = "quant-method"},
        {.what = "a scale a row",
         .config = channel_ct,
         .by_row = true,
         .stopped = LMDEPLOY,
         .id = "quant-method"},
        {.what = "MXFP8",
         .config = MXFP8_OF(DYNAMIC LISTED),
         .mxfp8 = true,
         .stopped = VLLM | LMDEPLOY | LLAMA,
         .unknown = TRT},
        {.what = "MXFP8 in compressed-tensors",
         .mxfp8 = true,
         .id = NULL,
         .config = CT_OF(GROUP("group_0", "group", "group"), IGNORED),
         .stopped = SGLANG | TRT | LMDEPLOY | LLAMA},
        {.what = "MXFP8 by vLLM's names",
         .config = MXFP8_OF(DYNAMIC LISTED),
         .mxfp8 = true,
         .one_scale = true, /* names the scales so */
         .stopped = HF | LMDEPLOY | LLAMA,
         .unknown = TRT},
        {.what = "scales in BF16",
         .config = good,
         .odd = {.name = "mlp.down_proj", .scale_in = FP8Q_BF16}},
    };
    (void)state;
    EXPECT(samples);
}

static void descriptions_are_found(void **state)
{
    static const struct sample samples[] = {
        {.what = "no config", .config = "{" MODEL "}", .stopped = ALL, .id = "config"},
        {.what = "ModelOpt's own file",
         .config = "{" MODEL "}",
         .file = "hf_quant_config.json",
         .stopped = HF | LMDEPLOY,
         .unknown = VLLM | SGLANG | TRT | LLAMA,
         .id = "config"},
        {.what = "nested",
         .config = "{" MODEL ", \"text_config\": {\"quantization_config\": "
                   "{\"quant_method\": \"fp8\"" BLOCKS DYNAMIC LISTED "}}}",
         .stopped = SGLANG | TRT,
         .id = "config"},
        {.what = "another method",
         .config = "{" MODEL ", \"quantization_config\": {\"quant_method\": \"quark\"}}",
         .stopped = TRT | LMDEPLOY | LLAMA,
         .unknown = VLLM | SGLANG | HF,
         .id = "quant-method"},
        {.what = "MXFP8 by its method, of blocks",
         .config = MXFP8_OF(DYNAMIC LISTED),
         .stopped = ALL & ~TRT,
         .unknown = TRT},
        {.what = "no activation_scheme",
         .config = FP8_OF(BLOCKS LISTED),
         .stopped = VLLM | SGLANG,
         .id = "activation-scheme"},
        {.what = "static",
         .config = FP8_OF(BLOCKS LISTED ", \"activation_scheme\": \"static\""),
         .stopped = VLLM | SGLANG,
         .id = "activation-scheme"},
        {.what = "no block size",
         .config = FP8_OF(DYNAMIC LISTED),
         .stopped = ALL & ~LMDEPLOY, /* which has no other blocks */
         .id = "block-size"},
        {.what = "no block size, and static inputs",
         .config = FP8_OF(", \"activation_scheme\": \"static\"" LISTED),
         .stopped = ALL},
        {.what = "no groups", .config = CT_OF("", IGNORED), .stopped = ALL, .id = "config-groups"},
        {.what = "another strategy", .config = channel_ct, .stopped = ALL, .id = "config-groups"},
        {.what = "two groups",
         .config = CT_OF(GROUP("group_0", "block", "group") ", " DOWN_BY_ROW, IGNORED),
         .odd = {.name = "mlp.down_proj", .grid = {256, 1}},
         .stopped = TRT | LLAMA | LMDEPLOY,
         .id = "config-groups"},
        {.what = "two groups, the other weight in rows",
         .config = CT_OF(GROUP("group_0", "block", "group") ", " DOWN_BY_ROW, IGNORED),
         .odd = {.name = "self_attn.o_proj", .grid = {256, 1}},
         .stopped = ALL,
         .id = "config-groups"},
        {.what = "merged matrices in blocks, and \"Linear\" in rows",
         .config = CT_OF(
             "\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"strategy\": \"channel\"}, "
             "\"input_activations\": {\"strategy\": \"token\"}}, \"group_1\": {\"targets\": "
             "[\"re:.*[qkvoepn]_proj$\"], \"weights\": {\"strategy\": \"block\"}, "
             "\"input_activations\": {\"strategy\": \"group\"}}",
             IGNORED),
         .stopped = SGLANG | TRT | LLAMA | LMDEPLOY,
         .id = NULL},
        {.what = "inputs by token",
         .config = CT_OF(GROUP("group_0", "block", "token"), IGNORED),
         .stopped = TRT | LMDEPLOY,
         .id = "config-groups"},
    };
    (void)state;
    EXPECT(samples);
}

static void weights_are_looked_at(void **state)
{
    static const struct sample samples[] = {
        {.what = "E5M2",
         .config = good,
         .stopped = ALL,
         .id = "weight-dtype",
         .odd = {.name = "mlp.down_proj", .dtype = FP8Q_F8_E5M2}},
        {.what = "one scale a weight",
         .config = FP8_OF(DYNAMIC LISTED),
         .one_scale = true,
         .stopped = ALL & ~(VLLM | SGLANG),
         .id = NULL},
        {.what = "ModelOpt: input scales promised, and none there",
         .config = MODELOPT_OF("FP8", "lm_head"),
         .one_scale = true,
         .id = NULL,
         .stopped = ALL},
        {.what = "ModelOpt: another algorithm",
         .config = MODELOPT_OF("FP8_PB_WO", "lm_head"),
         .id = "quant-method",
         .stopped = HF | LMDEPLOY,
         .unknown = VLLM | SGLANG | TRT | LLAMA},
        {.what = "ModelOpt: an entry within names for vLLM, a run of components for SGLang",
         .config = MODELOPT_OF("FP8", "lm_head\", \"mlp.down"),
         .one_scale = true,
         .input_scales = true,
         .stopped = VLLM | HF | LMDEPLOY},
        {.what = "ModelOpt: a glob",
         .config = MODELOPT_OF("FP8", "lm_head\", \"*.mlp"),
         .one_scale = true,
         .input_scales = true,
         .stopped = TRT | HF | LMDEPLOY},
        {.what = "ct: static inputs without scales",
         .config =
             CT_OF("\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"strategy\": "
                   "\"tensor\"}, \"input_activations\": {\"strategy\": \"tensor\", \"dynamic\": "
                   "false}}",
                   IGNORED),
         .one_scale = true,
         .stopped = ALL,
         .id = NULL},
        {.what = "a scale a row in fp8",
         .config = good,
         .id = "scheme",
         .stopped = ALL,
         .odd = {.name = "mlp.down_proj", .grid = {256, 1}}},
        {.what = "the other name",
         .config = good,
         .id = "scale-name",
         .stopped = ALL,
         .odd = {.name = "mlp.down_proj", .scale_ending = ".weight_scale"}},
        {.what = "DeepSeek-V4's name",
         .config = good,
         .id = "scale-name",
         .unknown = ALL,
         .odd = {.name = "mlp.down_proj", .scale_ending = ".scale"}},
        {.what = "E8M0 as bytes",
         .config = good,
         .id = "scale-dtype",
         .stopped = VLLM | SGLANG | TRT | LMDEPLOY | LLAMA,
         .odd = {.name = "mlp.down_proj", .scale_in = FP8Q_U8}},
        {.what = "an FP8 head",
         .config = FP8_OF(BLOCKS DYNAMIC),
         .id = "lm-head",
         .stopped = VLLM | SGLANG | TRT | LMDEPLOY,
         .odd = {.name = "lm_head"}},
        {.what = "part of a merged matrix in BF16",
         .config = FP8_OF(BLOCKS DYNAMIC
                          ", \"ignored_layers\": [\"lm_head\", \"model.layers.0.mlp.up_proj\"]"),
         .id = "fused-group",
         .stopped = VLLM | SGLANG | TRT | LMDEPLOY,
         .odd = {.name = "mlp.up_proj", .is_float = true}},
        {.what = "unaligned columns",
         .config = good,
         .id = "unaligned",
         .stopped = ALL & ~LLAMA,
         .odd = {.name = "mlp.down_proj", .cols = 192}},
        {.what = "unaligned rows of a matrix by itself",
         .config = good,
         .odd = {.name = "mlp.down_proj", .rows = 192}},
        {.what = "unaligned rows of the last part",
         .config = good,
         .id = "unaligned",
         .stopped = SGLANG | LMDEPLOY,
         .odd = {.name = "mlp.up_proj", .rows = 192}},
        {.what = "unaligned rows of the first part",
         .config = good,
         .id = "unaligned",
         .stopped = VLLM | SGLANG | TRT | LMDEPLOY,
         .odd = {.name = "mlp.gate_proj", .rows = 192}},
    };
    (void)state;
    EXPECT(samples);
}

/* The same where the format is the other one.  */
static void weights_of_compressed_tensors_are_looked_at(void **state)
{
    static const struct sample samples[] = {
        {.what = "ct: E8M0 as bytes",
         .config = good_ct,
         .id = "scale-dtype",
         .stopped = ALL,
         .odd = {.name = "mlp.down_proj", .scale_in = FP8Q_U8}},
        {.what = "ct: an FP8 head",
         .config = CT_OF(GROUP("group_0", "block", "group"), ""),
         .id = "lm-head",
         .stopped = SGLANG | TRT | LMDEPLOY,
         .odd = {.name = "lm_head"}},
        {.what = "ct: part of a merged matrix in BF16",
         .config = CT_OF(GROUP("group_0", "block", "group"),
                         ", \"ignore\": [\"lm_head\", \"model.layers.0.mlp.up_proj\"]"),
         .id = "fused-group",
         .stopped = VLLM | SGLANG | TRT | LMDEPLOY,
         .odd = {.name = "mlp.up_proj", .is_float = true}},
        {.what = "ct: unaligned columns",
         .config = good_ct,
         .id = "unaligned",
         .stopped = ALL & ~LLAMA,
         .odd = {.name = "mlp.down_proj", .cols = 192}},
        {.what = "ct: unaligned rows of a matrix by itself",
         .config = good_ct,
         .id = "unaligned",
         .stopped = HF | LMDEPLOY,
         .odd = {.name = "mlp.down_proj", .rows = 192}},
        {.what = "ct: unaligned rows of the last part",
         .config = good_ct,
         .id = "unaligned",
         .stopped = SGLANG | HF | LMDEPLOY,
         .odd = {.name = "mlp.up_proj", .rows = 192}},
        {.what = "ct: unaligned rows of the first part",
         .config = good_ct,
         .id = "unaligned",
         .stopped = ALL & ~LLAMA,
         .odd = {.name = "mlp.gate_proj", .rows = 192}},
        {.what = "ct: a stack of experts",
         .config = good_ct,
         .id = "stacked-experts",
         .stopped = ALL & ~(VLLM | SGLANG),
         .odd = {.name = "mlp.experts.down_proj"}},
        {.what = "ct: an expert in blocks",
         .config = good_ct,
         .id = NULL,
         .stopped = HF | LMDEPLOY,
         .odd = {.name = "mlp.experts.0.down_proj"}},
        {.what = "ct: a stack that is left, named by its module alone",
         .config = CT_OF(GROUP("group_0", "block", "group"),
                         ", \"ignore\": [\"lm_head\", \"model.layers.0.mlp.experts\"]"),
         .id = "exclusions",
         .stopped = VLLM | SGLANG | LMDEPLOY,
         .odd = {.name = "mlp.experts.down_proj", .is_float = true}},
        {.what = "ct: a stack that is left, named with its matrices",
         .config = CT_OF(GROUP("group_0", "block", "group"),
                         ", \"ignore\": [\"lm_head\", \"re:.*[.]experts(?:$|[.].*)\"]"),
         .id = "quant-method",
         .stopped = LMDEPLOY,
         .odd = {.name = "mlp.experts.down_proj", .is_float = true}},
        {.what = "fp8: a stack of experts, of which transformers passes over the scales",
         .config = good,
         .id = "stacked-experts",
         .stopped = HF,
         .odd = {.name = "mlp.experts.down_proj"}},
        {.what = "fp8: blocks of 64",
         .id = "block-size",
         .stopped = VLLM | SGLANG | TRT | LMDEPLOY,
         .block = 64,
         .config = FP8_OF(DYNAMIC LISTED ", \"weight_block_size\": [64, 64]")},
        {.what = "ct: blocks of 64",
         .config = block_64_ct,
         .id = "block-size",
         .block = 64,
         .stopped = VLLM | SGLANG | TRT | LMDEPLOY},
    };
    (void)state;
    EXPECT(samples);
}

/* What transformers cannot do on a CPU it can on a GPU: a note.  */
static void notes_are_no_obstacles(void **state)
{
    static const struct sample rows = {.what = "unaligned rows",
                                       .config = good,
                                       .id = "unaligned",
                                       .odd = {.name = "mlp.down_proj", .rows = 192}};
    struct fp8q_engines_report report;
    struct fp8q_ckpt *ckpt;
    (void)state;

    ask(&rows, 0, &report, &ckpt);
    const struct fp8q_judgement *j = &report.engines[FP8Q_TRANSFORMERS];
    assert_int_equal(j->worst, FP8Q_NOTE);
    assert_int_equal(j->count, 1);
    assert_string_equal(j->items[0].id, "unaligned");
    assert_null(j->items[0].change);
    fp8q_engines_reset(&report);
    fp8q_ckpt_close(ckpt);
}

static void lists_are_read_as_engines_read_them(void **state)
{
    static const struct sample samples[] = {
        {.what = "a decoder's matrix that is in no list",
         .config = good,
         .id = "exclusions",
         .stopped = VLLM | SGLANG | HF | TRT, /* lmdeploy quantizes it while loading */
         .odd = {.name = "self_attn.o_proj", .is_float = true}},
        {.what = "a list of one key",
         .id = "exclusions",
         .stopped = HF,
         .config = FP8_OF(BLOCKS DYNAMIC ", \"ignored_layers\": [\"lm_head\", "
                                         "\"model.layers.0.self_attn.o_proj\"], "
                                         "\"modules_to_not_convert\": [\"lm_head\"]"),
         .odd = {.name = "self_attn.o_proj", .is_float = true}},
        {.what = "an entry that reaches too far",
         .id = "exclusions",
         .stopped = SGLANG | HF,
         .config = FP8_OF(BLOCKS DYNAMIC ", \"ignored_layers\": [\"lm_head\", \"o_proj\"]")},
    };
    (void)state;
    EXPECT(samples);
}

static void directories_have_traps(void **state)
{
    static const struct sample samples[] = {
        {.what = "ModelOpt's file beside a config",
         .config = good,
         .id = "files",
         .stopped = TRT,
         .file = "hf_quant_config.json"},
        {.what = "ModelOpt's file beside its own config",
         .config = MODELOPT_OF("FP8", "lm_head"),
         .file = "hf_quant_config.json",
         .one_scale = true,
         .input_scales = true,
         .stopped = HF | LMDEPLOY,
         .id = "quant-method"},
        {.what = "Mistral's weights",
         .config = good,
         .id = "files",
         .stopped = VLLM | TRT,
         .file = "consolidated.safetensors"},
        {.what = "scales of keys and values",
         .config = good,
         .id = "cache-scales",
         .stopped = LMDEPLOY,
         .odd = {.name = "self_attn.k_proj", .cache_scale = true}},
        {.what = "a policy",
         .id = "model",
         .stopped = ALL,
         .config = "{\"type\": \"pi0\", \"quantization_config\": {\"quant_method\": "
                   "\"fp8\"" BLOCKS DYNAMIC LISTED "}}"},
        {.what = "a model type that vLLM and SGLang rename",
         .id = "model",
         .stopped = VLLM | SGLANG,
         .config = "{\"model_type\": \"mistral3\", \"quantization_config\": {\"quant_method\": "
                   "\"fp8\"" BLOCKS DYNAMIC LISTED "}}"},
        {.what = "a model type whose scales SGLang's class renames",
         .id = "model",
         .stopped = SGLANG,
         .config = "{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": "
                   "\"fp8\"" BLOCKS DYNAMIC LISTED "}}"},
        {.what = "a model type that SGLang leaves to transformers",
         .id = NULL,
         .stopped = SGLANG | LMDEPLOY,
         .config = "{\"model_type\": \"smollm3\", \"quantization_config\": {\"quant_method\": "
                   "\"compressed-tensors\", \"format\": \"float-quantized\", \"config_groups\": "
                   "{" GROUP("group_0", "block", "group") "}" IGNORED "}}"},
    };
    (void)state;
    EXPECT(samples);
}

/* 256 rows in blocks of 128 make two shares.  llama.cpp cuts nothing.  */
static void parallelism_ends_where_blocks_do(void **state)
{
    static const struct sample fits = {.what = "two ways", .config = good, .id = "tp"};
    static const struct sample not = {
        .what = "four ways", .config = good, .id = "tp", .stopped = ALL & ~LLAMA};
    static const struct sample rows = {.what = "four ways without blocks",
                                       .config = channel_ct,
                                       .by_row = true,
                                       .id = "quant-method",
                                       .stopped = LMDEPLOY};
    struct fp8q_engines_report report;
    struct fp8q_ckpt *ckpt;
    (void)state;
    expect(&fits, 2);
    expect(&not, 4);
    expect(&rows, 4);

    ask(&fits, 0, &report, &ckpt);
    assert_int_equal(report.largest_tp, 2);
    assert_string_equal(report.tp_limit, "model.layers.0.mlp.down_proj.weight");
    fp8q_engines_reset(&report);
    fp8q_ckpt_close(ckpt);
}

static void what_is_not_fp8_is_refused(void **state)
{
    struct fp8q_engines_report report;
    struct fp8q_error err = {0};
    struct fp8q_ckpt *ckpt;
    (void)state;

    assert_ok(fp8q_ckpt_open(data_path("checkpoints/qwen3"), &ckpt, NULL, &err), &err);
    assert_failed(fp8q_engines_check(ckpt, NULL, 0, &report, &err), FP8Q_E_ARG, &err,
                  "holds no FP8 weights");
    fp8q_engines_reset(&report);
    fp8q_ckpt_close(ckpt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones_load),
        cmocka_unit_test(descriptions_are_found),
        cmocka_unit_test(weights_are_looked_at),
        cmocka_unit_test(weights_of_compressed_tensors_are_looked_at),
        cmocka_unit_test(notes_are_no_obstacles),
        cmocka_unit_test(lists_are_read_as_engines_read_them),
        cmocka_unit_test(directories_have_traps),
        cmocka_unit_test(parallelism_ends_where_blocks_do),
        cmocka_unit_test(what_is_not_fp8_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
