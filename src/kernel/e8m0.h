/* SPDX-License-Identifier: Apache-2.0
 *
 * e8m0.h - scales that are powers of two, by their exponents: E8M0 is the exponent field of an F32.
 */
#ifndef FP8Q_KERNEL_E8M0_H
#define FP8Q_KERNEL_E8M0_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Exponent of the smallest power of two that is not below amax / 448, at least 2^-126; 2^0 for an
 * amax of 0.  @amax_bits: a finite F32 without its sign.
 *
 * 448 = 1.75 * 2^8.  With amax = m * 2^e, 1 <= m < 2, the smallest k with 448 * 2^k >= amax is e -
 * 8 if m <= 1.75 and e - 7 otherwise.  A field below 1 (subnormal amax too) means below 2^-126.  */
static inline uint8_t fp8q_e8m0_of_amax(uint32_t amax_bits)
{
    uint32_t exponent = (amax_bits >> 23) + ((amax_bits & 0x7FFFFF) > 0x600000);
    if (amax_bits == 0)
        return 127;
    return (uint8_t)(exponent <= 8 ? 1 : exponent - 8);
}

/* 2^(code - 127).  The last code is NaN, and the first is the one subnormal.  */
static inline float fp8q_e8m0_value(uint8_t code)
{
    uint32_t bits = code == 0 ? 0x400000 : (uint32_t)code << 23;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return code == 0xFF ? NAN : value;
}

#endif
