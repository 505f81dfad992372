/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c - opens a file or directory: which files count, their headers, one sorted table.
 *
 * The index decides which shards are read and from which shard a tensor comes; everything it claims
 * is compared with the headers here.  No file stays open, so a thousand shards need one descriptor.
 */
#include "checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "index.h"
#include "io.h"
#include "mem.h"

#define INDEX_NAME "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"
#define SUFFIX ".safetensors"
#define MAX_INDEX ((uint64_t)256 << 20)
#define MAX_CONFIG ((uint64_t)16 << 20)

/* What is needed only while opening.  */
struct opening {
    struct fp8q_ckpt *ckpt;
    struct fp8q_warnings *warnings;
    struct fp8q_error *err;
    struct fp8q_index index;
    char **names; /* of the directory */
    size_t n_names;
};

static bool ends_with(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && strcmp(text + n - m, suffix) == 0;
}

static int compare_strings(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool dir_has(const struct opening *o, const char *name)
{
    return o->n_names &&
           bsearch(&name, o->names, o->n_names, sizeof(*o->names), compare_strings) != NULL;
}

static const struct fp8q_shard *find_shard(const struct fp8q_ckpt *ckpt, const char *name)
{
    size_t from = 0, to = ckpt->n_shards;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        int order = strcmp(name, ckpt->shards[middle].name);
        if (order == 0)
            return &ckpt->shards[middle];
        if (order < 0)
            to = middle;
        else
            from = middle + 1;
    }
    return NULL;
}

/* ---- which files --------------------------------------------------------------------------- */

static int set_shards(struct opening *o, const char *const *names, size_t count)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    ckpt->shards = fp8q_array(count, sizeof(*ckpt->shards));
    if (!ckpt->shards)
        return fp8q_fail_nomem(o->err);
    for (size_t i = 0; i < count; i++) {
        ckpt->n_shards++;
        ckpt->shards[i].name = strdup(names[i]);
        ckpt->shards[i].path = fp8q_join(ckpt->dir, names[i]);
        if (!ckpt->shards[i].name || !ckpt->shards[i].path)
            return fp8q_fail_nomem(o->err);
    }
    return FP8Q_OK;
}

static int read_index(struct opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_index *index = &o->index;
    struct fp8q_shown shown;
    char *path = fp8q_join(ckpt->dir, INDEX_NAME);
    if (!path)
        return fp8q_fail_nomem(o->err);
    ckpt->has_index = true;
    int status = fp8q_read_file(path, MAX_INDEX, &ckpt->index_text, &ckpt->index_len, o->err);
    if (status == FP8Q_OK)
        status = fp8q_index_parse(ckpt->index_text, ckpt->index_len, path, index, o->err);
    free(path);
    FP8Q_TRY(status);
    ckpt->index_total_size = index->total_size;
    if (!index->has_metadata)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "index-no-metadata",
                           "%s has no metadata object; transformers needs one", INDEX_NAME));
    if (index->respelled)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "shard-alias",
                           "%s spells %s with needless \"./\" or \"//\"", INDEX_NAME,
                           fp8q_show(&shown, index->respelled)));
    return set_shards(o, index->shards, index->n_shards);
}

/* M of a name that ends in "-N-of-M.safetensors", 0 for any other.  */
static unsigned long parts_in_name(const char *name)
{
    size_t len = strlen(name) - strlen(SUFFIX), i = len;
    while (i > 0 && name[i - 1] >= '0' && name[i - 1] <= '9')
        i--;
    if (i == len || i < 4 || memcmp(name + i - 4, "-of-", 4) != 0)
        return 0;
    return strtoul(name + i, NULL, 10);
}

