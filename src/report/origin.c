/* SPDX-License-Identifier: Apache-2.0
 *
 * origin.c - what things are called: the output, its source, the model on the hub, and the command
 * that made it; and what the output inherits from the source's model card.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/path.h"
#include "plan/manifest.h"
#include "report/internal.h"
#include "report/markup.h"

/* Name of the folder or file at @path, also where the path ends in "/" or is ".".  */
static int name_of(const char *path, char **name_out, struct fp8q_error *err)
{
    char *real = NULL;
    FP8Q_TRY(fp8q_real_path(path, &real, err));
    *name_out = fp8q_clean(fp8q_basename(real ? real : path));
    free(real);
    return *name_out ? FP8Q_OK : fp8q_fail_nomem(err);
}

bool fp8q_is_hub_id(const char *text)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                  "._-/";
    const char *slash = strchr(text, '/');

    return slash && slash != text && slash[1] && !strchr(slash + 1, '/') && *text != '.' &&
           strspn(text, allowed) == strlen(text);
}

/* Of ".../models--ORG--NAME/snapshots/...", where the hub's cache keeps it; NULL if it is no such
 * path.  */
static int id_of_cache(const char *path, char **id_out, struct fp8q_error *err)
{
    const char *at = strstr(path, "models--");
    *id_out = NULL;
    if (!at)
        return FP8Q_OK;

    char *id = strndup(at + 8, strcspn(at + 8, "/"));
    if (!id)
        return fp8q_fail_nomem(err);
    char *dashes = strstr(id, "--");
    if (dashes) {
        *dashes = '/';
        memmove(dashes + 1, dashes + 2, strlen(dashes + 2) + 1);
    }

    if (fp8q_is_hub_id(id))
        *id_out = id;
    else
        free(id);
    return FP8Q_OK;
}

/* Said, or in the path of the hub's cache, or in the config.  NULL: not known.  */
static int guess_base_model(const struct fp8q_facts *f, char **id_out, struct fp8q_error *err)
{
    const char *name = fp8q_json_string(fp8q_json_get(f->proof.ckpt->config, "_name_or_path"), "");
    *id_out = NULL;

    if (f->request.base_model) {
        *id_out = fp8q_clean(f->request.base_model);
        return *id_out ? FP8Q_OK : fp8q_fail_nomem(err);
    }
    if (f->source_path)
        FP8Q_TRY(id_of_cache(f->source_path, id_out, err));
    if (*id_out || !fp8q_is_hub_id(name))
        return FP8Q_OK;
    *id_out = strdup(name);
    return *id_out ? FP8Q_OK : fp8q_fail_nomem(err);
}

/* ---- the source's model card ----------------------------------------------------------------- */

const char *const fp8q_card_keys[FP8Q_CARD_KEYS] = {
    [FP8Q_CARD_LICENSE] = "license",           [FP8Q_CARD_LICENSE_NAME] = "license_name",
    [FP8Q_CARD_LICENSE_LINK] = "license_link", [FP8Q_CARD_LIBRARY] = "library_name",
    [FP8Q_CARD_PIPELINE] = "pipeline_tag",
};

/* A scalar of YAML on one line, plain or in quotes: where in @text it stands.  False: nothing, or
 * something else, as a list, an escape or a block, which no licence needs.  */
static bool find_scalar(const char *text, size_t len, const char **scalar_out, size_t *len_out)
{
    static const char no_plain[] = "[{|>&*!%@`#,?";
    const char *end = text + len, *stop;

    while (end > text && strchr(" \t\r", end[-1]))
        end--;
    text += strspn(text, " \t");
    if (text >= end || memchr(text, '\\', (size_t)(end - text)))
        return false;

    if (*text == '"' || *text == '\'') {
        stop = memchr(text + 1, *text, (size_t)(end - text - 1));
        *scalar_out = text + 1;
        *len_out = stop ? (size_t)(stop - text - 1) : 0;
        return stop != NULL;
    }
    if (strchr(no_plain, *text))
        return false;

    /* A comment begins behind a blank.  */
    stop = memmem(text, (size_t)(end - text), " #", 2);
    *scalar_out = text;
    *len_out = (size_t)((stop ? stop : end) - text);
    return true;
}

static int take_value(const char *scalar, size_t len, char **value_out, struct fp8q_error *err)
{
    char *value = strndup(scalar, len);
    *value_out = value ? fp8q_clean(value) : NULL;
    free(value);
    return *value_out ? FP8Q_OK : fp8q_fail_nomem(err);
}

