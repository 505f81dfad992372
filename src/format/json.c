/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - the strict gate, and cJSON behind it.  The splice is in json_splice.c.
 *
 * cJSON sees only text that passed the gate, with what it cannot read (NaN, numbers longer than its
 * 63-byte buffer) replaced in a private copy.  It is never used for printing.
 */
#include "format/json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "format/lex.h"

enum { MAX_DEPTH = 128, CJSON_NUMBER = 63 };

/* ---- gate ---------------------------------------------------------------------------------- */

static struct fp8q_lex open_lex(const char *text, size_t len, unsigned flags, const char *what,
                                struct fp8q_error *err)
{
    return (struct fp8q_lex){.text = text,
                             .len = len,
                             .what = what,
                             .max_depth = MAX_DEPTH,
                             .python = (flags & FP8Q_JSON_PYTHON) != 0,
                             .no_nul = true,
                             .err = err};
}

int fp8q_json_check(const char *text, size_t len, unsigned flags, const char *what,
                    struct fp8q_error *err)
{
    static const char lfs[] = "version https://git-lfs";
    struct fp8q_lex lex = open_lex(text, len, flags, what, err);
    struct fp8q_shown shown;
    /* The usual thing to find instead of a JSON text: say so rather than "expected a value".  */
    if (len >= sizeof(lfs) - 1 && memcmp(text, lfs, sizeof(lfs) - 1) == 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "lfs-pointer",
                         "%s: is a Git LFS pointer; run \"git lfs pull\"", fp8q_show(&shown, what));

    FP8Q_TRY(fp8q_lex_utf8(&lex));
    /* No key twice in one object: readers differ in which of the two they take.  */
    FP8Q_TRY(fp8q_lex_value(&lex, 0, true));
    return fp8q_lex_end(&lex);
}

/* ---- cJSON --------------------------------------------------------------------------------- */

static const cJSON *node(const struct fp8q_json *value)
{
    return (const cJSON *)value;
}

static const struct fp8q_json *wrap(const cJSON *value)
{
    return (const struct fp8q_json *)value;
}

/* End of the string whose opening quote is at @i.  */
static size_t string_end(const char *text, size_t i)
{
    /* A checked string ends, so nothing else needs to stop the search.  */
    for (i++; text[i] != '"'; i++) {
        if (text[i] == '\\')
            i++;
    }
    return i + 1;
}

static bool is_number_byte(char c)
{
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
}

/* Length of NaN, Infinity or -Infinity by its first byte.  */
static size_t constant_len(char first)
{
    if (first == 'N')
        return strlen("NaN");
    return first == 'I' ? strlen("Infinity") : strlen("-Infinity");
}

/* Copies a checked document for cJSON: constants of Python become null, long numbers short.  */
static void copy_for_cjson(const char *text, size_t len, struct fp8q_text *out)
{
    size_t plain = 0; /* start of the run that is copied as it is */
    for (size_t i = 0; i < len;) {
        size_t end = i;
        if (text[i] == '"') {
            i = string_end(text, i);
            continue;
        }

        /* Outside of strings a checked text has these letters only where a constant begins.  */
        if (text[i] == 'N' || text[i] == 'I' || (text[i] == '-' && text[i + 1] == 'I')) {
            end += constant_len(text[i]);
            fp8q_text_add(out, text + plain, i - plain);
            fp8q_text_puts(out, "null");
            plain = i = end;
            continue;
        }

        if (text[i] != '-' && (text[i] < '0' || text[i] > '9')) {
            i++;
            continue;
        }

        while (end < len && is_number_byte(text[end]))
            end++;

        /* cJSON copies a number into a buffer of 64 bytes and would cut it.  */
        if (end - i >= CJSON_NUMBER) {
            struct fp8q_text digits = {0};
            fp8q_text_add(&digits, text + i, end - i);
            /* The caller has entered the C locale: a point is a point.  */
            double value = digits.failed ? 0 : strtod(digits.data, NULL);
            out->failed |= digits.failed;
            fp8q_text_reset(&digits);
            fp8q_text_add(out, text + plain, i - plain);
            if (isfinite(value))
                fp8q_text_printf(out, "%.17g", value);
            else
                fp8q_text_puts(out, "null");
            plain = end;
        }
        i = end;
    }
    fp8q_text_add(out, text + plain, len - plain);
}

int fp8q_json_parse(const char *text, size_t len, unsigned flags, const char *what,
                    struct fp8q_json **json_out, struct fp8q_error *err)
{
    struct fp8q_text copy = {0};

    *json_out = NULL;
    FP8Q_TRY(fp8q_json_check(text, len, flags, what, err));

