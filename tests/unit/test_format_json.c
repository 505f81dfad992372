/* SPDX-License-Identifier: Apache-2.0
 *
 * test_format_json.c - the gate, the getters behind it, the splice and the writer.
 */
#include "support/support.h"

#include "base/file.h"
#include "format/json.h"
#include "format/jsonw.h"

/* ---- gate ---------------------------------------------------------------------------------- */

static int check(const char *text, unsigned flags, struct fp8q_error *err)
{
    size_t len = strlen(text);
    char *guarded = guard_alloc(len, GUARD_AFTER);
    memcpy(guarded, text, len);
    int status = fp8q_json_check(guarded, len, flags, "x.json", err);
    guard_free(guarded, len, GUARD_AFTER);
    return status;
}

static void good_texts_pass(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{}",
        "[]",
        "0",
        "-0",
        "null",
        "true",
        "\"\"",
        " \t\r\n{ \"a\" : [ 1 , 2 ] } \n",
        "1.5e+30",
        "1E400",
        "-0.0e-1",
        "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD83D\\uDE00\"",
        "\"\x7f\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbf\"",
        "{\"a\":{\"a\":1},\"A\":{\"a\":1},\"\":[{\"a\":1},{\"a\":2}]}",
        "{\"\xc3\xa9\":1,\"e\xcc\x81\":2}",
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        struct fp8q_error err = {0};
        struct fp8q_json *json;
        assert_ok(check(good[i], 0, &err), &err);
        assert_ok(fp8q_json_parse(good[i], strlen(good[i]), 0, "x", &json, &err), &err);
        fp8q_json_free(json);
    }
}

