/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_bench.c - fp8q bench
 */
#include <string.h>

#include "bench/bench.h"
#include "cli/format.h"
#include "cli/options.h"
#include "commands/commands.h"

static const char usage[] =
    "usage: fp8q bench [options]\n"
    "\n"
    "Measures this machine in one run: memory, each operation of the kernels, the file system of\n"
    "--dir, and a real conversion there, beside the transfers that it cannot do without.  Makes\n"
    "its own input and removes it.  Results are medians (kernels: the best) and only mean\n"
    "something on a machine that does nothing else.\n"
    "\n"
    "Example: fp8q bench --dir /dev/shm --size 2GB";

static const char *const format_names[FP8Q_N_FLOATS] = {"BF16", "F16", "F32"};

static void show_rate(struct cli *cli, const char *kernel, const char *op, const char *format,
                      struct fp8q_bench_rate rate)
{
    cli_print(cli, "%-8s %-14s %-5s %8.2f GB/s %8.0f M/s\n", kernel, op, format,
              rate.bytes_per_s / 1e9, rate.elems_per_s / 1e6);

    /* Text and JSON are both made: cli_print() is silent with --json, and the object is shown only
     * then.  */
    fp8q_jsonw_open(&cli->json, NULL, '{');
    fp8q_jsonw_string(&cli->json, "kernel", kernel);
    fp8q_jsonw_string(&cli->json, "op", op);
    fp8q_jsonw_string(&cli->json, "format", format);
    fp8q_jsonw_number(&cli->json, "bytes_per_s", rate.bytes_per_s);
    fp8q_jsonw_number(&cli->json, "elements_per_s", rate.elems_per_s);
    fp8q_jsonw_close(&cli->json, '}');
}

static int show_kernel(struct cli *cli, const struct fp8q_kernel *k, struct fp8q_bench_data *data)
{
    for (int op = 0; op < FP8Q_BENCH_N_OPS; op++) {
        /* The scan reads FP8 values, whatever they were made of: once is enough.  */
        int n = op == FP8Q_BENCH_SCAN ? 1 : FP8Q_N_FLOATS;
        for (int f = 0; f < n; f++)
            show_rate(cli, k->name, fp8q_bench_ops[op], n == 1 ? "E4M3" : format_names[f],
                      fp8q_bench_kernel(k, (enum fp8q_bench_op)op, (enum fp8q_float)f, data));

        /* A measurement is not interrupted, so whoever cancels waits for the operation in hand.  */
        FP8Q_TRY(fp8q_watch_check(&cli->watch, &cli->error));
    }
    return FP8Q_OK;
}

/* The kernel asked for, or all that this machine has.  */
static int show_all_kernels(struct cli *cli, struct fp8q_bench_data *data)
{
    cli_print(cli, "kernels, one core, in its cache: bytes read and elements a second\n");
    fp8q_jsonw_open(&cli->json, "kernels", '[');

    for (size_t i = 0; fp8q_kernels[i]; i++) {
        const struct fp8q_kernel *k = fp8q_kernels[i];
        /* A variant that was built may need a processor that this machine has not.  */
        if (k->usable() && (!cli->kernel || strcmp(cli->kernel, k->name) == 0))
            FP8Q_TRY(show_kernel(cli, k, data));
    }

    /* No operation of a kernel, but a part of every conversion.  */
    show_rate(cli, "any", "crc32", "F32", fp8q_bench_crc(data));
    fp8q_jsonw_close(&cli->json, ']');
    return FP8Q_OK;
}

static int show_kernels(struct cli *cli)
{
    struct fp8q_bench_data data;
    FP8Q_TRY(fp8q_bench_data_create(FP8Q_BENCH_ELEMS, &data, &cli->error));

    int status = show_all_kernels(cli, &data);
    fp8q_bench_data_reset(&data);
    return status;
}

static int show_memory(struct cli *cli, unsigned threads)
{
    /* Bytes; more than most caches hold.  */
    enum { SIZE = 128 << 20 };
    const unsigned counts[] = {1, threads};

    fp8q_jsonw_open(&cli->json, "memory", '[');
    /* One thread, then all of them, unless that is the same.  */
    for (size_t i = 0; i < (threads > 1 ? 2 : 1); i++) {
        double rate;
        FP8Q_TRY(fp8q_bench_memory(SIZE, counts[i], &rate, &cli->error));
        cli_print(cli, "memory copy, %2u thread%s %16.2f GB/s\n", counts[i],
                  counts[i] == 1 ? " " : "s", rate / 1e9);
        fp8q_jsonw_open(&cli->json, NULL, '{');
        fp8q_jsonw_uint(&cli->json, "threads", counts[i]);
        fp8q_jsonw_number(&cli->json, "copy_bytes_per_s", rate);
        fp8q_jsonw_close(&cli->json, '}');
    }

    fp8q_jsonw_close(&cli->json, ']');
    return FP8Q_OK;
}

