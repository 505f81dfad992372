/* SPDX-License-Identifier: Apache-2.0
 *
 * float_env.h - the floating-point mode in which results are defined: round to nearest even,
 * subnormals kept, no traps.
 *
 * A host program may have set another one (flush-to-zero is usual where sound or neural networks
 * run), and threads inherit it.  Whoever computes enters the default mode and leaves it again;
 * entering is a read of one register if the mode is right already.  What is computed in between
 * must be in a function that is not inlined, or the compiler could move it out.
 */
#ifndef FP8Q_FLOAT_ENV_H
#define FP8Q_FLOAT_ENV_H

#include <stdint.h>

#if defined(__SSE__)
#include <xmmintrin.h>

#define FP8Q_MXCSR_DEFAULT 0x1F80u
#define FP8Q_MXCSR_FLAGS 0x3Fu /* what has happened, not what is to be done */

static inline uint64_t fp8q_float_env_enter(void)
{
    unsigned mode = _mm_getcsr();

    if (__builtin_expect((mode & ~FP8Q_MXCSR_FLAGS) != FP8Q_MXCSR_DEFAULT, 0))
        _mm_setcsr(FP8Q_MXCSR_DEFAULT);
    return mode;
}

static inline void fp8q_float_env_leave(uint64_t mode)
{
    if (__builtin_expect((mode & ~(uint64_t)FP8Q_MXCSR_FLAGS) != FP8Q_MXCSR_DEFAULT, 0))
        _mm_setcsr((unsigned)mode);
}

#elif defined(__aarch64__)

static inline uint64_t fp8q_float_env_enter(void)
{
    uint64_t mode;

    __asm__ volatile("mrs %0, fpcr" : "=r"(mode)::"memory");
    if (__builtin_expect(mode != 0, 0))
        __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0) : "memory");
    return mode;
}

static inline void fp8q_float_env_leave(uint64_t mode)
{
    if (__builtin_expect(mode != 0, 0))
        __asm__ volatile("msr fpcr, %0" ::"r"(mode) : "memory");
}

#else

static inline uint64_t fp8q_float_env_enter(void)
{
    return 0;
}

static inline void fp8q_float_env_leave(uint64_t mode)
{
    (void)mode;
}

#endif
#endif
