/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plan_matchers.c - how engines read exclusion lists, and the lists that plans make for them.
 */
#include "support/support.h"

#include "engines/matchers.h"
#include "plan/plan.h"
#include "support/maker.h"

/* ---- the rules of the readers ---------------------------------------------------------------- */

/* Readers that leave @module in high precision because of the one @entry: bit i is reader i below.
 */
static const char *const names[] = {
    "vLLM",           "SGLang",       "transformers", "transformers before 5.24",
    "transformers 4", "TensorRT-LLM", "lmdeploy",     "SGLang before 0.5.23"};
enum {
    VLLM = 1,
    SGLANG = 2,
    HF5 = 4,
    HF5_OLD = 8,
    HF4 = 16,
    TRT = 32,
    LMDEPLOY = 64,
    SGLANG_OLD = 128,
    ALL_FP8 = 127,
    CT = VLLM | HF5
};

static int note(void *context, const struct fp8q_misreading *m)
{
    for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], m->reader->name) == 0)
            *(unsigned *)context |= 1U << i;
    return FP8Q_OK;
}

static unsigned readers_of(enum fp8q_format format, const char *entry, const char *module,
                           enum fp8q_module_kind kind)
{
    char name[200];
    struct fp8q_module item = {.name = name, .kind = kind, .quantized = true};
    struct fp8q_modules modules = {.items = &item, .count = 1};
    struct fp8q_name_list list = {.items = &entry, .count = 1};
    struct fp8q_exclusions x = {.format = format};
    struct fp8q_error err = {0};
    unsigned found = 0;
    snprintf(name, sizeof(name), "%s", module);
    if (format == FP8Q_FORMAT_FP8)
        x.ignored_layers = x.not_converted = list;
    else
        x.ignore = list;
    assert_ok(fp8q_readers_ask(&x, &modules, note, &found, &err), &err);
    return found;
}

static void readers_follow_their_rules(void **state)
{
    static const struct {
        const char *entry, *module;
        enum fp8q_module_kind kind;
        unsigned readers;
    } cases[] = {
        {"model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj", FP8Q_MODULE_LINEAR, ALL_FP8},
        /* a router beside a dense gate_proj */
        {"model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj", FP8Q_MODULE_LINEAR,
         HF5_OLD | HF4},
        {"model.layers.0.mlp.gate$", "model.layers.0.mlp.gate_proj", FP8Q_MODULE_LINEAR, 0},
        {"model.layers.0.mlp.gate$", "model.layers.0.mlp.gate", FP8Q_MODULE_LINEAR,
         HF5 | HF5_OLD | LMDEPLOY},
        /* short names reach by their ends */
        {"proj", "model.layers.0.self_attn.q_proj", FP8Q_MODULE_LINEAR, HF5 | HF5_OLD | HF4},
        {"q_proj", "model.layers.0.self_attn.q_proj", FP8Q_MODULE_LINEAR,
         SGLANG | HF5 | HF5_OLD | HF4},
        {"layers.1", "model.layers.1.mlp.up_proj", FP8Q_MODULE_LINEAR, SGLANG | HF4},
        {"layers.1", "model.layers.11.mlp.up_proj", FP8Q_MODULE_LINEAR, HF4},
        {"model.layers.1", "model.layers.11.mlp.up_proj", FP8Q_MODULE_LINEAR, HF5_OLD | HF4},
        {"model.layers.1", "model.layers.1.mlp.up_proj", FP8Q_MODULE_LINEAR,
         SGLANG | HF5 | HF5_OLD | HF4 | TRT},
        {"visual", "model.visual.blocks.0.attn.proj", FP8Q_MODULE_LINEAR, SGLANG | HF4},
        {"visual", "visual.blocks.0.attn.proj", FP8Q_MODULE_LINEAR,
         SGLANG | HF5 | HF5_OLD | HF4 | TRT},
        /* the experts of a layer as one module */
        {"model.layers.0.mlp.experts", "model.layers.0.mlp.experts", FP8Q_MODULE_EXPERTS,
         ALL_FP8 & ~(unsigned)HF4},
        {"model.layers.0.mlp.experts.5.up_proj", "model.layers.0.mlp.experts", FP8Q_MODULE_EXPERTS,
         VLLM | SGLANG | LMDEPLOY},
        {"model.layers.0.mlp.gate", "model.layers.0.mlp.experts", FP8Q_MODULE_EXPERTS, 0},
        {"model.layers.0.mlp", "model.layers.0.mlp.experts", FP8Q_MODULE_EXPERTS,
         SGLANG | HF5 | HF5_OLD | TRT},
        {"model.layers.0.mlp.experts", "model.layers.0.mlp.experts.3.up_proj", FP8Q_MODULE_EXPERT,
         HF4},
        /* longer entries, and globs */
        {"model.layers.0.mlp.gate_proj", "model.layers.0.mlp.gate", FP8Q_MODULE_LINEAR, LMDEPLOY},
        {"*.mlp.*", "model.layers.0.mlp.up_proj", FP8Q_MODULE_LINEAR, TRT},
        {"re:.*up_proj", "model.layers.0.mlp.up_proj", FP8Q_MODULE_LINEAR, TRT},
        {"layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj", FP8Q_MODULE_LINEAR,
         SGLANG | HF5 | HF5_OLD | HF4},
        {"model.layers.0.mlp.up_proj", "layers.0.mlp.up_proj", FP8Q_MODULE_LINEAR,
         SGLANG | LMDEPLOY},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        unsigned found =
            readers_of(FP8Q_FORMAT_FP8, cases[i].entry, cases[i].module, cases[i].kind);
        if (found != cases[i].readers)
            fail_msg("%s on %s: %#x, expected %#x", cases[i].entry, cases[i].module, found,
                     cases[i].readers);
    }
}

