/* SPDX-License-Identifier: Apache-2.0
 *
 * tp.c - how far tensor parallelism can cut the matrices that have block scales.
 */
#include "engines/tp.h"

#include <string.h>

#include "engines/engines.h"
#include "kernel/block.h"
#include "select/parts.h"
#include "select/pattern.h"

static bool has_any(const char *name, const char *list)
{
    size_t len;
    return fp8q_has_any_components(name, list, &len) != NULL;
}

static bool fits(uint64_t size, uint64_t ways, unsigned unit)
{
    /* Each rank's share must end where a block does: scales are stored for whole blocks.  */
    return size % ways == 0 && size / ways % unit == 0;
}

/* Key and value heads are repeated once there are more ranks than heads.  */
static bool fits_rows(const struct fp8q_parts_config *c, const char *name, uint64_t n_rows,
                      unsigned ways, unsigned unit)
{
    uint64_t sizes[3];
    unsigned n = fp8q_parts(c, name, n_rows, sizes);
    bool kv = has_any(name, fp8q_cutting.repeated);

    for (unsigned i = 0; i < n; i++) {
        bool repeats = (kv || (n == 3 && i > 0)) && c->kv_heads && ways > c->kv_heads;
        if (!fits(sizes[i], repeats ? c->kv_heads : ways, unit))
            return false;
    }

    return n > 0;
}

/* Every expert is cut along its own inner size, as one stored by itself would be: gate and up by
 * their rows, down by its columns.  */
static bool stack_fits(enum fp8q_experts experts, const struct fp8q_tensor *t, unsigned ways,
                       struct fp8q_grid grid)
{
    bool gate_up = has_any(t->name, "gate_up_proj");
    uint64_t rows = t->shape[1], cols = t->shape[2];

    if (experts == FP8Q_EXPERTS_STACKED) /* [E, H, 2I] and [E, I, H] */
        return gate_up ? fits(cols / 2, ways, grid.cols) : fits(rows, ways, grid.rows);
    /* [E, 2I, H] and [E, H, I] */
    return gate_up ? fits(rows / 2, ways, grid.rows) : fits(cols, ways, grid.cols);
}

static bool tensor_fits(const struct fp8q_parts_config *c, enum fp8q_experts experts,
                        const struct fp8q_tensor *t, unsigned ways, struct fp8q_grid grid)
{
    if (has_any(t->name, fp8q_cutting.whole))
        return true;
    if (t->ndim == 3)
        return stack_fits(experts, t, ways, grid);
    if (has_any(t->name, fp8q_cutting.by_columns))
        return fits(t->shape[1], ways, grid.cols);

    return fits_rows(c, t->name, t->shape[0], ways, grid.rows);
}

const char *fp8q_tp_misfit(const struct fp8q_tp *tp, unsigned ways)
{
    struct fp8q_parts_config c = fp8q_parts_config_of(tp->ckpt->config);

    for (size_t i = 0; i < tp->ckpt->n_tensors && ways > 1; i++) {
        const struct fp8q_tensor *t = &tp->ckpt->tensors[i];
        struct fp8q_grid grid;
        if (tp->in_blocks(tp->context, i, &grid) &&
            !tensor_fits(&c, tp->family->experts, t, ways, grid))
            return t->name;
    }

    return NULL;
}

unsigned fp8q_largest_tp(const struct fp8q_tp *tp, const char **name_out)
{
    *name_out = NULL;

    /* Powers of two, as engines are started; the first that does not fit ends the search.  */
    for (unsigned ways = 2; ways <= FP8Q_MOST_TP; ways *= 2)
        if ((*name_out = fp8q_tp_misfit(tp, ways)) != NULL)
            return ways / 2;

    return FP8Q_MOST_TP;
}
