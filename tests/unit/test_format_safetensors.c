/* SPDX-License-Identifier: Apache-2.0
 *
 * test_format_safetensors.c - headers: the corpora with their verdicts, messages, limits, and the
 * writer.
 */
#include "support/support.h"

#include <time.h>

#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/crc.h"
#include "base/mem.h"
#include "format/safetensors.h"

/* ---- corpora ------------------------------------------------------------------------------- */

static int read_header(const char *path, struct fp8q_st_header *header, struct fp8q_error *err)
{
    struct stat st;
    int fd;
    FP8Q_TRY(fp8q_open_read(path, &st, &fd, err));
    int status = fp8q_st_read(fd, (uint64_t)st.st_size, path, header, err);
    (void)fp8q_close(&fd, path, NULL);
    return status;
}

/* What every accepted header promises.  */
static void assert_invariants(const struct fp8q_st_header *header, uint64_t data_size)
{
    uint64_t end = 0;
    for (size_t i = 0; i < header->n_tensors; i++) {
        const struct fp8q_st_tensor *t = &header->tensors[i];
        uint64_t count, bits;
        assert_true(t->begin == end && t->end >= t->begin);
        assert_true(fp8q_shape_count(t->shape, t->ndim, &count));
        assert_true(fp8q_mul_u64(count, fp8q_dtype_bits(t->dtype), &bits));
        assert_true(bits % 8 == 0 && bits / 8 == t->end - t->begin);
        end = t->end;
    }
    assert_true(end == data_size);
}

/* Column @column (0-based) of a line of tab-separated fields, cut off in place.  */
static char *column_of(char *line, int column)
{
    for (; column > 0 && line; column--) {
        line = strchr(line, '\t');
        line = line ? line + 1 : NULL;
    }
    if (line)
        line[strcspn(line, "\t\r\n")] = '\0';
    return line;
}

/* Runs all files of a table and returns their number; fails on the first few wrong verdicts.  */
static int run_corpus(const char *folder, int verdict_column)
{
    char line[8192], copy[8192];
    int count = 0, wrong = 0;
    FILE *table = fopen(data_path("corpus/%s/EXPECTED.tsv", folder), "r");
    assert_non_null(table);
    while (fgets(line, sizeof(line), table)) {
        struct fp8q_st_header header;
        struct fp8q_error err = {0};
        struct stat st;
        if (line[0] == '#')
            continue;
        strcpy(copy, line);
        const char *verdict = column_of(copy, verdict_column);
        const char *path = data_path("corpus/%s/%s", folder, column_of(line, 0));
        assert_int_equal(stat(path, &st), 0);
        int status = read_header(path, &header, &err);
        bool expected = strcmp(verdict, "OK") == 0;
        if (expected != (status == FP8Q_OK)) {
            print_error("%s: expected %s, found %s\n", line, verdict,
                        status == FP8Q_OK ? "OK" : err.message);
            wrong++;
        }
        if (status == FP8Q_OK) {
            assert_invariants(&header, (uint64_t)st.st_size - header.data_start);
        } else {
            assert_true(status == FP8Q_E_FORMAT && err.id[0] && strlen(err.message) > 20);
            assert_null(header.tensors);
        }
        fp8q_st_reset(&header);
        count++;
    }
    fclose(table);
    assert_int_equal(wrong, 0);
    return count;
}

static void corpus_of_rules_gets_its_verdicts(void **state)
{
    (void)state;
    assert_int_equal(run_corpus("safetensors", 3), 331);
}

static void corpus_of_real_files_gets_its_verdicts(void **state)
{
    (void)state;
    assert_int_equal(run_corpus("real", 1), 86);
}

/* ---- messages ------------------------------------------------------------------------------ */

