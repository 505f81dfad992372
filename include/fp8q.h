/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8q.h - the public interface of the fp8q library, in the order of its data flow:
 *
 *     errors -> checkpoint -> plan -> convert -> verify -> numerics
 *
 * Conventions.  A function returns 0 or one negative `enum fp8q_status` and, if `err` is not NULL,
 * leaves there what happened: where, what was expected, what was found.  Out-parameters are named
 * `*_out`, follow the inputs and are defined on failure too.  Handles come from `_open`/`_create` and
 * have one matching release that accepts NULL.  A returned `const char *` is borrowed.
 * The library never prints, never exits and never reads the environment.
 */
#ifndef FP8Q_H
#define FP8Q_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FP8Q_VERSION "0.1.0"

/* ---- errors ------------------------------------------------------------------------------ */

/* Kinds answer "what can the caller do about it".  */
enum fp8q_status {
    FP8Q_OK = 0,
    FP8Q_E_IO = -1,          /* the system refused: no such file, no space, ... */
    FP8Q_E_FORMAT = -2,      /* a file breaks its own format */
    FP8Q_E_UNSUPPORTED = -3, /* valid, but not ours: dtype, model family, ... */
    FP8Q_E_NOMEM = -4,
    FP8Q_E_ARG = -5,      /* the request is wrong: output exists, pattern without a match, ... */
    FP8Q_E_MISMATCH = -6, /* a check failed: verify found a difference, nothing to quantize */
    FP8Q_E_POLICY = -7,   /* quantized set widened, a vision tower touched */
    FP8Q_E_EVIDENCE = -8, /* evidence, calibration or parts missing, foreign or stale */
    FP8Q_E_CANCELLED = -9 /* fp8q_cancel() was called */
};

/* @id is a short stable word ("dst-exists") for machines, @message is for people.  */
struct fp8q_error {
    enum fp8q_status status;
    char id[40];
    char message[2000];
};

/* A warning list is owned by the caller; zero it, hand it in, and reset it at the end.  */
struct fp8q_warning {
    char id[40];
    char *message;
};
struct fp8q_warnings {
    struct fp8q_warning *items;
    size_t count;
};
void fp8q_warnings_reset(struct fp8q_warnings *warnings);

/* Called now and then by whichever thread has done work; must be quick and thread-safe.  @stage is a
 * static string, @done and @total are bytes.  */
struct fp8q_progress {
    void (*update)(void *ctx, const char *stage, uint64_t done, uint64_t total);
    void *ctx;
};

/* Asks every running call to stop soon with FP8Q_E_CANCELLED.  Safe in a signal handler.  */
void fp8q_cancel(void);

#ifdef __cplusplus
}
#endif
#endif
