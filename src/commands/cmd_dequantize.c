/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_dequantize.c - fp8q dequantize SRC OUT
 */
#include "commands/commands.h"
#include "convert/convert.h"
#include "plan/manifest.h"
#include "cli/report.h"

static const char usage[] =
    "usage: fp8q dequantize [options] SRC OUT\n\n"
    "Writes a plain high-precision checkpoint of an FP8 one (this tool's or another's: block, per\n"
    "channel or per tensor; both dialects).  config.json loses its quantization_config.";

struct settings {
    const char *dtype;
    uint64_t max_memory;
    bool overwrite;
};

/* The way back is better still where the source is at hand: the manifest knows it.  */
static void report_source(struct cli *cli, const struct fp8q_ckpt *ckpt)
{
    struct fp8q_manifest m;
    struct fp8q_shown shown;
    bool found;
    if (fp8q_manifest_read(ckpt, &m, &found, NULL) == FP8Q_OK && found) {
        const char *path = fp8q_json_string(fp8q_json_path(m.json, "source.path"), "");
        const char *print = fp8q_json_string(fp8q_json_path(m.json, "source.fingerprint"), "");
        cli_print(cli, "it was quantized from %s, fingerprint %s\n", fp8q_show(&shown, path),
                  print);
        fp8q_jsonw_string(&cli->json, "source", path);
        fp8q_jsonw_string(&cli->json, "source_fingerprint", print);
    }
    fp8q_manifest_reset(&m);
}

static int dequantize(struct cli *cli, const struct settings *s, struct fp8q_request *r,
                      const char *destination)
{
    struct fp8q_ckpt *ckpt = NULL;
    struct fp8q_plan *plan = NULL;
    struct fp8q_convert_result result;
    struct fp8q_shown shown;
    char bytes[32];
    int status = fp8q_ckpt_open(r->source, &ckpt, &cli->warnings, &cli->error);
    if (status == FP8Q_OK) {
        struct fp8q_plan_options options = fp8q_request_options(r, NULL);
        options.threads = (unsigned)cli->threads;
        options.max_memory = s->max_memory;
        status = fp8q_plan_create(ckpt, &options, &plan, &cli->warnings, &cli->error);
    }
    if (status == FP8Q_OK && plan->by_reason[FP8Q_WHY_ALREADY_FP8].tensors == 0)
        status = fp8q_fail(&cli->error, FP8Q_E_ARG, "not-quantized", "%s: holds no F8_E4M3 weight",
                           fp8q_show(&shown, r->source));
    if (status == FP8Q_OK) {
        struct fp8q_convert_options o = {.destination = destination,
                                         .request = r,
                                         .kernel = fp8q_kernel_select(cli->kernel),
                                         .watch = &cli->watch,
                                         .overwrite = s->overwrite};
        status = fp8q_convert(plan, &o, &result, &cli->warnings, &cli->error);
    }
    if (status == FP8Q_OK) {
        cli_progress_clear();
        cli_show_warnings(cli);
        fp8q_jsonw_string(&cli->json, "output", destination);
        cli_report_plan_json(cli, plan);
        report_source(cli, ckpt);
        cli_print(cli, "%zu tensors F8_E4M3 -> %s\n%swrote %s%s (%s)\n",
                  plan->by_reason[FP8Q_WHY_ALREADY_FP8].tensors, fp8q_dtype_name(r->to),
                  cli_style(CLI_GOOD), destination, cli_style(CLI_PLAIN),
                  cli_bytes(bytes, result.finish.file_bytes));
    }
    fp8q_plan_destroy(plan);
    fp8q_ckpt_close(ckpt);
    return status;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct settings s = {.dtype = "bf16"};
    struct fp8q_request r = {.dequantize = true};
    const struct cli_option options[] = {
        {"dtype", 0, CLI_TEXT, &s.dtype, "TYPE", "bf16 (default), f16 or f32"},
        {"max-shard-size", 0, CLI_SIZE, &r.max_shard_size, "SIZE",
         "re-shard (default: as the source)"},
        {"max-memory", 0, CLI_SIZE, &s.max_memory, "SIZE", "limit of working memory"},
        {"overwrite", 0, CLI_FLAG, &s.overwrite, NULL, "replace an earlier output"},
        {.name = NULL}};
    const char *operands[2];
    int code;
    if (!cli_parse(cli, argc, argv, usage, options, operands, 2, 2, &code))
        return code;
    if (!fp8q_parse_float(s.dtype, &r.to))
        return cli_usage_error(cli, "--dtype: expected bf16, f16 or f32, found \"%s\"", s.dtype);
    if (!fp8q_kernel_select(cli->kernel))
        return cli_usage_error(cli, "--kernel: \"%s\" is unknown or not usable here", cli->kernel);
    r.source = operands[0];
    return cli_end(cli, dequantize(cli, &s, &r, operands[1]));
}

const struct cli_command cli_cmd_dequantize = {"dequantize", run,
                                               "convert an FP8 checkpoint back to high precision"};
