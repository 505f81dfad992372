/* SPDX-License-Identifier: Apache-2.0
 *
 * config_experts.c - mixtures of experts, one row each: what their parts are called, how a token's
 * experts are chosen, which layers have them.  Keys and defaults are those of transformers.
 */
#include <stdlib.h>
#include <string.h>

#include "model/internal.h"

/* Which layers have experts.  */
enum places {
    PLACES_ALL,
    PLACES_STEP,  /* every `decoder_sparse_step`-th, but for those of `mlp_only_layers` */
    PLACES_FIRST, /* from `first_k_dense_replace` on, every `moe_layer_freq`-th */
    PLACES_RANGE  /* `moe_layer_start_index` to `moe_layer_end_index`, by `moe_layer_interval` */
};

/* Whether the weights of a token's experts add up to 1.  */
enum norming {
    NORM_OFF,
    NORM_ON,
    NORM_ALWAYS
}; /* the first two: where `norm_topk_prob` is silent */

/* A number of config.json: its key, another that files use, and the class's default.  */
struct size {
    const char *key, *other;
    uint64_t fallback;
};

struct row {
    const char *model_type;
    const char *router, *bias, *experts, *linears[3];
    const char *shared, *shared_gate;
    struct size n_experts, n_active, width; /* without a key the MLP's `intermediate_size` */
    struct size shared_width;               /* intermediate size, or ... */
    struct size n_shared;                   /* ... how many experts' width it has */
    enum places places;
    uint64_t first; /* PLACES_FIRST: when the config is silent */
    enum norming norming;
    bool sigmoid;
    unsigned group_by; /* best experts of a group that stand for it; 0: no groups */
    uint64_t n_groups, n_best_groups;
    double scale; /* `routed_scaling_factor` when the config is silent; 0: has none */
};

#define GATE_UP_DOWN                                                                               \
    {                                                                                              \
        "gate_proj", "up_proj", "down_proj"                                                        \
    }
#define QWEN                                                                                       \
    .router = "mlp.gate.weight", .experts = "mlp.experts", .linears = GATE_UP_DOWN,                \
    .n_active.key = "num_experts_per_tok", .width.key = "moe_intermediate_size"
#define QWEN_EXPERTS(N)                                                                            \
    {                                                                                              \
        "num_experts", "num_local_experts", N                                                      \
    }
/* DeepSeek's, and those that took it over: weights by sigmoid, a correction that only chooses.  */
#define DEEPSEEK                                                                                   \
    QWEN, .shared = "mlp.shared_experts", .n_shared.key = "n_shared_experts", .places = PLACES_FIRST
#define DEEPSEEK_EXPERTS(N)                                                                        \
    {                                                                                              \
        "n_routed_experts", "num_local_experts", N                                                 \
    }
#define CORRECTED .bias = "mlp.gate.e_score_correction_bias", .sigmoid = true, .group_by = 2

static const struct row rows[] = {
    {.model_type = "mixtral",
     .router = "block_sparse_moe.gate.weight",
     .experts = "block_sparse_moe.experts",
     .linears = {"w1", "w3", "w2"},
     .n_experts = {"num_local_experts", NULL, 8},
     .n_active = {"num_experts_per_tok", NULL, 2},
     .norming = NORM_ALWAYS},
    {.model_type = "qwen2_moe",
     QWEN,
     .shared = "mlp.shared_expert",
     .shared_gate = "mlp.shared_expert_gate.weight",
     .n_experts = QWEN_EXPERTS(60),
     .n_active.fallback = 4,
     .width.fallback = 1408,
     .shared_width = {"shared_expert_intermediate_size", NULL, 5632},
     .places = PLACES_STEP},
    {.model_type = "qwen3_moe",
     QWEN,
     .n_experts = QWEN_EXPERTS(128),
     .n_active.fallback = 8,
     .width.fallback = 768,
     .places = PLACES_STEP},
    {.model_type = "qwen3_vl_moe_text",
     QWEN,
     .n_experts = QWEN_EXPERTS(60),
     .n_active.fallback = 4,
     .width.fallback = 1408,
     .places = PLACES_STEP,
     .norming = NORM_ALWAYS},
    {.model_type = "olmoe",
     .router = "mlp.gate.weight",
     .experts = "mlp.experts",
     .linears = GATE_UP_DOWN,
     .n_experts = QWEN_EXPERTS(64),
     .n_active = {"num_experts_per_tok", NULL, 8}},
    {.model_type = "deepseek_v2",
     DEEPSEEK,
     .scale = 1,
     .n_experts = DEEPSEEK_EXPERTS(64),
     .width.fallback = 1407,
     .n_shared.fallback = 2,
     .group_by = 1},
    {.model_type = "deepseek_v3",
     DEEPSEEK,
     CORRECTED,
     .n_experts = DEEPSEEK_EXPERTS(256),
     .n_active.fallback = 8,
     .width.fallback = 2048,
     .n_shared.fallback = 1,
     .first = 3,
     .norming = NORM_ON,
     .n_groups = 8,
     .n_best_groups = 4,
     .scale = 2.5},
    {.model_type = "glm4_moe",
     DEEPSEEK,
     .scale = 1,
     CORRECTED,
     .n_experts = DEEPSEEK_EXPERTS(128),
     .n_active.fallback = 8,
     .width.fallback = 1408,
     .n_shared.fallback = 1,
     .first = 1,
     .norming = NORM_ON},
    {.model_type = "dots1",
     DEEPSEEK,
     .scale = 1,
     CORRECTED,
     .n_experts = DEEPSEEK_EXPERTS(0),
     .width.fallback = 1408},
    {.model_type = "ernie4_5_moe",
     .router = "mlp.gate.weight",
     .bias = "mlp.moe_statics.e_score_correction_bias",
     .experts = "mlp.experts",
     .linears = GATE_UP_DOWN,
     .shared = "mlp.shared_experts",
     .n_experts = {"moe_num_experts", NULL, 64},
     .n_active = {"moe_k", NULL, 6},
     .width = {"moe_intermediate_size", NULL, 1536},
     .n_shared = {"moe_num_shared_experts", NULL, 2},
     .places = PLACES_RANGE,
     .norming = NORM_ALWAYS},
};

