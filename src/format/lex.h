/* SPDX-License-Identifier: Apache-2.0
 *
 * lex.h - the one JSON lexer: RFC 8259 to the letter, without recursion and without a tree.
 *
 * The tensor header, the index and the gate in front of cJSON all read through it, so that one text
 * cannot mean two things.  It knows no schema; callers walk objects and arrays with the functions
 * below and skip what they do not need.
 */
#ifndef FP8Q_LEX_H
#define FP8Q_LEX_H

#include "base/text.h"

/* Zero it and set text, len, what, max_depth, err; then call fp8q_lex_utf8() once.  */
struct fp8q_lex {
    const char *text;
    size_t len, pos;
    const char *what;   /* names the file in messages */
    unsigned max_depth; /* levels of objects and arrays */
    bool header;        /* messages say "header byte N" instead of line and column */
    bool python;        /* NaN, Infinity and -Infinity are numbers too */
    bool no_nul;        /* U+0000 in a string is an error (fp8q_lex_value() only) */
    struct fp8q_error *err;
};

/* A string as it stands in the text, without its quotes; escapes are checked but not decoded.  */
struct fp8q_lex_str {
    size_t begin, len;
    bool escaped, has_nul;
};

enum fp8q_lex_number { FP8Q_LEX_U64, FP8Q_LEX_NOT_U64, FP8Q_LEX_TOO_LARGE };

/* FP8Q_E_FORMAT with the file and the place of @pos before the text of @fmt.  */
int fp8q_lex_fail(const struct fp8q_lex *lex, size_t pos, const char *id, const char *fmt, ...)
    FP8Q_PRINTF(4, 5);
/* "json" error: @expected was expected at @pos; says what stands there.  */
int fp8q_lex_unexpected(const struct fp8q_lex *lex, size_t pos, const char *expected);

/* The whole text is UTF-8.  Everything below relies on it.  */
int fp8q_lex_utf8(struct fp8q_lex *lex);

/* Next byte after white space, which is skipped; -1 at the end.  */
int fp8q_lex_peek(struct fp8q_lex *lex);
/* Skips white space and then @c, if that is what follows.  */
bool fp8q_lex_take(struct fp8q_lex *lex, char c);
/* Nothing but white space is left.  */
int fp8q_lex_end(struct fp8q_lex *lex);

int fp8q_lex_string(struct fp8q_lex *lex, struct fp8q_lex_str *str_out);

/* Walk an object whose '{' (an array whose '[') has been taken: 1 = a member follows, its key and
 * colon are read (an item follows); 0 = the closing bracket has been taken; negative = error.
 * @first is true before the first call.  */
int fp8q_lex_member(struct fp8q_lex *lex, bool *first, struct fp8q_lex_str *key_out);
int fp8q_lex_item(struct fp8q_lex *lex, bool *first);

/* Reads a value that should be an unsigned decimal integer; anything else stays unread.  */
enum fp8q_lex_number fp8q_lex_u64(struct fp8q_lex *lex, uint64_t *value_out);
/* Some bytes of what stands at the position, for "found ..." in a message.  */
const char *fp8q_lex_found(struct fp8q_lex *lex, struct fp8q_shown *buf);

/* Reads a whole value that lies in @depth open objects or arrays.  With @unique_keys equal keys in
 * one object are an error ("dup-key"); costs memory for the keys of the open objects.  */
int fp8q_lex_value(struct fp8q_lex *lex, unsigned depth, bool unique_keys);

/* Decodes into @dst, which needs room for @str.len bytes; returns the bytes written.  */
size_t fp8q_lex_decode(const struct fp8q_lex *lex, struct fp8q_lex_str str, char *dst);
/* The decoded string is @literal.  */
bool fp8q_lex_is(const struct fp8q_lex *lex, struct fp8q_lex_str str, const char *literal);

/* ---- equal names, in n log n whatever the names are ------------------------------------------ */

struct fp8q_lex_name {
    uint64_t hash;
    const char *bytes;
    size_t len;
    size_t index; /* the caller's */
};
uint64_t fp8q_lex_hash(const char *bytes, size_t len);
/* Sorts by (hash, bytes, index), so that equal names are neighbours.  */
void fp8q_lex_sort_names(struct fp8q_lex_name *names, size_t count);
bool fp8q_lex_same_name(const struct fp8q_lex_name *a, const struct fp8q_lex_name *b);
/* Sorts them, and gives one that stands there twice: the later of the two; NULL if there is none.  */
const struct fp8q_lex_name *fp8q_lex_find_twin(struct fp8q_lex_name *names, size_t count);

/* Keys of all open objects, outermost first; fp8q_lex_value() keeps them.  */
struct fp8q_lex_keys {
    struct fp8q_lex_str *keys;
    size_t count, cap;
};
/* Takes the keys of the object that began at number @from off the stack; none may stand twice.  */
int fp8q_lex_check_keys(struct fp8q_lex *lex, struct fp8q_lex_keys *stack, size_t from);

#endif
