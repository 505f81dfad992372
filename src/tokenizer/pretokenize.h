/* SPDX-License-Identifier: Apache-2.0
 *
 * pretokenize.h - the "normalizer" and "pre_tokenizer" of a tokenizer.json: text -> pieces.
 */
#ifndef FP8Q_PRETOKENIZE_H
#define FP8Q_PRETOKENIZE_H

#include "format/json.h"

#define FP8Q_MAX_SPLITS 16

/* One regular expression that cuts text.  Matches and the gaps between them become pieces.  */
struct fp8q_split {
    void *code;        /* pcre2_code */
    bool drop_matches; /* Removed */
    bool drop_gaps;    /* Removed with "invert": only matches stay */
};

struct fp8q_pretokenizer {
    bool nfc;
    struct fp8q_split
        splits[FP8Q_MAX_SPLITS]; /* applied in turn, each to the pieces of the one before */
    size_t n_splits;
};

/* Reads both members of the tokenizer's root object.  On failure @pre is reset.  */
int fp8q_pretokenizer_init(struct fp8q_pretokenizer *pre, const struct fp8q_json *root,
                           const char *what, struct fp8q_error *err);
void fp8q_pretokenizer_reset(struct fp8q_pretokenizer *pre);

/* NFC of valid UTF-8, or the text itself where nothing changes: then *@owned_out is NULL, else
 * it must be freed.  Without a normalizer this is the identity.  */
int fp8q_normalize(const struct fp8q_pretokenizer *pre, const char *text, size_t len,
                   const char **text_out, size_t *len_out, char **owned_out,
                   struct fp8q_error *err);

/* Match memory of one encoding: one for each thread.  */
struct fp8q_splitter {
    const struct fp8q_pretokenizer *pre;
    void *match[FP8Q_MAX_SPLITS]; /* pcre2_match_data */
    void *context;                /* pcre2_match_context */
};
int fp8q_splitter_init(struct fp8q_splitter *splitter, const struct fp8q_pretokenizer *pre,
                       struct fp8q_error *err);
void fp8q_splitter_reset(struct fp8q_splitter *splitter);

/* Calls @piece for every non-empty piece of valid UTF-8, in order.  */
typedef int fp8q_piece_fn(void *ctx, const char *piece, size_t len, struct fp8q_error *err);
int fp8q_splitter_run(struct fp8q_splitter *splitter, const char *text, size_t len,
                      fp8q_piece_fn *piece, void *ctx, struct fp8q_error *err);

#endif
