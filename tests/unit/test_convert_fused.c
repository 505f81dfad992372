/* SPDX-License-Identifier: Apache-2.0
 *
 * test_convert_fused.c - one scale per tensor, where engines load several tensors as one matrix:
 * each of them gets the scale of the largest value of all, wherever they lie and whoever writes them.
 */
#include "support/support.h"

#include <unistd.h>

#include "base/file.h"
#include "checkpoint/weights.h"
#include "format/names.h"
#include "select/fused.h"
#include "support/maker.h"

/* ---- names ------------------------------------------------------------------------------- */

static void parts_of_one_matrix_have_one_number(void **state)
{
    (void)state;
    /* In the comment: which of them belong together.  */
    static const struct {
        const char *name;
        int matrix;
    } weights[] = {
        {"model.layers.1.self_attn.q_proj.weight", 0},
        {"model.layers.10.self_attn.q_proj.weight", 1},
        {"model.layers.1.mlp.up_proj.weight", 2},
        {"model.layers.1.self_attn.v_proj.weight", 0},
        {"model.layers.1.self_attn.o_proj.weight", 3},
        {"model.layers.1.mlp.experts.1.w1.weight", 4},
        {"model.layers.1.mlp.experts.1.w2.weight", 5},
        {"model.layers.1.mlp.experts.1.w3.weight", 4},
        {"model.layers.1.mlp.experts.11.w3.weight", 6},
        {"model.layers.1.mlp.gate_proj.weight", 2},
        {"model.layers.1.mlp.gate_proj.weight_scale", 7}, /* no weight */
        {"model.layers.1.mlp.gate_up_proj.weight", 8},    /* fused on disk already */
        {"model.layers.1.self_attn.k_proj.weight", 0},
        {"q_proj.weight", 9}, /* without a parent */
        {"k_proj.weight", 9},
        {".weight", 10},
    };
    enum { N = sizeof(weights) / sizeof(*weights) };
    const char *names[N];
    size_t numbers[N];
    struct fp8q_error err = {0};

    for (size_t i = 0; i < N; i++)
        names[i] = weights[i].name;
    assert_ok(fp8q_fused_number(names, N, numbers, &err), &err);

    for (size_t i = 0; i < N; i++) {
        assert_in_range(numbers[i], 0, 10);
        for (size_t k = 0; k < N; k++)
            if ((numbers[i] == numbers[k]) != (weights[i].matrix == weights[k].matrix))
                fail_msg("%s and %s", names[i], names[k]);
    }
    assert_ok(fp8q_fused_number(NULL, 0, NULL, &err), &err);
}

/* ---- a checkpoint whose groups lie in different shards --------------------------------------- */

enum { SIDE = 128 };

/* The largest value of each weight (it is negative: a scale knows no sign), the shard that it lies
 * in, and the largest of what engines fuse with it.  */
static const struct {
    const char *name;
    float amax;
    size_t shard;
    float of_group;
} weights[] = {
    {"model.layers.0.self_attn.q_proj.weight", 1.0f, 0, 4.0f},
    {"model.layers.0.self_attn.k_proj.weight", 4.0f, 1, 4.0f},
    {"model.layers.0.self_attn.v_proj.weight", 2.0f, 2, 4.0f},
    {"model.layers.0.self_attn.o_proj.weight", 0.5f, 0, 0.5f},
    {"model.layers.0.mlp.gate_proj.weight", 3.5f, 2, 7.0f},
    {"model.layers.0.mlp.up_proj.weight", 7.0f, 0, 7.0f},
    {"model.layers.0.mlp.down_proj.weight", 0.25f, 1, 0.25f},
    {"model.layers.1.self_attn.q_proj.weight", 0.0f, 0, 0.125f},
    {"model.layers.1.self_attn.k_proj.weight", 0.125f, 2, 0.125f},
    {"model.layers.1.self_attn.v_proj.weight", 0.0f, 2, 0.125f},
    {"model.layers.1.self_attn.o_proj.weight", 0.0f, 1, 448.0f}, /* all zero: the scale is 1 */
};
enum { N_WEIGHTS = sizeof(weights) / sizeof(*weights) };

