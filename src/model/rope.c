/* SPDX-License-Identifier: Apache-2.0
 *
 * rope.c - the rotary embeddings of the supported architectures, as transformers' modeling_rope_utils
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
    /* One factor for all waves.  */
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

/* Waves that turn often within the trained length stay, those that turn rarely are stretched by the
 * factor, and a ramp leads from the first to the second.  */
static void yarn(struct fp8q_rope *r, const struct fp8q_json *p, double original)
{
    uint32_t dim = r->dim;
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

    /* Frequencies between the two turn neither often nor rarely; rounded outwards by default.  */
    double low = yarn_dim(fast != 0 ? fast : 32, dim, r->theta, original);
    double high = yarn_dim(slow != 0 ? slow : 1, dim, r->theta, original);
    if (fp8q_json_bool(fp8q_json_get(p, "truncate"), true)) {
        low = floor(low);
        high = ceil(high);
    }
    low = low > 0 ? low : 0;
    high = high < dim - 1 ? high : dim - 1;
    if (low == high)
        high += 0.001; /* no division by zero below */

    for (uint32_t i = 0; i < dim / 2; i++) {
        float freq = power(r->theta, i, dim);
        float ramp = ((float)i - (float)low) / (float)(high - low);
        ramp = fminf(fmaxf(ramp, 0), 1);
        float keep = 1.0f - ramp;
        r->inv_freq[i] = 1.0f / ((float)r->factor * freq) * (1.0f - keep) + 1.0f / freq * keep;
    }
}

/* Long waves are stretched by the factor, short ones stay, those between are blended.  */
static int llama3(struct fp8q_rope *r, const struct fp8q_json *p, double original,
                  struct fp8q_error *err)
{
    double low = fp8q_json_number(fp8q_json_get(p, "low_freq_factor"), 0);
    double high = fp8q_json_number(fp8q_json_get(p, "high_freq_factor"), 0);

    if (!(low > 0 && high > low))
        return fp8q_fail(
            err, FP8Q_E_FORMAT, "config",
            "config.json: rope type llama3 needs 0 < low_freq_factor < high_freq_factor");

    for (uint32_t i = 0; i < r->dim / 2; i++) {
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

/* Each frequency has a factor of its own: one list up to the trained length, one beyond it.  */
static int read_factors(const struct fp8q_rope *r, const struct fp8q_json *p, const char *key,
                        float *inv_freq, struct fp8q_error *err)
{
    const struct fp8q_json *list = fp8q_json_get(p, key), *item = fp8q_json_first(list);
    if (!fp8q_json_is_array(list) || fp8q_json_count(list) != r->dim / 2)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: \"%s\" of rope type longrope must be a list of %u factors",
                         key, r->dim / 2);

    for (uint32_t i = 0; i < r->dim / 2; i++, item = fp8q_json_next(item)) {
        double factor = fp8q_json_number(item, 0);
        if (!(factor > 0 && factor < 1e6))
            return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                             "config.json: \"%s\" holds a factor that is not positive", key);
        inv_freq[i] = 1.0f / ((float)factor * power(r->theta, i, r->dim));
    }
    return FP8Q_OK;
}

static int longrope(struct fp8q_rope *r, const struct fp8q_json *p, double original,
                    struct fp8q_error *err)
{
    FP8Q_TRY(read_factors(r, p, "short_factor", r->inv_freq, err));
    FP8Q_TRY(read_factors(r, p, "long_factor", r->long_freq, err));

    double attention = fp8q_json_number(fp8q_json_get(p, "attention_factor"), 0);
    /* The paper's suggestion, which the config may overrule.  */
    if (attention == 0 && r->factor > 1 && original > 1)
        attention = sqrt(1 + log(r->factor) / log(original));

    r->attention_scaling = attention == 0 ? 1.0f : (float)attention;
    r->max_positions = (uint64_t)original;
    return FP8Q_OK;
}

static int read_sections(struct fp8q_rope *r, const struct fp8q_json *p, bool alternate,
                         struct fp8q_error *err)
{
    static const uint32_t runs[3] = {16, 24, 24}, turns[3] = {24, 20, 20};
    const struct fp8q_json *sections = fp8q_json_get(p, "mrope_section");
    unsigned n = 0;
    r->sections_alternate = alternate;
    if (!sections)
        memcpy(r->sections, alternate ? turns : runs, sizeof(runs));

