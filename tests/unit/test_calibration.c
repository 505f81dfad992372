/* SPDX-License-Identifier: Apache-2.0
 *
 * test_calibration.c - calibration files: against statistics that hooks in transformers gave,
 * merging, foreign and broken files, llama.cpp's importance matrices, drift.
 */
#include "support/support.h"

#include <math.h>
#include <unistd.h>

#include "calibration/calib.h"
#include "measure/drift.h"
#include "checkpoint/fingerprint.h"
#include "support/fp8_checkpoint.h"
#include "base/file.h"
#include "base/path.h"

static void calibrate(const char *checkpoint, const struct fp8q_inputs *inputs, unsigned n_threads,
                      const char *kernel, const char *out)
{
    struct fp8q_error err = {0};
    struct fp8q_ckpt *ckpt;
    struct fp8q_model model;
    struct fp8q_calibrate_options options = {
        .n_threads = n_threads, .kernel = kernel, .created = "2026-01-01T00:00:00Z"};
    assert_ok(fp8q_ckpt_open(data_path("checkpoints/%s", checkpoint), &ckpt, NULL, &err), &err);
    assert_ok(fp8q_model_open(ckpt, &model, &err), &err);
    assert_ok(fp8q_fingerprint(ckpt, 1, NULL, &options.source_fingerprint, &err), &err);
    assert_ok(fp8q_calibrate(&model, inputs, &options, out, true, &err), &err);
    fp8q_model_reset(&model);
    fp8q_ckpt_close(ckpt);
}

static void open_inputs(const char *name, struct fp8q_inputs *inputs)
{
    struct fp8q_error err = {0};
    assert_ok(fp8q_inputs_open(data_path("eval/%s", name), inputs, NULL, &err), &err);
}

/* ---- against transformers -------------------------------------------------------------------- */

static void near_list(const char *what, const struct fp8q_json *list, const float *found,
                      size_t stride, double scale)
{
    size_t n = 0;
    for (const struct fp8q_json *v = fp8q_json_first(list); v; v = fp8q_json_next(v), n++) {
        double expected = fp8q_json_number(v, NAN), x = (double)found[n / 6 * stride + n % 6];
        if (!(fabs(x - expected) <= 2e-5 * fabs(expected) + 1e-6 * scale))
            fail_msg("%s %zu: %.9g, transformers gives %.9g", what, n, x, expected);
    }
    assert_true(n == 6 || n == 36);
}

static void compare_statistics(const struct fp8q_json *c, const char *path)
{
    static const char *const by_group[] = {"sum", "sumsq", "absmax"};
    struct fp8q_error err = {0};
    struct fp8q_calib calib;
    char name[128];
    const char *module = fp8q_json_string(fp8q_json_get(c, "module"), "");
    bool vl = strstr(fp8q_json_string(fp8q_json_get(c, "checkpoint"), ""), "vl") != NULL;
    assert_ok(fp8q_calib_open(path, &calib, &err), &err);
    snprintf(name, sizeof(name), "model.%s%s", vl ? "language_model." : "", module);
    const struct fp8q_calib_site *s = fp8q_calib_find(&calib, name);
    assert_non_null(s);
    uint32_t g = 0;
    for (const struct fp8q_json *v = fp8q_json_first(fp8q_json_get(c, "count")); v;
         v = fp8q_json_next(v))
        assert_int_equal(s->count[g++], (int64_t)fp8q_json_number(v, -1));
    assert_int_equal(s->n_groups, g);
    float *values = malloc(fp8q_calib_floats(s, FP8Q_CALIB_HBLK) * 4 + s->n_groups * s->width * 4);
    assert_non_null(values);
    for (int a = FP8Q_CALIB_SUM; a <= FP8Q_CALIB_ABSMAX; a++) {
        assert_ok(fp8q_calib_read(&calib, s, (enum fp8q_calib_array)a, values, &err), &err);
        const struct fp8q_json *v = fp8q_json_first(fp8q_json_get(c, by_group[a]));
        for (g = 0; g < s->n_groups; g++, v = fp8q_json_next(v))
            near_list(by_group[a], v, values + g * s->width, 0, (double)s->count[g]);
    }
    assert_ok(fp8q_calib_read(&calib, s, FP8Q_CALIB_HBLK, values, &err), &err);
    near_list("hblk", fp8q_json_get(c, "hblk"), values, 128, 1);
    assert_ok(fp8q_calib_read(&calib, s, FP8Q_CALIB_HELD, values, &err), &err);
    near_list("hblk_held", fp8q_json_get(c, "hblk_held"), values, 128, 1);
    size_t bin = 0;
    for (const struct fp8q_json *v = fp8q_json_first(fp8q_json_get(c, "amax_hist")); v;
         v = fp8q_json_next(v))
        assert_true(fabs((double)s->hist[bin++] - fp8q_json_number(v, -1)) <= 1);
    const struct fp8q_json *held = fp8q_json_first(fp8q_json_get(c, "hblk_count"));
    assert_int_equal(s->moment_count[0], (int64_t)fp8q_json_number(held, -1));
    assert_int_equal(s->moment_count[1], (int64_t)fp8q_json_number(fp8q_json_next(held), -1));
    free(values);
    fp8q_calib_close(&calib);
}

