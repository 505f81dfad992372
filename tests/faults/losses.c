/* SPDX-License-Identifier: Apache-2.0
 *
 * losses.c - nothing that fp8q did not write is ever lost, and no finished part either.
 *
 *     losses situations            foreign files at every name, before every command
 *     losses kills [EVERY]         SIGKILL at every (EVERY-th) system call of commands that make or
 *                                  replace an output
 *     losses sequences [N [SEED [FIRST]]]
 *                                  N random sequences of commands, kills and foreign files (200 of
 *                                  seed 1, from the first)
 *
 * Each run is a forked child.  Foreign files have contents of their own; after every command each of
 * them must be there unchanged, the source must be as before, and DST must be what it was or the
 * whole output that was asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/path.h"
#include "faults/inject.h"
#include "support/small.h"

int cli_main(int argc, char **argv);

const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "exitcode=99:detect_leaks=0";
}

static long *counts; /* shared with the children */
static char said[4096];
static unsigned long n_runs, n_wrong;

/* ---- running --------------------------------------------------------------------------------- */

enum { MAX_WORDS = 10 };
struct command {
    const char *words[MAX_WORDS];
};

/* Exit status, or 256 + the signal.  @kill_at < 0: to its end.  */
static int run(const struct command *c, long kill_at)
{
    static char program[] = "fp8q", one[] = "1", threads[] = "--threads", quiet[] = "-q";
    struct fault fault = {.kind = kill_at < 0 ? FAULT_NONE : FAULT_KILL, .at = kill_at};
    char *argv[MAX_WORDS + 5] = {program};
    int argc = 1, status;
    for (; c->words[argc - 1]; argc++)
        argv[argc] = (char *)(uintptr_t)c->words[argc - 1];
    argv[argc++] = quiet;
    argv[argc++] = threads;
    argv[argc++] = one;
    memset(counts, 0, N_CALLS * sizeof(*counts));
    n_runs++;
    fflush(stdout);

    pid_t child = fork();
    if (child == 0) {
        int out = open("/dev/null", O_WRONLY);
        int err = open("../said", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(out, 1);
        dup2(err, 2);
        close(out);
        close(err);
        fault_arm(&fault, counts);
        int code = cli_main(argc, argv);
        fault_disarm();
        exit(code);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("losses");
        exit(70);
    }
    int fd = open("../said", O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, said, sizeof(said) - 1);
    said[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void must_run(const struct command *c, int want)
{
    int code = run(c, -1);
    if (code != want) {
        printf("preparing: %s %s: status %d, expected %d\n%s", c->words[0], c->words[1], code, want,
               said);
        exit(1);
    }
}

static void complain(const char *where, const char *what)
{
    n_wrong++;
    printf("%s: %s\n    %.600s\n", where, what, said);
}

/* ---- foreign files --------------------------------------------------------------------------- */

enum { MAX_FOREIGN = 64 };
static struct foreign {
    char path[256];
    unsigned number;
} foreign[MAX_FOREIGN];
static size_t n_foreign;
static unsigned next_number;

/* Puts a file there, through whatever links and directories are there; false if that cannot be.  */
static bool put_foreign(const char *path)
{
    struct foreign *f = &foreign[n_foreign];
    char dir[300];
    if (n_foreign == MAX_FOREIGN || strlen(path) >= sizeof(f->path))
        return false;
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
        if (mkdir(dir, 0777) != 0 && errno != EEXIST)
            return false;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0)
        return false;
    for (size_t i = 0; i < n_foreign; i++)
        if (strcmp(foreign[i].path, path) == 0)
            f = &foreign[i];
    if (f == &foreign[n_foreign])
        n_foreign++;
    snprintf(f->path, sizeof(f->path), "%s", path);
    f->number = ++next_number;
    dprintf(fd, "foreign %u\n", f->number);
    close(fd);
    return true;
}

static bool is_foreign(const char *path)
{
    for (size_t i = 0; i < n_foreign; i++)
        if (strcmp(foreign[i].path, path) == 0)
            return true;
    return false;
}

/* The first that is not there as it was, or NULL.  Those in a directory that became DST by a rename
 * count under either name.  */
static const char *lost_foreign(void)
{
    for (size_t i = 0; i < n_foreign; i++) {
        char want[64], *data = NULL;
        size_t len;
        snprintf(want, sizeof(want), "foreign %u\n", foreign[i].number);
        bool same = fp8q_read_file(foreign[i].path, 1 << 20, &data, &len, NULL) == FP8Q_OK &&
                    strcmp(data, want) == 0;
        free(data);
        if (!same)
            return foreign[i].path;
    }
    return NULL;
}

/* Like tree_digest(), without foreign files and without directories that hold nothing else.  */
static uint32_t digest_of(const char *path)
{
    struct stat st;
    char **names;
    size_t n;
    uint32_t crc = 0;
    if (lstat(path, &st) != 0 || is_foreign(path))
        return 0;
    if (!S_ISDIR(st.st_mode))
        return S_ISREG(st.st_mode) ? tree_digest(path) : 1;
    if (fp8q_list_dir(path, &names, &n, NULL) != FP8Q_OK)
        return 0;
    for (size_t i = 0; i < n; i++) {
        char *child = fp8q_join(path, names[i]);
        uint32_t inner = digest_of(child);
        if (inner) {
            crc = fp8q_crc32(crc, names[i], strlen(names[i]) + 1);
            crc = fp8q_crc32(crc, &inner, sizeof(inner));
        }
        free(child);
    }
    fp8q_names_free(names, n);
    return crc;
}

static void clear(void)
{
    struct fp8q_error err = {0};
    if (chdir("..") != 0 || fp8q_remove_tree("run", &err) != FP8Q_OK || mkdir("run", 0777) != 0 ||
        chdir("run") != 0) {
        fprintf(stderr, "losses: %s\n", err.message);
        exit(70);
    }
    n_foreign = 0;
}

static uint32_t sources(void)
{
    uint32_t crc[] = {tree_digest("../source"), tree_digest("../source.safetensors"),
                      tree_digest("../fp8")};
    return fp8q_crc32(0, crc, sizeof(crc));
}

/* ---- situations ------------------------------------------------------------------------------ */

#define SOURCE "../source"
#define FILE_SOURCE "../source.safetensors"

static const struct command commands[] = {
    {{"quantize", SOURCE, "dst"}},
    {{"quantize", SOURCE, "dst", "--overwrite"}},
    {{"quantize", SOURCE, "dst", "--resume"}},
    {{"quantize", SOURCE, "dst", "--resume", "--overwrite"}},
    {{"quantize", SOURCE, "dst", "--scales", "inline", "--overwrite"}},
    {{"quantize", SOURCE, "dst", "--part", "1/2"}},
    {{"quantize", SOURCE, "dst", "--part", "1/2", "--overwrite"}},
    {{"finish", "dst"}},
    {{"finish", "dst", "--overwrite"}},
    {{"dequantize", "../fp8", "dst"}},
    {{"dequantize", "../fp8", "dst", "--overwrite"}},
};
static const struct command file_commands[] = {
    {{"quantize", FILE_SOURCE, "dst.safetensors"}},
    {{"quantize", FILE_SOURCE, "dst.safetensors", "--overwrite"}},
    {{"quantize", FILE_SOURCE, "dst.safetensors", "--overwrite", "--scales", "inline"}},
    {{"quantize", FILE_SOURCE, "dst.safetensors", "--resume"}},
    {{"quantize", FILE_SOURCE, "dst.safetensors", "--part", "1/2"}},
    {{"finish", "dst.safetensors", "--overwrite"}},
};

/* What stands there before, by commands that may be killed.  */
static const struct start {
    const char *name;
    struct command commands[2];
    long kill_at;
    bool file;
} starts[] = {
    {"nothing", {{{NULL}}, {{NULL}}}, -1, false},
    {"an output", {{{"quantize", SOURCE, "dst"}}, {{NULL}}}, -1, false},
    {"an inline output",
     {{{"quantize", SOURCE, "dst", "--scales", "inline"}}, {{NULL}}},
     -1,
     false},
    {"a dequantized one", {{{"dequantize", "../fp8", "dst"}}, {{NULL}}}, -1, false},
    {"a killed run", {{{"quantize", SOURCE, "dst", "--resume"}}, {{NULL}}}, 330, false},
    {"a killed fresh run", {{{"quantize", SOURCE, "dst"}}, {{NULL}}}, 200, false},
    {"one part", {{{"quantize", SOURCE, "dst", "--part", "1/2"}}, {{NULL}}}, -1, false},
    {"all parts",
     {{{"quantize", SOURCE, "dst", "--part", "1/2"}},
      {{"quantize", SOURCE, "dst", "--part", "2/2"}}},
     -1,
     false},
    {"nothing (file)", {{{NULL}}, {{NULL}}}, -1, true},
    {"a file", {{{"quantize", FILE_SOURCE, "dst.safetensors"}}, {{NULL}}}, -1, true},
    {"an inline file",
     {{{"quantize", FILE_SOURCE, "dst.safetensors", "--scales", "inline"}}, {{NULL}}},
     -1,
     true},
    {"a killed file run", {{{"quantize", FILE_SOURCE, "dst.safetensors"}}, {{NULL}}}, 120, true},
};

/* Where a foreign file is put; "-> " makes the name a link to a directory of the user's.  */
static const char *const places[] = {
    "dst/notes.txt",
    "dst/sub/notes.txt",
    "dst/.hidden",
    "dst/model.safetensors",
    "dst/config.json",
    "dst/tokenizer.json",
    "dst/model-scales.safetensors",
    "dst",
    "dst.partial/notes.txt",
    "dst.partial/extra/notes2.txt",
    "dst.partial/sub/notes.txt",
    "dst.partial",
    "dst.partial.fp8q/notes.txt",
    "dst.partial.fp8q/old/notes.txt",
    "dst.partial.fp8q",
    "dst.partial/.fp8q/state.json",
    "-> dst",
    "-> dst.partial",
    "-> dst.partial.fp8q",
};
static const char *const file_places[] = {
    "dst.safetensors",
    "dst.scales.safetensors",
    "dst.fp8q-manifest.json",
    "dst.safetensors.partial/notes.txt",
    "dst.safetensors.partial",
    "dst.safetensors.partial.fp8q/notes.txt",
    "dst.safetensors.partial.fp8q",
    "dst.safetensors/notes.txt",
    "-> dst.safetensors.partial",
};

static bool put_at(const char *place)
{
    if (strncmp(place, "-> ", 3) != 0)
        return put_foreign(place);
    return symlink("mine", place + 3) == 0 && put_foreign("mine/thesis.txt");
}

static void try_situation(const struct start *s, const char *place, const struct command *c,
                          uint32_t source)
{
    char where[300];
    clear();
    for (size_t i = 0; i < 2 && s->commands[i].words[0]; i++) {
        int code = run(&s->commands[i], s->kill_at);
        if (s->kill_at < 0 && code != 0)
            complain(s->name, "cannot be prepared");
    }
    if (!put_at(place))
        return; /* there is something else in the way */
    snprintf(where, sizeof(where), "%s, foreign %s, %s %s %s %s", s->name, place, c->words[0],
             c->words[2] ? c->words[2] : "", c->words[2] && c->words[3] ? c->words[3] : "",
             c->words[2] && c->words[3] && c->words[4] ? c->words[4] : "");

    uint32_t before = digest_of("dst"), after;
    int code = run(c, -1);
    const char *lost = lost_foreign();
    after = digest_of("dst");
    if (lost)
        complain(where, "a foreign file is lost");
    if (code >= 256 || code == 99)
        complain(where, "it crashed");
    if (code != 0 && before != after)
        complain(where, "it failed, and DST is another one");
    if (sources() != source)
        complain(where, "the source was changed");
}

static void situations(void)
{
    uint32_t source = sources();
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++) {
        const struct start *s = &starts[i];
        size_t n_places = sizeof(places) / sizeof(*places);
        size_t n_commands = sizeof(commands) / sizeof(*commands);
        if (s->file) {
            n_places = sizeof(file_places) / sizeof(*file_places);
            n_commands = sizeof(file_commands) / sizeof(*file_commands);
        }
        for (size_t p = 0; p < n_places; p++)
            for (size_t k = 0; k < n_commands; k++)
                try_situation(s, s->file ? file_places[p] : places[p],
                              s->file ? &file_commands[k] : &commands[k], source);
    }
}

/* ---- kills ----------------------------------------------------------------------------------- */

#define LOCK "lock.json"

/* A command that is killed at every call, then run again: it ends with its output.  */
static const struct replacement {
    const char *name, *target;
    struct command before[3];
    struct command command;
    bool locks; /* into LOCK */
} replacements[] = {
    {"finish --overwrite",
     "dst",
     {{{"quantize", SOURCE, "dst", "--scale-fmt", "ue8m0"}},
      {{"quantize", SOURCE, "dst", "--part", "1/2", "--overwrite"}},
      {{"quantize", SOURCE, "dst", "--part", "2/2", "--overwrite"}}},
     {{"finish", "dst", "--overwrite"}},
     false},
    {"finish",
     "dst",
     {{{"quantize", SOURCE, "dst", "--part", "1/2"}},
      {{"quantize", SOURCE, "dst", "--part", "2/2"}},
      {{NULL}}},
     {{"finish", "dst"}},
     false},
    {"--resume --overwrite",
     "dst",
     {{{"quantize", SOURCE, "dst", "--scale-fmt", "ue8m0"}}, {{NULL}}, {{NULL}}},
     {{"quantize", SOURCE, "dst", "--resume", "--overwrite"}},
     false},
    {"--resume",
     "dst",
     {{{NULL}}, {{NULL}}, {{NULL}}},
     {{"quantize", SOURCE, "dst", "--resume"}},
     false},
    {"MXFP8, --resume --overwrite",
     "dst",
     {{{"quantize", SOURCE, "dst"}}, {{NULL}}, {{NULL}}},
     {{"quantize", SOURCE, "dst", "--scheme", "MXFP8", "--resume", "--overwrite"}},
     false},
    {"file, --resume --overwrite",
     "dst.safetensors",
     {{{"quantize", FILE_SOURCE, "dst.safetensors", "--scale-fmt", "ue8m0"}}, {{NULL}}, {{NULL}}},
     {{"quantize", FILE_SOURCE, "dst.safetensors", "--resume", "--overwrite"}},
     false},
    {"dequantize --overwrite",
     "dst",
     {{{"quantize", SOURCE, "dst"}}, {{NULL}}, {{NULL}}},
     {{"dequantize", "../fp8", "dst", "--overwrite"}},
     false},
    {"--resume --lock",
     "dst",
     {{{NULL}}, {{NULL}}, {{NULL}}},
     {{"quantize", SOURCE, "dst", "--resume", "--lock", LOCK}},
     true},
    {"finish, parts with --lock",
     "dst",
     {{{"quantize", SOURCE, "dst", "--part", "1/2", "--lock", LOCK}},
      {{"quantize", SOURCE, "dst", "--part", "2/2", "--lock", LOCK}},
      {{NULL}}},
     {{"finish", "dst"}},
     true},
    {"--write-lock over another",
     "dst",
     {{{"quantize", SOURCE, "dst", "--scheme", "FP8_DYNAMIC", "--write-lock", LOCK}},
      {{NULL}},
      {{NULL}}},
     {{"quantize", SOURCE, "dst", "--resume", "--overwrite", "--write-lock", LOCK}},
     true},
    {"file, --lock",
     "dst.safetensors",
     {{{NULL}}, {{NULL}}, {{NULL}}},
     {{"quantize", FILE_SOURCE, "dst.safetensors", "--resume", "--lock", LOCK}},
     true},
};

static void start_from(const char *template)
{
    struct fp8q_error err = {0};
    if (chdir("..") != 0 || fp8q_remove_tree("run", &err) != FP8Q_OK)
        exit(70);
    tree_copy(template, "run");
    if (chdir("run") != 0)
        exit(70);
}

/* DST never stands there without the lock that was asked for; and a lock that was written for an
 * output that did not come refuses no other conversion to DST.  Every moment from the end back to
 * where neither is there.  */
static void try_locks(const struct replacement *r, long total, uint32_t new, uint32_t lock)
{
    const char *source = strstr(r->target, ".safetensors") ? FILE_SOURCE : SOURCE;
    const struct command other = {
        {"quantize", source, r->target, "--scheme", "FP8_DYNAMIC", "--overwrite", "--lock", LOCK}};
    const struct command proof = {{"verify", r->target, "--lock", LOCK}};
    bool is_new = true, is_locked = true;
    unsigned n_between = 0;
    char where[128];

    for (long at = total - 1; at >= 0 && (is_new || is_locked); at--) {
        snprintf(where, sizeof(where), "%s, killed at call %ld", r->name, at);
        start_from("template");
        (void)run(&r->command, at);
        is_new = digest_of(r->target) == new;
        is_locked = tree_digest(LOCK) == lock;
        n_between += is_locked && !is_new;

        if (is_new && !is_locked)
            complain(where, "the output is there without its lock");
        if (is_new)
            continue;
        if (run(&other, -1) != 0)
            complain(where, "a lock without an output refuses another conversion");
        else if (run(&proof, -1) != 0)
            complain(where, "the other conversion has another lock");
    }
    if (n_between == 0)
        complain(r->name, "no moment has the lock alone: the test sees nothing");
}

static void try_kill(const struct replacement *r, long at, uint32_t old, uint32_t new, uint32_t all)
{
    char where[128];
    snprintf(where, sizeof(where), "%s, killed at call %ld", r->name, at);
    start_from("template");
    (void)run(&r->command, at);
    uint32_t now = digest_of(r->target);
    bool file = strstr(r->target, ".safetensors") != NULL;
    if (now != old && now != new && !(file && now == 0))
        complain(where, "DST is neither the old output nor the new one");

    /* Again: it goes on, or says that there is nothing left to do.  */
    int code = run(&r->command, -1);
    bool done = now == new &&digest_of(r->target) == new;
    if (code != 0 && !(code == 5 && done))
        complain(where, "the same command cannot go on");
    if (digest_of(r->target) != new)
        complain(where, "another output");
    if (code == 0 && tree_digest(".") != all)
        complain(where, "something is left over");
}

static void kills(long every)
{
    for (size_t i = 0; i < sizeof(replacements) / sizeof(*replacements); i++) {
        const struct replacement *r = &replacements[i];
        struct fp8q_error err = {0};
        long total = 0;
        clear();
        for (size_t k = 0; k < 3 && r->before[k].words[0]; k++)
            must_run(&r->before[k], 0);
        (void)fp8q_remove_tree("../template", &err);
        tree_copy(".", "../template");
        uint32_t old = digest_of(r->target);
        must_run(&r->command, 0);
        for (size_t k = 0; k < N_CALLS; k++)
            total += k == CALL_MEMORY ? 0 : counts[k];
        uint32_t new = digest_of(r->target), all = tree_digest(".");
        uint32_t lock = r->locks ? tree_digest(LOCK) : 0;
        for (long at = (long)i % every; at < total; at += every)
            try_kill(r, at, old, new, all);
        if (r->locks)
            try_locks(r, total, new, lock);
        printf("%-28s %4ld moments\n", r->name, total);
    }
}

/* ---- sequences ------------------------------------------------------------------------------- */

static uint64_t state;

static unsigned pick(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((state >> 33) % n);
}

/* What fp8q may make at DST.  */
static const struct kind {
    struct command command;
} kinds[] = {
    {{{"quantize", SOURCE, "dst"}}},
    {{{"quantize", SOURCE, "dst", "--scale-fmt", "ue8m0"}}},
    {{{"quantize", SOURCE, "dst", "--scales", "inline"}}},
    {{{"dequantize", "../fp8", "dst"}}},
};
enum { N_KINDS = sizeof(kinds) / sizeof(*kinds), N_PARTS = 2 };
static uint32_t outputs[N_KINDS];

static void add_word(struct command *c, const char *word)
{
    size_t n = 0;
    while (c->words[n])
        n++;
    c->words[n] = word;
}

static bool is_output(uint32_t digest)
{
    for (size_t i = 0; i < N_KINDS; i++)
        if (digest == outputs[i])
            return true;
    return digest == 0;
}

static size_t count_records(void)
{
    char **names;
    size_t n, found = 0;
    if (fp8q_list_dir("dst.partial.fp8q", &names, &n, NULL) != FP8Q_OK)
        return 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        found += strncmp(names[i], "shard-", 6) == 0 && len > 7 &&
                 strcmp(names[i] + len - 7, ".record") == 0;
    }
    fp8q_names_free(names, n);
    return found;
}

