/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c - the handle of an open checkpoint.
 *
 * What a caller can look at is laid out once, when the handle is opened, so that pointers into it
 * stay good: about 70 bytes a tensor.
 */
#include <stdlib.h>
#include <string.h>

#include "api/internal.h"
#include "base/mem.h"
#include "checkpoint/values.h"
#include "select/inspect.h"

struct fp8q_checkpoint {
    struct fp8q_ckpt *ckpt;
    struct fp8q_inspection inspection;
    struct fp8q_checkpoint_info info;
    struct fp8q_tensor_info *tensors;
    struct fp8q_shard_info *shards;
    struct fp8q_tensor_group *groups;
};

static int describe_tensors(struct fp8q_checkpoint *c, struct fp8q_error *err)
{
    for (size_t i = 0; i < c->ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &c->ckpt->tensors[i];
        c->tensors[i] = (struct fp8q_tensor_info){.name = t->name,
                                                  .dtype = t->dtype,
                                                  .ndim = t->ndim,
                                                  .shape = t->shape,
                                                  .bytes = t->size_bytes,
                                                  .shard = c->ckpt->shards[t->shard].name};
        FP8Q_TRY(fp8q_tensor_role(c->ckpt, &c->inspection.family, t, &c->tensors[i].role, err));
    }
    return FP8Q_OK;
}

static void describe_shards(struct fp8q_checkpoint *c)
{
    for (size_t i = 0; i < c->ckpt->n_shards; i++) {
        const struct fp8q_shard *s = &c->ckpt->shards[i];
        c->shards[i] = (struct fp8q_shard_info){.name = s->name,
                                                .file_bytes = (uint64_t)s->stat.st_size,
                                                .n_tensors = s->header.n_tensors,
                                                .n_metadata = s->header.n_metadata};
    }
}

static void describe_groups(struct fp8q_checkpoint *c)
{
    for (size_t i = 0; i < c->inspection.n_kinds; i++) {
        const struct fp8q_tensor_kind *k = &c->inspection.kinds[i];
        c->groups[i] = (struct fp8q_tensor_group){.pattern = k->pattern,
                                                  .dtype = k->dtype,
                                                  .ndim = k->ndim,
                                                  .shape = k->shape,
                                                  .count = k->count,
                                                  .bytes = k->size_bytes};
    }
}

static int open_checkpoint(struct fp8q_checkpoint *c, const char *path,
                           const struct fp8q_watch *watch, struct fp8q_warnings *warnings,
                           struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_ckpt_open_watched(path, watch, &c->ckpt, warnings, err));
    FP8Q_TRY(fp8q_inspect(c->ckpt, &c->inspection, err));

    /* All at once: what is handed out later needs no memory, and cannot fail.  */
    c->tensors = fp8q_array(c->ckpt->n_tensors, sizeof(*c->tensors));
    c->shards = fp8q_array(c->ckpt->n_shards, sizeof(*c->shards));
    c->groups = fp8q_array(c->inspection.n_kinds, sizeof(*c->groups));
    if (!c->tensors || !c->shards || !c->groups)
        return fp8q_fail_nomem(err);
    FP8Q_TRY(describe_tensors(c, err));
    describe_shards(c);
    describe_groups(c);

    c->info = (struct fp8q_checkpoint_info){.path = c->ckpt->path,
                                            .is_directory = c->ckpt->is_dir,
                                            .n_tensors = c->ckpt->n_tensors,
                                            .n_shards = c->ckpt->n_shards,
                                            .n_groups = c->inspection.n_kinds,
                                            .bytes = c->ckpt->data_bytes,
                                            .model_type = c->inspection.model_type,
                                            .architecture = c->inspection.family.name,
                                            .quantization = c->inspection.quantization,
                                            .bits_per_weight = c->inspection.bits_per_weight};
    return FP8Q_OK;
}

int fp8q_checkpoint_open(const char *path, const struct fp8q_run *run,
                         struct fp8q_checkpoint **checkpoint_out, struct fp8q_warnings *warnings,
                         struct fp8q_error *err)
{
    struct fp8q_manner manner;
    FP8Q_TRY(fp8q_require(checkpoint_out, "checkpoint_out", err));
    /* Set before anything can fail, so that the caller may close it in any case.  */
    *checkpoint_out = NULL;
    FP8Q_TRY(fp8q_require(path, "path", err));
    FP8Q_TRY(fp8q_manner_of(run, &manner, err));

    struct fp8q_checkpoint *c = calloc(1, sizeof(*c));
    if (!c)
        return fp8q_fail_nomem(err);