static void statistics_are_those_of_hooks(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fp8q_json *reference;
    char *text, *dir = temp_dir_make(), *path = fp8q_join(dir, "c.calib.safetensors");
    size_t len, n = 0;
    assert_ok(fp8q_read_file(data_path("eval/reference.json"), 1 << 20, &text, &len, &err), &err);
    assert_ok(fp8q_json_parse(text, len, 0, "reference.json", &reference, &err), &err);
    for (const struct fp8q_json *c = fp8q_json_first(fp8q_json_get(reference, "calibration")); c;
         c = fp8q_json_next(c), n++) {
        struct fp8q_inputs inputs;
        open_inputs(fp8q_json_string(fp8q_json_get(c, "inputs"), ""), &inputs);
        calibrate(fp8q_json_string(fp8q_json_get(c, "checkpoint"), ""), &inputs, 2, NULL, path);
        compare_statistics(c, path);
        fp8q_inputs_reset(&inputs);
    }
    assert_int_equal(n, 3);
    fp8q_json_free(reference);
    free(text);
    free(path);
    temp_dir_remove(dir);
}

/* Whatever the inputs' sizes: about a quarter of the tokens judges what the others suggest.  */
static void a_quarter_is_held_out(void **state)
{
    (void)state;
    static const struct {
        size_t n_samples, lengths[5];
        bool none;
    } cases[] = {
        {1, {3}, true},           {1, {4}, false},
        {1, {5}, false},          {1, {150}, false},
        {1, {192}, false},        {1, {193}, false},
        {3, {10, 3, 20}, false},  {3, {150, 150, 150}, false},
        {4, {2, 2, 2, 2}, false}, {5, {9, 9, 9, 9, 9}, false},
    };
    static int64_t ids[200];
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const int64_t *lists[5] = {ids, ids, ids, ids, ids};
        struct fp8q_error err = {0};
        struct fp8q_inputs inputs;
        struct fp8q_calib calib;
        char *dir = temp_dir_make(), *path = fp8q_join(dir, "c.calib.safetensors");
        assert_ok(fp8q_inputs_from_ids(lists, cases[i].lengths, cases[i].n_samples, "zeros",
                                       &inputs, &err),
                  &err);
        calibrate("llama-untied", &inputs, 1, NULL, path);
        assert_ok(fp8q_calib_open(path, &calib, &err), &err);
        const int64_t *count = calib.sites[0].moment_count;
        assert_int_equal(count[0] + count[1], (int64_t)inputs.n_tokens);
        assert_int_equal(fp8q_calib_unheld(&calib), cases[i].none ? calib.n_sites : 0);
        if (!cases[i].none)
            assert_true(count[1] > 0 && count[1] * 2 < count[0] * 3);
        fp8q_calib_close(&calib);
        fp8q_inputs_reset(&inputs);
        temp_dir_remove(dir);
        free(path);
    }
}

/* Counts of a hostile file that add up to more than fits.  */
static void counts_that_overflow_are_refused(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    char *dir = temp_dir_make(), *path = fp8q_join(dir, "a.calib.safetensors"),
         *out = fp8q_join(dir, "b.calib.safetensors");
    int64_t count[1] = {INT64_MAX - 3};
    float sumsq[4] = {1, 2, 3, 4};
    const struct memory_tensor tensors[] = {{"model.x.count", FP8Q_I64, {1}, 1, count},
                                            {"model.x.sumsq", FP8Q_F32, {1, 4}, 2, sumsq}};
    const struct fp8q_st_pair metadata[] = {{"format", "fp8q-calib/1", 6, 12}};
    write_tensors_with(path, tensors, 2, metadata, 1);
    const char *const paths[2] = {path, path};
    assert_failed(fp8q_calib_merge(paths, 2, "now", out, true, &err), FP8Q_E_FORMAT, &err,
                  "add up to more");
    temp_dir_remove(dir);
    free(path);
    free(out);
}

/* ---- files ------------------------------------------------------------------------------------
 */

