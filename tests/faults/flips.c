/* SPDX-License-Identifier: Apache-2.0
 *
 * flips.c - damages outputs and asks verify, without their source.
 *
 *     flips FP8Q COUNT [SEED]
 *
 * COUNT bits, at seeded positions of all files of several outputs, are flipped one at a time; then
 * scales are exchanged, files replaced, truncated and renamed.  verify must fail each time and say
 * where.  A change of config.json outside quantization_config may be a warning, and fails with
 * --strict.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "support/small.h"
#include "verify/verify.h"

static uint64_t state;
static unsigned long n_flips, n_missed, n_warned, n_unnamed;

static uint64_t next_random(void)
{
    uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "flips: %s\n", what);
    exit(70);
}

/* ---- asking ---------------------------------------------------------------------------------- */

struct answer {
    int status;
    size_t n_warned;
    struct fp8q_error error;
};

static struct answer ask(const char *path, bool strict)
{
    struct answer a = {.status = FP8Q_OK};
    struct fp8q_report report;
    struct fp8q_warnings warnings = {0};
    struct fp8q_verify_options o = {
        .strict = strict, .threads = 1, .kernel = fp8q_kernel_select(NULL)};
    a.status = fp8q_verify(path, &o, &report, &warnings, &a.error);
    a.n_warned = report.n_warned;
    fp8q_report_reset(&report);
    fp8q_warnings_reset(&warnings);
    return a;
}

/* The message leads to the place: names the file, or a tensor, or the config's part.  */
static bool names_it(const struct answer *a, const char *file)
{
    const char *said = a->error.message;
    if (strstr(file, "index.json")) /* a name in it was hit, and is what the message shows */
        return strstr(said, "index") || strstr(said, "shard ") || strstr(said, "tensor");
    return strstr(said, fp8q_basename(file)) || strstr(said, "model.") || strstr(said, "config") ||
           strstr(said, "index");
}

static void expect_found(const char *path, const char *file, const char *what)
{
    struct answer a = ask(path, false);
    if (a.status == FP8Q_OK && strcmp(file, "config.json") == 0 && a.n_warned) {
        n_warned++;
        a = ask(path, true);
    }
    if (a.status == FP8Q_OK) {
        n_missed++;
        printf("%s, %s: %s: not found\n", path, file, what);
    } else if (!names_it(&a, file)) {
        n_unnamed++;
        printf("%s, %s: %s: \"%s\" does not say where\n", path, file, what, a.error.message);
    }
}

/* ---- flips ----------------------------------------------------------------------------------- */

struct output {
    const char *path; /* what verify gets */
    const char *dir;  /* where the files are */
    char *files[16];
    size_t n;
};

static void list_files(struct output *o, const char *relative)
{
    struct fp8q_error err = {0};
    char **names;
    size_t n;
    char *dir = *relative ? fp8q_join(o->dir, relative) : strdup(o->dir);
    must(fp8q_list_dir(dir, &names, &n, &err) == FP8Q_OK, err.message);
    for (size_t i = 0; i < n; i++) {
        char *name = *relative ? fp8q_join(relative, names[i]) : strdup(names[i]);
        char *path = fp8q_join(o->dir, name);
        bool is_dir;
        must(fp8q_is_dir(path, &is_dir, &err) == FP8Q_OK, err.message);
        free(path);
        if (is_dir) {
            list_files(o, name);
            free(name);
        } else {
            must(o->n < 16, "more files than expected");
            o->files[o->n++] = name;
        }
    }
    fp8q_names_free(names, n);
    free(dir);
}

/* Changes one byte in place.  */
static unsigned char poke(const char *path, uint64_t at, unsigned char mask)
{
    struct fp8q_error err = {0};
    unsigned char byte;
    int fd;
    must(fp8q_open_write(path, &fd, &err) == FP8Q_OK, err.message);
    must(fp8q_pread(fd, &byte, 1, at, path, &err) == FP8Q_OK, err.message);
    byte ^= mask;
    must(fp8q_pwrite(fd, &byte, 1, at, path, &err) == FP8Q_OK, err.message);
    must(fp8q_close(&fd, path, &err) == FP8Q_OK, err.message);
    return byte;
}

