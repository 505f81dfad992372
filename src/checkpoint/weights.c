/* SPDX-License-Identifier: Apache-2.0
 *
 * weights.c - reads the scales of a weight, and rows of it with them.
 */
#include "checkpoint/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/e8m0.h"

/* Of a float dtype, or of exponents.  */
static void convert_values(const struct fp8q_tensor *tensor, const struct fp8q_kernel *kernel,
                           const void *raw, float *out)
{
    enum fp8q_float from;
    if (fp8q_float_of(tensor->dtype, &from)) {
        kernel->to_f32[from](out, raw, (size_t)tensor->n_elems);
        return;
    }
    for (size_t i = 0; i < tensor->n_elems; i++)
        out[i] = fp8q_e8m0_value(((const uint8_t *)raw)[i]);
}

/* Every float dtype as F32; U8 counts as E8M0 where @scales says that they are scales.  */
static int read_values(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *tensor,
                       const struct fp8q_kernel *kernel, bool scales, float *out,
                       struct fp8q_error *err)
{
    enum fp8q_float from;
    struct fp8q_shown shown;
    bool wide = fp8q_float_of(tensor->dtype, &from);
    bool e8m0 = tensor->dtype == FP8Q_F8_E8M0 || (scales && tensor->dtype == FP8Q_U8);

    if (!wide && !e8m0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "dtype",
                         "tensor \"%s\": expected F32, BF16 or F16, found %s",
                         fp8q_show(&shown, tensor->name), fp8q_dtype_name(tensor->dtype));

    void *raw = fp8q_array(tensor->size_bytes, 1);
    if (!raw)
        return fp8q_fail_nomem(err);

    int status = fp8q_ckpt_read(ckpt, tensor, 0, raw, (size_t)tensor->size_bytes, err);
    if (status == FP8Q_OK)
        convert_values(tensor, kernel, raw, out);
    free(raw);
    return status;
}

int fp8q_read_floats(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *tensor,
                     const struct fp8q_kernel *kernel, float *out, struct fp8q_error *err)
{
    return read_values(ckpt, tensor, kernel, false, out, err);
}

/* The formats beside E4M3 by their bits: FNUZ has a bias one higher, no infinities, no negative
 * zero, and its only NaN is 0x80.  */
static float fp8_value(enum fp8q_dtype dtype, uint8_t code)
{
    bool e5 = dtype == FP8Q_F8_E5M2 || dtype == FP8Q_F8_E5M2FNUZ;
    bool fnuz = dtype == FP8Q_F8_E5M2FNUZ || dtype == FP8Q_F8_E4M3FNUZ;
    int fraction_bits = e5 ? 2 : 3, bias = (e5 ? 15 : 7) + fnuz;
    int exponent = (code & 0x7F) >> fraction_bits;
    int fraction = code & ((1 << fraction_bits) - 1);

    if (dtype == FP8Q_F8_E4M3)
        return fp8q_e4m3_value[code];
    if (fnuz && code == 0x80)
        return NAN;
    if (dtype == FP8Q_F8_E5M2 && exponent == 31)
        return fraction ? NAN : copysignf(INFINITY, code & 0x80 ? -1.0f : 1.0f);

    float magnitude = exponent ? ldexpf((float)(fraction + (1 << fraction_bits)), exponent - bias)
                               : ldexpf((float)fraction, 1 - bias);
    magnitude = ldexpf(magnitude, -fraction_bits);
    return code & 0x80 ? -magnitude : magnitude;
}

static int read_scales(struct fp8q_weights *w, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    FP8Q_TRY(fp8q_find_scales(w->ckpt, w->tensor, &w->scale_from, err));
    FP8Q_TRY(fp8q_find_layout(w->ckpt, w->tensor, w->scale_from, &w->layout, err));
    w->scaling = w->layout.scaling;

    /* Made once: by this table rare formats are decoded and overflow is looked for.  */
    for (unsigned code = 0; code < 256; code++)
        w->values[code] = fp8_value(w->tensor->dtype, (uint8_t)code);

    uint64_t n = w->scale_from->n_elems;
    w->scales = fp8q_array(n, sizeof(*w->scales));
    if (!w->scales)
        return fp8q_fail_nomem(err);

    /* Scales are few: the scalar kernel will do, and the result is the same.  */
    FP8Q_TRY(
        read_values(w->ckpt, w->scale_from, fp8q_kernel_select("scalar"), true, w->scales, err));

    float largest = 0;
    bool has_zero = false;
    for (uint64_t i = 0; i < n; i++) {
        float scale = w->scales[i];
        /* Written so that NaN fails.  Zero may be right, depending on the values under it, which
         * check_zero_scale() sees.  */
        if (!(scale >= 0) || isinf(scale))
            return fp8q_fail(
                err, FP8Q_E_FORMAT, "scale-value",
                "tensor \"%s\": scale %llu is %g, expected a finite value of at least 0",
                fp8q_show(&shown, w->scale_from->name), (unsigned long long)i, (double)scale);
        has_zero |= scale == 0;
        largest = scale > largest ? scale : largest;
    }
    w->has_zero_scale = has_zero;
    w->largest_scale = largest;
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

    /* Stacked matrices are taken as one of all their rows.  The header's check of sizes, from the
     * left, has shown that the product does not wrap.  */
    w->n_cols = t->shape[t->ndim - 1];
    w->matrix_rows = t->shape[t->ndim - 2];
    w->n_rows = t->ndim == 3 ? t->shape[0] * t->shape[1] : t->shape[0];
    if (t->n_elems == 0)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "empty-tensor", "tensor \"%s\" is empty",
                         fp8q_show(&shown, t->name));

    if (fp8q_is_fp8(t->dtype))
        return read_scales(w, err);
    if (fp8q_float_of(t->dtype, &w->from))
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "dtype",
                     "tensor \"%s\": expected BF16, F16, F32 or FP8, found %s",
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

