/* SPDX-License-Identifier: Apache-2.0
 *
 * mem.h - checked sizes and array allocation.
 *
 * Counts from a file are bounded by that file's size before they come here; these functions guard
 * the products that follow, on 32-bit machines too.
 */
#ifndef FP8Q_MEM_H
#define FP8Q_MEM_H

#include "base/endian_check.h"
#include "base/error.h"

static inline bool fp8q_mul_u64(uint64_t a, uint64_t b, uint64_t *product_out)
{
    return !__builtin_mul_overflow(a, b, product_out);
}

static inline bool fp8q_add_u64(uint64_t a, uint64_t b, uint64_t *sum_out)
{
    return !__builtin_add_overflow(a, b, sum_out);
}

static inline uint64_t fp8q_ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint64_t fp8q_min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t fp8q_max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline size_t fp8q_min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t fp8q_max_size(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Zeroed array of @count items of @size bytes; never NULL for a count of 0.  NULL: no memory or the
 * product does not fit.  Free with free().  */
void *fp8q_array(uint64_t count, size_t size);

/* Makes room for one more item: doubles *@items (@size bytes an item) when @count reached *@cap. */
int fp8q_grow(void *items, size_t count, size_t *cap, size_t size, struct fp8q_error *err);

#endif