static int fail_no_file(const struct opening *o, size_t n_found, const char *first)
{
    struct fp8q_shown dir, name;
    fp8q_show(&dir, o->ckpt->path);
    if (n_found == 1)
        return fp8q_fail(o->err, FP8Q_E_IO, "no-index",
                         "%s: %s is one shard of several, but there is no %s", dir.text,
                         fp8q_show(&name, first), INDEX_NAME);
    if (n_found > 1)
        return fp8q_fail(o->err, FP8Q_E_IO, "no-index",
                         "%s: %zu .safetensors files (first %s), but neither %s nor %s", dir.text,
                         n_found, fp8q_show(&name, first), INDEX_NAME, SINGLE_NAME);
    for (size_t i = 0; i < o->n_names; i++) {
        if (ends_with(o->names[i], ".bin") || ends_with(o->names[i], ".gguf") ||
            ends_with(o->names[i], ".pth") || ends_with(o->names[i], ".pt"))
            return fp8q_fail(o->err, FP8Q_E_IO, "no-safetensors",
                             "%s: no .safetensors file; %s is in a format that is not read",
                             dir.text, fp8q_show(&name, o->names[i]));
    }
    return fp8q_fail(o->err, FP8Q_E_IO, "no-safetensors", "%s: no .safetensors file", dir.text);
}

/* Without an index: model.safetensors, or else the only .safetensors file.  */
static int pick_single(struct opening *o)
{
    const char *single = SINGLE_NAME, *found = NULL;
    size_t n_found = 0;
    if (dir_has(o, single))
        return set_shards(o, &single, 1);
    for (size_t i = 0; i < o->n_names; i++) {
        if (ends_with(o->names[i], SUFFIX)) {
            found = found ? found : o->names[i];
            n_found++;
        }
    }
    if (n_found != 1 || parts_in_name(found) > 1)
        return fail_no_file(o, n_found, found);
    return set_shards(o, &found, 1);
}

static size_t entries_of_shard(const struct opening *o, size_t shard)
{
    size_t count = 0;
    for (size_t i = 0; i < o->index.n_entries; i++)
        count += o->index.entries[i].shard == shard;
    return count;
}

/* All missing shards in one message: fetching them one by one would be tedious.  */
static int fail_missing(const struct opening *o, size_t first, int errnum)
{
    const struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_text others = {0};
    struct fp8q_shown dir, name, other;
    struct stat st;
    size_t n_missing = 1;
    for (size_t i = first + 1; i < ckpt->n_shards; i++) {
        if (stat(ckpt->shards[i].path, &st) == 0 || errno != ENOENT)
            continue;
        if (++n_missing <= 5)
            fp8q_text_printf(&others, ", %s", fp8q_show(&other, ckpt->shards[i].name));
    }
    if (n_missing > 5)
        fp8q_text_puts(&others, ", ...");
    int status = fp8q_fail_errno(
        o->err, errnum,
        "%s: shard %s, which should hold %zu tensors (missing: %zu of %zu shards%s%s)",
        fp8q_show(&dir, ckpt->dir), fp8q_show(&name, ckpt->shards[first].name),
        entries_of_shard(o, first), n_missing, ckpt->n_shards, others.len ? ", also " : "",
        others.len ? others.data + 2 : "");
    if (o->err && errnum == ENOENT)
        snprintf(o->err->id, sizeof(o->err->id), "shard-missing");
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

static void free_shard(struct fp8q_shard *shard)
{
    free(shard->name);
    free(shard->path);
    fp8q_st_reset(&shard->header);
}

/* Two names of one file (links, or a file system that ignores case): the first name stays.  */
static int merge_aliases(struct opening *o, struct file_id *ids, uint32_t *new_number)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_shown a, b;
    size_t n_kept = 0;
    int status = FP8Q_OK;
    qsort(ids, ckpt->n_shards, sizeof(*ids), compare_file_ids);
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        bool alias = i > 0 && ids[i].dev == ids[i - 1].dev && ids[i].ino == ids[i - 1].ino;
        new_number[ids[i].shard] = (uint32_t)(alias ? new_number[ids[i - 1].shard] : ids[i].shard);
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
        free_shard(&ckpt->shards[i]);
    }
    ckpt->n_shards = n_kept;
    for (size_t i = 0; i < o->index.n_entries; i++)
        o->index.entries[i].shard = new_number[o->index.entries[i].shard];
    return status;
}

