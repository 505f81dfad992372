/* SPDX-License-Identifier: Apache-2.0
 *
 * evalinputs.h - what eval, calibrate and sweep share: samples from a file or a text, and result
 * files.
 */
#ifndef FP8Q_CLI_EVALINPUTS_H
#define FP8Q_CLI_EVALINPUTS_H

#include "checkpoint/checkpoint.h"
#include "base/output.h"
#include "cli/options.h"
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

/* Their group in the help.  */
#define CLI_INPUT_GROUP                                                                            \
    {                                                                                              \
        "Inputs", "inputs text chunk samples", "dump-inputs"                                       \
    }

/* Which of them do not go together: rows for a command's rules.  */
#define CLI_INPUT_RULES                                                                            \
    {"inputs", CLI_EXCLUDES, "text"},                                                              \
    {                                                                                              \
        "chunk", CLI_NEEDS, "text"                                                                 \
    }

/* Before long work: one of --inputs and --text was given, and --dump-inputs may be written.  Adds
 * what is read to @guard.  */
int cli_inputs_check(struct cli *cli, const struct cli_inputs *in, struct fp8q_guard_list *guard);

/* Reads the samples; @ckpt has the tokenizer.  */
int cli_inputs_open(struct cli *cli, const struct cli_inputs *in, const struct fp8q_ckpt *ckpt,
                    struct fp8q_inputs *inputs_out);

/* Before long work: @path (NULL: fine) can become a result file, and is none of what is read.
 * FP8Q_E_ARG "dst-exists" if a file is there and @overwrite is false.  */
int cli_result_check(const char *path, bool overwrite, struct fp8q_guard_list *guard,
                     struct fp8q_error *err);

/* "2026-01-31T12:00:00Z": now, or SOURCE_DATE_EPOCH if that is set.  */
struct cli_time {
    char text[32];
};
const char *cli_timestamp(struct cli_time *buf);

#endif