/* A user who takes away what is theirs, or everything.  */
static void tidy(void)
{
    if (pick(4) == 0) {
        clear();
        return;
    }
    for (size_t i = 0; i < n_foreign; i++)
        (void)unlink(foreign[i].path);
    n_foreign = 0;
    (void)rmdir("dst/sub");
    (void)rmdir("dst.partial/sub");
}

static void choose(struct command *c, unsigned *kind_out, bool *part_out, bool *fresh_overwrite_out)
{
    static const char *const parts[N_PARTS] = {"1/2", "2/2"};
    unsigned what = pick(10);
    *kind_out = pick(N_KINDS);
    *part_out = *fresh_overwrite_out = false;
    bool overwrite = pick(3) == 0;
    if (what < 2) {
        *c = (struct command){{"finish", "dst"}};
        *kind_out = N_KINDS;
    } else {
        *c = kinds[*kind_out].command;
        if (what < 6 && *kind_out < 3) {
            add_word(c, "--part");
            add_word(c, parts[pick(N_PARTS)]);
            *part_out = true;
        } else if (what < 8 && *kind_out < 3) {
            add_word(c, "--resume");
        } else {
            *fresh_overwrite_out = overwrite;
        }
    }
    if (overwrite)
        add_word(c, "--overwrite");
}