static int parse(const char *text, uint64_t data_size, struct fp8q_error *err)
{
    struct fp8q_st_header header;
    /* Right before a page that cannot be touched: reading one byte too far is a crash.  */
    size_t len = strlen(text);
    char *guarded = guard_alloc(len, GUARD_AFTER);
    memcpy(guarded, text, len);
    int status = fp8q_st_parse(guarded, len, data_size, "x.safetensors", &header, err);
    if (status == FP8Q_OK)
        assert_invariants(&header, data_size);
    fp8q_st_reset(&header);
    guard_free(guarded, len, GUARD_AFTER);
    return status;
}

static void messages_say_where_and_what(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t data_size;
        const char *id, *part;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,2.0]}}", 4, "int",
         "x.safetensors: header byte 50: tensor \"a\": data_offsets[1]: expected a non-negative "
         "integer, found 2.0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551616],\"data_offsets\":[0,4]}}", 4,
         "int", "shape: expected an integer below 2^64, found 18446744073709551616"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "int", "found -1"},
        {"{\"a\":{\"dtype\":\"F8_E4M3FN\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype",
         "tensor \"a\": unknown dtype \"F8_E4M3FN\""},
        {"{\"w\":{\"dtype\":\"BF16\",\"shape\":[4096,4096],\"data_offsets\":[0,33554430]}}",
         33554430, "size",
         "tensor \"w\": shape [4096,4096] BF16 needs 33554432 bytes, data_offsets give 33554430"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[16,24]}}",
         24, "offset", "\"b\" begins at 16, the previous one ends at 8 (hole of 8 bytes)"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4,12]}}",
         12, "offset", "(overlap of 4 bytes)"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,0]}}", 0, "offset",
         "end before they begin"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 5, "coverage",
         "truncated by 3"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}", 15, "coverage",
         "7 too many"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0]}}", 8, "field",
         "data_offsets: expected two integers, found ]"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[8]}}", 8, "field", "data_offsets is missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         "overflow", "does not fit in 64 bits"},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1, "subbyte",
         "no whole number of bytes"},
        {"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
         "dup-key", "field dtype twice"},
        {"{\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         0, "dup-key", "tensor \"a\": this name stands in the header twice"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "metadata", "no string"},
        {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, "nul-name",
         "U+0000: \"a\\x00b\""},
        {"{\"a\":[]}", 0, "field", "entry: expected an object, found ["},
        {"{\"a\"", 0, "json", "expected ':', found the end of the text"},
        {"", 0, "json", "expected '{', found the end"},
        {"{}x", 0, "json", "header byte 2"},
        {"{\"a\":\"\xff\"}", 0, "utf8", "header byte 6: invalid UTF-8 (byte 0xff)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        int status = parse(cases[i].text, cases[i].data_size, &err);
        assert_failed(status, FP8Q_E_FORMAT, &err, cases[i].part);
        assert_string_equal(err.id, cases[i].id);
    }
}

static void nul_padding_is_named(void **state)
{
    (void)state;
    struct fp8q_st_header header;
    struct fp8q_error err = {0};
    int status = fp8q_st_parse("{}\0\0", 4, 0, "x", &header, &err);
    assert_failed(status, FP8Q_E_FORMAT, &err, "padding must be spaces");
    assert_string_equal(err.id, "nul-padding");
}

