/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checkpoint_scales.c - FP8 weights under every name and in every layout in circulation, and
 * what is refused.
 */
#include "support/support.h"

#include <math.h>

#include "base/path.h"
#include "checkpoint/weights.h"
#include "support/maker.h"

#define MOST_SCALES 4096

/* One weight with its scales; the value of scale i is 2^(i % 5 - 2), or what @scale_bits says.  */
struct layout {
    const char *weight, *scales;
    enum fp8q_dtype weight_dtype, scale_dtype;
    uint64_t shape[3], scale_shape[5];
    uint32_t ndim, scale_ndim;
    const char *config;
    const char *id; /* NULL: it is read */
    enum fp8q_scaling scaling;
    uint64_t rows, cols; /* of a scale */
};

#define CONFIG(size)                                                                               \
    "{\"model_type\": \"llama\", \"quantization_config\": {\"quant_method\": \"fp8\", "            \
    "\"weight_block_size\": " size "}}"
#define NESTED "{\"text_config\": {\"quantization_config\": {\"weight_block_size\": [64, 64]}}}"
#define E4M3 FP8Q_F8_E4M3
#define BLOCK NULL, FP8Q_SCALING_BLOCK
#define GROUP NULL, FP8Q_SCALING_GROUP
#define ROW NULL, FP8Q_SCALING_ROW
#define TENSOR NULL, FP8Q_SCALING_TENSOR