    int status = open_checkpoint(c, path, &manner.watch, warnings, err);
    if (status == FP8Q_OK)
        *checkpoint_out = c;
    else
        fp8q_checkpoint_close(c);
    return status;
}

void fp8q_checkpoint_close(struct fp8q_checkpoint *c)
{
    if (!c)
        return;
    free(c->tensors);
    free(c->shards);
    free(c->groups);
    fp8q_inspection_reset(&c->inspection);
    fp8q_ckpt_close(c->ckpt);
    free(c);
}

/* ---- looking --------------------------------------------------------------------------------- */

const struct fp8q_checkpoint_info *fp8q_checkpoint_info(const struct fp8q_checkpoint *c)
{
    return &c->info;
}

const struct fp8q_tensor_info *fp8q_checkpoint_tensor(const struct fp8q_checkpoint *c, size_t index)
{
    return index < c->info.n_tensors ? &c->tensors[index] : NULL;
}

const struct fp8q_shard_info *fp8q_checkpoint_shard(const struct fp8q_checkpoint *c, size_t index)
{
    return index < c->info.n_shards ? &c->shards[index] : NULL;
}

const struct fp8q_tensor_group *fp8q_checkpoint_group(const struct fp8q_checkpoint *c, size_t index)
{
    return index < c->info.n_groups ? &c->groups[index] : NULL;
}

bool fp8q_checkpoint_metadata(const struct fp8q_checkpoint *c, size_t shard, size_t index,
                              const char **key_out, const char **value_out)
{
    *key_out = *value_out = NULL;
    if (shard >= c->info.n_shards || index >= c->shards[shard].n_metadata)
        return false;

    *key_out = c->ckpt->shards[shard].header.metadata[index].key;
    *value_out = c->ckpt->shards[shard].header.metadata[index].value;
    return true;
}

size_t fp8q_checkpoint_find(const struct fp8q_checkpoint *c, const char *name)
{
    const struct fp8q_tensor *t = name ? fp8q_ckpt_find(c->ckpt, name) : NULL;
    return t ? (size_t)(t - c->ckpt->tensors) : SIZE_MAX;
}

static int require_tensor(const struct fp8q_checkpoint *c, size_t index, struct fp8q_error *err)
{
    if (c && index < c->info.n_tensors)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "range", "there is no tensor number %zu", index);
}

static const char *scaling_name(enum fp8q_scaling scaling)
{
    switch (scaling) {
    case FP8Q_SCALING_BLOCK:
        return "block";
    case FP8Q_SCALING_ROW:
        return "row";
    case FP8Q_SCALING_TENSOR:
        return "tensor";
    case FP8Q_SCALING_GROUP:
        return "group";
    case FP8Q_SCALING_NONE:
        break;
    }
    return "none";
}

int fp8q_checkpoint_scheme(const struct fp8q_checkpoint *c, size_t index, const char **scheme_out,
                           const char **scale_out, struct fp8q_error *err)
{
    *scheme_out = *scale_out = NULL;
    FP8Q_TRY(require_tensor(c, index, err));
    const struct fp8q_tensor *t = &c->ckpt->tensors[index];
    *scheme_out = "none";
    if (!fp8q_is_fp8(t->dtype) || t->ndim < 2)
        return FP8Q_OK;

    struct fp8q_weights w;
    /* An FP8 weight without sound scales has no scheme, which is not "none".  */
    *scheme_out = NULL;
    FP8Q_TRY(fp8q_weights_open(c->ckpt, t->name, &w, err));
    *scheme_out = scaling_name(w.scaling);
    *scale_out = w.scale_from ? w.scale_from->name : NULL;
    fp8q_weights_reset(&w);
    return FP8Q_OK;
}

int fp8q_checkpoint_read(const struct fp8q_checkpoint *c, size_t index, uint64_t offset,
                         void *bytes, size_t len, struct fp8q_error *err)
{
    FP8Q_TRY(require_tensor(c, index, err));
    return fp8q_ckpt_read(c->ckpt, &c->ckpt->tensors[index], offset, bytes, len, err);
}

int fp8q_checkpoint_statistics(const struct fp8q_checkpoint *c, size_t index,
                               const struct fp8q_run *run, struct fp8q_statistics *out,
                               struct fp8q_error *err)
{
    struct fp8q_manner manner;

    *out = (struct fp8q_statistics){.size = sizeof(*out)};
    FP8Q_TRY(require_tensor(c, index, err));
    FP8Q_TRY(fp8q_manner_of(run, &manner, err));
    return fp8q_look_at_values(c->ckpt, c->ckpt->tensors[index].name, manner.kernel, out, err);
}
