/* SPDX-License-Identifier: Apache-2.0
 *
 * regex.h - the regular expressions of a tokenizer.json, with the meaning that they have in the
 * `tokenizers` library.
 */
#ifndef FP8Q_REGEX_H
#define FP8Q_REGEX_H

#include "base/error.h"
#include "base/text.h"

/* Appends to @out the expression that PCRE2 (with UTF and UCP) reads as Oniguruma reads @pattern in
 * its Ruby syntax.  What the two read otherwise is rewritten or refused: FP8Q_E_UNSUPPORTED
 * "tokenizer-pattern" names the part.  */
int fp8q_regex_translate(const char *pattern, const char *what, struct fp8q_text *out,
                         struct fp8q_error *err);

/* A compiled pcre2_code, translated first unless it is a @literal; free it with
 * pcre2_code_free().  */
int fp8q_regex_compile(const char *pattern, bool literal, const char *what, void **code_out,
                       struct fp8q_error *err);

#endif
