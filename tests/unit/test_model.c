/* SPDX-License-Identifier: Apache-2.0
 *
 * test_model.c - which networks and inputs are accepted, weights of every kind of scaling,
 * fingerprints.
 */
#include "support/support.h"

#include <math.h>

#include "checkpoint/fingerprint.h"
#include "support/fp8_checkpoint.h"
#include "model/inputs.h"
#include "base/file.h"
#include "base/path.h"
#include "base/crc.h"

static int try_model(const char *path, struct fp8q_error *err)
{
    struct fp8q_ckpt *ckpt;
    struct fp8q_model model;
    assert_ok(fp8q_ckpt_open(path, &ckpt, NULL, err), err);
    int status = fp8q_model_open(ckpt, &model, err);
    if (status == FP8Q_OK)
        fp8q_model_reset(&model);
    fp8q_ckpt_close(ckpt);
    return status;
}

static void other_families_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"gpt-oss", "\"gpt_oss\""},         {"qwen3-next", "\"qwen3_next\""},
        {"llama4-text", "\"llama4_text\""}, {"bare-file", "no config.json"},
        {"unknown-family", "\"orbit_wm\""},
    };
    struct fp8q_error err = {0};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_failed(try_model(data_path("checkpoints/%s", cases[i][0]), &err), FP8Q_E_UNSUPPORTED,
                      &err, cases[i][1]);

    static const char *const known[] = {
        "qwen3-fp8-ct", "gemma3-text",  "phi3",           "mixtral",          "qwen3-moe",
        "internvl-hf",  "idefics3",     "smolvlm-ragged", "paligemma",        "openvla",
        "deepseek-v3",  "qwen3-vl-moe", "internvl-chat",  "phi3-ragged-parts"};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        assert_ok(try_model(data_path("checkpoints/%s", known[i]), &err), &err);
}

/* A policy's config.json says nothing of its language model: shapes and the policy's type do.  */
static void policies_are_described_by_their_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *name, *architecture, *prefix, *embed, *head;
        uint32_t layers, heads, kv_heads, dim;
        uint64_t hidden, vocab;
    } cases[] = {
        {"pi05-lerobot", "gemma", "model.paligemma_with_expert.paligemma.model.language_model.",
         "model.paligemma_with_expert.paligemma.lm_head.weight",
         "model.paligemma_with_expert.paligemma.lm_head.weight", 1, 2, 1, 128, 128, 128},
        {"smolvla", "llama", "model.vlm_with_expert.vlm.model.text_model.",
         "model.vlm_with_expert.vlm.model.text_model.embed_tokens.weight",
         "model.vlm_with_expert.vlm.lm_head.weight", 2, 3, 1, 64, 192, 128},
        {"gr00t-n1.5", "qwen3", "backbone.eagle_model.language_model.model.",
         "backbone.eagle_model.language_model.model.embed_tokens.weight",
         "backbone.eagle_model.language_model.model.embed_tokens.weight", 1, 2, 1, 128, 128, 128},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_ckpt *ckpt;
        struct fp8q_model m;
        assert_ok(fp8q_ckpt_open(data_path("checkpoints/%s", cases[i].name), &ckpt, NULL, &err),
                  &err);
        assert_ok(fp8q_model_open(ckpt, &m, &err), &err);
        assert_string_equal(m.architecture, cases[i].architecture);
        assert_string_equal(m.prefix, cases[i].prefix);
        assert_string_equal(m.embed_name, cases[i].embed);
        assert_string_equal(m.head_name, cases[i].head);
        assert_int_equal(m.n_layers, cases[i].layers);
        assert_int_equal(m.n_heads, cases[i].heads);
        assert_int_equal(m.n_kv_heads, cases[i].kv_heads);
        assert_int_equal(m.head_dim, cases[i].dim);
        assert_int_equal(m.hidden, cases[i].hidden);
        assert_int_equal(m.vocab, cases[i].vocab);
        fp8q_model_reset(&m);
        fp8q_ckpt_close(ckpt);
    }
}

