/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h - a plan in words and in JSON, shared by quantize, dequantize and finish.
 */
#ifndef FP8Q_CLI_REPORT_H
#define FP8Q_CLI_REPORT_H

#include "cli/cli.h"
#include "plan/plan.h"

/* Counts and bytes by reason, sizes, tensor parallelism; with -v one line a tensor.  */
void cli_report_plan(struct cli *cli, const struct fp8q_plan *plan);
/* Members "bytes", "reduction" and "tensors".  */
void cli_report_plan_json(struct cli *cli, const struct fp8q_plan *plan);
/* "[128, 256]" */
const char *cli_shape(char *buf, size_t cap, const uint64_t *shape, uint32_t ndim);

#endif