static const struct layout layouts[] = {
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {2, 3},
     2,
     2,
     NULL,
     BLOCK,
     128,
     128},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F8_E8M0,
     {256, 384},
     {2, 3},
     2,
     2,
     NULL,
     BLOCK,
     128,
     128},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_U8,
     {256, 384},
     {2, 3},
     2,
     2,
     CONFIG("[128, 128]"),
     BLOCK,
     128,
     128},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_BF16,
     {130, 257},
     {2, 3},
     2,
     2,
     NULL,
     BLOCK,
     128,
     128},
    {"a.weight", "a.scale", E4M3, FP8Q_F32, {256, 384}, {2, 3}, 2, 2, NULL, BLOCK, 128, 128},
    {"a.weight",
     "a.scale",
     E4M3,
     FP8Q_F8_E8M0,
     {256, 384},
     {2, 3},
     2,
     2,
     CONFIG("[128, 128]"),
     BLOCK,
     128,
     128},
    {"a.weight", "a.qscale_weight", E4M3, FP8Q_BF16, {256, 384}, {1}, 2, 0, NULL, TENSOR, 256, 384},
    {"a.weight",
     "a.qscale_weight",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {2, 3},
     2,
     2,
     NULL,
     BLOCK,
     128,
     128},
    /* MXFP8, with a config that states other blocks and with none.  */
    {"a.weight", "a.weight_scale_inv", E4M3, FP8Q_U8, {64, 128}, {64, 4}, 2, 2, NULL, GROUP, 1, 32},
    {"a.weight",
     "a.weight_scale",
     E4M3,
     FP8Q_U8,
     {64, 128},
     {64, 4},
     2,
     2,
     CONFIG("[1, 32]"),
     GROUP,
     1,
     32},
    {"a.weight",
     "a.weight_scale",
     E4M3,
     FP8Q_F8_E8M0,
     {64, 128},
     {64, 4},
     2,
     2,
     CONFIG("[128, 128]"),
     GROUP,
     1,
     32},
    {"a.weight", "a.weight_scale", E4M3, FP8Q_U8, {64, 100}, {64, 4}, 2, 2, NULL, GROUP, 1, 32},
    /* Block sizes by config.json, also a nested one.  */
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F8_E8M0,
     {64, 96},
     {2, 3},
     2,
     2,
     CONFIG("[32, 32]"),
     BLOCK,
     32,
     32},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {4, 6},
     2,
     2,
     CONFIG("[64, 64]"),
     BLOCK,
     64,
     64},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {4, 6},
     2,
     2,
     NESTED,
     BLOCK,
     64,
     64},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F32,
     {256, 512},
     {1, 2},
     2,
     2,
     CONFIG("[256, 256]"),
     BLOCK,
     256,
     256},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F32,
     {96, 384},
     {96, 3},
     2,
     2,
     CONFIG("[1, 128]"),
     BLOCK,
     1,
     128},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F8_E8M0,
     {64, 96},
     {2, 3},
     2,
     2,
     NULL,
     BLOCK,
     32,
     32},
    /* ModelOpt.  */
    {"a.weight",
     "a.weight_scale",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {2, 1, 3, 1},
     2,
     4,
     NULL,
     BLOCK,
     128,
     128},
    {"a.experts.gate_up_proj",
     "a.experts.gate_up_proj_scale",
     E4M3,
     FP8Q_F32,
     {2, 256, 384},
     {2, 2, 1, 3, 1},
     3,
     5,
     NULL,
     BLOCK,
     128,
     128},
    /* Per row and per tensor.  */
    {"a.weight", "a.weight_scale", E4M3, FP8Q_F32, {256, 384}, {256, 1}, 2, 2, NULL, ROW, 1, 384},
    {"a.weight", "a.weight_scale", E4M3, FP8Q_BF16, {256, 384}, {256}, 2, 1, NULL, ROW, 1, 384},
    {"a.weight", "a.weight_scale", E4M3, FP8Q_F32, {256, 384}, {1}, 2, 1, NULL, TENSOR, 256, 384},
    {"a.weight", "a.weight_scale", E4M3, FP8Q_F32, {256, 384}, {0}, 2, 0, NULL, TENSOR, 256, 384},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {1, 1},
     2,
     2,
     CONFIG("[128, 128]"),
     TENSOR,
     256,
     384},
    {"a.weight", "a.weight_scale", E4M3, FP8Q_F32, {64, 32}, {64, 1}, 2, 2, NULL, ROW, 1, 32},
    /* Other elements.  */
    {"a.weight",
     "a.weight_scale",
     FP8Q_F8_E5M2,
     FP8Q_F32,
     {256, 384},
     {2, 3},
     2,
     2,
     NULL,
     BLOCK,
     128,
     128},
    {"a.weight",
     "a.weight_scale",
     FP8Q_F8_E4M3FNUZ,
     FP8Q_F32,
     {256, 384},
     {1},
     2,
     1,
     NULL,
     TENSOR,
     256,
     384},
    {"a.weight",
     "a.weight_scale",
     FP8Q_F8_E5M2FNUZ,
     FP8Q_F32,
     {256, 384},
     {256, 1},
     2,
     2,
     NULL,
     ROW,
     1,
     384},
    /* Stacked experts, either way round.  */
    {"a.experts.down_proj",
     "a.experts.down_proj_scale_inv",
     E4M3,
     FP8Q_F32,
     {3, 256, 384},
     {3, 2, 3},
     3,
     3,
     NULL,
     BLOCK,
     128,
     128},
    {"a.experts.down_proj",
     "a.experts.down_proj_scale",
     E4M3,
     FP8Q_F32,
     {3, 256, 384},
     {3, 256, 1},
     3,
     3,
     NULL,
     ROW,
     1,
     384},
    {"a.experts.down_proj",
     "a.experts.down_proj_scale",
     E4M3,
     FP8Q_F32,
     {3, 256, 384},
     {3, 256},
     3,
     2,
     NULL,
     ROW,
     1,
     384},
    {"a.experts.down_proj",
     "a.experts.down_proj_scale",
     E4M3,
     FP8Q_F32,
     {3, 256, 384},
     {3, 1, 384},
     3,
     3,
     NULL,
     BLOCK,
     256,
     1},
    {"a.experts.down_proj",
     "a.experts.down_proj_scale",
     E4M3,
     FP8Q_F32,
     {3, 256, 384},
     {3, 1, 1},
     3,
     3,
     NULL,
     TENSOR,
     256,
     384},
    {"a.experts.down_proj",
     "a.experts.down_proj_scale",
     E4M3,
     FP8Q_F32,
     {3, 256, 384},
     {3},
     3,
     1,
     NULL,
     TENSOR,
     256,
     384},
    {"a.experts.down_proj",
     "a.experts.down_proj_scale",
     E4M3,
     FP8Q_F32,
     {3, 256, 384},
     {1},
     3,
     1,
     NULL,
     TENSOR,
     256,
     384},
    {"a.experts.down_proj",
     "a.experts.down_proj_scale",
     E4M3,
     FP8Q_U8,
     {3, 64, 96},
     {3, 64, 3},
     3,
     3,
     NULL,
     GROUP,
     1,
     32},
    /* One scale for a table in parts.  */
    {"a.emb.shard_0.weight",
     "a.emb.weight_scale",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {1},
     2,
     1,
     NULL,
     TENSOR,
     256,
     384},
    {"a.emb.shard_12.weight",
     "a.emb.weight_scale",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {1},
     2,
     1,
     NULL,
     TENSOR,
     256,
     384},
    /* Grids that do not fit, or fit only what the config contradicts.  */
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {3, 2},
     2,
     2,
     NULL,
     "scale-shape",
     0,
     0,
     0},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {2, 3},
     2,
     2,
     CONFIG("[64, 64]"),
     "scale-shape",
     0,
     0,
     0},
    {"a.weight",
     "a.weight_scale_inv",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {4, 6},
     2,
     2,
     CONFIG("[128, 128]"),
     "scale-shape",
     0,
     0,
     0},
    {"a.weight",
     "a.weight_scale",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {384},
     2,
     1,
     NULL,
     "scale-shape",
     0,
     0,
     0},
    {"a.weight",
     "a.weight_scale",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {1, 384},
     2,
     2,
     NULL,
     "scale-shape",
     0,
     0,
     0},
    {"a.experts.down_proj",
     "a.experts.down_proj_scale",
     E4M3,
     FP8Q_F32,
     {3, 256, 384},
     {2, 2, 3},
     3,
     3,
     NULL,
     "scale-shape",
     0,
     0,
     0},
    {"a.weight",
     "b.weight_scale",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {2, 3},
     2,
     2,
     NULL,
     "scale-missing",
     0,
     0,
     0},
    {"a.weight",
     "a.weight_zero_point",
     E4M3,
     FP8Q_F32,
     {256, 384},
     {2, 3},
     2,
     2,
     NULL,
     "scale-missing",
     0,
     0,
     0},
    {"a.weight", "a.weight_scale", E4M3, FP8Q_I8, {256, 384}, {1}, 2, 1, NULL, "dtype", 0, 0, 0},
};