const float *fp8q_weights_row_scales(const struct fp8q_weights *w, uint64_t row)
{
    const struct fp8q_scale_layout *l = &w->layout;

    uint64_t matrix = row / w->matrix_rows, r = row % w->matrix_rows / l->block_rows;
    return w->scales + matrix * l->matrix_scales + r * l->grid_cols;
}

float fp8q_weights_scale(const struct fp8q_weights *w, uint64_t row, uint64_t col)
{
    if (w->scaling == FP8Q_SCALING_NONE)
        return 1.0f;
    return fp8q_weights_row_scales(w, row)[col / w->layout.block_cols];
}

uint64_t fp8q_weights_run(const struct fp8q_weights *w, uint64_t col)
{
    if (w->scaling == FP8Q_SCALING_NONE)
        return w->n_cols - col;
    return fp8q_min_u64(w->layout.block_cols - col % w->layout.block_cols, w->n_cols - col);
}

/* ---- values ---------------------------------------------------------------------------------- */

static float largest_value(enum fp8q_dtype dtype)
{
    switch (dtype) {
    case FP8Q_F8_E4M3:
        return FP8Q_E4M3_MAX;
    case FP8Q_F8_E4M3FNUZ:
        return 240.0f;
    default:
        return 57344.0f;
    }
}

/* @n elements of one scale.  */
static void decode_run(const struct fp8q_weights *w, const struct fp8q_kernel *kernel,
                       const uint8_t *codes, size_t n, float scale, enum fp8q_float to, void *out)
{
    if (w->tensor->dtype == FP8Q_F8_E4M3) {
        kernel->decode[to](out, codes, n, scale);
        return;
    }

    /* Rare formats go the plain way.  */
    for (size_t i = 0; i < n; i++) {
        float value = w->values[codes[i]] * scale;
        uint16_t half = to == FP8Q_FLOAT_F16 ? fp8q_f16_from_f32(value) : fp8q_bf16_from_f32(value);
        if (to == FP8Q_FLOAT_F32)
            memcpy((char *)out + 4 * i, &value, sizeof(value));
        else
            memcpy((char *)out + 2 * i, &half, sizeof(half));
    }
}

/* A block that was all zeros may have a scale of zero; nothing else can be meant by one.  */
static int check_zero_scale(const struct fp8q_weights *w, const uint8_t *codes, size_t n,
                            uint64_t row, uint64_t col, struct fp8q_error *err)
{
    struct fp8q_shown name, scale;

    for (size_t i = 0; i < n; i++) {
        if ((codes[i] & 0x7F) != 0)
            return fp8q_fail(
                err, FP8Q_E_FORMAT, "scale-zero",
                "tensor \"%s\": the scale of [%llu, %llu] in \"%s\" is 0, but the FP8 value there "
                "is 0x%02x; the scales are damaged or belong to another weight",
                fp8q_show(&name, w->tensor->name), (unsigned long long)row,
                (unsigned long long)(col + i), fp8q_show(&scale, w->scale_from->name), codes[i]);
    }
    return FP8Q_OK;
}

static int check_overflow(const struct fp8q_weights *w, const uint8_t *codes, size_t n, float scale,
                          enum fp8q_float to, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    for (size_t i = 0; i < n; i++) {
        float value = w->values[codes[i]], product = value * scale;
        if (to == FP8Q_FLOAT_BF16)
            product = fp8q_bf16_value(fp8q_bf16_from_f32(product));
        if (isinf(product) && isfinite(value))
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "value-overflow",
                             "tensor \"%s\": %g with the scale %g does not fit %s%s",
                             fp8q_show(&shown, w->tensor->name), (double)value, (double)scale,
                             to == FP8Q_FLOAT_BF16 ? "BF16" : "F32",
                             to == FP8Q_FLOAT_BF16 ? "; --dtype f32 may hold it" : "");
    }
    return FP8Q_OK;
}

