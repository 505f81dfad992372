/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c - output shards: names, order, offsets, headers, index.
 *
 * Each shard is laid out as the official writer does (dtype by falling alignment, then name).
 * Pieces keep the source's order, so that reading is sequential and only writing jumps.
 */
#include "plan/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/mem.h"
#include "base/text.h"
#include "format/jsonw.h"
#include "format/names.h"

/* ---- which shard ----------------------------------------------------------------------------- */

/* Greedy in source order, as transformers does; a tensor larger than the limit gets its own shard.
 * Codes and inline scales of one source tensor stay together.  */
static size_t assign_by_size(struct fp8q_plan *plan)
{
    uint64_t used = 0;
    uint32_t shard = 0;
    bool sidecar = plan->options.scales == FP8Q_SCALES_SIDECAR;

    for (size_t i = 0; i < plan->n_tensors; i++) {
        struct fp8q_out_tensor *t = &plan->tensors[i];

        /* So far `end` is the size: offsets come when the order is known.  */
        uint64_t size = fp8q_is_with_scales(t) && sidecar ? 0 : t->end;
        if (!fp8q_is_with_scales(t) && used > 0 && used + size > plan->options.max_shard_size) {
            shard++;
            used = 0;
        }
        used += size;
        t->shard = shard;
    }

    return (size_t)shard + 1;
}

static char *numbered_name(size_t number, size_t total)
{
    char name[64];
    snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", number, total);
    return strdup(name);
}

static bool scales_made(const struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->n_tensors; i++)
        if (plan->tensors[i].kind == FP8Q_OUT_SCALE)
            return true;
    return false;
}

/* Leaves out shards that held nothing but scales which the output does not carry.  @kept_out lists
 * the sources of the rest.  */
static int drop_empty(struct fp8q_plan *plan, size_t *kept_out, size_t *n_out,
                      struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = plan->ckpt;
    uint32_t *place = fp8q_array(ckpt->n_shards, sizeof(*place)); /* 1 + the new number */
    size_t n = 0;
    if (!place)
        return fp8q_fail_nomem(err);

    for (size_t k = 0; k < plan->n_tensors; k++)
        place[plan->tensors[k].shard] = 1;
    for (size_t i = 0; i < ckpt->n_shards; i++)
        /* A shard that was empty in the source is carried as it is.  */
        if (place[i] || ckpt->shards[i].header.n_tensors == 0) {
            kept_out[n++] = i;
            place[i] = (uint32_t)n;
        }
    for (size_t k = 0; k < plan->n_tensors; k++)
        plan->tensors[k].shard = place[plan->tensors[k].shard] - 1;

    free(place);
    *n_out = n;
    return FP8Q_OK;
}

/* Name of output shard @i.  With an index no file may be called model.safetensors: transformers
 * would read that one and ignore the index.  */
static char *shard_name(const struct fp8q_plan *plan, size_t i, size_t n, bool index)
{
    const struct fp8q_ckpt *ckpt = plan->ckpt;
    const char *source = ckpt->shards[plan->shard_sources[i]].name;
    if (!ckpt->is_dir)
        return strdup("weights.safetensors"); /* finish gives it the destination's name */
    if (plan->options.max_shard_size)
        return n == 1 && !index ? strdup(FP8Q_SINGLE_NAME) : numbered_name(i + 1, n);
    if (index && strcmp(source, FP8Q_SINGLE_NAME) == 0)
        return numbered_name(i + 1, n);
    if (!index && n == 1)
        return strdup(FP8Q_SINGLE_NAME);
    return strdup(source);
}

static int name_sidecar(struct fp8q_plan *plan, size_t n, struct fp8q_error *err)
{
    plan->sidecar = n;
    plan->shards[n].name = strdup(FP8Q_SIDECAR_NAME);
    if (!plan->shards[n].name)
        return fp8q_fail_nomem(err);

    /* The last shard, so that all others keep their numbers.  */
    for (size_t i = 0; i < plan->n_tensors; i++)
        if (fp8q_is_with_scales(&plan->tensors[i]))
            plan->tensors[i].shard = (uint32_t)n;
    return FP8Q_OK;
}

