/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs.c - reads, checks and writes samples.
 */
#include "model/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/fingerprint.h"
#include "base/file.h"
#include "base/path.h"
#include "base/crc.h"
#include "base/mem.h"

enum field { IDS, EMBEDS, POSITIONS, LOSS_MASK, LABELS, MODALITY, N_FIELDS };
static const char *const field_names[N_FIELDS] = {"input_ids", "inputs_embeds", "position_ids",
                                                  "loss_mask", "labels",        "modality"};

/* ---- names --------------------------------------------------------------------------------- */

/* "12.input_ids" -> 12 and the rest; false if there is no number.  */
static bool split_name(const char *name, uint64_t *index_out, const char **rest_out)
{
    uint64_t value = 0;
    const char *p = name;
    for (; *p >= '0' && *p <= '9' && value < 100000000; p++)
        value = value * 10 + (uint64_t)(*p - '0');
    *index_out = value;
    *rest_out = p + 1;
    return p != name && *p == '.' && (name[0] != '0' || p == name + 1);
}

static int field_of(const char *rest)
{
    for (int i = 0; i < N_FIELDS; i++)
        if (strcmp(rest, field_names[i]) == 0)
            return i;
    return -1;
}

static int count_samples(const struct fp8q_ckpt *file, size_t *n_out,
                         struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    uint64_t max = 0, index;
    const char *rest;
    struct fp8q_shown shown;
    bool any = false;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].name;
        if (split_name(name, &index, &rest) && field_of(rest) >= 0) {
            max = index > max ? index : max;
            any = true;
            continue;
        }
        if (split_name(name, &index, &rest) &&
            (strcmp(rest, "prefix_len") == 0 || strcmp(rest, "visual_pos") == 0 ||
             strncmp(rest, "deepstack", 9) == 0))
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "inputs",
                             "%s: \"%s\" asks for a forward pass that is not computed here",
                             file->path, fp8q_show(&shown, name));
        FP8Q_TRY(fp8q_warn(warnings, err, "inputs-unknown", "%s: tensor \"%s\" is not read",
                           file->path, fp8q_show(&shown, name)));
    }
    if (!any)
        return fp8q_fail(err, FP8Q_E_FORMAT, "inputs",
                         "%s: no sample (\"0.input_ids\" or \"0.inputs_embeds\")", file->path);
    if (max >= file->n_tensors)
        return fp8q_fail(err, FP8Q_E_FORMAT, "inputs",
                         "%s: samples are numbered up to %llu, but there are only %llu tensors",
                         file->path, (unsigned long long)max, (unsigned long long)file->n_tensors);
    *n_out = (size_t)max + 1;
    return FP8Q_OK;
}

/* ---- tensors ------------------------------------------------------------------------------- */

static int bad_tensor(const struct fp8q_ckpt *file, const struct fp8q_tensor *t,
                      const char *expected, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    return fp8q_fail(
        err, FP8Q_E_FORMAT, "inputs",
        "%s: tensor \"%s\": expected %s, found %s with %u dimensions and %llu elements", file->path,
        fp8q_show(&shown, t->name), expected, fp8q_dtype_name(t->dtype), t->ndim,
        (unsigned long long)t->n_elems);
}

static int read_ints(const struct fp8q_ckpt *file, const struct fp8q_tensor *t, int64_t **out,
                     struct fp8q_error *err)
{
    if (t->dtype != FP8Q_I64 && t->dtype != FP8Q_I32)
        return bad_tensor(file, t, "I32 or I64", err);
    *out = fp8q_array(t->n_elems, sizeof(**out));
    if (!*out)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(fp8q_ckpt_read(file, t, 0, *out, (size_t)t->size_bytes, err));
    if (t->dtype == FP8Q_I32) /* widened in place, from the end */
        for (size_t i = (size_t)t->n_elems; i-- > 0;) {
            int32_t value;
            memcpy(&value, (const char *)*out + i * sizeof(value), sizeof(value));
            (*out)[i] = value;
        }
    return FP8Q_OK;
}

static int read_bytes(const struct fp8q_ckpt *file, const struct fp8q_tensor *t, uint8_t **out,
                      struct fp8q_error *err)
{
    if (t->dtype != FP8Q_U8 && t->dtype != FP8Q_BOOL)
        return bad_tensor(file, t, "U8", err);
    *out = fp8q_array(t->n_elems, 1);
    if (!*out)
        return fp8q_fail_nomem(err);
    return fp8q_ckpt_read(file, t, 0, *out, (size_t)t->size_bytes, err);
}

