/* SPDX-License-Identifier: Apache-2.0
 *
 * destination.c - the names that a conversion writes.
 */
#include "destination/destination.h"

#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/mem.h"
#include "base/path.h"
#include "format/names.h"

const char *const fp8q_companion_names[FP8Q_N_COMPANIONS] = {FP8Q_SIDECAR_NAME, FP8Q_MANIFEST_NAME};

/* ---- names ----------------------------------------------------------------------------------- */

/* The first @len bytes of @path, and @ending.  */
static char *named(const char *path, size_t len, const char *ending)
{
    char *out = malloc(len + strlen(ending) + 1);
    if (out) {
        memcpy(out, path, len);
        strcpy(out + len, ending);
    }
    return out;
}

static size_t without_slashes(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    return len;
}

/* NAME of ".../models--ORG--NAME/snapshots/HASH", as the hub's cache keeps a model, and its length.  */
static const char *name_in_cache(const char *path, size_t *len_out)
{
    static const char below[] = "/snapshots/";
    const char *hash = strstr(path, below), *at = hash;
    if (!hash)
        return NULL;

    /* Nothing but slashes behind the hash.  */
    const char *end = hash + sizeof(below) - 1;
    size_t hash_len = strcspn(end, "/");
    if (hash_len == 0 || end[hash_len + strspn(end + hash_len, "/")])
        return NULL;

    while (at > path && at[-1] != '/')
        at--;
    const char *name = strncmp(at, "models--", 8) == 0 ? strstr(at + 8, "--") : NULL;
    if (!name || name + 2 >= hash)
        return NULL;
    *len_out = (size_t)(hash - name - 2);
    return name + 2;
}

char *fp8q_default_destination(const struct fp8q_ckpt *ckpt, const char *suffix)
{
    if (!ckpt->is_dir) {
        char *stem = named(ckpt->path, fp8q_weights_stem(ckpt->path), suffix);
        char *out = stem ? named(stem, strlen(stem), FP8Q_WEIGHTS_ENDING) : NULL;
        free(stem);
        return out;
    }

    /* The cache is the hub's, and a hash no name: there it goes into the current directory.  */
    size_t len = 0;
    const char *name = name_in_cache(ckpt->path, &len);
    if (name) {
        char *plain = strndup(name, len), *out = plain ? named(plain, len, suffix) : NULL;
        free(plain);
        return out;
    }

    /* "." and ".." and links have their name behind them.  */
    const char *base = fp8q_basename(ckpt->path);
    if (strcmp(base, ".") != 0 && strcmp(base, "..") != 0 && *base != '\0')
        return named(ckpt->path, strlen(ckpt->path), suffix);

    char *real;
    (void)fp8q_real_path(ckpt->path, &real, NULL);
    char *out = real ? named(real, without_slashes(real), suffix) : NULL;
    free(real);
    return out;
}

static int check_name(const char *path, const char *final, bool is_dir, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *name = fp8q_basename(final);

    fp8q_show(&shown, path);
    if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-name",
                         "\"%s\": DST gets its name by a rename, so it must end in a name of its "
                         "own (not \".\", \"..\" or \"/\")",
                         shown.text);

    if (is_dir)
        return FP8Q_OK;
    if (fp8q_weights_stem(name) == strlen(name) || fp8q_is_scales_file(name))
        return fp8q_fail(err, FP8Q_E_ARG, "dst-name",
                         "%s: the name of a weights file ends in .safetensors (and not in "
                         ".scales.safetensors), or nothing would read it",
                         shown.text);
    return FP8Q_OK;
}

int fp8q_destination_open(const char *path, bool is_dir, struct fp8q_destination *names,
                          struct fp8q_error *err)
{
    size_t len = without_slashes(path);

    *names = (struct fp8q_destination){.is_dir = is_dir};
    names->final = named(path, len, "");
    names->partial = named(path, len, ".partial");
    names->work = named(path, len, ".partial.fp8q");
    names->old = named(path, len, ".partial.fp8q/" FP8Q_OLD_NAME);
    bool made = names->final && names->partial && names->work && names->old;

    if (made) {
        size_t dir = (size_t)(fp8q_basename(names->final) - names->final);
        names->parent = dir ? named(path, dir, "") : strdup(".");
        static const char *const endings[] = {FP8Q_SCALES_ENDING, FP8Q_MANIFEST_ENDING};

        for (size_t i = 0; i < FP8Q_N_COMPANIONS; i++)
            names->companions[i] = named(names->final, fp8q_weights_stem(names->final), endings[i]);

        made = names->parent && names->companions[0] && names->companions[1];
    }

    int status = made ? check_name(path, names->final, is_dir, err) : fp8q_fail_nomem(err);
    if (status != FP8Q_OK)
        fp8q_destination_reset(names);
    return status;
}

void fp8q_destination_reset(struct fp8q_destination *names)
{
    free(names->final);
    free(names->partial);
    free(names->work);
    free(names->old);
    free(names->parent);
    for (size_t i = 0; i < FP8Q_N_COMPANIONS; i++)
        free(names->companions[i]);
    *names = (struct fp8q_destination){0};
}
