/* SPDX-License-Identifier: Apache-2.0
 *
 * test_report.c - text of files inside of other languages, figures of FP8 values counted by hand,
 * and results that are none.
 */
#include "support/support.h"

#include <math.h>

#include "base/path.h"
#include "measure/values.h"
#include "report/markup.h"
#include "report/results.h"
#include "report/svg.h"
#include "support/maker.h"

/* ---- markup ---------------------------------------------------------------------------------- */

static void put(void (*write)(struct fp8q_text *, const char *), const char *text,
                const char *expected)
{
    struct fp8q_text t = {0};
    fp8q_text_puts(&t, "");
    write(&t, text);
    assert_ok(fp8q_text_status(&t, NULL), NULL);
    assert_string_equal(t.data, expected);
    fp8q_text_reset(&t);
}

static void text_is_text_in_every_language(void **state)
{
    (void)state;
    static const struct {
        const char *text, *html, *markdown, *code, *yaml, *shell;
    } rows[] = {
        {"q_proj", "q_proj", "q_proj", "`q_proj`", "\"q_proj\"", "q_proj"},
        {"<a href=\"x\">&'", "&lt;a href=&quot;x&quot;&gt;&amp;&#39;",
         "&lt;a href=&quot;x&quot;&gt;&amp;&#39;", "`<a href=\"x\">&'`", "\"<a href=\\\"x\\\">&'\"",
         "'<a href=\"x\">&'\\'''"},
        {"a|b`c", "a|b`c", "a\\|b\\`c", "a\\|b\\`c", "\"a|b`c\"", "'a|b`c'"},
        {"[x](y) *z* _w_", "[x](y) *z* _w_", "\\[x\\](y) \\*z\\* \\_w\\_", "`[x](y) *z* _w_`",
         "\"[x](y) *z* _w_\"", "'[x](y) *z* _w_'"},
        {"http://a www.b", "http://a www.b", "http\\://a www\\.b", "`http://a www.b`",
         "\"http://a www.b\"", "'http://a www.b'"},
        {"@me #1", "@me #1",
         "@\xE2\x81\xA0me #\xE2\x81\xA0"
         "1",
         "`@me #1`", "\"@me #1\"", "'@me #1'"},
        {"a\n\x01\x7F"
         "b",
         "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
         "b",
         "a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
         "b",
         "`a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
         "b`",
         "\"a\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
         "b\"",
         "'a\n\x01\x7F"
         "b'"},
        /* An override of direction, a broken character, a noncharacter, a surrogate.  */
        {"\xE2\x80\xAE"
         "x\xC3",
         "\xEF\xBF\xBDx\xEF\xBF\xBD", "\xEF\xBF\xBDx\xEF\xBF\xBD", "`\xEF\xBF\xBDx\xEF\xBF\xBD`",
         "\"\xEF\xBF\xBDx\xEF\xBF\xBD\"",
         "'\xE2\x80\xAE"
         "x\xC3'"},
        {"\xEF\xBF\xBE\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
         "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD",
         "`\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD`",
         "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"", "'\xEF\xBF\xBE\xED\xA0\x80'"},
        {"", "", "", "", "\"\"", "''"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        put(fp8q_put_html, rows[i].text, rows[i].html);
        put(fp8q_put_markdown, rows[i].text, rows[i].markdown);
        put(fp8q_put_code, rows[i].text, rows[i].code);
        put(fp8q_put_yaml, rows[i].text, rows[i].yaml);
        put(fp8q_put_shell, rows[i].text, rows[i].shell);
    }
}

/* No random bytes become a tag, end an attribute, a cell or a line.  */
static void nothing_breaks_out(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    static const char likely[] = "<>&\"'`|\\\n\r[]()@#-:/ a";

    for (int round = 0; round < 20000; round++) {
        char text[24] = "";
        struct fp8q_text t = {0};
        size_t n = random_u64(&seed) % sizeof(text);

        for (size_t i = 0; i + 1 < n; i++)
            text[i] = random_u64(&seed) % 2 ? likely[random_u64(&seed) % (sizeof(likely) - 1)]
                                            : (char)(1 + random_u64(&seed) % 255);
        fp8q_text_puts(&t, "");
        fp8q_put_html(&t, text);
        assert_null(strpbrk(t.data, "<>\"'\n\r"));
        fp8q_text_reset(&t);

        fp8q_text_puts(&t, "");
        fp8q_put_markdown(&t, text);
        assert_null(strpbrk(t.data, "<>\n\r"));
        for (const char *bar = t.data; (bar = strchr(bar, '|')) != NULL; bar++)
            assert_true(bar > t.data && bar[-1] == '\\');
        fp8q_text_reset(&t);

        fp8q_put_script(&t, text, strlen(text));
        assert_true(!t.data || !strpbrk(t.data, "<>&"));
        fp8q_text_reset(&t);
    }
}

static void figures_read_well(void **state)
{
    (void)state;
    struct fp8q_text t = {0};
    const uint64_t shape[] = {4, 1234567};

    fp8q_put_count(&t, 0);
    fp8q_text_puts(&t, " ");
    fp8q_put_count(&t, 1002003);
    fp8q_text_puts(&t, " ");
    fp8q_put_bytes(&t, 999);
    fp8q_text_puts(&t, " ");
    fp8q_put_bytes(&t, 2500000);
    fp8q_text_puts(&t, " ");
    fp8q_put_shape(&t, shape, 2);
    fp8q_text_puts(&t, " ");
    fp8q_put_share(&t, 0.5);
    fp8q_text_puts(&t, " ");
    fp8q_put_share(&t, 0.0000123);
    fp8q_text_puts(&t, " ");
    fp8q_put_number(&t, 4, (double)NAN);
    fp8q_text_puts(&t, " ");
    fp8q_put_interval(&t, 0.25, 0.01);
    fp8q_text_puts(&t, " ");
    fp8q_put_interval(&t, 0.25, (double)NAN);
    assert_string_equal(t.data, "0 1,002,003 999 B 2.50 MB [4, 1234567] 50.0 % 0.0012 % - "
                                "0.25 \xC2\xB1 0.02 0.25");
    fp8q_text_reset(&t);
}

/* ---- plots ----------------------------------------------------------------------------------- */

/* Axes of nothing, of one value, of what is no number: what is drawn is finite.  */
static void plots_stay_finite(void **state)
{
    (void)state;
    const double ends[] = {0,          1, -1, 1e-300, 1e300, (double)INFINITY, -(double)INFINITY,
                           (double)NAN};
    enum { N = sizeof(ends) / sizeof(*ends) };

    for (size_t i = 0; i < N * N * 2; i++) {
        struct fp8q_text t = {0};
        struct fp8q_line line = {0};
        struct fp8q_plot p = {.t = &t, .title = "t"};
        p.x = p.y =
            (struct fp8q_axis){"x", ends[i % N], ends[i / N % N], i >= N * N, FP8Q_TICKS_PLAIN};

        fp8q_plot_open(&p);
        for (size_t k = 0; k < N; k++) {
            const double x[2] = {ends[k], ends[i % N]}, y[2] = {0, ends[k]};
            fp8q_plot_box(&p, x, y, "bar", "<tip>");
            fp8q_plot_dot(&p, ends[k], ends[i % N], "dot", NULL);
            fp8q_line_to(&p, &line, ends[k], 1, "line");
        }
        fp8q_line_end(&p, &line);
        fp8q_plot_close(&p);

        assert_ok(fp8q_text_status(&t, NULL), NULL);
        assert_null(strstr(t.data, "nan"));
        assert_null(strstr(t.data, "inf"));
        assert_null(strstr(t.data, "<tip>"));
        assert_true(t.len < 20000);
        fp8q_text_reset(&t);
    }
}

/* ---- values ---------------------------------------------------------------------------------- */

/* 256 x 128: two blocks.  Codes by hand, and a source in which some zeros were none.  */
static void values_are_counted(void **state)
{
    (void)state;
    enum { ROWS = 256, COLS = 128 };
    static uint8_t codes[ROWS * COLS];
    static uint16_t before[ROWS * COLS];
    const float scales[2] = {0.5F, 3};
    const uint64_t shape[] = {ROWS, COLS}, grid[] = {2, 1};

    for (size_t i = 0; i < ROWS * COLS; i++)
        codes[i] = 0x38; /* 1 */
    codes[0] = 0x7E;     /* 448 */
    codes[1] = 0xFE;     /* -448 */
    codes[2] = 0x80;     /* -0 */
    codes[3] = 0;
    codes[4] = 0x03;               /* subnormal */
    codes[ROWS / 2 * COLS] = 0x40; /* 2, the largest of the second block */
    before[2] = 0x8000;            /* was -0 */
    before[3] = 1;                 /* was not 0 */

    char *dir = temp_dir_make(), *fp8 = fp8q_join(dir, "fp8.safetensors"),
         *bf16 = fp8q_join(dir, "bf16.safetensors");
    struct maker m = {0};
    maker_add(&m, "w.weight", FP8Q_F8_E4M3, 2, shape, 0)->data = codes;
    maker_add(&m, "w.weight_scale_inv", FP8Q_F32, 2, grid, 0)->data = scales;
    maker_write_shard(&m, 0, fp8);
    maker_free(&m);
    m = (struct maker){0};
    maker_add(&m, "w.weight", FP8Q_BF16, 2, shape, 0)->data = before;
    maker_write_shard(&m, 0, bf16);
    maker_free(&m);

    struct fp8q_error err = {0};
    struct fp8q_ckpt *ckpt, *source;
    struct fp8q_values v;
    assert_ok(fp8q_ckpt_open(fp8, &ckpt, NULL, &err), &err);
    assert_ok(fp8q_ckpt_open(bf16, &source, NULL, &err), &err);
    const struct fp8q_values_options options = {.source = source, .threads = 2};
    assert_ok(fp8q_values_measure(ckpt, &options, &v, &err), &err);

    const struct fp8q_value_figures *f = &v.total;
    assert_int_equal(f->n_values, ROWS * COLS);
    assert_int_equal(f->saturated, 2);
    assert_int_equal(f->n_compared, ROWS * COLS);
    assert_int_equal(f->underflowed, 1);
    assert_int_equal(f->by_exponent[0], 2);
    assert_int_equal(f->by_exponent[1], 1);
    assert_int_equal(f->by_exponent[8], ROWS * COLS - 6); /* 2^0 */
    assert_int_equal(f->by_exponent[9], 1);
    assert_int_equal(f->by_exponent[16], 2);
    assert_int_equal(f->n_scales, 2);
    assert_true(f->scale_min == 0.5 && f->scale_max == 3);
    assert_int_equal(v.by_scale[FP8Q_SCALE_BINS_LOW - 1], 1);
    assert_int_equal(v.by_scale[FP8Q_SCALE_BINS_LOW + 1], 1);

    fp8q_values_reset(&v);
    fp8q_ckpt_close(ckpt);
    fp8q_ckpt_close(source);
    temp_dir_remove(dir);
    free(fp8);
    free(bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_text_in_every_language),
        cmocka_unit_test(nothing_breaks_out),
        cmocka_unit_test(figures_read_well),
        cmocka_unit_test(plots_stay_finite),
        cmocka_unit_test(values_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
