/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_gate.c - `fp8q gate`: reads what the gate needs, and reports its checks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/options.h"
#include "commands/commands.h"
#include "cli/evalinputs.h"
#include "cli/gate_facts.h"
#include "base/date.h"
#include "base/dir.h"
#include "base/file.h"
#include "base/output.h"
#include "base/text.h"
#include "cli/junit.h"
#include "base/mem.h"

static const char usage[] =
    "usage: fp8q gate [options] DST\n"
    "       fp8q gate --print-policy [--policy P]\n"
    "\n"
    "Decides whether the checkpoint DST may be used: verify and lock, evidence of eval, and "
    "results\n"
    "of tasks against the unquantized model.  Exit status: 0 passed, 1 a check failed, 4 the\n"
    "quantized set is wider than the lock, 5 evidence missing, stale, foreign or inconclusive.\n"
    "\n"
    "Example: fp8q gate Qwen3-4B-FP8 -e eval.json --lock lock.json --junit gate.xml";

static const struct cli_group groups[] = {
    {"What is judged", "source lock", "fallback stack"},
    {"By what", "policy evidence task", "baseline now print-policy"},
    {"Reports", "junit markdown", ""},
    {.head = NULL}};

struct gate_args {
    const char *policy, *stack, *junit, *markdown, *now;
    struct cli_gate_paths paths;
    struct cli_list evidence, baselines, tasks;
    bool print_policy;
};

/* All that was read from files.  */
struct gate_inputs {
    struct fp8q_policy policy;
    struct fp8q_evidence *evidence, *baselines;
    struct fp8q_gate_task *tasks;
    struct fp8q_task_pairs *pairs; /* of each --task */
    char **names;
    size_t n_names;
    size_t n_evidence, n_baselines, n_tasks;
    struct cli_gate_findings findings;
};

/* ---- reading ------------------------------------------------------------------------------- */

static int read_evidence(struct cli *cli, const struct cli_list *paths,
                         struct fp8q_evidence **list_out, size_t *count_out)
{
    *list_out = fp8q_array(paths->count, sizeof(**list_out));
    if (!*list_out)
        return fp8q_fail_nomem(&cli->error);

    /* Counted one by one, so that free_inputs() knows how far this came.  */
    for (; *count_out < paths->count; ++*count_out)
        FP8Q_TRY(
            fp8q_evidence_read(paths->items[*count_out], &(*list_out)[*count_out], &cli->error));
    return FP8Q_OK;
}

/* "NAME:BASE:QUANT" -> three strings in one copy.  */
static int split_task(struct cli *cli, const char *text, char **copy_out, const char *parts[3])
{
    const char *first = strchr(text, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    *copy_out = NULL;

    /* No part may be empty, and with a third colon nobody knows which two of them divide.  */
    if (!second || first == text || second == first + 1 || !second[1] || strchr(second + 1, ':'))
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage",
                         "--task: expected NAME:BASE:QUANT, found \"%s\"", text);

    *copy_out = strdup(text);
    if (!*copy_out)
        return fp8q_fail_nomem(&cli->error);

    parts[0] = *copy_out;
    parts[1] = *copy_out + (first - text) + 1;
    parts[2] = *copy_out + (second - text) + 1;
    (*copy_out)[first - text] = (*copy_out)[second - text] = '\0';
    return FP8Q_OK;
}

/* Pairs of all --task options, then the list that points to them.  */
static int read_tasks(struct cli *cli, const struct cli_list *list, struct gate_inputs *in)
{
    in->pairs = fp8q_array(list->count, sizeof(*in->pairs));
    in->names = fp8q_array(list->count, sizeof(*in->names));
    if (!in->pairs || !in->names)
        return fp8q_fail_nomem(&cli->error);

    size_t total = 0;
    for (size_t i = 0; i < list->count; i++) {
        const char *parts[3] = {NULL, NULL, NULL};
        FP8Q_TRY(split_task(cli, list->items[i], &in->names[i], parts));
        /* From here on free_inputs() releases both, whether or not the pairs can be read.  */
        in->n_names = i + 1;

        /* A policy may name the metric of a task; else the reader chooses.  */
        const struct fp8q_task_policy *own = fp8q_policy_task(&in->policy, parts[0]);
        FP8Q_TRY(fp8q_task_read_pairs(parts[1], parts[2], parts[0], own ? own->metric : NULL,
                                      &in->pairs[i], &cli->error));
        total += in->pairs[i].n_pairs;
    }

    in->tasks = fp8q_array(total, sizeof(*in->tasks));
    if (!in->tasks)
        return fp8q_fail_nomem(&cli->error);

    /* Only now: all pairs are known, and stay where the list points to them.  */
    for (size_t i = 0; i < list->count; i++)
        for (size_t k = 0; k < in->pairs[i].n_pairs; k++) {
            const struct fp8q_task_pair *pair = &in->pairs[i].pairs[k];
            in->tasks[in->n_tasks++] =
                (struct fp8q_gate_task){in->names[i], &pair->base, &pair->quant, k > 0};
        }
    return FP8Q_OK;
}