    /* cJSON looks for the decimal point of the locale.  */
    locale_t before = fp8q_c_locale_enter();
    copy_for_cjson(text, len, &copy);
    if (!copy.failed)
        *json_out = (struct fp8q_json *)cJSON_ParseWithLength(copy.data, copy.len);
    fp8q_c_locale_leave(before);
    fp8q_text_reset(&copy);

    /* The gate has passed, so only memory can have failed.  */
    return *json_out ? FP8Q_OK : fp8q_fail_nomem(err);
}

void fp8q_json_free(struct fp8q_json *json)
{
    cJSON_Delete((cJSON *)json);
}

bool fp8q_json_is_object(const struct fp8q_json *value)
{
    return cJSON_IsObject(node(value));
}

bool fp8q_json_is_array(const struct fp8q_json *value)
{
    return cJSON_IsArray(node(value));
}

static bool is_finite_number(const cJSON *value)
{
    return cJSON_IsNumber(value) && isfinite(value->valuedouble);
}

bool fp8q_json_is_null(const struct fp8q_json *value)
{
    /* Infinity was replaced by null before parsing, but 1e999 overflows in cJSON itself.  */
    return cJSON_IsNull(node(value)) ||
           (cJSON_IsNumber(node(value)) && !is_finite_number(node(value)));
}

const struct fp8q_json *fp8q_json_get(const struct fp8q_json *object, const char *name)
{
    if (!fp8q_json_is_object(object))
        return NULL;
    return wrap(cJSON_GetObjectItemCaseSensitive(node(object), name));
}

const struct fp8q_json *fp8q_json_path(const struct fp8q_json *object, const char *path)
{
    while (object) {
        char name[128];

        size_t n = strcspn(path, ".");
        /* No key of a config is so long, so there is nothing to find.  */
        if (n >= sizeof(name))
            return NULL;

        memcpy(name, path, n);
        name[n] = '\0';
        object = fp8q_json_get(object, name);
        if (path[n] == '\0')
            break;
        path += n + 1;
    }
    return object;
}

/* The gate has limited the depth, so recursion is safe.  */
static const cJSON *find_below(const cJSON *value, const char *name, const cJSON *after,
                               bool *passed)
{
    for (const cJSON *child = value->child; child; child = child->next) {
        if (child->string && strcmp(child->string, name) == 0) {
            if (*passed)
                return child;
            *passed = child == after;
        }

        const cJSON *found = find_below(child, name, after, passed);
        if (found)
            return found;
    }
    return NULL;
}

const struct fp8q_json *fp8q_json_find(const struct fp8q_json *value, const char *name,
                                       const struct fp8q_json *after)
{
    bool passed = !after;

    return value ? wrap(find_below(node(value), name, node(after), &passed)) : NULL;
}

const struct fp8q_json *fp8q_json_first(const struct fp8q_json *value)
{
    if (!fp8q_json_is_object(value) && !fp8q_json_is_array(value))
        return NULL;
    return wrap(node(value)->child);
}

const struct fp8q_json *fp8q_json_next(const struct fp8q_json *value)
{
    return value ? wrap(node(value)->next) : NULL;
}

size_t fp8q_json_count(const struct fp8q_json *value)
{
    size_t count = 0;

    for (value = fp8q_json_first(value); value; value = fp8q_json_next(value))
        count++;
    return count;
}

const char *fp8q_json_key(const struct fp8q_json *member)
{
    return member ? node(member)->string : NULL;
}

const char *fp8q_json_string(const struct fp8q_json *value, const char *fallback)
{
    return cJSON_IsString(node(value)) ? node(value)->valuestring : fallback;
}

bool fp8q_json_bool(const struct fp8q_json *value, bool fallback)
{
    return cJSON_IsBool(node(value)) ? cJSON_IsTrue(node(value)) : fallback;
}

double fp8q_json_number(const struct fp8q_json *value, double fallback)
{
    return is_finite_number(node(value)) ? node(value)->valuedouble : fallback;
}

bool fp8q_json_has_string(const struct fp8q_json *array, const char *text)
{
    for (const struct fp8q_json *i = fp8q_json_first(array); i; i = fp8q_json_next(i))
        if (strcmp(fp8q_json_string(i, ""), text) == 0)
            return true;
    return false;
}

bool fp8q_json_uint(const struct fp8q_json *value, uint64_t *out)
{
    double number = fp8q_json_number(value, -1.0);

    /* From 2^53 on a double no longer tells neighbouring integers apart.  */
    if (number < 0 || number >= 9007199254740992.0 || number > floor(number))
        return false;
    *out = (uint64_t)number;
    return true;
}
