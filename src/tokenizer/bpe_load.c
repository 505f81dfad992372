/* SPDX-License-Identifier: Apache-2.0
 *
 * bpe_load.c - the "model" object of a tokenizer.json becomes hash tables.
 *
 * The tables are our own: a vocabulary holds some 300,000 entries, and JSON objects are linked
 * lists. Ids, merges and their results are all checked here, so that encoding needs no checks.
 */
#include "tokenizer/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/bytelevel.h"
#include "base/mem.h"
#include "base/utf8.h"

#define MAX_TOKENS 16000000u /* far beyond any model; keeps table sizes far from overflow */

static uint64_t hash_text(const char *text, size_t len)
{
    uint64_t h = 0xCBF29CE484222325; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001B3;
    return fp8q_mix(h);
}

static struct fp8q_bpe_token *token_slot(const struct fp8q_bpe *bpe, const char *text, size_t len)
{
    size_t i = (size_t)hash_text(text, len) & (bpe->n_slots - 1);
    for (;; i = (i + 1) & (bpe->n_slots - 1)) {
        struct fp8q_bpe_token *t = &bpe->tokens[i];
        if (t->id < 0 || (t->len == len && memcmp(bpe->arena + t->text, text, len) == 0))
            return t;
    }
}

int32_t fp8q_bpe_find(const struct fp8q_bpe *bpe, const char *text, size_t len)
{
    return token_slot(bpe, text, len)->id;
}

/* At most half full, so that probing always ends.  */
static size_t table_size(size_t count)
{
    size_t n = 16;
    while (n < 2 * count)
        n *= 2;
    return n;
}

static int load_vocab(struct fp8q_bpe *bpe, const struct fp8q_json *vocab, const char *what,
                      struct fp8q_error *err)
{
    struct fp8q_shown shown;
    size_t count = fp8q_json_count(vocab), bytes = 0, used = 0;

    if (!fp8q_json_is_object(vocab) || count == 0 || count > MAX_TOKENS)
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-vocab",
                         "%s: \"model.vocab\" is not an object with 1 to %u tokens", what,
                         MAX_TOKENS);

    for (const struct fp8q_json *m = fp8q_json_first(vocab); m; m = fp8q_json_next(m))
        bytes += strlen(fp8q_json_key(m));

    /* All texts lie in one allocation: hundreds of thousands of small ones would cost more than
     * they hold.  */
    bpe->n_slots = table_size(count);
    bpe->tokens = fp8q_array(bpe->n_slots, sizeof(*bpe->tokens));
    bpe->arena = fp8q_array(bytes, 1);
    if (!bpe->tokens || !bpe->arena)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < bpe->n_slots; i++)
        bpe->tokens[i].id = -1;

    for (const struct fp8q_json *m = fp8q_json_first(vocab); m; m = fp8q_json_next(m)) {
        const char *text = fp8q_json_key(m);
        size_t len = strlen(text);
        uint64_t id;

        if (!fp8q_json_uint(m, &id) || id > INT32_MAX)
            return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-vocab",
                             "%s: token \"%s\" has an id that is no integer from 0 to 2^31-1", what,
                             fp8q_show(&shown, text));

        /* A text that stands twice keeps its last id, as in the library.  */
        struct fp8q_bpe_token *t = token_slot(bpe, text, len);
        memcpy(bpe->arena + used, text, len);
        *t = (struct fp8q_bpe_token){used, (uint32_t)len, (int32_t)id};
        used += len;
        if ((int32_t)id > bpe->max_id)
            bpe->max_id = (int32_t)id;
    }

    bpe->n_tokens = count;
    return FP8Q_OK;
}

/* The token of each byte: its printable character, or "<0xNN>" where characters are spelled.  */
static void find_bytes(struct fp8q_bpe *bpe)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        char text[8];
        size_t len = fp8q_utf8_encode(text, fp8q_byte_to_char(byte));
        if (bpe->by_char)
            len = (size_t)snprintf(text, sizeof(text), "<0x%02X>", byte & 0xFF);
        bpe->byte_ids[byte] = fp8q_bpe_find(bpe, text, len);
    }
}

