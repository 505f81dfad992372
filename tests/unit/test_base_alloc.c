/* SPDX-License-Identifier: Apache-2.0
 *
 * test_base_alloc.c - every allocation of the readers and writers fails once: the status says so,
 * nothing leaks (under ASan) and nothing else breaks.  Linked with --wrap for the allocation
 * functions.
 */
#include "support/support.h"

#include "checkpoint/checkpoint.h"
#include "measure/compare.h"
#include "gate/gate.h"
#include "tokenizer/tokenizer.h"

static long allowed = -1; /* allocations until the one that fails; -1: none fails */
static bool failed;

static bool must_fail(void)
{
    if (allowed < 0)
        return false;
    if (allowed-- > 0)
        return false;
    failed = true;
    return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t max);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t max);

void *__wrap_malloc(size_t size)
{
    return must_fail() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return must_fail() ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return must_fail() ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t max)
{
    return must_fail() ? NULL : __real_strndup(text, max);
}

/* Runs @step with the first, second, ... allocation failing until none is left to fail.  */
static void fail_each_allocation(int (*step)(const char *path, struct fp8q_error *err),
                                 const char *path)
{
    char copy[4096];
    snprintf(copy, sizeof(copy), "%s", path);
    for (long n = 0;; n++) {
        struct fp8q_error err = {0};
        failed = false;
        allowed = n;
        int status = step(copy, &err);
        allowed = -1;
        if (!failed) {
            assert_ok(status, &err);
            assert_true(n > 0);
            return;
        }
        if (status != FP8Q_E_NOMEM)
            fail_msg("%s: allocation %ld failed, status %d: %s", copy, n, status, err.message);
        assert_string_equal(err.id, "no-memory");
    }
}

static int open_and_close(const char *path, struct fp8q_error *err)
{
    struct fp8q_warnings warnings = {0};
    struct fp8q_ckpt *ckpt;
    int status = fp8q_ckpt_open(path, &ckpt, &warnings, err);
    assert_int_equal(ckpt != NULL, status == FP8Q_OK);
    fp8q_ckpt_close(ckpt);
    fp8q_warnings_reset(&warnings);
    return status;
}

static void opening_a_checkpoint(void **state)
{
    (void)state;
    fail_each_allocation(open_and_close, data_path("checkpoints/bare-file/model.safetensors"));
    fail_each_allocation(open_and_close, data_path("checkpoints/mixtral"));
    fail_each_allocation(open_and_close, data_path("checkpoints/smolvla"));
    fail_each_allocation(open_and_close, data_path("corpus/index/tensor_in_two_shards"));
    fail_each_allocation(open_and_close, data_path("corpus/index/shard_case_alias"));
}

static int emit_header(const char *path, struct fp8q_error *err)
{
    static const uint64_t shape[] = {1};
    static const struct fp8q_st_tensor tensors[] = {
        {.name = "a", .shape = shape, .ndim = 1, .dtype = FP8Q_F32, .end = 4},
        {.name = "b", .shape = shape, .ndim = 1, .dtype = FP8Q_U8, .begin = 4, .end = 5},
    };
    static const struct fp8q_st_pair pairs[] = {{"k", "v", 1, 1}, {"l", "w", 1, 1}};
    struct fp8q_text out = {0};
    (void)path;
    int status = fp8q_st_emit(tensors, 2, pairs, 2, 5000, &out, err);
    fp8q_text_reset(&out);
    return status;
}

static int splice_text(const char *path, struct fp8q_error *err)
{
    static const char text[] = "{\n    \"a\": {\n        \"q\": 1\n    },\n    \"q\": 2\n}\n";
    static const char *const remove[] = {"q", NULL}, *const nested[] = {"a.q", NULL};
    struct fp8q_text out = {0};
    (void)path;
    struct fp8q_splice splice = {.text = text,
                                 .len = sizeof(text) - 1,
                                 .what = "x",
                                 .remove = remove,
                                 .remove_nested = nested,
                                 .key = "k",
                                 .value = "{\n  \"x\": 1\n}"};
    int status = fp8q_json_splice(&splice, &out, err);
    fp8q_text_reset(&out);
    return status;
}