static int read_all(struct cli *cli, const struct gate_args *args, struct gate_inputs *in)
{
    FP8Q_TRY(read_evidence(cli, &args->evidence, &in->evidence, &in->n_evidence));
    FP8Q_TRY(read_evidence(cli, &args->baselines, &in->baselines, &in->n_baselines));
    FP8Q_TRY(read_tasks(cli, &args->tasks, in));

    /* Last: files are read quickly and may be wrong, while the facts take a verify of all
     * bytes.  */
    return cli_gate_facts(cli, &args->paths, &in->policy, &in->findings);
}

static void free_inputs(struct gate_inputs *in)
{
    for (size_t i = 0; i < in->n_evidence; i++)
        fp8q_evidence_reset(&in->evidence[i]);
    for (size_t i = 0; i < in->n_baselines; i++)
        fp8q_evidence_reset(&in->baselines[i]);
    for (size_t i = 0; i < in->n_names; i++) {
        fp8q_task_pairs_reset(&in->pairs[i]);
        free(in->names[i]);
    }

    free(in->evidence);
    free(in->baselines);
    free(in->tasks);
    free(in->pairs);
    free(in->names);
    fp8q_policy_reset(&in->policy);
}

/* ---- reporting ----------------------------------------------------------------------------- */

/* What was judged: a verdict that is kept for a report says of which bytes it is.  */
static void subject_json(struct cli *cli, const struct gate_args *args,
                         const struct gate_inputs *in)
{
    const struct fp8q_gate_facts *facts = &in->findings.facts;
    const struct fp8q_evidence subject = {
        .source = facts->source, .output = facts->output, .config = facts->config};

    fp8q_jsonw_string(&cli->json, "output", args->paths.output);
    fp8q_evidence_write_subject(&cli->json, &subject);
}

static void report_json(struct cli *cli, const struct fp8q_gate *gate)
{
    struct fp8q_jsonw *w = &cli->json;
    fp8q_jsonw_string(w, "verdict", fp8q_verdict_name(gate->verdict));

    fp8q_jsonw_open(w, "checks", '[');
    for (size_t i = 0; i < gate->n_checks; i++) {
        const struct fp8q_gate_check *c = &gate->checks[i];
        fp8q_jsonw_open(w, NULL, '{');
        fp8q_jsonw_string(w, "id", c->id);
        fp8q_jsonw_uint(w, "tier", c->tier);
        fp8q_jsonw_string(w, "status", fp8q_verdict_name(c->verdict));
        fp8q_jsonw_number(w, "observed", c->observed);
        fp8q_jsonw_number(w, "limit", c->limit);
        fp8q_jsonw_number(w, "ci_low", c->low);
        fp8q_jsonw_number(w, "ci_high", c->high);
        fp8q_jsonw_uint(w, "n", c->n);
        if (c->n_needed)
            fp8q_jsonw_uint(w, "n_needed", c->n_needed);
        fp8q_jsonw_string(w, "method", c->method);
        fp8q_jsonw_string(w, "message", c->message);
        fp8q_jsonw_close(w, '}');
    }

    fp8q_jsonw_close(w, ']');
}

static enum cli_style style_of(enum fp8q_verdict verdict)
{
    if (verdict == FP8Q_VERDICT_SKIPPED)
        return CLI_DIM;
    return verdict == FP8Q_VERDICT_PASS ? CLI_GOOD : CLI_BAD;
}

/* Evidence that is missing or decides nothing is an error of the run, not a failure of the model.  */
static enum cli_outcome outcome_of(enum fp8q_verdict verdict)
{
    if (verdict == FP8Q_VERDICT_PASS)
        return CLI_PASSED;
    if (verdict == FP8Q_VERDICT_SKIPPED)
        return CLI_SKIPPED;
    return verdict >= FP8Q_VERDICT_FAIL ? CLI_FAILED : CLI_ERROR;
}

