/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.h - the commands; each is one cmd_NAME.c.
 */
#ifndef FP8Q_CLI_COMMANDS_H
#define FP8Q_CLI_COMMANDS_H

#include "cli/cli.h"

extern const struct cli_command cli_cmd_quantize, cli_cmd_finish, cli_cmd_verify, cli_cmd_inspect,
    cli_cmd_dequantize, cli_cmd_families, cli_cmd_compare, cli_cmd_calibrate, cli_cmd_eval,
    cli_cmd_drift, cli_cmd_sweep, cli_cmd_gate, cli_cmd_bench;

#endif
