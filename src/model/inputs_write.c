/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs_write.c - samples as tensors in memory: for their fingerprint, and for a file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/file.h"
#include "base/mem.h"
#include "checkpoint/fingerprint.h"
#include "model/inputs.h"

struct part {
    char name[48];
    enum fp8q_dtype dtype;
    uint32_t ndim;
    uint64_t shape[2];
    const void *data;
    uint64_t size;
};

static int compare_parts(const void *a, const void *b)
{
    return strcmp(((const struct part *)a)->name, ((const struct part *)b)->name);
}

/* Parts as they are listed.  */
struct listing {
    struct part *parts;
    size_t n, sample;
};

/* [rows] or, where @cols is not 0, [rows, cols]; nothing for what a sample lacks.  */
static void add_part(struct listing *l, enum fp8q_input field, enum fp8q_dtype dtype,
                     const void *data, uint64_t rows, uint64_t cols)
{
    if (!data)
        return;
    struct part *p = &l->parts[l->n++];

    *p = (struct part){.dtype = dtype, .ndim = cols ? 2 : 1, .shape = {rows, cols}, .data = data};
    snprintf(p->name, sizeof(p->name), "%zu.%s", l->sample, fp8q_input_names[field]);
    p->size = rows * (cols ? cols : 1) * (fp8q_dtype_bits(dtype) / 8);
}

static void add_sample(struct listing *l, const struct fp8q_sample *s, uint64_t hidden)
{
    uint64_t t = s->n_tokens;
    bool three = s->position_rows == 3;
    add_part(l, FP8Q_INPUT_IDS, FP8Q_I64, s->ids, t, 0);
    add_part(l, FP8Q_INPUT_EMBEDS, FP8Q_F32, s->embeds, t, hidden);
    add_part(l, FP8Q_INPUT_POSITIONS, FP8Q_I64, s->positions, three ? 3 : t, three ? t : 0);
    add_part(l, FP8Q_INPUT_LOSS_MASK, FP8Q_U8, s->loss_mask, t, 0);
    add_part(l, FP8Q_INPUT_LABELS, FP8Q_I64, s->labels, t, 0);
    add_part(l, FP8Q_INPUT_MODALITY, FP8Q_U8, s->modality, t, 0);
    if (s->prefix_len)
        add_part(l, FP8Q_INPUT_PREFIX, FP8Q_I64, &s->prefix_len, 1, 0);
    if (s->category[0])
        add_part(l, FP8Q_INPUT_CATEGORY, FP8Q_U8, s->category, strlen(s->category), 0);

    /* Of these there may be several, so their names say which layer they follow.  */
    for (size_t k = 0; k < FP8Q_MAX_DEEPSTACK; k++) {
        size_t before = l->n;
        add_part(l, FP8Q_INPUT_DEEPSTACK, FP8Q_F32, s->deepstack[k], t, hidden);
        if (l->n > before)
            snprintf(l->parts[before].name, sizeof(l->parts[before].name), "%zu.%s.%zu", l->sample,
                     fp8q_input_names[FP8Q_INPUT_DEEPSTACK], k);
    }
}

/* All tensors of @inputs, sorted by name; free the result.  */
static struct part *list_parts(const struct fp8q_inputs *inputs, size_t *n_out)
{
    uint64_t most = (uint64_t)inputs->n_samples * (FP8Q_N_INPUTS + FP8Q_MAX_DEEPSTACK);
    struct listing l = {.parts = fp8q_array(most, sizeof(*l.parts))};
    *n_out = 0;
    if (!l.parts)
        return NULL;
    for (; l.sample < inputs->n_samples; l.sample++)
        add_sample(&l, &inputs->samples[l.sample], inputs->hidden);

    /* By name, so that the fingerprint does not depend on the order in a file.  */
    qsort(l.parts, l.n, sizeof(*l.parts), compare_parts);
    *n_out = l.n;
    return l.parts;
}

int fp8q_inputs_finish(struct fp8q_inputs *inputs, struct fp8q_error *err)
{
    size_t n;
    struct part *parts = list_parts(inputs, &n);
    if (!parts)
        return fp8q_fail_nomem(err);

    inputs->fingerprint = 0;
    for (size_t i = 0; i < n; i++)
        inputs->fingerprint = fp8q_fingerprint_add(
            inputs->fingerprint, parts[i].name, parts[i].dtype, parts[i].shape, parts[i].ndim,
            fp8q_crc32(0, parts[i].data, (size_t)parts[i].size));
    free(parts);

    inputs->n_tokens = 0;
    for (size_t i = 0; i < inputs->n_samples; i++)
        inputs->n_tokens += inputs->samples[i].n_tokens;
    return FP8Q_OK;
}

/* ---- writing ------------------------------------------------------------------------------- */

static int emit_parts(const struct fp8q_inputs *inputs, const struct part *parts, size_t n,
                      struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_st_tensor *tensors = fp8q_array(n, sizeof(*tensors));
    if (!tensors)
        return fp8q_fail_nomem(err);

    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        tensors[i] = (struct fp8q_st_tensor){.name = parts[i].name,
                                             .shape = parts[i].shape,
                                             .begin = at,
                                             .end = at + parts[i].size,
                                             .ndim = parts[i].ndim,
                                             .dtype = parts[i].dtype};
        at += parts[i].size;
    }

    const char *format = "fp8q-inputs/1";
    struct fp8q_st_pair metadata[2] = {{"format", format, 6, strlen(format)},
                                       {"dataset", inputs->dataset, 7, strlen(inputs->dataset)}};

    int status = fp8q_st_emit(tensors, n, metadata, 2, 0, out, err);
    free(tensors);
    FP8Q_TRY(status);

    for (size_t i = 0; i < n; i++)
        fp8q_text_add(out, parts[i].data, (size_t)parts[i].size);
    return fp8q_text_status(out, err);
}

static int write_parts(const struct fp8q_inputs *inputs, const struct part *parts, size_t n,
                       const char *path, struct fp8q_text *out, struct fp8q_error *err)
{
    FP8Q_TRY(emit_parts(inputs, parts, n, out, err));
    return fp8q_write_file(path, out->data, out->len, err);
}

int fp8q_inputs_write(const struct fp8q_inputs *inputs, const char *path, struct fp8q_error *err)
{
    size_t n;
    struct fp8q_text out = {0};
    struct part *parts = list_parts(inputs, &n);
    if (!parts)
        return fp8q_fail_nomem(err);

    int status = write_parts(inputs, parts, n, path, &out, err);
    fp8q_text_reset(&out);
    free(parts);
    return status;
}
