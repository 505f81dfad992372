/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files of check share: the facts of a checkpoint, and one engine's judge.
 */
#ifndef FP8Q_ENGINES_INTERNAL_H
#define FP8Q_ENGINES_INTERNAL_H

#include "checkpoint/scales.h"
#include "engines/check.h"
#include "select/families.h"

/* One FP8 weight.  */
struct fp8q_disk_weight {
    const struct fp8q_tensor *weight;
    const struct fp8q_tensor *scale; /* NULL: @trouble says why */
    struct fp8q_scale_layout layout;
    const struct fp8q_json *group; /* of compressed-tensors that it falls under, or NULL */
    char *trouble;                 /* owned; NULL: the scales are understood */
};

struct fp8q_on_disk {
    const struct fp8q_ckpt *ckpt;
    const struct fp8q_warnings *warnings;
    struct fp8q_family family;
    struct fp8q_disk_weight *weights; /* sorted by name, as tensors are */
    size_t n_weights;
    const struct fp8q_json *config;        /* the description of the quantization, or NULL */
    const struct fp8q_config_place *place; /* where it stands */
    const char *method;                    /* its quant_method, or "" */
    bool has_format;                       /* it is one that the tables describe: */
    enum fp8q_format format;
    bool says_groups; /* MXFP8, which the fp8 format has under a method of its own */
};

int fp8q_on_disk_of(const struct fp8q_ckpt *ckpt, const struct fp8q_warnings *warnings,
                    struct fp8q_on_disk *facts_out, struct fp8q_error *err);
void fp8q_on_disk_reset(struct fp8q_on_disk *facts);

/* The FP8 weight that @tensor is, or NULL.  */
const struct fp8q_disk_weight *fp8q_disk_weight_of(const struct fp8q_on_disk *facts,
                                                   const struct fp8q_tensor *tensor);

/* One engine's judge.  */
struct fp8q_judge {
    const struct fp8q_on_disk *facts;
    enum fp8q_engine engine;
    unsigned demands; /* of its reading */
    struct fp8q_judgement *judgement;
    struct fp8q_error *err;
};

/* Adds a finding; @change may be NULL.  */
int fp8q_judge_say(struct fp8q_judge *j, enum fp8q_weight_of weight, const char *id,
                   const char *change, const char *fmt, ...) FP8Q_PRINTF(5, 6);

/* The steps of judging, each in a file of its own.  */
int fp8q_judge_config(struct fp8q_judge *j);
int fp8q_judge_weights(struct fp8q_judge *j);
int fp8q_judge_directory(struct fp8q_judge *j);
/* All engines at once.  */
int fp8q_judge_lists(const struct fp8q_on_disk *facts, struct fp8q_engines_report *report,
                     struct fp8q_error *err);

#endif
