/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_quantize.c - fp8q quantize SRC [DST]
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/output.h"
#include "cli/format.h"
#include "cli/report.h"
#include "cli/request_options.h"
#include "commands/commands.h"

static const char usage[] =
    "usage: fp8q quantize [options] SRC [DST]\n\n"
    "Writes a block-FP8 checkpoint of SRC, a .safetensors file or a checkpoint directory, to DST\n"
    "(SRC-FP8 by default).  PAT: parts of a module name (mlp.gate), a glob, or re:REGEX.\n\n"
    "Example: fp8q quantize Qwen3-4B --ignore layers.0 --tp 2";

static const char details[] =
    "DST is SRC-FP8 by default, SRC-FP8-BLOCK with --format compressed-tensors, and\n"
    "NAME-FP8.safetensors for a file.\n\n"
    "A pattern PAT is a run of whole components of a module name (visual, mlp.gate), a glob over\n"
    "the whole name if it has * ? or [, or re:REGEX, matched at the start as Python's re.match\n"
    "does.";

static const struct cli_group groups[] = {
    {"What is quantized", "ignore include unaligned gptq",
     "inputs calibration input-range kv-cache ignore-file no-default-ignore like requantize strict "
     "allow-tower allow-unmatched"},
    {"How it is written", "format scheme scale-fmt dry-run resume overwrite",
     "output tp scales block-size max-shard-size part lock write-lock max-memory"},
    {.head = NULL}};

/* What decides no byte of the output.  */
struct settings {
    const char *output, *block_size, *part, *lock, *write_lock, *ignore_file;
    char *ignore_text; /* owned: what @ignore_file holds, cut into lines */
    bool dry_run;
    unsigned part_number, n_parts; /* 0 of 0: all */
};

/* ---- reading what was asked for -------------------------------------------------------------- */

/* Adds the lines of --ignore-file to the patterns.  */
static int read_ignore_file(struct cli *cli, struct settings *s, struct cli_list *patterns)
{
    enum { MOST_BYTES = 1 << 24 };
    size_t len;
    if (!s->ignore_file)
        return FP8Q_OK;

    FP8Q_TRY(fp8q_read_file(s->ignore_file, MOST_BYTES, &s->ignore_text, &len, &cli->error));

    for (char *line = s->ignore_text, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        size_t n = strlen(line);

        /* Line ends of Windows and spaces that nobody sees would make patterns that match
         * nothing.  */
        while (n && (line[n - 1] == '\r' || line[n - 1] == ' '))
            line[--n] = '\0';

        /* The list borrows the line; the text lives as long as the settings.  */
        if (*line != '\0' && *line != '#')
            FP8Q_TRY(cli_list_add(patterns, line, &cli->error));
    }
    return FP8Q_OK;
}

static int read_part(struct cli *cli, struct settings *s)
{
    enum { MOST_PARTS = 65535 };
    struct fp8q_shown shown;
    char *end = s->part ? strchr(s->part, '/') : NULL;
    if (!s->part)
        return FP8Q_OK;

    unsigned long part = 0, n = 0;
    /* strtoul() would take signs and spaces.  */
    if (s->part[0] >= '0' && s->part[0] <= '9' && end && end[1] >= '0' && end[1] <= '9') {
        part = strtoul(s->part, &end, 10);
        if (*end == '/')
            n = strtoul(end + 1, &end, 10);
    }

    /* A part of 0 is refused first, so @end is set by the time it is looked at.  Numbers that are
     * too large come back as ULONG_MAX, which is more than MOST_PARTS.  */
    if (part < 1 || part > n || n > MOST_PARTS || *end)
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage",
                         "--part: expected I/N with 1 <= I <= N <= 65535, found \"%s\"",
                         fp8q_show(&shown, s->part));

    s->part_number = (unsigned)part;
    s->n_parts = (unsigned)n;
    return FP8Q_OK;
}

static int read_settings(struct cli *cli, struct settings *s, struct cli_request *r)
{
    struct fp8q_shown shown;

    if (s->block_size && strcmp(s->block_size, "128x128") != 0 && strcmp(s->block_size, "128") != 0)
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage",
                         "--block-size: expected 128x128 (engines serve no other), found \"%s\"",
                         fp8q_show(&shown, s->block_size));

    FP8Q_TRY(read_part(cli, s));
    /* Before the request is settled: from then on its lists must not move.  */
    FP8Q_TRY(read_ignore_file(cli, s, cli_request_list(r, "ignore")));
    cli_request_settle(r);
    return FP8Q_OK;
}

