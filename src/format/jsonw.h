/* SPDX-License-Identifier: Apache-2.0
 *
 * jsonw.h - writes JSON: commas, indentation and escapes in one place.
 */
#ifndef FP8Q_JSONW_H
#define FP8Q_JSONW_H

#include "base/text.h"

/* Zero it, set @indent (0: everything on one line), then write.  @key is NULL inside an array and
 * for the outermost value.  The result is @text; ask fp8q_text_status() once at the end.  */
struct fp8q_jsonw {
    struct fp8q_text text;
    unsigned indent, depth;
    uint64_t objects; /* bit N: what is open at depth N is an object, not an array */
    bool after_value; /* a comma is due before the next member */
};

void fp8q_jsonw_open(struct fp8q_jsonw *w, const char *key, char bracket); /* '{' or '[' */
void fp8q_jsonw_close(struct fp8q_jsonw *w, char bracket);                 /* '}' or ']' */
/* Closes whatever is open deeper than @depth, so that work that broke off still leaves JSON.  */
void fp8q_jsonw_close_to(struct fp8q_jsonw *w, unsigned depth);
void fp8q_jsonw_string(struct fp8q_jsonw *w, const char *key, const char *value); /* NULL: null */
void fp8q_jsonw_uint(struct fp8q_jsonw *w, const char *key, uint64_t value);
/* As few digits as read back to the same double; non-finite values become null.  */
void fp8q_jsonw_number(struct fp8q_jsonw *w, const char *key, double value);
void fp8q_jsonw_bool(struct fp8q_jsonw *w, const char *key, bool value);
void fp8q_jsonw_raw(struct fp8q_jsonw *w, const char *key, const char *json); /* ready JSON text */

#endif
