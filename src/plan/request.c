/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c - the table of a request's members, and what is made from it.
 *
 * A row says where a member stands in the struct, what it is, and how it is spelled in JSON and on
 * the command line.  Checks, copies, JSON both ways and options all walk the table, so that a new
 * member is a new row.
 */
#include "plan/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/caller.h"
#include "base/crc.h"
#include "base/dir.h"
#include "base/mem.h"
#include "select/scheme.h"

/* ---- the table ------------------------------------------------------------------------------- */

static const char *const formats[] = {"auto", "fp8", "compressed-tensors", "modelopt", NULL};
static const char *const scales[] = {"sidecar", "inline", NULL};
static const char *const scale_fmts[] = {"f32", "ue8m0", NULL};
static const char *const input_ranges[] = {"absmax", "p99.99", "p99.9", "mse", NULL};
static const char *const kv_caches[] = {"none", "fp8", NULL};
static const char *const unaligned[] = {"keep", "quantize", "per-channel", NULL};

_Static_assert(sizeof(enum fp8q_format) == sizeof(unsigned) &&
                   sizeof(enum fp8q_scheme) == sizeof(unsigned),
               "words are stored as unsigned");

#define AT(member) offsetof(struct fp8q_request, member)
#define LIST(member) AT(member), AT(n_##member)