static void readers_of_compressed_tensors_follow_theirs(void **state)
{
    static const struct {
        const char *entry, *module;
        unsigned readers;
    } cases[] = {
        {"model.layers.0.mlp.up_proj", "model.layers.0.mlp.up_proj",
         CT | SGLANG | SGLANG_OLD | TRT},
        {"model.layers.0.mlp", "model.layers.0.mlp.up_proj", SGLANG_OLD | TRT},
        {"mlp.up_proj", "model.layers.0.mlp.up_proj", SGLANG | SGLANG_OLD},
        {"proj", "model.layers.0.mlp.up_proj", SGLANG_OLD},
        {"MLP", "model.layers.0.mlp.up_proj", SGLANG_OLD},
        {"model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj", SGLANG_OLD},
        {"visual", "model.visual.blocks.0", SGLANG_OLD},
        {"re:.*\\.mlp\\.gate$", "model.layers.0.mlp.gate", CT | SGLANG | SGLANG_OLD | TRT},
        {"re:.*\\.mlp\\.gate$", "model.layers.0.mlp.gate_proj", 0},
        {"re:.*\\.mlp\\.", "model.layers.0.mlp.gate", CT | SGLANG | SGLANG_OLD},
        {"re:mlp", "model.layers.0.mlp", 0},
        {"re:(", "model.layers.0.mlp", 0},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        unsigned found = readers_of(FP8Q_FORMAT_COMPRESSED_TENSORS, cases[i].entry, cases[i].module,
                                    FP8Q_MODULE_LINEAR);
        if (found != cases[i].readers)
            fail_msg("%s on %s: %#x, expected %#x", cases[i].entry, cases[i].module, found,
                     cases[i].readers);
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void add(struct maker *m, const char *name, uint32_t ndim, uint64_t a, uint64_t b,
                uint64_t c)
{
    const uint64_t shape[3] = {a, b, c};
    maker_add(m, name, FP8Q_BF16, ndim, shape, 0);
}

/* A layer of a decoder under @root, all of whose linears can be quantized; @experts one by one.  */
static void add_layer(struct maker *m, const char *root, unsigned experts)
{
    static const char *const linears[] = {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    static const char *const parts[] = {"gate_proj", "up_proj", "down_proj"};
    char name[200];

    for (size_t i = 0; i < (experts ? 4 : 7); i++) {
        snprintf(name, sizeof(name), "%slayers.0.%s.weight", root, linears[i]);
        add(m, name, 2, 128, 128, 1);
    }
    for (unsigned e = 0; e < experts; e++)
        for (size_t i = 0; i < 3; i++) {
            snprintf(name, sizeof(name), "%slayers.0.mlp.experts.%u.%s.weight", root, e, parts[i]);
            add(m, name, 2, 128, 128, 1);
        }
}

struct planned {
    char *dir;
    struct fp8q_ckpt *ckpt;
    struct fp8q_plan *plan;
    struct fp8q_warnings warnings;
};

static struct planned make_plan(struct maker *m, const char *config,
                                const struct fp8q_plan_options *options)
{
    char path[600];
    struct planned p = {.dir = temp_dir_make()};
    struct fp8q_error err = {0};
    m->sparse = true;
    snprintf(path, sizeof(path), "%s/src", p.dir);
    maker_write(m, path, config);
    maker_free(m);
    assert_ok(fp8q_ckpt_open(path, &p.ckpt, NULL, &err), &err);
    assert_ok(fp8q_plan_create(p.ckpt, options, &p.plan, &p.warnings, &err), &err);
    return p;
}

static void free_plan(struct planned *p)
{
    fp8q_plan_destroy(p->plan);
    fp8q_ckpt_close(p->ckpt);
    fp8q_warnings_reset(&p->warnings);
    temp_dir_remove(p->dir);
}

static bool has(char *const *items, size_t n, const char *entry)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(items[i], entry) == 0)
            return true;
    return false;
}

static bool warned(const struct planned *p, const char *id)
{
    for (size_t i = 0; i < p->warnings.count; i++)
        if (strcmp(p->warnings.items[i].id, id) == 0)
            return true;
    return false;
}

#define LISTED(p, entry) assert_true(has((p).plan->exclusions, (p).plan->n_exclusions, entry))
#define NOT_LISTED(p, entry) assert_false(has((p).plan->exclusions, (p).plan->n_exclusions, entry))

static const struct fp8q_plan_options by_default = {.threads = 1};

/* Stacks that engines build under names that no file has.  */
static void stacks_are_listed_as_engines_build_them(void **state)
{
    static const struct {
        const char *stack, *listed;
    } cases[] = {
        {"model.layers.0.block_sparse_moe.input_linear.weight",
         "model.layers.0.block_sparse_moe.experts"},
        {"model.layers.0.moe.gate_proj.weight", "model.layers.0.moe.experts"},
        {"model.layers.0.experts.gate_up_proj", "model.layers.0.moe.experts"},
        {"model.layers.0.experts.gate_up_proj", "model.layers.0.experts"},
        {"model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts"},
        {"model.layers.0.feed_forward.w13.weight", "model.layers.0.feed_forward.experts"},
        {"model.layers.0.ffn_experts", "model.layers.0.moe.experts"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        for (int compressed = 0; compressed < 2; compressed++) {
            struct fp8q_plan_options o = by_default;
            struct maker m = {.n = 0};
            add_layer(&m, "model.", 0);
            add(&m, cases[i].stack, 3, 4, 256, 128);
            o.format = compressed ? FP8Q_FORMAT_COMPRESSED_TENSORS : FP8Q_FORMAT_FP8;

            struct planned p = make_plan(&m, "{\"model_type\": \"new_moe\"}", &o);
            assert_true(p.plan->selection.n_quantize > 0);
            LISTED(p, cases[i].listed);
            if (compressed) /* in which vLLM and SGLang ask for a matrix of the first expert */
                LISTED(p, "re:.*\\.experts(?:$|\\..*)");
            assert_false(warned(&p, "exclusion-missing"));
            free_plan(&p);
        }
    }
}

/* Names of Mistral's own: lmdeploy, which looks for a module within an entry, would take the tower's
 * for the decoder's; but it has no class for the model.  */
static void engines_without_a_class_are_not_asked(void **state)
{
    static const char *const linears[] = {"wq_a", "wkv_a_with_mqa", "wq_b", "wkv_b", "wo"};
    struct maker m = {.n = 0};
    char name[200];
    (void)state;

    for (size_t i = 0; i < sizeof(linears) / sizeof(*linears); i++) {
        snprintf(name, sizeof(name), "layers.0.attention.%s.weight", linears[i]);
        add(&m, name, 2, 128, 128, 1);
    }
    add(&m, "vision_encoder.transformer.layers.0.attention.wo.weight", 2, 128, 128, 1);

    struct planned p = make_plan(&m, "{\"model_type\": \"mistral_large4\"}", &by_default);
    assert_int_equal(p.plan->selection.n_quantize, 5);
    LISTED(p, "vision_encoder.transformer.layers.0.attention.wo");
    assert_null(p.plan->misreading);
    free_plan(&p);
}

static void experts_left_whole_are_one_entry(void **state)
{
    const char *const ignore[] = {"mlp.experts"};
    struct fp8q_plan_options o = {.threads = 1, .select = {.ignore = ignore, .n_ignore = 1}};
    (void)state;

    for (int compressed = 0; compressed < 2; compressed++) {
        struct maker m = {.n = 0};
        add_layer(&m, "model.language_model.", 64);
        o.format = compressed ? FP8Q_FORMAT_COMPRESSED_TENSORS : FP8Q_FORMAT_FP8;
        struct planned p = make_plan(&m, "{\"model_type\": \"qwen3_vl_moe\"}", &o);
        LISTED(p, "model.language_model.layers.0.mlp.experts");
        LISTED(p, "model.layers.0.mlp.experts");
        NOT_LISTED(p, "model.language_model.layers.0.mlp.experts.0.up_proj");
        assert_true(p.plan->n_exclusions < 10);
        assert_int_equal(p.warnings.count, 0);
        free_plan(&p);
    }
}

/* A name that reaches a quantized module in some engine is anchored where that helps, and said
 * where nothing does.  */
static void short_names_are_anchored(void **state)
{
    static const struct {
        const char *kept, *anchored;
    } cases[] = {{"proj", "proj$"},
                 {"model.layers.0.mlp.gate", "model.layers.0.mlp.gate$"},
                 {"up", "up$"},
                 {"o_proj", "o_proj$"}};
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct maker m = {.n = 0};
        char name[200];
        add_layer(&m, "model.", 0);
        snprintf(name, sizeof(name), "%s.weight", cases[i].kept);
        add(&m, name, 2, 8, 128, 1);
        struct planned p = make_plan(&m, "{\"model_type\": \"new_moe\"}", &by_default);
        LISTED(p, cases[i].kept);
        assert_true(has(p.plan->not_converted, p.plan->n_not_converted, cases[i].anchored));
        /* transformers 4 takes parts of names, so for it one of the two remains.  */
        assert_true(warned(&p, "exclusion-reach") || warned(&p, "exclusion-missing"));
        free_plan(&p);
    }
}

static void short_names_are_expressions_in_compressed_tensors(void **state)
{
    struct fp8q_plan_options o = {.threads = 1, .format = FP8Q_FORMAT_COMPRESSED_TENSORS};
    struct maker m = {.n = 0};
    (void)state;
    add_layer(&m, "model.", 0);
    add(&m, "proj.weight", 2, 8, 128, 1);
    add(&m, "model.layers.0.side.gate.weight", 2, 8, 128, 1);
    struct planned p = make_plan(&m, "{\"model_type\": \"new\"}", &o);
    LISTED(p, "re:proj$");
    LISTED(p, "model.layers.0.side.gate"); /* no mlp.gate, so no expression says it */
    assert_false(warned(&p, "exclusion-reach"));
    free_plan(&p);
}

static void an_included_head_is_not_listed(void **state)
{
    const char *const include[] = {"lm_head"};
    struct fp8q_plan_options o = {.threads = 1, .select = {.include = include, .n_include = 1}};
    (void)state;

    for (int compressed = 0; compressed < 2; compressed++) {
        struct maker m = {.n = 0};
        add_layer(&m, "model.", 0);
        add(&m, "lm_head.weight", 2, 128, 128, 1);
        o.format = compressed ? FP8Q_FORMAT_COMPRESSED_TENSORS : FP8Q_FORMAT_FP8;
        struct planned p = make_plan(&m, "{\"model_type\": \"llama\"}", &o);
        for (size_t i = 0; i < p.plan->n_exclusions; i++)
            assert_null(strstr(p.plan->exclusions[i], "lm_head"));
        assert_true(!compressed || strstr(p.plan->quant_config, "re:.*lm_head$"));
        free_plan(&p);
    }
}

/* A linear whose name has "embed" in it is one; a table of tokens is none.  */
static void projections_of_embeddings_are_listed(void **state)
{
    struct maker m = {.n = 0};
    (void)state;
    add_layer(&m, "model.", 0);
    add(&m, "model.embed_tokens.weight", 2, 128, 128, 1);
    add(&m, "model.per_layer_embedding_projection.weight", 2, 128, 128, 1);
    add(&m, "model.embed_tokens_per_layer.weight", 2, 128, 128, 1);
    struct planned p = make_plan(&m, "{\"model_type\": \"gemma3n_text\"}", &by_default);
    NOT_LISTED(p, "model.embed_tokens");
    LISTED(p, "model.per_layer_embedding_projection");
    LISTED(p, "model.embed_tokens_per_layer");
    free_plan(&p);
}

static void base_models_are_listed_in_both_spellings(void **state)
{
    const char *const ignore[] = {"mlp.down_proj"};
    struct fp8q_plan_options o = {.threads = 1, .select = {.ignore = ignore, .n_ignore = 1}};
    struct maker m = {.n = 0};
    (void)state;
    add_layer(&m, "", 0);
    struct planned p = make_plan(&m, "{\"model_type\": \"qwen3\"}", &o);
    assert_int_equal(p.plan->selection.n_quantize, 6);
    LISTED(p, "layers.0.mlp.down_proj");
    LISTED(p, "model.layers.0.mlp.down_proj");
    free_plan(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(readers_follow_their_rules),
        cmocka_unit_test(readers_of_compressed_tensors_follow_theirs),
        cmocka_unit_test(stacks_are_listed_as_engines_build_them),
        cmocka_unit_test(engines_without_a_class_are_not_asked),
        cmocka_unit_test(experts_left_whole_are_one_entry),
        cmocka_unit_test(short_names_are_anchored),
        cmocka_unit_test(short_names_are_expressions_in_compressed_tensors),
        cmocka_unit_test(an_included_head_is_not_listed),
        cmocka_unit_test(projections_of_embeddings_are_listed),
        cmocka_unit_test(base_models_are_listed_in_both_spellings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