static void other_formats_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t len;
        const char *id, *part;
    } cases[] = {
#define BYTES(s) s, sizeof(s) - 1
        {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4976698672\n"),
         "lfs-pointer", "for a file of 4976698672 bytes; run \"git lfs pull\""},
        {BYTES("version https://git-lfs.github.com/spec/v1\n"), "lfs-pointer", "unknown bytes"},
        {BYTES("version https://git-lfs.github.com/spec/v1\nsize 12"), "lfs-pointer",
         "of 12 bytes"},
        {BYTES("PK\3\4\0\0\x08\x08\0\0"), "pickle", "ZIP"},
        {BYTES("\x80\2}q\0X\4\0\0\0"), "pickle", "pickle"},
        {BYTES("GGUF\3\0\0\0\0\0\0\0"), "gguf", "GGUF"},
        {BYTES("<!DOCTYPE html><html>"), "html", "HTML"},
        {BYTES("{\"error\":\"not found\"}"), "json-text", "JSON"},
        {BYTES(""), "too-small", "empty file"},
        {BYTES("12345"), "too-small", "5 bytes"},
        {BYTES("\1\xe1\xf5\5\0\0\0\0{}"), "header-too-large", "100000001"},
        {BYTES("\xe8\3\0\0\0\0\0\0{}"), "header-truncated", "needs 1000 bytes, the file has 2"},
        {BYTES("\0\0\0\0\0\0\0\0"), "json", "header is empty"},
        /* A length that fits is believed, whatever the bytes look like.  */
        {BYTES("\2\0\0\0\0\0\0\0{}"), NULL, NULL},
#undef BYTES
    };
    char *dir = temp_dir_make();
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_st_header header;
        char name[32];
        snprintf(name, sizeof(name), "%zu", i);
        char *path = fp8q_join(dir, name);
        assert_ok(fp8q_write_file(path, cases[i].bytes, cases[i].len, &err), &err);
        int status = read_header(path, &header, &err);
        if (cases[i].id) {
            assert_failed(status, FP8Q_E_FORMAT, &err, cases[i].part);
            assert_string_equal(err.id, cases[i].id);
        } else {
            assert_ok(status, &err);
        }
        fp8q_st_reset(&header);
        free(path);
    }
    temp_dir_remove(dir);
}

/* Every prefix of a good header fails cleanly, with and without an error to fill.  */
static void every_prefix_fails(void **state)
{
    (void)state;
    static const char text[] = "{\"__metadata__\":{\"k\":\"v\\n\\ud83d\\ude00\"},\"a\\u00e9\":{"
                               "\"dtype\":\"F32\",\"shape\":[2,"
                               "0],\"x\":[{\"y\":-1.5e+3},true,null],\"data_offsets\":[0,0]}}";
    char copy[sizeof(text)];
    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        struct fp8q_error err = {0};
        memcpy(copy, text, n);
        copy[n] = '\0';
        assert_int_equal(parse(copy, 0, &err), FP8Q_E_FORMAT);
        assert_int_equal(parse(copy, 0, NULL), FP8Q_E_FORMAT);
    }
    assert_ok(parse(text, 0, NULL), NULL);
}

/* Random edits of good headers: what is still accepted holds its promises.  */
static void mutants_never_break_a_promise(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"BF16\",\"shape\":[2,2],\"data_"
        "offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[8,16]}}",
        "{\"a\":{\"dtype\":\"F4\",\"shape\":[0],\"data_offsets\":[0,0]},\"c\\u00e9\":{\"shape\":[],"
        "\"x\":[{}],\"dtype\":\"F64\",\"data_offsets\":[8,16]},\"b\":{\"dtype\":\"I8\",\"shape\":["
        "1,8],"
        "\"data_offsets\":[0,8]}}",
    };
    static const char bytes[] = "\"{}[],:\\0123456789-.eEabux \n\x00\xc3\xa9\xff";
    uint64_t seed = test_seed();
    size_t n_accepted = 0;
    for (int run = 0; run < 40000; run++) {
        char text[512];
        struct fp8q_st_header header;
        struct fp8q_error err = {0};
        size_t len = strlen(texts[run % 2]);
        memcpy(text, texts[run % 2], len);
        for (uint64_t n = random_u64(&seed) % 4; n > 0; n--) {
            size_t at = (size_t)(random_u64(&seed) % len);
            size_t from = (size_t)(random_u64(&seed) % len);
            char byte = bytes[random_u64(&seed) % (sizeof(bytes) - 1)];
            switch (random_u64(&seed) % 4) {
            case 0: /* overwrite */
                text[at] = byte;
                break;
            case 1: /* insert */
                memmove(text + at + 1, text + at, len++ - at);
                text[at] = byte;
                break;
            case 2: /* delete */
                memmove(text + at, text + at + 1, --len - at);
                break;
            default: /* copy a digit or word from elsewhere */
                text[at] = text[from];
                break;
            }
        }
        int status = fp8q_st_parse(text, len, 16, "x", &header, &err);
        assert_true(status == FP8Q_OK || status == FP8Q_E_FORMAT);
        if (status == FP8Q_OK) {
            assert_invariants(&header, 16);
            n_accepted++;
        }
        fp8q_st_reset(&header);
    }
    assert_true(n_accepted > 10000); /* a quarter is left as it is */
}

