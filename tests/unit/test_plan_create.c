/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_create.c - what plans refuse, warn of and leave out: tables over neighbours.
 */
#include "support/support.h"

#include "plan/plan.h"
#include "support/maker.h"

struct made {
    char *dir;
    struct fp8q_ckpt *ckpt;
    struct fp8q_plan *plan;
    struct fp8q_warnings warnings;
    struct fp8q_error err;
    int status; /* of creation, or of the check */
};

static void add(struct maker *m, const char *name, enum fp8q_dtype dtype, uint32_t ndim, uint64_t a,
                uint64_t b, uint64_t c)
{
    const uint64_t shape[3] = {a, b, c};
    maker_add(m, name, dtype, ndim, shape, 0);
}

static const char *const linears[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                      "self_attn.o_proj", "mlp.gate_proj",    "mlp.up_proj",
                                      "mlp.down_proj"};

static void add_layer(struct maker *m, const char *root)
{
    char name[200];
    for (size_t i = 0; i < sizeof(linears) / sizeof(*linears); i++) {
        snprintf(name, sizeof(name), "%slayers.0.%s.weight", root, linears[i]);
        add(m, name, FP8Q_BF16, 2, 128, 128, 1);
    }
}

/* Plans what @m makes.  Release with put_away().  */
static struct made plan_of(struct maker *m, const char *config,
                           const struct fp8q_plan_options *options)
{
    char path[600];
    struct made p = {.dir = temp_dir_make()};
    m->sparse = true;
    snprintf(path, sizeof(path), "%s/src", p.dir);
    maker_write(m, path, config);
    maker_free(m);
    assert_ok(fp8q_ckpt_open(path, &p.ckpt, NULL, &p.err), &p.err);
    p.status = fp8q_plan_create(p.ckpt, options, &p.plan, &p.warnings, &p.err);
    if (p.status == FP8Q_OK)
        p.status = fp8q_plan_check(p.plan, &p.err);
    return p;
}

static void put_away(struct made *p)
{
    fp8q_plan_destroy(p->plan);
    fp8q_ckpt_close(p->ckpt);
    fp8q_warnings_reset(&p->warnings);
    temp_dir_remove(p->dir);
}

static bool warned(const struct made *p, const char *id)
{
    for (size_t i = 0; i < p->warnings.count; i++)
        if (strcmp(p->warnings.items[i].id, id) == 0)
            return true;
    return false;
}

static const struct fp8q_decision *decision(const struct made *p, const char *name)
{
    const struct fp8q_tensor *t = fp8q_ckpt_find(p->ckpt, name);
    assert_non_null(t);
    return &p->plan->selection.decisions[t - p->ckpt->tensors];
}

#define LLAMA "{\"model_type\": \"llama\"}"
static const struct fp8q_plan_options by_default = {.threads = 1};

/* ---- groups ---------------------------------------------------------------------------------- */

/* One member of another type or shape holds the group back, and it is said.  */
static void groups_are_whole_whatever_a_member_is(void **state)
{
    static const struct {
        const char *member;
        enum fp8q_dtype dtype;
        uint32_t ndim;
        uint64_t rows;
    } cases[] = {{"self_attn.q_proj", FP8Q_F64, 2, 128},  {"self_attn.k_proj", FP8Q_I8, 2, 128},
                 {"self_attn.v_proj", FP8Q_BF16, 3, 128}, {"mlp.gate_proj", FP8Q_BF16, 2, 64},
                 {"mlp.up_proj", FP8Q_BF16, 1, 128},      {"mlp.up_proj", FP8Q_BF16, 2, 0},
                 {"self_attn.q_proj", FP8Q_BOOL, 2, 128}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct maker m = {.n = 0};
        char name[200], sibling[200];
        for (size_t k = 0; k < sizeof(linears) / sizeof(*linears); k++) {
            bool odd = strcmp(linears[k], cases[i].member) == 0;
            snprintf(name, sizeof(name), "model.layers.0.%s.weight", linears[k]);
            add(&m, name, odd ? cases[i].dtype : FP8Q_BF16, odd ? cases[i].ndim : 2,
                odd ? cases[i].rows : 128, 128, 1);
        }
        struct made p = plan_of(&m, LLAMA, &by_default);
        assert_ok(p.status, &p.err);
        bool attention = strncmp(cases[i].member, "self", 4) == 0;
        for (size_t k = attention ? 0 : 4; k < (attention ? 3U : 6U); k++) {
            snprintf(sibling, sizeof(sibling), "model.layers.0.%s.weight", linears[k]);
            assert_false(decision(&p, sibling)->quantize);
        }
        assert_true(decision(&p, "model.layers.0.mlp.down_proj.weight")->quantize);
        assert_true(warned(&p, "group-split"));
        put_away(&p);
    }
}

