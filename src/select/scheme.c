/* SPDX-License-Identifier: Apache-2.0
 *
 * scheme.c - the schemes by name, and which of them are asked for.
 */
#include "select/scheme.h"

#include <string.h>
#include <strings.h>

const char *const fp8q_scheme_names[] = {
    [FP8Q_SCHEME_BLOCK] = "FP8_BLOCK",   [FP8Q_SCHEME_CHANNEL] = "FP8_DYNAMIC",
    [FP8Q_SCHEME_TENSOR] = "FP8",        [FP8Q_SCHEME_GROUP] = "MXFP8",
    [FP8Q_SCHEME_STATIC] = "FP8_STATIC", NULL};

size_t fp8q_scheme_item(const char *item, enum fp8q_scheme *scheme_out)
{
    const char *name = strrchr(item, '=');

    for (unsigned i = 0; name && fp8q_scheme_names[i]; i++)
        if (strcasecmp(fp8q_scheme_names[i], name + 1) == 0) {
            *scheme_out = (enum fp8q_scheme)i;
            return (size_t)(name - item);
        }
    return 0;
}

enum fp8q_scheme fp8q_scheme_of_weights(enum fp8q_scheme scheme)
{
    return scheme == FP8Q_SCHEME_STATIC ? FP8Q_SCHEME_TENSOR : scheme;
}

bool fp8q_asks_for_scheme(const struct fp8q_select_options *o, enum fp8q_scheme scheme)
{
    enum fp8q_scheme own;

    for (size_t i = 0; i < o->n_schemes; i++)
        if (fp8q_scheme_item(o->schemes[i], &own) && own == scheme)
            return true;
    return o->scheme == scheme;
}

bool fp8q_asks_for_schemes(const struct fp8q_select_options *o)
{
    enum fp8q_scheme own;

    for (size_t i = 0; i < o->n_schemes; i++)
        if (fp8q_scheme_item(o->schemes[i], &own) && own != o->scheme)
            return true;
    return false;
}
