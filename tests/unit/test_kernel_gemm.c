/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernel_gemm.c - products and row functions: against F64, and every variant against the
 * scalar one.
 */
#include "support/support.h"

#include <math.h>

#include "fp8q.h"
#include "kernel/gemm.h"

static float random_float(uint64_t *state)
{
    uint64_t r = random_u64(state);
    float unit = (float)(r >> 40) * 0x1p-24f - 0.5f;
    return ldexpf(unit, (int)(r % 9) - 4);
}

static float *random_floats(uint64_t *state, size_t n)
{
    float *x = malloc((n ? n : 1) * sizeof(*x));
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = random_float(state);
    return x;
}

/* c = a b^T by variant @g, with operands against guard pages.  */
static float *product(const struct fp8q_gemm *g, const float *a, const float *b, size_t m, size_t n,
                      size_t k)
{
    size_t size_a = fp8q_packed_a(g, m, k) * 4, size_b = fp8q_packed_b(g, n, k) * 4;
    float *pa = guard_alloc(size_a, GUARD_AFTER), *pb = guard_alloc(size_b, GUARD_AFTER);
    float *c = malloc(m * n * 4 + 4);
    assert_non_null(c);
    fp8q_pack_a(g, (struct fp8q_strided){a, k, 1}, m, k, pa);
    fp8q_pack_b(g, (struct fp8q_strided){b, k, 1}, n, k, pb);
    fp8q_gemm_packed(g, m, n, k, pa, pb, c, n);
    guard_free(pa, size_a, GUARD_AFTER);
    guard_free(pb, size_b, GUARD_AFTER);
    return c;
}

static void products_are_fused_chains_in_every_variant(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (int round = 0; round < 40; round++) {
        size_t m = 1 + random_u64(&seed) % 40, n = 1 + random_u64(&seed) % 70;
        size_t k = round == 0 ? 0 : 1 + random_u64(&seed) % (round % 8 == 1 ? 1300 : 90);
        float *a = random_floats(&seed, m * k), *b = random_floats(&seed, n * k);
        float *expected = malloc(m * n * 4);
        assert_non_null(expected);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < n; j++) {
                float sum = 0;
                for (size_t x = 0; x < k; x++)
                    sum = fmaf(a[i * k + x], b[j * k + x], sum);
                expected[i * n + j] = sum;
            }
        for (size_t v = 0; fp8q_gemms[v]; v++) {
            if (!fp8q_gemms[v]->usable())
                continue;
            float *c = product(fp8q_gemms[v], a, b, m, n, k);
            for (size_t i = 0; i < m * n; i++)
                if (memcmp(&c[i], &expected[i], 4) != 0)
                    fail_msg("%s %zux%zux%zu element %zu: %a, expected %a", fp8q_gemms[v]->name, m,
                             n, k, i, (double)c[i], (double)expected[i]);
            free(c);
        }
        free(a);
        free(b);
        free(expected);
    }
}

/* The scalar variant puts the fused operation together itself: halfway cases, subnormals, overflow.
 */
static void the_scalar_fused_operation_is_exact(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    const struct fp8q_gemm *g = &fp8q_gemm_scalar;
    for (int i = 0; i < 20000; i++) {
        float a[16], b[16], c[64];
        for (int j = 0; j < 16; j++) {
            uint32_t bits = (uint32_t)random_u64(&seed);
            a[j] = ldexpf(1.0f + (float)(bits & 0xFFF) * 0x1p-12f, (int)(bits >> 12) % 70 - 60);
            b[j] = ldexpf(1.0f + (float)(bits >> 20) * 0x1p-23f, (int)(bits >> 3) % 70 - 60);
            if (bits & 1)
                a[j] = -a[j];
        }
        for (int j = 0; j < 64; j++)
            c[j] = ldexpf(1.0f + (float)(random_u64(&seed) & 3) * 0x1p-23f,
                          (int)(random_u64(&seed) % 200) - 140);
        float before[64];
        memcpy(before, c, sizeof(c));
        g->micro(1, a, b, c, g->nr, true);
        for (uint32_t r = 0; r < g->mr; r++)
            for (uint32_t j = 0; j < g->nr; j++) {
                float expected = fmaf(a[r], b[j], before[r * g->nr + j]);
                assert_memory_equal(&c[r * g->nr + j], &expected, 4);
            }
    }
}