static int name_shards(struct fp8q_plan *plan, struct fp8q_error *err)
{
    bool sidecar = scales_made(plan) && plan->options.scales == FP8Q_SCALES_SIDECAR;
    bool resize = plan->options.max_shard_size && plan->ckpt->is_dir;
    size_t n = 0;
    plan->shard_sources =
        fp8q_plan_alloc(plan, plan->ckpt->n_shards + plan->n_tensors, sizeof(*plan->shard_sources));
    if (!plan->shard_sources)
        return fp8q_fail_nomem(err);

    if (resize)
        n = assign_by_size(plan);
    else
        FP8Q_TRY(drop_empty(plan, plan->shard_sources, &n, err));

    /* With scales beside it even one shard needs an index, or loaders would read one file.  */
    bool index = plan->ckpt->is_dir && (sidecar || n > 1);

    /* Room for the sidecar too.  */
    plan->shards = fp8q_array(n + 1, sizeof(*plan->shards));
    if (!plan->shards)
        return fp8q_fail_nomem(err);

    plan->n_shards = n + sidecar;
    for (size_t i = 0; i < n; i++)
        if (!(plan->shards[i].name = shard_name(plan, i, n, index)))
            return fp8q_fail_nomem(err);
    if (sidecar)
        FP8Q_TRY(name_sidecar(plan, n, err));
    return FP8Q_OK;
}

/* ---- order and offsets ----------------------------------------------------------------------- */

struct sort_context {
    const struct fp8q_out_tensor *tensors;
};

static int by_layout(const void *a, const void *b, void *context)
{
    const struct sort_context *c = context;
    const struct fp8q_out_tensor *x = &c->tensors[*(const size_t *)a];
    const struct fp8q_out_tensor *y = &c->tensors[*(const size_t *)b];
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;

    /* dtypes are numbered by falling alignment, as the official writer sorts them.  */
    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Sorts plan->tensors by way of three arrays of their number.  */
static void sort_by_way_of(struct fp8q_plan *plan, size_t *order, size_t *place,
                           struct fp8q_out_tensor *sorted)
{
    struct sort_context context = {plan->tensors};
    size_t n = plan->n_tensors;

    for (size_t i = 0; i < n; i++)
        order[i] = i;
    qsort_r(order, n, sizeof(*order), by_layout, &context);

    /* Pieces know tensors by number: where each number went to.  */
    for (size_t i = 0; i < n; i++) {
        sorted[i] = plan->tensors[order[i]];
        place[order[i]] = i;
    }
    if (n)
        memcpy(plan->tensors, sorted, n * sizeof(*sorted));

    for (size_t i = 0; i < plan->n_pieces; i++) {
        struct fp8q_piece *p = &plan->pieces[i];
        p->output = place[p->output];
        p->scale = p->scale == SIZE_MAX ? SIZE_MAX : place[p->scale];
    }
}

/* Sorts plan->tensors and renumbers what refers to them.  */
static int sort_tensors(struct fp8q_plan *plan, struct fp8q_error *err)
{
    size_t n = plan->n_tensors;
    size_t *order = fp8q_array(n, sizeof(*order)), *place = fp8q_array(n, sizeof(*place));
    struct fp8q_out_tensor *sorted = fp8q_array(n, sizeof(*sorted));
    bool has_room = order && place && sorted;

    if (has_room)
        sort_by_way_of(plan, order, place, sorted);
    free(order);
    free(place);
    free(sorted);
    return has_room ? FP8Q_OK : fp8q_fail_nomem(err);
}

static void assign_offsets(struct fp8q_plan *plan)
{
    for (size_t i = 0, first = 0; i < plan->n_shards; i++) {
        struct fp8q_out_shard *s = &plan->shards[i];
        uint64_t end = 0;

        /* Tensors are sorted by shard, so those of one stand together.  */
        s->first_tensor = first;
        while (first < plan->n_tensors && plan->tensors[first].shard == i) {
            struct fp8q_out_tensor *t = &plan->tensors[first++];
            uint64_t size = t->end - t->begin;
            t->begin = end;
            t->end = end += size;
        }
        s->n_tensors = first - s->first_tensor;
    }
}

static void number_pieces(struct fp8q_plan *plan)
{
    uint64_t stripe = 0;

    for (size_t i = 0; i < plan->n_pieces; i++) {
        struct fp8q_piece *p = &plan->pieces[i];
        struct fp8q_out_shard *s = &plan->shards[plan->tensors[p->output].shard];
        p->first_stripe = stripe;
        stripe += p->n_stripes;
        if (s->n_pieces++ == 0)
            s->first_piece = i;

        /* Scales of a shard lie one after another in memory until they are written, each where an
         * F32 may stand.  */
        if (p->scale != SIZE_MAX) {
            uint64_t bytes = plan->tensors[p->scale].end - plan->tensors[p->scale].begin;
            p->scale_offset = s->scale_bytes;
            s->scale_bytes += fp8q_ceil_div(bytes, sizeof(float)) * sizeof(float);
        }
    }

    plan->n_stripes = stripe;
}

/* ---- headers --------------------------------------------------------------------------------- */

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const struct fp8q_st_pair *)a)->key, ((const struct fp8q_st_pair *)b)->key);
}

