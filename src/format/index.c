/* SPDX-License-Identifier: Apache-2.0
 *
 * index.c - reads the index of a sharded checkpoint.  What the index says about files and tensors
 * is compared with them in checkpoint/open_index.c.
 */
#include "format/index.h"

#include <stdlib.h>
#include <string.h>

#include "format/json.h"
#include "format/lex.h"
#include "format/names.h"
#include "base/mem.h"

const char *fp8q_index_bad_name(const char *name)
{
    /* A part as long as Linux file systems take; a path a quarter of PATH_MAX, which leaves room
     * for the directory before it.  */
    enum { LONGEST_PATH = 1024, LONGEST_PART = 255 };

    size_t len = strlen(name);
    if (len == 0)
        return "empty";
    if (len > LONGEST_PATH)
        return "longer than 1024 bytes";
    if (name[0] == '/')
        return "an absolute path";

    /* A name goes into messages, logs and shell lines of others: no control characters.  */
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)name[i];
        if (c < 0x20 || c == 0x7F)
            return "a name with control characters";
        /* Elsewhere these separate or name drives, and the path would mean another file.  */
        if (c == '\\' || c == ':')
            return "a name with a backslash or colon";
    }

    /* Nothing outside of the directory, whatever the index says.  */
    for (const char *part = name; *part; part += strcspn(part, "/"), part += *part == '/') {
        size_t n = strcspn(part, "/");
        if (n == 2 && part[0] == '.' && part[1] == '.')
            return "a path with \"..\"";
        if (n > LONGEST_PART)
            return "longer than 255 bytes";
    }

    /* "sub/.safetensors" has no name before the ending either.  */
    size_t stem = fp8q_stem_len(name, FP8Q_WEIGHTS_ENDING);
    if (stem == 0 || name[stem - 1] == '/')
        return "no .safetensors file";
    return NULL;
}

/* Takes out "./" and empty parts; true if there were any.  */
static bool simplify(char *name)
{
    char *to = name;
    bool changed = false;

    for (const char *from = name; *from;) {
        size_t n = strcspn(from, "/");

        /* "" (from "//") and "." name the place where one is already.  */
        bool drop = n == 0 || (n == 1 && from[0] == '.');
        size_t step = n + (from[n] == '/');
        if (drop)
            changed = true;
        else {
            memmove(to, from, step);
            to += step;
        }
        from += step;
    }
    *to = '\0';
    return changed;
}

struct reader {
    struct fp8q_lex lex;
    struct fp8q_index *index;
    const char **shard_of; /* for each entry */
    size_t cap_entries, cap_shard_of, used;
};

static char *keep_string(struct reader *r, struct fp8q_lex_str str)
{
    char *dst = r->index->arena + r->used; /* as large as the text: it cannot overflow */
    size_t len = fp8q_lex_decode(&r->lex, str, dst);

    dst[len] = '\0';
    r->used += len + 1;
    return dst;
}

static int read_weight_map(struct reader *r)
{
    struct fp8q_index *index = r->index;
    struct fp8q_lex *lex = &r->lex;
    struct fp8q_lex_str key, value;
    struct fp8q_shown tensor, shard;
    bool first = true;
    int more;

    if (!fp8q_lex_take(lex, '{'))
        return fp8q_lex_fail(lex, lex->pos, "index-weight-map", "weight_map is no object");

    while ((more = fp8q_lex_member(lex, &first, &key)) > 0) {
        FP8Q_TRY(fp8q_grow(&index->entries, index->n_entries, &r->cap_entries,
                           sizeof(*index->entries), lex->err));
        /* Names for now: shards get numbers once all names are known.  */
        FP8Q_TRY(fp8q_grow(&r->shard_of, index->n_entries, &r->cap_shard_of, sizeof(*r->shard_of),
                           lex->err));

        const char *name = keep_string(r, key);
        if (fp8q_lex_peek(lex) != '"')
            return fp8q_lex_fail(lex, lex->pos, "index-weight-map",
                                 "weight_map of \"%s\" is no string", fp8q_show(&tensor, name));

        /* The message should point to the value, not behind it.  */
        size_t pos = lex->pos;
        FP8Q_TRY(fp8q_lex_string(lex, &value));
        char *file = keep_string(r, value);

        const char *bad = fp8q_index_bad_name(file);
        if (bad)
            return fp8q_lex_fail(lex, pos, "index-shard-name",
                                 "unsafe shard name \"%s\" for tensor \"%s\": it is %s",
                                 fp8q_show(&shard, file), fp8q_show(&tensor, name), bad);

        /* Two spellings of one path would count as two shards.  */
        if (simplify(file))
            index->respelled = file;
        index->entries[index->n_entries].tensor = name;
        r->shard_of[index->n_entries++] = file;
    }
    return more;
}

