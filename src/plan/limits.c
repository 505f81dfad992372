/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.c - part of planning: totals, memory, and the reasons not to carry a plan out.
 *
 * Memory is what tables and scales in flight take, and one stripe for each thread.  Under a limit
 * threads are given up first, then stripes are made smaller (they are cut into panels); only what
 * the tables alone exceed is refused.
 */
#include "plan/internal.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "base/text.h"
#include "format/names.h"
#include "select/scheme.h"
#include "select/select.h"
#include "checkpoint/scales.h"

/* ---- totals ---------------------------------------------------------------------------------- */

/* What is left has no scheme: it is counted with the first.  */
static struct fp8q_count *count_of(struct fp8q_plan *plan, size_t source)
{
    const struct fp8q_decision *d = &plan->selection.decisions[source];

    return &plan->by_scheme[d->reason][d->quantize ? d->scheme : 0];
}

void fp8q_plan_count(struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        struct fp8q_count *c = count_of(plan, i);
        c->tensors++;
        c->source_bytes += plan->ckpt->tensors[i].size_bytes;
        plan->source_bytes += plan->ckpt->tensors[i].size_bytes;
    }

    /* By the reason of the source, so that both sides of a row speak of the same tensors.  */
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[i];
        count_of(plan, t->source)->output_bytes += t->end - t->begin;
        plan->output_bytes += t->end - t->begin;
    }

    for (unsigned r = 0; r < FP8Q_N_REASONS; r++)
        for (unsigned s = 0; s < FP8Q_N_SCHEMES; s++) {
            plan->by_reason[r].tensors += plan->by_scheme[r][s].tensors;
            plan->by_reason[r].source_bytes += plan->by_scheme[r][s].source_bytes;
            plan->by_reason[r].output_bytes += plan->by_scheme[r][s].output_bytes;
        }
}

/* ---- memory ---------------------------------------------------------------------------------- */

enum { SMALLEST_STRIPE = FP8Q_BLOCK * FP8Q_BLOCK * 12, LARGEST_STRIPE = 16 << 20 };

/* Working memory of one stripe: source, FP8 values, and F32 values where the source is FP8 itself.
 */
static uint64_t bytes_per_column(const struct fp8q_plan *plan, const struct fp8q_piece *p)
{
    unsigned in = fp8q_dtype_bits(plan->ckpt->tensors[p->source].dtype) / 8;
    bool from_fp8 = fp8q_is_fp8(plan->ckpt->tensors[p->source].dtype);
    return FP8Q_BLOCK * ((uint64_t)in + sizeof(float) + (from_fp8 ? sizeof(float) : 0));
}

/* Bytes of the widest stripe of any piece.  */
static uint64_t widest_stripe(const struct fp8q_plan *plan)
{
    uint64_t widest = FP8Q_COPY_BYTES;

    for (size_t i = 0; i < plan->n_pieces; i++) {
        const struct fp8q_piece *p = &plan->pieces[i];
        uint64_t blocks = fp8q_ceil_div(p->n_cols, FP8Q_BLOCK);

        /* Kept bytes pass in pieces of FP8Q_COPY_BYTES, which is where the search begins.  */
        if (p->kind != FP8Q_OUT_KEPT)
            widest = fp8q_max_u64(widest, blocks * FP8Q_BLOCK * bytes_per_column(plan, p));
    }

    return widest;
}

/* The scales of a shard stay in memory until it is complete.  */
static uint64_t largest_scales(const struct fp8q_plan *plan)
{
    uint64_t scales = 0;
    for (size_t i = 0; i < plan->n_shards; i++)
        scales = fp8q_max_u64(scales, plan->shards[i].scale_bytes);
    return scales;
}

/* What a conversion holds whatever its threads: tables and texts are there already, and the scales
 * of two shards can be in flight.  */
