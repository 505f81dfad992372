/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_finish.c - fp8q finish DST
 */
#include "commands/commands.h"
#include "convert/convert.h"

static const char usage[] = "usage: fp8q finish [options] DST\n\n"
                            "Ends a conversion whose parts were run with `fp8q quantize --part I/N "
                            "SRC DST`: checks that every\n"
                            "part is there and came from the same source and options, writes "
                            "scales, index and config, and only\n"
                            "then gives the final name.";

static int finish(struct cli *cli, const char *destination, bool overwrite)
{
    struct fp8q_json *state = NULL;
    struct fp8q_request r = {0};
    struct fp8q_ckpt *ckpt = NULL, *like = NULL;
    struct fp8q_plan *plan = NULL;
    struct fp8q_convert_result result;
    uint64_t n_parts = 0;
    char bytes[32];
    int status = fp8q_convert_state(destination, &state, &r, &n_parts, &cli->error);
    if (status == FP8Q_OK)
        status = fp8q_ckpt_open(r.source, &ckpt, &cli->warnings, &cli->error);
    if (status == FP8Q_OK && r.like)
        status = fp8q_ckpt_open(r.like, &like, &cli->warnings, &cli->error);
    if (status == FP8Q_OK) {
        struct fp8q_plan_options options = fp8q_request_options(&r, like);
        options.threads = (unsigned)cli->threads;
        status = fp8q_plan_create(ckpt, &options, &plan, &cli->warnings, &cli->error);
    }
    if (status == FP8Q_OK) {
        struct fp8q_convert_options o = {.destination = destination,
                                         .request = &r,
                                         .kernel = fp8q_kernel_select(NULL),
                                         .overwrite = overwrite,
                                         .n_parts = (unsigned)n_parts};
        status = fp8q_convert_finish(plan, &o, &result, &cli->warnings, &cli->error);
    }
    if (status == FP8Q_OK) {
        cli_show_warnings(cli);
        fp8q_jsonw_string(&cli->json, "output", destination);
        cli_print(cli, "wrote %s (%s) from %llu parts\n", destination,
                  cli_bytes(bytes, result.finish.file_bytes), (unsigned long long)n_parts);
    }
    fp8q_plan_destroy(plan);
    fp8q_ckpt_close(like);
    fp8q_ckpt_close(ckpt);
    fp8q_request_reset(&r);
    fp8q_json_free(state);
    return status;
}

static int run(struct cli *cli, int argc, char **argv)
{
    bool overwrite = false;
    const struct cli_option options[] = {
        {"overwrite", 0, CLI_FLAG, &overwrite, NULL, "replace an earlier output"}, {.name = NULL}};
    const char *operands[1];
    int code;
    if (!cli_parse(cli, argc, argv, usage, options, operands, 1, 1, &code))
        return code;
    return cli_end(cli, finish(cli, operands[0], overwrite));
}

const struct cli_command cli_cmd_finish = {"finish", run,
                                           "end a conversion whose parts ran separately"};
