/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gate_evidence.c - what is written reads back; what is wrong is refused with its place;
 * dates.
 */
#include "support/support.h"

#include <math.h>

#include "base/date.h"
#include "gate/evidence.h"

static void times_read_back(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t seconds;
    } good[] = {
        {"1970-01-01T00:00:00Z", 0},
        {"2000-02-29T12:34:56Z", 951827696},
        {"2026-01-31T23:59:59Z", 1769903999},
        {"2026-02-01T01:59:59.123+02:00", 1769903999},
        {"2026-01-31T18:29:59-05:30", 1769903999},
        {"2026-01-31 23:59:59z", 1769903999},
        {"2100-03-01T00:00:00Z", 4107542400},
    };
    static const char *const bad[] = {"",
                                      "2026-01-31",
                                      "2026-13-01T00:00:00Z",
                                      "2026-02-29T00:00:00Z",
                                      "2026-01-31T24:00:00Z",
                                      "2026-01-31T00:00:00",
                                      "x026-01-31T00:00:00Z",
                                      "2026-01-31T00:00:00+2:00",
                                      "2026-01-31T00:00:00Z ",
                                      "1969-12-31T00:00:00Z"};
    char text[FP8Q_TIME_TEXT];
    int64_t seconds;
    for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
        assert_true(fp8q_time_parse(good[i].text, &seconds));
        assert_int_equal(seconds, good[i].seconds);
        fp8q_time_format(seconds, text);
        assert_true(fp8q_time_parse(text, &seconds));
        assert_int_equal(seconds, good[i].seconds);
    }
    fp8q_time_format(951827696, text);
    assert_string_equal(text, "2000-02-29T12:34:56Z");
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(fp8q_time_parse(bad[i], &seconds));
    for (int64_t day = 0; day < 60000; day++) {
        fp8q_time_format(day * 86400, text);
        assert_true(fp8q_time_parse(text, &seconds) && seconds == day * 86400);
    }
}

static void what_is_written_reads_back(void **state)
{
    (void)state;
    char kind[] = "eval", stack[] = "engine 1 on \"x\"", tool[] = "fp8q", rounding[] = "gptq";
    struct fp8q_evidence out = {.kind = kind,
                                .stack = stack,
                                .tool = tool,
                                .created = 1769903999,
                                .source = {true, 0x0000beef},
                                .rounding = rounding,
                                .output = {true, 0xdeadbeef},
                                .config = {true, 0x00c0ffee}};
    struct fp8q_jsonw w = {.indent = 1};
    struct fp8q_error err = {0};
    struct fp8q_evidence in;
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_evidence_write(&w, &out);
    fp8q_jsonw_string(&w, "acts", "served");
    fp8q_jsonw_uint(&w, "tokens", 811);
    fp8q_jsonw_raw(&w, "kld", "{\"mean\": 0.00735, \"se\": null, \"se_by_token\": 0.0002}");
    fp8q_jsonw_raw(&w, "ppl", "{\"dln\": -0.0097}");
    fp8q_jsonw_raw(&w, "rows", "{\"activations-only\": {\"kld\": {\"mean\": 0.00289}}}");
    fp8q_jsonw_raw(&w, "samples",
                   "[{\"tokens\": 811, \"kld\": 0.00735}, {\"tokens\": 0, \"kld\": null}]");
    fp8q_jsonw_close(&w, '}');
    assert_ok(fp8q_text_status(&w.text, &err), &err);
    assert_ok(fp8q_evidence_parse(w.text.data, w.text.len, "e.json", &in, &err), &err);
    assert_string_equal(in.kind, "eval");
    assert_string_equal(in.stack, stack);
    assert_int_equal(in.created, out.created);
    assert_true(in.source.known && in.source.crc32 == 0xbeef);
    assert_true(in.output.known && in.output.crc32 == 0xdeadbeef);
    assert_false(in.inputs.known);
    assert_true(in.config.known && in.config.crc32 == 0xc0ffee);
    assert_string_equal(in.rounding, "gptq");
    assert_int_equal(in.eval.n_scored, 1);
    assert_true(in.eval.output.kld == 0.00735 && isnan(in.eval.output.kld_se));
    assert_true(in.eval.output.dln == -0.0097 && in.eval.floor.kld == 0.00289);
    assert_true(isnan(in.eval.output.top1) && isnan(in.eval.requant.kld));
    assert_int_equal(in.eval.n_samples, 2);
    assert_int_equal(in.eval.samples[1].tokens, 0);
    fp8q_evidence_reset(&in);
    fp8q_text_reset(&w.text);
}