/* --include of one member of a group that no table knows.  */
static void included_members_do_not_split_groups(void **state)
{
    static const struct {
        const char *include;
        size_t n; /* quantized beside the layer of the tables */
    } cases[] = {{"side.attn.q_proj", 0}, {"side.attn", 3},      {"side.ffn.up_proj", 0},
                 {"side.ffn", 2},         {"side.experts.0", 0}, {"side.experts", 4},
                 {"side.out", 1},         {"side.ffn.w1", 0}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        static const char *const side[] = {
            "attn.q_proj",   "attn.k_proj",   "attn.v_proj",   "ffn.up_proj",   "ffn.gate_proj",
            "experts.0.fc1", "experts.1.fc1", "experts.0.fc2", "experts.1.fc2", "out"};
        struct fp8q_plan_options o = {
            .threads = 1,
            .select = {.include = &cases[i].include, .n_include = 1, .allow_unmatched = true}};
        struct maker m = {.n = 0};
        char name[200];
        add_layer(&m, "model.");
        for (size_t k = 0; k < sizeof(side) / sizeof(*side); k++) {
            snprintf(name, sizeof(name), "side.%s.weight", side[k]);
            add(&m, name, FP8Q_BF16, 2, 128, 128, 1);
        }
        struct made p = plan_of(&m, LLAMA, &o);
        assert_ok(p.status, &p.err);
        if (p.plan->selection.n_quantize != 7 + cases[i].n)
            fail_msg("%s: %zu", cases[i].include, p.plan->selection.n_quantize);
        put_away(&p);
    }
}

/* ---- what earlier quantizations left --------------------------------------------------------- */

static void stale_scales_are_left_out(void **state)
{
    static const char *const names[] = {"model.layers.0.mlp.up_proj.weight_scale_inv",
                                        "model.layers.0.mlp.up_proj.weight_scale",
                                        "model.layers.0.mlp.up_proj.input_scale"};
    (void)state;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct maker m = {.n = 0};
        add_layer(&m, "model.");
        add(&m, names[i], FP8Q_F32, 2, 1, 1, 1);
        struct made p = plan_of(&m, LLAMA, &by_default);
        size_t n = 0;
        assert_ok(p.status, &p.err);
        assert_true(warned(&p, "stale-scale"));
        for (size_t k = 0; k < p.plan->n_tensors; k++)
            if (strcmp(p.plan->tensors[k].name, names[i]) == 0) {
                n++;
                assert_int_equal(p.plan->tensors[k].kind, FP8Q_OUT_SCALE);
            }
        assert_int_equal(n, i == 0); /* the one that is made */
        put_away(&p);
    }
}

static bool holds(const struct fp8q_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->n_tensors; i++)
        if (strcmp(plan->tensors[i].name, name) == 0)
            return true;
    return false;
}

/* Scales without an FP8 weight go, quantized or left or not there; what only looks like one stays.  */
static void scales_without_fp8_weights_go(void **state)
{
    static const struct {
        const char *name;
        bool goes;
    } cases[] = {
        {"lm_head.weight_scale_inv", true}, /* left unquantized */
        {"model.norm.weight_scale", true},
        {"model.layers.7.mlp.up_proj.weight_scale_inv", true}, /* no such weight */
        {"model.layers.0.mlp.experts.down_proj_scale_inv", true},
        {"model.layers.0.empty.weight_scale", true}, /* FP8, and nothing */
        {"model.layers.0.self_attn.weight_scaled", false},
        {"model.norm.scale", false},            /* a parameter that some networks have */
        {"model.temperature_scale_inv", false}, /* of nothing */
    };
    (void)state;

    for (int dequantize = 0; dequantize < 2; dequantize++)
        for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
            struct maker m = {.n = 0};
            add_layer(&m, "model.");
            add(&m, "lm_head.weight", FP8Q_BF16, 2, 128, 128, 1);
            add(&m, "model.norm.weight", FP8Q_BF16, 1, 128, 1, 1);
            add(&m, "model.layers.0.mlp.experts.down_proj", FP8Q_BF16, 3, 2, 128, 128);
            add(&m, "model.layers.0.empty.weight", FP8Q_F8_E4M3, 2, 128, 0, 1);
            add(&m, cases[i].name, FP8Q_F32, 2, 1, 1, 1);
            struct fp8q_plan_options o = {.threads = 1, .dequantize = dequantize, .to = FP8Q_BF16};
            struct made p = plan_of(&m, LLAMA, &o);
            assert_ok(p.status, &p.err);
            if (holds(p.plan, cases[i].name) == cases[i].goes)
                fail_msg("%s, dequantize %d", cases[i].name, dequantize);
            assert_int_equal(warned(&p, "stale-scale"), cases[i].goes && !dequantize);
            put_away(&p);
        }
}

