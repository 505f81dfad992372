/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c - what a plan will do, for people and for machines.
 */
#include "cli/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/format.h"
#include "cli/terminal.h"

static double reduction(const struct fp8q_plan_info *plan)
{
    return plan->source_bytes ? 1 - (double)plan->output_bytes / (double)plan->source_bytes : 0;
}

/* ---- for people ------------------------------------------------------------------------------ */

/* A line for each of what may be thousands: only with -v.  */
static void print_tensors(struct cli *cli, const struct fp8q_conversion *c)
{
    const struct fp8q_planned_tensor *t;
    struct cli_fitted fitted;
    struct fp8q_shown shown;
    char shape[256], head[512];

    for (size_t i = 0; cli->verbose && (t = fp8q_conversion_tensor(c, i)); i++) {
        int used =
            snprintf(head, sizeof(head), "%-8s %-19s %-8s %-18s ",
                     t->quantize ? "quantize" : "leave", t->reason, fp8q_dtype_name(t->dtype),
                     cli_shape(shape, sizeof(shape), t->shape, t->ndim));
        cli_print(cli, "%s%s\n", head,
                  cli_fit(&fitted, (unsigned)used, fp8q_show(&shown, t->name)));
    }
}

static uint64_t largest_reason(const struct fp8q_conversion *c)
{
    const struct fp8q_reason_count *r;
    uint64_t largest = 0;

    for (size_t i = 0; (r = fp8q_conversion_reason(c, i)); i++)
        largest = fp8q_max_u64(largest, r->source_bytes);
    return largest;
}

/* Whether tensors are quantized with more than one scheme, so that rows have to name it.  */
static bool is_mixed(const struct fp8q_conversion *c)
{
    const struct fp8q_reason_count *r;
    const char *first = NULL;
    bool mixed = false;

    for (size_t i = 0; (r = fp8q_conversion_reason(c, i)); i++) {
        first = first ? first : r->scheme;
        mixed |= r->scheme && strcmp(r->scheme, first) != 0;
    }
    return mixed;
}

/* "  quantize  backbone  14 tensors  1.97 MB -> 983.28 kB", and a bar: its length the source's bytes,
 * what is filled the output's.  */
static void print_reason(struct cli *cli, const struct fp8q_reason_count *r, bool mixed,
                         uint64_t largest)
{
    enum { BEFORE_BAR = 73, SCHEME = 12 };
    char before[32], after[32], arrow[48] = "";
    struct cli_bar bar;

    /* What is left as it is keeps its size.  */
    if (r->quantized)
        snprintf(arrow, sizeof(arrow), " -> %s", fp8q_show_bytes(after, r->output_bytes));
    cli_print(cli, "  %-9s %-19s", r->quantized ? "quantize" : "leave", r->reason);
    if (mixed)
        cli_print(cli, " %-*s", SCHEME - 1, r->scheme ? r->scheme : "");
    cli_print(cli, " %6zu tensor%-1s %12s", r->tensors, fp8q_plural(r->tensors),
              fp8q_show_bytes(before, r->source_bytes));

    cli_bar(&bar, BEFORE_BAR + (mixed ? SCHEME : 0), r->output_bytes, r->source_bytes, largest);
    if (*bar.text)
        cli_print(cli, "%-13s %s\n", arrow, bar.text);
    else
        cli_print(cli, "%s\n", arrow);
}

static void print_reasons(struct cli *cli, const struct fp8q_conversion *c, bool quantized)
{
    const struct fp8q_reason_count *r;
    uint64_t largest = largest_reason(c);
    bool mixed = is_mixed(c);

    for (size_t i = 0; (r = fp8q_conversion_reason(c, i)); i++)
        if (r->quantized == quantized)
            print_reason(cli, r, mixed, largest);
}

static bool is_unclear(const char *reason)
{
    return strcmp(reason, "unclassified") == 0 || strcmp(reason, "experts-unsupported") == 0;
}

/* Unclassified tensors are worth a look: an architecture that grew a part, or a model that the
 * table does not know.  */
static void print_unclassified(struct cli *cli, const struct fp8q_conversion *c)
{
    enum { SHOWN = 8 };
    const struct fp8q_planned_tensor *t;
    struct fp8q_shown shown;
    size_t n = 0;

    for (size_t i = 0; (t = fp8q_conversion_tensor(c, i)); i++)
        if (is_unclear(t->reason) && n++ < SHOWN)
            cli_print(cli, "    %s: %s\n", t->reason, fp8q_show(&shown, t->name));

    if (n > SHOWN)
        cli_print(cli, "    ... and %zu more (-v lists all)\n", n - SHOWN);
}

