/* SPDX-License-Identifier: Apache-2.0 */
#include "support/support.h"

#include "support/fp8_checkpoint.h"

#include <unistd.h>

#include "calibration/gptq.h"
#include "base/file.h"
#include "base/path.h"
#include "base/dir.h"
#include "checkpoint/weights.h"
#include "support/maker.h"

void link_checkpoint(const char *src, const char *dst, const char *config)
{
    struct fp8q_error err = {0};
    char **names;
    size_t n;
    assert_ok(fp8q_mkdir(dst, &err), &err);
    assert_ok(fp8q_list_dir(src, &names, &n, &err), &err);
    for (size_t i = 0; i < n; i++) {
        if (config && strcmp(names[i], "config.json") == 0)
            continue;
        char *from = fp8q_join(src, names[i]), *to = fp8q_join(dst, names[i]);
        assert_int_equal(symlink(from, to), 0);
        free(from);
        free(to);
    }
    fp8q_names_free(names, n);
    if (config)
        maker_write_text(dst, "config.json", config);
}

void write_tensors(const char *path, const struct memory_tensor *tensors, size_t n)
{
    write_tensors_with(path, tensors, n, NULL, 0);
}

void write_tensors_with(const char *path, const struct memory_tensor *tensors, size_t n,
                        const struct fp8q_st_pair *metadata, size_t n_metadata)
{
    static const struct fp8q_st_pair none;
    struct maker m = {.metadata = metadata ? metadata : &none, .n_metadata = n_metadata};
    for (size_t i = 0; i < n; i++)
        maker_add(&m, tensors[i].name, tensors[i].dtype, tensors[i].ndim, tensors[i].shape, 0)
            ->data = tensors[i].data;

    maker_write_shard(&m, 0, path);
    maker_free(&m);
}

static bool is_linear(const char *name)
{
    static const char *const endings[] = {".self_attn.q_proj.weight", ".self_attn.k_proj.weight",
                                          ".self_attn.v_proj.weight", ".self_attn.o_proj.weight",
                                          ".mlp.gate_proj.weight",    ".mlp.up_proj.weight",
                                          ".mlp.down_proj.weight"};
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
        size_t n = strlen(endings[i]);
        if (len > n && strcmp(name + len - n, endings[i]) == 0 && strstr(name, "layers.") &&
            !strstr(name, "visual"))
            return true;
    }
    return false;
}

struct rounding {
    const struct fp8q_kernel *kernel;
    const struct fp8q_gemm *gemm;
    enum fp8q_scale_fmt fmt;
    struct fp8q_calib calib; /* no sites: plain */
    bool use_guard;
    unsigned n_threads;
    struct compensated_counts counts;
};

/* The prepared site of tensor @t, or NULL for plain rounding.  */
static struct fp8q_hessian *open_site(struct rounding *how, const struct fp8q_ckpt *src,
                                      const struct fp8q_tensor *t)
{
    static const char *const last[] = {"q_proj",  "k_proj", "v_proj",   "gate_proj",
                                       "up_proj", "o_proj", "down_proj"};
    struct fp8q_error err = {0};
    struct fp8q_hessian *site;
    struct fp8q_name name;
    struct fp8q_gptq_error sums;
    char texts[3][200];
    const char *mates[3] = {texts[0], texts[1], texts[2]};
    size_t n = 0;
    if (how->calib.n_sites == 0)
        return NULL;
    assert_ok(fp8q_hessian_create(&how->calib, t->name, t->shape[1], how->n_threads, &site, &err),
              &err);
    if (!site || !how->use_guard)
        return site;
    fp8q_calib_site_of(t->name, &name);
    size_t stem = (size_t)(strrchr(name.text, '.') - name.text) + 1;
    for (size_t i = 0; i < 7; i++) {
        struct fp8q_name other;
        char text[200];
        snprintf(text, sizeof(text), "%.*s%s.weight", (int)stem, t->name, last[i]);
        if (strcmp(fp8q_calib_site_of(text, &other), name.text) == 0)
            memcpy(texts[n++], text, sizeof(text));
    }
    struct fp8q_gptq_guard_job job = {.hessian = site,
                                      .ckpt = src,
                                      .names = mates,
                                      .n_names = n,
                                      .fmt = how->fmt,
                                      .kernel = how->kernel,
                                      .gemm = how->gemm,
                                      .n_threads = how->n_threads};
    assert_ok(fp8q_gptq_guard_run(&job, &sums, &err), &err);
    bool first = strncmp(t->name, name.text, strlen(name.text)) == 0;
    how->counts.sites += first;
    if (fp8q_gptq_helps(&sums))
        return site;
    how->counts.kept_plain += first;
    fp8q_hessian_destroy(site);
    return NULL;
}

