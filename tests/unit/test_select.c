/* SPDX-License-Identifier: Apache-2.0
 *
 * test_select.c - patterns, families, and the action for every tensor of the test checkpoints.
 */
#include "support/support.h"

#include "base/mem.h"
#include "plan/plan.h"

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

static const struct fp8q_family *family(const char *type)
{
    char text[100];
    struct fp8q_json *json;
    struct fp8q_error err = {0};
    const char *found;
    bool known;
    snprintf(text, sizeof(text), "{\"model_type\": \"%s\"}", type);
    assert_ok(fp8q_json_parse(text, strlen(text), 0, "test", &json, &err), &err);
    const struct fp8q_family *f = fp8q_family_of(json, &found, &known);
    assert_true(known);
    fp8q_json_free(json);
    return f;
}

static void linears_know_their_groups(void **state)
{
    struct fp8q_linear_place a, b;
    (void)state;
    const struct fp8q_family *llama = family("llama"), *moe = family("qwen3_moe");
    assert_true(fp8q_family_linear(llama, "model.layers.3.self_attn.q_proj", &a));
    assert_true(fp8q_family_linear(llama, "model.layers.3.self_attn.v_proj", &b));
    assert_true(a.fused && b.fused && a.entry == b.entry && a.group_len == b.group_len);
    assert_true(fp8q_family_linear(llama, "model.layers.3.self_attn.o_proj", &b));
    assert_false(b.fused);
    assert_false(fp8q_family_linear(llama, "model.layers.3.self_attn.x_proj", &b));
    assert_false(fp8q_family_linear(llama, "other.layers.3.self_attn.q_proj", &b));
    assert_false(fp8q_family_linear(llama, "model.layers.x.self_attn.q_proj", &b));
    assert_true(fp8q_family_linear(moe, "model.layers.0.mlp.experts.17.up_proj", &a));
    assert_true(fp8q_family_linear(moe, "model.layers.0.mlp.experts.3.down_proj", &b));
    assert_true(a.expert && b.expert && a.group_len == b.group_len);
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
        cmocka_unit_test(every_action_is_the_expected_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
