/* SPDX-License-Identifier: Apache-2.0
 *
 * side_files.c - which files of a checkpoint travel with the weights.
 *
 * | file                                      | fate                                              |
 * |-------------------------------------------|---------------------------------------------------|
 * | config.json, index, shards                | written anew, or carried as tensors               |
 * | .git*, .cache, .huggingface, .DS_Store,   | left without a word                               |
 * | .eval_results                             |                                                   |
 * | second copies of the weights (*.gguf,     | left: a loader could prefer them                  |
 * | pytorch_model*, consolidated*, ...)       |                                                   |
 * | state of a training (optimizer*, ...)     | left: nothing that serves the model reads it      |
 * | facts of a quantization (recipe.yaml,     | left: they are not true of the output             |
 * | hf_quant_config.json, ...)                |                                                   |
 * | the model card of the top directory       | left without a word: its figures are of other     |
 * | (README*, model_card*)                    | weights                                           |
 * | other *.safetensors of the top directory  | left: they would count as shards                  |
 * | *.safetensors of sub-directories          | copied: loaders read the top directory alone      |
 * | a sub-directory with its own config.json  | copied byte for byte, weights and all: a draft, a |
 * | and none of the shards                    | module of a pipeline                              |
 * | all else                                  | copied                                            |
 */
#include "plan/side_files.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/guard.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"
#include "format/names.h"

enum { MAX_DEPTH = 16 }; /* of sub-directories */

enum fate {
    COPY,
    QUIET, /* left without a word */
    WEIGHTS,
    TRAINING,
    FACTS,
    NOWHERE,
    NO_FILE,
    TOO_DEEP,
    BAD_NAME,
    LEADS_OUT,
    LEADS_BACK,
    N_FATES
};

static const char *const reasons[N_FATES] = {
    [WEIGHTS] = "a loader could take it for the weights",
    [TRAINING] = "it is the state of a training",
    [FACTS] = "it describes an earlier quantization",
    [NOWHERE] = "its link leads nowhere",
    [NO_FILE] = "it is no regular file",
    [TOO_DEEP] = "it lies more than 16 directories deep",
    [BAD_NAME] = "its name is not UTF-8, so no manifest could name it",
    [LEADS_OUT] = "its link leads to a directory outside of the checkpoint",
    [LEADS_BACK] = "its link leads to a directory that holds it, or goes through another link",
};

/* ---- by name --------------------------------------------------------------------------------- */

static bool matches(const char *name, const char *const *globs)
{
    for (; *globs; globs++)
        if (fnmatch(*globs, name, FNM_PERIOD) == 0)
            return true;
    return false;
}

static bool is_hidden(const char *name)
{
    static const char *const hidden[] = {".git*",     ".cache",        ".fp8q", ".huggingface",
                                         ".DS_Store", ".eval_results", NULL};
    return matches(name, hidden);
}

/* What the hub shows beside the weights: its figures and claims are of the source's.  */
static bool is_card(const char *name)
{
    static const char *const globs[] = {"README*", "readme*", "MODEL_CARD*", "model_card*", NULL};
    return matches(name, globs);
}

static bool is_training(const char *name)
{
    static const char *const globs[] = {"optimizer*",     "scheduler.pt",      "scheduler.bin",
                                        "rng_state*",     "training_args.bin", "*optim_states*",
                                        "*model_states*", "zero_pp_rank*",     "*.distcp",
                                        "global_step*",   "checkpoint-[0-9]*", NULL};
    return matches(name, globs);
}

static bool is_second_copy(const char *name)
{
    static const char *const globs[] = {
        "*.gguf",           "*.ggml",   "*.h5",        "*.msgpack",  "*.onnx*",     "*.ot",
        "*.ckpt",           "*.tflite", "*model*.bin", "*model*.pt", "*model*.pth", "consolidated*",
        "*.bin.index.json", NULL};
    return matches(name, globs);
}

