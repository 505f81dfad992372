/* SPDX-License-Identifier: Apache-2.0
 *
 * weights.c - finds the scales of a weight and reads rows of it.
 */
#include "checkpoint/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/names.h"
#include "base/mem.h"

static float e8m0_value(uint8_t code)
{
    return code == 0xFF ? NAN : ldexpf(1.0f, (int)code - 127);
}

int fp8q_read_floats(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *tensor,
                     const struct fp8q_kernel *kernel, float *out, struct fp8q_error *err)
{
    enum fp8q_float from;
    struct fp8q_shown shown;
    bool wide = fp8q_float_of(tensor->dtype, &from);

    if (!wide && tensor->dtype != FP8Q_F8_E8M0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "dtype",
                         "tensor \"%s\": expected F32, BF16 or F16, found %s",
                         fp8q_show(&shown, tensor->name), fp8q_dtype_name(tensor->dtype));

    void *raw = fp8q_array(tensor->size_bytes, 1);
    if (!raw)
        return fp8q_fail_nomem(err);

    int status = fp8q_ckpt_read(ckpt, tensor, 0, raw, (size_t)tensor->size_bytes, err);
    if (status == FP8Q_OK && wide)
        kernel->to_f32[from](out, raw, (size_t)tensor->n_elems);
    else if (status == FP8Q_OK)
        for (size_t i = 0; i < tensor->n_elems; i++)
            out[i] = e8m0_value(((const uint8_t *)raw)[i]);

    free(raw);
    return status;
}

static const struct fp8q_tensor *find_scales(const struct fp8q_ckpt *ckpt, const char *name)
{
    static const char *const endings[] = {FP8Q_SCALE_INV_ENDING, FP8Q_SCALE_ENDING};
    const struct fp8q_tensor *found = NULL;
    for (size_t i = 0; !found && i < sizeof(endings) / sizeof(*endings); i++)
        found = fp8q_ckpt_find_joined(ckpt, name, strlen(name), endings[i]);
    return found;
}

/* Which of the three layouts a scale tensor has; false if none.  */
static bool scale_layout(struct fp8q_weights *w)
{
    const struct fp8q_tensor *s = w->scale_from;
    uint64_t n_matrices = w->n_rows / w->matrix_rows, per_matrix;
    const uint64_t *shape = s->shape;
    uint32_t ndim = s->ndim;

    /* The scales of stacked matrices are stacked in the same way.  */
    if (w->tensor->ndim == 3 && ndim == 3) {
        if (shape[0] != n_matrices)
            return false;
        shape++;
        ndim--;
    } else if (n_matrices != 1) {
        return false;
    }

    per_matrix = s->n_elems / n_matrices;
    w->grid_rows = fp8q_ceil_div(w->matrix_rows, FP8Q_BLOCK);
    w->grid_cols = fp8q_ceil_div(w->n_cols, FP8Q_BLOCK);

    if (ndim == 2 && shape[0] == w->grid_rows && shape[1] == w->grid_cols) {
        w->scaling = FP8Q_SCALING_BLOCK;
        return true;
    }

    w->grid_cols = 1;
    w->grid_rows = per_matrix;
    w->scaling = per_matrix == 1 ? FP8Q_SCALING_TENSOR : FP8Q_SCALING_ROW;

    return per_matrix == 1 ||
           (per_matrix == w->matrix_rows && (ndim == 1 || (ndim == 2 && shape[1] == 1)));
}

static int read_scales(struct fp8q_weights *w, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *name = w->tensor->name;

    w->scale_from = find_scales(w->ckpt, name);
    if (!w->scale_from)
        return fp8q_fail(
            err, FP8Q_E_FORMAT, "scale-missing",
            "tensor \"%s\" is F8_E4M3, but neither \"..._scale_inv\" nor \"..._scale\" "
            "stands beside it",
            fp8q_show(&shown, name));

    if (!scale_layout(w))
        return fp8q_fail(
            err, FP8Q_E_FORMAT, "scale-shape",
            "tensor \"%s\" of %llu x %llu: its scale tensor of %llu elements is neither a grid "
            "of 128x128 blocks, nor one scale a row, nor one in all",
            fp8q_show(&shown, name), (unsigned long long)w->matrix_rows,
            (unsigned long long)w->n_cols, (unsigned long long)w->scale_from->n_elems);

    w->scales = fp8q_array(w->scale_from->n_elems, sizeof(*w->scales));
    if (!w->scales)
        return fp8q_fail_nomem(err);

    /* Scales are few: the scalar kernel will do, and the result is the same.  */
    FP8Q_TRY(
        fp8q_read_floats(w->ckpt, w->scale_from, fp8q_kernel_select("scalar"), w->scales, err));

    for (uint64_t i = 0; i < w->scale_from->n_elems; i++)
        if (!(w->scales[i] >= 0) || isinf(w->scales[i]))
            return fp8q_fail(
                err, FP8Q_E_FORMAT, "scale-value",
                "tensor \"%s\": scale %llu is %g, expected a finite value of at least 0",
                fp8q_show(&shown, w->scale_from->name), (unsigned long long)i,
                (double)w->scales[i]);
    return FP8Q_OK;
}

