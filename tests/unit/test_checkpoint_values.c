/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checkpoint_values.c - what the values of a tensor are, on matrices whose figures are known by
 * hand.
 */
#include "support/support.h"

#include <math.h>

#include "base/mem.h"
#include "base/path.h"
#include "checkpoint/values.h"
#include "support/fp8_checkpoint.h"

static struct fp8q_statistics look(const char *dir, const char *name)
{
    struct fp8q_error err = {0};
    struct fp8q_ckpt *ckpt;
    struct fp8q_statistics s;
    char *path = fp8q_join(dir, "x.safetensors");

    assert_ok(fp8q_ckpt_open(path, &ckpt, NULL, &err), &err);
    assert_ok(fp8q_look_at_values(ckpt, name, fp8q_kernel_select("scalar"), &s, &err), &err);
    fp8q_ckpt_close(ckpt);
    free(path);
    return s;
}

static void write_one(const char *dir, const struct memory_tensor *tensors, size_t n)
{
    char *path = fp8q_join(dir, "x.safetensors");
    write_tensors(path, tensors, n);
    free(path);
}

/* [130, 200]: four blocks, of 128x128, 128x72, 2x128 and 2x72 values.  */
static void test_edge_blocks(void **state)
{
    enum { ROWS = 130, COLS = 200 };
    static float w[ROWS * COLS];
    char *dir = temp_dir_make();
    (void)state;

    w[0] = 4.0f;
    w[1] = -0.0001f;          /* below 4 * 2^-6/448 = 0.00013951: small */
    w[2] = 0.00014f;          /* and this is above it */
    w[COLS - 1] = -8.0f;      /* block [0, 1] */
    w[128 * COLS] = 0.5f;     /* block [1, 0] */
    w[ROWS * COLS - 1] = NAN; /* block [1, 1] has nothing else */
    write_one(dir, &(struct memory_tensor){"a.weight", FP8Q_F32, {ROWS, COLS}, 2, w}, 1);

    struct fp8q_statistics s = look(dir, "a.weight");
    assert_int_equal(s.grid_rows, 2);
    assert_int_equal(s.grid_cols, 2);
    assert_int_equal(s.n_values, ROWS * COLS);
    assert_int_equal(s.n_nonfinite, 1);
    assert_int_equal(s.n_zeros, ROWS * COLS - 6);
    assert_int_equal(s.n_small, 1);
    assert_true(s.min == -8 && s.max == 4);
    double sum = 4.0 + (double)-0.0001f + (double)0.00014f - 8.0 + 0.5;
    assert_true(fabs(s.mean - sum / (ROWS * COLS - 1)) < 1e-12);
    assert_true(fabs(s.rms - sqrt(80.25 / (ROWS * COLS - 1))) < 1e-6);

    static const float amax[] = {4, 8, 0.5f, 0};
    static const uint64_t sizes[] = {128 * 128, 128 * 72, 2 * 128, 2 * 72};
    for (size_t i = 0; i < 4; i++) {
        assert_true(s.blocks[i].amax == amax[i]);
        assert_int_equal(s.blocks[i].n_values, sizes[i]);
        assert_int_equal(s.blocks[i].n_small, i == 0);
    }

    fp8q_statistics_reset(&s);
    temp_dir_remove(dir);
}

/* FP8 values count with their scales.  */
static void test_fp8(void **state)
{
    static uint8_t codes[128 * 256];
    static const float scales[2] = {2, 0.5f};
    char *dir = temp_dir_make();
    (void)state;

    codes[0] = 0x38;   /* 1 */
    codes[1] = 0xFE;   /* -448 */
    codes[2] = 0x01;   /* 2^-9: subnormal beside 448 */
    codes[128] = 0x40; /* 2, in the second block */
    const struct memory_tensor tensors[] = {{"a.weight", FP8Q_F8_E4M3, {128, 256}, 2, codes},
                                            {"a.weight_scale_inv", FP8Q_F32, {1, 2}, 2, scales}};
    write_one(dir, tensors, sizeof(tensors) / sizeof(tensors[0]));

    struct fp8q_statistics s = look(dir, "a.weight");
    assert_true(s.min == -896 && s.max == 2);
    assert_true(s.blocks[0].amax == 896 && s.blocks[1].amax == 1);
    assert_int_equal(s.blocks[0].n_small, 1);
    assert_int_equal(s.n_zeros, 128 * 256 - 4);

    fp8q_statistics_reset(&s);
    temp_dir_remove(dir);
}

/* Blocks of a stack begin anew with each matrix: two of [130, 128] have four stripes, not three.  */
static void test_stack(void **state)
{
    static float w[2 * 130 * 128];
    char *dir = temp_dir_make();
    (void)state;

    w[130 * 128] = 3; /* first row of the second matrix */
    w[129 * 128] = 1; /* last row of the first */
    write_one(dir, &(struct memory_tensor){"experts.up", FP8Q_F32, {2, 130, 128}, 3, w}, 1);

    struct fp8q_statistics s = look(dir, "experts.up");
    assert_int_equal(s.grid_rows, 4);
    assert_true(s.blocks[0].amax == 0 && s.blocks[1].amax == 1);
    assert_true(s.blocks[2].amax == 3 && s.blocks[3].amax == 0);
    assert_int_equal(s.blocks[1].n_values, 2 * 128);

    fp8q_statistics_reset(&s);
    temp_dir_remove(dir);
}

/* 3 x 5 blocks in a map of 2 x 2 cells: rows 0 | 1 2, columns 0 1 | 2 3 4.  */
static void test_map(void **state)
{
    static const float amax[] = {1, 2, 0, 0, 0, 0, 0, INFINITY, 3, 0, 8, 4, 0, 0, 0.5F};
    struct fp8q_block_statistics blocks[15] = {{0}};
    const struct fp8q_statistics s = {.grid_rows = 3, .grid_cols = 5, .blocks = blocks};
    (void)state;
    for (size_t i = 0; i < 15; i++)
        blocks[i].amax = amax[i];

    struct fp8q_amax_map map = fp8q_amax_map_of(&s, 2, 2);
    assert_true(map.rows == 2 && map.cols == 2);
    assert_true(map.low == 0.5F && map.high == 8);
    assert_true(fp8q_amax_map_cell(&map, 0, 0) == 2 && fp8q_amax_map_cell(&map, 0, 1) == 0);
    assert_true(fp8q_amax_map_cell(&map, 1, 0) == 8 && isinf(fp8q_amax_map_cell(&map, 1, 1)));

    /* No larger than the grid; and of zeros alone there is no range.  */
    map = fp8q_amax_map_of(&s, 64, 64);
    assert_true(map.rows == 3 && map.cols == 5);
    assert_true(fp8q_amax_map_cell(&map, 1, 3) == 3);
    memset(blocks, 0, sizeof(blocks));
    map = fp8q_amax_map_of(&s, 64, 64);
    assert_true(map.low == 0 && map.high == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_edge_blocks),
                                       cmocka_unit_test(test_fp8), cmocka_unit_test(test_stack),
                                       cmocka_unit_test(test_map)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
