/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of measure/ share: the loop over groups of samples, and what eval.c,
 * parts.c and states.c, sweep.c and split.c, drift.c and drift_codes.c tell each other.
 */
#ifndef FP8Q_MEASURE_INTERNAL_H
#define FP8Q_MEASURE_INTERNAL_H

#include "measure/drift.h"
#include "measure/eval.h"
#include "measure/sweep.h"

/* Tokens of the longest sample.  */
size_t fp8q_longest_sample(const struct fp8q_inputs *inputs);

/* Samples to be run in groups of about @max_tokens tokens, made for runs of @model and of @others.  */
struct fp8q_groups {
    const struct fp8q_model *model, *const *others;
    unsigned n_others;
    const struct fp8q_inputs *inputs;
    size_t max_tokens;
};
/* Calls @run for one group after another; @first_sample is the index of the group's first one.  Stops
 * at the first failure.  */
typedef int fp8q_group_fn(void *ctx, const struct fp8q_group *group, size_t first_sample,
                          struct fp8q_error *err);
int fp8q_groups_run(const struct fp8q_groups *groups, fp8q_group_fn *run, void *ctx,
                    struct fp8q_error *err);

/* ---- eval: parts.c --------------------------------------------------------------------------- */

/* @modality, @range: of each token; the latter which of FP8Q_EVAL_POSITIONS.  Categories are those of
 * the samples.  Lists stay empty where there is nothing to tell apart.  */
int fp8q_parts_modalities(const struct fp8q_scores *scores, const uint8_t *modality,
                          struct fp8q_eval_parts *out, struct fp8q_error *err);
int fp8q_parts_categories(const struct fp8q_scores *scores, const struct fp8q_inputs *inputs,
                          struct fp8q_eval_parts *out, struct fp8q_error *err);
int fp8q_parts_positions(const struct fp8q_scores *scores, const uint8_t *range,
                         struct fp8q_eval_parts *out, struct fp8q_error *err);
/* @key: what the number of a part is called; NULL: its name says all.  */
void fp8q_parts_json(const struct fp8q_eval_parts *parts, const char *list, const char *key,
                     struct fp8q_jsonw *w);

/* ---- eval: states.c -------------------------------------------------------------------------- */

struct fp8q_state_sums {
    double diff, ref; /* of squares */
};
struct fp8q_states {
    struct fp8q_state_sums *sums[FP8Q_N_STATES]; /* by layer, one more for the final norm; owned */
};
/* Keys and values of the source in the layer at work; owned.  */
struct fp8q_cached {
    float *keys, *values;
    size_t key_width, value_width;
};
/* Rows of the source and of the output, [n_rows][width].  */
struct fp8q_state_pair {
    const struct fp8q_gemm *gemm;
    const float *source, *output;
    size_t n_rows, width;
};

int fp8q_cached_open(struct fp8q_cached *cached, const struct fp8q_model *model, size_t max_tokens,
                     struct fp8q_error *err);
void fp8q_cached_close(struct fp8q_cached *cached);
void fp8q_cached_keep(struct fp8q_cached *cached, const struct fp8q_forward *fw, size_t n_tokens);

int fp8q_states_open(struct fp8q_states *states, const struct fp8q_model *model,
                     struct fp8q_error *err);
void fp8q_states_close(struct fp8q_states *states);
void fp8q_states_add(struct fp8q_states *states, enum fp8q_state state, uint32_t layer,
                     const struct fp8q_state_pair *pair);
/* Adds the output's keys and values, which @fw has, beside the source's.  */
void fp8q_states_cache(struct fp8q_states *states, const struct fp8q_cached *source,
                       const struct fp8q_forward *fw, size_t n_tokens, uint32_t layer);
double fp8q_states_error(const struct fp8q_states *states, enum fp8q_state state, uint32_t layer);
void fp8q_states_json(const struct fp8q_eval *eval, struct fp8q_jsonw *w);

/* ---- sweep ----------------------------------------------------------------------------------- */

struct fp8q_sweep_job {
    const struct fp8q_model *model;
    const struct fp8q_inputs *inputs;
    const struct fp8q_sweep_options *options;
    struct fp8q_sweep *sweep;
};

/* What a unit is made of (sweep_parts.c): linears of a layer, those of the expert that all tokens share, and
 * the experts, which engines load as one.  As bits of uint16_t.  */
enum {
    FP8Q_PART_SHARED = FP8Q_N_LINEARS, /* gate, up, down */
    FP8Q_PART_EXPERTS = FP8Q_PART_SHARED + 3,
    FP8Q_N_PARTS
};
bool fp8q_part_exists(const struct fp8q_model *model, uint32_t layer, int part);
/* Weights of a part: slot, shape and tensor of the one of number @i; false behind the last.  A fused
 * weight is one, and so is a stack of experts.  */
struct fp8q_part_weight {
    size_t slot;
    uint64_t shape[2];
    const struct fp8q_tensor *tensor;
    uint64_t matrices; /* of @shape, in the tensor */
    bool transposed;
};
bool fp8q_part_weight_of(const struct fp8q_model *model, uint32_t layer, int part, uint32_t i,
                         struct fp8q_part_weight *weight_out);
/* Its name as a module, or as what all its modules begin with.  */
const char *fp8q_part_name(const struct fp8q_model *model, uint32_t layer, int part,
                           struct fp8q_name *buf);

/* The source with weights of some units rounded (schemes.c): what a branch takes in place of its
 * own.  It must not move while it is open.  */
struct fp8q_as {
    const struct fp8q_model *model;
    const struct fp8q_kernel *kernel;
    struct fp8q_stand_in stand_in;
    struct fp8q_model like; /* @model, with the inputs that the schemes give */
    uint8_t *scheme_of;     /* by tensor of the checkpoint; owned, as all that follows */
    bool *round;            /* by slot: in blocks */
    uint8_t *served;        /* by slot, of @like */
};
/* To be closed in every case.  */
int fp8q_as_open(const struct fp8q_model *model, const char *kernel, struct fp8q_as *as,
                 struct fp8q_error *err);
void fp8q_as_close(struct fp8q_as *as);
/* Everything as it is again.  */
void fp8q_as_clear(struct fp8q_as *as);
void fp8q_as_add(struct fp8q_as *as, const struct fp8q_sweep_unit *unit,
                 const struct fp8q_sweep_choice *choice);

/* With the costs of all units known: sorts them, measures "all", and chooses and measures the split
 * that keeps the budget.  */
int fp8q_split_choose(const struct fp8q_sweep_job *job, struct fp8q_error *err);

/* ---- drift ----------------------------------------------------------------------------------- */

struct fp8q_drift_pair {
    const struct fp8q_calib *before, *after;
    const struct fp8q_drift_options *options;
};

/* Fills in what re-rounding the weights of options->ckpt would change, site by site.  */
int fp8q_drift_codes(const struct fp8q_drift_pair *pair, const struct fp8q_kernel *kernel,
                     struct fp8q_drift *drift, struct fp8q_error *err);

#endif