static char *dir;

static const char *at(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

/* Zeros, and one value in the last row: the last stripe tells.  */
static void fill(void *ctx, const struct maker_tensor *t, uint64_t from, void *out, size_t len)
{
    (void)ctx;
    memset(out, 0, len);
    for (size_t i = 0; i < N_WEIGHTS; i++) {
        float value = -weights[i].amax;
        if (strcmp(t->name, weights[i].name) == 0 && from + len == maker_bytes(t))
            memcpy((char *)out + len - sizeof(value), &value, sizeof(value));
    }
}

static int make_source(void **state)
{
    struct maker m = {.fill = fill};
    const uint64_t shape[] = {3 * SIDE, SIDE}, norm[] = {SIDE};
    (void)state;

    dir = temp_dir_make();
    for (size_t i = 0; i < N_WEIGHTS; i++)
        maker_add(&m, weights[i].name, FP8Q_F32, 2, shape, weights[i].shard);
    maker_add(&m, "model.norm.weight", FP8Q_F32, 1, norm, 2);
    maker_write(&m, at("source"), "{\"model_type\": \"llama\"}");
    maker_free(&m);
    return 0;
}

static int remove_source(void **state)
{
    (void)state;
    temp_dir_remove(dir);
    return 0;
}

/* ---- conversions ----------------------------------------------------------------------------- */

static const struct fp8q_request *request(void)
{
    static struct fp8q_request r;
    r = (struct fp8q_request){.size = sizeof(r), .source = at("source")};
    r.scheme = FP8Q_SCHEME_TENSOR;
    r.scales = FP8Q_SCALES_INLINE;
    return &r;
}

static void convert(const char *name, unsigned threads, const unsigned *parts, unsigned n_parts)
{
    struct fp8q_run run = {.size = sizeof(run), .threads = threads};
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};

    assert_ok(fp8q_conversion_open(request(), &run, &c, NULL, &err), &err);
    for (unsigned i = 0; i < n_parts; i++)
        assert_ok(fp8q_conversion_run_part(c, at(name), parts[i], n_parts, NULL, &err), &err);
    if (n_parts)
        assert_ok(fp8q_conversion_finish(c, at(name), NULL, &err), &err);
    else
        assert_ok(fp8q_conversion_run(c, at(name), NULL, &err), &err);
    fp8q_conversion_close(c);
}

static void check_scales(const char *name)
{
    struct fp8q_error err = {0};
    struct fp8q_ckpt *ckpt;
    assert_ok(fp8q_ckpt_open(at(name), &ckpt, NULL, &err), &err);

    for (size_t i = 0; i < N_WEIGHTS; i++) {
        struct fp8q_weights w;
        assert_ok(fp8q_weights_open(ckpt, weights[i].name, &w, &err), &err);
        assert_int_equal(w.scaling, FP8Q_SCALING_TENSOR);
        if (w.scales[0] != weights[i].of_group / 448.0f)
            fail_msg("%s: scale %.9g", weights[i].name, (double)w.scales[0]);
        fp8q_weights_reset(&w);
    }
    fp8q_ckpt_close(ckpt);
}

/* Whether the check failed; it must be there.  */
static bool fails(const char *name, bool with_source, const char *id)
{
    struct fp8q_verify_request r = {.size = sizeof(r), .path = at(name)};
    struct fp8q_verification *v;
    struct fp8q_error err = {0};
    const struct fp8q_check *check;
    bool found = false, failed = false;

    r.source = with_source ? at("source") : NULL;
    (void)fp8q_verification_open(&r, NULL, &v, NULL, &err);
    for (size_t i = 0; (check = fp8q_verification_check(v, i)); i++)
        if (strcmp(check->id, id) == 0) {
            found = true;
            failed = check->status == FP8Q_CHECK_FAIL;
        }
    fp8q_verification_close(v);
    if (!found)
        fail_msg("%s: no check %s: %s", name, id, err.message);
    return failed;
}

