/* SPDX-License-Identifier: Apache-2.0
 *
 * test_measure_compare.c - the golden table, and that it depends on neither threads nor kernel.
 */
#include "support/support.h"

#include <math.h>

#include "measure/compare.h"
#include "base/file.h"
#include "base/path.h"
#include "base/dir.h"

static struct fp8q_ckpt *open_ckpt(const char *path)
{
    struct fp8q_error err = {0};
    struct fp8q_ckpt *ckpt;
    assert_ok(fp8q_ckpt_open(path, &ckpt, NULL, &err), &err);
    return ckpt;
}

/* Figures of tests/reference/compare_golden.py (numpy and ml_dtypes).  The first two RMSE of FP8
 * and of INT8 are those of the project's demonstration: blocks gain nothing for FP8 and a factor 4
 * for INT8.  */
static const struct {
    double rmse, relative, sqnr_db;
    uint64_t bytes;
} golden[FP8Q_CMP_ROWS] = {
    {0.0005972546875, 0.02372735302, 32.49501416, 262144 + 4},
    {0.0005273859958, 0.02095165423, 33.57563364, 262144 + 512 * 4},
    {0.0005993199791, 0.02380940161, 32.46503039, 262144 + 16 * 4},
    {0.0005302637441, 0.02106597958, 33.52836682, 262144 + 16 * 4},
    {0.0005302637025, 0.02106597792, 33.52836751, 262144 + 512 * 16},
    {0.01340980446, 0.5327361525, 5.46975660, 262144 + 4},
    {0.0007779889391, 0.03090744801, 30.19873705, 262144 + 512 * 4},
    {0.003352980348, 0.1332050632, 17.50958534, 262144 + 16 * 4},
    {0.02002471396, 0.7955290552, 1.98687908, 131072 + 4},
    {0.002957604278, 0.117497815, 18.59940419, 131072 + 512 * 4},
    {0.006012980201, 0.2388798396, 12.43641003, 131072 + 16 * 4},
};

static void the_demonstration_has_its_figures(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fp8q_compare r;
    struct fp8q_ckpt *ckpt = open_ckpt(data_path("compare/normal-512.safetensors"));
    const struct fp8q_compare_options o = {.kernel = fp8q_kernel_select(NULL), .threads = 2};
    assert_ok(fp8q_compare(ckpt, &o, &r, &err), &err);
    assert_int_equal(r.total.n_elems, 512 * 512);
    assert_int_equal(r.n_groups, 1);
    assert_string_equal(r.groups[0].name, "up_proj");
    for (unsigned i = 0; i < FP8Q_CMP_ROWS; i++) {
        assert_true(fabs(fp8q_compare_rmse(&r.total, i) / golden[i].rmse - 1) < 1e-6);
        assert_true(fabs(fp8q_compare_relative(&r.total, i) / golden[i].relative - 1) < 1e-6);
        assert_true(fabs(fp8q_compare_sqnr_db(&r.total, i) - golden[i].sqnr_db) < 1e-5);
        assert_int_equal(r.total.bytes[i], golden[i].bytes);
        assert_true(r.groups[0].d2[i] == r.total.d2[i]);
    }
    char figure[16];
    snprintf(figure, sizeof(figure), "%.8f", fp8q_compare_rmse(&r.total, FP8Q_CMP_FP8_TENSOR));
    assert_string_equal(figure, "0.00059725");
    snprintf(figure, sizeof(figure), "%.8f", fp8q_compare_rmse(&r.total, FP8Q_CMP_FP8_BLOCK));
    assert_string_equal(figure, "0.00059932");
    snprintf(figure, sizeof(figure), "%.8f", fp8q_compare_rmse(&r.total, FP8Q_CMP_INT8_TENSOR));
    assert_string_equal(figure, "0.01340980");
    snprintf(figure, sizeof(figure), "%.8f", fp8q_compare_rmse(&r.total, FP8Q_CMP_INT8_BLOCK));
    assert_string_equal(figure, "0.00335298");
    fp8q_compare_reset(&r);
    fp8q_ckpt_close(ckpt);
}