/* Every shard is there, and none twice, before the first header is read.  */
static int check_shard_files(struct opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct file_id *ids = fp8q_array(ckpt->n_shards, sizeof(*ids));
    uint32_t *new_number = fp8q_array(ckpt->n_shards, sizeof(*new_number));
    int status = ids && new_number ? FP8Q_OK : fp8q_fail_nomem(o->err);
    for (size_t i = 0; status == FP8Q_OK && i < ckpt->n_shards; i++) {
        struct stat st;
        if (stat(ckpt->shards[i].path, &st) != 0)
            status = fail_missing(o, i, errno);
        else
            ids[i] = (struct file_id){st.st_dev, st.st_ino, i};
    }
    if (status == FP8Q_OK)
        status = merge_aliases(o, ids, new_number);
    free(ids);
    free(new_number);
    return status;
}

/* ---- headers ------------------------------------------------------------------------------- */

static int read_headers(struct opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        struct fp8q_shard *shard = &ckpt->shards[i];
        int fd;
        FP8Q_TRY(fp8q_check_cancel(o->err));
        FP8Q_TRY(fp8q_open_read(shard->path, &shard->stat, &fd, o->err));
        int status =
            fp8q_st_read(fd, (uint64_t)shard->stat.st_size, shard->path, &shard->header, o->err);
        (void)fp8q_close(&fd, shard->path, NULL); /* only read */
        FP8Q_TRY(status);
        ckpt->n_tensors += shard->header.n_tensors;
    }
    return FP8Q_OK;
}

/* Every tensor of every shard, sorted by (name, shard).  */
static int compare_tensors(const void *a, const void *b)
{
    const struct fp8q_tensor *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order ? order : x->shard < y->shard ? -1 : x->shard > y->shard;
}

static int list_tensors(struct opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    size_t n = 0;
    ckpt->tensors = fp8q_array(ckpt->n_tensors, sizeof(*ckpt->tensors));
    if (!ckpt->tensors)
        return fp8q_fail_nomem(o->err);
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        const struct fp8q_st_header *header = &ckpt->shards[i].header;
        for (size_t j = 0; j < header->n_tensors; j++) {
            const struct fp8q_st_tensor *t = &header->tensors[j];
            struct fp8q_tensor *out = &ckpt->tensors[n++];
            *out = (struct fp8q_tensor){.name = t->name,
                                        .shape = t->shape,
                                        .size_bytes = t->end - t->begin,
                                        .offset = header->data_start + t->begin,
                                        .ndim = t->ndim,
                                        .shard = (uint32_t)i,
                                        .dtype = t->dtype};
            (void)fp8q_shape_count(t->shape, t->ndim, &out->n_elems); /* checked with the header */
        }
    }
    qsort(ckpt->tensors, n, sizeof(*ckpt->tensors), compare_tensors);
    return FP8Q_OK;
}

/* ---- headers against the index ------------------------------------------------------------- */

/* What the comparison found, for one warning of each kind.  */
struct findings {
    size_t n_unindexed, n_repeated;
    struct fp8q_tensor unindexed, used, repeated; /* first of each; @used is the other's twin */
    uint64_t indexed_bytes;
};

static const char *shard_name(const struct opening *o, uint32_t shard)
{
    return o->ckpt->shards[shard].name;
}

