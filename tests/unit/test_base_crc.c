/* SPDX-License-Identifier: Apache-2.0
 *
 * test_base_crc.c - the checksum against zlib's, over lengths around every step of the vector code,
 * starts and alignments; and joined from parts.
 */
#include "support/support.h"

#include <zlib.h>

#include "base/crc.h"

enum { SIZE = 3000, LONG = 1 << 20 };

static void fill(unsigned char *data, size_t len, uint64_t seed)
{
    for (size_t i = 0; i < len; i++)
        data[i] = (unsigned char)random_u64(&seed);
}

static void every_length_is_that_of_zlib(void **state)
{
    (void)state;
    static unsigned char data[SIZE + 64];
    fill(data, sizeof(data), 41);

    for (size_t len = 0; len <= SIZE; len++) {
        size_t at = len % 64;
        uint32_t start = len % 3 ? (uint32_t)len * 2654435761U : 0;
        assert_int_equal(fp8q_crc32(start, data + at, len), crc32_z(start, data + at, len));
    }
}

static void long_and_uniform_bytes_are_those_of_zlib(void **state)
{
    (void)state;
    unsigned char *data = malloc(LONG);
    assert_non_null(data);

    fill(data, LONG, 42);
    assert_int_equal(fp8q_crc32(0, data, LONG - 1), crc32_z(0, data, LONG - 1));

    for (int byte = 0; byte < 256; byte += 255) {
        memset(data, byte, LONG);
        assert_int_equal(fp8q_crc32(0, data, LONG), crc32_z(0, data, LONG));
    }
    free(data);
}

static void parts_join(void **state)
{
    (void)state;
    static unsigned char data[SIZE];
    fill(data, SIZE, 43);
    uint32_t whole = fp8q_crc32(0, data, SIZE);

    for (size_t cut = 0; cut <= SIZE; cut += 37) {
        uint32_t a = fp8q_crc32(0, data, cut), b = fp8q_crc32(0, data + cut, SIZE - cut);
        assert_int_equal(fp8q_crc32(a, data + cut, SIZE - cut), whole);
        assert_int_equal(fp8q_crc32_join(a, b, SIZE - cut), whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_is_that_of_zlib),
        cmocka_unit_test(long_and_uniform_bytes_are_those_of_zlib),
        cmocka_unit_test(parts_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
