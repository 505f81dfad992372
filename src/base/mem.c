/* SPDX-License-Identifier: Apache-2.0
 *
 * mem.c - checked array allocation.
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

void *fp8q_array(uint64_t count, size_t size)
{
    uint64_t bytes;

    if (!fp8q_mul_u64(count ? count : 1, size, &bytes) || bytes > SIZE_MAX)
        return NULL;

    return calloc(1, (size_t)bytes);
}

int fp8q_grow(void *items, size_t count, size_t *cap, size_t size, struct fp8q_error *err)
{
    void *old, *grown;
    size_t bytes, new_cap = *cap ? *cap : 16;

    if (count < *cap)
        return FP8Q_OK;

    if (*cap && __builtin_mul_overflow(*cap, (size_t)2, &new_cap))
        return fp8q_fail_nomem(err);
    if (__builtin_mul_overflow(new_cap, size, &bytes))
        return fp8q_fail_nomem(err);

    memcpy(&old, items,
           sizeof(old)); /* @items is the address of a T *; copying keeps aliasing rules */

    grown = realloc(old, bytes);
    if (!grown)
        return fp8q_fail_nomem(err);

    memcpy(items, &grown, sizeof(grown));
    *cap = new_cap;
    return FP8Q_OK;
}
