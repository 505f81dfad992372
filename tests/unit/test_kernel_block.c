/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernel_block.c - scale rules, block grid and stripes, against the block vectors that other
 * programs made and against properties.  Rounding of single values is in test_kernel.c.
 */
#include "support/support.h"

#include <float.h>
#include <glob.h>
#include <math.h>

#include "kernel/block.h"

static const size_t float_sizes[FP8Q_N_FLOATS] = {2, 2, 4};

/* Kernels that this machine can run.  */
#define FOR_EACH_KERNEL(k)                                                                         \
    for (const struct fp8q_kernel *const *at_ = fp8q_kernels, *k = *at_; (k = *at_); at_++)        \
        if (k->usable())

/* ---- scale rules ------------------------------------------------------------------------- */

static void test_scale_f32(void **state)
{
    (void)state;
    assert_true(fp8q_scale(448.0f, FP8Q_SCALE_F32) == 1.0f);
    assert_true(fp8q_scale(1.0f, FP8Q_SCALE_F32) == (float)(1.0 / 448.0));
    assert_true(fp8q_scale(FLT_MAX, FP8Q_SCALE_F32) == FLT_MAX / 448.0f);
    /* Division, not a reciprocal: the two differ for more than half of all amax.  */
    unsigned differ = 0;
    for (uint32_t bits = 0x3F80; bits < 0x4000; bits++) {
        float amax = fp8q_bf16_value((uint16_t)bits);
        float scale = fp8q_scale(amax, FP8Q_SCALE_F32);
        assert_true(scale == (float)((double)amax / 448.0));
        differ += scale < amax * (1.0f / 448.0f) || scale > amax * (1.0f / 448.0f);
    }
    assert_in_range(differ, 40, 128);
}

/* The rule by its definition: doubling from the floor until 448 * p >= amax, exact in F64.  */
static float power_of_two_by_search(float amax)
{
    double p = 0x1p-126;
    while (448 * p < (double)amax)
        p *= 2;
    return (float)p;
}

static void test_scale_ue8m0(void **state)
{
    (void)state;
    for (int k = -126; k <= 119; k++) {
        float edge = ldexpf(448.0f, k);
        uint32_t bits = bits_of(edge);
        assert_true(fp8q_scale(edge, FP8Q_SCALE_UE8M0) == ldexpf(1.0f, k));
        assert_true(fp8q_scale(float_of(bits - 1), FP8Q_SCALE_UE8M0) == ldexpf(1.0f, k));
        assert_true(fp8q_scale(float_of(bits + 1), FP8Q_SCALE_UE8M0) == ldexpf(1.0f, k + 1));
    }
    assert_true(fp8q_scale(FLT_MAX, FP8Q_SCALE_UE8M0) == 0x1p120f);
    uint64_t seed = test_seed();
    for (int i = 0; i < 100000; i++) {
        float amax = float_of((uint32_t)(random_u64(&seed) % 0x7F800000));
        float scale = fp8q_scale(amax, FP8Q_SCALE_UE8M0);
        if (amax > 0.0f)
            assert_int_equal(bits_of(scale), bits_of(power_of_two_by_search(amax)));
    }
}

static void test_scale_zero_and_floor(void **state)
{
    (void)state;
    const float edge = 448.0f * 0x1p-126f;
    for (int fmt = FP8Q_SCALE_F32; fmt <= FP8Q_SCALE_UE8M0; fmt++) {
        enum fp8q_scale_fmt f = (enum fp8q_scale_fmt)fmt;
        assert_true(fp8q_scale(0.0f, f) == 1.0f);
        assert_true(fp8q_scale(edge, f) == FP8Q_MIN_SCALE);
        assert_true(fp8q_scale(float_of(bits_of(edge) - 1), f) == FP8Q_MIN_SCALE);
        assert_true(fp8q_scale(FLT_MIN, f) == FP8Q_MIN_SCALE);
        assert_true(fp8q_scale(float_of(1), f) == FP8Q_MIN_SCALE);
        assert_true(fp8q_scale(edge * 2, f) == FP8Q_MIN_SCALE * 2);
    }
    float above = float_of(bits_of(edge) + 1);
    assert_true(fp8q_scale(above, FP8Q_SCALE_F32) >= FP8Q_MIN_SCALE);
    assert_true(fp8q_scale(above, FP8Q_SCALE_UE8M0) == 2 * FP8Q_MIN_SCALE);
}

