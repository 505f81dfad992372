/* SPDX-License-Identifier: Apache-2.0
 *
 * tp.c - how far tensor parallelism can cut the quantized matrices.
 */
#include "select/tp.h"

#include <string.h>

#include "select/internal.h"
#include "select/pattern.h"

static bool has_any(const char *name, const char *list)
{
    size_t len;
    return fp8q_has_any_components(name, list, &len) != NULL;
}

static bool cut_by_columns(const char *name)
{
    return has_any(name, "o_proj down_proj out_proj wo w2 fc2 c_proj dense");
}

static bool is_replicated(const char *name)
{
    return has_any(name, "q_a_proj kv_a_proj_with_mqa");
}

static bool fits(uint64_t size, uint64_t ways)
{
    /* Each rank's share must end where a block does: scales are stored for whole blocks.  */
    return size % ways == 0 && size / ways % FP8Q_BLOCK == 0;
}

/* Key and value heads are repeated once there are more ranks than heads.  */
static bool fits_rows(const struct fp8q_parts_config *c, const char *name, uint64_t n_rows,
                      unsigned tp)
{
    uint64_t sizes[3];
    unsigned n = fp8q_parts(c, name, n_rows, sizes);
    bool kv = has_any(name, "k_proj v_proj");

    for (unsigned i = 0; i < n; i++) {
        bool repeats = (kv || (n == 3 && i > 0)) && c->kv_heads && tp > c->kv_heads;
        if (!fits(sizes[i], repeats ? c->kv_heads : tp))
            return false;
    }

    return n > 0;
}

/* Every expert is cut along its own inner size, as one stored by itself would be: gate and up by
 * their rows, down by its columns.  */
static bool stack_fits(enum fp8q_experts experts, const struct fp8q_tensor *t, unsigned tp)
{
    bool gate_up = has_any(t->name, "gate_up_proj");
    uint64_t rows = t->shape[1], cols = t->shape[2];

    if (experts == FP8Q_EXPERTS_STACKED) /* [E, H, 2I] and [E, I, H] */
        return gate_up ? fits(cols / 2, tp) : fits(rows, tp);
    return gate_up ? fits(rows / 2, tp) : fits(cols, tp); /* [E, 2I, H] and [E, H, I] */
}

static bool tensor_fits(const struct fp8q_parts_config *c, enum fp8q_experts experts,
                        const struct fp8q_tensor *t, unsigned tp)
{
    if (is_replicated(t->name))
        return true;
    if (t->ndim == 3)
        return stack_fits(experts, t, tp);

    return cut_by_columns(t->name) ? fits(t->shape[1], tp) : fits_rows(c, t->name, t->shape[0], tp);
}

const char *fp8q_tp_misfit(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *selection,
                           unsigned tp)
{
    struct fp8q_parts_config c = fp8q_parts_config_of(ckpt->config);

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_decision *d = &selection->decisions[i];
        bool in_blocks = d->quantize && d->scheme == FP8Q_SCHEME_BLOCK;
        if (in_blocks && tp > 1 &&
            !tensor_fits(&c, selection->family.experts, &ckpt->tensors[i], tp))
            return ckpt->tensors[i].name;
    }

    return NULL;
}

unsigned fp8q_largest_tp(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *selection,
                         const char **name_out)
{
    *name_out = NULL;

    /* Powers of two, as engines are started; the first that does not fit ends the search.  */
    for (unsigned tp = 2; tp <= 64; tp *= 2)
        if ((*name_out = fp8q_tp_misfit(ckpt, selection, tp)) != NULL)
            return tp / 2;

    return 64;
}