    for (const struct fp8q_json *s = fp8q_json_first(sections); s; s = fp8q_json_next(s), n++) {
        uint64_t size;
        /* Time, height and width: no other division is known.  */
        if (n == 3 || !fp8q_json_uint(s, &size) || size > r->dim)
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "rope",
                             "config.json: \"mrope_section\" must be three sizes");
        r->sections[n] = (uint32_t)size;
    }

    uint64_t sum = (uint64_t)r->sections[0] + r->sections[1] + r->sections[2];
    if (sum != r->dim / 2)
        return fp8q_fail(
            err, FP8Q_E_FORMAT, "config",
            "config.json: \"mrope_section\" adds up to %llu, expected half of the head's %u",
            (unsigned long long)sum, r->dim);
    return FP8Q_OK;
}

static int read_kind(struct fp8q_rope *r, const struct fp8q_json *p, bool mrope,
                     struct fp8q_error *err)
{
    static const char *const names[] = {"default", "linear", "dynamic",
                                        "yarn",    "llama3", "longrope"};
    struct fp8q_shown shown;
    const char *type = fp8q_json_string(fp8q_json_get(p, "rope_type"), NULL);
    /* The key had another name before transformers 4.43.  */
    if (!type)
        type = fp8q_json_string(fp8q_json_get(p, "type"), "default");
    if (mrope && strcmp(type, "mrope") == 0)
        type = "default";
    if (strcmp(type, "su") == 0) /* Phi-3 before it had its name */
        type = "longrope";

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(type, names[i]) == 0) {
            r->kind = (enum fp8q_rope_kind)i;
            return FP8Q_OK;
        }
    return fp8q_fail(
        err, FP8Q_E_UNSUPPORTED, "rope",
        "config.json: rope type \"%s\" is not computed; known are default, linear, dynamic, "
        "yarn, llama3 and longrope",
        fp8q_show(&shown, type));
}

/* The object that holds the parameters; NULL where there is none.  */
static const struct fp8q_json *parameters(const struct fp8q_json *config,
                                          const struct fp8q_rope_how *how)
{
    const struct fp8q_json *p = fp8q_json_get(config, "rope_parameters");
    const struct fp8q_json *of_type = how->layer_type ? fp8q_json_get(p, how->layer_type) : NULL;
    if (fp8q_json_is_object(of_type))
        return of_type;
    if (how->unscaled)
        return NULL;

    const struct fp8q_json *scaling = fp8q_json_get(config, "rope_scaling");
    return fp8q_json_is_object(scaling) ? scaling : p;
}

/* Sizes and factors, and whether they make sense.  */
static int read_numbers(struct fp8q_rope *r, const struct fp8q_json *config,
                        const struct fp8q_json *p, const struct fp8q_rope_how *how,
                        uint64_t *original_out, struct fp8q_error *err)
{
    const char *key = how->theta_key ? how->theta_key : "rope_theta";
    double theta = fp8q_json_number(fp8q_json_get(config, key), how->theta);
    r->theta = fp8q_json_number(fp8q_json_get(p, "rope_theta"), theta);

    double partial = fp8q_json_number(fp8q_json_get(config, "partial_rotary_factor"), how->partial);
    partial = fp8q_json_number(fp8q_json_get(p, "partial_rotary_factor"), partial);
    r->dim = partial > 0 && partial <= 1 ? (uint32_t)(how->head_dim * partial) : 0;
    if (r->dim < 2 || r->dim % 2 != 0 || (how->whole && partial != 1))
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "rope",
                         "config.json: \"partial_rotary_factor\" of %g is not computed", partial);

    uint64_t positions = 0;
    if (!fp8q_json_uint(fp8q_json_get(config, "max_position_embeddings"), &positions) ||
        positions == 0)
        positions = 2048;
    if (!fp8q_json_uint(fp8q_json_get(config, "original_max_position_embeddings"), original_out) &&
        !fp8q_json_uint(fp8q_json_get(p, "original_max_position_embeddings"), original_out))
        *original_out = positions;
    r->max_positions = positions;

    r->factor = fp8q_json_number(fp8q_json_get(p, "factor"), 0);

    /* These two may leave the factor to the two lengths.  */
    bool by_length = r->kind == FP8Q_ROPE_YARN || r->kind == FP8Q_ROPE_LONGROPE;
    if (r->factor == 0 && by_length && *original_out > 0)
        r->factor = (double)positions / (double)*original_out;
    if (!(r->theta > 1 && r->theta < 1e30) || *original_out == 0 ||
        (r->kind != FP8Q_ROPE_DEFAULT && !(r->factor >= 1 && r->factor < 1e6)) ||
        (r->kind == FP8Q_ROPE_DYNAMIC && r->dim < 4))
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: rotary embedding with base %g and factor %g", r->theta,
                         r->factor);
    return FP8Q_OK;
}

