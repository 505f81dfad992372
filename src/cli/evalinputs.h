/* SPDX-License-Identifier: Apache-2.0
 *
 * evalinputs.h - what eval, calibrate and sweep share: samples from a file or a text, and result
 * files.
 */
#ifndef FP8Q_CLI_EVALINPUTS_H
#define FP8Q_CLI_EVALINPUTS_H

#include "checkpoint/checkpoint.h"
#include "cli/cli.h"
#include "model/inputs.h"

struct cli_inputs {
    const char *file, *text, *dump;
    uint64_t chunk, max_samples;
};

#define CLI_INPUT_OPTIONS(in)                                                                      \
    {"inputs", 'i', CLI_TEXT, &(in).file, "FILE", "samples: token ids or captured embeddings"},    \
        {"text",     0,      CLI_TEXT,                                                             \
         &(in).text, "FILE", "plain text, through the checkpoint's tokenizer.json"},               \
        {"chunk", 0, CLI_UINT, &(in).chunk, "N", "tokens of a sample of --text (default: 512)"},   \
        {"samples", 0, CLI_UINT, &(in).max_samples, "N", "use the first N samples only"},          \
    {                                                                                              \
        "dump-inputs", 0, CLI_TEXT, &(in).dump, "FILE",                                            \
            "write the samples, as --inputs reads them"                                            \
    }

/* Reads the samples; @ckpt has the tokenizer.  */
int cli_inputs_open(struct cli *cli, const struct cli_inputs *in, const struct fp8q_ckpt *ckpt,
                    struct fp8q_inputs *inputs_out);

/* FP8Q_E_ARG "dst-exists" if @path (NULL: fine) is there and @overwrite is false.  Asked before
 * long work.  */
int cli_result_check(const char *path, bool overwrite, struct fp8q_error *err);
/* Writes a result file, replacing an old one in one step if @overwrite.  */
int cli_result_write(const char *path, bool overwrite, const void *data, size_t len,
                     struct fp8q_error *err);

/* "2026-01-31T12:00:00Z": now, or SOURCE_DATE_EPOCH if that is set.  */
struct cli_time {
    char text[32];
};
const char *cli_timestamp(struct cli_time *buf);

#endif
