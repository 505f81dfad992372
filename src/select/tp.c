/* SPDX-License-Identifier: Apache-2.0
 *
 * tp.c - how far tensor parallelism can cut the quantized matrices.
 */
#include "select/tp.h"

#include <string.h>

#include "select/internal.h"
#include "select/pattern.h"

static bool cut_by_columns(const char *name)
{
    static const char rows[] = "o_proj down_proj out_proj wo w2 fc2";
    size_t len;
    return fp8q_has_any_components(name, rows, &len) != NULL;
}

static bool is_replicated(const char *name)
{
    static const char names[] = "q_a_proj kv_a_proj_with_mqa";
    size_t len;
    return fp8q_has_any_components(name, names, &len) != NULL;
}

static bool fits(uint64_t size, uint64_t ways)
{
    return size % ways == 0 && size / ways % FP8Q_BLOCK == 0;
}

/* Key and value heads are repeated once there are more ranks than heads.  */
static bool fits_rows(const struct fp8q_parts_config *c, const char *name, uint64_t n_rows,
                      unsigned tp)
{
    uint64_t sizes[3];
    unsigned n = fp8q_parts(c, name, n_rows, sizes);
    size_t len;
    bool kv = fp8q_has_any_components(name, "k_proj v_proj", &len) != NULL;
    for (unsigned i = 0; i < n; i++) {
        bool repeats = (kv || (n == 3 && i > 0)) && c->kv_heads && tp > c->kv_heads;
        if (!fits(sizes[i], repeats ? c->kv_heads : tp))
            return false;
    }
    return n > 0;
}

static bool tensor_fits(const struct fp8q_parts_config *c, const struct fp8q_tensor *t, unsigned tp)
{
    if (is_replicated(t->name))
        return true;
    if (t->ndim ==
        3) /* one of the two inner sizes is the experts' own; both must do in some layout */
        return fits(t->shape[1], tp) || fits(t->shape[2], tp);
    return cut_by_columns(t->name) ? fits(t->shape[1], tp) : fits_rows(c, t->name, t->shape[0], tp);
}

const char *fp8q_tp_misfit(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *selection,
                           unsigned tp)
{
    struct fp8q_parts_config c = fp8q_parts_config_of(ckpt->config);
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (selection->decisions[i].quantize &&
            selection->decisions[i].scheme == FP8Q_SCHEME_BLOCK && tp > 1 &&
            !tensor_fits(&c, &ckpt->tensors[i], tp))
            return ckpt->tensors[i].name;
    return NULL;
}

unsigned fp8q_largest_tp(const struct fp8q_ckpt *ckpt, const struct fp8q_selection *selection,
                         const char **name_out)
{
    *name_out = NULL;
    for (unsigned tp = 2; tp <= 64; tp *= 2)
        if ((*name_out = fp8q_tp_misfit(ckpt, selection, tp)) != NULL)
            return tp / 2;
    return 64;
}
