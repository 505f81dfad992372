/* SPDX-License-Identifier: Apache-2.0
 *
 * config.c - quantization_config in both dialects, spliced into config.json as text.
 */
#include "plan/internal.h"

#include <stdlib.h>
#include <string.h>

#include "format/jsonw.h"
#include "format/names.h"
#include "select/fused.h"
#include "select/pattern.h"
#include "select/quantized.h"
#include "select/scheme.h"
#include "select/targets.h"

static void write_list(struct fp8q_jsonw *w, const char *key, char *const *items, size_t n)
{
    fp8q_jsonw_open(w, key, '[');
    for (size_t i = 0; i < n; i++)
        fp8q_jsonw_string(w, NULL, items[i]);
    fp8q_jsonw_close(w, ']');
}

static void write_block_size(struct fp8q_jsonw *w, const char *key, unsigned rows, unsigned cols)
{
    fp8q_jsonw_open(w, key, '[');
    fp8q_jsonw_uint(w, NULL, rows);
    fp8q_jsonw_uint(w, NULL, cols);
    fp8q_jsonw_close(w, ']');
}

/* quant_method "fp8" or "mxfp8".  Both keys of the list: vLLM and SGLang read the one, transformers the other.
 */
static void write_fp8(struct fp8q_jsonw *w, const struct fp8q_plan *plan)
{
    bool groups = plan->options.select.scheme == FP8Q_SCHEME_GROUP;
    fp8q_jsonw_string(w, "quant_method", groups ? "mxfp8" : "fp8");
    fp8q_jsonw_string(w, "fmt", "e4m3");
    fp8q_jsonw_string(w, "activation_scheme", "dynamic");

    /* Without this key engines take the weight's scale for one of the whole tensor.  */
    if (plan->options.select.scheme == FP8Q_SCHEME_BLOCK)
        write_block_size(w, "weight_block_size", FP8Q_BLOCK, FP8Q_BLOCK);
    if (groups)
        write_block_size(w, "weight_block_size", 1, FP8Q_GROUP);
    if (groups || plan->options.scale_fmt == FP8Q_SCALE_UE8M0)
        fp8q_jsonw_string(w, "scale_fmt", "ue8m0");
    if (plan->options.fp8_cache)
        fp8q_jsonw_string(w, "kv_cache_quant_algo", "FP8");
    write_list(w, "modules_to_not_convert", plan->not_converted, plan->n_not_converted);
    write_list(w, "ignored_layers", plan->exclusions, plan->n_exclusions);
}

/* How compressed-tensors says that numbers are scaled.  */
struct arguments {
    const char *strategy;
    unsigned group_size; /* 0: the strategy has none */
    bool e8m0;           /* scales are exponents */
};

/* The arguments of weights and activations; older libraries forbid any further key.  */
static void write_args(struct fp8q_jsonw *w, const char *key, struct arguments args, bool dynamic)
{
    fp8q_jsonw_open(w, key, '{');
    fp8q_jsonw_uint(w, "num_bits", 8);
    fp8q_jsonw_string(w, "type", "float");
    fp8q_jsonw_bool(w, "symmetric", true);
    fp8q_jsonw_string(w, "strategy", args.strategy);
    if (strcmp(args.strategy, "block") == 0)
        write_block_size(w, "block_structure", FP8Q_BLOCK, FP8Q_BLOCK);
    if (args.group_size)
        fp8q_jsonw_uint(w, "group_size", args.group_size);
    fp8q_jsonw_bool(w, "dynamic", dynamic);
    if (args.e8m0) /* by this type engines know MXFP8 */
        fp8q_jsonw_string(w, "scale_dtype", "torch.uint8");
    fp8q_jsonw_close(w, '}');
}

static void open_group(struct fp8q_jsonw *w, unsigned number)
{
    char name[32] = "group_0";
    name[6] = (char)('0' + number);
    fp8q_jsonw_open(w, name, '{');
    fp8q_jsonw_open(w, "targets", '[');
}

/* @format only where that of the groups differs: older libraries forbid the key.  */
static void close_group(struct fp8q_jsonw *w, enum fp8q_scheme scheme, const char *format)
{
    bool is_static = scheme == FP8Q_SCHEME_STATIC;

    /* By scheme; inputs are scaled while serving, for each token or for 128 channels of it.  */
    static const struct arguments weights[] = {
        [FP8Q_SCHEME_BLOCK] = {"block", 0, false},
        [FP8Q_SCHEME_CHANNEL] = {"channel", 0, false},
        [FP8Q_SCHEME_TENSOR] = {"tensor", 0, false},
        [FP8Q_SCHEME_GROUP] = {"group", FP8Q_GROUP, true},
        [FP8Q_SCHEME_STATIC] = {"tensor", 0, false},
    };
    static const struct arguments inputs[] = {
        [FP8Q_SCHEME_BLOCK] = {"group", FP8Q_BLOCK, false},
        [FP8Q_SCHEME_CHANNEL] = {"token", 0, false},
        [FP8Q_SCHEME_TENSOR] = {"token", 0, false},
        [FP8Q_SCHEME_GROUP] = {"group", FP8Q_GROUP, true},
        [FP8Q_SCHEME_STATIC] = {"tensor", 0, false},
    };
    fp8q_jsonw_close(w, ']');
    write_args(w, "weights", weights[scheme], false);
    write_args(w, "input_activations", inputs[scheme], !is_static);
    if (format)
        fp8q_jsonw_string(w, "format", format);
    fp8q_jsonw_close(w, '}');
}

