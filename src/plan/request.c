/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c - options to JSON and back.
 */
#include "plan/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/crc.h"
#include "base/crc.h"
#include "format/jsonw.h"
#include "base/mem.h"

static const char *const formats[] = {"fp8", "compressed-tensors", NULL};
static const char *const scales[] = {"sidecar", "inline", NULL};
static const char *const scale_fmts[] = {"f32", "ue8m0", NULL};
static const char *const schemes[] = {"FP8_BLOCK", "FP8_DYNAMIC", "FP8", NULL};
static const char *const raggeds[] = {"keep", "quantize", "per-channel", NULL};

static bool find_word(const char *const *words, const char *word, unsigned *index_out)
{
    for (unsigned i = 0; word && words[i]; i++)
        if (strcasecmp(words[i], word) == 0) {
            *index_out = i;
            return true;
        }
    return false;
}

#define PARSER(name, words, type)                                                                  \
    bool name(const char *word, type *out)                                                         \
    {                                                                                              \
        unsigned i;                                                                                \
        if (!find_word(words, word, &i))                                                           \
            return false;                                                                          \
        *out = (type)i;                                                                            \
        return true;                                                                               \
    }
PARSER(fp8q_parse_format, formats, enum fp8q_format)
PARSER(fp8q_parse_scales, scales, enum fp8q_scales)
PARSER(fp8q_parse_scale_fmt, scale_fmts, enum fp8q_scale_fmt)
PARSER(fp8q_parse_scheme, schemes, enum fp8q_scheme)
PARSER(fp8q_parse_ragged, raggeds, enum fp8q_ragged)

bool fp8q_parse_float(const char *word, enum fp8q_dtype *out)
{
    static const char *const names[] = {"bf16", "f16", "f32", NULL};
    static const enum fp8q_dtype dtypes[] = {FP8Q_BF16, FP8Q_F16, FP8Q_F32};
    unsigned i;
    if (!find_word(names, word, &i))
        return false;
    *out = dtypes[i];
    return true;
}

static void write_strings(struct fp8q_jsonw *w, const char *key, const char *const *items, size_t n)
{
    fp8q_jsonw_open(w, key, '[');
    for (size_t i = 0; i < n; i++)
        fp8q_jsonw_string(w, NULL, items[i]);
    fp8q_jsonw_close(w, ']');
}

void fp8q_request_write(const struct fp8q_request *r, const char *key, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, key, '{');
    fp8q_jsonw_string(w, "source", r->source);
    if (r->dequantize) {
        fp8q_jsonw_string(w, "dequantize", fp8q_dtype_name(r->to));
    } else {
        fp8q_jsonw_string(w, "format", formats[r->format]);
        fp8q_jsonw_string(w, "scheme", schemes[r->scheme]);
        fp8q_jsonw_string(w, "scales", scales[r->scales]);
        fp8q_jsonw_string(w, "scale_fmt", scale_fmts[r->scale_fmt]);
        fp8q_jsonw_string(w, "ragged", raggeds[r->ragged]);
        write_strings(w, "ignore", r->ignore, r->n_ignore);
        write_strings(w, "include", r->include, r->n_include);
        fp8q_jsonw_bool(w, "no_default_ignore", r->no_default_ignore);
        fp8q_jsonw_bool(w, "allow_unmatched", r->allow_unmatched);
        fp8q_jsonw_bool(w, "allow_tower", r->allow_tower);
        fp8q_jsonw_bool(w, "strict", r->strict);
        fp8q_jsonw_bool(w, "requantize", r->requantize);
        fp8q_jsonw_string(w, "like", r->like);
        fp8q_jsonw_string(w, "calibration", r->calibration);
        fp8q_jsonw_uint(w, "tp", r->tp);
    }
    fp8q_jsonw_uint(w, "max_shard_size", r->max_shard_size);
    fp8q_jsonw_close(w, '}');
}

static bool read_strings(const struct fp8q_json *list, const char ***items_out, size_t *n_out,
                         bool *no_memory)
{
    const char **items = fp8q_array(fp8q_json_count(list), sizeof(*items));
    *items_out = items;
    *n_out = 0;
    *no_memory = !items;
    if (!items || !fp8q_json_is_array(list))
        return false;
    for (const struct fp8q_json *i = fp8q_json_first(list); i; i = fp8q_json_next(i)) {
        items[*n_out] = fp8q_json_string(i, NULL);
        if (!items[(*n_out)++])
            return false;
    }
    return true;
}