/* clang-format off */
const struct fp8q_request_member fp8q_request_members[] = {
    {"source", FP8Q_MEMBER_TEXT, FP8Q_USE_BOTH, AT(source), 0, NULL, NULL, NULL, NULL, NULL},
    {"dequantize", FP8Q_MEMBER_FLOAT, FP8Q_USE_DEQUANTIZE, AT(to), 0, NULL,
     "dtype", NULL, "TYPE", "bf16 (default), f16 or f32"},
    {"format", FP8Q_MEMBER_WORD, FP8Q_USE_QUANTIZE, AT(format), 0, formats,
     "format", NULL, "NAME", "fp8 (default, where it can say the scheme), compressed-tensors, modelopt"},
    {"scheme", FP8Q_MEMBER_WORD, FP8Q_USE_QUANTIZE, AT(scheme), 0, fp8q_scheme_names,
     "scheme", NULL, "[PAT=]NAME", "FP8_BLOCK (default), FP8_DYNAMIC (per channel), FP8 (per tensor),\n"
     "MXFP8 (32 columns of a row), FP8_STATIC (FP8 with input scales);\n"
     "PAT=NAME: of the modules that match (may be repeated, the last holds)"},
    {"schemes", FP8Q_MEMBER_LIST, FP8Q_USE_QUANTIZE, LIST(schemes), fp8q_scheme_names,
     "scheme", NULL, NULL, NULL},
    {"scales", FP8Q_MEMBER_WORD, FP8Q_USE_QUANTIZE, AT(scales), 0, scales,
     "scales", NULL, "WHERE", "sidecar (default) or inline"},
    {"scale_fmt", FP8Q_MEMBER_WORD, FP8Q_USE_QUANTIZE, AT(scale_fmt), 0, scale_fmts,
     "scale-fmt", NULL, "FMT", "f32 (default) or ue8m0 (powers of two)"},
    {"ragged", FP8Q_MEMBER_WORD, FP8Q_USE_QUANTIZE, AT(unaligned), 0, unaligned,
     "unaligned", "ragged", "HOW", "sizes that are no multiple of 128: keep (default: left unquantized),\n"
     "per-channel (servable, compressed-tensors), quantize (custom runtimes)"},
    {"ignore", FP8Q_MEMBER_LIST, FP8Q_USE_QUANTIZE, LIST(ignore), NULL,
     "ignore", "exclude", "PAT", "leave modules unquantized (may be repeated)"},
    {"include", FP8Q_MEMBER_LIST, FP8Q_USE_QUANTIZE, LIST(include), NULL,
     "include", NULL, "PAT", "quantize modules that are left unquantized by default"},
    {"no_default_ignore", FP8Q_MEMBER_FLAG, FP8Q_USE_QUANTIZE, AT(no_default_ignore), 0, NULL,
     "no-default-ignore", NULL, NULL, "leave only what cannot be quantized and what --ignore names"},
    {"allow_unmatched", FP8Q_MEMBER_FLAG, FP8Q_USE_QUANTIZE, AT(allow_unmatched), 0, NULL,
     "allow-unmatched", NULL, NULL, "go on when a pattern matches nothing"},
    {"allow_tower", FP8Q_MEMBER_FLAG, FP8Q_USE_QUANTIZE, AT(allow_tower), 0, NULL,
     "allow-tower", NULL, NULL, "let --include or --scheme reach a vision or audio tower"},
    {"strict", FP8Q_MEMBER_FLAG, FP8Q_USE_QUANTIZE, AT(strict), 0, NULL,
     "strict", NULL, NULL, "fail where a fused group would be left unquantized"},
    {"requantize", FP8Q_MEMBER_FLAG, FP8Q_USE_QUANTIZE, AT(requantize), 0, NULL,
     "requantize", NULL, NULL, "take an FP8 source, through F32"},
    {"like", FP8Q_MEMBER_TEXT, FP8Q_USE_QUANTIZE, AT(like), 0, NULL,
     "like", NULL, "DIR", "quantize exactly what that checkpoint did"},
    {"calibration", FP8Q_MEMBER_TEXT, FP8Q_USE_QUANTIZE, AT(calibration), 0, NULL,
     "calibration", NULL, "FILE", "`fp8q calibrate` statistics: GPTQ rounding, or FP8_STATIC scales"},
    {"input_range", FP8Q_MEMBER_WORD, FP8Q_USE_QUANTIZE, AT(input_range), 0, input_ranges,
     "input-range", NULL, "HOW", "FP8_STATIC: absmax (default), p99.99, p99.9 or mse"},
    {"kv_cache", FP8Q_MEMBER_WORD, FP8Q_USE_QUANTIZE, AT(kv_cache), 0, kv_caches,
     "kv-cache", NULL, "TYPE", "fp8: scales of an FP8 cache of keys and values, from --calibration"},
    {"no_gptq", FP8Q_MEMBER_FLAG, FP8Q_USE_QUANTIZE, AT(no_gptq), 0, NULL,
     "no-gptq", NULL, NULL, "take --calibration for scales alone, and round plainly"},
    {"gptq", FP8Q_MEMBER_FLAG, FP8Q_USE_QUANTIZE, AT(gptq), 0, NULL,
     "gptq", NULL, NULL, "round layer by layer, by what the layers before make of --inputs FILE"},
    {"inputs", FP8Q_MEMBER_TEXT, FP8Q_USE_QUANTIZE, AT(inputs), 0, NULL,
     "inputs", "i", "FILE", "samples for --gptq: token ids or captured embeddings"},
    {"tp", FP8Q_MEMBER_COUNT, FP8Q_USE_QUANTIZE, AT(tp), 0, NULL,
     "tp", NULL, "N", "fail unless N-way tensor parallelism can be served"},
    {"max_shard_size", FP8Q_MEMBER_SIZE, FP8Q_USE_BOTH, AT(max_shard_size), 0, NULL,
     "max-shard-size", NULL, "SIZE", "re-shard (default: as the source)"},
    {NULL, FP8Q_MEMBER_FLAG, 0, 0, 0, NULL, NULL, NULL, NULL, NULL},
};
/* clang-format on */

static bool is_used(const struct fp8q_request_member *m, const struct fp8q_request *r)
{
    return m->use & (r->dequantize ? FP8Q_USE_DEQUANTIZE : FP8Q_USE_QUANTIZE);
}

/* The member itself.  A request that is read is not written through this.  */
static void *member_at(const struct fp8q_request_member *m, const struct fp8q_request *r)
{
    return (char *)(uintptr_t)r + m->offset;
}

static unsigned word_of(const struct fp8q_request_member *m, const struct fp8q_request *r)
{
    unsigned index;

    /* Members are enums of different types, all as wide as an unsigned.  */
    memcpy(&index, member_at(m, r), sizeof(index));
    return index;
}

