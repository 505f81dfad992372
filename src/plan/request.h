/* SPDX-License-Identifier: Apache-2.0
 *
 * request.h - what was asked for, as JSON: the manifest keeps it, --resume compares it, and
 * `finish` plans from it.
 */
#ifndef FP8Q_REQUEST_H
#define FP8Q_REQUEST_H

#include "format/jsonw.h"
#include "plan/plan.h"

/* One line of JSON with all members in a fixed order.  */
void fp8q_request_write(const struct fp8q_request *request, const char *key, struct fp8q_jsonw *w);
/* Reads it back; FP8Q_E_FORMAT for what this version does not know.  @json must outlive the
 * request; release with fp8q_request_reset().  */
int fp8q_request_parse(const struct fp8q_json *json, struct fp8q_request *request_out,
                       struct fp8q_error *err);
void fp8q_request_reset(struct fp8q_request *request);

/* Plan options of a request; @like may be NULL.  */
struct fp8q_plan_options fp8q_request_options(const struct fp8q_request *request,
                                              const struct fp8q_ckpt *like);

/* Spellings of the options, shared with the command line; false for an unknown word.  */
bool fp8q_parse_format(const char *word, enum fp8q_format *out);
bool fp8q_parse_scales(const char *word, enum fp8q_scales *out);
bool fp8q_parse_scale_fmt(const char *word, enum fp8q_scale_fmt *out);
bool fp8q_parse_scheme(const char *word, enum fp8q_scheme *out); /* any case: FP8_BLOCK */
bool fp8q_parse_ragged(const char *word, enum fp8q_ragged *out);
bool fp8q_parse_float(const char *word, enum fp8q_dtype *out); /* bf16, f16, f32 */

/* CRC-32 of what identifies a source by content without reading it all: of each shard its name, its
 * size and the CRC of its header, and config.json.  No times, so that it may go into an output.  */
uint32_t fp8q_source_crc32(const struct fp8q_ckpt *ckpt);

/* JSON of everything that must be the same for a conversion to go on: tool version, request, and of
 * each source shard its name, size, mtime and header CRC, and the CRC of config.json.  */
int fp8q_request_state(const struct fp8q_plan *plan, const struct fp8q_request *request,
                       uint64_t n_parts, struct fp8q_text *out, struct fp8q_error *err);

#endif
