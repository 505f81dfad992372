/* SPDX-License-Identifier: Apache-2.0
 *
 * added.h - added and special tokens, which are cut out of the text before anything else happens.
 */
#ifndef FP8Q_ADDED_H
#define FP8Q_ADDED_H

#include "tokenizer/bpe.h"
#include "tokenizer/normalize.h"

struct fp8q_added_token {
    char *text; /* owned */
    size_t len;
    int32_t id;
    uint32_t order;      /* in the file: the first of two equal texts wins */
    bool lstrip, rstrip; /* takes white space on that side with it */
};

/* Tokens sorted by text; matching walks the sorted list as if it were a trie.  */
struct fp8q_added {
    struct fp8q_added_token *tokens;
    size_t count;
    bool first_byte[256];
};

/* Two sets: matched in the text as it is, and in the normalised text.  */
struct fp8q_added_sets {
    struct fp8q_added raw, normalized;
    int32_t max_id;
};
int fp8q_added_init(struct fp8q_added_sets *sets, const struct fp8q_json *list,
                    const struct fp8q_bpe *bpe, const struct fp8q_normalizer *normalizer,
                    const char *what, struct fp8q_error *err);
void fp8q_added_reset(struct fp8q_added_sets *sets);

/* The first token at or after @from, the longest of those that begin there; NULL if there is none.
 * The text before *@begin_out is plain, the search goes on at *@end_out.  */
const struct fp8q_added_token *fp8q_added_next(const struct fp8q_added *added, const char *text,
                                               size_t len, size_t from, size_t *begin_out,
                                               size_t *end_out);

#endif