static uint64_t fixed_memory(const struct fp8q_plan *plan)
{
    enum { PER_TENSOR = 512 };
    uint64_t n_tensors = plan->n_tensors + plan->ckpt->n_tensors;

    /* 8 MiB for the program itself, and 8 bytes for what each stripe leaves to be joined.  */
    return ((uint64_t)8 << 20) + 2 * largest_scales(plan) + n_tensors * PER_TENSOR +
           plan->n_stripes * 8;
}

/* Shards that are written at the same time: one a thread, unless their scales (MXFP8 has many) would
 * take more than a quarter of the memory that is left for the work.  */
static unsigned shards_at_once(const struct fp8q_plan *plan, unsigned threads, uint64_t left)
{
    uint64_t scales = largest_scales(plan), most = 0;
    for (size_t i = 0; i < plan->n_shards; i++)
        most += plan->shards[i].n_pieces > 0;

    most = fp8q_max_u64(fp8q_min_u64(most, threads), 1);
    return (unsigned)(scales ? fp8q_min_u64(most, 1 + left / 4 / scales) : most);
}

int fp8q_plan_memory(struct fp8q_plan *plan, struct fp8q_error *err)
{
    uint64_t fixed = fixed_memory(plan), least = fixed + FP8Q_COPY_BYTES + SMALLEST_STRIPE;
    uint64_t limit = plan->options.max_memory;
    char shown[32];
    unsigned threads = plan->options.threads ? plan->options.threads : 1;
    if (limit && limit < least)
        return fp8q_fail(err, FP8Q_E_ARG, "max-memory",
                         "--max-memory %llu: this conversion needs at least %llu bytes (%s)",
                         (unsigned long long)limit, (unsigned long long)least,
                         fp8q_show_bytes(shown, least));

    /* Without a limit a model of very many tensors gets what its tables take, and as much again for
     * the work as any other.  */
    if (!limit)
        limit = fp8q_max_u64(FP8Q_DEFAULT_MEMORY, fixed + FP8Q_DEFAULT_MEMORY / 2);

    plan->shards_at_once = shards_at_once(plan, threads, limit - fixed);
    fixed += (plan->shards_at_once - 1) * largest_scales(plan);

    /* Fewer threads rather than a refusal: a worker needs room for the least stripe.  */
    while (threads > 1 && (limit - fixed) / threads < FP8Q_COPY_BYTES + SMALLEST_STRIPE)
        threads--;

    /* No more than the widest needs; a stripe that does not fit is cut into panels.  */
    uint64_t stripe = fp8q_min_u64(widest_stripe(plan), LARGEST_STRIPE);
    plan->threads = threads;
    plan->stripe_bytes = fp8q_min_u64(stripe, (limit - fixed) / threads);
    plan->peak_memory = fixed + threads * plan->stripe_bytes;
    return FP8Q_OK;
}

/* ---- reasons not to carry it out ------------------------------------------------------------- */

static bool holds_fp8(const struct fp8q_ckpt *ckpt)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (fp8q_is_fp8(ckpt->tensors[i].dtype))
            return true;
    return false;
}

static int refuse_quantized(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    static const char advice[] = "--requantize takes FP8 weights through F32 again";
    static const char no_way[] = "start from the checkpoint in BF16 or F16";
    struct fp8q_shown shown;
    const char *what;
    if (plan->options.select.requantize || !fp8q_already_quantized(plan->ckpt, &what))
        return FP8Q_OK;

    return fp8q_fail(err, FP8Q_E_ARG, "already-quantized", "%s: is quantized already (%s); %s",
                     fp8q_show(&shown, plan->ckpt->path), what,
                     holds_fp8(plan->ckpt) ? advice : no_way);
}

static const char *find_part(const struct fp8q_ckpt *ckpt, const char *part)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (strstr(ckpt->tensors[i].name, part))
            return ckpt->tensors[i].name;

    return NULL;
}

