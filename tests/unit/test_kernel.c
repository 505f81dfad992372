/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernel.c - the row operations.  Vectors made by other programs pin the scalar variant, and
 * the scalar variant pins every other one bit for bit.  Blocks and scale rules are in
 * test_kernel_block.c.
 */
#include "support/support.h"

#include <float.h>
#include <math.h>

#include "kernel/e8m0.h"
#include "kernel/kernel.h"

#define MAX_N 300
static const size_t float_sizes[FP8Q_N_FLOATS] = {2, 2, 4};

/* Scales at which all inputs are tried: plain, no power of two, both ends, and quotients that
 * overflow or fall below every code.  */
static const float scales[] = {1.0f,     0.0123f, 448.0f,  0x1p-126f, 0x1.fffffep-126f,
                               0x1p-10f, 1e-9f,   3.7e33f, FLT_MAX,   0x1.b6db6ep-7f};
#define N_SCALES (sizeof(scales) / sizeof(scales[0]))

static const struct fp8q_kernel *scalar_kernel(void)
{
    return fp8q_kernel_select("scalar");
}

static bool name_in_list(const char *name, const char *list)
{
    size_t len = strlen(name);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (strncmp(p, name, len) == 0 && (p[len] == ',' || p[len] == '\0'))
            return true;
    return false;
}

/* Kernels that this machine can run.  */
#define FOR_EACH_KERNEL(k)                                                                         \
    for (const struct fp8q_kernel *const *at_ = fp8q_kernels, *k = *at_; (k = *at_); at_++)        \
        if (k->usable())

static void read_data(const char *name, void *out, size_t size)
{
    FILE *file = fopen(data_path("oracle/%s", name), "rb");
    if (!file || fread(out, 1, size, file) != size || fgetc(file) != EOF)
        fail_msg("cannot read %zu bytes of %s", size, name);
    fclose(file);
}

/* ---- the list ---------------------------------------------------------------------------- */

static void test_list(void **state)
{
    (void)state;
    const char *required = getenv("FP8Q_REQUIRE_KERNELS");
    const char *best = NULL;
    char seen[256] = "";
    for (size_t i = 0; fp8q_kernels[i]; i++) {
        const char *name = fp8q_kernels[i]->name;
        if (!fp8q_kernels[i]->usable()) {
            print_message("SKIP kernel %s: not usable on this machine\n", name);
            assert_null(fp8q_kernel_select(name));
            continue;
        }
        best = best ? best : name;
        assert_ptr_equal(fp8q_kernel_select(name), fp8q_kernels[i]);
        snprintf(seen + strlen(seen), sizeof(seen) - strlen(seen), "%s,", name);
    }
    print_message("kernels tested: %s\n", seen);
    assert_ptr_equal(fp8q_kernel_select(NULL), fp8q_kernel_select(best));
    assert_null(fp8q_kernel_select("no such kernel"));
    assert_true(name_in_list("scalar", seen));
    char copy[256];
    snprintf(copy, sizeof(copy), "%s", required ? required : "");
    for (char *name = strtok(copy, ","); name; name = strtok(NULL, ","))
        if (!name_in_list(name, seen))
            fail_msg("FP8Q_REQUIRE_KERNELS names %s, which was skipped", name);
}

/* ---- formats: the scalar helpers --------------------------------------------------------- */

static void test_values_oracle(void **state)
{
    (void)state;
    float expected[256];
    read_data("e4m3_to_f32.bin", expected, sizeof(expected));
    for (unsigned code = 0; code < 256; code++)
        if ((code & 0x7F) == 0x7F)
            assert_true(isnan(fp8q_e4m3_value[code]) && isnan(expected[code]));
        else
            assert_int_equal(bits_of(fp8q_e4m3_value[code]), bits_of(expected[code]));
    assert_int_equal(bits_of(fp8q_e4m3_value[0x7F]), 0x7FC00000);
    assert_int_equal(bits_of(fp8q_e4m3_value[0xFF]), 0xFFC00000);
}

static void test_cast_oracle(void **state)
{
    (void)state;
    FILE *file = fopen(data_path("oracle/f32_cast.tsv"), "r");
    assert_non_null(file);
    char line[256];
    unsigned n = 0, bits, code;
    while (fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%x %x", &bits, &code) != 2)
            continue;
        n++;
        if (fp8q_e4m3_from_f32(float_of(bits)) != code)
            fail_msg("0x%08x gives 0x%02x, expected 0x%02x", bits,
                     fp8q_e4m3_from_f32(float_of(bits)), code);
    }
    fclose(file);
    assert_int_equal(n, 3600);
}

static void test_half_cast_oracle(void **state)
{
    (void)state;
    static uint8_t from_bf16[65536], from_f16[65536];
    read_data("e4m3_from_bf16.bin", from_bf16, sizeof(from_bf16));
    read_data("e4m3_from_f16.bin", from_f16, sizeof(from_f16));
    for (uint32_t bits = 0; bits < 65536; bits++) {
        assert_int_equal(fp8q_e4m3_from_f32(fp8q_bf16_value((uint16_t)bits)), from_bf16[bits]);
        assert_int_equal(fp8q_e4m3_from_f32(fp8q_f16_value((uint16_t)bits)), from_f16[bits]);
    }
}

/* Value of a 16-bit format by its definition.  */
static double half_by_definition(uint32_t bits, int mantissa_bits, int bias)
{
    int exponent = (int)(bits & 0x7FFF) >> mantissa_bits;
    int mantissa = (int)bits & ((1 << mantissa_bits) - 1);
    double value = exponent == 0
                       ? ldexp(mantissa, 1 - bias - mantissa_bits)
                       : ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return bits & 0x8000 ? -value : value;
}

