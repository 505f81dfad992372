/* SPDX-License-Identifier: Apache-2.0
 *
 * added.c - finds added tokens in text: leftmost, then longest, as the `tokenizers` library does.
 */
#include "tokenizer/added.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

/* ---- loading ------------------------------------------------------------------------------- */

static int compare_tokens(const void *a, const void *b)
{
    const struct fp8q_added_token *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->text, y->text, n);
    if (order != 0)
        return order;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void sort_tokens(struct fp8q_added *added)
{
    size_t kept = 0;

    qsort(added->tokens, added->count, sizeof(*added->tokens), compare_tokens);

    /* Equal texts lie side by side now, the first of the file in front: the others go.  */
    for (size_t i = 0; i < added->count; i++) {
        struct fp8q_added_token *t = &added->tokens[i];
        added->first_byte[(unsigned char)t->text[0]] = true;
        if (kept > 0 && added->tokens[kept - 1].len == t->len &&
            memcmp(added->tokens[kept - 1].text, t->text, t->len) == 0)
            free(t->text);
        else
            added->tokens[kept++] = *t;
    }

    added->count = kept;
}

static int add_token(struct fp8q_added *added, const struct fp8q_json *item, const char *text,
                     size_t len, int32_t id, struct fp8q_error *err)
{
    struct fp8q_added_token *t = &added->tokens[added->count];
    *t = (struct fp8q_added_token){
        .text = fp8q_array(len + 1, 1),
        .len = len,
        .id = id,
        .order = (uint32_t)added->count,
        .lstrip = fp8q_json_bool(fp8q_json_get(item, "lstrip"), false),
        .rstrip = fp8q_json_bool(fp8q_json_get(item, "rstrip"), false),
    };

    if (!t->text)
        return fp8q_fail_nomem(err);

    memcpy(t->text, text, len);
    added->count++;
    return FP8Q_OK;
}

static int read_token(struct fp8q_added_sets *sets, const struct fp8q_json *item,
                      const struct fp8q_bpe *bpe, const struct fp8q_normalizer *normalizer,
                      const char *what, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *text = fp8q_json_string(fp8q_json_get(item, "content"), NULL);
    uint64_t id;

    if (!text || !fp8q_json_uint(fp8q_json_get(item, "id"), &id) || id > INT32_MAX)
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-added",
                         "%s: an added token lacks \"content\" or an \"id\" from 0 to 2^31-1",
                         what);
    if (!*text)
        return FP8Q_OK;

    if (fp8q_json_bool(fp8q_json_get(item, "single_word"), false))
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                         "%s: added token \"%s\" sets \"single_word\", which is not supported",
                         what, fp8q_show(&shown, text));

    /* A token may stand in both lists; two ids for it would be one too many.  */
    int32_t in_vocab = fp8q_bpe_find(bpe, text, strlen(text));
    if (in_vocab >= 0 && in_vocab != (int32_t)id)
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-added",
                         "%s: added token \"%s\" has id %llu, the vocabulary says %d", what,
                         fp8q_show(&shown, text), (unsigned long long)id, in_vocab);
    if ((int32_t)id > sets->max_id)
        sets->max_id = (int32_t)id;

    /* The library looks for such tokens after normalisation, so they are normalised as the text
     * will be.  */
    if (!fp8q_json_bool(fp8q_json_get(item, "normalized"), true))
        return add_token(&sets->raw, item, text, strlen(text), (int32_t)id, err);

    const char *normal;
    size_t len;
    char *owned;
    FP8Q_TRY(fp8q_normalize(normalizer, text, strlen(text), &normal, &len, &owned, err));
    int status = len ? add_token(&sets->normalized, item, normal, len, (int32_t)id, err) : FP8Q_OK;

    free(owned);
    return status;
}

