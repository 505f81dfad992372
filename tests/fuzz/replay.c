/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.c - runs a fuzz target over files and directories (recursively), without libFuzzer; and
 * over COUNT inputs from a fixed generator, the same everywhere, for `random=COUNT`.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz/fuzz.h"
#include "base/file.h"
#include "base/io.h"
#include "base/path.h"
#include "base/dir.h"

static size_t run_path(const char *path)
{
    struct fp8q_error err = {0};
    struct stat st;
    char *data, **names;
    size_t len, count, n_run = 0;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "%s: not there\n", path);
        exit(1);
    }
    if (!S_ISDIR(st.st_mode)) {
        if (fp8q_read_file(path, 1 << 26, &data, &len, &err) != FP8Q_OK) {
            fprintf(stderr, "%s\n", err.message);
            exit(1);
        }
        /* In a block of its own size, so that the sanitizer sees a byte too many.  */
        unsigned char *exact = malloc(len ? len : 1);
        FUZZ_REQUIRE(exact);
        memcpy(exact, data, len);
        LLVMFuzzerTestOneInput(exact, len);
        free(exact);
        free(data);
        return 1;
    }
    if (fp8q_list_dir(path, &names, &count, &err) != FP8Q_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        char *child = fp8q_join(path, names[i]);
        FUZZ_REQUIRE(child);
        n_run += run_path(child);
        free(child);
    }
    fp8q_names_free(names, count);
    return n_run;
}

static size_t run_random(size_t count)
{
    enum { LONGEST = 160 };
    uint64_t state = 20261201;
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[LONGEST];
        size_t len = 16 + i % (LONGEST - 16);
        for (size_t k = 0; k < len; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[k] = (uint8_t)(state >> 56);
        }
        LLVMFuzzerTestOneInput(bytes, len);
    }
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool random = strncmp(argv[i], "random=", 7) == 0;
        size_t n = random ? run_random(strtoul(argv[i] + 7, NULL, 10)) : run_path(argv[i]);
        printf("%s: %zu inputs\n", argv[i], n);
        if (n == 0)
            return 1;
    }
    return argc < 2;
}
