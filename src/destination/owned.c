/* SPDX-License-Identifier: Apache-2.0
 *
 * owned.c - a manifest names every file of an output, and has a checksum of each.
 */
#include "destination/owned.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/path.h"
#include "format/names.h"
#include "plan/manifest.h"

struct owner {
    const char *path;
    struct fp8q_ckpt *ckpt;
    struct fp8q_manifest manifest;
    bool has_manifest;
    struct fp8q_listing *files;
    struct fp8q_error *err;
};

static int foreign(const struct owner *o, const char *why)
{
    struct fp8q_shown shown;
    return fp8q_fail(
        o->err, FP8Q_E_ARG, "dst-foreign",
        "%s: exists and is no output of fp8q; --overwrite replaces only those (%.300s)",
        fp8q_show(&shown, o->path), why);
}

static int changed(const struct owner *o, const char *name)
{
    struct fp8q_shown a, b;
    return fp8q_fail(o->err, FP8Q_E_ARG, "dst-changed",
                     "%s: \"%s\" is not as fp8q wrote it, and --overwrite would lose it; move it "
                     "away, or write to another DST",
                     fp8q_show(&a, o->path), fp8q_show(&b, name));
}

/* ---- evidence of an output ------------------------------------------------------------------- */

static const char *metadata(const struct fp8q_shard *shard, const char *key)
{
    for (size_t i = 0; i < shard->header.n_metadata; i++)
        if (strcmp(shard->header.metadata[i].key, key) == 0)
            return shard->header.metadata[i].value;
    return NULL;
}

/* What `dequantize` wrote has no manifest; all shards say so.  */
static bool is_dequantized(const struct fp8q_ckpt *ckpt)
{
    for (size_t i = 0; i < ckpt->n_shards; i++)
        if (!metadata(&ckpt->shards[i], "fp8q.dequantized_by"))
            return false;
    return ckpt->n_shards > 0;
}

static int read_output(struct owner *o, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_ckpt_open(o->path, &o->ckpt, NULL, err));
    if (is_dequantized(o->ckpt))
        return FP8Q_OK;
    return fp8q_manifest_read(o->ckpt, &o->manifest, &o->has_manifest, err);
}

static int open_output(struct owner *o)
{
    struct fp8q_error why = {0};
    int status = read_output(o, &why);
    if (status == FP8Q_OK)
        return FP8Q_OK;

    /* What can be read and is something else is foreign; what cannot be read is a failure.  */
    bool failed = status == FP8Q_E_NOMEM || (status == FP8Q_E_IO && strcmp(why.id, "io") == 0);
    return failed ? fp8q_fail_as(o->err, &why) : foreign(o, why.message);
}

/* Each shard but the sidecar has the header that the manifest states.  */
static int check_headers(const struct owner *o, const char *file_as)
{
    const struct fp8q_json *headers = fp8q_json_get(o->manifest.json, "headers");

    for (size_t i = 0; i < o->ckpt->n_shards; i++) {
        const struct fp8q_shard *s = &o->ckpt->shards[i];
        uint32_t crc;

        if (metadata(s, "fp8q.manifest"))
            continue;
        const char *stated =
            fp8q_json_string(fp8q_json_get(headers, file_as ? file_as : s->name), NULL);

        if (!fp8q_parse_crc(stated, &crc) || crc != s->header.crc32)
            return changed(o, s->name);
    }
    return FP8Q_OK;
}

/* ---- a directory ----------------------------------------------------------------------------- */

static int exists(const char *dir, const char *name, bool *there_out, struct fp8q_error *err)
{
    struct stat st;
    return fp8q_lstat_in(dir, name, &st, there_out, err);
}

/* Adds a file that must have this checksum, if it is there at all.  */
static int add_checked(struct owner *o, const char *name, uint32_t crc)
{
    uint32_t actual = 0;
    bool there;

    FP8Q_TRY(exists(o->path, name, &there, o->err));
    if (!there)
        return FP8Q_OK;

    char *path = fp8q_join(o->path, name);
    struct fp8q_error why = {0};
    int status = path ? fp8q_file_crc32(path, &actual, &why) : fp8q_fail_nomem(&why);
    free(path);

    /* Another content may be somebody's work, which would be lost.  */
    if (strcmp(why.id, "not-regular") == 0)
        return changed(o, name);
    if (status != FP8Q_OK)
        return fp8q_fail_as(o->err, &why);
    return actual == crc ? fp8q_listing_add(o->files, name, o->err) : changed(o, name);
}

/* A file whose checksum the manifest has as the member @key; without one there is no such file.  */
static int add_stated(struct owner *o, const char *name, const char *key)
{
    uint32_t crc;
    const char *stated = fp8q_json_string(fp8q_json_get(o->manifest.json, key), NULL);
    return fp8q_parse_crc(stated, &crc) ? add_checked(o, name, crc) : FP8Q_OK;
}