static int fail_not_in_shard(const struct opening *o, const struct fp8q_index_entry *entry,
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
static int choose(struct opening *o, const struct fp8q_tensor *same, size_t count,
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
    if (!entry && found->n_unindexed++ == 0)
        found->unindexed = same[0];
    if (entry) {
        while (take < count && same[take].shard != entry->shard)
            take++;
        if (take == count)
            return fail_not_in_shard(o, entry, same);
        found->indexed_bytes += same[take].size_bytes;
    }
    if (count > 1 && found->n_repeated++ == 0) {
        found->used = same[take];
        found->repeated = same[take == 0];
    }
    *chosen_out = same[take];
    return FP8Q_OK;
}

/* Merges the two sorted lists; keeps one tensor of each name.  */
static int match_index(struct opening *o, struct findings *found)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    const struct fp8q_index *index = &o->index;
    size_t n_kept = 0, next = 0;
    for (size_t i = 0, count; i < ckpt->n_tensors; i += count) {
        const struct fp8q_tensor *same = &ckpt->tensors[i];
        const struct fp8q_index_entry *entry = NULL;
        for (count = 1; i + count < ckpt->n_tensors; count++) {
            if (strcmp(same->name, same[count].name) != 0)
                break;
        }
        int order = 1;
        if (next < index->n_entries)
            order = strcmp(index->entries[next].tensor, same->name);
        if (next < index->n_entries && order < 0)
            return fail_not_in_shard(o, &index->entries[next], NULL);
        if (order == 0)
            entry = &index->entries[next++];
        struct fp8q_tensor chosen;
        FP8Q_TRY(choose(o, same, count, entry, found, &chosen));
        ckpt->tensors[n_kept++] = chosen;
    }
    if (next < index->n_entries)
        return fail_not_in_shard(o, &index->entries[next], NULL);
    ckpt->n_tensors = n_kept;
    return FP8Q_OK;
}

static int warn_findings(struct opening *o, const struct findings *found)
{
    const struct fp8q_index *index = &o->index;
    struct fp8q_shown name, a, b;
    if (found->n_unindexed)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "unindexed-tensor",
                           "%zu tensors are in the shards but not in the index, first \"%s\" in %s",
                           found->n_unindexed, fp8q_show(&name, found->unindexed.name),
                           fp8q_show(&a, shard_name(o, found->unindexed.shard))));
    if (found->n_repeated)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "tensor-in-two-shards",
                           "%zu tensors are in two shards, first \"%s\": taken from %s as the "
                           "index says, the copy in %s is left out",
                           found->n_repeated, fp8q_show(&name, found->used.name),
                           fp8q_show(&a, shard_name(o, found->used.shard)),
                           fp8q_show(&b, shard_name(o, found->repeated.shard))));
    if (index->has_total_size && !index->total_size_ok)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "index-total-size",
                           "total_size in the index is no integer"));
    else if (index->has_total_size && index->total_size != o->ckpt->data_bytes &&
             index->total_size != found->indexed_bytes)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "index-total-size",
                           "total_size in the index is %" PRIu64 ", the tensors have %" PRIu64
                           " bytes",
                           index->total_size, o->ckpt->data_bytes));
    return FP8Q_OK;
}

static int build_table(struct opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct findings found = {0};
    struct fp8q_shown shown;
    FP8Q_TRY(list_tensors(o));
    if (ckpt->has_index)
        FP8Q_TRY(match_index(o, &found));
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        ckpt->data_bytes += ckpt->tensors[i].size_bytes; /* no more than the files together */
    if (ckpt->has_index)
        FP8Q_TRY(warn_findings(o, &found));
    if (ckpt->n_tensors == 0)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "no-tensors", "%s holds no tensor",
                           fp8q_show(&shown, ckpt->path)));
    return FP8Q_OK;
}

/* ---- the rest of the directory ------------------------------------------------------------- */

static bool is_policy_file(const char *name)
{
    return strncmp(name, "policy_preprocessor", 19) == 0 ||
           strncmp(name, "policy_postprocessor", 20) == 0;
}