static bool is_fact(const char *name)
{
    static const char *const globs[] = {"hf_quant_config.json",
                                        "quantization_config.json",
                                        "quantize_config.json",
                                        "quant_config.json",
                                        "quant_model_description.json",
                                        "recipe.yaml",
                                        "recipe.yml",
                                        "modelopt_state*",
                                        NULL};
    return matches(name, globs);
}

static bool is_shard(const struct fp8q_ckpt *ckpt, const char *relative)
{
    for (size_t i = 0; i < ckpt->n_shards; i++)
        if (strcmp(ckpt->shards[i].name, relative) == 0)
            return true;
    return false;
}

/* params.json belongs to consolidated.safetensors, and is left with it.  */
static bool is_left_params(const struct fp8q_ckpt *ckpt, const char *relative)
{
    if (strcmp(relative, "params.json") != 0)
        return false;
    for (size_t i = 0; i < ckpt->n_other_files; i++)
        if (fp8q_starts_with(ckpt->other_files[i], "consolidated"))
            return true;
    return false;
}

static enum fate fate_on_top(const struct fp8q_ckpt *ckpt, const char *name)
{
    if (strcmp(name, FP8Q_CONFIG_NAME) == 0 || strcmp(name, FP8Q_INDEX_NAME) == 0 ||
        strcmp(name, FP8Q_MANIFEST_NAME) == 0)
        return QUIET; /* written anew */
    if (is_card(name))
        return QUIET;
    if (fp8q_is_policy_file(name))
        return COPY;
    if (fp8q_ends_with(name, FP8Q_WEIGHTS_ENDING) || fp8q_ends_with(name, ".index.json") ||
        is_left_params(ckpt, name))
        return WEIGHTS;
    return COPY;
}

/* @own: in a sub-directory with a config.json and weights of its own.  */
static enum fate fate_of_file(const struct fp8q_ckpt *ckpt, const char *relative, bool own)
{
    const char *name = fp8q_basename(relative);

    if (is_shard(ckpt, relative))
        return QUIET;
    if (is_training(name))
        return TRAINING;

    /* A module of its own is copied whole, but for the state of a training.  */
    if (own)
        return COPY;
    if (is_fact(name))
        return FACTS;
    if (is_second_copy(name))
        return WEIGHTS;

    return name == relative ? fate_on_top(ckpt, name) : COPY;
}

