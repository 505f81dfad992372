/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.c - reads a header: one pass over its text, then sort and check.
 *
 * Directed by the schema, so that no tree is built and every number stays an exact uint64_t.
 * Nothing is allocated from a number of the file: arrays grow with what was read.  Files are read
 * in st_read.c, headers written in st_emit.c; the JSON grammar is in lex.c.
 */
#include "format/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "format/lex.h"
#include "base/mem.h"

/* ---- types --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned bits;
} dtypes[FP8Q_N_DTYPES] = {
    [FP8Q_U64] = {"U64", 64},
    [FP8Q_I64] = {"I64", 64},
    [FP8Q_F64] = {"F64", 64},
    [FP8Q_C64] = {"C64", 64},
    [FP8Q_F32] = {"F32", 32},
    [FP8Q_U32] = {"U32", 32},
    [FP8Q_I32] = {"I32", 32},
    [FP8Q_BF16] = {"BF16", 16},
    [FP8Q_F16] = {"F16", 16},
    [FP8Q_U16] = {"U16", 16},
    [FP8Q_I16] = {"I16", 16},
    [FP8Q_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 8},
    [FP8Q_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 8},
    [FP8Q_F8_E8M0] = {"F8_E8M0", 8},
    [FP8Q_F8_E4M3] = {"F8_E4M3", 8},
    [FP8Q_F8_E5M2] = {"F8_E5M2", 8},
    [FP8Q_I8] = {"I8", 8},
    [FP8Q_U8] = {"U8", 8},
    [FP8Q_F6_E3M2] = {"F6_E3M2", 6},
    [FP8Q_F6_E2M3] = {"F6_E2M3", 6},
    [FP8Q_F4] = {"F4", 4},
    [FP8Q_BOOL] = {"BOOL", 8},
};

const char *fp8q_dtype_name(enum fp8q_dtype dtype)
{
    return (unsigned)dtype < FP8Q_N_DTYPES ? dtypes[dtype].name : "?";
}

unsigned fp8q_dtype_bits(enum fp8q_dtype dtype)
{
    return dtypes[dtype].bits;
}

bool fp8q_dtype_parse(const char *name, size_t len, enum fp8q_dtype *dtype_out)
{
    for (int i = 0; i < FP8Q_N_DTYPES; i++) {
        if (strlen(dtypes[i].name) == len && memcmp(dtypes[i].name, name, len) == 0) {
            *dtype_out = (enum fp8q_dtype)i;
            return true;
        }
    }
    return false;
}

bool fp8q_shape_count(const uint64_t *shape, uint32_t ndim, uint64_t *count_out)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < ndim; i++) {
        /* From the left, as the official reader: [2^64-1, 2, 0] overflows, [0, 2^64-1] does not. */
        if (!fp8q_mul_u64(count, shape[i], &count))
            return false;
    }
    *count_out = count;
    return true;
}

/* ---- parsing ------------------------------------------------------------------------------- */

struct parser {
    struct fp8q_lex lex;
    struct fp8q_st_header *header;
    size_t cap_tensors, cap_metadata;
    size_t names_used;
    size_t n_dims, cap_dims;
    bool metadata_seen;
};

/* The arena is as large as the text, and no decoded string with its NUL is longer than the same
 * string with its quotes in the text, so it cannot overflow and its strings never move.  Pages that
 * are never written cost no memory.  */
static const char *keep_string(struct parser *p, struct fp8q_lex_str str, size_t *len_out)
{
    char *dst = p->header->names_arena + p->names_used;

    *len_out = fp8q_lex_decode(&p->lex, str, dst);
    dst[*len_out] = '\0';
    p->names_used += *len_out + 1;
    return dst;
}

static int parse_metadata(struct parser *p)
{
    struct fp8q_lex *lex = &p->lex;
    struct fp8q_st_header *header = p->header;
    struct fp8q_lex_str key, value;
    bool first = true;
    int more;

    if (fp8q_lex_peek(lex) == 'n')
        return fp8q_lex_value(lex, 1, false); /* MLX writes null for "none" */
    if (!fp8q_lex_take(lex, '{'))
        return fp8q_lex_fail(lex, lex->pos, "metadata", "__metadata__ is no object of strings");

    while ((more = fp8q_lex_member(lex, &first, &key)) > 0) {
        if (fp8q_lex_peek(lex) != '"')
            return fp8q_lex_fail(lex, lex->pos, "metadata", "a value in __metadata__ is no string");
        FP8Q_TRY(fp8q_lex_string(lex, &value));
        if (header->n_metadata == FP8Q_ST_MAX_TENSORS)
            return fp8q_lex_fail(lex, lex->pos, "metadata", "more than %u metadata entries",
                                 FP8Q_ST_MAX_TENSORS);

        FP8Q_TRY(fp8q_grow(&header->metadata, header->n_metadata, &p->cap_metadata,
                           sizeof(*header->metadata), lex->err));
        struct fp8q_st_pair *pair = &header->metadata[header->n_metadata++];
        pair->key = keep_string(p, key, &pair->key_len);
        pair->value = keep_string(p, value, &pair->value_len);
    }
    return more;
}