/* ---- contents ------------------------------------------------------------------------------ */

static void contents_are_decoded(void **state)
{
    (void)state;
    static const char text[] =
        " {\"b\":{\"dtype\":\"\\u0046\\u0033\\u0032\",\"shape\":[],\"data_offsets\":[2,6]},"
        "\"\\u0061\\/"
        "\\ud83d\\ude00\":{\"dt\\u0079pe\":\"BF16\",\"shape\":[1,1],\"data_offsets\":[0,2]},"
        "\"__metadata__\":{\"k\":\"1\",\"l\":\"a\\u0000b\",\"k\":\"2\"}}\n";
    struct fp8q_st_header header;
    struct fp8q_error err = {0};
    assert_ok(fp8q_st_parse(text, sizeof(text) - 1, 6, "x", &header, &err), &err);
    assert_int_equal(header.n_tensors, 2);
    assert_string_equal(header.tensors[0].name, "a/\xf0\x9f\x98\x80");
    assert_int_equal(header.tensors[0].dtype, FP8Q_BF16);
    assert_int_equal(header.tensors[0].ndim, 2);
    assert_int_equal(header.tensors[0].shape[1], 1);
    assert_int_equal(header.tensors[1].dtype, FP8Q_F32);
    assert_int_equal(header.tensors[1].ndim, 0);
    assert_int_equal(header.data_start, sizeof(text) - 1 + 8);
    assert_int_equal(header.n_metadata, 2);
    assert_string_equal(header.metadata[0].key, "l");
    assert_int_equal(header.metadata[0].value_len, 3);
    assert_string_equal(header.metadata[0].value, "a");
    assert_string_equal(header.metadata[1].key, "k");
    assert_string_equal(header.metadata[1].value, "2");
    fp8q_st_reset(&header);
    assert_ok(fp8q_st_parse("{\"__metadata__\":null}", 21, 0, "x", &header, &err), &err);
    assert_int_equal(header.n_metadata, 0);
    fp8q_st_reset(&header);
}

static void crc_is_that_of_the_first_bytes(void **state)
{
    (void)state;
    size_t len;
    char *bytes;
    struct fp8q_st_header header;
    struct fp8q_error err = {0};
    const char *path = data_path("checkpoints/llama-tied/model.safetensors");
    assert_ok(fp8q_read_file(path, 1 << 24, &bytes, &len, &err), &err);
    assert_ok(read_header(path, &header, &err), &err);
    assert_int_equal(header.crc32, fp8q_crc32(0, bytes, (size_t)header.data_start));
    fp8q_st_reset(&header);
    free(bytes);
}

static void dtypes_are_spelled_as_the_format_does(void **state)
{
    (void)state;
    enum fp8q_dtype dtype;
    for (int i = 0; i < FP8Q_N_DTYPES; i++) {
        const char *name = fp8q_dtype_name((enum fp8q_dtype)i);
        assert_true(fp8q_dtype_parse(name, strlen(name), &dtype));
        assert_int_equal(dtype, i);
        if (i > 0 && i != FP8Q_BOOL) /* by falling size; BOOL is the least of all */
            assert_true(fp8q_dtype_bits((enum fp8q_dtype)i) <=
                        fp8q_dtype_bits((enum fp8q_dtype)(i - 1)));
    }
    assert_false(fp8q_dtype_parse("BF1", 3, &dtype));
    assert_false(fp8q_dtype_parse("bf16", 4, &dtype));
    assert_false(fp8q_dtype_parse("", 0, &dtype));
}

