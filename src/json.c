/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c - the strict gate, cJSON behind it, and the splice that edits a document as text.
 *
 * cJSON sees only text that passed the gate, with what it cannot read (NaN, numbers longer than its
 * 63-byte buffer) replaced in a private copy.  It is never used for printing.
 */
#include "json.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lex.h"

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
    if (len >= sizeof(lfs) - 1 && memcmp(text, lfs, sizeof(lfs) - 1) == 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "lfs-pointer",
                         "%s: is a Git LFS pointer; run \"git lfs pull\"", fp8q_show(&shown, what));
    FP8Q_TRY(fp8q_lex_utf8(&lex));
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
        if (text[i] == 'N' || text[i] == 'I' || (text[i] == '-' && text[i + 1] == 'I')) {
            end += text[i] == 'N' ? 3 : text[i] == 'I' ? 8 : 9;
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
        if (end - i >= CJSON_NUMBER) {
            struct fp8q_text digits = {0};
            fp8q_text_add(&digits, text + i, end - i);
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
    copy_for_cjson(text, len, &copy);
    int status = fp8q_text_status(&copy, err);
    if (status == FP8Q_OK) {
        *json_out = (struct fp8q_json *)cJSON_ParseWithLength(copy.data, copy.len);
        /* The gate has passed, so only memory can have failed.  */
        if (!*json_out)
            status = fp8q_fail_nomem(err);
    }
    fp8q_text_reset(&copy);
    return status;
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

bool fp8q_json_uint(const struct fp8q_json *value, uint64_t *out)
{
    double number = fp8q_json_number(value, -1.0);
    if (number < 0 || number >= 9007199254740992.0 || number > floor(number))
        return false;
    *out = (uint64_t)number;
    return true;
}

/* ---- splice -------------------------------------------------------------------------------- */

/* How a document separates the members of its outermost object.  */
struct style {
    struct fp8q_text gap;   /* before a key: line end and indentation, or what follows a comma */
    struct fp8q_text close; /* before the closing brace */
    const char *colon;      /* between key and value */
    const char *line_end;
    bool multi_line;
};

static bool next_is_blank(const struct fp8q_lex *lex, size_t pos)
{
    return pos < lex->len && strchr(" \t\r\n", lex->text[pos]) && lex->text[pos] != '\0';
}

/* The part of the white space [begin, end) from its last line end on; false if there is none.  */
static bool last_line(const char *text, size_t begin, size_t end, struct fp8q_text *out)
{
    for (size_t i = end; i-- > begin;) {
        if (text[i] != '\n')
            continue;
        if (i > begin && text[i - 1] == '\r')
            i--;
        fp8q_text_add(out, text + i, end - i);
        return true;
    }
    return false;
}

/* Reads the style from the original document, before anything is removed.  */
static int read_style(struct fp8q_lex lex, struct style *style)
{
    struct fp8q_lex_str key;
    bool first = true, compact_colon = false;
    int more;
    size_t gap_begin, n_members = 0;
    (void)fp8q_lex_take(&lex, '{');
    gap_begin = lex.pos;
    for (;;) {
        more = fp8q_lex_member(&lex, &first, &key);
        if (more <= 0)
            break;
        size_t key_begin = key.begin - 1;
        if (n_members == 0) {
            style->multi_line = last_line(lex.text, gap_begin, key_begin, &style->gap);
            compact_colon = !next_is_blank(&lex, lex.pos);
        } else if (n_members == 1 && style->gap.len == 0) {
            while (lex.text[gap_begin] != ',')
                gap_begin++;
            if (!last_line(lex.text, gap_begin, key_begin, &style->gap))
                fp8q_text_add(&style->gap, lex.text + gap_begin + 1, key_begin - gap_begin - 1);
        }
        FP8Q_TRY(fp8q_lex_value(&lex, 1, false));
        gap_begin = lex.pos;
        n_members++;
    }
    if (more < 0)
        return more;
    if (style->multi_line && !last_line(lex.text, gap_begin, lex.pos - 1, &style->close))
        fp8q_text_add(&style->close, "", 0);
    if (n_members < 2 && !style->multi_line)
        fp8q_text_puts(&style->gap, compact_colon ? "" : " ");
    style->colon = compact_colon ? ":" : ": ";
    style->line_end = style->gap.len && style->gap.data[0] == '\r' ? "\r\n" : "\n";
    return FP8Q_OK;
}

/* Puts @value in, its lines after the first moved to the document's indentation; on one line if the
 * document is on one line.  Line ends in JSON text lie between tokens only.  */
static void add_value(const struct style *style, const char *value, struct fp8q_text *out)
{
    const char *indent = style->multi_line ? style->gap.data + strlen(style->line_end) : "";
    const char *unit = indent;
    size_t outer =
        style->close.len > strlen(style->line_end) ? style->close.len - strlen(style->line_end) : 0;
    if (outer < strlen(indent))
        unit += outer; /* the document itself is indented */
    for (size_t i = 0; value[i];) {
        size_t n = strcspn(value + i, "\n");
        fp8q_text_add(out, value + i, n);
        i += n;
        if (value[i] == '\0')
            break;
        size_t spaces = strspn(value + i + 1, " ");
        if (style->multi_line) {
            fp8q_text_puts(out, style->gap.data);
            for (size_t level = 0; level < spaces / 2; level++)
                fp8q_text_puts(out, unit);
        } else if (i > 0 && value[i - 1] == ',') {
            fp8q_text_add(out, style->gap.data, style->gap.len);
        }
        i += 1 + spaces;
    }
}

/* Appends @text with one member taken out of the object at the end of the key path @parts.  */
static int remove_member(const char *text, size_t len, const char *const *parts, size_t n_parts,
                         struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_lex lex = open_lex(text, len, FP8Q_JSON_PYTHON, "", err);
    size_t cut_begin = 0, cut_end = 0, last_end = 0, part = 0;
    bool first = true, found = false;
    struct fp8q_lex_str key;
    int more = 0;
    if (fp8q_lex_take(&lex, '{')) {
        last_end = lex.pos;
        while ((more = fp8q_lex_member(&lex, &first, &key)) > 0) {
            if (found) {
                cut_end = key.begin - 1; /* a member follows: it moves into the place */
                break;
            }
            bool here = fp8q_lex_is(&lex, key, parts[part]);
            if (here && part + 1 < n_parts) {
                if (!fp8q_lex_take(&lex, '{'))
                    break;
                part++;
                first = true;
                last_end = lex.pos;
                continue;
            }
            FP8Q_TRY(fp8q_lex_value(&lex, 1, false));
            if (here) {
                found = true;
                cut_begin = key.begin - 1;
                cut_end = lex.pos;
            } else {
                last_end = lex.pos;
            }
        }
    }
    if (more < 0)
        return more;
    if (found && more == 0) {
        /* It was the last one: what stands before the brace stays, the comma before it goes.  */
        cut_begin = last_end;
        if (text[last_end - 1] == '{') /* and the only one */
            cut_end = lex.pos - 1;
    }
    fp8q_text_add(out, text, cut_begin);
    fp8q_text_add(out, text + cut_end, len - cut_end);
    return fp8q_text_status(out, err);
}

/* Removes one member of @doc; @path is split at dots if @nested.  */
static int remove_path(struct fp8q_text *doc, const char *path, bool nested, struct fp8q_error *err)
{
    enum { MOST_PARTS = 16 };
    const char *parts[MOST_PARTS];
    size_t n_parts = 0;
    struct fp8q_text result = {0};
    char *copy = strdup(path), *rest = copy;
    if (!copy)
        return fp8q_fail_nomem(err);
    while (rest && n_parts < MOST_PARTS)
        parts[n_parts++] = nested ? strsep(&rest, ".") : strsep(&rest, "");
    int status = remove_member(doc->data, doc->len, parts, n_parts, &result, err);
    free(copy);
    if (status == FP8Q_OK) {
        fp8q_text_reset(doc);
        *doc = result;
    } else {
        fp8q_text_reset(&result);
    }
    return status;
}

/* Puts a member behind the last one of the outermost object.  */
static int insert_member(const struct fp8q_text *doc, const struct style *style, const char *key,
                         const char *value, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_lex lex = open_lex(doc->data, doc->len, FP8Q_JSON_PYTHON, "", err);
    struct fp8q_lex_str ignored;
    bool first = true, empty = true;
    int more;
    (void)fp8q_lex_take(&lex, '{');
    size_t last_end = lex.pos;
    while ((more = fp8q_lex_member(&lex, &first, &ignored)) > 0) {
        FP8Q_TRY(fp8q_lex_value(&lex, 1, false));
        last_end = lex.pos;
        empty = false;
    }
    if (more < 0)
        return more;
    fp8q_text_add(out, doc->data, last_end);
    if (!empty)
        fp8q_text_puts(out, ",");
    if (!empty || style->multi_line)
        fp8q_text_add(out, style->gap.data, style->gap.len);
    fp8q_text_json_string(out, key, strlen(key));
    fp8q_text_puts(out, style->colon);
    add_value(style, value, out);
    if (empty && style->multi_line) {
        fp8q_text_add(out, style->close.data, style->close.len);
        last_end = lex.pos - 1;
    }
    fp8q_text_add(out, doc->data + last_end, doc->len - last_end);
    return fp8q_text_status(out, err);
}

int fp8q_json_splice(const char *text, size_t len, const char *const *remove,
                     const char *const *remove_nested, const char *key, const char *value,
                     const char *what, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_text doc = {0};
    struct style style = {0};
    struct fp8q_lex lex = open_lex(text, len, FP8Q_JSON_PYTHON, what, err);
    struct fp8q_shown shown;
    if (fp8q_lex_peek(&lex) != '{')
        return fp8q_fail(err, FP8Q_E_FORMAT, "json", "%s: is no JSON object",
                         fp8q_show(&shown, what));
    fp8q_text_add(&doc, text, len);
    int status = fp8q_text_status(&doc, err);
    if (status == FP8Q_OK)
        status = read_style(lex, &style);
    for (size_t i = 0; status == FP8Q_OK && remove && remove[i]; i++)
        status = remove_path(&doc, remove[i], false, err);
    for (size_t i = 0; status == FP8Q_OK && remove_nested && remove_nested[i]; i++)
        status = remove_path(&doc, remove_nested[i], true, err);
    if (status == FP8Q_OK && key) /* never twice */
        status = remove_path(&doc, key, false, err);
    if (status == FP8Q_OK && key)
        status = insert_member(&doc, &style, key, value, out, err);
    else if (status == FP8Q_OK)
        fp8q_text_add(out, doc.data, doc.len);
    if (status == FP8Q_OK)
        status = fp8q_text_status(out, err);
    fp8q_text_reset(&style.gap);
    fp8q_text_reset(&style.close);
    fp8q_text_reset(&doc);
    return status;
}