static int read_embeds(const struct fp8q_ckpt *file, const struct fp8q_tensor *t,
                       struct fp8q_inputs *inputs, struct fp8q_sample *s, struct fp8q_error *err)
{
    if (t->ndim != 2)
        return bad_tensor(file, t, "[tokens, hidden]", err);
    if (inputs->hidden && inputs->hidden != t->shape[1])
        return bad_tensor(file, t, "the width of the other samples", err);
    inputs->hidden = t->shape[1];
    s->embeds = fp8q_array(t->n_elems, sizeof(*s->embeds));
    if (!s->embeds)
        return fp8q_fail_nomem(err);
    return fp8q_read_floats(file, t, fp8q_kernel_select(NULL), s->embeds, err);
}

static int read_field(const struct fp8q_ckpt *file, const struct fp8q_tensor *t, enum field field,
                      struct fp8q_inputs *inputs, struct fp8q_sample *s, struct fp8q_error *err)
{
    uint32_t token_dim = field == POSITIONS && t->ndim == 2 ? 1 : 0;
    if (t->ndim == 0 || (field != EMBEDS && t->ndim != token_dim + 1) ||
        (token_dim == 1 && t->shape[0] != 3 && t->shape[0] != 1))
        return bad_tensor(file, t, "[tokens]", err);
    uint64_t n = t->shape[token_dim];
    if (n == 0)
        return bad_tensor(file, t, "at least one token", err);
    if (s->n_tokens != 0 && s->n_tokens != n)
        return bad_tensor(file, t, "as many tokens as the sample's other tensors", err);
    s->n_tokens = (size_t)n;
    switch (field) {
    case IDS:
        return read_ints(file, t, &s->ids, err);
    case EMBEDS:
        return read_embeds(file, t, inputs, s, err);
    case POSITIONS:
        s->position_rows = token_dim == 1 ? (unsigned)t->shape[0] : 1;
        return read_ints(file, t, &s->positions, err);
    case LOSS_MASK:
        return read_bytes(file, t, &s->loss_mask, err);
    case LABELS:
        return read_ints(file, t, &s->labels, err);
    case MODALITY:
        return read_bytes(file, t, &s->modality, err);
    case N_FIELDS:
        break;
    }
    return FP8Q_OK;
}

/* ---- one sample's tensors in memory: for the fingerprint and for writing -------------------- */

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

static void add_part(struct part *parts, size_t *n, size_t sample, enum field field,
                     enum fp8q_dtype dtype, const void *data, uint64_t rows, uint64_t cols)
{
    if (!data)
        return;
    struct part *p = &parts[(*n)++];
    *p = (struct part){.dtype = dtype, .ndim = cols ? 2 : 1, .shape = {rows, cols}, .data = data};
    snprintf(p->name, sizeof(p->name), "%zu.%s", sample, field_names[field]);
    p->size = rows * (cols ? cols : 1) * (fp8q_dtype_bits(dtype) / 8);
}

/* All tensors of @inputs, sorted by name; free the result.  */
static struct part *list_parts(const struct fp8q_inputs *inputs, size_t *n_out)
{
    struct part *parts = fp8q_array((uint64_t)inputs->n_samples * N_FIELDS, sizeof(*parts));
    size_t n = 0;
    for (size_t i = 0; parts && i < inputs->n_samples; i++) {
        const struct fp8q_sample *s = &inputs->samples[i];
        uint64_t t = s->n_tokens;
        add_part(parts, &n, i, IDS, FP8Q_I64, s->ids, t, 0);
        add_part(parts, &n, i, EMBEDS, FP8Q_F32, s->embeds, t, inputs->hidden);
        add_part(parts, &n, i, POSITIONS, FP8Q_I64, s->positions, s->position_rows == 3 ? 3 : t,
                 s->position_rows == 3 ? t : 0);
        add_part(parts, &n, i, LOSS_MASK, FP8Q_U8, s->loss_mask, t, 0);
        add_part(parts, &n, i, LABELS, FP8Q_I64, s->labels, t, 0);
        add_part(parts, &n, i, MODALITY, FP8Q_U8, s->modality, t, 0);
    }
    if (parts)
        qsort(parts, n, sizeof(*parts), compare_parts);
    *n_out = n;
    return parts;
}

