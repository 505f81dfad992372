/* SPDX-License-Identifier: Apache-2.0
 *
 * values.c - what an option may be given: numbers, sizes and words, each with its range.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/options.h"
#include "cli/suggest.h"

static bool parse_uint(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    uint64_t value = 0;
    if (!*text)
        return false;

    /* Neither signs nor spaces, which strtoull() would take.  */
    for (; *text; text++)
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return false;

    if (value < least || value > most)
        return false;
    *out = value;
    return true;
}

/* Plain decimal notation: neither "nan" nor "0x10".  */
static bool parse_number(const char *text, double most, double *out)
{
    char *end;
    if (text[strspn(text, "0123456789.eE+-")] || *text == '\0')
        return false;

    double value = strtod(text, &end);
    if (*end || !isfinite(value) || value < 0 || value > most)
        return false;
    *out = value;
    return true;
}

static bool parse_size(const char *text, uint64_t *out)
{
    static const struct {
        const char *suffix;
        double unit;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12},
                 {"KiB", 1024},
                 {"MiB", 1048576},
                 {"GiB", 1073741824.0},
                 {"TiB", 1099511627776.0}};
    char *end;

    /* strtod() would also take signs, spaces, "inf", "nan" and "0x10".  */
    size_t zeros = strspn(text, "0");
    if (*text < '0' || *text > '9' || text[zeros] == 'x' || text[zeros] == 'X')
        return false;

    double value = strtod(text, &end);
    for (size_t i = 0; i < sizeof(units) / sizeof(*units); i++)
        if (strcasecmp(end, units[i].suffix) == 0) {
            value *= units[i].unit;
            /* What is below 1e19 fits into 64 bits; less than a byte is no size.  */
            if (!(value >= 1 && value < 1e19))
                return false;
            *out = (uint64_t)value;
            return true;
        }
    return false;
}

static bool parse_word(const char *text, const struct cli_word *word, unsigned *index_out)
{
    for (unsigned i = 0; word->words[i]; i++)
        if (strcasecmp(word->words[i], text) == 0) {
            *index_out = i;
            return true;
        }
    return false;
}

int cli_list_add(struct cli_list *list, const char *item, struct fp8q_error *err)
{
    /* Lists of options are short: to grow by one is cheap enough.  */
    const char **items = realloc(list->items, (list->count + 1) * sizeof(*items));
    if (!items)
        return fp8q_fail_nomem(err);

    list->items = items;
    items[list->count++] = item;
    return FP8Q_OK;
}

/* "fp8 or compressed-tensors"; of three and more "a, b or c".  */
static void list_words(const struct cli_word *word, char *buf, size_t cap)
{
    size_t used = 0;
    buf[0] = '\0';
    for (size_t i = 0; word->words[i] && used < cap; i++) {
        const char *comma = word->words[i + 1] ? ", " : " or ";
        used += (size_t)snprintf(buf + used, cap - used, "%s%s", i ? comma : "", word->words[i]);
    }
}

static const char *expected_text(const struct cli_option *o, char *buf, size_t cap)
{
    switch (o->kind) {
    case CLI_UINT:
        return "a whole number from 1 to 2147483647";
    case CLI_THREADS:
        return "a whole number from 0 (all CPUs) to 1024";
    case CLI_NUMBER:
        return "a number of at least 0";
    case CLI_SHARE:
        return "a number from 0 to 1";
    case CLI_SIZE:
        return "a size such as 512MiB or 5GB";
    case CLI_WORD:
    case CLI_WORDS:
    case CLI_WORD_OF:
        list_words(o->target, buf, cap);
        return buf;
    default:
        return "a text that is not empty";
    }
}

static int fail_value(struct cli *cli, const struct cli_option *o, const char *value)
{
    struct fp8q_shown shown;
    struct cli_suggestion near = {0};
    struct cli_hint hint;
    char expected[256];

    if (cli_has_words(o)) {
        const struct cli_word *word = o->target;
        const char *typed =
            o->kind == CLI_WORD_OF && strrchr(value, '=') ? strrchr(value, '=') + 1 : value;
        for (size_t i = 0; word->words[i]; i++)
            cli_suggest_offer(&near, typed, word->words[i]);
    }

    return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage", "--%s: expected %s, found \"%s\"%s", o->name,
                     expected_text(o, expected, sizeof(expected)), fp8q_show(&shown, value),
                     cli_suggest_hint(&near, "", &hint));
}

/* A word alone, or one behind the last "=" of a pattern.  */
static int set_word_of(struct cli *cli, const struct cli_option *o, const char *value)
{
    const struct cli_word_of *of = o->target;
    const char *behind = strrchr(value, '=');
    unsigned index;

    if (!behind && parse_word(value, &of->word, of->word.value))
        return FP8Q_OK;
    if (behind && behind > value && parse_word(behind + 1, &of->word, &index))
        return cli_list_add(of->items, value, &cli->error);
    return fail_value(cli, o, value);
}

bool cli_has_words(const struct cli_option *o)
{
    return o->kind == CLI_WORD || o->kind == CLI_WORDS || o->kind == CLI_WORD_OF;
}

int cli_set_option(struct cli *cli, const struct cli_option *o, const char *value)
{
    bool ok = true;
    unsigned index = 0;

    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->target = true;
        break;
    case CLI_TEXT:
        /* An empty value is most likely a variable of the shell that is not set.  */
        ok = *value != '\0';
        *(const char **)o->target = value;
        break;
    case CLI_LIST:
        if (*value)
            return cli_list_add(o->target, value, &cli->error);
        ok = false;
        break;
    case CLI_WORD:
        ok = parse_word(value, o->target, ((const struct cli_word *)o->target)->value);
        break;
    case CLI_WORDS:
        ok = parse_word(value, o->target, &index);
        if (ok)
            *((const struct cli_word *)o->target)->value |= 1U << index;
        break;
    case CLI_WORD_OF:
        return set_word_of(cli, o, value);
    case CLI_UINT:
        ok = parse_uint(value, 1, INT32_MAX, o->target);
        break;
    case CLI_THREADS:
        ok = parse_uint(value, 0, CLI_MOST_THREADS, o->target);
        break;
    case CLI_NUMBER:
        ok = parse_number(value, HUGE_VAL, o->target);
        break;
    case CLI_SHARE:
        ok = parse_number(value, 1, o->target);
        break;
    case CLI_SIZE:
        ok = parse_size(value, o->target);
        break;
    }
    return ok ? FP8Q_OK : fail_value(cli, o, value);
}