static void report_text(struct cli *cli, const struct fp8q_gate *gate)
{
    for (size_t i = 0; i < gate->n_checks; i++) {
        const struct fp8q_gate_check *c = &gate->checks[i];
        cli_print_wrapped(cli, 6, "%s%-12s%s  T%u %-24s  %s", cli_style(style_of(c->verdict)),
                          fp8q_verdict_name(c->verdict), cli_style(CLI_PLAIN), c->tier, c->id,
                          c->message);
    }

    cli_print(cli, "%s%s%s\n", cli_style(gate->verdict == FP8Q_VERDICT_PASS ? CLI_GOOD : CLI_BAD),
              fp8q_verdict_name(gate->verdict), cli_style(CLI_PLAIN));
}

static void put_figure(struct fp8q_text *t, double value)
{
    /* NaN: the check has no such figure.  */
    if (value == value)
        fp8q_text_printf(t, " %.5g |", value);
    else
        fp8q_text_puts(t, " |");
}

/* A '|' would end the cell.  */
static void put_cell(struct fp8q_text *t, const char *text)
{
    for (; *text; text++)
        fp8q_text_add(t, *text == '|' ? "\\|" : text, *text == '|' ? 2 : 1);
}

static void put_table(struct fp8q_text *t, const struct fp8q_gate *gate)
{
    fp8q_text_printf(t, "### fp8q gate: %s\n\n", fp8q_verdict_name(gate->verdict));
    fp8q_text_puts(t, "| verdict | check | observed | low | high | limit | n | |\n"
                      "|---|---|---|---|---|---|---|---|\n");

    for (size_t i = 0; i < gate->n_checks; i++) {
        const struct fp8q_gate_check *c = &gate->checks[i];
        fp8q_text_printf(t, "| %s | ", fp8q_verdict_name(c->verdict));
        put_cell(t, c->id);
        fp8q_text_puts(t, " |");
        put_figure(t, c->observed);
        put_figure(t, c->low);
        put_figure(t, c->high);
        put_figure(t, c->limit);
        fp8q_text_printf(t, c->n ? " %llu | " : " | ", (unsigned long long)c->n);
        put_cell(t, c->message);
        fp8q_text_puts(t, " |\n");
    }
}

/* What a regular file at @path holds, as the beginning of @text.  */
static int read_before(const char *path, struct fp8q_text *text, struct fp8q_error *err)
{
    enum { MOST_BYTES = 1 << 26 };
    struct stat st;
    bool there;
    char *before;
    size_t len;
    FP8Q_TRY(fp8q_stat(path, &st, &there, err));
    if (!there || !S_ISREG(st.st_mode))
        return FP8Q_OK;

    FP8Q_TRY(fp8q_read_file(path, MOST_BYTES, &before, &len, err));
    fp8q_text_add(text, before, len);
    /* A last line that was not ended would swallow the heading.  */
    fp8q_text_puts(text, len && before[len - 1] != '\n' ? "\n\n" : "");
    free(before);
    return FP8Q_OK;
}

/* A job summary ($GITHUB_STEP_SUMMARY) has the words of other tools already, so the table goes
 * behind what is there.  */
static int report_markdown(struct cli *cli, const char *path, const struct fp8q_gate *gate)
{
    struct fp8q_text t = {0};
    int status = read_before(path, &t, &cli->error);
    if (status == FP8Q_OK) {
        put_table(&t, gate);
        status = fp8q_output_text(path, &t, &cli->error);
    }

    fp8q_text_reset(&t);
    return status;
}

static int report_junit(struct cli *cli, const char *path, const struct fp8q_gate *gate)
{
    static const char *const tiers[] = {"T0 verify", "T1 eval", "T2 tasks"};
    struct cli_case *cases = fp8q_array(gate->n_checks, sizeof(*cases));
    if (!cases)
        return fp8q_fail_nomem(&cli->error);

    for (size_t i = 0; i < gate->n_checks; i++) {
        const struct fp8q_gate_check *c = &gate->checks[i];
        cases[i] =
            (struct cli_case){tiers[c->tier], c->id, c->message, NULL, outcome_of(c->verdict)};
    }

    int status = cli_junit_write(path, "fp8q gate", cases, gate->n_checks, &cli->error);
    free(cases);
    return status;
}

