/* SPDX-License-Identifier: Apache-2.0
 *
 * test_kernel_mode.c - results do not depend on the floating-point mode of the host program, and
 * the mode is left as it was.
 */
#include "support/support.h"

#include <fenv.h>
#include <math.h>

#include "base/float_env.h"
#include "base/pool.h"
#include "kernel/block.h"
#include "kernel/gemm.h"

enum { N = 261, ROWS = 8 }; /* full vectors and a rest, whatever the vector */

#if defined(__SSE__)

static const unsigned modes[] = {0x1F80 | 0x8000,          /* flush to zero */
                                 0x1F80 | 0x0040,          /* denormals are zero */
                                 0x1F80 | 0x8040,          /* both, as -ffast-math sets them */
                                 0x1F80 | 0x2000,          /* round down */
                                 0x1F80 | 0x4000,          /* round up */
                                 0x1F80 | 0x6000 | 0x8040, /* round to zero, and both */
                                 0x0000 | 0x8040};         /* every exception traps */

static unsigned mode_now(void)
{
    return _mm_getcsr() & ~0x3Fu;
}

static void set_mode(unsigned mode)
{
    _mm_setcsr(mode);
}

#elif defined(__aarch64__)

static const unsigned modes[] = {1u << 24, 1u << 22, 2u << 22, 3u << 22 | 1u << 24};

static unsigned mode_now(void)
{
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return (unsigned)mode;
}

static void set_mode(unsigned mode)
{
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)mode));
}

#else

static const unsigned modes[] = {0};

static unsigned mode_now(void)
{
    return 0;
}

static void set_mode(unsigned mode)
{
    (void)mode;
}

#endif

/* Values over all exponents, a third of them subnormal; in each of the three formats.  */
static uint32_t values[FP8Q_N_FLOATS][ROWS * N];
static uint8_t codes[N];

static void make_values(void)
{
    uint64_t seed = 7;

    for (size_t i = 0; i < ROWS * N; i++) {
        uint32_t bits = (uint32_t)random_u64(&seed);
        uint32_t f32 = i % 3 ? bits : bits & 0x807FFFFF;
        if ((f32 & 0x7F800000) == 0x7F800000)
            f32 &= 0xBFFFFFFF;
        uint16_t bf16 = (uint16_t)(f32 >> 16), f16 = (uint16_t)(bits & 0xBBFF);
        values[FP8Q_FLOAT_F32][i] = f32;
        memcpy((char *)values[FP8Q_FLOAT_BF16] + 2 * i, &bf16, 2);
        memcpy((char *)values[FP8Q_FLOAT_F16] + 2 * i, &f16, 2);
        codes[i % N] = (uint8_t)(i % N % 127 | (bits & 0x80));
    }
}

/* Everything that a kernel computes, for scales from the smallest on.  */
struct results {
    uint8_t encoded[FP8Q_N_FLOATS][3][N];
    uint8_t block[FP8Q_N_FLOATS][3][ROWS * N];
    uint32_t block_amax[FP8Q_N_FLOATS];
    char decoded[FP8Q_N_FLOATS][3][4 * N];
    float wide[FP8Q_N_FLOATS][N];
    uint32_t amax[FP8Q_N_FLOATS];
    size_t broken[FP8Q_N_FLOATS][3];
    struct fp8q_error_sums sums[FP8Q_N_FLOATS][3];
    float scales[N][2];
};

static void compute(const struct fp8q_kernel *k, struct results *r)
{
    static const float scales[] = {0x1p-126f, 0x1.8p-130f, 0x1.24p-7f};

    memset(r, 0, sizeof(*r));
    for (int f = 0; f < FP8Q_N_FLOATS; f++) {
        k->to_f32[f](r->wide[f], values[f], N);
        r->amax[f] = k->amax_bits[f](values[f], N);
        r->block_amax[f] = k->amax_rows[f](values[f], ROWS, N, N);
        for (int s = 0; s < 3; s++) {
            k->encode[f](r->encoded[f][s], values[f], N, scales[s]);
            k->encode_rows[f](r->block[f][s], values[f], ROWS, N, N, scales[s]);
            k->decode[f](r->decoded[f][s], codes, N, scales[s]);
            r->broken[f][s] = k->check[f](values[f], codes, N, scales[s], 1, &r->sums[f][s]);
        }
    }
    for (size_t i = 0; i < N; i++) {
        float amax;
        uint32_t bits = values[FP8Q_FLOAT_F32][i] & 0x7FFFFFFF;
        (void)fp8q_amax_value(FP8Q_FLOAT_F32, bits, &amax);
        r->scales[i][0] = fp8q_scale(amax, FP8Q_SCALE_F32);
        r->scales[i][1] = fp8q_scale(amax, FP8Q_SCALE_UE8M0);
    }
}

static void every_kernel_in_every_mode(void **state)
{
    (void)state;
    struct results *expected = malloc(sizeof(*expected)), *found = malloc(sizeof(*found));
    unsigned before = mode_now();

    for (size_t i = 0; fp8q_kernels[i]; i++) {
        if (!fp8q_kernels[i]->usable())
            continue;
        compute(fp8q_kernels[i], expected);
        for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++) {
            set_mode(modes[m]);
            unsigned set = mode_now();
            compute(fp8q_kernels[i], found);
            unsigned after = mode_now();
            set_mode(before);
            assert_int_equal(after, set);
            if (memcmp(expected, found, sizeof(*found)) != 0)
                fail_msg("%s: other results in mode 0x%x", fp8q_kernels[i]->name, modes[m]);
        }
    }
    free(expected);
    free(found);
}

/* Threads begin in the mode of who starts them.  */
static int subnormal_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    (void)worker;
    (void)err;
    volatile float half = 0x1p-127f, two = 2;
    ((float *)ctx)[task] = half / two;
    return FP8Q_OK;
}

static void a_pool_computes_in_the_default_mode(void **state)
{
    (void)state;
    unsigned before = mode_now();

    for (size_t m = 0; m < sizeof(modes) / sizeof(*modes); m++) {
        float out[16] = {0};
        struct fp8q_error err = {0};
        set_mode(modes[m]);
        unsigned set = mode_now();
        int status = fp8q_pool_run(NULL, 4, 16, subnormal_task, out, &err);
        unsigned after = mode_now();
        set_mode(before);
        assert_ok(status, &err);
        assert_int_equal(after, set);
        for (size_t i = 0; i < 16; i++)
            assert_true(out[i] == 0x1p-128f);
    }
}

/* Power-of-two scales near the end of F32: what is read back must stay finite.  */
static void scales_that_overflow_are_found(void **state)
{
    (void)state;
    static const struct {
        float amax;
        bool ue8m0, f32;
    } cases[] = {{0x1.FFFFFEp127f, true, false},
                 {0x1.FEp127f, true, false},
                 {0x1.F00002p127f, true, false},
                 {0x1.Fp127f, true, false},
                 {0x1.EFFFFEp127f, false, false},
                 {0x1p127f, false, false},
                 {0x1.FFFFFEp126f, false, false},
                 {1, false, false},
                 {0, false, false}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        float amax = cases[i].amax;
        if (fp8q_scale_overflows(amax, fp8q_scale(amax, FP8Q_SCALE_UE8M0)) != cases[i].ue8m0 ||
            fp8q_scale_overflows(amax, fp8q_scale(amax, FP8Q_SCALE_F32)) != cases[i].f32)
            fail_msg("%a", (double)amax);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_in_every_mode),
        cmocka_unit_test(a_pool_computes_in_the_default_mode),
        cmocka_unit_test(scales_that_overflow_are_found),
    };
    make_values();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
