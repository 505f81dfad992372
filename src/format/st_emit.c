/* SPDX-License-Identifier: Apache-2.0
 *
 * st_emit.c - writes a header as the official writer does.  Order, offsets and metadata are the
 * caller's; this file refuses what no reader would accept.
 */
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format/lex.h"
#include "base/mem.h"
#include "base/utf8.h"

/* Decimal digits; far faster than printf for millions of offsets.  */
static void add_u64(struct fp8q_text *out, uint64_t value)
{
    char digits[20];
    size_t n = sizeof(digits);

    do
        digits[--n] = (char)('0' + value % 10);
    while (value /= 10);
    fp8q_text_add(out, digits + n, sizeof(digits) - n);
}

static bool is_utf8(const char *text, size_t len)
{
    uint32_t cp;
    for (size_t i = 0, n; i < len; i += n) {
        n = fp8q_utf8_decode(text + i, len - i, &cp);
        if (n == 0)
            return false;
    }
    return true;
}

static int check_tensor(const struct fp8q_st_tensor *t, uint64_t expected, struct fp8q_error *err)
{
    struct fp8q_shown shown;
    uint64_t count, bits;
    fp8q_show(&shown, t->name);

    /* Read back, such a name would be no tensor, or no text.  */
    if (strcmp(t->name, "__metadata__") == 0 || !is_utf8(t->name, strlen(t->name)))
        return fp8q_fail(err, FP8Q_E_ARG, "bad-name", "tensor name \"%s\" cannot be written",
                         shown.text);

    /* No holes: the format has none, and every byte must have an owner.  */
    if (t->begin != expected)
        return fp8q_fail(err, FP8Q_E_ARG, "offset",
                         "tensor \"%s\" begins at %" PRIu64 ", the previous one ends at %" PRIu64,
                         shown.text, t->begin, expected);

    if (!fp8q_shape_count(t->shape, t->ndim, &count) ||
        !fp8q_mul_u64(count, fp8q_dtype_bits(t->dtype), &bits) || bits % 8 || t->end < t->begin ||
        bits / 8 != t->end - t->begin)
        return fp8q_fail(err, FP8Q_E_ARG, "size",
                         "tensor \"%s\": %s of this shape is not %" PRIu64 " bytes", shown.text,
                         fp8q_dtype_name(t->dtype), t->end - t->begin);
    return FP8Q_OK;
}

/* Sorts @names and refuses equal ones.  Frees @names.  */
static int check_unique(struct fp8q_lex_name *names, size_t count, const char *kind,
                        struct fp8q_error *err)
{
    struct fp8q_shown shown;
    int status = FP8Q_OK;

    const struct fp8q_lex_name *twice = fp8q_lex_find_twin(names, count);
    if (twice)
        status = fp8q_fail(err, FP8Q_E_ARG, "dup-key", "%s \"%s\" twice", kind,
                           fp8q_show_n(&shown, twice->bytes, twice->len));
    free(names);
    return status;
}

static int check_input(const struct fp8q_st_tensor *tensors, size_t n_tensors,
                       const struct fp8q_st_pair *metadata, size_t n_metadata,
                       struct fp8q_error *err)
{
    struct fp8q_shown shown;
    uint64_t end = 0;

    for (size_t i = 0; i < n_tensors; i++) {
        FP8Q_TRY(check_tensor(&tensors[i], end, err));
        end = tensors[i].end;
    }

    for (size_t i = 0; i < n_metadata; i++) {
        if (!is_utf8(metadata[i].key, metadata[i].key_len) ||
            !is_utf8(metadata[i].value, metadata[i].value_len))
            return fp8q_fail(err, FP8Q_E_ARG, "metadata", "metadata \"%s\" is no UTF-8",
                             fp8q_show_n(&shown, metadata[i].key, metadata[i].key_len));
    }