/* Of an FP8 checkpoint that becomes floats nothing may go on saying FP8.  */
static void nothing_is_left_of_fp8(void **state)
{
    static const char *const left[] = {"lm_head.input_scale",
                                       "lm_head.output_scale",
                                       "lm_head.weight_zero_point",
                                       "lm_head.input_zero_point",
                                       "lm_head.weight.comfy_quant",
                                       "scaled_fp8",
                                       "model.diffusion_model.scaled_fp8",
                                       "model.layers.0.self_attn.k_scale",
                                       "model.layers.0.self_attn.k_proj.k_scale",
                                       "model.layers.0.self_attn.v_proj.output_scale",
                                       "model.layers.0.self_attn.attn.kv_scale"};
    static const char config[] =
        "{\"model_type\": \"llama\", \"torch_dtype\": \"float8_e4m3fn\", \"dtype\": "
        "\"float8_e5m2\", "
        "\"quantization_config\": {\"quant_method\": \"fp8\"}, \"text_config\": {\"dtype\": "
        "\"float8_e4m3fn\", \"a\": 1}, \"vision_config\": {\"dtype\": \"bfloat16\"}}";
    (void)state;

    for (size_t i = 0; i < sizeof(left) / sizeof(*left); i++) {
        struct maker m = {.n = 0};
        struct fp8q_plan_options o = {.threads = 1, .dequantize = true, .to = FP8Q_BF16};
        add_layer(&m, "model.");
        add(&m, "lm_head.weight", FP8Q_F8_E4M3, 2, 128, 128, 1);
        add(&m, "lm_head.scale_weight", FP8Q_F32, 1, 1, 1, 1); /* ComfyUI's name */
        bool is_marker = strstr(left[i], "fp8") || strstr(left[i], "comfy");
        add(&m, left[i], is_marker ? FP8Q_F8_E4M3 : FP8Q_F32, 1, 1, 1, 1);
        struct made p = plan_of(&m, config, &o);
        assert_ok(p.status, &p.err);
        if (holds(p.plan, left[i]) || holds(p.plan, "lm_head.scale_weight"))
            fail_msg("%s is left", left[i]);
        assert_string_equal(p.plan->config_text, "{\"model_type\": \"llama\", \"text_config\": "
                                                 "{\"a\": 1}, \"vision_config\": {\"dtype\": "
                                                 "\"bfloat16\"}}");
        put_away(&p);
    }
}

/* A name that is made and also there cannot be written twice.  */
static void no_name_is_written_twice(void **state)
{
    struct maker m = {.n = 0};
    (void)state;
    add_layer(&m, "model.");
    add(&m, "model.layers.0.mlp.experts.gate_up_proj", FP8Q_BF16, 3, 2, 256, 128);
    add(&m, "model.layers.0.mlp.experts.down_proj", FP8Q_BF16, 3, 2, 128, 256);
    add(&m, "model.layers.0.mlp.experts.1.gate_proj.weight", FP8Q_I64, 1, 128, 1, 1);
    struct made p = plan_of(&m,
                            "{\"model_type\": \"qwen3_moe\", \"hidden_size\": 128, "
                            "\"moe_intermediate_size\": 256}",
                            &by_default);
    if (p.status == FP8Q_OK) /* or the whole group is left, and nothing is made */
        assert_false(decision(&p, "model.layers.0.mlp.experts.gate_up_proj")->quantize);
    else
        assert_failed(p.status, FP8Q_E_UNSUPPORTED, &p.err, "twice");
    put_away(&p);
}

