/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h - config.json and tensor names -> the description of a decoder that forward.h can run.
 *
 * Families: llama (and what uses its class: SmolLM2), mistral, qwen2 (and 2.5), qwen2_vl and
 * qwen2_5_vl (their text backbone, with mrope), qwen3 (dense).  Everything else is refused by name,
 * and so is every rotary embedding, activation or attention that these families' code has no branch
 * for here.
 */
#ifndef FP8Q_MODEL_H
#define FP8Q_MODEL_H

#include "checkpoint/weights.h"

enum fp8q_linear {
    FP8Q_Q_PROJ,
    FP8Q_K_PROJ,
    FP8Q_V_PROJ,
    FP8Q_O_PROJ,
    FP8Q_GATE_PROJ,
    FP8Q_UP_PROJ,
    FP8Q_DOWN_PROJ,
    FP8Q_N_LINEARS
};

/* Inputs of linears: q/k/v share one, gate and up too.  A site is named after its first linear.  */
enum fp8q_site_kind { FP8Q_SITE_QKV, FP8Q_SITE_O, FP8Q_SITE_GATE_UP, FP8Q_SITE_DOWN, FP8Q_N_SITES };

enum fp8q_rope_kind {
    FP8Q_ROPE_DEFAULT,
    FP8Q_ROPE_LINEAR,
    FP8Q_ROPE_DYNAMIC,
    FP8Q_ROPE_YARN,
    FP8Q_ROPE_LLAMA3
};

#define FP8Q_MAX_HEAD_DIM 512

struct fp8q_rope {
    enum fp8q_rope_kind kind;
    double theta, factor;
    uint64_t max_positions;  /* of the config; dynamic scaling begins beyond */
    float attention_scaling; /* cos and sin are multiplied by it (yarn) */
    float inv_freq[FP8Q_MAX_HEAD_DIM / 2];
    uint32_t sections[3]; /* mrope: how many frequencies follow each row of positions; 0: plain */
};

struct fp8q_model {
    const struct fp8q_ckpt *ckpt; /* borrowed */
    char family[32];
    char prefix[48];    /* "model." or "model.language_model." or "language_model.model." */
    char head_name[96]; /* tensor that gives the logits */
    uint32_t n_layers, n_heads, n_kv_heads, head_dim;
    uint64_t hidden, intermediate, vocab;
    float norm_eps;
    bool tied, qk_norm;
    bool bias[FP8Q_N_LINEARS];
    struct fp8q_rope rope;
    uint64_t
        *window; /* per layer: keys that a query sees, itself included; 0: all before it.  Owned  */
    uint8_t *scaling; /* [layer * FP8Q_N_LINEARS + linear]: enum fp8q_scaling.  Owned  */
    enum fp8q_scaling head_scaling;
};

/* Describes @ckpt and checks that every tensor is there with the right shape.  FP8Q_E_UNSUPPORTED:
 * no config.json, another family, or a variant that is not computed here.  FP8Q_E_FORMAT:
 * config.json and tensors disagree. On failure *@model_out is zeroed; else fp8q_model_reset() it.
 */
int fp8q_model_open(const struct fp8q_ckpt *ckpt, struct fp8q_model *model_out,
                    struct fp8q_error *err);
void fp8q_model_reset(struct fp8q_model *model);

/* FP8Q_E_ARG unless both describe the same network (they may differ in what is quantized).  */
int fp8q_model_same(const struct fp8q_model *a, const struct fp8q_model *b, struct fp8q_error *err);

struct fp8q_name {
    char text[160];
};
/* "model.layers.3.self_attn.q_proj" + @suffix (".weight", "", ...).  */
const char *fp8q_linear_name(const struct fp8q_model *model, uint32_t layer,
                             enum fp8q_linear linear, const char *suffix, struct fp8q_name *buf);
/* "model.layers.3." + @rest.  */
const char *fp8q_layer_name(const struct fp8q_model *model, uint32_t layer, const char *rest,
                            struct fp8q_name *buf);
/* [rows, columns] of a linear's weight.  */
void fp8q_linear_shape(const struct fp8q_model *model, enum fp8q_linear linear,
                       uint64_t shape_out[2]);
enum fp8q_site_kind fp8q_linear_site(enum fp8q_linear linear);
enum fp8q_linear fp8q_site_first(enum fp8q_site_kind site);
uint64_t fp8q_site_width(const struct fp8q_model *model, enum fp8q_site_kind site);

/* Frequencies for a sequence whose largest position is @max_position (dynamic scaling depends on
 * it).  */
void fp8q_rope_frequencies(const struct fp8q_model *model, uint64_t max_position,
                           float inv_freq_out[FP8Q_MAX_HEAD_DIM / 2]);

#endif