static size_t *count_of(const struct fp8q_request_member *m, const struct fp8q_request *r)
{
    return (size_t *)(void *)((char *)(uintptr_t)r + m->count_offset);
}

bool fp8q_find_word(const char *const *words, const char *word, unsigned *index_out)
{
    for (unsigned i = 0; word && words[i]; i++)
        if (strcasecmp(words[i], word) == 0) {
            *index_out = i;
            return true;
        }
    return false;
}

static const char *const float_words[] = {"BF16", "F16", "F32", NULL};
static const enum fp8q_dtype floats[] = {FP8Q_BF16, FP8Q_F16, FP8Q_F32};

bool fp8q_parse_float(const char *word, enum fp8q_dtype *out)
{
    unsigned i;
    if (!fp8q_find_word(float_words, word, &i))
        return false;

    *out = floats[i];
    return true;
}

/* ---- check and copy -------------------------------------------------------------------------- */

/* "PAT=WORD" */
static bool is_item(const char *item, const char *const *words)
{
    const char *word = strrchr(item, '=');
    unsigned index;

    return word && word > item && fp8q_find_word(words, word + 1, &index);
}

static int check_member(const struct fp8q_request_member *m, const struct fp8q_request *r,
                        struct fp8q_error *err)
{
    unsigned n_words = 0;
    struct fp8q_shown shown;

    if (m->kind == FP8Q_MEMBER_WORD) {
        while (m->words[n_words])
            n_words++;
        if (word_of(m, r) >= n_words)
            return fp8q_fail(err, FP8Q_E_ARG, "request-value",
                             "request: %s is %u, expected one of the %u values of its enum", m->key,
                             word_of(m, r), n_words);
    }

    if (m->kind == FP8Q_MEMBER_LIST) {
        const char *const *items = *(const char *const *const *)member_at(m, r);
        size_t n = *count_of(m, r);
        for (size_t i = 0; i < n; i++)
            if (!items || !items[i])
                return fp8q_fail(err, FP8Q_E_ARG, "request-value",
                                 "request: %s has %zu entries, yet number %zu is NULL", m->key, n,
                                 i);
            else if (m->words && !is_item(items[i], m->words))
                return fp8q_fail(err, FP8Q_E_ARG, "request-value",
                                 "request: %s: expected PATTERN=NAME with a name that --%s takes, "
                                 "found \"%s\"",
                                 m->key, m->option, fp8q_show(&shown, items[i]));
    }

    if (m->kind == FP8Q_MEMBER_FLOAT && r->to != FP8Q_BF16 && r->to != FP8Q_F16 &&
        r->to != FP8Q_F32)
        return fp8q_fail(err, FP8Q_E_ARG, "request-value",
                         "request: floats become BF16, F16 or F32, not dtype number %d",
                         (int)r->to);
    return FP8Q_OK;
}

/* A list of copies.  On failure it holds those that were made.  */
static int copy_list(const char *const *from, size_t n, const char *const **to, size_t *n_to,
                     struct fp8q_error *err)
{
    const char **copy = n ? fp8q_array(n, sizeof(*copy)) : NULL;
    if (n && !copy)
        return fp8q_fail_nomem(err);

    *to = copy;
    for (*n_to = 0; *n_to < n; ++*n_to) {
        copy[*n_to] = strdup(from[*n_to]);
        if (!copy[*n_to])
            return fp8q_fail_nomem(err);
    }
    return FP8Q_OK;
}

static int copy_text(const char *from, const char **to, struct fp8q_error *err)
{
    *to = from ? strdup(from) : NULL;
    return from && !*to ? fp8q_fail_nomem(err) : FP8Q_OK;
}

/* What @r has of the caller's memory is forgotten.  */
static void clear_strings(struct fp8q_request *r)
{
    for (const struct fp8q_request_member *m = fp8q_request_members; m->key; m++) {
        if (m->kind == FP8Q_MEMBER_TEXT)
            *(const char **)member_at(m, r) = NULL;
        if (m->kind == FP8Q_MEMBER_LIST) {
            *(const char *const **)member_at(m, r) = NULL;
            *count_of(m, r) = 0;
        }
    }
}