static double scale_value(uint64_t i)
{
    return ldexp(1.0, (int)(i % 5) - 2);
}

static void fill_scales(void *out, enum fp8q_dtype dtype, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        float value = (float)scale_value(i);
        uint16_t half = fp8q_bf16_from_f32(value);
        uint8_t e8m0 = (uint8_t)(127 + (int)(i % 5) - 2);
        if (dtype == FP8Q_F32)
            memcpy((char *)out + 4 * i, &value, 4);
        else if (dtype == FP8Q_BF16)
            memcpy((char *)out + 2 * i, &half, 2);
        else
            memcpy((char *)out + i, &e8m0, 1);
    }
}

/* A weight of ones (of its own format) with the scales of the row.  */
static void write_layout(const struct layout *l, const char *dir)
{
    static uint8_t codes[3 * 256 * 512];
    static uint64_t scales[MOST_SCALES];
    static const uint8_t one[FP8Q_N_DTYPES] = {[FP8Q_F8_E4M3] = 0x38,
                                               [FP8Q_F8_E5M2] = 0x3C,
                                               [FP8Q_F8_E4M3FNUZ] = 0x40,
                                               [FP8Q_F8_E5M2FNUZ] = 0x40};
    struct maker m = {0};
    uint64_t n;

    memset(codes, one[l->weight_dtype], sizeof(codes));
    assert_true(fp8q_shape_count(l->scale_shape, l->scale_ndim, &n));
    assert_true(n * 8 <= sizeof(scales));
    fill_scales(scales, l->scale_dtype, n);

    maker_add(&m, l->weight, l->weight_dtype, l->ndim, l->shape, 0)->data = codes;
    maker_add(&m, l->scales, l->scale_dtype, l->scale_ndim, l->scale_shape, 0)->data = scales;
    maker_write(&m, dir, l->config);
    maker_free(&m);
}

