/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_quantize.c - fp8q quantize SRC [DST]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli.h"
#include "commands/commands.h"
#include "convert/convert.h"
#include "base/file.h"
#include "base/output.h"
#include "plan/lock.h"
#include "cli/report.h"

static const char usage[] =
    "usage: fp8q quantize [options] SRC [DST]\n\n"
    "Writes a block-FP8 checkpoint of SRC, a .safetensors file or a checkpoint directory.\n"
    "DST is SRC-FP8 by default (SRC-FP8-BLOCK with --format compressed-tensors,\n"
    "NAME-FP8.safetensors for a file).\n\n"
    "A pattern PAT is a run of whole components of a module name (visual, mlp.gate), a glob over "
    "the\n"
    "whole name if it has * ? or [, or re:REGEX, matched at the start as Python's re.match does.";

/* Words as given, before they become a request.  */
struct words {
    struct cli_list ignore, include;
    const char *output, *input, *format, *scales, *scale_fmt, *block_size, *scheme, *ragged, *part;
    const char *lock, *ignore_file;
    char *ignore_text; /* owned: what @ignore_file holds, cut into lines */
    uint64_t max_memory;
    bool dry_run, resume, overwrite;
};

static int bad_word(struct cli *cli, const char *option, const char *word, const char *expected)
{
    struct fp8q_shown shown;
    return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage", "--%s: expected %s, found \"%s\"", option,
                     expected, fp8q_show(&shown, word));
}

static int read_words(struct cli *cli, const struct words *w, struct fp8q_request *r)
{
    if (w->block_size && strcmp(w->block_size, "128x128") != 0 && strcmp(w->block_size, "128") != 0)
        return bad_word(cli, "block-size", w->block_size, "128x128 (engines serve no other)");
    if (w->scales && !fp8q_parse_scales(w->scales, &r->scales))
        return bad_word(cli, "scales", w->scales, "sidecar or inline");
    if (w->scale_fmt && !fp8q_parse_scale_fmt(w->scale_fmt, &r->scale_fmt))
        return bad_word(cli, "scale-fmt", w->scale_fmt, "f32 or ue8m0");
    if (w->scheme && !fp8q_parse_scheme(w->scheme, &r->scheme))
        return bad_word(cli, "scheme", w->scheme, "FP8_BLOCK, FP8_DYNAMIC or FP8");
    if (w->ragged && !fp8q_parse_ragged(w->ragged, &r->ragged))
        return bad_word(cli, "ragged", w->ragged, "keep, quantize or per-channel");
    /* Scales of rows exist in one dialect only, and one scale a tensor is read under one name by
     * all engines only there, so they choose it.  */
    if (r->scheme != FP8Q_SCHEME_BLOCK || r->ragged == FP8Q_RAGGED_CHANNEL)
        r->format = FP8Q_FORMAT_COMPRESSED_TENSORS;
    if (w->format && !fp8q_parse_format(w->format, &r->format))
        return bad_word(cli, "format", w->format, "fp8 or compressed-tensors");
    r->ignore = w->ignore.items;
    r->n_ignore = w->ignore.count;
    r->include = w->include.items;
    r->n_include = w->include.count;
    return FP8Q_OK;
}

/* Adds the lines of --ignore-file to the patterns.  */
static int read_ignore_file(struct cli *cli, struct words *w)
{
    size_t len;
    if (!w->ignore_file)
        return FP8Q_OK;
    FP8Q_TRY(fp8q_read_file(w->ignore_file, 1 << 24, &w->ignore_text, &len, &cli->error));
    for (char *line = w->ignore_text, *end; line; line = end) {
        end = strchr(line, '\n');
        if (end)
            *end++ = '\0';
        size_t n = strlen(line);
        while (n && (line[n - 1] == '\r' || line[n - 1] == ' '))
            line[--n] = '\0';
        if (*line == '\0' || *line == '#')
            continue;
        const char **items = realloc(w->ignore.items, (w->ignore.count + 1) * sizeof(*items));
        if (!items)
            return fp8q_fail_nomem(&cli->error);
        w->ignore.items = items;
        items[w->ignore.count++] = line;
    }
    return FP8Q_OK;
}

static int read_part(struct cli *cli, const char *text, struct fp8q_convert_options *o)
{
    char *end;
    if (!text)
        return FP8Q_OK;
    unsigned long part = strtoul(text, &end, 10), n = 0;
    if (*end == '/')
        n = strtoul(end + 1, &end, 10);
    if (*end || part < 1 || part > n || n > 65535)
        return bad_word(cli, "part", text, "I/N with 1 <= I <= N");
    o->part = (unsigned)part;
    o->n_parts = (unsigned)n;
    return FP8Q_OK;
}

