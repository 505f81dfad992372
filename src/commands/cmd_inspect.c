/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_inspect.c - fp8q inspect PATH
 */
#include "commands/commands.h"
#include "select/inspect.h"
#include "cli/report.h"

static const char usage[] = "usage: fp8q inspect [options] PATH\n\n"
                            "Prints what a safetensors file or a checkpoint directory holds, and "
                            "how it is quantized.  Reads\n"
                            "headers and config only.  -v prints every tensor.";

static void print_tensors(struct cli *cli, const struct fp8q_ckpt *ckpt,
                          const struct fp8q_inspection *in)
{
    struct fp8q_shown shown;
    char shape[256], bytes[32];
    if (cli->verbose)
        for (size_t i = 0; i < ckpt->n_tensors; i++) {
            const struct fp8q_tensor *t = &ckpt->tensors[i];
            cli_print(cli, "%-8s %-18s %10s  %-16s %s\n", fp8q_dtype_name(t->dtype),
                      cli_shape(shape, sizeof(shape), t->shape, t->ndim),
                      cli_bytes(bytes, t->size_bytes), fp8q_tensor_role(ckpt, &in->family, t),
                      fp8q_show(&shown, t->name));
        }
    for (size_t i = 0; i < in->n_kinds && !cli->verbose; i++) {
        const struct fp8q_tensor_kind *k = &in->kinds[i];
        cli_print(cli, "%6zu x %-8s %-18s %10s  %s\n", k->count, fp8q_dtype_name(k->dtype),
                  cli_shape(shape, sizeof(shape), k->shape, k->ndim),
                  cli_bytes(bytes, k->size_bytes), fp8q_show(&shown, k->pattern));
    }
}

static void write_tensors(struct fp8q_jsonw *w, const struct fp8q_ckpt *ckpt,
                          const struct fp8q_inspection *in)
{
    fp8q_jsonw_open(w, "tensors", '[');
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", t->name);
        fp8q_jsonw_string(w, "dtype", fp8q_dtype_name(t->dtype));
        fp8q_jsonw_open(w, "shape", '[');
        for (uint32_t k = 0; k < t->ndim; k++)
            fp8q_jsonw_uint(w, NULL, t->shape[k]);
        fp8q_jsonw_close(w, ']');
        fp8q_jsonw_uint(w, "bytes", t->size_bytes);
        fp8q_jsonw_string(w, "role", fp8q_tensor_role(ckpt, &in->family, t));
        fp8q_jsonw_string(w, "shard", ckpt->shards[t->shard].name);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static void write_metadata(struct fp8q_jsonw *w, const struct fp8q_ckpt *ckpt)
{
    fp8q_jsonw_open(w, "shards", '[');
    for (size_t i = 0; i < ckpt->n_shards; i++) {
        const struct fp8q_shard *s = &ckpt->shards[i];
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", s->name);
        fp8q_jsonw_uint(w, "bytes", (uint64_t)s->stat.st_size);
        fp8q_jsonw_uint(w, "tensors", s->header.n_tensors);
        fp8q_jsonw_open(w, "metadata", '{');
        for (size_t k = 0; k < s->header.n_metadata; k++)
            fp8q_jsonw_string(w, s->header.metadata[k].key, s->header.metadata[k].value);
        fp8q_jsonw_close(w, '}');
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static int inspect(struct cli *cli, const char *path)
{
    struct fp8q_ckpt *ckpt = NULL;
    struct fp8q_inspection in = {0};
    struct fp8q_shown shown;
    char bytes[32];
    int status = fp8q_ckpt_open(path, &ckpt, &cli->warnings, &cli->error);
    if (status == FP8Q_OK)
        status = fp8q_inspect(ckpt, &in, &cli->error);
    if (status == FP8Q_OK) {
        cli_show_warnings(cli);
        print_tensors(cli, ckpt, &in);
        cli_print(cli, "%zu tensors in %zu file%s, %s of data, %.2f bits a weight\n",
                  ckpt->n_tensors, ckpt->n_shards, ckpt->n_shards == 1 ? "" : "s",
                  cli_bytes(bytes, ckpt->data_bytes), in.bits_per_weight);
        cli_print(cli, "model_type: %s; family: %s\n",
                  in.model_type ? fp8q_show(&shown, in.model_type) : "none", in.family.name);
        cli_print(cli, "quantization: %s\n", fp8q_show(&shown, in.quantization));
        fp8q_jsonw_string(&cli->json, "path", path);
        fp8q_jsonw_string(&cli->json, "model_type", in.model_type);
        fp8q_jsonw_string(&cli->json, "family", in.family.name);
        fp8q_jsonw_string(&cli->json, "quantization", in.quantization);
        fp8q_jsonw_uint(&cli->json, "bytes", ckpt->data_bytes);
        fp8q_jsonw_number(&cli->json, "bits_per_weight", in.bits_per_weight);
        write_metadata(&cli->json, ckpt);
        write_tensors(&cli->json, ckpt, &in);
    }
    fp8q_inspection_reset(&in);
    fp8q_ckpt_close(ckpt);
    return status;
}

static int run(struct cli *cli, int argc, char **argv)
{
    const struct cli_option options[] = {{.name = NULL}};
    const char *operands[1];
    int code;
    if (!cli_parse(cli, argc, argv, usage, options, operands, 1, 1, &code))
        return code;
    return cli_end(cli, inspect(cli, operands[0]));
}

const struct cli_command cli_cmd_inspect = {"inspect", run, "show what a file or directory holds"};