/* "a b" or ["a", "b"]; the parts are borrowed.  */
static bool split_merge(const struct fp8q_json *merge, const char *parts[2], size_t lens[2])
{
    const char *text = fp8q_json_string(merge, NULL);
    if (text) {
        /* Two parts and one space: texts that hold one are written as a pair.  */
        const char *space = strchr(text, ' ');

        if (!space || strchr(space + 1, ' '))
            return false;

        parts[0] = text;
        lens[0] = (size_t)(space - text);
        parts[1] = space + 1;
        lens[1] = strlen(parts[1]);
        return true;
    }

    if (!fp8q_json_is_array(merge) || fp8q_json_count(merge) != 2)
        return false;

    const struct fp8q_json *first = fp8q_json_first(merge);
    parts[0] = fp8q_json_string(first, NULL);
    parts[1] = fp8q_json_string(fp8q_json_next(first), NULL);

    if (!parts[0] || !parts[1])
        return false;

    lens[0] = strlen(parts[0]);
    lens[1] = strlen(parts[1]);
    return true;
}

static int add_merge(struct fp8q_bpe *bpe, const struct fp8q_json *merge, uint32_t rank,
                     struct fp8q_text *joined, const char *what, struct fp8q_error *err)
{
    struct fp8q_shown shown[2];
    const char *parts[2];
    size_t lens[2];

    if (!split_merge(merge, parts, lens))
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-merge",
                         "%s: merge %u is neither \"A B\" nor [\"A\", \"B\"]", what, rank);

    joined->len = 0;
    fp8q_text_add(joined, parts[0], lens[0]);
    fp8q_text_add(joined, parts[1], lens[1]);
    FP8Q_TRY(fp8q_text_status(joined, err));

    /* Looked up once, so that merging itself compares numbers only.  */
    int32_t left = fp8q_bpe_find(bpe, parts[0], lens[0]);
    int32_t right = fp8q_bpe_find(bpe, parts[1], lens[1]);
    int32_t merged = fp8q_bpe_find(bpe, joined->data ? joined->data : "", joined->len);

    if (left < 0 || right < 0 || merged < 0)
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-merge",
                         "%s: merge %u of \"%s\" and \"%s\": a part or the result is not in the "
                         "vocabulary",
                         what, rank, fp8q_show_n(&shown[0], parts[0], lens[0]),
                         fp8q_show_n(&shown[1], parts[1], lens[1]));

    size_t i = fp8q_pair_slot(left, right, bpe->n_merge_slots);
    while (bpe->merges[i].left != -1 &&
           (bpe->merges[i].left != left || bpe->merges[i].right != right))
        i = (i + 1) & (bpe->n_merge_slots - 1);
    bpe->merges[i] =
        (struct fp8q_bpe_merge){left, right, merged, rank}; /* a repeat: the last wins */
    return FP8Q_OK;
}

/* The rank of a merge is its place in the list.  */
static int add_merges(struct fp8q_bpe *bpe, const struct fp8q_json *merges,
                      struct fp8q_text *joined, const char *what, struct fp8q_error *err)
{
    uint32_t rank = 0;
    for (const struct fp8q_json *m = fp8q_json_first(merges); m; m = fp8q_json_next(m))
        FP8Q_TRY(add_merge(bpe, m, rank++, joined, what, err));
    return FP8Q_OK;
}

static int load_merges(struct fp8q_bpe *bpe, const struct fp8q_json *merges, const char *what,
                       struct fp8q_error *err)
{
    size_t count = fp8q_json_count(merges);

    if (!fp8q_json_is_array(merges) || count > MAX_TOKENS)
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-merge",
                         "%s: \"model.merges\" is not an array of at most %u merges", what,
                         MAX_TOKENS);

    bpe->n_merge_slots = table_size(count);
    bpe->merges = fp8q_array(bpe->n_merge_slots, sizeof(*bpe->merges));
    if (!bpe->merges)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < bpe->n_merge_slots; i++)
        bpe->merges[i].left = -1;

    struct fp8q_text joined = {0};
    int status = add_merges(bpe, merges, &joined, what, err);
    fp8q_text_reset(&joined);
    return status;
}

