/* SPDX-License-Identifier: Apache-2.0
 *
 * lex_names.c - names that must not stand twice: keys of an object, tensors of a file.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/lex.h"

uint64_t fp8q_lex_hash(const char *bytes, size_t len)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325); /* FNV-1a; collisions only cost a comparison */
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001B3);
    return hash;
}

static int compare_names(const void *a, const void *b)
{
    const struct fp8q_lex_name *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;

    int order = memcmp(x->bytes, y->bytes, x->len);
    if (order)
        return order;
    return x->index < y->index ? -1 : x->index > y->index;
}

void fp8q_lex_sort_names(struct fp8q_lex_name *names, size_t count)
{
    if (count)
        qsort(names, count, sizeof(*names), compare_names);
}

bool fp8q_lex_same_name(const struct fp8q_lex_name *a, const struct fp8q_lex_name *b)
{
    return a->hash == b->hash && a->len == b->len && memcmp(a->bytes, b->bytes, a->len) == 0;
}

const struct fp8q_lex_name *fp8q_lex_find_twin(struct fp8q_lex_name *names, size_t count)
{
    fp8q_lex_sort_names(names, count);
    for (size_t i = 1; i < count; i++)
        if (fp8q_lex_same_name(&names[i - 1], &names[i]))
            return &names[i];
    return NULL;
}

/* ---- keys of an object ----------------------------------------------------------------------- */

/* @names has room for all of them, @decoded for those with escapes.  */
static int compare_keys(struct fp8q_lex *lex, const struct fp8q_lex_str *keys, size_t count,
                        struct fp8q_lex_name *names, char *decoded)
{
    struct fp8q_shown shown;
    size_t used = 0;

    for (size_t i = 0; i < count; i++) {
        names[i].bytes = lex->text + keys[i].begin;
        names[i].len = keys[i].len;
        if (keys[i].escaped) {
            names[i].bytes = decoded + used;
            names[i].len = fp8q_lex_decode(lex, keys[i], decoded + used);
            used += names[i].len;
        }
        names[i].hash = fp8q_lex_hash(names[i].bytes, names[i].len);
        names[i].index = i;
    }

    const struct fp8q_lex_name *twice = fp8q_lex_find_twin(names, count);
    if (!twice)
        return FP8Q_OK;
    return fp8q_lex_fail(lex, keys[twice->index].begin, "dup-key",
                         "duplicate key \"%s\" in one object",
                         fp8q_show_n(&shown, twice->bytes, twice->len));
}

int fp8q_lex_check_keys(struct fp8q_lex *lex, struct fp8q_lex_keys *stack, size_t from)
{
    size_t count = stack->count - from, bytes = 0;

    /* The object has ended: its keys leave the stack, and stay readable until the next is pushed.  */
    stack->count = from;
    if (count < 2)
        return FP8Q_OK;

    const struct fp8q_lex_str *keys = stack->keys + from;
    /* Names are compared decoded: "\u0061" is "a".  */
    for (size_t i = 0; i < count; i++)
        bytes += keys[i].escaped ? keys[i].len : 0;

    struct fp8q_lex_name *names = fp8q_array(count, sizeof(*names));
    char *decoded = fp8q_array(bytes, 1);
    int status = names && decoded ? compare_keys(lex, keys, count, names, decoded)
                                  : fp8q_fail_nomem(lex->err);

    free(decoded);
    free(names);
    return status;
}
