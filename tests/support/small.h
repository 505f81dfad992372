/* SPDX-License-Identifier: Apache-2.0
 *
 * small.h - a checkpoint of a few hundred kilobytes, and a digest of whatever stands at a path.
 */
#ifndef FP8Q_TESTS_SMALL_H
#define FP8Q_TESTS_SMALL_H

#include <stdint.h>

/* Writes a Llama-like checkpoint of two shards with index, config and side files (one of them in a
 * sub-directory) to the new directory @path; or its tensors alone as one file.  Exits on failure.
 */
void small_dir(const char *path, uint64_t seed);
void small_file(const char *path, uint64_t seed);

/* CRC-32 over names, kinds and bytes of a whole tree; 0 if nothing stands at @path.  */
uint32_t tree_digest(const char *path);
/* Copies a tree.  */
void tree_copy(const char *from, const char *to);

#endif
