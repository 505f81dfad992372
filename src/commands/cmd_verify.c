/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_verify.c - fp8q verify DST [--source SRC]
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "base/output.h"
#include "verify/verify.h"

static const char usage[] =
    "usage: fp8q verify [options] DST\n\n"
    "Proves a checkpoint: structure, checksums, codes and scales, config and index.  With --source "
    "every\n"
    "kept tensor is compared byte for byte, and every code and scale is derived again.  DST may "
    "also come\n"
    "from another tool.  Exit status 0: all checks passed, 1: one failed, 4: the lock was widened.";

enum { WORST = 5 };

static const char *const words[] = {"pass", "warn", "fail"};

/* Passed checks in a few lines; with -v one line each, like those that did not pass.  */
static void print_passed(struct cli *cli, const struct fp8q_report *r)
{
    enum { WIDTH = 92 };
    size_t column = 0;
    for (size_t i = 0; i < r->n_checks; i++) {
        const struct fp8q_check *c = &r->checks[i];
        if (c->status != FP8Q_CHECK_PASS)
            continue;
        if (cli->verbose) {
            cli_print(cli, "%spass%s  %-24s %s\n", cli_style(CLI_GOOD), cli_style(CLI_PLAIN), c->id,
                      c->observed);
            continue;
        }
        if (column == 0 || column + strlen(c->id) + 2 > WIDTH) {
            cli_print(cli, "%s%s%s%s ", column ? "\n" : "", cli_style(CLI_GOOD),
                      column ? "     " : "pass:", cli_style(CLI_PLAIN));
            column = 6;
        }
        cli_print(cli, " %s", c->id);
        column += strlen(c->id) + 1;
    }
    if (column)
        cli_print(cli, "\n");
}

static void print_report(struct cli *cli, const struct fp8q_report *r, bool strict)
{
    print_passed(cli, r);
    for (size_t i = 0; i < r->n_checks; i++) {
        const struct fp8q_check *c = &r->checks[i];
        if (c->status == FP8Q_CHECK_PASS)
            continue;
        cli_print(cli, "%s%s%s  %-24s %s%s%s\n      expected: %s\n",
                  cli_style(c->status == FP8Q_CHECK_FAIL ? CLI_BAD : CLI_BOLD), words[c->status],
                  cli_style(CLI_PLAIN), c->id, c->observed, c->where[0] ? ": " : "", c->where,
                  c->limit);
    }
    if (r->n_sqnr) {
        struct fp8q_shown shown;
        cli_print(cli, "signal to quantization noise: mean %.2f dB over %zu tensors; worst:\n",
                  r->sqnr_mean, r->n_sqnr);
        for (size_t i = 0; i < r->n_sqnr && i < WORST; i++)
            cli_print(cli, "  %6.2f dB  %s\n", r->sqnr[i].db, fp8q_show(&shown, r->sqnr[i].name));
    }
    if (r->bound_factor > 1)
        cli_print(cli, "FP8 values of another tool: the error bound was taken twice as wide\n");
    bool passed = r->n_failed == 0 && (!strict || r->n_warned == 0);
    cli_print(cli, "%s%s%s: %zu checks, %zu failed, %zu warnings\n",
              cli_style(passed ? CLI_GOOD : CLI_BAD), passed ? "PASSED" : "FAILED",
              cli_style(CLI_PLAIN), r->n_checks, r->n_failed, r->n_warned);
}

