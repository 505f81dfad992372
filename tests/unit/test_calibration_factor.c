/* SPDX-License-Identifier: Apache-2.0
 *
 * test_calibration_factor.c - second moments in full and their factor: against sums in F64, what must
 * not change their bits, and inputs that say nothing.
 */
#include "support/support.h"

#include <math.h>

#include "calibration/factor.h"

#define WIDTH 300 /* two blocks and a short one */
#define TOKENS 90

static const struct fp8q_token_run runs[] = {
    {0, 40, FP8Q_FIT}, {40, 20, FP8Q_HELD}, {60, 30, FP8Q_FIT}};

/* Tokens whose channels follow one another; channel 7 is dead, and so is token 3.  */
static float *make_tokens(void)
{
    uint64_t seed = 9;
    float *x = calloc(TOKENS * WIDTH, sizeof(*x));
    assert_non_null(x);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < WIDTH; i++) {
            float fresh = (float)(random_u64(&seed) % 2001) / 1000 - 1;
            x[t * WIDTH + i] = (i ? 0.8f * x[t * WIDTH + i - 1] : 0) + fresh;
        }
    for (size_t i = 0; i < WIDTH; i++)
        x[3 * WIDTH + i] = 0;
    for (size_t t = 0; t < TOKENS; t++)
        x[t * WIDTH + 7] = 0;
    return x;
}

static struct fp8q_forward forward_of(const char *kernel, unsigned n_threads)
{
    return (struct fp8q_forward){.n_threads = n_threads,
                                 .kernel = fp8q_kernel_select(kernel),
                                 .gemm = fp8q_gemm_select(kernel)};
}

static struct fp8q_moments moments_of(const float *x, const struct fp8q_forward *fw,
                                      bool one_by_one)
{
    struct fp8q_error err = {0};
    struct fp8q_moments m;
    assert_ok(fp8q_moments_open(WIDTH, &m, &err), &err);
    if (!one_by_one)
        assert_ok(fp8q_moments_add(&m, fw, x, runs, 3, &err), &err);
    for (size_t i = 0; i < 3 && one_by_one; i++) {
        /* As if each run were a group of its own.  */
        const struct fp8q_token_run run = {0, runs[i].n, runs[i].share};
        assert_ok(fp8q_moments_add(&m, fw, x + runs[i].first * WIDTH, &run, 1, &err), &err);
    }
    assert_ok(fp8q_moments_mirror(&m, fw, &err), &err);
    return m;
}

static void moments_are_sums_over_unit_tokens(void **state)
{
    (void)state;
    float *x = make_tokens();
    double *want[FP8Q_N_SHARES], length[TOKENS];
    const struct fp8q_forward fw = forward_of(NULL, 3);
    struct fp8q_moments m = moments_of(x, &fw, false);
    assert_int_equal(m.n_tokens[FP8Q_FIT], 70);
    assert_int_equal(m.n_tokens[FP8Q_HELD], 20);

    for (size_t t = 0; t < TOKENS; t++) {
        length[t] = 0;
        for (size_t i = 0; i < WIDTH; i++)
            length[t] += (double)x[t * WIDTH + i] * (double)x[t * WIDTH + i];
    }
    for (int share = 0; share < FP8Q_N_SHARES; share++) {
        want[share] = calloc(WIDTH * WIDTH, sizeof(double));
        assert_non_null(want[share]);
    }
    for (size_t r = 0; r < 3; r++)
        for (size_t t = runs[r].first; t < runs[r].first + runs[r].n; t++)
            for (size_t i = 0; i < WIDTH * WIDTH && length[t] > 0; i++)
                want[runs[r].share][i] +=
                    (double)x[t * WIDTH + i / WIDTH] * (double)x[t * WIDTH + i % WIDTH] / length[t];
    for (int share = 0; share < FP8Q_N_SHARES; share++) {
        for (size_t i = 0; i < WIDTH * WIDTH; i++)
            if (!(fabs((double)m.sums[share][i] - want[share][i]) < 1e-6))
                fail_msg("share %d, [%zu, %zu]: %g instead of %g", share, i / WIDTH, i % WIDTH,
                         (double)m.sums[share][i], want[share][i]);
        free(want[share]);
    }
    fp8q_moments_reset(&m);
    free(x);
}

