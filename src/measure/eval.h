/* SPDX-License-Identifier: Apache-2.0
 *
 * eval.h - checkpoints of one network on the same inputs, in lockstep, and how far their outputs differ
 * from those of the first.
 *
 * All comparisons are with the source in F32 arithmetic on its stored values.  Logarithms are
 * natural.
 */
#ifndef FP8Q_EVAL_H
#define FP8Q_EVAL_H

#include "model/forward.h"
#include "model/head.h"
#include "format/jsonw.h"
#include "measure/score.h"

struct fp8q_eval_options {
    enum fp8q_acts acts; /* for the output's quantized linears (and the source's, if it has any) */
    /* Weights of the output that are rounded after reading, as fp8q_branch has it; NULL: none.  */
    const bool *round;
    enum fp8q_scale_fmt round_fmt;
    const struct fp8q_stand_in *stand_in; /* NULL, or what has weights of the output */
    const struct fp8q_model *acts_like;   /* as fp8q_branch has it */
    bool decompose;                       /* also: activations alone, weights alone */
    bool fp8_cache; /* keys and values of the output pass through an FP8 cache, with its scales */
    bool requant_ue8m0; /* also: block scales of the output made powers of two, as some engines do
                           at load time */
    unsigned n_threads;
    const char *kernel; /* NULL: best */
    uint64_t
        buffer_bytes; /* tokens run together are chosen so that buffers stay near it; 0: 384 MiB */
    const struct fp8q_watch *watch; /* may be NULL */
};

/* Comparisons, in this order; those not asked for have no tokens.  */
enum fp8q_eval_row {
    FP8Q_EVAL_OUTPUT,      /* the output as it is served */
    FP8Q_EVAL_ACTIVATIONS, /* source weights, activations quantized where the output's are: a floor
                            */
    FP8Q_EVAL_WEIGHTS,     /* output weights, activations as they are */
    FP8Q_EVAL_REQUANT,     /* output with its scales requantized to powers of two */
    FP8Q_EVAL_N_ROWS
};
extern const char *const fp8q_eval_row_names[FP8Q_EVAL_N_ROWS];

struct fp8q_eval_sample {
    uint64_t tokens, nll_tokens;
    double kld, top1, nll_source, nll_output; /* means */
    char category[FP8Q_MAX_CATEGORY];
};

/* Tokens taken together: those of a modality, of the samples of a category, of a range of positions.
 */
struct fp8q_eval_part {
    char name[FP8Q_MAX_CATEGORY];
    uint64_t key; /* number of the modality; number of the category; first position */
    struct fp8q_eval_figures figures;
};
/* Those that have tokens, in the order of their keys.  */
struct fp8q_eval_parts {
    struct fp8q_eval_part *items; /* owned */
    size_t n;
};

/* What a layer leaves, and what one that joins later (an action expert) reads of it.  */
enum fp8q_state {
    FP8Q_STATE_HIDDEN, /* behind the layer */
    FP8Q_STATE_KEYS,   /* behind the rotation */
    FP8Q_STATE_VALUES,
    FP8Q_N_STATES
};
extern const char *const fp8q_state_names[FP8Q_N_STATES];

/* Positions are taken together from one power of two to the next: 0 to 15, 16 to 31, ...; the last
 * has all that are further in.  */
enum { FP8Q_EVAL_POSITIONS = 16, FP8Q_EVAL_FIRST_POSITIONS = 16 };

/* A linear of the output whose inputs have a static scale.  */
struct fp8q_eval_static {
    struct fp8q_name name;
    double clipped; /* share of its inputs beyond the range of the scale */
    double unused;  /* powers of two between the largest input and the end of the range */
};

struct fp8q_eval {
    struct fp8q_eval_figures rows[FP8Q_EVAL_N_ROWS];
    struct fp8q_eval_sample *samples; /* of FP8Q_EVAL_OUTPUT; owned */
    size_t n_samples;
    struct fp8q_eval_parts modalities; /* of the predicting token; none if all is text */
    struct fp8q_eval_parts categories; /* of its sample; none if no sample has one */
    struct fp8q_eval_parts positions;  /* its place in the sample */
    double *errors[FP8Q_N_STATES];     /* per layer: rms(output - source) / rms(source); owned */
    double final_error;                /* same, of the hidden state behind the final norm */
    uint32_t n_layers;
    struct fp8q_eval_static *statics; /* owned */
    size_t n_statics;
    double clipped, unused;         /* the worst of them; NaN where there is none */
    uint64_t n_tokens, n_quantized; /* tokens run; linears that are F8 in the output */
};

/* FP8Q_E_ARG if the checkpoints are of different networks or the inputs do not fit.  Inputs that score
 * nothing are refused unless they are embeddings: what a policy's backbone sees predicts no token,
 * and only its states are compared.  */
int fp8q_eval_run(const struct fp8q_model *source, const struct fp8q_model *output,
                  const struct fp8q_inputs *inputs, const struct fp8q_eval_options *options,
                  struct fp8q_eval *eval_out, struct fp8q_error *err);
/* The same of several outputs in one pass over the source; each figure is what the pair alone gives.
 * At most FP8Q_EVAL_MAX_OUTPUTS.  @evals_out: one for each; on failure all are zeroed.  */
enum { FP8Q_EVAL_MAX_OUTPUTS = FP8Q_MAX_MODELS - 1 };
int fp8q_eval_outputs(const struct fp8q_model *source, const struct fp8q_model *const *outputs,
                      unsigned n_outputs, const struct fp8q_inputs *inputs,
                      const struct fp8q_eval_options *options, struct fp8q_eval *evals_out,
                      struct fp8q_error *err);
void fp8q_eval_reset(struct fp8q_eval *eval);

/* The layer with the largest error of a state.  */
uint32_t fp8q_eval_worst(const struct fp8q_eval *eval, enum fp8q_state state);

/* Members of the evidence: "kld", "top1", "ppl", ..., into an open object.  */
void fp8q_eval_json(const struct fp8q_eval *eval, struct fp8q_jsonw *w);

#endif
