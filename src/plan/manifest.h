/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.h - what a conversion did, with a checksum of every byte: written into the sidecar's
 * metadata (or a small JSON file), read back by verify.
 *
 * Metadata: "fp8q.sidecar_version" ("MAJOR.MINOR"; another MAJOR is refused), "fp8q.manifest" (JSON
 * text), "fp8q.manifest_crc32" (of that text), "fp8q.header_crc32" (of the whole header or file,
 * with these eight digits taken as zeros).  Checksums are CRC-32, eight lower-case hexadecimal
 * digits.
 */
#ifndef FP8Q_MANIFEST_H
#define FP8Q_MANIFEST_H

#include "format/names.h"
#include "plan/request.h"
#include "plan/plan.h"

#define FP8Q_KEY_VERSION FP8Q_SIDECAR_VERSION_KEY
#define FP8Q_KEY_MANIFEST "fp8q.manifest"
#define FP8Q_KEY_MANIFEST_CRC "fp8q.manifest_crc32"
#define FP8Q_KEY_HEADER_CRC "fp8q.header_crc32"
#define FP8Q_NO_CRC "00000000" /* stands for the header's own while that is computed */

#define FP8Q_SIDECAR_MAJOR 1
#define FP8Q_SIDECAR_MINOR 0

/* What streaming found out: checksums of every tensor.  */
struct fp8q_results {
    uint32_t *output_crc; /* by index in plan->tensors */
    uint32_t *source_crc; /* by index in ckpt->tensors; of those that the plan carries */
};
int fp8q_results_create(const struct fp8q_plan *plan, struct fp8q_results *results_out,
                        struct fp8q_error *err);
void fp8q_results_reset(struct fp8q_results *results);

struct fp8q_side_file {
    char *name; /* relative path */
    uint32_t crc32;
};

/* Everything the manifest says beyond the plan.  */
struct fp8q_manifest_facts {
    const struct fp8q_request *request;
    const struct fp8q_results *results;
    uint32_t source_fingerprint, output_fingerprint;
    const struct fp8q_side_file *side_files;
    size_t n_side_files;
    const char *rounding; /* JSON value that describes how codes were rounded */
    bool has_evidence;    /* fp8q_request_evidence() */
    uint32_t evidence_crc32;
};

/* The sidecar's header with the manifest in it, ready to write.  */
int fp8q_manifest_sidecar_header(const struct fp8q_plan *plan,
                                 const struct fp8q_manifest_facts *facts, struct fp8q_text *out,
                                 struct fp8q_error *err);
/* The manifest as a file of its own (--scales inline).  */
int fp8q_manifest_file(const struct fp8q_plan *plan, const struct fp8q_manifest_facts *facts,
                       struct fp8q_text *out, struct fp8q_error *err);

/* CRC-32 of a quantization_config, independent of white space and of the order of members.  */
uint32_t fp8q_config_crc32(const struct fp8q_json *value, struct fp8q_error *err, int *status_out);

/* ---- reading ----------------------------------------------------------------------------------
 */

struct fp8q_manifest {
    struct fp8q_json *json;
    size_t shard; /* that holds it, of the checkpoint; SIZE_MAX: a file does */
    /* Tensor checksums, sorted by name; names are borrowed from @json.  */
    struct fp8q_manifest_entry {
        const char *name;
        uint32_t crc32;
    } * tensors;
    size_t n_tensors;
    struct fp8q_request request; /* borrows from @json */
};

/* Finds and checks the manifest of an output: in the metadata of its sidecar, or in its file.
 * *@found_out is false (and the result 0) for a checkpoint of another tool.  FP8Q_E_MISMATCH
 * "manifest-crc", "manifest-incomplete", "sidecar-version", ... when it is damaged, and
 * "manifest-twice" when there are two.  Release with fp8q_manifest_reset().  */
int fp8q_manifest_read(const struct fp8q_ckpt *ckpt, struct fp8q_manifest *manifest_out,
                       bool *found_out, struct fp8q_error *err);
void fp8q_manifest_reset(struct fp8q_manifest *manifest);

/* Parses eight hexadecimal digits.  */
bool fp8q_parse_crc(const char *text, uint32_t *crc_out);
bool fp8q_manifest_crc(const struct fp8q_manifest *manifest, const char *tensor, uint32_t *crc_out);

#endif
