/* SPDX-License-Identifier: Apache-2.0
 *
 * opens.c - how often files are opened does not grow with the number of tensors: on a file system
 * over a network every opening is a round trip.
 *
 *     opens        10,000 quantized tensors in four shards; the calls are counted (inject.h)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dir.h"
#include "faults/inject.h"
#include "fp8q.h"
#include "support/maker.h"

enum { N_TENSORS = 10000, N_SHARDS = 4, MOST_OPENS = 100 };

static void must(int status, const struct fp8q_error *err)
{
    if (status == FP8Q_OK)
        return;
    fprintf(stderr, "opens: %s\n", err->message);
    exit(1);
}

static void make_source(void)
{
    struct maker m = {.sparse = true};
    const uint64_t shape[] = {8, 8};
    for (size_t i = 0; i < N_TENSORS; i++) {
        char name[80];
        snprintf(name, sizeof(name), "model.layers.%zu.mlp.down_proj.weight", i);
        maker_add(&m, name, FP8Q_BF16, 2, shape, i % N_SHARDS);
    }
    maker_write(&m, "src", "{\"model_type\": \"llama\"}");
    maker_free(&m);
}

static void quantize(void)
{
    struct fp8q_request r = {.size = sizeof(r), .source = "src"};
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    r.unaligned = FP8Q_UNALIGNED_QUANTIZE;
    must(fp8q_conversion_open(&r, NULL, &c, NULL, &err), &err);
    if (fp8q_conversion_plan(c)->n_quantized != N_TENSORS) {
        fprintf(stderr, "opens: not all tensors are quantized\n");
        exit(1);
    }
    must(fp8q_conversion_run(c, "dst", NULL, &err), &err);
    fp8q_conversion_close(c);
}

/* Counts what verify opens; true if it is little.  */
static bool count(const char *source, unsigned threads)
{
    struct fp8q_verify_request r = {.size = sizeof(r), .path = "dst", .source = source};
    struct fp8q_run run = {.size = sizeof(run), .threads = threads};
    struct fp8q_verification *v;
    struct fp8q_error err = {0};
    const struct fault none = {.kind = FAULT_NONE};
    long counts[N_CALLS] = {0};

    fault_arm(&none, counts);
    int status = fp8q_verification_open(&r, &run, &v, NULL, &err);
    fault_disarm();
    must(status, &err);
    fp8q_verification_close(v);

    long n = counts[CALL_OPEN];
    printf("verify%s, %u thread%s: %ld files opened, %ld read calls\n", source ? " --source" : "",
           threads, threads == 1 ? "" : "s", n, counts[CALL_PREAD]);
    return n > N_SHARDS && n <= MOST_OPENS;
}

int main(void)
{
    char dir[] = "/tmp/fp8q-opens-XXXXXX";
    if (!mkdtemp(dir) || chdir(dir) != 0)
        return 1;

    make_source();
    quantize();
    bool few = count(NULL, 1);
    few &= count(NULL, 7);
    few &= count("src", 1);
    few &= count("src", 7);

    if (chdir("/") != 0 || fp8q_remove_tree(dir, NULL) != FP8Q_OK)
        return 1;
    if (!few)
        fprintf(stderr, "opens: expected at most %d files\n", MOST_OPENS);
    return few ? 0 : 1;
}
