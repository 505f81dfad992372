/* SPDX-License-Identifier: Apache-2.0
 *
 * test_select.c - patterns, families, and the action for every tensor of the test checkpoints.
 */
#include "support/support.h"

#include "base/mem.h"
#include "plan/plan.h"
#include "select/parts.h"
#include "select/role.h"
#include "select/scheme.h"
#include "select/targets.h"

/* ---- patterns -------------------------------------------------------------------------------- */

static bool matches(const char *pattern, const char *module)
{
    struct fp8q_pattern *p;
    struct fp8q_error err = {0};
    bool result;
    assert_ok(fp8q_pattern_compile(pattern, &p, &err), &err);
    assert_ok(fp8q_pattern_match(p, module, &result, &err), &err);
    fp8q_pattern_free(p);
    return result;
}

static void patterns_mean_what_the_manual_says(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *module;
        bool matches;
    } cases[] = {
        {"visual", "visual.blocks.0.attn.qkv", true},
        {"visual", "model.visual.merger", true},
        {"visual", "model.visuals", false},
        {"mlp.gate", "model.layers.0.mlp.gate", true},
        {"mlp.gate", "model.layers.0.mlp.gate_proj", false},
        {"layers.1", "model.layers.1.mlp.up_proj", true},
        {"layers.1", "model.layers.10.mlp.up_proj", false},
        {"lm_head", "lm_head", true},
        {"*mlp*", "model.layers.0.mlp.up_proj", true},
        {"*.mlp", "model.layers.0.mlp.up_proj", false},
        {"model.layers.?.mlp.*", "model.layers.3.mlp.up_proj", true},
        {"model.layers.?.mlp.*", "model.layers.13.mlp.up_proj", false},
        {"model.layers.[01].mlp.*", "model.layers.1.mlp.up_proj", true},
        {"re:visual.*", "visual.blocks.0", true},
        {"re:visual.*", "model.visual.blocks.0", false},
        {"re:.*visual", "model.visual.blocks.0", true},
        {"re:.*up_proj$", "model.layers.0.mlp.up_proj", true},
        {"re:.*up$", "model.layers.0.mlp.up_proj", false},
        {"re:(?i)MODEL", "model.norm", true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        if (matches(cases[i].pattern, cases[i].module) != cases[i].matches)
            fail_msg("%s on %s", cases[i].pattern, cases[i].module);
}

static void bad_patterns_are_refused(void **state)
{
    struct fp8q_pattern *p;
    struct fp8q_error err = {0};
    bool result;
    (void)state;
    assert_failed(fp8q_pattern_compile("", &p, &err), FP8Q_E_ARG, &err, "empty");
    assert_failed(fp8q_pattern_compile("re:(", &p, &err), FP8Q_E_ARG, &err, "parenthesis");
    assert_ok(fp8q_pattern_compile("re:(a+)+$", &p, &err), &err);
    assert_failed(
        fp8q_pattern_match(p, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!", &result, &err),
        FP8Q_E_ARG, &err, "backtracking");
    fp8q_pattern_free(p);
}

static void edit_distance_counts_edits(void **state)
{
    (void)state;
    assert_int_equal(fp8q_edit_distance("visual", "visual", 5), 0);
    assert_int_equal(fp8q_edit_distance("visal", "visual", 5), 1);
    assert_int_equal(fp8q_edit_distance("kitten", "sitting", 5), 3);
    assert_int_equal(fp8q_edit_distance("a", "abcdefgh", 3), 4);
}

/* ---- schemes --------------------------------------------------------------------------------- */

static void items_end_in_a_scheme(void **state)
{
    enum fp8q_scheme scheme;
    (void)state;
    assert_int_equal(fp8q_scheme_item("experts=MXFP8", &scheme), 7);
    assert_int_equal(scheme, FP8Q_SCHEME_GROUP);
    assert_int_equal(fp8q_scheme_item("re:.*(?=x)=fp8_dynamic", &scheme), 10);
    assert_int_equal(scheme, FP8Q_SCHEME_CHANNEL);

    assert_int_equal(fp8q_scheme_item("experts", &scheme), 0);
    assert_int_equal(fp8q_scheme_item("experts=FP9", &scheme), 0);
    assert_int_equal(fp8q_scheme_item("=FP8", &scheme), 0);
}

/* As compressed-tensors' match_targets() and vLLM's find_matched_target() answer.  */
static void targets_are_found_by_name_before_class(void **state)
{
    static const char text[] =
        "{\"config_groups\": {\"a\": {\"targets\": [\"Linear\", \"re:.*up_proj$\"]},"
        "\"b\": {\"targets\": [\"re:.*layers\\\\.0\\\\..*\", \"lm_head\", \"re:(\"]}}}";
    static const struct {
        const char *module;
        unsigned group;
        bool several;
    } cases[] = {{"model.layers.0.mlp.down_proj", 1, false},
                 {"lm_head", 1, false},
                 {"model.lm_head", 0, false},
                 {"model.layers.1.mlp.down_proj", 0, false},
                 {"model.layers.0.mlp.up_proj", 0, true},
                 {"model.layers.10.mlp.down_proj", 0, false}};
    struct fp8q_json *json;
    struct fp8q_targets *targets;
    struct fp8q_error err = {0};
    (void)state;

    assert_ok(fp8q_json_parse(text, strlen(text), 0, "test", &json, &err), &err);
    assert_ok(fp8q_targets_open(json, &targets, &err), &err);
    const struct fp8q_json *a = fp8q_json_first(fp8q_json_get(json, "config_groups"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const struct fp8q_json *group;
        bool several;
        assert_ok(fp8q_targets_find(targets, cases[i].module, &group, &several, &err), &err);
        if ((group != a) != cases[i].group || several != cases[i].several)
            fail_msg("%s", cases[i].module);
    }

    fp8q_targets_close(targets);
    fp8q_json_free(json);
}

/* ---- families -------------------------------------------------------------------------------- */

/* Without the model_type, which is borrowed from the config.  */
static struct fp8q_family family(const char *type)
{
    char text[100];
    struct fp8q_json *json;
    struct fp8q_error err = {0};
    snprintf(text, sizeof(text), "{\"model_type\": \"%s\"}", type);
    assert_ok(fp8q_json_parse(text, strlen(text), 0, "test", &json, &err), &err);
    struct fp8q_family f = fp8q_family_of(json);
    assert_true(f.known);
    fp8q_json_free(json);
    f.model_type = NULL;
    return f;
}

static void linears_know_their_groups(void **state)
{
    struct fp8q_linear_place a, b;
    (void)state;
    struct fp8q_family llama = family("llama"), moe = family("qwen3_moe");
    assert_true(fp8q_family_linear(&llama, "model.layers.3.self_attn.q_proj", &a));
    assert_true(fp8q_family_linear(&llama, "model.layers.3.self_attn.v_proj", &b));
    assert_true(a.fused && b.fused && a.entry == b.entry && a.group_len == b.group_len);
    assert_true(fp8q_family_linear(&llama, "model.layers.3.self_attn.o_proj", &b));
    assert_false(b.fused);
    assert_false(fp8q_family_linear(&llama, "model.layers.3.self_attn.x_proj", &b));
    assert_false(fp8q_family_linear(&llama, "other.layers.3.self_attn.q_proj", &b));
    assert_false(fp8q_family_linear(&llama, "model.layers.x.self_attn.q_proj", &b));
    assert_true(fp8q_family_linear(&moe, "model.layers.0.mlp.experts.17.up_proj", &a));
    assert_true(fp8q_family_linear(&moe, "model.layers.0.mlp.experts.3.down_proj", &b));
    assert_true(a.expert && b.expert && a.group_len == b.group_len);
}

/* ---- which stacks are a language model ------------------------------------------------------- */

/* By names and tables alone: would the module be quantized if its shape allowed it?  */
static bool is_taken(const char *config, const char *module)
{
    char name[300];
    struct fp8q_json *json;
    struct fp8q_error err = {0};
    struct fp8q_linear_place place;
    enum fp8q_reason reason;
    bool tower;
    assert_ok(fp8q_json_parse(config, strlen(config), 0, "test", &json, &err), &err);
    struct fp8q_family f = fp8q_family_of(json);
    snprintf(name, sizeof(name), "%s.weight", module);
    bool taken = !fp8q_role(&f, name, 2, &reason, &tower) && fp8q_family_linear(&f, module, &place);
    fp8q_json_free(json);
    return taken;
}

static void unknown_types_take_known_roots_only(void **state)
{
    static const char *const taken[] = {"",
                                        "model.",
                                        "language_model.",
                                        "model.language_model.",
                                        "language_model.model.",
                                        "llm.",
                                        "llm.model.",
                                        "model.text_model.",
                                        "thinker.model.",
                                        "backbone.language_model.model.",
                                        "base_model.model."};
    static const char *const left[] = {"image_tower.encoder.",
                                       "video_tower.",
                                       "vit.",
                                       "siglip.encoder.",
                                       "speech_encoder.",
                                       "codec_model.encoder_transformer.",
                                       "codec_model.decoder_transformer.",
                                       "sam_model.",
                                       "code2wav.",
                                       "talker.model.",
                                       "talker.code_predictor.model.",
                                       "depth_decoder.model.",
                                       "diffusion_head.",
                                       "action_model.",
                                       "action_expert.model.",
                                       "model.encoder.",
                                       "encoder.",
                                       "wav2vec2.encoder.",
                                       "audio_encoder.model.",
                                       "acoustic_decoder.",
                                       "model.vision.",
                                       "model.vision_model.",
                                       "visual.",
                                       "backbone.",
                                       "text_model.encoder.",
                                       "dit.",
                                       "detector.model.",
                                       "model.layers.0.vision.",
                                       "model.draft."};
    (void)state;

    for (size_t i = 0; i < sizeof(taken) / sizeof(*taken) + sizeof(left) / sizeof(*left); i++) {
        size_t n = sizeof(taken) / sizeof(*taken);
        const char *root = i < n ? taken[i] : left[i - n];
        for (int named = 0; named < 2; named++) {
            char module[200];
            snprintf(module, sizeof(module), "%slayers.3.self_attn.q_proj", root);
            const char *config = named ? "{\"model_type\": \"not_known\"}" : "{}";
            if (is_taken(config, module) != (i < n))
                fail_msg("%s with %s", module, config);
        }
    }
}

/* Each module of a list, separated by blanks, must be taken or left.  Returns how many there are.  */
static size_t check_modules(const char *config, char *modules, bool taken)
{
    char *rest;
    size_t n = 0;

    for (char *m = strtok_r(modules, " ", &rest); m; m = strtok_r(NULL, " ", &rest), n++)
        if (is_taken(config, m) != taken)
            fail_msg("%s: %s must%s be quantized", config, m, taken ? "" : " not");

    return n;
}

/* The row of each table that a config falls under, marked as tried.  */
static void mark_rows(const char *config, bool *languages, bool *wrappers)
{
    struct fp8q_json *json;
    struct fp8q_error err = {0};
    assert_ok(fp8q_json_parse(config, strlen(config), 0, "test", &json, &err), &err);
    struct fp8q_family f = fp8q_family_of(json);

    for (size_t i = 0; fp8q_language_models[i].name; i++)
        languages[i] |= strcmp(f.language, fp8q_language_models[i].name) == 0;
    for (size_t i = 0; fp8q_wrappers[i].name; i++)
        wrappers[i] |= strcmp(f.name, fp8q_wrappers[i].name) == 0;
    fp8q_json_free(json);
}

static void published_names_are_taken_or_left(void **state)
{
    enum { MOST_ROWS = 200 };
    char line[4000];
    bool languages[MOST_ROWS] = {false}, wrappers[MOST_ROWS] = {false};
    size_t n_taken = 0, n_left = 0;
    FILE *f = fopen(data_path("architectures.tsv"), "r");
    (void)state;
    assert_non_null(f);

    while (fgets(line, sizeof(line), f)) {
        char *rest = line, *config = strsep(&rest, "\t"), *taken = strsep(&rest, "\t");
        if (*line == '#')
            continue;
        assert_non_null(rest);
        rest[strcspn(rest, "\n")] = '\0';
        n_taken += check_modules(config, taken, true);
        n_left += check_modules(config, rest, false);
        mark_rows(config, languages, wrappers);
    }
    fclose(f);

    /* A row without a published name could be anything.  */
    assert_true(n_taken > 900 && n_left > 250);
    for (size_t i = 0; fp8q_language_models[i].name; i++)
        if (!languages[i])
            fail_msg("no line for \"%s\"", fp8q_language_models[i].name);
    for (size_t i = 0; fp8q_wrappers[i].name; i++)
        if (!wrappers[i])
            fail_msg("no line for \"%s\"", fp8q_wrappers[i].name);
}

/* Whether @list, separated by blanks, has @word.  */
static bool has_word(const char *list, const char *word, size_t len)
{
    for (; list && *list; list += strspn(list, " ")) {
        size_t n = strcspn(list, " ");
        if (n == len && memcmp(list, word, n) == 0)
            return true;
        list += n;
    }

    return false;
}

static void a_model_type_is_in_one_row(void **state)
{
    (void)state;

    for (const struct fp8q_language_model *a = fp8q_language_models; a->name; a++)
        for (const char *type = a->model_types; *type; type += strspn(type, " ")) {
            size_t len = strcspn(type, " ");
            for (const struct fp8q_language_model *b = a + 1; b->name; b++)
                if (has_word(b->model_types, type, len))
                    fail_msg("%.*s: \"%s\" and \"%s\"", (int)len, type, a->name, b->name);
            type += len;
        }

    /* The language model of a wrapper is the type of a row.  */
    for (const struct fp8q_wrapper *w = fp8q_wrappers; w->name; w++) {
        bool found = false;
        for (const struct fp8q_language_model *l = fp8q_language_models; l->name; l++)
            found |= has_word(l->model_types, w->language, strlen(w->language));
        if (!found)
            fail_msg("\"%s\" has \"%s\", which no row has", w->name, w->language);
        for (const struct fp8q_wrapper *b = w + 1; b->name; b++)
            for (const char *type = w->model_types; *type; type += strspn(type, " ")) {
                size_t len = strcspn(type, " ");
                if (has_word(b->model_types, type, len))
                    fail_msg("%.*s: \"%s\" and \"%s\"", (int)len, type, w->name, b->name);
                type += len;
            }
    }
}

/* ---- parts of fused weights ------------------------------------------------------------------ */

static void parts_follow_the_config(void **state)
{
    static const struct {
        const char *config, *weight;
        uint64_t rows;
        unsigned n_parts;
        bool aligned;
    } cases[] = {
        {"{\"hidden_size\": 512, \"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
         "model.layers.0.self_attn.qkv_proj.weight", 1024, 3, true},
        {"{\"hidden_size\": 512, \"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
         "model.layers.0.attention.query_key_value.weight", 1024, 3, true},
        {"{\"hidden_size\": 512, \"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
         "model.layers.0.attention.query_key_value.weight", 1152, 0, false},
        {"{\"hidden_size\": 512, \"num_attention_heads\": 4, \"multi_query_group_num\": 1, "
         "\"kv_channels\": 128}",
         "transformer.encoder.layers.0.self_attention.query_key_value.weight", 768, 3, true},
        {"{\"hidden_size\": 512, \"num_attention_heads\": 8, \"num_key_value_heads\": 1}",
         "model.transformer.blocks.0.self_attn.att_proj.weight", 640, 3, false},
        {"{\"hidden_size\": 512, \"num_attention_heads\": 4}",
         "model.layers.0.self_attn.W_pack.weight", 1536, 3, true},
        {"{}", "model.transformer.blocks.0.mlp.ff_proj.weight", 512, 2, true},
        {"{}", "model.transformer.blocks.0.mlp.ff_proj.weight", 384, 2, false},
        {"{}", "model.layers.0.shared_mlp.input_linear.weight", 2048, 2, true},
        {"{}", "model.layers.0.shared_mlp.output_linear.weight", 384, 1, true},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_json *json;
        struct fp8q_error err = {0};
        uint64_t sizes[3];
        assert_ok(fp8q_json_parse(cases[i].config, strlen(cases[i].config), 0, "test", &json, &err),
                  &err);
        struct fp8q_parts_config c = fp8q_parts_config_of(json);
        if (fp8q_parts(&c, cases[i].weight, cases[i].rows, sizes) != cases[i].n_parts ||
            fp8q_parts_aligned(&c, cases[i].weight, cases[i].rows) != cases[i].aligned)
            fail_msg("%s of %s", cases[i].weight, cases[i].config);
        fp8q_json_free(json);
    }
}

/* ---- expected actions ------------------------------------------------------------------------ */

struct expectation {
    char checkpoint[64], tensor[200], action[16], reason[32];
};

static size_t read_expectations(struct expectation *list, size_t cap)
{
    char line[1000], dtype[16], shape[64];
    FILE *f = fopen(data_path("checkpoints/EXPECTED.tsv"), "r");
    size_t n = 0;
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) && n < cap) {
        struct expectation *e = &list[n];
        if (line[0] != '#' && sscanf(line, "%63s %199s %15s %63s %15s %31s", e->checkpoint,
                                     e->tensor, dtype, shape, e->action, e->reason) == 6)
            n++;
    }
    fclose(f);
    return n;
}

static struct fp8q_plan *plan_of(const char *checkpoint, struct fp8q_ckpt **ckpt_out)
{
    struct fp8q_plan_options options = {.threads = 2};
    struct fp8q_plan *plan;
    struct fp8q_error err = {0};
    assert_ok(fp8q_ckpt_open(data_path("checkpoints/%s", checkpoint), ckpt_out, NULL, &err), &err);
    assert_ok(fp8q_plan_create(*ckpt_out, &options, &plan, NULL, &err), &err);
    return plan;
}

static void every_action_is_the_expected_one(void **state)
{
    enum { MOST = 4000 };
    struct expectation *list = fp8q_array(MOST, sizeof(*list));
    size_t n = read_expectations(list, MOST), n_checkpoints = 0;
    struct fp8q_ckpt *ckpt = NULL;
    struct fp8q_plan *plan = NULL;
    (void)state;
    assert_true(n > 1000 && n < MOST);
    for (size_t i = 0; i < n; i++) {
        const struct expectation *e = &list[i];
        if (i == 0 || strcmp(e->checkpoint, list[i - 1].checkpoint) != 0) {
            fp8q_plan_destroy(plan);
            fp8q_ckpt_close(ckpt);
            plan = plan_of(e->checkpoint, &ckpt);
            n_checkpoints++;
        }
        const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, e->tensor);
        if (!t)
            fail_msg("%s: no tensor %s", e->checkpoint, e->tensor);
        const struct fp8q_decision *d = &plan->selection.decisions[t - ckpt->tensors];
        const char *action = d->quantize ? "quantize" : "keep";
        if (strcmp(action, e->action) != 0 || strcmp(fp8q_reason_name(d->reason), e->reason) != 0)
            fail_msg("%s %s: %s %s, expected %s %s", e->checkpoint, e->tensor, action,
                     fp8q_reason_name(d->reason), e->action, e->reason);
    }
    assert_int_equal(n_checkpoints, 32);
    fp8q_plan_destroy(plan);
    fp8q_ckpt_close(ckpt);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_mean_what_the_manual_says),
        cmocka_unit_test(bad_patterns_are_refused),
        cmocka_unit_test(edit_distance_counts_edits),
        cmocka_unit_test(items_end_in_a_scheme),
        cmocka_unit_test(targets_are_found_by_name_before_class),
        cmocka_unit_test(linears_know_their_groups),
        cmocka_unit_test(unknown_types_take_known_roots_only),
        cmocka_unit_test(published_names_are_taken_or_left),
        cmocka_unit_test(a_model_type_is_in_one_row),
        cmocka_unit_test(parts_follow_the_config),
        cmocka_unit_test(every_action_is_the_expected_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
