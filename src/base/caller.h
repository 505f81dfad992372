/* SPDX-License-Identifier: Apache-2.0
 *
 * caller.h - structs that come from a caller of the library, who may have been built with an older
 * header: each begins with its size.
 */
#ifndef FP8Q_CALLER_H
#define FP8Q_CALLER_H

#include "base/error.h"

/* Copies the caller's struct @from into @to, which is zeroed and has @to_size bytes; members that
 * the caller's does not have stay zero.  @name is for the message.  FP8Q_E_ARG for NULL
 * ("null-argument"), and for a size of 0 or one that this library does not know ("struct-size").  */
int fp8q_struct_copy(void *to, size_t to_size, const void *from, const char *name,
                     struct fp8q_error *err);

#endif
