/* SPDX-License-Identifier: Apache-2.0
 *
 * format.h - figures as people read them.
 */
#ifndef FP8Q_CLI_FORMAT_H
#define FP8Q_CLI_FORMAT_H

#include <stddef.h>
#include <stdint.h>

/* "3.35 GB" (decimal).  @buf has room for 32 bytes.  */
const char *cli_bytes(char *buf, uint64_t bytes);
/* "[128, 256]", cut where @cap ends.  */
const char *cli_shape(char *buf, size_t cap, const uint64_t *shape, uint32_t ndim);

#endif