/* A draft root `mtp.` has layers of the same numbers, so it is told from the rest.  */
void fp8q_write_stem(struct fp8q_text *t, const char *module, size_t n, bool has_draft)
{
    /* From `layers.` on, because engines put prefixes of their own before it.  */
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
    const char *last = strrchr(module, '.');
    const char *tail = last ? last + 1 : module;

    /* One expression for all experts of a layer: they are quantized alike or not at all.  */
    if (d->linear && d->group.expert) {
        fp8q_write_stem(t, module, d->group.group_len, has_draft);
        fp8q_text_puts(t, ".*");
        return;
    }
    fp8q_write_stem(t, module, (size_t)(tail - module), has_draft);

    /* vLLM looks a merged module up by the name of the whole.  */
    const struct fp8q_fused *fused = fp8q_fused_of_part(tail);
    if (fused)
        fp8q_text_printf(t, "(?:%s|%s)$", tail, fused->in_targets);
    else
        fp8q_text_printf(t, "%s$", tail);
}

bool fp8q_plan_has_draft(const struct fp8q_plan *plan)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
        if (strncmp(plan->ckpt->tensors[i].name, "mtp.", 4) == 0)
            return true;

    return false;
}

/* One target for each module of this scheme, in name order.  */
static void write_targets(struct fp8q_jsonw *w, const struct fp8q_plan *plan,
                          enum fp8q_scheme scheme)
{
    struct fp8q_text before = {0};
    bool has_draft = fp8q_plan_has_draft(plan);
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++) {
        const struct fp8q_decision *d = &plan->selection.decisions[i];
        const char *name = plan->ckpt->tensors[i].name;
        struct fp8q_text target = {0};
        if (!d->quantize || d->scheme != scheme)
            continue;

        char *module = strndup(name, fp8q_module_len(name));
        if (module)
            make_target(&target, module, d, has_draft);
        free(module);
        if (!module || target.failed)
            w->text.failed = true;

        /* The experts of a layer share one target.  */
        else if (!before.data || strcmp(before.data, target.data) != 0)
            fp8q_jsonw_string(w, NULL, target.data);
        fp8q_text_reset(&before);
        before = target;
    }

    fp8q_text_reset(&before);
}

/* How compressed-tensors, and ModelOpt in config.json, say that the cache is FP8.  */
static void write_cache(struct fp8q_jsonw *w, const struct fp8q_plan *plan)
{
    static const struct arguments tensor = {"tensor", 0, false};
    if (plan->options.fp8_cache)
        write_args(w, "kv_cache_scheme", tensor, false);
    else
        fp8q_jsonw_raw(w, "kv_cache_scheme", "null");
}

static const char *format_of(enum fp8q_scheme scheme)
{
    return scheme == FP8Q_SCHEME_GROUP ? "mxfp8-quantized" : "float-quantized";
}

/* The schemes that tensors have: the plain one first, whose group is that of the class of linears;
 * without any tensor of it, the first that there is.  Their number.  */
static unsigned list_schemes(const struct fp8q_plan *plan, enum fp8q_scheme list[FP8Q_N_SCHEMES])
{
    enum fp8q_scheme plain = plan->options.select.scheme;
    unsigned n = 0;
    if (fp8q_plan_has_scheme(plan, plain))
        list[n++] = plain;

    for (unsigned s = 0; s < FP8Q_N_SCHEMES; s++)
        if (s != plain && fp8q_plan_has_scheme(plan, (enum fp8q_scheme)s))
            list[n++] = (enum fp8q_scheme)s;

    /* Of nothing the plan is refused, but shown.  */
    if (n == 0)
        list[n++] = plain;
    return n;
}

static bool head_has_scheme(const struct fp8q_plan *plan, enum fp8q_scheme scheme)
{
    for (size_t i = 0; i < plan->ckpt->n_tensors; i++)
        if (fp8q_plan_quantizes(plan, i) && plan->selection.decisions[i].scheme == scheme &&
            fp8q_has_components(plan->ckpt->tensors[i].name, "lm_head"))
            return true;

    return false;
}