static void writing(void **state)
{
    (void)state;
    fail_each_allocation(emit_header, "");
    fail_each_allocation(splice_text, "");
}

static int tokenize(const char *path, struct fp8q_error *err)
{
    static const char text[] = "caf\xc3\xa9 e\xcc\x81 \xff <|a|> 12";
    struct fp8q_tokenizer *tokenizer;
    struct fp8q_ids ids = {0};
    int status = fp8q_tokenizer_open(path, &tokenizer, err);
    assert_int_equal(tokenizer != NULL, status == FP8Q_OK);
    if (status == FP8Q_OK)
        status = fp8q_tokenizer_encode(tokenizer, text, sizeof(text) - 1, &ids, err);
    fp8q_ids_reset(&ids);
    fp8q_tokenizer_close(tokenizer);
    return status;
}

static int compare_formats(const char *path, struct fp8q_error *err)
{
    struct fp8q_ckpt *ckpt;
    struct fp8q_compare result;
    const struct fp8q_compare_options options = {.kernel = fp8q_kernel_select(NULL), .threads = 1};
    FP8Q_TRY(fp8q_ckpt_open(path, &ckpt, NULL, err));
    int status = fp8q_compare(ckpt, &options, &result, err);
    fp8q_compare_reset(&result);
    fp8q_ckpt_close(ckpt);
    return status;
}

static int read_evidence(const char *path, struct fp8q_error *err)
{
    struct fp8q_evidence evidence;
    struct fp8q_policy policy;
    struct fp8q_gate gate;
    FP8Q_TRY(fp8q_evidence_read(path, &evidence, err));
    fp8q_policy_default(&policy);
    const struct fp8q_gate_request request = {.policy = &policy,
                                              .evidence = &evidence,
                                              .n_evidence = 1,
                                              .baselines = &evidence,
                                              .n_baselines = 1,
                                              .now = evidence.created};
    int status = fp8q_gate(&request, &gate, err);
    fp8q_gate_reset(&gate);
    fp8q_evidence_reset(&evidence);
    return status;
}

static int read_policy(const char *path, struct fp8q_error *err)
{
    struct fp8q_policy policy;
    int status = fp8q_policy_read(path, &policy, err);
    fp8q_policy_reset(&policy);
    return status;
}

static int judge_task(const char *path, struct fp8q_error *err)
{
    struct fp8q_task_pairs pairs;
    struct fp8q_policy policy;
    struct fp8q_gate gate;
    FP8Q_TRY(fp8q_task_read_pairs(path, path, "gsm8k", NULL, &pairs, err));
    struct fp8q_task_result *base = &pairs.pairs[0].base, *quant = &pairs.pairs[0].quant;
    quant->content_len = 0; /* else it ends there: the same file on both sides */
    if (quant->n_positions > 0)
        quant->positions[0].value -= 0.001;
    fp8q_policy_default(&policy);
    policy.resamples = 100;
    const struct fp8q_gate_task task = {"gsm8k", base, quant, true};
    const struct fp8q_gate_request request = {.policy = &policy, .tasks = &task, .n_tasks = 1};
    int status = fp8q_gate(&request, &gate, err);
    fp8q_gate_reset(&gate);
    fp8q_task_pairs_reset(&pairs);
    return status;
}

static void judging(void **state)
{
    (void)state;
    static const char *const tasks[] = {"lm-results",    "lm-samples", "lerobot-episodes",
                                        "lerobot-tasks", "csv",        "jsonl",
                                        "logprobs",      "vllm",       "sglang"};
    fail_each_allocation(tokenize, data_path("tokenizer/tiny"));
    fail_each_allocation(compare_formats, data_path("checkpoints/qwen2"));
    fail_each_allocation(read_evidence, data_path("../fuzz/seeds/evidence/plain"));
    fail_each_allocation(read_policy, data_path("../fuzz/seeds/policy/plain"));
    for (size_t i = 0; i < sizeof(tasks) / sizeof(*tasks); i++)
        fail_each_allocation(judge_task, data_path("../fuzz/seeds/tasks/%s", tasks[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opening_a_checkpoint),
        cmocka_unit_test(writing),
        cmocka_unit_test(judging),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