static int copy_strings(const struct fp8q_request *from, struct fp8q_request *to,
                        struct fp8q_error *err)
{
    for (const struct fp8q_request_member *m = fp8q_request_members; m->key; m++) {
        if (m->kind == FP8Q_MEMBER_TEXT)
            FP8Q_TRY(copy_text(*(const char *const *)member_at(m, from), member_at(m, to), err));
        if (m->kind == FP8Q_MEMBER_LIST)
            FP8Q_TRY(copy_list(*(const char *const *const *)member_at(m, from), *count_of(m, from),
                               member_at(m, to), count_of(m, to), err));
    }
    return FP8Q_OK;
}

static struct fp8q_select_options select_options(const struct fp8q_request *r,
                                                 const struct fp8q_ckpt *like)
{
    return (struct fp8q_select_options){.ignore = r->ignore,
                                        .include = r->include,
                                        .schemes = r->schemes,
                                        .n_ignore = r->n_ignore,
                                        .n_include = r->n_include,
                                        .n_schemes = r->n_schemes,
                                        .no_default_ignore = r->no_default_ignore,
                                        .allow_unmatched = r->allow_unmatched,
                                        .allow_tower = r->allow_tower,
                                        .strict = r->strict,
                                        .requantize = r->requantize,
                                        .scheme = r->scheme,
                                        .unaligned = r->unaligned,
                                        .like = like};
}

/* Sequential GPTQ has its own samples, and is one answer to the question how values are rounded.  */
static int check_gptq(const struct fp8q_request *r, struct fp8q_error *err)
{
    if (r->gptq != (r->inputs != NULL))
        return fp8q_fail(err, FP8Q_E_ARG, "gptq-inputs",
                         "--gptq and --inputs FILE go together: the samples by which it rounds "
                         "(`fp8q eval --text T --dump-inputs FILE` makes them of a text)");
    bool for_scales =
        r->kv_cache != FP8Q_KV_CACHE_NONE || r->scheme == FP8Q_SCHEME_STATIC || r->n_schemes > 0;
    if (r->gptq && r->no_gptq)
        return fp8q_fail(err, FP8Q_E_ARG, "gptq-inputs", "--gptq and --no-gptq exclude each other");
    if (r->calibration && r->no_gptq && !for_scales)
        return fp8q_fail(err, FP8Q_E_ARG, "gptq-calibration",
                         "--no-gptq: nothing needs --calibration then (--kv-cache and FP8_STATIC "
                         "do)");
    if (r->calibration && r->gptq && !for_scales)
        return fp8q_fail(err, FP8Q_E_ARG, "gptq-calibration",
                         "--gptq and --calibration both say how to round: leave --calibration out "
                         "(what needs it for scales may have it)");
    return FP8Q_OK;
}

/* Takes the caller's members over as they are, strings still the caller's.  */
static int take_over(const struct fp8q_request *from, struct fp8q_request *r,
                     struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_struct_copy(r, sizeof(*r), from, "request", err));
    if (!r->source || !*r->source)
        return fp8q_fail(err, FP8Q_E_ARG, "request-value", "request: no source is named");

    /* 0 is what a caller leaves who does not care.  */
    if (r->to == 0)
        r->to = FP8Q_BF16;
    for (const struct fp8q_request_member *m = fp8q_request_members; m->key; m++)
        FP8Q_TRY(check_member(m, r, err));
    FP8Q_TRY(check_gptq(r, err));

    const struct fp8q_select_options select = select_options(r, NULL);
    r->format = fp8q_format_of(r->format, &select);
    return FP8Q_OK;
}

int fp8q_request_copy(const struct fp8q_request *from, struct fp8q_request *r,
                      struct fp8q_error *err)
{
    struct fp8q_request borrowed = {0};
    *r = (struct fp8q_request){0}; /* owns nothing until all is well */
    FP8Q_TRY(take_over(from, &borrowed, err));

    *r = borrowed;
    clear_strings(r);
    int status = copy_strings(&borrowed, r, err);
    if (status != FP8Q_OK)
        fp8q_request_reset(r);
    return status;
}

