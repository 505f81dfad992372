/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c - quantization_config in both dialects, spliced into config.json as text.
 */
#include "exclude.h"

#include <stdlib.h>
#include <string.h>

#include "io.h"
#include "jsonw.h"

static void write_list(struct fp8q_jsonw *w, const char *key, const struct fp8q_plan *plan)
{
    fp8q_jsonw_open(w, key, '[');
    for (size_t i = 0; i < plan->n_exclusions; i++)
        fp8q_jsonw_string(w, NULL, plan->exclusions[i]);
    fp8q_jsonw_close(w, ']');
}

static void write_block_size(struct fp8q_jsonw *w, const char *key)
{
    fp8q_jsonw_open(w, key, '[');
    fp8q_jsonw_uint(w, NULL, FP8Q_BLOCK);
    fp8q_jsonw_uint(w, NULL, FP8Q_BLOCK);
    fp8q_jsonw_close(w, ']');
}

/* quant_method "fp8".  Both keys of the list: vLLM and SGLang read the one, transformers the other.
 */
static void write_fp8(struct fp8q_jsonw *w, const struct fp8q_plan *plan)
{
    fp8q_jsonw_string(w, "quant_method", "fp8");
    fp8q_jsonw_string(w, "fmt", "e4m3");
    fp8q_jsonw_string(w, "activation_scheme", "dynamic");
    if (plan->options.select.scheme == FP8Q_SCHEME_BLOCK)
        write_block_size(w, "weight_block_size");
    if (plan->options.scale_fmt == FP8Q_SCALE_UE8M0)
        fp8q_jsonw_string(w, "scale_fmt", "ue8m0");
    write_list(w, "modules_to_not_convert", plan);
    write_list(w, "ignored_layers", plan);
}

/* The arguments of weights and activations; older libraries forbid any further key.  */
static void write_args(struct fp8q_jsonw *w, const char *key, const char *strategy, bool dynamic)
{
    fp8q_jsonw_open(w, key, '{');
    fp8q_jsonw_uint(w, "num_bits", 8);
    fp8q_jsonw_string(w, "type", "float");
    fp8q_jsonw_bool(w, "symmetric", true);
    fp8q_jsonw_string(w, "strategy", strategy);
    if (strcmp(strategy, "block") == 0)
        write_block_size(w, "block_structure");
    if (strcmp(strategy, "group") == 0)
        fp8q_jsonw_uint(w, "group_size", FP8Q_BLOCK);
    fp8q_jsonw_bool(w, "dynamic", dynamic);
    fp8q_jsonw_close(w, '}');
}

static void open_group(struct fp8q_jsonw *w, unsigned number)
{
    char name[32] = "group_0";
    name[6] = (char)('0' + number);
    fp8q_jsonw_open(w, name, '{');
    fp8q_jsonw_open(w, "targets", '[');
}

static void close_group(struct fp8q_jsonw *w, enum fp8q_scheme scheme)
{
    static const char *const weights[] = {"block", "channel", "tensor"};
    static const char *const inputs[] = {"group", "token", "token"};
    fp8q_jsonw_close(w, ']');
    write_args(w, "weights", weights[scheme], false);
    write_args(w, "input_activations", inputs[scheme], true);
    fp8q_jsonw_close(w, '}');
}

/* A module as an anchored expression; q/k/v and gate/up also under the name of their fused matrix.
 */
static void write_target(struct fp8q_jsonw *w, const char *module)
{
    static const char *const fused[][2] = {{"q_proj", "(?:q_proj|qkv_proj)$"},
                                           {"k_proj", "(?:k_proj|qkv_proj)$"},
                                           {"v_proj", "(?:v_proj|qkv_proj)$"},
                                           {"gate_proj", "(?:gate_proj|gate_up_proj)$"},
                                           {"up_proj", "(?:up_proj|gate_up_proj)$"}};
    const char *layers = strstr(module, "layers."), *last = strrchr(module, '.');
    struct fp8q_text t = {0};
    fp8q_text_puts(&t, "re:.*");
    for (const char *c = layers ? layers : module; *c && c <= last; c++)
        fp8q_text_printf(&t, *c == '.' ? "\\%c" : "%c", *c);
    const char *tail = last ? last + 1 : module;
    bool is_fused = false;
    for (size_t i = 0; i < sizeof(fused) / sizeof(*fused) && !is_fused; i++)
        if ((is_fused = strcmp(tail, fused[i][0]) == 0))
            fp8q_text_puts(&t, fused[i][1]);
    if (!is_fused)
        fp8q_text_printf(&t, "%s$", tail);
    if (t.failed)
        w->text.failed = true;
    else
        fp8q_jsonw_string(w, NULL, t.data);
    fp8q_text_reset(&t);
}

