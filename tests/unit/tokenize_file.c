/* SPDX-License-Identifier: Apache-2.0
 *
 * tokenize_file.c - prints the ids of a file, one a line, for tests/reference/tokenizer_check.py.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "tokenizer/tokenizer.h"

int main(int argc, char **argv)
{
    struct fp8q_tokenizer *tokenizer = NULL;
    struct fp8q_error err = {0};
    struct fp8q_ids ids = {0};
    char *text = NULL;
    size_t len;
    if (argc != 3) {
        fprintf(stderr, "usage: tokenize_file CHECKPOINT-DIR FILE\n");
        return 2;
    }
    int status = fp8q_tokenizer_open(argv[1], &tokenizer, &err);
    if (status == FP8Q_OK)
        status = fp8q_read_file(argv[2], 1u << 30, &text, &len, &err);
    if (status == FP8Q_OK)
        status = fp8q_tokenizer_encode(tokenizer, text, len, &ids, &err);
    if (status != FP8Q_OK)
        fprintf(stderr, "tokenize_file: %s\n", err.message);
    for (size_t i = 0; status == FP8Q_OK && i < ids.count; i++)
        printf("%d\n", ids.items[i]);
    fp8q_ids_reset(&ids);
    fp8q_tokenizer_close(tokenizer);
    free(text);
    return status == FP8Q_OK ? 0 : 3;
}