/* One key of llama-untied's config.json is replaced.  */
static void bad_configs_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *message;
        enum fp8q_status status;
    } cases[] = {
        {"\"rope_type\": \"default\"", "\"rope_type\": \"spiral\"", "\"spiral\"",
         FP8Q_E_UNSUPPORTED},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"longrope\"", "short_factor",
         FP8Q_E_FORMAT},
        {"\"rope_type\": \"default\"", "\"partial_rotary_factor\": 0.5", "partial_rotary_factor",
         FP8Q_E_UNSUPPORTED},
        {"\"rope_type\": \"default\"", "\"rope_type\": \"yarn\", \"factor\": -1", "factor",
         FP8Q_E_FORMAT},
        {"\"rope_theta\": 10000.0", "\"rope_theta\": 0", "base", FP8Q_E_FORMAT},
        {"\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "\"gelu\"", FP8Q_E_UNSUPPORTED},
        {"\"hidden_size\": 256", "\"hidden_size\": 255", "embed_tokens", FP8Q_E_FORMAT},
        {"\"hidden_size\": 256", "\"hidden_size\": 1e300", "hidden_size", FP8Q_E_FORMAT},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 0", "num_hidden_layers",
         FP8Q_E_FORMAT},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 9999", "9999 layers", FP8Q_E_FORMAT},
        {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3", "layers.2.", FP8Q_E_FORMAT},
        {"\"num_attention_heads\": 4", "\"num_attention_heads\": 3", "fit together", FP8Q_E_FORMAT},
        {"\"head_dim\": 64", "\"head_dim\": 100000", "head_dim", FP8Q_E_FORMAT},
        {"\"vocab_size\": 320", "\"vocab_size\": 319", "embed_tokens", FP8Q_E_FORMAT},
        {"\"attention_bias\": false", "\"attention_bias\": true", "q_proj.bias", FP8Q_E_FORMAT},
    };
    struct fp8q_error err = {0};
    char *text;
    size_t len;
    assert_ok(fp8q_read_file(data_path("checkpoints/llama-untied/config.json"), 1 << 20, &text,
                             &len, &err),
              &err);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char *at = strstr(text, cases[i].from);
        assert_non_null(at);
        struct fp8q_text changed = {0};
        fp8q_text_add(&changed, text, (size_t)(at - text));
        fp8q_text_puts(&changed, cases[i].to);
        fp8q_text_puts(&changed, at + strlen(cases[i].from));
        char *dir = temp_dir_make(), *path = fp8q_join(dir, "model");
        link_checkpoint(data_path("checkpoints/llama-untied"), path, changed.data);
        assert_failed(try_model(path, &err), cases[i].status, &err, cases[i].message);
        temp_dir_remove(dir);
        free(path);
        fp8q_text_reset(&changed);
    }
    free(text);
}

/* ---- weights ------------------------------------------------------------------------------- */

struct weights_case {
    struct memory_tensor scale;
    enum fp8q_scaling scaling;
    const char *message; /* NULL: fine */
};