static void shape_products_multiply_from_the_left(void **state)
{
    (void)state;
    uint64_t n;
    assert_true(fp8q_shape_count(NULL, 0, &n) && n == 1);
    assert_true(fp8q_shape_count((const uint64_t[]){0, UINT64_MAX}, 2, &n) && n == 0);
    assert_true(fp8q_shape_count((const uint64_t[]){UINT64_MAX, 0}, 2, &n) && n == 0);
    assert_false(fp8q_shape_count((const uint64_t[]){UINT64_MAX, 2, 0}, 3, &n));
    assert_false(fp8q_shape_count((const uint64_t[]){(uint64_t)1 << 63 | 1, 2}, 2, &n));
}

/* ---- many tensors -------------------------------------------------------------------------- */

/* A header of @count tensors of one byte each, listed from the last to the first.  */
static void many_tensors(struct fp8q_text *out, size_t count)
{
    fp8q_text_puts(out, "{");
    for (size_t i = count; i-- > 0;)
        fp8q_text_printf(out,
                         "%s\"t%zu\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                         i + 1 < count ? "," : "", i, i, i + 1);
    fp8q_text_puts(out, "}");
    assert_ok(fp8q_text_status(out, NULL), NULL);
}

static double parse_seconds(size_t count)
{
    struct fp8q_text text = {0};
    struct fp8q_st_header header;
    struct fp8q_error err = {0};
    double best = 1e9;
    many_tensors(&text, count);
    for (int run = 0; run < 3; run++) {
        struct timespec a, b;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        assert_ok(fp8q_st_parse(text.data, text.len, count, "x", &header, &err), &err);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        assert_int_equal(header.n_tensors, count);
        assert_string_equal(header.tensors[7].name, "t7");
        fp8q_st_reset(&header);
        double seconds = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        best = seconds < best ? seconds : best;
    }
    fp8q_text_reset(&text);
    return best;
}

static void time_grows_with_the_number_of_tensors(void **state)
{
    (void)state;
    double small = parse_seconds(10000), large = parse_seconds(160000);
    print_message("10,000 tensors: %.4f s, 160,000 tensors: %.4f s\n", small, large);
    assert_true(large < 16 * small * 5); /* quadratic would be 256 */
}

/* ---- the writer ---------------------------------------------------------------------------- */

struct golden {
    const char *what, *hex;
    struct fp8q_st_tensor tensors[8];
    size_t n_tensors;
    struct fp8q_st_pair metadata;
};
#include "unit/safetensors_goldens.h"

static void emitted_bytes_are_the_official_writers(void **state)
{
    (void)state;
    assert_true(sizeof(goldens) / sizeof(*goldens) >= 6);
    for (size_t i = 0; i < sizeof(goldens) / sizeof(*goldens); i++) {
        const struct golden *g = &goldens[i];
        struct fp8q_text out = {0}, hex = {0};
        struct fp8q_error err = {0};
        assert_ok(fp8q_st_emit(g->tensors, g->n_tensors, &g->metadata, g->metadata.key ? 1 : 0, 0,
                               &out, &err),
                  &err);
        for (size_t j = 0; j < out.len; j++)
            fp8q_text_printf(&hex, "%02x", (unsigned char)out.data[j]);
        if (strcmp(hex.data, g->hex) != 0)
            fail_msg("%s:\n%s\n%s", g->what, hex.data, g->hex);
        fp8q_text_reset(&hex);
        fp8q_text_reset(&out);
    }
}

/* Emitting what was read and reading it again gives the same table.  */
static void reading_back_is_the_identity(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-tied", "bare-file", "phi3", "deepseek-v3"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct fp8q_st_header a, b;
        struct fp8q_text out = {0};
        struct fp8q_error err = {0};
        assert_ok(read_header(data_path("checkpoints/%s/model.safetensors", names[i]), &a, &err),
                  &err);
        assert_ok(fp8q_st_emit(a.tensors, a.n_tensors, a.metadata, a.n_metadata, 4096, &out, &err),
                  &err);
        assert_true(out.len >= 4096 && out.len % 8 == 0);
        uint64_t size = a.n_tensors ? a.tensors[a.n_tensors - 1].end : 0;
        assert_ok(fp8q_st_parse(out.data + 8, out.len - 8, size, "x", &b, &err), &err);
        assert_int_equal(a.n_tensors, b.n_tensors);
        assert_int_equal(a.n_metadata, b.n_metadata);
        for (size_t j = 0; j < a.n_tensors; j++) {
            assert_string_equal(a.tensors[j].name, b.tensors[j].name);
            assert_int_equal(a.tensors[j].dtype, b.tensors[j].dtype);
            assert_int_equal(a.tensors[j].ndim, b.tensors[j].ndim);
            assert_int_equal(a.tensors[j].begin, b.tensors[j].begin);
            for (uint32_t d = 0; d < a.tensors[j].ndim; d++)
                assert_int_equal(a.tensors[j].shape[d], b.tensors[j].shape[d]);
        }
        fp8q_st_reset(&a);
        fp8q_st_reset(&b);
        fp8q_text_reset(&out);
    }
}

