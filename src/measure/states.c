/* SPDX-License-Identifier: Apache-2.0
 *
 * states.c - errors of what the layers of an output leave: hidden states, and the keys and values
 * that an action expert reads, each relative to what the source has in that layer.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "measure/internal.h"

const char *const fp8q_state_names[FP8Q_N_STATES] = {"hidden", "keys", "values"};

/* ---- the source's ---------------------------------------------------------------------------- */

int fp8q_cached_open(struct fp8q_cached *c, const struct fp8q_model *m, size_t max_tokens,
                     struct fp8q_error *err)
{
    uint64_t keys = (uint64_t)m->n_kv_heads * m->head_dim;
    uint64_t values = (uint64_t)m->n_kv_heads * m->value_dim;
    c->key_width = (size_t)keys;
    c->value_width = (size_t)values;
    c->keys = fp8q_array((uint64_t)max_tokens * keys, sizeof(float));
    c->values = fp8q_array((uint64_t)max_tokens * values, sizeof(float));
    return c->keys && c->values ? FP8Q_OK : fp8q_fail_nomem(err);
}

void fp8q_cached_close(struct fp8q_cached *c)
{
    free(c->keys);
    free(c->values);
    *c = (struct fp8q_cached){0};
}

void fp8q_cached_keep(struct fp8q_cached *c, const struct fp8q_forward *fw, size_t n_tokens)
{
    memcpy(c->keys, fw->k, n_tokens * c->key_width * sizeof(float));
    memcpy(c->values, fw->v, n_tokens * c->value_width * sizeof(float));
}

/* ---- errors of an output --------------------------------------------------------------------- */

int fp8q_states_open(struct fp8q_states *s, const struct fp8q_model *m, struct fp8q_error *err)
{
    /* One place more than there are layers: that of the final norm.  */
    bool ok = true;
    for (int i = 0; i < FP8Q_N_STATES; i++) {
        s->sums[i] = fp8q_array((uint64_t)m->n_layers + 1, sizeof(*s->sums[i]));
        ok = ok && s->sums[i];
    }
    return ok ? FP8Q_OK : fp8q_fail_nomem(err);
}

void fp8q_states_close(struct fp8q_states *s)
{
    for (int i = 0; i < FP8Q_N_STATES; i++)
        free(s->sums[i]);
    *s = (struct fp8q_states){0};
}

void fp8q_states_add(struct fp8q_states *s, enum fp8q_state state, uint32_t layer,
                     const struct fp8q_state_pair *pair)
{
    struct fp8q_state_sums *sums = &s->sums[state][layer];

    for (size_t t = 0; t < pair->n_rows; t++) {
        const float *a = pair->source + t * pair->width, *b = pair->output + t * pair->width;
        double diff = 0;

        for (size_t i = 0; i < pair->width; i++)
            diff += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        /* Sums now, the root and the ratio at the end: groups then add up.  */
        sums->diff += diff;
        sums->ref += pair->gemm->dot(a, a, pair->width);
    }
}

void fp8q_states_cache(struct fp8q_states *s, const struct fp8q_cached *source,
                       const struct fp8q_forward *fw, size_t n_tokens, uint32_t layer)
{
    struct fp8q_state_pair pair = {fw->gemm, source->keys, fw->k, n_tokens, source->key_width};
    fp8q_states_add(s, FP8Q_STATE_KEYS, layer, &pair);

    pair.source = source->values;
    pair.output = fw->v;
    pair.width = source->value_width;
    fp8q_states_add(s, FP8Q_STATE_VALUES, layer, &pair);
}

double fp8q_states_error(const struct fp8q_states *s, enum fp8q_state state, uint32_t layer)
{
    const struct fp8q_state_sums *sums = &s->sums[state][layer];
    return sums->ref > 0 ? sqrt(sums->diff / sums->ref) : 0;
}

uint32_t fp8q_eval_worst(const struct fp8q_eval *e, enum fp8q_state state)
{
    uint32_t worst = 0;
    for (uint32_t i = 1; i < e->n_layers; i++)
        if (e->errors[state][i] > e->errors[state][worst])
            worst = i;
    return worst;
}

/* ---- JSON ---------------------------------------------------------------------------------- */

void fp8q_states_json(const struct fp8q_eval *e, struct fp8q_jsonw *w)
{
    static const char *const lists[FP8Q_N_STATES] = {"layer_error", "key_error", "value_error"};

    for (int i = 0; i < FP8Q_N_STATES; i++) {
        fp8q_jsonw_open(w, lists[i], '[');
        for (uint32_t layer = 0; layer < e->n_layers; layer++)
            fp8q_jsonw_number(w, NULL, e->errors[i][layer]);
        fp8q_jsonw_close(w, ']');
    }

    fp8q_jsonw_number(w, "final_error", e->final_error);
    fp8q_jsonw_open(w, "worst_layer", '{');
    for (int i = 0; i < FP8Q_N_STATES; i++)
        fp8q_jsonw_uint(w, fp8q_state_names[i], fp8q_eval_worst(e, (enum fp8q_state)i));
    fp8q_jsonw_close(w, '}');
}