static void every_layout_of_scales_is_read(void **state)
{
    (void)state;
    enum { N = 130, K = 140 };
    uint8_t codes[N * K], e8m0[4] = {127, 128, 126, 130}, nan_e8m0[4] = {127, 255, 127, 127};
    float rows[N], block[4] = {1.0f, 2.0f, 0.5f, 8.0f}, one = 3.0f, bad[4] = {1, -1, 1, 1};
    uint16_t bf16[4] = {0x3F80, 0x4000, 0x3F00, 0x4100};
    for (size_t i = 0; i < sizeof(codes); i++)
        codes[i] = (uint8_t)(i % 127);
    for (size_t i = 0; i < N; i++)
        rows[i] = (float)(i + 1);
    const struct weights_case cases[] = {
        {{"w_scale_inv", FP8Q_F32, {2, 2}, 2, block}, FP8Q_SCALING_BLOCK, NULL},
        {{"w_scale", FP8Q_BF16, {2, 2}, 2, bf16}, FP8Q_SCALING_BLOCK, NULL},
        {{"w_scale_inv", FP8Q_F8_E8M0, {2, 2}, 2, e8m0}, FP8Q_SCALING_BLOCK, NULL},
        {{"w_scale", FP8Q_F32, {N, 1}, 2, rows}, FP8Q_SCALING_ROW, NULL},
        {{"w_scale", FP8Q_F32, {N}, 1, rows}, FP8Q_SCALING_ROW, NULL},
        {{"w_scale", FP8Q_F32, {1}, 1, &one}, FP8Q_SCALING_TENSOR, NULL},
        {{"w_scale", FP8Q_F32, {0}, 0, &one}, FP8Q_SCALING_TENSOR, NULL},
        {{"w_scale", FP8Q_F32, {4}, 1, block}, FP8Q_SCALING_NONE, "neither a grid"},
        {{"w_scale", FP8Q_F32, {2, 2}, 2, bad}, FP8Q_SCALING_NONE, "scale 1 is -1"},
        {{"w_scale", FP8Q_F8_E8M0, {2, 2}, 2, nan_e8m0}, FP8Q_SCALING_NONE, "scale 1 is nan"},
        {{"other", FP8Q_F32, {2, 2}, 2, block}, FP8Q_SCALING_NONE, "no scales stand beside it"},
        {{"w_scale", FP8Q_I32, {2, 2}, 2, block}, FP8Q_SCALING_NONE, "I32"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        char *dir = temp_dir_make(), *path = fp8q_join(dir, "w.safetensors");
        const struct memory_tensor tensors[] = {cases[i].scale,
                                                {"w", FP8Q_F8_E4M3, {N, K}, 2, codes}};
        struct fp8q_ckpt *ckpt;
        struct fp8q_weights w;
        static float out[N * K], raw[N * K];
        write_tensors(path, tensors, 2);
        assert_ok(fp8q_ckpt_open(path, &ckpt, NULL, &err), &err);
        int status = fp8q_weights_open(ckpt, "w", &w, &err);
        if (cases[i].message) {
            assert_true(status == FP8Q_E_FORMAT || status == FP8Q_E_UNSUPPORTED);
            assert_failed(status, (enum fp8q_status)status, &err, cases[i].message);
        } else {
            assert_ok(status, &err);
            assert_int_equal(w.scaling, cases[i].scaling);
            assert_ok(fp8q_weights_read(&w, fp8q_kernel_select(NULL), 0, N, raw, out, &err), &err);
            for (size_t r = 0; r < N; r++)
                for (size_t c = 0; c < K; c++) {
                    float s = w.scaling == FP8Q_SCALING_BLOCK ? block[r / 128 * 2 + c / 128]
                              : w.scaling == FP8Q_SCALING_ROW ? rows[r]
                                                              : one;
                    assert_true(out[r * K + c] == fp8q_e4m3_value[codes[r * K + c]] * s);
                }
            float part[3 * K];
            assert_ok(fp8q_weights_read(&w, fp8q_kernel_select("scalar"), 126, 3, raw, part, &err),
                      &err);
            assert_memory_equal(part, out + 126 * K, sizeof(part));
            fp8q_weights_reset(&w);
        }
        fp8q_ckpt_close(ckpt);
        temp_dir_remove(dir);
        free(path);
    }
}

/* ---- inputs -------------------------------------------------------------------------------- */

static void broken_inputs_are_refused(void **state)
{
    (void)state;
    int64_t ids[4] = {1, 2, 3, 4};
    float embeds[8] = {0};
    uint8_t bytes[4] = {0, 1, 9, 1};
    char too_long[65];
    memset(too_long, 'a', sizeof(too_long));
    const struct {
        struct memory_tensor tensors[2];
        size_t n;
        const char *message;
    } cases[] = {
        {{{"0.labels", FP8Q_I64, {4}, 1, ids}}, 1, "neither input_ids nor"},
        {{{"0.input_ids", FP8Q_I64, {0}, 1, ids}}, 1, "at least one token"},
        {{{"0.input_ids", FP8Q_I64, {2, 2}, 2, ids}}, 1, "[tokens]"},
        {{{"0.input_ids", FP8Q_F32, {4}, 1, embeds}}, 1, "I32 or I64"},
        {{{"7.input_ids", FP8Q_I64, {4}, 1, ids}}, 1, "numbered up to 7"},
        {{{"1.input_ids", FP8Q_I64, {4}, 1, ids}, {"note", FP8Q_I64, {1}, 1, ids}},
         2,
         "sample 0 has neither"},
        {{{"weights", FP8Q_F32, {4}, 1, embeds}}, 1, "no sample"},
        {{{"0.input_ids", FP8Q_I64, {4}, 1, ids}, {"0.labels", FP8Q_I64, {3}, 1, ids}},
         2,
         "as many tokens"},
        {{{"0.input_ids", FP8Q_I64, {4}, 1, ids}, {"0.modality", FP8Q_U8, {4}, 1, bytes}},
         2,
         "modality 9"},
        {{{"0.inputs_embeds", FP8Q_F32, {4}, 1, embeds}}, 1, "[tokens, hidden]"},
        {{{"0.inputs_embeds", FP8Q_F32, {2, 4}, 2, embeds},
          {"1.inputs_embeds", FP8Q_F32, {4, 2}, 2, embeds}},
         2,
         "width of the other"},
        {{{"0.input_ids", FP8Q_I64, {4}, 1, ids}, {"0.deepstack.9", FP8Q_F32, {4, 2}, 2, embeds}},
         2,
         "not computed here"},
        {{{"0.input_ids", FP8Q_I64, {2}, 1, ids}, {"0.prefix_len", FP8Q_I64, {1}, 1, ids + 2}},
         2,
         "a prefix of 3 of 2 tokens"},
        {{{"0.input_ids", FP8Q_I64, {4}, 1, ids}, {"0.prefix_len", FP8Q_I64, {2}, 1, ids}},
         2,
         "one number"},
        {{{"0.input_ids", FP8Q_I64, {4}, 1, ids}, {"0.category", FP8Q_U8, {4}, 1, bytes}},
         2,
         "without control characters"},
        {{{"0.input_ids", FP8Q_I64, {4}, 1, ids}, {"0.category", FP8Q_U8, {2}, 1, "a\xff"}},
         2,
         "bytes of UTF-8"},
        {{{"0.input_ids", FP8Q_I64, {4}, 1, ids}, {"0.category", FP8Q_U8, {64}, 1, too_long}},
         2,
         "1 to 63 bytes"},
        {{{"0.input_ids", FP8Q_I64, {4}, 1, ids}, {"0.category", FP8Q_U8, {0}, 1, bytes}},
         2,
         "1 to 63 bytes"},
        {{{"0.input_ids", FP8Q_I64, {4}, 1, ids}, {"0.category", FP8Q_I64, {4}, 1, ids}},
         2,
         "as U8"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_inputs inputs;
        char *dir = temp_dir_make(), *path = fp8q_join(dir, "x.inputs.safetensors");
        write_tensors(path, cases[i].tensors, cases[i].n);
        int status = fp8q_inputs_open(path, &inputs, NULL, &err);
        assert_true(status == FP8Q_E_FORMAT || status == FP8Q_E_UNSUPPORTED);
        assert_failed(status, (enum fp8q_status)status, &err, cases[i].message);
        temp_dir_remove(dir);
        free(path);
    }
}

static void written_inputs_are_read_back(void **state)
{
    (void)state;
    static const char *const names[] = {"text", "vl"};
    for (size_t i = 0; i < 2; i++) {
        struct fp8q_error err = {0};
        struct fp8q_inputs a, b;
        char *dir = temp_dir_make(), *path = fp8q_join(dir, "x.inputs.safetensors");
        assert_ok(
            fp8q_inputs_open(data_path("eval/%s.inputs.safetensors", names[i]), &a, NULL, &err),
            &err);
        uint32_t bare = a.fingerprint;
        strcpy(a.samples[0].category, "Wei\xc3\x9f");
        assert_ok(fp8q_inputs_finish(&a, &err), &err);
        assert_true(a.fingerprint != bare); /* limits by category would judge otherwise */
        assert_ok(fp8q_inputs_write(&a, path, &err), &err);
        assert_ok(fp8q_inputs_open(path, &b, NULL, &err), &err);
        assert_string_equal(b.samples[0].category, a.samples[0].category);
        assert_int_equal(a.fingerprint, b.fingerprint);
        assert_int_equal(a.n_tokens, b.n_tokens);
        assert_string_equal(a.dataset, b.dataset);
        assert_ok(fp8q_inputs_truncate(&b, 1, &err), &err);
        assert_true(a.fingerprint != b.fingerprint && b.n_samples == 1);
        fp8q_inputs_reset(&a);
        fp8q_inputs_reset(&b);
        temp_dir_remove(dir);
        free(path);
    }
}

/* ---- fingerprints -------------------------------------------------------------------------- */

static void a_fingerprint_is_the_documented_crc(void **state)
{
    (void)state;
    struct fp8q_error err = {0};
    struct fp8q_ckpt *ckpt;
    struct fp8q_text record = {0};
    uint32_t one, many;
    assert_ok(fp8q_ckpt_open(data_path("checkpoints/llama-untied"), &ckpt, NULL, &err), &err);
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const struct fp8q_tensor *t = &ckpt->tensors[i];
        void *data = malloc(t->size_bytes);
        assert_non_null(data);
        assert_ok(fp8q_ckpt_read(ckpt, t, 0, data, t->size_bytes, &err), &err);
        uint32_t crc = fp8q_crc32(0, data, t->size_bytes);
        fp8q_text_add(&record, t->name, strlen(t->name) + 1);
        fp8q_text_add(&record, fp8q_dtype_name(t->dtype), strlen(fp8q_dtype_name(t->dtype)) + 1);
        fp8q_text_add(&record, (const char *)&t->ndim,
                      4); /* this test runs on little-endian machines */
        fp8q_text_add(&record, (const char *)t->shape, 8 * t->ndim);
        fp8q_text_add(&record, (const char *)&crc, 4);
        free(data);
    }
    assert_ok(fp8q_fingerprint(ckpt, 1, NULL, &one, &err), &err);
    assert_ok(fp8q_fingerprint(ckpt, 5, NULL, &many, &err), &err);
    assert_int_equal(one, fp8q_crc32(0, record.data, record.len));
    assert_int_equal(one, many);
    fp8q_text_reset(&record);
    fp8q_ckpt_close(ckpt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_families_are_refused_by_name),
        cmocka_unit_test(policies_are_described_by_their_tensors),
        cmocka_unit_test(bad_configs_are_refused),
        cmocka_unit_test(every_layout_of_scales_is_read),
        cmocka_unit_test(broken_inputs_are_refused),
        cmocka_unit_test(written_inputs_are_read_back),
        cmocka_unit_test(a_fingerprint_is_the_documented_crc),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
