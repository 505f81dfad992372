/* SPDX-License-Identifier: Apache-2.0
 *
 * junit.c - writes JUnit XML.
 */
#include "cli/junit.h"

#include "base/output.h"

/* XML 1.0 allows neither control characters nor U+FFFE and U+FFFF, even escaped; they become '?'.
 */
static void put_escaped(struct fp8q_text *t, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '&')
            fp8q_text_puts(t, "&amp;");
        else if (c == '<')
            fp8q_text_puts(t, "&lt;");
        else if (c == '>')
            fp8q_text_puts(t, "&gt;");
        else if (c == '"')
            fp8q_text_puts(t, "&quot;");
        else if ((c < 0x20 && c != '\n') || c == 0x7F)
            fp8q_text_puts(t, "?");
        else
            fp8q_text_add(t, text, 1);
    }
}

static void put_attribute(struct fp8q_text *t, const char *name, const char *value)
{
    fp8q_text_printf(t, " %s=\"", name);
    put_escaped(t, value);
    fp8q_text_puts(t, "\"");
}

static void put_case(struct fp8q_text *t, const struct cli_case *c)
{
    static const char *const tags[] = {NULL, "failure", "error", "skipped"};

    fp8q_text_puts(t, "  <testcase");
    put_attribute(t, "classname", c->group);
    put_attribute(t, "name", c->name);
    fp8q_text_puts(t, ">");

    /* A case that passed has no message in JUnit; it has output.  */
    if (c->outcome == CLI_PASSED) {
        fp8q_text_puts(t, "<system-out>");
        put_escaped(t, c->message);
        fp8q_text_puts(t, "</system-out>");
    } else {
        fp8q_text_printf(t, "<%s", tags[c->outcome]);
        put_attribute(t, "message", c->message);
        fp8q_text_puts(t, ">");
        put_escaped(t, c->detail ? c->detail : "");
        fp8q_text_printf(t, "</%s>", tags[c->outcome]);
    }

    fp8q_text_puts(t, "</testcase>\n");
}

int cli_junit_write(const char *path, const char *suite, const struct cli_case *cases, size_t n,
                    struct fp8q_error *err)
{
    struct fp8q_text t = {0};
    size_t counts[4] = {0};

    /* The first element states the counts, so the cases are walked twice.  */
    for (size_t i = 0; i < n; i++)
        counts[cases[i].outcome]++;

    fp8q_text_puts(&t, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite");
    put_attribute(&t, "name", suite);
    fp8q_text_printf(&t, " tests=\"%zu\" failures=\"%zu\" errors=\"%zu\" skipped=\"%zu\">\n", n,
                     counts[CLI_FAILED], counts[CLI_ERROR], counts[CLI_SKIPPED]);

    for (size_t i = 0; i < n; i++)
        put_case(&t, &cases[i]);
    fp8q_text_puts(&t, "</testsuite>\n");

    int status = fp8q_output_text(path, &t, err);
    fp8q_text_reset(&t);
    return status;
}
