/* SPDX-License-Identifier: Apache-2.0
 *
 * html.c - the page: head, verdict, sections in their order, how to reproduce it, the figures as
 * JSON.
 *
 * The page says to the browser that it may load nothing from anywhere, so that nothing which a file
 * put into a name could make it do so.
 */
#include "report/html.h"

#include <math.h>
#include <string.h>

#include "engines/tp.h"
#include "report/internal.h"
#include "report/json.h"
#include "report/markup.h"
#include "report/table.h"

void fp8q_section_open(struct fp8q_text *t, const char *id, const char *heading)
{
    fp8q_text_printf(t, "<section id=\"%s\" aria-labelledby=\"h-%s\"><h2 id=\"h-%s\">%s</h2>\n", id,
                     id, id, heading);
}

void fp8q_section_close(struct fp8q_text *t)
{
    fp8q_text_puts(t, "</section>\n");
}

double fp8q_share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : (double)NAN;
}

static void put_all(struct fp8q_text *t, const char *const *parts)
{
    for (; *parts; parts++)
        fp8q_text_puts(t, *parts);
}

/* ---- head ------------------------------------------------------------------------------------ */

static void write_head(const struct fp8q_facts *f, struct fp8q_text *t)
{
    fp8q_text_puts(t, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta name=\"color-scheme\" content=\"light dark\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                      "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n"
                      "<meta name=\"generator\" content=\"fp8q " FP8Q_VERSION "\">\n<title>");
    fp8q_put_html(t, f->name);
    fp8q_text_puts(t, ": FP8 report</title>\n<style>\n");
    put_all(t, fp8q_page_style);
    fp8q_text_puts(t, "</style>\n</head>\n");
}

static void write_links(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_measurements *r = &f->results;
    const struct {
        bool is_there;
        const char *id, *name;
    } links[] = {{true, "precision", "Precision"},
                 {true, "left", "Left unquantized"},
                 {true, "outputs", "Outputs"},
                 {f->n_quantized > 0, "weights", "Weights"},
                 {r->sweep.there, "sweep", "Sweep"},
                 {r->compare.there, "formats", "Formats"},
                 {r->drift.there || r->has_calibration, "inputs", "Inputs"},
                 {r->gate.there, "gate", "Gate"},
                 {true, "proof", "Proof"},
                 {true, "use", "Reproduce and serve"}};

    fp8q_text_puts(t, "<nav aria-label=\"Sections\"><ul>");
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
        if (links[i].is_there)
            fp8q_text_printf(t, "<li><a href=\"#%s\">%s</a></li>", links[i].id, links[i].name);
    fp8q_text_puts(t, "</ul></nav>\n");
}

/* ---- verdict and facts ----------------------------------------------------------------------- */

static const char *verdict_word(const struct fp8q_facts *f)
{
    static const char *const words[] = {"Passed", "Not decided", "Failed"};

    /* Without a gate, nobody asked whether it is good: its bytes were proved.  */
    if (f->verdict == FP8Q_FACTS_PASSED && !f->results.gate.there)
        return "Verified";
    return words[f->verdict];
}

static void open_card(struct fp8q_text *t, const char *name)
{
    fp8q_text_printf(t, "<div><dt>%s</dt><dd>", name);
}

static void close_card(struct fp8q_text *t, const char *detail)
{
    fp8q_text_printf(t, "</dd><dd class=\"small\">%s</dd></div>\n", detail);
}

static void write_size_cards(const struct fp8q_facts *f, struct fp8q_text *t)
{
    open_card(t, "Size");
    fp8q_put_bytes(t, f->proof.ckpt->data_bytes);
    fp8q_text_puts(t, "</dd><dd class=\"small\">");
    if (f->source_bytes) {
        fp8q_put_share(t, fp8q_share(f->proof.ckpt->data_bytes, f->source_bytes));
        fp8q_text_puts(t, " of ");
        fp8q_put_bytes(t, f->source_bytes);
    } else {
        fp8q_text_puts(t, "all tensors");
    }
    fp8q_text_puts(t, "</dd></div>\n");

    open_card(t, "Bits a weight");
    fp8q_text_printf(t, "%.2f", f->inspection.bits_per_weight);
    close_card(t, "scales and what was left included");

    open_card(t, "Weights in FP8");
    fp8q_put_share(t, fp8q_share(f->quantized_elems, f->weight_elems));
    fp8q_text_puts(t, "</dd><dd class=\"small\">of ");
    fp8q_put_count(t, f->weight_elems);
    fp8q_text_puts(t, "</dd></div>\n");
}

