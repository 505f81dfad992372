/* SPDX-License-Identifier: Apache-2.0
 *
 * evalinputs.c - samples for the commands that run a network.
 */
#include "cli/evalinputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/date.h"
#include "base/file.h"
#include "base/dir.h"
#include "base/path.h"
#include "base/mem.h"
#include "tokenizer/tokenizer.h"

#define MAX_TEXT ((uint64_t)1 << 30)

/* Cuts @ids into samples of @chunk; the last may be shorter.  */
static int cut(const struct fp8q_ids *ids, uint64_t chunk, const char *name,
               struct fp8q_inputs *inputs_out, struct fp8q_error *err)
{
    size_t n = (ids->count + (size_t)chunk - 1) / (size_t)chunk;
    /* At least one element each: calloc() may answer 0 with NULL, as if there were no memory.  */
    int64_t *wide = calloc(ids->count ? ids->count : 1, sizeof(*wide));
    const int64_t **starts = calloc(n ? n : 1, sizeof(*starts));
    size_t *lengths = calloc(n ? n : 1, sizeof(*lengths));
    int status = wide && starts && lengths ? FP8Q_OK : fp8q_fail_nomem(err);

    /* Samples hold ids of 64 bits, tokenizers smaller ones.  */
    for (size_t i = 0; status == FP8Q_OK && i < ids->count; i++)
        wide[i] = ids->items[i];
    for (size_t i = 0; status == FP8Q_OK && i < n; i++) {
        starts[i] = wide + i * chunk;
        lengths[i] = i + 1 < n ? (size_t)chunk : ids->count - i * (size_t)chunk;
    }

    if (status == FP8Q_OK)
        status = fp8q_inputs_from_ids(starts, lengths, n, name, inputs_out, err);

    free(wide);
    free(starts);
    free(lengths);
    return status;
}

static int from_text(const struct cli_inputs *in, const struct fp8q_ckpt *ckpt,
                     struct fp8q_inputs *inputs_out, struct fp8q_error *err)
{
    struct fp8q_tokenizer *tokenizer = NULL;
    struct fp8q_ids ids = {0};
    char *text = NULL;
    size_t len;

    int status = fp8q_tokenizer_open(ckpt->dir, &tokenizer, err);
    if (status == FP8Q_OK)
        status = fp8q_read_file(in->text, MAX_TEXT, &text, &len, err);
    if (status == FP8Q_OK)
        status = fp8q_tokenizer_encode(tokenizer, text, len, &ids, err);
    if (status == FP8Q_OK && ids.count == 0)
        status = fp8q_fail(err, FP8Q_E_ARG, "inputs", "%s: the text has no tokens", in->text);
    if (status == FP8Q_OK)
        status = cut(&ids, in->chunk ? in->chunk : 512, fp8q_basename(in->text), inputs_out, err);

    fp8q_tokenizer_close(tokenizer);
    fp8q_ids_reset(&ids);
    free(text);
    return status;
}

int cli_inputs_check(struct cli *cli, const struct cli_inputs *in, struct fp8q_guard_list *guard)
{
    struct fp8q_error *err = &cli->error;

    /* Neither both nor none of them.  */
    if (!in->file == !in->text)
        return fp8q_fail(err, FP8Q_E_ARG, "usage", "%s: give either --inputs or --text",
                         cli->command);

    if (in->file)
        FP8Q_TRY(fp8q_guard_add(guard, in->file, "the file of --inputs", err));
    if (in->text)
        FP8Q_TRY(fp8q_guard_add(guard, in->text, "the file of --text", err));
    return cli_result_check(in->dump, false, guard, err);
}

int cli_inputs_open(struct cli *cli, const struct cli_inputs *in, const struct fp8q_ckpt *ckpt,
                    struct fp8q_inputs *inputs_out)
{
    struct fp8q_error *err = &cli->error;

    if (in->file)
        FP8Q_TRY(fp8q_inputs_open(in->file, inputs_out, &cli->warnings, err));
    else
        FP8Q_TRY(from_text(in, ckpt, inputs_out, err));

    if (in->max_samples)
        FP8Q_TRY(fp8q_inputs_truncate(inputs_out, in->max_samples, err));

    /* After the cut: what is written is what is run.  */
    return in->dump ? fp8q_inputs_write(inputs_out, in->dump, err) : FP8Q_OK;
}

int cli_result_check(const char *path, bool overwrite, struct fp8q_guard_list *guard,
                     struct fp8q_error *err)
{
    struct fp8q_shown shown;
    struct stat st;
    bool there = false;
    if (!path)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_stat(path, &st, &there, err));

    /* A pipe or a device may be written to; what a regular file holds would be lost.  */
    if (there && S_ISREG(st.st_mode) && !overwrite)
        return fp8q_fail(err, FP8Q_E_ARG, "dst-exists",
                         "%s: exists already; --overwrite replaces a file of -o, and no other",
                         fp8q_show(&shown, path));
    return fp8q_output_check(path, guard, err);
}

const char *cli_timestamp(struct cli_time *buf)
{
    /* Set by builds that must give the same bytes again; what is no number is ignored.  */
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL;
    long long value = epoch ? strtoll(epoch, &end, 10) : 0;
    bool is_set = epoch && *epoch && !*end;

    fp8q_time_format(is_set ? value : (int64_t)time(NULL), buf->text);
    return buf->text;
}