static const char *suffix_of(const struct fp8q_request *r)
{
    static const char *const suffixes[] = {"-FP8-BLOCK", "-FP8-Dynamic", "-FP8"};
    return r->format == FP8Q_FORMAT_FP8 ? "-FP8" : suffixes[r->scheme];
}

static void report_done(struct cli *cli, const struct fp8q_plan *plan,
                        const struct fp8q_convert_options *o, const struct fp8q_convert_result *r)
{
    char bytes[32];
    if (!r->complete) {
        cli_print(cli, "part %u of %u is done; when all are: fp8q finish %s\n", o->part, o->n_parts,
                  o->destination);
        return;
    }
    if (o->request->calibration)
        cli_print(cli,
                  "error-compensated rounding from %s: %zu sites, plain in %zu whose held-out "
                  "error did not fall\n",
                  o->request->calibration, r->n_compensated, r->n_guarded);
    if (r->resumed_shards)
        cli_print(cli, "%zu of %zu shards were there already\n", r->resumed_shards,
                  plan->n_shards - (plan->sidecar != SIZE_MAX));
    cli_print(cli, "%swrote %s%s (%s)\n", cli_style(CLI_GOOD), o->destination, cli_style(CLI_PLAIN),
              cli_bytes(bytes, r->finish.file_bytes));
}

static int write_lock(struct cli *cli, const char *path, const struct fp8q_plan *plan)
{
    struct fp8q_text text = {0};
    int status = fp8q_lock_text(plan, &text, &cli->error);
    if (status == FP8Q_OK)
        status = fp8q_output_write(path, text.data, text.len, &cli->error);
    fp8q_text_reset(&text);
    return status;
}

static int convert(struct cli *cli, const struct words *w, const struct fp8q_plan *plan,
                   struct fp8q_convert_options *o)
{
    struct fp8q_convert_result result;
    o->watch = &cli->watch;
    int status = fp8q_convert(plan, o, &result, &cli->warnings, &cli->error);
    if (status != FP8Q_OK)
        return status;
    cli_progress_clear();
    cli_show_warnings(cli);
    report_done(cli, plan, o, &result);
    return w->lock ? write_lock(cli, w->lock, plan) : FP8Q_OK;
}