static void test_half_values(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t half = (uint16_t)bits;
        if ((bits & 0x7F80) != 0x7F80)
            assert_true((double)fp8q_bf16_value(half) == half_by_definition(bits, 7, 127));
        if ((bits & 0x7C00) != 0x7C00)
            assert_true((double)fp8q_f16_value(half) == half_by_definition(bits, 10, 15));
        /* There and back; NaN becomes quiet.  */
        bool bf16_nan = (bits & 0x7FFF) > 0x7F80, f16_nan = (bits & 0x7FFF) > 0x7C00;
        assert_int_equal(fp8q_bf16_from_f32(float_of(bits << 16)), bits | (bf16_nan ? 0x40 : 0));
        assert_int_equal(fp8q_f16_from_f32(fp8q_f16_value(half)), bits | (f16_nan ? 0x200 : 0));
    }
    assert_int_equal(bits_of(fp8q_f16_value(0x7C00)), 0x7F800000);
    assert_int_equal(bits_of(fp8q_f16_value(0xFC00)), 0xFF800000);
    assert_int_equal(bits_of(fp8q_f16_value(0xFC01)), 0xFFC02000);
}

/* Between neighbours of a 16-bit format: the midpoint goes to the even one, one ulp beside it goes
 * to the nearer one.  */
static void test_half_rounding(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x7F80; bits++) {
        uint32_t tie = bits << 16 | 0x8000;
        assert_int_equal(fp8q_bf16_from_f32(float_of(tie - 1)), bits);
        assert_int_equal(fp8q_bf16_from_f32(float_of(tie)), bits + (bits & 1));
        assert_int_equal(fp8q_bf16_from_f32(float_of(tie + 1)), bits + 1);
        assert_int_equal(fp8q_bf16_from_f32(float_of(tie | 0x80000000)),
                         0x8000 | (bits + (bits & 1)));
    }
    for (uint32_t bits = 0; bits < 0x7C00; bits++) {
        double next = bits == 0x7BFF ? 65536.0 : half_by_definition(bits + 1, 10, 15);
        float tie = (float)((half_by_definition(bits, 10, 15) + next) / 2);
        assert_int_equal(fp8q_f16_from_f32(float_of(bits_of(tie) - 1)), bits);
        assert_int_equal(fp8q_f16_from_f32(tie), bits + (bits & 1));
        assert_int_equal(fp8q_f16_from_f32(float_of(bits_of(tie) + 1)), bits + 1);
        assert_int_equal(fp8q_f16_from_f32(-tie), 0x8000 | (bits + (bits & 1)));
    }
    assert_int_equal(fp8q_f16_from_f32(FLT_MAX), 0x7C00);
    assert_int_equal(fp8q_f16_from_f32(float_of(1)), 0);
}

/* ---- encode ------------------------------------------------------------------------------ */

/* The code whose value is nearest to @x, by search; of two, the even one.  */
static uint8_t nearest_code(float x)
{
    double magnitude = fabs((double)x), best_distance = INFINITY;
    unsigned best = 0;
    for (unsigned code = 0; code <= 0x7E; code++) {
        double distance = fabs(magnitude - (double)fp8q_e4m3_value[code]);
        if (distance < best_distance || (distance <= best_distance && code % 2 == 0)) {
            best_distance = distance;
            best = code;
        }
    }
    return (uint8_t)(best | (signbit(x) ? 0x80 : 0));
}

/* All finite 16-bit inputs, widened to F32 in @wide too; returns how many.  */
static size_t all_finite(enum fp8q_float from, uint16_t *half, float *wide)
{
    const uint32_t infinity = from == FP8Q_FLOAT_BF16 ? 0x7F80 : 0x7C00;
    size_t n = 0;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        if ((bits & 0x7FFF) >= infinity)
            continue;
        half[n] = (uint16_t)bits;
        wide[n++] = from == FP8Q_FLOAT_BF16 ? fp8q_bf16_value((uint16_t)bits)
                                            : fp8q_f16_value((uint16_t)bits);
    }
    return n;
}

static void assert_codes(const struct fp8q_kernel *k, const uint8_t *codes, const uint8_t *expected,
                         const float *values, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        if (codes[i] != expected[i])
            fail_msg("%s: element %zu of %zu, value %a, scale %a: code 0x%02x, expected 0x%02x",
                     k->name, i, n, (double)values[i], (double)scale, codes[i], expected[i]);
}

static void test_encode_nearest(void **state)
{
    (void)state;
    static uint16_t half[65536];
    static float wide[65536];
    static uint8_t codes[65536], expected[65536];
    for (int from = 0; from < FP8Q_FLOAT_F32; from++) {
        size_t n = all_finite((enum fp8q_float)from, half, wide);
        for (size_t s = 0; s < N_SCALES; s++) {
            for (size_t i = 0; i < n; i++)
                expected[i] = nearest_code(fminf(fmaxf(wide[i] / scales[s], -FLT_MAX), FLT_MAX));
            scalar_kernel()->encode[from](codes, half, n, scales[s]);
            assert_codes(scalar_kernel(), codes, expected, wide, n, scales[s]);
        }
    }
}

