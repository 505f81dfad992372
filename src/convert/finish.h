/* SPDX-License-Identifier: Apache-2.0
 *
 * finish.h - stage 4: from finished shards to a whole checkpoint.
 */
#ifndef FP8Q_FINISH_H
#define FP8Q_FINISH_H

#include "convert/copies.h"
#include "convert/stream.h"
#include "plan/request.h"

struct fp8q_finish_options {
    const struct fp8q_request *request;
    const char *rounding;                 /* JSON for the manifest: how values were rounded */
    const struct fp8q_side_files *copies; /* made already, with their checksums */
    const char *out_dir, *record_dir;
};

struct fp8q_finish_result {
    uint32_t source_fingerprint, output_fingerprint;
    uint64_t file_bytes; /* of all files written, copies aside */
};

/* Reads the records of all shards (FP8Q_E_EVIDENCE "part-missing" if one is not there) and writes
 * the scale sidecar or the manifest file, index and config.json into @options->out_dir.  The final
 * name comes with fp8q_outdir_commit().  */
int fp8q_finish(const struct fp8q_plan *plan, const struct fp8q_finish_options *options,
                struct fp8q_finish_result *result_out, struct fp8q_error *err);

#endif