    /* Readers refuse a name that stands twice, so none is written.  */
    struct fp8q_lex_name *names = fp8q_array(n_tensors, sizeof(*names));
    if (!names)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < n_tensors; i++) {
        size_t len = strlen(tensors[i].name);
        names[i] =
            (struct fp8q_lex_name){fp8q_lex_hash(tensors[i].name, len), tensors[i].name, len, i};
    }

    FP8Q_TRY(check_unique(names, n_tensors, "tensor", err));
    names = fp8q_array(n_metadata, sizeof(*names));
    if (!names)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < n_metadata; i++)
        names[i] = (struct fp8q_lex_name){fp8q_lex_hash(metadata[i].key, metadata[i].key_len),
                                          metadata[i].key, metadata[i].key_len, i};
    return check_unique(names, n_metadata, "metadata key", err);
}

static void add_metadata(struct fp8q_text *out, const struct fp8q_st_pair *metadata, size_t count)
{
    fp8q_text_puts(out, "\"__metadata__\":");

    for (size_t i = 0; i < count; i++) {
        fp8q_text_puts(out, i ? "," : "{");
        fp8q_text_json_string(out, metadata[i].key, metadata[i].key_len);
        fp8q_text_puts(out, ":");
        fp8q_text_json_string(out, metadata[i].value, metadata[i].value_len);
    }

    fp8q_text_puts(out, "}");
}

static void add_tensor(struct fp8q_text *out, const struct fp8q_st_tensor *t)
{
    fp8q_text_json_string(out, t->name, strlen(t->name));

    /* The order of the official writer, which has no white space either.  */
    fp8q_text_puts(out, ":{\"dtype\":\"");
    fp8q_text_puts(out, fp8q_dtype_name(t->dtype));
    fp8q_text_puts(out, "\",\"shape\":[");

    for (uint32_t i = 0; i < t->ndim; i++) {
        if (i)
            fp8q_text_puts(out, ",");
        add_u64(out, t->shape[i]);
    }

    fp8q_text_puts(out, "],\"data_offsets\":[");
    add_u64(out, t->begin);
    fp8q_text_puts(out, ",");
    add_u64(out, t->end);
    fp8q_text_puts(out, "]}");
}

int fp8q_st_emit(const struct fp8q_st_tensor *tensors, size_t n_tensors,
                 const struct fp8q_st_pair *metadata, size_t n_metadata, uint64_t min_size,
                 struct fp8q_text *out, struct fp8q_error *err)
{
    size_t start = out->len;

    FP8Q_TRY(check_input(tensors, n_tensors, metadata, n_metadata, err));
    if (min_size > FP8Q_ST_MAX_HEADER)
        return fp8q_fail(err, FP8Q_E_ARG, "header-too-large",
                         "a header of %" PRIu64 " bytes was asked for", min_size);

    fp8q_text_add(out, "\0\0\0\0\0\0\0\0{", 9); /* the length comes last */
    if (n_metadata)
        add_metadata(out, metadata, n_metadata);

    for (size_t i = 0; i < n_tensors; i++) {
        if (i || n_metadata)
            fp8q_text_puts(out, ",");
        add_tensor(out, &tensors[i]);
    }

    fp8q_text_puts(out, "}");
    /* Payload that begins at a multiple of 8 can be mapped and used where it lies.  */
    while (!out->failed && ((out->len - start) % 8 || out->len - start < min_size))
        fp8q_text_add(out, " ", 1);

    FP8Q_TRY(fp8q_text_status(out, err));
    /* Without the length field itself.  */
    uint64_t len = out->len - start - 8;
    if (len > FP8Q_ST_MAX_HEADER)
        return fp8q_fail(err, FP8Q_E_UNSUPPORTED, "header-too-large",
                         "a header of %" PRIu64 " bytes exceeds the format's limit of %u; "
                         "use more shards",
                         len, FP8Q_ST_MAX_HEADER);

    for (size_t i = 0; i < 8; i++)
        out->data[start + i] = (char)(len >> (8 * i));
    return FP8Q_OK;
}