static void test_encode_all_inputs(void **state)
{
    (void)state;
    static uint16_t half[65536];
    static float wide[65536];
    static uint8_t codes[65536], expected[65536];
    FOR_EACH_KERNEL(k)
    {
        for (int from = 0; from < FP8Q_FLOAT_F32; from++) {
            size_t n = all_finite((enum fp8q_float)from, half, wide);
            for (size_t s = 0; s < N_SCALES; s++) {
                scalar_kernel()->encode[from](expected, half, n, scales[s]);
                memset(codes, 0x55, n);
                k->encode[from](codes, half, n, scales[s]);
                assert_codes(k, codes, expected, wide, n, scales[s]);
                memset(codes, 0x55, n);
                k->encode[FP8Q_FLOAT_F32](codes, wide, n, scales[s]);
                assert_codes(k, codes, expected, wide, n, scales[s]);
            }
        }
    }
}

/* Every boundary between two codes and the floats beside it, and random patterns.  */
static void test_encode_boundaries(void **state)
{
    (void)state;
    enum { N = 127 * 2 * 7 + 4096 };
    static float values[N];
    static uint8_t codes[N], expected[N];
    uint64_t seed = test_seed();
    size_t n = 0;
    for (unsigned code = 0; code < 0x7F; code++)
        for (unsigned j = 0; j < 14; j++) {
            float next = code == 0x7E ? 480.0f : fp8q_e4m3_value[code + 1];
            float at = j < 7 ? fp8q_e4m3_value[code] : (fp8q_e4m3_value[code] + next) / 2;
            int64_t bits = (int64_t)bits_of(at) + (int64_t)(j % 7) - 3;
            values[n] = float_of((uint32_t)(bits < 0 ? 0 : bits));
            values[n] = (n / 3) % 2 ? -values[n] : values[n];
            n++;
        }
    while (n < N) {
        uint32_t bits = (uint32_t)random_u64(&seed);
        if ((bits & 0x7F800000) != 0x7F800000)
            values[n++] = float_of(bits);
    }
    FOR_EACH_KERNEL(k)
    {
        for (size_t s = 0; s < N_SCALES; s++) {
            for (size_t i = 0; i < N; i++)
                expected[i] = fp8q_e4m3_from_f32(values[i] / scales[s]);
            k->encode[FP8Q_FLOAT_F32](codes, values, N, scales[s]);
            assert_codes(k, codes, expected, values, N, scales[s]);
        }
    }
}

/* Rows of a matrix with one scale, which a variant may encode in another way than a row by itself:
 * every BF16 and F16 at plain and random scales, and the rows of matrices of many sizes.  */
static void test_encode_rows_all_inputs(void **state)
{
    (void)state;
    static uint16_t half[65536];
    static float wide[65536];
    static uint8_t codes[65536], expected[65536];
    enum { RANDOM = 200 };
    uint64_t seed = test_seed();
    for (int from = 0; from < FP8Q_FLOAT_F32; from++) {
        size_t n = all_finite((enum fp8q_float)from, half, wide);
        for (size_t s = 0; s < N_SCALES + RANDOM; s++) {
            /* Every size of scale, half of them near a power of two.  */
            uint64_t r = random_u64(&seed);
            uint32_t mantissa =
                (uint32_t)(r % 2 ? r >> 41 : (r >> 40) % 8) ^ (r & 4 ? 0x7FFFFF : 0);
            float scale =
                s < N_SCALES
                    ? scales[s]
                    : float_of((1 + (uint32_t)(r >> 8) % 250) << 23 | mantissa % (1 << 23));
            scalar_kernel()->encode[from](expected, half, n, scale);
            FOR_EACH_KERNEL(k)
            {
                memset(codes, 0x55, n);
                k->encode_rows[from](codes, half, 1, n, n, scale);
                assert_codes(k, codes, expected, wide, n, scale);
            }
        }
    }
}

/* The exponent of a group's scale, by the definition and in F64: the smallest power of two of which
 * 448 reaches the largest magnitude.  */
static unsigned exponent_of(const float *group, size_t n)
{
    double most = 0;
    int exponent = -126;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)group[i]));
    while (most > 0 && ldexp(448.0, exponent) < most)
        exponent++;
    return (unsigned)(most > 0 ? exponent + 127 : 127);
}

/* MXFP8: every BF16 and F16, 32 neighbours a group and then with a far larger or smaller one among
 * them; lengths that end in the midst of a group.  */
static void test_encode_groups(void **state)
{
    (void)state;
    static uint16_t half[65536];
    static float wide[65536];
    static uint8_t codes[65536], exponents[65536 / FP8Q_GROUP];
    uint64_t seed = test_seed();
    for (int run = 0; run < 4; run++)
        for (int from = 0; from < FP8Q_FLOAT_F32; from++) {
            size_t n = all_finite((enum fp8q_float)from, half, wide);
            for (size_t i = 0; i < n && run; i += FP8Q_GROUP / 2) {
                size_t other = random_u64(&seed) % n;
                half[i] = half[other];
                wide[i] = wide[other];
            }
            n -= run == 3 ? 13 : 0;
            FOR_EACH_KERNEL(k)
            {
                memset(codes, 0x55, n);
                k->encode_groups[from](codes, exponents, half, n);
                for (size_t i = 0; i < n; i += FP8Q_GROUP) {
                    size_t m = n - i < FP8Q_GROUP ? n - i : FP8Q_GROUP;
                    uint8_t expected[FP8Q_GROUP];
                    assert_int_equal(exponents[i / FP8Q_GROUP], exponent_of(wide + i, m));
                    float scale = ldexpf(1, (int)exponents[i / FP8Q_GROUP] - 127);
                    for (size_t j = 0; j < m; j++)
                        expected[j] = fp8q_e4m3_from_f32(wide[i + j] / scale);
                    assert_codes(k, codes + i, expected, wide + i, m, scale);
                }
                memset(codes, 0x55, n);
                k->encode_groups[FP8Q_FLOAT_F32](codes, exponents, wide, n);
                for (size_t i = 0; i < n; i += FP8Q_GROUP)
                    assert_int_equal(
                        exponents[i / FP8Q_GROUP],
                        exponent_of(wide + i, n - i < FP8Q_GROUP ? n - i : FP8Q_GROUP));
            }
        }
}

