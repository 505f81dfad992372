/* SPDX-License-Identifier: Apache-2.0
 *
 * caller.c - takes over a struct by the size that its caller gave it.
 */
#include "base/caller.h"

#include <string.h>

int fp8q_struct_copy(void *to, size_t to_size, const void *from, const char *name,
                     struct fp8q_error *err)
{
    size_t size;
    if (!from)
        return fp8q_fail(err, FP8Q_E_ARG, "null-argument", "struct fp8q_%s: is NULL", name);

    /* Every such struct begins with its size.  */
    memcpy(&size, from, sizeof(size));
    if (size < sizeof(size))
        return fp8q_fail(err, FP8Q_E_ARG, "struct-size",
                         "struct fp8q_%s: its size is %zu: call fp8q_%s_init() before it is filled "
                         "in",
                         name, size, name);
    if (size > to_size)
        return fp8q_fail(err, FP8Q_E_ARG, "struct-size",
                         "struct fp8q_%s: has %zu bytes, this library (%s) knows %zu: the program "
                         "was built with a newer header",
                         name, size, FP8Q_VERSION, to_size);

    /* Of an older, shorter struct the members that it lacks stay as they were in @to.  */
    memcpy(to, from, size);
    memcpy(to, &to_size, sizeof(to_size));
    return FP8Q_OK;
}
