/* SPDX-License-Identifier: Apache-2.0
 *
 * junit.h - checks as a JUnit XML file, which GitLab, Jenkins and GitHub actions render.
 */
#ifndef FP8Q_CLI_JUNIT_H
#define FP8Q_CLI_JUNIT_H

#include "base/text.h"

enum cli_outcome {
    CLI_PASSED,
    CLI_FAILED, /* <failure>: a check found something */
    CLI_ERROR,  /* <error>: a check could not be made */
    CLI_SKIPPED
};

struct cli_case {
    const char *group, *name, *message;
    const char *detail; /* more text under the message; NULL allowed */
    enum cli_outcome outcome;
};

/* Writes @path anew.  No time stamps: the same checks give the same bytes.  */
int cli_junit_write(const char *path, const char *suite, const struct cli_case *cases, size_t n,
                    struct fp8q_error *err);

#endif