static void step(const char *where, size_t *parts)
{
    struct command c;
    unsigned kind;
    bool part, fresh_overwrite;
    if (pick(6) == 0)
        (void)put_at(places[pick(sizeof(places) / sizeof(*places))]);
    if (pick(8) == 0) {
        tidy();
        *parts = 0;
        if (lost_foreign())
            return;
    }

    choose(&c, &kind, &part, &fresh_overwrite);
    uint32_t before = digest_of("dst");
    size_t records = count_records();
    long kill_at = pick(3) == 0 ? (long)pick(900) : -1;
    int code = run(&c, kill_at);
    uint32_t after = digest_of("dst");
    const char *lost = lost_foreign();
    if (lost)
        complain(where, lost);
    if (after != before && (!is_output(after) || after == 0))
        complain(where, "DST is neither what it was nor an output");
    if (after != before && kind < N_KINDS && after != outputs[kind])
        complain(where, "DST is another output than the one that was asked for");
    if (code != 0 && code < 256 && after != before)
        complain(where, "it failed, and DST is another one");
    if (code == 99 || code == 256 + 11 || code == 256 + 6)
        complain(where, "it crashed");

    /* Records of parts go with the output that they became, or when --overwrite gives them up.  */
    if (part && code == 0)
        *parts = count_records();
    bool became = after != before || (code == 0 && kind == N_KINDS);
    if (*parts && count_records() < records && !became && !fresh_overwrite)
        complain(where, "records of parts are lost");
    if (became || fresh_overwrite)
        *parts = 0;
}