static void check_values(const struct layout *l, const struct fp8q_weights *w)
{
    const struct fp8q_kernel *kernel = fp8q_kernel_select("scalar");
    struct fp8q_error err = {0};
    uint64_t rows = l->shape[l->ndim - 2], cols = l->shape[l->ndim - 1];
    uint64_t matrices = l->ndim == 3 ? l->shape[0] : 1;
    uint64_t grid_cols = (cols + l->cols - 1) / l->cols;
    uint64_t grid = (rows + l->rows - 1) / l->rows * grid_cols;
    uint64_t n_scales = 1;
    float *out = calloc(cols, sizeof(float));
    char *raw = calloc(cols, 4);

    (void)fp8q_shape_count(l->scale_shape, l->scale_ndim, &n_scales);
    for (uint64_t row = 0; row < matrices * rows; row += 31) {
        assert_ok(fp8q_weights_read(w, kernel, row, 1, raw, out, &err), &err);
        for (uint64_t c = 0; c < cols; c++) {
            uint64_t at = row / rows * grid + row % rows / l->rows * grid_cols + c / l->cols;
            double expected = scale_value(n_scales == 1 ? 0 : at);
            if ((double)out[c] != expected)
                fail_msg("%s %s: [%d, %d] is %g, expected %g", l->weight, l->scales, (int)row,
                         (int)c, (double)out[c], expected);
        }
    }
    free(out);
    free(raw);
}

static void layouts_in_circulation(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
        const struct layout *l = &layouts[i];
        struct fp8q_ckpt *ckpt;
        struct fp8q_weights w;
        struct fp8q_error err = {0};
        char *base = temp_dir_make(), *dir = fp8q_join(base, "m");

        write_layout(l, dir);
        assert_ok(fp8q_ckpt_open(dir, &ckpt, NULL, &err), &err);
        int status = fp8q_weights_open(ckpt, l->weight, &w, &err);
        if (l->id) {
            assert_int_not_equal(status, FP8Q_OK);
            assert_string_equal(err.id, l->id);
        } else {
            assert_ok(status, &err);
            if (w.scaling != l->scaling || w.layout.block_rows != l->rows ||
                w.layout.block_cols != l->cols)
                fail_msg("row %zu: scaling %d of %dx%d", i, (int)w.scaling,
                         (int)w.layout.block_rows, (int)w.layout.block_cols);
            check_values(l, &w);
            fp8q_weights_reset(&w);
            if (!strstr(l->weight, "shard_1"))
                assert_string_equal(fp8q_scaled_weight(ckpt, l->scales)->name, l->weight);
        }
        fp8q_ckpt_close(ckpt);
        free(dir);
        temp_dir_remove(base);
    }
}

/* Every pair of names at once is refused, and both are named.  */
static void two_scales_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"a.weight_scale_inv", "a.weight_scale", "a.scale",
                                        "a.qscale_weight"};
    static uint8_t codes[128 * 128];
    static const uint64_t shape[] = {128, 128}, one[] = {1};
    static const float scale = 2;

    for (size_t i = 0; i < 4; i++)
        for (size_t j = i + 1; j < 4; j++) {
            struct maker m = {0};
            struct fp8q_ckpt *ckpt;
            struct fp8q_weights w;
            struct fp8q_error err = {0};
            char *base = temp_dir_make(), *dir = fp8q_join(base, "m");
            maker_add(&m, "a.weight", E4M3, 2, shape, 0)->data = codes;
            maker_add(&m, names[i], FP8Q_F32, 1, one, 0)->data = &scale;
            maker_add(&m, names[j], FP8Q_F32, 1, one, 0)->data = &scale;
            maker_write(&m, dir, NULL);
            assert_ok(fp8q_ckpt_open(dir, &ckpt, NULL, &err), &err);
            assert_int_equal(fp8q_weights_open(ckpt, "a.weight", &w, &err), FP8Q_E_FORMAT);
            assert_string_equal(err.id, "scale-twice");
            assert_non_null(strstr(err.message, names[i]));
            assert_non_null(strstr(err.message, names[j]));
            fp8q_ckpt_close(ckpt);
            maker_free(&m);
            free(dir);
            temp_dir_remove(base);
        }
}

