/* SPDX-License-Identifier: Apache-2.0
 *
 * test_commands_pairs.c - options that meet rarely: every pair of options of `quantize`, on small
 * checkpoints, by the command line's own main().
 *
 * A conversion either is refused before the work, with an error of a name that this table allows
 * and nothing left behind; or it is carried out, and then
 *
 *     verify, verify --source, dequantize, inspect
 *
 * pass.  Each option meets each other on two of the sources, and is tried alone on all.
 */
#include "support/support.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/dir.h"

int cli_main(int argc, char **argv); /* main() of src/commands/main.c */

/* ---- the table ------------------------------------------------------------------------------- */

static const struct option {
    const char *name, *value; /* NULL: no value */
    bool parts;               /* two parts and `finish` in place of one run */
} options[] = {
    {"--scheme", "FP8_DYNAMIC", false},
    {"--scheme", "FP8", false},
    {"--scheme", "MXFP8", false},
    {"--format", "fp8", false},
    {"--format", "compressed-tensors", false},
    {"--scale-fmt", "ue8m0", false},
    {"--scales", "inline", false},
    {"--unaligned", "quantize", false},
    {"--unaligned", "per-channel", false},
    {"--requantize", NULL, false},
    {"--strict", NULL, false},
    {"--include", "lm_head", false},
    {"--include", "re:.*", false},
    {"--ignore", "down_proj", false},
    {"--ignore", "q_proj", false},
    {"--ignore", "experts", false},
    {"--no-default-ignore", NULL, false},
    {"--allow-tower", NULL, false},
    {"--allow-unmatched", NULL, false},
    {"--like", "like", false},
    {"--tp", "2", false},
    {"--max-shard-size", "100KB", false},
    {"--max-memory", "32MB", false},
    {"--lock", "lock.json", false},
    {"--overwrite", NULL, false},
    {"--resume", NULL, false},
    {"--part", NULL, true},
};
enum { N_OPTIONS = sizeof(options) / sizeof(*options) };

static const struct {
    const char *path, *always; /* NULL, or an option that it needs */
} sources[] = {
    {"llama-untied", NULL},      {"qwen3.5-moe", NULL},
    {"phi3-ragged-parts", NULL}, {"deepseek-v3-fp8", "--requantize"},
    {"qwen2.5-vl-new", NULL},    {"bare-file/model.safetensors", NULL},
};
enum { N_SOURCES = sizeof(sources) / sizeof(*sources) };

/* What two options may be refused for.  Whatever else stops a conversion is a fault.  */
static const char *const refusals[] = {
    "usage",             /* one has no effect without, or beside, the other */
    "scheme-unaligned",  /* groups need no blocks */
    "scheme-format",     /* scales per row that a format cannot say */
    "scheme-scale-fmt",  /* powers of two are of blocks, or of groups */
    "max-shard-size",    /* of one file */
    "pattern-unmatched", /* a pattern that matches nothing */
    "group-split",       /* --strict */
    "tower-touched",     /* --include without --allow-tower */
    "tp",
    "nothing-to-quantize",
};

/* ---- running --------------------------------------------------------------------------------- */

enum { MOST_WORDS = 24 };

struct command {
    const char *words[MOST_WORDS];
    int n;
};

static void word(struct command *c, const char *text)
{
    assert_true(c->n < MOST_WORDS - 1);
    c->words[c->n++] = text;
}

static const char *text_of(const struct command *c)
{
    static char text[1000];
    size_t at = 0;
    for (int i = 0; i < c->n; i++)
        at += (size_t)snprintf(text + at, sizeof(text) - at, "%s ", c->words[i]);
    return text;
}

