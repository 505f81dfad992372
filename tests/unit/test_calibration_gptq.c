/* SPDX-License-Identifier: Apache-2.0
 *
 * test_calibration_gptq.c - GPTQ on synthetic correlated inputs: against a
 * plain implementation of GPTQ in F64, its effect, its guard, and what must not change the codes.
 */
#include "support/support.h"

#include <math.h>

#include "calibration/gptq.h"
#include "support/fp8_checkpoint.h"
#include "base/path.h"

/* Second moments of an AR(1) process with coefficient @rho and channel sizes that vary.  */
static void ar1_moments(float *h, size_t n, double rho, uint64_t seed)
{
    memset(h, 0, FP8Q_MOMENTS * sizeof(*h));
    double size[128];
    if (isnan(rho)) /* dead channels only */
        return;
    for (size_t i = 0; i < n; i++)
        size[i] = 0.2 + (double)(random_u64(&seed) % 1000) / 500;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            h[i * 128 + j] = (float)(size[i] * size[j] * pow(rho, fabs((double)i - (double)j)));
}

struct fixture {
    char *dir, *path;
    struct fp8q_calib calib;
    uint64_t n_cols;
    size_t n_blocks;
    float *fit, *held;
    float *w; /* [128][n_cols] */
    float scales[8];
};

static void make_fixture(struct fixture *f, uint64_t n_cols, double rho_fit, double rho_held,
                         int64_t n_held)
{
    struct fp8q_error err = {0};
    const int64_t count = 1000, moments[2] = {1000 - n_held, n_held};
    uint64_t seed = 42;
    *f = (struct fixture){
        .dir = temp_dir_make(), .n_cols = n_cols, .n_blocks = (n_cols + 127) / 128};
    f->path = fp8q_join(f->dir, "c.safetensors");
    f->fit = calloc(f->n_blocks * FP8Q_MOMENTS, 4);
    f->held = calloc(f->n_blocks * FP8Q_MOMENTS, 4);
    f->w = malloc(128 * n_cols * 4);
    float *sumsq = calloc(n_cols, 4);
    assert_true(f->fit && f->held && f->w && sumsq);
    for (size_t b = 0; b < f->n_blocks; b++) {
        size_t n = n_cols - b * 128 < 128 ? n_cols - b * 128 : 128;
        ar1_moments(f->fit + b * FP8Q_MOMENTS, n, rho_fit, b);
        if (n_held)
            ar1_moments(f->held + b * FP8Q_MOMENTS, n, rho_held, b);
    }
    for (size_t i = 0; i < 128 * n_cols; i++) /* about normal */
        f->w[i] = (float)((double)(random_u64(&seed) % 2001 + random_u64(&seed) % 2001 +
                                   random_u64(&seed) % 2001) /
                              3000 -
                          1) *
                  0.05f;
    for (size_t b = 0; b < f->n_blocks; b++) {
        float amax = 0;
        for (size_t r = 0; r < 128; r++)
            for (size_t c = b * 128; c < n_cols && c < (b + 1) * 128; c++)
                amax = fmaxf(amax, fabsf(f->w[r * n_cols + c]));
        f->scales[b] = fp8q_scale(amax, FP8Q_SCALE_F32);
    }
    const struct memory_tensor tensors[] = {
        {"model.layers.0.self_attn.q_proj.count", FP8Q_I64, {1}, 1, &count},
        {"model.layers.0.self_attn.q_proj.hblk_count", FP8Q_I64, {2}, 1, moments},
        {"model.layers.0.self_attn.q_proj.sumsq", FP8Q_F32, {1, n_cols}, 2, sumsq},
        {"model.layers.0.self_attn.q_proj.hblk", FP8Q_F32, {f->n_blocks, 128, 128}, 3, f->fit},
        {"model.layers.0.self_attn.q_proj.hblk_held",
         FP8Q_F32,
         {f->n_blocks, 128, 128},
         3,
         f->held},
    };
    const struct fp8q_st_pair format = {"format", "fp8q-calib/1", 6, 12};
    write_tensors_with(f->path, tensors, 5, &format, 1);
    assert_ok(fp8q_calib_open(f->path, &f->calib, &err), &err);
    free(sumsq);
}

static void free_fixture(struct fixture *f)
{
    fp8q_calib_close(&f->calib);
    temp_dir_remove(f->dir);
    free(f->path);
    free(f->fit);
    free(f->held);
    free(f->w);
}

static struct fp8q_hessian *make_site(const struct fixture *f, const char *tensor,
                                      unsigned n_threads)
{
    struct fp8q_error err = {0};
    struct fp8q_hessian *site;
    assert_ok(fp8q_hessian_create(&f->calib, tensor, f->n_cols, n_threads, &site, &err), &err);
    assert_non_null(site);
    return site;
}