static int open_tensor(struct fp8q_weights *w, struct fp8q_error *err)
{
    const struct fp8q_tensor *t = w->tensor;
    struct fp8q_shown shown;

    if (t->ndim != 2 && t->ndim != 3)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "shape",
                         "tensor \"%s\": expected a matrix, found %u dimensions",
                         fp8q_show(&shown, t->name), t->ndim);

    w->n_cols = t->shape[t->ndim - 1];
    w->matrix_rows = t->shape[t->ndim - 2];
    w->n_rows = t->ndim == 3 ? t->shape[0] * t->shape[1] : t->shape[0];

    if (t->n_elems == 0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "shape", "tensor \"%s\" is empty",
                         fp8q_show(&shown, t->name));

    if (t->dtype == FP8Q_F8_E4M3)
        return read_scales(w, err);
    if (fp8q_float_of(t->dtype, &w->from))
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "dtype",
                     "tensor \"%s\": expected BF16, F16, F32 or F8_E4M3, found %s",
                     fp8q_show(&shown, t->name), fp8q_dtype_name(t->dtype));
}

int fp8q_weights_open(const struct fp8q_ckpt *ckpt, const char *name,
                      struct fp8q_weights *weights_out, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    *weights_out = (struct fp8q_weights){.ckpt = ckpt, .tensor = fp8q_ckpt_find(ckpt, name)};
    int status;

    if (!weights_out->tensor)
        status = fp8q_fail(err, FP8Q_E_ARG, "no-tensor", "there is no tensor \"%s\"",
                           fp8q_show(&shown, name));
    else
        status = open_tensor(weights_out, err);

    if (status != FP8Q_OK)
        fp8q_weights_reset(weights_out);

    return status;
}

void fp8q_weights_reset(struct fp8q_weights *weights)
{
    free(weights->scales);
    *weights = (struct fp8q_weights){0};
}

float fp8q_weights_scale(const struct fp8q_weights *w, uint64_t row, uint64_t col)
{
    uint64_t matrix = row / w->matrix_rows, r = row % w->matrix_rows, c = 0;

    switch (w->scaling) {
    case FP8Q_SCALING_NONE:
        return 1.0f;
    case FP8Q_SCALING_BLOCK:
        r /= FP8Q_BLOCK;
        c = col / FP8Q_BLOCK;
        break;
    case FP8Q_SCALING_ROW:
        break;
    case FP8Q_SCALING_TENSOR:
        r = 0;
        break;
    }

    return w->scales[(matrix * w->grid_rows + r) * w->grid_cols + c];
}

void fp8q_weights_decode(const struct fp8q_weights *w, const struct fp8q_kernel *kernel,
                         uint64_t row, uint64_t n_rows, uint64_t col, uint64_t n_cols,
                         const uint8_t *codes, enum fp8q_float to, void *out)
{
    size_t size = to == FP8Q_FLOAT_F32 ? 4 : 2;
    uint64_t step = w->scaling == FP8Q_SCALING_BLOCK ? FP8Q_BLOCK : n_cols;

    for (uint64_t r = 0; r < n_rows; r++)
        for (uint64_t c = 0, m; c < n_cols; c += m) {
            /* Up to the next column block, which has a scale of its own.  */
            m = step - (w->scaling == FP8Q_SCALING_BLOCK ? (col + c) % step : 0);
            m = n_cols - c < m ? n_cols - c : m;

            size_t at = (size_t)(r * n_cols + c);
            kernel->decode[to]((char *)out + at * size, codes + at, (size_t)m,
                               fp8q_weights_scale(w, row + r, col + c));
        }
}

int fp8q_weights_read(const struct fp8q_weights *w, const struct fp8q_kernel *kernel, uint64_t row,
                      uint64_t n_rows, void *raw, float *out, struct fp8q_error *err)
{
    uint64_t size = fp8q_dtype_bits(w->tensor->dtype) / 8;
    size_t n = (size_t)(n_rows * w->n_cols);

    FP8Q_TRY(
        fp8q_ckpt_read(w->ckpt, w->tensor, row * w->n_cols * size, raw, n * (size_t)size, err));

    if (w->scaling == FP8Q_SCALING_NONE)
        kernel->to_f32[w->from](out, raw, n);
    else
        fp8q_weights_decode(w, kernel, row, n_rows, 0, w->n_cols, raw, FP8Q_FLOAT_F32, out);
    return FP8Q_OK;
}

int fp8q_store_floats(const float *values, size_t n, enum fp8q_dtype to, char *out,
                      const char *name, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    if (to == FP8Q_F32) {
        memcpy(out, values, n * sizeof(float));
        return FP8Q_OK;
    }

    for (size_t i = 0; i < n; i++) {
        uint16_t bits =
            to == FP8Q_F16 ? fp8q_f16_from_f32(values[i]) : fp8q_bf16_from_f32(values[i]);
        /* BF16 has the range of F32; only F16 can overflow here.  */
        if (to == FP8Q_F16 && (bits & 0x7FFF) == 0x7C00)
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "f16-overflow",
                             "tensor \"%s\": the value %g does not fit F16 (largest 65504); use "
                             "--dtype bf16",
                             fp8q_show(&shown, name), (double)values[i]);

        memcpy(out + 2 * i, &bits, 2);
    }

    return FP8Q_OK;
}