/* "field" error about one tensor.  */
static int fail_field(struct parser *p, const char *name, const char *id, const char *field,
                      const char *expected)
{
    struct fp8q_shown shown, found;
    return fp8q_lex_fail(&p->lex, p->lex.pos, id, "tensor \"%s\": %s: expected %s, found %s",
                         fp8q_show(&shown, name), field, expected, fp8q_lex_found(&p->lex, &found));
}

static int parse_dtype(struct parser *p, struct fp8q_st_tensor *t)
{
    struct fp8q_lex_str str;
    struct fp8q_shown shown, found;
    char text[16];

    if (fp8q_lex_peek(&p->lex) != '"')
        return fail_field(p, t->name, "field", "dtype", "a string");

    size_t pos = p->lex.pos;
    FP8Q_TRY(fp8q_lex_string(&p->lex, &str));

    /* Six bytes of text at most for one of a name; longer cannot be one of ours.  */
    if (str.len <= sizeof(text) * 6) {
        char decoded[sizeof(text) * 6];
        if (fp8q_dtype_parse(decoded, fp8q_lex_decode(&p->lex, str, decoded), &t->dtype))
            return FP8Q_OK;
    }
    /* The official reader refuses unknown types too, so no file in circulation has one.  */
    return fp8q_lex_fail(&p->lex, pos, "dtype", "tensor \"%s\": unknown dtype \"%s\"",
                         fp8q_show(&shown, t->name),
                         fp8q_show_n(&found, p->lex.text + str.begin, str.len));
}

static int parse_u64(struct parser *p, const char *name, const char *field, uint64_t *value_out)
{
    switch (fp8q_lex_u64(&p->lex, value_out)) {
    case FP8Q_LEX_U64:
        return FP8Q_OK;
    case FP8Q_LEX_TOO_LARGE:
        return fail_field(p, name, "int", field, "an integer below 2^64");
    default:
        return fail_field(p, name, "int", field, "a non-negative integer");
    }
}

static int parse_shape(struct parser *p, struct fp8q_st_tensor *t)
{
    bool first = true;
    int more;

    if (!fp8q_lex_take(&p->lex, '['))
        return fail_field(p, t->name, "field", "shape", "an array");

    while ((more = fp8q_lex_item(&p->lex, &first)) > 0) {
        uint64_t size = 0;
        FP8Q_TRY(parse_u64(p, t->name, "shape", &size));

        /* Bounds what one tensor can make the table cost.  */
        if (t->ndim == FP8Q_ST_MAX_RANK)
            return fail_field(p, t->name, "field", "shape", "at most 65535 dimensions");
        FP8Q_TRY(fp8q_grow(&p->header->shape_arena, p->n_dims, &p->cap_dims, sizeof(uint64_t),
                           p->lex.err));

        p->header->shape_arena[p->n_dims++] = size;
        t->ndim++;
    }
    return more;
}

static int parse_offsets(struct parser *p, struct fp8q_st_tensor *t)
{
    uint64_t *const ends[] = {&t->begin, &t->end};
    bool first = true;
    int more;

    if (!fp8q_lex_take(&p->lex, '['))
        return fail_field(p, t->name, "field", "data_offsets", "an array");

    for (size_t i = 0; i < 2; i++) {
        more = fp8q_lex_item(&p->lex, &first);
        if (more < 0)
            return more;
        if (more == 0) {
            p->lex.pos--; /* show the bracket */
            return fail_field(p, t->name, "field", "data_offsets", "two integers");
        }
        FP8Q_TRY(parse_u64(p, t->name, i ? "data_offsets[1]" : "data_offsets[0]", ends[i]));
    }

    if (!fp8q_lex_take(&p->lex, ']'))
        return fail_field(p, t->name, "field", "data_offsets", "']' after two integers");
    return FP8Q_OK;
}

