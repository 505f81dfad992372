/* SPDX-License-Identifier: Apache-2.0
 *
 * test_measure_sweep.c - costs of units against whole evaluations, the additive table, and budgets.
 */
#include "support/support.h"

#include <math.h>

#include "measure/sweep.h"

struct fixture {
    struct fp8q_ckpt *ckpt;
    struct fp8q_model model;
    struct fp8q_inputs inputs;
};

static void open_fixture(struct fixture *f, const char *checkpoint)
{
    struct fp8q_error err = {0};
    assert_ok(fp8q_ckpt_open(data_path("checkpoints/%s", checkpoint), &f->ckpt, NULL, &err), &err);
    assert_ok(fp8q_model_open(f->ckpt, &f->model, &err), &err);
    assert_ok(fp8q_inputs_open(data_path("eval/text.inputs.safetensors"), &f->inputs, NULL, &err),
              &err);
    assert_ok(fp8q_inputs_truncate(&f->inputs, 2, &err), &err);
}

static void close_fixture(struct fixture *f)
{
    fp8q_inputs_reset(&f->inputs);
    fp8q_model_reset(&f->model);
    fp8q_ckpt_close(f->ckpt);
}

static void sweep(const struct fixture *f, const struct fp8q_sweep_options *options,
                  struct fp8q_sweep *s)
{
    struct fp8q_error err = {0};
    assert_ok(fp8q_sweep_run(&f->model, &f->inputs, options, s, &err), &err);
}

static void a_units_cost_is_that_of_a_whole_run(void **state)
{
    (void)state;
    struct fixture f;
    struct fp8q_sweep s;
    open_fixture(&f, "llama-untied");
    struct fp8q_sweep_options options = {.acts = FP8Q_ACTS_SERVED,
                                         .budget_kld = FP8Q_SWEEP_NO_BUDGET,
                                         .n_threads = 2,
                                         .buffer_bytes = 1};
    sweep(&f, &options, &s);
    assert_int_equal(s.n_units, 8);
    uint64_t saved = 0;
    for (size_t u = 0; u < s.n_units; u++) {
        struct fp8q_error err = {0};
        struct fp8q_eval e;
        bool flags[2 * FP8Q_N_LINEARS] = {false};
        for (int i = 0; i < FP8Q_N_LINEARS; i++)
            flags[s.units[u].first_layer * FP8Q_N_LINEARS + (uint32_t)i] =
                s.units[u].linears >> i & 1;
        struct fp8q_eval_options whole = {.acts = FP8Q_ACTS_SERVED, .round = flags, .n_threads = 1};
        assert_ok(fp8q_eval_run(&f.model, &f.model, &f.inputs, &whole, &e, &err), &err);
        assert_true(fabs(e.rows[FP8Q_EVAL_OUTPUT].kld - s.units[u].kld) <= 1e-12);
        fp8q_eval_reset(&e);
        saved += s.units[u].bytes_saved;
        assert_true(s.units[u].quantized);
    }
    /* "all" is what the FP8 checkpoint would be; the costs add up to it.  */
    uint64_t bytes;
    double kld;
    fp8q_sweep_split(&s, 0, &bytes, &kld);
    assert_int_equal(bytes, f.ckpt->data_bytes - saved);
    assert_true(fabs(kld - s.sum_kld) < 1e-12 && s.all_kld > 0);
    fp8q_sweep_split(&s, s.n_units, &bytes, &kld);
    assert_true(bytes == f.ckpt->data_bytes && kld == 0);
    fp8q_sweep_reset(&s);
    close_fixture(&f);
}

static void budgets_are_kept(void **state)
{
    (void)state;
    struct fixture f;
    struct fp8q_sweep all, s;
    struct fp8q_error err = {0};
    open_fixture(&f, "llama-untied");
    struct fp8q_sweep_options options = {
        .acts = FP8Q_ACTS_NONE, .budget_kld = FP8Q_SWEEP_NO_BUDGET, .n_threads = 2};
    sweep(&f, &options, &all);
    options.budget_kld = all.all_kld / 2;
    sweep(&f, &options, &s);
    assert_true(s.met && s.n_kept > 0 && s.n_kept < s.n_units);
    assert_true(s.chosen_kld <= options.budget_kld && s.chosen_bytes < s.source_bytes);
    struct fp8q_text ignore = {0};
    assert_ok(fp8q_sweep_ignore(&s, &f.model, &ignore, &err), &err);
    size_t lines = 0, linears = 0;
    for (size_t i = 0; i < ignore.len; i++)
        lines += ignore.data[i] == '\n';
    for (size_t u = 0; u < s.n_units; u++)
        linears += s.units[u].quantized ? 0 : (size_t)__builtin_popcount(s.units[u].linears);
    assert_int_equal(lines, linears);
    assert_non_null(strstr(ignore.data, "model.layers."));
    fp8q_text_reset(&ignore);
    fp8q_sweep_reset(&s);

    const double wrong[] = {(double)NAN, -1, (double)INFINITY};
    for (size_t i = 0; i < 3; i++) {
        options.budget_kld = wrong[i];
        assert_failed(fp8q_sweep_run(&f.model, &f.inputs, &options, &s, &err), FP8Q_E_ARG, &err,
                      "from 0 on");
    }
    options.budget_kld = 0; /* only nothing quantized costs nothing */
    sweep(&f, &options, &s);
    assert_true(s.met && s.n_kept == s.n_units && s.chosen_kld == 0);
    fp8q_sweep_reset(&s);

    options.budget_kld = FP8Q_SWEEP_NO_BUDGET;
    options.budget_bytes = (all.chosen_bytes + all.source_bytes) / 2;
    sweep(&f, &options, &s);
    assert_true(s.met && s.chosen_bytes <= options.budget_bytes && s.n_kept > 0);
    fp8q_sweep_reset(&s);
    options.budget_bytes = 1000;
    sweep(&f, &options, &s);
    assert_true(!s.met && s.n_kept == 0);
    fp8q_sweep_reset(&s);
    fp8q_sweep_reset(&all);
    close_fixture(&f);
}

static void other_units_and_nothing_to_quantize(void **state)
{
    (void)state;
    struct fixture f;
    struct fp8q_sweep s;
    struct fp8q_error err = {0};
    open_fixture(&f, "llama-tied");
    f.inputs.n_samples = 1;
    struct fp8q_sweep_options options = {.by = FP8Q_SWEEP_KIND,
                                         .budget_kld = FP8Q_SWEEP_NO_BUDGET,
                                         .n_threads = 2,
                                         .fmt = FP8Q_SCALE_UE8M0};
    sweep(&f, &options, &s);
    assert_int_equal(s.n_units, 4);
    fp8q_sweep_reset(&s);
    options.by = FP8Q_SWEEP_LAYER;
    sweep(&f, &options, &s);
    assert_int_equal(s.n_units, 11);
    fp8q_sweep_reset(&s);
    f.inputs.n_samples = 2;
    close_fixture(&f);
    open_fixture(&f, "qwen3-fp8-ct");
    assert_failed(fp8q_sweep_run(&f.model, &f.inputs, &options, &s, &err), FP8Q_E_ARG, &err,
                  "nothing can be");
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_units_cost_is_that_of_a_whole_run),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(other_units_and_nothing_to_quantize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
