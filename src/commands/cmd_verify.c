/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_verify.c - fp8q verify DST [--source SRC]
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/output.h"
#include "base/text.h"
#include "cli/junit.h"
#include "cli/options.h"
#include "commands/commands.h"

static const char usage[] =
    "usage: fp8q verify [options] DST\n\n"
    "Proves a checkpoint: structure, checksums, FP8 values and scales, config and index.  With\n"
    "--source every tensor left unquantized is compared byte for byte, and every FP8 value and\n"
    "scale is derived again.  DST may also come from another tool.  Exit status 0: all checks\n"
    "passed, 1: one failed, 4: the lock was widened.\n\n"
    "Example: fp8q verify Qwen3-4B-FP8 --source Qwen3-4B --junit verify.xml";

/* Tensors by their noise, and places of one check, that are shown to people.  */
enum { WORST = 5, SHOWN = 20 };

static const char *const words[] = {"pass", "warn", "fail"};

/* ---- for people ------------------------------------------------------------------------------ */

/* Passed checks in a few lines; with -v one line each, like those that did not pass.  */
static void print_passed(struct cli *cli, const struct fp8q_verification *v)
{
    enum { WIDTH = 79 };
    const struct fp8q_check *c;
    size_t column = 0;

    for (size_t i = 0; (c = fp8q_verification_check(v, i)); i++) {
        if (c->status != FP8Q_CHECK_PASS)
            continue;
        if (cli->verbose) {
            cli_print(cli, "%spass%s  %-24s %s\n", cli_style(CLI_GOOD), cli_style(CLI_PLAIN), c->id,
                      c->observed);
            continue;
        }

        /* Ids stand side by side, up to WIDTH columns a row; only the first row has the word.  */
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

/* The places beyond the first, which stands in the check itself.  */
static void print_more(struct cli *cli, const struct fp8q_verification *v, size_t check)
{
    const char *where, *observed;
    uint64_t n = fp8q_verification_count(v, check);

    for (size_t i = 1; i < SHOWN && fp8q_verification_finding(v, check, i, &where, &observed); i++)
        cli_print(cli, "      also: %s%s%s\n", where, where[0] ? ": " : "", observed);

    if (n > SHOWN)
        cli_print(cli, "      ... and %llu more; --json and --junit list them\n",
                  (unsigned long long)(n - SHOWN));
}

static void print_not_passed(struct cli *cli, const struct fp8q_verification *v)
{
    enum { HANG = 8 };
    const struct fp8q_check *c;

    for (size_t i = 0; (c = fp8q_verification_check(v, i)); i++) {
        enum cli_style style = c->status == FP8Q_CHECK_FAIL ? CLI_BAD : CLI_BOLD;
        if (c->status == FP8Q_CHECK_PASS)
            continue;

        cli_print_wrapped(cli, HANG, "%s%s%s  %-24s %s%s%s", cli_style(style), words[c->status],
                          cli_style(CLI_PLAIN), c->id, c->observed, c->where[0] ? ": " : "",
                          c->where);
        cli_print_wrapped(cli, HANG, "      expected: %s", c->limit);
        print_more(cli, v, i);
    }
}

static void print_noise(struct cli *cli, const struct fp8q_verification *v)
{
    const struct fp8q_verification_info *info = fp8q_verification_info(v);
    struct fp8q_shown shown;
    const char *name;
    double db;

    cli_print(cli, "signal to quantization noise: mean %.2f dB over %zu tensor%s; worst:\n",
              info->sqnr_mean, info->n_sqnr, fp8q_plural(info->n_sqnr));
    for (size_t i = 0; i < WORST && fp8q_verification_sqnr(v, i, &name, &db); i++)
        cli_print(cli, "  %6.2f dB  %s\n", db, fp8q_show(&shown, name));
}

static void print_report(struct cli *cli, const struct fp8q_verification *v, bool strict)
{
    const struct fp8q_verification_info *info = fp8q_verification_info(v);
    bool passed = info->n_failed == 0 && (!strict || info->n_warned == 0);

    print_passed(cli, v);
    print_not_passed(cli, v);
    if (info->n_sqnr)
        print_noise(cli, v);

    /* How another tool scales and rounds is not known.  */
    if (info->bound_factor > 1)
        cli_print(cli, "FP8 values of another tool: the error bound was taken twice as wide\n");

    cli_print(cli, "%s%s%s: %zu check%s, %zu failed, %zu warning%s\n",
              cli_style(passed ? CLI_GOOD : CLI_BAD), passed ? "PASSED" : "FAILED",
              cli_style(CLI_PLAIN), info->n_checks, fp8q_plural(info->n_checks), info->n_failed,
              info->n_warned, fp8q_plural(info->n_warned));
}

/* ---- for machines ---------------------------------------------------------------------------- */

static void write_noise(struct fp8q_jsonw *w, const struct fp8q_verification *v)
{
    const char *name;
    double db;

    fp8q_jsonw_open(w, "sqnr_db", '{');
    /* Worst first, so number 0 is the least.  */
    (void)fp8q_verification_sqnr(v, 0, &name, &db);
    fp8q_jsonw_number(w, "min", db);
    fp8q_jsonw_number(w, "mean", fp8q_verification_info(v)->sqnr_mean);

    fp8q_jsonw_open(w, "worst", '[');
    for (size_t i = 0; i < WORST && fp8q_verification_sqnr(v, i, &name, &db); i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "name", name);
        fp8q_jsonw_number(w, "db", db);
        fp8q_jsonw_close(w, '}');
    }

    fp8q_jsonw_close(w, ']');
    fp8q_jsonw_close(w, '}');
}

static void write_findings(struct fp8q_jsonw *w, const struct fp8q_verification *v, size_t check)
{
    const char *where, *observed;
    if (fp8q_verification_count(v, check) == 0)
        return;

    fp8q_jsonw_uint(w, "count", fp8q_verification_count(v, check));
    fp8q_jsonw_open(w, "findings", '[');
    for (size_t i = 0; fp8q_verification_finding(v, check, i, &where, &observed); i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "where", where);
        fp8q_jsonw_string(w, "observed", observed);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');
}

static void write_report(struct fp8q_jsonw *w, const struct fp8q_verification *v)
{
    const struct fp8q_check *c;

    fp8q_jsonw_bool(w, "manifest", fp8q_verification_info(v)->has_manifest);
    fp8q_jsonw_open(w, "checks", '[');
    for (size_t i = 0; (c = fp8q_verification_check(v, i)); i++) {
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "id", c->id);
        fp8q_jsonw_string(w, "status", words[c->status]);
        fp8q_jsonw_string(w, "observed", c->observed);
        fp8q_jsonw_string(w, "limit", c->limit);
        fp8q_jsonw_string(w, "where", c->where);
        write_findings(w, v, i);
        fp8q_jsonw_close(w, '}');
    }
    fp8q_jsonw_close(w, ']');

    /* Only a comparison with a source knows the noise.  */
    if (fp8q_verification_info(v)->n_sqnr)
        write_noise(w, v);
}