static uint8_t *codes_of(const struct fixture *f, const struct fp8q_hessian *site,
                         const char *kernel, uint32_t n_rows)
{
    struct fp8q_error err = {0};
    uint8_t *codes = malloc(n_rows * f->n_cols);
    void *scratch = malloc(fp8q_gptq_scratch());
    assert_true(codes && scratch);
    struct fp8q_gptq_stripe stripe = {site,
                                      fp8q_kernel_select(kernel),
                                      fp8q_gemm_select(kernel),
                                      f->w,
                                      n_rows,
                                      f->n_cols,
                                      f->scales,
                                      scratch};
    assert_ok(fp8q_gptq_encode(&stripe, codes, &err), &err);
    free(scratch);
    return codes;
}

/* ---- GPTQ as the paper writes it, in F64 ------------------------------------------------------
 */

static void invert(double *a, size_t n) /* Gauss-Jordan; symmetric positive definite */
{
    for (size_t k = 0; k < n; k++) {
        double p = 1 / a[k * n + k];
        for (size_t j = 0; j < n; j++)
            a[k * n + j] *= j == k ? 1 : p;
        for (size_t i = 0; i < n; i++)
            if (i != k)
                for (size_t j = 0; j < n; j++)
                    if (j != k)
                        a[i * n + j] -= a[i * n + k] * a[k * n + j];
        for (size_t i = 0; i < n; i++)
            if (i != k)
                a[i * n + k] *= -p;
        a[k * n + k] = p;
    }
}

static void cholesky_upper(double *a, size_t n) /* a = U^T U, U in the upper triangle */
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) {
            double sum = a[i * n + j];
            for (size_t k = 0; k < i; k++)
                sum -= a[k * n + i] * a[k * n + j];
            a[i * n + j] = j == i ? sqrt(sum) : sum / a[i * n + i];
        }
}

static const float *order_by;
static int falling(const void *a, const void *b)
{
    size_t i = *(const size_t *)a, j = *(const size_t *)b;
    float x = order_by[i * 129], y = order_by[j * 129];
    return x == y ? (i > j) - (i < j) : (x < y) - (x > y);
}

static void gptq_block(const struct fixture *f, size_t b, uint8_t *codes)
{
    size_t n = f->n_cols - b * 128 < 128 ? f->n_cols - b * 128 : 128, order[128];
    float *h = malloc(FP8Q_MOMENTS * 4);
    double *u = malloc(n * n * 8), mean = 0, w[128];
    assert_true(h && u);
    for (size_t i = 0; i < FP8Q_MOMENTS; i++)
        h[i] = f->fit[b * FP8Q_MOMENTS + i] + f->held[b * FP8Q_MOMENTS + i];
    for (size_t i = 0; i < n; i++) {
        order[i] = i;
        mean += (double)h[i * 129] / (double)n;
    }
    order_by = h;
    qsort(order, n, sizeof(*order), falling);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            u[i * n + j] = (double)h[order[i] * 128 + order[j]] * (i == j ? 1 : 0.8) +
                           (i == j ? 0.01 * mean : 0);
    invert(u, n);
    cholesky_upper(u, n);
    for (size_t r = 0; r < 128; r++) {
        for (size_t i = 0; i < n; i++)
            w[i] = (double)f->w[r * f->n_cols + b * 128 + order[i]];
        for (size_t i = 0; i < n; i++) {
            uint8_t code = fp8q_e4m3_from_f32((float)w[i] / f->scales[b]);
            double e = (w[i] - (double)(fp8q_e4m3_value[code] * f->scales[b])) / u[i * n + i];
            codes[r * f->n_cols + b * 128 + order[i]] = code;
            for (size_t j = i + 1; j < n; j++)
                w[j] -= e * u[i * n + j];
        }
    }
    free(h);
    free(u);
}

static void codes_are_those_of_the_paper(void **state)
{
    (void)state;
    struct fixture f;
    make_fixture(&f, 200, 0.9, 0.85, 250); /* an unaligned second block */
    struct fp8q_hessian *site = make_site(&f, "model.layers.0.self_attn.q_proj.weight", 1);
    uint8_t *codes = codes_of(&f, site, NULL, 128), *expected = malloc(128 * f.n_cols);
    size_t different = 0;
    assert_non_null(expected);
    for (size_t b = 0; b < f.n_blocks; b++)
        gptq_block(&f, b, expected);
    /* F32 against F64: now and then a value near a tie goes the other way, and what follows in its
     * row.  */
    for (size_t i = 0; i < 128 * f.n_cols; i++)
        different += codes[i] != expected[i];
    if (different > 128 * f.n_cols / 200)
        fail_msg("%zu of %zu codes differ", different, (size_t)(128 * f.n_cols));
    fp8q_hessian_destroy(site);
    free(codes);
    free(expected);
    free_fixture(&f);
}

