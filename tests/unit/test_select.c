/* SPDX-License-Identifier: Apache-2.0
 *
 * test_select.c - patterns, families, and the action for every tensor of the test checkpoints.
 */
#include "support/support.h"

#include "base/mem.h"
#include "plan/plan.h"
#include "select/role.h"

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

static void wrappers_hold_the_language_model_they_name(void **state)
{
    static const struct {
        const char *config, *module;
        bool taken;
    } cases[] = {
        {"{\"model_type\": \"internvl_chat\", \"llm_config\": {\"model_type\": \"qwen3_moe\"}}",
         "language_model.model.layers.0.mlp.experts.7.up_proj", true},
        {"{\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"mixtral\"}}",
         "language_model.model.layers.0.block_sparse_moe.experts.1.w2", true},
        {"{\"model_type\": \"new_vlm\", \"text_config\": {\"model_type\": \"qwen3_moe\"}}",
         "model.language_model.layers.0.mlp.experts.7.up_proj", true},
        {"{\"model_type\": \"new_vlm\", \"text_config\": {\"model_type\": \"llama\"}}",
         "model.language_model.layers.0.mlp.experts.7.up_proj", false},
        {"{\"model_type\": \"deepseek_vl_v2\", \"language_config\": {\"model_type\": "
         "\"deepseek_v2\"}}",
         "language.model.layers.0.self_attn.kv_b_proj", true},
        {"{\"model_type\": \"qwen3_omni_moe\"}", "thinker.model.layers.0.self_attn.q_proj", true},
        {"{\"model_type\": \"qwen3_omni_moe\"}", "talker.model.layers.0.self_attn.q_proj", false},
        {"{\"model_type\": \"qwen3_omni_moe\"}",
         "talker.code_predictor.model.layers.0.self_attn.q_proj", false},
        {"{\"model_type\": \"qwen3_omni_moe\"}",
         "code2wav.pre_transformer.layers.0.self_attn.q_proj", false},
        {"{\"model_type\": \"qwen3_omni_moe\"}", "thinker.audio_tower.layers.0.self_attn.q_proj",
         false},
        {"{\"model_type\": \"video_llava\"}", "model.image_tower.encoder.layers.0.self_attn.q_proj",
         false},
        {"{\"model_type\": \"video_llava\"}", "model.language_model.layers.0.self_attn.q_proj",
         true},
        {"{\"model_type\": \"hunyuan_vl\"}", "vit.layers.0.self_attn.q_proj", false},
        {"{\"model_type\": \"csm\"}", "backbone_model.layers.0.self_attn.q_proj", true},
        {"{\"model_type\": \"csm\"}", "depth_decoder.model.layers.0.self_attn.q_proj", false},
        {"{\"model_type\": \"qwen3\"}", "layers.0.self_attn.q_proj", true},
        {"{\"model_type\": \"mistral\"}", "layers.0.mlp.up_proj", true},
        {"{\"model_type\": \"qwen3_vl_text\"}", "layers.0.mlp.up_proj", true},
        {"{\"type\": \"xvla\"}", "model.vlm.language_model.model.encoder.layers.0.fc1", true},
        {"{\"model_type\": \"xvla\"}", "vlm.language_model.model.encoder.layers.0.fc1", true},
        {"{\"model_type\": \"phi4mm\"}", "model.layers.0.mlp.down_proj.base_layer", true},
        {"{\"model_type\": \"phi4mm\"}", "model.layers.0.mlp.down_proj.lora_A.speech", false},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        if (is_taken(cases[i].config, cases[i].module) != cases[i].taken)
            fail_msg("%s: %s", cases[i].config, cases[i].module);
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
        cmocka_unit_test(linears_know_their_groups),
        cmocka_unit_test(unknown_types_take_known_roots_only),
        cmocka_unit_test(wrappers_hold_the_language_model_they_name),
        cmocka_unit_test(every_action_is_the_expected_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
