/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_pattern.c - a pattern in the first line, names in the others.  A plain pattern matches a
 * name that is the pattern; what compiles matches the same way twice; distances are symmetric.
 */
#include <string.h>

#include "fuzz/fuzz.h"
#include "select/pattern.h"

enum { LONGEST = 4096 };

static void try_name(const struct fp8q_pattern *p, const char *pattern, const char *name)
{
    struct fp8q_error err = {0};
    bool first = false, again = false;
    int status = fp8q_pattern_match(p, name, &first, &err);
    FUZZ_REQUIRE(status == FP8Q_OK || (status == FP8Q_E_ARG && err.message[0] && !first));
    FUZZ_REQUIRE(fp8q_pattern_match(p, name, &again, &err) == status && first == again);
    if (!strpbrk(pattern, "*?[") && strncmp(pattern, "re:", 3) != 0 && strcmp(pattern, name) == 0)
        FUZZ_REQUIRE(first);
    size_t distance = fp8q_edit_distance(pattern, name, 8);
    FUZZ_REQUIRE(distance <= 9 && distance == fp8q_edit_distance(name, pattern, 8));
    /* Names beyond 128 bytes are never near.  */
    if (strlen(name) <= 128)
        FUZZ_REQUIRE((distance == 0) == (strcmp(pattern, name) == 0));
    FUZZ_REQUIRE(fp8q_module_len(name) <= strlen(name));
    size_t len;
    const char *run = fp8q_has_any_components(name, pattern, &len);
    FUZZ_REQUIRE(!run || (run >= pattern && run + len <= pattern + strlen(pattern)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[LONGEST + 1];
    struct fp8q_pattern *p;
    struct fp8q_error err = {0};
    if (size > LONGEST)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    char *pattern = text, *rest = strchr(text, '\n');
    if (rest)
        *rest++ = '\0';
    int status = fp8q_pattern_compile(pattern, &p, &err);
    FUZZ_REQUIRE((status == FP8Q_OK) == (p != NULL));
    if (status != FP8Q_OK) {
        FUZZ_REQUIRE(status == FP8Q_E_ARG && err.message[0]);
        return 0;
    }
    FUZZ_REQUIRE(strcmp(fp8q_pattern_text(p), pattern) == 0);
    try_name(p, pattern, pattern);
    while (rest && *rest) {
        char *name = rest;
        rest = strchr(rest, '\n');
        if (rest)
            *rest++ = '\0';
        try_name(p, pattern, name);
    }
    fp8q_pattern_free(p);
    return 0;
}
