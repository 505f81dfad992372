/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_inspect.c - fp8q inspect PATH
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/format.h"
#include "cli/options.h"
#include "cli/tensor_view.h"
#include "cli/terminal.h"
#include "commands/commands.h"

static const char usage[] =
    "usage: fp8q inspect [options] PATH\n\n"
    "Prints what a safetensors file or a checkpoint directory holds, and how it is quantized.\n"
    "Reads headers and config only.  -v prints every tensor, --tensor the values of one.\n\n"
    "Example: fp8q inspect Qwen3-4B-FP8 --tensor model.layers.0.mlp.down_proj";

/* ---- for people ------------------------------------------------------------------------------ */

/* @head, and the name behind it as it fits.  */
static void print_named(struct cli *cli, const char *head, const char *name)
{
    struct cli_fitted fitted;
    struct fp8q_shown shown;

    cli_print(cli, "%s%s\n", head,
              cli_fit(&fitted, (unsigned)strlen(head), fp8q_show(&shown, name)));
}

static void print_tensors(struct cli *cli, const struct fp8q_checkpoint *c)
{
    const struct fp8q_tensor_info *t;
    char shape[256], bytes[32], head[512];

    for (size_t i = 0; (t = fp8q_checkpoint_tensor(c, i)); i++) {
        snprintf(head, sizeof(head), "%-8s %-18s %10s  %-16s ", fp8q_dtype_name(t->dtype),
                 cli_shape(shape, sizeof(shape), t->shape, t->ndim),
                 fp8q_show_bytes(bytes, t->bytes), t->role);
        print_named(cli, head, t->name);
    }
}

static void print_groups(struct cli *cli, const struct fp8q_checkpoint *c)
{
    const struct fp8q_tensor_group *g;
    char shape[256], bytes[32], head[512];

    for (size_t i = 0; (g = fp8q_checkpoint_group(c, i)); i++) {
        snprintf(head, sizeof(head), "%6zu x %-8s %-18s %10s  ", g->count,
                 fp8q_dtype_name(g->dtype), cli_shape(shape, sizeof(shape), g->shape, g->ndim),
                 fp8q_show_bytes(bytes, g->bytes));
        print_named(cli, head, g->pattern);
    }
}

/* Bytes of the tensors of one role.  */
struct role_sum {
    const char *role;
    size_t tensors;
    uint64_t bytes;
};

/* Adds up what @c holds by role, in the order in which roles first occur; returns how many.  */
static size_t sum_roles(const struct fp8q_checkpoint *c, struct role_sum *sums, size_t cap)
{
    const struct fp8q_tensor_info *t;
    size_t n = 0, at;

    for (size_t i = 0; (t = fp8q_checkpoint_tensor(c, i)); i++) {
        for (at = 0; at < n && strcmp(sums[at].role, t->role) != 0; at++)
            continue;
        if (at == cap)
            continue;
        if (at == n)
            sums[n++] = (struct role_sum){.role = t->role};
        sums[at].tensors++;
        sums[at].bytes += t->bytes;
    }
    return n;
}

static void print_roles(struct cli *cli, const struct fp8q_checkpoint *c)
{
    enum { MOST_ROLES = 64, BEFORE_BAR = 48 };
    struct role_sum sums[MOST_ROLES];
    size_t n = sum_roles(c, sums, MOST_ROLES);
    uint64_t largest = 0;
    struct cli_bar bar;
    char bytes[32];

    for (size_t i = 0; i < n; i++)
        largest = fp8q_max_u64(largest, sums[i].bytes);
    for (size_t i = 0; i < n; i++) {
        cli_bar(&bar, BEFORE_BAR, sums[i].bytes, sums[i].bytes, largest);
        cli_print(cli, "  %-19s %6zu tensor%-1s %12s%s%s\n", sums[i].role, sums[i].tensors,
                  fp8q_plural(sums[i].tensors), fp8q_show_bytes(bytes, sums[i].bytes),
                  *bar.text ? "  " : "", bar.text);
    }
}