/* Codes and scales of one weight; both to be freed.  */
static void encode(const struct fp8q_ckpt *src, const struct fp8q_tensor *t, struct rounding *how,
                   uint8_t **codes_out, float **scales_out)
{
    const struct fp8q_kernel *kernel = how->kernel;
    struct fp8q_hessian *site = open_site(how, src, t);
    void *scratch = malloc(fp8q_gptq_scratch());
    struct fp8q_weights w;
    struct fp8q_error err = {0};
    assert_ok(fp8q_weights_open(src, t->name, &w, &err), &err);
    uint64_t n_cols = w.n_cols, grid_cols = (n_cols + 127) / 128;
    float *values = malloc(t->n_elems * 4),
          *scales = malloc((w.n_rows + 127) / 128 * grid_cols * 4);
    void *raw = malloc(t->n_elems * 4);
    uint8_t *codes = malloc(t->n_elems);
    uint32_t *amax = malloc(grid_cols * 4);
    assert_true(values && scales && raw && codes && amax);
    assert_ok(fp8q_weights_read(&w, kernel, 0, w.n_rows, raw, values, &err), &err);
    for (uint64_t row = 0; row < w.n_rows; row += 128) {
        struct fp8q_stripe stripe = {.src = values + row * n_cols,
                                     .from = FP8Q_FLOAT_F32,
                                     .n_rows =
                                         (uint32_t)(w.n_rows - row < 128 ? w.n_rows - row : 128),
                                     .n_cols = n_cols};
        float *row_scales = scales + row / 128 * grid_cols;
        fp8q_stripe_amax(kernel, &stripe, amax);
        assert_true(
            fp8q_block_scales(FP8Q_FLOAT_F32, amax, (size_t)grid_cols, how->fmt, row_scales));
        if (site)
            assert_ok(fp8q_gptq_encode(&(struct fp8q_gptq_stripe){site, kernel, how->gemm,
                                                                  stripe.src, stripe.n_rows, n_cols,
                                                                  row_scales, scratch},
                                       codes + row * n_cols, &err),
                      &err);
        else
            fp8q_stripe_encode(kernel, &stripe, row_scales, codes + row * n_cols);
    }
    free(values);
    free(raw);
    free(amax);
    free(scratch);
    fp8q_hessian_destroy(site);
    fp8q_weights_reset(&w);
    *codes_out = codes;
    *scales_out = scales;
}

static void write_rounded(const struct fp8q_ckpt *src, const char *dst, struct rounding *how)
{
    struct fp8q_error err = {0};
    size_t n = 0;
    struct memory_tensor *out = calloc(2 * src->n_tensors, sizeof(*out));
    assert_non_null(out);
    for (size_t i = 0; i < src->n_tensors; i++) {
        const struct fp8q_tensor *t = &src->tensors[i];
        struct memory_tensor *m = &out[n++];
        *m = (struct memory_tensor){.name = t->name, .dtype = t->dtype, .ndim = t->ndim};
        if (!is_linear(t->name)) {
            void *data = malloc(t->size_bytes ? t->size_bytes : 1);
            assert_true(data && t->ndim <= 5);
            assert_ok(fp8q_ckpt_read(src, t, 0, data, t->size_bytes, &err), &err);
            m->data = data;
            if (t->ndim > 3) { /* the vision tower's kernels: nobody here looks at their shape */
                m->ndim = 1;
                m->shape[0] = t->n_elems;
            } else {
                memcpy(m->shape, t->shape, t->ndim * sizeof(*t->shape));
            }
            continue;
        }
        uint8_t *codes;
        float *scales;
        encode(src, t, how, &codes, &scales);
        m->dtype = FP8Q_F8_E4M3;
        memcpy(m->shape, t->shape, 2 * sizeof(*t->shape));
        m->data = codes;
        char *name = malloc(strlen(t->name) + 16);
        assert_non_null(name);
        sprintf(name, "%s_scale_inv", t->name);
        out[n++] =
            (struct memory_tensor){.name = name,
                                   .dtype = FP8Q_F32,
                                   .ndim = 2,
                                   .data = scales,
                                   .shape = {(t->shape[0] + 127) / 128, (t->shape[1] + 127) / 128}};
    }
    char *path = fp8q_join(dst, "model.safetensors");
    assert_ok(fp8q_mkdir(dst, &err), &err);
    write_tensors(path, out, n);
    if (src->config_text)
        maker_write_text(dst, "config.json", src->config_text);
    for (size_t i = 0; i < n; i++) {
        free((void *)(uintptr_t)out[i].data);
        if (strstr(out[i].name, "_scale_inv"))
            free((void *)(uintptr_t)out[i].name);
    }
    free(path);
    free(out);
}

void write_fp8_checkpoint(const struct fp8q_ckpt *src, const char *dst, enum fp8q_scale_fmt fmt)
{
    struct rounding how = {.kernel = fp8q_kernel_select("scalar"), .fmt = fmt};
    write_rounded(src, dst, &how);
}

void write_compensated_checkpoint(const struct fp8q_ckpt *src, const char *dst,
                                  enum fp8q_scale_fmt fmt, const char *calibration, bool use_guard,
                                  unsigned n_threads, struct compensated_counts *counts_out)
{
    struct fp8q_error err = {0};
    struct rounding how = {.kernel = fp8q_kernel_select(NULL),
                           .gemm = fp8q_gemm_select(NULL),
                           .fmt = fmt,
                           .use_guard = use_guard,
                           .n_threads = n_threads};
    assert_ok(fp8q_calib_open(calibration, &how.calib, &err), &err);
    write_rounded(src, dst, &how);
    fp8q_calib_close(&how.calib);
    if (counts_out)
        *counts_out = how.counts;
}
