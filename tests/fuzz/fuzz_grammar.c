/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_grammar.c - whole checkpoints from a grammar, through the whole program.
 *
 * The input spells a checkpoint (grammar.c), side files and the options of a conversion.  It runs
 *
 *     inspect, quantize, verify, verify --source, quantize again, dequantize
 *
 * by the command line's own main().  What must hold, beside no report of a sanitizer: a conversion
 * that succeeds is one that verify passes; one that fails leaves nothing; other threads and another
 * kernel give the same bytes; an exit status is one of the documented; the source is as it was.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/path.h"
#include "fuzz/fuzz.h"
#include "fuzz/grammar.h"
#include "support/small.h"

int cli_main(int argc, char **argv); /* main() of src/commands/main.c */

enum { MOST_WORDS = 40 };

/* ---- side files and options -------------------------------------------------------------------- */

static bool stands(const char *path)
{
    return access(path, F_OK) == 0;
}

static void add_side_file(struct input *in, const char *dir)
{
    static const char *const names[] = {"tokenizer.json",
                                        "model-scales.safetensors",
                                        "generation_config.json",
                                        "sub/dir/file.txt",
                                        "fp8q-manifest.json",
                                        "a\nb.txt",
                                        "\xff.txt",
                                        "pytorch_model.bin",
                                        "voices/x.safetensors",
                                        "hf_quant_config.json",
                                        "recipe.yaml",
                                        ".fp8q/state.json",
                                        "model.onnx.data",
                                        "adapter_config.json",
                                        "quantize_config.json"};
    const char *name = PICK(in, names);
    char *path = fp8q_join(dir, name);
    if (!stands(path))
        maker_write_text(dir, name, choose(in, 2) ? "{}" : "some text\n");
    free(path);
}

static const char *const options[][2] = {
    {"--scheme", "FP8_DYNAMIC"},
    {"--scheme", "FP8"},
    {"--scheme", "MXFP8"},
    {"--format", "compressed-tensors"},
    {"--scale-fmt", "ue8m0"},
    {"--scales", "inline"},
    {"--unaligned", "quantize"},
    {"--unaligned", "per-channel"},
    {"--max-shard-size", "100KB"},
    {"--max-shard-size", "1KB"},
    {"--requantize", NULL},
    {"--strict", NULL},
    {"--no-default-ignore", NULL},
    {"--allow-tower", NULL},
    {"--include", "re:.*"},
    {"--include", "lm_head"},
    {"--ignore", "layers.0.mlp"},
    {"--ignore", "q_proj"},
    {"--tp", "2"},
};

/* ---- running ----------------------------------------------------------------------------------- */

static char *top;

static void clean_up(void)
{
    FUZZ_REQUIRE(chdir("/") == 0);
    (void)fp8q_remove_tree(top, NULL);
}

/* Everything happens in a directory in memory; what the commands print goes nowhere unless
 * FUZZ_LOUD is set, which shows how an input came to its end.  */
static void prepare(void)
{
    static char dir[] = "/dev/shm/fp8q-fuzz-XXXXXX", other[] = "/tmp/fp8q-fuzz-XXXXXX";
    top = mkdtemp(dir);
    if (!top)
        top = mkdtemp(other);
    FUZZ_REQUIRE(top && chdir(top) == 0);
    atexit(clean_up);
}

struct command {
    const char *words[MOST_WORDS];
    int n;
};

static void word(struct command *c, const char *text)
{
    if (c->n < MOST_WORDS - 1)
        c->words[c->n++] = text;
}

static int run(const struct command *c)
{
    char *argv[MOST_WORDS];
    int out = dup(1), err = dup(2), null = open("/dev/null", O_WRONLY);
    bool loud = getenv("FUZZ_LOUD") != NULL;
    for (int i = 0; i < c->n; i++) {
        argv[i] = (char *)(uintptr_t)c->words[i];
        if (loud)
            fprintf(stderr, "%s%s", argv[i], i + 1 < c->n ? " " : "\n");
    }
    argv[c->n] = NULL;

    fflush(stdout);
    dup2(null, 1);
    if (!loud)
        dup2(null, 2);
    int code = cli_main(c->n, argv);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    close(null);

    if (loud)
        fprintf(stderr, "-> %d\n", code);
    FUZZ_REQUIRE(code >= 0 && code <= 5);
    return code;
}

static int run_words(const char *a, const char *b, const char *c, const char *d, const char *e)
{
    struct command command = {{"fp8q", a, b}, 3};
    for (const char *const *w = (const char *const[]){c, d, e, NULL}; *w; w++)
        word(&command, *w);
    word(&command, "-q");
    word(&command, "--threads");
    word(&command, "1");
    return run(&command);
}

static struct command conversion(struct input *in)
{
    struct command c = {{"fp8q", "quantize", "src", "dst", "-q"}, 5};
    bool has_pattern = false;
    for (unsigned n = choose(in, 4); n > 0; n--) {
        const char *const *o = PICK(in, options);
        word(&c, o[0]);
        if (o[1])
            word(&c, o[1]);
        has_pattern |= strcmp(o[0], "--include") == 0 || strcmp(o[0], "--ignore") == 0;
    }

    /* Refused where it has no effect.  */
    if (has_pattern)
        word(&c, "--allow-unmatched");
    return c;
}

/* Other threads and the plainest kernel: the same answer, the same bytes.  */
static void convert_again(struct command c, int code, uint32_t digest)
{
    c.words[3] = "dst2";
    word(&c, "--threads");
    word(&c, "3");
    word(&c, "--kernel");
    word(&c, "scalar");
    FUZZ_REQUIRE(run(&c) == code);
    FUZZ_REQUIRE(code != 0 || tree_digest("dst2") == digest);
}

static void check(struct input *in)
{
    struct command c = conversion(in);
    uint32_t source = tree_digest("src");
    bool again = choose(in, 4) == 1;

    run_words("inspect", "src", NULL, NULL, NULL);
    word(&c, "--threads");
    word(&c, "1");
    int code = run(&c);
    if (code != 0) {
        FUZZ_REQUIRE(!stands("dst") && !stands("dst.partial") && !stands("dst.partial.fp8q"));
    } else {
        FUZZ_REQUIRE(run_words("verify", "dst", NULL, NULL, NULL) == 0);
        FUZZ_REQUIRE(run_words("verify", "dst", "--source", "src", NULL) == 0);
        if (run_words("dequantize", "dst", "back", NULL, NULL) == 0)
            FUZZ_REQUIRE(run_words("inspect", "back", NULL, NULL, NULL) == 0);
        run_words("compare", "dst", NULL, NULL, NULL);
    }
    c.n -= 2;
    if (again)
        convert_again(c, code, tree_digest("dst"));
    run_words("dequantize", "src", "flat", NULL, NULL);
    run_words("verify", "src", NULL, NULL, NULL);
    FUZZ_REQUIRE(tree_digest("src") == source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct made made = {.state = 0};
    if (!top)
        prepare();

    char *config = make_config(&in);
    make_tensors(&in, &made);
    maker_write(&made.maker, "src", config);
    for (unsigned n = choose(&in, 3); n > 0; n--)
        add_side_file(&in, "src");
    check(&in);

    static const char *const left[] = {"src", "dst", "dst2", "back", "flat"};
    for (size_t i = 0; i < sizeof(left) / sizeof(*left); i++)
        if (stands(left[i]))
            FUZZ_REQUIRE(fp8q_remove_tree(left[i], NULL) == FP8Q_OK);
    free(config);
    maker_free(&made.maker);
    return 0;
}