static void write_quality_cards(const struct fp8q_facts *f, struct fp8q_text *t)
{
    const struct fp8q_result_row *r = &f->results.eval.rows[FP8Q_RESULT_OUTPUT];

    if (r->there) {
        open_card(t, "KL divergence");
        fp8q_put_number(t, 3, r->mean);
        fp8q_text_puts(t, "</dd><dd class=\"small\">");
        if (isfinite(r->se))
            fp8q_text_printf(t, "\xC2\xB1 %.2g, ", FP8Q_95 * r->se);
        fp8q_text_puts(t, "nats a token</dd></div>\n");

        open_card(t, "Same first choice");
        fp8q_put_share(t, r->top1);
        close_card(t, "of tokens, as the source");
    }

    if (f->proof.n_sqnr && isfinite(f->proof.sqnr_mean)) {
        open_card(t, "Signal to noise");
        fp8q_text_printf(t, "%.2f dB", f->proof.sqnr_mean);
        close_card(t, "of FP8 weights, mean");
    }

    open_card(t, "Tensor parallel");
    fp8q_text_printf(t, "%u", fp8q_facts_largest_tp(f));
    close_card(t, fp8q_facts_largest_tp(f) >= FP8Q_MOST_TP ? "ways and more" : "ways at most");
}

static void write_verdict(const struct fp8q_facts *f, struct fp8q_text *t)
{
    static const char *const styles[] = {"good", "warn", "bad"};

    fp8q_text_puts(t, "<header>\n<p class=\"over\">FP8 report</p>\n<h1>");
    fp8q_put_html(t, f->name);
    fp8q_text_puts(t, "</h1>\n<p class=\"lead\">");
    fp8q_put_html(t, f->inspection.family.name);
    if (f->inspection.model_type) {
        fp8q_text_puts(t, " (");
        fp8q_put_html(t, f->inspection.model_type);
        fp8q_text_puts(t, ")");
    }
    fp8q_text_puts(t, " &middot; ");
    fp8q_put_html(t, f->inspection.quantization);
    if (f->base_model) {
        fp8q_text_puts(t, " &middot; made from ");
        fp8q_put_html(t, f->base_model);
    }

    fp8q_text_printf(t, "</p>\n<p class=\"verdict %s\"><strong>%s</strong> <span>",
                     styles[f->verdict], verdict_word(f));
    fp8q_put_html(t, f->verdict_text);
    fp8q_text_puts(t, "</span></p>\n<dl class=\"cards\">\n");
    write_size_cards(f, t);
    write_quality_cards(f, t);
    fp8q_text_puts(t, "</dl>\n</header>\n");
}

/* ---- proof, reproduce, serve ----------------------------------------------------------------- */

static void write_proof(const struct fp8q_facts *f, struct fp8q_text *t)
{
    static const char *const words[] = {"pass", "warn", "fail"};

    fp8q_section_open(t, "proof", "Proof");
    fp8q_text_printf(
        t, "<p>%zu checks of <code>fp8q verify</code>%s: %zu failed, %zu warning%s.</p>\n",
        f->proof.n_checks, f->proof.source ? " against the source" : "", f->proof.n_failed,
        f->proof.n_warned, fp8q_plural(f->proof.n_warned));

    fp8q_table_open(t, "Checks of verify", "check|result|found|expected");
    for (size_t i = 0; i < f->proof.n_checks; i++) {
        const struct fp8q_check *c = &f->proof.checks[i];
        fp8q_row_text(t, c->id);
        fp8q_cell_status(t, words[c->status]);
        fp8q_cell_prose(t, c->observed);
        if (c->where[0]) {
            fp8q_text_puts(t, ": <code>");
            fp8q_put_html(t, c->where);
            fp8q_text_puts(t, "</code>");
        }
        fp8q_cell_prose(t, c->limit);
    }
    fp8q_table_close(t);
    fp8q_section_close(t);
}

