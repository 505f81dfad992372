/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.h - what may stand at the end of an unfinished command line, for the completions of
 * shells.
 *
 * A line for each word: the word, a tab, what it does.  The line ":files" says that names of files
 * may stand there; the shell knows them better.
 */
#ifndef FP8Q_CLI_COMPLETE_H
#define FP8Q_CLI_COMPLETE_H

#include "cli/options.h"

/* Offers @lead followed by @word if that begins with @typed; of @help the first line.  */
void cli_complete_word(const char *lead, const char *word, const char *typed, const char *help);

/* Offers what may stand in place of the last word of cli->argv.  */
void cli_complete(struct cli *cli, const struct cli_syntax *syntax,
                  const struct cli_option *common);

#endif