static void write_groups(struct fp8q_jsonw *w, const struct fp8q_plan *plan,
                         const enum fp8q_scheme *schemes, unsigned n, bool formats_differ)
{
    fp8q_jsonw_open(w, "config_groups", '{');
    for (unsigned i = 0; i < n; i++) {
        const char *format = formats_differ ? format_of(schemes[i]) : NULL;
        open_group(w, i);
        if (i > 0) /* a target by name goes before one by class */
            write_targets(w, plan, schemes[i]);
        else
            fp8q_jsonw_string(w, NULL, "Linear");

        /* No Linear in engines: asked for by name.  */
        if (i == 0 && head_has_scheme(plan, schemes[0]))
            fp8q_jsonw_string(w, NULL, "re:.*lm_head$");
        close_group(w, schemes[i], format);
    }
    fp8q_jsonw_close(w, '}');
}

static void write_compressed_tensors(struct fp8q_jsonw *w, const struct fp8q_plan *plan)
{
    enum fp8q_scheme schemes[FP8Q_N_SCHEMES];
    unsigned n = list_schemes(plan, schemes);
    bool formats_differ = n > 1 && fp8q_plan_has_scheme(plan, FP8Q_SCHEME_GROUP);

    fp8q_jsonw_string(w, "quant_method", "compressed-tensors");
    fp8q_jsonw_string(w, "format", formats_differ ? "mixed-precision" : format_of(schemes[0]));
    fp8q_jsonw_string(w, "quantization_status", "compressed");
    write_groups(w, plan, schemes, n, formats_differ);
    write_list(w, "ignore", plan->exclusions, plan->n_exclusions);
    write_cache(w, plan);
    fp8q_jsonw_raw(w, "global_compression_ratio", "null");
}

static void write_producer(struct fp8q_jsonw *w)
{
    fp8q_jsonw_open(w, "producer", '{');
    fp8q_jsonw_string(w, "name", "fp8q");
    fp8q_jsonw_string(w, "version", FP8Q_VERSION);
    fp8q_jsonw_close(w, '}');
}

/* ModelOpt says it twice: in config.json, which newer engines read, and in a file of its own.  */
static void write_modelopt(struct fp8q_jsonw *w, const struct fp8q_plan *plan)
{
    fp8q_jsonw_string(w, "quant_method", "modelopt");
    fp8q_jsonw_string(w, "quant_algo", "FP8");
    write_producer(w);
    fp8q_jsonw_open(w, "config_groups", '{');
    open_group(w, 0);
    fp8q_jsonw_string(w, NULL, "Linear");
    close_group(w, FP8Q_SCHEME_STATIC, NULL);
    fp8q_jsonw_close(w, '}');
    if (plan->options.fp8_cache)
        write_cache(w, plan);
    write_list(w, "ignore", plan->exclusions, plan->n_exclusions);
}

static int write_hf_quant(struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 4};
    if (plan->options.format != FP8Q_FORMAT_MODELOPT)
        return FP8Q_OK;

    fp8q_jsonw_open(&w, NULL, '{');
    write_producer(&w);
    fp8q_jsonw_open(&w, "quantization", '{');
    fp8q_jsonw_string(&w, "quant_algo", "FP8");
    fp8q_jsonw_string(&w, "kv_cache_quant_algo", plan->options.fp8_cache ? "FP8" : NULL);
    write_list(&w, "exclude_modules", plan->exclusions, plan->n_exclusions);
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_close(&w, '}');
    fp8q_text_puts(&w.text, "\n");
    plan->hf_quant_text = w.text.data;
    return fp8q_text_status(&w.text, err);
}

static int describe(const struct fp8q_plan *plan, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 2};
    fp8q_jsonw_open(&w, NULL, '{');
    if (plan->options.format == FP8Q_FORMAT_FP8)
        write_fp8(&w, plan);
    else if (plan->options.format == FP8Q_FORMAT_MODELOPT)
        write_modelopt(&w, plan);
    else
        write_compressed_tensors(&w, plan);
    fp8q_jsonw_close(&w, '}');

    *out = w.text;
    return fp8q_text_status(out, err);
}

/* The source's config.json with @description in it.  Claims of another quantization, at the top or
 * in any nested config, would win over ours in some engine: they are cut out.  */
