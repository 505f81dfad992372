/* SPDX-License-Identifier: Apache-2.0
 *
 * open_files.c - which files of a directory are the checkpoint: those of its index, or the one that
 * stands for itself.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "checkpoint/internal.h"
#include "format/names.h"

#define MAX_INDEX ((uint64_t)256 << 20)

bool fp8q_ckpt_dir_has(const struct fp8q_opening *o, const char *name)
{
    return o->n_names &&
           bsearch(&name, o->names, o->n_names, sizeof(*o->names), fp8q_compare_strings) != NULL;
}

int fp8q_ckpt_set_shards(struct fp8q_opening *o, const char *const *names, size_t count)
{
    struct fp8q_ckpt *ckpt = o->ckpt;

    ckpt->shards = fp8q_array(count, sizeof(*ckpt->shards));
    if (!ckpt->shards)
        return fp8q_fail_nomem(o->err);

    for (size_t i = 0; i < count; i++) {
        /* Counted first, so that closing frees what a failure leaves.  */
        ckpt->n_shards++;
        ckpt->shards[i].name = strdup(names[i]);
        ckpt->shards[i].path = fp8q_join(ckpt->dir, names[i]);
        if (!ckpt->shards[i].name || !ckpt->shards[i].path)
            return fp8q_fail_nomem(o->err);
    }
    return FP8Q_OK;
}

static int read_and_parse_index(struct fp8q_opening *o, const char *path)
{
    struct fp8q_ckpt *ckpt = o->ckpt;

    FP8Q_TRY(fp8q_read_file(path, MAX_INDEX, &ckpt->index_text, &ckpt->index_len, o->err));
    return fp8q_index_parse(ckpt->index_text, ckpt->index_len, path, &o->index, o->err);
}

static int read_index(struct fp8q_opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_index *index = &o->index;
    struct fp8q_shown shown;

    char *path = fp8q_join(ckpt->dir, FP8Q_INDEX_NAME);
    if (!path)
        return fp8q_fail_nomem(o->err);

    /* Only for the message about missing shards: it hints that the index is stale.  */
    ckpt->has_index = true;
    o->has_single = fp8q_ckpt_dir_has(o, FP8Q_SINGLE_NAME);
    int status = read_and_parse_index(o, path);
    free(path);
    FP8Q_TRY(status);

    ckpt->index_total_size = index->total_size;

    /* vLLM and SGLang do not look at it, so it is worth a warning and no more.  */
    if (!index->has_metadata)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "index-no-metadata",
                           "%s has no metadata object; transformers needs one", FP8Q_INDEX_NAME));
    if (index->respelled)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "shard-alias",
                           "%s spells %s with needless \"./\" or \"//\"", FP8Q_INDEX_NAME,
                           fp8q_show(&shown, index->respelled)));

    return fp8q_ckpt_set_shards(o, index->shards, index->n_shards);
}

static bool has_other_index(const struct fp8q_opening *o)
{
    for (size_t i = 0; i < o->n_names; i++) {
        if (fp8q_ends_with(o->names[i], ".index.json"))
            return true;
    }
    return false;
}

static bool has_other_weights(const char *name)
{
    static const char *const endings[] = {".bin",  ".gguf", ".pth",     ".pt",  ".ckpt",
                                          ".onnx", ".h5",   ".msgpack", ".npz", ".nemo"};

    for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++)
        if (fp8q_ends_with(name, endings[i]))
            return true;
    return false;
}

static int fail_no_file(const struct fp8q_opening *o, size_t n_found, const char *first)
{
    struct fp8q_shown dir, name;
    struct fp8q_hint hint;

    fp8q_show(&dir, o->ckpt->path);
    /* Say what is missing rather than quantize a part of a model.  */
    if (n_found == 1)
        return fp8q_fail(
            o->err, FP8Q_E_IO, "no-index",
            "%s: %s is one shard of several, but there is no %s; fetch the others and the index",
            dir.text, fp8q_show(&name, first), FP8Q_INDEX_NAME);

    if (n_found > 1)
        return fp8q_fail(o->err, FP8Q_E_IO, "no-index",
                         "%s: %zu .safetensors files (first %s), but neither %s nor %s%s; fetch "
                         "the index, which says what belongs together",
                         dir.text, n_found, fp8q_show(&name, first), FP8Q_INDEX_NAME,
                         FP8Q_SINGLE_NAME,
                         has_other_index(o) ? " (an index of another name is not read)" : "");

    /* Nothing to read: perhaps the weights are there in another format.  */
    for (size_t i = 0; i < o->n_names; i++) {
        if (has_other_weights(o->names[i]))
            return fp8q_fail(
                o->err, FP8Q_E_IO, "no-safetensors",
                "%s: no .safetensors file; %s is in a format that is not read: convert it, "
                "or fetch the model as safetensors",
                dir.text, fp8q_show(&name, o->names[i]));
    }
    return fp8q_fail(o->err, FP8Q_E_IO, "no-safetensors", "%s: no .safetensors file%s", dir.text,
                     fp8q_hint_below(&hint, o->ckpt->path));
}

/* Without an index: model.safetensors, or else the only .safetensors file.  */
static int pick_single(struct fp8q_opening *o)
{
    const char *single = FP8Q_SINGLE_NAME, *found = NULL;
    size_t n_found = 0;

    if (fp8q_ckpt_dir_has(o, single))
        return fp8q_ckpt_set_shards(o, &single, 1);

    for (size_t i = 0; i < o->n_names; i++) {
        if (fp8q_ends_with(o->names[i], FP8Q_WEIGHTS_ENDING)) {
            found = found ? found : o->names[i];
            n_found++;
        }
    }

    /* Several files without an index could be anything: two models, or stale copies.  */
    if (n_found != 1 || fp8q_shards_of_name(found) > 1)
        return fail_no_file(o, n_found, found);
    return fp8q_ckpt_set_shards(o, &found, 1);
}

int fp8q_ckpt_find_files(struct fp8q_opening *o)
{
    /* transformers would take model.safetensors first; the other readers go by the index.  */
    return fp8q_ckpt_dir_has(o, FP8Q_INDEX_NAME) ? read_index(o) : pick_single(o);
}
