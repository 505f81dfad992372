/* SPDX-License-Identifier: Apache-2.0
 *
 * backbone.c - the language model inside a checkpoint.
 *
 * Policies are made by code that knows their backbone, and their config.json says what the action
 * part needs.  Shapes tell the sizes; a row of the table tells what shapes do not.
 */
#include "select/backbone.h"

#include <stdio.h>
#include <string.h>

#include "select/families.h"

/* ---- tensors ------------------------------------------------------------------------------- */

const struct fp8q_tensor *fp8q_backbone_table(const struct fp8q_ckpt *ckpt, const char *prefix)
{
    char name[256];
    snprintf(name, sizeof(name), "%sembed_tokens.weight", prefix);
    return fp8q_ckpt_find(ckpt, name);
}

const struct fp8q_tensor *fp8q_backbone_head(const struct fp8q_ckpt *ckpt, const char *prefix)
{
    char name[256];
    size_t len = strlen(prefix);

    /* "a.b.model." -> "a.b." -> "a." -> "".  */
    while (len > 0) {
        for (len--; len > 0 && prefix[len - 1] != '.';)
            len--;
        snprintf(name, sizeof(name), "%.*slm_head.weight", (int)len, prefix);
        const struct fp8q_tensor *head = fp8q_ckpt_find(ckpt, name);
        if (head)
            return head;
    }
    return NULL;
}

/* ---- policies ------------------------------------------------------------------------------ */

struct backbone {
    const char *types;   /* of policies */
    const char *root;    /* part of the name under which the layers stand; "": any */
    uint64_t head_dim;   /* 0: all of k_proj is one head */
    const char *members; /* of the config, beside the sizes */
};

/* SmolVLA rotates by its own base, whatever SmolVLM's config says.  GR00T N1.7 stands on Qwen3-VL
 * (Cosmos-Reason), those before it on Eagle's Qwen3.  */
static const struct backbone backbones[] = {
    {"pi0 pi05 pi0_fast pi0fast", "", 0,
     "\"model_type\": \"gemma\", \"rms_norm_eps\": 1e-6, \"rope_theta\": 10000"},
    {"smolvla", "", 64, "\"model_type\": \"llama\", \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000"},
    {"gr00t_n1_7 Gr00tN1d7 groot", "model.model.language_model.", 128,
     "\"model_type\": \"qwen3_vl_text\", \"rms_norm_eps\": 1e-6, \"rope_theta\": 5000000, "
     "\"rope_scaling\": {\"rope_type\": \"default\", \"mrope_section\": [24, 20, 20], "
     "\"mrope_interleaved\": true}"},
    {"gr00t_n1 gr00t_n1_5 gr00t_n1_6 Gr00tN1d6 groot", "", 128,
     "\"model_type\": \"qwen3\", \"rms_norm_eps\": 1e-6, \"rope_theta\": 1000000"},
};

static bool is_one_of(const char *type, const char *list)
{
    for (size_t n; *list; list += n, list += strspn(list, " ")) {
        n = strcspn(list, " ");
        if (strlen(type) == n && memcmp(type, list, n) == 0)
            return true;
    }
    return false;
}

/* The row of @config for layers under @prefix (NULL: whichever), or NULL.  */
static const struct backbone *find(const struct fp8q_json *config, const char *prefix)
{
    const char *type = fp8q_family_of(config).model_type;
    for (size_t i = 0; type && i < sizeof(backbones) / sizeof(*backbones); i++)
        if (is_one_of(type, backbones[i].types) && (!prefix || strstr(prefix, backbones[i].root)))
            return &backbones[i];
    return NULL;
}

bool fp8q_backbone_of_policy(const struct fp8q_json *config)
{
    /* The classes of transformers do describe it.  */
    return config && find(config, NULL) &&
           !fp8q_json_get(fp8q_language_config(config), "num_hidden_layers");
}

/* Shape of the matrix @prefix + @rest.  */
static int shape_of(const struct fp8q_ckpt *ckpt, const char *prefix, const char *rest,
                    uint64_t shape_out[2], struct fp8q_error *err)
{
    char name[256];
    struct fp8q_shown shown;
    snprintf(name, sizeof(name), "%s%s", prefix, rest);
    const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, name);
    if (!t || t->ndim != 2)
        return fp8q_fail(err, FP8Q_E_FORMAT, "tensor-missing",
                         "there is no matrix \"%s\", which tells the sizes of the policy's "
                         "language model",
                         fp8q_show(&shown, name));
    shape_out[0] = t->shape[0];
    shape_out[1] = t->shape[1];
    return FP8Q_OK;
}

static unsigned count_layers(const struct fp8q_ckpt *ckpt, const char *prefix)
{
    char name[256];
    unsigned n = 0;
    do
        snprintf(name, sizeof(name), "%slayers.%u.self_attn.o_proj.weight", prefix, n++);
    while (fp8q_ckpt_find(ckpt, name));
    return n - 1;
}

/* Words of the vocabulary: of the table of tokens, or of the head where a file keeps one of two that
 * are tied.  */
static uint64_t count_words(const struct fp8q_ckpt *ckpt, const char *prefix)
{
    const struct fp8q_tensor *t = fp8q_backbone_table(ckpt, prefix);
    if (!t)
        t = fp8q_backbone_head(ckpt, prefix);
    return t && t->ndim == 2 ? t->shape[0] : 0;
}

int fp8q_backbone_config(const struct fp8q_ckpt *ckpt, const char *prefix,
                         struct fp8q_json **config_out, struct fp8q_error *err)
{
    const struct backbone *b = find(ckpt->config, prefix);
    uint64_t q[2] = {0}, k[2] = {0}, gate[2] = {0};
    struct fp8q_text text = {0};
    *config_out = NULL;
    FP8Q_TRY(shape_of(ckpt, prefix, "layers.0.self_attn.q_proj.weight", q, err));
    FP8Q_TRY(shape_of(ckpt, prefix, "layers.0.self_attn.k_proj.weight", k, err));
    FP8Q_TRY(shape_of(ckpt, prefix, "layers.0.mlp.gate_proj.weight", gate, err));

    uint64_t dim = b && b->head_dim ? b->head_dim : k[0];
    if (!b || dim == 0 || q[0] % dim || k[0] % dim)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "the language model of this policy has %llu rows of q_proj and %llu of "
                         "k_proj, which are no heads of %llu",
                         (unsigned long long)q[0], (unsigned long long)k[0],
                         (unsigned long long)dim);

    fp8q_text_printf(&text,
                     "{%s, \"num_hidden_layers\": %u, \"hidden_size\": %llu, "
                     "\"intermediate_size\": %llu, \"vocab_size\": %llu, \"head_dim\": %llu, "
                     "\"num_attention_heads\": %llu, \"num_key_value_heads\": %llu}",
                     b->members, count_layers(ckpt, prefix), (unsigned long long)q[1],
                     (unsigned long long)gate[0], (unsigned long long)count_words(ckpt, prefix),
                     (unsigned long long)dim, (unsigned long long)(q[0] / dim),
                     (unsigned long long)(k[0] / dim));

    int status = fp8q_text_status(&text, err);
    if (status == FP8Q_OK)
        status =
            fp8q_json_parse(text.data, text.len, 0, "the policy's language model", config_out, err);
    fp8q_text_reset(&text);
    return status;
}
