/* SPDX-License-Identifier: Apache-2.0
 *
 * crc.h - CRC-32 (zlib's, IEEE 802.3) of bytes and of files.
 */
#ifndef FP8Q_CRC_H
#define FP8Q_CRC_H

#include "base/error.h"

/* CRC-32 (zlib's, IEEE 802.3) of @len more bytes after @crc; start with 0.  */
uint32_t fp8q_crc32(uint32_t crc, const void *data, size_t len);
/* CRC-32 of A||B from those of A and B.  */
uint32_t fp8q_crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

/* Checksum of one file.  */
int fp8q_file_crc32(const char *path, uint32_t *crc_out, struct fp8q_error *err);

#endif