/* Adapters beside the weights that they change, in a checkpoint that was fine-tuned but not merged, or alone.  */
static bool advise_adapter(const struct fp8q_plan *plan, struct fp8q_text *text)
{
    const char *adapter = find_part(plan->ckpt, ".lora_A.");
    struct fp8q_shown shown;

    if (adapter && find_part(plan->ckpt, ".base_layer."))
        fp8q_text_printf(text,
                         " The checkpoint holds adapters that are not merged (\"%s\" beside a "
                         "base_layer): merge them first.",
                         fp8q_show(&shown, adapter));
    else if (adapter)
        fp8q_text_puts(text, " It is a LoRA adapter, no model: merge it into the model that it was "
                             "trained on (PEFT's merge_and_unload), and quantize that.");
    return adapter != NULL;
}

/* What would help, by what was found.  */
static void add_advice(const struct fp8q_plan *plan, struct fp8q_text *text)
{
    bool groups = !fp8q_asks_for_scheme(&plan->options.select, FP8Q_SCHEME_BLOCK);
    bool unaligned = plan->by_reason[FP8Q_WHY_RAGGED].tensors > 0;
    bool adapter = advise_adapter(plan, text);

    if (unaligned && groups)
        fp8q_text_puts(text, " Groups need columns that are a multiple of 32.");
    else if (unaligned)
        fp8q_text_puts(text,
                       " Unaligned sizes are no multiples of 128: --unaligned per-channel makes "
                       "a checkpoint that can be served, --unaligned quantize one for a custom "
                       "runtime, --scheme MXFP8 needs multiples of 32 only.");
    if (plan->by_reason[FP8Q_WHY_EXPERTS_UNSUPPORTED].tensors)
        fp8q_text_puts(text, " Stacked experts of this architecture have no FP8 layout that "
                             "engines read.");
    if (!unaligned && !adapter)
        fp8q_text_puts(text, " --include PAT adds modules that are left by default.");
}

/* Behind "N tensors left unquantized (": how many for each reason, and what would help.  */
static void explain_nothing(const struct fp8q_plan *plan, struct fp8q_text *text)
{
    const char *comma = "";
    for (int r = 0; r < FP8Q_N_REASONS; r++) {
        size_t n = plan->by_reason[r].tensors;
        if (n)
            fp8q_text_printf(text, "%s%zu %s", comma, n, fp8q_reason_name((enum fp8q_reason)r));
        comma = text->len ? ", " : "";
    }
    fp8q_text_puts(text, ").");
    add_advice(plan, text);
}

static int refuse_nothing(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_text text = {0};
    if (plan->selection.n_quantize > 0)
        return FP8Q_OK;

    explain_nothing(plan, &text);
    int status = text.failed ? fp8q_fail_nomem(err)
                             : fp8q_fail(err, FP8Q_E_MISMATCH, "nothing-to-quantize",
                                         "nothing to quantize: %zu tensor%s left unquantized (%s",
                                         plan->ckpt->n_tensors, fp8q_plural(plan->ckpt->n_tensors),
                                         text.data);
    fp8q_text_reset(&text);
    return status;
}

static bool in_blocks(const void *plan, size_t tensor, struct fp8q_grid *grid_out)
{
    const struct fp8q_decision *d = &((const struct fp8q_plan *)plan)->selection.decisions[tensor];

    /* Scales per row or tensor are cut with it, or shared: they stop nothing.  */
    *grid_out = fp8q_scheme_grid(d->scheme);
    return d->quantize && (d->scheme == FP8Q_SCHEME_BLOCK || d->scheme == FP8Q_SCHEME_GROUP);
}

struct fp8q_tp fp8q_plan_tp(const struct fp8q_plan *plan)
{
    return (struct fp8q_tp){.ckpt = plan->ckpt,
                            .family = &plan->selection.family,
                            .in_blocks = in_blocks,
                            .context = plan};
}

