/* SPDX-License-Identifier: Apache-2.0
 *
 * codes.h - FP8 values that were rounded before the stream asks for them: of sequential GPTQ, which
 * goes through the model in the order of its layers and not in that of the files.
 *
 * They lie in a working file without a name, as large as the weights in FP8, which is gone when the
 * run ends, however it ends.  Their scales are those of plain rounding, which the stream finds by
 * itself.
 */
#ifndef FP8Q_CODES_H
#define FP8Q_CODES_H

#include "model/forward.h"
#include "plan/plan.h"

struct fp8q_coded {
    uint64_t offset;       /* UINT64_MAX: not rounded here */
    struct fp8q_grid grid; /* of its scales */
    uint64_t grid_cols;    /* scales of a row of them */
    size_t group;          /* fp8q_piece.group */
    float *scales;         /* NULL: nothing was put yet */
};

struct fp8q_codes {
    const struct fp8q_plan *plan;
    const struct fp8q_kernel *kernel;
    struct fp8q_coded *of; /* by source tensor */
    char *path;            /* of the file when it had a name: for messages */
    int fd;
    uint64_t size;
    float *group_amax;             /* by fp8q_piece.group; negative: not known yet */
    struct fp8q_stand_in stand_in; /* what the network sees of them */
};

/* Bytes of the working file: of all two-dimensional weights of the plan that become FP8.  */
uint64_t fp8q_codes_size(const struct fp8q_plan *plan);

/* Creates the working file at @path and takes the name away.  fp8q_codes_close() it in every case.  */
int fp8q_codes_open(const struct fp8q_plan *plan, const struct fp8q_kernel *kernel,
                    const char *path, struct fp8q_codes *codes_out, struct fp8q_error *err);
void fp8q_codes_close(struct fp8q_codes *codes);

/* Whether source tensor @source is rounded here.  */
bool fp8q_codes_take(const struct fp8q_codes *codes, size_t source);
/* Room for its scales, before its first values are put.  Those of each stripe are for whoever puts it to
 * fill in; but one for the whole tensor, or for all that shares it, is there already.  */
int fp8q_codes_begin(struct fp8q_codes *codes, size_t source, struct fp8q_error *err);
/* Scale of the element [row, col], and columns from @col on that share it, itself counted.  */
float *fp8q_coded_scale(const struct fp8q_coded *coded, uint64_t row, uint64_t col);
uint64_t fp8q_coded_run(const struct fp8q_coded *coded, uint64_t n_cols, uint64_t col);
/* Rows from @row on, whole.  Any thread.  */
int fp8q_codes_put(const struct fp8q_codes *codes, size_t source, uint64_t row, uint64_t n_rows,
                   const uint8_t *values, struct fp8q_error *err);
/* A rectangle of it, packed row-major.  Any thread.  */
int fp8q_codes_get(const struct fp8q_codes *codes, size_t source, const struct fp8q_tile *tile,
                   uint8_t *values_out, struct fp8q_error *err);

#endif