static void row_functions_agree_and_are_right(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    const struct fp8q_gemm *scalar = &fp8q_gemm_scalar;
    for (size_t n = 0; n < 70; n++) {
        float *x = random_floats(&seed, n), *y = random_floats(&seed, n);
        double exact = 0, kl[3] = {0}, kl_exact[3] = {0};
        for (size_t i = 0; i < n; i++) {
            exact += exp((double)(x[i] - 2.0f));
            kl_exact[0] += exp((double)(x[i] - 3.0f));
            kl_exact[1] += exp((double)(x[i] - 3.0f)) * (double)(x[i] - y[i]);
            kl_exact[2] += exp((double)(y[i] - 4.0f));
        }
        float *e = malloc(n * 4 + 4), *f = malloc(n * 4 + 4);
        assert_true(e && f);
        double sum = scalar->exp_sum(e, x, n, 2.0f);
        assert_true(fabs(sum - exact) <= 2e-7 * exact);
        scalar->kl_sums(x, y, n, 3.0f, 4.0f, kl);
        for (int i = 0; i < 3; i++)
            assert_true(fabs(kl[i] - kl_exact[i]) <= 1e-6 * (fabs(kl_exact[i]) + kl_exact[0]));
        for (size_t v = 0; fp8q_gemms[v]; v++) {
            const struct fp8q_gemm *g = fp8q_gemms[v];
            if (!g->usable())
                continue;
            double other[3] = {0};
            assert_true(g->exp_sum(f, x, n, 2.0f) == sum);
            assert_memory_equal(e, f, n * 4);
            g->kl_sums(x, y, n, 3.0f, 4.0f, other);
            assert_memory_equal(kl, other, sizeof(kl));
            assert_true(g->max(x, n) == scalar->max(x, n));
            assert_true(g->dot(x, y, n) == scalar->dot(x, y, n));
            memcpy(e, x, n * 4);
            memcpy(f, x, n * 4);
            scalar->silu_mul(e, y, n);
            g->silu_mul(f, y, n);
            assert_memory_equal(e, f, n * 4);
            for (size_t i = 0; i < n; i++) {
                double silu = (double)x[i] / (1 + exp(-(double)x[i])) * (double)y[i];
                assert_true(fabs((double)f[i] - silu) <= 1e-6 * fabs(silu) + 1e-30);
            }
            scalar->exp_sum(e, x, n, 2.0f);
        }
        free(x);
        free(y);
        free(e);
        free(f);
    }
}

static void exp_is_good_to_an_ulp_or_two(void **state)
{
    (void)state;
    const struct fp8q_gemm *g = fp8q_gemm_select(NULL);
    for (float x = -86.9f; x < 0; x += 0.00517f) {
        float y;
        g->exp_sum(&y, &x, 1, 0);
        assert_true(fabs((double)y / exp((double)x) - 1) < 1.5e-7);
    }
    float low[4] = {-88, -1000, -INFINITY, NAN}, y[4];
    g->exp_sum(y, low, 4, 0);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0 && isnan(y[3]));
    assert_true(g->max(low, 0) == -INFINITY);
}

static void an_unknown_name_gives_the_scalar_variant(void **state)
{
    (void)state;
    assert_string_equal(fp8q_gemm_select("neon-of-tomorrow")->name, "scalar");
    assert_string_equal(fp8q_gemm_select("scalar")->name, "scalar");
}

