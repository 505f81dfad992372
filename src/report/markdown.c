/* SPDX-License-Identifier: Apache-2.0
 *
 * markdown.c - the model card and the comment.
 */
#include "report/markdown.h"

#include <math.h>
#include <string.h>

#include "report/internal.h"
#include "report/markup.h"

/* ---- front matter ---------------------------------------------------------------------------- */

/* A metric of the hub's model-index.  */
static void write_metric(struct fp8q_text *t, const char *type, const char *name, double value)
{
    if (!isfinite(value))
        return;
    fp8q_text_printf(t, "    - type: %s\n      name: %s\n      value: %.6g\n", type, name, value);
}

static void write_metrics(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_result_eval *e = &f->results.eval;
    const struct fp8q_result_row *r = &e->rows[FP8Q_RESULT_OUTPUT];
    if (!e->there)
        return;

    fp8q_text_puts(t, "model-index:\n- name: ");
    fp8q_put_yaml(t, f->name);
    fp8q_text_puts(t, "\n  results:\n  - task:\n      type: text-generation\n    dataset:\n"
                      "      name: ");
    fp8q_put_yaml(t, *e->dataset ? e->dataset : "inputs of fp8q eval");
    fp8q_text_puts(t, "\n      type: ");
    fp8q_put_yaml(t, *e->dataset ? e->dataset : "custom");
    fp8q_text_puts(t, "\n    metrics:\n");

    write_metric(t, "kl_divergence", "KL divergence from the source (nats a token)", r->mean);
    write_metric(t, "top1_agreement", "Same first choice as the source", r->top1);
    write_metric(t, "perplexity", "Perplexity", r->ppl_output);
}

static void write_front_matter(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_json *q = fp8q_json_get(f->proof.ckpt->config, "quantization_config");
    const char *method = fp8q_json_string(fp8q_json_get(q, "quant_method"), "");

    fp8q_text_puts(t, "---\n");
    if (f->base_model) {
        fp8q_text_puts(t, "base_model: ");
        fp8q_put_yaml(t, f->base_model);
        fp8q_text_puts(t, "\nbase_model_relation: quantized\n");
    }

    for (size_t i = 0; i < FP8Q_CARD_KEYS; i++) {
        const char *usual = i == FP8Q_CARD_LIBRARY ? "transformers" : NULL;
        const char *value = f->inherited[i] ? f->inherited[i] : usual;
        if (!value)
            continue;
        fp8q_text_printf(t, "%s: ", fp8q_card_keys[i]);
        fp8q_put_yaml(t, value);
        fp8q_text_puts(t, "\n");
    }

    fp8q_text_puts(t, "tags:\n- fp8\n- block-fp8\n- quantized\n- fp8q\n");
    if (*method && strcmp(method, "fp8") != 0) {
        fp8q_text_puts(t, "- ");
        fp8q_put_yaml(t, method);
        fp8q_text_puts(t, "\n");
    }
    write_metrics(f, t);
    fp8q_text_puts(t, "---\n\n");
}

/* ---- parts of both --------------------------------------------------------------------------- */

static const char *verdict_sign(const struct fp8q_facts *f)
{
    static const char *const words[] = {"passed", "not decided", "failed"};
    if (f->verdict == FP8Q_FACTS_PASSED && !f->results.gate.there)
        return "verified";
    return words[f->verdict];
}

static void write_facts(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_result_row *r = &f->results.eval.rows[FP8Q_RESULT_OUTPUT];

    fp8q_text_puts(t, "| | |\n|---|---|\n| size | ");
    fp8q_put_bytes(t, f->proof.ckpt->data_bytes);
    if (f->source_bytes) {
        fp8q_text_puts(t, ", ");
        fp8q_put_share(t, fp8q_share(f->proof.ckpt->data_bytes, f->source_bytes));
        fp8q_text_puts(t, " of the source");
    }
    fp8q_text_printf(t, " |\n| bits a weight | %.2f |\n| weights in FP8 | ",
                     f->inspection.bits_per_weight);
    fp8q_put_share(t, fp8q_share(f->quantized_elems, f->weight_elems));
    fp8q_text_puts(t, " |\n| quantization | ");
    fp8q_put_markdown(t, f->inspection.quantization);
    fp8q_text_printf(t, " |\n| tensor parallel | up to %u |\n", fp8q_facts_largest_tp(f));

    if (f->proof.n_sqnr && isfinite(f->proof.sqnr_mean))
        fp8q_text_printf(t, "| signal to noise of FP8 weights | %.2f dB |\n", f->proof.sqnr_mean);
    if (!r->there)
        return;
    fp8q_text_puts(t, "| KL divergence, nats a token | ");
    fp8q_put_interval(t, r->mean, r->se);
    fp8q_text_puts(t, " |\n| same first choice as the source | ");
    fp8q_put_share(t, r->top1);
    fp8q_text_puts(t, " |\n");
}

