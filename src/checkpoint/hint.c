/* SPDX-License-Identifier: Apache-2.0
 *
 * hint.c - what was probably meant, where a path holds no checkpoint or half of one.
 *
 * Called once something has failed, so nothing here fails: what cannot be read gives no hint.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/path.h"
#include "checkpoint/internal.h"
#include "format/names.h"

/* ---- nothing is there ------------------------------------------------------------------------ */

/* "ORG/NAME", as the hub calls models, and not the path of something in a folder that is there.  */
static bool looks_like_hub_id(const char *path)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/";
    const char *slash = strchr(path, '/');
    char org[128];
    struct stat st;
    bool there = false;
    if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/') || *path == '.' ||
        path[strspn(path, allowed)] || (size_t)(slash - path) >= sizeof(org))
        return false;

    memcpy(org, path, (size_t)(slash - path));
    org[slash - path] = '\0';
    return fp8q_stat(org, &st, &there, NULL) == FP8Q_OK && !there;
}

int fp8q_fail_absent(const char *path, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    int status = fp8q_fail_errno(err, ENOENT, "%s", fp8q_show(&shown, path));
    size_t len = err ? strlen(err->message) : 0, room = err ? sizeof(err->message) - len : 0;

    if (err && (*path == '~' || *path == '$'))
        snprintf(err->message + len, room,
                 "; the shell did not replace the %c: take away the quotes before it", *path);
    else if (err && looks_like_hub_id(path))
        snprintf(err->message + len, room,
                 "; folders are read, not the hub: `hf download %s --local-dir %s` fetches one",
                 shown.text, fp8q_basename(shown.text));
    return status;
}

/* ---- a folder without weights ---------------------------------------------------------------- */

enum { DEEPEST = 3, MOST_ENTRIES = 256 }; /* models--ORG--NAME/snapshots/HASH is two down */

/* Folders below that hold weights.  */
struct search {
    char *first; /* owned */
    size_t count;
    size_t n_left; /* entries that may still be looked at */
};

static void search_below(struct search *s, const char *dir, int depth)
{
    char **names = NULL;
    size_t n = 0;
    bool is_dir, has_weights = false;
    if (fp8q_list_dir(dir, &names, &n, NULL) != FP8Q_OK)
        return;

    for (size_t i = 0; i < n; i++)
        has_weights = has_weights || fp8q_ends_with(names[i], FP8Q_WEIGHTS_ENDING);
    if (has_weights && s->count++ == 0)
        s->first = strdup(dir);

    for (size_t i = 0; i < n && depth < DEEPEST && !has_weights && s->n_left > 0; i++) {
        char *path = *names[i] == '.' ? NULL : fp8q_join(dir, names[i]);
        s->n_left--;
        if (path && fp8q_is_dir(path, &is_dir, NULL) == FP8Q_OK && is_dir)
            search_below(s, path, depth + 1);
        free(path);
    }
    fp8q_names_free(names, n);
}

const char *fp8q_hint_below(struct fp8q_hint *hint, const char *dir)
{
    struct search s = {.n_left = MOST_ENTRIES};
    struct fp8q_shown shown;

    hint->text[0] = '\0';
    search_below(&s, dir, 0);
    if (s.first && s.count == 1)
        snprintf(hint->text, sizeof(hint->text), "; did you mean \"%s\"?",
                 fp8q_show(&shown, s.first));
    else if (s.first)
        snprintf(hint->text, sizeof(hint->text), "; folders below it have some, the first \"%s\"",
                 fp8q_show(&shown, s.first));

    free(s.first);
    return hint->text;
}

/* ---- a shard that is not there --------------------------------------------------------------- */

/* Whether @dir/@below holds a file that a download has begun and not ended.  */
static bool has_unfinished(const char *dir, const char *below)
{
    char *path = fp8q_join(dir, below), **names = NULL;
    size_t n = 0;
    bool found = false;

    if (path && fp8q_list_dir(path, &names, &n, NULL) == FP8Q_OK)
        for (size_t i = 0; i < n; i++)
            found = found || fp8q_ends_with(names[i], ".incomplete");
    fp8q_names_free(names, n);
    free(path);
    return found;
}

const char *fp8q_hint_shard(struct fp8q_hint *hint, const char *dir, const char *path)
{
    /* Where the hub's own tools keep them: beside the files, in a folder of one model, in their cache. */
    static const char *const places[] = {".", ".cache/huggingface/download", "../../blobs"};
    struct stat st;
    bool there = false;

    hint->text[0] = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (has_unfinished(dir, places[i])) {
            snprintf(hint->text, sizeof(hint->text),
                     "; a download has not ended (.incomplete): run it again");
            return hint->text;
        }

    if (fp8q_lstat(path, &st, &there, NULL) == FP8Q_OK && there)
        snprintf(hint->text, sizeof(hint->text), "; the name is a link to what is not there");
    return hint->text;
}
