/* SPDX-License-Identifier: Apache-2.0
 *
 * ids.h - a growing list of token ids.
 */
#ifndef FP8Q_IDS_H
#define FP8Q_IDS_H

#include "base/error.h"

/* Zero it to start; free with fp8q_ids_reset().  */
struct fp8q_ids {
    int32_t *items;
    size_t count, cap;
};

int fp8q_ids_add(struct fp8q_ids *ids, int32_t id, struct fp8q_error *err);
void fp8q_ids_reset(struct fp8q_ids *ids);

#endif
