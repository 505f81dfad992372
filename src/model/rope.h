/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.h - rotary embeddings: from config.json to frequencies, and from positions to angles.
 */
#ifndef FP8Q_ROPE_H
#define FP8Q_ROPE_H

#include "base/error.h"
#include "format/json.h"

#define FP8Q_MAX_HEAD_DIM 512

enum fp8q_rope_kind {
    FP8Q_ROPE_DEFAULT,
    FP8Q_ROPE_LINEAR,
    FP8Q_ROPE_DYNAMIC,
    FP8Q_ROPE_YARN,
    FP8Q_ROPE_LLAMA3,
    FP8Q_ROPE_LONGROPE
};

/* One rotary embedding.  Compared byte by byte (fp8q_model_differences()), so zero it first.  */
struct fp8q_rope {
    enum fp8q_rope_kind kind;
    uint32_t dim;            /* elements of a head that turn; those behind them stay as they are */
    bool interleaved;        /* pairs are neighbours, not element i of the two halves */
    bool sections_alternate; /* frequencies take their row in turns, not in three runs */
    uint32_t sections[3];    /* how many frequencies follow each row of positions; 0: one row */
    float attention_scaling; /* cos and sin are multiplied by it (yarn, longrope) */
    float score_scaling;     /* factor of the scores for latent attention (`mscale_all_dim`) */
    double theta, factor;
    uint64_t max_positions; /* dynamic and longrope change beyond it */
    float inv_freq[FP8Q_MAX_HEAD_DIM / 2];
    float long_freq[FP8Q_MAX_HEAD_DIM / 2]; /* longrope, beyond max_positions */
};

/* What an architecture knows of its rotary embedding before its config is read.  */
struct fp8q_rope_how {
    uint32_t head_dim;
    double theta;           /* base when the config names none */
    const char *theta_key;  /* the key that names it, "rope_theta" for most */
    const char *layer_type; /* member of "rope_parameters" where these are by type of layer */
    double partial;         /* part of the head that turns when the config is silent */
    bool whole;             /* the architecture turns all of a head or nothing */
    bool mrope;             /* three rows of positions */
    bool alternate;         /* `sections_alternate` */
    bool interleaved;
    bool unscaled; /* "rope_scaling" is not for this one */
};

/* Reads `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before).
 * FP8Q_E_UNSUPPORTED "rope" for a type that is not computed here, by name; FP8Q_E_FORMAT "config"
 * for values that make no sense.  */
int fp8q_rope_read(struct fp8q_rope *rope_out, const struct fp8q_json *config,
                   const struct fp8q_rope_how *how, struct fp8q_error *err);

/* Frequencies for a sequence whose largest position is @max_position (dynamic scaling and longrope
 * depend on it): dim/2 values.  */
void fp8q_rope_frequencies(const struct fp8q_rope *rope, uint64_t max_position,
                           float inv_freq_out[FP8Q_MAX_HEAD_DIM / 2]);

/* Positions of one sample.  */
struct fp8q_positions {
    const int64_t *at; /* [rows][n_tokens] */
    unsigned rows;     /* 1 or 3 */
    size_t n_tokens;
};
/* cos and sin, [n_tokens][dim/2] each.  */
void fp8q_rope_table(const struct fp8q_rope *rope, const float *inv_freq,
                     const struct fp8q_positions *positions, float *cos_out, float *sin_out);

#endif