static void test_amax_value(void **state)
{
    (void)state;
    static const uint32_t infinity[FP8Q_N_FLOATS] = {0x7F80, 0x7C00, 0x7F800000};
    static const float largest[FP8Q_N_FLOATS] = {0x1.FEp127f, 65504.0f, FLT_MAX};
    static const float smallest[FP8Q_N_FLOATS] = {0x1p-133f, 0x1p-24f, 0x1p-149f};
    for (int from = 0; from < FP8Q_N_FLOATS; from++) {
        enum fp8q_float f = (enum fp8q_float)from;
        float value = -1.0f;
        assert_true(fp8q_amax_value(f, infinity[from] - 1, &value) && value == largest[from]);
        assert_true(fp8q_amax_value(f, 1, &value) && value == smallest[from]);
        assert_false(fp8q_amax_value(f, infinity[from], &value));
        assert_true(value == 0.0f);
        assert_false(fp8q_amax_value(f, infinity[from] + 1, &value));
    }
}

static void assert_shape(struct fp8q_grid grid, uint64_t rows, uint64_t cols, uint64_t expected0,
                         uint64_t expected1)
{
    uint64_t shape[2] = {99, 99};
    fp8q_grid_shape(grid, rows, cols, shape);
    assert_int_equal(shape[0], expected0);
    assert_int_equal(shape[1], expected1);
}

static void test_grid_shape(void **state)
{
    (void)state;
    const struct fp8q_grid block = {FP8Q_BLOCK, FP8Q_BLOCK}, channel = {1, 0}, tensor = {0, 0};
    assert_shape(block, 128, 256, 1, 2);
    assert_shape(block, 129, 1, 2, 1);
    assert_shape(block, 0, 127, 0, 1);
    assert_shape(block, UINT64_MAX, UINT64_MAX, 1ull << 57, 1ull << 57);
    assert_shape(channel, 300, 7, 300, 1);
    assert_shape(tensor, 300, 7, 1, 1);
    assert_shape(tensor, 0, 7, 0, 1);
}

/* ---- block vectors ----------------------------------------------------------------------- */

/* One of the small files of tests/data/oracle/blocks: text of the header, then the data.  */
struct vector {
    char *header;
    uint8_t *data;
    size_t size;
};

static struct vector vector_read(const char *path)
{
    struct vector v = {0};
    uint64_t len = 0;
    FILE *file = fopen(path, "rb");
    if (!file || fread(&len, 1, 8, file) != 8 || len > 4096)
        fail_msg("cannot read %s", path);
    v.header = calloc(1, (size_t)len + 1);
    v.data = malloc(1 << 20);
    assert_non_null(v.header);
    assert_non_null(v.data);
    assert_int_equal(fread(v.header, 1, (size_t)len, file), len);
    v.size = fread(v.data, 1, 1 << 20, file);
    fclose(file);
    return v;
}

static void vector_free(struct vector *v)
{
    free(v->header);
    free(v->data);
}

/* The data of the tensor whose name ends with @suffix; its shape and dtype into the others.  */
static uint8_t *vector_tensor(const struct vector *v, const char *suffix, uint64_t shape[2],
                              char dtype[16])
{
    char key[64];
    unsigned long long rows = 0, cols = 0, begin = 0, end = 0;
    snprintf(key, sizeof(key), "%s\":{\"dtype\":\"", suffix);
    const char *at = strstr(v->header, key);
    if (!at || sscanf(at + strlen(key),
                      "%15[A-Z0-9_]\",\"shape\":[%llu,%llu],\"data_offsets\":[%llu,%llu]", dtype,
                      &rows, &cols, &begin, &end) != 5)
        fail_msg("no tensor %s in %s", suffix, v->header);
    assert_true(end <= v->size);
    shape[0] = rows;
    shape[1] = cols;
    return v->data + begin;
}

static enum fp8q_float float_of_dtype(const char *dtype)
{
    if (strcmp(dtype, "BF16") == 0)
        return FP8Q_FLOAT_BF16;
    if (strcmp(dtype, "F16") == 0)
        return FP8Q_FLOAT_F16;
    assert_string_equal(dtype, "F32");
    return FP8Q_FLOAT_F32;
}

/* Quantizes a matrix, stripe by stripe.  */
static void quantize(const struct fp8q_kernel *k, const uint8_t *src, enum fp8q_float from,
                     const uint64_t shape[2], enum fp8q_scale_fmt fmt, float *scales,
                     uint8_t *codes)
{
    uint64_t grid[2];
    fp8q_grid_shape((struct fp8q_grid){FP8Q_BLOCK, FP8Q_BLOCK}, shape[0], shape[1], grid);
    uint32_t *amax = malloc(sizeof(*amax) * grid[1] + 1);
    assert_non_null(amax);
    for (uint64_t i = 0; i < grid[0]; i++) {
        uint64_t first = i * FP8Q_BLOCK, left = shape[0] - first;
        struct fp8q_stripe stripe = {src + first * shape[1] * float_sizes[from], from,
                                     left < FP8Q_BLOCK ? (uint32_t)left : FP8Q_BLOCK, shape[1]};
        uint64_t row, col;
        fp8q_stripe_amax(k, &stripe, amax);
        for (uint64_t j = 0; j < grid[1]; j++) {
            float value;
            assert_true(fp8q_amax_value(from, amax[j], &value));
            scales[i * grid[1] + j] = fp8q_scale(value, fmt);
        }
        assert_false(fp8q_stripe_nonfinite(&stripe, &row, &col));
        fp8q_stripe_encode(k, &stripe, scales + i * grid[1], codes + first * shape[1]);
    }
    free(amax);
}

