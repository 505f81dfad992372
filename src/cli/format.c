/* SPDX-License-Identifier: Apache-2.0
 *
 * format.c - shapes as text, and as JSON.
 */
#include "cli/format.h"

#include <math.h>
#include <stdio.h>

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

const char *cli_spread(struct cli_spread *buf, int decimals, double se)
{
    buf->text[0] = '\0';
    if (isfinite(se))
        snprintf(buf->text, sizeof(buf->text), " +- %.*f", decimals, se);
    return buf->text;
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
