/* SPDX-License-Identifier: Apache-2.0
 *
 * grammar.h - bytes as a spelling of a checkpoint: the grammar of fuzz_grammar.c.
 */
#ifndef FP8Q_TESTS_GRAMMAR_H
#define FP8Q_TESTS_GRAMMAR_H

#include "support/maker.h"

/* The input as a source of choices; 0 when it has ended, so that short inputs are plain ones.  */
struct input {
    const uint8_t *data;
    size_t size;
};
unsigned next(struct input *in);
/* Below @n.  */
unsigned choose(struct input *in, unsigned n);

#define PICK(in, array) ((array)[choose(in, sizeof(array) / sizeof(*(array)))])

/* What the values of a tensor are.  */
enum values {
    VALUES_NORMAL,
    VALUES_ZERO,
    VALUES_RANDOM_BITS,
    VALUES_LARGEST,
    VALUES_TINY,
    VALUES_ONE_NAN,
    N_VALUES
};

enum { MOST_TENSORS = 40 };

struct made {
    struct maker maker;
    enum values values[MOST_TENSORS];
    uint64_t state;
};

/* The text of a config.json, to be freed; NULL: there is none.  */
char *make_config(struct input *in);
/* Tensors in up to three shards.  @made must be zeroed, and stay where it is.  */
void make_tensors(struct input *in, struct made *made);

#endif
