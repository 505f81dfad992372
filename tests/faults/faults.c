/* SPDX-License-Identifier: Apache-2.0
 *
 * faults.c - the whole program, with every system call and allocation of small conversions and
 * measurements failed in turn.
 *
 *     faults [EVERY]                 tries every EVERY-th call only (default 1: all)
 *     faults SCENARIO CALL NUMBER    this one, with a stack trace: faults directory memory 53
 *
 * Each run is a forked child in a directory that is made anew.  Whatever fails, the exit status and
 * the message say so, nothing wrong stands under a final name, an old output is as it was, nothing
 * is left over, the source is untouched, and with --json the answer is JSON; or else the run
 * succeeded and its output is the one of an undisturbed run.  Commands that write a result file are
 * killed at every call, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "faults/inject.h"
#include "base/dir.h"
#include "base/crc.h"
#include "format/json.h"
#include "support/maker.h"
#include "support/small.h"

int cli_main(int argc, char **argv); /* main() of src/commands/main.c */

/* Findings of the sanitizers must not look like an exit status of ours.  */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "exitcode=99:detect_leaks=1";
}

enum leaves {
    LEAVES_NOTHING, /* a failure leaves everything as before */
    LEAVES_WORK,    /* ... or what the same command goes on with */
    LEAVES_RESULT,  /* ... or the whole target, where only telling of it failed */
    LEAVES_REPORT   /* ... or a target that tells of the failure, or the verdict */
};

struct scenario {
    const char *name, *target;
    enum leaves leaves;
    const char *words[16];
    const char *before[3][12]; /* commands that make the directory in which it starts */
    long spoil;                /* the last of them ends at this pwrite: no space */
};

#define SOURCE "../source"
#define FILE_SOURCE "../source.safetensors"
#define MODEL "../model"
#define SAMPLES "--inputs", "../inputs.safetensors", "--samples", "1", "--json"