static void same_trees(const char *a, const char *b)
{
    char command[1200];
    snprintf(command, sizeof(command), "diff -r '%s' '%s'", at(a), at(b));
    assert_int_equal(system(command), 0);
}

static void a_group_has_the_scale_of_its_largest_value(void **state)
{
    (void)state;
    convert("whole", 1, NULL, 0);
    check_scales("whole");
    assert_false(fails("whole", true, "scale-fused"));
    assert_false(fails("whole", true, "scales-equal"));
    assert_false(fails("whole", true, "codes-equal"));

    convert("threads", 7, NULL, 0);
    same_trees("whole", "threads");
}

/* A part must know of values that lie in the shards of others, which may not have run yet.  */
static void parts_agree_in_any_order(void **state)
{
    (void)state;
    static const unsigned orders[][3] = {{1, 2, 3}, {3, 2, 1}, {2, 3, 1}};
    for (size_t i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "parts%zu", i);
        convert(name, 1 + (unsigned)i, orders[i], 3);
        same_trees("whole", name);
    }
}

/* The scale of one weight in the file of its shard, changed to another.  */
static void set_scale(const char *name, size_t weight, float scale)
{
    struct fp8q_error err = {0};
    struct fp8q_ckpt *ckpt;
    char scale_name[128];
    assert_ok(fp8q_ckpt_open(at(name), &ckpt, NULL, &err), &err);
    snprintf(scale_name, sizeof(scale_name), "%s_scale", weights[weight].name);

    const struct fp8q_tensor *t = fp8q_ckpt_find(ckpt, scale_name);
    assert_non_null(t);
    FILE *f = fopen(ckpt->shards[t->shard].path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)t->offset, SEEK_SET), 0);
    assert_int_equal(fwrite(&scale, sizeof(scale), 1, f), 1);
    assert_int_equal(fclose(f), 0);
    fp8q_ckpt_close(ckpt);
}

static void verify_finds_a_scale_of_its_own(void **state)
{
    (void)state;
    convert("own", 1, NULL, 0);
    set_scale("own", 0, 1.0f / 448);
    assert_true(fails("own", false, "scale-fused"));
    assert_true(fails("own", true, "scales-equal"));

    /* One scale for all, and not the one that the source gives.  */
    set_scale("own", 0, 8.0f / 448);
    set_scale("own", 1, 8.0f / 448);
    set_scale("own", 2, 8.0f / 448);
    assert_false(fails("own", false, "scale-fused"));
    assert_true(fails("own", true, "scales-equal"));
}

static void the_plan_says_what_is_read_twice(void **state)
{
    (void)state;
    struct fp8q_conversion *c;
    struct fp8q_error err = {0};
    assert_ok(fp8q_conversion_open(request(), NULL, &c, NULL, &err), &err);
    assert_int_equal(fp8q_conversion_plan(c)->bytes_read_twice,
                     (uint64_t)N_WEIGHTS * 3 * SIDE * SIDE * sizeof(float));
    fp8q_conversion_close(c);

    struct fp8q_request r = *request();
    r.scheme = FP8Q_SCHEME_BLOCK;
    assert_ok(fp8q_conversion_open(&r, NULL, &c, NULL, &err), &err);
    assert_int_equal(fp8q_conversion_plan(c)->bytes_read_twice, 0);
    fp8q_conversion_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_one_matrix_have_one_number),
        cmocka_unit_test(a_group_has_the_scale_of_its_largest_value),
        cmocka_unit_test(parts_agree_in_any_order),
        cmocka_unit_test(verify_finds_a_scale_of_its_own),
        cmocka_unit_test(the_plan_says_what_is_read_twice),
    };
    return cmocka_run_group_tests(tests, make_source, remove_source);
}
