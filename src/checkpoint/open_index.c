/* SPDX-License-Identifier: Apache-2.0
 *
 * open_index.c - what the index claims, compared with the files and their headers.
 */
#include "checkpoint/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/mem.h"

/* ---- shards: all there, none twice --------------------------------------------------------- */

static size_t entries_of_shard(const struct fp8q_opening *o, size_t shard)
{
    size_t count = 0;

    for (size_t i = 0; i < o->index.n_entries; i++)
        count += o->index.entries[i].shard == shard;

    return count;
}

/* All missing shards in one message: fetching them one by one would be tedious.  */
static int fail_missing(const struct fp8q_opening *o, size_t first)
{
    const struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_text others = {0};
    struct fp8q_shown dir, name, other;
    struct fp8q_hint hint;
    struct stat st;
    bool there;
    size_t n_missing = 1, n_tensors = entries_of_shard(o, first);

    for (size_t i = first + 1; i < ckpt->n_shards; i++) {
        /* A second failure would hide the first.  */
        if (fp8q_stat(ckpt->shards[i].path, &st, &there, NULL) != FP8Q_OK || there)
            continue;

        /* Five in all: hundreds would bury the advice.  */
        if (++n_missing <= 5)
            fp8q_text_printf(&others, ", %s", fp8q_show(&other, ckpt->shards[i].name));
    }

    if (n_missing > 5)
        fp8q_text_puts(&others, ", ...");

    /* The status of a missing file, but an id that tells it from a mistyped path.  */
    int status =
        fp8q_fail(o->err, FP8Q_E_IO, "shard-missing",
                  "%s: there is no shard %s, which should hold %zu tensor%s (missing: %zu of %zu "
                  "shards%s%s)%s%s",
                  fp8q_show(&dir, ckpt->dir), fp8q_show(&name, ckpt->shards[first].name), n_tensors,
                  fp8q_plural(n_tensors), n_missing, ckpt->n_shards, others.len ? ", also " : "",
                  others.len ? others.data + 2 : "",
                  o->has_single ? "; model.safetensors is there, the index may be stale" : "",
                  fp8q_hint_shard(&hint, ckpt->dir, ckpt->shards[first].path));
    fp8q_text_reset(&others);
    return status;
}

struct file_id {
    dev_t dev;
    ino_t ino;
    size_t shard;
};

static int compare_file_ids(const void *a, const void *b)
{
    const struct file_id *x = a, *y = b;
    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    if (x->ino != y->ino)
        return x->ino < y->ino ? -1 : 1;
    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

static bool same_file(const struct file_id *a, const struct file_id *b)
{
    return a->dev == b->dev && a->ino == b->ino;
}

/* Two names of one file (links, or a file system that ignores case): the first name stays.  */
static int merge_aliases(struct fp8q_opening *o, struct file_id *ids, uint32_t *new_number)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_shown a, b;
    size_t n_kept = 0;
    int status = FP8Q_OK;

    /* Neighbours in the order of device and inode are names of one file.  */
    qsort(ids, ckpt->n_shards, sizeof(*ids), compare_file_ids);

    /* Sorted by number last, so the first of several names has the lowest.  */
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        size_t first =
            i > 0 && same_file(&ids[i], &ids[i - 1]) ? new_number[ids[i - 1].shard] : ids[i].shard;
        new_number[ids[i].shard] = (uint32_t)first;
    }

    for (size_t i = 0; i < ckpt->n_shards; i++) {
        if (new_number[i] == i) {
            ckpt->shards[n_kept] = ckpt->shards[i];
            new_number[i] = (uint32_t)n_kept++;
            continue;
        }

        new_number[i] = new_number[new_number[i]]; /* an earlier one, numbered already */
        if (status == FP8Q_OK)
            status = fp8q_warn(o->warnings, o->err, "shard-alias", "shards %s and %s are one file",
                               fp8q_show(&a, ckpt->shards[new_number[i]].name),
                               fp8q_show(&b, ckpt->shards[i].name));
        /* Its tensors come with the first name.  */
        fp8q_shard_free(&ckpt->shards[i]);
    }

    ckpt->n_shards = n_kept;
    for (size_t i = 0; i < o->index.n_entries; i++)
        o->index.entries[i].shard = new_number[o->index.entries[i].shard];

    return status;
}

static int list_file_ids(const struct fp8q_opening *o, struct file_id *ids)
{
    for (size_t i = 0; i < o->ckpt->n_shards; i++) {
        struct stat st;
        bool there;
        FP8Q_TRY(fp8q_stat(o->ckpt->shards[i].path, &st, &there, o->err));
        if (!there)
            return fail_missing(o, i);
        ids[i] = (struct file_id){st.st_dev, st.st_ino, i};
    }
    return FP8Q_OK;
}

/* Every shard is there, and none twice, before the first header is read.  */
int fp8q_ckpt_check_shards(struct fp8q_opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct file_id *ids = fp8q_array(ckpt->n_shards, sizeof(*ids));
    uint32_t *new_number = fp8q_array(ckpt->n_shards, sizeof(*new_number));

    int status = ids && new_number ? list_file_ids(o, ids) : fp8q_fail_nomem(o->err);
    if (status == FP8Q_OK)
        status = merge_aliases(o, ids, new_number);

    free(ids);
    free(new_number);
    return status;
}

/* ---- headers against the index ------------------------------------------------------------- */

/* What the comparison found, for one warning of each kind.  */
struct findings {
    size_t n_unindexed, n_repeated;
    struct fp8q_tensor unindexed, used, repeated; /* first of each; @used is the other's twin */
    uint64_t indexed_bytes, carried_bytes;
};

