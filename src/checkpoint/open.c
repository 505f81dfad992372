/* SPDX-License-Identifier: Apache-2.0
 *
 * open.c - opens a file or directory: the headers of its files, one sorted table of tensors, config.
 *
 * open_files.c says which files count; what an index claims is compared in open_index.c.  No file
 * stays open, so a thousand shards need one descriptor.
 */
#include "checkpoint/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "format/names.h"
#include "base/mem.h"

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

/* ---- headers ------------------------------------------------------------------------------- */

static int read_header(struct fp8q_shard *shard, struct fp8q_error *err)
{
    int fd;

    FP8Q_TRY(fp8q_open_read(shard->path, &shard->stat, &fd, err));
    int status = fp8q_st_read(fd, (uint64_t)shard->stat.st_size, shard->path, &shard->header, err);
    (void)fp8q_close(&fd, shard->path, NULL); /* only read */
    return status;
}

static int read_headers(struct fp8q_opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;

    for (size_t i = 0; i < ckpt->n_shards; i++) {
        /* Many headers on a slow network disk take a while: the caller may stop between two.  */
        FP8Q_TRY(fp8q_watch_check(o->watch, o->err));
        FP8Q_TRY(read_header(&ckpt->shards[i], o->err));
        ckpt->n_tensors += ckpt->shards[i].header.n_tensors;
    }
    return FP8Q_OK;
}

/* Every tensor of every shard, sorted by (name, shard).  */
static int compare_tensors(const void *a, const void *b)
{
    const struct fp8q_tensor *x = a, *y = b;
    int order = strcmp(x->name, y->name);

    if (order)
        return order;
    return x->shard < y->shard ? -1 : x->shard > y->shard;
}

