/* SPDX-License-Identifier: Apache-2.0
 *
 * listing.h - the files that are fp8q's in a directory; nothing else there is ever removed.
 */
#ifndef FP8Q_LISTING_H
#define FP8Q_LISTING_H

#include "format/json.h"
#include "format/jsonw.h"

/* Relative paths of regular files.  Zero it to start; fp8q_listing_sort() before any question.  */
struct fp8q_listing {
    char **names;
    size_t count, cap;
};

int fp8q_listing_add(struct fp8q_listing *listing, const char *name, struct fp8q_error *err);
/* FP8Q_E_UNSUPPORTED "name-clash" if two are equal, or one lies in another.  */
int fp8q_listing_sort(struct fp8q_listing *listing, struct fp8q_error *err);
void fp8q_listing_reset(struct fp8q_listing *listing);

bool fp8q_listing_has(const struct fp8q_listing *listing, const char *name);

/* What stands in a directory and is not fp8q's.  */
struct fp8q_strangers {
    size_t count;
    char names[600]; /* the first few and how many more, quoted for a message */
    size_t n_named, named_len;
};
void fp8q_strangers_add(struct fp8q_strangers *strangers, const char *name);

/* Files, links, directories without a listed file.  A directory that is not there holds none.  */
int fp8q_listing_strangers(const struct fp8q_listing *listing, const char *dir,
                           struct fp8q_strangers *strangers_out, struct fp8q_error *err);

/* The first listed file that is not there as a regular file, or NULL.  */
int fp8q_listing_missing(const struct fp8q_listing *listing, const char *dir, const char **name_out,
                         struct fp8q_error *err);

/* Removes the listed files from @dir one by one, then directories that are empty, @dir too.
 * Whatever else is there stays, and *@gone_out (NULL allowed) is false.  */
int fp8q_listing_remove(const struct fp8q_listing *listing, const char *dir, bool *gone_out,
                        struct fp8q_error *err);

/* Moves each listed file that stands in @from to the same name in @to, where nothing may stand.  */
int fp8q_listing_move(const struct fp8q_listing *listing, const char *from, const char *to,
                      struct fp8q_error *err);

/* Flushes @dir and every directory in it.  */
int fp8q_flush_tree(const char *dir, struct fp8q_error *err);

/* As a JSON array, and back; FP8Q_E_FORMAT for what is no list of paths that stay inside.  */
void fp8q_listing_write(const struct fp8q_listing *listing, const char *key, struct fp8q_jsonw *w);
int fp8q_listing_parse(const struct fp8q_json *json, struct fp8q_listing *listing_out,
                       struct fp8q_error *err);

#endif