static uint64_t size_of(const char *path)
{
    struct fp8q_error err = {0};
    struct stat st;
    bool there;
    must(fp8q_stat(path, &st, &there, &err) == FP8Q_OK && there, path);
    return (uint64_t)st.st_size;
}

/* Half of the flips by file, so that small ones get their share; half by byte of headers and all.
 */
static void flip(const struct output *o)
{
    char what[128];
    const char *file = o->files[next_random() % o->n];
    char *path = fp8q_join(o->dir, file);
    uint64_t size = size_of(path), head = size < 3000 ? size : 3000;
    uint64_t at = next_random() % (next_random() % 2 ? size : head);
    unsigned bit = (unsigned)(next_random() % 8);
    poke(path, at, (unsigned char)(1u << bit));
    snprintf(what, sizeof(what), "bit %u of byte %llu of %llu", bit, (unsigned long long)at,
             (unsigned long long)size);
    expect_found(o->path, file, what);
    poke(path, at, (unsigned char)(1u << bit));
    free(path);
    n_flips++;
}

/* ---- exchanges ------------------------------------------------------------------------------- */

static unsigned long n_exchanges;

static void shell(const char *command)
{
    if (system(command) != 0) {
        fprintf(stderr, "flips: %s\n", command);
        exit(70);
    }
}

/* Damages a copy of @dir by a command that works in it, and expects @file to be named.  */
static void exchange(const char *dir, const char *target, const char *file, const char *command)
{
    char line[1024];
    snprintf(line, sizeof(line), "rm -rf hurt && cp -r %s hurt && cd hurt && %s", dir, command);
    shell(line);
    expect_found(target, file, command);
    n_exchanges++;
}

/* Swaps two 4-byte scales, which leaves every value plausible.  */
static void swap_scales(const char *path)
{
    struct fp8q_error err = {0};
    struct fp8q_ckpt *ckpt;
    uint32_t a, b;
    int fd;
    must(fp8q_ckpt_open("out", &ckpt, NULL, &err) == FP8Q_OK, err.message);
    const struct fp8q_tensor *t =
        fp8q_ckpt_find(ckpt, "model.layers.0.mlp.up_proj.weight_scale_inv");
    must(t && t->size_bytes == 8, "no scales to swap");
    must(fp8q_open_write(path, &fd, &err) == FP8Q_OK, err.message);
    must(fp8q_pread(fd, &a, 4, t->offset, path, &err) == FP8Q_OK, err.message);
    must(fp8q_pread(fd, &b, 4, t->offset + 4, path, &err) == FP8Q_OK, err.message);
    must(a != b, "the scales are the same");
    for (unsigned i = 0; i < 2; i++) {
        must(fp8q_pwrite(fd, &b, 4, t->offset, path, &err) == FP8Q_OK, err.message);
        must(fp8q_pwrite(fd, &a, 4, t->offset + 4, path, &err) == FP8Q_OK, err.message);
        if (i == 0)
            expect_found("out", "model-scales.safetensors", "two scales swapped");
        uint32_t c = a;
        a = b;
        b = c;
    }
    must(fp8q_close(&fd, path, &err) == FP8Q_OK, err.message);
    fp8q_ckpt_close(ckpt);
    n_exchanges++;
}

