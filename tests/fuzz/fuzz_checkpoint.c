/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_checkpoint.c - a valid small checkpoint and its output, damaged field by field, through the
 * plan and through verify.
 *
 * Input: two bytes for the call that fails (0: none; else its kind and number, memory included),
 * then edits of five bytes each: file and operation, position (two bytes), length, value.  Nothing
 * but a clean refusal or a clean success may come out; a damaged output that verify passes as it
 * stands must be one whose bytes are as they were.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../faults/inject.h"
#include "support/small.h"
#include "convert/convert.h"
#include "fuzz/fuzz.h"
#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "verify/verify.h"

enum { MOST_FILES = 16, LARGEST_EDIT = 64 };

struct file {
    char *path, *data;
    size_t len;
    bool payload; /* a weights file: edits go to its header */
    bool damaged;
};

static struct file files[MOST_FILES];
static size_t n_files, first_of_output;
static char *source, *output;

/* ---- the valid ones -------------------------------------------------------------------------- */

static void add_files(const char *dir)
{
    static const char *const names[] = {"config.json",
                                        "model.safetensors.index.json",
                                        "model-00001-of-00002.safetensors",
                                        "model-00002-of-00002.safetensors",
                                        "model-scales.safetensors",
                                        "tokenizer.json"};
    struct fp8q_error err = {0};
    struct stat st;
    bool there;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct file *f = &files[n_files];
        f->path = fp8q_join(dir, names[i]);
        FUZZ_REQUIRE(fp8q_stat(f->path, &st, &there, &err) == FP8Q_OK);
        if (!there) {
            free(f->path);
            continue;
        }
        FUZZ_REQUIRE(fp8q_read_file(f->path, UINT64_MAX, &f->data, &f->len, &err) == FP8Q_OK);
        f->payload = strstr(names[i], ".safetensors") && !strstr(names[i], ".json");
        n_files++;
    }
}

static void convert(void)
{
    struct fp8q_request r = {.source = source, .format = FP8Q_FORMAT_FP8};
    struct fp8q_plan_options options = fp8q_request_options(&r, NULL);
    struct fp8q_convert_options o = {
        .destination = output, .request = &r, .kernel = fp8q_kernel_select(NULL)};
    struct fp8q_convert_result result;
    struct fp8q_ckpt *ckpt;
    struct fp8q_plan *plan;
    struct fp8q_error err = {0};
    options.threads = 1;
    FUZZ_REQUIRE(fp8q_ckpt_open(source, &ckpt, NULL, &err) == FP8Q_OK);
    FUZZ_REQUIRE(fp8q_plan_create(ckpt, &options, &plan, NULL, &err) == FP8Q_OK);
    FUZZ_REQUIRE(fp8q_convert(plan, &o, &result, NULL, &err) == FP8Q_OK);
    fp8q_plan_destroy(plan);
    fp8q_ckpt_close(ckpt);
}

static char *made;

static void clean_up(void)
{
    (void)fp8q_remove_tree(made, NULL);
}

