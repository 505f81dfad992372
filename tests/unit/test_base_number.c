/* SPDX-License-Identifier: Apache-2.0
 *
 * test_base_number.c - numbers in a host program that has set a locale with a decimal comma; CPUs
 * of a quota.
 */
#include "support/support.h"

#include <locale.h>
#include <math.h>

#include "base/pool.h"
#include "base/text.h"
#include "format/json.h"
#include "format/jsonw.h"

/* Into a locale with a comma: one that is installed, or one made from the system's sources.  */
static bool enter_comma_locale(const char *dir)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "pt_BR.UTF-8"};
    char command[512];

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (setlocale(LC_ALL, names[i]))
            return true;
    snprintf(command, sizeof(command),
             "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1; test -d %s/de_DE.UTF-8",
             dir, dir);
    if (system(command) != 0)
        return false;
    setenv("LOCPATH", dir, 1);
    return setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

static void numbers_have_a_point_in_every_locale(void **state)
{
    (void)state;
    static const char text[] = "{\"a\": 0.5, \"b\": -1.25e-3, \"long\": "
                               "0.1000000000000000055511151231257827021181583404541015625"
                               "0000000000000000000, \"n\": 7}";
    char *dir = temp_dir_make(), buf[64], decimal[16];
    struct fp8q_error err = {0};
    struct fp8q_json *json;
    uint64_t n;

    if (!enter_comma_locale(dir)) {
        temp_dir_remove(dir);
        print_message("skipped: no locale with a decimal comma, and localedef made none\n");
        skip();
    }
    snprintf(decimal, sizeof(decimal), "%.1f", 0.5);
    assert_string_equal(decimal, "0,5"); /* the locale is what this test needs */

    assert_ok(fp8q_json_parse(text, sizeof(text) - 1, 0, "x.json", &json, &err), &err);
    assert_true(fp8q_json_number(fp8q_json_get(json, "a"), 0) == 0.5);
    assert_true(fp8q_json_number(fp8q_json_get(json, "b"), 0) == -1.25e-3);
    assert_true(fp8q_json_number(fp8q_json_get(json, "long"), 0) == 0.1);
    assert_true(fp8q_json_uint(fp8q_json_get(json, "n"), &n) && n == 7);
    fp8q_json_free(json);

    struct fp8q_jsonw w = {0};
    fp8q_jsonw_open(&w, NULL, '[');
    fp8q_jsonw_number(&w, NULL, 0.1);
    fp8q_jsonw_number(&w, NULL, 1234567.5);
    fp8q_jsonw_close(&w, ']');
    assert_string_equal(w.text.data, "[0.1, 1234567.5]");
    fp8q_text_reset(&w.text);

    fp8q_number_print(buf, sizeof(buf), 9, 1.5);
    assert_string_equal(buf, "1.5");
    assert_true(fp8q_number_parse("2.75", NULL) == 2.75);
    snprintf(decimal, sizeof(decimal), "%.1f", 0.5);
    assert_string_equal(decimal, "0,5"); /* left as it was */
    setlocale(LC_ALL, "C");
    temp_dir_remove(dir);
}

/* Whatever number stands where a count is meant.  */
static void counts_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        uint64_t value;
    } cases[] = {{"0", true, 0},
                 {"-0", true, 0},
                 {"7.0", true, 7},
                 {"1e3", true, 1000},
                 {"9007199254740991", true, 9007199254740991},
                 {"9007199254740992", false, 0},
                 {"18446744073709551615", false, 0},
                 {"1e60", false, 0},
                 {"1e999", false, 0},
                 {"-1", false, 0},
                 {"-1e60", false, 0},
                 {"0.5", false, 0},
                 {"1e-60", false, 0},
                 {"NaN", false, 0},
                 {"Infinity", false, 0},
                 {"-Infinity", false, 0},
                 {"null", false, 0},
                 {"true", false, 0},
                 {"\"7\"", false, 0},
                 {"[7]", false, 0},
                 {"{}", false, 0}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_json *json;
        uint64_t value = 0;
        assert_ok(fp8q_json_parse(cases[i].text, strlen(cases[i].text), FP8Q_JSON_PYTHON, "x",
                                  &json, &err),
                  &err);
        if (fp8q_json_uint(json, &value) != cases[i].ok || value != cases[i].value)
            fail_msg("%s gives %llu", cases[i].text, (unsigned long long)value);
        fp8q_json_free(json);
    }
}

/* Members of a name, wherever they stand, each once and in order.  */
static void members_are_found_at_any_depth(void **state)
{
    (void)state;
    static const char text[] = "{\"q\": 1, \"a\": {\"b\": [{\"q\": 2}, [{\"q\": {\"q\": 3}}]]}, "
                               "\"Q\": 9, \"z\": {\"q\": 4}}";
    struct fp8q_error err = {0};
    struct fp8q_json *json;
    const struct fp8q_json *found = NULL;
    unsigned n = 0;

    assert_ok(fp8q_json_parse(text, sizeof(text) - 1, 0, "x", &json, &err), &err);
    static const double expected[] = {1, 2, -1, 3, 4}; /* -1: the object */
    while ((found = fp8q_json_find(json, "q", found))) {
        assert_true(n < 5);
        assert_true(fp8q_json_number(found, -1) == expected[n++]);
    }
    assert_int_equal(n, 5);
    assert_null(fp8q_json_find(json, "none", NULL));
    assert_null(fp8q_json_find(NULL, "q", NULL));
    fp8q_json_free(json);
}

static void quotas_become_cpus(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned cpus;
    } cases[] = {{"max 100000", 0},    {"100000 100000", 1}, {"150000 100000", 2},
                 {"400000 100000", 4}, {"1000 100000", 1},   {"-1 100000", 0},
                 {"100000 0", 0},      {"0 100000", 0},      {"", 0},
                 {"nonsense", 0},      {"100000", 0}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_int_equal(fp8q_cpus_of_quota(cases[i].text), cases[i].cpus);
    assert_true(fp8q_cpu_count() >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_have_a_point_in_every_locale),
        cmocka_unit_test(counts_are_checked),
        cmocka_unit_test(members_are_found_at_any_depth),
        cmocka_unit_test(quotas_become_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
