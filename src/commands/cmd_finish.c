/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_finish.c - fp8q finish DST
 */
#include "cli/format.h"
#include "cli/options.h"
#include "commands/commands.h"

static const char usage[] =
    "usage: fp8q finish [options] DST\n\n"
    "Ends a conversion whose parts were run with `fp8q quantize --part I/N SRC DST`: checks that\n"
    "every part is there and came from the same source and options, writes scales, index and\n"
    "config, and only then gives the final name.\n\n"
    "Example: fp8q quantize --part 1/2 SRC DST && fp8q quantize --part 2/2 SRC DST &&\n"
    "         fp8q finish DST";

/* *@conversion_out is the caller's to close, also after a failure.  */
static int run(struct cli *cli, const char *destination, struct fp8q_conversion **conversion_out)
{
    char bytes[32];

    /* What was asked for stands in what the parts left behind.  */
    FP8Q_TRY(fp8q_conversion_open_parts(destination, &cli->run, conversion_out, &cli->warnings,
                                        &cli->error));
    struct fp8q_conversion *c = *conversion_out;
    FP8Q_TRY(fp8q_conversion_finish(c, destination, &cli->warnings, &cli->error));
    cli_progress_clear();
    cli_show_warnings(cli);

    fp8q_jsonw_string(&cli->json, "output", destination);
    cli_print(cli, "wrote %s (%s) from %u part%s\n", destination,
              fp8q_show_bytes(bytes, fp8q_conversion_result(c)->file_bytes),
              fp8q_conversion_plan(c)->n_parts, fp8q_plural(fp8q_conversion_plan(c)->n_parts));
    return FP8Q_OK;
}

int cmd_finish(struct cli *cli)
{
    const struct cli_option options[] = {
        {"overwrite", 0, CLI_FLAG, &cli->run.overwrite, NULL, "replace an earlier output"},
        {.name = NULL}};
    const struct cli_syntax syntax = {.usage = usage, .options = options, .min = 1, .max = 1};
    struct fp8q_conversion *c = NULL;
    const char *destination;
    int code;
    if (!cli_parse(cli, &syntax, &destination, &code))
        return code;

    int status = run(cli, destination, &c);
    fp8q_conversion_close(c);
    return cli_end(cli, status);
}