static void test_rows(void **state)
{
    (void)state;
    enum { STEP = 160, ROWS = 130 };
    static const size_t counts[] = {0, 1, 31, 32, 33, 127, 128, 129, 160};
    static char src[STEP * ROWS * 4];
    static uint8_t codes[STEP * ROWS], expected[STEP * ROWS];
    uint64_t seed = test_seed();
    for (int from = 0; from < FP8Q_N_FLOATS; from++) {
        for (size_t i = 0; i < (size_t)STEP * ROWS; i++) {
            /* About normal, and now and then a zero.  */
            int64_t sum = 0;
            for (int k = 0; k < 4; k++)
                sum += (int64_t)(random_u64(&seed) >> 40) - (1 << 23);
            float x = sum % 50 ? (float)sum * 0x1p-28f : 0.0f;
            uint16_t bits = from == FP8Q_FLOAT_BF16 ? fp8q_bf16_from_f32(x) : fp8q_f16_from_f32(x);
            if (from == FP8Q_FLOAT_F32)
                memcpy(src + 4 * i, &x, 4);
            else
                memcpy(src + 2 * i, &bits, 2);
        }
        FOR_EACH_KERNEL(k)
        {
            for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
                for (size_t rows = 0; rows <= ROWS; rows += 1 + rows / 3) {
                    size_t n = counts[c];
                    memset(codes, 0x55, sizeof(codes));
                    memset(expected, 0x55, sizeof(expected));
                    k->encode_rows[from](codes, src, rows, n, STEP, 0.0011f);
                    scalar_kernel()->encode_rows[from](expected, src, rows, n, STEP, 0.0011f);
                    assert_memory_equal(codes, expected, sizeof(codes));
                    assert_int_equal(k->amax_rows[from](src, rows, n, STEP),
                                     scalar_kernel()->amax_rows[from](src, rows, n, STEP));
                }
        }
    }
}

/* Signal and noise: the same sums from every variant, near those of double precision.  */
static void test_add_noise(void **state)
{
    (void)state;
    enum { N = 1000 };
    static uint16_t half[N];
    static float wide[N];
    static uint8_t codes[N];
    static const float sizes[] = {1.0f, 0.0017f, 0x1p-120f, 0x1p-70f, 3e30f, FLT_MAX / 512};
    uint64_t seed = test_seed();
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
        for (int from = 0; from < FP8Q_N_FLOATS; from++) {
            if (from == FP8Q_FLOAT_F16 && s > 1)
                continue;
            for (size_t i = 0; i < N; i++) {
                wide[i] =
                    ((float)(int64_t)(random_u64(&seed) >> 40) - 0x1p23f) * 0x1p-23f * sizes[s];
                half[i] = from == FP8Q_FLOAT_BF16 ? fp8q_bf16_from_f32(wide[i])
                                                  : fp8q_f16_from_f32(wide[i]);
            }
            const void *src = from == FP8Q_FLOAT_F32 ? (const void *)wide : half;
            const size_t counts[] = {0, 1, 15, 16, 17, 128, 129, N};
            for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
                float scale = fp8q_scale(sizes[s], FP8Q_SCALE_F32);
                struct fp8q_noise expected = {1, 2};
                struct fp8q_error_sums exact = {{0}, {0}};
                scalar_kernel()->encode[from](codes, src, N, scale);
                scalar_kernel()->add_noise_rows[from](src, codes, 1, counts[c], N, scale,
                                                      &expected);
                (void)scalar_kernel()->check[from](src, codes, counts[c], scale, 1.0f, &exact);
                double w2 = 1 + fp8q_error_total(exact.w2), d2 = 2 + fp8q_error_total(exact.d2);
                assert_true(fabs(expected.w2 - w2) <= 1e-5 * w2);
                /* w - q*s in F32 is off by up to 2^-23 |w|, which is much where it is all but 0.  */
                double off = 0x1p-21 * sqrt(w2 * d2) + 0x1p-45 * w2;
                assert_true(fabs(expected.d2 - d2) <= 1e-4 * d2 + off);
                FOR_EACH_KERNEL(k)
                {
                    struct fp8q_noise found = {1, 2};
                    k->add_noise_rows[from](src, codes, 1, counts[c], N, scale, &found);
                    assert_memory_equal(&found, &expected, sizeof(found));
                }
            }
        }
}

