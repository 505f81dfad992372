/* SPDX-License-Identifier: Apache-2.0
 *
 * cmd_report.c - `fp8q report DST`: all that is known of a checkpoint, as a page, a model card or a
 * comment.
 */
#include <stdlib.h>
#include <string.h>

#include "base/output.h"
#include "cli/evalinputs.h"
#include "commands/commands.h"
#include "report/html.h"
#include "report/json.h"
#include "report/markdown.h"

static const char usage[] =
    "usage: fp8q report [options] DST\n"
    "\n"
    "Proves DST as verify does, measures its FP8 values, and writes what it found, with the "
    "results\n"
    "of other commands, as one HTML page, as a model card or as a comment for a pull request.\n"
    "Results of other checkpoints are refused (5).  A report of a checkpoint that fails is a "
    "report:\n"
    "exit status 0.\n"
    "\n"
    "Example: fp8q report Qwen3-4B-FP8 --source Qwen3-4B --eval eval.json -o report.html";

enum form { FORM_HTML, FORM_CARD, FORM_COMMENT };
static const char *const form_words[] = {"html", "md", "pr", NULL};

struct args {
    struct fp8q_facts_request request;
    unsigned form; /* enum form */
    const char *out;
    bool overwrite;
};

/* Where the page goes by itself: beside the checkpoint.  NULL: standard output, where text is at
 * home, or nowhere with --json.  */
static int choose_output(struct cli *cli, const struct args *args, char **path_out)
{
    struct fp8q_text t = {0};
    const char *dst = args->request.output;
    size_t len = strlen(dst);
    *path_out = NULL;

    if (args->out)
        fp8q_text_puts(&t, args->out);
    else if (args->form == FORM_HTML && !cli->as_json) {
        while (len > 1 && dst[len - 1] == '/')
            len--;
        fp8q_text_add(&t, dst, len);
        fp8q_text_puts(&t, "-report.html");
    }

    FP8Q_TRY(fp8q_text_status(&t, &cli->error));
    *path_out = t.data;
    return FP8Q_OK;
}

static int guard_inputs(struct fp8q_guard_list *guard, const struct args *args,
                        struct fp8q_error *err)
{
    const struct fp8q_result_paths *r = &args->request.results;
    const struct {
        const char *path, *what;
    } all[] = {{args->request.output, "the checkpoint"},
               {args->request.source, "the source"},
               {r->eval, "the evidence"},
               {r->sweep, "the result of sweep"},
               {r->compare, "the result of compare"},
               {r->drift, "the result of drift"},
               {r->gate, "the result of gate"},
               {r->calibration, "the calibration"}};

    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (all[i].path)
            FP8Q_TRY(fp8q_guard_add(guard, all[i].path, all[i].what, err));
    return FP8Q_OK;
}

static int check_output(struct cli *cli, const struct args *args, const char *path)
{
    struct fp8q_guard_list guard = {0};

    int status = guard_inputs(&guard, args, &cli->error);
    if (status == FP8Q_OK)
        status = cli_result_check(path, args->overwrite, &guard, &cli->error);
    fp8q_guard_reset(&guard);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int write_text(struct cli *cli, const char *path, const struct fp8q_text *t)
{
    FP8Q_TRY(fp8q_text_status(t, &cli->error));
    if (!path) {
        cli_print(cli, "%s", t->data);
        return FP8Q_OK;
    }

    FP8Q_TRY(fp8q_output_write(path, t->data, t->len, &cli->error));
    cli_print(cli, "wrote %s\n", path);
    return FP8Q_OK;
}

static int write_report(struct cli *cli, const struct args *args, const struct fp8q_facts *facts,
                        const char *path)
{
    static void (*const writers[])(const struct fp8q_facts *, struct fp8q_text *) = {
        fp8q_facts_html, fp8q_facts_card, fp8q_facts_comment};
    struct fp8q_text t = {0};

    if (cli->as_json)
        fp8q_facts_json(facts, &cli->json);
    if (cli->as_json && !path)
        return FP8Q_OK;

    writers[args->form](facts, &t);
    int status = write_text(cli, path, &t);
    fp8q_text_reset(&t);
    return status;
}

static int collect(struct cli *cli, const struct args *args, const char *path)
{
    struct fp8q_facts facts;

    /* What can be refused is refused before all bytes are read.  */
    FP8Q_TRY(check_output(cli, args, path));
    int status = fp8q_facts_collect(&args->request, &facts, &cli->warnings, &cli->error);
    cli_progress_clear();
    if (status == FP8Q_OK)
        status = write_report(cli, args, &facts, path);
    fp8q_facts_reset(&facts);
    return status;
}

static int run(struct cli *cli, struct args *args)
{
    struct cli_time created;
    char *path;
    FP8Q_TRY(choose_output(cli, args, &path));

    args->request.created = cli_timestamp(&created);
    args->request.threads = (unsigned)cli->threads;
    args->request.kernel = fp8q_kernel_select(cli->kernel);
    args->request.watch = &cli->watch;

    int status = collect(cli, args, path);
    free(path);
    return status;
}

int cmd_report(struct cli *cli)
{
    struct args a = {.form = FORM_HTML};
    struct fp8q_result_paths *r = &a.request.results;
    struct cli_word form = {form_words, &a.form};
    int code;
    const struct cli_option options[] = {
        {"source", 's', CLI_TEXT, &a.request.source, "SRC",
         "what DST was made of: also noise and underflow"},
        {"eval", 'e', CLI_TEXT, &r->eval, "FILE", "evidence that eval -o wrote"},
        {"sweep", 0, CLI_TEXT, &r->sweep, "FILE", "what sweep --json printed"},
        {"compare", 0, CLI_TEXT, &r->compare, "FILE", "what compare --json printed"},
        {"drift", 0, CLI_TEXT, &r->drift, "FILE", "what drift --json printed"},
        {"gate", 0, CLI_TEXT, &r->gate, "FILE", "what gate --json printed"},
        {"calibration", 0, CLI_TEXT, &r->calibration, "FILE", "the calibration of DST"},
        {"tensor", 0, CLI_TEXT, &a.request.tensor, "NAME",
         "FP8 weight whose blocks are shown (default: the one\nwhose scales differ most)"},
        {"base-model", 0, CLI_TEXT, &a.request.base_model, "ID",
         "what the source is called on the hub: ORG/NAME"},
        {"format", 0, CLI_WORD, &form, "FORM", "html (default), md (model card) or pr (comment)"},
        {"output", 'o', CLI_TEXT, &a.out, "FILE",
         "where it goes (default: DST-report.html; md and pr:\nstandard output)"},
        {"overwrite", 0, CLI_FLAG, &a.overwrite, NULL, "replace an existing file"},
        {.name = NULL}};
    static const struct cli_group groups[] = {
        {"Results", "source eval sweep compare drift gate calibration", ""},
        {"The report", "format output overwrite", "base-model tensor"},
        {.head = NULL}};
    const struct cli_syntax syntax = {
        .usage = usage, .groups = groups, .options = options, .min = 1, .max = 1};

    if (!cli_parse(cli, &syntax, &a.request.output, &code))
        return code;
    return cli_end(cli, run(cli, &a));
}