/* The source's metadata (where one source shard feeds this one) with "format": "pt", without which
 * transformers up to 4.5x refuses the file.  */
static int make_metadata(const struct fp8q_plan *plan, size_t shard,
                         struct fp8q_st_pair **pairs_out, size_t *n_out, struct fp8q_error *err)
{
    bool same = !plan->options.max_shard_size || !plan->ckpt->is_dir;
    const struct fp8q_st_header *h =
        same ? &plan->ckpt->shards[plan->shard_sources[shard]].header : NULL;
    size_t n = 0;
    struct fp8q_st_pair *pairs = fp8q_array((h ? h->n_metadata : 0) + 2, sizeof(*pairs));
    if (!pairs)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; h && i < h->n_metadata; i++) {
        /* Of the conversion before, or what another tool says of the weights as they were.  */
        bool later = strcmp(h->metadata[i].key, "format") == 0 ||
                     strncmp(h->metadata[i].key, "fp8q.", 5) == 0 ||
                     strcmp(h->metadata[i].key, "_quantization_metadata") == 0;
        /* A key twice in the source: its last value counts, as for readers.  */
        for (size_t j = i + 1; j < h->n_metadata && !later; j++)
            later = strcmp(h->metadata[i].key, h->metadata[j].key) == 0;
        if (!later)
            pairs[n++] = h->metadata[i];
    }

    pairs[n++] = (struct fp8q_st_pair){"format", "pt", 6, 2};
    if (plan->options.dequantize)
        pairs[n++] = (struct fp8q_st_pair){"fp8q.dequantized_by", FP8Q_VERSION, 19,
                                           sizeof(FP8Q_VERSION) - 1};
    qsort(pairs, n, sizeof(*pairs), compare_pairs);
    *pairs_out = pairs;
    *n_out = n;
    return FP8Q_OK;
}

struct fp8q_st_tensor *fp8q_shard_entries(const struct fp8q_plan *plan, size_t shard)
{
    const struct fp8q_out_shard *s = &plan->shards[shard];
    struct fp8q_st_tensor *entries = fp8q_array(s->n_tensors, sizeof(*entries));

    for (size_t i = 0; entries && i < s->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[s->first_tensor + i];
        entries[i] = (struct fp8q_st_tensor){.name = t->name,
                                             .shape = t->shape,
                                             .begin = t->begin,
                                             .end = t->end,
                                             .ndim = t->ndim,
                                             .dtype = t->dtype};
    }
    return entries;
}

/* The text of the header; @pairs and @entries are to be freed in every case.  */
static int header_text(const struct fp8q_plan *plan, size_t shard, struct fp8q_st_pair **pairs,
                       struct fp8q_st_tensor **entries, struct fp8q_text *text,
                       struct fp8q_error *err)
{
    size_t n_pairs = 0;
    *entries = fp8q_shard_entries(plan, shard);
    if (!*entries)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(make_metadata(plan, shard, pairs, &n_pairs, err));
    return fp8q_st_emit(*entries, plan->shards[shard].n_tensors, *pairs, n_pairs, 0, text, err);
}

static int emit_header(struct fp8q_plan *plan, size_t shard, struct fp8q_error *err)
{
    struct fp8q_out_shard *s = &plan->shards[shard];
    struct fp8q_st_pair *pairs = NULL;
    struct fp8q_st_tensor *entries = NULL;
    struct fp8q_text text = {0};

    int status = header_text(plan, shard, &pairs, &entries, &text, err);
    free(pairs);
    free(entries);
    if (status != FP8Q_OK) {
        fp8q_text_reset(&text);
        return status;
    }

    /* Offsets begin at 0 behind the header, and the last tensor ends where the file does.  */
    uint64_t data = s->n_tensors ? plan->tensors[s->first_tensor + s->n_tensors - 1].end : 0;
    s->header = text.data;
    s->data_start = text.len;
    s->size_bytes = text.len + data;
    s->header_crc32 = fp8q_crc32(0, text.data, text.len);
    return FP8Q_OK;
}

