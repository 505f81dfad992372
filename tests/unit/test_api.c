/* SPDX-License-Identifier: Apache-2.0
 *
 * test_api.c - what a program can do with the public header alone: look, convert, verify, damage,
 * dequantize, quantize in memory; and what it must not be able to crash.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fp8q.h"

#define QWEN3 FP8Q_TEST_DATA "/checkpoints/qwen3"

/* ---- help ------------------------------------------------------------------------------------ */

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/fp8q-api-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    return system(command) == 0 ? 0 : -1;
}

static const char *in_dir(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static void must(int status, const struct fp8q_error *err)
{
    if (status != FP8Q_OK)
        fail_msg("%s: %s", err->id, err->message);
}

static void must_fail(int status, enum fp8q_status expected, const struct fp8q_error *err,
                      const char *id)
{
    if (status != (int)expected || strcmp(err->id, id) != 0)
        fail_msg("status %d, %s (%s), expected %d, %s", status, err->id, err->message, expected,
                 id);
}

static struct fp8q_request request_of(const char *source)
{
    struct fp8q_request request;
    fp8q_request_init(&request);
    request.source = source;
    return request;
}

static void convert(const struct fp8q_request *request, const struct fp8q_run *run,
                    const char *destination)
{
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    must(fp8q_conversion_open(request, run, &c, NULL, &err), &err);
    must(fp8q_conversion_run(c, destination, NULL, &err), &err);
    fp8q_conversion_close(c);
}

static int verify(const char *path, const char *source, struct fp8q_verification **v_out,
                  struct fp8q_error *err)
{
    struct fp8q_verify_request r;
    fp8q_verify_request_init(&r);
    r.path = path;
    r.source = source;
    r.strict = true;
    return fp8q_verification_open(&r, NULL, v_out, NULL, err);
}

/* ---- looking --------------------------------------------------------------------------------- */

static void a_checkpoint_can_be_looked_at(void **state)
{
    struct fp8q_checkpoint *c;
    struct fp8q_error err = {0};
    const char *scheme, *scale;
    uint8_t bytes[16];
    (void)state;
    must(fp8q_checkpoint_open(QWEN3, NULL, &c, NULL, &err), &err);

    const struct fp8q_checkpoint_info *info = fp8q_checkpoint_info(c);
    assert_true(info->is_directory);
    assert_string_equal(info->model_type, "qwen3");
    assert_string_equal(info->quantization, "none");
    size_t n = 0;
    uint64_t total = 0;
    for (const struct fp8q_tensor_info *t; (t = fp8q_checkpoint_tensor(c, n)); n++) {
        total += t->bytes;
        assert_int_equal(fp8q_checkpoint_find(c, t->name), n);
    }
    assert_int_equal(n, info->n_tensors);
    assert_int_equal(total, info->bytes);

    size_t head = fp8q_checkpoint_find(c, "lm_head.weight");
    assert_true(head == SIZE_MAX || fp8q_checkpoint_tensor(c, head));
    assert_true(fp8q_checkpoint_find(c, "no.such") == SIZE_MAX);
    assert_true(fp8q_checkpoint_find(c, NULL) == SIZE_MAX);
    assert_null(fp8q_checkpoint_tensor(c, SIZE_MAX));
    assert_null(fp8q_checkpoint_shard(c, info->n_shards));
    must(fp8q_checkpoint_read(c, 0, 0, bytes, sizeof(bytes), &err), &err);
    must_fail(fp8q_checkpoint_read(c, n, 0, bytes, 1, &err), FP8Q_E_ARG, &err, "range");
    must_fail(fp8q_checkpoint_read(c, 0, UINT64_MAX, bytes, 1, &err), FP8Q_E_ARG, &err, "range");
    must(fp8q_checkpoint_scheme(c, 0, &scheme, &scale, &err), &err);
    assert_string_equal(scheme, "none");
    assert_null(scale);
    fp8q_checkpoint_close(c);
    fp8q_checkpoint_close(NULL);
}

static void a_plan_can_be_looked_at(void **state)
{
    struct fp8q_request request = request_of(QWEN3);
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    char name[64];
    bool is_sidecar;
    size_t n_quantized = 0, of_reasons = 0, n_scales = 0, n = 0;
    uint64_t bytes = 0;
    (void)state;
    must(fp8q_conversion_open(&request, NULL, &c, NULL, &err), &err);
    const struct fp8q_plan_info *plan = fp8q_conversion_plan(c);

    for (const struct fp8q_planned_tensor *t; (t = fp8q_conversion_tensor(c, n)); n++)
        n_quantized += t->quantize;
    assert_int_equal(n, plan->n_tensors);
    assert_int_equal(n_quantized, plan->n_quantized);
    assert_int_equal(n_quantized, 7);

    for (size_t i = 0; fp8q_conversion_reason(c, i); i++)
        of_reasons += fp8q_conversion_reason(c, i)->tensors;
    assert_int_equal(of_reasons, n);

    const struct fp8q_output_tensor *o;
    for (size_t i = 0; (o = fp8q_conversion_output(c, i)); i++) {
        n_scales += o->is_scale;
        bytes += o->bytes;
        assert_true(o->source < n);
        assert_true(fp8q_conversion_shard(c, o->shard, NULL, name, sizeof(name), &is_sidecar));
        assert_int_equal(is_sidecar, o->is_scale);
    }
    assert_int_equal(n_scales, n_quantized);
    assert_int_equal(bytes, plan->output_bytes);
    assert_true(plan->peak_memory > 0 && plan->largest_tp >= 1 && plan->n_exclusions > 0);
    assert_null(fp8q_conversion_result(c));
    fp8q_conversion_close(c);
    fp8q_conversion_close(NULL);
}

/* ---- converting ------------------------------------------------------------------------------ */

static void converts_and_verifies(void **state)
{
    struct fp8q_request request = request_of(QWEN3);
    struct fp8q_verification *v;
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    struct fp8q_run run;
    (void)state;
    must(fp8q_conversion_open(&request, NULL, &c, NULL, &err), &err);
    must(fp8q_conversion_run(c, in_dir("out"), NULL, &err), &err);
    const struct fp8q_result *result = fp8q_conversion_result(c);
    assert_true(result->complete && result->n_quantized == 7 && result->n_kept == 7);
    assert_true(result->output_bytes < result->source_bytes);
    fp8q_conversion_close(c);

    must(verify(in_dir("out"), QWEN3, &v, &err), &err);
    const struct fp8q_verification_info *info = fp8q_verification_info(v);
    assert_true(info->n_checks > 15 && info->n_failed == 0 && info->n_warned == 0);
    assert_true(info->has_manifest && info->n_sqnr == 7 && info->bound_factor == 1);
    for (size_t i = 0; i < info->n_checks; i++)
        assert_int_equal(fp8q_verification_check(v, i)->status, FP8Q_CHECK_PASS);
    assert_null(fp8q_verification_check(v, info->n_checks));
    fp8q_verification_close(v);

    /* Again is refused; with overwrite it is the same.  */
    must(fp8q_conversion_open(&request, NULL, &c, NULL, &err), &err);
    must_fail(fp8q_conversion_run(c, in_dir("out"), NULL, &err), FP8Q_E_ARG, &err, "dst-exists");
    must_fail(fp8q_conversion_check(c, in_dir("out"), 0, NULL, &err), FP8Q_E_ARG, &err,
              "dst-exists");
    fp8q_conversion_close(c);
    fp8q_run_init(&run);
    run.overwrite = true;
    run.threads = 3;
    run.kernel = "scalar";
    convert(&request, &run, in_dir("out"));

    /* And so is the way back.  */
    request = request_of(in_dir("out"));
    request.dequantize = true;
    convert(&request, NULL, in_dir("back"));
}

static void one_damaged_byte_fails(void **state)
{
    struct fp8q_request request = request_of(QWEN3);
    struct fp8q_verification *v;
    struct fp8q_error err = {0};
    (void)state;
    convert(&request, NULL, in_dir("damaged"));

    FILE *file = fopen(in_dir("damaged/model-00001-of-00001.safetensors"), "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 500000, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, 500000, SEEK_SET), 0);
    fputc(byte ^ 4, file);
    assert_int_equal(fclose(file), 0);

    must_fail(verify(in_dir("damaged"), NULL, &v, &err), FP8Q_E_MISMATCH, &err, "tensor-crc");
    assert_true(fp8q_verification_info(v)->n_failed >= 1);
    fp8q_verification_close(v);
}

static void parts_are_run_and_finished(void **state)
{
    struct fp8q_request request = request_of(FP8Q_TEST_DATA "/checkpoints/deepseek-v3");
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    (void)state;
    request.max_shard_size = 400000;
    must_fail(fp8q_conversion_open_parts(in_dir("parts"), NULL, &c, NULL, &err), FP8Q_E_EVIDENCE,
              &err, "no-parts");
    assert_null(c);

    must(fp8q_conversion_open(&request, NULL, &c, NULL, &err), &err);
    must_fail(fp8q_conversion_run_part(c, in_dir("parts"), 3, 2, NULL, &err), FP8Q_E_ARG, &err,
              "part");
    must(fp8q_conversion_run_part(c, in_dir("parts"), 2, 2, NULL, &err), &err);
    assert_false(fp8q_conversion_result(c)->complete);
    must_fail(fp8q_conversion_finish(c, in_dir("parts"), NULL, &err), FP8Q_E_EVIDENCE, &err,
              "part-missing");
    must(fp8q_conversion_run_part(c, in_dir("parts"), 1, 2, NULL, &err), &err);
    fp8q_conversion_close(c);

    must(fp8q_conversion_open_parts(in_dir("parts"), NULL, &c, NULL, &err), &err);
    assert_int_equal(fp8q_conversion_plan(c)->n_parts, 2);
    must(fp8q_conversion_finish(c, in_dir("parts"), NULL, &err), &err);
    assert_true(fp8q_conversion_result(c)->complete);
    fp8q_conversion_close(c);
}

static void a_lock_is_written_and_checked(void **state)
{
    struct fp8q_request request = request_of(QWEN3);
    const char *ignore = "layers.0", *text;
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    bool there;
    (void)state;
    must(fp8q_conversion_open(&request, NULL, &c, NULL, &err), &err);
    must(fp8q_conversion_check_lock(c, in_dir("lock.json"), &there, &err), &err);
    assert_false(there);
    must(fp8q_conversion_lock(c, &text, &err), &err);
    FILE *file = fopen(in_dir("lock.json"), "w");
    assert_true(file && fputs(text, file) >= 0 && fclose(file) == 0);
    must(fp8q_conversion_check_lock(c, in_dir("lock.json"), &there, &err), &err);
    assert_true(there);
    fp8q_conversion_close(c);

    request.scheme = FP8Q_SCHEME_TENSOR;
    must(fp8q_conversion_open(&request, NULL, &c, NULL, &err), &err);
    must_fail(fp8q_conversion_check_lock(c, in_dir("lock.json"), &there, &err), FP8Q_E_POLICY, &err,
              "lock-scheme");
    fp8q_conversion_close(c);

    request = request_of(QWEN3);
    request.ignore = &ignore;
    request.n_ignore = 1;
    must(fp8q_conversion_open(&request, NULL, &c, NULL, &err), &err);
    must_fail(fp8q_conversion_check_lock(c, in_dir("lock.json"), &there, &err), FP8Q_E_POLICY, &err,
              "lock-narrowed");
    fp8q_conversion_close(c);
}

/* ---- cancel and progress --------------------------------------------------------------------- */

struct watcher {
    struct fp8q_cancel cancel;
    bool stops;
    unsigned calls;
};

static void watch(void *ctx, const char *stage, uint64_t done, uint64_t total, enum fp8q_unit unit)
{
    struct watcher *w = ctx;
    __atomic_fetch_add(&w->calls, 1, __ATOMIC_RELAXED);
    assert_true(stage && total > 0 && done > 0 && unit == FP8Q_UNIT_BYTES);
    if (w->stops)
        fp8q_cancel(&w->cancel);
}

static void a_cancel_ends_one_call_and_no_other(void **state)
{
    struct fp8q_request request = request_of(QWEN3);
    struct watcher stopped = {.stops = true}, goes_on = {.stops = false};
    struct fp8q_progress progress = {watch, &stopped};
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    struct fp8q_run run;
    (void)state;
    fp8q_run_init(&run);
    run.progress = &progress;
    run.cancel = &stopped.cancel;
    must(fp8q_conversion_open(&request, &run, &c, NULL, &err), &err);
    must_fail(fp8q_conversion_run(c, in_dir("cancelled"), NULL, &err), FP8Q_E_CANCELLED, &err,
              "cancelled");
    FILE *file = fopen(in_dir("cancelled/config.json"), "r");
    assert_null(file);
    fp8q_conversion_close(c);

    /* The token of that call has no say in this one.  */
    progress.ctx = &goes_on;
    run.cancel = &goes_on.cancel;
    convert(&request, &run, in_dir("cancelled"));
    assert_true(goes_on.calls > 0);
    fp8q_cancel(NULL);
}

static void count_up(void *ctx, const char *stage, uint64_t done, uint64_t total,
                     enum fp8q_unit unit)
{
    struct watcher *w = ctx;
    (void)stage;
    assert_int_equal(unit, FP8Q_UNIT_BYTES);
    if (done > total + total / 100)
        __atomic_fetch_add(&w->calls, 1, __ATOMIC_RELAXED);
}

/* Experts that lie in one tensor are many pieces; each counts as its share of it.  */
static void progress_does_not_pass_its_total(void **state)
{
    static const char *const sources[] = {"qwen3-vl-moe", "llama4-text", "qwen3.5-moe", "qwen3"};
    (void)state;
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
        char source[512];
        struct watcher beyond = {.stops = false};
        const struct fp8q_progress progress = {count_up, &beyond};
        struct fp8q_verify_request verify_request;
        struct fp8q_verification *v;
        struct fp8q_error err = {0};
        struct fp8q_run run;
        snprintf(source, sizeof(source), "%s/checkpoints/%s", FP8Q_TEST_DATA, sources[i]);
        struct fp8q_request request = request_of(source);
        fp8q_run_init(&run);
        run.progress = &progress;
        convert(&request, &run, in_dir(sources[i]));

        fp8q_verify_request_init(&verify_request);
        verify_request.path = in_dir(sources[i]);
        verify_request.source = source;
        (void)fp8q_verification_open(&verify_request, &run, &v, NULL, &err); /* whatever it finds */
        assert_non_null(v);
        fp8q_verification_close(v);
        assert_int_equal(beyond.calls, 0);
    }
}

/* ---- what must not crash --------------------------------------------------------------------- */

static void what_was_not_initialised_is_refused(void **state)
{
    struct fp8q_request request = {0}, wrong;
    struct fp8q_verify_request verify_request = {0};
    struct fp8q_matrix matrix = {0};
    struct fp8q_run run = {0};
    struct fp8q_conversion *c = (struct fp8q_conversion *)1;
    struct fp8q_checkpoint *ckpt;
    struct fp8q_verification *v;
    struct fp8q_error err = {0};
    const char *nothing = NULL;
    uint64_t shape[2];
    (void)state;
    must_fail(fp8q_conversion_open(&request, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "struct-size");
    assert_null(c);
    must_fail(fp8q_conversion_open(NULL, NULL, &c, NULL, &err), FP8Q_E_ARG, &err, "null-argument");
    assert_int_equal(fp8q_conversion_open(NULL, NULL, NULL, NULL, NULL), FP8Q_E_ARG);
    must_fail(fp8q_verification_open(&verify_request, NULL, &v, NULL, &err), FP8Q_E_ARG, &err,
              "struct-size");
    must_fail(fp8q_matrix_scales(&matrix, shape, &err), FP8Q_E_ARG, &err, "struct-size");
    must_fail(fp8q_checkpoint_open(NULL, NULL, &ckpt, NULL, &err), FP8Q_E_ARG, &err,
              "null-argument");
    must_fail(fp8q_checkpoint_open(QWEN3, &run, &ckpt, NULL, &err), FP8Q_E_ARG, &err,
              "struct-size");

    request.size = sizeof(request) + 8;
    must_fail(fp8q_conversion_open(&request, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "struct-size");
    request = request_of(NULL);
    must_fail(fp8q_conversion_open(&request, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "request-value");
    request = request_of("");
    must_fail(fp8q_conversion_open(&request, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "request-value");
    wrong = request_of(QWEN3);
    wrong.n_ignore = 2;
    must_fail(fp8q_conversion_open(&wrong, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "request-value");
    wrong.ignore = &nothing;
    wrong.n_ignore = 1;
    must_fail(fp8q_conversion_open(&wrong, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "request-value");
    wrong = request_of(QWEN3);
    wrong.scheme = (enum fp8q_scheme)99;
    must_fail(fp8q_conversion_open(&wrong, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "request-value");
    wrong = request_of(QWEN3);
    wrong.to = FP8Q_I8;
    must_fail(fp8q_conversion_open(&wrong, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "request-value");
    fp8q_run_init(&run);
    run.kernel = "abacus";
    wrong = request_of(QWEN3);
    must_fail(fp8q_conversion_open(&wrong, &run, &c, NULL, &err), FP8Q_E_ARG, &err, "kernel");
}

static void an_older_programs_struct_means_defaults(void **state)
{
    /* A header without the last two members: what lies behind is not the library's to read.  */
    struct {
        struct fp8q_request known;
        unsigned char beyond[64];
    } old;
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    (void)state;
    memset(&old, 0xAA, sizeof(old));
    old.known = request_of(QWEN3);
    old.known.size = offsetof(struct fp8q_request, dequantize);
    memset((char *)&old.known + old.known.size, 0xAA, sizeof(old.known) - old.known.size);
    must(fp8q_conversion_open(&old.known, NULL, &c, NULL, &err), &err);
    assert_false(fp8q_conversion_plan(c)->dequantizes);
    fp8q_conversion_close(c);
}

static void what_cannot_be_is_refused_before_anything_is_written(void **state)
{
    const char *pattern = "no.such.module";
    struct fp8q_request request = request_of(QWEN3);
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    (void)state;
    request.ignore = &pattern;
    request.n_ignore = 1;
    must_fail(fp8q_conversion_open(&request, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "pattern-unmatched");
    request = request_of(FP8Q_TEST_DATA "/checkpoints/gpt-oss");
    must(fp8q_conversion_open(&request, NULL, &c, NULL, &err), &err);
    must_fail(fp8q_conversion_run(c, in_dir("nothing"), NULL, &err), FP8Q_E_MISMATCH, &err,
              "nothing-to-quantize");
    fp8q_conversion_close(c);
    request = request_of(QWEN3);
    request.dequantize = true;
    must_fail(fp8q_conversion_open(&request, NULL, &c, NULL, &err), FP8Q_E_ARG, &err,
              "not-quantized");
    FILE *file = fopen(in_dir("nothing"), "r");
    assert_null(file);
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* What engines load as one matrix has one scale per tensor in a conversion, which a part in memory
 * knows nothing of.  */
static bool has_scale_of_group(const struct fp8q_request *request, const char *weight)
{
    return request->scheme == FP8Q_SCHEME_TENSOR && !strstr(weight, "o_proj") &&
           !strstr(weight, "down_proj");
}

/* Every quantized weight of @output, made again in memory from the weight of the source.  */
static void compare_with_conversion(struct fp8q_request *request, const char *name,
                                    size_t n_expected)
{
    struct fp8q_checkpoint *source, *output;
    struct fp8q_error err = {0};
    size_t n_compared = 0;
    convert(request, NULL, in_dir(name));
    must(fp8q_checkpoint_open(request->source, NULL, &source, NULL, &err), &err);
    must(fp8q_checkpoint_open(in_dir(name), NULL, &output, NULL, &err), &err);

    const struct fp8q_tensor_info *t;
    for (size_t i = 0; (t = fp8q_checkpoint_tensor(output, i)); i++) {
        const char *scheme, *scale;
        must(fp8q_checkpoint_scheme(output, i, &scheme, &scale, &err), &err);
        if (!scale || has_scale_of_group(request, t->name))
            continue;
        size_t from = fp8q_checkpoint_find(source, t->name);
        const struct fp8q_tensor_info *w = fp8q_checkpoint_tensor(source, from);
        size_t s = fp8q_checkpoint_find(output, scale);
        size_t scale_bytes = (size_t)fp8q_checkpoint_tensor(output, s)->bytes;
        void *floats = malloc((size_t)w->bytes), *stored = malloc((size_t)t->bytes);
        void *stored_scales = malloc(scale_bytes);
        uint8_t *values = malloc((size_t)t->bytes);
        float *scales = malloc(scale_bytes * sizeof(float));
        struct fp8q_matrix m;
        uint64_t shape[2];

        fp8q_matrix_init(&m);
        m.rows = w->shape[0];
        m.cols = w->shape[1];
        m.dtype = w->dtype;
        m.scheme = request->scheme;
        m.scale_fmt = request->scale_fmt;
        must(fp8q_matrix_scales(&m, shape, &err), &err);
        bool groups = request->scheme == FP8Q_SCHEME_GROUP;
        assert_int_equal(shape[0] * shape[1] * (groups ? 1 : sizeof(float)), scale_bytes);
        must(fp8q_checkpoint_read(source, from, 0, floats, (size_t)w->bytes, &err), &err);
        must(fp8q_checkpoint_read(output, i, 0, stored, (size_t)t->bytes, &err), &err);
        must(fp8q_checkpoint_read(output, s, 0, stored_scales, scale_bytes, &err), &err);
        must(fp8q_matrix_quantize(&m, floats, values, scales, NULL, &err), &err);
        assert_memory_equal(values, stored, (size_t)t->bytes);
        for (size_t k = 0; k < scale_bytes && groups; k++)
            assert_true(scales[k] == ldexpf(1, ((const uint8_t *)stored_scales)[k] - 127));
        if (!groups)
            assert_memory_equal(scales, stored_scales, scale_bytes);
        n_compared++;
        free(floats);
        free(stored);
        free(stored_scales);
        free(values);
        free(scales);
    }
    assert_int_equal(n_compared, n_expected);
    fp8q_checkpoint_close(source);
    fp8q_checkpoint_close(output);
}

static void a_matrix_in_memory_has_the_bits_of_a_conversion(void **state)
{
    struct fp8q_request request = request_of(QWEN3);
    (void)state;
    compare_with_conversion(&request, "block", 7);
    request.scale_fmt = FP8Q_SCALE_UE8M0;
    compare_with_conversion(&request, "ue8m0", 7);
    request.scale_fmt = FP8Q_SCALE_F32;
    request.scheme = FP8Q_SCHEME_CHANNEL;
    compare_with_conversion(&request, "channel", 7);
    request.scheme = FP8Q_SCHEME_TENSOR;
    compare_with_conversion(&request, "tensor", 2);
    request.scheme = FP8Q_SCHEME_GROUP;
    compare_with_conversion(&request, "group", 7);
}

enum { ROWS = 300, COLS = 9001, FLOAT_STRIDE = COLS + 7, VALUE_STRIDE = COLS + 3 };

/* Strides, edges and more columns than a panel has, on any number of threads: the same as rows
 * that touch, and back within half a step of the grid.  */
static void strides_and_threads_change_no_bit(void **state)
{
    float *packed = malloc(sizeof(float) * ROWS * COLS),
          *back = malloc(sizeof(float) * ROWS * COLS);
    float *apart = malloc(sizeof(float) * ROWS * FLOAT_STRIDE);
    uint8_t *values = malloc(ROWS * COLS), *others = malloc(ROWS * VALUE_STRIDE);
    uint32_t seed = 1;
    struct fp8q_error err = {0};
    struct fp8q_run run;
    (void)state;
    fp8q_run_init(&run);
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < COLS; j++) {
            seed = seed * 1664525 + 1013904223;
            packed[i * COLS + j] = apart[i * FLOAT_STRIDE + j] =
                ((float)(seed >> 8) * 0x1p-24f - 0.5f) * (float)(1 + j % 17);
        }

    for (int scheme = 0; scheme <= FP8Q_SCHEME_GROUP; scheme++) {
        static float scales[ROWS * (COLS / 32 + 1)], other_scales[ROWS * (COLS / 32 + 1)];
        uint64_t shape[2];
        struct fp8q_matrix m;
        fp8q_matrix_init(&m);
        m.rows = ROWS;
        m.cols = COLS;
        m.dtype = FP8Q_F32;
        m.scheme = (enum fp8q_scheme)scheme;
        must(fp8q_matrix_scales(&m, shape, &err), &err);
        run.threads = 1;
        must(fp8q_matrix_quantize(&m, packed, values, scales, &run, &err), &err);
        must(fp8q_matrix_dequantize(&m, values, scales, back, &run, &err), &err);
        for (size_t i = 0; i < ROWS * COLS; i++)
            assert_true(fabsf(back[i] - packed[i]) <= fmaxf(fabsf(packed[i]) / 15.9f, 1e-2f));

        m.row_stride = FLOAT_STRIDE;
        m.value_stride = VALUE_STRIDE;
        for (run.threads = 1; run.threads <= 5; run.threads++) {
            must(fp8q_matrix_quantize(&m, apart, others, other_scales, &run, &err), &err);
            assert_memory_equal(scales, other_scales,
                                (size_t)(shape[0] * shape[1]) * sizeof(float));
            for (size_t i = 0; i < ROWS; i++)
                assert_memory_equal(values + i * COLS, others + i * VALUE_STRIDE, COLS);
        }
    }
    free(packed);
    free(back);
    free(apart);
    free(values);
    free(others);
}

static void matrices_that_cannot_be_are_refused(void **state)
{
    float floats[4] = {1, 2, 3, 4}, scales[2];
    uint8_t values[4];
    struct fp8q_error err = {0};
    struct fp8q_matrix m, none;
    (void)state;
    fp8q_matrix_init(&m);
    m.rows = m.cols = 2;
    m.dtype = FP8Q_F32;
    for (int scheme = 0; scheme <= FP8Q_SCHEME_GROUP; scheme++) {
        m.scheme = (enum fp8q_scheme)scheme;
        floats[3] = NAN;
        must_fail(fp8q_matrix_quantize(&m, floats, values, scales, NULL, &err), FP8Q_E_FORMAT, &err,
                  "non-finite");
        assert_non_null(strstr(err.message, "[1, 1]"));
        floats[1] = INFINITY;
        must_fail(fp8q_matrix_quantize(&m, floats, values, scales, NULL, &err), FP8Q_E_FORMAT, &err,
                  "non-finite");
        assert_non_null(strstr(err.message, "[0, 1]"));
        floats[1] = floats[3] = 0;
    }
    m.scheme = FP8Q_SCHEME_BLOCK;
    must_fail(fp8q_matrix_quantize(&m, NULL, values, scales, NULL, &err), FP8Q_E_ARG, &err,
              "null-argument");
    m.row_stride = 1;
    must_fail(fp8q_matrix_quantize(&m, floats, values, scales, NULL, &err), FP8Q_E_ARG, &err,
              "matrix");
    m.row_stride = 0;
    m.dtype = FP8Q_I8;
    must_fail(fp8q_matrix_quantize(&m, floats, values, scales, NULL, &err), FP8Q_E_ARG, &err,
              "matrix");
    m.dtype = FP8Q_F32;
    m.rows = UINT64_MAX / 2;
    must_fail(fp8q_matrix_quantize(&m, floats, values, scales, NULL, &err), FP8Q_E_ARG, &err,
              "matrix");

    /* Of no elements: no pointers are needed, and nothing is touched.  */
    none = m;
    none.rows = 0;
    must(fp8q_matrix_quantize(&none, NULL, NULL, NULL, NULL, &err), &err);

    /* On the way back: a scale that is none, and a value that F16 does not have.  */
    m.rows = 2;
    scales[0] = -1;
    must_fail(fp8q_matrix_dequantize(&m, values, scales, floats, NULL, &err), FP8Q_E_FORMAT, &err,
              "scale-value");
    scales[0] = 0;
    memset(values, 0x80, sizeof(values));
    must(fp8q_matrix_dequantize(&m, values, scales, floats, NULL, &err), &err);
    values[2] = 0x7E;
    must_fail(fp8q_matrix_dequantize(&m, values, scales, floats, NULL, &err), FP8Q_E_FORMAT, &err,
              "scale-value");
    scales[0] = 1000;
    m.dtype = FP8Q_F16;
    must_fail(fp8q_matrix_dequantize(&m, values, scales, floats, NULL, &err), FP8Q_E_UNSUPPORTED,
              &err, "f16-overflow");
}

/* ---- the rest -------------------------------------------------------------------------------- */

static void numerics_and_names_are_public(void **state)
{
    struct fp8q_architecture_info row;
    size_t n = 0;
    (void)state;
    assert_string_equal(fp8q_version(), FP8Q_VERSION);
    assert_true(fp8q_e4m3_value[0x7E] == 448.0f);
    assert_int_equal(fp8q_e4m3_from_f32(-1e9f), 0xFE);
    assert_true(fp8q_scale(448.0f, FP8Q_SCALE_F32) == 1.0f);
    assert_true(fp8q_scale(449.0f, FP8Q_SCALE_UE8M0) == 2.0f);
    assert_string_equal(fp8q_dtype_name(FP8Q_BF16), "BF16");
    assert_string_equal(fp8q_dtype_name((enum fp8q_dtype)99), "?");
    while (fp8q_architecture_row(n, &row))
        n++;
    assert_true(n > 10 && row.model_types == NULL);
    assert_false(fp8q_architecture_row(n, &row));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_can_be_looked_at),
        cmocka_unit_test(a_plan_can_be_looked_at),
        cmocka_unit_test(converts_and_verifies),
        cmocka_unit_test(one_damaged_byte_fails),
        cmocka_unit_test(parts_are_run_and_finished),
        cmocka_unit_test(a_lock_is_written_and_checked),
        cmocka_unit_test(a_cancel_ends_one_call_and_no_other),
        cmocka_unit_test(progress_does_not_pass_its_total),
        cmocka_unit_test(what_was_not_initialised_is_refused),
        cmocka_unit_test(an_older_programs_struct_means_defaults),
        cmocka_unit_test(what_cannot_be_is_refused_before_anything_is_written),
        cmocka_unit_test(a_matrix_in_memory_has_the_bits_of_a_conversion),
        cmocka_unit_test(strides_and_threads_change_no_bit),
        cmocka_unit_test(matrices_that_cannot_be_are_refused),
        cmocka_unit_test(numerics_and_names_are_public),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
