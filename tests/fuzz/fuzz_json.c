/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_json.c - gate, cJSON and splice.  What the gate passes, cJSON parses; what the splice makes
 * passes the gate again and differs from its input in the members asked for and in nothing else.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "format/json.h"

static const char added[] = "fp8q";
static const char value[] = "{\n  \"a\": [\n    1,\n    {}\n  ],\n  \"b\": \"x\"\n}";

static struct fp8q_json *parse(const char *text, size_t len)
{
    struct fp8q_json *json;
    struct fp8q_error err = {0};
    int status = fp8q_json_parse(text, len, FP8Q_JSON_PYTHON, "input", &json, &err);
    if (status != FP8Q_OK)
        fprintf(stderr, "%s\n", err.message);
    FUZZ_REQUIRE(status == FP8Q_OK);
    return json;
}

/* Recursion is bounded by the gate: 128 levels.  */
static void require_equal(const struct fp8q_json *a, const struct fp8q_json *b)
{
    static const char none[] = "\x01";
    const char *key_a = fp8q_json_key(a), *key_b = fp8q_json_key(b);
    FUZZ_REQUIRE(!key_a == !key_b && (!key_a || strcmp(key_a, key_b) == 0));
    FUZZ_REQUIRE(fp8q_json_is_object(a) == fp8q_json_is_object(b));
    FUZZ_REQUIRE(fp8q_json_is_array(a) == fp8q_json_is_array(b));
    FUZZ_REQUIRE(fp8q_json_is_null(a) == fp8q_json_is_null(b));
    FUZZ_REQUIRE(fp8q_json_bool(a, false) == fp8q_json_bool(b, false));
    FUZZ_REQUIRE(fp8q_json_bool(a, true) == fp8q_json_bool(b, true));
    FUZZ_REQUIRE(strcmp(fp8q_json_string(a, none), fp8q_json_string(b, none)) == 0);
    double x = fp8q_json_number(a, -1.25), y = fp8q_json_number(b, -1.25);
    FUZZ_REQUIRE(memcmp(&x, &y, sizeof(x)) == 0);
    const struct fp8q_json *c = fp8q_json_first(a), *d = fp8q_json_first(b);
    for (; c && d; c = fp8q_json_next(c), d = fp8q_json_next(d))
        require_equal(c, d);
    FUZZ_REQUIRE(!c && !d);
}

/* Members of @after = those of @before without the key @removed (and without @added), then @added.
 */
static void require_edit(const struct fp8q_json *before, const struct fp8q_json *after,
                         const char *removed)
{
    const struct fp8q_json *b = fp8q_json_first(after);
    for (const struct fp8q_json *a = fp8q_json_first(before); a; a = fp8q_json_next(a)) {
        if (strcmp(fp8q_json_key(a), removed) == 0 || strcmp(fp8q_json_key(a), added) == 0)
            continue;
        FUZZ_REQUIRE(b);
        require_equal(a, b);
        b = fp8q_json_next(b);
    }
    FUZZ_REQUIRE(b && strcmp(fp8q_json_key(b), added) == 0 && !fp8q_json_next(b));
    FUZZ_REQUIRE(fp8q_json_count(fp8q_json_get(b, "a")) == 2);
    FUZZ_REQUIRE(strcmp(fp8q_json_string(fp8q_json_get(b, "b"), ""), "x") == 0);
}

static void splice(const char *text, size_t len, const char *remove, const char *nested,
                   const char *key, struct fp8q_text *out)
{
    const char *const removes[] = {remove, NULL}, *const nesteds[] = {nested, NULL};
    struct fp8q_error err = {0};
    struct fp8q_splice splice = {.text = text,
                                 .len = len,
                                 .what = "input",
                                 .remove = removes,
                                 .remove_nested = nesteds,
                                 .key = key,
                                 .value = value};
    int status = fp8q_json_splice(&splice, out, &err);
    FUZZ_REQUIRE(status == FP8Q_OK);
    status = fp8q_json_check(out->data, out->len, FP8Q_JSON_PYTHON, "spliced", &err);
    if (status != FP8Q_OK)
        fprintf(stderr, "%s\n%s\n", err.message, out->data);
    FUZZ_REQUIRE(status == FP8Q_OK);
}