#define MAX_EXPERTS 4096
#define MAX_WIDTH (1u << 22)

static const struct row *row_of(const char *model_type)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].model_type, model_type) == 0)
            return &rows[i];
    return NULL;
}

static int get(const struct fp8q_json *config, const struct size *size, uint64_t max, uint64_t *out,
               struct fp8q_error *err)
{
    const char *key = size->other && !fp8q_json_get(config, size->key) ? size->other : size->key;
    return fp8q_config_size(config, key, size->fallback, max, out, err);
}

/* An integer from 0 on.  */
static uint64_t count(const struct fp8q_json *config, const char *key, uint64_t fallback)
{
    uint64_t value;
    return fp8q_json_uint(fp8q_json_get(config, key), &value) ? value : fallback;
}

/* ---- which layers ---------------------------------------------------------------------------- */

static bool lists_layer(const struct fp8q_json *list, uint32_t layer)
{
    for (const struct fp8q_json *i = fp8q_json_first(list); i; i = fp8q_json_next(i))
        if (fp8q_json_number(i, -1) == (double)layer)
            return true;
    return false;
}

static void place(struct fp8q_model *m, const struct row *row, const struct fp8q_json *config,
                  uint64_t step)
{
    const struct fp8q_json *dense = fp8q_json_get(config, "mlp_only_layers");
    uint64_t first = count(config, "first_k_dense_replace", row->first);
    uint64_t start = count(config, "moe_layer_start_index", 1);
    /* -1 and no number are the last layer.  */
    uint64_t end = count(config, "moe_layer_end_index", m->n_layers);

    for (uint32_t i = 0; i < m->n_layers; i++) {
        bool sparse = true;
        if (row->places == PLACES_STEP)
            sparse = (i + 1) % step == 0 && !lists_layer(dense, i);
        else if (row->places == PLACES_FIRST)
            sparse = i >= first && i % step == 0;
        else if (row->places == PLACES_RANGE)
            sparse = (i + 1) % step == 0 && i >= start && i <= end;
        m->sparse[i] = sparse;
    }
}

static int read_places(struct fp8q_model *m, const struct row *row, const struct fp8q_json *config,
                       struct fp8q_error *err)
{
    static const char *const steps[] = {
        [PLACES_ALL] = "decoder_sparse_step",
        [PLACES_STEP] = "decoder_sparse_step",
        [PLACES_FIRST] = "moe_layer_freq",
        [PLACES_RANGE] = "moe_layer_interval",
    };
    uint64_t step;
    FP8Q_TRY(fp8q_config_size(config, steps[row->places], 1, 10000, &step, err));
    place(m, row, config, step);
    return FP8Q_OK;
}

/* ---- how experts are chosen ------------------------------------------------------------------ */

/* A word of the config that names a way of choosing must name the one that is computed.  */
static int check_word(const struct fp8q_model *m, const struct fp8q_json *config, const char *key,
                      const char *wanted, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    const char *word = fp8q_json_string(fp8q_json_get(config, key), wanted);
    if (strcmp(word, wanted) == 0)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "experts",
                     "config.json: \"%s\" is \"%s\"; of %s only \"%s\" is computed", key,
                     fp8q_show(&shown, word), m->architecture, wanted);
}