static const char *shard_name(const struct fp8q_opening *o, uint32_t shard)
{
    return o->ckpt->shards[shard].name;
}

static int fail_not_in_shard(const struct fp8q_opening *o, const struct fp8q_index_entry *entry,
                             const struct fp8q_tensor *elsewhere)
{
    struct fp8q_shown dir, tensor, shard, other;

    fp8q_show(&dir, o->ckpt->dir);
    if (elsewhere)
        return fp8q_fail(o->err, FP8Q_E_FORMAT, "index-tensor",
                         "%s: the index places tensor \"%s\" in %s, but it is in %s", dir.text,
                         fp8q_show(&tensor, entry->tensor),
                         fp8q_show(&shard, shard_name(o, entry->shard)),
                         fp8q_show(&other, shard_name(o, elsewhere->shard)));
    return fp8q_fail(o->err, FP8Q_E_FORMAT, "index-tensor",
                     "%s: the index places tensor \"%s\" in %s, which lacks it", dir.text,
                     fp8q_show(&tensor, entry->tensor),
                     fp8q_show(&shard, shard_name(o, entry->shard)));
}

/* Chooses one of @count tensors of one name; @entry is what the index says about it, or NULL.  */
static int choose(struct fp8q_opening *o, const struct fp8q_tensor *same, size_t count,
                  const struct fp8q_index_entry *entry, struct findings *found,
                  struct fp8q_tensor *chosen_out)
{
    struct fp8q_shown dir, name, a, b;
    size_t take = 0;

    if (!entry && count > 1)
        return fp8q_fail(o->err, FP8Q_E_FORMAT, "tensor-in-two-shards",
                         "%s: tensor \"%s\" is in %s and in %s, and the index does not name it",
                         fp8q_show(&dir, o->ckpt->dir), fp8q_show(&name, same->name),
                         fp8q_show(&a, shard_name(o, same[0].shard)),
                         fp8q_show(&b, shard_name(o, same[1].shard)));

    /* Loaders read whole shards, so a tensor that the index forgot is carried.  */
    if (!entry && found->n_unindexed++ == 0)
        found->unindexed = same[0];

    if (entry) {
        while (take < count && same[take].shard != entry->shard)
            take++;
        if (take == count)
            return fail_not_in_shard(o, entry, same);
        found->indexed_bytes += same[take].size_bytes;
    }

    /* The index decides; one warning names the first twin.  */
    if (count > 1 && found->n_repeated++ == 0) {
        found->used = same[take];
        found->repeated = same[take == 0];
    }

    *chosen_out = same[take];
    return FP8Q_OK;
}

static int warn_findings(struct fp8q_opening *o, const struct findings *found)
{
    const struct fp8q_index *index = &o->index;
    struct fp8q_shown name, a, b;

    if (found->n_unindexed)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "unindexed-tensor",
                           "not in the index: %zu tensor%s of the shards, first \"%s\" in %s",
                           found->n_unindexed, fp8q_plural(found->n_unindexed),
                           fp8q_show(&name, found->unindexed.name),
                           fp8q_show(&a, shard_name(o, found->unindexed.shard))));

    if (found->n_repeated)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "tensor-in-two-shards",
                           "in two shards: %zu tensor%s, first \"%s\": taken from %s as the "
                           "index says, the copy in %s is left out",
                           found->n_repeated, fp8q_plural(found->n_repeated),
                           fp8q_show(&name, found->used.name),
                           fp8q_show(&a, shard_name(o, found->used.shard)),
                           fp8q_show(&b, shard_name(o, found->repeated.shard))));

    if (index->has_total_size && !index->total_size_ok)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "index-total-size",
                           "total_size in the index is no integer"));
    /* Either sum is in use: of all tensors, or of those that the index names.  */
    else if (index->has_total_size && index->total_size != found->carried_bytes &&
             index->total_size != found->indexed_bytes)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "index-total-size",
                           "total_size in the index is %" PRIu64 ", the tensors have %" PRIu64
                           " bytes",
                           index->total_size, found->carried_bytes));

    return FP8Q_OK;
}

/* Merges the two sorted lists; keeps one tensor of each name.  */
int fp8q_ckpt_match_index(struct fp8q_opening *o)
{
    struct findings found = {0};
    struct fp8q_ckpt *ckpt = o->ckpt;
    const struct fp8q_index *index = &o->index;
    size_t n_kept = 0, next = 0;

    for (size_t i = 0, count; i < ckpt->n_tensors; i += count) {
        const struct fp8q_tensor *same = &ckpt->tensors[i];
        const struct fp8q_index_entry *entry = NULL;

        /* The table is sorted by name, so equal ones are neighbours.  */
        for (count = 1; i + count < ckpt->n_tensors; count++) {
            if (strcmp(same->name, same[count].name) != 0)
                break;
        }

        int order = 1;
        if (next < index->n_entries)
            order = strcmp(index->entries[next].tensor, same->name);
        /* Both lists are sorted, so the index's next name is in no shard.  */
        if (next < index->n_entries && order < 0)
            return fail_not_in_shard(o, &index->entries[next], NULL);

        if (order == 0)
            entry = &index->entries[next++];

        struct fp8q_tensor chosen;
        FP8Q_TRY(choose(o, same, count, entry, &found, &chosen));
        found.carried_bytes += chosen.size_bytes;
        /* In place: one is kept of each name, so writing never overtakes reading.  */
        ckpt->tensors[n_kept++] = chosen;
    }

    /* What is left of the index sorts behind every tensor.  */
    if (next < index->n_entries)
        return fail_not_in_shard(o, &index->entries[next], NULL);
    ckpt->n_tensors = n_kept;
    return warn_findings(o, &found);
}
