/* SPDX-License-Identifier: Apache-2.0
 *
 * role.c - reads a tensor's role from its name.
 */
#include "select/role.h"

#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "format/names.h"
#include "select/pattern.h"

#define ROUTERS                                                                                    \
    "mlp.gate block_sparse_moe.gate feed_forward.gate moe.gate router shared_expert_gate "         \
    "e_score_correction_bias indexer.weights_proj weights_proj"
#define LINEAR_ATTENTION "in_proj_a in_proj_b in_proj_ba A_log dt_bias"
#define MTP "mtp.fc eh_proj"
#define HEADS "lm_head shared_head.head embed_out"
#define EMBEDDINGS "wte wpe tok_embeddings token_table shared"

/* True if some dot-separated component contains @part.  */
static bool contains(const char *name, const char *part)
{
    return strstr(name, part) != NULL;
}

static bool any(const char *name, const char *list)
{
    size_t len;
    return fp8q_has_any_components(name, list, &len) != NULL;
}

/* A short "ln": ln_1, ln_q, vlln.  */
static bool is_norm(const char *name)
{
    return contains(name, "norm") || contains(name, "Norm") || contains(name, ".ln_") ||
           strncmp(name, "ln_", 3) == 0 || contains(name, "vlln");
}

bool fp8q_role(const struct fp8q_family *family, const char *name, uint32_t ndim,
               enum fp8q_reason *reason_out, bool *tower_out)
{
    /* Under a decoder's root a word like "encoder_attn" names a linear, not a tower.  */
    bool is_root = any(name, family->vision);
    bool is_word = !fp8q_family_layer(family, name) && fp8q_names_tower(name, strlen(name));
    *tower_out = is_root || (is_word && ndim >= 2);

    /* LFM2 has linears around a convolution, which its row names.  */
    struct fp8q_linear_place place;
    char module[1024];
    snprintf(module, sizeof(module), "%.*s", (int)fp8q_weight_stem(name), name);
    bool is_linear = ndim == 2 && fp8q_family_linear(family, module, &place);

    /* First match wins, so the order is the rule.  */
    const struct {
        bool is;
        enum fp8q_reason reason;
    } roles[] = {
        {any(name, family->projector), FP8Q_WHY_PROJECTOR},
        {is_root, FP8Q_WHY_VISION},
        {any(name, family->action), FP8Q_WHY_ACTION},
        {any(name, ROUTERS), FP8Q_WHY_ROUTER},
        {any(name, MTP), FP8Q_WHY_MTP},
        {any(name, LINEAR_ATTENTION), FP8Q_WHY_LINEAR_ATTENTION},
        {contains(name, "conv") && !is_linear, FP8Q_WHY_CONV},
        {is_norm(name), FP8Q_WHY_NORM},
        {any(name, HEADS) || strcmp(name, "output.weight") == 0, FP8Q_WHY_LM_HEAD},
        {contains(name, "embed") || any(name, EMBEDDINGS), FP8Q_WHY_EMBEDDING},
        {fp8q_ends_with(name, ".bias") || fp8q_ends_with(name, "_bias"), FP8Q_WHY_BIAS},
        {ndim >= 4, FP8Q_WHY_CONV},
        {ndim < 2, FP8Q_WHY_SMALL},
        {is_word, FP8Q_WHY_VISION},
    };

    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
        if (roles[i].is) {
            *reason_out = roles[i].reason;
            return true;
        }

    return false;
}

/* End of the first component of @name that says tower; 0 if there is none.  */
static size_t tower_component(const char *name)
{
    size_t len = strlen(name);

    for (size_t at = 0; at < len;) {
        size_t n = strcspn(name + at, ".");
        if (fp8q_names_tower(name + at, n))
            return at + n;
        at += n + 1;
    }

    return 0;
}

size_t fp8q_root_prefix(const struct fp8q_family *family, const char *name)
{
    const char *const lists[] = {family->vision, family->projector, family->action};

    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++) {
        size_t len;
        const char *root = fp8q_has_any_components(name, lists[i], &len);
        for (const char *at = name; root && at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
            if (strncmp(at, root, len) == 0 && (at[len] == '.' || at[len] == '\0'))
                return (size_t)(at - name) + len;
    }

    return fp8q_family_layer(family, name) ? 0 : tower_component(name);
}