int fp8q_weights_decode(const struct fp8q_weights *w, const struct fp8q_kernel *kernel,
                        const struct fp8q_tile *tile, const uint8_t *codes, enum fp8q_float to,
                        void *out, struct fp8q_error *err)
{
    size_t size = to == FP8Q_FLOAT_F32 ? 4 : 2;
    /* Beyond this product something may round to infinity in BF16; F32 ends a little later.  */
    double largest = (double)w->largest_scale * (double)largest_value(w->tensor->dtype);
    bool may_overflow = largest > 0x1.FEp127 && to != FP8Q_FLOAT_F16;

    for (uint64_t r = 0; r < tile->n_rows; r++)
        for (uint64_t c = 0, n; c < tile->n_cols; c += n) {
            uint64_t row = tile->row + r, col = tile->col + c;
            size_t at = (size_t)(r * tile->n_cols + c);
            float scale = fp8q_weights_scale(w, row, col);
            n = fp8q_min_u64(fp8q_weights_run(w, col), tile->n_cols - c);

            if (w->has_zero_scale && scale == 0)
                FP8Q_TRY(check_zero_scale(w, codes + at, (size_t)n, row, col, err));
            if (may_overflow)
                FP8Q_TRY(check_overflow(w, codes + at, (size_t)n, scale, to, err));
            decode_run(w, kernel, codes + at, (size_t)n, scale, to, (char *)out + at * size);
        }
    return FP8Q_OK;
}

int fp8q_weights_read_codes(const struct fp8q_weights *w, uint64_t row, uint64_t n_rows,
                            uint8_t *codes_out, struct fp8q_error *err)
{
    uint64_t n = n_rows * w->n_cols;
    FP8Q_TRY(fp8q_ckpt_read(w->ckpt, w->tensor, row * w->n_cols, codes_out, (size_t)n, err));

    for (uint64_t r = 0; w->has_zero_scale && r < n_rows; r++)
        for (uint64_t col = 0, run; col < w->n_cols; col += run) {
            run = fp8q_weights_run(w, col);
            if (fp8q_weights_scale(w, row + r, col) == 0)
                FP8Q_TRY(check_zero_scale(w, codes_out + r * w->n_cols + col, (size_t)run, row + r,
                                          col, err));
        }
    return FP8Q_OK;
}

int fp8q_weights_read_tile(const struct fp8q_weights *w, const struct fp8q_kernel *kernel,
                           const struct fp8q_tile *tile, void *raw, float *out,
                           struct fp8q_error *err)
{
    uint64_t size = fp8q_dtype_bits(w->tensor->dtype) / 8;
    /* Whole rows are one piece of the file.  */
    uint64_t pieces = tile->n_cols == w->n_cols ? 1 : tile->n_rows;
    size_t n = (size_t)(tile->n_rows * tile->n_cols), bytes = n / (size_t)pieces * (size_t)size;

    for (uint64_t i = 0; i < pieces; i++)
        FP8Q_TRY(fp8q_ckpt_read(w->ckpt, w->tensor,
                                ((tile->row + i) * w->n_cols + tile->col) * size,
                                (char *)raw + i * bytes, bytes, err));
    if (w->scaling != FP8Q_SCALING_NONE)
        return fp8q_weights_decode(w, kernel, tile, raw, FP8Q_FLOAT_F32, out, err);
    kernel->to_f32[w->from](out, raw, n);
    return FP8Q_OK;
}

int fp8q_weights_read(const struct fp8q_weights *w, const struct fp8q_kernel *kernel, uint64_t row,
                      uint64_t n_rows, void *raw, float *out, struct fp8q_error *err)
{
    const struct fp8q_tile tile = {row, n_rows, 0, w->n_cols};
    return fp8q_weights_read_tile(w, kernel, &tile, raw, out, err);
}

/* The largest finite value of a half, for messages.  */
static double largest_half(enum fp8q_dtype to)
{
    return to == FP8Q_F16 ? 65504 : 0x1.FEp127;
}

int fp8q_store_floats(const float *values, size_t n, enum fp8q_dtype to, char *out,
                      const char *name, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    uint16_t infinity = to == FP8Q_F16 ? 0x7C00 : 0x7F80;

    if (to == FP8Q_F32) {
        memcpy(out, values, n * sizeof(float));
        return FP8Q_OK;
    }

    for (size_t i = 0; i < n; i++) {
        uint16_t bits =
            to == FP8Q_F16 ? fp8q_f16_from_f32(values[i]) : fp8q_bf16_from_f32(values[i]);
        /* BF16 keeps an infinity that was one before; in F16 it is refused with the rest.  */
        if ((bits & 0x7FFF) == infinity && (to == FP8Q_F16 || isfinite(values[i])))
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED,
                             to == FP8Q_F16 ? "f16-overflow" : "bf16-overflow",
                             "tensor \"%s\": the value %g does not fit %s (largest %g); use "
                             "--dtype %s",
                             fp8q_show(&shown, name), (double)values[i], fp8q_dtype_name(to),
                             largest_half(to), to == FP8Q_F16 ? "bf16" : "f32");
        memcpy(out + 2 * i, &bits, 2);
    }
    return FP8Q_OK;
}
