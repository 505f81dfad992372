/* SPDX-License-Identifier: Apache-2.0
 *
 * crc.c - CRC-32 of bytes and of files.
 */
#include "base/crc.h"

#include <libdeflate.h>
#include <stdlib.h>
#include <zlib.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/io.h"
#include "base/mem.h"

/* ---- of bytes -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#define WIDE __attribute__((target("avx512f,avx512dq,vpclmulqdq")))
enum { LANES = 4, LANE = 64, STEP = LANES * LANE };

/* x^(bits + 32) and x^(bits - 32) modulo the polynomial 0x04c11db7, each with its bits reversed and one
 * to the left, as the reflected product needs them: what moves 128 bits forward by @bits.  */
static const uint64_t forward_2048[2] = {0x11542778aULL, 0x1322d1430ULL};
static const uint64_t forward_512[2] = {0x154442bd4ULL, 0x1c6e41596ULL};
static const uint64_t forward_128[2] = {0x1751997d0ULL, 0x0ccaa009eULL};

WIDE static __m512i forward(__m512i a, __m512i by, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, by, 0x00),
                                     _mm512_clmulepi64_epi128(a, by, 0x11), next, 0x96);
}

WIDE static __m512i factor(const uint64_t pair[2])
{
    return _mm512_broadcast_i64x2(_mm_set_epi64x((long long)pair[1], (long long)pair[0]));
}

/* Whole steps of @data, of which there is at least one, folded to the 16 bytes at @rest_out that have
 * the same remainder.  */
WIDE static size_t fold(uint32_t crc, const char *data, size_t len, char rest_out[16])
{
    __m512i lane[LANES], by = factor(forward_2048);
    for (size_t i = 0; i < LANES; i++)
        lane[i] = _mm512_loadu_si512(data + i * LANE);
    lane[0] = _mm512_xor_si512(lane[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc)));

    size_t at = STEP;
    for (; len - at >= STEP; at += STEP)
        for (size_t i = 0; i < LANES; i++)
            lane[i] = forward(lane[i], by, _mm512_loadu_si512(data + at + i * LANE));

    by = factor(forward_512);
    for (size_t i = 1; i < LANES; i++)
        lane[0] = forward(lane[0], by, lane[i]);

    /* The four quarters of the last, one onto the next.  */
    __m512i sum = _mm512_zextsi128_si512(_mm512_castsi512_si128(lane[0]));
    by = factor(forward_128);
    for (size_t i = 1; i < 4; i++) {
        lane[0] = _mm512_shuffle_i64x2(lane[0], lane[0], 0x39);
        sum = forward(sum, by, lane[0]);
    }
    _mm_storeu_si128((__m128i *)(void *)rest_out, _mm512_castsi512_si128(sum));
    return at;
}

/* libdeflate 1.14 multiplies 128 bits at a time, for 17 GB/s; this takes 512 where the machine can.  */
static size_t crc_wide(uint32_t *crc, const char *data, size_t len)
{
    char rest[16];
    if (len < STEP || !__builtin_cpu_supports("vpclmulqdq") || !__builtin_cpu_supports("avx512dq"))
        return 0;

    size_t done = fold(*crc, data, len, rest);
    *crc = libdeflate_crc32(UINT32_MAX, rest, sizeof(rest)); /* that is, from a remainder of 0 */
    return done;
}
#else
static size_t crc_wide(uint32_t *crc, const char *data, size_t len)
{
    (void)crc, (void)data, (void)len;
    return 0;
}
#endif

uint32_t fp8q_crc32(uint32_t crc, const void *data, size_t len)
{
    size_t done = crc_wide(&crc, data, len);
    /* No bytes may come with no address, to which nothing may be added.  */
    return libdeflate_crc32(crc, done ? (const char *)data + done : data, len - done);
}

uint32_t fp8q_crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
    return (uint32_t)crc32_combine(crc_a, crc_b, (z_off_t)len_b);
}

/* ---- of files -------------------------------------------------------------------------------- */

enum { CHUNK = 1 << 18 };

/* Adds the @size bytes of an open file to *@crc, by way of @buf.  */
static int add_file(int fd, uint64_t size, const char *path, char *buf, uint32_t *crc,
                    struct fp8q_error *err)
{
    for (uint64_t at = 0; at < size; at += CHUNK) {
        size_t n = (size_t)fp8q_min_u64(size - at, CHUNK);
        FP8Q_TRY(fp8q_pread(fd, buf, n, at, path, err));
        *crc = fp8q_crc32(*crc, buf, n);
    }
    return FP8Q_OK;
}

int fp8q_file_crc32(const char *path, uint32_t *crc_out, struct fp8q_error *err)
{
    struct stat st;
    int fd;

    *crc_out = 0;
    FP8Q_TRY(fp8q_open_read(path, &st, &fd, err));

    char *buf = malloc(CHUNK);
    int status =
        buf ? add_file(fd, (uint64_t)st.st_size, path, buf, crc_out, err) : fp8q_fail_nomem(err);

    free(buf);
    (void)fp8q_close(&fd, path, NULL);
    return status;
}
