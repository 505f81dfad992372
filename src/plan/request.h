/* SPDX-License-Identifier: Apache-2.0
 *
 * request.h - what was asked for: one table of its members, and everything that follows from it.
 *
 * A new option of a conversion is a member of struct fp8q_request and a row of this table.  The
 * options of the command line, the manifest's JSON, the state that --resume compares, the copy that
 * a handle keeps and the check of what a caller hands in are made from the rows.
 */
#ifndef FP8Q_REQUEST_H
#define FP8Q_REQUEST_H

#include "format/jsonw.h"
#include "plan/plan.h"

enum fp8q_member_kind {
    FP8Q_MEMBER_FLAG,  /* bool */
    FP8Q_MEMBER_TEXT,  /* const char *, NULL if it was not given */
    FP8Q_MEMBER_LIST,  /* const char *const *, its length at @count_offset; with @words: items
                        * "PAT=WORD" of the option that a word has too, in JSON only if any */
    FP8Q_MEMBER_COUNT, /* uint64_t */
    FP8Q_MEMBER_SIZE,  /* uint64_t, bytes */
    FP8Q_MEMBER_WORD,  /* an enum, by its place in @words */
    FP8Q_MEMBER_FLOAT  /* enum fp8q_dtype: BF16, F16 or F32 */
};

/* Which direction a member belongs to.  */
enum { FP8Q_USE_QUANTIZE = 1, FP8Q_USE_DEQUANTIZE = 2, FP8Q_USE_BOTH = 3 };

struct fp8q_request_member {
    const char *key; /* in JSON, in the order of the table */
    enum fp8q_member_kind kind;
    unsigned use;
    size_t offset, count_offset; /* in struct fp8q_request */
    const char *const *words;    /* NULL-terminated */
    /* On the command line; @option NULL: not an option of its own.  */
    const char *option, *alias; /* "unaligned", "ragged": the alias is understood, not shown */
    const char *value, *help;
};

/* Ends with a row without a key.  */
extern const struct fp8q_request_member fp8q_request_members[];

/* Index of @word (any case) in the list; false if it is none of them.  */
bool fp8q_find_word(const char *const *words, const char *word, unsigned *index_out);
/* bf16, f16, f32 */
bool fp8q_parse_float(const char *word, enum fp8q_dtype *out);

/* Checks a caller's request (NULL, sizes, missing source, enums out of range: FP8Q_E_ARG) and makes
 * a copy that owns its strings, with the format chosen and @to set.  Release with
 * fp8q_request_reset().  */
int fp8q_request_copy(const struct fp8q_request *from, struct fp8q_request *copy_out,
                      struct fp8q_error *err);

/* One line of JSON with all members in a fixed order.  */
void fp8q_request_write(const struct fp8q_request *request, const char *key, struct fp8q_jsonw *w);

/* CRC-32 of the file that rounding or scales go by, the calibration or the inputs; *@there_out is false
 * where the request names none.  FP8Q_E_EVIDENCE "calibration-missing"; FP8Q_E_IO.  */
int fp8q_request_evidence(const struct fp8q_request *request, uint32_t *crc_out, bool *there_out,
                          struct fp8q_error *err);
/* Reads it back; FP8Q_E_FORMAT for what this version does not know.  The request owns its strings;
 * release with fp8q_request_reset().  */
int fp8q_request_parse(const struct fp8q_json *json, struct fp8q_request *request_out,
                       struct fp8q_error *err);
/* For a request that fp8q_request_copy() or _parse() made.  */
void fp8q_request_reset(struct fp8q_request *request);

/* Plan options of a request; @like may be NULL.  */
struct fp8q_plan_options fp8q_request_options(const struct fp8q_request *request,
                                              const struct fp8q_ckpt *like);

/* CRC-32 of what identifies a source by content without reading it all: of each shard its name, its
 * size and the CRC of its header, and config.json.  No times, so that it may go into an output.  */
uint32_t fp8q_source_crc32(const struct fp8q_ckpt *ckpt);

#endif
