/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h - the words of a command line: tables of options, what they may be, and which do not go
 * together.
 */
#ifndef FP8Q_CLI_OPTIONS_H
#define FP8Q_CLI_OPTIONS_H

#include "cli/cli.h"

enum { CLI_MOST_THREADS = 1024 };

enum cli_kind {
    CLI_FLAG,    /* bool: set to true */
    CLI_TEXT,    /* const char * */
    CLI_LIST,    /* struct cli_list: may be given again */
    CLI_WORD,    /* struct cli_word: one of its words, in any case */
    CLI_WORDS,   /* the same, and may be given again: *@value collects them as bits */
    CLI_WORD_OF, /* struct cli_word_of: a word, or PAT=WORD, which may be given again */
    CLI_UINT,    /* uint64_t, decimal, from 1 to 2^31 - 1 */
    CLI_THREADS, /* uint64_t, 0 (all) to 1024 */
    CLI_NUMBER,  /* double, finite and not negative */
    CLI_SHARE,   /* double, 0 to 1 */
    CLI_SIZE /* uint64_t bytes: 500MB, 5GB (decimal, as Hugging Face), 512MiB, 1GiB, plain bytes */
};

/* Owned by the command, which frees @items; the strings are those of argv.  */
struct cli_list {
    const char **items;
    size_t count;
};

struct cli_word {
    const char *const *words; /* NULL-terminated */
    unsigned *value;          /* index of the word that was given */
};

/* One word for all, and others for what matches a pattern.  */
struct cli_word_of {
    struct cli_word word; /* first, so that it is a struct cli_word too */
    struct cli_list *items;
};

struct cli_option {
    const char *name; /* "ignore" for --ignore */
    char letter;      /* 'o' for -o, or 0 */
    enum cli_kind kind;
    void *target;
    const char *value; /* how help calls the value: "PAT" */
    const char *help;  /* one or more lines ('\n'); NULL: an alias that help leaves out */
};

/* An option that would be ignored is an error, so a command says which do not go together.  */
struct cli_rule {
    const char *option;
    enum { CLI_NEEDS, CLI_EXCLUDES } kind;
    const char *other; /* one or more names, separated by spaces: any of them */
};

/* How help lays out many options: under heads, in the order of the names, which are separated by
 * spaces.  What no group names is rare.  */
struct cli_group {
    const char *head;
    const char *common; /* in --help */
    const char *rare;   /* in --help-all only */
};

struct cli_syntax {
    const char *usage;                /* printed by --help, above the options */
    const char *details;              /* printed by --help-all below it; NULL: none */
    const struct cli_group *groups;   /* ends without a head; NULL: the options are few */
    const struct cli_option *options; /* ends without a name */
    const struct cli_rule *rules;     /* ends without an option; NULL: none */
    int min, max;                     /* operands */
};

/* Parses cli->argv: the options of @syntax and the common ones; operands go to @operands (NULL
 * where there are fewer than @max).  False if the command must return *@exit_out: after --help, and
 * for whatever is wrong.  */
bool cli_parse(struct cli *cli, const struct cli_syntax *syntax, const char **operands,
               int *exit_out);

/* Prints what --help asks for, or --help-all.  */
void cli_print_help(const struct cli_syntax *syntax, const struct cli_option *common, bool all);

/* Stores the value of an option, or says what was expected.  */
int cli_set_option(struct cli *cli, const struct cli_option *o, const char *value);

/* Whether its values are words of a list.  */
bool cli_has_words(const struct cli_option *o);

/* Whether @name is one of the space-separated @names.  */
bool cli_is_among(const char *name, const char *names);

/* Whether the option was given.  */
bool cli_given(const struct cli *cli, const char *name);

/* Notes that it was.  */
void cli_note_given(struct cli *cli, const char *name);

/* The option that the word @arg ("--name", "--name=value", "-n", "-nVALUE") calls, and the value in
 * it or NULL.  NULL if there is none.  */
const struct cli_option *cli_find_option(const struct cli_option *own,
                                         const struct cli_option *common, const char *arg,
                                         const char **value_out);

/* Adds @item to a list.  FP8Q_E_NOMEM.  */
int cli_list_add(struct cli_list *list, const char *item, struct fp8q_error *err);

#endif