static void exchanges(void)
{
    static const char scales[] = "model-scales.safetensors",
                      shard[] = "model-00001-of-00002.safetensors", config[] = "config.json";
    swap_scales("out/model-scales.safetensors");
    exchange("out", "hurt", scales, "cp ../other/model-scales.safetensors .");
    exchange("out", "hurt", scales, "rm model-scales.safetensors");
    exchange("out", "hurt", shard, "cp ../other/model-00001-of-00002.safetensors .");
    exchange("out", "hurt", shard, "truncate -s -1 model-00001-of-00002.safetensors");
    exchange("out", "hurt", shard, "truncate -s +1 model-00001-of-00002.safetensors");
    exchange("out", "hurt", shard, "cp ../source/model-00001-of-00002.safetensors .");
    exchange("out", "hurt", shard,
             "mv model-00001-of-00002.safetensors x && mv model-00002-of-00002.safetensors "
             "model-00001-of-00002.safetensors && mv x model-00002-of-00002.safetensors");
    exchange("out", "hurt", config, "sed -i s/128,/256,/ config.json");
    exchange("out", "hurt", config, "sed -i s/dynamic/static/ config.json");
    exchange("out", "hurt", config, "sed -i s/lm_head/lm_tail/ config.json");
    exchange("out", "hurt", config, "cp ../source/config.json .");
    exchange("out", "hurt", config, "sed -i s/hidden_size/hidden_sice/ config.json");
    exchange("out", "hurt", "tokenizer.json", "rm tokenizer.json");
    exchange("out", "hurt", "extra/notes.txt", "echo more >>extra/notes.txt");
    exchange("inline", "hurt", "fp8q-manifest.json", "cp ../out/config.json fp8q-manifest.json");
    exchange("file", "hurt/out.safetensors", "out.safetensors",
             "cp ../filesrc.safetensors out.safetensors");
}

/* ---- all ------------------------------------------------------------------------------------- */

static void make_outputs(const char *fp8q)
{
    static const char *const runs[] = {
        "quantize source out",
        "quantize source2 other",
        "quantize source inline --scales inline",
        "quantize source channel --scheme FP8_DYNAMIC",
        "quantize source group --scheme MXFP8",
        "quantize filesrc.safetensors file/out.safetensors",
    };
    struct fp8q_error err = {0};
    char line[4096];
    small_dir("source", 3);
    small_dir("source2", 4);
    small_file("filesrc.safetensors", 5);
    must(fp8q_mkdir("file", &err) == FP8Q_OK, err.message);
    for (size_t i = 0; i < sizeof(runs) / sizeof(*runs); i++) {
        snprintf(line, sizeof(line), "'%s' %s -q", fp8q, runs[i]);
        shell(line);
    }
}

int main(int argc, char **argv)
{
    struct output outputs[] = {{"out", "out", {NULL}, 0},
                               {"inline", "inline", {NULL}, 0},
                               {"channel", "channel", {NULL}, 0},
                               {"group", "group", {NULL}, 0},
                               {"file/out.safetensors", "file", {NULL}, 0}};
    char dir[] = "/dev/shm/fp8q-flips-XXXXXX", other[] = "/tmp/fp8q-flips-XXXXXX";
    struct fp8q_error err = {0};
    must(argc >= 3 && argv[1][0] == '/', "usage: flips /PATH/TO/FP8Q COUNT [SEED]");
    unsigned long count = strtoul(argv[2], NULL, 10);
    state = argc > 3 ? strtoull(argv[3], NULL, 0) : 20260801;
    char *made = mkdtemp(dir);
    if (!made)
        made = mkdtemp(other);
    must(made && chdir(made) == 0, "no temporary directory");
    make_outputs(argv[1]);
    for (size_t i = 0; i < 4; i++) {
        must(ask(outputs[i].path, true).status == FP8Q_OK, "an undamaged output fails");
        list_files(&outputs[i], "");
    }
    for (unsigned long i = 0; i < count; i++)
        flip(&outputs[i % 4]);
    exchanges();
    for (size_t i = 0; i < 4; i++) {
        must(ask(outputs[i].path, true).status == FP8Q_OK, "the damage was not undone");
        for (size_t k = 0; k < outputs[i].n; k++)
            free(outputs[i].files[k]);
    }
    printf("%lu flipped bits, %lu exchanges: %lu not found, %lu found without saying where, "
           "%lu of config.json warned of (failed with --strict)\n",
           n_flips, n_exchanges, n_missed, n_unnamed, n_warned);
    must(chdir("/") == 0 && fp8q_remove_tree(made, &err) == FP8Q_OK, "cannot clean up");
    return n_missed || n_unnamed;
}