static bool has_scheme(const struct fp8q_plan *plan, enum fp8q_scheme scheme)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
        if (plan->selection.decisions[i].quantize && plan->selection.decisions[i].scheme == scheme)
            return true;
    return false;
}

static void write_compressed_tensors(struct fp8q_jsonw *w, const struct fp8q_plan *plan)
{
    enum fp8q_scheme main = plan->options.select.scheme;
    bool mixed = main == FP8Q_SCHEME_BLOCK && has_scheme(plan, FP8Q_SCHEME_CHANNEL);
    if (mixed && !has_scheme(plan, FP8Q_SCHEME_BLOCK)) {
        main = FP8Q_SCHEME_CHANNEL;
        mixed = false;
    }
    fp8q_jsonw_string(w, "quant_method", "compressed-tensors");
    fp8q_jsonw_string(w, "format", "float-quantized");
    fp8q_jsonw_string(w, "quantization_status", "compressed");
    fp8q_jsonw_open(w, "config_groups", '{');
    open_group(w, 0);
    fp8q_jsonw_string(w, NULL, "Linear");
    close_group(w, main);
    if (mixed) { /* a target by name goes before one by class */
        open_group(w, 1);
        for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
            const struct fp8q_decision *d = &plan->selection.decisions[i];
            if (!d->quantize || d->scheme != FP8Q_SCHEME_CHANNEL)
                continue;
            const char *name = plan->ckpt->tensors[i].name;
            char *module = strndup(name, fp8q_module_len(name));
            if (module)
                write_target(w, module);
            else
                w->text.failed = true;
            free(module);
        }
        close_group(w, FP8Q_SCHEME_CHANNEL);
    }
    fp8q_jsonw_close(w, '}');
    write_list(w, "ignore", plan);
    fp8q_jsonw_raw(w, "kv_cache_scheme", "null");
    fp8q_jsonw_raw(w, "global_compression_ratio", "null");
}

int fp8q_config_texts(struct fp8q_plan *plan, struct fp8q_error *err)
{
    /* Stale claims of another quantization would win over ours in some engine.  */
    static const char *const stale[] = {"quantization_config", "compression_config", NULL};
    static const char *const nested[] = {"text_config.quantization_config",
                                         "llm_config.quantization_config", NULL};
    struct fp8q_jsonw w = {.indent = 2};
    struct fp8q_text config = {0};
    const char *key = plan->options.dequantize ? NULL : "quantization_config";
    int status = FP8Q_OK;
    if (key) {
        fp8q_jsonw_open(&w, NULL, '{');
        if (plan->options.format == FP8Q_FORMAT_FP8)
            write_fp8(&w, plan);
        else
            write_compressed_tensors(&w, plan);
        fp8q_jsonw_close(&w, '}');
        status = fp8q_text_status(&w.text, err);
    }
    if (status == FP8Q_OK && plan->ckpt->config_text)
        status = fp8q_json_splice(plan->ckpt->config_text, plan->ckpt->config_len, stale, nested,
                                  key, w.text.data, "config.json", &config, err);
    if (status == FP8Q_OK)
        status = fp8q_text_status(&config, err);
    if (status != FP8Q_OK) {
        fp8q_text_reset(&w.text);
        fp8q_text_reset(&config);
        return status;
    }
    plan->quant_config = w.text.data;
    plan->config_text = config.data;
    return FP8Q_OK;
}