static int list_other_files(struct opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_shown shown;
    ckpt->other_files = fp8q_array(o->n_names, sizeof(*ckpt->other_files));
    if (!ckpt->other_files)
        return fp8q_fail_nomem(o->err);
    for (size_t i = 0; i < o->n_names; i++) {
        char *name = o->names[i];
        if (find_shard(ckpt, name) || (ckpt->has_index && strcmp(name, INDEX_NAME) == 0))
            continue;
        ckpt->other_files[ckpt->n_other_files++] = name;
        o->names[i] = NULL; /* moved */
        if (!ends_with(name, SUFFIX) || is_policy_file(name))
            continue;
        if (ckpt->has_index && strcmp(name, SINGLE_NAME) == 0)
            FP8Q_TRY(fp8q_warn(o->warnings, o->err, "index-beside-model",
                               "%s is not read: the index does not name it (transformers would "
                               "prefer it to the index)",
                               SINGLE_NAME));
        else
            FP8Q_TRY(fp8q_warn(o->warnings, o->err, "unindexed-file", "%s is not read: %s",
                               fp8q_show(&shown, name),
                               ckpt->has_index ? "the index does not name it"
                                               : "it is not the checkpoint's one file"));
    }
    return FP8Q_OK;
}

static int read_config(struct opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_shown shown;
    if (!dir_has(o, "config.json"))
        return FP8Q_OK;
    char *path = fp8q_join(ckpt->dir, "config.json");
    if (!path)
        return fp8q_fail_nomem(o->err);
    int status = fp8q_read_file(path, MAX_CONFIG, &ckpt->config_text, &ckpt->config_len, o->err);
    if (status == FP8Q_OK)
        status = fp8q_json_parse(ckpt->config_text, ckpt->config_len, FP8Q_JSON_PYTHON, path,
                                 &ckpt->config, o->err);
    if (status == FP8Q_OK && !fp8q_json_is_object(ckpt->config))
        status = fp8q_fail(o->err, FP8Q_E_FORMAT, "config", "%s: is no JSON object",
                           fp8q_show(&shown, path));
    free(path);
    return status;
}

/* ---- open and close ------------------------------------------------------------------------ */

static int open_dir(struct opening *o)
{
    o->ckpt->is_dir = true;
    o->ckpt->dir = strdup(o->ckpt->path);
    if (!o->ckpt->dir)
        return fp8q_fail_nomem(o->err);
    FP8Q_TRY(fp8q_list_dir(o->ckpt->dir, &o->names, &o->n_names, o->err));
    FP8Q_TRY(read_config(o));
    FP8Q_TRY(dir_has(o, INDEX_NAME) ? read_index(o) : pick_single(o));
    FP8Q_TRY(check_shard_files(o));
    FP8Q_TRY(read_headers(o));
    FP8Q_TRY(build_table(o));
    return list_other_files(o);
}

static int open_file(struct opening *o)
{
    const char *path = o->ckpt->path, *name = fp8q_basename(path);
    struct fp8q_shown shown;
    size_t dir_len = (size_t)(name - path);
    if (ends_with(name, ".index.json"))
        return fp8q_fail(o->err, FP8Q_E_ARG, "is-index", "%s: is an index; name its directory",
                         fp8q_show(&shown, path));
    while (dir_len > 1 && path[dir_len - 1] == '/')
        dir_len--;
    o->ckpt->dir = dir_len ? strndup(path, dir_len) : strdup(".");
    if (!o->ckpt->dir)
        return fp8q_fail_nomem(o->err);
    FP8Q_TRY(set_shards(o, &name, 1));
    FP8Q_TRY(read_headers(o));
    return build_table(o);
}

