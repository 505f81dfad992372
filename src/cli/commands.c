/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.c - every command, in the order of help.
 */
#include "commands.h"

const struct cli_command *const cli_commands[] = {
    &cli_cmd_quantize,   &cli_cmd_finish,   &cli_cmd_verify,
    &cli_cmd_inspect,
    &cli_cmd_dequantize, &cli_cmd_families, NULL,
};
