/* SPDX-License-Identifier: Apache-2.0
 *
 * page_checkpoint.c - what the checkpoint holds, what was left unquantized and why, and what that
 * means for engines.
 */
#include <string.h>

#include "report/internal.h"
#include "report/markup.h"
#include "report/table.h"

/* ---- precision by role ----------------------------------------------------------------------- */

/* Bytes by role as one bar; what is FP8 in full colour.  */
static void draw_composition(const struct fp8q_facts *f, struct fp8q_text *t)
{
    uint64_t total = f->proof.ckpt->data_bytes;
    double at = 0;

    fp8q_text_puts(t, "<figure class=\"full\"><figcaption>Bytes by role; what is FP8 in full "
                      "colour</figcaption>\n<svg viewBox=\"0 0 1000 36\" role=\"img\" "
                      "preserveAspectRatio=\"none\" class=\"strip\" aria-label=\"Bytes by role, as "
                      "the table below has them\">");
    for (size_t i = 0; total && i < f->roles.count; i++) {
        const struct fp8q_facts_group *g = &f->roles.items[i];
        double width = 1000 * (double)g->bytes / (double)total;
        fp8q_text_printf(t, "<rect x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"36\" class=\"%s\">",
                         at, width, fp8q_is_fp8(g->dtype) ? "part on" : "part");
        fp8q_text_puts(t, "<title>");
        fp8q_put_html(t, g->name);
        fp8q_text_printf(t, ", %s, ", fp8q_dtype_name(g->dtype));
        fp8q_put_bytes(t, g->bytes);
        fp8q_text_puts(t, "</title></rect>");
        at += width;
    }
    fp8q_text_puts(t, "</svg></figure>\n");
}

void fp8q_page_precision(const struct fp8q_facts *f, struct fp8q_text *t)
{
    uint64_t total = f->proof.ckpt->data_bytes;
    fp8q_section_open(t, "precision", "Precision by role");
    draw_composition(f, t);

    fp8q_table_open(t, "Tensors by role and type", "role|type|#tensors|#elements|#size|#of all");
    for (size_t i = 0; i < f->roles.count; i++) {
        const struct fp8q_facts_group *g = &f->roles.items[i];
        fp8q_row_text(t, g->name);
        fp8q_cell_text(t, fp8q_dtype_name(g->dtype));
        fp8q_cell_count(t, g->n_tensors);
        fp8q_cell_count(t, g->n_elems);
        fp8q_cell_bytes(t, g->bytes);
        fp8q_cell_share(t, fp8q_share(g->bytes, total));
    }

    if (f->n_scale_tensors) {
        fp8q_row_text(t, "scales");
        fp8q_cell_text(t, "");
        fp8q_cell_count(t, f->n_scale_tensors);
        fp8q_cell_text(t, "");
        fp8q_cell_bytes(t, f->scale_bytes);
        fp8q_cell_share(t, fp8q_share(f->scale_bytes, total));
    }
    fp8q_table_close(t);
    fp8q_section_close(t);
}

/* ---- what was left --------------------------------------------------------------------------- */

static void write_reasons(const struct fp8q_facts *f, struct fp8q_text *t)
{
    fp8q_table_open(t, "Left unquantized, by reason", "reason|why|type|#tensors|#size");
    for (size_t i = 0; i < f->left.count; i++) {
        const struct fp8q_facts_group *g = &f->left.items[i];
        fp8q_row_text(t, g->name);
        fp8q_cell_prose(t, fp8q_reason_sentence(g->name));
        fp8q_cell_text(t, fp8q_dtype_name(g->dtype));
        fp8q_cell_count(t, g->n_tensors);
        fp8q_cell_bytes(t, g->bytes);
    }
    fp8q_table_close(t);
}

static void write_shapes(const struct fp8q_facts *f, struct fp8q_text *t)
{
    enum { MOST = 100 };
    if (f->left_shapes.count == 0)
        return;

    fp8q_table_open(t, "Shapes that forced it", "for example|shape|reason|#tensors|#size");
    for (size_t i = 0; i < f->left_shapes.count && i < MOST; i++) {
        const struct fp8q_facts_group *g = &f->left_shapes.items[i];
        fp8q_row_code(t, g->example->name);
        fp8q_cell_shape(t, g->example->shape, g->example->ndim);
        fp8q_cell_text(t, g->name);
        fp8q_cell_count(t, g->n_tensors);
        fp8q_cell_bytes(t, g->bytes);
    }
    fp8q_table_close(t);
}

/* ---- engines --------------------------------------------------------------------------------- */

static void write_cuts(const struct fp8q_facts *f, struct fp8q_text *t)
{
    fp8q_table_open(t, "Tensor parallelism: block scales that a cut would split",
                    "#ways|fits|first matrix that does not");
    for (unsigned i = 0; i < FP8Q_FACTS_TP; i++) {
        const char *misfit = f->tp_misfits[i];
        fp8q_text_printf(t, "\n<tr><th scope=\"row\" class=\"n\">%u", 2U << i);
        fp8q_cell_status(t, misfit ? "no" : "yes");
        if (misfit)
            fp8q_cell_code(t, misfit);
        else
            fp8q_cell_text(t, "");
    }
    fp8q_table_close(t);
}

static void write_engines(const struct fp8q_facts *f, struct fp8q_text *t)
{
    static const char *const words[] = {"yes", "not sure", "no"};

    fp8q_table_open(t, "Engines", "engine|loads it|what to know");
    for (size_t i = 0; i < FP8Q_N_ENGINES; i++) {
        fp8q_row_text(t, fp8q_engines[i].name);
        fp8q_cell_status(t, words[f->engines[i].state]);
        fp8q_cell_prose(t, f->engines[i].note);
    }
    fp8q_table_close(t);
}

void fp8q_page_left(const struct fp8q_facts *f, struct fp8q_text *t)
{
    fp8q_section_open(t, "left", "What was left unquantized, and who reads it");
    if (f->left.count)
        write_reasons(f, t);
    write_shapes(f, t);

    write_engines(f, t);
    write_cuts(f, t);
    fp8q_section_close(t);
}