static void assert_vector(const char *in_path, const char *fmt_name, enum fp8q_scale_fmt fmt)
{
    char path[4096], dtype[16];
    uint64_t shape[2], code_shape[2], scale_shape[2], grid[2];
    snprintf(path, sizeof(path), "%.*s.%s.safetensors",
             (int)(strlen(in_path) - strlen(".in.safetensors")), in_path, fmt_name);
    struct vector in = vector_read(in_path), out = vector_read(path);
    uint8_t *weights = vector_tensor(&in, "down_proj.weight", shape, dtype);
    enum fp8q_float from = float_of_dtype(dtype);
    uint8_t *scales = vector_tensor(&out, "down_proj.weight_scale_inv", scale_shape, dtype);
    assert_string_equal(dtype, "F32");
    uint8_t *codes = vector_tensor(&out, "down_proj.weight", code_shape, dtype);
    assert_string_equal(dtype, "F8_E4M3");
    fp8q_grid_shape((struct fp8q_grid){FP8Q_BLOCK, FP8Q_BLOCK}, shape[0], shape[1], grid);
    assert_memory_equal(shape, code_shape, sizeof(shape));
    assert_memory_equal(grid, scale_shape, sizeof(grid));
    size_t n = (size_t)(shape[0] * shape[1]), n_scales = (size_t)(grid[0] * grid[1]);
    float *got_scales = malloc(n_scales * sizeof(float));
    uint8_t *got_codes = malloc(n);
    assert_non_null(got_scales);
    assert_non_null(got_codes);
    FOR_EACH_KERNEL(k)
    {
        quantize(k, weights, from, shape, fmt, got_scales, got_codes);
        if (memcmp(got_scales, scales, n_scales * sizeof(float)) != 0)
            fail_msg("%s: other scales than %s", k->name, path);
        if (memcmp(got_codes, codes, n) != 0)
            fail_msg("%s: other codes than %s", k->name, path);
    }
    free(got_scales);
    free(got_codes);
    vector_free(&in);
    vector_free(&out);
}

static void test_block_vectors(void **state)
{
    (void)state;
    glob_t found;
    assert_int_equal(glob(data_path("oracle/blocks/*.in.safetensors"), 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 26);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        assert_vector(found.gl_pathv[i], "f32", FP8Q_SCALE_F32);
        assert_vector(found.gl_pathv[i], "ue8m0", FP8Q_SCALE_UE8M0);
    }
    globfree(&found);
}

/* ---- properties -------------------------------------------------------------------------- */

enum { ROWS = 2 * FP8Q_BLOCK, COLS = 3 * FP8Q_BLOCK };

/* Weights of many sizes.  The largest one comes anywhere.  */
static void random_weights(float *w, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t r = random_u64(seed);
        w[i] = ldexpf((float)(r >> 40) * 0x1p-23f - 1.0f, -(int)(r % 12));
    }
}

static void copy_block(float *dst, const float *src, size_t to, size_t from)
{
    for (size_t row = 0; row < FP8Q_BLOCK; row++)
        memcpy(dst + (to / 3 * FP8Q_BLOCK + row) * COLS + to % 3 * FP8Q_BLOCK,
               src + (from / 3 * FP8Q_BLOCK + row) * COLS + from % 3 * FP8Q_BLOCK,
               FP8Q_BLOCK * sizeof(float));
}