static const struct scenario scenarios[] = {
    {"directory", "dst", LEAVES_NOTHING, {"quantize", SOURCE, "dst"}, {{NULL}}, 0},
    {"directory, inline",
     "dst",
     LEAVES_NOTHING,
     {"quantize", SOURCE, "dst", "--scales", "inline"},
     {{NULL}},
     0},
    {"directory, three threads",
     "dst",
     LEAVES_NOTHING,
     {"quantize", SOURCE, "dst", "--threads", "3"},
     {{NULL}},
     0},
    {"directory, --overwrite",
     "dst",
     LEAVES_NOTHING,
     {"quantize", SOURCE, "dst", "--overwrite"},
     {{"quantize", SOURCE, "dst", "--scale-fmt", "ue8m0"}},
     0},
    {"directory, --write-lock",
     "dst",
     LEAVES_NOTHING,
     {"quantize", SOURCE, "dst", "--write-lock", "lock.json"},
     {{NULL}},
     0},
    {"directory, --overwrite, --write-lock",
     "dst",
     LEAVES_NOTHING,
     {"quantize", SOURCE, "dst", "--overwrite", "--write-lock", "lock.json"},
     {{"quantize", SOURCE, "dst", "--scheme", "FP8_DYNAMIC", "--write-lock", "lock.json"}},
     0},
    {"directory, --resume",
     "dst",
     LEAVES_WORK,
     {"quantize", SOURCE, "dst", "--resume"},
     {{"quantize", SOURCE, "dst", "--resume"}},
     9},
    {"complete, --resume",
     "dst",
     LEAVES_NOTHING,
     {"quantize", SOURCE, "dst", "--resume"},
     {{"quantize", SOURCE, "dst"}},
     0},
    {"finish",
     "dst",
     LEAVES_WORK,
     {"finish", "dst"},
     {{"quantize", SOURCE, "dst", "--part", "1/2"}, {"quantize", SOURCE, "dst", "--part", "2/2"}},
     0},
    {"finish, parts with --write-lock",
     "dst",
     LEAVES_WORK,
     {"finish", "dst"},
     {{"quantize", SOURCE, "dst", "--part", "1/2", "--write-lock", "lock.json"},
      {"quantize", SOURCE, "dst", "--part", "2/2", "--write-lock", "lock.json"}},
     0},
    {"file",
     "dst.safetensors",
     LEAVES_NOTHING,
     {"quantize", FILE_SOURCE, "dst.safetensors"},
     {{NULL}},
     0},
    {"file, --overwrite",
     "dst.safetensors",
     LEAVES_NOTHING,
     {"quantize", FILE_SOURCE, "dst.safetensors", "--overwrite"},
     {{"quantize", FILE_SOURCE, "dst.safetensors", "--scale-fmt", "ue8m0"}},
     0},
    {"file, inline, --overwrite",
     "dst.safetensors",
     LEAVES_NOTHING,
     {"quantize", FILE_SOURCE, "dst.safetensors", "--overwrite", "--scales", "inline"},
     {{"quantize", FILE_SOURCE, "dst.safetensors"}},
     0},
    {"dequantize", "dst", LEAVES_NOTHING, {"dequantize", "../fp8", "dst"}, {{NULL}}, 0},
    {"verify", "dst", LEAVES_NOTHING, {"verify", "../fp8", "--source", SOURCE}, {{NULL}}, 0},
    {"inspect", "dst", LEAVES_NOTHING, {"inspect", "../fp8"}, {{NULL}}, 0},
    {"quantize --dry-run",
     "dst",
     LEAVES_NOTHING,
     {"quantize", SOURCE, "-n", "--json"},
     {{NULL}},
     0},
    {"verify --junit",
     "dst",
     LEAVES_REPORT,
     {"verify", "../fp8", "--source", SOURCE, "--junit", "dst", "--json"},
     {{NULL}},
     0},
    {"inspect --json", "dst", LEAVES_NOTHING, {"inspect", "../fp8", "--json"}, {{NULL}}, 0},
    {"compare", "dst", LEAVES_NOTHING, {"compare", MODEL, "--json"}, {{NULL}}, 0},
    {"eval",
     "dst",
     LEAVES_RESULT,
     {"eval", MODEL, "../model-fp8", SAMPLES, "-o", "dst"},
     {{NULL}},
     0},
    {"calibrate", "dst", LEAVES_RESULT, {"calibrate", MODEL, SAMPLES, "-o", "dst"}, {{NULL}}, 0},
    {"gptq",
     "dst",
     LEAVES_NOTHING,
     {"quantize", MODEL, "dst", "--gptq", "--inputs", "../inputs.safetensors"},
     {{NULL}},
     0},
    {"calibrate --merge",
     "dst",
     LEAVES_RESULT,
     {"calibrate", "--merge", "../calib", "--merge", "../calib", "--json", "-o", "dst"},
     {{NULL}},
     0},
    {"eval, over another",
     "dst",
     LEAVES_RESULT,
     {"eval", MODEL, "../model-fp8", SAMPLES, "-o", "dst", "--overwrite"},
     {{"eval", MODEL, "../model-fp8", SAMPLES, "--acts", "none", "-o", "dst"}},
     0},
    {"eval --dump-inputs",
     "dst",
     LEAVES_RESULT,
     {"eval", MODEL, "../model-fp8", SAMPLES, "--kv-cache", "--dump-inputs", "dst"},
     {{NULL}},
     0},
    {"calibrate, over another",
     "dst",
     LEAVES_RESULT,
     {"calibrate", MODEL, SAMPLES, "--no-moments", "-o", "dst", "--overwrite"},
     {{"calibrate", MODEL, SAMPLES, "-o", "dst"}},
     0},
    {"report",
     "dst",
     LEAVES_RESULT,
     {"report", "../model-fp8", "-s", MODEL, "-e", "../eval.json", "--calibration", "../calib",
      "-o", "dst", "--json"},
     {{NULL}},
     0},
    {"report, over another",
     "dst",
     LEAVES_RESULT,
     {"report", "../fp8", "--format", "md", "-o", "dst", "--overwrite"},
     {{"report", "../model-fp8", "--format", "pr", "-o", "dst"}},
     0},
    {"check",
     "dst",
     LEAVES_NOTHING,
     {"check", "../fp8", "--engine", "vllm", "--json"},
     {{NULL}},
     0},
    {"families", "dst", LEAVES_NOTHING, {"families", "--json"}, {{NULL}}, 0},
    {"inspect --tensor",
     "dst",
     LEAVES_NOTHING,
     {"inspect", "../model-fp8", "--tensor", "model.layers.0.mlp.down_proj", "--json"},
     {{NULL}},
     0},
    {"MXFP8", "dst", LEAVES_NOTHING, {"quantize", SOURCE, "dst", "--scheme", "MXFP8"}, {{NULL}}, 0},
    {"FP8_STATIC",
     "dst",
     LEAVES_NOTHING,
     {"quantize", MODEL, "dst", "--scheme", "FP8_STATIC", "--calibration", "../calib"},
     {{NULL}},
     0},
    {"--kv-cache",
     "dst",
     LEAVES_NOTHING,
     {"quantize", MODEL, "dst", "--kv-cache", "fp8", "--calibration", "../calib"},
     {{NULL}},
     0},
    {"drift",
     "dst",
     LEAVES_NOTHING,
     {"drift", "../calib", "../calib", "--model", MODEL, "--json"},
     {{NULL}},
     0},
    {"sweep",
     "dst",
     LEAVES_RESULT,
     {"sweep", MODEL, SAMPLES, "--by", "layer", "-o", "dst"},
     {{NULL}},
     0},
    {"gate",
     "dst",
     LEAVES_REPORT,
     {"gate", "../model-fp8", "-s", MODEL, "-p", "../policy", "-e", "../eval.json", "--markdown",
      "dst", "--json"},
     {{NULL}},
     0},
};
enum { N_SCENARIOS = sizeof(scenarios) / sizeof(*scenarios) };

