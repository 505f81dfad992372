/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_view.h - one tensor looked at: its values, and a map of its blocks.
 */
#ifndef FP8Q_CLI_TENSOR_VIEW_H
#define FP8Q_CLI_TENSOR_VIEW_H

#include "cli/cli.h"

/* Prints tensor @name of @checkpoint, or module @name's weight, and writes the member "tensor".
 * FP8Q_E_ARG "no-tensor" if there is neither.  */
int cli_view_tensor(struct cli *cli, const struct fp8q_checkpoint *checkpoint, const char *name);

#endif
