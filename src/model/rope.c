/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.c - the rotary embeddings of the supported families, as transformers' modeling_rope_utils
 * defines them, with its F32 arithmetic (a frequency's last bit times position 4,000 shows in a
 * logit).
 */
#include "model/rope.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

/* theta^(2i/dim), as torch computes it: exponent and power in F32.  */
static float power(double theta, uint32_t i, uint32_t dim)
{
    return (float)pow(theta, (double)((float)(2 * i) / (float)dim));
}

static void plain(double theta, double factor, uint32_t dim, float *inv_freq)
{
    for (uint32_t i = 0; i < dim / 2; i++)
        inv_freq[i] = 1.0f / power(theta, i, dim) / (float)factor;
}

static double yarn_scale(double factor, double mscale)
{
    return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static double yarn_dim(double rotations, uint32_t dim, double theta, double positions)
{
    return dim * log(positions / (rotations * 2 * PI)) / (2 * log(theta));
}

static void yarn(struct fp8q_rope *r, const struct fp8q_json *p, uint32_t dim, double original)
{
    double attention = fp8q_json_number(fp8q_json_get(p, "attention_factor"), 0);
    double mscale = fp8q_json_number(fp8q_json_get(p, "mscale"), 0);
    double mscale_all = fp8q_json_number(fp8q_json_get(p, "mscale_all_dim"), 0);
    double fast = fp8q_json_number(fp8q_json_get(p, "beta_fast"), 32);
    double slow = fp8q_json_number(fp8q_json_get(p, "beta_slow"), 1);
    if (attention == 0)
        attention = mscale != 0 && mscale_all != 0
                        ? yarn_scale(r->factor, mscale) / yarn_scale(r->factor, mscale_all)
                        : yarn_scale(r->factor, 1);
    r->attention_scaling = (float)attention;
    double low = yarn_dim(fast != 0 ? fast : 32, dim, r->theta, original);
    double high = yarn_dim(slow != 0 ? slow : 1, dim, r->theta, original);
    if (fp8q_json_bool(fp8q_json_get(p, "truncate"), true)) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < dim - 1 ? high : dim - 1;
    if (low == high)
        high += 0.001;
    for (uint32_t i = 0; i < dim / 2; i++) {
        float freq = power(r->theta, i, dim);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep = 1.0f - ramp;
        r->inv_freq[i] = 1.0f / ((float)r->factor * freq) * (1.0f - keep) + 1.0f / freq * keep;
    }
}

/* Long waves are stretched by the factor, short ones stay, those between are blended.  */
static int llama3(struct fp8q_rope *r, const struct fp8q_json *p, uint32_t dim, double original,
                  struct fp8q_error *err)
{
    double low = fp8q_json_number(fp8q_json_get(p, "low_freq_factor"), 0);
    double high = fp8q_json_number(fp8q_json_get(p, "high_freq_factor"), 0);
    if (!(low > 0 && high > low))
        return fp8q_fail(
            err, FP8Q_E_FORMAT, "config",
            "config.json: rope type llama3 needs 0 < low_freq_factor < high_freq_factor");
    for (uint32_t i = 0; i < dim / 2; i++) {
        float freq = r->inv_freq[i];
        float wavelength = (float)(2 * PI) / freq;
        if (wavelength > (float)(original / low)) {
            r->inv_freq[i] = freq / (float)r->factor;
        } else if (wavelength >= (float)(original / high)) {
            float smooth = ((float)original / wavelength - (float)low) / (float)(high - low);
            r->inv_freq[i] = (1.0f - smooth) * (freq / (float)r->factor) + smooth * freq;
        }
    }
    return FP8Q_OK;
}

static int read_sections(struct fp8q_rope *r, const struct fp8q_json *p, uint32_t head_dim,
                         struct fp8q_error *err)
{
    const struct fp8q_json *sections = fp8q_json_get(p, "mrope_section");
    uint64_t sum = 0;
    unsigned n = 0;
    static const uint32_t published[3] = {16, 24, 24};
    if (!sections)
        memcpy(r->sections, published, sizeof(published));
    for (const struct fp8q_json *s = fp8q_json_first(sections); s; s = fp8q_json_next(s), n++) {
        uint64_t size;
        if (n == 3 || !fp8q_json_uint(s, &size) || size > head_dim)
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "rope",
                             "config.json: \"mrope_section\" must be three sizes");
        r->sections[n] = (uint32_t)size;
    }
    for (n = 0; n < 3; n++)
        sum += r->sections[n];
    if (sum != head_dim / 2)
        return fp8q_fail(
            err, FP8Q_E_FORMAT, "config",
            "config.json: \"mrope_section\" adds up to %llu, expected half of the head's %u",
            (unsigned long long)sum, head_dim);
    return FP8Q_OK;
}