static int refuse_tp(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct fp8q_tp tp = fp8q_plan_tp(plan);
    const char *name = fp8q_tp_misfit(&tp, plan->options.tp);
    if (plan->options.tp < 2 || !name)
        return FP8Q_OK;

    struct fp8q_grid grid;
    const struct fp8q_tensor *t = fp8q_ckpt_find(plan->ckpt, name);
    bool known = t && in_blocks(plan, (size_t)(t - plan->ckpt->tensors), &grid);

    return fp8q_fail(
        err, FP8Q_E_MISMATCH, "tp",
        "--tp %u: a partition of \"%s\" is no multiple of %u; the largest power of two "
        "that fits is %u",
        plan->options.tp, fp8q_show(&shown, name),
        known ? (unsigned)grid.cols : (unsigned)FP8Q_BLOCK, plan->largest_tp);
}

/* verify would fail such an output.  A file has no config.json, and so no list.  */
static int refuse_misreading(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    if (!plan->misreading || !plan->config_text)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "exclusion-misread",
                     "%s; --ignore leaves a module as it is, --include takes it along",
                     plan->misreading);
}

/* ---- names of shards -------------------------------------------------------------------------- */

/* What this program writes beside the shards, and where it works.  */
static bool is_reserved(const char *component, size_t len)
{
    static const char *const reserved[] = {".fp8q",          FP8Q_SIDECAR_NAME, FP8Q_MANIFEST_NAME,
                                           FP8Q_CONFIG_NAME, FP8Q_INDEX_NAME,   ".fp8q-aside"};

    for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved); i++)
        if (strlen(reserved[i]) == len && strncasecmp(reserved[i], component, len) == 0)
            return true;

    return false;
}

/* An index may name "sub/x.safetensors", and so a directory where a file has to go.  */
static int check_name(const char *name, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    size_t len = strcspn(name, "/");
    if (!is_reserved(name, len))
        return FP8Q_OK;

    return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "shard-reserved",
                     "the source has a shard \"%s\", which stands where fp8q writes its own; use "
                     "--max-shard-size to rename the shards",
                     fp8q_show(&shown, name));
}

/* By components, so that what lies in a directory comes right behind a file of that name.  */
static int compare_names(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    while (*x && *x == *y) {
        x++;
        y++;
    }

    /* The slash before all other characters.  */
    unsigned first = *x == '/' ? 1 : (unsigned char)*x, second = *y == '/' ? 1 : (unsigned char)*y;
    return (first > second) - (first < second);
}

/* No two shards of one name, and none that is the directory of another.  @names is for sorting.  */
static int check_all_names(const struct fp8q_plan *plan, const char **names, size_t n,
                           struct fp8q_error *err)
{
    struct fp8q_shown shown;

    for (size_t i = 0; i < n; i++) {
        names[i] = plan->shards[i].name;
        FP8Q_TRY(check_name(names[i], err));
    }
    if (n)
        qsort(names, n, sizeof(*names), compare_names);

    for (size_t i = 1; i < n; i++) {
        size_t len = strlen(names[i - 1]);

        bool same = strncmp(names[i - 1], names[i], len) == 0 &&
                    (names[i][len] == '\0' || names[i][len] == '/');
        if (same)
            return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "shard-name",
                             "two output shards would be called %s; use --max-shard-size to "
                             "rename them",
                             fp8q_show(&shown, names[i - 1]));
    }
    return FP8Q_OK;
}

static int refuse_names(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    /* The sidecar has the name that no shard may have.  */
    size_t n = plan->sidecar == SIZE_MAX ? plan->n_shards : plan->sidecar;
    const char **names = fp8q_array(n, sizeof(*names));
    int status = names ? check_all_names(plan, names, n, err) : fp8q_fail_nomem(err);
    free(names);
    return status;
}

int fp8q_plan_check(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    if (plan->options.dequantize)
        return refuse_names(plan, err);

    /* In this order: a checkpoint that is quantized already is refused for that, whatever its shards
     * are called (an output of fp8q has names of ours), and whatever is left to quantize.  */
    FP8Q_TRY(refuse_quantized(plan, err));
    FP8Q_TRY(refuse_names(plan, err));
    FP8Q_TRY(refuse_nothing(plan, err));
    FP8Q_TRY(refuse_misreading(plan, err));
    return refuse_tp(plan, err);
}