/* Scales that cannot be meant, and products that leave the type.  */
static void scales_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        float scale;
        uint8_t code;
        enum fp8q_float to;
        const char *id;
    } cases[] = {
        {0.0f, 0x38, FP8Q_FLOAT_F32, "scale-zero"},
        {-0.0f, 0x01, FP8Q_FLOAT_BF16, "scale-zero"},
        {0.0f, 0x7E, FP8Q_FLOAT_F16, "scale-zero"},
        {0.0f, 0x00, FP8Q_FLOAT_F32, NULL},
        {0.0f, 0x80, FP8Q_FLOAT_BF16, NULL},
        {-1.0f, 0x38, FP8Q_FLOAT_F32, "scale-value"},
        {INFINITY, 0x00, FP8Q_FLOAT_F32, "scale-value"},
        {NAN, 0x00, FP8Q_FLOAT_F32, "scale-value"},
        {0x1p120f, 0x7E, FP8Q_FLOAT_F32, "value-overflow"},
        {0x1p120f, 0x78, FP8Q_FLOAT_F32, "value-overflow"},
        {0x1p120f, 0x77, FP8Q_FLOAT_F32, NULL},
        {0x1p120f, 0x78, FP8Q_FLOAT_BF16, "value-overflow"},
        {0x1.FFFFFEp120f, 0x70, FP8Q_FLOAT_F32, NULL},
        {0x1.FFFFFEp120f, 0x70, FP8Q_FLOAT_BF16, "value-overflow"},
        {0x1p120f, 0x7F, FP8Q_FLOAT_BF16, NULL}, /* NaN stays NaN */
        {0x1p-126f, 0x01, FP8Q_FLOAT_F32, NULL},
    };
    static const uint64_t shape[] = {2, 32}, one[] = {1};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct maker m = {0};
        struct fp8q_ckpt *ckpt;
        struct fp8q_weights w;
        struct fp8q_error err = {0};
        uint8_t codes[64] = {0};
        float out[64];
        char *base = temp_dir_make(), *dir = fp8q_join(base, "m");
        codes[63] = cases[i].code;
        maker_add(&m, "a.weight", E4M3, 2, shape, 0)->data = codes;
        maker_add(&m, "a.weight_scale", FP8Q_F32, 1, one, 0)->data = &cases[i].scale;
        maker_write(&m, dir, NULL);
        assert_ok(fp8q_ckpt_open(dir, &ckpt, NULL, &err), &err);
        int status = fp8q_weights_open(ckpt, "a.weight", &w, &err);
        for (size_t k = 0; status == FP8Q_OK && fp8q_kernels[k]; k++)
            if (fp8q_kernels[k]->usable())
                status = fp8q_weights_decode(&w, fp8q_kernels[k], &(struct fp8q_tile){0, 2, 0, 32},
                                             codes, cases[i].to, out, &err);
        if (cases[i].id ? status == FP8Q_OK || strcmp(err.id, cases[i].id) != 0 : status != FP8Q_OK)
            fail_msg("row %zu: %s, expected %s", i, status ? err.id : "0",
                     cases[i].id ? cases[i].id : "0");
        if (cases[i].id)
            assert_non_null(strstr(err.message, "a.weight"));
        fp8q_weights_reset(&w);
        fp8q_ckpt_close(ckpt);
        maker_free(&m);
        free(dir);
        temp_dir_remove(base);
    }
}

/* What F32 becomes in the two halves: never an infinity that was none.  */
static void floats_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        float value;
        enum fp8q_dtype to;
        const char *id;
    } cases[] = {{65504, FP8Q_F16, NULL},
                 {65520, FP8Q_F16, "f16-overflow"},
                 {-65520, FP8Q_F16, "f16-overflow"},
                 {0x1.FEp127f, FP8Q_BF16, NULL},
                 {0x1.FFp127f, FP8Q_BF16, "bf16-overflow"},
                 {-0x1.FFFFFEp127f, FP8Q_BF16, "bf16-overflow"},
                 {0x1.FFFFFEp127f, FP8Q_F32, NULL}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        char out[4];
        int status = fp8q_store_floats(&cases[i].value, 1, cases[i].to, out, "a.weight", &err);
        if (cases[i].id)
            assert_string_equal(err.id, cases[i].id);
        else
            assert_ok(status, &err);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_in_circulation),
        cmocka_unit_test(two_scales_are_refused),
        cmocka_unit_test(scales_that_cannot_be),
        cmocka_unit_test(floats_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
