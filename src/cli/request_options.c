/* SPDX-License-Identifier: Apache-2.0
 *
 * request_options.c - rows of the request's table become rows of a command's option table.
 */
#include "cli/request_options.h"

#include <stdlib.h>
#include <string.h>

static const char *const float_words[] = {"bf16", "f16", "f32", NULL};
static const enum fp8q_dtype floats[] = {FP8Q_BF16, FP8Q_F16, FP8Q_F32};

/* The members that are lists, in the order of the table: number @index of @r->lists is theirs.  */
static const struct fp8q_request_member *list_member(size_t index)
{
    for (const struct fp8q_request_member *m = fp8q_request_members; m->key; m++)
        if (m->kind == FP8Q_MEMBER_LIST && index-- == 0)
            return m;
    return NULL;
}

/* Where an option of this member is stored, and its kind on the command line.  */
static void *target_of(struct cli_request *r, const struct fp8q_request_member *m, size_t *n_words,
                       enum cli_kind *kind_out)
{
    void *at = (char *)&r->request + m->offset;
    struct cli_word *word = &r->words[*n_words];

    switch (m->kind) {
    case FP8Q_MEMBER_FLAG:
        *kind_out = CLI_FLAG;
        return at;
    case FP8Q_MEMBER_TEXT:
        *kind_out = CLI_TEXT;
        return at;
    case FP8Q_MEMBER_LIST:
        *kind_out = CLI_LIST;
        return cli_request_list(r, m->option);
    case FP8Q_MEMBER_COUNT:
        *kind_out = CLI_UINT;
        return at;
    case FP8Q_MEMBER_SIZE:
        *kind_out = CLI_SIZE;
        return at;
    case FP8Q_MEMBER_WORD:
        *word = (struct cli_word){m->words, at};
        if (cli_request_list(r, m->option)) {
            r->word_of = (struct cli_word_of){*word, cli_request_list(r, m->option)};
            *kind_out = CLI_WORD_OF;
            return &r->word_of;
        }
        break;
    case FP8Q_MEMBER_FLOAT:
        *word = (struct cli_word){float_words, &r->to};
        break;
    }

    /* Only words take one of the places in @r->words.  */
    ++*n_words;
    *kind_out = CLI_WORD;
    return word;
}

void cli_request_open(struct cli_request *r, unsigned use, const struct cli_option *own)
{
    size_t n = 0, n_words = 0;

    *r = (struct cli_request){.to = 0};
    fp8q_request_init(&r->request);
    r->request.dequantize = use == FP8Q_USE_DEQUANTIZE;

    for (const struct fp8q_request_member *m = fp8q_request_members; m->key; m++) {
        enum cli_kind kind;
        /* Items of a word come by the word's own option.  */
        if (!m->option || !(m->use & use) || (m->kind == FP8Q_MEMBER_LIST && m->words))
            continue;

        void *target = target_of(r, m, &n_words, &kind);
        r->options[n++] = (struct cli_option){m->option, 0, kind, target, m->value, m->help};
        /* Without help, so that it is understood but not listed.  */
        if (m->alias)
            r->options[n++] = (struct cli_option){m->alias, 0, kind, target, m->value, NULL};
    }

    /* Last, as they are to stand behind the others in the help.  */
    for (; own->name; own++)
        r->options[n++] = *own;
    r->options[n] = (struct cli_option){.name = NULL};
}

struct cli_list *cli_request_list(struct cli_request *r, const char *option)
{
    for (size_t i = 0; i < CLI_REQUEST_LISTS; i++) {
        const struct fp8q_request_member *m = list_member(i);
        if (m && strcmp(m->option, option) == 0)
            return &r->lists[i];
    }
    return NULL;
}

void cli_request_settle(struct cli_request *r)
{
    /* On the command line it is a word, read as its index.  */
    r->request.to = floats[r->to];

    for (size_t i = 0; i < CLI_REQUEST_LISTS; i++) {
        const struct fp8q_request_member *m = list_member(i);
        if (!m)
            break;

        /* A member is known by its offset alone.  The request only borrows the lists.  */
        const char *const *items = r->lists[i].items;
        memcpy((char *)&r->request + m->offset, &items, sizeof(items));
        memcpy((char *)&r->request + m->count_offset, &r->lists[i].count, sizeof(size_t));
    }
}

void cli_request_close(struct cli_request *r)
{
    for (size_t i = 0; i < CLI_REQUEST_LISTS; i++)
        free(r->lists[i].items);
}