static void write_kld(const struct fp8q_result_eval *e, struct fp8q_text *t)
{
    if (!e->there)
        return;

    fp8q_text_puts(t, "\n| KL divergence, nats | mean | median | 95 % | 99 % | 99.9 % | largest |\n"
                      "|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < FP8Q_RESULT_ROWS; i++) {
        const struct fp8q_result_row *r = &e->rows[i];
        const double values[] = {r->median, r->p95, r->p99, r->p999, r->max};
        if (!r->there)
            continue;
        fp8q_text_printf(t, "| %s | ", r->name);
        fp8q_put_interval(t, r->mean, r->se);
        for (size_t k = 0; k < sizeof(values) / sizeof(*values); k++) {
            fp8q_text_puts(t, " | ");
            fp8q_put_number(t, 4, values[k]);
        }
        fp8q_text_puts(t, " |\n");
    }
}

/* A mean hides a kind of input that suffers more.  */
static void write_categories(const struct fp8q_result_parts *parts, struct fp8q_text *t)
{
    if (parts->count == 0)
        return;

    fp8q_text_puts(t,
                   "\n| category | samples | tokens | KL divergence, nats | same first choice |\n"
                   "|---|---|---|---|---|\n");
    for (size_t i = 0; i < parts->count; i++) {
        const struct fp8q_result_part *p = &parts->items[i];
        fp8q_text_puts(t, "| ");
        fp8q_put_markdown(t, *p->name ? p->name : "(none)");
        fp8q_text_printf(t, " | %llu | %llu | ", (unsigned long long)p->samples,
                         (unsigned long long)p->tokens);
        fp8q_put_interval(t, p->kld, p->kld_se);
        fp8q_text_puts(t, " | ");
        fp8q_put_share(t, p->top1);
        fp8q_text_puts(t, " |\n");
    }
}

static void write_left(const struct fp8q_facts *f, struct fp8q_text *t)
{
    fp8q_text_puts(t,
                   "| left unquantized | type | tensors | size | why |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < f->left.count; i++) {
        const struct fp8q_facts_group *g = &f->left.items[i];
        fp8q_text_printf(t, "| %s | %s | %zu | ", g->name, fp8q_dtype_name(g->dtype), g->n_tensors);
        fp8q_put_bytes(t, g->bytes);
        fp8q_text_printf(t, " | %s |\n", fp8q_reason_sentence(g->name));
    }
}

static void write_gate(const struct fp8q_result_gate *g, struct fp8q_text *t)
{
    if (!g->there)
        return;

    fp8q_text_puts(
        t, "\n| gate | verdict | observed | interval | limit | |\n|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < g->count; i++) {
        const struct fp8q_result_check *c = &g->checks[i];
        fp8q_text_puts(t, "| ");
        fp8q_put_markdown(t, c->id);
        fp8q_text_puts(t, " | ");
        fp8q_put_markdown(t, c->status);

        /* Checks of yes and no have no figures.  */
        fp8q_text_puts(t, " | ");
        if (isfinite(c->observed))
            fp8q_put_number(t, 4, c->observed);
        fp8q_text_puts(t, " | ");
        if (isfinite(c->low) && isfinite(c->high))
            fp8q_text_printf(t, "%.4g to %.4g", c->low, c->high);
        fp8q_text_puts(t, " | ");
        if (isfinite(c->limit))
            fp8q_put_number(t, 4, c->limit);
        fp8q_text_puts(t, " | ");
        fp8q_put_markdown(t, c->message);
        fp8q_text_puts(t, " |\n");
    }
}

/* Makes a line of a code block, which no line of it can end: no path has a line end once it is clean.  */
#define INDENT "    "

/* ---- the model card -------------------------------------------------------------------------- */

