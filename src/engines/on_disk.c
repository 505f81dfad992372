/* SPDX-License-Identifier: Apache-2.0
 *
 * on_disk.c - what a checkpoint is, before any engine is asked: its FP8 weights with their scales,
 * and how config.json describes them.
 */
#include "engines/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "format/names.h"
#include "select/targets.h"

/* ---- weights --------------------------------------------------------------------------------- */

static int add_weight(struct fp8q_on_disk *f, const struct fp8q_tensor *t, struct fp8q_error *err)
{
    struct fp8q_disk_weight *w = &f->weights[f->n_weights++];
    struct fp8q_error why = {.status = FP8Q_OK};
    *w = (struct fp8q_disk_weight){.weight = t};

    int status = fp8q_find_scales(f->ckpt, t, &w->scale, &why);
    if (status == FP8Q_OK)
        status = fp8q_find_layout(f->ckpt, t, w->scale, &w->layout, &why);
    if (status == FP8Q_OK)
        return FP8Q_OK;

    /* Not a failure here: it is what the engines will stumble over.  */
    w->scale = NULL;
    w->trouble = strdup(why.message);
    return w->trouble ? FP8Q_OK : fp8q_fail_nomem(err);
}

static int find_weights(struct fp8q_on_disk *f, struct fp8q_error *err)
{
    f->weights = fp8q_array(f->ckpt->n_tensors, sizeof(*f->weights));
    if (!f->weights)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < f->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &f->ckpt->tensors[i];
        if (fp8q_is_fp8(t->dtype) && t->ndim >= 2)
            FP8Q_TRY(add_weight(f, t, err));
    }

    return FP8Q_OK;
}

static int compare_name(const void *key, const void *item)
{
    return strcmp(key, ((const struct fp8q_disk_weight *)item)->weight->name);
}

const struct fp8q_disk_weight *fp8q_disk_weight_of(const struct fp8q_on_disk *f,
                                                   const struct fp8q_tensor *t)
{
    return bsearch(t->name, f->weights, f->n_weights, sizeof(*f->weights), compare_name);
}

/* ---- config ---------------------------------------------------------------------------------- */

static void find_config(struct fp8q_on_disk *f)
{
    for (size_t i = 0; i < fp8q_n_config_places && !f->config; i++) {
        const struct fp8q_json *q = fp8q_json_path(f->ckpt->config, fp8q_config_places[i].path);
        if (!fp8q_json_is_object(q))
            continue;
        f->config = q;
        f->place = &fp8q_config_places[i];
    }

    const char *algorithm = fp8q_json_string(fp8q_json_get(f->config, "quant_algo"), "");
    f->method = fp8q_json_string(fp8q_json_get(f->config, "quant_method"), "");
    f->has_format = true;
    f->says_groups = strcmp(f->method, "mxfp8") == 0;
    if (strcmp(f->method, "fp8") == 0 || f->says_groups)
        f->format = FP8Q_FORMAT_FP8;
    else if (strcmp(f->method, "compressed-tensors") == 0)
        f->format = FP8Q_FORMAT_COMPRESSED_TENSORS;
    else if (strcmp(f->method, "modelopt") == 0 && strcmp(algorithm, "FP8") == 0)
        f->format = FP8Q_FORMAT_MODELOPT;
    else
        f->has_format = false;
}

/* ---- config groups --------------------------------------------------------------------------- */

static int find_group(const struct fp8q_targets *targets, struct fp8q_disk_weight *w,
                      struct fp8q_error *err)
{
    char *module = strndup(w->weight->name, fp8q_weight_stem(w->weight->name));
    int status =
        module ? fp8q_targets_find(targets, module, &w->group, NULL, err) : fp8q_fail_nomem(err);
    free(module);
    return status;
}

static int find_groups(struct fp8q_on_disk *f, struct fp8q_error *err)
{
    struct fp8q_targets *targets;
    FP8Q_TRY(fp8q_targets_open(f->config, &targets, err));

    int status = FP8Q_OK;
    for (size_t i = 0; i < f->n_weights && status == FP8Q_OK; i++)
        status = find_group(targets, &f->weights[i], err);
    fp8q_targets_close(targets);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

int fp8q_on_disk_of(const struct fp8q_ckpt *ckpt, const struct fp8q_warnings *warnings,
                    struct fp8q_on_disk *f, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    *f = (struct fp8q_on_disk){
        .ckpt = ckpt, .warnings = warnings, .family = fp8q_family_of(ckpt->config)};

    find_config(f);
    FP8Q_TRY(find_weights(f, err));
    FP8Q_TRY(find_groups(f, err));
    if (f->n_weights == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "nothing-to-check",
                         "%s: holds no FP8 weights; `check` asks which engine loads a quantized "
                         "checkpoint",
                         fp8q_show(&shown, ckpt->path));
    return FP8Q_OK;
}

void fp8q_on_disk_reset(struct fp8q_on_disk *f)
{
    for (size_t i = 0; i < f->n_weights; i++)
        free(f->weights[i].trouble);
    free(f->weights);
    *f = (struct fp8q_on_disk){.ckpt = NULL};
}
