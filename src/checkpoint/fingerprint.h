/* SPDX-License-Identifier: Apache-2.0
 *
 * fingerprint.h - which weights (or inputs, or statistics) some evidence speaks of.
 *
 * A fingerprint is one CRC-32 over the records of all tensors, sorted by the bytes of their names.
 * A record is: the name, a NUL, the dtype as safetensors spells it, a NUL, the number of dimensions
 * (U32, little-endian), each size (U64, little-endian), and the CRC-32 of the tensor's bytes (U32,
 * little-endian). It does not depend on sharding, file names, order in the file or metadata.  It
 * guards against accident, not against forgery.
 */
#ifndef FP8Q_FINGERPRINT_H
#define FP8Q_FINGERPRINT_H

#include "checkpoint/checkpoint.h"

/* CRC of the records so far -> with one more.  Start with 0 and add in the order of names.  */
uint32_t fp8q_fingerprint_add(uint32_t crc, const char *name, enum fp8q_dtype dtype,
                              const uint64_t *shape, uint32_t ndim, uint32_t data_crc);

/* Fingerprint of all tensors of @ckpt; reads all bytes once, on @n_threads threads.  @watch may
 * be NULL.  */
int fp8q_fingerprint(const struct fp8q_ckpt *ckpt, unsigned n_threads,
                     const struct fp8q_watch *watch, uint32_t *fingerprint_out,
                     struct fp8q_error *err);

#endif