/* ---- index ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b, void *context)
{
    const struct sort_context *c = context;
    return strcmp(c->tensors[*(const size_t *)a].name, c->tensors[*(const size_t *)b].name);
}

static int sort_names(struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct sort_context context = {plan->tensors};
    plan->by_name = fp8q_plan_alloc(plan, plan->n_tensors, sizeof(*plan->by_name));
    if (!plan->by_name)
        return fp8q_fail_nomem(err);
    for (size_t i = 0; i < plan->n_tensors; i++)
        plan->by_name[i] = i;
    qsort_r(plan->by_name, plan->n_tensors, sizeof(*plan->by_name), by_name, &context);
    return FP8Q_OK;
}

/* A tensor that is made may have the name of one that is carried.  */
static int check_tensors(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_shown shown;

    for (size_t i = 1; i < plan->n_tensors; i++) {
        const char *name = plan->tensors[plan->by_name[i]].name;
        if (strcmp(plan->tensors[plan->by_name[i - 1]].name, name) == 0)
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "tensor-name",
                             "the output would hold \"%s\" twice: once made, once from the source",
                             fp8q_show(&shown, name));
    }

    return FP8Q_OK;
}

/* The source's metadata but for the size, which is another now.  Only plain values: what a writer
 * notes there is numbers and words.  */
static void write_metadata(const struct fp8q_json *metadata, uint64_t total, struct fp8q_jsonw *w)
{
    bool said = false;

    fp8q_jsonw_open(w, "metadata", '{');
    for (const struct fp8q_json *m = fp8q_json_first(metadata); m; m = fp8q_json_next(m)) {
        const char *key = fp8q_json_key(m), *text = fp8q_json_string(m, NULL);
        uint64_t number;

        /* In the order of names, where writers have it.  */
        if (!said && strcmp(key, "total_size") >= 0) {
            fp8q_jsonw_uint(w, "total_size", total);
            said = true;
        }
        if (strcmp(key, "total_size") == 0)
            continue;
        if (text)
            fp8q_jsonw_string(w, key, text);
        else if (fp8q_json_uint(m, &number))
            fp8q_jsonw_uint(w, key, number);
    }
    if (!said)
        fp8q_jsonw_uint(w, "total_size", total);
    fp8q_jsonw_close(w, '}');
}

static int make_index(struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 2};
    struct fp8q_json *source = NULL;
    uint64_t total = 0;
    if (plan->ckpt->index_text)
        FP8Q_TRY(fp8q_json_parse(plan->ckpt->index_text, plan->ckpt->index_len, 0, FP8Q_INDEX_NAME,
                                 &source, err));

    /* Payload alone, without headers: so total_size is meant.  */
    for (size_t i = 0; i < plan->n_tensors; i++)
        total += plan->tensors[i].end - plan->tensors[i].begin;
    fp8q_jsonw_open(&w, NULL, '{');
    write_metadata(fp8q_json_get(source, "metadata"), total, &w);
    fp8q_json_free(source);

    fp8q_jsonw_open(&w, "weight_map", '{');
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[plan->by_name[i]];
        fp8q_jsonw_string(&w, t->name, plan->shards[t->shard].name);
    }
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_close(&w, '}');
    fp8q_text_puts(&w.text, "\n");

    plan->index_text = w.text.data;
    return fp8q_text_status(&w.text, err);
}

int fp8q_layout(struct fp8q_plan *plan, struct fp8q_error *err)
{
    FP8Q_TRY(name_shards(plan, err));
    FP8Q_TRY(sort_tensors(plan, err));
    FP8Q_TRY(sort_names(plan, err));
    FP8Q_TRY(check_tensors(plan, err));
    assign_offsets(plan);
    number_pieces(plan);

    /* The sidecar's header holds the manifest, which is known only when all is written.  */
    for (size_t i = 0; i < plan->n_shards; i++)
        if (i != plan->sidecar)
            FP8Q_TRY(emit_header(plan, i, err));
    if (plan->ckpt->is_dir && plan->n_shards > 1)
        FP8Q_TRY(make_index(plan, err));

    return FP8Q_OK;
}