static void write_serving(const struct fp8q_facts *f, struct fp8q_text *t)
{
    fp8q_text_puts(t, "## Use\n\n");
    if (f->inspection.family.lerobot)
        fp8q_text_puts(t,
                       "A LeRobot policy: no public engine reads it in FP8. Use a runtime of your "
                       "own, or `fp8q dequantize`.\n\n");
    fp8q_put_serving(f, f->name, INDENT, t);

    fp8q_text_puts(t, "\n| engine | |\n|---|---|\n");
    for (size_t i = 0; i < FP8Q_N_ENGINES; i++) {
        fp8q_text_printf(t, "| %s | ", fp8q_engines[i].name);
        fp8q_put_markdown(t, f->engines[i].note);
        fp8q_text_puts(t, " |\n");
    }
}

static void write_making(const struct fp8q_facts *f, struct fp8q_text *t)
{
    fp8q_text_puts(t, "\n## How it was made\n\n");
    fp8q_put_making(f, f->base_model, f->name, INDENT, t);
    fp8q_text_puts(t, "\n");

    if (f->source.known)
        fp8q_text_printf(t, "Fingerprint of the source `%08x`, ", (unsigned)f->source.crc32);
    fp8q_text_printf(t,
                     "%singerprint of this checkpoint `%08x`. Made with fp8q " FP8Q_VERSION ".\n",
                     f->source.known ? "f" : "F", (unsigned)f->output.crc32);
}

/* "other" says nothing: then it is what the card calls it.  */
static void write_licence(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const char *licence = f->inherited[FP8Q_CARD_LICENSE];
    if (f->inherited[FP8Q_CARD_LICENSE_NAME])
        licence = f->inherited[FP8Q_CARD_LICENSE_NAME];

    fp8q_text_puts(t,
                   "\n## Licence\n\nThat of the source, whose weights these are in another format");
    if (licence) {
        fp8q_text_puts(t, ": ");
        fp8q_put_markdown(t, licence);
    }
    if (f->inherited[FP8Q_CARD_LICENSE_LINK]) {
        fp8q_text_puts(t, ", ");
        fp8q_put_code(t, f->inherited[FP8Q_CARD_LICENSE_LINK]);
    }
    fp8q_text_puts(t, ".\n");
}

static void write_base_model(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const char *id = f->base_model;

    /* Only what can be nothing but a path goes into an address.  */
    if (id && fp8q_is_hub_id(id))
        fp8q_text_printf(t, "[%s](https://huggingface.co/%s)", id, id);
    else if (id)
        fp8q_put_code(t, id);
    else
        fp8q_text_puts(t, "A model");
    fp8q_text_puts(t, " ");
}

void fp8q_facts_card(const struct fp8q_facts *f, struct fp8q_text *t)
{
    locale_t before = fp8q_c_locale_enter();
    write_front_matter(f, t);

    fp8q_text_puts(t, "# ");
    fp8q_put_markdown(t, f->name);
    fp8q_text_puts(t, "\n\n");
    write_base_model(f, t);
    fp8q_text_puts(t, "with the weights of its language model in FP8 (E4M3).\n\n**");
    fp8q_text_puts(t, verdict_sign(f));
    fp8q_text_puts(t, "**: ");
    fp8q_put_markdown(t, f->verdict_text);
    fp8q_text_puts(t, "\n\n");

    write_facts(f, t);
    write_kld(&f->results.eval, t);
    write_categories(&f->results.eval.categories, t);
    fp8q_text_puts(t, "\n");
    write_left(f, t);
    write_gate(&f->results.gate, t);
    fp8q_text_puts(t, "\n");
    write_serving(f, t);
    write_making(f, t);
    write_licence(f, t);
    fp8q_c_locale_leave(before);
}

/* ---- the comment ----------------------------------------------------------------------------- */

void fp8q_facts_comment(const struct fp8q_facts *f, struct fp8q_text *t)
{
    locale_t before = fp8q_c_locale_enter();

    fp8q_text_puts(t, "### FP8: ");
    fp8q_text_puts(t, verdict_sign(f));
    fp8q_text_puts(t, ", ");
    fp8q_put_code(t, f->name);
    fp8q_text_puts(t, "\n\n");
    fp8q_put_markdown(t, f->verdict_text);
    fp8q_text_puts(t, "\n\n");
    write_facts(f, t);

    fp8q_text_puts(t, "\n<details><summary>More</summary>\n");
    write_kld(&f->results.eval, t);
    write_categories(&f->results.eval.categories, t);
    fp8q_text_puts(t, "\n");
    write_left(f, t);
    write_gate(&f->results.gate, t);
    fp8q_text_printf(t, "\nFingerprint `%08x`, fp8q " FP8Q_VERSION "\n</details>\n",
                     (unsigned)f->output.crc32);
    fp8q_c_locale_leave(before);
}