static void files_equal(const char *a, const char *b)
{
    struct fp8q_error err = {0};
    char *x, *y;
    size_t n, m;
    assert_ok(fp8q_read_file(a, 1 << 26, &x, &n, &err), &err);
    assert_ok(fp8q_read_file(b, 1 << 26, &y, &m, &err), &err);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

static void threads_and_kernels_change_no_byte(void **state)
{
    (void)state;
    struct fp8q_inputs inputs;
    char *dir = temp_dir_make(), *a = fp8q_join(dir, "a"), *b = fp8q_join(dir, "b");
    open_inputs("text.inputs.safetensors", &inputs);
    calibrate("qwen2", &inputs, 1, "scalar", a);
    calibrate("qwen2", &inputs, 5, NULL, b);
    files_equal(a, b);
    fp8q_inputs_reset(&inputs);
    temp_dir_remove(dir);
    free(a);
    free(b);
}

static void merging_adds_up(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fp8q_inputs inputs;
    struct fp8q_calib one, sum;
    char *dir = temp_dir_make(), *a = fp8q_join(dir, "a.safetensors"),
         *b = fp8q_join(dir, "b.safetensors"), *c = fp8q_join(dir, "c.safetensors");
    open_inputs("text.inputs.safetensors", &inputs);
    calibrate("qwen2", &inputs, 2, NULL, a);
    const char *const twice[] = {a, a};
    assert_ok(fp8q_calib_merge(twice, 2, "now", b, false, &err), &err);
    assert_ok(fp8q_calib_open(a, &one, &err), &err);
    assert_ok(fp8q_calib_open(b, &sum, &err), &err);
    assert_int_equal(sum.meta.n_tokens, 2 * one.meta.n_tokens);
    for (size_t i = 0; i < one.n_sites; i++)
        for (int array = 0; array < FP8Q_CALIB_N_ARRAYS; array++) {
            const struct fp8q_calib_site *s = &one.sites[i];
            uint64_t n = fp8q_calib_floats(s, (enum fp8q_calib_array)array);
            float *x = malloc(n * 4), *y = malloc(n * 4);
            assert_true(x && y);
            assert_ok(fp8q_calib_read(&one, s, (enum fp8q_calib_array)array, x, &err), &err);
            assert_ok(fp8q_calib_read(&sum, &sum.sites[i], (enum fp8q_calib_array)array, y, &err),
                      &err);
            for (uint64_t k = 0; k < n; k++)
                assert_true(y[k] == (array == FP8Q_CALIB_ABSMAX ? x[k] : 2 * x[k]));
            assert_int_equal(sum.sites[i].count[0], 2 * s->count[0]);
            free(x);
            free(y);
        }
    /* The same statistics twice are no drift; an existing file is not replaced unless asked.  */
    struct fp8q_drift drift;
    struct fp8q_drift_options options = {.limits = fp8q_drift_defaults, .n_threads = 1};
    assert_ok(fp8q_drift_run(&one, &sum, &options, &drift, &err), &err);
    assert_false(drift.stale);
    assert_int_equal(drift.n_moved, 0);
    assert_true(fabs(drift.sites[0].rms) < 1e-6 && drift.sites[0].hist < 1e-12);
    fp8q_drift_reset(&drift);

    /* Ctrl-C does not wait for all linear inputs.  */
    struct fp8q_cancel token = {0};
    const struct fp8q_watch watch = {.cancel = &token};
    fp8q_cancel(&token);
    options.watch = &watch;
    assert_failed(fp8q_drift_run(&one, &sum, &options, &drift, &err), FP8Q_E_CANCELLED, &err, "");
    assert_null(drift.sites);
    options.watch = NULL;

    /* A limit that is no number from 0 on would be none, and is an error.  */
    double *const limits[] = {&options.limits.rms,      &options.limits.absmax,
                              &options.limits.overlap,  &options.limits.hist,
                              &options.limits.channels, &options.limits.mix,
                              &options.limits.sites};
    const double wrong[] = {(double)NAN, (double)INFINITY, -0.5};
    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++)
        for (size_t j = 0; j < sizeof(wrong) / sizeof(*wrong); j++) {
            options.limits = fp8q_drift_defaults;
            *limits[i] = wrong[j];
            assert_failed(fp8q_drift_run(&one, &sum, &options, &drift, &err), FP8Q_E_ARG, &err,
                          "limit of");
            assert_null(drift.sites);
        }
    assert_failed(fp8q_calib_merge(twice, 2, "now", b, false, &err), FP8Q_E_ARG, &err, "");
    calibrate("qwen3", &inputs, 1, NULL, c);
    const char *const foreign[] = {a, c};
    assert_failed(fp8q_calib_merge(foreign, 2, "now", b, true, &err), FP8Q_E_EVIDENCE, &err,
                  "other weights");
    assert_failed(fp8q_calib_matches(&one, 0x12345678, &err), FP8Q_E_EVIDENCE, &err, "12345678");
    fp8q_calib_close(&one);
    fp8q_calib_close(&sum);
    fp8q_inputs_reset(&inputs);
    temp_dir_remove(dir);
    free(a);
    free(b);
    free(c);
}

