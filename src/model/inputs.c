/* SPDX-License-Identifier: Apache-2.0
 *
 * inputs.c - reads, checks and writes samples.
 */
#include "model/inputs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/path.h"
#include "base/utf8.h"

const char *const fp8q_input_names[FP8Q_N_INPUTS] = {"input_ids",  "inputs_embeds", "position_ids",
                                                     "loss_mask",  "labels",        "modality",
                                                     "prefix_len", "category",      "deepstack"};

const char *const fp8q_modality_names[FP8Q_MODALITIES] = {"text",       "image",      "action",
                                                          "modality 3", "modality 4", "modality 5",
                                                          "modality 6", "modality 7"};

/* ---- names --------------------------------------------------------------------------------- */

/* "12.input_ids" -> 12 and the rest; false if there is no number.  */
static bool split_name(const char *name, uint64_t *index_out, const char **rest_out)
{
    uint64_t value = 0;
    const char *p = name;
    /* Eight digits are enough, and cannot overflow.  */
    for (; *p >= '0' && *p <= '9' && value < 100000000; p++)
        value = value * 10 + (uint64_t)(*p - '0');

    *index_out = value;
    *rest_out = p + 1;
    return p != name && *p == '.' && (name[0] != '0' || p == name + 1);
}

/* Which input a name behind "i." is, or -1; *@layer_out: K of "deepstack.K".  */
static int field_of(const char *rest, size_t *layer_out)
{
    size_t n = strlen(fp8q_input_names[FP8Q_INPUT_DEEPSTACK]);
    bool deep = strncmp(rest, fp8q_input_names[FP8Q_INPUT_DEEPSTACK], n) == 0;
    *layer_out = 0;
    if (deep && rest[n] == '.' && rest[n + 1] >= '0' && rest[n + 1] < '0' + FP8Q_MAX_DEEPSTACK &&
        rest[n + 2] == 0) {
        *layer_out = (size_t)(rest[n + 1] - '0');
        return FP8Q_INPUT_DEEPSTACK;
    }

    for (int i = 0; i < FP8Q_INPUT_DEEPSTACK; i++)
        if (strcmp(rest, fp8q_input_names[i]) == 0)
            return i;
    return -1;
}

static int count_samples(const struct fp8q_ckpt *file, size_t *n_out,
                         struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    uint64_t max = 0, index;
    size_t layer;
    const char *rest;
    struct fp8q_shown shown;
    bool any = false;

    for (size_t i = 0; i < file->n_tensors; i++) {
        const char *name = file->tensors[i].name;

        /* Numbers may have gaps in any order here; what is missing shows when the samples are
         * read.  */
        if (split_name(name, &index, &rest) && field_of(rest, &layer) >= 0) {
            max = index > max ? index : max;
            any = true;
            continue;
        }
        if (split_name(name, &index, &rest) &&
            (strcmp(rest, "visual_pos") == 0 || strncmp(rest, "deepstack", 9) == 0))
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "inputs",
                             "%s: \"%s\" asks for a forward pass that is not computed here",
                             file->path, fp8q_show(&shown, name));

        FP8Q_TRY(fp8q_warn(warnings, err, "inputs-unknown", "%s: tensor \"%s\" is not read",
                           file->path, fp8q_show(&shown, name)));
    }

    if (!any)
        return fp8q_fail(err, FP8Q_E_FORMAT, "inputs",
                         "%s: no sample (\"0.input_ids\" or \"0.inputs_embeds\")", file->path);
    /* Every sample has a tensor at least, so a larger number is a hole or a joke.  */
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

/* Rows as wide as the network, into *@out.  */
static int read_embeds(const struct fp8q_ckpt *file, const struct fp8q_tensor *t,
                       struct fp8q_inputs *inputs, float **out, struct fp8q_error *err)
{
    if (t->ndim != 2)
        return bad_tensor(file, t, "[tokens, hidden]", err);
    if (inputs->hidden && inputs->hidden != t->shape[1])
        return bad_tensor(file, t, "the width of the other samples", err);

    /* All samples go through one network.  */
    inputs->hidden = t->shape[1];
    *out = fp8q_array(t->n_elems, sizeof(**out));
    if (!*out)
        return fp8q_fail_nomem(err);
    return fp8q_read_floats(file, t, fp8q_kernel_select(NULL), *out, err);
}

static int read_prefix(const struct fp8q_ckpt *file, const struct fp8q_tensor *t,
                       struct fp8q_sample *s, struct fp8q_error *err)
{
    int64_t value = 0;
    int32_t narrow = 0;
    bool wide = t->dtype == FP8Q_I64;
    if (t->n_elems != 1)
        return bad_tensor(file, t, "one number", err);
    if (!wide && t->dtype != FP8Q_I32)
        return bad_tensor(file, t, "I32 or I64", err);

    void *to = wide ? (void *)&value : (void *)&narrow;
    FP8Q_TRY(fp8q_ckpt_read(file, t, 0, to, (size_t)t->size_bytes, err));
    if (!wide)
        value = narrow;
    if (value < 0 || value > 1 << 24)
        return bad_tensor(file, t, "a number of tokens", err);
    s->prefix_len = (uint64_t)value;
    return FP8Q_OK;
}