/* Rows that lie apart are one after the other, and groups are rows of 32, but for the order of sums. */
static void test_noise_of_rows_and_groups(void **state)
{
    (void)state;
    enum { ROWS = 5, N = 200, STEP = 230 };
    static float values[ROWS * STEP];
    static uint8_t codes[ROWS * STEP], exponents[ROWS][8];
    uint64_t seed = test_seed();
    for (size_t i = 0; i < ROWS * STEP; i++)
        values[i] = ldexpf((float)(int64_t)(random_u64(&seed) >> 40) - 0x1p23f, -30);

    FOR_EACH_KERNEL(k)
    {
        struct fp8q_noise rows = {0, 0}, one = {0, 0}, groups = {0, 0}, group = {0, 0};
        k->encode_rows[FP8Q_FLOAT_F32](codes, values, ROWS, N, STEP, 0x1p-14f);
        k->add_noise_rows[FP8Q_FLOAT_F32](values, codes, ROWS, N, STEP, 0x1p-14f, &rows);
        for (size_t r = 0; r < ROWS; r++)
            k->add_noise_rows[FP8Q_FLOAT_F32](values + r * STEP, codes + r * STEP, 1, N, N,
                                              0x1p-14f, &one);
        assert_true(rows.d2 > 0 && fabs(rows.w2 - one.w2) <= 1e-12 * one.w2);
        assert_true(fabs(rows.d2 - one.d2) <= 1e-12 * one.d2);

        for (size_t r = 0; r < ROWS; r++) {
            float of_groups[8];
            uint8_t *row = codes + r * STEP;
            const float *of = values + r * STEP;
            k->encode_groups[FP8Q_FLOAT_F32](row, exponents[r], of, N);
            for (size_t g = 0; g < 7; g++) {
                size_t n = g < 6 ? 32 : N - 6 * 32;
                of_groups[g] = fp8q_e8m0_value(exponents[r][g]);
                k->add_noise_rows[FP8Q_FLOAT_F32](of + g * 32, row + g * 32, 1, n, n, of_groups[g],
                                                  &group);
            }
            k->add_noise_groups[FP8Q_FLOAT_F32](of, row, of_groups, N, &groups);
        }
        assert_true(groups.d2 > 0 && fabs(groups.w2 - group.w2) <= 1e-12 * group.w2);
        assert_true(fabs(groups.d2 - group.d2) <= 1e-12 * group.d2);
    }
}

/* Zeros keep their sign, and so does what rounds to zero.  */
static void test_signed_zeros(void **state)
{
    (void)state;
    const float values[] = {0.0f, -0.0f, 0x1p-10f, -0x1p-10f, float_of(1), float_of(0x80000001)};
    FOR_EACH_KERNEL(k)
    {
        for (int from = 0; from < FP8Q_N_FLOATS; from++) {
            uint32_t row[64];
            uint8_t codes[64];
            for (size_t i = 0; i < 64; i++) {
                float x = values[i % 6];
                uint16_t half =
                    from == FP8Q_FLOAT_BF16 ? fp8q_bf16_from_f32(x) : fp8q_f16_from_f32(x);
                if (from == FP8Q_FLOAT_F32)
                    memcpy((char *)row + 4 * i, &x, 4);
                else
                    memcpy((char *)row + 2 * i, &half, 2);
            }
            k->encode[from](codes, row, 64, 1.0f);
            for (size_t i = 0; i < 64; i++)
                assert_int_equal(codes[i], i % 6 % 2 ? 0x80 : 0x00);
        }
    }
}

/* ---- decode ------------------------------------------------------------------------------ */

/* One element of decode(), the conversions to 16 bits are tested above.  */
static uint32_t expected_decode(enum fp8q_float to, uint8_t code, float scale)
{
    float x = (float)((double)fp8q_e4m3_value[code] * (double)scale); /* exact, rounded once */
    if (to == FP8Q_FLOAT_BF16)
        return fp8q_bf16_from_f32(x);
    return to == FP8Q_FLOAT_F16 ? fp8q_f16_from_f32(x) : bits_of(x);
}

static uint32_t element_bits(enum fp8q_float format, const void *row, size_t i)
{
    uint32_t wide;
    uint16_t half;
    if (format == FP8Q_FLOAT_F32) {
        memcpy(&wide, (const char *)row + 4 * i, 4);
        return wide;
    }
    memcpy(&half, (const char *)row + 2 * i, 2);
    return half;
}

static void assert_decode(const struct fp8q_kernel *k, enum fp8q_float to, float scale)
{
    uint8_t codes[256];
    uint32_t row[256];
    for (unsigned i = 0; i < 256; i++)
        codes[i] = (uint8_t)i;
    k->decode[to](row, codes, 256, scale);
    for (unsigned i = 0; i < 256; i++)
        if (element_bits(to, row, i) != expected_decode(to, codes[i], scale))
            fail_msg("%s: code 0x%02x at scale %a gives 0x%x in format %d, expected 0x%x", k->name,
                     i, (double)scale, element_bits(to, row, i), (int)to,
                     expected_decode(to, codes[i], scale));
}

static void test_decode_all_codes(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    FOR_EACH_KERNEL(k)
    {
        for (int to = 0; to < FP8Q_N_FLOATS; to++) {
            for (size_t s = 0; s < N_SCALES; s++)
                assert_decode(k, (enum fp8q_float)to, scales[s]);
            for (int i = 0; i < 1000; i++) {
                /* Scales of any size; at odd turns of the size that F16 and its subnormals have. */
                uint64_t r = random_u64(&seed);
                uint32_t exponent =
                    i % 2 ? 90 + (uint32_t)(r >> 32) % 50 : (uint32_t)(r >> 32) % 255;
                assert_decode(k, (enum fp8q_float)to,
                              float_of(exponent << 23 | (r & 0x7FFFFF) | 1));
            }
        }
    }
}

/* ---- amax, to_f32, scan_codes ------------------------------------------------------------ */

static void test_amax_finds_nonfinite(void **state)
{
    (void)state;
    static const uint32_t special[FP8Q_N_FLOATS][3] = {
        {0x7F80, 0xFF81, 0xFFFF}, {0x7C00, 0xFC01, 0xFFFF}, {0x7F800000, 0xFF800001, 0xFFFFFFFF}};
    FOR_EACH_KERNEL(k)
    {
        for (int from = 0; from < FP8Q_N_FLOATS; from++)
            for (size_t at = 0; at < 100; at++)
                for (size_t j = 0; j < 3; j++) {
                    uint32_t bits = special[from][j], row[100] = {0};
                    uint32_t mask = from == FP8Q_FLOAT_F32 ? 0x7FFFFFFF : 0x7FFF;
                    memcpy((char *)row + float_sizes[from] * at, &bits, float_sizes[from]);
                    assert_int_equal(k->amax_bits[from](row, 100), bits & mask);
                }
    }
}

