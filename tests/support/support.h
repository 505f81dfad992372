/* SPDX-License-Identifier: Apache-2.0
 *
 * support.h - what the test programs share.  Includes cmocka in the order that it needs.
 */
#ifndef FP8Q_TESTS_SUPPORT_H
#define FP8Q_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

/* Fails the test with the error's message unless @status is 0.  */
void assert_ok(int status, const struct fp8q_error *err);
/* The call failed with this status and the message holds @part.  */
void assert_failed(int status, enum fp8q_status expected, const struct fp8q_error *err,
                   const char *part);

/* Path below tests/data; valid until the next call of the same thread but three.  */
const char *data_path(const char *fmt, ...) FP8Q_PRINTF(1, 2);

/* A fresh empty directory for one test; removed with temp_dir_remove().  */
char *temp_dir_make(void);
void temp_dir_remove(char *dir);

/* Seeded generator (splitmix64).  test_seed() takes FP8Q_SEED from the environment or the clock
 * and prints it, so that a failure can be repeated.  */
uint64_t test_seed(void);
uint64_t random_u64(uint64_t *state);

/* The bits of an F32, and back.  */
uint32_t bits_of(float x);
float float_of(uint32_t bits);

/* @size bytes that end right before (or begin right after) a page that cannot be touched.  */
enum guard_side { GUARD_AFTER, GUARD_BEFORE };
void *guard_alloc(size_t size, enum guard_side side);
void guard_free(void *data, size_t size, enum guard_side side);

#endif
