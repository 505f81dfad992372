/* SPDX-License-Identifier: Apache-2.0
 *
 * suggest.c - edit distance between short words.
 */
#include "cli/suggest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 40 };

static size_t least(size_t a, size_t b, size_t c)
{
    size_t m = a < b ? a : b;
    return m < c ? m : c;
}

/* Insertions, deletions and replacements that make @a of @b; LONGEST for words that are too long
 * to be a slip.  */
static size_t distance(const char *a, const char *b)
{
    size_t row[LONGEST + 1], n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return LONGEST;

    /* The usual table, of which one row is kept: what stood above and left of a cell is
     * @diagonal.  */
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }

    return row[m];
}

/* Somebody who writes the beginning of a long word means it.  */
static size_t rank(const char *word, const char *candidate)
{
    size_t len = strlen(word);

    if (len >= 3 && strncasecmp(word, candidate, len) == 0)
        return 1;
    return distance(word, candidate);
}

void cli_suggest_offer(struct cli_suggestion *s, const char *word, const char *candidate)
{
    size_t d = rank(word, candidate), limit = strlen(word) / 3;

    /* In a short word two letters may be wrong, in a long one every third.  */
    if (limit < 2)
        limit = 2;
    if (limit >= strlen(word))
        limit = strlen(word) - (*word != '\0'); /* nothing in common is no slip */

    if (d <= limit && (!s->best || d < s->distance)) {
        s->best = candidate;
        s->distance = d;
    }
}

const char *cli_suggest_hint(const struct cli_suggestion *s, const char *before,
                             struct cli_hint *buf)
{
    if (!s->best)
        return "";

    snprintf(buf->text, sizeof(buf->text), "; did you mean \"%s%s\"?", before, s->best);
    return buf->text;
}