static void test_to_f32_all_inputs(void **state)
{
    (void)state;
    static uint16_t half[65536];
    static float wide[65536];
    for (uint32_t i = 0; i < 65536; i++)
        half[i] = (uint16_t)i;
    FOR_EACH_KERNEL(k)
    {
        k->to_f32[FP8Q_FLOAT_BF16](wide, half, 65536);
        for (uint32_t i = 0; i < 65536; i++)
            assert_int_equal(element_bits(FP8Q_FLOAT_F32, wide, i), i << 16);
        k->to_f32[FP8Q_FLOAT_F16](wide, half, 65536);
        for (uint32_t i = 0; i < 65536; i++)
            assert_int_equal(element_bits(FP8Q_FLOAT_F32, wide, i),
                             bits_of(fp8q_f16_value((uint16_t)i)));
    }
}

/* More than 255 of them for each byte of a vector.  */
static void test_scan_counts_many(void **state)
{
    (void)state;
    enum { N = 100003 };
    uint8_t *codes = malloc(N);
    assert_non_null(codes);
    FOR_EACH_KERNEL(k)
    {
        unsigned max = 1;
        memset(codes, 0xFF, N);
        assert_int_equal(k->scan_codes(codes, N, &max), N);
        assert_int_equal(max, 0x7F);
        memset(codes, 0xFE, N);
        codes[N - 1] = 0x7F;
        assert_int_equal(k->scan_codes(codes, N, &max), 1);
        codes[N - 1] = 0;
        assert_int_equal(k->scan_codes(codes, N, &max), 0);
        assert_int_equal(max, 0x7E);
        assert_int_equal(k->scan_codes(codes, 0, &max), 0);
        assert_int_equal(max, 0);
    }
    free(codes);
}

/* ---- check ------------------------------------------------------------------------------- */

enum { N_CHECK = 4096 + 7 };
struct check_case {
    float scale;
    float w[N_CHECK];
    uint16_t half[2][N_CHECK]; /* w in BF16 and F16 */
    uint8_t codes[N_CHECK];
};

/* One element breaks the bound.  long double has 64 bits or more: exact, as nothing here is tiny
 * beside the other term.  */
static bool breaks_bound(float w, uint8_t code, float scale, float factor)
{
    long double product = (long double)fp8q_e4m3_value[code] * (long double)scale;
    long double limit = fmaxl(fabsl((long double)w) / 16, (long double)scale / 1024);
    long double distance = fabsl((long double)w - product);
    return distance * 1048576 > (long double)factor * limit * 1048577;
}

/* A weight at the bound of factor 1 or 2 of a code, above or below, moved by up to three ulps. With
 * t = 1 + 2^-20, |w - v| = t*f*|w|/16 gives w = v / (1 -+ t*f/16), and the other is v +-
 * t*f*s/1024.  */
static float weight_at_bound(uint8_t code, float scale, uint64_t r)
{
    double value = (double)fp8q_e4m3_value[code] * (double)scale, f = r & 1 ? 2 : 1;
    double reach = (1 + 0x1p-20) * f * (r & 2 ? 1 : -1);
    float w = (float)(r & 4 ? value / (1 - reach / 16) : value + reach * (double)scale / 1024);
    for (uint64_t i = r >> 3 & 3; i > 0; i--)
        w = nextafterf(w, r & 32 ? INFINITY : -INFINITY);
    return w;
}

/* A third at the bound, a third as encode() gives them, a third of those with the code moved by
 * one. */
static void make_check_case(struct check_case *c, float scale, uint64_t *seed)
{
    c->scale = scale;
    for (size_t i = 0; i < N_CHECK; i++) {
        uint64_t r = random_u64(seed);
        uint8_t code = (uint8_t)((r >> 40) % 127 | (r >> 50 & 0x80));
        if (i % 3 == 0)
            c->w[i] = weight_at_bound(code, scale, r);
        else {
            c->w[i] = scale * ((float)(r >> 40) * 0x1p-15f - 256.0f) * (r & 1 ? 1.0f : 0x1p-12f);
            code = fp8q_e4m3_from_f32(c->w[i] / scale);
            if (i % 3 == 1 && (code & 0x7F) < 0x7E)
                code++;
        }
        c->codes[i] = code;
        c->half[FP8Q_FLOAT_BF16][i] = fp8q_bf16_from_f32(c->w[i]);
        c->half[FP8Q_FLOAT_F16][i] = fp8q_f16_from_f32(c->w[i]);
    }
}

static const void *check_source(const struct check_case *c, int from)
{
    return from == FP8Q_FLOAT_F32 ? (const void *)c->w : (const void *)c->half[from];
}

static float check_weight(const struct check_case *c, int from, size_t i)
{
    if (from == FP8Q_FLOAT_F32)
        return c->w[i];
    uint16_t half = c->half[from][i];
    return from == FP8Q_FLOAT_F16 ? fp8q_f16_value(half) : fp8q_bf16_value(half);
}

