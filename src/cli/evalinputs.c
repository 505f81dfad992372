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

/* A text on its way to samples.  */
struct text_inputs {
    struct fp8q_tokenizer *tokenizer;
    char *text;
    struct fp8q_ids ids;
    int64_t *wide; /* the same ids, with 64 bits as samples hold them */
    const int64_t **starts;
    size_t *lengths; /* of each sample */
};

/* Cuts the ids into samples of @chunk; the last may be shorter.  */
static int cut(struct text_inputs *t, size_t chunk, const char *name,
               struct fp8q_inputs *inputs_out, struct fp8q_error *err)
{
    size_t count = t->ids.count, n = (count + chunk - 1) / chunk;
    t->wide = fp8q_array(count, sizeof(*t->wide));
    t->starts = fp8q_array(n, sizeof(*t->starts));
    t->lengths = fp8q_array(n, sizeof(*t->lengths));
    if (!t->wide || !t->starts || !t->lengths)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < count; i++)
        t->wide[i] = t->ids.items[i];
    for (size_t i = 0; i < n; i++) {
        t->starts[i] = t->wide + i * chunk;
        t->lengths[i] = fp8q_min_size(chunk, count - i * chunk);
    }
    return fp8q_inputs_from_ids(t->starts, t->lengths, n, name, inputs_out, err);
}

static int tokenize(struct text_inputs *t, const struct cli_inputs *in,
                    const struct fp8q_ckpt *ckpt, struct fp8q_inputs *inputs_out,
                    struct fp8q_error *err)
{
    size_t len;

    FP8Q_TRY(fp8q_tokenizer_open(ckpt->dir, &t->tokenizer, err));
    FP8Q_TRY(fp8q_read_file(in->text, MAX_TEXT, &t->text, &len, err));
    FP8Q_TRY(fp8q_tokenizer_encode(t->tokenizer, t->text, len, &t->ids, err));
    if (t->ids.count == 0)
        return fp8q_fail(err, FP8Q_E_ARG, "inputs", "%s: the text has no tokens", in->text);

    size_t chunk = in->chunk ? (size_t)in->chunk : 512;
    return cut(t, chunk, fp8q_basename(in->text), inputs_out, err);
}

static int from_text(const struct cli_inputs *in, const struct fp8q_ckpt *ckpt,
                     struct fp8q_inputs *inputs_out, struct fp8q_error *err)
{
    struct text_inputs t = {.tokenizer = NULL};
    int status = tokenize(&t, in, ckpt, inputs_out, err);

    fp8q_tokenizer_close(t.tokenizer);
    fp8q_ids_reset(&t.ids);
    free(t.text);
    free(t.wide);
    free(t.starts);
    free(t.lengths);
    return status;
}

int cli_inputs_check(struct cli *cli, const struct cli_inputs *in, struct fp8q_guard_list *guard)
{
    struct fp8q_error *err = &cli->error;

    /* Neither both nor none of them.  */
    if (!in->file == !in->text)
        return fp8q_fail(err, FP8Q_E_ARG, "usage",
                         "%s: give either --inputs (token ids, captured) or --text (any text)",
                         cli->command);

    FP8Q_TRY(fp8q_guard_add(guard, in->file, "the file of --inputs", err));
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