/* Lines for a shell, each escaped for the page, whose escapes know no line end; releases @lines.  */
static void write_shell(struct fp8q_text *lines, struct fp8q_text *t)
{
    char *rest = NULL;

    fp8q_text_puts(t, "<pre tabindex=\"0\"><code>");
    for (char *line = lines->data ? strtok_r(lines->data, "\n", &rest) : NULL; line;
         line = strtok_r(NULL, "\n", &rest)) {
        fp8q_put_html(t, line);
        fp8q_text_puts(t, "\n");
    }
    fp8q_text_puts(t, "</code></pre>\n");

    t->failed = t->failed || lines->failed;
    fp8q_text_reset(lines);
}

static void write_fingerprint(const char *name, struct fp8q_fingerprint print, struct fp8q_text *t)
{
    if (print.known)
        fp8q_text_printf(t, "<dt>%s</dt><dd><code>%08x</code></dd>\n", name, (unsigned)print.crc32);
}

static void write_origin(const struct fp8q_facts *f, struct fp8q_text *t)
{
    fp8q_text_puts(t, "<dl class=\"list\">\n");
    write_fingerprint("Fingerprint of the output", f->output, t);
    write_fingerprint("Fingerprint of the source", f->source, t);
    if (f->inherited[FP8Q_CARD_LICENSE]) {
        fp8q_text_puts(t, "<dt>Licence, that of the source</dt><dd>");
        fp8q_put_html(t, f->inherited[FP8Q_CARD_LICENSE]);
        fp8q_text_puts(t, "</dd>\n");
    }
    fp8q_text_puts(t, "<dt>Report</dt><dd>");
    fp8q_put_html(t, f->request.created);
    fp8q_text_puts(t, ", fp8q " FP8Q_VERSION "</dd>\n</dl>\n");
}

static void write_use(const struct fp8q_facts *f, struct fp8q_text *t)
{
    struct fp8q_text lines = {0};

    fp8q_section_open(t, "use", "Reproduce and serve");
    fp8q_text_puts(t, "<h3>Reproduce</h3>\n");
    fp8q_put_making(f, f->source_path, f->path, "", &lines);
    write_shell(&lines, t);
    write_origin(f, t);

    fp8q_text_puts(t, "<h3>Serve</h3>\n");
    if (f->inspection.family.lerobot)
        fp8q_text_puts(t,
                       "<p class=\"note\">A LeRobot policy: no public engine reads it in FP8. Use "
                       "a runtime of your own, or <code>fp8q dequantize</code>.</p>\n");
    fp8q_put_serving(f, f->path, "", &lines);
    write_shell(&lines, t);

    fp8q_page_tensors(f, t);
    fp8q_section_close(t);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void write_data(const struct fp8q_facts *f, struct fp8q_text *t)
{
    struct fp8q_jsonw w = {0};
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_string(&w, "fp8q", FP8Q_VERSION);
    fp8q_facts_json(f, &w);
    fp8q_jsonw_close(&w, '}');

    fp8q_text_puts(t, "<script type=\"application/json\" id=\"data\">");
    if (w.text.data)
        fp8q_put_script(t, w.text.data, w.text.len);
    t->failed = t->failed || w.text.failed;
    fp8q_text_puts(t, "</script>\n");
    fp8q_text_reset(&w.text);
}

void fp8q_facts_html(const struct fp8q_facts *f, struct fp8q_text *t)
{
    locale_t before = fp8q_c_locale_enter();

    write_head(f, t);
    fp8q_text_puts(t, "<body>\n<a class=\"skip\" href=\"#main\">To the report</a>\n");
    write_verdict(f, t);
    write_links(f, t);
    fp8q_text_puts(t, "<main id=\"main\">\n");

    fp8q_page_precision(f, t);
    fp8q_page_left(f, t);
    fp8q_page_outputs(f, t);
    fp8q_page_weights(f, t);
    fp8q_page_choices(f, t);
    fp8q_page_gate(f, t);
    write_proof(f, t);
    write_use(f, t);

    fp8q_text_puts(t, "</main>\n<footer><p>Made by fp8q " FP8Q_VERSION
                      ". Everything is in this file; nothing is loaded.</p></footer>\n");
    write_data(f, t);
    fp8q_text_puts(t, "<script>\n");
    put_all(t, fp8q_page_script);
    fp8q_text_puts(t, "</script>\n</body>\n</html>\n");
    fp8q_c_locale_leave(before);
}