static void prepare(void)
{
    static char dir[] = "/dev/shm/fp8q-fuzz-XXXXXX", other[] = "/tmp/fp8q-fuzz-XXXXXX";
    made = mkdtemp(dir);
    if (!made)
        made = mkdtemp(other);
    FUZZ_REQUIRE(made);
    atexit(clean_up);
    source = fp8q_join(made, "source");
    output = fp8q_join(made, "output");
    small_dir(source, 7);
    convert();
    add_files(source);
    first_of_output = n_files;
    add_files(output);
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void write_back(const struct file *f, const char *data, size_t len)
{
    struct fp8q_error err = {0};
    int fd;
    FUZZ_REQUIRE(fp8q_unlink(f->path, &err) == FP8Q_OK);
    FUZZ_REQUIRE(fp8q_create(f->path, &fd, &err) == FP8Q_OK);
    FUZZ_REQUIRE(fp8q_pwrite(fd, data, len, 0, f->path, &err) == FP8Q_OK);
    FUZZ_REQUIRE(fp8q_close(&fd, f->path, &err) == FP8Q_OK);
}

static size_t header_len(const char *data, size_t len)
{
    uint64_t n = 0;
    memcpy(&n, data, len < 8 ? len : 8);
    return n < len ? (size_t)n + 8 : len;
}

/* One edit; a header that grows or shrinks gets its length field put right by operation 4.  */
static size_t edit(char *data, size_t len, bool payload, const uint8_t e[5])
{
    size_t head = payload ? header_len(data, len) : len;
    size_t at = head ? ((size_t)e[1] << 8 | e[2]) % head : 0, n = e[3] % LARGEST_EDIT;
    n = n > len - at ? len - at : n;
    switch (e[0] >> 4 & 7) {
    case 0: /* a byte */
        if (at < len)
            data[at] = (char)e[4];
        return len;
    case 1: /* a bit */
        if (at < len)
            data[at] = (char)(data[at] ^ 1 << e[4] % 8);
        return len;
    case 2: /* taken out */
        memmove(data + at, data + at + n, len - at - n);
        return len - n;
    case 3: /* put in; the caller left room */
        memmove(data + at + n, data + at, len - at);
        memset(data + at, e[4], n);
        return len + n;
    case 4: /* the length field */
        if (payload && len >= 8) {
            uint64_t value = head - 8 + (uint64_t)(int64_t)(int8_t)e[4];
            memcpy(data, &value, 8);
        }
        return len;
    case 5: /* a part again at another place */
        if (e[4] + n <= len)
            memmove(data + at, data + e[4], n);
        return len;
    case 6: /* cut off */
        return at;
    default: /* a digit, where numbers are */
        while (at < head && (data[at] < '0' || data[at] > '9'))
            at++;
        if (at < len)
            data[at] = (char)('0' + e[4] % 10);
        return len;
    }
}

static void damage(const uint8_t *data, size_t size)
{
    for (size_t f = 0; f < n_files; f++) {
        char *copy = NULL;
        size_t len = files[f].len;
        for (size_t i = 0; i + 5 <= size; i += 5) {
            if ((data[i] & 15) % n_files != f)
                continue;
            if (!copy) {
                copy = malloc(len + (size / 5 + 1) * LARGEST_EDIT);
                FUZZ_REQUIRE(copy);
                memcpy(copy, files[f].data, len);
            }
            len = edit(copy, len, files[f].payload, data + i);
        }
        files[f].damaged = copy && (len != files[f].len || memcmp(copy, files[f].data, len) != 0);
        if (files[f].damaged)
            write_back(&files[f], copy, len);
        free(copy);
    }
}

static void repair(void)
{
    for (size_t f = 0; f < n_files; f++)
        if (files[f].damaged)
            write_back(&files[f], files[f].data, files[f].len);
}

/* ---- what must hold -------------------------------------------------------------------------- */

static void make_plan(void)
{
    struct fp8q_request r = {.source = source, .format = FP8Q_FORMAT_FP8};
    struct fp8q_plan_options options = fp8q_request_options(&r, NULL);
    struct fp8q_warnings warnings = {0};
    struct fp8q_ckpt *ckpt;
    struct fp8q_plan *plan = NULL;
    struct fp8q_error err = {0};
    options.threads = 1;
    int status = fp8q_ckpt_open(source, &ckpt, &warnings, &err);
    if (status == FP8Q_OK)
        status = fp8q_plan_create(ckpt, &options, &plan, &warnings, &err);
    if (status == FP8Q_OK)
        status = fp8q_plan_check(plan, &err);
    FUZZ_REQUIRE(status == FP8Q_OK || (err.id[0] && err.message[0]));
    fp8q_plan_destroy(plan);
    fp8q_ckpt_close(ckpt);
    fp8q_warnings_reset(&warnings);
}

static int verify(void)
{
    struct fp8q_verify_options o = {
        .strict = true, .threads = 1, .kernel = fp8q_kernel_select(NULL)};
    struct fp8q_report report;
    struct fp8q_warnings warnings = {0};
    struct fp8q_error err = {0};
    int status = fp8q_verify(output, &o, &report, &warnings, &err);
    FUZZ_REQUIRE(status == FP8Q_OK || (err.id[0] && err.message[0]));
    fp8q_report_reset(&report);
    fp8q_warnings_reset(&warnings);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    long counts[N_CALLS] = {0};
    struct fault fault = {.kind = FAULT_NONE};
    bool damaged = false;
    if (!source)
        prepare();
    if (size < 2)
        return 0;
    if (data[0])
        fault = (struct fault){.kind = FAULT_ERRNO,
                               .call = data[0] < 128 ? CALL_MEMORY : data[0] % N_CALLS,
                               .at = data[0] < 128 ? (data[0] - 1) * 256 + data[1] : data[1],
                               .error = data[0] < 128 ? 12 : 5};
    damage(data + 2, size - 2);
    for (size_t f = first_of_output; f < n_files; f++)
        damaged = damaged || files[f].damaged;
    fault_arm(&fault, counts);
    make_plan();
    int status = verify();
    fault_disarm();
    FUZZ_REQUIRE(!damaged || status != FP8Q_OK);
    FUZZ_REQUIRE(damaged || fault.kind != FAULT_NONE || status == FP8Q_OK);
    repair();
    return 0;
}
