/* SPDX-License-Identifier: Apache-2.0
 *
 * endian_check.h - safetensors data is little-endian, and is read as the machine's own numbers.
 */
#ifndef FP8Q_ENDIAN_CHECK_H
#define FP8Q_ENDIAN_CHECK_H

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fp8q needs a little-endian machine");

#endif
