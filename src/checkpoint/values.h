/* SPDX-License-Identifier: Apache-2.0
 *
 * values.h - what the values of one tensor are: their range, and block by block how much of the
 * range of FP8 they use.
 */
#ifndef FP8Q_CHECKPOINT_VALUES_H
#define FP8Q_CHECKPOINT_VALUES_H

#include "checkpoint/weights.h"

/* Reads tensor @name whole, a stripe of blocks at a time, and fills @statistics, which
 * fp8q_statistics_reset() releases.  FP8 values count with their scales.  Fails as
 * fp8q_weights_open() does.  */
int fp8q_look_at_values(const struct fp8q_ckpt *ckpt, const char *name,
                        const struct fp8q_kernel *kernel, struct fp8q_statistics *statistics,
                        struct fp8q_error *err);

/* A map of the blocks' amax, @rows x @cols cells, neither more than the grid has.  Several blocks share a
 * cell where it has fewer; the largest counts, since a lone outlier is what one looks for.  */
struct fp8q_amax_map {
    const struct fp8q_statistics *statistics;
    uint64_t rows, cols;
    float low,
        high; /* of the blocks that are neither zero nor infinite; both 0 if there are none */
};
struct fp8q_amax_map fp8q_amax_map_of(const struct fp8q_statistics *statistics, uint64_t most_rows,
                                      uint64_t most_cols);
float fp8q_amax_map_cell(const struct fp8q_amax_map *map, uint64_t row, uint64_t col);

#endif