/* What an engine of today would take for the wrong thing is not written.  */
static void a_list_that_engines_misread_is_refused(void **state)
{
    static const struct {
        const char *beside, *part; /* the message names it */
    } cases[] = {
        {"model.layers.0.self_attn.qkv_proj.weight", "self_attn"}, /* and real parts of it */
        {"model.layers.0.mlp.gate_up_proj.weight", "mlp"},
        {"model.layers.0.self_attn.o_proj.adapter.weight", "o_proj"}, /* for lmdeploy */
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct maker m = {.n = 0};
        add_layer(&m, "model.");
        add(&m, cases[i].beside, FP8Q_BF16, 2, 64, 64, 1);
        struct made p = plan_of(&m, LLAMA, &by_default);
        assert_failed(p.status, FP8Q_E_ARG, &p.err, cases[i].part);
        assert_string_equal(p.err.id, "exclusion-misread");
        put_away(&p);
    }
}

static void stale_configs_are_cut_out_wherever_they_stand(void **state)
{
    static const char *const places[] = {
        "{\"model_type\": \"llama\", \"language_config\": {\"a\": 1, \"quantization_config\": {}}}",
        "{\"model_type\": \"llama\", \"vision_config\": {\"quantization_config\": {}}}",
        "{\"model_type\": \"llama\", \"a\": {\"b\": {\"c\": {\"quantization_config\": {}}}}}",
        "{\"model_type\": \"llama\", \"a\": {\"compression_config\": {}, \"b\": 2}}",
        "{\"model_type\": \"llama\", \"text_config\": {\"quantization_config\": null}}"};
    (void)state;

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        struct maker m = {.n = 0};
        add_layer(&m, "model.");
        struct made p = plan_of(&m, places[i], &by_default);
        assert_ok(p.status, &p.err); /* an empty description says nothing */
        const char *made = strstr(p.plan->config_text, "quantization_config");
        assert_non_null(made); /* the only one */
        assert_null(strstr(made + 1, "quantization_config"));
        assert_null(strstr(p.plan->config_text, "compression_config"));
        put_away(&p);
    }
}

static void descriptions_in_nested_configs_are_seen(void **state)
{
    static const char *const places[] = {"language_config", "vision_config", "thinker_config"};
    (void)state;

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        char config[300];
        struct maker m = {.n = 0};
        add_layer(&m, "model.");
        snprintf(config, sizeof(config),
                 "{\"model_type\": \"llama\", \"%s\": {\"text_config\": {\"quantization_config\": "
                 "{\"quant_method\": \"awq\"}}}}",
                 places[i]);
        struct made p = plan_of(&m, config, &by_default);
        assert_failed(p.status, FP8Q_E_ARG, &p.err, "awq");
        put_away(&p);
    }
}

