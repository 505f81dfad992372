/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenizer.h - text -> token ids with a checkpoint's own tokenizer.json.
 *
 * BPE over bytes (GPT-2, Qwen, Llama 3, SmolLM2, Tekken, cl100k and o200k patterns) or over
 * characters as SentencePiece does it (Llama 2, Mistral, Gemma, Phi-3: byte fallback, U+2581 for
 * spaces), with the results of the `tokenizers` library (encode() without special tokens added).
 * Every other kind of tokenizer is FP8Q_E_UNSUPPORTED with the name of what was found; nothing is
 * guessed.
 */
#ifndef FP8Q_TOKENIZER_H
#define FP8Q_TOKENIZER_H

#include "tokenizer/ids.h"

struct fp8q_tokenizer;

/* Reads @dir/tokenizer.json.  FP8Q_E_IO if there is none; FP8Q_E_FORMAT if it is broken;
 * FP8Q_E_UNSUPPORTED if it is another kind.  On failure *@tokenizer_out is NULL.  */
int fp8q_tokenizer_open(const char *dir, struct fp8q_tokenizer **tokenizer_out,
                        struct fp8q_error *err);
/* The same from memory; @what names the file in messages.  This is the fuzz target.  */
int fp8q_tokenizer_parse(const char *json, size_t len, const char *what,
                         struct fp8q_tokenizer **tokenizer_out, struct fp8q_error *err);
void fp8q_tokenizer_close(struct fp8q_tokenizer *tokenizer);

/* Largest id that can come out, plus one: compare with the model's vocabulary.  */
uint32_t fp8q_tokenizer_id_limit(const struct fp8q_tokenizer *tokenizer);

/* Appends the ids of @text.  Bytes that are no UTF-8 become U+FFFD first, one for each maximal
 * broken part, as Python's decode(errors="replace") does.  Special tokens written out in the text
 * are recognised, as the library does; none is added.  Threads: @tokenizer is not changed.  */
int fp8q_tokenizer_encode(const struct fp8q_tokenizer *tokenizer, const char *text, size_t len,
                          struct fp8q_ids *ids, struct fp8q_error *err);

#endif
