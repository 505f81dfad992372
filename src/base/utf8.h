/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.h - one character of UTF-8 at a time, strictly.
 */
#ifndef FP8Q_UTF8_H
#define FP8Q_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decodes one character of at most @len bytes (surrogates, overlong forms and values beyond
 * U+10FFFF are refused).  Returns its length in bytes, 0 if the bytes are not UTF-8 or @len is 0.
 */
size_t fp8q_utf8_decode(const char *text, size_t len, uint32_t *cp_out);
/* Writes one scalar value as 1..4 bytes and returns their number.  */
size_t fp8q_utf8_encode(char dst[4], uint32_t cp);
/* Whether all of a text is UTF-8.  */
bool fp8q_utf8_is_valid(const char *text);

#endif
