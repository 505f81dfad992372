/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_header.c - tensor headers.  The input is a file; where its length field points beyond the
 * end, all that follows is the text and the field is the size of the data section, so that small
 * inputs reach large offsets.  An accepted header holds its promises and survives emit and a second
 * parse.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "base/mem.h"
#include "format/safetensors.h"

static void require_promises(const struct fp8q_st_header *header, uint64_t data_size)
{
    uint64_t end = 0;
    for (size_t i = 0; i < header->n_tensors; i++) {
        const struct fp8q_st_tensor *t = &header->tensors[i];
        uint64_t count, bits;
        FUZZ_REQUIRE(t->begin == end && t->end >= t->begin);
        FUZZ_REQUIRE(fp8q_shape_count(t->shape, t->ndim, &count));
        FUZZ_REQUIRE(fp8q_mul_u64(count, fp8q_dtype_bits(t->dtype), &bits));
        FUZZ_REQUIRE(bits % 8 == 0 && bits / 8 == t->end - t->begin);
        for (size_t j = 0; j < i && i < 100; j++)
            FUZZ_REQUIRE(strcmp(t->name, header->tensors[j].name) != 0);
        end = t->end;
    }
    FUZZ_REQUIRE(end == data_size);
}

static void require_same(const struct fp8q_st_header *a, const struct fp8q_st_header *b)
{
    FUZZ_REQUIRE(a->n_tensors == b->n_tensors && a->n_metadata == b->n_metadata);
    for (size_t i = 0; i < a->n_tensors; i++) {
        const struct fp8q_st_tensor *x = &a->tensors[i], *y = &b->tensors[i];
        FUZZ_REQUIRE(strcmp(x->name, y->name) == 0 && x->dtype == y->dtype);
        FUZZ_REQUIRE(x->begin == y->begin && x->end == y->end && x->ndim == y->ndim);
        for (uint32_t d = 0; d < x->ndim; d++)
            FUZZ_REQUIRE(x->shape[d] == y->shape[d]);
    }
    for (size_t i = 0; i < a->n_metadata; i++) {
        const struct fp8q_st_pair *x = &a->metadata[i], *y = &b->metadata[i];
        FUZZ_REQUIRE(x->key_len == y->key_len && x->value_len == y->value_len);
        FUZZ_REQUIRE(memcmp(x->key, y->key, x->key_len) == 0);
        FUZZ_REQUIRE(memcmp(x->value, y->value, x->value_len) == 0);
    }
}

static void require_round_trip(const struct fp8q_st_header *header, uint64_t data_size)
{
    struct fp8q_text out = {0};
    struct fp8q_st_header again;
    int status = fp8q_st_emit(header->tensors, header->n_tensors, header->metadata,
                              header->n_metadata, 0, &out, NULL);
    FUZZ_REQUIRE(status == FP8Q_OK && out.len % 8 == 0);
    status = fp8q_st_parse(out.data + 8, out.len - 8, data_size, "emitted", &again, NULL);
    FUZZ_REQUIRE(status == FP8Q_OK);
    require_same(header, &again);
    fp8q_st_reset(&again);
    fp8q_text_reset(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fp8q_st_header header;
    struct fp8q_error err = {0};
    uint64_t len = 0, data_size;
    if (size < 8)
        return 0;
    for (size_t i = 0; i < 8; i++)
        len |= (uint64_t)data[i] << (8 * i);
    if (len > size - 8) {
        data_size = len;
        len = size - 8;
    } else {
        data_size = size - 8 - len;
    }
    int status =
        fp8q_st_parse((const char *)data + 8, (size_t)len, data_size, "input", &header, &err);
    if (status == FP8Q_OK) {
        require_promises(&header, data_size);
        require_round_trip(&header, data_size);
    } else {
        FUZZ_REQUIRE(status == FP8Q_E_FORMAT && err.id[0] && err.message[0]);
    }
    fp8q_st_reset(&header);
    return 0;
}