/* A way to fail a kind of call, and whether the program must go on as if nothing had been.  */
struct way {
    enum fault_call call;
    enum fault_kind kind;
    int error;
    bool harmless;
};
static const struct way ways[] = {
    {CALL_OPEN, FAULT_ERRNO, EIO, false},
    {CALL_OPEN, FAULT_ERRNO, EINTR, true},
    {CALL_OPEN, FAULT_ERRNO, EMFILE, false},
    {CALL_CLOSE, FAULT_ERRNO, EIO, false},
    {CALL_CLOSE, FAULT_ERRNO, EINTR, true},
    {CALL_PREAD, FAULT_ERRNO, EIO, false},
    {CALL_PREAD, FAULT_ERRNO, EINTR, true},
    {CALL_PREAD, FAULT_SHORT, 0, true},
    {CALL_PWRITE, FAULT_ERRNO, EIO, false},
    {CALL_PWRITE, FAULT_ERRNO, ENOSPC, false},
    {CALL_PWRITE, FAULT_ALWAYS, EDQUOT, false},
    {CALL_PWRITE, FAULT_ERRNO, EINTR, true},
    {CALL_PWRITE, FAULT_SHORT, 0, true},
    {CALL_FSYNC, FAULT_ERRNO, EIO, false},
    {CALL_FSYNC, FAULT_ERRNO, EINTR, true},
    {CALL_FALLOCATE, FAULT_ERRNO, ENOSPC, false},
    {CALL_FALLOCATE, FAULT_ERRNO, EOPNOTSUPP, true},
    {CALL_FALLOCATE, FAULT_ERRNO, EINTR, true},
    {CALL_FSTAT, FAULT_ERRNO, EIO, false},
    {CALL_STAT, FAULT_ERRNO, EIO, false},
    {CALL_LSTAT, FAULT_ERRNO, EIO, false},
    {CALL_STATVFS, FAULT_ERRNO, ENOSYS, true},
    {CALL_MKDIR, FAULT_ERRNO, EDQUOT, false},
    {CALL_RENAME, FAULT_ERRNO, EIO, false},
    {CALL_RENAMEAT2, FAULT_ERRNO, EIO, false},
    {CALL_RENAMEAT2, FAULT_ERRNO, EINVAL, true},
    {CALL_LINKAT, FAULT_ERRNO, EIO, true},
    {CALL_LINKAT, FAULT_ALWAYS, EOPNOTSUPP, true}, /* no hard links */
    {CALL_UNLINK, FAULT_ERRNO, EIO, false},
    {CALL_RMDIR, FAULT_ERRNO, EIO, false},
    {CALL_OPENDIR, FAULT_ERRNO, EIO, false},
    {CALL_READDIR, FAULT_ERRNO, EIO, false},
    {CALL_FLOCK, FAULT_ALWAYS, ENOLCK, true}, /* no locks there: a warning */
    {CALL_FLOCK, FAULT_ALWAYS, ENOSYS, true},
    {CALL_FLOCK, FAULT_ALWAYS, EOPNOTSUPP, true},
    {CALL_FLOCK, FAULT_ERRNO, EIO, false},
    {CALL_FLOCK, FAULT_ERRNO, EINTR, true},
    {CALL_FCHMOD, FAULT_ERRNO, EPERM, true}, /* vfat and CIFS: a mode is no content */
    {CALL_REALPATH, FAULT_ERRNO, EACCES, false},
    {CALL_SYNC_FILE_RANGE, FAULT_ERRNO, ENOSYS, true},
    {CALL_THREAD, FAULT_ALWAYS, 0, true},
    {CALL_MEMORY, FAULT_ERRNO, ENOMEM, false},
};
enum { N_WAYS = sizeof(ways) / sizeof(*ways) };