/* A line of the front matter; of a key that occurs twice the first counts.  */
static int take_line(struct fp8q_facts *f, const char *line, size_t len, struct fp8q_error *err)
{
    const char *scalar;
    size_t n;

    for (size_t i = 0; i < FP8Q_CARD_KEYS; i++) {
        size_t key = strlen(fp8q_card_keys[i]);
        if (!f->inherited[i] && len > key && line[key] == ':' &&
            strncmp(line, fp8q_card_keys[i], key) == 0 &&
            find_scalar(line + key + 1, len - key - 1, &scalar, &n))
            FP8Q_TRY(take_value(scalar, n, &f->inherited[i], err));
    }
    return FP8Q_OK;
}

/* What stands between the first two lines of three dashes.  */
static int take_front_matter(struct fp8q_facts *f, const char *text, struct fp8q_error *err)
{
    if (strncmp(text, "---", 3) != 0)
        return FP8Q_OK;

    for (const char *line = strchr(text, '\n'); line && *++line; line = strchr(line, '\n')) {
        if (strncmp(line, "---", 3) == 0)
            break;
        FP8Q_TRY(take_line(f, line, strcspn(line, "\n"), err));
    }
    return FP8Q_OK;
}

static int read_card(struct fp8q_facts *f, struct fp8q_error *err)
{
    enum { MOST = 4 << 20 };
    bool is_dir = false;
    char *path, *text = NULL;
    size_t len;
    if (!f->request.source)
        return FP8Q_OK;
    FP8Q_TRY(fp8q_is_dir(f->request.source, &is_dir, err));
    if (!is_dir)
        return FP8Q_OK;

    path = fp8q_join(f->request.source, "README.md");
    int status =
        path ? fp8q_read_file_if_there(path, MOST, &text, &len, err) : fp8q_fail_nomem(err);
    if (text)
        status = take_front_matter(f, text, err);
    free(path);
    free(text);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

static void put_option(struct fp8q_text *t, const char *option, const char *value)
{
    fp8q_text_printf(t, " --%s", option);
    if (value) {
        fp8q_text_puts(t, " ");
        fp8q_put_shell(t, value);
    }
}

/* One member of the request, unless it is what it is by default.  */
static void put_member(struct fp8q_text *t, const struct fp8q_request_member *m,
                       const struct fp8q_request *r)
{
    const char *at = (const char *)r + m->offset;
    uint64_t number = 0;
    unsigned word = 0;
    char digits[24];

    switch (m->kind) {
    case FP8Q_MEMBER_FLAG:
        if (*(const bool *)at)
            put_option(t, m->option, NULL);
        break;
    case FP8Q_MEMBER_TEXT:
        if (*(const char *const *)(const void *)at)
            put_option(t, m->option, *(const char *const *)(const void *)at);
        break;
    case FP8Q_MEMBER_LIST:
        memcpy(&number, (const char *)r + m->count_offset, sizeof(size_t));
        for (uint64_t i = 0; i < number; i++)
            put_option(t, m->option, (*(const char *const *const *)(const void *)at)[i]);
        break;
    case FP8Q_MEMBER_COUNT:
    case FP8Q_MEMBER_SIZE:
        memcpy(&number, at, sizeof(number));
        snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
        if (number)
            put_option(t, m->option, digits);
        break;
    case FP8Q_MEMBER_WORD:
        memcpy(&word, at, sizeof(word));
        if (word)
            put_option(t, m->option, m->words[word]);
        break;
    case FP8Q_MEMBER_FLOAT:
        break; /* dequantize's alone */
    }
}

/* Options of the quantize that made the output, each as a shell reads it.  */
static char *command_of(const struct fp8q_manifest *manifest)
{
    struct fp8q_text t = {0};
    fp8q_text_puts(&t, "");

    for (const struct fp8q_request_member *m = fp8q_request_members; m->key; m++)
        if (m->option && m->use & FP8Q_USE_QUANTIZE)
            put_member(&t, m, &manifest->request);

    /* A command that lacks an option would be another one.  */
    char *clean = fp8q_text_status(&t, NULL) == FP8Q_OK ? fp8q_clean(t.data) : NULL;
    fp8q_text_reset(&t);
    return clean;
}

/* ---- all ------------------------------------------------------------------------------------- */

int fp8q_facts_name(struct fp8q_facts *f, struct fp8q_error *err)
{
    const struct fp8q_json *manifest = f->proof.manifest.json;
    const char *source = f->request.source;
    if (!source)
        source = fp8q_json_string(fp8q_json_path(manifest, "source.path"), NULL);

    FP8Q_TRY(name_of(f->request.output, &f->name, err));
    f->path = fp8q_clean(f->request.output);
    f->source_path = fp8q_clean(source);
    FP8Q_TRY(guess_base_model(f, &f->base_model, err));
    FP8Q_TRY(read_card(f, err));
    f->options = f->proof.ours ? command_of(&f->proof.manifest) : fp8q_clean("");

    bool complete = f->path && f->options && (!source || f->source_path);
    return complete ? FP8Q_OK : fp8q_fail_nomem(err);
}
