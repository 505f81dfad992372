/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tokenizer.c - ids equal to those of the `tokenizers` library; refusals; long pieces.
 */
#include "support/support.h"

#include "base/file.h"
#include "base/text.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"

static void ids_equal_those_of_the_library(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen2", "llama3", "smollm", "gpt2"};
    struct fp8q_error err = {0};
    char *text;
    size_t len;
    assert_ok(fp8q_read_file(data_path("tokenizer/mixed.bin"), 1 << 20, &text, &len, &err), &err);
    for (size_t i = 0; i < 4; i++) {
        struct fp8q_tokenizer *t;
        struct fp8q_ids ids = {0};
        char *expected, *at;
        size_t expected_len, n = 0;
        assert_ok(fp8q_tokenizer_open(data_path("tokenizer/%s", names[i]), &t, &err), &err);
        assert_ok(fp8q_tokenizer_encode(t, text, len, &ids, &err), &err);
        assert_ok(fp8q_read_file(data_path("tokenizer/%s.ids", names[i]), 1 << 20, &expected,
                                 &expected_len, &err),
                  &err);
        for (at = expected; *at; n++) {
            assert_true(n < ids.count);
            assert_int_equal(ids.items[n], strtol(at, &at, 10));
            assert_true((uint32_t)ids.items[n] < fp8q_tokenizer_id_limit(t));
            at++;
        }
        assert_int_equal(n, ids.count);
        free(expected);
        fp8q_ids_reset(&ids);
        fp8q_tokenizer_close(t);
    }
    free(text);
}

/* One word and one run of spaces of a million bytes: quadratic merging would take hours.  */
static void long_pieces_take_no_quadratic_time(void **state)
{
    (void)state;
    size_t n = 1000000;
    char *text = malloc(n);
    assert_non_null(text);
    for (const char *fill = "a 0=\n"; *fill; fill++) {
        struct fp8q_error err = {0};
        struct fp8q_tokenizer *t;
        struct fp8q_ids ids = {0};
        memset(text, *fill, n);
        assert_ok(fp8q_tokenizer_open(data_path("tokenizer/qwen2"), &t, &err), &err);
        assert_ok(fp8q_tokenizer_encode(t, text, n, &ids, &err), &err);
        assert_true(ids.count > 0 && ids.count <= n);
        fp8q_ids_reset(&ids);
        fp8q_tokenizer_close(t);
    }
    free(text);
}

static void empty_text_has_no_ids(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fp8q_tokenizer *t;
    struct fp8q_ids ids = {0};
    assert_ok(fp8q_tokenizer_open(data_path("tokenizer/llama3"), &t, &err), &err);
    assert_ok(fp8q_tokenizer_encode(t, "", 0, &ids, &err), &err);
    assert_int_equal(ids.count, 0);
    fp8q_tokenizer_close(t);
}

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}"
#define MODEL(vocab, merges) "{\"type\":\"BPE\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"
#define FILE_OF(normalizer, pre, model)                                                            \
    "{\"normalizer\":" normalizer ",\"pre_tokenizer\":" pre ",\"model\":" model "}"

