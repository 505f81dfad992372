/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.c - puts the parts of a tokenizer.json together and runs text through them:
 * repair UTF-8 -> added tokens -> normal form -> added tokens of normalised text -> pieces -> BPE.
 */
#include "tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/added.h"
#include "tokenizer/bpe.h"
#include "base/file.h"
#include "base/path.h"
#include "base/mem.h"
#include "tokenizer/normalize.h"
#include "tokenizer/pretokenize.h"
#include "base/utf8.h"

#define MAX_FILE_BYTES (512u << 20)

struct fp8q_tokenizer {
    struct fp8q_bpe bpe;
    struct fp8q_normalizer normalizer;
    struct fp8q_pretokenizer pre;
    struct fp8q_added_sets added;
};

/* ---- loading ------------------------------------------------------------------------------- */

/* A SentencePiece or WordPiece file is best named by its own model type.  */
static int load(struct fp8q_tokenizer *t, const struct fp8q_json *root, const char *what,
                struct fp8q_error *err)
{
    const struct fp8q_json *model = fp8q_json_get(root, "model");
    if (!fp8q_json_is_object(model))
        return fp8q_fail(err, FP8Q_E_FORMAT, "tokenizer-format", "%s: no \"model\" object", what);

    const char *type = fp8q_json_string(fp8q_json_get(model, "type"), "BPE");
    struct fp8q_shown shown;
    if (strcmp(type, "BPE") != 0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tokenizer-kind",
                         "%s: model type \"%s\"; only BPE is supported", what,
                         fp8q_show(&shown, type));
    FP8Q_TRY(fp8q_normalizer_init(&t->normalizer, root, what, err));
    FP8Q_TRY(fp8q_pretokenizer_init(&t->pre, root, what, err));
    FP8Q_TRY(fp8q_bpe_init(&t->bpe, model, !t->pre.byte_level, what, err));
    return fp8q_added_init(&t->added, fp8q_json_get(root, "added_tokens"), &t->bpe, &t->normalizer,
                           what, err);
}

int fp8q_tokenizer_parse(const char *json, size_t len, const char *what,
                         struct fp8q_tokenizer **tokenizer_out, struct fp8q_error *err)
{
    struct fp8q_json *root;
    *tokenizer_out = NULL;
    FP8Q_TRY(fp8q_json_parse(json, len, 0, what, &root, err));

    struct fp8q_tokenizer *t = fp8q_array(1, sizeof(*t));
    int status = t ? load(t, root, what, err) : fp8q_fail_nomem(err);
    fp8q_json_free(root);

    if (status != FP8Q_OK) {
        fp8q_tokenizer_close(t);
        return status;
    }
    *tokenizer_out = t;
    return FP8Q_OK;
}

static int open_file(const char *path, char **text_out, struct fp8q_tokenizer **tokenizer_out,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown;
    size_t len;

    FP8Q_TRY(fp8q_read_file_if_there(path, MAX_FILE_BYTES, text_out, &len, err));
    if (!*text_out)
        return fp8q_fail(err, FP8Q_E_IO, "no-tokenizer",
                         "%s: No such file or directory; text needs it, and tokenizers of other "
                         "kinds (tokenizer.model, vocab.json) are not read",
                         fp8q_show(&shown, path));
    return fp8q_tokenizer_parse(*text_out, len, path, tokenizer_out, err);
}

int fp8q_tokenizer_open(const char *dir, struct fp8q_tokenizer **tokenizer_out,
                        struct fp8q_error *err)
{
    char *path = fp8q_join(dir, "tokenizer.json"), *text = NULL;
    *tokenizer_out = NULL;
    if (!path)
        return fp8q_fail_nomem(err);

    int status = open_file(path, &text, tokenizer_out, err);
    free(text);
    free(path);
    return status;
}

void fp8q_tokenizer_close(struct fp8q_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    fp8q_added_reset(&tokenizer->added);
    fp8q_pretokenizer_reset(&tokenizer->pre);
    fp8q_normalizer_reset(&tokenizer->normalizer);
    fp8q_bpe_reset(&tokenizer->bpe);
    free(tokenizer);
}

uint32_t fp8q_tokenizer_id_limit(const struct fp8q_tokenizer *tokenizer)
{
    int32_t a = tokenizer->bpe.max_id, b = tokenizer->added.max_id;
    return (uint32_t)(a > b ? a : b) + 1;
}

/* ---- UTF-8 --------------------------------------------------------------------------------- */

/* Bytes of the longest prefix of a well-formed character that the broken @text begins with, at
 * least 1 (Unicode 3.9, "maximal subpart").  */