static int finish(struct fp8q_inputs *inputs, struct fp8q_error *err)
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

/* ---- reading ------------------------------------------------------------------------------- */

static int read_samples(const struct fp8q_ckpt *file, struct fp8q_inputs *inputs,
                        struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    FP8Q_TRY(count_samples(file, &inputs->n_samples, warnings, err));
    inputs->samples = fp8q_array(inputs->n_samples, sizeof(*inputs->samples));
    if (!inputs->samples)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < file->n_tensors; i++) {
        uint64_t index;
        const char *rest;
        if (!split_name(file->tensors[i].name, &index, &rest) || field_of(rest) < 0)
            continue;
        FP8Q_TRY(read_field(file, &file->tensors[i], (enum field)field_of(rest), inputs,
                            &inputs->samples[index], err));
    }
    for (size_t i = 0; i < inputs->n_samples; i++) {
        const struct fp8q_sample *s = &inputs->samples[i];
        if (!s->ids && !s->embeds)
            return fp8q_fail(err, FP8Q_E_FORMAT, "inputs",
                             "%s: sample %zu has neither input_ids nor inputs_embeds", file->path,
                             i);
        for (size_t t = 0; s->modality && t < s->n_tokens; t++)
            if (s->modality[t] >= FP8Q_MODALITIES)
                return fp8q_fail(err, FP8Q_E_FORMAT, "inputs",
                                 "%s: sample %zu, token %zu: modality %u, expected at most %d",
                                 file->path, i, t, s->modality[t], FP8Q_MODALITIES - 1);
    }
    const struct fp8q_st_header *header = &file->shards[0].header;
    snprintf(inputs->dataset, sizeof(inputs->dataset), "%s", fp8q_basename(file->path));
    for (size_t i = 0; i < header->n_metadata; i++)
        if (strcmp(header->metadata[i].key, "dataset") == 0)
            snprintf(inputs->dataset, sizeof(inputs->dataset), "%.100s", header->metadata[i].value);
    return finish(inputs, err);
}

int fp8q_inputs_open(const char *path, struct fp8q_inputs *inputs_out,
                     struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct fp8q_ckpt *file;
    *inputs_out = (struct fp8q_inputs){0};
    FP8Q_TRY(fp8q_ckpt_open(path, &file, warnings, err));
    int status = file->is_dir ? fp8q_fail(err, FP8Q_E_ARG, "inputs",
                                          "%s: expected one .safetensors file", path)
                              : read_samples(file, inputs_out, warnings, err);
    fp8q_ckpt_close(file);
    if (status != FP8Q_OK)
        fp8q_inputs_reset(inputs_out);
    return status;
}

int fp8q_inputs_from_ids(const int64_t *const *ids, const size_t *n_ids, size_t n_samples,
                         const char *dataset, struct fp8q_inputs *inputs_out,
                         struct fp8q_error *err)
{
    *inputs_out = (struct fp8q_inputs){.n_samples = n_samples};
    int status = FP8Q_OK;
    snprintf(inputs_out->dataset, sizeof(inputs_out->dataset), "%.100s", dataset ? dataset : "");
    inputs_out->samples = fp8q_array(n_samples, sizeof(*inputs_out->samples));
    if (!inputs_out->samples)
        status = fp8q_fail_nomem(err);
    for (size_t i = 0; status == FP8Q_OK && i < n_samples; i++) {
        struct fp8q_sample *s = &inputs_out->samples[i];
        if (n_ids[i] == 0) {
            status = fp8q_fail(err, FP8Q_E_ARG, "inputs", "sample %zu is empty", i);
            break;
        }
        s->n_tokens = n_ids[i];
        s->ids = fp8q_array(n_ids[i], sizeof(*s->ids));
        if (!s->ids)
            status = fp8q_fail_nomem(err);
        else
            memcpy(s->ids, ids[i], n_ids[i] * sizeof(*s->ids));
    }
    if (status == FP8Q_OK && n_samples == 0)
        status = fp8q_fail(err, FP8Q_E_ARG, "inputs", "there is no sample");
    if (status == FP8Q_OK)
        status = finish(inputs_out, err);
    if (status != FP8Q_OK)
        fp8q_inputs_reset(inputs_out);
    return status;
}

