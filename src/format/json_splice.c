/* SPDX-License-Identifier: Apache-2.0
 *
 * json_splice.c - edits a document as text: members out, one member in, all other bytes as they
 * are.
 *
 * config.json is never printed again from a tree: cJSON would change its numbers, and the diff of a
 * user's file should show what was changed.
 */
#include "format/json.h"

#include <stdlib.h>
#include <string.h>

#include "format/lex.h"

static struct fp8q_lex open_lex(const char *text, size_t len, const char *what,
                                struct fp8q_error *err)
{
    return (struct fp8q_lex){
        .text = text, .len = len, .what = what, .max_depth = 128, .python = true, .err = err};
}

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
        /* The first key tells the indentation of a document on several lines.  */
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
        /* Two spaces a level in @value become one indentation of the document.  */
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

/* The bytes to take out so that the member at the end of the key path @parts is gone; nothing
 * ([0, 0)) if there is none.  */
static int find_cut(struct fp8q_lex lex, const char *const *parts, size_t n_parts,
                    size_t *begin_out, size_t *end_out)
{
    size_t begin = 0, end = 0, last_end, part = 0;
    bool first = true, found = false;
    struct fp8q_lex_str key;
    int more = 0;

    *begin_out = *end_out = 0;
    (void)fp8q_lex_take(&lex, '{');
    last_end = lex.pos; /* of the member before, or of the brace */

    while ((more = fp8q_lex_member(&lex, &first, &key)) > 0 && !found) {
        found = fp8q_lex_is(&lex, key, parts[part]);
        if (found && part + 1 < n_parts) {
            /* The path leads through something that is no object: nothing to cut.  */
            if (!fp8q_lex_take(&lex, '{'))
                return FP8Q_OK;
            part++;
            found = false;
            first = true;
        } else {
            FP8Q_TRY(fp8q_lex_value(&lex, 1, false));
            begin = key.begin - 1;
            end = lex.pos;
        }
        if (!found)
            last_end = lex.pos;
    }

    if (more < 0)
        return more;
    if (!found)
        return FP8Q_OK;

    if (more > 0) {
        end = key.begin - 1; /* the next member moves into the place */
    } else {
        begin = last_end; /* the comma before it goes, the white space before the brace stays */
        if (lex.text[last_end - 1] == '{')
            end = lex.pos - 1; /* the only member: nothing stays */
    }

    *begin_out = begin;
    *end_out = end;
    return FP8Q_OK;
}

/* Removes one member of @doc; @path is split at dots if @nested.  */
static int remove_path(struct fp8q_text *doc, const char *path, bool nested, struct fp8q_error *err)
{
    enum { MOST_PARTS = 16 };
    const char *parts[MOST_PARTS];
    size_t n_parts = 0;
    char *copy = strdup(path), *rest = copy;
    if (!copy)
        return fp8q_fail_nomem(err);

    while (rest && n_parts < MOST_PARTS)
        parts[n_parts++] = nested ? strsep(&rest, ".") : strsep(&rest, "");

    size_t begin, end;
    int status = find_cut(open_lex(doc->data, doc->len, "", err), parts, n_parts, &begin, &end);
    /* Only now: the parts point into it.  */
    free(copy);

    if (status == FP8Q_OK && end > begin) {
        /* The NUL moves along.  */
        memmove(doc->data + begin, doc->data + end, doc->len - end + 1);
        doc->len -= end - begin;
    }
    return status;
}

/* Puts a member behind the last one of the outermost object.  */
static int insert_member(const struct fp8q_text *doc, const struct style *style, const char *key,
                         const char *value, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_lex lex = open_lex(doc->data, doc->len, "", err);
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

    /* Behind the last value; the white space before the brace stays where it is.  */
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

/* All the edits, on the copy @doc.  */
static int edit(struct fp8q_text *doc, struct style *style, const struct fp8q_splice *s,
                struct fp8q_text *out, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_text_status(doc, err));
    FP8Q_TRY(read_style(open_lex(doc->data, doc->len, s->what, err), style));
    FP8Q_TRY(fp8q_text_status(&style->gap, err));
    FP8Q_TRY(fp8q_text_status(&style->close, err));

    for (size_t i = 0; s->remove && s->remove[i]; i++)
        FP8Q_TRY(remove_path(doc, s->remove[i], false, err));
    for (size_t i = 0; s->remove_nested && s->remove_nested[i]; i++)
        FP8Q_TRY(remove_path(doc, s->remove_nested[i], true, err));

    if (s->key) {
        FP8Q_TRY(remove_path(doc, s->key, false, err)); /* never twice */
        return insert_member(doc, style, s->key, s->value, out, err);
    }
    fp8q_text_add(out, doc->data, doc->len);
    return fp8q_text_status(out, err);
}

int fp8q_json_splice(const struct fp8q_splice *s, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_text doc = {0};
    struct style style = {0};
    struct fp8q_lex lex = open_lex(s->text, s->len, s->what, err);
    struct fp8q_shown shown;

    if (fp8q_lex_peek(&lex) != '{')
        return fp8q_fail(err, FP8Q_E_FORMAT, "json", "%s: is no JSON object",
                         fp8q_show(&shown, s->what));

    fp8q_text_add(&doc, s->text, s->len);
    int status = edit(&doc, &style, s, out, err);

    fp8q_text_reset(&style.gap);
    fp8q_text_reset(&style.close);
    fp8q_text_reset(&doc);
    return status;
}