static int read_kind(struct fp8q_rope *r, const struct fp8q_json *p, bool mrope,
                     struct fp8q_error *err)
{
    static const char *const names[] = {"default", "linear", "dynamic", "yarn", "llama3"};
    struct fp8q_shown shown;
    const char *type = fp8q_json_string(fp8q_json_get(p, "rope_type"), NULL);
    if (!type)
        type = fp8q_json_string(fp8q_json_get(p, "type"), "default");
    if (mrope && strcmp(type, "mrope") == 0)
        type = "default";
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(type, names[i]) == 0) {
            r->kind = (enum fp8q_rope_kind)i;
            return FP8Q_OK;
        }
    return fp8q_fail(
        err, FP8Q_E_UNSUPPORTED, "rope",
        "config.json: rope type \"%s\" is not computed; known are default, linear, dynamic, "
        "yarn and llama3",
        fp8q_show(&shown, type));
}

int fp8q_rope_read(struct fp8q_rope *rope_out, const struct fp8q_json *config, uint32_t head_dim,
                   double theta, bool mrope, struct fp8q_error *err)
{
    struct fp8q_rope *r = rope_out;
    const struct fp8q_json *p = fp8q_json_get(config, "rope_scaling");
    if (!fp8q_json_is_object(p))
        p = fp8q_json_get(config, "rope_parameters");
    theta = fp8q_json_number(fp8q_json_get(config, "rope_theta"), theta);
    r->theta = fp8q_json_number(fp8q_json_get(p, "rope_theta"), theta);
    r->attention_scaling = 1.0f;
    FP8Q_TRY(read_kind(r, p, mrope, err));
    double partial =
        fp8q_json_number(fp8q_json_get(p, "partial_rotary_factor"),
                         fp8q_json_number(fp8q_json_get(config, "partial_rotary_factor"), 1));
    if (partial != 1)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "rope",
                         "config.json: \"partial_rotary_factor\" of %g is not computed", partial);
    uint64_t positions = 0, original;
    if (!fp8q_json_uint(fp8q_json_get(config, "max_position_embeddings"), &positions) ||
        positions == 0)
        positions = 2048;
    if (!fp8q_json_uint(fp8q_json_get(config, "original_max_position_embeddings"), &original) &&
        !fp8q_json_uint(fp8q_json_get(p, "original_max_position_embeddings"), &original))
        original = positions;
    r->max_positions = positions;
    r->factor = fp8q_json_number(fp8q_json_get(p, "factor"), 0);
    if (r->factor == 0 && r->kind == FP8Q_ROPE_YARN && original > 0)
        r->factor = (double)positions / (double)original;
    if (!(r->theta > 1 && r->theta < 1e30) || original == 0 ||
        (r->kind != FP8Q_ROPE_DEFAULT && !(r->factor >= 1 && r->factor < 1e6)) ||
        (r->kind == FP8Q_ROPE_DYNAMIC && head_dim < 4))
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: rotary embedding with base %g and factor %g", r->theta,
                         r->factor);
    plain(r->theta, r->kind == FP8Q_ROPE_LINEAR ? r->factor : 1.0, head_dim, r->inv_freq);
    if (r->kind == FP8Q_ROPE_YARN)
        yarn(r, p, head_dim, (double)original);
    if (r->kind == FP8Q_ROPE_LLAMA3)
        FP8Q_TRY(llama3(r, p, head_dim, (double)original, err));
    return mrope ? read_sections(r, p, head_dim, err) : FP8Q_OK;
}

void fp8q_rope_frequencies(const struct fp8q_model *model, uint64_t max_position,
                           float inv_freq_out[FP8Q_MAX_HEAD_DIM / 2])
{
    const struct fp8q_rope *r = &model->rope;
    double dim = model->head_dim, length = (double)max_position + 1, max = (double)r->max_positions;
    if (r->kind == FP8Q_ROPE_DYNAMIC && length > max) {
        double stretch = r->factor * length / max - (r->factor - 1);
        plain(r->theta * pow(stretch, dim / (dim - 2)), 1.0, model->head_dim, inv_freq_out);
    } else {
        memcpy(inv_freq_out, r->inv_freq, model->head_dim / 2 * sizeof(float));
    }
}

void fp8q_rope_table(const struct fp8q_model *model, const float *inv_freq,
                     const int64_t *positions, unsigned n_rows, size_t stride, size_t n_tokens,
                     float *cos_out, float *sin_out)
{
    const struct fp8q_rope *r = &model->rope;
    uint32_t half = model->head_dim / 2;
    for (size_t t = 0; t < n_tokens; t++)
        for (uint32_t i = 0; i < half; i++) {
            unsigned row = n_rows < 3 || i < r->sections[0]      ? 0
                           : i < r->sections[0] + r->sections[1] ? 1
                                                                 : 2;
            float angle = inv_freq[i] * (float)positions[row * stride + t];
            cos_out[t * half + i] = cosf(angle) * r->attention_scaling;
            sin_out[t * half + i] = sinf(angle) * r->attention_scaling;
        }
}