/* A name that people will read in a table: one line of text.  */
static int read_category(const struct fp8q_ckpt *file, const struct fp8q_tensor *t,
                         struct fp8q_sample *s, struct fp8q_error *err)
{
    static const char expected[] = "1 to 63 bytes of UTF-8 without control characters, as U8";
    if (t->dtype != FP8Q_U8 || t->ndim != 1 || t->n_elems == 0 || t->n_elems >= sizeof(s->category))
        return bad_tensor(file, t, expected, err);

    FP8Q_TRY(fp8q_ckpt_read(file, t, 0, s->category, (size_t)t->size_bytes, err));
    s->category[t->n_elems] = 0;
    for (size_t i = 0; i < t->n_elems; i++)
        if ((unsigned char)s->category[i] < ' ' || s->category[i] == 0x7F)
            return bad_tensor(file, t, expected, err);
    return fp8q_utf8_is_valid(s->category) ? FP8Q_OK : bad_tensor(file, t, expected, err);
}

static int read_field(const struct fp8q_ckpt *file, const struct fp8q_tensor *t, const char *rest,
                      struct fp8q_inputs *inputs, struct fp8q_sample *s, struct fp8q_error *err)
{
    size_t layer;
    enum fp8q_input field = (enum fp8q_input)field_of(rest, &layer);
    bool wide = field == FP8Q_INPUT_EMBEDS || field == FP8Q_INPUT_DEEPSTACK;
    if (field == FP8Q_INPUT_PREFIX)
        return read_prefix(file, t, s, err);
    if (field == FP8Q_INPUT_CATEGORY)
        return read_category(file, t, s, err);

    /* All others have one entry a token, positions perhaps in three rows.  */
    uint32_t token_dim = field == FP8Q_INPUT_POSITIONS && t->ndim == 2 ? 1 : 0;
    if (t->ndim == 0 || (!wide && t->ndim != token_dim + 1) ||
        (token_dim == 1 && t->shape[0] != 3 && t->shape[0] != 1))
        return bad_tensor(file, t, "[tokens]", err);
    uint64_t n = t->shape[token_dim];
    if (n == 0)
        return bad_tensor(file, t, "at least one token", err);
    if (s->n_tokens != 0 && s->n_tokens != n)
        return bad_tensor(file, t, "as many tokens as the sample's other tensors", err);
    s->n_tokens = (size_t)n;