static void other_kinds_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        enum fp8q_status status;
        const char *part;
    } cases[] = {
        {"[]", FP8Q_E_FORMAT, "no \"model\""},
        {"{", FP8Q_E_FORMAT, "case"},
        {FILE_OF("null", BYTE_LEVEL, "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}"),
         FP8Q_E_UNSUPPORTED, "WordPiece"},
        {FILE_OF("null", BYTE_LEVEL, "{\"type\":\"Unigram\",\"vocab\":[]}"), FP8Q_E_UNSUPPORTED,
         "Unigram"},
        {FILE_OF("{\"type\":\"Lowercase\"}", "null", MODEL("\"a\":0", "")), FP8Q_E_UNSUPPORTED,
         "normalizer \"Lowercase\""},
        {FILE_OF("{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"a\"},\"content\":\"b\"}", "null",
                 MODEL("\"a\":0", "")),
         FP8Q_E_UNSUPPORTED, "Replace of a regular expression"},
        {FILE_OF("{\"type\":\"NFKC\"}", BYTE_LEVEL, MODEL("\"a\":0", "")), FP8Q_E_UNSUPPORTED,
         "NFKC"},
        {FILE_OF("null", "{}", MODEL("\"a\":0", "")), FP8Q_E_UNSUPPORTED, "(no type)"},
        {FILE_OF("null", "{\"type\":\"Metaspace\",\"replacement\":\"_\"}", MODEL("\"a\":0", "")),
         FP8Q_E_UNSUPPORTED, "Metaspace"},
        {FILE_OF("null", "{\"type\":\"Whitespace\"}", MODEL("\"a\":0", "")), FP8Q_E_UNSUPPORTED,
         "Whitespace"},
        {FILE_OF("null", "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
                 MODEL("\"a\":0", "")),
         FP8Q_E_UNSUPPORTED, "add_prefix_space"},
        {FILE_OF("null",
                 "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
                 "\"Regex\":\"(\"},\"behavior\":\"Isolated\"}," BYTE_LEVEL "]}",
                 MODEL("\"a\":0", "")),
         FP8Q_E_UNSUPPORTED, "pattern \"(\""},
        {FILE_OF(
             "null",
             "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a&&b]\"},\"behavior\":\"Isolated\"}",
             MODEL("\"a\":0", "")),
         FP8Q_E_UNSUPPORTED, "\"&&\" is not supported"},
        {FILE_OF("null",
                 "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
                 "\"Regex\":\"a\"},\"behavior\":\"Sideways\"}," BYTE_LEVEL "]}",
                 MODEL("\"a\":0", "")),
         FP8Q_E_UNSUPPORTED, "Sideways"},
        {FILE_OF("null", BYTE_LEVEL, MODEL("", "")), FP8Q_E_FORMAT, "model.vocab"},
        {FILE_OF("null", BYTE_LEVEL, MODEL("\"a\":-1", "")), FP8Q_E_FORMAT, "token \"a\""},
        {FILE_OF("null", BYTE_LEVEL, MODEL("\"a\":1.5", "")), FP8Q_E_FORMAT, "token \"a\""},
        {FILE_OF("null", BYTE_LEVEL, MODEL("\"a\":4294967296", "")), FP8Q_E_FORMAT, "token \"a\""},
        {FILE_OF("null", BYTE_LEVEL, MODEL("\"a\":0", "\"a a\"")), FP8Q_E_FORMAT, "merge 0"},
        {FILE_OF("null", BYTE_LEVEL, MODEL("\"a\":0", "\"a\"")), FP8Q_E_FORMAT, "merge 0"},
        {FILE_OF("null", BYTE_LEVEL, MODEL("\"a\":0", "[\"a\"]")), FP8Q_E_FORMAT, "merge 0"},
        {FILE_OF("null", BYTE_LEVEL, MODEL("\"a\":0", "7")), FP8Q_E_FORMAT, "merge 0"},
        {FILE_OF("null", BYTE_LEVEL, "{\"vocab\":{\"a\":0},\"merges\":[],\"unk_token\":\"<unk>\"}"),
         FP8Q_E_FORMAT, "<unk>"},
        {FILE_OF("null", BYTE_LEVEL, "{\"vocab\":{\"a\":0},\"merges\":[],\"dropout\":0.1}"),
         FP8Q_E_UNSUPPORTED, "dropout"},
        {FILE_OF("null", BYTE_LEVEL,
                 "{\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}"),
         FP8Q_E_UNSUPPORTED, "end_of_word_suffix"},
        {FILE_OF("null", BYTE_LEVEL,
                 "{\"vocab\":{\"a\":0,\"<0x21>\":1},\"merges\":[],\"byte_fallback\":true}"),
         FP8Q_E_UNSUPPORTED, "byte fallback"},
        {"{\"added_tokens\":[{\"content\":\"x\"}],\"pre_tokenizer\":" BYTE_LEVEL
         ",\"model\":" MODEL("\"a\":0", "") "}",
         FP8Q_E_FORMAT, "added token"},
        {"{\"added_tokens\":[{\"content\":\"a\",\"id\":3}],\"pre_tokenizer\":" BYTE_LEVEL
         ",\"model\":" MODEL("\"a\":0", "") "}",
         FP8Q_E_FORMAT, "the vocabulary says 0"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_tokenizer *t = (void *)&err;
        assert_failed(fp8q_tokenizer_parse(cases[i].json, strlen(cases[i].json), "case", &t, &err),
                      cases[i].status, &err, cases[i].part);
        assert_null(t);
    }
    struct fp8q_error err = {0};
    struct fp8q_tokenizer *t;
    assert_failed(fp8q_tokenizer_open(data_path("tokenizer"), &t, &err), FP8Q_E_IO, &err,
                  "tokenizer.json");
}

/* What PCRE2 reads otherwise than the library's Oniguruma is rewritten or refused by name; the ids
 * themselves are compared in tests/engines/test_tokenizers.py.  */