static int read_metadata(struct reader *r)
{
    struct fp8q_index *index = r->index;
    struct fp8q_lex_str key;
    bool first = true;
    int more;

    /* Some writers leave null here; only the absence of an object is noted.  */
    if (!fp8q_lex_take(&r->lex, '{'))
        return fp8q_lex_value(&r->lex, 1, false);
    index->has_metadata = true;

    while ((more = fp8q_lex_member(&r->lex, &first, &key)) > 0) {
        if (fp8q_lex_is(&r->lex, key, "total_size")) {
            index->has_total_size = true;
            index->total_size_ok = fp8q_lex_u64(&r->lex, &index->total_size) == FP8Q_LEX_U64;
            /* A number that is no size is read as any other value.  */
            if (index->total_size_ok)
                continue;
        }
        FP8Q_TRY(fp8q_lex_value(&r->lex, 2, false));
    }
    return more;
}

static int read_text(struct reader *r)
{
    struct fp8q_lex_str key;
    struct fp8q_shown shown;
    bool first = true, has_map = false;
    int more;

    if (!fp8q_lex_take(&r->lex, '{'))
        return fp8q_lex_unexpected(&r->lex, r->lex.pos, "an object");

    while ((more = fp8q_lex_member(&r->lex, &first, &key)) > 0) {
        /* No key stands here twice: the gate has refused that.  */
        if (fp8q_lex_is(&r->lex, key, "weight_map")) {
            has_map = true;
            FP8Q_TRY(read_weight_map(r));
        } else if (fp8q_lex_is(&r->lex, key, "metadata")) {
            FP8Q_TRY(read_metadata(r));
        } else {
            FP8Q_TRY(fp8q_lex_value(&r->lex, 1, false));
        }
    }

    if (more < 0)
        return more;
    if (r->index->n_entries == 0)
        return fp8q_fail(r->lex.err, FP8Q_E_FORMAT, "index-weight-map", "%s: %s",
                         fp8q_show(&shown, r->lex.what),
                         has_map ? "weight_map names no tensor" : "it has no weight_map");
    return FP8Q_OK;
}

struct shard_use {
    const char *name;
    size_t entry;
};

static int compare_uses(const void *a, const void *b)
{
    return strcmp(((const struct shard_use *)a)->name, ((const struct shard_use *)b)->name);
}

/* Numbers the shards in the order of their names; @uses is the entries sorted by shard.  */
static int number_uses(struct reader *r, const struct shard_use *uses)
{
    struct fp8q_index *index = r->index;
    size_t cap = 0;

    for (size_t i = 0; i < index->n_entries; i++) {
        /* Equal names are neighbours: a new one begins a shard.  */
        if (i == 0 || strcmp(uses[i].name, uses[i - 1].name) != 0) {
            FP8Q_TRY(fp8q_grow(&index->shards, index->n_shards, &cap, sizeof(*index->shards),
                               r->lex.err));
            index->shards[index->n_shards++] = uses[i].name;
        }
        index->entries[uses[i].entry].shard = (uint32_t)(index->n_shards - 1);
    }
    return FP8Q_OK;
}

/* Turns the shard names of the entries into numbers.  */
static int number_shards(struct reader *r)
{
    size_t n = r->index->n_entries;
    struct shard_use *uses = fp8q_array(n, sizeof(*uses));
    if (!uses)
        return fp8q_fail_nomem(r->lex.err);

    for (size_t i = 0; i < n; i++)
        uses[i] = (struct shard_use){r->shard_of[i], i};
    qsort(uses, n, sizeof(*uses), compare_uses);

    int status = number_uses(r, uses);
    free(uses);
    return status;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct fp8q_index_entry *)a)->tensor,
                  ((const struct fp8q_index_entry *)b)->tensor);
}

static int read_index(struct reader *r, size_t len)
{
    struct fp8q_index *index = r->index;

    /* No name is longer decoded than in the text, so one arena of that size holds all.  */
    index->arena = malloc(len + 1);
    if (!index->arena)
        return fp8q_fail_nomem(r->lex.err);

    FP8Q_TRY(read_text(r));
    FP8Q_TRY(number_shards(r));
    /* Last, since shards were numbered by the places of entries.  In the order of the table of
     * tensors, so that one pass compares them.  */
    qsort(index->entries, index->n_entries, sizeof(*index->entries), compare_entries);
    return FP8Q_OK;
}

int fp8q_index_parse(const char *text, size_t len, const char *what, struct fp8q_index *index_out,
                     struct fp8q_error *err)
{
    struct reader r = {
        .lex = {.text = text, .len = len, .what = what, .max_depth = 128, .err = err},
        .index = index_out};

    *index_out = (struct fp8q_index){0};
    FP8Q_TRY(fp8q_json_check(text, len, 0, what, err));

    int status = read_index(&r, len);
    free(r.shard_of);
    if (status != FP8Q_OK)
        fp8q_index_reset(index_out);
    return status;
}

void fp8q_index_reset(struct fp8q_index *index)
{
    free(index->entries);
    free(index->shards);
    free(index->arena);
    *index = (struct fp8q_index){0};
}