/* Settings that change the result and that no supported family uses.  */
static int check_settings(const struct fp8q_json *model, const char *what, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *type = fp8q_json_string(fp8q_json_get(model, "type"), "BPE");
    if (strcmp(type, "BPE") != 0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                         "%s: model type \"%s\"; only BPE is supported", what,
                         fp8q_show(&shown, type));

    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++)
        if (*fp8q_json_string(fp8q_json_get(model, affixes[i]), ""))
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                             "%s: \"model.%s\" is not empty; only BPE is supported", what,
                             affixes[i]);

    if (fp8q_json_number(fp8q_json_get(model, "dropout"), 0) != 0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                         "%s: \"model.dropout\" is set, so ids would be random", what);
    return FP8Q_OK;
}

/* Some files set "byte_fallback" (bytes without a token become "<0xNN>"), though a byte-level
 * vocabulary has no such tokens.  Where they could come out, it is no tokenizer of our kind.  */
static int check_byte_fallback(const struct fp8q_bpe *bpe, const char *what, struct fp8q_error *err)
{
    if (!bpe->byte_fallback || bpe->by_char)
        return FP8Q_OK;

    for (unsigned byte = 0; byte < 256; byte++) {
        char text[4], name[8];
        fp8q_utf8_encode(text, fp8q_byte_to_char(byte));
        snprintf(name, sizeof(name), "<0x%02X>", (unsigned char)text[0]);
        if (bpe->byte_ids[byte] < 0 && fp8q_bpe_find(bpe, name, 6) >= 0)
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                             "%s: BPE with byte fallback (SentencePiece); only byte-level BPE is "
                             "supported",
                             what);
    }
    return FP8Q_OK;
}

static int load_model(struct fp8q_bpe *bpe, const struct fp8q_json *model, const char *what,
                      struct fp8q_error *err)
{
    FP8Q_TRY(check_settings(model, what, err));
    FP8Q_TRY(load_vocab(bpe, fp8q_json_get(model, "vocab"), what, err));
    find_bytes(bpe);
    bpe->byte_fallback = fp8q_json_bool(fp8q_json_get(model, "byte_fallback"), false);
    FP8Q_TRY(check_byte_fallback(bpe, what, err));
    FP8Q_TRY(load_merges(bpe, fp8q_json_get(model, "merges"), what, err));

    const char *unk = fp8q_json_string(fp8q_json_get(model, "unk_token"), NULL);
    bpe->unk = unk ? fp8q_bpe_find(bpe, unk, strlen(unk)) : -1;
    if (unk && bpe->unk < 0) {
        struct fp8q_shown shown;
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-vocab",
                         "%s: unknown token \"%s\" is not in the vocabulary", what,
                         fp8q_show(&shown, unk));
    }

    bpe->fuse_unk = fp8q_json_bool(fp8q_json_get(model, "fuse_unk"), false);
    bpe->ignore_merges = fp8q_json_bool(fp8q_json_get(model, "ignore_merges"), false);
    return FP8Q_OK;
}

int fp8q_bpe_init(struct fp8q_bpe *bpe, const struct fp8q_json *model, bool by_char,
                  const char *what, struct fp8q_error *err)
{
    *bpe = (struct fp8q_bpe){.unk = -1, .max_id = -1, .by_char = by_char};
    int status = load_model(bpe, model, what, err);
    if (status != FP8Q_OK)
        fp8q_bpe_reset(bpe);
    return status;
}

void fp8q_bpe_reset(struct fp8q_bpe *bpe)
{
    free(bpe->arena);
    free(bpe->tokens);
    free(bpe->merges);
    *bpe = (struct fp8q_bpe){.unk = -1, .max_id = -1};
}
