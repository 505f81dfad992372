/* SPDX-License-Identifier: Apache-2.0
 *
 * pretokenize.h - the "pre_tokenizer" of a tokenizer.json: text -> pieces.
 */
#ifndef FP8Q_PRETOKENIZE_H
#define FP8Q_PRETOKENIZE_H

#include "format/json.h"

#define FP8Q_MAX_SPLITS 16

/* U+2581, what SentencePiece writes for a space.  */
#define FP8Q_METASPACE "\xE2\x96\x81"

/* What becomes of matches and of the gaps between them.  */
enum fp8q_behavior {
    FP8Q_ISOLATED, /* pieces, both */
    FP8Q_REMOVED,  /* matches go */
    FP8Q_MERGED_WITH_PREVIOUS,
    FP8Q_MERGED_WITH_NEXT,
    FP8Q_CONTIGUOUS, /* adjacent matches are one piece */
    FP8Q_N_BEHAVIORS
};
enum fp8q_prepend { FP8Q_PREPEND_NEVER, FP8Q_PREPEND_FIRST, FP8Q_PREPEND_ALWAYS };

/* One step that cuts text.  */
struct fp8q_split {
    void *code; /* pcre2_code */
    enum fp8q_behavior behavior;
    bool invert; /* gaps count as matches */
    bool metaspace;
    enum fp8q_prepend prepend; /* with @metaspace */
    bool whole;                /* with @metaspace: no cut */
};

struct fp8q_pretokenizer {
    struct fp8q_split splits[FP8Q_MAX_SPLITS]; /* in turn, each on the pieces of the one before */
    size_t n_splits;
    bool byte_level; /* the vocabulary spells bytes (bytelevel.h), not characters */
};

/* Reads the member "pre_tokenizer" of the tokenizer's root object.  FP8Q_E_UNSUPPORTED names what
 * is not computed.  On failure @pre is reset.  */
int fp8q_pretokenizer_init(struct fp8q_pretokenizer *pre, const struct fp8q_json *root,
                           const char *what, struct fp8q_error *err);
void fp8q_pretokenizer_reset(struct fp8q_pretokenizer *pre);

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
struct fp8q_stretch {
    const char *text;
    size_t len;
    bool first; /* it begins where the input begins */
};
int fp8q_splitter_run(struct fp8q_splitter *splitter, const struct fp8q_stretch *stretch,
                      fp8q_piece_fn *piece, void *ctx, struct fp8q_error *err);

#endif