static int edit_config(const struct fp8q_ckpt *ckpt, const char *description, struct fp8q_text *out,
                       struct fp8q_error *err)
{
    const char *stale[5] = {"quantization_config", "compression_config"};
    size_t n = 2;
    char **nested = fp8q_nested_quantization(ckpt->config);
    if (!nested)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < 2; i++) {
        static const char *const dtypes[] = {"torch_dtype", "dtype"};
        if (fp8q_is_fp8_dtype(fp8q_json_get(ckpt->config, dtypes[i])))
            stale[n++] = dtypes[i];
    }

    const struct fp8q_splice splice = {.text = ckpt->config_text,
                                       .len = ckpt->config_len,
                                       .what = FP8Q_CONFIG_NAME,
                                       .remove = stale,
                                       .remove_nested = (const char *const *)nested,
                                       .key = description ? "quantization_config" : NULL,
                                       .value = description};
    int status = fp8q_json_splice(&splice, out, err);
    fp8q_free_paths(nested);
    FP8Q_TRY(status);
    FP8Q_TRY(fp8q_text_status(out, err));

    /* What this program would not read again must not be written either.  */
    if (out->len > FP8Q_MOST_CONFIG)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "config-size",
                         "config.json would have %zu bytes with its exclusion list, the limit is "
                         "%llu; leave out whole layers or roots instead of single modules",
                         out->len, (unsigned long long)FP8Q_MOST_CONFIG);
    return FP8Q_OK;
}

/* ---- groups that are read otherwise ------------------------------------------------------------ */

/* The expression of one module may reach another: two roots can have layers of one number.  */
static int check_target(const struct fp8q_plan *plan, const struct fp8q_targets *targets,
                        const struct fp8q_json *const groups[], size_t tensor,
                        struct fp8q_error *err)
{
    const char *name = plan->ckpt->tensors[tensor].name;
    enum fp8q_scheme scheme = plan->selection.decisions[tensor].scheme;
    const struct fp8q_json *group = NULL;
    struct fp8q_shown shown;
    bool several = false;

    char *module = strndup(name, fp8q_module_len(name));
    int status =
        module ? fp8q_targets_find(targets, module, &group, &several, err) : fp8q_fail_nomem(err);
    free(module);
    FP8Q_TRY(status);

    if (group == groups[scheme] && !several)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "scheme-misread",
                     "--scheme: \"%s\" is to be %s, but engines would find it under another scheme "
                     "too, since they know layers by their numbers; give both roots one scheme",
                     fp8q_show(&shown, name), fp8q_scheme_names[scheme]);
}

static int check_targets(const struct fp8q_plan *plan, const struct fp8q_json *q,
                         struct fp8q_error *err)
{
    const struct fp8q_json *groups[FP8Q_N_SCHEMES] = {NULL};
    const struct fp8q_json *g = fp8q_json_first(fp8q_json_get(q, "config_groups"));
    enum fp8q_scheme schemes[FP8Q_N_SCHEMES];
    unsigned n = list_schemes(plan, schemes);
    struct fp8q_targets *targets;

    for (unsigned i = 0; i < n; i++, g = fp8q_json_next(g))
        groups[schemes[i]] = g;
    FP8Q_TRY(fp8q_targets_open(q, &targets, err));

    int status = FP8Q_OK;
    for (size_t i = 0; i < plan->ckpt->n_tensors && status == FP8Q_OK; i++)
        if (fp8q_plan_quantizes(plan, i))
            status = check_target(plan, targets, groups, i, err);
    fp8q_targets_close(targets);
    return status;
}

/* Asks the groups as their readers will.  */
static int check_groups(const struct fp8q_plan *plan, const struct fp8q_text *description,
                        struct fp8q_error *err)
{
    enum fp8q_scheme schemes[FP8Q_N_SCHEMES];
    struct fp8q_json *q;
    if (plan->options.format != FP8Q_FORMAT_COMPRESSED_TENSORS || list_schemes(plan, schemes) < 2)
        return FP8Q_OK;

    FP8Q_TRY(
        fp8q_json_parse(description->data, description->len, 0, "quantization_config", &q, err));
    int status = check_targets(plan, q, err);
    fp8q_json_free(q);
    return status;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int make_texts(const struct fp8q_plan *plan, struct fp8q_text *description,
                      struct fp8q_text *config, struct fp8q_error *err)
{
    /* Floats need no description; their config.json is the source's without one.  */
    if (!plan->options.dequantize)
        FP8Q_TRY(describe(plan, description, err));
    if (!plan->options.dequantize)
        FP8Q_TRY(check_groups(plan, description, err));
    return plan->ckpt->config_text ? edit_config(plan->ckpt, description->data, config, err)
                                   : FP8Q_OK;
}

int fp8q_config_texts(struct fp8q_plan *plan, struct fp8q_error *err)
{
    struct fp8q_text description = {0}, config = {0};
    int status = make_texts(plan, &description, &config, err);
    if (status != FP8Q_OK) {
        fp8q_text_reset(&description);
        fp8q_text_reset(&config);
        return status;
    }

    plan->quant_config = description.data;
    plan->config_text = config.data;
    return plan->options.dequantize ? FP8Q_OK : write_hf_quant(plan, err);
}
