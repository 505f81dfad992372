/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h - how fast this machine is, and what share of that a conversion reaches.
 */
#ifndef FP8Q_BENCH_H
#define FP8Q_BENCH_H

#include "base/watch.h"
#include "kernel/kernel.h"

/* Operations of a kernel, and the two loops over a stripe that a conversion consists of.  */
enum fp8q_bench_op {
    FP8Q_BENCH_AMAX,
    FP8Q_BENCH_ENCODE,
    FP8Q_BENCH_DECODE,
    FP8Q_BENCH_TO_F32,
    FP8Q_BENCH_SCAN, /* of codes: has no float format */
    FP8Q_BENCH_CHECK,
    FP8Q_BENCH_STRIPE_AMAX,
    FP8Q_BENCH_STRIPE_ENCODE,
    FP8Q_BENCH_N_OPS
};
extern const char *const fp8q_bench_ops[FP8Q_BENCH_N_OPS];

struct fp8q_bench_rate {
    double bytes_per_s; /* of what is read */
    double elems_per_s;
};

/* Weights and codes in memory: small enough for the second-level cache, so that the arithmetic is
 * measured and not the memory.  */
struct fp8q_bench_data {
    size_t n_elems;
    void *weights[FP8Q_N_FLOATS]; /* about normal(0, 1) */
    uint8_t *codes;
    float *wide;
    char *other; /* as large as the F32 weights: something to copy to */
};
#define FP8Q_BENCH_ELEMS ((size_t)128 * 1024)
int fp8q_bench_data_create(size_t n_elems, struct fp8q_bench_data *data_out,
                           struct fp8q_error *err);
void fp8q_bench_data_reset(struct fp8q_bench_data *data);

/* One operation on one core: the best of several rounds.  */
struct fp8q_bench_rate fp8q_bench_kernel(const struct fp8q_kernel *kernel, enum fp8q_bench_op op,
                                         enum fp8q_float from, struct fp8q_bench_data *data);
/* CRC-32 of the F32 weights.  */
struct fp8q_bench_rate fp8q_bench_crc(struct fp8q_bench_data *data);
/* memcpy of @size_bytes on @threads threads: bytes copied a second, all threads together.  */
int fp8q_bench_memory(uint64_t size_bytes, unsigned threads, double *bytes_per_s_out,
                      struct fp8q_error *err);

struct fp8q_bench_options {
    const char *dir;     /* a directory is made in it, and removed at the end, whatever happens */
    uint64_t size_bytes; /* of the input, about */
    unsigned threads, rounds;
    const struct fp8q_kernel *kernel;
    const struct fp8q_watch *watch;
};

/* Medians, in seconds, of what was done in turn to the same input (which is in the page cache).  */
struct fp8q_bench_files {
    uint64_t source_bytes, output_bytes; /* of files */
    double read;                         /* all of the source, in chunks as a conversion does */
    double write;                        /* as many bytes as the output has, reserved first */
    double transfer;                     /* both, with nothing done to the bytes: the limit */
    double copy;                         /* a copy of the source on one thread, as cp does */
    double quantize;
    double flush_write, flush_copy; /* fsync after write and copy (a conversion includes its own) */
};
int fp8q_bench_files(const struct fp8q_bench_options *options, struct fp8q_bench_files *result_out,
                     struct fp8q_error *err);

/* Seconds on a clock that is never set.  */
double fp8q_bench_now(void);

#endif