static int parse_tensor(struct parser *p, struct fp8q_st_tensor *t)
{
    static const struct {
        const char *name;
        int (*parse)(struct parser *p, struct fp8q_st_tensor *t);
    } fields[] = {{"dtype", parse_dtype}, {"shape", parse_shape}, {"data_offsets", parse_offsets}};
    enum { N_FIELDS = sizeof(fields) / sizeof(*fields) };
    bool seen[N_FIELDS] = {false};
    struct fp8q_lex *lex = &p->lex;
    struct fp8q_lex_str key;
    struct fp8q_shown shown;
    bool first = true;
    int more;

    if (!fp8q_lex_take(lex, '{'))
        return fail_field(p, t->name, "field", "entry", "an object");

    while ((more = fp8q_lex_member(lex, &first, &key)) > 0) {
        size_t i = 0;
        while (i < N_FIELDS && !fp8q_lex_is(lex, key, fields[i].name))
            i++;
        if (i == N_FIELDS) { /* unknown fields are skipped, as by the official reader */
            FP8Q_TRY(fp8q_lex_value(lex, 2, false));
            continue;
        }
        /* Readers differ in which of two they take, and would see two tensors.  */
        if (seen[i])
            return fp8q_lex_fail(lex, key.begin, "dup-key", "tensor \"%s\": field %s twice",
                                 fp8q_show(&shown, t->name), fields[i].name);
        seen[i] = true;
        FP8Q_TRY(fields[i].parse(p, t));
    }
    if (more < 0)
        return more;

    for (size_t i = 0; i < N_FIELDS; i++) {
        if (!seen[i])
            return fp8q_lex_fail(lex, lex->pos, "field", "tensor \"%s\": %s is missing",
                                 fp8q_show(&shown, t->name), fields[i].name);
    }
    return FP8Q_OK;
}

static int parse_member(struct parser *p, struct fp8q_lex_str key)
{
    struct fp8q_st_header *header = p->header;
    struct fp8q_st_tensor tensor = {0};
    struct fp8q_shown shown;
    size_t len;

    if (fp8q_lex_is(&p->lex, key, "__metadata__")) {
        if (p->metadata_seen)
            return fp8q_lex_fail(&p->lex, key.begin, "dup-key", "__metadata__ twice");
        p->metadata_seen = true;
        return parse_metadata(p);
    }

    /* Kept first: every message about the entry names it.  */
    tensor.name = keep_string(p, key, &len);
    /* Names are C strings from here on.  */
    if (key.has_nul)
        return fp8q_lex_fail(&p->lex, key.begin, "nul-name", "tensor name with U+0000: \"%s\"",
                             fp8q_show_n(&shown, tensor.name, len));
    if (header->n_tensors == FP8Q_ST_MAX_TENSORS)
        return fp8q_lex_fail(&p->lex, key.begin, "header-too-large", "more than %u tensors",
                             FP8Q_ST_MAX_TENSORS);

    FP8Q_TRY(fp8q_grow(&header->tensors, header->n_tensors, &p->cap_tensors,
                       sizeof(*header->tensors), p->lex.err));
    FP8Q_TRY(parse_tensor(p, &tensor));
    /* Counted only when whole: no half-read entry is ever in the table.  */
    header->tensors[header->n_tensors++] = tensor;
    return FP8Q_OK;
}

static int parse_text(struct parser *p)
{
    struct fp8q_lex_str key;
    bool first = true;
    int more;

    FP8Q_TRY(fp8q_lex_utf8(&p->lex));
    if (!fp8q_lex_take(&p->lex, '{'))
        return fp8q_lex_unexpected(&p->lex, p->lex.pos, "'{'");

    while ((more = fp8q_lex_member(&p->lex, &first, &key)) > 0)
        FP8Q_TRY(parse_member(p, key));
    if (more < 0)
        return more;
    FP8Q_TRY(fp8q_lex_end(&p->lex));

    /* The shape arena has stopped moving: its parts lie in the order of the entries.  */
    const uint64_t *shape = p->header->shape_arena;
    for (size_t i = 0; i < p->header->n_tensors; i++) {
        struct fp8q_st_tensor *t = &p->header->tensors[i];
        t->shape = shape;
        if (t->ndim) /* the arena is NULL if all are scalars */
            shape += t->ndim;
    }
    return FP8Q_OK;
}

