/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checkpoint_packed.c - formats that are not FP8 are recognised by their tensors, and nothing
 * else is taken for one.
 */
#include "support/support.h"

#include "base/path.h"
#include "checkpoint/packed.h"
#include "support/maker.h"

struct made {
    const char *name;
    enum fp8q_dtype dtype;
    uint64_t shape[2];
};

static const struct {
    const char *config, *expected; /* NULL: none of them */
    struct made tensors[4];
} cases[] = {
    {NULL,
     "GPTQ",
     {{"a.qweight", FP8Q_I32, {16, 128}},
      {"a.g_idx", FP8Q_I32, {128, 1}},
      {"a.scales", FP8Q_F16, {1, 128}}}},
    {"{\"quantization_config\": {\"quant_method\": \"gptq\"}}",
     "GPTQ",
     {{"a.qweight", FP8Q_I32, {16, 128}}}},
    {"{\"text_config\": {\"quantization_config\": {\"quant_method\": \"gptq\"}}}",
     "GPTQ",
     {{"a.qweight", FP8Q_I32, {16, 128}}}},
    {NULL, "AWQ", {{"a.qweight", FP8Q_I32, {128, 16}}, {"a.qzeros", FP8Q_I32, {1, 16}}}},
    {NULL,
     "NVFP4",
     {{"a.weight", FP8Q_U8, {64, 64}},
      {"a.weight_scale", FP8Q_F8_E4M3, {64, 8}},
      {"a.weight_scale_2", FP8Q_F32, {1, 1}}}},
    {NULL,
     "NVFP4",
     {{"a.weight_packed", FP8Q_U8, {64, 64}},
      {"a.weight_scale", FP8Q_F8_E4M3, {64, 8}},
      {"a.weight_global_scale", FP8Q_F32, {1, 1}}}},
    {NULL,
     "compressed-tensors",
     {{"a.weight_packed", FP8Q_I32, {64, 16}}, {"a.weight_scale", FP8Q_BF16, {64, 1}}}},
    {NULL,
     "MXFP4",
     {{"a.gate_up_proj_blocks", FP8Q_U8, {64, 64}}, {"a.gate_up_proj_scales", FP8Q_U8, {64, 4}}}},
    {NULL,
     "packed FP4",
     {{"a.weight", FP8Q_I8, {64, 64}}, {"a.weight_scale_inv", FP8Q_F8_E8M0, {64, 4}}}},
    {NULL, "packed FP4", {{"a.weight", FP8Q_I8, {64, 64}}, {"a.scale", FP8Q_F8_E8M0, {64, 4}}}},
    {NULL, "packed FP4", {{"a.weight", FP8Q_F4, {64, 64}}, {"a.weight_scale", FP8Q_U8, {64, 4}}}},
    {NULL, "INT8", {{"a.weight", FP8Q_I8, {64, 64}}, {"a.weight_scale", FP8Q_F32, {64, 1}}}},
    {NULL,
     "packed FP4",
     {{"a.weight", FP8Q_U32, {64, 8}},
      {"a.scales", FP8Q_BF16, {64, 1}},
      {"a.biases", FP8Q_BF16, {64, 1}}}},
    {NULL,
     "bitsandbytes NF4",
     {{"a.weight", FP8Q_U8, {2048, 1}},
      {"a.weight.quant_state.bitsandbytes__nf4", FP8Q_U8, {8, 1}}}},
    {NULL,
     "bitsandbytes 4-bit",
     {{"a.weight", FP8Q_U8, {2048, 1}}, {"a.weight.absmax", FP8Q_F32, {8, 1}}}},
    {NULL, "bitsandbytes INT8", {{"a.weight", FP8Q_I8, {64, 64}}, {"a.SCB", FP8Q_F32, {64, 1}}}},
    {NULL, "EXL2", {{"a.q_weight", FP8Q_I32, {64, 64}}, {"a.q_scale", FP8Q_I32, {1, 8}}}},
    {NULL, "EXL3", {{"a.trellis", FP8Q_I16, {64, 64}}}},
    {NULL, "HQQ", {{"a.W_q", FP8Q_U8, {64, 64}}}},
    {NULL, "AQLM", {{"a.codes", FP8Q_I16, {64, 64}}, {"a.codebooks", FP8Q_F16, {64, 64}}}},
    /* What only looks like it.  */
    {NULL, NULL, {{"a.weight", FP8Q_BF16, {64, 64}}, {"a.weight_scale_inv", FP8Q_F32, {1, 1}}}},
    {NULL, NULL, {{"a.weight", FP8Q_F8_E4M3, {64, 64}}, {"a.weight_scale", FP8Q_F32, {1, 1}}}},
    {NULL, NULL, {{"attn.W_q", FP8Q_BF16, {64, 64}}, {"a.qweight", FP8Q_F16, {64, 64}}}},
    {NULL, NULL, {{"a.codes", FP8Q_BF16, {64, 64}}, {"a.codebooks", FP8Q_BF16, {64, 64}}}},
    {NULL, NULL, {{"moe_blocks", FP8Q_BF16, {64, 64}}, {"position_ids", FP8Q_I64, {1, 64}}}},
};

static void formats_are_recognised_by_their_tensors(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct maker m = {0};
        struct fp8q_ckpt *ckpt;
        struct fp8q_error err = {0};
        const char *tensor;
        char *base = temp_dir_make(), *dir = fp8q_join(base, "m");
        for (size_t t = 0; t < 4 && cases[i].tensors[t].name; t++)
            maker_add(&m, cases[i].tensors[t].name, cases[i].tensors[t].dtype, 2,
                      cases[i].tensors[t].shape, 0);
        maker_write(&m, dir, cases[i].config);
        assert_ok(fp8q_ckpt_open(dir, &ckpt, NULL, &err), &err);

        const char *found = fp8q_packed_format(ckpt, &tensor);
        int status = fp8q_refuse_packed(ckpt, &err);
        if (cases[i].expected) {
            if (!found || !strstr(found, cases[i].expected))
                fail_msg("row %zu: %s", i, found ? found : "none");
            assert_int_equal(status, FP8Q_E_UNSUPPORTED);
            assert_non_null(strstr(err.message, tensor));
        } else if (found || status != FP8Q_OK) {
            fail_msg("row %zu: %s", i, found);
        }
        fp8q_ckpt_close(ckpt);
        maker_free(&m);
        free(dir);
        temp_dir_remove(base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_are_recognised_by_their_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
