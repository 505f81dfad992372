/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.c - every command, in the order of help.
 */
#include "commands/commands.h"

/* clang-format off */
const struct cli_command *const cli_commands[] = {
    &cli_cmd_quantize,
    &cli_cmd_finish,
    &cli_cmd_verify,
    &cli_cmd_inspect,
    &cli_cmd_dequantize,
    &cli_cmd_families,
    &cli_cmd_compare,
    &cli_cmd_calibrate,
    &cli_cmd_eval,
    &cli_cmd_drift,
    &cli_cmd_sweep,
    &cli_cmd_gate,
    &cli_cmd_bench,
    NULL,
};
/* clang-format on */
