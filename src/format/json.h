/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h - strict JSON: a gate that checks the text to the letter, then cJSON behind getters.
 *
 * cJSON alone accepts what it should not (see docs/reference/format.md), so no text reaches it that
 * fp8q_json_check() has not passed.  Nothing outside json.c includes cJSON.h.
 */
#ifndef FP8Q_JSON_H
#define FP8Q_JSON_H

#include "base/text.h"

enum fp8q_json_flags {
    FP8Q_JSON_PYTHON = 1 /* also NaN, Infinity and -Infinity, which Python's json.dump writes */
};

/* RFC 8259 grammar, UTF-8, no raw control characters, no lone surrogates, no U+0000 in keys or
 * strings, depth <= 128, no two equal keys (after decoding) in one object, nothing but white space
 * after the value.  No recursion.  @what names the file; the message gives line and column.  */
int fp8q_json_check(const char *text, size_t len, unsigned flags, const char *what,
                    struct fp8q_error *err);

/* A parsed document.  Values are borrowed from it; every getter accepts NULL and wrong types and
 * then returns the fallback, so that optional keys need no checks.  Non-finite numbers read as
 * null.  */
struct fp8q_json; /* = struct cJSON, kept opaque */

int fp8q_json_parse(const char *text, size_t len, unsigned flags, const char *what,
                    struct fp8q_json **json_out, struct fp8q_error *err);
void fp8q_json_free(struct fp8q_json *json);

bool fp8q_json_is_object(const struct fp8q_json *value);
bool fp8q_json_is_array(const struct fp8q_json *value);
bool fp8q_json_is_null(const struct fp8q_json *value);
/* Member by exact, case-sensitive name; linear, so never in a loop over names of a file.  */
const struct fp8q_json *fp8q_json_get(const struct fp8q_json *object, const char *name);
/* Walks nested objects: fp8q_json_path(config, "text_config.rope_parameters.rope_type").  */
const struct fp8q_json *fp8q_json_path(const struct fp8q_json *object, const char *path);
/* The first member called @name of any object in @value, however deep, that comes after @after in
 * the text; from the beginning if @after is NULL.  NULL if there is none.  Configs of models nest as
 * they like: what holds for "quantization_config" holds wherever it stands.  */
const struct fp8q_json *fp8q_json_find(const struct fp8q_json *value, const char *name,
                                       const struct fp8q_json *after);
/* Iteration over an object's or array's children: first(NULL-safe), then next until NULL.  */
const struct fp8q_json *fp8q_json_first(const struct fp8q_json *value);
const struct fp8q_json *fp8q_json_next(const struct fp8q_json *value);
size_t fp8q_json_count(const struct fp8q_json *value);
const char *fp8q_json_key(const struct fp8q_json *member); /* NULL for an array's items */

const char *fp8q_json_string(const struct fp8q_json *value, const char *fallback);
bool fp8q_json_bool(const struct fp8q_json *value, bool fallback);
double fp8q_json_number(const struct fp8q_json *value, double fallback);
/* Whether @array holds the string @text.  */
bool fp8q_json_has_string(const struct fp8q_json *array, const char *text);
/* A non-negative integer below 2^53; false for anything else (fractions, negative, too large,
 * absent).  */
bool fp8q_json_uint(const struct fp8q_json *value, uint64_t *out);

/* ---- text splice: changing config.json without printing it again -------------------------- */

/* An edit of a document.  */
struct fp8q_splice {
    const char *text; /* passed fp8q_json_check(), and an object */
    size_t len;
    const char *what;                 /* names it in messages */
    const char *const *remove;        /* top-level members to take out; NULL-terminated, or NULL */
    const char *const *remove_nested; /* likewise "text_config.quantization_config" */
    const char *key;                  /* member to put in as the last one, or NULL */
    const char *value;                /* its value, JSON text */
};

/* Appends the edited document to @out.  The new member is written in the document's own style (line
 * ends, indentation, `", "` when on one line); all bytes that are not edited stay as they are.  */
int fp8q_json_splice(const struct fp8q_splice *splice, struct fp8q_text *out,
                     struct fp8q_error *err);

#endif
