/* SPDX-License-Identifier: Apache-2.0
 *
 * conversion.h - the conversion handle, between the file that drives it and the one that shows its
 * plan.
 */
#ifndef FP8Q_API_CONVERSION_H
#define FP8Q_API_CONVERSION_H

#include "api/internal.h"
#include "calibration/scales.h"
#include "convert/convert.h"
#include "plan/manifest.h"

struct fp8q_conversion {
    struct fp8q_request request; /* owned copy */
    struct fp8q_manner manner;
    struct fp8q_ckpt *ckpt, *like;
    struct fp8q_data_scales_of data; /* FP8_STATIC; else zeroed */
    struct fp8q_plan *plan;
    unsigned n_parts; /* opened from what parts left */

    /* What a caller can look at.  */
    struct fp8q_plan_info info;
    struct fp8q_planned_tensor *tensors;
    struct fp8q_output_tensor *outputs;
    struct fp8q_reason_count reasons[FP8Q_N_REASONS * FP8Q_N_SCHEMES];
    size_t n_reasons;
    char *default_destination;
    struct fp8q_text lock;
    const char *lock_path;             /* where a run writes it, or NULL; borrowed */
    char *lock_file;                   /* with parts: the same from the root on */
    bool lock_is_checked;              /* what stands there was held against the plan */
    struct fp8q_lock_file killed_lock; /* of a killed run for the destination at hand */
    char *killed_copy;                 /* what stood there before that */
    struct fp8q_manifest origin;       /* of a quantized source */
    bool origin_was_read, has_origin;

    struct fp8q_result result;
    bool has_result;
};

/* Before a part is run, and before parts are finished: where their lock will be written.  */
int fp8q_conversion_place_lock(struct fp8q_conversion *conversion, struct fp8q_error *err);
/* Before parts are finished: a lock that was checked then is checked again, since it is hours later.
 * *@there_out: it is there, and need not be written.  */
int fp8q_conversion_recheck_lock(struct fp8q_conversion *conversion, bool *there_out,
                                 struct fp8q_error *err);

/* Lays out what can be looked at, once the plan is made.  */
int fp8q_conversion_describe(struct fp8q_conversion *conversion, struct fp8q_error *err);

#endif