int fp8q_request_parse(const struct fp8q_json *json, struct fp8q_request *r, struct fp8q_error *err)
{
    *r = (struct fp8q_request){0};
    const char *to = fp8q_json_string(fp8q_json_get(json, "dequantize"), NULL);
    bool ok = true, no_memory = false;
    r->source = fp8q_json_string(fp8q_json_get(json, "source"), NULL);
    r->dequantize = to != NULL;
    if (to) {
        ok = fp8q_parse_float(to, &r->to);
    } else {
#define WORD(key) fp8q_json_string(fp8q_json_get(json, key), NULL)
#define FLAG(key) fp8q_json_bool(fp8q_json_get(json, key), false)
        ok = fp8q_parse_format(WORD("format"), &r->format) &&
             fp8q_parse_scheme(WORD("scheme"), &r->scheme) &&
             fp8q_parse_scales(WORD("scales"), &r->scales) &&
             fp8q_parse_scale_fmt(WORD("scale_fmt"), &r->scale_fmt) &&
             fp8q_parse_ragged(WORD("ragged"), &r->ragged) &&
             read_strings(fp8q_json_get(json, "ignore"), &r->ignore, &r->n_ignore, &no_memory) &&
             read_strings(fp8q_json_get(json, "include"), &r->include, &r->n_include, &no_memory) &&
             fp8q_json_uint(fp8q_json_get(json, "tp"), &r->tp);
        r->no_default_ignore = FLAG("no_default_ignore");
        r->allow_unmatched = FLAG("allow_unmatched");
        r->allow_tower = FLAG("allow_tower");
        r->strict = FLAG("strict");
        r->requantize = FLAG("requantize");
        r->like = WORD("like");
        r->calibration = WORD("calibration");
#undef WORD
#undef FLAG
    }
    ok = ok && r->source &&
         fp8q_json_uint(fp8q_json_get(json, "max_shard_size"), &r->max_shard_size);
    if (ok)
        return FP8Q_OK;
    fp8q_request_reset(r);
    if (no_memory)
        return fp8q_fail_nomem(err);
    return fp8q_fail(err, FP8Q_E_FORMAT, "request", "the options of a conversion cannot be read");
}

void fp8q_request_reset(struct fp8q_request *r)
{
    free(r->ignore);
    free(r->include);
    *r = (struct fp8q_request){0};
}

struct fp8q_plan_options fp8q_request_options(const struct fp8q_request *r,
                                              const struct fp8q_ckpt *like)
{
    return (struct fp8q_plan_options){.select = {.ignore = r->ignore,
                                                 .include = r->include,
                                                 .n_ignore = r->n_ignore,
                                                 .n_include = r->n_include,
                                                 .no_default_ignore = r->no_default_ignore,
                                                 .allow_unmatched = r->allow_unmatched,
                                                 .allow_tower = r->allow_tower,
                                                 .strict = r->strict,
                                                 .requantize = r->requantize,
                                                 .scheme = r->scheme,
                                                 .ragged = r->ragged,
                                                 .like = like},
                                      .format = r->format,
                                      .scales = r->scales,
                                      .scale_fmt = r->scale_fmt,
                                      .max_shard_size = r->max_shard_size,
                                      .tp = (unsigned)r->tp,
                                      .dequantize = r->dequantize,
                                      .to = r->dequantize ? r->to : FP8Q_BF16};
}

uint32_t fp8q_source_crc32(const struct fp8q_ckpt *ckpt)
{
    uint32_t crc = fp8q_crc32(0, ckpt->config_text, ckpt->config_len);
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        const struct fp8q_shard *s = &ckpt->shards[i];
        char numbers[64];
        int n = snprintf(numbers, sizeof(numbers), "%llu %08x\n",
                         (unsigned long long)s->stat.st_size, (unsigned)s->header.crc32);
        crc = fp8q_crc32(crc, s->name, strlen(s->name) + 1);
        crc = fp8q_crc32(crc, numbers, (size_t)n);
    }
    return crc;
}

int fp8q_request_state(const struct fp8q_plan *plan, const struct fp8q_request *request,
                       uint64_t n_parts, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 1};
    uint32_t calibration = 0;
    if (request->calibration &&
        fp8q_file_crc32(request->calibration, &calibration, err) != FP8Q_OK) {
        if (err) /* a calibration that is not there is missing evidence */
            err->status = FP8Q_E_EVIDENCE;
        return FP8Q_E_EVIDENCE;
    }
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_string(&w, "fp8q", FP8Q_VERSION);
    fp8q_jsonw_uint(&w, "calibration_crc32", calibration);
    fp8q_jsonw_uint(&w, "parts", n_parts);
    fp8q_request_write(request, "request", &w);
    fp8q_jsonw_uint(&w, "config_crc32",
                    fp8q_crc32(0, plan->ckpt->config_text, plan->ckpt->config_len));
    fp8q_jsonw_open(&w, "shards", '[');
    for (size_t i = 0; i < plan->ckpt->n_shards; i++) {
        const struct fp8q_shard *s = &plan->ckpt->shards[i];
        fp8q_jsonw_open(&w, NULL, '{');
        fp8q_jsonw_string(&w, "name", s->name);
        fp8q_jsonw_uint(&w, "size", (uint64_t)s->stat.st_size);
        fp8q_jsonw_uint(&w, "mtime_s", (uint64_t)s->stat.st_mtim.tv_sec);
        fp8q_jsonw_uint(&w, "mtime_ns", (uint64_t)s->stat.st_mtim.tv_nsec);
        fp8q_jsonw_uint(&w, "header_crc32", s->header.crc32);
        fp8q_jsonw_close(&w, '}');
    }
    fp8q_jsonw_close(&w, ']');
    fp8q_jsonw_close(&w, '}');
    *out = w.text;
    int status = fp8q_text_status(out, err);
    if (status != FP8Q_OK)
        fp8q_text_reset(out);
    return status;
}