static void write_report(struct fp8q_jsonw *w, const struct fp8q_report *r)
{
    fp8q_jsonw_bool(w, "manifest", r->ours);
    fp8q_jsonw_open(w, "checks", '[');
    for (size_t i = 0; i < r->n_checks; i++) {
        const struct fp8q_check *c = &r->checks[i];
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "id", c->id);
        fp8q_jsonw_string(w, "status", words[c->status]);
        fp8q_jsonw_string(w, "observed", c->observed);
        fp8q_jsonw_string(w, "limit", c->limit);
        fp8q_jsonw_string(w, "where", c->where);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
    if (!r->n_sqnr)
        return;
    fp8q_jsonw_open(w, "sqnr_db", '{');
    fp8q_jsonw_number(w, "min", r->sqnr[0].db);
    fp8q_jsonw_number(w, "mean", r->sqnr_mean);
    fp8q_jsonw_open(w, "worst", '[');
    for (size_t i = 0; i < r->n_sqnr && i < WORST; i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", r->sqnr[i].name);
        fp8q_jsonw_number(w, "db", r->sqnr[i].db);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

/* ---- JUnit ----------------------------------------------------------------------------------- */

static void xml_text(struct fp8q_text *t, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '<':
            fp8q_text_puts(t, "&lt;");
            break;
        case '>':
            fp8q_text_puts(t, "&gt;");
            break;
        case '&':
            fp8q_text_puts(t, "&amp;");
            break;
        case '"':
            fp8q_text_puts(t, "&quot;");
            break;
        default: /* report texts hold no control characters: fp8q_show() */
            fp8q_text_add(t, s, 1);
        }
}

static void junit_case(struct fp8q_text *t, const struct fp8q_check *c, bool strict)
{
    bool failed = c->status == FP8Q_CHECK_FAIL || (strict && c->status == FP8Q_CHECK_WARN);
    fp8q_text_printf(t, "  <testcase classname=\"fp8q.verify\" name=\"%s\"%s", c->id,
                     failed ? ">\n    <failure message=\"" : "/>\n");
    if (!failed)
        return;
    xml_text(t, c->observed);
    fp8q_text_puts(t, "\">");
    xml_text(t, c->where);
    fp8q_text_puts(t, "; expected: ");
    xml_text(t, c->limit);
    fp8q_text_puts(t, "</failure>\n  </testcase>\n");
}

static int write_junit(struct cli *cli, const char *path, const struct fp8q_report *r, bool strict,
                       int status)
{
    struct fp8q_text t = {0};
    bool error = status != FP8Q_OK && r->n_failed == 0 && r->n_warned == 0;
    fp8q_text_puts(&t, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    fp8q_text_printf(
        &t, "<testsuite name=\"fp8q verify\" tests=\"%zu\" failures=\"%zu\" errors=\"%d\">\n",
        r->n_checks + error, r->n_failed + (strict ? r->n_warned : 0), error);
    for (size_t i = 0; i < r->n_checks; i++)
        junit_case(&t, &r->checks[i], strict);
    if (error) {
        fp8q_text_puts(
            &t, "  <testcase classname=\"fp8q.verify\" name=\"open\">\n    <error message=\"");
        xml_text(&t, cli->error.message);
        fp8q_text_puts(&t, "\"/>\n  </testcase>\n");
    }
    fp8q_text_puts(&t, "</testsuite>\n");
    struct fp8q_error err = {0};
    int written = fp8q_text_status(&t, &err);
    if (written == FP8Q_OK)
        written = fp8q_output_write(path, t.data, t.len, &err);
    fp8q_text_reset(&t);
    if (written != FP8Q_OK && status == FP8Q_OK)
        cli->error = err;
    return status == FP8Q_OK ? written : status;
}

static int run(struct cli *cli, int argc, char **argv)
{
    struct fp8q_verify_options o = {.source = NULL};
    const char *junit = NULL;
    const struct cli_option options[] = {
        {"source", 0, CLI_TEXT, &o.source, "SRC", "compare with the source as well"},
        {"calibration", 0, CLI_TEXT, &o.calibration, "FILE",
         "with --source: derive error-compensated codes again"},
        {"lock", 0, CLI_TEXT, &o.lock_file, "FILE",
         "fail (4) if more is quantized than FILE allows"},
        {"junit", 0, CLI_TEXT, &junit, "FILE", "write the checks as JUnit XML"},
        {"strict", 0, CLI_FLAG, &o.strict, NULL, "warnings fail too"},
        {.name = NULL}};
    const char *operands[1];
    struct fp8q_report report;
    int code;
    if (!cli_parse(cli, argc, argv, usage, options, operands, 1, 1, &code))
        return code;
    o.threads = (unsigned)cli->threads;
    o.watch = &cli->watch;
    o.kernel = fp8q_kernel_select(cli->kernel);
    if (!o.kernel)
        return cli_usage_error(cli, "--kernel: \"%s\" is unknown or not usable here", cli->kernel);
    int status = fp8q_verify(operands[0], &o, &report, &cli->warnings, &cli->error);
    cli_progress_clear();
    cli_show_warnings(cli);
    if (report.n_checks)
        print_report(cli, &report, o.strict);
    write_report(&cli->json, &report);
    if (junit)
        status = write_junit(cli, junit, &report, o.strict, status);
    fp8q_report_reset(&report);
    return cli_end(cli, status);
}

const struct cli_command cli_cmd_verify = {"verify", run,
                                           "prove a checkpoint, alone or against its source"};