static void print_totals(struct cli *cli, const struct fp8q_checkpoint_info *info)
{
    struct fp8q_shown shown;
    char bytes[32];

    cli_print(cli, "%zu tensor%s in %zu file%s, %s of data, %.2f bits a weight\n", info->n_tensors,
              fp8q_plural(info->n_tensors), info->n_shards, fp8q_plural(info->n_shards),
              fp8q_show_bytes(bytes, info->bytes), info->bits_per_weight);
    cli_print(cli, "model_type: %s; architecture: %s\n",
              info->model_type ? fp8q_show(&shown, info->model_type) : "none", info->architecture);
    cli_print(cli, "quantization: %s\n", fp8q_show(&shown, info->quantization));
}

/* ---- for machines ---------------------------------------------------------------------------- */

static void write_shards(struct fp8q_jsonw *w, const struct fp8q_checkpoint *c)
{
    const struct fp8q_shard_info *s;
    const char *key, *value;

    fp8q_jsonw_open(w, "shards", '[');
    for (size_t i = 0; (s = fp8q_checkpoint_shard(c, i)); i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", s->name);
        fp8q_jsonw_uint(w, "bytes", s->file_bytes);
        fp8q_jsonw_uint(w, "tensors", s->n_tensors);
        fp8q_jsonw_open(w, "metadata", '{');
        for (size_t k = 0; fp8q_checkpoint_metadata(c, i, k, &key, &value); k++)
            fp8q_jsonw_string(w, key, value);
        fp8q_jsonw_close(w, '}');
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static void write_tensors(struct fp8q_jsonw *w, const struct fp8q_checkpoint *c)
{
    const struct fp8q_tensor_info *t;

    fp8q_jsonw_open(w, "tensors", '[');
    for (size_t i = 0; (t = fp8q_checkpoint_tensor(c, i)); i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", t->name);
        cli_json_type(w, t->dtype, t->shape, t->ndim);
        fp8q_jsonw_uint(w, "bytes", t->bytes);
        fp8q_jsonw_string(w, "role", t->role);
        fp8q_jsonw_string(w, "shard", t->shard);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static void write_all(struct fp8q_jsonw *w, const struct fp8q_checkpoint *c)
{
    const struct fp8q_checkpoint_info *info = fp8q_checkpoint_info(c);

    fp8q_jsonw_string(w, "path", info->path);
    fp8q_jsonw_string(w, "model_type", info->model_type);
    fp8q_jsonw_string(w, "family", info->architecture);
    fp8q_jsonw_string(w, "quantization", info->quantization);
    fp8q_jsonw_uint(w, "bytes", info->bytes);
    fp8q_jsonw_number(w, "bits_per_weight", info->bits_per_weight);
    write_shards(w, c);
    write_tensors(w, c);
}

/* Tensors that are alike are one line, unless every one was asked for.  */
static void report(struct cli *cli, const struct fp8q_checkpoint *c)
{
    if (cli->verbose)
        print_tensors(cli, c);
    else
        print_groups(cli, c);

    print_roles(cli, c);
    print_totals(cli, fp8q_checkpoint_info(c));
    write_all(&cli->json, c);
}

int cmd_inspect(struct cli *cli)
{
    const char *tensor = NULL, *path;
    const struct cli_option options[] = {{"tensor", 0, CLI_TEXT, &tensor, "NAME",
                                          "read this tensor: its values, and a map of its blocks"},
                                         {.name = NULL}};
    const struct cli_syntax syntax = {.usage = usage, .options = options, .min = 1, .max = 1};
    struct fp8q_checkpoint *c = NULL;
    int code;
    if (!cli_parse(cli, &syntax, &path, &code))
        return code;

    int status = fp8q_checkpoint_open(path, &cli->run, &c, &cli->warnings, &cli->error);
    if (status != FP8Q_OK)
        return cli_end(cli, status);

    /* Warnings come before the report, not in the middle of it.  */
    cli_show_warnings(cli);
    if (tensor)
        status = cli_view_tensor(cli, c, tensor);
    else
        report(cli, c);

    fp8q_checkpoint_close(c);
    return cli_end(cli, status);
}
