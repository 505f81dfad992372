/* SPDX-License-Identifier: Apache-2.0
 *
 * commands.h - the commands that commands.c lists, each defined in cmd_<name>.c.
 */
#ifndef FP8Q_CLI_COMMANDS_H
#define FP8Q_CLI_COMMANDS_H

#include "cli.h"

extern const struct cli_command cli_command_compare;
extern const struct cli_command cli_command_eval;

#endif
