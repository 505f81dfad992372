/* SPDX-License-Identifier: Apache-2.0
 *
 * exclude.h - part of planning: what config.json tells the engines.
 */
#ifndef FP8Q_EXCLUDE_H
#define FP8Q_EXCLUDE_H

#include "plan/plan.h"

/* Fills plan->exclusions: every module that stays, in the spellings that engines ask for
 * (docs/reference/format.md "exclusion list"), sorted.  */
int fp8q_exclude(struct fp8q_plan *plan, struct fp8q_error *err);

/* Fills plan->quant_config and plan->config_text (the source's config.json with quantization_config
 * put in, or taken out when dequantizing).  */
int fp8q_config_texts(struct fp8q_plan *plan, struct fp8q_error *err);

#endif
