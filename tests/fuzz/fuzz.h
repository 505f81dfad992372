/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz.h - what the fuzz targets share.
 */
#ifndef FP8Q_TESTS_FUZZ_H
#define FP8Q_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* An invariant: its failure is a finding, as a sanitizer report is.  */
#define FUZZ_REQUIRE(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