static void emit_refuses(const struct fp8q_st_tensor *tensors, size_t n_tensors, const char *id)
{
    struct fp8q_text out = {0};
    struct fp8q_error err = {0};
    assert_failed(fp8q_st_emit(tensors, n_tensors, NULL, 0, 0, &out, &err), FP8Q_E_ARG, &err, "");
    assert_string_equal(err.id, id);
    assert_int_equal(out.len, 0);
    fp8q_text_reset(&out);
}

static void emit_refuses_what_no_reader_takes(void **state)
{
    (void)state;
    static const uint64_t shape[] = {3};
    struct fp8q_st_tensor t[2] = {
        {.name = "a", .shape = shape, .ndim = 1, .dtype = FP8Q_U8, .begin = 0, .end = 3},
        {.name = "b", .shape = shape, .ndim = 1, .dtype = FP8Q_U8, .begin = 3, .end = 6},
    };
    struct fp8q_text out = {0};
    assert_ok(fp8q_st_emit(t, 2, NULL, 0, 0, &out, NULL), NULL);
    fp8q_text_reset(&out);
    t[1].name = "a";
    emit_refuses(t, 2, "dup-key");
    t[1].name = "__metadata__";
    emit_refuses(t, 2, "bad-name");
    t[1].name = "\xff";
    emit_refuses(t, 2, "bad-name");
    t[1].name = "b";
    t[1].begin = 4;
    t[1].end = 7;
    emit_refuses(t, 2, "offset");
    t[1].begin = 3;
    emit_refuses(t, 2, "size");
    t[1].dtype = FP8Q_F4;
    t[1].end = 5;
    emit_refuses(t, 2, "size");
    struct fp8q_st_pair pairs[2] = {{"k", "v", 1, 1}, {"k", "w", 1, 1}};
    struct fp8q_error err = {0};
    assert_failed(fp8q_st_emit(t, 1, pairs, 2, 0, &out, &err), FP8Q_E_ARG, &err, "\"k\" twice");
    assert_failed(fp8q_st_emit(t, 1, NULL, 0, 200000000, &out, &err), FP8Q_E_ARG, &err,
                  "200000000");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(corpus_of_rules_gets_its_verdicts),
        cmocka_unit_test(corpus_of_real_files_gets_its_verdicts),
        cmocka_unit_test(messages_say_where_and_what),
        cmocka_unit_test(nul_padding_is_named),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(every_prefix_fails),
        cmocka_unit_test(mutants_never_break_a_promise),
        cmocka_unit_test(contents_are_decoded),
        cmocka_unit_test(crc_is_that_of_the_first_bytes),
        cmocka_unit_test(dtypes_are_spelled_as_the_format_does),
        cmocka_unit_test(shape_products_multiply_from_the_left),
        cmocka_unit_test(time_grows_with_the_number_of_tensors),
        cmocka_unit_test(emitted_bytes_are_the_official_writers),
        cmocka_unit_test(reading_back_is_the_identity),
        cmocka_unit_test(emit_refuses_what_no_reader_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