static void bad_texts_fail(void **state)
{
    (void)state;
    static const struct {
        const char *text, *id;
    } bad[] = {
        {"", "json"},
        {" ", "json"},
        {"\xef\xbb\xbf{}", "json"},
        {"{", "json"},
        {"[1,]", "json"},
        {"{\"a\":1,}", "json"},
        {"{,}", "json"},
        {"{\"a\"}", "json"},
        {"{\"a\" 1}", "json"},
        {"{a:1}", "json"},
        {"{'a':1}", "json"},
        {"{1:1}", "json"},
        {"[1 2]", "json"},
        {"[1}", "json"},
        {"{\"a\":1]", "json"},
        {"{}{}", "json"},
        {"{}x", "json"},
        {"{}\v", "json"},
        {"01", "json"},
        {"+1", "json"},
        {".5", "json"},
        {"1.", "json"},
        {"1e", "json"},
        {"1e+", "json"},
        {"-", "json"},
        {"0x10", "json"},
        {"--1", "json"},
        {"NaN", "json"},
        {"Infinity", "json"},
        {"-Infinity", "json"},
        {"nul", "json"},
        {"nullx", "json"},
        {"True", "json"},
        {"\"", "json"},
        {"\"a", "json"},
        {"\"\t\"", "json"},
        {"\"\\", "json"},
        {"\"\\x41\"", "json"},
        {"\"\\u12\"", "json"},
        {"\"\\u00zz\"", "json"},
        {"\"\\ud800\"", "json"},
        {"\"\\ud800\\u0041\"", "json"},
        {"\"\\udc00\\ud800\"", "json"},
        {"\"\\ud83d", "json"},
        {"\"\\u0000\"", "nul"},
        {"{\"a\\u0000\":1}", "nul"},
        {"\"\xff\"", "utf8"},
        {"\"\xed\xa0\x80\"", "utf8"},
        {"\"\xc0\xaf\"", "utf8"},
        {"{\"a\":1,\"a\":1}", "dup-key"},
        {"{\"a\":1,\"\\u0061\":1}", "dup-key"},
        {"[{\"x\":{\"b\":1,\"c\":[{\"d\":1}],\"b\":1}}]", "dup-key"},
        {"/* */{}", "json"},
        {"{}//", "json"},
        {"version https://git-lfs.github.com/spec/v1\n", "lfs-pointer"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct fp8q_error err = {0};
        if (check(bad[i].text, 0, &err) != FP8Q_E_FORMAT)
            fail_msg("accepted: %s", bad[i].text);
        if (strcmp(err.id, bad[i].id) != 0)
            fail_msg("%s: id %s, expected %s", bad[i].text, err.id, bad[i].id);
        assert_int_equal(check(bad[i].text, 0, NULL), FP8Q_E_FORMAT);
    }
}

static void messages_give_line_and_column(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    assert_failed(check("{\n  \"a\": 1\n  \"b\": 2\n}", 0, &err), FP8Q_E_FORMAT, &err,
                  "x.json: line 3, column 3: expected ',' or '}', found '\\x22'");
    assert_failed(check("{\n<<<<<<< HEAD\n", 0, &err), FP8Q_E_FORMAT, &err,
                  "line 2, column 1: expected a string, found the marker of an unresolved merge");
    assert_failed(check("{\"ab\":1,\"ab\":2}", 0, &err), FP8Q_E_FORMAT, &err,
                  "line 1, column 10: duplicate key \"ab\" in one object");
}

static void nesting_is_limited(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    for (int depth = 127; depth <= 129; depth++) {
        struct fp8q_text t = {0};
        for (int i = 0; i < depth; i++)
            fp8q_text_puts(&t, i % 2 ? "{\"a\":" : "[");
        fp8q_text_puts(&t, "1");
        for (int i = depth; i-- > 0;)
            fp8q_text_puts(&t, i % 2 ? "}" : "]");
        int status = check(t.data, 0, &err);
        assert_int_equal(status, depth <= 128 ? FP8Q_OK : FP8Q_E_FORMAT);
        if (status != FP8Q_OK)
            assert_string_equal(err.id, "depth");
        fp8q_text_reset(&t);
    }
}

/* ---- cJSON behind it ----------------------------------------------------------------------- */

static struct fp8q_json *parse(const char *text, unsigned flags)
{
    struct fp8q_json *json;
    struct fp8q_error err = {0};
    assert_ok(fp8q_json_parse(text, strlen(text), flags, "x.json", &json, &err), &err);
    return json;
}

static void getters_take_anything(void **state)
{
    (void)state;
    uint64_t n = 7;
    struct fp8q_json *json =
        parse("{\"s\":\"x\",\"b\":true,\"n\":2.5,\"u\":9007199254740991,\"v\":9007199254740992,"
              "\"m\":-1,\"z\":0,\"N\":1,\"o\":{\"p\":{\"q\":3}},\"a\":[1,2,3],\"nil\":null}",
              0);
    assert_string_equal(fp8q_json_string(fp8q_json_get(json, "s"), ""), "x");
    assert_string_equal(fp8q_json_string(fp8q_json_get(json, "n"), "none"), "none");
    assert_true(fp8q_json_bool(fp8q_json_get(json, "b"), false));
    assert_true(fp8q_json_bool(fp8q_json_get(json, "n"), true));
    assert_true(fp8q_json_number(fp8q_json_get(json, "n"), 0) > 2.4);
    assert_true(fp8q_json_number(fp8q_json_get(json, "N"), 0) < 1.1);
    assert_true(fp8q_json_uint(fp8q_json_get(json, "u"), &n) && n == 9007199254740991u);
    assert_true(fp8q_json_uint(fp8q_json_get(json, "z"), &n) && n == 0);
    assert_false(fp8q_json_uint(fp8q_json_get(json, "v"), &n));
    assert_false(fp8q_json_uint(fp8q_json_get(json, "m"), &n));
    assert_false(fp8q_json_uint(fp8q_json_get(json, "n"), &n));
    assert_false(fp8q_json_uint(fp8q_json_get(json, "absent"), &n));
    assert_true(fp8q_json_uint(fp8q_json_path(json, "o.p.q"), &n) && n == 3);
    assert_null(fp8q_json_path(json, "o.x.q"));
    assert_null(fp8q_json_path(json, "s.q"));
    assert_null(fp8q_json_get(NULL, "s"));
    assert_null(fp8q_json_get(fp8q_json_get(json, "a"), "s"));
    assert_null(fp8q_json_first(NULL));
    assert_null(fp8q_json_first(fp8q_json_get(json, "s")));
    assert_null(fp8q_json_next(NULL));
    assert_null(fp8q_json_key(NULL));
    assert_int_equal(fp8q_json_count(fp8q_json_get(json, "a")), 3);
    assert_int_equal(fp8q_json_count(json), 11);
    assert_string_equal(fp8q_json_key(fp8q_json_first(json)), "s");
    assert_null(fp8q_json_key(fp8q_json_first(fp8q_json_get(json, "a"))));
    assert_true(fp8q_json_is_null(fp8q_json_get(json, "nil")));
    assert_false(fp8q_json_is_null(NULL));
    fp8q_json_free(json);
    fp8q_json_free(NULL);
}

static void python_constants_read_as_null(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\":NaN,\"b\":[Infinity,-Infinity,1],\"c\":\"NaN \\\" Infinity\",\"d\":1e999,\"e\":-1}";
    struct fp8q_error err = {0};
    assert_int_equal(fp8q_json_check(text, strlen(text), 0, "x", &err), FP8Q_E_FORMAT);
    struct fp8q_json *json = parse(text, FP8Q_JSON_PYTHON);
    const struct fp8q_json *b = fp8q_json_get(json, "b");
    assert_true(fp8q_json_is_null(fp8q_json_get(json, "a")));
    assert_int_equal(fp8q_json_count(b), 3);
    assert_true(fp8q_json_is_null(fp8q_json_first(b)));
    assert_true(fp8q_json_is_null(fp8q_json_next(fp8q_json_first(b))));
    assert_string_equal(fp8q_json_string(fp8q_json_get(json, "c"), ""), "NaN \" Infinity");
    assert_true(fp8q_json_is_null(fp8q_json_get(json, "d")));
    assert_true(fp8q_json_number(fp8q_json_get(json, "d"), 5) > 4);
    assert_true(fp8q_json_number(fp8q_json_get(json, "e"), 5) < 0);
    fp8q_json_free(json);
}

/* cJSON copies a number into 64 bytes and would misread what follows.  */
static void long_numbers_are_read(void **state)
{
    (void)state;
    for (int digits = 50; digits < 400; digits++) {
        struct fp8q_text t = {0};
        fp8q_text_puts(&t, "[0.");
        for (int i = 0; i < digits; i++)
            fp8q_text_puts(&t, "3");
        fp8q_text_puts(&t, ",1");
        for (int i = 0; i < digits; i++)
            fp8q_text_puts(&t, "0");
        fp8q_text_puts(&t, ",7]");
        struct fp8q_json *json = parse(t.data, 0);
        const struct fp8q_json *item = fp8q_json_first(json);
        assert_int_equal(fp8q_json_count(json), 3);
        assert_true(fp8q_json_number(item, 0) > 0.3 && fp8q_json_number(item, 0) < 0.34);
        item = fp8q_json_next(item);
        assert_true(digits > 308 ? fp8q_json_is_null(item) : fp8q_json_number(item, 0) > 1e49);
        assert_true(fp8q_json_number(fp8q_json_next(item), 0) > 6);
        fp8q_json_free(json);
        fp8q_text_reset(&t);
    }
}

/* ---- splice -------------------------------------------------------------------------------- */

static const char *const no_names[] = {NULL};
static const char *const remove_q[] = {"q", NULL};
static const char *const remove_t_q[] = {"t.q", NULL};
static const char *const remove_both[] = {"q", "r", NULL};

static void splice_keeps_all_other_bytes(void **state)
{
    (void)state;
    static const char two_lines[] = "{\n  \"x\": [\n    1,\n    2\n  ],\n  \"y\": {}\n}";
    static const struct {
        const char *text;
        const char *const *remove, *const *nested;
        const char *key, *value, *expected;
    } cases[] = {
        /* Nothing to do.  */
        {"{ \"a\" : 1 }\n", NULL, NULL, NULL, NULL, "{ \"a\" : 1 }\n"},
        {"{\"a\":1}", remove_q, remove_t_q, NULL, NULL, "{\"a\":1}"},
        /* One line.  */
        {"{\"a\": 1, \"b\": 2}", NULL, NULL, "k", "3", "{\"a\": 1, \"b\": 2, \"k\": 3}"},
        {"{\"a\": 1}", NULL, NULL, "k", "3", "{\"a\": 1, \"k\": 3}"},
        {"{\"a\":1}", NULL, NULL, "k", "3", "{\"a\":1,\"k\":3}"},
        {"{\"a\":1,\"b\":2}", NULL, NULL, "k", "3", "{\"a\":1,\"b\":2,\"k\":3}"},
        {"{}", NULL, NULL, "k", "3", "{\"k\": 3}"},
        {" {} \n", NULL, NULL, "k", "3", " {\"k\": 3} \n"},
        {"{\"a\": 1}", NULL, NULL, "k", two_lines, "{\"a\": 1, \"k\": {\"x\": [1, 2], \"y\": {}}}"},
        {"{\"a\":1}", NULL, NULL, "k", two_lines, "{\"a\":1,\"k\":{\"x\": [1,2],\"y\": {}}}"},
        /* Two, four spaces, tabs, CR LF, no indentation.  */
        {"{\n  \"a\": 1\n}\n", NULL, NULL, "k", two_lines,
         "{\n  \"a\": 1,\n  \"k\": {\n    \"x\": [\n      1,\n      2\n    ],\n    \"y\": {}\n  "
         "}\n}\n"},
        {"{\n    \"a\": 1\n}", NULL, NULL, "k", two_lines,
         "{\n    \"a\": 1,\n    \"k\": {\n        \"x\": [\n            1,\n            2\n        "
         "],\n        \"y\": {}\n    }\n}"},
        {"{\n\t\"a\": 1\n}", NULL, NULL, "k", two_lines,
         "{\n\t\"a\": 1,\n\t\"k\": {\n\t\t\"x\": [\n\t\t\t1,\n\t\t\t2\n\t\t],\n\t\t\"y\": "
         "{}\n\t}\n}"},
        {"{\r\n  \"a\": 1\r\n}\r\n", NULL, NULL, "k", "{\n  \"x\": 1\n}",
         "{\r\n  \"a\": 1,\r\n  \"k\": {\r\n    \"x\": 1\r\n  }\r\n}\r\n"},
        {"{\n\"a\": 1\n}", NULL, NULL, "k", "{\n  \"x\": 1\n}",
         "{\n\"a\": 1,\n\"k\": {\n\"x\": 1\n}\n}"},
        {"{\n\n  \"a\": 1,\n\n  \"b\": NaN\n\n}", NULL, NULL, "k", "3",
         "{\n\n  \"a\": 1,\n\n  \"b\": NaN,\n  \"k\": 3\n\n}"},
        /* Removal: first, middle, last, only, several, all but the new one.  */
        {"{\n  \"q\": {\"z\": [1]},\n  \"b\": 2\n}\n", remove_q, NULL, NULL, NULL,
         "{\n  \"b\": 2\n}\n"},
        {"{\n  \"a\": 1,\n  \"q\": 2,\n  \"b\": 3\n}\n", remove_q, NULL, NULL, NULL,
         "{\n  \"a\": 1,\n  \"b\": 3\n}\n"},
        {"{\n  \"a\": 1,\n  \"q\": 2\n}\n", remove_q, NULL, NULL, NULL, "{\n  \"a\": 1\n}\n"},
        {"{\n  \"q\": 2\n}\n", remove_q, NULL, NULL, NULL, "{}\n"},
        {"{\n  \"q\": 2\n}\n", remove_q, NULL, "k", "3", "{\n  \"k\": 3\n}\n"},
        {"{\n    \"q\": 2,\n    \"r\": 1\n}\n", remove_both, NULL, "q", "{\n  \"x\": 1\n}",
         "{\n    \"q\": {\n        \"x\": 1\n    }\n}\n"},
        {"{\"q\": 1, \"a\": 2, \"r\": 3}", remove_both, NULL, NULL, NULL, "{\"a\": 2}"},
        {"{\"q\": 1, \"r\": 3, \"a\": 2}", remove_both, NULL, NULL, NULL, "{\"a\": 2}"},
        {"{\"a\": 2, \"r\": 3, \"q\": 1}", remove_both, NULL, "k", "0", "{\"a\": 2, \"k\": 0}"},
        {"{\"\\u0071\": 1, \"a\": \"q\"}", remove_q, NULL, NULL, NULL, "{\"a\": \"q\"}"},
        /* The key that is put in is never there twice.  */
        {"{\"k\": 1, \"a\": 2}", NULL, NULL, "k", "3", "{\"a\": 2, \"k\": 3}"},
        {"{\"k\": 1}", NULL, NULL, "k", "3", "{\"k\": 3}"},
        /* Nested.  */
        {"{\n  \"t\": {\n    \"q\": {},\n    \"u\": 1\n  },\n  \"q\": 5\n}", no_names, remove_t_q,
         NULL, NULL, "{\n  \"t\": {\n    \"u\": 1\n  },\n  \"q\": 5\n}"},
        {"{\"t\": {\"u\": 1, \"q\": [2]}, \"q\": 5}", NULL, remove_t_q, NULL, NULL,
         "{\"t\": {\"u\": 1}, \"q\": 5}"},
        {"{\"t\": { \"q\": 2 }, \"u\": 5}", NULL, remove_t_q, NULL, NULL, "{\"t\": {}, \"u\": 5}"},
        {"{\"t\": 3, \"q\": 5}", NULL, remove_t_q, NULL, NULL, "{\"t\": 3, \"q\": 5}"},
        {"{\"s\": {\"t\": {\"q\": 1}}, \"t\": {}}", NULL, remove_t_q, NULL, NULL,
         "{\"s\": {\"t\": {\"q\": 1}}, \"t\": {}}"},
        {"{\n  \"t\": {\n    \"q\": 1\n  }\n}", remove_q, remove_t_q, "q", "2",
         "{\n  \"t\": {},\n  \"q\": 2\n}"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_text out = {0};
        struct fp8q_error err = {0};
        size_t len = strlen(cases[i].text);
        char *guarded = guard_alloc(len, GUARD_AFTER);
        memcpy(guarded, cases[i].text, len);
        struct fp8q_splice splice = {.text = guarded,
                                     .len = len,
                                     .what = "x.json",
                                     .remove = cases[i].remove,
                                     .remove_nested = cases[i].nested,
                                     .key = cases[i].key,
                                     .value = cases[i].value};
        assert_ok(fp8q_json_splice(&splice, &out, &err), &err);
        if (strcmp(out.data, cases[i].expected) != 0)
            fail_msg("from\n%s\nexpected\n%s\nfound\n%s", cases[i].text, cases[i].expected,
                     out.data);
        assert_ok(fp8q_json_check(out.data, out.len, FP8Q_JSON_PYTHON, "out", &err), &err);
        fp8q_text_reset(&out);
        guard_free(guarded, len, GUARD_AFTER);
    }
}

static void splice_needs_an_object(void **state)
{
    (void)state;
    struct fp8q_text out = {0};
    struct fp8q_error err = {0};
    struct fp8q_splice splice = {
        .text = "[]", .len = 2, .what = "x.json", .key = "k", .value = "1"};
    assert_failed(fp8q_json_splice(&splice, &out, &err), FP8Q_E_FORMAT, &err,
                  "x.json: is no JSON object");
    fp8q_text_reset(&out);
}

/* Real configurations: putting a member in and taking it out gives the same bytes.  */
static void splice_of_real_configs_can_be_undone(void **state)
{
    (void)state;
    static const char *const names[] = {"llama-f16",      "openvla",    "unknown-family",
                                        "qwen2.5-vl-new", "paligemma",  "deepseek-v3",
                                        "smolvla",        "llama-tied", "gpt-oss"};
    static const char *const added[] = {"fp8q_test", NULL};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct fp8q_text with = {0}, without = {0};
        struct fp8q_error err = {0};
        char *text;
        size_t len;
        assert_ok(fp8q_read_file(data_path("checkpoints/%s/config.json", names[i]), 1 << 20, &text,
                                 &len, &err),
                  &err);
        assert_ok(fp8q_json_check(text, len, FP8Q_JSON_PYTHON, names[i], &err), &err);
        struct fp8q_splice in = {.text = text,
                                 .len = len,
                                 .what = names[i],
                                 .key = added[0],
                                 .value = "{\n  \"a\": [\n    1\n  ]\n}"};
        assert_ok(fp8q_json_splice(&in, &with, &err), &err);
        struct fp8q_splice out = {
            .text = with.data, .len = with.len, .what = names[i], .remove = added};
        assert_ok(fp8q_json_splice(&out, &without, &err), &err);
        assert_true(with.len > len);
        assert_string_equal(without.data, text);
        fp8q_text_reset(&with);
        fp8q_text_reset(&without);
        free(text);
    }
}

/* ---- writer -------------------------------------------------------------------------------- */

static void what_was_left_open_is_closed(void **state)
{
    (void)state;
    struct fp8q_jsonw w = {.indent = 0};

    /* Objects and arrays in turn, some of them closed and opened again at the same depth.  */
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_open(&w, "a", '{');
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_open(&w, "b", '[');
    fp8q_jsonw_open(&w, NULL, '[');
    fp8q_jsonw_close(&w, ']');
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_open(&w, "c", '[');
    fp8q_jsonw_uint(&w, NULL, 1);

    fp8q_jsonw_close_to(&w, 1);
    fp8q_jsonw_bool(&w, "d", true);
    fp8q_jsonw_close_to(&w, 1);
    fp8q_jsonw_close(&w, '}');
    assert_string_equal(w.text.data, "{\"a\": {}, \"b\": [[], {\"c\": [1]}], \"d\": true}");
    fp8q_text_reset(&w.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_texts_pass),
        cmocka_unit_test(bad_texts_fail),
        cmocka_unit_test(messages_give_line_and_column),
        cmocka_unit_test(nesting_is_limited),
        cmocka_unit_test(getters_take_anything),
        cmocka_unit_test(python_constants_read_as_null),
        cmocka_unit_test(long_numbers_are_read),
        cmocka_unit_test(splice_keeps_all_other_bytes),
        cmocka_unit_test(splice_needs_an_object),
        cmocka_unit_test(splice_of_real_configs_can_be_undone),
        cmocka_unit_test(what_was_left_open_is_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