int fp8q_ckpt_open(const char *path, struct fp8q_ckpt **ckpt_out, struct fp8q_warnings *warnings,
                   struct fp8q_error *err)
{
    struct opening o = {.warnings = warnings, .err = err};
    struct fp8q_shown shown;
    struct stat st;
    int status;
    *ckpt_out = NULL;
    o.ckpt = fp8q_array(1, sizeof(*o.ckpt));
    if (!o.ckpt)
        return fp8q_fail_nomem(err);
    o.ckpt->path = strdup(path);
    if (!o.ckpt->path)
        status = fp8q_fail_nomem(err);
    else if (stat(path, &st) != 0)
        status = fp8q_fail_errno(err, errno, "%s", fp8q_show(&shown, path));
    else
        status = S_ISDIR(st.st_mode) ? open_dir(&o) : open_file(&o);
    fp8q_index_reset(&o.index);
    fp8q_names_free(o.names, o.n_names);
    if (status == FP8Q_OK)
        *ckpt_out = o.ckpt;
    else
        fp8q_ckpt_close(o.ckpt);
    return status;
}

void fp8q_ckpt_close(struct fp8q_ckpt *ckpt)
{
    if (!ckpt)
        return;
    for (size_t i = 0; i < ckpt->n_shards; i++)
        free_shard(&ckpt->shards[i]);
    free(ckpt->shards);
    free(ckpt->tensors);
    free(ckpt->index_text);
    free(ckpt->config_text);
    fp8q_json_free(ckpt->config);
    fp8q_names_free(ckpt->other_files, ckpt->n_other_files);
    free(ckpt->dir);
    free(ckpt->path);
    free(ckpt);
}

/* ---- use ----------------------------------------------------------------------------------- */

const struct fp8q_tensor *fp8q_ckpt_find(const struct fp8q_ckpt *ckpt, const char *name)
{
    size_t from = 0, to = ckpt->n_tensors;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        int order = strcmp(name, ckpt->tensors[middle].name);
        if (order == 0)
            return &ckpt->tensors[middle];
        if (order < 0)
            to = middle;
        else
            from = middle + 1;
    }
    return NULL;
}

static int check_same(const struct fp8q_shard *shard, const struct stat *now,
                      struct fp8q_error *err)
{
    const struct stat *then = &shard->stat;
    struct fp8q_shown shown;
    if (now->st_size == then->st_size && now->st_dev == then->st_dev &&
        now->st_ino == then->st_ino && now->st_mtim.tv_sec == then->st_mtim.tv_sec &&
        now->st_mtim.tv_nsec == then->st_mtim.tv_nsec)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_IO, "source-changed", "%s: changed since its header was read",
                     fp8q_show(&shown, shard->path));
}

int fp8q_ckpt_read(const struct fp8q_ckpt *ckpt, const struct fp8q_tensor *tensor, uint64_t offset,
                   void *buf, size_t len, struct fp8q_error *err)
{
    const struct fp8q_shard *shard = &ckpt->shards[tensor->shard];
    struct fp8q_shown shown;
    struct stat st;
    int fd;
    if (offset > tensor->size_bytes || len > tensor->size_bytes - offset)
        return fp8q_fail(err, FP8Q_E_ARG, "range", "tensor \"%s\" has %" PRIu64 " bytes only",
                         fp8q_show(&shown, tensor->name), tensor->size_bytes);
    FP8Q_TRY(fp8q_open_read(shard->path, &st, &fd, err));
    int status = check_same(shard, &st, err);
    if (status == FP8Q_OK)
        status = fp8q_pread(fd, buf, len, tensor->offset + offset, shard->path, err);
    (void)fp8q_close(&fd, shard->path, NULL); /* only read */
    return status;
}

int fp8q_ckpt_unchanged(const struct fp8q_ckpt *ckpt, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        struct stat st;
        if (stat(ckpt->shards[i].path, &st) != 0)
            return fp8q_fail(err, FP8Q_E_IO, "source-changed", "%s: is gone (errno %d)",
                             fp8q_show(&shown, ckpt->shards[i].path), errno);
        FP8Q_TRY(check_same(&ckpt->shards[i], &st, err));
    }
    return FP8Q_OK;
}