static void show_stage(struct cli *cli, const char *id, const char *text, uint64_t bytes,
                       double seconds, double flush)
{
    cli_print(cli, "%-34s %8.3f s %8.2f GB/s", text, seconds, (double)bytes / seconds / 1e9);
    /* Seconds of fsync; negative where none was measured.  */
    if (flush >= 0)
        cli_print(cli, "  + fsync %.3f s", flush);
    cli_print(cli, "\n");

    fp8q_jsonw_open(&cli->json, id, '{');
    fp8q_jsonw_uint(&cli->json, "bytes", bytes);
    fp8q_jsonw_number(&cli->json, "seconds", seconds);
    if (flush >= 0)
        fp8q_jsonw_number(&cli->json, "fsync_seconds", flush);
    fp8q_jsonw_close(&cli->json, '}');
}

static int show_files(struct cli *cli, const struct fp8q_bench_options *options)
{
    struct fp8q_bench_files f;
    char size[32];
    FP8Q_TRY(fp8q_bench_files(options, &f, &cli->error));

    /* The limit is to read and to write the same bytes, with nothing done to them.  */
    double share = f.transfer / f.quantize, of_copy = f.quantize / f.copy;
    double durable = f.quantize / (f.copy + f.flush_copy);

    /* The parts in the order in which they explain the whole.  */
    cli_print(cli, "files in %s, %s of BF16, %u thread%s, kernel %s, source in the page cache\n",
              options->dir, fp8q_show_bytes(size, f.source_bytes), options->threads,
              fp8q_plural(options->threads), options->kernel->name);
    fp8q_jsonw_open(&cli->json, "files", '{');
    fp8q_jsonw_string(&cli->json, "dir", options->dir);
    fp8q_jsonw_uint(&cli->json, "threads", options->threads);
    fp8q_jsonw_uint(&cli->json, "rounds", options->rounds);
    fp8q_jsonw_string(&cli->json, "kernel", options->kernel->name);

    show_stage(cli, "read", "read the source", f.source_bytes, f.read, -1);
    show_stage(cli, "write", "write the output's bytes", f.output_bytes, f.write, f.flush_write);
    show_stage(cli, "transfer", "both, nothing done to them", f.source_bytes, f.transfer, -1);
    show_stage(cli, "copy", "copy the source, one thread", f.source_bytes, f.copy, f.flush_copy);
    show_stage(cli, "quantize", "quantize (ends durable)", f.source_bytes, f.quantize, -1);

    fp8q_jsonw_number(&cli->json, "share_of_limit", share);
    fp8q_jsonw_number(&cli->json, "quantize_to_copy", of_copy);
    fp8q_jsonw_number(&cli->json, "quantize_to_durable_copy", durable);
    fp8q_jsonw_close(&cli->json, '}');

    cli_print(cli,
              "quantize: %.0f %% of the limit (both transfers); %.2f x copy, %.2f x durable copy\n",
              100 * share, of_copy, durable);
    return FP8Q_OK;
}

/* From what the machine can do to what a conversion makes of it.  */
static int run(struct cli *cli, const struct fp8q_bench_options *options)
{
    FP8Q_TRY(show_memory(cli, options->threads));
    FP8Q_TRY(show_kernels(cli));
    return show_files(cli, options);
}

int cmd_bench(struct cli *cli)
{
    uint64_t size = 512000000, rounds = 5;
    const char *dir = ".";
    const struct cli_option options[] = {
        {"dir", 0, CLI_TEXT, &dir, "DIR", "where to measure files (default: here)"},
        {"size", 0, CLI_SIZE, &size, "SIZE", "size of the input (default: 512MB)"},
        {"rounds", 0, CLI_UINT, &rounds, "N", "how often, for the medians (default: 5)"},
        {.name = NULL}};
    int code;
    const struct cli_syntax syntax = {.usage = usage, .options = options};
    if (!cli_parse(cli, &syntax, NULL, &code))
        return code;

    const struct fp8q_bench_options o = {.dir = dir,
                                         .size_bytes = size,
                                         .threads = (unsigned)cli->threads,
                                         .rounds = (unsigned)(rounds > 32 ? 32 : rounds),
                                         .watch = &cli->watch,
                                         .kernel = fp8q_kernel_select(cli->kernel)};
    return cli_end(cli, run(cli, &o));
}
