/* SPDX-License-Identifier: Apache-2.0
 *
 * report.h - a conversion in words and in JSON, shared by quantize, dequantize and finish.
 */
#ifndef FP8Q_CLI_REPORT_H
#define FP8Q_CLI_REPORT_H

#include "cli/cli.h"

/* Counts and bytes by reason, sizes, tensor parallelism; with -v one line a tensor.  */
void cli_report_plan(struct cli *cli, const struct fp8q_conversion *conversion);
/* Members "bytes", "reduction", "tensors" and others.  @destination is where it goes.  */
void cli_report_plan_json(struct cli *cli, const struct fp8q_conversion *conversion,
                          const char *destination);

#endif
