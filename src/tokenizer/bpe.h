/* SPDX-License-Identifier: Apache-2.0
 *
 * bpe.h - the BPE model of a tokenizer.json: vocabulary, merges, and the merging of one piece.
 * Knows nothing of regular expressions, normalisation or added tokens.
 */
#ifndef FP8Q_BPE_H
#define FP8Q_BPE_H

#include "format/json.h"
#include "tokenizer/ids.h"

/* A token's text as the file spells it (with ByteLevel, bytes mapped to printable characters), in
 * bpe->arena.  */
struct fp8q_bpe_token {
    size_t text;
    uint32_t len;
    int32_t id;
};

struct fp8q_bpe_merge {
    int32_t left, right; /* left is -1 in a free slot */
    int32_t merged;
    uint32_t rank;
};

struct fp8q_bpe {
    char *arena;                   /* all token texts */
    struct fp8q_bpe_token *tokens; /* open addressing by text, @n_slots (a power of two) */
    struct fp8q_bpe_merge *merges; /* open addressing by pair, @n_merge_slots (a power of two) */
    size_t n_slots, n_merge_slots, n_tokens;
    int32_t byte_ids[256]; /* token of one byte, -1 if there is none */
    bool by_char;          /* the vocabulary spells characters: SentencePiece's way */
    bool byte_fallback;    /* with @by_char: a character without a token is spelled "<0xNN>" */
    int32_t unk;           /* token for a byte without one, -1: such bytes give nothing */
    int32_t max_id;
    bool fuse_unk, ignore_merges;
};

/* Builds @bpe from the "model" object; @by_char unless the pre-tokenizer is ByteLevel.  On failure
 * @bpe is reset.  */
int fp8q_bpe_init(struct fp8q_bpe *bpe, const struct fp8q_json *model, bool by_char,
                  const char *what, struct fp8q_error *err);
void fp8q_bpe_reset(struct fp8q_bpe *bpe);

/* Id of the token spelled @text in the file, -1 if there is none.  */
int32_t fp8q_bpe_find(const struct fp8q_bpe *bpe, const char *text, size_t len);

/* Memory of one encoding; zero it to start, reuse it for every piece.  */
struct fp8q_bpe_symbol {
    int32_t id; /* -1: merged into its left neighbour */
    int32_t prev, next;
};
struct fp8q_bpe_candidate {
    uint32_t rank;
    int32_t pos, merged;
};
struct fp8q_bpe_scratch {
    struct fp8q_bpe_symbol *symbols;
    struct fp8q_bpe_candidate *heap;
    char *mapped;
    size_t symbols_cap, heap_cap, heap_len, mapped_cap;
};
void fp8q_bpe_scratch_reset(struct fp8q_bpe_scratch *scratch);

/* Appends the ids of one piece of raw bytes.  O(n log n) in its length.  */
int fp8q_bpe_encode(const struct fp8q_bpe *bpe, struct fp8q_bpe_scratch *scratch, const char *piece,
                    size_t len, struct fp8q_ids *ids, struct fp8q_error *err);

#endif