/* Text alone and text with images, in either order: what one lacks counts as nothing.  */
static void files_of_other_modalities_add_up(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fp8q_calib parts[2], sum;
    char *dir = temp_dir_make(),
         *paths[3] = {fp8q_join(dir, "a.calib.safetensors"), fp8q_join(dir, "b.calib.safetensors"),
                      fp8q_join(dir, "c.calib.safetensors")};
    static const char *const names[] = {"text.inputs.safetensors", "vl.inputs.safetensors"};
    for (size_t i = 0; i < 2; i++) {
        struct fp8q_inputs inputs;
        open_inputs(names[i], &inputs);
        calibrate("qwen2.5-vl-new", &inputs, 1, NULL, paths[i]);
        fp8q_inputs_reset(&inputs);
        assert_ok(fp8q_calib_open(paths[i], &parts[i], &err), &err);
    }

    for (int swap = 0; swap < 2; swap++) {
        const char *const order[2] = {paths[swap], paths[1 - swap]};
        assert_ok(fp8q_calib_merge(order, 2, "now", paths[2], true, &err), &err);
        assert_ok(fp8q_calib_open(paths[2], &sum, &err), &err);
        const struct fp8q_calib_site *s = &sum.sites[0], *a = &parts[0].sites[0],
                                     *b = &parts[1].sites[0];
        assert_int_equal(a->n_groups, 1);
        assert_int_equal(b->n_groups, 2);
        assert_int_equal(s->n_groups, 2);
        assert_int_equal(s->count[0], a->count[0] + b->count[0]);
        assert_int_equal(s->count[1], b->count[1]);
        float *x = malloc(3 * 2 * s->width * sizeof(*x)), *y = x + 2 * s->width,
              *z = y + 2 * s->width;
        assert_non_null(x);
        assert_ok(fp8q_calib_read(&parts[0], a, FP8Q_CALIB_SUMSQ, x, &err), &err);
        assert_ok(fp8q_calib_read(&parts[1], b, FP8Q_CALIB_SUMSQ, y, &err), &err);
        assert_ok(fp8q_calib_read(&sum, s, FP8Q_CALIB_SUMSQ, z, &err), &err);
        for (uint64_t i = 0; i < s->width; i++) {
            assert_true(z[i] == x[i] + y[i]);
            assert_true(z[s->width + i] == y[s->width + i]);
        }
        free(x);
        fp8q_calib_close(&sum);
    }
    for (size_t i = 0; i < 2; i++)
        fp8q_calib_close(&parts[i]);
    temp_dir_remove(dir);
    for (size_t i = 0; i < 3; i++)
        free(paths[i]);
}

/* ---- drift, figure by figure ------------------------------------------------------------------ */

enum { WIDTH = 256, TOKENS = 1000 };

/* Statistics of one linear input as somebody could have measured them.  */
struct synthetic {
    float energy[WIDTH]; /* mean square of each channel */
    float absmax;
    int bin; /* of all tiles */
};

static int give(void *ctx, size_t index, enum fp8q_calib_array array, float *out,
                struct fp8q_error *err)
{
    const struct synthetic *s = ctx;
    (void)index;
    (void)err;
    for (size_t i = 0; i < WIDTH; i++)
        out[i] = array == FP8Q_CALIB_SUMSQ    ? s->energy[i] * TOKENS
                 : array == FP8Q_CALIB_ABSMAX ? s->absmax
                                              : 0;
    return FP8Q_OK;
}

static void write_synthetic(const struct synthetic *s, const char *path, struct fp8q_calib *opened)
{
    struct fp8q_error err = {0};
    struct fp8q_calib_site site = {.name = "model.layers.0.mlp.down_proj",
                                   .width = WIDTH,
                                   .n_groups = 1,
                                   .count = {TOKENS},
                                   .has_hist = true};
    struct fp8q_calib calib = {.meta = {.source_fingerprint = "00000001", .n_tokens = TOKENS},
                               .sites = &site,
                               .n_sites = 1};
    site.hist[s->bin] = TOKENS;
    site.has[FP8Q_CALIB_SUM] = site.has[FP8Q_CALIB_SUMSQ] = site.has[FP8Q_CALIB_ABSMAX] = true;
    assert_ok(fp8q_calib_write(&calib, path, true, give, (void *)(uintptr_t)s, &err), &err);
    assert_ok(fp8q_calib_open(path, opened, &err), &err);
}

enum figure { RMS, ABSMAX, OVERLAP, HIST, CHANNELS, N_FIGURES };