static void sample_reset(struct fp8q_sample *s)
{
    free(s->ids);
    free(s->embeds);
    free(s->positions);
    free(s->loss_mask);
    free(s->labels);
    free(s->modality);
    *s = (struct fp8q_sample){0};
}

int fp8q_inputs_truncate(struct fp8q_inputs *inputs, uint64_t n_samples, struct fp8q_error *err)
{
    for (size_t i = (size_t)n_samples; i < inputs->n_samples; i++)
        sample_reset(&inputs->samples[i]);
    if (n_samples < inputs->n_samples)
        inputs->n_samples = (size_t)n_samples;
    return finish(inputs, err);
}

void fp8q_inputs_reset(struct fp8q_inputs *inputs)
{
    for (size_t i = 0; inputs->samples && i < inputs->n_samples; i++)
        sample_reset(&inputs->samples[i]);
    free(inputs->samples);
    *inputs = (struct fp8q_inputs){0};
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
    for (size_t i = 0; i < n; i++)
        fp8q_text_add(out, parts[i].data, (size_t)parts[i].size);
    return status == FP8Q_OK ? fp8q_text_status(out, err) : status;
}

int fp8q_inputs_write(const struct fp8q_inputs *inputs, const char *path, struct fp8q_error *err)
{
    size_t n;
    struct fp8q_text out = {0};
    struct part *parts = list_parts(inputs, &n);
    if (!parts)
        return fp8q_fail_nomem(err);
    int status = emit_parts(inputs, parts, n, &out, err);
    if (status == FP8Q_OK)
        status = fp8q_write_file(path, out.data, out.len, err);
    fp8q_text_reset(&out);
    free(parts);
    return status;
}

/* ---- use ----------------------------------------------------------------------------------- */

static int check_sample(const struct fp8q_sample *s, size_t i, const struct fp8q_model *m,
                        struct fp8q_error *err)
{
    for (size_t t = 0; t < s->n_tokens; t++) {
        int64_t id = s->ids ? s->ids[t] : 0, label = s->labels ? s->labels[t] : -1;
        bool bad_id = id < 0 || (uint64_t)id >= m->vocab;
        if (bad_id || (label >= 0 && (uint64_t)label >= m->vocab))
            return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                             "sample %zu, token %zu: id %lld, but the vocabulary has %llu words", i,
                             t, (long long)(bad_id ? id : label), (unsigned long long)m->vocab);
    }
    for (size_t t = 0; s->positions && t < s->n_tokens * s->position_rows; t++)
        if (s->positions[t] < 0 || s->positions[t] >= 1 << 24)
            return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                             "sample %zu: position %lld, expected 0 to 16777215", i,
                             (long long)s->positions[t]);
    if (s->positions && s->position_rows == 3 && m->rope.sections[0] == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                         "sample %zu has three rows of positions, but a %s uses one", i, m->family);
    for (size_t t = 0; s->embeds && t < s->n_tokens * m->hidden; t++)
        if (!isfinite(s->embeds[t]))
            return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                             "sample %zu, token %llu: an embedding is NaN or infinite", i,
                             (unsigned long long)(t / m->hidden));
    return FP8Q_OK;
}

int fp8q_inputs_check(const struct fp8q_inputs *inputs, const struct fp8q_model *model,
                      struct fp8q_error *err)
{
    if (inputs->hidden && inputs->hidden != model->hidden)
        return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                         "the embeddings are %llu wide, but the model's hidden size is %llu",
                         (unsigned long long)inputs->hidden, (unsigned long long)model->hidden);
    for (size_t i = 0; i < inputs->n_samples; i++)
        FP8Q_TRY(check_sample(&inputs->samples[i], i, model, err));
    return FP8Q_OK;
}

int64_t fp8q_sample_target(const struct fp8q_sample *s, size_t t)
{
    if (t + 1 >= s->n_tokens)
        return -1;
    return s->labels ? s->labels[t + 1] : s->ids ? s->ids[t + 1] : -1;
}

bool fp8q_sample_scored(const struct fp8q_sample *s, size_t t)
{
    return t + 1 < s->n_tokens && (!s->loss_mask || s->loss_mask[t + 1] != 0);
}