/* ---- properties -------------------------------------------------------------------------------
 */

static void nothing_but_the_inputs_changes_the_codes(void **state)
{
    (void)state;
    struct fixture f;
    make_fixture(&f, 384, 0.9, 0.9, 250);
    struct fp8q_hessian *one = make_site(&f, "model.layers.0.self_attn.k_proj.weight", 1);
    struct fp8q_hessian *many = make_site(&f, "model.layers.0.self_attn.v_proj.weight", 7);
    uint8_t *expected = codes_of(&f, one, "scalar", 128);
    for (size_t i = 0; fp8q_kernels[i]; i++) {
        if (!fp8q_kernels[i]->usable())
            continue;
        uint8_t *codes = codes_of(&f, many, fp8q_kernels[i]->name, 128);
        assert_memory_equal(codes, expected, 128 * f.n_cols);
        free(codes);
    }
    /* Rows do not know of each other.  */
    uint8_t *few = codes_of(&f, one, NULL, 5);
    assert_memory_equal(few, expected, 5 * f.n_cols);
    free(few);
    free(expected);
    fp8q_hessian_destroy(one);
    fp8q_hessian_destroy(many);
    free_fixture(&f);
}

static struct fp8q_gptq_error guard_of(const struct fixture *f, const struct fp8q_hessian *site)
{
    struct fp8q_error err = {0};
    struct fp8q_gptq_error sums;
    void *scratch = malloc(fp8q_gptq_scratch());
    assert_non_null(scratch);
    struct fp8q_gptq_stripe stripe = {
        site,   fp8q_kernel_select(NULL), fp8q_gemm_select(NULL), f->w, 128, f->n_cols, f->scales,
        scratch};
    assert_ok(fp8q_gptq_guard(&stripe, &sums, &err), &err);
    free(scratch);
    return sums;
}

static void the_output_error_falls_and_the_weight_error_rises(void **state)
{
    (void)state;
    struct fixture f;
    make_fixture(&f, 256, 0.9, 0.9, 250);
    struct fp8q_hessian *site = make_site(&f, "model.layers.0.self_attn.q_proj.weight", 2);
    uint8_t *codes = codes_of(&f, site, NULL, 128);
    double plain = 0, compensated = 0, out_plain = 0, out_compensated = 0, d[2][128];
    for (size_t b = 0; b < 2; b++)
        for (size_t r = 0; r < 128; r++) {
            const float *h = f.held + b * FP8Q_MOMENTS;
            for (size_t i = 0; i < 128; i++) {
                float w = f.w[r * f.n_cols + b * 128 + i], s = f.scales[b];
                d[0][i] = (double)(w - fp8q_e4m3_value[fp8q_e4m3_from_f32(w / s)] * s);
                d[1][i] = (double)(w - fp8q_e4m3_value[codes[r * f.n_cols + b * 128 + i]] * s);
                plain += d[0][i] * d[0][i];
                compensated += d[1][i] * d[1][i];
            }
            for (size_t i = 0; i < 128; i++)
                for (size_t j = 0; j < 128; j++) {
                    out_plain += d[0][i] * (double)h[i * 128 + j] * d[0][j];
                    out_compensated += d[1][i] * (double)h[i * 128 + j] * d[1][j];
                }
        }
    assert_true(compensated > 1.05 * plain);
    assert_true(out_compensated < 0.5 * out_plain);
    /* The guard's sums are these errors, with codes from the fitted part alone (equal moments here
     * but for size).  */
    struct fp8q_gptq_error sums = guard_of(&f, site);
    assert_true(fabs(sums.plain / out_plain - 1) < 1e-4);
    assert_true(fabs(sums.compensated / out_compensated - 1) < 0.05);
    assert_true(fp8q_gptq_helps(&sums));
    fp8q_hessian_destroy(site);
    free(codes);
    free_fixture(&f);
}

static void the_guard_refuses_what_does_not_carry_over(void **state)
{
    (void)state;
    struct fixture f;
    make_fixture(&f, 256, 0.9, -0.9, 250); /* held-out tokens have the opposite correlation */
    struct fp8q_hessian *site = make_site(&f, "model.layers.0.self_attn.q_proj.weight", 2);
    struct fp8q_gptq_error sums = guard_of(&f, site);
    assert_false(fp8q_gptq_helps(&sums));
    fp8q_hessian_destroy(site);
    free_fixture(&f);
    make_fixture(&f, 256, 0.9, 0, 0); /* nothing was held out */
    site = make_site(&f, "model.layers.0.self_attn.q_proj.weight", 2);
    sums = guard_of(&f, site);
    assert_false(fp8q_gptq_helps(&sums));
    fp8q_hessian_destroy(site);
    free_fixture(&f);
}