/* Before: 100 in the first four channels, then less than 1, falling; the largest value is 4.  */
static void change(struct synthetic *s, int kind)
{
    for (size_t i = 0; i < WIDTH; i++)
        switch (kind) {
        case 1: /* twice as wide */
        case 2: /* half as wide */
            s->energy[i] *= kind == 1 ? 4.0f : 0.25f;
            break;
        case 3: /* an outlier among 256 that was none */
            s->energy[i] += i == 200 ? 300.0f : 0;
            break;
        case 4: /* one that is gone */
            s->energy[i] = i == 0 ? 0.01f : s->energy[i];
            break;
        case 5: /* small channels up and down, the sum nearly the same */
            if (i >= 4)
                s->energy[i] *= i % 2 ? 1.75f : 0.25f;
            break;
        default:
            break;
        }
    s->absmax *= kind == 6 ? 4.0f : kind == 7 ? 0.25f : 1.0f;
    s->bin += kind == 8 ? 3 : kind == 9 ? -3 : 0;
}

/* One figure tells of each change, and of no other: the rest is without limit.  */
static void each_figure_tells_of_its_change(void **state)
{
    static const struct {
        int kind;
        enum figure figure;
        double value;
        bool moves;
    } cases[] = {
        {1, RMS, 1, true},        {2, RMS, -1, true},
        {3, OVERLAP, 0.8, true}, /* of five at the top, four were near it */
        {4, OVERLAP, 0.75, true}, {5, CHANNELS, 0.248637, true},
        {6, ABSMAX, 2, true},     {7, ABSMAX, -2, false}, /* a narrower range clips nothing */
        {8, HIST, 3, true},       {9, HIST, 3, true},
        {0, RMS, 0, false},       {0, OVERLAP, 1, false},
        {0, HIST, 0, false},      {0, CHANNELS, 0, false},
    };
    char *dir = temp_dir_make(), path[2][600];
    (void)state;
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof(path[i]), "%s/%d.safetensors", dir, i);

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct synthetic before = {.absmax = 4, .bin = 30}, after;
        struct fp8q_calib calib[2];
        struct fp8q_drift drift;
        struct fp8q_error err = {0};
        for (size_t k = 0; k < WIDTH; k++)
            before.energy[k] = k < 4 ? 100 : 1 - 0.001f * (float)k;
        after = before;
        change(&after, cases[i].kind);
        write_synthetic(&before, path[0], &calib[0]);
        write_synthetic(&after, path[1], &calib[1]);

        struct fp8q_drift_options o = {
            .limits = {.rms = 100, .absmax = 100, .hist = 100, .channels = 100, .clipped = 1},
            .n_threads = 1};
        double *const limits[] = {&o.limits.rms, &o.limits.absmax, &o.limits.overlap,
                                  &o.limits.hist, &o.limits.channels};
        assert_ok(fp8q_drift_run(&calib[0], &calib[1], &o, &drift, &err), &err);
        const double values[] = {drift.sites[0].rms, drift.sites[0].absmax, drift.sites[0].overlap,
                                 drift.sites[0].hist, drift.sites[0].channels};
        double value = values[cases[i].figure];
        if (fabs(value - cases[i].value) > 1e-3)
            fail_msg("case %zu: %g, expected %g", i, value, cases[i].value);
        assert_false(drift.sites[0].moved || drift.stale);
        fp8q_drift_reset(&drift);

        *limits[cases[i].figure] = cases[i].figure == OVERLAP    ? 0.9
                                   : cases[i].figure == CHANNELS ? 0.1
                                                                 : 0.5;
        assert_ok(fp8q_drift_run(&calib[0], &calib[1], &o, &drift, &err), &err);
        if (drift.sites[0].moved != cases[i].moves || drift.stale != cases[i].moves)
            fail_msg("case %zu: moved %d", i, drift.sites[0].moved);
        fp8q_drift_reset(&drift);
        fp8q_calib_close(&calib[0]);
        fp8q_calib_close(&calib[1]);
    }
    temp_dir_remove(dir);
}

static void other_inputs_are_drift(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fp8q_inputs inputs;
    struct fp8q_calib old_calib, new_calib;
    struct fp8q_drift drift;
    struct fp8q_ckpt *ckpt;
    char *dir = temp_dir_make(), *a = fp8q_join(dir, "a.safetensors"),
         *b = fp8q_join(dir, "b.safetensors");
    open_inputs("vl.inputs.safetensors", &inputs);
    calibrate("qwen2.5-vl-new", &inputs, 2, NULL, a);
    for (size_t i = 0; i < inputs.n_samples; i++) {
        struct fp8q_sample *s = &inputs.samples[i];
        memset(s->modality, 0, s->n_tokens);
        for (size_t k = 0; k < s->n_tokens * inputs.hidden; k++)
            s->embeds[k] = k % inputs.hidden < 9 ? 8 : -s->embeds[k];
    }
    calibrate("qwen2.5-vl-new", &inputs, 2, NULL, b);
    assert_ok(fp8q_calib_open(a, &old_calib, &err), &err);
    assert_ok(fp8q_calib_open(b, &new_calib, &err), &err);
    assert_ok(fp8q_ckpt_open(data_path("checkpoints/qwen2.5-vl-new"), &ckpt, NULL, &err), &err);
    struct fp8q_drift_options options = {
        .limits = fp8q_drift_defaults, .ckpt = ckpt, .fmt = FP8Q_SCALE_UE8M0, .n_threads = 2};
    assert_ok(fp8q_drift_run(&old_calib, &new_calib, &options, &drift, &err), &err);
    assert_true(drift.stale && drift.n_moved > 0 && drift.mix > 0.2);
    assert_true(drift.codes_changed > 0.01 && drift.codes_changed < 1);
    fp8q_drift_reset(&drift);
    options.fmt = FP8Q_SCALE_F32;
    assert_ok(fp8q_drift_run(&old_calib, &old_calib, &options, &drift, &err), &err);
    assert_true(!drift.stale && drift.codes_changed == 0);
    fp8q_drift_reset(&drift);
    fp8q_calib_close(&old_calib);
    fp8q_calib_close(&new_calib);
    fp8q_ckpt_close(ckpt);
    fp8q_inputs_reset(&inputs);
    temp_dir_remove(dir);
    free(a);
    free(b);
}