/* ---- checks over the whole header ---------------------------------------------------------- */

static int fail_tensor(const struct parser *p, const struct fp8q_st_tensor *t, const char *id,
                       const char *fmt, ...) FP8Q_PRINTF(4, 5);
static int fail_tensor(const struct parser *p, const struct fp8q_st_tensor *t, const char *id,
                       const char *fmt, ...)
{
    char text[1000];
    struct fp8q_shown what, name;
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    return fp8q_fail(p->lex.err, FP8Q_E_FORMAT, id, "%s: tensor \"%s\"%s",
                     fp8q_show(&what, p->lex.what), fp8q_show(&name, t->name), text);
}

static int check_names(const struct parser *p)
{
    const struct fp8q_st_header *header = p->header;
    struct fp8q_lex_name *names = fp8q_array(header->n_tensors, sizeof(*names));

    if (!names)
        return fp8q_fail_nomem(p->lex.err);
    /* Sorted by hash, so that it takes n log n whatever names a file has.  */
    for (size_t i = 0; i < header->n_tensors; i++) {
        const char *name = header->tensors[i].name;
        size_t len = strlen(name);
        names[i] = (struct fp8q_lex_name){fp8q_lex_hash(name, len), name, len, i};
    }

    int status = FP8Q_OK;
    const struct fp8q_lex_name *twice = fp8q_lex_find_twin(names, header->n_tensors);
    if (twice)
        status = fail_tensor(p, &header->tensors[twice->index], "dup-key",
                             ": this name stands in the header twice");

    free(names);
    return status;
}

/* Of equal keys the last one counts, as for the official reader.  */
static int drop_repeated_metadata(struct parser *p)
{
    struct fp8q_st_header *header = p->header;
    size_t kept = 0;

    if (header->n_metadata < 2)
        return FP8Q_OK;

    struct fp8q_lex_name *keys = fp8q_array(header->n_metadata, sizeof(*keys));
    if (!keys)
        return fp8q_fail_nomem(p->lex.err);

    for (size_t i = 0; i < header->n_metadata; i++) {
        const struct fp8q_st_pair *pair = &header->metadata[i];
        keys[i] = (struct fp8q_lex_name){fp8q_lex_hash(pair->key, pair->key_len), pair->key,
                                         pair->key_len, i};
    }

    fp8q_lex_sort_names(keys, header->n_metadata);
    for (size_t i = 1; i < header->n_metadata; i++) {
        /* Sorted by place too, so the last of equal keys stays.  */
        if (fp8q_lex_same_name(&keys[i - 1], &keys[i]))
            header->metadata[keys[i - 1].index].key = NULL;
    }

    for (size_t i = 0; i < header->n_metadata; i++) {
        if (header->metadata[i].key)
            header->metadata[kept++] = header->metadata[i];
    }
    header->n_metadata = kept;
    free(keys);
    return FP8Q_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct fp8q_st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name); /* empty tensors at one place: any fixed order */
}

static void sort_by_offset(struct fp8q_st_header *header)
{
    for (size_t i = 1; i < header->n_tensors; i++) {
        /* The usual file is in order: the sort is left out.  */
        if (compare_offsets(&header->tensors[i - 1], &header->tensors[i]) > 0) {
            qsort(header->tensors, header->n_tensors, sizeof(*header->tensors), compare_offsets);
            return;
        }
    }
}

static const char *show_shape(const struct fp8q_st_tensor *t, char *buf, size_t cap)
{
    size_t used = (size_t)snprintf(buf, cap, "[");

    for (uint32_t i = 0; i < t->ndim; i++) {
        /* Room for a comma, the 20 digits of a size, and the dots that say there are more.  */
        if (cap - used < 32) {
            snprintf(buf + used, cap - used, ",...");
            used += 4;
            break;
        }
        used += (size_t)snprintf(buf + used, cap - used, "%s%" PRIu64, i ? "," : "", t->shape[i]);
    }
    snprintf(buf + used, cap - used, "]");
    return buf;
}