/* Packed values are neither dequantized nor quantized again; their format is named.  */
static void packed_formats_are_refused_by_name(void **state)
{
    static const struct {
        const char *tensor, *other;
        enum fp8q_dtype dtype, other_dtype;
        const char *name;
    } cases[] = {
        {"model.layers.0.x.qweight", "model.layers.0.x.g_idx", FP8Q_I32, FP8Q_I32, "GPTQ"},
        {"model.layers.0.x.qweight", "model.layers.0.x.qzeros", FP8Q_I32, FP8Q_I32, "AWQ"},
        {"model.layers.0.x.weight", "model.layers.0.x.weight_scale_2", FP8Q_U8, FP8Q_F32, "NVFP4"},
        {"model.layers.0.x.weight", "model.layers.0.x.weight_scale_inv", FP8Q_I8, FP8Q_F8_E8M0,
         "packed FP4"},
        {"model.layers.0.x.weight", "model.layers.0.x.weight_scale", FP8Q_I8, FP8Q_F32, "INT8"},
        {"model.layers.0.x_blocks", "model.layers.0.x_scales", FP8Q_U8, FP8Q_U8, "MXFP4"},
        {"model.layers.0.x.weight_packed", "model.layers.0.x.weight_shape", FP8Q_I32, FP8Q_I64,
         "compressed-tensors"},
        {"model.layers.0.x.weight", "model.layers.0.x.weight.absmax", FP8Q_U8, FP8Q_F32,
         "bitsandbytes"},
        {"model.layers.0.x.weight", "model.layers.0.x.SCB", FP8Q_I8, FP8Q_F32, "bitsandbytes"}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        for (int how = 0; how < 3; how++) {
            struct fp8q_plan_options o = {.threads = 1, .dequantize = how == 1, .to = FP8Q_BF16};
            struct maker m = {.n = 0};
            o.select.requantize = how == 2;
            add_layer(&m, "model.");
            add(&m, cases[i].tensor, cases[i].dtype, 2, 128, 16, 1);
            add(&m, cases[i].other, cases[i].other_dtype, 2, 128, 4, 1);
            struct made p = plan_of(&m, LLAMA, &o);
            assert_failed(p.status, FP8Q_E_UNSUPPORTED, &p.err, cases[i].name);
            put_away(&p);
        }
}

static void adapters_are_named(void **state)
{
    struct maker m = {.n = 0};
    (void)state;
    add(&m, "base_model.model.model.layers.0.x.base_layer.weight", FP8Q_BF16, 2, 128, 128, 1);
    add(&m, "base_model.model.model.layers.0.x.lora_A.default.weight", FP8Q_BF16, 2, 8, 128, 1);
    struct made p = plan_of(&m, LLAMA, &by_default);
    assert_failed(p.status, FP8Q_E_MISMATCH, &p.err, "merge them first");
    put_away(&p);
}

/* --include of what no table names: of an FP8 source, taken through F32 again, as of a BF16 one.  */
static void included_modules_of_fp8_are_taken(void **state)
{
    static const char *const include[] = {"*.mixer.*"};
    static const char weight[] = "backbone.layers.0.mixer.in_proj.weight";
    (void)state;

    for (int fp8 = 0; fp8 < 2; fp8++) {
        struct fp8q_plan_options o = {.threads = 1, .select = {.include = include, .n_include = 1}};
        struct maker m = {.n = 0};
        add(&m, weight, fp8 ? FP8Q_F8_E4M3 : FP8Q_BF16, 2, 256, 128, 1);
        add(&m, "backbone.layers.0.other.weight", FP8Q_BF16, 2, 256, 128, 1);
        if (fp8)
            add(&m, "backbone.layers.0.mixer.in_proj.weight_scale_inv", FP8Q_F32, 2, 2, 1, 1);
        o.select.requantize = fp8;
        struct made p = plan_of(&m, "{\"model_type\": \"mamba\"}", &o);
        assert_ok(p.status, &p.err);
        assert_true(decision(&p, weight)->quantize);
        assert_int_equal(p.plan->selection.n_quantize, 1);
        put_away(&p);
    }
}

/* ---- files ----------------------------------------------------------------------------------- */

static void directories_without_config_are_warned_of(void **state)
{
    struct maker m = {.n = 0};
    (void)state;
    add_layer(&m, "model.");
    struct made p = plan_of(&m, NULL, &by_default);
    assert_ok(p.status, &p.err);
    assert_true(warned(&p, "config-absent"));
    put_away(&p);
}

static void policies_keep_their_scales_apart(void **state)
{
    static const char *const types[] = {"pi05", "smolvla", "groot", "act", "not_known"};
    (void)state;

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        for (int in_line = 0; in_line < 2; in_line++) {
            char config[100];
            struct fp8q_plan_options o = {.threads = 1};
            struct maker m = {.n = 0};
            o.scales = in_line ? FP8Q_SCALES_INLINE : FP8Q_SCALES_SIDECAR;
            snprintf(config, sizeof(config), "{\"type\": \"%s\"}", types[i]);
            add_layer(&m, "model.paligemma_with_expert.paligemma.model.language_model.");
            struct made p = plan_of(&m, config, &o);
            if (in_line) {
                assert_failed(p.status, FP8Q_E_ARG, &p.err, "LeRobot");
            } else {
                assert_true(p.plan->selection.family.lerobot);
                for (size_t k = 0; k < p.plan->n_shards && p.plan->selection.n_quantize; k++)
                    assert_string_not_equal(p.plan->shards[k].name, "model.safetensors");
            }
            put_away(&p);
        }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void only_a_given_limit_refuses(void **state)
{
    struct fp8q_plan_options o = {.threads = 2};
    (void)state;

    for (int limited = 0; limited < 2; limited++) {
        struct maker m = {.n = 0};
        char name[200];
        for (unsigned i = 0; i < 60000; i++) {
            snprintf(name, sizeof(name), "model.layers.%u.mlp.down_proj.weight", i);
            add(&m, name, FP8Q_BF16, 2, 1, 1, 1);
        }
        o.max_memory = limited ? (uint64_t)20 << 20 : 0;
        struct made p = plan_of(&m, LLAMA, &o);
        if (limited)
            assert_failed(p.status, FP8Q_E_ARG, &p.err, "--max-memory");
        else
            assert_non_null(p.plan);
        put_away(&p);
    }
}

/* ---- names of shards ------------------------------------------------------------------------- */

enum { MOST_NAMES = 3 };

/* A checkpoint whose shards have these names, each with a layer's worth of one tensor.  */
static void write_named(const char *dir, const char *const *names)
{
    struct maker m = {.sparse = true};
    char index[2000] = "{\"metadata\": {}, \"weight_map\": {", path[600], name[100];
    const uint64_t shape[2] = {128, 128};

    maker_write_text(dir, "config.json", LLAMA);
    for (size_t i = 0; i < MOST_NAMES && names[i]; i++) {
        snprintf(name, sizeof(name), "model.layers.%zu.mlp.down_proj.weight", i);
        maker_add(&m, name, FP8Q_BF16, 2, shape, i);
        maker_write_text(dir, names[i], ""); /* for its directories */
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        assert_int_equal(remove(path), 0);
        maker_write_shard(&m, i, path);
        snprintf(index + strlen(index), sizeof(index) - strlen(index), "%s\"%s\": \"%s\"",
                 i ? ", " : "", name, names[i]);
    }
    strcat(index, "}}");
    maker_write_text(dir, "model.safetensors.index.json", index);
    maker_free(&m);
}

/* With more than one shard, model.safetensors gets a number in its name, where another may stand.  */
static void shards_do_not_share_names(void **state)
{
    static const struct {
        const char *names[MOST_NAMES], *id;
    } cases[] = {
        {{"a.safetensors", "b.safetensors"}, ""},
        {{"model.safetensors", "model-00002-of-00002.safetensors"}, "shard-name"},
        {{"model.safetensors", "model-00002-of-00002.safetensors/a.safetensors"}, "shard-name"},
        {{"model.safetensors", "model-00003-of-00003.safetensors.safetensors",
          "model-00003-of-00003.safetensors/a.safetensors"},
         "shard-name"},
        {{"model.safetensors", "model-00003-of-00003.safetensors.safetensors",
          "model-00003-of-00003.safetensor/a.safetensors"},
         ""},
        {{"fp8q-manifest.json/a.safetensors", "b.safetensors"}, "shard-reserved"},
        {{"Config.json/a.safetensors", "b.safetensors"}, "shard-reserved"},
        {{"model-scales.safetensors", "b.safetensors"}, "shard-reserved"},
    };
    struct fp8q_plan_options floats = by_default;
    floats.dequantize = true;
    floats.to = FP8Q_BF16;
    (void)state;

    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(*cases); i++) {
        struct made p = {.dir = temp_dir_make()};
        write_named(p.dir, cases[i / 2].names);
        assert_ok(fp8q_ckpt_open(p.dir, &p.ckpt, NULL, &p.err), &p.err);
        const struct fp8q_plan_options *options = i % 2 ? &floats : &by_default;
        assert_ok(fp8q_plan_create(p.ckpt, options, &p.plan, &p.warnings, &p.err), &p.err);
        p.status = fp8q_plan_check(p.plan, &p.err);
        assert_string_equal(p.status == FP8Q_OK ? "" : p.err.id, cases[i / 2].id);
        put_away(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_do_not_share_names),
        cmocka_unit_test(groups_are_whole_whatever_a_member_is),
        cmocka_unit_test(included_members_do_not_split_groups),
        cmocka_unit_test(stale_scales_are_left_out),
        cmocka_unit_test(scales_without_fp8_weights_go),
        cmocka_unit_test(nothing_is_left_of_fp8),
        cmocka_unit_test(no_name_is_written_twice),
        cmocka_unit_test(a_list_that_engines_misread_is_refused),
        cmocka_unit_test(stale_configs_are_cut_out_wherever_they_stand),
        cmocka_unit_test(descriptions_in_nested_configs_are_seen),
        cmocka_unit_test(packed_formats_are_refused_by_name),
        cmocka_unit_test(adapters_are_named),
        cmocka_unit_test(included_modules_of_fp8_are_taken),
        cmocka_unit_test(directories_without_config_are_warned_of),
        cmocka_unit_test(policies_keep_their_scales_apart),
        cmocka_unit_test(only_a_given_limit_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
