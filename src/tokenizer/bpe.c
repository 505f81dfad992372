/* SPDX-License-Identifier: Apache-2.0
 *
 * bpe.c - byte-pair merging of one piece with a heap of candidates.
 *
 * The rule of the `tokenizers` library, kept to the letter: of all adjacent pairs that have a
 * merge, the one of lowest rank goes first, the leftmost on equal ranks.  A candidate is pushed
 * once when its pair comes to be; on its turn it counts if its two symbols still merge into the
 * token that it names.
 */
#include "tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/bytelevel.h"
#include "base/mem.h"
#include "base/utf8.h"

void fp8q_bpe_scratch_reset(struct fp8q_bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    free(scratch->mapped);
    *scratch = (struct fp8q_bpe_scratch){0};
}

/* ---- heap of candidates: lowest rank first, then leftmost ------------------------------------ */

static bool goes_before(const struct fp8q_bpe_candidate *a, const struct fp8q_bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

static int heap_push(struct fp8q_bpe_scratch *s, struct fp8q_bpe_candidate item,
                     struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_grow(&s->heap, s->heap_len, &s->heap_cap, sizeof(*s->heap), err));
    size_t i = s->heap_len++;

    for (; i > 0 && goes_before(&item, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];

    s->heap[i] = item;
    return FP8Q_OK;
}

static struct fp8q_bpe_candidate heap_pop(struct fp8q_bpe_scratch *s)
{
    struct fp8q_bpe_candidate top = s->heap[0], item = s->heap[--s->heap_len];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < s->heap_len; i = child) {
        /* The smaller of the two children moves up.  */
        if (child + 1 < s->heap_len && goes_before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!goes_before(&s->heap[child], &item))
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = item;
    return top;
}

/* ---- one piece ----------------------------------------------------------------------------- */

static const struct fp8q_bpe_merge *find_merge(const struct fp8q_bpe *bpe, int32_t left,
                                               int32_t right)
{
    const struct fp8q_bpe_merge *m = &bpe->merges[fp8q_pair_slot(left, right, bpe->n_merge_slots)];
    while (m->left != -1 && (m->left != left || m->right != right))
        m = m + 1 < bpe->merges + bpe->n_merge_slots ? m + 1 : bpe->merges;
    return m->left == -1 ? NULL : m;
}

static int add_candidate(const struct fp8q_bpe *bpe, struct fp8q_bpe_scratch *s, int32_t pos,
                         struct fp8q_error *err)
{
    /* The ends of the piece have no neighbour there.  */
    if (pos < 0 || s->symbols[pos].next < 0)
        return FP8Q_OK;

    const struct fp8q_bpe_merge *m =
        find_merge(bpe, s->symbols[pos].id, s->symbols[s->symbols[pos].next].id);

    if (!m)
        return FP8Q_OK;
    return heap_push(s, (struct fp8q_bpe_candidate){m->rank, pos, m->merged}, err);
}

/* Symbols in the making.  */
struct loading {
    const struct fp8q_bpe *bpe;
    struct fp8q_bpe_symbol *symbols;
    int32_t n;
    bool unknown; /* an unknown token waits: fuse_unk may take more into it */
};

static void put_symbol(struct loading *l, int32_t id)
{
    l->symbols[l->n] = (struct fp8q_bpe_symbol){id, l->n - 1, l->n + 1};
    l->n++;
}

/* What has no token becomes the unknown one (a run of them only one with fuse_unk), or nothing where
 * the file names none.  */
static void put_unknown(struct loading *l)
{
    if (l->bpe->unk < 0)
        return;
    if (l->unknown && !l->bpe->fuse_unk)
        put_symbol(l, l->bpe->unk);
    l->unknown = true;
}

static void put_known(struct loading *l, int32_t id)
{
    if (l->unknown)
        put_symbol(l, l->bpe->unk);
    l->unknown = false;
    put_symbol(l, id);
}

/* The bytes of a character as tokens "<0xNN>"; false unless all are there.  An unknown token that
 * waits stays behind them, as in the library.  */
static bool put_bytes(struct loading *l, const char *bytes, size_t len)
{
    if (!l->bpe->byte_fallback)
        return false;
    for (size_t i = 0; i < len; i++)
        if (l->bpe->byte_ids[(unsigned char)bytes[i]] < 0)
            return false;
    for (size_t i = 0; i < len; i++)
        put_symbol(l, l->bpe->byte_ids[(unsigned char)bytes[i]]);
    return true;
}

static void load_chars(struct loading *l, const char *piece, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        uint32_t cp;
        n = fp8q_utf8_decode(piece + i, len - i, &cp);
        n = n ? n : 1;
        int32_t id = fp8q_bpe_find(l->bpe, piece + i, n);
        if (id >= 0)
            put_known(l, id);
        else if (!put_bytes(l, piece + i, n))
            put_unknown(l);
    }
}

