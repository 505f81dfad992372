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

/* Somebody who writes the beginning of a long word means it, and so does who adds to it: "--output-dir".  */
static size_t rank(const char *word, const char *candidate)
{
    size_t len = strlen(word), other = strlen(candidate);

    if (len >= 3 && strncasecmp(word, candidate, len) == 0)
        return 1;
    if (other >= 5 && strncasecmp(word, candidate, other) == 0)
        return 1;
    return distance(word, candidate);
}

void cli_suggest_offer(struct cli_suggestion *s, const char *word, const char *candidate)
{
    size_t d = rank(word, candidate), len = strlen(word);

    /* Of a short word half may be wrong, rounded down; of a longer one a third.  */
    size_t limit = len < 6 ? len / 2 : len / 3;

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

const char *cli_foreign_option(const char *command, const char *name)
{
    static const struct {
        const char *command; /* NULL: of any */
        const char *names, *advice;
    } rows[] = {
        {NULL, " device device-map cuda gpu gpus ", "fp8q works on the CPU alone"},
        {NULL, " model model-path model-dir model-id model-name-or-path input-dir src pretrained ",
         "a checkpoint is an operand, with no option before it"},
        {NULL, " trust-remote-code ", "no code of a checkpoint is ever run"},
        {"quantize", " save-dir save-path out-dir dst dest ", "DST is the second operand"},
        {"quantize", " exclude-layers skip-layers modules-to-not-convert ignored-layers ",
         "that is --ignore"},
        {"quantize", " dtype torch-dtype qformat quantization method ", "that is --scheme"},
    };
    char word[LONGEST + 3];

    /* Names stand between blanks.  */
    int n = snprintf(word, sizeof(word), " %s ", name);
    for (size_t i = 0; n > 2 && (size_t)n < sizeof(word) && i < sizeof(rows) / sizeof(*rows); i++)
        if ((!rows[i].command || strcmp(rows[i].command, command) == 0) &&
            strstr(rows[i].names, word))
            return rows[i].advice;
    return NULL;
}