static int read_groups(struct fp8q_model *m, const struct row *row, const struct fp8q_json *config,
                       uint64_t n_experts, struct fp8q_error *err)
{
    uint64_t n, best, one = row->n_groups ? row->n_groups : 1;
    FP8Q_TRY(fp8q_config_size(config, "n_group", one, MAX_EXPERTS, &n, err));
    one = row->n_best_groups ? row->n_best_groups : 1;
    FP8Q_TRY(fp8q_config_size(config, "topk_group", one, MAX_EXPERTS, &best, err));

    /* The sum of two needs two.  */
    if (best > n || n_experts % n != 0 || n_experts / n < row->group_by)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: the best %llu of %llu groups of %llu experts",
                         (unsigned long long)best, (unsigned long long)n,
                         (unsigned long long)n_experts);
    m->moe.group_by = row->group_by;
    m->moe.n_groups = (uint32_t)n;
    m->moe.n_best_groups = (uint32_t)best;
    return FP8Q_OK;
}

/* DeepSeek-V2 names its way: with groups or without.  */
static int read_method(struct fp8q_model *m, const struct row *row, const struct fp8q_json *config,
                       uint64_t n_experts, struct fp8q_error *err)
{
    const char *method = fp8q_json_string(fp8q_json_get(config, "topk_method"), "greedy");
    if (row->group_by == 0 || (row->group_by == 1 && strcmp(method, "greedy") == 0))
        return FP8Q_OK;

    const char *wanted = row->group_by == 1 ? "group_limited_greedy" : "noaux_tc";
    FP8Q_TRY(check_word(m, config, "topk_method", wanted, err));
    return read_groups(m, row, config, n_experts, err);
}

static int read_choice(struct fp8q_model *m, const struct row *row, const struct fp8q_json *config,
                       uint64_t n_experts, struct fp8q_error *err)
{
    struct fp8q_moe *moe = &m->moe;
    bool norm = fp8q_json_bool(fp8q_json_get(config, "norm_topk_prob"), row->norming == NORM_ON);
    moe->normalized = row->norming == NORM_ALWAYS || norm;
    moe->sigmoid = row->sigmoid;
    moe->least_sum = (float)fp8q_json_number(fp8q_json_get(config, "moe_norm_min"), 1e-20);

    moe->scale = 1.0f;
    if (row->scale > 0)
        moe->scale =
            (float)fp8q_json_number(fp8q_json_get(config, "routed_scaling_factor"), row->scale);
    FP8Q_TRY(check_word(m, config, "scoring_func", row->sigmoid ? "sigmoid" : "softmax", err));
    return read_method(m, row, config, n_experts, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* What all tokens share: an intermediate size of its own, or that of some experts.  */
static int read_shared(struct fp8q_model *m, const struct row *row, const struct fp8q_json *config,
                       struct fp8q_error *err)
{
    struct fp8q_moe *moe = &m->moe;
    moe->shared = row->shared;
    moe->shared_gate = row->shared_gate;

    if (row->shared_width.key)
        return get(config, &row->shared_width, MAX_WIDTH, &moe->shared_width, err);
    if (!row->n_shared.key)
        return FP8Q_OK;

    uint64_t n = count(config, row->n_shared.key, row->n_shared.fallback);
    if (n > MAX_EXPERTS)
        return fp8q_fail(err, FP8Q_E_FORMAT, "config", "config.json: \"%s\" is %llu",
                         row->n_shared.key, (unsigned long long)n);
    moe->shared_width = n * moe->width;
    return FP8Q_OK;
}

static int read_row(struct fp8q_model *m, const struct row *row, const struct fp8q_json *config,
                    struct fp8q_error *err)
{
    uint64_t n_experts, n_active;
    FP8Q_TRY(get(config, &row->n_experts, MAX_EXPERTS, &n_experts, err));
    FP8Q_TRY(get(config, &row->n_active, MAX_EXPERTS, &n_active, err));
    m->moe = (struct fp8q_moe){.width = m->intermediate,
                               .router = row->router,
                               .bias = row->bias,
                               .experts = row->experts};
    memcpy(m->moe.linears, row->linears, sizeof(row->linears));

    if (row->width.key)
        FP8Q_TRY(get(config, &row->width, MAX_WIDTH, &m->moe.width, err));
    FP8Q_TRY(read_shared(m, row, config, err));
    FP8Q_TRY(read_choice(m, row, config, n_experts, err));
    FP8Q_TRY(read_places(m, row, config, err));

    uint64_t eligible = n_experts;
    if (m->moe.group_by > 0)
        eligible = n_experts / m->moe.n_groups * m->moe.n_best_groups;
    /* The second bounds the arrays by slot.  */
    if (n_active > eligible || (uint64_t)m->n_layers * n_experts > (1u << 24))
        return fp8q_fail(err, FP8Q_E_FORMAT, "config",
                         "config.json: %llu experts for each token of %llu in %u layers",
                         (unsigned long long)n_active, (unsigned long long)eligible, m->n_layers);
    m->moe.n_experts = (uint32_t)n_experts;
    m->moe.n_active = (uint32_t)n_active;
    return FP8Q_OK;
}

int fp8q_config_experts(struct fp8q_model *m, const struct fp8q_json *config,
                        struct fp8q_error *err)
{
    const struct row *row = row_of(m->architecture);
    return row ? read_row(m, row, config, err) : FP8Q_OK;
}
