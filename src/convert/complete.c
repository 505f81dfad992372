/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.c - compares a finished output with what was asked for, by content.
 */
#include "convert/complete.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dir.h"
#include "base/path.h"
#include "checkpoint/fingerprint.h"

struct comparison {
    const struct fp8q_plan *plan;
    const struct fp8q_copies *copies;
    const struct fp8q_watch *watch;
    const char *destination;
    struct fp8q_ckpt *done;
    struct fp8q_manifest manifest;
    struct fp8q_text changed;
    struct fp8q_error *err;
};

/* The manifest tells of the same version and options.  */
static int is_same_request(struct comparison *c, const struct fp8q_request *request, bool *same_out)
{
    struct fp8q_jsonw done = {.indent = 0}, wanted = {.indent = 0};
    fp8q_request_write(&c->manifest.request, NULL, &done);
    fp8q_request_write(request, NULL, &wanted);

    /* As texts: every member that counts is written, so none can be forgotten here.  */
    int status = fp8q_text_status(&done.text, c->err);
    if (status == FP8Q_OK)
        status = fp8q_text_status(&wanted.text, c->err);

    const char *version = fp8q_json_string(fp8q_json_get(c->manifest.json, "fp8q"), "");
    *same_out = status == FP8Q_OK && strcmp(done.text.data, wanted.text.data) == 0 &&
                strcmp(version, FP8Q_VERSION) == 0;

    fp8q_text_reset(&done.text);
    fp8q_text_reset(&wanted.text);
    return status;
}

static bool states(const struct comparison *c, const char *path, uint32_t crc)
{
    uint32_t stated;
    const char *text = fp8q_json_string(fp8q_json_path(c->manifest.json, path), NULL);
    return fp8q_parse_crc(text, &stated) && stated == crc;
}

static int compare_weights(struct comparison *c)
{
    uint32_t crc;
    if (!states(c, "source.files_crc32", fp8q_source_crc32(c->plan->ckpt))) {
        fp8q_text_puts(&c->changed, "shards or config.json of the source have changed");
        return FP8Q_OK;
    }

    /* The quick check is done; from here all bytes are read, since times prove nothing.  */
    FP8Q_TRY(fp8q_fingerprint(c->plan->ckpt, c->plan->threads, c->watch, &crc, c->err));
    if (!states(c, "source.fingerprint", crc)) {
        fp8q_text_puts(&c->changed, "weights of the source have changed");
        return FP8Q_OK;
    }

    FP8Q_TRY(fp8q_fingerprint(c->done, c->plan->threads, c->watch, &crc, c->err));
    if (!states(c, "fingerprint", crc))
        fp8q_text_puts(&c->changed, "the weights in it have changed");
    return FP8Q_OK;
}

static int crc_in(const char *dir, const char *name, uint32_t *crc_out, bool *there_out,
                  struct fp8q_error *err)
{
    struct stat st;
    char *path = fp8q_join(dir, name);
    int status = path ? fp8q_stat(path, &st, there_out, err) : fp8q_fail_nomem(err);
    *crc_out = 0;
    if (status == FP8Q_OK && *there_out)
        status = fp8q_file_crc32(path, crc_out, err);
    free(path);
    return status;
}

static int compare_side_files(struct comparison *c)
{
    const struct fp8q_json *files = fp8q_json_get(c->manifest.json, "files");
    struct fp8q_shown shown;
    size_t n = c->copies->count;

    if (fp8q_json_count(files) != n)
        fp8q_text_puts(&c->changed, "files of the source were added or removed");

    const struct fp8q_json *f = fp8q_json_first(files);
    for (size_t i = 0; i < n && c->changed.len == 0; i++, f = fp8q_json_next(f)) {
        const char *name = c->copies->files[i].name, *key = f ? fp8q_json_key(f) : "";
        uint32_t stated, source, done;
        bool there, exists;
        FP8Q_TRY(crc_in(c->plan->ckpt->dir, name, &source, &there, c->err));
        FP8Q_TRY(crc_in(c->destination, name, &done, &exists, c->err));

        if (!key || strcmp(key, name) != 0)
            fp8q_text_puts(&c->changed, "files of the source were added or removed");
        else if (!fp8q_parse_crc(fp8q_json_string(f, NULL), &stated) || source != stated)
            fp8q_text_printf(&c->changed, "\"%s\" of the source has changed",
                             fp8q_show(&shown, name));
        else if (!exists || done != stated)
            fp8q_text_printf(&c->changed, "\"%s\" in it has changed", fp8q_show(&shown, name));
    }
    return fp8q_text_status(&c->changed, c->err);
}

static int compare(struct comparison *c, const struct fp8q_request *request, bool *complete_out)
{
    bool found, same;

    FP8Q_TRY(fp8q_ckpt_open(c->destination, &c->done, NULL, c->err));
    FP8Q_TRY(fp8q_manifest_read(c->done, &c->manifest, &found, c->err));
    if (!found)
        return FP8Q_OK;

    FP8Q_TRY(is_same_request(c, request, &same));
    if (!same)
        return FP8Q_OK;

    FP8Q_TRY(compare_weights(c));
    if (c->changed.len == 0 && c->done->is_dir)
        FP8Q_TRY(compare_side_files(c));

    *complete_out = c->changed.len == 0;
    return fp8q_text_status(&c->changed, c->err);
}

int fp8q_complete(const struct fp8q_plan *plan, const struct fp8q_request *request,
                  const struct fp8q_copies *copies, const char *destination,
                  const struct fp8q_watch *watch, bool *complete_out, char **changed_out,
                  struct fp8q_error *err)
{
    struct fp8q_error why = {0};
    struct comparison c = {
        .plan = plan, .copies = copies, .watch = watch, .destination = destination, .err = &why};
    struct stat st;
    bool there;

    *complete_out = false;
    *changed_out = NULL;
    FP8Q_TRY(fp8q_stat(destination, &st, &there, err));
    if (!there)
        return FP8Q_OK;

    int status = compare(&c, request, complete_out);
    if (status == FP8Q_OK && c.changed.len)
        *changed_out = c.changed.data;
    else
        fp8q_text_reset(&c.changed);

    fp8q_manifest_reset(&c.manifest);
    fp8q_ckpt_close(c.done);
    /* Not readable as an output of fp8q: not complete.  What becomes of it is decided elsewhere.  */
    if (status == FP8Q_E_FORMAT || status == FP8Q_E_MISMATCH || status == FP8Q_E_ARG ||
        strcmp(why.id, "no-safetensors") == 0)
        return FP8Q_OK;

    if (status != FP8Q_OK && err)
        *err = why;
    return status;
}
