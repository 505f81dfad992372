/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenize_file.c - prints the ids of a file, one a line, for tests/reference/tokenizer_check.py.
 * With a third argument "-0" the file holds many texts with a NUL between them: a line each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

int main(int argc, char **argv)
{
    struct fp8q_tokenizer *tokenizer = NULL;
    struct fp8q_error err = {0};
    struct fp8q_ids ids = {0};
    char *text = NULL;
    size_t len;
    bool many = argc == 4 && strcmp(argv[3], "-0") == 0;
    if (argc != 3 && !many) {
        fprintf(stderr, "usage: tokenize_file CHECKPOINT-DIR FILE [-0]\n");
        return 2;
    }
    int status = fp8q_tokenizer_open(argv[1], &tokenizer, &err);
    if (status == FP8Q_OK)
        status = fp8q_read_file(argv[2], 1u << 30, &text, &len, &err);
    for (size_t at = 0, n; status == FP8Q_OK && at <= len; at += n + 1) {
        const char *end = many ? memchr(text + at, 0, len - at) : NULL;
        n = end ? (size_t)(end - text) - at : len - at;
        ids.count = 0;
        status = fp8q_tokenizer_encode(tokenizer, text + at, n, &ids, &err);
        for (size_t i = 0; status == FP8Q_OK && i < ids.count; i++)
            printf(many ? "%d " : "%d\n", ids.items[i]);
        if (many)
            printf("\n");
    }
    if (status != FP8Q_OK)
        fprintf(stderr, "tokenize_file: %s\n", err.message);
    fp8q_ids_reset(&ids);
    fp8q_tokenizer_close(tokenizer);
    free(text);
    return status == FP8Q_OK ? 0 : 3;
}
