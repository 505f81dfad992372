/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.c - every command, in the order of help.
 */
#include "cli.h"

const struct cli_command *const cli_commands[] = {
    NULL,
};
