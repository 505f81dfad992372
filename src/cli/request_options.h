/* SPDX-License-Identifier: Apache-2.0
 *
 * request_options.h - the options that say what a conversion makes, from the table of request.h.
 */
#ifndef FP8Q_CLI_REQUEST_OPTIONS_H
#define FP8Q_CLI_REQUEST_OPTIONS_H

#include "cli/options.h"
#include "plan/request.h"

enum { CLI_REQUEST_LISTS = 4, CLI_REQUEST_WORDS = 12 };

struct cli_request {
    struct fp8q_request request;
    struct cli_option options[CLI_MOST_OPTIONS]; /* of the table, then the command's own */
    struct cli_list lists[CLI_REQUEST_LISTS];
    struct cli_word words[CLI_REQUEST_WORDS];
    struct cli_word_of word_of; /* the one word that patterns may change */
    unsigned to;                /* index of --dtype's word */
};

/* Fills in @r->options with the table's rows for @use, and the command's @own options behind them.
 */
void cli_request_open(struct cli_request *r, unsigned use, const struct cli_option *own);
/* After cli_parse(): lists and words become members of r->request.  */
void cli_request_settle(struct cli_request *r);
/* The list of an option of the table, to add to it before it is settled.  */
struct cli_list *cli_request_list(struct cli_request *r, const char *option);
void cli_request_close(struct cli_request *r);

#endif