static void patterns_mean_what_they_mean_to_the_library(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *result; /* NULL: refused, naming @part */
        const char *part;
    } cases[] = {
        {"\\p{N}{1,3}+", "(?:\\p{N}{1,3})+", NULL},
        {"(?:ab|[c-e]){2}+x", "(?:(?:ab|[c-e]){2})+x", NULL},
        {"(a)b?+c*+", "(?:a)b?+c*+", NULL},
        {"\\d\\D[\\d]", "\\p{Nd}\\P{Nd}[\\p{Nd}]", NULL},
        {"\\p{Han}\\P{Lu}", "\\p{sc:Han}\\P{Lu}", NULL},
        {".\\u00e9\\v", "[^\\n]\\x{00e9}\\x{b}", NULL},
        {"[a&&b]", NULL, "&&"},
        {"[[:alpha:]]", NULL, "[ inside a class"},
        {"[\\S]", NULL, "S inside a class"},
        {"^a", NULL, "^"},
        {"a$", NULL, "$"},
        {"\\h", NULL, "h\""},
        {"\\w", NULL, "w\""},
        {"\\bx", NULL, "b\""},
        {"\\X", NULL, "X\""},
        {"(?i)a", NULL, "(?i)a"},
        {"a{,3}", NULL, "{,3}"},
        {"a{2}?", NULL, "{2}?"},
        {"a**", NULL, "*"},
        {"(a", NULL, "("},
        {"a)", NULL, ")"},
        {"[", NULL, "[ without ]"},
        {"\\", NULL, "x5c\""},
        {"\\p{Alphabetic}", NULL, "Alphabetic"},
        {"*a", NULL, "*a"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_text out = {0};
        int status = fp8q_regex_translate(cases[i].pattern, "case", &out, &err);
        if (cases[i].result) {
            assert_ok(status, &err);
            assert_string_equal(out.data, cases[i].result);
        } else {
            assert_failed(status, FP8Q_E_UNSUPPORTED, &err, cases[i].part);
        }
        fp8q_text_reset(&out);
    }
}

static int32_t ids_of(const char *json, const char *text, int32_t ids[8])
{
    struct fp8q_error err = {0};
    struct fp8q_tokenizer *t;
    struct fp8q_ids found = {0};
    assert_ok(fp8q_tokenizer_parse(json, strlen(json), "case", &t, &err), &err);
    assert_ok(fp8q_tokenizer_encode(t, text, strlen(text), &found, &err), &err);
    assert_true(found.count <= 8);
    for (size_t i = 0; i < found.count; i++)
        ids[i] = found.items[i];
    int32_t n = (int32_t)found.count;
    fp8q_ids_reset(&found);
    fp8q_tokenizer_close(t);
    return n;
}

/* utf8proc takes U+11A7 for a trailing consonant and drops it.  */
static void no_character_is_lost_in_nfc(void **state)
{
    (void)state;
    static const char json[] =
        FILE_OF("{\"type\":\"NFC\"}", "null",
                MODEL("\"\\uac00\":0,\"\\u11a7\":1,\"\\uac01\":2,\"a\":3,\"\\u00e9\":4", ""));
    int32_t ids[8];
    assert_int_equal(ids_of(json, "\xEA\xB0\x80\xE1\x86\xA7", ids), 2);
    assert_true(ids[0] == 0 && ids[1] == 1);
    assert_int_equal(ids_of(json, "\xEA\xB0\x80\xE1\x86\xA8", ids), 1);
    assert_true(ids[0] == 2);
    assert_int_equal(ids_of(json,
                            "\xE1\x86\xA7"
                            "ae\xCC\x81\xEA\xB0\x80\xE1\x86\xA7",
                            ids),
                     5);
    assert_true(ids[0] == 1 && ids[1] == 3 && ids[2] == 4 && ids[3] == 0 && ids[4] == 1);
}

/* Random damage to a good file: any outcome but a crash, and a loaded one must encode.  */
static void damaged_files_do_no_harm(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    struct fp8q_error err = {0};
    char *text;
    size_t len;
    assert_ok(
        fp8q_read_file(data_path("tokenizer/smollm/tokenizer.json"), 1 << 20, &text, &len, &err),
        &err);
    for (int round = 0; round < 300; round++) {
        size_t at = random_u64(&seed) % len;
        char old = text[at];
        struct fp8q_tokenizer *t;
        text[at] = (char)random_u64(&seed);
        if (fp8q_tokenizer_parse(text, len, "damaged", &t, &err) == FP8Q_OK) {
            struct fp8q_ids ids = {0};
            fp8q_tokenizer_encode(t, text, 2000, &ids, &err);
            fp8q_ids_reset(&ids);
        }
        fp8q_tokenizer_close(t);
        text[at] = old;
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_equal_those_of_the_library),
        cmocka_unit_test(long_pieces_take_no_quadratic_time),
        cmocka_unit_test(empty_text_has_no_ids),
        cmocka_unit_test(other_kinds_are_named),
        cmocka_unit_test(patterns_mean_what_they_mean_to_the_library),
        cmocka_unit_test(no_character_is_lost_in_nfc),
        cmocka_unit_test(damaged_files_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