static int32_t load_symbols(const struct fp8q_bpe *bpe, struct fp8q_bpe_symbol *symbols,
                            const char *piece, size_t len)
{
    struct loading l = {.bpe = bpe, .symbols = symbols};
    if (bpe->by_char)
        load_chars(&l, piece, len);
    for (size_t i = 0; i < len && !bpe->by_char; i++) {
        int32_t id = bpe->byte_ids[(unsigned char)piece[i]];
        if (id >= 0)
            put_known(&l, id);
        else
            put_unknown(&l);
    }

    if (l.unknown)
        put_symbol(&l, bpe->unk);
    if (l.n > 0)
        symbols[l.n - 1].next = -1;
    return l.n;
}

static int merge_all(const struct fp8q_bpe *bpe, struct fp8q_bpe_scratch *s, int32_t n,
                     struct fp8q_error *err)
{
    s->heap_len = 0;

    for (int32_t i = 0; i + 1 < n; i++)
        FP8Q_TRY(add_candidate(bpe, s, i, err));

    while (s->heap_len > 0) {
        struct fp8q_bpe_candidate top = heap_pop(s);
        struct fp8q_bpe_symbol *left = &s->symbols[top.pos];
        /* It was merged into another, or has become the last.  */
        if (left->id < 0 || left->next < 0)
            continue;

        struct fp8q_bpe_symbol *right = &s->symbols[left->next];
        const struct fp8q_bpe_merge *m = find_merge(bpe, left->id, right->id);
        if (!m || m->merged != top.merged)
            continue; /* made before a neighbour changed */

        /* The right symbol goes; both pairs that the new symbol is part of are new.  */
        left->id = top.merged;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0)
            s->symbols[left->next].prev = top.pos;

        FP8Q_TRY(add_candidate(bpe, s, left->prev, err));
        FP8Q_TRY(add_candidate(bpe, s, top.pos, err));
    }
    return FP8Q_OK;
}

/* Room for @n items of @size bytes without keeping what was there.  */
static int make_room(void *items, size_t *cap, size_t n, size_t size, struct fp8q_error *err)
{
    void *old;
    if (n <= *cap)
        return FP8Q_OK;

    /* @items points to a typed pointer; its bytes go through a void pointer.  */
    memcpy(&old, items, sizeof(old));
    free(old);
    void *fresh = fp8q_array(n + n / 2, size);
    *cap = fresh ? n + n / 2 : 0;
    memcpy(items, &fresh, sizeof(fresh));
    return fresh ? FP8Q_OK : fp8q_fail_nomem(err);
}

static int find_whole(const struct fp8q_bpe *bpe, struct fp8q_bpe_scratch *s, const char *piece,
                      size_t len, int32_t *id_out, struct fp8q_error *err)
{
    if (bpe->by_char) {
        *id_out = fp8q_bpe_find(bpe, piece, len);
        return FP8Q_OK;
    }
    FP8Q_TRY(make_room(&s->mapped, &s->mapped_cap, 2 * len, 1, err));
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n += fp8q_utf8_encode(s->mapped + n, fp8q_byte_to_char((unsigned char)piece[i]));

    *id_out = fp8q_bpe_find(bpe, s->mapped, n);
    return FP8Q_OK;
}

int fp8q_bpe_encode(const struct fp8q_bpe *bpe, struct fp8q_bpe_scratch *scratch, const char *piece,
                    size_t len, struct fp8q_ids *ids, struct fp8q_error *err)
{
    if (!bpe->by_char && len == 1 && bpe->byte_ids[(unsigned char)piece[0]] >= 0)
        return fp8q_ids_add(ids, bpe->byte_ids[(unsigned char)piece[0]], err);

    /* Links between symbols are 32 bits wide.  */
    if (len > INT32_MAX / 2)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "text-piece",
                         "text: one word of %zu bytes is more than this tokenizer takes", len);

    /* Llama 3 takes a word that is a token whole, even where no merges lead to it.  */
    if (bpe->ignore_merges) {
        int32_t id;

        FP8Q_TRY(find_whole(bpe, scratch, piece, len, &id, err));
        if (id >= 0)
            return fp8q_ids_add(ids, id, err);
    }
    FP8Q_TRY(
        make_room(&scratch->symbols, &scratch->symbols_cap, len, sizeof(*scratch->symbols), err));
    int32_t n = load_symbols(bpe, scratch->symbols, piece, len);
    FP8Q_TRY(merge_all(bpe, scratch, n, err));

    for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = scratch->symbols[i].next)
        FP8Q_TRY(fp8q_ids_add(ids, scratch->symbols[i].id, err));
    return FP8Q_OK;
}
