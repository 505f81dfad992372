/* SPDX-License-Identifier: Apache-2.0
 *
 * replay.c - runs a fuzz target over files and directories (recursively), without libFuzzer.
 */
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

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        size_t n = run_path(argv[i]);
        printf("%s: %zu inputs\n", argv[i], n);
        if (n == 0)
            return 1;
    }
    return argc < 2;
}