static int list_tensors(struct fp8q_opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    size_t n = 0;

    ckpt->tensors = fp8q_array(ckpt->n_tensors, sizeof(*ckpt->tensors));
    if (!ckpt->tensors)
        return fp8q_fail_nomem(o->err);

    for (size_t i = 0; i < ckpt->n_shards; i++) {
        const struct fp8q_st_header *header = &ckpt->shards[i].header;
        /* Names and shapes stay where the header keeps them.  */
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

static int build_table(struct fp8q_opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_shown shown;

    FP8Q_TRY(list_tensors(o));
    if (ckpt->has_index)
        FP8Q_TRY(fp8q_ckpt_match_index(o));

    /* What is carried: with an index, one tensor of each name.  */
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        ckpt->data_bytes += ckpt->tensors[i].size_bytes; /* no more than the files together */

    if (ckpt->n_tensors == 0)
        FP8Q_TRY(fp8q_warn(o->warnings, o->err, "no-tensors", "%s holds no tensor",
                           fp8q_show(&shown, ckpt->path)));
    return FP8Q_OK;
}

/* ---- the rest of the directory ------------------------------------------------------------- */

static int list_other_files(struct fp8q_opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_shown shown;

    ckpt->other_files = fp8q_array(o->n_names, sizeof(*ckpt->other_files));
    if (!ckpt->other_files)
        return fp8q_fail_nomem(o->err);

    for (size_t i = 0; i < o->n_names; i++) {
        char *name = o->names[i];

        if (find_shard(ckpt, name) || (ckpt->has_index && strcmp(name, FP8Q_INDEX_NAME) == 0))
            continue;

        ckpt->other_files[ckpt->n_other_files++] = name;
        o->names[i] = NULL; /* moved */

        /* Weights that nothing names must not get lost in silence.  */
        if (!fp8q_ends_with(name, FP8Q_WEIGHTS_ENDING) || fp8q_is_policy_file(name))
            continue;

        if (ckpt->has_index && strcmp(name, FP8Q_SINGLE_NAME) == 0)
            FP8Q_TRY(fp8q_warn(
                o->warnings, o->err, "index-beside-model",
                "%s is neither read nor copied: the index does not name it (transformers would "
                "prefer it to the index)",
                FP8Q_SINGLE_NAME));
        else
            FP8Q_TRY(fp8q_warn(o->warnings, o->err, "unindexed-file",
                               "%s is neither read nor copied: %s", fp8q_show(&shown, name),
                               ckpt->has_index ? "the index does not name it"
                                               : "it is not the checkpoint's one file"));
    }

    return FP8Q_OK;
}

static void read_block_size(struct fp8q_ckpt *ckpt)
{
    static const char *const keys[] = {"weight_block_size", "block_structure"};

    /* At any depth, as configs differ in where they keep it; the second key is
     * compressed-tensors'.  */
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        for (const struct fp8q_json *list = NULL;
             (list = fp8q_json_find(ckpt->config, keys[i], list));) {
            uint64_t rows, cols;
            const struct fp8q_json *first = fp8q_json_first(list);
            if (fp8q_json_count(list) != 2 || !fp8q_json_uint(first, &rows) ||
                !fp8q_json_uint(fp8q_json_next(first), &cols) || rows == 0 || cols == 0)
                continue;
            ckpt->block_rows = rows;
            ckpt->block_cols = cols;
            return;
        }
}

static int read_config_at(struct fp8q_opening *o, const char *path)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_shown shown;

    FP8Q_TRY(fp8q_read_file(path, FP8Q_MOST_CONFIG, &ckpt->config_text, &ckpt->config_len, o->err));
    /* Python's json writes NaN and Infinity into configs.  */
    FP8Q_TRY(fp8q_json_parse(ckpt->config_text, ckpt->config_len, FP8Q_JSON_PYTHON, path,
                             &ckpt->config, o->err));
    if (!fp8q_json_is_object(ckpt->config))
        return fp8q_fail(o->err, FP8Q_E_FORMAT, "config", "%s: is no JSON object",
                         fp8q_show(&shown, path));
    read_block_size(ckpt);
    return FP8Q_OK;
}

static int read_config(struct fp8q_opening *o)
{
    /* Weights alone are a checkpoint too; what a config would say is then unknown.  */
    if (!fp8q_ckpt_dir_has(o, FP8Q_CONFIG_NAME))
        return FP8Q_OK;

    char *path = fp8q_join(o->ckpt->dir, FP8Q_CONFIG_NAME);
    if (!path)
        return fp8q_fail_nomem(o->err);

    int status = read_config_at(o, path);
    free(path);
    return status;
}

/* ---- open and close ------------------------------------------------------------------------ */

static int open_dir(struct fp8q_opening *o)
{
    o->ckpt->is_dir = true;

    o->ckpt->dir = strdup(o->ckpt->path);
    if (!o->ckpt->dir)
        return fp8q_fail_nomem(o->err);

    FP8Q_TRY(fp8q_list_dir(o->ckpt->dir, &o->names, &o->n_names, o->err));
    FP8Q_TRY(read_config(o));
    FP8Q_TRY(fp8q_ckpt_find_files(o));
    FP8Q_TRY(fp8q_ckpt_check_shards(o));
    FP8Q_TRY(read_headers(o));
    FP8Q_TRY(build_table(o));
    return list_other_files(o);
}

/* Whether @name stands in the checkpoint's directory.  */
static int is_there(const struct fp8q_opening *o, const char *name, bool *there_out)
{
    struct stat st;
    char *path = fp8q_join(o->ckpt->dir, name);
    if (!path)
        return fp8q_fail_nomem(o->err);

    int status = fp8q_stat(path, &st, there_out, o->err);
    free(path);
    return status;
}

/* NAME.safetensors and, if it is there, NAME.scales.safetensors: what `fp8q quantize` makes of a
 * file.  */
static int add_sidecar(struct fp8q_opening *o, const char *name)
{
    size_t stem = fp8q_stem_len(name, FP8Q_WEIGHTS_ENDING);
    bool there;

    /* A sidecar that was named itself is opened alone.  */
    if (!stem || fp8q_is_scales_file(name))
        return fp8q_ckpt_set_shards(o, &name, 1);

    char *sidecar = malloc(stem + sizeof(FP8Q_SCALES_ENDING));
    if (!sidecar)
        return fp8q_fail_nomem(o->err);
    memcpy(sidecar, name, stem);
    strcpy(sidecar + stem, FP8Q_SCALES_ENDING);

    const char *const names[] = {name, sidecar};
    int status = is_there(o, sidecar, &there);
    if (status == FP8Q_OK)
        status = fp8q_ckpt_set_shards(o, names, there ? 2 : 1);

    free(sidecar);
    return status;
}

/* A name proves nothing: NAME.scales.safetensors may be anybody's.  What fp8q wrote says so.  */
static int drop_foreign_sidecar(struct fp8q_opening *o)
{
    struct fp8q_ckpt *ckpt = o->ckpt;
    struct fp8q_shown name;
    if (ckpt->n_shards < 2)
        return FP8Q_OK;

    struct fp8q_shard *sidecar = &ckpt->shards[1];
    for (size_t i = 0; i < sidecar->header.n_metadata; i++)
        if (strcmp(sidecar->header.metadata[i].key, FP8Q_SIDECAR_VERSION_KEY) == 0)
            return FP8Q_OK;

    /* Dropped before the table is built, so that no tensor points into it.  */
    int status = fp8q_warn(o->warnings, o->err, "foreign-scales",
                           "%s is not read: it is no scale sidecar of fp8q",
                           fp8q_show(&name, sidecar->name));
    ckpt->n_tensors -= sidecar->header.n_tensors;
    fp8q_shard_free(sidecar);
    ckpt->n_shards--;
    return status;
}

static int open_file(struct fp8q_opening *o)
{
    const char *path = o->ckpt->path, *name = fp8q_basename(path);
    struct fp8q_shown shown;
    size_t dir_len = (size_t)(name - path);

    if (fp8q_ends_with(name, ".index.json"))
        return fp8q_fail(o->err, FP8Q_E_ARG, "is-index", "%s: is an index; name its directory",
                         fp8q_show(&shown, path));

    if (strcmp(name, FP8Q_CONFIG_NAME) == 0)
        return fp8q_fail(o->err, FP8Q_E_ARG, "is-config",
                         "%s: is a config, no weights; a model is named by its directory",
                         fp8q_show(&shown, path));

    /* The directory without its slash, unless it is the root.  */
    while (dir_len > 1 && path[dir_len - 1] == '/')
        dir_len--;

    o->ckpt->dir = dir_len ? strndup(path, dir_len) : strdup(".");
    if (!o->ckpt->dir)
        return fp8q_fail_nomem(o->err);

    FP8Q_TRY(add_sidecar(o, name));
    FP8Q_TRY(read_headers(o));
    FP8Q_TRY(drop_foreign_sidecar(o));
    FP8Q_TRY(build_table(o));

    /* In a directory the index decides between two of one name; here nothing does.  */
    for (size_t i = 1; i < o->ckpt->n_tensors; i++)
        if (strcmp(o->ckpt->tensors[i - 1].name, o->ckpt->tensors[i].name) == 0)
            return fp8q_fail(o->err, FP8Q_E_FORMAT, "dup-tensor",
                             "%s: tensor \"%s\" is in the file and in its scale sidecar too",
                             fp8q_show(&shown, path), o->ckpt->tensors[i].name);
    return FP8Q_OK;
}

/* Whether @path is a directory; where nothing is, what was probably meant.  */
static int find_path(struct fp8q_opening *o, const char *path, bool *is_dir_out)
{
    struct stat st;
    bool there = false;

    FP8Q_TRY(fp8q_stat(path, &st, &there, o->err));
    *is_dir_out = there && S_ISDIR(st.st_mode);
    return there ? FP8Q_OK : fp8q_fail_absent(path, o->err);
}

static int open_path(struct fp8q_opening *o, const char *path)
{
    bool is_dir;
    o->ckpt->path = strdup(path);
    if (!o->ckpt->path)
        return fp8q_fail_nomem(o->err);

    FP8Q_TRY(find_path(o, path, &is_dir));
    FP8Q_TRY(fp8q_reading_create(&o->ckpt->reading, o->err));
    return is_dir ? open_dir(o) : open_file(o);
}

int fp8q_ckpt_open(const char *path, struct fp8q_ckpt **ckpt_out, struct fp8q_warnings *warnings,
                   struct fp8q_error *err)
{
    return fp8q_ckpt_open_watched(path, NULL, ckpt_out, warnings, err);
}

int fp8q_ckpt_open_watched(const char *path, const struct fp8q_watch *watch,
                           struct fp8q_ckpt **ckpt_out, struct fp8q_warnings *warnings,
                           struct fp8q_error *err)
{
    struct fp8q_opening o = {.watch = watch, .warnings = warnings, .err = err};
    *ckpt_out = NULL;
    o.ckpt = fp8q_array(1, sizeof(*o.ckpt));
    if (!o.ckpt)
        return fp8q_fail_nomem(err);

    int status = open_path(&o, path);

    /* Needed only to open: the names that the checkpoint keeps were moved out of the list.  */
    fp8q_index_reset(&o.index);
    fp8q_names_free(o.names, o.n_names);

    if (status == FP8Q_OK)
        *ckpt_out = o.ckpt;
    else
        fp8q_ckpt_close(o.ckpt);
    return status;
}