/* Count and sums of one call against plain loops.  */
static void assert_check(const struct fp8q_kernel *k, const struct check_case *c, int from,
                         float factor)
{
    struct fp8q_error_sums sums, expected;
    size_t broken = 0;
    for (size_t i = 0; i < 16; i++)
        expected.w2[i] = expected.d2[i] = sums.w2[i] = sums.d2[i] = (double)i;
    for (size_t i = 0; i < N_CHECK; i++) {
        double w = (double)check_weight(c, from, i);
        double d = w - (double)fp8q_e4m3_value[c->codes[i]] * (double)c->scale;
        broken += breaks_bound((float)w, c->codes[i], c->scale, factor);
        expected.w2[i % 16] += w * w;
        expected.d2[i % 16] += d * d;
    }
    assert_in_range(broken, N_CHECK / 100, N_CHECK - N_CHECK / 10);
    assert_int_equal(
        k->check[from](check_source(c, from), c->codes, N_CHECK, c->scale, factor, &sums), broken);
    assert_memory_equal(&sums, &expected, sizeof(sums));
}

static void test_check_counts_and_sums(void **state)
{
    (void)state;
    static struct check_case c;
    uint64_t seed = test_seed();
    for (int turn = 0; turn < 20; turn++) {
        uint64_t r = random_u64(&seed);
        /* F16 holds the weights of all but the last scales, which are at the ends of F32.  */
        static const float ends[] = {0x1p-126f, 0x1p100f, 0x1.abcdp-90f, 0x1.fp118f};
        float scale = ldexpf(1 + (float)(r >> 41) * 0x1p-23f, -(int)(r % 8));
        make_check_case(&c, turn < 16 ? scale : ends[turn - 16], &seed);
        FOR_EACH_KERNEL(k)
        {
            for (int from = 0; from < FP8Q_N_FLOATS; from++)
                for (int factor = 1; factor <= 2; factor++)
                    if (turn < 16 || from != FP8Q_FLOAT_F16)
                        assert_check(k, &c, from, (float)factor);
        }
    }
}

/* What encode() gives holds the bound with factor 1, also where the quotient was rounded onto a
 * tie. */
static void test_check_accepts_encode(void **state)
{
    (void)state;
    enum { N = 1 << 16 };
    static float w[N];
    static uint8_t codes[N];
    uint64_t seed = test_seed();
    FOR_EACH_KERNEL(k)
    {
        for (int turn = 0; turn < 8; turn++) {
            float scale = ldexpf(1 + (float)(random_u64(&seed) >> 41) * 0x1p-23f, turn - 120);
            for (size_t i = 0; i < N; i++) {
                uint64_t r = random_u64(&seed);
                double tie = ((double)(r % 8) + 0.5) * 0x1p-9;
                w[i] = i % 2 ? (float)(tie * (double)scale)
                             : scale * ((float)(r >> 40) * 0x1p-15f - 256.0f);
                w[i] = r >> 20 & 1 ? nextafterf(w[i], INFINITY) : w[i];
            }
            struct fp8q_error_sums sums = {0};
            k->encode[FP8Q_FLOAT_F32](codes, w, N, scale);
            assert_int_equal(k->check[FP8Q_FLOAT_F32](w, codes, N, scale, 1.0f, &sums), 0);
        }
    }
}

static void test_check_nan_code_breaks(void **state)
{
    (void)state;
    const float w[40] = {0};
    uint8_t codes[40] = {0};
    FOR_EACH_KERNEL(k)
    {
        for (size_t at = 0; at < 40; at++) {
            struct fp8q_error_sums sums = {0};
            codes[at] = at % 2 ? 0x7F : 0xFF;
            assert_int_equal(k->check[FP8Q_FLOAT_F32](w, codes, 40, 1.0f, 2.0f, &sums), 1);
            assert_true(isnan(sums.d2[at % 16]));
            codes[at] = 0;
        }
    }
}

static void test_error_total(void **state)
{
    (void)state;
    double lanes[16];
    for (int i = 0; i < 16; i++)
        lanes[i] = (double)(1 << i);
    assert_true(fp8q_error_total(lanes) == 65535.0);
    assert_true(lanes[0] == 1.0 && lanes[15] == 32768.0);
}

/* ---- sizes, alignment, bounds ------------------------------------------------------------ */

/* Source rows of random finite patterns, small numbers for F16's sake.  */
static void random_row(int from, uint8_t *row, size_t n, uint64_t *seed)
{
    for (size_t i = 0; i < n; i++) {
        float x = (float)(int32_t)(random_u64(seed) >> 32) * 0x1p-28f;
        uint16_t half = from == FP8Q_FLOAT_BF16 ? fp8q_bf16_from_f32(x) : fp8q_f16_from_f32(x);
        if (from == FP8Q_FLOAT_F32)
            memcpy(row + 4 * i, &x, 4);
        else
            memcpy(row + 2 * i, &half, 2);
    }
}

/* Rows of @n elements in a format: weights, codes, and room for outputs.  */
struct rows {
    int format;
    size_t n;
    uint8_t *weights, *codes; /* read only */
    uint8_t *codes_out, *weights_out, *wide_out;
};

/* All operations on one set of rows; the results of @k must be those of the scalar variant, which
 * get memory of their own.  */