/* The message of a case and, line by line, every place that the check found.  */
static int describe_case(const struct fp8q_verification *v, size_t check, bool failed,
                         struct fp8q_text *message, struct fp8q_text *detail,
                         struct fp8q_error *err)
{
    const struct fp8q_check *c = fp8q_verification_check(v, check);
    const char *where, *observed;

    fp8q_text_puts(message, c->observed);
    if (failed)
        fp8q_text_printf(message, "; %s%sexpected: %s", c->where, c->where[0] ? "; " : "",
                         c->limit);

    fp8q_text_puts(detail, "");
    for (size_t i = 0; fp8q_verification_finding(v, check, i, &where, &observed); i++)
        fp8q_text_printf(detail, "%s%s%s\n", where, where[0] ? ": " : "", observed);

    FP8Q_TRY(fp8q_text_status(message, err));
    return fp8q_text_status(detail, err);
}

/* One case for each check.  @texts has two for each of them.  */
static int make_cases(const struct fp8q_verification *v, bool strict, struct cli_case *cases,
                      struct fp8q_text *texts, struct fp8q_error *err)
{
    const struct fp8q_check *c;

    for (size_t i = 0; (c = fp8q_verification_check(v, i)); i++) {
        struct fp8q_text *message = &texts[2 * i], *detail = message + 1;
        bool failed = c->status == FP8Q_CHECK_FAIL || (strict && c->status == FP8Q_CHECK_WARN);
        FP8Q_TRY(describe_case(v, i, failed, message, detail, err));
        cases[i] = (struct cli_case){"fp8q.verify", c->id, message->data, detail->data,
                                     failed ? CLI_FAILED : CLI_PASSED};
    }
    return FP8Q_OK;
}

