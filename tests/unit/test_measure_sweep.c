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
                s.units[u].choices[0].linears >> i & 1;
        struct fp8q_eval_options whole = {.acts = FP8Q_ACTS_SERVED, .round = flags, .n_threads = 1};
        assert_ok(fp8q_eval_run(&f.model, &f.model, &f.inputs, &whole, &e, &err), &err);
        assert_true(fabs(e.rows[FP8Q_EVAL_OUTPUT].kld - s.units[u].choices[0].kld) <= 1e-12);
        fp8q_eval_reset(&e);
        saved += s.units[u].choices[0].bytes_saved;
        assert_true(s.units[u].n_choices == 1 && fp8q_sweep_choice_of(&s, u, s.n_taken) != NULL);
    }
    /* "all" is what the FP8 checkpoint would be; the costs add up to it.  */
    struct fp8q_sweep_sum sum = fp8q_sweep_split(&s, 0);
    assert_int_equal(sum.bytes, f.ckpt->data_bytes - saved);
    assert_true(fabs(sum.kld - s.sum_kld) < 1e-12 && s.all_kld > 0 && sum.n_kept == 0);
    sum = fp8q_sweep_split(&s, s.n_steps);
    assert_true(sum.bytes == f.ckpt->data_bytes && sum.kld == 0 && sum.n_kept == s.n_units);
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
        if (!fp8q_sweep_choice_of(&s, u, s.n_taken))
            linears += (size_t)__builtin_popcount(s.units[u].choices[0].linears);
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

/* The best of all ways to give each unit a choice or none that save at least @saved: by trying all. */
static double least_kld(const struct fp8q_sweep *s, size_t unit, uint64_t saved, double kld)
{
    double least = INFINITY;
    if (unit == s->n_units)
        return saved == 0 ? kld : INFINITY;

    least = least_kld(s, unit + 1, saved, kld);
    for (unsigned c = 0; c < s->units[unit].n_choices; c++) {
        const struct fp8q_sweep_choice *choice = &s->units[unit].choices[c];
        uint64_t rest = saved > choice->bytes_saved ? saved - choice->bytes_saved : 0;
        least = fmin(least, least_kld(s, unit + 1, rest, kld + choice->kld));
    }
    return least;
}

static void no_choice_of_schemes_is_better_than_a_split(void **state)
{
    (void)state;
    struct fixture f;
    struct fp8q_sweep s;
    open_fixture(&f, "llama-untied");
    struct fp8q_sweep_options options = {
        .acts = FP8Q_ACTS_SERVED,
        .schemes = 1U << FP8Q_SCHEME_BLOCK | 1U << FP8Q_SCHEME_CHANNEL | 1U << FP8Q_SCHEME_GROUP,
        .budget_kld = FP8Q_SWEEP_NO_BUDGET,
        .n_threads = 2};
    sweep(&f, &options, &s);
    assert_int_equal(s.n_units, 8);
    assert_true(s.n_steps > s.n_units); /* some scheme is worth its bytes */

    for (size_t n = 0; n <= s.n_steps; n++) {
        struct fp8q_sweep_sum sum = fp8q_sweep_split(&s, n);
        double least = least_kld(&s, 0, s.source_bytes - sum.bytes, 0);
        if (fabs(least - sum.kld) > 1e-12)
            fail_msg("split %zu: KLD %g, %g can be had", n, sum.kld, least);
    }
    fp8q_sweep_reset(&s);
    close_fixture(&f);
}

static void unaligned_sizes_have_schemes_of_rows(void **state)
{
    (void)state;
    struct fixture f;
    struct fp8q_sweep s;
    open_fixture(&f, "phi3-ragged-parts");
    struct fp8q_sweep_options options = {.budget_kld = FP8Q_SWEEP_NO_BUDGET, .n_threads = 2};
    sweep(&f, &options, &s);
    size_t n_blocks = s.n_units;
    fp8q_sweep_reset(&s);

    options.schemes = 1U << FP8Q_SCHEME_CHANNEL;
    sweep(&f, &options, &s);
    assert_true(s.n_units > n_blocks);
    fp8q_sweep_reset(&s);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_units_cost_is_that_of_a_whole_run),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(no_choice_of_schemes_is_better_than_a_split),
        cmocka_unit_test(unaligned_sizes_have_schemes_of_rows),
        cmocka_unit_test(other_units_and_nothing_to_quantize),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