static void print_engines(struct cli *cli, const struct fp8q_plan_info *plan)
{
    enum { MANY = 64, NOTE = 8 };
    struct fp8q_shown shown;

    if (plan->largest_tp >= MANY)
        cli_print(cli, "  tensor parallel: up to 64 and more\n");
    else
        cli_print(cli, "  tensor parallel: up to %u (%s)\n", plan->largest_tp,
                  fp8q_show(&shown, plan->tp_limit));

    if (plan->note)
        cli_print_wrapped(cli, NOTE, "  note: %s", plan->note);
    if (plan->custom_runtime)
        cli_print_wrapped(cli, NOTE,
                          "  note: a LeRobot policy needs a custom runtime for FP8, or `fp8q "
                          "dequantize`");

    if (plan->double_rounding)
        cli_print(
            cli,
            "  note: engines on Blackwell and DeepGEMM round F32 scales to powers of two,\n"
            "        a second rounding (KL divergence x1.6-2.3); --scale-fmt ue8m0 avoids it\n");
}

void cli_report_plan(struct cli *cli, const struct fp8q_conversion *c)
{
    const struct fp8q_plan_info *plan = fp8q_conversion_plan(c);
    char before[32], after[32], memory[32];
    struct fp8q_shown shown;

    print_tensors(cli, c);

    if (!plan->dequantizes && plan->model_type)
        cli_print(cli, "architecture: %s (model_type %s)\n", plan->architecture,
                  fp8q_show(&shown, plan->model_type));
    else if (!plan->dequantizes)
        cli_print(cli, "architecture: %s\n", plan->architecture);

    print_reasons(cli, c, true);
    print_reasons(cli, c, false);
    print_unclassified(cli, c);
    cli_print(cli, "  tensors %s -> %s, %.2f %% %s\n", fp8q_show_bytes(before, plan->source_bytes),
              fp8q_show_bytes(after, plan->output_bytes), 100 * fabs(reduction(plan)),
              reduction(plan) < 0 ? "more" : "less");

    cli_print_verbose(cli, "  memory: at most %s, %u thread%s\n",
                      fp8q_show_bytes(memory, plan->peak_memory), plan->threads,
                      fp8q_plural(plan->threads));
    if (plan->bytes_read_twice)
        cli_print_verbose(cli, "  reads %s twice: one scale speaks of a whole fused group\n",
                          fp8q_show_bytes(memory, plan->bytes_read_twice));

    if (!plan->dequantizes)
        print_engines(cli, plan);
}

/* ---- for machines ---------------------------------------------------------------------------- */

/* The file with all scales, as it will be called; NULL if there is none.  */
static void write_sidecar(struct fp8q_jsonw *w, const struct fp8q_conversion *c,
                          const char *destination)
{
    char name[4096];
    bool is_sidecar = false;

    /* The last of the shards, if there is one.  */
    for (size_t i = 0;
         !is_sidecar && fp8q_conversion_shard(c, i, destination, name, sizeof(name), &is_sidecar);
         i++)
        continue;

    fp8q_jsonw_string(w, "sidecar", is_sidecar ? name : NULL);
}

static void write_tensors(struct fp8q_jsonw *w, const struct fp8q_conversion *c)
{
    const struct fp8q_planned_tensor *t;

    fp8q_jsonw_open(w, "tensors", '[');
    for (size_t i = 0; (t = fp8q_conversion_tensor(c, i)); i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", t->name);
        fp8q_jsonw_string(w, "action", t->quantize ? "quantize" : "keep");
        fp8q_jsonw_string(w, "reason", t->reason);
        fp8q_jsonw_string(w, "scheme", t->scheme);
        cli_json_type(w, t->dtype, t->shape, t->ndim);
        fp8q_jsonw_string(w, "shard", t->shard);
        fp8q_jsonw_close(w, '}');
    }

    fp8q_jsonw_close(w, ']');
}

void cli_report_plan_json(struct cli *cli, const struct fp8q_conversion *c, const char *destination)
{
    const struct fp8q_plan_info *plan = fp8q_conversion_plan(c);
    struct fp8q_jsonw *w = &cli->json;

    fp8q_jsonw_string(w, "output", destination);
    write_sidecar(w, c, destination);
    fp8q_jsonw_open(w, "bytes", '{');
    fp8q_jsonw_uint(w, "source", plan->source_bytes);
    fp8q_jsonw_uint(w, "output", plan->output_bytes);
    fp8q_jsonw_close(w, '}');
    fp8q_jsonw_number(w, "reduction", reduction(plan));
    /* Keys stay when the words for people change: this is the architecture.  */
    fp8q_jsonw_string(w, "family", plan->architecture);
    fp8q_jsonw_string(w, "model_type", plan->model_type);
    fp8q_jsonw_uint(w, "peak_memory", plan->peak_memory);
    fp8q_jsonw_uint(w, "bytes_read_twice", plan->bytes_read_twice);
    fp8q_jsonw_uint(w, "largest_tp", plan->largest_tp);

    write_tensors(w, c);
}
