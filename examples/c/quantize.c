/* SPDX-License-Identifier: Apache-2.0
 *
 * quantize.c - the library in one program: walks the plan of a checkpoint, carries it out, proves
 * the result, and quantizes one matrix that is in memory anyway.
 *
 *     cc quantize.c $(pkg-config --cflags --libs fp8q) -lm -o quantize && ./quantize SRC DST
 */
#include <fp8q.h>

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Ctrl-C stops the call that was given this token, and it cleans up.  */
static struct fp8q_cancel stop;

static void on_signal(int number)
{
    (void)number;
    fp8q_cancel(&stop);
}

static int report(int status, const struct fp8q_error *err)
{
    if (status != FP8Q_OK)
        fprintf(stderr, "%s: %s\n", err->id, err->message);
    return status;
}

/* What will become of each tensor, before a byte is written.  */
static void walk_plan(const struct fp8q_conversion *conversion)
{
    const struct fp8q_plan_info *plan = fp8q_conversion_plan(conversion);
    const struct fp8q_planned_tensor *t;

    for (size_t i = 0; (t = fp8q_conversion_tensor(conversion, i)) != NULL; i++)
        printf("%-8s %-14s %s\n", t->quantize ? "quantize" : "leave", t->reason, t->name);
    printf("%zu of %zu tensors, %llu -> %llu bytes, at most %llu bytes of memory\n",
           plan->n_quantized, plan->n_tensors, (unsigned long long)plan->source_bytes,
           (unsigned long long)plan->output_bytes, (unsigned long long)plan->peak_memory);
}

static int convert(const char *source, const char *destination, const struct fp8q_run *run,
                   struct fp8q_error *err)
{
    struct fp8q_conversion *conversion;
    struct fp8q_request request;
    fp8q_request_init(&request);
    request.source = source;

    int status = fp8q_conversion_open(&request, run, &conversion, NULL, err);
    if (status == FP8Q_OK) {
        walk_plan(conversion);
        status = fp8q_conversion_run(conversion, destination, NULL, err);
    }
    fp8q_conversion_close(conversion);
    return status;
}

static int prove(const char *source, const char *destination, const struct fp8q_run *run,
                 struct fp8q_error *err)
{
    struct fp8q_verification *verification;
    struct fp8q_verify_request request;
    fp8q_verify_request_init(&request);
    request.path = destination;
    request.source = source;

    int status = fp8q_verification_open(&request, run, &verification, NULL, err);
    if (verification) {
        const struct fp8q_verification_info *info = fp8q_verification_info(verification);
        printf("%zu checks, %zu failed; mean signal to noise %.2f dB\n", info->n_checks,
               info->n_failed, info->sqnr_mean);
    }
    fp8q_verification_close(verification);
    return status;
}

/* What a trainer does that pushes weights to an engine: no files, one scale for 128 x 128.  */
static int quantize_matrix(struct fp8q_error *err)
{
    enum { ROWS = 256, COLS = 384 };
    static float weights[ROWS * COLS], again[ROWS * COLS];
    static uint8_t values[ROWS * COLS];
    float scales[2 * 3];
    struct fp8q_matrix matrix;
    double error = 0, total = 0;

    for (size_t i = 0; i < ROWS * COLS; i++)
        weights[i] = sinf((float)i) / 16;
    fp8q_matrix_init(&matrix);
    matrix.rows = ROWS;
    matrix.cols = COLS;
    matrix.dtype = FP8Q_F32;

    int status = fp8q_matrix_quantize(&matrix, weights, values, scales, NULL, err);
    if (status == FP8Q_OK)
        status = fp8q_matrix_dequantize(&matrix, values, scales, again, NULL, err);
    for (size_t i = 0; i < ROWS * COLS; i++) {
        error += pow(weights[i] - again[i], 2);
        total += pow(weights[i], 2);
    }
    if (status == FP8Q_OK)
        printf("a matrix in memory: %.2f %% relative error\n", 100 * sqrt(error / total));
    return status;
}

int main(int argc, char **argv)
{
    struct fp8q_error err = {FP8Q_OK, "", ""};
    struct fp8q_run run;
    if (argc != 3) {
        fprintf(stderr, "usage: %s SRC DST (fp8q %s)\n", argv[0], fp8q_version());
        return 2;
    }
    fp8q_run_init(&run);
    run.cancel = &stop;
    signal(SIGINT, on_signal);

    int status = convert(argv[1], argv[2], &run, &err);
    if (status == FP8Q_OK)
        status = prove(argv[1], argv[2], &run, &err);
    if (status == FP8Q_OK)
        status = quantize_matrix(&err);
    return report(status, &err) == FP8Q_OK ? 0 : 1;
}
