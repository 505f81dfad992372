/* SPDX-License-Identifier: Apache-2.0
 *
 * format.c - sizes and shapes as text, and as JSON.
 */
#include "cli/format.h"

#include <stdio.h>

const char *cli_bytes(char *buf, uint64_t bytes)
{
    /* kB, not KiB: powers of 1000.  */
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 999.5 && unit + 1 < sizeof(units) / sizeof(*units)) {
        value /= 1000;
        unit++;
    }

    snprintf(buf, 32, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
    return buf;
}

const char *cli_shape(char *buf, size_t cap, const uint64_t *shape, uint32_t ndim)
{
    size_t used = (size_t)snprintf(buf, cap, "[");

    /* 32 bytes: a comma, a number of up to 20 digits, and the bracket.  */
    for (uint32_t i = 0; i < ndim && used + 32 < cap; i++)
        used += (size_t)snprintf(buf + used, cap - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)shape[i]);
    snprintf(buf + used, cap - used, "]");
    return buf;
}

void cli_json_type(struct fp8q_jsonw *w, enum fp8q_dtype dtype, const uint64_t *shape,
                   uint32_t ndim)
{
    fp8q_jsonw_string(w, "dtype", fp8q_dtype_name(dtype));
    fp8q_jsonw_open(w, "shape", '[');
    for (uint32_t i = 0; i < ndim; i++)
        fp8q_jsonw_uint(w, NULL, shape[i]);
    fp8q_jsonw_close(w, ']');
}