static void assert_all_ops(const struct fp8q_kernel *k, const struct rows *r)
{
    static uint8_t codes[MAX_N], weights[4 * MAX_N];
    const struct fp8q_kernel *ref = scalar_kernel();
    const int f = r->format;
    const float scale = 0.0123f;
    struct fp8q_error_sums sums = {0}, ref_sums = {0};
    unsigned max = 1, ref_max = 2;

    assert_int_equal(k->amax_bits[f](r->weights, r->n), ref->amax_bits[f](r->weights, r->n));
    k->encode[f](r->codes_out, r->weights, r->n, scale);
    ref->encode[f](codes, r->weights, r->n, scale);
    assert_memory_equal(r->codes_out, codes, r->n);
    static uint8_t exponents[MAX_N], ref_exponents[MAX_N];
    static uint8_t groups[MAX_N];
    assert_int_equal(k->encode_groups[f](r->codes_out, exponents, r->weights, r->n),
                     ref->encode_groups[f](groups, ref_exponents, r->weights, r->n));
    assert_memory_equal(r->codes_out, groups, r->n);
    assert_memory_equal(exponents, ref_exponents, (r->n + FP8Q_GROUP - 1) / FP8Q_GROUP);
    k->encode[f](r->codes_out, r->weights, r->n, scale);
    k->decode[f](r->weights_out, r->codes, r->n, scale);
    ref->decode[f](weights, r->codes, r->n, scale);
    assert_memory_equal(r->weights_out, weights, r->n * float_sizes[f]);
    k->to_f32[f]((float *)(void *)r->wide_out, r->weights, r->n);
    ref->to_f32[f]((float *)(void *)weights, r->weights, r->n);
    assert_memory_equal(r->wide_out, weights, r->n * 4);
    assert_int_equal(k->scan_codes(r->codes, r->n, &max),
                     ref->scan_codes(r->codes, r->n, &ref_max));
    assert_int_equal(max, ref_max);
    /* codes_out, as a NaN code would make NaN sums, which have many patterns */
    assert_int_equal(k->check[f](r->weights, r->codes_out, r->n, scale * 1.01f, 1.0f, &sums),
                     ref->check[f](r->weights, codes, r->n, scale * 1.01f, 1.0f, &ref_sums));
    assert_memory_equal(&sums, &ref_sums, sizeof(sums));
}

/* Each row ends (or begins) at a page that cannot be touched.  */
static void test_guard_pages(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (int side = GUARD_AFTER; side <= GUARD_BEFORE; side++) {
        enum guard_side guard = (enum guard_side)side;
        uint8_t *rows[5];
        for (int j = 0; j < 5; j++)
            rows[j] = guard_alloc(4 * MAX_N, guard);
        FOR_EACH_KERNEL(k)
        {
            for (size_t n = 0; n <= MAX_N; n++)
                for (int f = 0; f < FP8Q_N_FLOATS; f++) {
                    size_t end = guard == GUARD_AFTER ? 4 * MAX_N : n;
                    size_t end2 = guard == GUARD_AFTER ? end : n * float_sizes[f];
                    size_t end4 = guard == GUARD_AFTER ? end : n * 4;
                    struct rows r = {f,
                                     n,
                                     rows[0] + end2 - n * float_sizes[f],
                                     rows[1] + end - n,
                                     rows[2] + end - n,
                                     rows[3] + end2 - n * float_sizes[f],
                                     rows[4] + end4 - n * 4};
                    random_row(f, r.weights, n, &seed);
                    for (size_t i = 0; i < n; i++)
                        r.codes[i] = (uint8_t)random_u64(&seed);
                    assert_all_ops(k, &r);
                }
        }
        for (int j = 0; j < 5; j++)
            guard_free(rows[j], 4 * MAX_N, guard);
    }
}

static void assert_filled(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bytes[i], 0xA5);
}

/* Odd addresses; bytes beside the outputs stay.  */
static void test_unaligned(void **state)
{
    (void)state;
    enum { ROOM = 64, SIZE = 4 * MAX_N + 2 * ROOM };
    static uint8_t rows[5][SIZE];
    uint64_t seed = test_seed();
    FOR_EACH_KERNEL(k)
    {
        for (size_t n = 0; n <= MAX_N; n++)
            for (int f = 0; f < FP8Q_N_FLOATS; f++) {
                size_t shift[5], size[5] = {n * float_sizes[f], n, n, n * float_sizes[f], n * 4};
                for (int j = 0; j < 5; j++) {
                    shift[j] = random_u64(&seed) % ROOM | (j != 1 && j != 2);
                    memset(rows[j], 0xA5, SIZE);
                }
                random_row(f, rows[0] + shift[0], n, &seed);
                for (size_t i = 0; i < n; i++)
                    rows[1][shift[1] + i] = (uint8_t)random_u64(&seed);
                struct rows r = {f,
                                 n,
                                 rows[0] + shift[0],
                                 rows[1] + shift[1],
                                 rows[2] + shift[2],
                                 rows[3] + shift[3],
                                 rows[4] + shift[4]};
                assert_all_ops(k, &r);
                for (int j = 0; j < 5; j++) {
                    assert_filled(rows[j], shift[j]);
                    assert_filled(rows[j] + shift[j] + size[j], SIZE - shift[j] - size[j]);
                }
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_values_oracle),
        cmocka_unit_test(test_cast_oracle),
        cmocka_unit_test(test_half_cast_oracle),
        cmocka_unit_test(test_half_values),
        cmocka_unit_test(test_half_rounding),
        cmocka_unit_test(test_encode_nearest),
        cmocka_unit_test(test_encode_all_inputs),
        cmocka_unit_test(test_encode_boundaries),
        cmocka_unit_test(test_encode_rows_all_inputs),
        cmocka_unit_test(test_encode_groups),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_add_noise),
        cmocka_unit_test(test_noise_of_rows_and_groups),
        cmocka_unit_test(test_signed_zeros),
        cmocka_unit_test(test_decode_all_codes),
        cmocka_unit_test(test_amax_finds_nonfinite),
        cmocka_unit_test(test_to_f32_all_inputs),
        cmocka_unit_test(test_scan_counts_many),
        cmocka_unit_test(test_check_counts_and_sums),
        cmocka_unit_test(test_check_accepts_encode),
        cmocka_unit_test(test_check_nan_code_breaks),
        cmocka_unit_test(test_error_total),
        cmocka_unit_test(test_guard_pages),
        cmocka_unit_test(test_unaligned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
