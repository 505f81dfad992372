/* SPDX-License-Identifier: Apache-2.0
 *
 * format.h - shapes and spreads as people read them, and the type of a tensor as --json has it.
 */
#ifndef FP8Q_CLI_FORMAT_H
#define FP8Q_CLI_FORMAT_H

#include "format/jsonw.h"

/* "[128, 256]", cut where @cap ends.  */
const char *cli_shape(char *buf, size_t cap, const uint64_t *shape, uint32_t ndim);
/* " +- 0.001230": the standard error behind a figure; "" where there is none, as of one sample.  */
struct cli_spread {
    char text[32];
};
const char *cli_spread(struct cli_spread *buf, int decimals, double se);
/* Members "dtype" and "shape" of a tensor.  */
void cli_json_type(struct fp8q_jsonw *w, enum fp8q_dtype dtype, const uint64_t *shape,
                   uint32_t ndim);

#endif