/* The verdict as the command's status, with the first check that decided it.  */
static int conclude(struct cli *cli, const struct fp8q_gate *gate)
{
    int status = fp8q_verdict_status(gate->verdict);

    for (size_t i = 0; i < gate->n_checks && status != FP8Q_OK; i++)
        if (gate->checks[i].verdict == gate->verdict)
            return fp8q_fail(&cli->error, (enum fp8q_status)status,
                             fp8q_verdict_name(gate->verdict), "gate: %s: %s: %s",
                             fp8q_verdict_name(gate->verdict), gate->checks[i].id,
                             gate->checks[i].message);
    return status;
}

/* Reported whatever the verdict is; only then does it become the status.  */
static int report(struct cli *cli, const struct gate_args *args, const struct fp8q_gate *gate)
{
    report_json(cli, gate);
    report_text(cli, gate);

    /* A report that could not be written is the status then: whoever asked for it must not miss
     * it.  */
    if (args->junit)
        FP8Q_TRY(report_junit(cli, args->junit, gate));
    if (args->markdown)
        FP8Q_TRY(report_markdown(cli, args->markdown, gate));
    return conclude(cli, gate);
}

/* ---- the command --------------------------------------------------------------------------- */

static int judge(struct cli *cli, const struct gate_args *args, const struct gate_inputs *in)
{
    struct fp8q_gate gate;
    int64_t now = (int64_t)time(NULL);

    /* Not SOURCE_DATE_EPOCH: in a reproducible build that is the last commit's time, and old evidence
     * would be young for ever.  */
    if (args->now && !fp8q_time_parse(args->now, &now))
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage",
                         "--now: expected a time such as 2026-01-31T12:00:00Z, found \"%s\"",
                         args->now);

    const struct fp8q_gate_request request = {.policy = &in->policy,
                                              .facts = in->findings.facts,
                                              .evidence = in->evidence,
                                              .n_evidence = in->n_evidence,
                                              .baselines = in->baselines,
                                              .n_baselines = in->n_baselines,
                                              .tasks = in->tasks,
                                              .n_tasks = in->n_tasks,
                                              .stack = args->stack,
                                              .now = now};
    FP8Q_TRY(fp8q_gate(&request, &gate, &cli->error));

    subject_json(cli, args, in);
    int status = report(cli, args, &gate);
    fp8q_gate_reset(&gate);
    return status;
}

static int print_policy(struct cli *cli, const struct fp8q_policy *policy)
{
    struct fp8q_jsonw w = {.indent = 2};

    /* A text of its own: people see it as it is, and with --json it is one member.  */
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_policy_write(&w, policy);
    fp8q_jsonw_close(&w, '}');

    int status = fp8q_text_status(&w.text, &cli->error);
    if (status == FP8Q_OK) {
        fp8q_jsonw_raw(&cli->json, "policy", w.text.data);
        cli_print(cli, "%s\n", w.text.data);
    }
    fp8q_text_reset(&w.text);
    return status;
}

static int guard_list(struct fp8q_guard_list *guard, const struct cli_list *paths, const char *what,
                      struct fp8q_error *err)
{
    for (size_t i = 0; i < paths->count; i++)
        FP8Q_TRY(fp8q_guard_add(guard, paths->items[i], what, err));
    return FP8Q_OK;
}

static int guard_pair(struct cli *cli, struct fp8q_guard_list *guard, const char *base,
                      const char *quant)
{
    FP8Q_TRY(fp8q_guard_add(guard, base, "a task's results", &cli->error));
    return fp8q_guard_add(guard, quant, "a task's results", &cli->error);
}

/* The files of --task stand within its words.  */
static int guard_tasks(struct cli *cli, struct fp8q_guard_list *guard, const struct cli_list *tasks)
{
    for (size_t i = 0; i < tasks->count; i++) {
        const char *parts[3];
        char *copy;
        FP8Q_TRY(split_task(cli, tasks->items[i], &copy, parts));

        int status = guard_pair(cli, guard, parts[1], parts[2]);
        free(copy);
        FP8Q_TRY(status);
    }
    return FP8Q_OK;
}

static int guard_inputs(struct cli *cli, struct fp8q_guard_list *guard,
                        const struct gate_args *args)
{
    struct fp8q_error *err = &cli->error;
    const struct {
        const char *path, *what;
    } single[] = {{args->paths.output, "the checkpoint to judge"},
                  {args->paths.source, "the source"},
                  {args->paths.fallback, "the fallback"},
                  {args->paths.lock, "the lock"},
                  {args->policy, "the policy"}};

    for (size_t i = 0; i < sizeof(single) / sizeof(*single); i++)
        FP8Q_TRY(fp8q_guard_add(guard, single[i].path, single[i].what, err));

    FP8Q_TRY(guard_list(guard, &args->evidence, "evidence", err));
    FP8Q_TRY(guard_list(guard, &args->baselines, "evidence of the baseline", err));
    return guard_tasks(cli, guard, &args->tasks);
}

