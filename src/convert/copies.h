/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.h - the files of a checkpoint that travel as they are, and those that must not.
 */
#ifndef FP8Q_COPIES_H
#define FP8Q_COPIES_H

#include "checkpoint/checkpoint.h"
#include "plan/manifest.h"

struct fp8q_copies {
    struct fp8q_side_file *files; /* sorted by name */
    size_t count;
};

/* Lists what to copy: tokenizer, processor, generation and code files, with sub-directories,
 * following symbolic links. Left out, with a warning each: other weights (*.bin, *.gguf, unindexed
 * safetensors, consolidated*), stale quantization facts (hf_quant_config.json), other indices, and
 * what is no file.  Hidden caches are left out without a word.  */
int fp8q_copies_list(const struct fp8q_ckpt *ckpt, struct fp8q_copies *copies_out,
                     struct fp8q_warnings *warnings, struct fp8q_error *err);
void fp8q_copies_reset(struct fp8q_copies *copies);

/* Copies them into @dir and fills in their checksums.  */
int fp8q_copies_run(const struct fp8q_ckpt *ckpt, struct fp8q_copies *copies, const char *dir,
                    const struct fp8q_watch *watch, struct fp8q_error *err);

#endif