void fp8q_request_reset(struct fp8q_request *r)
{
    for (const struct fp8q_request_member *m = fp8q_request_members; m->key; m++) {
        if (m->kind == FP8Q_MEMBER_TEXT)
            free(*(char **)member_at(m, r));
        if (m->kind != FP8Q_MEMBER_LIST)
            continue;
        char **items = *(char ***)member_at(m, r);
        for (size_t i = 0; i < *count_of(m, r); i++)
            free(items[i]);
        free(items);
    }
    *r = (struct fp8q_request){0};
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_member(const struct fp8q_request_member *m, const struct fp8q_request *r,
                         struct fp8q_jsonw *w)
{
    /* As JSON has it and not as the command line does: sizes are bytes, words are spelled out.  */
    switch (m->kind) {
    case FP8Q_MEMBER_FLAG:
        fp8q_jsonw_bool(w, m->key, *(const bool *)member_at(m, r));
        break;
    case FP8Q_MEMBER_TEXT:
        fp8q_jsonw_string(w, m->key, *(const char *const *)member_at(m, r));
        break;
    case FP8Q_MEMBER_LIST: {
        const char *const *items = *(const char *const *const *)member_at(m, r);
        if (m->words && *count_of(m, r) == 0)
            break;
        fp8q_jsonw_open(w, m->key, '[');
        for (size_t i = 0; i < *count_of(m, r); i++)
            fp8q_jsonw_string(w, NULL, items[i]);
        fp8q_jsonw_close(w, ']');
        break;
    }
    case FP8Q_MEMBER_COUNT:
    case FP8Q_MEMBER_SIZE:
        fp8q_jsonw_uint(w, m->key, *(const uint64_t *)member_at(m, r));
        break;
    case FP8Q_MEMBER_WORD:
        fp8q_jsonw_string(w, m->key, m->words[word_of(m, r)]);
        break;
    case FP8Q_MEMBER_FLOAT:
        fp8q_jsonw_string(w, m->key, fp8q_dtype_name(r->to));
        break;
    }
}

void fp8q_request_write(const struct fp8q_request *r, const char *key, struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, key, '{');
    for (const struct fp8q_request_member *m = fp8q_request_members; m->key; m++)
        if (is_used(m, r))
            write_member(m, r, w);
    fp8q_jsonw_close(w, '}');
}

/* A list of strings, borrowed from @json.  @items_out is NULL for an empty one.  */
static int read_list(const struct fp8q_json *json, const char *const **items_out, size_t *n_out,
                     bool *ok_out, struct fp8q_error *err)
{
    size_t n = 0;
    *ok_out = fp8q_json_is_array(json);
    if (!*ok_out || fp8q_json_count(json) == 0)
        return FP8Q_OK;

    const char **items = fp8q_array(fp8q_json_count(json), sizeof(*items));
    if (!items)
        return fp8q_fail_nomem(err);
    for (const struct fp8q_json *i = fp8q_json_first(json); i; i = fp8q_json_next(i)) {
        items[n] = fp8q_json_string(i, NULL);
        *ok_out = *ok_out && items[n];
        n++;
    }
    *items_out = items;
    *n_out = n;
    return FP8Q_OK;
}

/* Reads one member; strings and the strings of lists are borrowed.  *@ok_out is false for a value
 * that it cannot have.  */
static int read_member(const struct fp8q_request_member *m, const struct fp8q_json *value,
                       struct fp8q_request *r, bool *ok_out, struct fp8q_error *err)
{
    void *at = member_at(m, r);
    const char *word = fp8q_json_string(value, NULL);
    unsigned index = 0;

    switch (m->kind) {
    case FP8Q_MEMBER_FLAG:
        *(bool *)at = fp8q_json_bool(value, false);
        break;
    case FP8Q_MEMBER_TEXT:
        *(const char **)at = word;
        break;
    case FP8Q_MEMBER_LIST:
        return m->words && !value ? FP8Q_OK : read_list(value, at, count_of(m, r), ok_out, err);
    case FP8Q_MEMBER_COUNT:
    case FP8Q_MEMBER_SIZE:
        *ok_out = fp8q_json_uint(value, at);
        break;
    case FP8Q_MEMBER_WORD:
        *ok_out = fp8q_find_word(m->words, word, &index);
        memcpy(at, &index, sizeof(index));
        break;
    case FP8Q_MEMBER_FLOAT:
        *ok_out = fp8q_parse_float(word, at);
        break;
    }
    return FP8Q_OK;
}