/* ---- the lock -------------------------------------------------------------------------------- */

/* What is read must not be written.  */
static int guard_inputs(struct cli *cli, const struct settings *s, const struct fp8q_request *r,
                        struct fp8q_guard_list *guard)
{
    FP8Q_TRY(fp8q_guard_add(guard, r->source, "the source", &cli->error));
    FP8Q_TRY(fp8q_guard_add(guard, r->like, "the checkpoint of --like", &cli->error));
    FP8Q_TRY(fp8q_guard_add(guard, r->calibration, "the calibration", &cli->error));
    FP8Q_TRY(fp8q_guard_add(guard, r->inputs, "the inputs", &cli->error));
    FP8Q_TRY(fp8q_guard_add(guard, s->ignore_file, "the file of --ignore-file", &cli->error));
    return fp8q_output_check(s->write_lock, guard, &cli->error);
}

/* Before the work: an existing lock allows the conversion, and a new one can be written where it
 * shall be.  */
static int check_lock(struct cli *cli, struct settings *s, const struct fp8q_request *r,
                      struct fp8q_conversion *c)
{
    struct fp8q_guard_list guard = {0};
    bool there = false;

    if (s->lock)
        FP8Q_TRY(fp8q_conversion_check_lock(c, s->lock, &there, &cli->error));

    /* There is no lock yet: this conversion makes it.  */
    if (s->lock && !there)
        s->write_lock = s->lock;
    if (!s->write_lock || s->dry_run)
        return FP8Q_OK;

    int status = guard_inputs(cli, s, r, &guard);
    fp8q_guard_reset(&guard);
    return status;
}

static int write_lock(struct cli *cli, const char *path, struct fp8q_conversion *c)
{
    const char *text;
    FP8Q_TRY(fp8q_conversion_lock(c, &text, &cli->error));
    return fp8q_output_write(path, text, strlen(text), &cli->error);
}

/* ---- the work -------------------------------------------------------------------------------- */

static void report_done(struct cli *cli, const struct settings *s, const struct fp8q_request *r,
                        const struct fp8q_conversion *c, const char *destination)
{
    const struct fp8q_result *result = fp8q_conversion_result(c);
    char bytes[32];

    if (!result->complete) {
        cli_print(cli, "part %u of %u is done; when all are: fp8q finish %s\n", s->part_number,
                  s->n_parts, destination);
        return;
    }

    const char *by = r->gptq ? r->inputs : r->calibration;
    bool for_scales = r->calibration && result->n_gptq + result->n_plain == 0;
    if (for_scales)
        cli_print(cli, "scales from %s\n", r->calibration);
    else if (by)
        cli_print(cli,
                  "GPTQ rounding with %s: %zu linear inputs, plain rounding in %zu whose held-out "
                  "error did not fall\n",
                  by, result->n_gptq, result->n_plain);

    if (result->resumed_shards)
        cli_print(cli, "%zu shard%s taken over from an earlier run\n", result->resumed_shards,
                  result->resumed_shards == 1 ? " was" : "s were");

    cli_print(cli, "%swrote %s%s (%s)\n", cli_style(CLI_GOOD), destination, cli_style(CLI_PLAIN),
              fp8q_show_bytes(bytes, result->file_bytes));
}

static int convert(struct cli *cli, const struct settings *s, const struct fp8q_request *r,
                   struct fp8q_conversion *c, const char *destination)
{
    if (s->n_parts)
        FP8Q_TRY(fp8q_conversion_run_part(c, destination, s->part_number, s->n_parts,
                                          &cli->warnings, &cli->error));
    else
        FP8Q_TRY(fp8q_conversion_run(c, destination, &cli->warnings, &cli->error));

    cli_progress_clear();
    cli_show_warnings(cli);
    report_done(cli, s, r, c, destination);
    return FP8Q_OK;
}

/* The plan is shown when it is known that it will be carried out, or when only it was asked for. */
static int check_and_convert(struct cli *cli, struct settings *s, const struct fp8q_request *r,
                             struct fp8q_conversion *c)
{
    const char *destination = s->output ? s->output : fp8q_conversion_plan(c)->default_destination;
    bool complete = false;

    cli_show_warnings(cli);
    fp8q_jsonw_bool(&cli->json, "dry_run", s->dry_run);
    cli_report_plan_json(cli, c, destination);
    if (s->dry_run)
        cli_report_plan(cli, c);

