/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.c - copies everything that is no weight.
 */
#include "convert/copies.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"
#include "base/crc.h"
#include "format/names.h"
#include "base/mem.h"

enum { MAX_DEPTH = 16 }; /* of sub-directories; a link to a parent would not end otherwise */

enum fate { COPY, LEAVE, LEAVE_QUIETLY };

static bool matches(const char *name, const char *const *globs)
{
    for (; *globs; globs++)
        if (fnmatch(*globs, name, FNM_PERIOD) == 0)
            return true;
    return false;
}

static enum fate fate_of(const struct fp8q_ckpt *ckpt, const char *relative, bool is_dir)
{
    static const char *const quiet[] = {".git",  ".gitattributes", ".gitignore", ".cache",
                                        ".fp8q", ".huggingface",   ".DS_Store",  NULL};
    static const char *const weights[] = {"*.bin",
                                          "*.pt",
                                          "*.pth",
                                          "*.ckpt",
                                          "*.gguf",
                                          "*.h5",
                                          "*.msgpack",
                                          "*.onnx",
                                          "*.onnx_data",
                                          "*.index.json",
                                          "consolidated*",
                                          "hf_quant_config.json",
                                          FP8Q_MANIFEST_NAME,
                                          NULL};
    const char *name = fp8q_basename(relative);
    if (matches(name, quiet) || strcmp(name, ".gitattributes") == 0 ||
        strncmp(name, ".git", 4) == 0)
        return LEAVE_QUIETLY;
    if (is_dir)
        return strcmp(relative, "original") == 0 ? LEAVE : COPY;
    if (strcmp(relative, FP8Q_CONFIG_NAME) == 0)
        return LEAVE_QUIETLY; /* written anew */
    for (size_t i = 0; i < ckpt->n_shards; i++)
        if (strcmp(ckpt->shards[i].name, relative) == 0)
            return LEAVE_QUIETLY;
    if (fp8q_is_policy_file(name) && fp8q_ends_with(name, FP8Q_WEIGHTS_ENDING))
        return COPY;
    if (strcmp(name, FP8Q_INDEX_NAME) == 0 || strcmp(name, FP8Q_MANIFEST_NAME) == 0)
        return LEAVE_QUIETLY;
    if (strcmp(name, "params.json") == 0) { /* belongs to consolidated.safetensors */
        for (size_t i = 0; i < ckpt->n_other_files; i++)
            if (strncmp(ckpt->other_files[i], "consolidated", 12) == 0)
                return LEAVE;
        return COPY;
    }
    if (matches(name, weights) || fp8q_stem_len(name, FP8Q_WEIGHTS_ENDING))
        return LEAVE;
    return COPY;
}

struct walk {
    const struct fp8q_ckpt *ckpt;
    struct fp8q_copies *copies;
    size_t cap;
    struct fp8q_warnings *warnings;
    struct fp8q_error *err;
};

static int add_file(struct walk *w, const char *relative)
{
    FP8Q_TRY(
        fp8q_grow(&w->copies->files, w->copies->count, &w->cap, sizeof(*w->copies->files), w->err));
    struct fp8q_side_file *f = &w->copies->files[w->copies->count];
    f->name = strdup(relative);
    f->crc32 = 0;
    if (!f->name)
        return fp8q_fail_nomem(w->err);
    w->copies->count++;
    return FP8Q_OK;
}

static int walk_dir(struct walk *w, const char *relative, unsigned depth);

static int visit(struct walk *w, const char *relative, unsigned depth)
{
    struct stat st;
    struct fp8q_shown shown;
    char *path = fp8q_join(w->ckpt->dir, relative);
    if (!path)
        return fp8q_fail_nomem(w->err);
    bool exists;
    int status = fp8q_stat(path, &st, &exists, w->err);
    free(path);
    if (status != FP8Q_OK && (!w->err || strcmp(w->err->id, "link-loop") != 0))
        return status;
    bool is_dir = exists && S_ISDIR(st.st_mode);
    enum fate fate = fate_of(w->ckpt, relative, is_dir);
    if (fate == LEAVE_QUIETLY)
        return FP8Q_OK;
    if (!exists || (!is_dir && !S_ISREG(st.st_mode)) || depth > MAX_DEPTH)
        return fp8q_warn(w->warnings, w->err, "not-copied", "\"%s\" is not copied: %s",
                         fp8q_show(&shown, relative),
                         !exists ? "its link leads nowhere" : "it is no regular file");
    if (fate == LEAVE)
        return fp8q_warn(w->warnings, w->err, "not-copied",
                         "\"%s\" is not copied: a loader could take it for the weights",
                         fp8q_show(&shown, relative));
    return is_dir ? walk_dir(w, relative, depth + 1) : add_file(w, relative);
}

static int walk_dir(struct walk *w, const char *relative, unsigned depth)
{
    char **names = NULL;
    size_t n = 0;
    char *dir = *relative ? fp8q_join(w->ckpt->dir, relative) : strdup(w->ckpt->dir);
    int status = dir ? fp8q_list_dir(dir, &names, &n, w->err) : fp8q_fail_nomem(w->err);
    for (size_t i = 0; i < n && status == FP8Q_OK; i++) {
        char *child = *relative ? fp8q_join(relative, names[i]) : strdup(names[i]);
        status = child ? visit(w, child, depth) : fp8q_fail_nomem(w->err);
        free(child);
    }
    fp8q_names_free(names, n);
    free(dir);
    return status;
}

int fp8q_copies_list(const struct fp8q_ckpt *ckpt, struct fp8q_copies *copies_out,
                     struct fp8q_warnings *warnings, struct fp8q_error *err)
{
    *copies_out = (struct fp8q_copies){0};
    struct walk w = {.ckpt = ckpt, .copies = copies_out, .warnings = warnings, .err = err};
    if (!ckpt->is_dir)
        return FP8Q_OK;
    int status = walk_dir(&w, "", 0);
    if (status != FP8Q_OK)
        fp8q_copies_reset(copies_out);
    return status;
}

void fp8q_copies_reset(struct fp8q_copies *copies)
{
    for (size_t i = 0; i < copies->count; i++)
        free(copies->files[i].name);
    free(copies->files);
    *copies = (struct fp8q_copies){0};
}

int fp8q_copies_run(const struct fp8q_ckpt *ckpt, struct fp8q_copies *copies, const char *dir,
                    const struct fp8q_watch *watch, struct fp8q_error *err)
{
    int status = FP8Q_OK;
    for (size_t i = 0; i < copies->count && status == FP8Q_OK; i++) {
        struct fp8q_side_file *f = &copies->files[i];
        char *from = fp8q_join(ckpt->dir, f->name), *to = fp8q_join(dir, f->name);
        status = from && to ? fp8q_make_parents(dir, f->name, err) : fp8q_fail_nomem(err);
        if (status == FP8Q_OK) /* what a resumed run left */
            status = fp8q_remove_tree(to, err);
        if (status == FP8Q_OK)
            status = fp8q_copy_file(from, to, watch, err);
        if (status == FP8Q_OK)
            status = fp8q_file_crc32(to, &f->crc32, err);
        free(from);
        free(to);
    }
    return status;
}