static enum fate fate_of_dir(const char *relative)
{
    const char *name = fp8q_basename(relative);
    if (strcmp(relative, "original") == 0)
        return WEIGHTS;
    return is_training(name) ? TRAINING : COPY;
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Directories from the top down to the one at hand.  */
struct level {
    const struct level *up;
    struct stat stat;
    unsigned depth;
    bool own;    /* a checkpoint or module of its own */
    bool linked; /* reached through a link */
};

struct walk {
    const struct fp8q_ckpt *ckpt;
    struct fp8q_side_files *copies;
    size_t cap, stats_cap;
    struct left_out {
        char **names;
        size_t count, cap;
    } left[N_FATES];
    struct fp8q_error *err;
};

static int leave_out(struct walk *w, const char *relative, enum fate fate)
{
    struct left_out *l = &w->left[fate];
    if (fate == QUIET)
        return FP8Q_OK;
    FP8Q_TRY(fp8q_grow(&l->names, l->count, &l->cap, sizeof(*l->names), w->err));
    l->names[l->count] = strdup(relative);
    if (!l->names[l->count])
        return fp8q_fail_nomem(w->err);
    l->count++;
    return FP8Q_OK;
}

/* What cannot be opened is said now, and not when all weights are written.  */
static int add_file(struct walk *w, const char *path, const char *relative)
{
    struct fp8q_side_files *c = w->copies;
    int fd;

    FP8Q_TRY(fp8q_grow(&c->files, c->count, &w->cap, sizeof(*c->files), w->err));
    FP8Q_TRY(fp8q_grow(&c->stats, c->count, &w->stats_cap, sizeof(*c->stats), w->err));

    FP8Q_TRY(fp8q_open_read(path, &c->stats[c->count], &fd, w->err));
    (void)fp8q_close(&fd, path, NULL);

    struct fp8q_side_file *f = &c->files[c->count];
    *f = (struct fp8q_side_file){.name = strdup(relative)};
    if (!f->name)
        return fp8q_fail_nomem(w->err);
    c->bytes += (uint64_t)c->stats[c->count++].st_size;
    return FP8Q_OK;
}

static bool holds(const struct level *level, const struct stat *dir)
{
    for (; level; level = level->up)
        if (level->stat.st_ino == dir->st_ino && level->stat.st_dev == dir->st_dev)
            return true;
    return false;
}

static const struct level *top_of(const struct level *level)
{
    while (level->up)
        level = level->up;
    return level;
}

/* A directory that a link leads to is copied where it stays inside the checkpoint, once: links in
 * it are not followed again, or a few of them could fill a disk.  */
static int fate_of_link(const struct level *level, const char *path, const struct stat *dir,
                        enum fate *fate, struct fp8q_error *err)
{
    bool inside;
    FP8Q_TRY(fp8q_lies_in(path, &top_of(level)->stat, &inside, err));
    if (!inside)
        *fate = LEADS_OUT;
    else if (level->linked || holds(level, dir))
        *fate = LEADS_BACK;
    return FP8Q_OK;
}

/* Whether a sub-directory is a checkpoint or a module of its own.  */
static bool is_own(const struct fp8q_ckpt *ckpt, const char *relative, char **names, size_t n)
{
    size_t len = strlen(relative);
    bool config = false;
    for (size_t i = 0; i < n; i++)
        config = config || strcmp(names[i], FP8Q_CONFIG_NAME) == 0;

    /* One that holds shards of this checkpoint is a part of it, whatever else is in it.  */
    for (size_t i = 0; i < ckpt->n_shards && config; i++)
        if (strncmp(ckpt->shards[i].name, relative, len) == 0 && ckpt->shards[i].name[len] == '/')
            return false;
    return config;
}

static int walk_dir(struct walk *w, const char *relative, struct level *level);

static int visit_dir(struct walk *w, const struct level *level, const char *path,
                     const char *relative, const struct stat *st, bool linked)
{
    struct level below = {.up = level,
                          .stat = *st,
                          .depth = level->depth + 1,
                          .own = level->own,
                          .linked = level->linked || linked};
    enum fate fate = fate_of_dir(relative);
    if (fate == COPY && linked)
        FP8Q_TRY(fate_of_link(level, path, st, &fate, w->err));
    if (fate == COPY && below.depth > MAX_DEPTH)
        fate = TOO_DEEP;
    return fate == COPY ? walk_dir(w, relative, &below) : leave_out(w, relative, fate);
}

static int visit_path(struct walk *w, const struct level *level, const char *path,
                      const char *relative)
{
    struct stat self, st;
    struct fp8q_error why = {0};
    bool there, exists = false;

    /* The link and what it leads to: links to directories have a rule of their own.  A loop of links
     * is a link that leads nowhere, and no reason to fail.  */
    FP8Q_TRY(fp8q_lstat(path, &self, &there, w->err));
    int status = fp8q_stat(path, &st, &exists, &why);
    if (status != FP8Q_OK && strcmp(why.id, "link-loop") != 0)
        return fp8q_fail_as(w->err, &why);

    if (!there || !exists)
        return leave_out(w, relative, NOWHERE);
    if (!fp8q_utf8_is_valid(relative))
        return leave_out(w, relative, BAD_NAME);

    if (S_ISDIR(st.st_mode))
        return visit_dir(w, level, path, relative, &st, S_ISLNK(self.st_mode));

    enum fate fate = fate_of_file(w->ckpt, relative, level->own);
    if (fate == COPY && !S_ISREG(st.st_mode))
        fate = NO_FILE;
    return fate == COPY ? add_file(w, path, relative) : leave_out(w, relative, fate);
}

static int visit(struct walk *w, const struct level *level, const char *relative)
{
    if (is_hidden(fp8q_basename(relative)))
        return FP8Q_OK;
    char *path = fp8q_join(w->ckpt->dir, relative);
    int status = path ? visit_path(w, level, path, relative) : fp8q_fail_nomem(w->err);
    free(path);
    return status;
}

static int visit_each(struct walk *w, const struct level *level, const char *relative, char **names,
                      size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *child = *relative ? fp8q_join(relative, names[i]) : strdup(names[i]);
        int status = child ? visit(w, level, child) : fp8q_fail_nomem(w->err);
        free(child);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

static int walk_dir(struct walk *w, const char *relative, struct level *level)
{
    char **names = NULL;
    size_t n = 0;

    char *dir = *relative ? fp8q_join(w->ckpt->dir, relative) : strdup(w->ckpt->dir);
    int status = dir ? fp8q_list_dir(dir, &names, &n, w->err) : fp8q_fail_nomem(w->err);
    free(dir);
    FP8Q_TRY(status);

    /* Known by the names in it, before any of them is visited; below it, all is its own.  */
    level->own = level->own || (*relative && is_own(w->ckpt, relative, names, n));
    status = visit_each(w, level, relative, names, n);
    fp8q_names_free(names, n);
    return status;
}

/* ---- the list -------------------------------------------------------------------------------- */

enum { NAMED = 4 }; /* files of one kind that have a warning each at most; more share one */

/* Too many for a warning each: the first few by name, the rest as a number.  */
static int warn_many(const struct left_out *l, const char *reason, struct fp8q_warnings *warnings,
                     struct fp8q_error *err)
{
    struct fp8q_shown a, b, c;
    return fp8q_warn(warnings, err, "not-copied",
                     "\"%s\", \"%s\", \"%s\" and %zu more are not copied: %s",
                     fp8q_show(&a, l->names[0]), fp8q_show(&b, l->names[1]),
                     fp8q_show(&c, l->names[2]), l->count - 3, reason);
}

static int warn_left(const struct left_out *l, const char *reason, struct fp8q_warnings *warnings,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown;
    if (l->count > NAMED)
        return warn_many(l, reason, warnings, err);

    for (size_t i = 0; i < l->count; i++)
        FP8Q_TRY(fp8q_warn(warnings, err, "not-copied", "\"%s\" is not copied: %s",
                           fp8q_show(&shown, l->names[i]), reason));
    return FP8Q_OK;
}

static int list(struct walk *w, struct fp8q_warnings *warnings)
{
    struct level top = {.depth = 0};
    bool there;
    FP8Q_TRY(fp8q_stat(w->ckpt->dir, &top.stat, &there, w->err));
    FP8Q_TRY(walk_dir(w, "", &top));
    for (size_t i = 0; i < N_FATES; i++)
        FP8Q_TRY(warn_left(&w->left[i], reasons[i], warnings, w->err));
    return FP8Q_OK;
}

int fp8q_side_files_list(const struct fp8q_ckpt *ckpt, struct fp8q_side_files *copies_out,
                         struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    struct walk w = {.ckpt = ckpt, .copies = copies_out, .err = err};
    *copies_out = (struct fp8q_side_files){0};
    if (!ckpt->is_dir)
        return FP8Q_OK;

    int status = list(&w, warnings);
    for (size_t i = 0; i < N_FATES; i++)
        fp8q_names_free(w.left[i].names, w.left[i].count);
    if (status != FP8Q_OK)
        fp8q_side_files_reset(copies_out);
    return status;
}

void fp8q_side_files_reset(struct fp8q_side_files *copies)
{
    for (size_t i = 0; i < copies->count; i++)
        free(copies->files[i].name);
    free(copies->files);
    free(copies->stats);
    *copies = (struct fp8q_side_files){0};
}
