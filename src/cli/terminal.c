/* SPDX-License-Identifier: Apache-2.0
 *
 * terminal.c - what a terminal shows better than a file.
 */
#include "cli/terminal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

unsigned cli_columns(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0)
        return 0;
    /* A terminal that does not say is taken for the usual one.  */
    return size.ws_col ? size.ws_col : 80;
}

/* Whether the terminal shows UTF-8, by the first of the variables that decides.  */
static bool shows_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value)
            return strstr(value, "UTF-8") || strstr(value, "utf8") || strstr(value, "utf-8");
    }
    return false;
}

const char *cli_bar(struct cli_bar *bar, unsigned used, uint64_t part, uint64_t whole,
                    uint64_t largest)
{
    enum { MOST = 40, LEAST = 6 };
    unsigned columns = cli_columns(), room = columns > used + 1 ? columns - used - 1 : 0;

    bar->text[0] = '\0';
    if (room < LEAST || largest == 0 || whole == 0)
        return bar->text;
    if (room > MOST)
        room = MOST;

    /* Whatever there is shows, be it ever so little of it.  */
    double cells = (double)whole / (double)largest * room;
    unsigned all = cells < 1 ? 1 : (unsigned)(cells + 0.5);
    unsigned filled = (unsigned)((double)part / (double)whole * all + 0.5);

    const char *full = shows_utf8() ? "\u2588" : "#", *light = shows_utf8() ? "\u2591" : ".";
    for (unsigned i = 0; i < all; i++)
        strcat(bar->text, i < filled ? full : light);
    return bar->text;
}

const char *cli_fit(struct cli_fitted *buf, unsigned used, const char *text)
{
    enum { LEAST = 20 };
    unsigned columns = cli_columns();
    size_t len = strlen(text), room = columns > used ? columns - used : 0;

    /* Below that it is no use, and the terminal breaks the line.  */
    if (columns == 0 || len <= room || room < LEAST || room >= sizeof(buf->text))
        return text;
    snprintf(buf->text, sizeof(buf->text), "...%s", text + len - (room - 3));
    return buf->text;
}