/* What it prints goes to the file "out".  */
static int run(const struct command *c)
{
    char *argv[MOST_WORDS] = {NULL};
    int to = open("out", O_CREAT | O_TRUNC | O_WRONLY, 0600), kept[2] = {dup(1), dup(2)};
    assert_true(to >= 0 && kept[0] >= 0 && kept[1] >= 0);
    for (int i = 0; i < c->n; i++)
        argv[i] = (char *)(uintptr_t)c->words[i];

    fflush(stdout);
    dup2(to, 1);
    dup2(to, 2);
    int code = cli_main(c->n, argv);
    fflush(stdout);
    for (int fd = 0; fd < 2; fd++) {
        dup2(kept[fd], fd + 1);
        close(kept[fd]);
    }
    close(to);
    return code;
}

static int run_words(const char *a, const char *b, const char *c, const char *d)
{
    struct command command = {{"fp8q", a, b}, 3};
    for (const char *const *w = (const char *const[]){c, d, NULL}; *w; w++)
        word(&command, *w);
    word(&command, "-q");
    return run(&command);
}

/* What the last command printed, as far as it matters.  */
static const char *output(void)
{
    static char text[1 << 20];
    FILE *f = fopen("out", "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    return text;
}

/* ---- one pair -------------------------------------------------------------------------------- */

static bool stands(const char *path)
{
    return access(path, F_OK) == 0;
}

static void clear(const char *path)
{
    struct fp8q_error err = {0};
    if (stands(path))
        assert_ok(fp8q_remove_tree(path, &err), &err);
}

struct pair {
    const char *source, *always, *dst, *back;
    const struct option *a, *b; /* @b may be NULL */
    struct counts {
        size_t done, refused, bad;
    } * counts;
};

/* All that is wrong is said, not the first alone.  */
static void say(const struct pair *p, const struct command *c, const char *what)
{
    char shown[600];
    snprintf(shown, sizeof(shown), "%.599s", output());
    print_error("%s: %s\n%s\n\n", text_of(c), what, shown);
    p->counts->bad++;
}

static struct command conversion(const struct pair *p, const char *part)
{
    struct command c = {{"fp8q", "quantize", p->source, p->dst, "--json"}, 5};
    if (p->always)
        word(&c, p->always);

    for (int i = 0; i < 2; i++) {
        const struct option *o = i ? p->b : p->a;
        bool there = o && p->always && strcmp(o->name, p->always) == 0;
        if (!o || there || (o->parts && !part))
            continue;
        word(&c, o->name);
        if (o->value || o->parts)
            word(&c, o->parts ? part : o->value);
    }
    return c;
}

static bool is_allowed(const char *out)
{
    static const char before[] = "\"error\": {\"id\": \"";
    const char *place = strstr(out, before);
    char id[64] = "";
    if (place)
        snprintf(id, sizeof(id), "%.*s", (int)strcspn(place + sizeof(before) - 1, "\""),
                 place + sizeof(before) - 1);

    for (size_t i = 0; i < sizeof(refusals) / sizeof(*refusals); i++)
        if (strcmp(id, refusals[i]) == 0)
            return true;
    return false;
}

static void check_refusal(const struct pair *p, const struct command *c, int code)
{
    const char *out = output();
    char name[2][300];
    snprintf(name[0], sizeof(name[0]), "%s.partial", p->dst);
    snprintf(name[1], sizeof(name[1]), "%s.partial.fp8q", p->dst);

    if ((code != 1 && code != 2 && code != 4) || !is_allowed(out))
        say(p, c, "not refused as it should be");
    if (stands(p->dst) || stands(name[0]) || stands(name[1]))
        say(p, c, "something was left behind");
    p->counts->refused++;
}

/* A command on what was made; it must succeed.  */
static bool passes(const struct pair *p, const struct command *made, const char *a, const char *b,
                   const char *c, const char *d)
{
    if (run_words(a, b, c, d) == 0)
        return true;
    say(p, made, a);
    return false;
}

static void check_output(const struct pair *p, const struct command *made)
{
    if (passes(p, made, "verify", p->dst, NULL, NULL) &&
        passes(p, made, "verify", p->dst, "--source", p->source) &&
        passes(p, made, "dequantize", p->dst, p->back, NULL) &&
        passes(p, made, "inspect", p->back, NULL, NULL))
        p->counts->done++;
}

static void try_pair(const struct pair *p)
{
    bool parts = p->a->parts || (p->b && p->b->parts);
    const char *const left[] = {p->dst, p->back, "dst.scales.safetensors", "dst.fp8q-manifest.json",
                                "lock.json"};
    for (size_t i = 0; i < sizeof(left) / sizeof(*left); i++)
        clear(left[i]);

    struct command c = conversion(p, parts ? "2/2" : NULL);
    int code = run(&c);
    if (code == 0 && parts) {
        c = conversion(p, "1/2");
        code = run(&c);
        if (code == 0 && !passes(p, &c, "finish", p->dst, NULL, NULL))
            return;
    }

    if (code == 0)
        check_output(p, &c);
    else
        check_refusal(p, &c, code);
}

/* ---- all pairs ------------------------------------------------------------------------------- */

static char *top;

/* Whose names one file or a directory has.  */
static struct pair pair_on(size_t source, size_t a, size_t b)
{
    static char path[600];
    bool is_file = strstr(sources[source].path, ".safetensors") != NULL;
    snprintf(path, sizeof(path), "%s", data_path("checkpoints/%s", sources[source].path));
    return (struct pair){.source = path,
                         .always = sources[source].always,
                         .dst = is_file ? "dst.safetensors" : "dst",
                         .back = is_file ? "back.safetensors" : "back",
                         .a = &options[a],
                         .b = b < N_OPTIONS ? &options[b] : NULL};
}

/* For --like: another selection of the same source.  */
static void make_like(size_t source)
{
    struct pair p = pair_on(source, 0, N_OPTIONS);
    struct command c = {{"fp8q", "quantize", p.source, "like.safetensors"}, 4};
    if (strcmp(p.dst, "dst") == 0)
        c.words[3] = "like-dir";
    word(&c, "--ignore");
    word(&c, "o_proj");
    word(&c, "--unaligned");
    word(&c, "quantize");
    if (p.always)
        word(&c, p.always);

    unlink("like");
    clear(c.words[3]);
    if (run(&c) != 0)
        fail_msg("%s: %.500s", text_of(&c), output());
    assert_int_equal(symlink(c.words[3], "like"), 0);
}

static void pairs(size_t source, struct counts *counts)
{
    make_like(source);
    for (size_t a = 0; a < N_OPTIONS; a++)
        for (size_t b = a + 1; b <= N_OPTIONS; b++) {
            bool same = b < N_OPTIONS && strcmp(options[a].name, options[b].name) == 0;
            bool alone = b == N_OPTIONS;
            bool turn = (a + b) % N_SOURCES == source || (3 * a + b + 1) % N_SOURCES == source;
            struct pair p = pair_on(source, a, b);
            p.counts = counts;
            if ((alone || turn) && !(same && strcmp(options[a].name, "--ignore") != 0))
                try_pair(&p);
        }
}

static void every_pair_is_refused_or_passes(void **state)
{
    struct counts counts = {0, 0, 0};
    (void)state;
    for (size_t i = 0; i < N_SOURCES; i++)
        pairs(i, &counts);
    print_message("%zu passed, %zu were refused\n", counts.done, counts.refused);
    assert_int_equal(counts.bad, 0);
    assert_true(counts.done > 200 && counts.refused > 100); /* the table does what it should */
}

static int enter(void **state)
{
    (void)state;

    /* Thousands of files are flushed: in memory that costs nothing.  */
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    top = temp_dir_make();
    return chdir(top);
}

static int leave(void **state)
{
    (void)state;
    int status = chdir("/");
    temp_dir_remove(top);
    return status;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pair_is_refused_or_passes)};
    return cmocka_run_group_tests(tests, enter, leave);
}
