/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c - what a plan will do, for people and for machines.
 */
#include "cli/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *cli_shape(char *buf, size_t cap, const uint64_t *shape, uint32_t ndim)
{
    size_t used = (size_t)snprintf(buf, cap, "[");
    for (uint32_t i = 0; i < ndim && used + 32 < cap; i++)
        used += (size_t)snprintf(buf + used, cap - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)shape[i]);
    snprintf(buf + used, cap - used, "]");
    return buf;
}

static double reduction(const struct fp8q_plan *plan)
{
    return plan->source_bytes ? 1 - (double)plan->output_bytes / (double)plan->source_bytes : 0;
}

static void report_tensors(struct cli *cli, const struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors && cli->verbose; i++) {
        const struct fp8q_tensor *t = &plan->ckpt->tensors[i];
        const struct fp8q_decision *d = &plan->selection.decisions[i];
        struct fp8q_shown shown;
        char shape[256];
        cli_print(cli, "%-8s %-19s %-8s %-18s %s\n", d->quantize ? "quantize" : "keep",
                  fp8q_reason_name(d->reason), fp8q_dtype_name(t->dtype),
                  cli_shape(shape, sizeof(shape), t->shape, t->ndim), fp8q_show(&shown, t->name));
    }
}

static void report_reasons(struct cli *cli, const struct fp8q_plan *plan, bool quantized)
{
    for (int r = 0; r < FP8Q_N_REASONS; r++) {
        const struct fp8q_count *c = &plan->by_reason[r];
        char before[32], after[32];
        if (c->tensors == 0 || (r >= FP8Q_WHY_BACKBONE) != quantized)
            continue;
        cli_print(cli, "  %-9s %-19s %6zu tensors %12s", quantized ? "quantize" : "keep",
                  fp8q_reason_name((enum fp8q_reason)r), c->tensors,
                  cli_bytes(before, c->source_bytes));
        if (quantized)
            cli_print(cli, " -> %s", cli_bytes(after, c->output_bytes));
        cli_print(cli, "\n");
    }
}

/* Unclassified tensors are worth a look: a family that grew a part, or a model that this table does
 * not know.  */
static void report_unclassified(struct cli *cli, const struct fp8q_plan *plan)
{
    enum { SHOWN = 8 };
    size_t n = 0, all = plan->by_reason[FP8Q_WHY_UNCLASSIFIED].tensors +
                        plan->by_reason[FP8Q_WHY_EXPERTS_UNSUPPORTED].tensors;
    for (size_t i = 0; i < plan->ckpt->n_tensors && n < SHOWN; i++) {
        enum fp8q_reason reason = plan->selection.decisions[i].reason;
        struct fp8q_shown shown;
        if (reason != FP8Q_WHY_UNCLASSIFIED && reason != FP8Q_WHY_EXPERTS_UNSUPPORTED)
            continue;
        cli_print(cli, "    %s: %s\n", fp8q_reason_name(reason),
                  fp8q_show(&shown, plan->ckpt->tensors[i].name));
        n++;
    }
    if (all > n)
        cli_print(cli, "    ... and %zu more (-v lists all)\n", all - n);
}

static void report_engines(struct cli *cli, const struct fp8q_plan *plan)
{
    struct fp8q_shown shown;
    const struct fp8q_family *family = &plan->selection.family;
    if (plan->largest_tp >= 64)
        cli_print(cli, "  tensor parallel: up to 64 and more\n");
    else
        cli_print(cli, "  tensor parallel: up to %u (%s)\n", plan->largest_tp,
                  fp8q_show(&shown, plan->tp_limit));
    if (family->note)
        cli_print(cli, "  note: %s\n", family->note);
    if (family->lerobot)
        cli_print(cli,
                  "  note: a LeRobot policy needs an own runtime for FP8, or `fp8q dequantize`\n");
    if (plan->options.scale_fmt == FP8Q_SCALE_F32 && fp8q_plan_has_scheme(plan, FP8Q_SCHEME_BLOCK))
        cli_print(
            cli,
            "  note: engines that requantize F32 scales to powers of two at load time (Blackwell,\n"
            "        DeepGEMM) round twice, KL divergence x1.6-2.3; --scale-fmt ue8m0 avoids it\n");
}

void cli_report_plan(struct cli *cli, const struct fp8q_plan *plan)
{
    char before[32], after[32], memory[32];
    struct fp8q_shown shown;
    const struct fp8q_selection *s = &plan->selection;
    report_tensors(cli, plan);
    if (!plan->options.dequantize)
        cli_print(cli, "family: %s%s%s%s\n", s->family.name,
                  s->family.model_type ? " (model_type " : "",
                  s->family.model_type ? fp8q_show(&shown, s->family.model_type) : "",
                  s->family.model_type ? ")" : "");
    report_reasons(cli, plan, true);
    report_reasons(cli, plan, false);
    report_unclassified(cli, plan);
    cli_print(cli, "  tensors %s -> %s, %.2f %% %s\n", cli_bytes(before, plan->source_bytes),
              cli_bytes(after, plan->output_bytes), 100 * fabs(reduction(plan)),
              reduction(plan) < 0 ? "more" : "less");
    cli_print_verbose(cli, "  memory: at most %s, %u thread%s\n",
                      cli_bytes(memory, plan->peak_memory), plan->threads,
                      plan->threads == 1 ? "" : "s");
    if (!plan->options.dequantize)
        report_engines(cli, plan);
}

void cli_report_plan_json(struct cli *cli, const struct fp8q_plan *plan)
{
    struct fp8q_jsonw *w = &cli->json;
    fp8q_jsonw_open(w, "bytes", '{');
    fp8q_jsonw_uint(w, "source", plan->source_bytes);
    fp8q_jsonw_uint(w, "output", plan->output_bytes);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_number(w, "reduction", reduction(plan));
    fp8q_jsonw_string(w, "family", plan->selection.family.name);
    fp8q_jsonw_string(w, "model_type", plan->selection.family.model_type);
    fp8q_jsonw_uint(w, "peak_memory", plan->peak_memory);
    fp8q_jsonw_uint(w, "largest_tp", plan->largest_tp);
    fp8q_jsonw_open(w, "tensors", '[');
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &plan->ckpt->tensors[i];
        const struct fp8q_decision *d = &plan->selection.decisions[i];
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", t->name);
        fp8q_jsonw_string(w, "action", d->quantize ? "quantize" : "keep");
        fp8q_jsonw_string(w, "reason", fp8q_reason_name(d->reason));
        fp8q_jsonw_string(w, "dtype", fp8q_dtype_name(t->dtype));
        fp8q_jsonw_open(w, "shape", '[');
        for (uint32_t k = 0; k < t->ndim; k++)
            fp8q_jsonw_uint(w, NULL, t->shape[k]);
        fp8q_jsonw_close(w, ']');
        fp8q_jsonw_string(w, "shard", plan->ckpt->shards[t->shard].name);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}