static int check_extent(const struct parser *p, const struct fp8q_st_tensor *t, uint64_t expected)
{
    uint64_t count, bits;
    char shape[200];
    const char *dtype = fp8q_dtype_name(t->dtype);

    /* First, so that no difference below wraps.  */
    if (t->end < t->begin)
        return fail_tensor(p, t, "offset",
                           ": data_offsets [%" PRIu64 ",%" PRIu64 "] end before they begin",
                           t->begin, t->end);

    if (t->begin > expected)
        return fail_tensor(p, t, "offset",
                           " begins at %" PRIu64 ", the previous one ends at %" PRIu64
                           " (hole of %" PRIu64 " bytes)",
                           t->begin, expected, t->begin - expected);
    if (t->begin < expected)
        return fail_tensor(p, t, "offset",
                           " begins at %" PRIu64 ", the previous one ends at %" PRIu64
                           " (overlap of %" PRIu64 " bytes)",
                           t->begin, expected, expected - t->begin);

    if (!fp8q_shape_count(t->shape, t->ndim, &count) ||
        !fp8q_mul_u64(count, fp8q_dtype_bits(t->dtype), &bits))
        return fail_tensor(p, t, "overflow", ": shape %s %s does not fit in 64 bits",
                           show_shape(t, shape, sizeof(shape)), dtype);
    /* F4 and F6 pack several elements into a byte.  */
    if (bits % 8)
        return fail_tensor(p, t, "subbyte", ": shape %s %s is no whole number of bytes",
                           show_shape(t, shape, sizeof(shape)), dtype);

    if (bits / 8 != t->end - t->begin)
        return fail_tensor(p, t, "size",
                           ": shape %s %s needs %" PRIu64 " bytes, data_offsets give %" PRIu64,
                           show_shape(t, shape, sizeof(shape)), dtype, bits / 8, t->end - t->begin);
    return FP8Q_OK;
}

static int check_layout(const struct parser *p, uint64_t data_size)
{
    struct fp8q_shown what;
    uint64_t end = 0;

    for (size_t i = 0; i < p->header->n_tensors; i++) {
        FP8Q_TRY(check_extent(p, &p->header->tensors[i], end));
        end = p->header->tensors[i].end;
    }

    if (end > data_size)
        return fp8q_fail(p->lex.err, FP8Q_E_FORMAT, "coverage",
                         "%s: tensors end at %" PRIu64 ", the data section has %" PRIu64
                         " bytes (truncated by %" PRIu64 ": incomplete download?)",
                         fp8q_show(&what, p->lex.what), end, data_size, end - data_size);
    /* Bytes that no tensor owns could hide something, and the official reader refuses them.  */
    if (end < data_size)
        return fp8q_fail(p->lex.err, FP8Q_E_FORMAT, "coverage",
                         "%s: tensors end at %" PRIu64 ", the data section has %" PRIu64
                         " bytes (%" PRIu64 " too many)",
                         fp8q_show(&what, p->lex.what), end, data_size, data_size - end);
    return FP8Q_OK;
}

/* CRC-32 of the first bytes of the file: the length field and the text.  */
static uint32_t header_crc(const char *text, size_t len)
{
    unsigned char length_field[8];

    for (int i = 0; i < 8; i++)
        length_field[i] = (unsigned char)((uint64_t)len >> (8 * i));
    return fp8q_crc32(fp8q_crc32(0, length_field, 8), text, len);
}

static int parse_and_check(struct parser *p, uint64_t data_size)
{
    p->header->names_arena = malloc(p->lex.len + 1);
    if (!p->header->names_arena)
        return fp8q_fail_nomem(p->lex.err);

    FP8Q_TRY(parse_text(p));
    FP8Q_TRY(drop_repeated_metadata(p));
    FP8Q_TRY(check_names(p));
    /* The format promises no order of entries; the table is in the order of the payload.  */
    sort_by_offset(p->header);
    return check_layout(p, data_size);
}

int fp8q_st_parse(const char *text, size_t len, uint64_t data_size, const char *what,
                  struct fp8q_st_header *header_out, struct fp8q_error *err)
{
    struct parser p = {.lex = {.text = text,
                               .len = len,
                               .what = what,
                               .max_depth = FP8Q_ST_MAX_DEPTH,
                               .header = true,
                               .err = err},
                       .header = header_out};

    *header_out =
        (struct fp8q_st_header){.data_start = (uint64_t)len + 8, .crc32 = header_crc(text, len)};
    int status = parse_and_check(&p, data_size);
    if (status != FP8Q_OK)
        fp8q_st_reset(header_out);
    return status;
}

void fp8q_st_reset(struct fp8q_st_header *header)
{
    free(header->tensors);
    free(header->metadata);
    free(header->names_arena);
    free(header->shape_arena);
    *header = (struct fp8q_st_header){0};
}
