/* SPDX-License-Identifier: Apache-2.0
 *
 * structure.c - index, headers and files agree; each FP8 weight has its scales.  Reads no weights.
 */
#include "verify/internal.h"

#include <string.h>

#include "format/names.h"
#include "select/select.h"

/* ---- index and stray files ------------------------------------------------------------------- */

/* Warnings of opening that are defects in an output: a loader may see other tensors than we did. */
static int check_opening(struct fp8q_report *report, const struct fp8q_warnings *warnings,
                         struct fp8q_error *err)
{
    static const char *const serious[] = {"unindexed-tensor",   "unindexed-file",
                                          "index-beside-model", "tensor-in-two-shards",
                                          "index-total-size",   "index-no-metadata"};
    struct fp8q_findings f = {.id = "index",
                              .status = report->ours ? FP8Q_CHECK_FAIL : FP8Q_CHECK_WARN,
                              .limit = "index, headers and files agree",
                              .n_looked_at = report->ckpt->n_tensors};

    for (size_t i = 0; warnings && i < warnings->count; i++)
        for (size_t k = 0; k < sizeof(serious) / sizeof(*serious); k++)
            if (strcmp(warnings->items[i].id, serious[k]) == 0)
                fp8q_findings_add(&f, i, report->ckpt->path, "%s", warnings->items[i].message);

    return fp8q_report_add(report, &f, err);
}

/* ---- weights and scales ---------------------------------------------------------------------- */

struct pairs {
    struct fp8q_findings scales, owners, any;
};

static int check_weight(struct pairs *p, const struct fp8q_ckpt *ckpt, size_t i,
                        struct fp8q_error *err)
{
    const char *name = ckpt->tensors[i].name;
    struct fp8q_error found = {0};
    struct fp8q_weights w;

    p->scales.n_looked_at++;

    /* Into an error of its own: what is wrong with the weight is a finding, not a failure of
     * verify.  */
    int status = fp8q_weights_open(ckpt, name, &w, &found);
    if (status == FP8Q_OK) {
        fp8q_weights_reset(&w);
        return FP8Q_OK;
    }

    if (fp8q_cannot_look(status)) {
        if (err)
            *err = found;
        return status;
    }

    /* Values are looked at with the payload, where all of them are counted.  */
    if (strcmp(found.id, "scale-value") != 0)
        fp8q_findings_add(&p->scales, i, name, "%s", found.message);
    return FP8Q_OK;
}

static int look_for_pairs(struct pairs *p, const struct fp8q_ckpt *ckpt, struct fp8q_error *err)
{
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        if (fp8q_is_fp8(t->dtype) && t->n_elems > 0)
            FP8Q_TRY(check_weight(p, ckpt, i, err));

        if (!fp8q_stem_len(t->name, FP8Q_WEIGHT_ENDING FP8Q_SCALE_INV_ENDING) &&
            !fp8q_stem_len(t->name, FP8Q_WEIGHT_ENDING FP8Q_SCALE_ENDING))
            continue;
        p->owners.n_looked_at++;
        if (!fp8q_scale_owner(ckpt, t->name))
            fp8q_findings_add(&p->owners, i, t->name, "its weight is not there or not F8_E4M3");
    }

    /* Else all other checks would pass on a checkpoint that was never quantized.  */
    if (p->scales.n_looked_at == 0)
        fp8q_findings_add(&p->any, 0, ckpt->path, "no F8_E4M3 weight");
    return FP8Q_OK;
}

static int check_pairs(struct fp8q_report *report, struct fp8q_error *err)
{
    struct pairs p = {
        .scales = {.id = "scale-pairs",
                   .status = FP8Q_CHECK_FAIL,
                   .limit = "one scale tensor of the right shape for each F8_E4M3 weight"},
        .owners = {.id = "scale-owners",
                   .status = FP8Q_CHECK_FAIL,
                   .limit = "no scale without its weight"},
        .any = {.id = "quantized",
                .status = FP8Q_CHECK_FAIL,
                .limit = "at least one F8_E4M3 weight",
                .n_looked_at = 1}};

    struct fp8q_findings *const all[] = {&p.any, &p.scales, &p.owners};

    int status = look_for_pairs(&p, report->ckpt, err);
    return fp8q_report_add_all(report, status, all, 3, err);
}

int fp8q_verify_structure(struct fp8q_report *report, const struct fp8q_warnings *warnings,
                          struct fp8q_error *err)
{
    FP8Q_TRY(check_opening(report, warnings, err));
    return check_pairs(report, err);
}