static bool trace;
static long *counts; /* shared with the children */
static char said[8192];
static unsigned long n_runs, n_failed_cleanly, n_went_on, n_left, n_killed, n_wrong;

/* ---- one run --------------------------------------------------------------------------------- */

static void read_text(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

static void read_said(void)
{
    read_text("../said", said, sizeof(said));
}

/* What was printed on standard output is one JSON object, or nothing for want of memory.  */
static bool answer_is_json(void)
{
    static char text[1 << 20];
    struct fp8q_error err = {0};
    read_text("../answer", text, sizeof(text));
    if (!*text)
        return strstr(said, "memory") != NULL;
    return *text == '{' && fp8q_json_check(text, strlen(text), 0, "answer", &err) == FP8Q_OK;
}

/* Runs the program in a child; its exit status, or 256 + the signal that killed it.  */
static int run(const char *const *words, const struct fault *fault)
{
    static char program[] = "fp8q", one[] = "1", threads[] = "--threads";
    char *argv[20] = {program};
    int argc = 1, status;
    bool threaded = false;
    for (; words[argc - 1]; argc++) {
        argv[argc] = (char *)(uintptr_t)words[argc - 1];
        threaded = threaded || strcmp(argv[argc], "--threads") == 0;
    }
    if (!threaded && strcmp(words[0], "inspect") != 0) {
        argv[argc++] = threads; /* calls in the same order every time */
        argv[argc++] = one;
    }
    memset(counts, 0, N_CALLS * sizeof(*counts));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int out = open("../answer", O_WRONLY | O_CREAT | O_TRUNC, 0666),
            err = open("../said", O_WRONLY | O_CREAT | O_TRUNC, 0666);
        dup2(out, 1);
        dup2(err, 2);
        close(out);
        close(err);
        fault_arm(fault, counts);
        int code = cli_main(argc, argv);
        fault_disarm();
        exit(code);
    }
    if (child < 0 || waitpid(child, &status, 0) != child) {
        perror("faults");
        exit(70);
    }
    read_said();
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void start_from(const char *dir)
{
    struct fp8q_error err = {0};
    if (chdir("..") != 0 || fp8q_remove_tree("run", &err) != FP8Q_OK) {
        fprintf(stderr, "faults: %s\n", err.message);
        exit(70);
    }
    tree_copy(dir, "run");
    if (chdir("run") != 0)
        exit(70);
}

/* ---- judgement ------------------------------------------------------------------------------- */

struct expected {
    uint32_t before, after, target, source;
};

static uint32_t sources_digest(void)
{
    uint32_t crc[] = {tree_digest(SOURCE), tree_digest(FILE_SOURCE),    tree_digest("../fp8"),
                      tree_digest(MODEL),  tree_digest("../model-fp8"), tree_digest("../calib")};
    return fp8q_crc32(0, crc, sizeof(crc));
}

/* Calls that clean up after a success: a failure may leave something, but nothing wrong.  */
static bool may_leave(enum fault_call call)
{
    return call == CALL_UNLINK || call == CALL_RMDIR || call == CALL_OPENDIR ||
           call == CALL_READDIR || call == CALL_LSTAT || call == CALL_MEMORY;
}

static bool says_why(const struct way *w)
{
    const char *reason = w->error == ENOMEM ? "memory" : strerror(w->error);
    return strncmp(said, "fp8q: ", 6) == 0 && strstr(said, "error: ") && strstr(said, reason);
}

static bool asks_for_json(const struct scenario *s)
{
    for (size_t i = 0; s->words[i]; i++)
        if (strcmp(s->words[i], "--json") == 0)
            return true;
    return false;
}

/* NULL if all is well.  */
static const char *judge(const struct scenario *s, const struct way *w, const struct expected *e,
                         int code)
{
    static const struct fault none = {.kind = FAULT_NONE};
    uint32_t now = tree_digest(".");
    if (sources_digest() != e->source)
        return "the source was changed";
    if (asks_for_json(s) && !answer_is_json())
        return "--json, and the answer is none";
    if (code == 0) {
        n_went_on++;
        if (now == e->after)
            return NULL;
        n_left++;
        if (tree_digest(s->target) != e->target)
            return "success, but the output is another one";
        return may_leave(w->call) ? NULL : "success, but something is left";
    }
    n_failed_cleanly++;
    if (code != 3)
        return "the exit status is not 3";
    if (w->harmless)
        return "failed where it had to go on";
    if (!says_why(w))
        return "the message does not say why";
    if (now == e->before)
        return NULL;
    if (s->leaves == LEAVES_RESULT && now == e->after)
        return NULL;
    if (s->leaves == LEAVES_REPORT && unlink(s->target) == 0 && tree_digest(".") == e->before)
        return NULL;
    if (s->leaves != LEAVES_WORK)
        return "a failure left something";
    if (tree_digest(s->target) != 0)
        return "a failure left an output";
    if (run(s->words, &none) != 0 || tree_digest(".") != e->after)
        return "the same command could not go on";
    return NULL;
}

static void try_fault(const struct scenario *s, const struct way *w, const struct expected *e,
                      long at)
{
    struct fault fault = {
        .kind = w->kind, .call = w->call, .at = at, .error = w->error, .trace = trace};
    start_from("template");
    n_runs++;
    const char *wrong = judge(s, w, e, run(s->words, &fault));
    if (!wrong)
        return;
    n_wrong++;
    read_said();
    printf("%s: %s number %ld %s: %s\n    %.1500s\n", s->name, fault_call_names[w->call], at,
           w->kind == FAULT_SHORT ? "is short" : strerror(w->error), wrong, said);
}

/* ---- scenarios ------------------------------------------------------------------------------- */

/* Makes ../template, the directory in which each run starts.  */
static void prepare(const struct scenario *s)
{
    struct fp8q_error err = {0};
    struct fault none = {.kind = FAULT_NONE};
    struct fault spoil = {
        .kind = FAULT_ALWAYS, .call = CALL_PWRITE, .at = s->spoil, .error = ENOSPC};
    start_from("empty");
    for (size_t i = 0; i < 3 && s->before[i][0]; i++) {
        bool last = i == 2 || !s->before[i + 1][0];
        int code = run(s->before[i], last && s->spoil ? &spoil : &none);
        if (code != (last && s->spoil ? 3 : 0)) {
            printf("%s: preparing it: status %d\n%s", s->name, code, said);
            exit(1);
        }
    }
    (void)fp8q_remove_tree("../template", &err);
    tree_copy(".", "../template");
}

/* A result file is the one of before or the whole new one, whenever its run is killed; the same
 * command then leaves what it would have left undisturbed.  */
static const char *judge_kill(const struct scenario *s, uint32_t old, const struct expected *e)
{
    static const struct fault none = {.kind = FAULT_NONE};
    uint32_t now = tree_digest(s->target);

    if (sources_digest() != e->source)
        return "the source was changed";
    if (now != old && now != e->target)
        return "the result is neither the old one nor the new one";
    if (now == 0 && tree_digest(".") != e->before)
        return "no result, and something is left";

    /* Without --overwrite a result that is there is not replaced, which is right.  */
    int code = run(s->words, &none);
    if (code != 0 && !(code == 2 && now == e->target))
        return "the same command cannot go on";
    return tree_digest(".") == e->after ? NULL : "the same command left something else";
}

static void try_kills(const struct scenario *s, const struct expected *e, long total, long every)
{
    uint32_t old;
    start_from("template");
    old = tree_digest(s->target);
    for (long at = every > 1 ? total % every : 0; at < total; at += every) {
        struct fault fault = {.kind = FAULT_KILL, .at = at};
        start_from("template");
        n_killed++;
        const char *wrong =
            run(s->words, &fault) == 256 + SIGKILL ? judge_kill(s, old, e) : "it was not killed";
        if (!wrong)
            continue;
        n_wrong++;
        printf("%s: killed at call %ld of %ld: %s\n    %.600s\n", s->name, at, total, wrong, said);
    }
}

static void try_scenario(const struct scenario *s, long every)
{
    static const struct fault none = {.kind = FAULT_NONE};
    long calls[N_CALLS], total = 0;
    unsigned long runs = n_runs;
    prepare(s);
    struct expected e = {.before = tree_digest("."), .source = sources_digest()};
    start_from("template");
    int code = run(s->words, &none);
    if (code != 0) {
        printf("%s: fails without a fault: status %d\n%s", s->name, code, said);
        n_wrong++;
        return;
    }
    e.after = tree_digest(".");
    e.target = tree_digest(s->target);
    memcpy(calls, counts, sizeof(calls));
    for (size_t i = 0; i < N_CALLS; i++)
        total += calls[i];
    for (size_t i = 0; i < N_WAYS; i++)
        for (long at = every > 1 ? (long)(i % (size_t)every) : 0; at < calls[ways[i].call];
             at += every)
            try_fault(s, &ways[i], &e, at);
    if (s->leaves == LEAVES_RESULT || s->leaves == LEAVES_REPORT)
        try_kills(s, &e, total - calls[CALL_MEMORY], every);
    printf("%-28s %5ld calls and allocations, %5lu runs\n", s->name, total, n_runs - runs);
    fflush(stdout);
}

static void try_one(const struct scenario *s, const char *call, long at)
{
    static const struct fault none = {.kind = FAULT_NONE};
    prepare(s);
    struct expected e = {.before = tree_digest("."), .source = sources_digest()};
    start_from("template");
    (void)run(s->words, &none);
    e.after = tree_digest(".");
    e.target = tree_digest(s->target);
    trace = true;
    for (size_t i = 0; i < N_WAYS; i++)
        if (strcmp(fault_call_names[ways[i].call], call) == 0) {
            try_fault(s, &ways[i], &e, at);
            printf("%s\n", said);
        }
}

static void make_sources(void)
{
    static const struct fault none = {.kind = FAULT_NONE};
    static const char *const commands[][12] = {
        {"quantize", SOURCE, "../fp8"},
        {"quantize", MODEL, "../model-fp8"},
        {"eval", MODEL, "../model-fp8", "--inputs", "../inputs.safetensors", "-o", "../eval.json"},
        {"calibrate", MODEL, SAMPLES, "-o", "../calib"}};
    struct fp8q_error err = {0};

    small_dir("source", 1);
    small_file("source.safetensors", 2);
    tree_copy(FP8Q_TEST_DATA "/checkpoints/llama-untied", "model");
    tree_copy(FP8Q_TEST_DATA "/eval/text.inputs.safetensors", "inputs.safetensors");
    maker_write_text(
        ".", "policy",
        "{\"schema\": \"fp8q-policy/1\", \"eval\": {\"min_tokens\": 1, \"kld_max\": 9}}");

    bool ok = !fp8q_mkdir("empty", &err) && !fp8q_mkdir("run", &err) && chdir("run") == 0;
    for (size_t i = 0; ok && i < sizeof(commands) / sizeof(*commands); i++)
        ok = run(commands[i], &none) == 0;
    if (!ok) {
        fprintf(stderr, "faults: %s%s\n", err.message, said);
        exit(70);
    }
}

int main(int argc, char **argv)
{
    long every = argc == 2 ? strtol(argv[1], NULL, 10) : 1;
    /* Hundreds of thousands of fsyncs are nothing in memory.  */
    char dir[] = "/dev/shm/fp8q-faults-XXXXXX", other[] = "/tmp/fp8q-faults-XXXXXX", *made;
    struct fp8q_error err = {0};

    setenv("SOURCE_DATE_EPOCH", "1790000000", 1); /* evidence and statistics have a date */
    counts = mmap(NULL, N_CALLS * sizeof(*counts), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    made = mkdtemp(dir);
    if (!made)
        made = mkdtemp(other);
    if (counts == MAP_FAILED || !made || chdir(made) != 0 || every < 1) {
        perror("faults");
        return 70;
    }
    make_sources();
    for (size_t i = 0; i < N_SCENARIOS; i++) {
        if (argc < 4)
            try_scenario(&scenarios[i], every);
        else if (strcmp(scenarios[i].name, argv[1]) == 0)
            try_one(&scenarios[i], argv[2], strtol(argv[3], NULL, 10));
    }
    printf(
        "%lu faults: %lu reported and undone, %lu survived (%lu left something over); %lu kills; "
        "%lu wrong\n",
        n_runs, n_failed_cleanly, n_went_on, n_left, n_killed, n_wrong);
    if (chdir("/") != 0 || fp8q_remove_tree(made, &err) != FP8Q_OK)
        fprintf(stderr, "faults: %s\n", err.message);
    return n_wrong ? 1 : 0;
}