static int read_tokens(struct fp8q_added_sets *sets, const struct fp8q_json *list,
                       const struct fp8q_bpe *bpe, const struct fp8q_normalizer *normalizer,
                       const char *what, struct fp8q_error *err)
{
    size_t count = fp8q_json_count(list);
    sets->raw.tokens = fp8q_array(count, sizeof(*sets->raw.tokens));
    sets->normalized.tokens = fp8q_array(count, sizeof(*sets->normalized.tokens));
    if (!sets->raw.tokens || !sets->normalized.tokens)
        return fp8q_fail_nomem(err);

    const struct fp8q_json *item = fp8q_json_first(list);
    for (; item; item = fp8q_json_next(item))
        FP8Q_TRY(read_token(sets, item, bpe, normalizer, what, err));
    return FP8Q_OK;
}

int fp8q_added_init(struct fp8q_added_sets *sets, const struct fp8q_json *list,
                    const struct fp8q_bpe *bpe, const struct fp8q_normalizer *normalizer,
                    const char *what, struct fp8q_error *err)
{
    *sets = (struct fp8q_added_sets){.max_id = -1};
    int status = read_tokens(sets, list, bpe, normalizer, what, err);
    if (status != FP8Q_OK) {
        fp8q_added_reset(sets);
        return status;
    }

    sort_tokens(&sets->raw);
    sort_tokens(&sets->normalized);
    return FP8Q_OK;
}

static void reset_set(struct fp8q_added *added)
{
    for (size_t i = 0; added->tokens && i < added->count; i++)
        free(added->tokens[i].text);
    free(added->tokens);
}

void fp8q_added_reset(struct fp8q_added_sets *sets)
{
    reset_set(&sets->raw);
    reset_set(&sets->normalized);
    *sets = (struct fp8q_added_sets){.max_id = -1};
}

/* ---- matching ------------------------------------------------------------------------------ */

/* First index in [lo, hi) whose byte @depth is at least @byte; all of them are longer than @depth.
 */
static size_t lower_bound(const struct fp8q_added *added, size_t lo, size_t hi, size_t depth,
                          unsigned byte)
{
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if ((unsigned char)added->tokens[mid].text[depth] < byte)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static const struct fp8q_added_token *longest_at(const struct fp8q_added *added, const char *text,
                                                 size_t len)
{
    const struct fp8q_added_token *best = NULL;
    size_t lo = 0, hi = added->count;
    for (size_t depth = 0; lo < hi; depth++) {
        /* A shorter token that fits is kept while longer ones are tried.  */
        if (added->tokens[lo].len == depth) /* the shortest of a common prefix sorts first */
            best = &added->tokens[lo++];
        if (depth == len)
            break;
        unsigned byte = (unsigned char)text[depth];
        lo = lower_bound(added, lo, hi, depth, byte);
        hi = lower_bound(added, lo, hi, depth, byte + 1);
    }
    return best;
}

static bool is_white(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == 32 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F ||
           cp == 0x205F || cp == 0x3000;
}

static size_t white_before(const char *text, size_t floor, size_t at)
{
    while (at > floor) {
        size_t start = at - 1;
        uint32_t cp;

        /* Back to the first byte of the character.  */
        while (start > floor && ((unsigned char)text[start] & 0xC0) == 0x80)
            start--;
        if (fp8q_utf8_decode(text + start, at - start, &cp) == 0 || !is_white(cp))
            break;
        at = start;
    }
    return at;
}

static size_t white_after(const char *text, size_t len, size_t at)
{
    uint32_t cp;
    for (size_t n; at < len && (n = fp8q_utf8_decode(text + at, len - at, &cp)) && is_white(cp);)
        at += n;
    return at;
}

const struct fp8q_added_token *fp8q_added_next(const struct fp8q_added *added, const char *text,
                                               size_t len, size_t from, size_t *begin_out,
                                               size_t *end_out)
{
    if (added->count == 0)
        return NULL;
    for (size_t i = from; i < len; i++) {
        /* Most bytes begin no token at all.  */
        if (!added->first_byte[(unsigned char)text[i]])
            continue;
        const struct fp8q_added_token *t = longest_at(added, text + i, len - i);
        if (!t)
            continue;

        *begin_out = t->lstrip ? white_before(text, from, i) : i;
        *end_out = t->rstrip ? white_after(text, len, i + t->len) : i + t->len;
        return t;
    }
    return NULL;
}