/* Takes @name out and puts the new member in.  */
static void try_remove(const char *text, size_t len, const struct fp8q_json *json, const char *name)
{
    struct fp8q_text out = {0};
    splice(text, len, name, NULL, added, &out);
    struct fp8q_json *after = parse(out.data, out.len);
    require_edit(json, after, name);
    fp8q_json_free(after);
    fp8q_text_reset(&out);
}

/* Putting the member in and taking it out again gives the same bytes.  */
static void try_undo(const char *text, size_t len)
{
    struct fp8q_text with = {0}, without = {0};
    splice(text, len, NULL, NULL, added, &with);
    splice(with.data, with.len, added, NULL, NULL, &without);
    FUZZ_REQUIRE(without.len == len && memcmp(without.data, text, len) == 0);
    fp8q_text_reset(&with);
    fp8q_text_reset(&without);
}

/* Takes "outer.inner" out: that member is gone, its neighbours and the others are the same.  */
static void try_nested(const char *text, size_t len, const struct fp8q_json *json,
                       const struct fp8q_json *outer)
{
    struct fp8q_text path = {0}, out = {0};
    const char *outer_key = fp8q_json_key(outer),
               *inner_key = fp8q_json_key(fp8q_json_first(outer));
    if (!inner_key || strchr(outer_key, '.') || strchr(inner_key, '.'))
        return;
    fp8q_text_printf(&path, "%s.%s", outer_key, inner_key);
    splice(text, len, NULL, path.data, NULL, &out);
    struct fp8q_json *after = parse(out.data, out.len);
    const struct fp8q_json *b = fp8q_json_first(after);
    for (const struct fp8q_json *a = fp8q_json_first(json); a; a = fp8q_json_next(a)) {
        FUZZ_REQUIRE(b);
        if (a != outer) {
            require_equal(a, b);
        } else {
            const struct fp8q_json *c = fp8q_json_next(fp8q_json_first(a)), *d = fp8q_json_first(b);
            FUZZ_REQUIRE(fp8q_json_is_object(b));
            for (; c && d; c = fp8q_json_next(c), d = fp8q_json_next(d))
                require_equal(c, d);
            FUZZ_REQUIRE(!c && !d);
        }
        b = fp8q_json_next(b);
    }
    FUZZ_REQUIRE(!b);
    fp8q_json_free(after);
    fp8q_text_reset(&path);
    fp8q_text_reset(&out);
}

static void try_splices(const char *text, size_t len, const struct fp8q_json *json)
{
    size_t n = 0;
    if (!fp8q_json_is_object(json))
        return;
    try_remove(text, len, json, "no such member");
    if (fp8q_json_first(json) && !fp8q_json_get(json, added))
        try_undo(text, len);
    for (const struct fp8q_json *m = fp8q_json_first(json); m && n < 8;
         m = fp8q_json_next(m), n++) {
        try_remove(text, len, json, fp8q_json_key(m));
        try_nested(text, len, json, m);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    struct fp8q_error err = {0};
    int strict = fp8q_json_check(text, size, 0, "input", &err);
    int python = fp8q_json_check(text, size, FP8Q_JSON_PYTHON, "input", &err);
    FUZZ_REQUIRE(strict == FP8Q_OK || strict == FP8Q_E_FORMAT);
    FUZZ_REQUIRE(python == FP8Q_OK || (strict == FP8Q_E_FORMAT && err.id[0]));
    if (python == FP8Q_OK) {
        struct fp8q_json *json = parse(text, size);
        try_splices(text, size, json);
        fp8q_json_free(json);
    }
    return 0;
}
