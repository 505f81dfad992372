/* SPDX-License-Identifier: Apache-2.0
 *
 * terminal.h - what a terminal shows better than a file: bars, and lines that fit its width.  On
 * anything else text is whole and bars are empty, so that what scripts read never depends on a width.
 */
#ifndef FP8Q_CLI_TERMINAL_H
#define FP8Q_CLI_TERMINAL_H

#include <stdint.h>

/* Columns of the terminal that standard output is; 0 if it is none.  */
unsigned cli_columns(void);

/* A bar from column @used to the end of the line: as long as @whole is of @largest, the share of @part
 * filled.  "" where there is no terminal or no room.  */
struct cli_bar {
    char text[256];
};
const char *cli_bar(struct cli_bar *bar, unsigned used, uint64_t part, uint64_t whole,
                    uint64_t largest);

/* @text as it fits behind @used columns: its end, behind "...", where it is too long for the terminal.
 * The end of a tensor's name says more than its beginning.  */
struct cli_fitted {
    char text[512];
};
const char *cli_fit(struct cli_fitted *buf, unsigned used, const char *text);

#endif