/* No correlation, or none at all: plain rounding.  */
static void without_correlation_rounding_is_plain(void **state)
{
    (void)state;
    for (int dead = 0; dead < 2; dead++) {
        struct fixture f;
        make_fixture(&f, 256, dead ? NAN : 0, dead ? NAN : 0, 250);
        struct fp8q_hessian *site = make_site(&f, "model.layers.0.self_attn.q_proj.weight", 1);
        uint8_t *codes = codes_of(&f, site, NULL, 128);
        for (size_t i = 0; i < 128 * f.n_cols; i++)
            assert_int_equal(codes[i], fp8q_e4m3_from_f32(f.w[i] / f.scales[i % f.n_cols / 128]));
        fp8q_hessian_destroy(site);
        free(codes);
        free_fixture(&f);
    }
}

static void sites_that_do_not_fit(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fixture f;
    struct fp8q_hessian *site;
    make_fixture(&f, 256, 0.5, 0.5, 250);
    assert_ok(fp8q_hessian_create(&f.calib, "model.layers.1.self_attn.q_proj.weight", 256, 1, &site,
                                  &err),
              &err);
    assert_null(site);
    assert_failed(fp8q_hessian_create(&f.calib, "model.layers.0.self_attn.q_proj.weight", 384, 1,
                                      &site, &err),
                  FP8Q_E_EVIDENCE, &err, "256 channels");
    free_fixture(&f);
}

/* What cannot be shown is not done.  */
static void only_a_smaller_error_helps(void **state)
{
    (void)state;
    static const struct {
        struct fp8q_gptq_error sums;
        bool helps;
    } cases[] = {
        {{0, 0}, false},
        {{1, 1}, false},
        {{1, 0.999}, true},
        {{1, 1.001}, false},
        {{(double)NAN, 0}, false},
        {{1, (double)NAN}, false},
        {{(double)INFINITY, (double)INFINITY}, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(fp8q_gptq_helps(&cases[i].sums), cases[i].helps);
}

/* A whole small checkpoint: guard over tensors on disk gives the sum of the stripes, for any
 * threads.  */
static void the_guard_on_disk_is_deterministic(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fixture f;
    struct fp8q_gptq_error one, many;
    struct fp8q_ckpt *ckpt;
    static const char *const names[] = {"model.layers.0.self_attn.q_proj.weight",
                                        "model.layers.0.self_attn.k_proj.weight",
                                        "model.layers.0.self_attn.v_proj.weight"};
    make_fixture(&f, 256, 0.9, 0.9, 250);
    assert_ok(fp8q_ckpt_open(data_path("checkpoints/llama-untied"), &ckpt, NULL, &err), &err);
    struct fp8q_hessian *site = make_site(&f, names[0], 2);
    struct fp8q_gptq_guard_job job = {.hessian = site,
                                      .ckpt = ckpt,
                                      .names = names,
                                      .n_names = 3,
                                      .fmt = FP8Q_SCALE_F32,
                                      .kernel = fp8q_kernel_select("scalar"),
                                      .gemm = &fp8q_gemm_scalar,
                                      .n_threads = 1};
    assert_ok(fp8q_gptq_guard_run(&job, &one, &err), &err);
    job.kernel = fp8q_kernel_select(NULL);
    job.gemm = fp8q_gemm_select(NULL);
    job.n_threads = 4;
    assert_ok(fp8q_gptq_guard_run(&job, &many, &err), &err);
    assert_memory_equal(&one, &many, sizeof(one));
    assert_true(one.plain > 0 && fp8q_gptq_helps(&one));

    /* Ctrl-C does not wait for all stripes of a linear input.  */
    struct fp8q_cancel token = {0};
    const struct fp8q_watch watch = {.cancel = &token};
    fp8q_cancel(&token);
    job.watch = &watch;
    assert_failed(fp8q_gptq_guard_run(&job, &many, &err), FP8Q_E_CANCELLED, &err, "");
    fp8q_hessian_destroy(site);
    fp8q_ckpt_close(ckpt);
    free_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_those_of_the_paper),
        cmocka_unit_test(nothing_but_the_inputs_changes_the_codes),
        cmocka_unit_test(the_output_error_falls_and_the_weight_error_rises),
        cmocka_unit_test(the_guard_refuses_what_does_not_carry_over),
        cmocka_unit_test(without_correlation_rounding_is_plain),
        cmocka_unit_test(sites_that_do_not_fit),
        cmocka_unit_test(only_a_smaller_error_helps),
        cmocka_unit_test(the_guard_on_disk_is_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