/* What numerics.md says of FP8 products, element by element.  */
static float fp8_element(const struct fp8q_fp8_shape *s, const uint8_t *a, const uint8_t *b,
                         const float *a_scales, const float *b_scales)
{
    float c = 0;
    for (size_t first = 0; first < s->n_k; first += s->step) {
        float t = 0;
        for (size_t k = first; k < s->n_k && k < first + s->step; k++)
            t = fmaf(fp8q_e4m3_value[a[k]], fp8q_e4m3_value[b[k]], t);
        float scale = a_scales[first / s->step * s->n_rows] * b_scales[first / s->step * s->n_cols];
        t = t * scale;
        c = c + t;
    }
    return c;
}

static uint8_t *random_codes(uint64_t *state, size_t n)
{
    uint8_t *codes = malloc(n);
    assert_non_null(codes);
    for (size_t i = 0; i < n; i++) {
        codes[i] = (uint8_t)random_u64(state);
        if ((codes[i] & 0x7F) == 0x7F)
            codes[i] = 0x80;
    }
    return codes;
}

static void fp8_product(const struct fp8q_gemm *g, const struct fp8q_fp8_shape *s, const uint8_t *a,
                        const uint8_t *b, const float *const scales[2], float *c)
{
    size_t size_a = fp8q_packed_a(g, s->n_rows, s->n_k) * 4;
    size_t size_b = fp8q_packed_b(g, s->n_cols, s->n_k) * 4;
    void *pa = guard_alloc(size_a, GUARD_AFTER), *pb = guard_alloc(size_b, GUARD_AFTER);
    const struct fp8q_fp8_operand x = {pa, scales[0]}, y = {pb, scales[1]};

    fp8q_pack_fp8(g, g->mr, a, s->n_rows, s->n_k, pa);
    fp8q_pack_fp8(g, g->nr, b, s->n_cols, s->n_k, pb);
    fp8q_gemm_fp8(g, s, &x, &y, c, s->n_cols);
    guard_free(pa, size_a, GUARD_AFTER);
    guard_free(pb, size_b, GUARD_AFTER);
}

static void fp8_products_are_as_defined_in_every_variant(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (int round = 0; round < 40; round++) {
        struct fp8q_fp8_shape s = {1 + random_u64(&seed) % 40, 1 + random_u64(&seed) % 70,
                                   1 + random_u64(&seed) % 400, round % 2 ? 32 : 128};
        size_t segments = fp8q_n_segments(&s);
        uint8_t *a = random_codes(&seed, s.n_rows * s.n_k);
        uint8_t *b = random_codes(&seed, s.n_cols * s.n_k);
        float *a_scales = random_floats(&seed, segments * s.n_rows);
        float *b_scales = random_floats(&seed, segments * s.n_cols);
        float *c = malloc(s.n_rows * s.n_cols * sizeof(*c));
        assert_non_null(c);

        for (size_t v = 0; fp8q_gemms[v]; v++) {
            if (!fp8q_gemms[v]->usable())
                continue;
            fp8_product(fp8q_gemms[v], &s, a, b, (const float *const[]){a_scales, b_scales}, c);
            for (size_t i = 0; i < s.n_rows * s.n_cols; i++) {
                size_t row = i / s.n_cols, col = i % s.n_cols;
                float expected = fp8_element(&s, a + row * s.n_k, b + col * s.n_k, a_scales + row,
                                             b_scales + col);
                if (memcmp(&c[i], &expected, 4) != 0)
                    fail_msg("%s%s %zux%zux%zu element %zu: %a, expected %a", fp8q_gemms[v]->name,
                             fp8q_gemms[v]->pairs ? " by pairs" : "", s.n_rows, s.n_cols, s.n_k, i,
                             (double)c[i], (double)expected);
            }
        }
        free(a), free(b), free(a_scales), free(b_scales), free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_fused_chains_in_every_variant),
        cmocka_unit_test(fp8_products_are_as_defined_in_every_variant),
        cmocka_unit_test(the_scalar_fused_operation_is_exact),
        cmocka_unit_test(row_functions_agree_and_are_right),
        cmocka_unit_test(exp_is_good_to_an_ulp_or_two),
        cmocka_unit_test(an_unknown_name_gives_the_scalar_variant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
