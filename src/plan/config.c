/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c - quantization_config in both dialects, spliced into config.json as text.
 */
#include "plan/internal.h"

#include <stdlib.h>
#include <string.h>

#include "format/jsonw.h"
#include "format/names.h"
#include "select/pattern.h"

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

/* @n characters of a module name, from its `layers.` on, so that any prefix will do.  A draft root
 * `mtp.` has layers of the same numbers, so it is told from the rest.  */
static void write_stem(struct fp8q_text *t, const char *module, size_t n, bool has_draft)
{
    const char *layers = strstr(module, "layers.");
    bool is_draft = strncmp(module, "mtp.", 4) == 0;
    const char *from = layers && layers < module + n && !is_draft ? layers : module;
    fp8q_text_puts(t, has_draft && !is_draft ? "re:(?!mtp\\.).*" : "re:.*");
    for (const char *c = from; c < module + n; c++)
        fp8q_text_printf(t, *c == '.' ? "\\%c" : "%c", *c);
}

/* A module as an anchored expression; q/k/v and gate/up also under the name of their fused matrix,
 * the experts of a layer as one.  */
static void make_target(struct fp8q_text *t, const char *module, const struct fp8q_decision *d,
                        bool has_draft)
{
    static const char *const fused[][2] = {{"q_proj", "(?:q_proj|qkv_proj)$"},
                                           {"k_proj", "(?:k_proj|qkv_proj)$"},
                                           {"v_proj", "(?:v_proj|qkv_proj)$"},
                                           {"gate_proj", "(?:gate_proj|gate_up_proj)$"},
                                           {"up_proj", "(?:up_proj|gate_up_proj)$"}};
    const char *last = strrchr(module, '.');
    const char *tail = last ? last + 1 : module;
    if (d->linear && d->group.expert) {
        write_stem(t, module, d->group.group_len, has_draft);
        fp8q_text_puts(t, ".*");
        return;
    }
    write_stem(t, module, (size_t)(tail - module), has_draft);
    for (size_t i = 0; i < sizeof(fused) / sizeof(*fused); i++)
        if (strcmp(tail, fused[i][0]) == 0) {
            fp8q_text_puts(t, fused[i][1]);
            return;
        }
    fp8q_text_printf(t, "%s$", tail);
}

/* One target for each module that has rows for scales, in name order.  */
static void write_channel_targets(struct fp8q_jsonw *w, const struct fp8q_plan *plan)
{
    struct fp8q_text before = {0};
    bool has_draft = false;
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
        has_draft |= strncmp(plan->ckpt->tensors[i].name, "mtp.", 4) == 0;
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const struct fp8q_decision *d = &plan->selection.decisions[i];
        const char *name = plan->ckpt->tensors[i].name;
        struct fp8q_text target = {0};
        if (!d->quantize || d->scheme != FP8Q_SCHEME_CHANNEL)
            continue;
        char *module = strndup(name, fp8q_module_len(name));
        if (module)
            make_target(&target, module, d, has_draft);
        free(module);
        if (!module || target.failed)
            w->text.failed = true;
        else if (!before.data || strcmp(before.data, target.data) != 0)
            fp8q_jsonw_string(w, NULL, target.data);
        fp8q_text_reset(&before);
        before = target;
    }
    fp8q_text_reset(&before);
}

static void write_compressed_tensors(struct fp8q_jsonw *w, const struct fp8q_plan *plan)
{
    enum fp8q_scheme main = plan->options.select.scheme;
    bool mixed = main == FP8Q_SCHEME_BLOCK && fp8q_plan_has_scheme(plan, FP8Q_SCHEME_CHANNEL);
    if (mixed && !fp8q_plan_has_scheme(plan, FP8Q_SCHEME_BLOCK)) {
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
        write_channel_targets(w, plan);
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
    struct fp8q_splice splice = {.text = plan->ckpt->config_text,
                                 .len = plan->ckpt->config_len,
                                 .what = FP8Q_CONFIG_NAME,
                                 .remove = stale,
                                 .remove_nested = nested,
                                 .key = key,
                                 .value = w.text.data};
    if (status == FP8Q_OK && splice.text)
        status = fp8q_json_splice(&splice, &config, err);
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