/* Blocks do not see each other: moved blocks have the scales and codes that they had.  */
static void test_permuted_blocks(void **state)
{
    (void)state;
    static const size_t order[6] = {4, 2, 0, 5, 1, 3};
    static float w[ROWS * COLS], moved[ROWS * COLS];
    static uint8_t codes[ROWS * COLS], moved_codes[ROWS * COLS];
    const uint64_t shape[2] = {ROWS, COLS};
    float scales[6], moved_scales[6];
    uint64_t seed = test_seed();
    random_weights(w, ROWS * COLS, &seed);
    for (size_t i = 0; i < 6; i++)
        copy_block(moved, w, i, order[i]);
    FOR_EACH_KERNEL(k)
    {
        const uint8_t *src = (const uint8_t *)w, *moved_src = (const uint8_t *)moved;
        quantize(k, src, FP8Q_FLOAT_F32, shape, FP8Q_SCALE_F32, scales, codes);
        quantize(k, moved_src, FP8Q_FLOAT_F32, shape, FP8Q_SCALE_F32, moved_scales, moved_codes);
        for (size_t row = 0; row < ROWS; row++)
            for (size_t col = 0; col < COLS; col++) {
                size_t from = order[row / FP8Q_BLOCK * 3 + col / FP8Q_BLOCK];
                size_t r = from / 3 * FP8Q_BLOCK + row % FP8Q_BLOCK;
                size_t c = from % 3 * FP8Q_BLOCK + col % FP8Q_BLOCK;
                assert_int_equal(moved_codes[row * COLS + col], codes[r * COLS + c]);
            }
        for (size_t i = 0; i < 6; i++)
            assert_int_equal(bits_of(moved_scales[i]), bits_of(scales[order[i]]));
    }
}

/* A matrix of odd sizes gives what the same one gives padded with zeros; memory after it is not part of
 * it, so huge values stand there.  */
static void test_edge_blocks(void **state)
{
    (void)state;
    static float padded[ROWS * COLS], odd[ROWS * COLS + 1];
    static uint8_t padded_codes[ROWS * COLS], codes[ROWS * COLS];
    const uint64_t padded_shape[2] = {ROWS, COLS};
    uint64_t seed = test_seed();
    for (int turn = 0; turn < 12; turn++) {
        uint64_t rows = FP8Q_BLOCK + 1 + random_u64(&seed) % FP8Q_BLOCK;
        uint64_t cols = 2 * FP8Q_BLOCK + 1 + random_u64(&seed) % FP8Q_BLOCK;
        const uint64_t shape[2] = {rows, cols};
        float padded_scales[6], scales[6];
        random_weights(odd, ROWS * COLS, &seed);
        odd[rows * cols] = FLT_MAX;
        memset(padded, 0, sizeof(padded));
        for (uint64_t row = 0; row < rows; row++)
            memcpy(padded + row * COLS, odd + row * cols, cols * sizeof(float));
        FOR_EACH_KERNEL(k)
        {
            quantize(k, (const uint8_t *)padded, FP8Q_FLOAT_F32, padded_shape, FP8Q_SCALE_F32,
                     padded_scales, padded_codes);
            quantize(k, (const uint8_t *)odd, FP8Q_FLOAT_F32, shape, FP8Q_SCALE_F32, scales, codes);
            assert_memory_equal(scales, padded_scales, sizeof(scales));
            for (uint64_t row = 0; row < rows; row++)
                assert_memory_equal(codes + row * cols, padded_codes + row * COLS, cols);
        }
    }
}

/* Codes stay within +-448: the quotient of amax may be 448.00003, which rounds to 448.  */
static void test_codes_within_range(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (int i = 0; i < 100000; i++) {
        float amax = float_of(0x00800000 + (uint32_t)(random_u64(&seed) % 0x7F000000));
        float scale = fp8q_scale(amax, FP8Q_SCALE_F32);
        assert_true(amax / scale <= 448.0001f);
        if (amax >= 448 * FP8Q_MIN_SCALE)
            assert_int_equal(fp8q_e4m3_from_f32(amax / scale), 0x7E);
    }
}

static void test_nonfinite_found(void **state)
{
    (void)state;
    static const uint32_t bad[FP8Q_N_FLOATS] = {0xFF80, 0x7C01, 0x7FC00000};
    enum { R = 5, C = 131 };
    for (int from = 0; from < FP8Q_N_FLOATS; from++)
        for (size_t at = 0; at < R * C; at += 13) {
            uint8_t data[R * C * 4] = {0};
            uint64_t row = 9, col = 9;
            struct fp8q_stripe stripe = {data, (enum fp8q_float)from, R, C};
            assert_false(fp8q_stripe_nonfinite(&stripe, &row, &col));
            memcpy(data + float_sizes[from] * at, &bad[from], float_sizes[from]);
            memcpy(data + float_sizes[from] * (R * C - 1), &bad[from], float_sizes[from]);
            assert_true(fp8q_stripe_nonfinite(&stripe, &row, &col));
            assert_int_equal(row * C + col, at);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale_f32),
        cmocka_unit_test(test_scale_ue8m0),
        cmocka_unit_test(test_scale_zero_and_floor),
        cmocka_unit_test(test_amax_value),
        cmocka_unit_test(test_grid_shape),
        cmocka_unit_test(test_block_vectors),
        cmocka_unit_test(test_permuted_blocks),
        cmocka_unit_test(test_edge_blocks),
        cmocka_unit_test(test_codes_within_range),
        cmocka_unit_test(test_nonfinite_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
