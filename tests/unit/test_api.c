/* SPDX-License-Identifier: Apache-2.0
 *
 * test_api.c - the public header alone: convert, verify, damage, dequantize.
 */
#include "support/support.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/dir.h"

static const char *path_in(const char *dir, const char *name)
{
    static char path[8192];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return path;
}

static void converts_and_verifies(void **state)
{
    char *dir = temp_dir_make(), out[4096];
    struct fp8q_error err = {0};
    struct fp8q_result result;
    struct fp8q_check *checks;
    size_t n;
    (void)state;
    snprintf(out, sizeof(out), "%s/out", dir);
    struct fp8q_request request = {.source = data_path("checkpoints/qwen3")};
    assert_ok(fp8q_convert_checkpoint(&request, out, NULL, &result, NULL, &err), &err);
    assert_int_equal(result.n_quantized, 7);
    assert_int_equal(result.n_kept, 7);
    assert_true(result.output_bytes < result.source_bytes);
    assert_ok(fp8q_verify_checkpoint(out, request.source, true, NULL, &checks, &n, &err), &err);
    assert_true(n > 15);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(checks[i].status, FP8Q_CHECK_PASS);
    free(checks);
    /* Again is refused, with overwrite it is the same.  */
    assert_failed(fp8q_convert_checkpoint(&request, out, NULL, NULL, NULL, &err), FP8Q_E_ARG, &err,
                  "exists already");
    struct fp8q_run run = {.overwrite = true, .threads = 3, .kernel = "scalar"};
    assert_ok(fp8q_convert_checkpoint(&request, out, &run, NULL, NULL, &err), &err);
    assert_ok(fp8q_verify_checkpoint(out, NULL, false, &run, &checks, &n, &err), &err);
    free(checks);
    temp_dir_remove(dir);
}

static void one_damaged_byte_fails(void **state)
{
    char *dir = temp_dir_make(), out[4096];
    struct fp8q_error err = {0};
    struct fp8q_check *checks;
    size_t n;
    unsigned char byte;
    (void)state;
    snprintf(out, sizeof(out), "%s/out", dir);
    struct fp8q_request request = {.source = data_path("checkpoints/qwen3")};
    assert_ok(fp8q_convert_checkpoint(&request, out, NULL, NULL, NULL, &err), &err);
    int fd = open(path_in(out, "model-00001-of-00001.safetensors"), O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, 500000), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, 500000), 1);
    close(fd);
    assert_failed(fp8q_verify_checkpoint(out, NULL, false, NULL, &checks, &n, &err),
                  FP8Q_E_MISMATCH, &err, "tensor-crc");
    free(checks);
    temp_dir_remove(dir);
}

static void what_cannot_be_is_refused_before_anything_is_written(void **state)
{
    char *dir = temp_dir_make(), out[4096], **names;
    size_t n;
    struct fp8q_error err = {0};
    const char *pattern = "no.such.module";
    (void)state;
    snprintf(out, sizeof(out), "%s/out", dir);
    struct fp8q_request request = {
        .source = data_path("checkpoints/qwen3"), .ignore = &pattern, .n_ignore = 1};
    assert_failed(fp8q_convert_checkpoint(&request, out, NULL, NULL, NULL, &err), FP8Q_E_ARG, &err,
                  "matches nothing");
    request = (struct fp8q_request){.source = data_path("checkpoints/gpt-oss")};
    assert_failed(fp8q_convert_checkpoint(&request, out, NULL, NULL, NULL, &err), FP8Q_E_MISMATCH,
                  &err, "nothing to quantize");
    struct fp8q_run run = {.kernel = "abacus"};
    request.source = data_path("checkpoints/qwen3");
    assert_failed(fp8q_convert_checkpoint(&request, out, &run, NULL, NULL, &err), FP8Q_E_ARG, &err,
                  "abacus");
    assert_ok(fp8q_list_dir(dir, &names, &n, &err), &err);
    assert_int_equal(n, 0);
    fp8q_names_free(names, n);
    temp_dir_remove(dir);
}

static void numerics_are_public(void **state)
{
    (void)state;
    assert_true(fp8q_e4m3_value[0x7E] == 448.0f);
    assert_int_equal(fp8q_e4m3_from_f32(-1e9f), 0xFE);
    assert_true(fp8q_scale(448.0f, FP8Q_SCALE_F32) == 1.0f);
    assert_true(fp8q_scale(449.0f, FP8Q_SCALE_UE8M0) == 2.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converts_and_verifies),
        cmocka_unit_test(one_damaged_byte_fails),
        cmocka_unit_test(what_cannot_be_is_refused_before_anything_is_written),
        cmocka_unit_test(numerics_are_public),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