    switch (field) {
    case FP8Q_INPUT_IDS:
        return read_ints(file, t, &s->ids, err);
    case FP8Q_INPUT_EMBEDS:
        return read_embeds(file, t, inputs, &s->embeds, err);
    case FP8Q_INPUT_DEEPSTACK:
        return read_embeds(file, t, inputs, &s->deepstack[layer], err);
    case FP8Q_INPUT_POSITIONS:
        s->position_rows = token_dim == 1 ? (unsigned)t->shape[0] : 1;
        return read_ints(file, t, &s->positions, err);
    case FP8Q_INPUT_LOSS_MASK:
        return read_bytes(file, t, &s->loss_mask, err);
    case FP8Q_INPUT_LABELS:
        return read_ints(file, t, &s->labels, err);
    case FP8Q_INPUT_MODALITY:
        return read_bytes(file, t, &s->modality, err);
    case FP8Q_INPUT_PREFIX:
    case FP8Q_INPUT_CATEGORY:
    case FP8Q_N_INPUTS:
        break;
    }
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
        size_t layer;
        const char *rest;
        if (!split_name(file->tensors[i].name, &index, &rest) || field_of(rest, &layer) < 0)
            continue;
        FP8Q_TRY(read_field(file, &file->tensors[i], rest, inputs, &inputs->samples[index], err));
    }

    for (size_t i = 0; i < inputs->n_samples; i++) {
        const struct fp8q_sample *s = &inputs->samples[i];
        if (!s->ids && !s->embeds)
            return fp8q_fail(err, FP8Q_E_FORMAT, "inputs",
                             "%s: sample %zu has neither input_ids nor inputs_embeds", file->path,
                             i);
        if (s->prefix_len > s->n_tokens)
            return fp8q_fail(err, FP8Q_E_FORMAT, "inputs",
                             "%s: sample %zu: a prefix of %llu of %zu tokens", file->path, i,
                             (unsigned long long)s->prefix_len, s->n_tokens);
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
    return fp8q_inputs_finish(inputs, err);
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

static int copy_ids(const int64_t *const *ids, const size_t *n_ids, size_t n_samples,
                    struct fp8q_inputs *inputs, struct fp8q_error *err)
{
    if (n_samples == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "inputs", "there is no sample");
    inputs->samples = fp8q_array(n_samples, sizeof(*inputs->samples));
    if (!inputs->samples)
        return fp8q_fail_nomem(err);
    inputs->n_samples = n_samples;

    for (size_t i = 0; i < n_samples; i++) {
        struct fp8q_sample *s = &inputs->samples[i];
        if (n_ids[i] == 0)
            return fp8q_fail(err, FP8Q_E_ARG, "inputs", "sample %zu is empty", i);
        s->n_tokens = n_ids[i];
        s->ids = fp8q_array(n_ids[i], sizeof(*s->ids));
        if (!s->ids)
            return fp8q_fail_nomem(err);
        memcpy(s->ids, ids[i], n_ids[i] * sizeof(*s->ids));
    }
    return fp8q_inputs_finish(inputs, err);
}

int fp8q_inputs_from_ids(const int64_t *const *ids, const size_t *n_ids, size_t n_samples,
                         const char *dataset, struct fp8q_inputs *inputs_out,
                         struct fp8q_error *err)
{
    *inputs_out = (struct fp8q_inputs){0};
    snprintf(inputs_out->dataset, sizeof(inputs_out->dataset), "%.100s", dataset ? dataset : "");
    int status = copy_ids(ids, n_ids, n_samples, inputs_out, err);
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
    for (size_t k = 0; k < FP8Q_MAX_DEEPSTACK; k++)
        free(s->deepstack[k]);
    *s = (struct fp8q_sample){0};
}

int fp8q_inputs_truncate(struct fp8q_inputs *inputs, uint64_t n_samples, struct fp8q_error *err)
{
    for (size_t i = (size_t)n_samples; i < inputs->n_samples; i++)
        sample_reset(&inputs->samples[i]);
    if (n_samples < inputs->n_samples)
        inputs->n_samples = (size_t)n_samples;
    return fp8q_inputs_finish(inputs, err);
}

void fp8q_inputs_reset(struct fp8q_inputs *inputs)
{
    for (size_t i = 0; inputs->samples && i < inputs->n_samples; i++)
        sample_reset(&inputs->samples[i]);
    free(inputs->samples);
    *inputs = (struct fp8q_inputs){0};
}

/* ---- use ----------------------------------------------------------------------------------- */

/* A prefix that does not fit into a window is seen otherwise by every model that has both.  */
static int check_prefix(const struct fp8q_sample *s, size_t i, const struct fp8q_model *m,
                        struct fp8q_error *err)
{
    for (uint32_t layer = 0; s->prefix_len && layer < m->n_layers; layer++)
        if (m->window[layer] > 0 && m->window[layer] < s->n_tokens)
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "attention",
                             "sample %zu has a prefix, but layer %u of the %s has a sliding window "
                             "shorter than it",
                             i, layer, m->architecture);
    return FP8Q_OK;
}

/* Deepstack rows are for a network that was trained with them, and for layers that it has.  */
static int check_deepstack(const struct fp8q_sample *s, size_t i, const struct fp8q_model *m,
                           struct fp8q_error *err)
{
    for (size_t k = 0; k < FP8Q_MAX_DEEPSTACK; k++) {
        if (!s->deepstack[k])
            continue;
        if (strncmp(m->architecture, "qwen3_vl", 8) != 0 || k >= m->n_layers)
            return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                             "sample %zu has deepstack rows for layer %zu, but this is a %s of %u "
                             "layers",
                             i, k, m->architecture, m->n_layers);
        for (size_t t = 0; t < s->n_tokens * m->hidden; t++)
            if (!isfinite(s->deepstack[k][t]))
                return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                                 "sample %zu, token %llu: a deepstack value is NaN or infinite", i,
                                 (unsigned long long)(t / m->hidden));
    }
    return FP8Q_OK;
}

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

    if (s->positions && s->position_rows == 3 && m->ropes[0].sections[0] == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                         "sample %zu has three rows of positions, but a %s uses one", i,
                         m->architecture);

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
    /* Inputs are captured once and tried on many checkpoints.  */
    if (inputs->hidden && inputs->hidden != model->hidden)
        return fp8q_fail(err, FP8Q_E_ARG, "inputs",
                         "the embeddings are %llu wide, but the model's hidden size is %llu",
                         (unsigned long long)inputs->hidden, (unsigned long long)model->hidden);
    for (size_t i = 0; i < inputs->n_samples; i++) {
        FP8Q_TRY(check_prefix(&inputs->samples[i], i, model, err));
        FP8Q_TRY(check_sample(&inputs->samples[i], i, model, err));
        FP8Q_TRY(check_deepstack(&inputs->samples[i], i, model, err));
    }
    return FP8Q_OK;
}

int64_t fp8q_sample_target(const struct fp8q_sample *s, size_t t)
{
    if (t + 1 >= s->n_tokens)
        return -1;
    /* Captured runs know their labels; of plain text the next token is one.  */
    if (s->labels)
        return s->labels[t + 1];
    return s->ids ? s->ids[t + 1] : -1;
}

bool fp8q_sample_scored(const struct fp8q_sample *s, size_t t)
{
    if (t + 1 >= s->n_tokens || t + 1 < s->prefix_len) /* a prefix sees its own targets */
        return false;
    return !s->loss_mask || s->loss_mask[t + 1] != 0;
}
