/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs.h - samples that a decoder is run on: token ids, or embeddings captured before its first
 * layer.
 *
 * In `*.inputs.safetensors`, for samples i = 0, 1, ...: `i.input_ids` I32/I64 [T] or
 * `i.inputs_embeds` BF16/F16/F32 [T,H]; optional `i.position_ids` I32/I64 [T] or [3,T],
 * `i.loss_mask` U8/BOOL [T], `i.labels` I32/I64 [T], `i.modality` U8 [T], `i.prefix_len` I32/I64
 * [1]: so many tokens at the front see one another in both directions (PaliGemma), `i.category` U8 [n]: what kind
 * of sample it is, as 1 to 63 bytes of UTF-8, `i.deepstack.K` BF16/F16/F32
 * [T,H]: what is added to the hidden state behind layer K (Qwen3-VL; zero rows for text).  Labels and masks are
 * aligned with the tokens: position t predicts label t+1 (by default id t+1) and is scored unless
 * mask t+1 is 0; a negative label has no NLL.
 */
#ifndef FP8Q_INPUTS_H
#define FP8Q_INPUTS_H

#include "model/model.h"

#define FP8Q_MODALITIES 8    /* 0 text, 1 vision, 2 action or state; the rest is free */
#define FP8Q_MAX_CATEGORY 64 /* bytes of its name, with the end */

#define FP8Q_MAX_DEEPSTACK 8

/* Tensors of a sample, and their names behind "i.".  */
enum fp8q_input {
    FP8Q_INPUT_IDS,
    FP8Q_INPUT_EMBEDS,
    FP8Q_INPUT_POSITIONS,
    FP8Q_INPUT_LOSS_MASK,
    FP8Q_INPUT_LABELS,
    FP8Q_INPUT_MODALITY,
    FP8Q_INPUT_PREFIX,
    FP8Q_INPUT_CATEGORY,
    FP8Q_INPUT_DEEPSTACK, /* the first of FP8Q_MAX_DEEPSTACK names "deepstack.K" */
    FP8Q_N_INPUTS
};
extern const char *const fp8q_input_names[FP8Q_N_INPUTS];
extern const char *const fp8q_modality_names[FP8Q_MODALITIES];

struct fp8q_sample {
    size_t n_tokens;
    int64_t *ids;       /* NULL: embeddings only */
    float *embeds;      /* [n_tokens][hidden], NULL: look the ids up */
    int64_t *positions; /* [position_rows][n_tokens], NULL: 0, 1, ... */
    unsigned position_rows;
    uint8_t *loss_mask;                   /* NULL: all 1 */
    int64_t *labels;                      /* NULL: the ids */
    uint8_t *modality;                    /* NULL: all 0 */
    float *deepstack[FP8Q_MAX_DEEPSTACK]; /* [n_tokens][hidden]; NULL: none */
    uint64_t prefix_len;                  /* 0: every token sees those before it only */
    char category[FP8Q_MAX_CATEGORY];     /* "": none */
};

struct fp8q_inputs {
    struct fp8q_sample *samples;
    size_t n_samples;
    uint64_t n_tokens;
    uint64_t hidden;      /* of the embeddings, 0 if there are none */
    char dataset[128];    /* as the file's metadata or the caller names it */
    uint32_t fingerprint; /* fingerprint.h, with ids as I64 and embeddings as F32 whatever the file
                             held */
};

/* Reads a file.  FP8Q_E_FORMAT for what breaks the rules above, empty samples included; unknown
 * tensors are a warning, but those that would change the forward pass (prefix, deepstack)
 * FP8Q_E_UNSUPPORTED.  */
int fp8q_inputs_open(const char *path, struct fp8q_inputs *inputs_out,
                     struct fp8q_warnings *warnings, struct fp8q_error *err);

/* Copies samples of ids, as a tokenizer gives them: sample i is ids[i][0 .. n_ids[i]-1].  */
int fp8q_inputs_from_ids(const int64_t *const *ids, const size_t *n_ids, size_t n_samples,
                         const char *dataset, struct fp8q_inputs *inputs_out,
                         struct fp8q_error *err);

/* Counts the tokens and takes the fingerprint, after samples were changed by hand.  */
int fp8q_inputs_finish(struct fp8q_inputs *inputs, struct fp8q_error *err);

/* Writes a new file that fp8q_inputs_open() reads back to the same samples.  */
int fp8q_inputs_write(const struct fp8q_inputs *inputs, const char *path, struct fp8q_error *err);

/* FP8Q_E_ARG "inputs" unless the samples fit the model: ids and labels in its vocabulary, width,
 * position rows, finite embeddings.  */
int fp8q_inputs_check(const struct fp8q_inputs *inputs, const struct fp8q_model *model,
                      struct fp8q_error *err);

/* Keeps the first @n_samples samples; the fingerprint follows.  */
int fp8q_inputs_truncate(struct fp8q_inputs *inputs, uint64_t n_samples, struct fp8q_error *err);

/* Token that position @t predicts, or -1.  */
int64_t fp8q_sample_target(const struct fp8q_sample *sample, size_t t);
/* Position @t counts: it is not the last, and its target is not masked out.  */
bool fp8q_sample_scored(const struct fp8q_sample *sample, size_t t);

void fp8q_inputs_reset(struct fp8q_inputs *inputs);

#endif