    /* Without a destination only the plan is judged, not what stands there.  */
    FP8Q_TRY(fp8q_conversion_check(c, s->dry_run ? NULL : destination, s->n_parts, &complete,
                                   &cli->error));
    FP8Q_TRY(check_lock(cli, s, r, c));
    if (s->dry_run)
        return FP8Q_OK;

    /* With the output, so that it is not there without its lock.  Of parts the finish makes the
     * output, and asks again whether a lock that was there allows it.  */
    const char *lock = s->n_parts && !s->write_lock ? s->lock : s->write_lock;
    if (lock && !complete)
        FP8Q_TRY(fp8q_conversion_write_lock(c, lock, &cli->error));

    if (complete) {
        cli_print(cli, "%s is complete already: same source, options and version\n", destination);
    } else {
        cli_report_plan(cli, c);
        FP8Q_TRY(convert(cli, s, r, c, destination));
    }

    /* Also of an output that was complete: the lock may be a new wish.  */
    return s->write_lock && complete ? write_lock(cli, s->write_lock, c) : FP8Q_OK;
}

static int quantize(struct cli *cli, struct settings *s, struct cli_request *r)
{
    struct fp8q_conversion *c = NULL;
    FP8Q_TRY(read_settings(cli, s, r));
    FP8Q_TRY(fp8q_conversion_open(&r->request, &cli->run, &c, &cli->warnings, &cli->error));

    int status = check_and_convert(cli, s, &r->request, c);
    fp8q_conversion_close(c);
    return status;
}

int cmd_quantize(struct cli *cli)
{
    struct settings s = {.output = NULL};
    struct cli_request r;
    const struct cli_option own[] = {
        {"ignore-file", 0, CLI_TEXT, &s.ignore_file, "FILE",
         "one pattern a line, as `fp8q sweep -o` writes them; # begins a comment"},
        {"block-size", 0, CLI_TEXT, &s.block_size, "RxC",
         "128x128, the only one that engines serve"},
        {"max-memory", 0, CLI_SIZE, &cli->run.max_memory, "SIZE", "limit of working memory"},
        {"lock", 0, CLI_TEXT, &s.lock, "FILE",
         "fail (4) unless FILE allows just this; write it if it is not there"},
        {"write-lock", 0, CLI_TEXT, &s.write_lock, "FILE",
         "write what was quantized, for `fp8q verify --lock`"},
        {"part", 0, CLI_TEXT, &s.part, "I/N", "convert the I-th share of the shards only"},
        {"resume", 0, CLI_FLAG, &cli->run.resume, NULL, "go on where a killed run stopped"},
        {"overwrite", 0, CLI_FLAG, &cli->run.overwrite, NULL, "replace an earlier output"},
        {"dry-run", 'n', CLI_FLAG, &s.dry_run, NULL, "print the plan and stop"},
        {"output", 'o', CLI_TEXT, &s.output, "DST", "same as the second operand"},
        {.name = NULL}};
    const struct cli_rule rules[] = {
        {"lock", CLI_EXCLUDES, "write-lock"},
        {"gptq", CLI_NEEDS, "inputs"},
        {"gptq", CLI_EXCLUDES, "no-gptq"},
        {"no-gptq", CLI_NEEDS, "calibration"},
        {"gptq", CLI_EXCLUDES, "part"},
        {"inputs", CLI_NEEDS, "gptq"},
        {"allow-unmatched", CLI_NEEDS, "ignore exclude ignore-file include scheme"},
        {"allow-tower", CLI_NEEDS, "include scheme no-default-ignore like"},
        {.option = NULL}};
    const char *operands[2] = {NULL, NULL};
    int code;

    cli_request_open(&r, FP8Q_USE_QUANTIZE, own);
    /* The table of options is complete only now.  */
    const struct cli_syntax syntax = {.usage = usage,
                                      .groups = groups,
                                      .details = details,
                                      .options = r.options,
                                      .rules = rules,
                                      .min = 1,
                                      .max = 2};
    if (cli_parse(cli, &syntax, operands, &code)) {
        r.request.source = operands[0];
        if (operands[1] && s.output)
            code = cli_usage_error(cli, "quantize: DST is given twice: \"%s\" and --output \"%s\"",
                                   operands[1], s.output);
        else {
            s.output = operands[1] ? operands[1] : s.output;
            code = cli_end(cli, quantize(cli, &s, &r));
        }
    }

    cli_request_close(&r);
    free(s.ignore_text);
    return code;
}
