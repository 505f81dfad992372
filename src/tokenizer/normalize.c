/* SPDX-License-Identifier: Apache-2.0
 *
 * normalize.c - normal forms of text, NFC through utf8proc.
 */
#include "tokenizer/normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"

/* ---- reading --------------------------------------------------------------------------------- */

static int unsupported(const char *what, const char *found, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                     "%s: normalizer \"%s\" is not supported; supported are NFC, Prepend and "
                     "Replace of a string",
                     what, fp8q_show(&shown, found));
}

static int copy(const char *text, char **out, struct fp8q_error *err)
{
    *out = fp8q_array(strlen(text) + 1, 1);
    if (!*out)
        return fp8q_fail_nomem(err);
    memcpy(*out, text, strlen(text));
    return FP8Q_OK;
}

static int add_step(struct fp8q_normalizer *n, const struct fp8q_json *value, const char *what,
                    struct fp8q_error *err)
{
    const char *type = fp8q_json_string(fp8q_json_get(value, "type"), "");
    /* Known files have two or three.  */
    if (n->n_steps == FP8Q_MAX_NORMALIZERS)
        return unsupported(what, "long Sequence", err);
    size_t i = n->n_steps++;

    if (strcmp(type, "NFC") == 0) {
        n->steps[i].kind = FP8Q_NORMALIZE_NFC;
        return FP8Q_OK;
    }
    if (strcmp(type, "Prepend") == 0) {
        n->steps[i].kind = FP8Q_NORMALIZE_PREPEND;
        return copy(fp8q_json_string(fp8q_json_get(value, "prepend"), ""), &n->steps[i].to, err);
    }
    const char *from = fp8q_json_string(fp8q_json_path(value, "pattern.String"), "");
    if (strcmp(type, "Replace") != 0)
        return unsupported(what, type, err);
    if (!*from)
        return unsupported(what, "Replace of a regular expression", err);
    n->steps[i].kind = FP8Q_NORMALIZE_REPLACE;
    FP8Q_TRY(copy(from, &n->steps[i].from, err));
    return copy(fp8q_json_string(fp8q_json_get(value, "content"), ""), &n->steps[i].to, err);
}

static int read_all(struct fp8q_normalizer *n, const struct fp8q_json *value, const char *what,
                    struct fp8q_error *err)
{
    if (!value || fp8q_json_is_null(value))
        return FP8Q_OK;
    if (strcmp(fp8q_json_string(fp8q_json_get(value, "type"), ""), "Sequence") != 0)
        return add_step(n, value, what, err);

    const struct fp8q_json *item = fp8q_json_first(fp8q_json_get(value, "normalizers"));
    for (; item; item = fp8q_json_next(item))
        FP8Q_TRY(add_step(n, item, what, err));
    return FP8Q_OK;
}

int fp8q_normalizer_init(struct fp8q_normalizer *normalizer, const struct fp8q_json *root,
                         const char *what, struct fp8q_error *err)
{
    *normalizer = (struct fp8q_normalizer){0};
    int status = read_all(normalizer, fp8q_json_get(root, "normalizer"), what, err);
    if (status != FP8Q_OK)
        fp8q_normalizer_reset(normalizer);
    return status;
}

void fp8q_normalizer_reset(struct fp8q_normalizer *normalizer)
{
    for (size_t i = 0; i < normalizer->n_steps; i++) {
        free(normalizer->steps[i].from);
        free(normalizer->steps[i].to);
    }
    *normalizer = (struct fp8q_normalizer){0};
}

/* ---- NFC ------------------------------------------------------------------------------------- */

/* Text whose characters all lie below U+0300 is in NFC: no combining mark, no decomposition to
 * undo.  */
static bool is_plainly_nfc(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0xCC)
            return false;
    return true;
}

static int compose(const char *text, size_t len, struct fp8q_text *out, struct fp8q_error *err)
{
    utf8proc_uint8_t *result = NULL;
    if (len == 0)
        return FP8Q_OK;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)len,
                                      &result, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (n == UTF8PROC_ERROR_NOMEM)
        return fp8q_fail_nomem(err);
    if (n < 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "text-nfc", "text: normalisation failed: %s",
                         utf8proc_errmsg(n));
    fp8q_text_add(out, (const char *)result, (size_t)n);
    free(result);
    return FP8Q_OK;
}

/* utf8proc composes a Hangul syllable with U+11A7, which is no trailing consonant, and loses it.
 * The character composes with nothing, so the text before each can be composed by itself.  */
static int nfc(const char *text, size_t len, struct fp8q_text *out, struct fp8q_error *err)
{
    size_t begin = 0;
    for (size_t i = 1; i + 2 < len; i++)
        if (memcmp(text + i, "\xE1\x86\xA7", 3) == 0) {
            FP8Q_TRY(compose(text + begin, i - begin, out, err));
            begin = i;
        }
    return compose(text + begin, len - begin, out, err);
}

/* ---- steps ------------------------------------------------------------------------------------ */

static void replace(const char *text, size_t len, const char *from, const char *to,
                    struct fp8q_text *out)
{
    size_t n = strlen(from), plain = 0;
    for (size_t i = 0; i + n <= len;) {
        if (memcmp(text + i, from, n) != 0) {
            i++;
            continue;
        }
        fp8q_text_add(out, text + plain, i - plain);
        fp8q_text_puts(out, to);
        plain = i += n;
    }
    fp8q_text_add(out, text + plain, len - plain);
}

static int apply(const struct fp8q_normalizer *n, size_t i, const char *text, size_t len,
                 struct fp8q_text *out, struct fp8q_error *err)
{
    switch (n->steps[i].kind) {
    case FP8Q_NORMALIZE_NFC:
        FP8Q_TRY(nfc(text, len, out, err));
        break;
    case FP8Q_NORMALIZE_REPLACE:
        replace(text, len, n->steps[i].from, n->steps[i].to, out);
        break;
    case FP8Q_NORMALIZE_PREPEND:
        fp8q_text_puts(out, n->steps[i].to);
        fp8q_text_add(out, text, len);
        break;
    }
    return fp8q_text_status(out, err);
}

int fp8q_normalize(const struct fp8q_normalizer *n, const char *text, size_t len,
                   const char **text_out, size_t *len_out, char **owned_out, struct fp8q_error *err)
{
    struct fp8q_text now = {0};
    *text_out = text;
    *len_out = len;
    *owned_out = NULL;
    for (size_t i = 0; i < n->n_steps && len > 0; i++) {
        if (n->steps[i].kind == FP8Q_NORMALIZE_NFC && is_plainly_nfc(*text_out, *len_out))
            continue;

        struct fp8q_text next = {0};
        int status = apply(n, i, *text_out, *len_out, &next, err);
        fp8q_text_reset(&now); /* @next holds all that is needed of it */
        if (status != FP8Q_OK) {
            fp8q_text_reset(&next);
            return status;
        }
        now = next;
        *text_out = now.data ? now.data : "";
        *len_out = now.len;
    }
    *owned_out = now.data;
    return FP8Q_OK;
}