static int plan_and_convert(struct cli *cli, const struct words *w, struct fp8q_request *r,
                            struct fp8q_convert_options *o, const char *destination)
{
    struct fp8q_ckpt *ckpt = NULL, *like = NULL;
    struct fp8q_plan *plan = NULL;
    char *default_destination = NULL;
    bool complete = false;
    int status = fp8q_ckpt_open(r->source, &ckpt, &cli->warnings, &cli->error);
    if (status == FP8Q_OK && r->like)
        status = fp8q_ckpt_open(r->like, &like, &cli->warnings, &cli->error);
    if (status == FP8Q_OK) {
        struct fp8q_plan_options options = fp8q_request_options(r, like);
        options.threads = (unsigned)cli->threads;
        options.max_memory = w->max_memory;
        default_destination = fp8q_default_destination(ckpt, suffix_of(r));
        o->destination = destination ? destination : default_destination;
        if (!o->destination)
            status = fp8q_fail_nomem(&cli->error);
        if (status == FP8Q_OK)
            status = fp8q_plan_create(ckpt, &options, &plan, &cli->warnings, &cli->error);
    }
    if (status == FP8Q_OK) {
        cli_show_warnings(cli);
        fp8q_jsonw_string(&cli->json, "output", o->destination);
        fp8q_jsonw_string(&cli->json, "sidecar",
                          plan->sidecar == SIZE_MAX ? NULL : plan->shards[plan->sidecar].name);
        fp8q_jsonw_bool(&cli->json, "dry_run", w->dry_run);
        cli_report_plan_json(cli, plan);
        status = fp8q_plan_check(plan, &cli->error);
        o->request = r;
        o->overwrite = w->overwrite;
        o->resume = w->resume;
        if (status == FP8Q_OK && w->resume && !w->dry_run && !o->n_parts)
            status = fp8q_convert_complete(plan, o, &complete, &cli->error);
        if (status == FP8Q_OK && !w->dry_run &&
            !complete) /* before the plan is printed as if it would be done */
            status = fp8q_convert_check(plan, o, &cli->error);
        if ((status == FP8Q_OK && !complete) || w->dry_run)
            cli_report_plan(cli, plan);
        if (complete)
            cli_print(cli, "%s is complete already: same source, options and version\n",
                      o->destination);
        if (status == FP8Q_OK && !w->dry_run && !complete)
            status = convert(cli, w, plan, o);
    }
    fp8q_plan_destroy(plan);
    fp8q_ckpt_close(like);
    fp8q_ckpt_close(ckpt);
    free(default_destination);
    return status;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct words w = {.output = NULL};
    struct fp8q_request r = {.format = FP8Q_FORMAT_FP8};
    struct fp8q_convert_options o = {.part = 0};
    const struct cli_option options[] = {
        {"ignore", 0, CLI_LIST, &w.ignore, "PAT",
         "keep modules in high precision (may be repeated)"},
        {"ignore-file", 0, CLI_TEXT, &w.ignore_file, "FILE",
         "one pattern a line, as `fp8q sweep -o` writes them; # begins a comment"},
        {"exclude", 0, CLI_LIST, &w.ignore, "PAT", NULL},
        {"include", 0, CLI_LIST, &w.include, "PAT", "quantize modules that are kept by default"},
        {"no-default-ignore", 0, CLI_FLAG, &r.no_default_ignore, NULL,
         "keep only what cannot be quantized and what --ignore names"},
        {"allow-unmatched", 0, CLI_FLAG, &r.allow_unmatched, NULL,
         "go on when a pattern matches nothing"},
        {"allow-tower", 0, CLI_FLAG, &r.allow_tower, NULL,
         "let --include reach a vision or audio tower"},
        {"like", 0, CLI_TEXT, &r.like, "DIR", "quantize exactly what that checkpoint did"},
        {"format", 0, CLI_TEXT, &w.format, "NAME", "fp8 (default) or compressed-tensors"},
        {"scales", 0, CLI_TEXT, &w.scales, "WHERE", "sidecar (default) or inline"},
        {"scale-fmt", 0, CLI_TEXT, &w.scale_fmt, "FMT", "f32 (default) or ue8m0 (powers of two)"},
        {"block-size", 0, CLI_TEXT, &w.block_size, "RxC",
         "128x128, the only one that engines serve"},
        {"scheme", 0, CLI_TEXT, &w.scheme, "NAME",
         "FP8_BLOCK (default), FP8_DYNAMIC (per channel), FP8 (per tensor)"},
        {"ragged", 0, CLI_TEXT, &w.ragged, "HOW",
         "sizes that are no multiple of 128: keep (default), per-channel\n"
         "(servable, compressed-tensors), quantize (own runtimes)"},
        {"calibration", 0, CLI_TEXT, &r.calibration, "FILE",
         "error-compensated rounding from `fp8q calibrate` statistics"},
        {"requantize", 0, CLI_FLAG, &r.requantize, NULL, "take an FP8 source, through F32"},
        {"max-shard-size", 0, CLI_SIZE, &r.max_shard_size, "SIZE",
         "re-shard (default: as the source)"},
        {"max-memory", 0, CLI_SIZE, &w.max_memory, "SIZE", "limit of working memory"},
        {"tp", 0, CLI_UINT, &r.tp, "N", "fail unless N-way tensor parallelism can be served"},
        {"lock", 0, CLI_TEXT, &w.lock, "FILE",
         "write what was quantized, for `fp8q verify --lock`"},
        {"strict", 0, CLI_FLAG, &r.strict, NULL, "fail where a fused group would be kept whole"},
        {"part", 0, CLI_TEXT, &w.part, "I/N", "convert the I-th share of the shards only"},
        {"resume", 0, CLI_FLAG, &w.resume, NULL, "go on where a killed run stopped"},
        {"overwrite", 0, CLI_FLAG, &w.overwrite, NULL, "replace an earlier output"},
        {"dry-run", 'n', CLI_FLAG, &w.dry_run, NULL, "print the plan and stop"},
        {"output", 'o', CLI_TEXT, &w.output, "DST", "same as the second operand"},
        {.name = NULL}};
    const char *operands[2];
    int code;
    if (!cli_parse(cli, argc, argv, usage, options, operands, 1, 2, &code)) {
        free(w.ignore.items);
        free(w.include.items);
        return code;
    }
    r.source = operands[0];
    o.kernel = fp8q_kernel_select(cli->kernel);
    int status = read_ignore_file(cli, &w);
    if (status == FP8Q_OK)
        status = read_words(cli, &w, &r);
    if (status == FP8Q_OK && !o.kernel)
        status =
            bad_word(cli, "kernel", cli->kernel, "a kernel that this CPU has (scalar, avx2, ...)");
    if (status == FP8Q_OK)
        status = read_part(cli, w.part, &o);
    if (status == FP8Q_OK)
        status = plan_and_convert(cli, &w, &r, &o, operands[1] ? operands[1] : w.output);
    free(w.ignore.items);
    free(w.include.items);
    free(w.ignore_text);
    return cli_end(cli, status);
}

const struct cli_command cli_cmd_quantize = {"quantize", run, "convert a checkpoint to block-FP8"};