static void nothing_but_the_tokens_changes_a_bit(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    float *x = make_tokens();
    struct fp8q_forward fw = forward_of("scalar", 1);
    struct fp8q_moments want = moments_of(x, &fw, false);
    struct fp8q_factor factor;
    assert_ok(fp8q_factor_open(WIDTH, &factor, &err), &err);
    assert_ok(fp8q_factor_make(&factor, &want, true, &fw, &err), &err);

    for (size_t i = 0; fp8q_kernels[i]; i++) {
        if (!fp8q_kernels[i]->usable())
            continue;
        struct fp8q_factor again;
        fw = forward_of(fp8q_kernels[i]->name, 5);
        struct fp8q_moments m = moments_of(x, &fw, true);
        assert_memory_equal(m.sums[FP8Q_FIT], want.sums[FP8Q_FIT], WIDTH * WIDTH * sizeof(float));
        assert_memory_equal(m.sums[FP8Q_HELD], want.sums[FP8Q_HELD], WIDTH * WIDTH * sizeof(float));
        assert_ok(fp8q_factor_open(WIDTH, &again, &err), &err);
        assert_ok(fp8q_factor_make(&again, &m, true, &fw, &err), &err);
        assert_memory_equal(again.order, factor.order, WIDTH * sizeof(*factor.order));
        for (size_t row = 0; row < WIDTH; row++)
            assert_memory_equal(again.l + row * WIDTH, factor.l + row * WIDTH,
                                (row + 1) * sizeof(float));
        fp8q_factor_reset(&again);
        fp8q_moments_reset(&m);
    }
    fp8q_factor_reset(&factor);
    fp8q_moments_reset(&want);
    free(x);
}

/* L with its columns multiplied by their diagonal again, times its transpose, is the damped matrix
 * in the factor's order.  */
static void the_factor_gives_the_moments_back(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    float *x = make_tokens();
    const struct fp8q_forward fw = forward_of(NULL, 2);
    struct fp8q_moments m = moments_of(x, &fw, false);
    struct fp8q_factor f;
    double mean = 0;
    assert_ok(fp8q_factor_open(WIDTH, &f, &err), &err);
    assert_ok(fp8q_factor_make(&f, &m, false, &fw, &err), &err);
    assert_true(f.usable);

    const float *h = m.sums[FP8Q_FIT];
    for (size_t i = 0; i < WIDTH; i++)
        mean += (double)h[i * WIDTH + i] / WIDTH;
    assert_int_equal(f.order[0], 7); /* the dead channel, rounded last */
    for (size_t i = 1; i < WIDTH; i++)
        assert_true(h[f.order[i] * (WIDTH + 1)] >= h[f.order[i - 1] * (WIDTH + 1)]);

    for (size_t i = 0; i < WIDTH; i++)
        for (size_t j = 0; j <= i; j++) {
            double sum = 0, want = (double)h[f.order[i] * WIDTH + f.order[j]];
            want = i == j ? want + 0.01 * mean : want * 0.8;
            for (size_t k = 0; k <= j; k++) {
                double d = (double)f.l[k * WIDTH + k];
                sum += (k == i ? d : (double)f.l[i * WIDTH + k] * d) *
                       (k == j ? d : (double)f.l[j * WIDTH + k] * d);
            }
            if (!(fabs(sum - want) < 1e-6))
                fail_msg("[%zu, %zu]: %g instead of %g", i, j, sum, want);
        }
    fp8q_factor_reset(&f);
    fp8q_moments_reset(&m);
    free(x);
}

static void what_says_nothing_is_not_used(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    const struct fp8q_forward fw = forward_of(NULL, 2);
    float *x = calloc(TOKENS * WIDTH, sizeof(*x));
    assert_non_null(x);
    struct fp8q_moments m = moments_of(x, &fw, false);
    struct fp8q_factor f;
    assert_ok(fp8q_factor_open(WIDTH, &f, &err), &err);
    assert_ok(fp8q_factor_make(&f, &m, true, &fw, &err), &err);
    assert_false(f.usable);
    fp8q_factor_reset(&f);

    x[5] = (float)NAN;
    assert_failed(fp8q_moments_add(&m, &fw, x, runs, 3, &err), FP8Q_E_FORMAT, &err, "NaN");
    fp8q_moments_reset(&m);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_are_sums_over_unit_tokens),
        cmocka_unit_test(nothing_but_the_tokens_changes_a_bit),
        cmocka_unit_test(the_factor_gives_the_moments_back),
        cmocka_unit_test(what_says_nothing_is_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
