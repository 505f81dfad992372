/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.h - the commands; each is one cmd_NAME.c.
 */
#ifndef FP8Q_COMMANDS_H
#define FP8Q_COMMANDS_H

#include "cli/cli.h"

int cmd_quantize(struct cli *cli);
int cmd_finish(struct cli *cli);
int cmd_verify(struct cli *cli);
int cmd_inspect(struct cli *cli);
int cmd_check(struct cli *cli);
int cmd_dequantize(struct cli *cli);
int cmd_families(struct cli *cli);
int cmd_compare(struct cli *cli);
int cmd_calibrate(struct cli *cli);
int cmd_eval(struct cli *cli);
int cmd_drift(struct cli *cli);
int cmd_sweep(struct cli *cli);
int cmd_gate(struct cli *cli);
int cmd_report(struct cli *cli);
int cmd_bench(struct cli *cli);

#endif