/* All checks, and one case more for @failure (NULL: none), which kept verify from looking.  */
static int write_junit(const char *path, const struct fp8q_verification *v, bool strict,
                       const struct fp8q_error *failure, struct fp8q_error *err)
{
    size_t n_checks = fp8q_verification_info(v)->n_checks, n = n_checks;
    struct cli_case *cases = fp8q_array(n + 1, sizeof(*cases));
    struct fp8q_text *texts = fp8q_array(n, 2 * sizeof(*texts));
    int status = cases && texts ? make_cases(v, strict, cases, texts, err) : fp8q_fail_nomem(err);

    if (status == FP8Q_OK) {
        /* Without this, a run that broke off would look like one that passed.  */
        if (failure)
            cases[n++] =
                (struct cli_case){"fp8q.verify", "open", failure->message, NULL, CLI_ERROR};
        status = cli_junit_write(path, "fp8q verify", cases, n, err);
    }

    for (size_t i = 0; texts && i < 2 * n_checks; i++)
        fp8q_text_reset(&texts[i]);
    free(cases);
    free(texts);
    return status;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* The result file is nothing that is verified or compared with.  */
static int guard_inputs(const char *junit, const struct fp8q_verify_request *r,
                        struct fp8q_guard_list *guard, struct fp8q_error *err)
{
    FP8Q_TRY(fp8q_guard_add(guard, r->path, "the checkpoint to verify", err));
    FP8Q_TRY(fp8q_guard_add(guard, r->source, "the source", err));
    FP8Q_TRY(fp8q_guard_add(guard, r->lock, "the lock", err));
    FP8Q_TRY(fp8q_guard_add(guard, r->calibration, "the calibration", err));
    return fp8q_output_check(junit, guard, err);
}

static int check_junit(const char *junit, const struct fp8q_verify_request *r,
                       struct fp8q_error *err)
{
    struct fp8q_guard_list guard = {0};
    int status = guard_inputs(junit, r, &guard, err);
    fp8q_guard_reset(&guard);
    return status;
}

static int verify(struct cli *cli, const struct fp8q_verify_request *r, const char *junit)
{
    struct fp8q_verification *v = NULL;
    struct fp8q_error unwritten = {0};
    if (junit)
        FP8Q_TRY(check_junit(junit, r, &cli->error));

    int status = fp8q_verification_open(r, &cli->run, &v, &cli->warnings, &cli->error);
    if (!v)
        return status;

    cli_progress_clear();
    cli_show_warnings(cli);
    /* A checkpoint that could not be opened has no checks.  */
    if (fp8q_verification_info(v)->n_checks)
        print_report(cli, v, r->strict);
    write_report(&cli->json, v);

    /* A verdict is worth more than the news that it could not be written down.  */
    bool judged = status == FP8Q_OK || status == FP8Q_E_MISMATCH || status == FP8Q_E_POLICY;
    int written = FP8Q_OK;
    if (junit)
        written = write_junit(junit, v, r->strict, judged ? NULL : &cli->error, &unwritten);

    fp8q_verification_close(v);
    if (status != FP8Q_OK || written == FP8Q_OK)
        return status;
    cli->error = unwritten;
    return written;
}

int cmd_verify(struct cli *cli)
{
    struct fp8q_verify_request r;
    const char *junit = NULL;
    fp8q_verify_request_init(&r);
    const struct cli_option options[] = {
        {"source", 0, CLI_TEXT, &r.source, "SRC", "compare with the source as well"},
        {"calibration", 0, CLI_TEXT, &r.calibration, "FILE",
         "with --source: derive GPTQ-rounded FP8 values again"},
        {"lock", 0, CLI_TEXT, &r.lock, "FILE", "fail (4) if more is quantized than FILE allows"},
        {"junit", 0, CLI_TEXT, &junit, "FILE", "write the checks as JUnit XML"},
        {"strict", 0, CLI_FLAG, &r.strict, NULL, "warnings fail too"},
        {.name = NULL}};
    const struct cli_rule rules[] = {{"calibration", CLI_NEEDS, "source"}, {.option = NULL}};
    const struct cli_syntax syntax = {
        .usage = usage, .options = options, .rules = rules, .min = 1, .max = 1};
    int code;

    if (!cli_parse(cli, &syntax, &r.path, &code))
        return code;
    return cli_end(cli, verify(cli, &r, junit));
}