static int list_by_manifest(struct owner *o)
{
    /* Shards by their headers; their payload may be terabytes, and is not read again.  */
    FP8Q_TRY(check_headers(o, NULL));
    for (size_t i = 0; i < o->ckpt->n_shards; i++)
        FP8Q_TRY(fp8q_listing_add(o->files, o->ckpt->shards[i].name, o->err));
    FP8Q_TRY(add_stated(o, FP8Q_INDEX_NAME, "index_crc32"));
    FP8Q_TRY(add_stated(o, FP8Q_CONFIG_NAME, "config_crc32"));

    const struct fp8q_json *files = fp8q_json_get(o->manifest.json, "files");
    for (const struct fp8q_json *f = fp8q_json_first(files); f; f = fp8q_json_next(f)) {
        uint32_t crc;
        const char *name = fp8q_json_key(f);

        /* A manifest is a file like any other: its names must not lead out of the directory.  */
        if (!name || !fp8q_stays_inside(name) || !fp8q_parse_crc(fp8q_json_string(f, NULL), &crc))
            return foreign(o, "an entry of its manifest cannot be read");
        FP8Q_TRY(add_checked(o, name, crc));
    }

    /* The manifest as a file of its own vouches for itself: it was read from there.  */
    bool there, in_shard = false;
    for (size_t i = 0; i < o->ckpt->n_shards; i++)
        in_shard = in_shard || metadata(&o->ckpt->shards[i], "fp8q.manifest");
    FP8Q_TRY(exists(o->path, FP8Q_MANIFEST_NAME, &there, o->err));
    return there && !in_shard ? fp8q_listing_add(o->files, FP8Q_MANIFEST_NAME, o->err) : FP8Q_OK;
}

/* Without a manifest the side files are those of the source.  */
static int list_by_source(struct owner *o, const struct fp8q_destination_rules *rules)
{
    static const char *const made[] = {FP8Q_INDEX_NAME, FP8Q_CONFIG_NAME};
    bool there;

    if (!is_dequantized(o->ckpt))
        return foreign(o, "neither a manifest nor fp8q's metadata in its shards");

    for (size_t i = 0; i < o->ckpt->n_shards; i++)
        FP8Q_TRY(fp8q_listing_add(o->files, o->ckpt->shards[i].name, o->err));

    for (size_t i = 0; i < 2; i++) {
        FP8Q_TRY(exists(o->path, made[i], &there, o->err));
        if (there)
            FP8Q_TRY(fp8q_listing_add(o->files, made[i], o->err));
    }

    for (size_t i = 0; i < rules->copies->count; i++) {
        const char *name = rules->copies->files[i].name;
        uint32_t crc = 0;
        char *path = fp8q_join(rules->ckpt->dir, name);
        int status = path ? fp8q_file_crc32(path, &crc, o->err) : fp8q_fail_nomem(o->err);
        free(path);

        FP8Q_TRY(status);
        FP8Q_TRY(add_checked(o, name, crc));
    }
    return FP8Q_OK;
}

static int refuse_strangers(const struct owner *o)
{
    struct fp8q_shown shown;
    struct fp8q_strangers strangers;
    FP8Q_TRY(fp8q_listing_strangers(o->files, o->path, &strangers, o->err));
    if (strangers.count == 0)
        return FP8Q_OK;

    return fp8q_fail(
        o->err, FP8Q_E_ARG, "dst-strangers",
        "%s: holds what fp8q did not write, and --overwrite would lose it: %s; move it "
        "away, or write to another DST",
        fp8q_show(&shown, o->path), strangers.names);
}

static int own_dir(struct owner *o, const struct fp8q_destination_rules *rules)
{
    FP8Q_TRY(open_output(o));
    FP8Q_TRY(o->has_manifest ? list_by_manifest(o) : list_by_source(o, rules));
    FP8Q_TRY(fp8q_listing_sort(o->files, o->err));
    return refuse_strangers(o);
}

static int end_owner(struct owner *o, int status)
{
    fp8q_manifest_reset(&o->manifest);
    fp8q_ckpt_close(o->ckpt);
    if (status != FP8Q_OK)
        fp8q_listing_reset(o->files);
    return status;
}

int fp8q_owned_dir(const char *dir, const struct fp8q_destination_rules *rules,
                   struct fp8q_listing *files, struct fp8q_error *err)
{
    struct owner o = {.path = dir, .files = files, .err = err};
    *files = (struct fp8q_listing){0};
    return end_owner(&o, own_dir(&o, rules));
}

/* ---- a file ---------------------------------------------------------------------------------- */

/* The one companion that may be there is the one that the manifest was read from.  */
static int list_companions(struct owner *o, const struct fp8q_destination *names)
{
    bool in_shard = o->ckpt->n_shards > 1;

    for (size_t i = 0; i < FP8Q_N_COMPANIONS; i++) {
        bool ours = o->has_manifest && (i == 0) == in_shard, there;
        struct stat st;
        FP8Q_TRY(fp8q_lstat(names->companions[i], &st, &there, o->err));
        if (!there)
            continue;

        if (!ours || !S_ISREG(st.st_mode)) {
            struct owner other = {.path = names->companions[i], .err = o->err};
            return foreign(&other, "it is not of the weights file beside it");
        }
        FP8Q_TRY(fp8q_listing_add(o->files, fp8q_companion_names[i], o->err));
    }
    return FP8Q_OK;
}

static int own_file(struct owner *o, const struct fp8q_destination *names)
{
    FP8Q_TRY(open_output(o));
    if (!o->has_manifest && !is_dequantized(o->ckpt))
        return foreign(o, "neither a manifest nor fp8q's metadata in it");
    if (o->has_manifest)
        FP8Q_TRY(check_headers(o, FP8Q_WEIGHTS_NAME));
    FP8Q_TRY(fp8q_listing_add(o->files, FP8Q_WEIGHTS_NAME, o->err));
    FP8Q_TRY(list_companions(o, names));
    return fp8q_listing_sort(o->files, o->err);
}

int fp8q_owned_file(const struct fp8q_destination *names, struct fp8q_listing *files,
                    struct fp8q_error *err)
{
    struct owner o = {.path = names->final, .files = files, .err = err};
    *files = (struct fp8q_listing){0};
    return end_owner(&o, own_file(&o, names));
}