static void free_lists(const struct fp8q_request *r)
{
    for (const struct fp8q_request_member *m = fp8q_request_members; m->key; m++)
        if (m->kind == FP8Q_MEMBER_LIST)
            free(*(void **)member_at(m, r));
}

static int read_members(const struct fp8q_json *json, struct fp8q_request *borrowed,
                        struct fp8q_error *err)
{
    bool ok = true;

    /* Which members a request has depends on its direction, so that comes first.  */
    borrowed->dequantize = fp8q_json_get(json, "dequantize") != NULL;
    for (const struct fp8q_request_member *m = fp8q_request_members; m->key && ok; m++)
        if (is_used(m, borrowed))
            FP8Q_TRY(read_member(m, fp8q_json_get(json, m->key), borrowed, &ok, err));

    if (!ok || !borrowed->source)
        return fp8q_fail(err, FP8Q_E_FORMAT, "request",
                         "the options of a conversion cannot be read");
    return FP8Q_OK;
}

static int read_and_copy(const struct fp8q_json *json, struct fp8q_request *borrowed,
                         struct fp8q_request *r, struct fp8q_error *err)
{
    FP8Q_TRY(read_members(json, borrowed, err));
    return fp8q_request_copy(borrowed, r, err);
}

int fp8q_request_parse(const struct fp8q_json *json, struct fp8q_request *r, struct fp8q_error *err)
{
    struct fp8q_request borrowed = {.size = sizeof(borrowed), .to = FP8Q_BF16};
    *r = (struct fp8q_request){0};

    /* Strings are the JSON's until they are copied; lists are made on the way.  */
    int status = read_and_copy(json, &borrowed, r, err);
    free_lists(&borrowed);
    return status;
}

/* ---- what follows from a request ------------------------------------------------------------- */

struct fp8q_plan_options fp8q_request_options(const struct fp8q_request *r,
                                              const struct fp8q_ckpt *like)
{
    const struct fp8q_select_options select = select_options(r, like);

    /* Strings and lists are borrowed: the request must outlive the plan.  Threads and memory are
     * not part of a request, since no output byte depends on them.  */
    return (struct fp8q_plan_options){.select = select,
                                      .format = fp8q_format_of(r->format, &select),
                                      .scales = r->scales,
                                      .scale_fmt = r->scale_fmt,
                                      .fp8_cache = r->kv_cache == FP8Q_KV_CACHE_FP8,
                                      .max_shard_size = r->max_shard_size,
                                      .tp = (unsigned)r->tp,
                                      .dequantize = r->dequantize,
                                      .to = r->dequantize ? r->to : FP8Q_BF16};
}

uint32_t fp8q_source_crc32(const struct fp8q_ckpt *ckpt)
{
    uint32_t crc = fp8q_crc32(0, ckpt->config_text, ckpt->config_len);

    /* Headers and sizes, no payload: quick to have, and no proof of the weights.  */
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

/* ---- evidence -------------------------------------------------------------------------------- */

int fp8q_request_evidence(const struct fp8q_request *request, uint32_t *crc_out, bool *there_out,
                          struct fp8q_error *err)
{
    const char *path = request->inputs ? request->inputs : request->calibration;
    struct fp8q_shown shown;
    struct stat st;
    bool there;

    *crc_out = 0;
    *there_out = path != NULL;
    if (!path)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_stat(path, &st, &there, err));
    /* What is missing is evidence; what cannot be read is an error of the disk.  */
    if (!there && path == request->calibration)
        return fp8q_fail(err, FP8Q_E_EVIDENCE, "calibration-missing",
                         "%s: no such calibration file", fp8q_show(&shown, path));
    return fp8q_file_crc32(path, crc_out, err);
}
