/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest.h - the word that was probably meant.
 */
#ifndef FP8Q_CLI_SUGGEST_H
#define FP8Q_CLI_SUGGEST_H

#include <stddef.h>

/* Looks for the candidate nearest to a word that is none of them.  Zero it, offer all, and ask for
 * the best: at most a third of the letters may differ, or half of a short one.  */
struct cli_suggestion {
    const char *best;
    size_t distance;
};
void cli_suggest_offer(struct cli_suggestion *suggestion, const char *word, const char *candidate);

/* What to do instead of an option of other tools, without "--"; NULL for all others.  */
const char *cli_foreign_option(const char *command, const char *name);

/* "; did you mean \"X\"?" with @before put in front of X, or "" if nothing is near.  */
struct cli_hint {
    char text[96];
};
const char *cli_suggest_hint(const struct cli_suggestion *suggestion, const char *before,
                             struct cli_hint *buf);

#endif
