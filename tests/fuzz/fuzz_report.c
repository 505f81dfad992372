/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_report.c - a result of eval, sweep, compare, drift or gate, as report reads it: refused with a
 * message, or the page, the card, the comment and the JSON are written, whatever its texts say.
 *
 * The first byte, '0' to '4', says which of the five it is; the rest is the file.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dir.h"
#include "base/file.h"
#include "base/path.h"
#include "format/json.h"
#include "fuzz/fuzz.h"
#include "report/facts.h"
#include "report/html.h"
#include "report/json.h"
#include "report/markdown.h"
#include "support/small.h"

static struct fp8q_facts facts; /* of a small checkpoint, without results */
static size_t n_scripts;        /* "<script" in its page */
static char *input;             /* the path of each input */

static size_t count_scripts(const struct fp8q_text *page)
{
    size_t n = 0;
    for (const char *at = page->data; (at = strstr(at, "<script")); at++)
        n++;
    return n;
}

static void write_page(struct fp8q_text *page)
{
    *page = (struct fp8q_text){0};
    fp8q_facts_html(&facts, page);
    FUZZ_REQUIRE(fp8q_text_status(page, NULL) == FP8Q_OK);
}

/* Everything in one directory in memory, which does not outlive the run.  */
static void prepare(void)
{
    static char dir[] = "/dev/shm/fp8q-report-XXXXXX", other[] = "/tmp/fp8q-report-XXXXXX";
    struct fp8q_error err = {0};
    struct fp8q_text page;
    char *top = mkdtemp(dir);
    if (!top)
        top = mkdtemp(other);
    FUZZ_REQUIRE(top);

    char *checkpoint = fp8q_join(top, "checkpoint");
    small_dir(checkpoint, 1);
    const struct fp8q_facts_request request = {
        .output = checkpoint, .created = "2026-01-01T00:00:00Z", .threads = 1};
    FUZZ_REQUIRE(fp8q_facts_collect(&request, &facts, NULL, &err) == FP8Q_OK);
    write_page(&page);
    n_scripts = count_scripts(&page);
    fp8q_text_reset(&page);

    /* The checkpoint is in memory by now, and a file alone is taken away in one step.  */
    FUZZ_REQUIRE(fp8q_remove_tree(top, &err) == FP8Q_OK);
    free(checkpoint);
    input = strdup(top);
}

/* No text of the file becomes a tag of the page, or leaves its string in the JSON.  */
static void write_all(void)
{
    struct fp8q_text text;
    struct fp8q_jsonw w = {.indent = 1};
    struct fp8q_error err = {0};

    write_page(&text);
    FUZZ_REQUIRE(count_scripts(&text) == n_scripts);
    fp8q_text_reset(&text);

    fp8q_facts_card(&facts, &text);
    fp8q_facts_comment(&facts, &text);
    FUZZ_REQUIRE(fp8q_text_status(&text, NULL) == FP8Q_OK);
    fp8q_text_reset(&text);

    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_facts_json(&facts, &w);
    fp8q_jsonw_close(&w, '}');
    FUZZ_REQUIRE(fp8q_json_check(w.text.data, w.text.len, 0, "report", &err) == FP8Q_OK);
    fp8q_text_reset(&w.text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fp8q_result_paths paths = {.eval = NULL};
    const char **const kinds[] = {&paths.eval, &paths.sweep, &paths.compare, &paths.drift,
                                  &paths.gate};
    struct fp8q_error err = {0};
    if (size == 0)
        return 0;
    if (!input)
        prepare();

    (void)unlink(input);
    FUZZ_REQUIRE(fp8q_write_file(input, data + 1, size - 1, &err) == FP8Q_OK);
    *kinds[(data[0] + 2U) % (sizeof(kinds) / sizeof(*kinds))] = input; /* '0' is 48 */
    int status = fp8q_measurements_read(&paths, &facts.results, &err);
    FUZZ_REQUIRE(status == FP8Q_OK || (err.id[0] && err.message[0]));
    if (status == FP8Q_OK)
        write_all();

    fp8q_measurements_reset(&facts.results);
    (void)unlink(input);
    return 0;
}