static void sequences(unsigned long n, uint64_t seed, unsigned long first)
{
    uint32_t source = sources();
    for (size_t i = 0; i < N_KINDS; i++) {
        clear();
        must_run(&kinds[i].command, 0);
        outputs[i] = digest_of("dst");
    }
    for (unsigned long i = first; i < first + n; i++) {
        char where[64];
        size_t parts = 0;
        state = seed * 1000003 + i;
        unsigned steps = 4 + pick(8);
        clear();
        for (unsigned k = 0; k < steps; k++) {
            snprintf(where, sizeof(where), "sequence %lu, step %u", i, k);
            step(where, &parts);
        }
        if (sources() != source)
            complain(where, "the source was changed");
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static void make_sources(void)
{
    static const struct command quantize = {{"quantize", SOURCE, "../fp8"}};
    small_dir("source", 1);
    small_file("source.safetensors", 2);
    if (mkdir("run", 0777) != 0 || chdir("run") != 0)
        exit(70);
    must_run(&quantize, 0);
}

int main(int argc, char **argv)
{
    char dir[] = "/dev/shm/fp8q-losses-XXXXXX", other[] = "/tmp/fp8q-losses-XXXXXX";
    const char *mode = argc > 1 ? argv[1] : "";
    struct fp8q_error err = {0};
    counts = mmap(NULL, N_CALLS * sizeof(*counts), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char *made = mkdtemp(dir);
    if (!made)
        made = mkdtemp(other);
    if (counts == MAP_FAILED || !made || chdir(made) != 0) {
        perror("losses");
        return 70;
    }

    make_sources();
    if (strcmp(mode, "situations") == 0)
        situations();
    else if (strcmp(mode, "kills") == 0)
        kills(argc > 2 ? strtol(argv[2], NULL, 10) : 1);
    else
        sequences(argc > 2 ? strtoul(argv[2], NULL, 10) : 200,
                  argc > 3 ? strtoul(argv[3], NULL, 10) : 1,
                  argc > 4 ? strtoul(argv[4], NULL, 10) : 0);
    printf("%lu runs, %lu wrong\n", n_runs, n_wrong);
    if (chdir("/") != 0 || fp8q_remove_tree(made, &err) != FP8Q_OK)
        fprintf(stderr, "losses: %s\n", err.message);
    return n_wrong ? 1 : 0;
}
