/* SPDX-License-Identifier: Apache-2.0
 *
 * network.c - which network a config.json describes.
 *
 * Weights alone do not make a function: another rope base or norm epsilon makes another one of the
 * same bytes.  Members are added up rather than chained, so that their order does not matter.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/crc.h"
#include "gate/evidence.h"

/* What changes no result, or (quantization) is a result of the conversion that is judged.  */
static bool is_noise(const char *key)
{
    static const char *const keys[] = {
        "quantization_config", "compression_config", "transformers_version", "torch_dtype", "dtype",
        "_name_or_path",       "use_cache",          "_attn_implementation"};

    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

static uint32_t add_text(uint32_t crc, char kind, const char *text)
{
    crc = fp8q_crc32(crc, &kind, 1);
    return fp8q_crc32(crc, text, strlen(text) + 1);
}

static uint32_t add_uint(uint32_t crc, uint64_t value)
{
    uint8_t bytes[8];
    /* Byte by byte: the same on machines of either byte order.  */
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return fp8q_crc32(crc, bytes, sizeof(bytes));
}

/* The parser bounds the depth.  */
static uint32_t value_crc(const struct fp8q_json *value) // NOLINT(misc-no-recursion)
{
    const char *text = fp8q_json_string(value, NULL);
    double number = fp8q_json_number(value, (double)NAN);
    char digits[40];
    uint64_t sum = 0;

    if (text)
        return add_text(0, 's', text);
    if (!isnan(number)) {
        /* 17 digits tell all doubles apart, and 1e-5 is 0.00001 however it was written.  */
        snprintf(digits, sizeof(digits), "%.17g", number);
        return add_text(0, 'n', digits);
    }

    if (fp8q_json_is_object(value)) {
        /* A member that is null is as good as absent, as for readers.  */
        for (const struct fp8q_json *m = fp8q_json_first(value); m; m = fp8q_json_next(m))
            if (!is_noise(fp8q_json_key(m)) && !fp8q_json_is_null(m))
                sum += add_uint(add_text(0, 'k', fp8q_json_key(m)), value_crc(m));
        return add_uint(add_text(0, 'o', ""), sum);
    }

    if (fp8q_json_is_array(value)) {
        uint32_t crc = add_text(0, 'a', "");
        for (const struct fp8q_json *m = fp8q_json_first(value); m; m = fp8q_json_next(m))
            crc = add_uint(crc, value_crc(m));
        return crc;
    }

    if (fp8q_json_is_null(value))
        return add_text(0, '0', "");
    return add_text(0, 'b', fp8q_json_bool(value, false) ? "true" : "false");
}

struct fp8q_fingerprint fp8q_network_fingerprint(const struct fp8q_json *config)
{
    if (!fp8q_json_is_object(config))
        return (struct fp8q_fingerprint){0};
    return (struct fp8q_fingerprint){true, value_crc(config)};
}
