/* SPDX-License-Identifier: Apache-2.0
 *
 * spellings.h - a list of module names, each with the names that the same module has in the trees of
 * other classes: other prefixes, fused matrices and their parts.
 */
#ifndef FP8Q_SPELLINGS_H
#define FP8Q_SPELLINGS_H

#include "base/error.h"

struct fp8q_spellings {
    char **items;
    size_t count, cap;
    bool of_vlm; /* the decoder `model.layers` is called `model.language_model.layers` elsewhere */
    bool failed; /* no memory: then nothing is added any more, and make_list() says so */
};

/* The first @head_len bytes of @head with @tail behind them.  */
void fp8q_spellings_add(struct fp8q_spellings *list, const char *head, size_t head_len,
                        const char *tail);
/* By bytes, each name once.  */
void fp8q_spellings_sort(struct fp8q_spellings *list);
void fp8q_spellings_reset(struct fp8q_spellings *list);

/* One module name under the other prefixes that the same model's classes use; @is_root: of a tower,
 * which classes keep with and without `model.`.  */
void fp8q_spell_prefixes(struct fp8q_spellings *list, const char *name, bool is_root);
/* The same for the first @len bytes of @text with @tail behind them.  */
void fp8q_spell_joined(struct fp8q_spellings *list, const char *text, size_t len, const char *tail,
                       bool is_root);
/* A module, what engines call the matrix that it is a part of, and the parts of one that is fused
 * on disk.  */
void fp8q_spell_module(struct fp8q_spellings *list, const char *module, bool is_root);

#endif
