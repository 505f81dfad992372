/* SPDX-License-Identifier: Apache-2.0
 *
 * normalize.h - the "normalizer" of a tokenizer.json: NFC, Replace of a string, Prepend, and
 * sequences of them.
 */
#ifndef FP8Q_NORMALIZE_H
#define FP8Q_NORMALIZE_H

#include "base/text.h"
#include "format/json.h"

#define FP8Q_MAX_NORMALIZERS 8

enum fp8q_normalize_kind { FP8Q_NORMALIZE_NFC, FP8Q_NORMALIZE_REPLACE, FP8Q_NORMALIZE_PREPEND };

struct fp8q_normalizer {
    struct {
        enum fp8q_normalize_kind kind;
        char *from, *to;           /* REPLACE both, PREPEND @to; owned */
    } steps[FP8Q_MAX_NORMALIZERS]; /* one after another */
    size_t n_steps;
};

/* Reads the member "normalizer" of the tokenizer's root object.  FP8Q_E_UNSUPPORTED names what is
 * none of the above.  On failure @normalizer is reset.  */
int fp8q_normalizer_init(struct fp8q_normalizer *normalizer, const struct fp8q_json *root,
                         const char *what, struct fp8q_error *err);
void fp8q_normalizer_reset(struct fp8q_normalizer *normalizer);

/* Normal form of valid UTF-8, or the text itself where nothing changes: then *@owned_out is NULL,
 * else it must be freed.  */
int fp8q_normalize(const struct fp8q_normalizer *normalizer, const char *text, size_t len,
                   const char **text_out, size_t *len_out, char **owned_out,
                   struct fp8q_error *err);

#endif