#define HEAD "\"schema\":\"fp8q-evidence/1\",\"kind\":\"eval\",\"created\":\"2026-01-31T23:59:59Z\""
#define EVAL(members) "{" HEAD "," members "}"

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *json, *part;
    } cases[] = {
        {"[]", "schema"},
        {"{}", "schema"},
        {"{\"schema\":\"fp8q-evidence/2\"}", "found \"fp8q-evidence/2\""},
        {"{\"schema\":\"fp8q-evidence/1\"}", "\"kind\""},
        {"{\"schema\":\"fp8q-evidence/1\",\"kind\":\"eval\"}", "\"created\""},
        {"{\"schema\":\"fp8q-evidence/1\",\"kind\":\"eval\",\"created\":\"yesterday\"}",
         "\"created\""},
        {"{" HEAD ",\"fingerprints\":{\"output\":\"12\"}}", "fingerprints.output"},
        {"{" HEAD ",\"fingerprints\":{\"output\":17}}", "fingerprints.output"},
        {"{" HEAD "}", "acts"},
        {EVAL("\"acts\":7"), "acts"},
        {EVAL("\"acts\":\"none\",\"tokens\":0"), "tokens"},
        {EVAL("\"acts\":\"none\",\"tokens\":1.5"), "tokens"},
        {EVAL("\"acts\":\"none\",\"tokens\":5"), "kld.mean"},
        {EVAL("\"acts\":\"none\",\"tokens\":5,\"kld\":{\"mean\":null}"), "kld.mean"},
        {EVAL("\"acts\":\"none\",\"tokens\":5,\"kld\":{\"mean\":-0.1}"), "kld.mean"},
        {EVAL("\"acts\":\"none\",\"tokens\":5,\"kld\":{\"mean\":0.1},\"top1\":97"), "top1"},
        {EVAL("\"acts\":\"none\",\"tokens\":5,\"kld\":{\"mean\":0.1},\"samples\":[{}]"), "tokens"},
        {EVAL("\"acts\":\"none\",\"tokens\":5,\"kld\":{\"mean\":0.1},\"samples\":[{\"tokens\":1}]"),
         "kld"},
        {EVAL("\"acts\":\"none\",\"tokens\":0,\"final_error\":-1"), "final_error"},
        {EVAL("\"acts\":\"none\",\"tokens\":0,\"final_error\":1,\"key_error\":[0.1,null]"),
         "key_error"},
        {EVAL("\"acts\":\"none\",\"tokens\":5,\"kld\":{\"mean\":0.1},\"samples\":[{\"tokens\":5,"
              "\"kld\":0.1,\"category\":7}]"),
         "category"},
        {EVAL("\"acts\":\"none\",\"tokens\":5,\"kld\":{\"mean\":0.1},\"modalities\":[{\"name\":"
              "\"text\","
              "\"tokens\":5,\"samples\":1,\"kld\":0.2}]"),
         "modalities"},
        {EVAL("\"acts\":\"none\",\"tokens\":5,\"kld\":{\"mean\":0.1},\"modalities\":[{\"name\":"
              "\"text\","
              "\"tokens\":4,\"samples\":1,\"kld\":0.1}]"),
         "modalities"},
        {"{" HEAD ",\"kind\":\"eval\"}", "kind"},
        {"{" HEAD "} x", "e.json"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_evidence e;
        assert_failed(fp8q_evidence_parse(cases[i].json, strlen(cases[i].json), "e.json", &e, &err),
                      FP8Q_E_FORMAT, &err, cases[i].part);
        assert_null(e.path);
    }
    struct fp8q_error err = {0};
    struct fp8q_evidence e;
    assert_failed(fp8q_evidence_read(data_path("no-such-file"), &e, &err), FP8Q_E_IO, &err,
                  "no-such-file");
}

/* Order, white space, nulls and what changes no result do not matter; all else does.  */
static void networks_are_told_apart(void **state)
{
    (void)state;
    static const char base[] =
        "{\"rope\":{\"theta\":10000.0,\"type\":\"x\"},\"eps\":1e-6,\"l\":[1,2],"
        "\"tie\":true,\"dtype\":\"bfloat16\"}";
    static const char *const same[] = {
        "{\"eps\": 1e-6, \"tie\": true, \"l\": [1, 2], \"rope\": {\"type\": \"x\", \"theta\": "
        "1e4}}",
        "{\"rope\":{\"theta\":10000.0,\"type\":\"x\"},\"eps\":1e-6,\"l\":[1,2],\"tie\":true,"
        "\"quantization_config\":{\"a\":1},\"torch_dtype\":\"float16\",\"sliding\":null,"
        "\"transformers_version\":\"9\"}"};
    static const char *const other[] = {
        "{\"rope\":{\"theta\":20.0,\"type\":\"x\"},\"eps\":1e-6,\"l\":[1,2],\"tie\":true}",
        "{\"rope\":{\"theta\":10000.0,\"type\":\"y\"},\"eps\":1e-6,\"l\":[1,2],\"tie\":true}",
        "{\"rope\":{\"theta\":10000.0,\"type\":\"x\"},\"eps\":1e-5,\"l\":[1,2],\"tie\":true}",
        "{\"rope\":{\"theta\":10000.0,\"type\":\"x\"},\"eps\":1e-6,\"l\":[2,1],\"tie\":true}",
        "{\"rope\":{\"theta\":10000.0,\"type\":\"x\"},\"eps\":1e-6,\"l\":[1,2],\"tie\":false}",
        "{\"rope\":{\"theta\":10000.0,\"type\":\"x\"},\"eps\":1e-6,\"l\":[1,2]}",
        "{\"theta\":10000.0,\"type\":\"x\",\"eps\":1e-6,\"l\":[1,2],\"tie\":true}"};
    uint32_t crc = 0;
    for (size_t i = 0; i < 10; i++) {
        struct fp8q_error err = {0};
        struct fp8q_json *json;
        const char *text = base;
        if (i > 0)
            text = i < 3 ? same[i - 1] : other[i - 3];
        assert_ok(fp8q_json_parse(text, strlen(text), 0, "config.json", &json, &err), &err);
        struct fp8q_fingerprint f = fp8q_network_fingerprint(json);
        assert_true(f.known);
        if (i == 0)
            crc = f.crc32;
        assert_true((f.crc32 == crc) == (i < 3));
        fp8q_json_free(json);
    }
    assert_false(fp8q_network_fingerprint(NULL).known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_read_back),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(networks_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