/* Likelihood as calibrate notes it, by way of a file with the metadata alone.  */
static void inputs_that_the_model_finds_unlikely_are_noise(void **state)
{
    (void)state;
    static const struct {
        double nll;
        uint64_t tokens, vocab;
        bool noise;
    } cases[] = {{13.7, 512, 49152, true}, {9.8, 512, 49152, true}, {9.6, 512, 49152, false},
                 {2.3, 512, 49152, false}, {13.7, 0, 49152, false}, {6.7, 512, 128, false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_calib calib = {.meta = {.nll_sum = cases[i].nll * (double)cases[i].tokens,
                                            .nll_tokens = cases[i].tokens,
                                            .vocab = cases[i].vocab}};
        assert_int_equal(fp8q_calib_is_noise(&calib), cases[i].noise);
    }
    struct fp8q_error err = {0};
    struct fp8q_inputs inputs;
    struct fp8q_calib calib;
    char *dir = temp_dir_make(), *a = fp8q_join(dir, "a.safetensors");
    open_inputs("text.inputs.safetensors", &inputs);
    calibrate("llama-untied", &inputs, 2, NULL, a);
    assert_ok(fp8q_calib_open(a, &calib, &err), &err);
    assert_int_equal(calib.meta.vocab, 320);
    assert_int_equal(calib.meta.nll_tokens, 280);
    assert_true(fabs(calib.meta.nll_sum / 280 - 5.9197) < 1e-4); /* as transformers gives it */
    fp8q_calib_close(&calib);
    fp8q_inputs_reset(&inputs);
    temp_dir_remove(dir);
    free(a);
}

static void broken_files_are_refused(void **state)
{
    (void)state;
    static const int64_t counts[2] = {3, 0}, none[2] = {0, 0}, negative[2] = {-1, 1};
    static const float values[8] = {1, 2, 3, 4}, nan_values[4] = {1, NAN, 1, 1};
    const struct {
        const char *format;
        struct memory_tensor tensors[2];
        enum fp8q_status status;
        const char *message;
    } cases[] = {
        {"fp8q-calib/1",
         {{"s.count", FP8Q_I64, {1}, 1, none}, {"s.sumsq", FP8Q_F32, {1, 4}, 2, values}},
         FP8Q_E_EVIDENCE,
         "zero tokens"},
        {"fp8q-calib/1",
         {{"s.count", FP8Q_I64, {1}, 1, negative}, {"s.sumsq", FP8Q_F32, {1, 4}, 2, values}},
         FP8Q_E_FORMAT,
         "fewer than nothing"},
        {"fp8q-calib/1",
         {{"s.count", FP8Q_I64, {2}, 1, counts}, {"s.sumsq", FP8Q_F32, {1, 4}, 2, values}},
         FP8Q_E_FORMAT,
         "wrong type or shape"},
        {"fp8q-calib/1",
         {{"s.other", FP8Q_I64, {2}, 1, counts}, {"s.sumsq", FP8Q_F32, {1, 4}, 2, values}},
         FP8Q_E_FORMAT,
         "lacks a part"},
        {"fp8q-calib/1",
         {{"s.sum", FP8Q_F32, {1, 5}, 2, values}, {"s.sumsq", FP8Q_F32, {1, 4}, 2, values}},
         FP8Q_E_FORMAT,
         "wrong type or shape"},
        {"fp8q-calib/1",
         {{"s.count", FP8Q_I64, {1}, 1, counts}, {"t", FP8Q_F32, {1, 4}, 2, values}},
         FP8Q_E_EVIDENCE,
         "no statistics"},
        {"fp8q-calib/2",
         {{"s.count", FP8Q_I64, {1}, 1, counts}, {"s.sumsq", FP8Q_F32, {1, 4}, 2, values}},
         FP8Q_E_UNSUPPORTED,
         "fp8q-calib/2"},
        {"pt",
         {{"s.count", FP8Q_I64, {1}, 1, counts}, {"s.sumsq", FP8Q_F32, {1, 4}, 2, values}},
         FP8Q_E_FORMAT,
         "not a calibration file"},
        {"fp8q-calib/1",
         {{"s.count", FP8Q_I64, {1}, 1, counts}, {"s.sumsq", FP8Q_F32, {1, 4}, 2, nan_values}},
         FP8Q_OK,
         NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_calib calib;
        char *dir = temp_dir_make(), *path = fp8q_join(dir, "c.safetensors");
        const struct fp8q_st_pair format = {"format", cases[i].format, 6, strlen(cases[i].format)};
        write_tensors_with(path, cases[i].tensors, 2, &format, 1);
        int status = fp8q_calib_open(path, &calib, &err);
        if (cases[i].status != FP8Q_OK) {
            assert_failed(status, cases[i].status, &err, cases[i].message);
        } else { /* values are looked at when they are read */
            float out[4];
            assert_ok(status, &err);
            assert_failed(fp8q_calib_read(&calib, &calib.sites[0], FP8Q_CALIB_SUMSQ, out, &err),
                          FP8Q_E_FORMAT, &err, "cannot be");
            fp8q_calib_close(&calib);
        }
        temp_dir_remove(dir);
        free(path);
    }
}

/* ---- importance matrices ----------------------------------------------------------------------
 */

static void put(struct fp8q_text *t, const void *data, size_t n)
{
    fp8q_text_add(t, data, n);
}

static void put_u32(struct fp8q_text *t, uint32_t v)
{
    put(t, &v, 4);
}

static void put_u64(struct fp8q_text *t, uint64_t v)
{
    put(t, &v, 8);
}

static void put_key(struct fp8q_text *t, const char *key, uint32_t type)
{
    put_u64(t, strlen(key));
    put(t, key, strlen(key));
    put_u32(t, type);
}

static uint32_t gguf_align = 32; /* other than 32: said by a key */
static float gguf_count = 10;

static void make_gguf(struct fp8q_text *t)
{
    static const char *const names[] = {
        "blk.0.attn_q.weight.in_sum2",   "blk.0.attn_q.weight.counts",
        "blk.0.ffn_down.weight.in_sum2", "blk.0.ffn_down.weight.counts",
        "blk.0.ffn_down.weight.in_sum",  "output.weight.in_sum2"};
    static const float q[4] = {1, 4, 9, 16}, down[2] = {2, 3}, sum[2] = {-1, 1};
    const void *const data[] = {q, &gguf_count, down, &gguf_count, sum, down};
    const uint64_t sizes[] = {4, 1, 2, 1, 2, 2};
    put(t, "GGUF", 4);
    put_u32(t, 3);
    put_u64(t, 6);
    put_u64(t, gguf_align == 32 ? 4 : 5);
    if (gguf_align != 32) {
        put_key(t, "general.alignment", 4);
        put_u32(t, gguf_align);
    }
    put_key(t, "general.type", 8);
    put_u64(t, 7);
    put(t, "imatrix", 7);
    put_key(t, "imatrix.datasets", 9);
    put_u32(t, 8);
    put_u64(t, 2);
    put_u64(t, 1);
    put(t, "a", 1);
    put_u64(t, 2);
    put(t, "bc", 2);
    put_key(t, "imatrix.chunk_count", 4);
    put_u32(t, 5);
    put_key(t, "x", 9);
    put_u32(t, 12); /* F64 array */
    put_u64(t, 1);
    put_u64(t, 0);
    uint64_t at = 0;
    for (size_t i = 0; i < 6; i++) {
        put_u64(t, strlen(names[i]));
        put(t, names[i], strlen(names[i]));
        put_u32(t, 2);
        put_u64(t, sizes[i]);
        put_u64(t, 1);
        put_u32(t, 0);
        put_u64(t, at);
        at += 32;
    }
    while (t->len % gguf_align)
        put(t, "\0", 1);
    for (size_t i = 0; i < 6; i++) {
        char padded[32] = {0};
        memcpy(padded, data[i], sizes[i] * 4);
        put(t, padded, 32);
    }
}

static void make_dat(struct fp8q_text *t)
{
    static const float q[4] = {1, 4, 9, 16}, down[2] = {2, 3};
    put_u32(t, 3);
    put_u32(t, 19);
    put(t, "blk.0.attn_q.weight", 19);
    put_u32(t, 10);
    put_u32(t, 4);
    put(t, q, sizeof(q));
    put_u32(t, 21);
    put(t, "blk.0.ffn_down.weight", 21);
    put_u32(t, 10);
    put_u32(t, 2);
    put(t, down, sizeof(down));
    put_u32(t, 13);
    put(t, "output.weight", 13);
    put_u32(t, 10);
    put_u32(t, 2);
    put(t, down, sizeof(down));
}

/* The data section begins at a multiple of what the file says; counts of nothing are no evidence. */
static void alignment_and_counts_of_a_gguf(void **state)
{
    (void)state;
    static const struct {
        uint32_t align;
        float count;
        enum fp8q_status status;
        const char *part;
    } cases[] = {
        {32, 10, FP8Q_OK, NULL},
        {64, 10, FP8Q_OK, NULL},
        {256, 10, FP8Q_OK, NULL},
        {32, 0, FP8Q_E_EVIDENCE, "zero tokens"},
        {32, 0.5f, FP8Q_E_EVIDENCE, "zero tokens"},
        {32, -1, FP8Q_E_FORMAT, "lacks sums or counts"},
        {32, NAN, FP8Q_E_FORMAT, "lacks sums or counts"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_text t = {0};
        struct fp8q_calib calib;
        float values[4];
        char *dir = temp_dir_make(), *in = fp8q_join(dir, "imatrix"),
             *out = fp8q_join(dir, "c.safetensors");
        gguf_align = cases[i].align;
        gguf_count = cases[i].count;
        make_gguf(&t);
        assert_ok(fp8q_write_file(in, t.data, t.len, &err), &err);
        int status = fp8q_calib_import(in, "now", out, false, &err);
        if (cases[i].part) {
            assert_failed(status, cases[i].status, &err, cases[i].part);
        } else {
            assert_ok(status, &err);
            assert_ok(fp8q_calib_open(out, &calib, &err), &err);
            const struct fp8q_calib_site *s =
                fp8q_calib_find(&calib, "model.layers.0.self_attn.q_proj");
            assert_ok(fp8q_calib_read(&calib, s, FP8Q_CALIB_SUMSQ, values, &err), &err);
            assert_true(values[0] == 1 && values[1] == 4 && values[2] == 9 && values[3] == 16);
            fp8q_calib_close(&calib);
        }
        fp8q_text_reset(&t);
        temp_dir_remove(dir);
        free(in);
        free(out);
    }
    gguf_align = 32;
    gguf_count = 10;
}

static void importance_matrices_are_read(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        struct fp8q_error err = {0};
        struct fp8q_text t = {0};
        struct fp8q_calib calib;
        char *dir = temp_dir_make(), *in = fp8q_join(dir, "imatrix"),
             *out = fp8q_join(dir, "c.safetensors");
        (kind ? make_gguf : make_dat)(&t);
        assert_ok(fp8q_write_file(in, t.data, t.len, &err), &err);
        assert_ok(fp8q_calib_import(in, "now", out, false, &err), &err);
        assert_ok(fp8q_calib_open(out, &calib, &err), &err);
        assert_int_equal(calib.n_sites, 2);
        const struct fp8q_calib_site *s =
            fp8q_calib_find(&calib, "model.layers.0.self_attn.q_proj");
        float values[4];
        assert_non_null(s);
        assert_true(s->width == 4 && s->count[0] == 10 && !s->has[FP8Q_CALIB_HBLK]);
        assert_ok(fp8q_calib_read(&calib, s, FP8Q_CALIB_SUMSQ, values, &err), &err);
        assert_true(values[0] == 1 && values[3] == 16);
        s = fp8q_calib_find(&calib, "model.layers.0.mlp.down_proj");
        assert_non_null(s);
        assert_true(s->has[FP8Q_CALIB_SUM] == (kind == 1));
        fp8q_calib_close(&calib);
        /* Cut anywhere: an error, or a file that needed no more.  */
        for (size_t n = 0; n < t.len; n++) {
            assert_int_equal(truncate(in, (off_t)(t.len - 1 - n)), 0);
            int status = fp8q_calib_import(in, "now", out, true, &err);
            assert_true(status == FP8Q_OK || status == FP8Q_E_FORMAT ||
                        status == FP8Q_E_UNSUPPORTED);
            if (n + 60 > t.len)
                assert_int_not_equal(status, FP8Q_OK);
        }
        fp8q_text_reset(&t);
        temp_dir_remove(dir);
        free(in);
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_those_of_hooks),
        cmocka_unit_test(a_quarter_is_held_out),
        cmocka_unit_test(counts_that_overflow_are_refused),
        cmocka_unit_test(threads_and_kernels_change_no_byte),
        cmocka_unit_test(merging_adds_up),
        cmocka_unit_test(each_figure_tells_of_its_change),
        cmocka_unit_test(other_inputs_are_drift),
        cmocka_unit_test(inputs_that_the_model_finds_unlikely_are_noise),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(alignment_and_counts_of_a_gguf),
        cmocka_unit_test(importance_matrices_are_read),
        cmocka_unit_test(files_of_other_modalities_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
