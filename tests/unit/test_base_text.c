/* SPDX-License-Identifier: Apache-2.0
 *
 * test_base_text.c - error texts, text buffer, UTF-8, pool, checked sizes.
 */
#include "support/support.h"

#include "base/mem.h"
#include "base/pool.h"
#include "base/text.h"
#include "base/utf8.h"

static void shown_text_is_safe_on_a_terminal(void **state)
{
    (void)state;
    struct fp8q_shown shown;
    assert_string_equal(fp8q_show(&shown, "model.layers.0"), "model.layers.0");
    assert_string_equal(fp8q_show(&shown, "a\x1b[31m\"\\\n\x7f"), "a\\x1b[31m\\x22\\x5c\\x0a\\x7f");
    assert_string_equal(fp8q_show(&shown, "caf\xc3\xa9"), "caf\xc3\xa9");
    assert_string_equal(fp8q_show(&shown, "\xe2\x80\xae"
                                          "x\xff"),
                        "\\u{202e}x\\xff");
    char longer[1000];
    memset(longer, 'x', sizeof(longer));
    fp8q_show_n(&shown, longer, sizeof(longer));
    assert_true(strlen(shown.text) < sizeof(shown.text));
    assert_non_null(strstr(shown.text, "..."));
}

static void utf8_refuses_what_is_no_scalar_value(void **state)
{
    (void)state;
    static const char *const bad[] = {"\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82",
                                      "\x80",     "\xff",         "\xf0\x80\x80\x80"};
    uint32_t cp;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(fp8q_utf8_decode(bad[i], strlen(bad[i]), &cp), 0);
    for (cp = 0; cp <= 0x10FFFF; cp++) {
        char bytes[4];
        uint32_t back;
        if (cp >= 0xD800 && cp <= 0xDFFF)
            continue;
        size_t n = fp8q_utf8_encode(bytes, cp);
        assert_int_equal(fp8q_utf8_decode(bytes, n, &back), n);
        assert_int_equal(back, cp);
    }
}

static void json_strings_are_escaped_as_serde_does(void **state)
{
    (void)state;
    struct fp8q_text t = {0};
    static const char raw[] = "a\"\\/\b\f\n\r\t\x01\x1f\x7f\xc3\xa9";
    fp8q_text_json_string(&t, raw, sizeof(raw) - 1);
    assert_ok(fp8q_text_status(&t, NULL), NULL);
    assert_string_equal(t.data, "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\"");
    fp8q_text_reset(&t);
}

static void products_that_overflow_are_no_allocation(void **state)
{
    (void)state;
    assert_null(fp8q_array(UINT64_MAX / 4, 8));
    void *p = fp8q_array(0, 8);
    assert_non_null(p);
    free(p);
    assert_int_equal(fp8q_ceil_div(UINT64_MAX, 128), UINT64_MAX / 128 + 1);
}

struct tally {
    _Atomic uint64_t sum, calls;
    uint64_t fail_from;
};

static int tally_task(void *ctx, unsigned worker, uint64_t task, struct fp8q_error *err)
{
    struct tally *t = ctx;
    (void)worker;
    t->sum += task;
    t->calls++;
    if (task >= t->fail_from)
        return fp8q_fail(err, FP8Q_E_MISMATCH, "test", "task %d", (int)task);
    return FP8Q_OK;
}

static void pool_runs_each_task_once_and_reports_the_lowest_failure(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 8; threads++) {
        struct tally t = {.fail_from = UINT64_MAX};
        struct fp8q_error err = {0};
        assert_ok(fp8q_pool_run(NULL, threads, 1000, tally_task, &t, &err), &err);
        assert_int_equal(t.sum, 499500);
        t = (struct tally){.fail_from = 37};
        assert_failed(fp8q_pool_run(NULL, threads, 1000, tally_task, &t, &err), FP8Q_E_MISMATCH,
                      &err, "task 37");
        assert_true(t.calls < 1000);
    }
    struct fp8q_error err = {0};
    struct tally none = {.fail_from = 0};
    assert_ok(fp8q_pool_run(NULL, 4, 0, tally_task, &none, &err), &err);
    struct fp8q_cancel cancel = {0};
    const struct fp8q_watch watch = {.cancel = &cancel};
    fp8q_cancel(&cancel);
    assert_failed(fp8q_pool_run(&watch, 4, 10, tally_task, &none, &err), FP8Q_E_CANCELLED, &err,
                  "cancelled");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shown_text_is_safe_on_a_terminal),
        cmocka_unit_test(utf8_refuses_what_is_no_scalar_value),
        cmocka_unit_test(json_strings_are_escaped_as_serde_does),
        cmocka_unit_test(products_that_overflow_are_no_allocation),
        cmocka_unit_test(pool_runs_each_task_once_and_reports_the_lowest_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