static size_t broken_part(const unsigned char *text, size_t len)
{
    unsigned char lead = text[0], low = 0x80, high = 0xBF;
    size_t want = 1; /* bytes of a character that begins so */
    if (lead >= 0xC2 && lead <= 0xDF)
        want = 2;
    else if (lead >= 0xE0 && lead <= 0xEF)
        want = 3;
    else if (lead >= 0xF0 && lead <= 0xF4)
        want = 4;

    /* The second byte of some leads has a narrower range: no overlong forms, no surrogates.  */
    if (lead == 0xE0)
        low = 0xA0;
    else if (lead == 0xED)
        high = 0x9F;
    else if (lead == 0xF0)
        low = 0x90;
    else if (lead == 0xF4)
        high = 0x8F;

    size_t n = 1;
    for (; n < want && n < len && text[n] >= low && text[n] <= high; n++) {
        low = 0x80;
        high = 0xBF;
    }
    return n;
}

/* @text itself if it is UTF-8 (*@owned_out NULL), else a repaired copy.  */
static int repair(const char *text, size_t len, const char **text_out, size_t *len_out,
                  struct fp8q_text *owned, struct fp8q_error *err)
{
    size_t plain = 0; /* start of what is not yet copied */

    for (size_t i = 0; i < len;) {
        uint32_t cp;
        /* Plain text is the rule, so it is not decoded.  */
        size_t n = (unsigned char)text[i] < 0x80 ? 1 : fp8q_utf8_decode(text + i, len - i, &cp);

        if (n == 0) {
            fp8q_text_add(owned, text + plain, i - plain);
            fp8q_text_add(owned, "\xEF\xBF\xBD", 3);
            n = broken_part((const unsigned char *)text + i, len - i);
            plain = i + n;
        }
        i += n;
    }

    *text_out = text;
    *len_out = len;
    /* Nothing was repaired: no copy.  */
    if (plain == 0)
        return FP8Q_OK;
    fp8q_text_add(owned, text + plain, len - plain);
    *text_out = owned->data;
    *len_out = owned->len;
    return fp8q_text_status(owned, err);
}

/* ---- encoding ------------------------------------------------------------------------------ */

struct encoding {
    const struct fp8q_tokenizer *tokenizer;
    struct fp8q_splitter splitter;
    struct fp8q_bpe_scratch scratch;
    struct fp8q_ids *ids;
};

typedef int text_fn(struct encoding *e, const struct fp8q_stretch *text, struct fp8q_error *err);

/* Cuts the tokens of @added out of @text and hands what lies between them on.  */
static int cut_added(struct encoding *e, const struct fp8q_added *added,
                     const struct fp8q_stretch *text, text_fn *plain, struct fp8q_error *err)
{
    const struct fp8q_added_token *t;
    struct fp8q_stretch before = {.first = text->first};
    size_t from = 0, begin, end;

    while ((t = fp8q_added_next(added, text->text, text->len, from, &begin, &end))) {
        before.text = text->text + from;
        before.len = begin - from;
        if (before.len > 0)
            FP8Q_TRY(plain(e, &before, err));
        FP8Q_TRY(fp8q_ids_add(e->ids, t->id, err));
        from = end;
        /* Metaspace's "first" is the beginning of the input, not of a stretch.  */
        before.first = false;
    }

    before.text = text->text + from;
    before.len = text->len - from;
    return before.len > 0 ? plain(e, &before, err) : FP8Q_OK;
}

static int encode_piece(void *ctx, const char *piece, size_t len, struct fp8q_error *err)
{
    struct encoding *e = ctx;
    return fp8q_bpe_encode(&e->tokenizer->bpe, &e->scratch, piece, len, e->ids, err);
}

static int encode_plain(struct encoding *e, const struct fp8q_stretch *text, struct fp8q_error *err)
{
    return fp8q_splitter_run(&e->splitter, text, encode_piece, e, err);
}

static int encode_unnormalized(struct encoding *e, const struct fp8q_stretch *text,
                               struct fp8q_error *err)
{
    struct fp8q_stretch normal = {.first = text->first};
    char *owned;
    FP8Q_TRY(fp8q_normalize(&e->tokenizer->normalizer, text->text, text->len, &normal.text,
                            &normal.len, &owned, err));
    int status = cut_added(e, &e->tokenizer->added.normalized, &normal, encode_plain, err);
    free(owned);
    return status;
}

static int encode_all(struct encoding *e, const char *text, size_t len, struct fp8q_text *repaired,
                      struct fp8q_error *err)
{
    struct fp8q_stretch all = {.first = true};
    FP8Q_TRY(repair(text, len, &all.text, &all.len, repaired, err));
    return cut_added(e, &e->tokenizer->added.raw, &all, encode_unnormalized, err);
}

int fp8q_tokenizer_encode(const struct fp8q_tokenizer *tokenizer, const char *text, size_t len,
                          struct fp8q_ids *ids, struct fp8q_error *err)
{
    struct encoding e = {.tokenizer = tokenizer, .ids = ids};
    struct fp8q_text repaired = {0};
    FP8Q_TRY(fp8q_splitter_init(&e.splitter, &tokenizer->pre, err));

    int status = encode_all(&e, text, len, &repaired, err);
    fp8q_text_reset(&repaired);
    fp8q_bpe_scratch_reset(&e.scratch);
    fp8q_splitter_reset(&e.splitter);
    return status;
}
