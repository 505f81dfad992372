/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_dequantize.c - fp8q dequantize SRC OUT
 */
#include <string.h>

#include "cli/format.h"
#include "cli/report.h"
#include "cli/request_options.h"
#include "commands/commands.h"

static const char usage[] =
    "usage: fp8q dequantize [options] SRC OUT\n\n"
    "Writes a plain high-precision checkpoint of an FP8 one (this tool's or another's: block, per\n"
    "channel or per tensor; both checkpoint formats).  config.json loses its quantization_config.\n"
    "\nExample: fp8q dequantize Qwen3-4B-FP8 Qwen3-4B-bf16";

/* The way back is better still where the source is at hand: the manifest knows it.  */
static void report_origin(struct cli *cli, struct fp8q_conversion *c)
{
    struct fp8q_shown shown;
    const char *path, *fingerprint;
    if (!fp8q_conversion_origin(c, &path, &fingerprint))
        return;

    cli_print(cli, "it was quantized from %s, fingerprint %s\n", fp8q_show(&shown, path),
              fingerprint);
    fp8q_jsonw_string(&cli->json, "source", path);
    fp8q_jsonw_string(&cli->json, "source_fingerprint", fingerprint);
}

static size_t count_dequantized(const struct fp8q_conversion *c)
{
    const struct fp8q_reason_count *r;

    /* What was FP8 has this reason, which stands in the list once or not at all.  */
    for (size_t i = 0; (r = fp8q_conversion_reason(c, i)); i++)
        if (strcmp(r->reason, "already-fp8") == 0)
            return r->tensors;
    return 0;
}

/* *@conversion_out is the caller's to close, also after a failure.  */
static int run(struct cli *cli, const struct fp8q_request *r, const char *destination,
               struct fp8q_conversion **conversion_out)
{
    char bytes[32];
    FP8Q_TRY(fp8q_conversion_open(r, &cli->run, conversion_out, &cli->warnings, &cli->error));
    struct fp8q_conversion *c = *conversion_out;
    FP8Q_TRY(fp8q_conversion_run(c, destination, &cli->warnings, &cli->error));

    /* Progress goes first, then come warnings, then the result.  */
    cli_progress_clear();
    cli_show_warnings(cli);

    size_t n = count_dequantized(c);
    cli_report_plan_json(cli, c, destination);
    report_origin(cli, c);
    cli_print(cli, "%zu tensor%s F8_E4M3 -> %s\n%swrote %s%s (%s)\n", n, fp8q_plural(n),
              fp8q_dtype_name(r->to), cli_style(CLI_GOOD), destination, cli_style(CLI_PLAIN),
              fp8q_show_bytes(bytes, fp8q_conversion_result(c)->file_bytes));
    return FP8Q_OK;
}

int cmd_dequantize(struct cli *cli)
{
    struct cli_request r;
    const struct cli_option own[] = {
        {"max-memory", 0, CLI_SIZE, &cli->run.max_memory, "SIZE", "limit of working memory"},
        {"overwrite", 0, CLI_FLAG, &cli->run.overwrite, NULL, "replace an earlier output"},
        {.name = NULL}};
    struct fp8q_conversion *c = NULL;
    const char *operands[2];
    int code;

    cli_request_open(&r, FP8Q_USE_DEQUANTIZE, own);
    /* The table of options is complete only now.  */
    const struct cli_syntax syntax = {.usage = usage, .options = r.options, .min = 2, .max = 2};
    if (!cli_parse(cli, &syntax, operands, &code)) {
        cli_request_close(&r);
        return code;
    }
    cli_request_settle(&r);
    r.request.source = operands[0];

    int status = run(cli, &r.request, operands[1], &c);
    fp8q_conversion_close(c);
    cli_request_close(&r);
    return cli_end(cli, status);
}