int fp8q_rope_read(struct fp8q_rope *rope_out, const struct fp8q_json *config,
                   const struct fp8q_rope_how *how, struct fp8q_error *err)
{
    struct fp8q_rope *r = rope_out;
    const struct fp8q_json *p = parameters(config, how);
    uint64_t original;
    memset(r, 0, sizeof(*r)); /* padding too: it is compared */
    r->attention_scaling = r->score_scaling = 1.0f;
    r->interleaved = how->interleaved;

    FP8Q_TRY(read_kind(r, p, how->mrope, err));
    FP8Q_TRY(read_numbers(r, config, p, how, &original, err));

    double mscale_all = fp8q_json_number(fp8q_json_get(p, "mscale_all_dim"), 0);
    if (r->kind != FP8Q_ROPE_DEFAULT && mscale_all != 0)
        r->score_scaling = (float)pow(yarn_scale(r->factor, mscale_all), 2);

    plain(r->theta, r->kind == FP8Q_ROPE_LINEAR ? r->factor : 1.0, r->dim, r->inv_freq);
    if (r->kind == FP8Q_ROPE_YARN)
        yarn(r, p, (double)original);
    if (r->kind == FP8Q_ROPE_LLAMA3)
        FP8Q_TRY(llama3(r, p, (double)original, err));
    if (r->kind == FP8Q_ROPE_LONGROPE)
        FP8Q_TRY(longrope(r, p, (double)original, err));
    return how->mrope ? read_sections(r, p, how->alternate, err) : FP8Q_OK;
}

/* ---- use ----------------------------------------------------------------------------------- */

void fp8q_rope_frequencies(const struct fp8q_rope *r, uint64_t max_position,
                           float inv_freq_out[FP8Q_MAX_HEAD_DIM / 2])
{
    double dim = r->dim, length = (double)max_position + 1, max = (double)r->max_positions;
    if (r->kind == FP8Q_ROPE_DYNAMIC && length > max) {
        double stretch = r->factor * length / max - (r->factor - 1);
        plain(r->theta * pow(stretch, dim / (dim - 2)), 1.0, r->dim, inv_freq_out);
        return;
    }

    bool beyond = r->kind == FP8Q_ROPE_LONGROPE && length > max;
    memcpy(inv_freq_out, beyond ? r->long_freq : r->inv_freq, r->dim / 2 * sizeof(float));
}

/* Which row of positions frequency @i follows.  */
static unsigned row_of(const struct fp8q_rope *r, uint32_t i)
{
    if (r->sections_alternate) { /* t h w t h w ... as far as h and w have any, then t */
        unsigned row = i % 3;
        return row > 0 && i < r->sections[row] * 3 ? row : 0;
    }
    if (i < r->sections[0])
        return 0;
    return i < r->sections[0] + r->sections[1] ? 1 : 2;
}

void fp8q_rope_table(const struct fp8q_rope *r, const float *inv_freq,
                     const struct fp8q_positions *positions, float *cos_out, float *sin_out)
{
    uint32_t half = r->dim / 2;
    for (size_t t = 0; t < positions->n_tokens; t++)
        for (uint32_t i = 0; i < half; i++) {
            unsigned row = positions->rows < 3 ? 0 : row_of(r, i);
            float angle = inv_freq[i] * (float)positions->at[row * positions->n_tokens + t];
            /* By way of F64: what is left after rounding no longer depends on the C library.  */
            cos_out[t * half + i] = (float)cos((double)angle) * r->attention_scaling;
            sin_out[t * half + i] = (float)sin((double)angle) * r->attention_scaling;
        }
}