static void sums_depend_on_neither_threads_nor_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-f16", "llama-f32", "qwen2", "smolvlm-ragged"};
    for (size_t n = 0; n < sizeof(names) / sizeof(*names); n++) {
        struct fp8q_error err = {0};
        struct fp8q_ckpt *ckpt = open_ckpt(data_path("checkpoints/%s", names[n]));
        struct fp8q_compare first = {0};
        for (size_t k = 0; fp8q_kernels[k]; k++)
            for (unsigned threads = 1; fp8q_kernels[k]->usable() && threads <= 5; threads += 2) {
                const struct fp8q_compare_options o = {
                    fp8q_kernels[k], threads, NULL, 0, NULL, NULL, NULL};
                struct fp8q_compare r;
                assert_ok(fp8q_compare(ckpt, &o, &r, &err), &err);
                assert_true(r.total.n_tensors > 0);
                if (!first.n_groups) {
                    first = r;
                    continue;
                }
                assert_int_equal(r.n_groups, first.n_groups);
                assert_memory_equal(r.total.d2, first.total.d2, sizeof(r.total.d2));
                assert_true(r.total.w2 == first.total.w2);
                fp8q_compare_reset(&r);
            }
        fp8q_compare_reset(&first);
        fp8q_ckpt_close(ckpt);
    }
}

static char *write_f32(const char *dir, uint64_t rows, uint64_t cols, const float *values)
{
    struct fp8q_error err = {0};
    struct fp8q_text bytes = {0};
    const uint64_t shape[2] = {rows, cols};
    const struct fp8q_st_tensor t = {"layers.0.x.weight", shape, 0, rows * cols * 4, 2, FP8Q_F32};
    char *path = fp8q_join(dir, "w.safetensors");
    assert_ok(fp8q_remove_tree(path, &err), &err);
    assert_ok(fp8q_st_emit(&t, 1, NULL, 0, 0, &bytes, &err), &err);
    fp8q_text_add(&bytes, (const char *)values, (size_t)(rows * cols * 4));
    assert_ok(fp8q_write_file(path, bytes.data, bytes.len, &err), &err);
    fp8q_text_reset(&bytes);
    return path;
}

static void bad_requests_are_refused(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fp8q_compare r;
    char *dir = temp_dir_make();
    float *values = calloc(200 * 130, sizeof(float));
    assert_non_null(values);
    struct fp8q_compare_options o = {.kernel = fp8q_kernel_select(NULL), .threads = 2};

    char *path = write_f32(dir, 200, 130, values);
    struct fp8q_ckpt *ckpt = open_ckpt(path);
    assert_ok(fp8q_compare(ckpt, &o, &r, &err), &err); /* all zeros: no error, no division by 0 */
    assert_true(fp8q_compare_relative(&r.total, FP8Q_CMP_INT4_BLOCK) == 0);
    fp8q_compare_reset(&r);
    const char *const names[] = {"layers.0.x.weight", "layers.0.y.weight"};
    o.names = names;
    o.n_names = 2;
    assert_failed(fp8q_compare(ckpt, &o, &r, &err), FP8Q_E_ARG, &err, "layers.0.y.weight");
    o.n_names = 0;
    fp8q_ckpt_close(ckpt);
    free(path);

    values[150 * 130 + 129] = (float)NAN;
    path = write_f32(dir, 200, 130, values);
    ckpt = open_ckpt(path);
    assert_failed(fp8q_compare(ckpt, &o, &r, &err), FP8Q_E_FORMAT, &err, "[150, 129]");
    fp8q_ckpt_close(ckpt);
    free(path);

    ckpt = open_ckpt(data_path("checkpoints/qwen2"));
    const char *const norm[] = {"model.norm.weight"};
    o.names = norm;
    o.n_names = 1;
    assert_failed(fp8q_compare(ckpt, &o, &r, &err), FP8Q_E_UNSUPPORTED, &err, "model.norm.weight");
    fp8q_ckpt_close(ckpt);
    free(values);
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_demonstration_has_its_figures),
        cmocka_unit_test(sums_depend_on_neither_threads_nor_kernel),
        cmocka_unit_test(bad_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
