/* SPDX-License-Identifier: Apache-2.0
 *
 * bytelevel.h - GPT-2's mapping between bytes and printable characters, and the hashes of bpe*.c.
 *
 * Bytes 33..126, 161..172 and 174..255 stand for themselves; the other 68, in rising order, are
 * U+0100 to U+0143.
 */
#ifndef FP8Q_BYTELEVEL_H
#define FP8Q_BYTELEVEL_H

#include <stddef.h>
#include <stdint.h>

static inline uint32_t fp8q_byte_to_char(unsigned byte)
{
    if (byte <= 32)
        return 256 + byte;
    if (byte >= 127 && byte <= 160)
        return 256 + 33 + (byte - 127);
    return byte == 173 ? 256 + 67 : byte;
}

static inline int fp8q_char_to_byte(uint32_t cp) /* -1: stands for no byte */
{
    if (cp >= 256 && cp <= 256 + 67) {
        uint32_t n = cp - 256;
        if (n <= 32)
            return (int)n;
        return n < 67 ? (int)(n - 33 + 127) : 173;
    }
    return cp < 256 && fp8q_byte_to_char(cp) == cp ? (int)cp : -1;
}

static inline uint64_t fp8q_mix(uint64_t x)
{
    x = (x ^ x >> 32) * 0x9E3779B97F4A7C15;
    return (x ^ x >> 29) * 0xBF58476D1CE4E5B9;
}

/* Slot of a pair in a table of @n_slots (a power of two).  */
static inline size_t fp8q_pair_slot(int32_t left, int32_t right, size_t n_slots)
{
    uint64_t h = fp8q_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right);
    return (size_t)(h >> 32) & (n_slots - 1);
}

#endif
