/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.c - part of planning: totals, memory, and the reasons not to carry a plan out.
 */
#include "plan/internal.h"

#include "base/mem.h"
#include "base/text.h"
#include "select/select.h"
#include "checkpoint/scales.h"

/* ---- totals and limits ----------------------------------------------------------------------- */

void fp8q_plan_count(struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        struct fp8q_count *c = &plan->by_reason[plan->selection.decisions[i].reason];
        c->tensors++;
        c->source_bytes += plan->ckpt->tensors[i].size_bytes;
        plan->source_bytes += plan->ckpt->tensors[i].size_bytes;
    }
    for (size_t i = 0; i < plan->n_tensors; i++) {
        const struct fp8q_out_tensor *t = &plan->tensors[i];
        plan->by_reason[plan->selection.decisions[t->source].reason].output_bytes +=
            t->end - t->begin;
        plan->output_bytes += t->end - t->begin;
    }
}

static int refuse_nothing(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_text reasons = {0};
    if (plan->selection.n_quantize > 0)
        return FP8Q_OK;
    for (int r = 0; r < FP8Q_N_REASONS; r++)
        if (plan->by_reason[r].tensors)
            fp8q_text_printf(&reasons, "%s%zu %s", reasons.len ? ", " : "",
                             plan->by_reason[r].tensors, fp8q_reason_name((enum fp8q_reason)r));
    bool ragged = plan->by_reason[FP8Q_WHY_RAGGED].tensors > 0;
    bool experts = plan->by_reason[FP8Q_WHY_EXPERTS_UNSUPPORTED].tensors > 0;
    int status = fp8q_fail(
        err, FP8Q_E_MISMATCH, "nothing-to-quantize",
        "nothing to quantize: all %zu tensors stay (%s).%s%s%s", plan->ckpt->n_tensors,
        reasons.data ? reasons.data : "none",
        ragged ? " Ragged sizes are no multiples of 128: --ragged per-channel makes a checkpoint "
                 "that can be served, --ragged quantize one for own runtimes."
               : "",
        experts ? " Stacked experts of this family have no FP8 layout that engines read." : "",
        ragged ? "" : " --include PAT adds modules that stay by default.");
    fp8q_text_reset(&reasons);
    return status;
}

/* Working memory of one stripe: source, codes, and F32 values where the source is FP8 itself.  */
static uint64_t bytes_per_column(const struct fp8q_plan *plan, const struct fp8q_piece *p)
{
    unsigned in = fp8q_dtype_bits(plan->ckpt->tensors[p->source].dtype) / 8;
    bool from_fp8 = fp8q_is_fp8(plan->ckpt->tensors[p->source].dtype);
    return FP8Q_BLOCK * ((uint64_t)in + sizeof(float) + (from_fp8 ? sizeof(float) : 0));
}

int fp8q_plan_memory(struct fp8q_plan *plan, struct fp8q_error *err)
{
    enum { SMALLEST = FP8Q_BLOCK * FP8Q_BLOCK * 12, LARGEST = 16 << 20, PER_TENSOR = 512 };
    uint64_t limit = plan->options.max_memory ? plan->options.max_memory : FP8Q_DEFAULT_MEMORY;
    uint64_t scales = 0, widest = FP8Q_COPY_BYTES;
    for (size_t i = 0; i < plan->n_shards; i++)
        if (plan->shards[i].scale_bytes > scales)
            scales = plan->shards[i].scale_bytes;
    for (size_t i = 0; i < plan->n_pieces; i++) {
        uint64_t need = plan->pieces[i].kind == FP8Q_OUT_KEPT
                            ? FP8Q_COPY_BYTES
                            : fp8q_ceil_div(plan->pieces[i].n_cols, FP8Q_BLOCK) * FP8Q_BLOCK *
                                  bytes_per_column(plan, &plan->pieces[i]);
        if (need > widest)
            widest = need;
    }
    /* Two shards can be in flight; tables and texts are there already.  */
    uint64_t fixed = ((uint64_t)8 << 20) + 2 * scales +
                     (plan->n_tensors + plan->ckpt->n_tensors) * PER_TENSOR + plan->n_stripes * 8;
    uint64_t stripe = widest < LARGEST ? widest : LARGEST;
    unsigned threads = plan->options.threads ? plan->options.threads : 1;
    if (limit < fixed + FP8Q_COPY_BYTES + SMALLEST)
        return fp8q_fail(err, FP8Q_E_ARG, "max-memory",
                         "--max-memory %llu bytes: this conversion needs at least %llu",
                         (unsigned long long)limit,
                         (unsigned long long)(fixed + FP8Q_COPY_BYTES + SMALLEST));
    while (threads > 1 && (limit - fixed) / threads < FP8Q_COPY_BYTES + SMALLEST)
        threads--;
    if ((limit - fixed) / threads < stripe)
        stripe = (limit - fixed) / threads;
    plan->threads = threads;
    plan->stripe_bytes = stripe;
    plan->peak_memory = fixed + threads * stripe;
    return FP8Q_OK;
}

static int refuse_quantized(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *what;
    if (plan->options.select.requantize || !fp8q_already_quantized(plan->ckpt, &what))
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "already-quantized",
                     "%s: is quantized already (%s); --requantize takes FP8 weights through F32 "
                     "again",
                     fp8q_show(&shown, plan->ckpt->path), what);
}

static int refuse_tp(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *name = fp8q_tp_misfit(plan->ckpt, &plan->selection, plan->options.tp);
    if (plan->options.tp < 2 || !name)
        return FP8Q_OK;
    return fp8q_fail(
        err, FP8Q_E_MISMATCH, "tp",
        "--tp %u: a partition of \"%s\" is no multiple of 128; the largest power of two "
        "that fits is %u",
        plan->options.tp, fp8q_show(&shown, name), plan->largest_tp);
}

int fp8q_plan_check(const struct fp8q_plan *plan, struct fp8q_error *err)
{
    if (plan->options.dequantize)
        return FP8Q_OK;
    FP8Q_TRY(refuse_quantized(plan, err));
    FP8Q_TRY(refuse_nothing(plan, err));
    return refuse_tp(plan, err);
}
