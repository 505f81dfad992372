/* SPDX-License-Identifier: Apache-2.0
 *
 * ids.c - a growing list of token ids.
 */
#include "tokenizer/ids.h"

#include <stdlib.h>

#include "base/mem.h"

int fp8q_ids_add(struct fp8q_ids *ids, int32_t id, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_grow(&ids->items, ids->count, &ids->cap, sizeof(*ids->items), err));
    ids->items[ids->count++] = id;
    return FP8Q_OK;
}

void fp8q_ids_reset(struct fp8q_ids *ids)
{
    free(ids->items);
    *ids = (struct fp8q_ids){0};
}