/* What is read must not be written.  */
static int guard_all(struct cli *cli, struct fp8q_guard_list *guard, const struct gate_args *args)
{
    FP8Q_TRY(guard_inputs(cli, guard, args));
    if (args->junit)
        FP8Q_TRY(fp8q_output_check(args->junit, guard, &cli->error));
    return args->markdown ? fp8q_output_check(args->markdown, guard, &cli->error) : FP8Q_OK;
}

static int check_outputs(struct cli *cli, const struct gate_args *args)
{
    struct fp8q_guard_list guard = {0};
    int status = guard_all(cli, &guard, args);
    fp8q_guard_reset(&guard);
    return status;
}

static int gate_with(struct cli *cli, const struct gate_args *args, struct gate_inputs *in)
{
    /* A policy file states only what differs from the defaults.  */
    fp8q_policy_default(&in->policy);
    if (args->policy)
        FP8Q_TRY(fp8q_policy_read(args->policy, &in->policy, &cli->error));
    if (args->print_policy)
        return print_policy(cli, &in->policy);

    FP8Q_TRY(read_all(cli, args, in));
    cli_progress_clear();
    return judge(cli, args, in);
}

static int run_gate(struct cli *cli, const struct gate_args *args)
{
    struct gate_inputs in = {0};
    FP8Q_TRY(check_outputs(cli, args));

    int status = gate_with(cli, args, &in);
    free_inputs(&in);
    return status;
}

int cmd_gate(struct cli *cli)
{
    struct gate_args a = {0};
    int code;
    const struct cli_option options[] = {
        {"policy", 'p', CLI_TEXT, &a.policy, "FILE", "limits and requirements (default: built in)"},
        {"lock", 0, CLI_TEXT, &a.paths.lock, "FILE",
         "names that may be quantized, as quantize --lock wrote them"},
        {"evidence", 'e', CLI_LIST, &a.evidence, "FILE",
         "evidence of eval for DST (may be given again)"},
        {"baseline", 'b', CLI_LIST, &a.baselines, "FILE",
         "evidence of eval for plain rounding of the same source"},
        {"task", 0, CLI_LIST, &a.tasks, "NAME:BASE:QUANT",
         "results of a task: unquantized model and DST (may be given\n"
         "again): lm-eval results or samples, LeRobot eval_info.json,\n"
         "CSV or JSONL of id and score, prompt log-probabilities"},
        {"source", 's', CLI_TEXT, &a.paths.source, "SRC", "what DST was made of"},
        {"fallback", 0, CLI_TEXT, &a.paths.fallback, "PATH",
         "the source or a dequantized copy that must exist and match"},
        {"stack", 0, CLI_TEXT, &a.stack, "ID", "serving stack that evidence must name"},
        {"now", 0, CLI_TEXT, &a.now, "TIME", "judge ages as of this time (default: the clock)"},
        {"junit", 0, CLI_TEXT, &a.junit, "FILE", "write the checks as JUnit XML"},
        {"markdown", 0, CLI_TEXT, &a.markdown, "FILE",
         "add the checks as a Markdown table to FILE (a job summary)"},
        {"print-policy", 0, CLI_FLAG, &a.print_policy, NULL, "print the policy in force and stop"},
        {.name = NULL}};

    const struct cli_rule rules[] = {
        {"print-policy", CLI_EXCLUDES,
         "lock evidence baseline task source fallback stack now junit markdown"},
        {.option = NULL}};
    const struct cli_syntax syntax = {
        .usage = usage, .groups = groups, .options = options, .rules = rules, .max = 1};
    if (cli_parse(cli, &syntax, &a.paths.output, &code)) {
        /* An operand is no option, so the rules cannot know of it.  */
        if (a.paths.output && a.print_policy)
            code = cli_usage_error(cli, "gate: --print-policy judges nothing, so it takes no DST");
        else if (!a.paths.output && !a.print_policy)
            code = cli_usage_error(cli, "gate: no checkpoint; see `fp8q gate --help`");
        else
            code = cli_end(cli, run_gate(cli, &a));
    }

    free(a.evidence.items);
    free(a.baselines.items);
    free(a.tasks.items);
    return code;
}
