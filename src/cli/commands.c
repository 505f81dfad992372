/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.c - every command, in the order of help.
 */
#include "commands.h"

const struct cli_command *const cli_commands[] = {
    &cli_command_compare,
    &cli_command_eval,
    NULL,
};
