/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gate.c - scenarios and the exit status that each must have.
 *
 * A scenario starts from a checkpoint that passes everything and changes what it is about.
 */
#include "support/support.h"

#include <math.h>

#include "base/date.h"
#include "base/file.h"
#include "base/path.h"
#include "gate/gate.h"
#include "gate/stats.h"

#define NOW "2026-06-01T12:00:00Z"
enum {
    SRC = 0x11111111,
    OUT = 0x22222222,
    IN = 0x33333333,
    OTHER = 0x44444444,
    CONFIG = 0x55555555
};

/* ---- evidence ------------------------------------------------------------------------------ */

struct figures {
    double kld, floor, requant, top1, dln; /* 0: not in the file */
    uint32_t source, output, inputs, config;
    const char *rounding;
    const char *created, *stack, *acts, *kind;
    unsigned tokens;
    double spread;      /* of the samples' KLD about the mean, relative; 0: 0.15 */
    double weight_rmse; /* of no concern to the gate */
    double top1_spread; /* of the samples' agreement about the mean */
    unsigned n_samples;
    bool no_inputs;          /* names no fingerprint of them */
    const char *differences; /* of the two config.json */
    bool unscored;           /* one more sample without a scored token */
    const char *extra;       /* replaces "kld.mean", "top1" or "tokens" by a lie */
    const char *modalities;  /* as JSON */
    double final_error;
    bool categories; /* the harder half of the samples are "hard", the others "easy" */
};

static const struct figures good = {.kld = 0.0073,
                                    .floor = 0.0029,
                                    .top1 = 0.965,
                                    .dln = 0.009,
                                    .source = SRC,
                                    .output = OUT,
                                    .inputs = IN,
                                    .config = CONFIG,
                                    .rounding = FP8Q_PLAIN_ROUNDING,
                                    .created = "2026-05-20T00:00:00Z",
                                    .stack = "engine 1",
                                    .acts = "served",
                                    .kind = "eval",
                                    .tokens = 4088,
                                    .weight_rmse = 0.0264,
                                    .n_samples = 8};

/* Hard and easy samples, the same for every run, whose mean is exactly 1.  */
static double hardness(const struct figures *f, unsigned i)
{
    double spread = f->spread > 0 ? f->spread : 0.15;
    double at = f->n_samples > 1 ? 2.0 * i / (f->n_samples - 1) - 1 : 0;
    return 1 + spread * at;
}

static void add_row(struct fp8q_jsonw *w, const char *name, double kld)
{
    char row[160];
    snprintf(row, sizeof(row), "{\"kld\":{\"mean\":%.17g,\"se\":%.17g}}", kld, kld * 0.02);
    if (kld > 0)
        fp8q_jsonw_raw(w, name, row);
}

static char *evidence_text(const struct figures *f)
{
    struct fp8q_jsonw w = {0};
    char fingerprints[200], config[40] = "";
    unsigned each = f->n_samples ? f->tokens / f->n_samples : 0;
    bool lies = f->extra != NULL;
    if (f->config)
        snprintf(config, sizeof(config), ",\"config\":\"%08x\"", f->config);
    snprintf(fingerprints, sizeof(fingerprints),
             "{\"source\":\"%08x\",\"output\":\"%08x\",\"inputs%s\":\"%08x\"%s}", f->source,
             f->output, f->no_inputs ? " of old" : "", f->inputs, config);
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_string(&w, "schema", FP8Q_EVIDENCE_SCHEMA);
    fp8q_jsonw_string(&w, "kind", f->kind);
    fp8q_jsonw_string(&w, "created", f->created);
    fp8q_jsonw_string(&w, "stack", f->stack);
    fp8q_jsonw_string(&w, "rounding", f->rounding);
    if (f->differences)
        fp8q_jsonw_string(&w, "config_differences", f->differences);
    if (f->source)
        fp8q_jsonw_raw(&w, "fingerprints", fingerprints);
    fp8q_jsonw_string(&w, "acts", f->acts);
    fp8q_jsonw_uint(&w, "tokens",
                    lies && strcmp(f->extra, "tokens") == 0 ? f->tokens * 2
                    : f->n_samples                          ? each * f->n_samples
                                                            : f->tokens);
    fp8q_jsonw_number(&w, "weight_rmse", f->weight_rmse);
    fp8q_jsonw_open(&w, "kld", '{');
    fp8q_jsonw_number(&w, "mean", lies && strcmp(f->extra, "kld") == 0 ? 0.0001 : f->kld);
    if (lies && strcmp(f->extra, "se") == 0)
        fp8q_jsonw_number(&w, "se", f->kld * 1e-4);
    fp8q_jsonw_close(&w, '}');
    if (f->top1 > 0)
        fp8q_jsonw_number(&w, "top1", lies && strcmp(f->extra, "top1") == 0 ? 0.999 : f->top1);
    fp8q_jsonw_open(&w, "ppl", '{');
    if (f->dln != 0) {
        fp8q_jsonw_number(&w, "dln", f->dln);
        fp8q_jsonw_number(&w, "dln_se", 0.0005);
        if (lies && strcmp(f->extra, "ppl") == 0) {
            fp8q_jsonw_number(&w, "source", 10);
            fp8q_jsonw_number(&w, "output", 20);
        }
    }
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_open(&w, "rows", '{');
    add_row(&w, "activations-only", f->floor);
    add_row(&w, "requantized-ue8m0", f->requant);
    fp8q_jsonw_close(&w, '}');
    fp8q_jsonw_open(&w, "samples", '[');
    for (unsigned i = 0; i < f->n_samples; i++) {
        fp8q_jsonw_open(&w, NULL, '{');
        fp8q_jsonw_uint(&w, "tokens", each);
        fp8q_jsonw_number(&w, "kld", f->kld * hardness(f, i));
        if (f->top1 > 0)
            fp8q_jsonw_number(&w, "top1", f->top1 + f->top1_spread * (hardness(f, i) - 1));
        if (f->categories)
            fp8q_jsonw_string(&w, "category", hardness(f, i) > 1 ? "hard" : "easy");
        fp8q_jsonw_close(&w, '}');
    }
    if (f->unscored)
        fp8q_jsonw_raw(&w, NULL, "{\"tokens\":0,\"kld\":null,\"top1\":null}");
    fp8q_jsonw_close(&w, ']');
    if (f->modalities)
        fp8q_jsonw_raw(&w, "modalities", f->modalities);
    if (f->final_error > 0)
        fp8q_jsonw_number(&w, "final_error", f->final_error);
    fp8q_jsonw_close(&w, '}');
    return w.text.data;
}

static void make_evidence(const struct figures *f, struct fp8q_evidence *out)
{
    struct fp8q_error err = {0};
    char *text = evidence_text(f);
    assert_ok(fp8q_evidence_parse(text, strlen(text), "evidence.json", out, &err), &err);
    free(text);
}

/* ---- task results -------------------------------------------------------------------------- */

/* CSV of @n items: the first @both solved by both, then @base_only, then @quant_only, the rest by
 * none.  */
static char *binary_csv(unsigned n, unsigned both, unsigned base_only, unsigned quant_only,
                        bool is_quant)
{
    struct fp8q_text t = {0};
    fp8q_text_puts(&t, "id,score\n");
    for (unsigned i = 0; i < n; i++) {
        bool b = i < both + base_only;
        bool q = i < both || (i >= both + base_only && i < both + base_only + quant_only);
        fp8q_text_printf(&t, "item %u,%d\n", i, is_quant ? q : b);
    }
    return t.data;
}

struct tasks_text {
    const char *base, *quant;                /* texts, or */
    unsigned n, both, base_only, quant_only; /* a CSV made of these */
};

static void make_task(const struct tasks_text *t, struct fp8q_task_result results[2],
                      const char *metric)
{
    for (int side = 0; side < 2; side++) {
        struct fp8q_error err = {0};
        const char *given = side ? t->quant : t->base;
        char *made = given ? NULL : binary_csv(t->n, t->both, t->base_only, t->quant_only, side);
        const char *text = given ? given : made;
        assert_ok(
            fp8q_task_parse(text, strlen(text), "task", "gsm8k", metric, &results[side], &err),
            &err);
        free(made);
    }
}

/* As the command reads them: from files, all metrics.  */
static void make_tasks(const struct tasks_text *t, struct fp8q_task_pairs *pairs)
{
    struct fp8q_error err = {0};
    char *dir = temp_dir_make(), *paths[2];
    for (int side = 0; side < 2; side++) {
        const char *given = side ? t->quant : t->base;
        char *made = given ? NULL : binary_csv(t->n, t->both, t->base_only, t->quant_only, side);
        const char *text = given ? given : made;
        paths[side] = fp8q_join(dir, side ? "quant" : "base");
        assert_ok(fp8q_write_file(paths[side], text, strlen(text), &err), &err);
        free(made);
    }
    assert_ok(fp8q_task_read_pairs(paths[0], paths[1], "gsm8k", NULL, pairs, &err), &err);
    assert_true(pairs->n_pairs <= 4);
    free(paths[0]);
    free(paths[1]);
    temp_dir_remove(dir);
}

/* ---- scenarios ----------------------------------------------------------------------------- */

struct scenario {
    const char *name;
    enum fp8q_verdict verdict;
    int exit;
    const char *check; /* id of a check that has this verdict; NULL: none need be named */
    const char *policy, *stack;
    struct figures evidence, baseline, second; /* kind NULL: not given */
    bool no_evidence, no_verify, verify_fails, lock, widened, fallback, fallback_wrong, no_source;
    bool no_config, source_config_differs;
    struct tasks_text task;
    uint64_t n_needed_low, n_needed_high; /* where stated, of the named check */
};

#define POLICY(members) "{\"schema\":\"fp8q-policy/1\"," members "}"
#define WITH(...)                                                                                  \
    {                                                                                              \
        .kld = 0.0073, .floor = 0.0029, .top1 = 0.965, .dln = 0.009, .source = SRC, .output = OUT, \
        .inputs = IN, .created = "2026-05-20T00:00:00Z", .stack = "engine 1", .acts = "served",    \
        .kind = "eval", .tokens = 4088, .n_samples = 8, .config = CONFIG,                          \
        .rounding = FP8Q_PLAIN_ROUNDING, __VA_ARGS__                                               \
    }
#define V(name) FP8Q_VERDICT_##name

#define LM_RESULTS(score, se, n, version)                                                          \
    "{\"results\":{\"gsm8k\":{\"alias\":\"gsm8k\",\"exact_match,strict\":" score                   \
    ",\"exact_match_stderr,strict\":" se "}},\"n-samples\":{\"gsm8k\":{\"effective\":" n           \
    "}},\"versions\":{\"gsm8k\":" version "}}"
#define LM_SAMPLE(id, hash, score)                                                                 \
    "{\"doc_id\":" id ",\"filter\":\"strict\",\"metrics\":[\"exact_match\"],\"doc_hash\":\"" hash  \
    "\",\"exact_match\":" score "}\n"

/* Together the mean KLD of `good`.  */
#define MODALITIES                                                                                 \
    "[{\"name\":\"text\",\"tokens\":4000,\"samples\":8,\"kld\":0.0070206,\"kld_se\":0.0001},"      \
    "{\"name\":\"image\",\"tokens\":88,\"samples\":8,\"kld\":0.02,\"kld_se\":0.001}]"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Winitializer-overrides"
#else
#pragma GCC diagnostic ignored "-Woverride-init"
#endif
static const struct scenario scenarios[] = {
    /* pass */
    {"all is well", V(PASS), 0, "verify"},
    {"lock holds", V(PASS), 0, "lock", .lock = true},
    {"baseline within 25 %", V(PASS), 0, "eval.kld-vs-baseline",
     .baseline = WITH(.kld = 0.0070, .output = OTHER)},
    {"fallback exists", V(PASS), 0, "fallback", POLICY("\"verify\":{\"fallback_required\":true}"),
     .fallback = true},
    {"stack as asked", V(PASS), 0, "eval", .stack = "engine 1"},
    {"no eval, none required", V(PASS), 0, "verify", POLICY("\"eval\":{\"required\":false}"),
     .no_evidence = true},
    {"every category within its limit", V(PASS), 0, "eval.category.hard",
     POLICY("\"eval\":{\"kld_max_by_category\":0.009}"), .evidence = WITH(.categories = true)},
    {"every modality within its limit", V(PASS), 0, "eval.modality.image",
     POLICY("\"eval\":{\"kld_max_by_modality\":0.03}"), .evidence = WITH(.modalities = MODALITIES)},
    {"states within their limit", V(PASS), 0, "eval.states",
     POLICY("\"eval\":{\"state_error_max\":0.03}"), .evidence = WITH(.final_error = 0.02)},
    {"states of a policy, and nothing else", V(PASS), 0, "eval.states",
     POLICY("\"eval\":{\"state_error_max\":0.03}"),
     .evidence = WITH(.final_error = 0.02, .tokens = 0)},
    {"old, but no age limit", V(PASS), 0, "eval", POLICY("\"evidence\":{\"max_age_days\":null}"),
     .evidence = WITH(.created = "2020-01-01T00:00:00Z")},
    {"two domains, both well", V(PASS), 0, "eval", .second = WITH(.inputs = OTHER)},
    {"task: paired, within margin", V(PASS), 0, "task.gsm8k",
     .task = {.n = 1319, .both = 950, .base_only = 33, .quant_only = 33}},
    {"task: quantized better", V(PASS), 0, "task.gsm8k",
     .task = {.n = 500, .both = 440, .base_only = 5, .quant_only = 20}},
    {"task: separate runs, many items", V(PASS), 0, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "0.0043", "10000", "3.0"),
              LM_RESULTS("0.7501", "0.0043", "10000", "3.0")}},

    {"requantized at load, still within", V(PASS), 0, "eval.kld-vs-floor",
     .policy = POLICY("\"eval\":{\"requantized\":true}"), .evidence = WITH(.requant = 0.0080)},

    /* fail */
    {"requantized at load, and then too far", V(FAIL), 1, "eval.kld-vs-floor",
     .policy = POLICY("\"eval\":{\"requantized\":true}"), .evidence = WITH(.requant = 0.0150)},
    {"verify finds a difference", V(FAIL), 1, "verify", .verify_fails = true},
    {"KLD far above the floor", V(FAIL), 1, "eval.kld-vs-floor", .evidence = WITH(.kld = 0.02)},
    {"KLD far above plain rounding", V(FAIL), 1, "eval.kld-vs-baseline",
     .evidence = WITH(.kld = 0.011), .baseline = WITH(.output = OTHER)},
    {"one category beyond the limit", V(FAIL), 1, "eval.category.hard",
     POLICY("\"eval\":{\"kld_max_by_category\":0.0072}"), .evidence = WITH(.categories = true)},
    {"one modality beyond the limit", V(FAIL), 1, "eval.modality.image",
     POLICY("\"eval\":{\"kld_max_by_modality\":0.01}"), .evidence = WITH(.modalities = MODALITIES)},
    {"states beyond their limit", V(FAIL), 1, "eval.states",
     POLICY("\"eval\":{\"state_error_max\":0.01}"), .evidence = WITH(.final_error = 0.02)},
    {"KLD above an absolute limit", V(FAIL), 1, "eval.kld", POLICY("\"eval\":{\"kld_max\":0.005}")},
    {"plain rounding costs nothing, this does", V(FAIL), 1, "eval.kld-vs-baseline",
     .baseline = WITH(.kld = 0, .output = OTHER)},
    {"top-1 agreement too low", V(FAIL), 1, "eval.top1", POLICY("\"eval\":{\"top1_min\":0.99}")},
    {"top-1 agreement lost", V(FAIL), 1, "eval.top1-vs-baseline", .evidence = WITH(.top1 = 0.90),
     .baseline = WITH(.output = OTHER)},
    {"perplexity rose", V(FAIL), 1, "eval.ppl", POLICY("\"eval\":{\"delta_ln_ppl_max\":0.005}")},
    {"one of two domains fails", V(FAIL), 1, "eval.kld-vs-floor",
     .second = WITH(.inputs = OTHER, .kld = 0.03)},
    {"task: clearly worse", V(FAIL), 1, "task.gsm8k",
     .task = {.n = 1319, .both = 850, .base_only = 130, .quant_only = 20}},
    {"task: separate runs, clearly worse", V(FAIL), 1, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "0.0043", "10000", "3.0"),
              LM_RESULTS("0.65", "0.0043", "10000", "3.0")}},
    {"fallback is another model", V(FAIL), 1, "fallback",
     POLICY("\"verify\":{\"fallback_required\":true}"), .fallback = true, .fallback_wrong = true},
    {"a failure goes before stale evidence", V(FAIL), 1, "verify", .verify_fails = true,
     .evidence = WITH(.output = OTHER)},

    /* widened */
    {"quantized set widened", V(WIDENED), 4, "lock", .lock = true, .widened = true},
    {"widened goes before every failure", V(WIDENED), 4, "lock", .lock = true, .widened = true,
     .verify_fails = true, .evidence = WITH(.kld = 1)},

    /* stale */
    {"evidence of older weights", V(STALE), 5, "eval", .evidence = WITH(.output = OTHER)},
    {"evidence too old", V(STALE), 5, "eval", .evidence = WITH(.created = "2026-01-01T00:00:00Z")},
    {"evidence from the future", V(STALE), 5, "eval",
     .evidence = WITH(.created = "2027-01-01T00:00:00Z")},
    {"another serving stack", V(STALE), 5, "eval", .stack = "engine 2"},
    {"another stack than the policy pins", V(STALE), 5, "eval",
     POLICY("\"evidence\":{\"stack\":\"engine 2\"}")},
    {"no stack where one is asked for", V(STALE), 5, "eval", .stack = "engine 1",
     .evidence = WITH(.stack = NULL)},
    {"one of two is stale", V(STALE), 5, "eval", .second = WITH(.output = OTHER)},

    /* foreign */
    {"evidence of another model", V(FOREIGN), 5, "eval",
     .evidence = WITH(.source = OTHER, .output = OTHER)},
    {"same output, another source", V(FOREIGN), 5, "eval", .evidence = WITH(.source = OTHER)},
    {"source unknown, other weights", V(MISSING), 5, "eval", .no_source = true,
     .evidence = WITH(.output = OTHER)},
    {"other inputs than the policy pins", V(FOREIGN), 5, "eval",
     POLICY("\"eval\":{\"inputs\":\"44444444\"}")},
    {"evidence of another kind", V(FOREIGN), 5, "eval", .evidence = WITH(.kind = "drift")},
    {"baseline of another source", V(FOREIGN), 5, "baseline",
     .baseline = WITH(.source = OTHER, .output = OTHER)},
    {"baseline on other inputs", V(FOREIGN), 5, "baseline",
     .baseline = WITH(.inputs = OTHER, .output = OTHER)},
    {"baseline with other activations", V(FOREIGN), 5, "baseline",
     .baseline = WITH(.acts = "none", .output = OTHER)},
    {"task: other ids", V(FOREIGN), 5, "task.gsm8k",
     .task = {"id,score\n1,1\n2,1\n", "id,score\n1,1\n3,1\n"}},
    {"task: fewer items", V(FOREIGN), 5, "task.gsm8k",
     .task = {"id,score\n1,1\n2,1\n", "id,score\n1,1\n"}},
    {"task: same id, another question", V(FOREIGN), 5, "task.gsm8k",
     .task = {LM_SAMPLE("1", "aa", "1.0"), LM_SAMPLE("1", "bb", "1.0")}},
    {"task: another version", V(FOREIGN), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "0.01", "1000", "3.0"),
              LM_RESULTS("0.75", "0.01", "1000", "4.0")}},
    {"task: samples against results", V(FOREIGN), 5, "task.gsm8k",
     .task = {LM_SAMPLE("1", "aa", "1.0"), LM_RESULTS("0.75", "0.01", "1000", "3.0")}},
    {"fallback of another model, not required", V(FOREIGN), 5, "fallback", .fallback = true,
     .fallback_wrong = true},
    {"serving: other prompts", V(FOREIGN), 5, "task.gsm8k",
     .task = {"{\"id\":1,\"tokens\":[5,6],\"top_logprobs\":[null,{\"6\":-0.1}]}",
              "{\"id\":1,\"tokens\":[5,7],\"top_logprobs\":[null,{\"7\":-0.1}]}"}},

    /* missing */
    {"requantized scales not measured", V(MISSING), 5, "eval.requantized",
     .policy = POLICY("\"eval\":{\"requantized\":true}")},
    {"no evidence at all", V(MISSING), 5, "eval", .no_evidence = true},
    {"not verified", V(MISSING), 5, "verify", .no_verify = true},
    {"no lock where one is required", V(MISSING), 5, "lock",
     POLICY("\"verify\":{\"lock_required\":true}")},
    {"no fallback where one is required", V(MISSING), 5, "fallback",
     POLICY("\"verify\":{\"fallback_required\":true}")},
    {"evidence without fingerprints", V(MISSING), 5, "eval", .evidence = WITH(.source = 0)},
    {"neither baseline nor floor", V(MISSING), 5, "eval.limits", .evidence = WITH(.floor = 0)},
    {"a limit by category, and no category", V(MISSING), 5, "eval.category",
     POLICY("\"eval\":{\"kld_max_by_category\":1}")},
    {"a limit by modality, and none told", V(MISSING), 5, "eval.modality",
     POLICY("\"eval\":{\"kld_max_by_modality\":1}")},
    {"a limit of states, and none measured", V(MISSING), 5, "eval.states",
     POLICY("\"eval\":{\"state_error_max\":1}")},
    {"baseline required", V(MISSING), 5, "eval.kld-vs-baseline",
     POLICY("\"eval\":{\"baseline_required\":true}")},
    {"floor required", V(MISSING), 5, "eval.kld-vs-floor",
     POLICY("\"eval\":{\"floor_required\":true}"), .evidence = WITH(.floor = 0),
     .baseline = WITH(.output = OTHER)},
    {"top-1 limit, not measured", V(MISSING), 5, "eval.top1", POLICY("\"eval\":{\"top1_min\":0.9}"),
     .evidence = WITH(.top1 = 0)},
    {"required task not given", V(MISSING), 5, "task.mmlu",
     POLICY("\"tasks\":{\"required\":[\"mmlu\"]}")},
    {"task: no margin set", V(MISSING), 5, "task.gsm8k", POLICY("\"tasks\":{\"margin\":null}"),
     .task = {.n = 100, .both = 90, .base_only = 1, .quant_only = 1}},
    {"task: means without counts", V(MISSING), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "\"N/A\"", "0", "3.0"),
              LM_RESULTS("0.7501", "\"N/A\"", "0", "3.0")}},
    {"task: means whose error is unknown", V(MISSING), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.7512345", "\"N/A\"", "1000", "3.0"),
              LM_RESULTS("0.7512346", "\"N/A\"", "1000", "3.0")}},

    /* inconclusive */
    {"too few tokens", V(INCONCLUSIVE), 5, "eval.tokens", .evidence = WITH(.tokens = 800),
     .n_needed_low = 2000, .n_needed_high = 2000},
    {"KLD near the limit", V(INCONCLUSIVE), 5, "eval.kld-vs-floor",
     .evidence = WITH(.kld = 0.0113)},
    {"task: a hundred episodes", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {.n = 100, .both = 93, .base_only = 2, .quant_only = 2}, .n_needed_low = 300,
     .n_needed_high = 700},
    {"task: no difference seen, too few", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {.n = 50, .both = 47, .base_only = 1, .quant_only = 1}},
    {"task: fewer than the policy asks", V(INCONCLUSIVE), 5, "task.gsm8k",
     POLICY("\"tasks\":{\"min_items\":2000}"),
     .task = {.n = 1319, .both = 950, .base_only = 33, .quant_only = 33}, .n_needed_low = 2000,
     .n_needed_high = 2000},
    {"task: 99 % recovery is too narrow", V(INCONCLUSIVE), 5, "task.gsm8k",
     POLICY("\"tasks\":{\"recovery\":0.99}"),
     .task = {.n = 1319, .both = 950, .base_only = 33, .quant_only = 33}},
};

/* How evidence and results can be missing, stale, foreign, contradictory, too few, of another
 * direction or another question: each has its verdict, and none of them is a pass.  */
#define DIRECTION(perplexity, acc)                                                                 \
    ",\"higher_is_better\":{\"gsm8k\":{\"perplexity\":" perplexity ",\"acc\":" acc "}}"
#define TWO_METRICS(ppl, acc, more)                                                                \
    "{\"results\":{\"gsm8k\":{\"perplexity,none\":" ppl                                            \
    ",\"perplexity_stderr,none\":0.01,\"acc,none\":" acc                                           \
    ",\"acc_stderr,none\":0.0049}},\"n-samples\":{\"gsm8k\":{\"effective\":10000}}" more "}"
#define ONE_METRIC(name, value, more)                                                              \
    "{\"results\":{\"gsm8k\":{\"" name ",none\":" value ",\"" name                                 \
    "_stderr,none\":0.0002}},\"n-samples\":{\"gsm8k\":{\"effective\":10000}}" more "}"
#define GROUP(value, more)                                                                         \
    "{\"results\":{\"gsm8k\":{\"acc,none\":" value ",\"acc_stderr,none\":0.00387}},"               \
    "\"n-samples\":{\"a\":{\"effective\":6000},\"b\":{\"effective\":6000}}" more "}"
#define PARTS ",\"group_subtasks\":{\"gsm8k\":[\"c\",\"b\"],\"c\":[\"a\"]}"
#define LOGPROB(id, value)                                                                         \
    "{\"id\":" id ",\"tokens\":[5,6],\"top_logprobs\":[null,{\"6\":" value "}]}\n"
#define LOWER POLICY("\"tasks\":{\"per_task\":{\"gsm8k\":{\"lower_is_better\":true}}}")
#define HIGHER POLICY("\"tasks\":{\"per_task\":{\"gsm8k\":{\"lower_is_better\":false}}}")
#define PLAIN(...) WITH(.kld = 0.0070, .output = OTHER, __VA_ARGS__)

static const struct scenario no_accident[] = {
    /* what the evidence is of */
    {"a checkpoint compared with itself", V(FOREIGN), 5, "eval", .evidence = WITH(.source = OUT)},
    {"itself, and its source is not known", V(FOREIGN), 5, "eval", .no_source = true,
     .evidence = WITH(.source = OUT)},
    {"a source compared with itself", V(FOREIGN), 5, "eval", .evidence = WITH(.output = SRC)},
    {"of whose source nothing is known", V(MISSING), 5, "eval", .no_source = true},
    {"config.json edited since", V(STALE), 5, "eval", .evidence = WITH(.config = OTHER)},
    {"no config.json named", V(MISSING), 5, "eval", .evidence = WITH(.config = 0)},
    {"config.json is not that of the source", V(FAIL), 1, "config", .source_config_differs = true},
    {"it computes something else", V(FAIL), 1, "eval.config",
     .evidence = WITH(.differences = "rope_theta 10000 -> 20")},
    {"it computes the same", V(PASS), 0, "eval", .evidence = WITH(.differences = "")},
    {"a checkpoint without config.json", V(PASS), 0, "eval", .no_config = true},

    /* another question */
    {"activations as they are", V(FOREIGN), 5, "eval", .evidence = WITH(.acts = "none")},
    {"activations by token", V(FOREIGN), 5, "eval", .evidence = WITH(.acts = "token")},
    {"activations that the policy asks for", V(PASS), 0, "eval",
     POLICY("\"eval\":{\"acts\":\"none\"}"), .evidence = WITH(.acts = "none")},
    {"served, where the policy judges weights", V(FOREIGN), 5, "eval",
     POLICY("\"eval\":{\"acts\":\"none\"}")},
    {"any activations", V(PASS), 0, "eval", POLICY("\"eval\":{\"acts\":\"any\"}"),
     .evidence = WITH(.acts = "none")},
    {"acts null is the default", V(FOREIGN), 5, "eval", POLICY("\"eval\":{\"acts\":null}"),
     .evidence = WITH(.acts = "none")},

    /* too few */
    {"a category of one sample", V(INCONCLUSIVE), 5, "eval.category.hard",
     POLICY("\"eval\":{\"kld_max_by_category\":1}"),
     .evidence = WITH(.n_samples = 2, .categories = true)},
    {"one sample", V(INCONCLUSIVE), 5, "eval.kld-vs-floor", .evidence = WITH(.n_samples = 1)},
    {"no samples", V(INCONCLUSIVE), 5, "eval.kld-vs-floor", .evidence = WITH(.n_samples = 0)},
    {"one scored sample of two", V(INCONCLUSIVE), 5, "eval.kld-vs-floor",
     .evidence = WITH(.n_samples = 1, .unscored = true)},
    {"one sample and a limit of the KLD", V(INCONCLUSIVE), 5, "eval.kld",
     POLICY("\"eval\":{\"kld_max\":1}"), .evidence = WITH(.n_samples = 1)},
    {"one sample and a limit of top-1", V(INCONCLUSIVE), 5, "eval.top1",
     POLICY("\"eval\":{\"top1_min\":0.5}"), .evidence = WITH(.n_samples = 1)},
    {"one sample and a limit of the perplexity", V(INCONCLUSIVE), 5, "eval.ppl",
     POLICY("\"eval\":{\"delta_ln_ppl_max\":1}"), .evidence = WITH(.n_samples = 1)},
    {"two samples that differ", V(INCONCLUSIVE), 5, "eval.kld-vs-floor",
     .evidence = WITH(.n_samples = 2)},
    {"a sample without a scored token", V(PASS), 0, "eval.kld-vs-baseline",
     .evidence = WITH(.unscored = true), .baseline = PLAIN(.unscored = true)},

    {"top-1 agreement that varies from sample to sample", V(INCONCLUSIVE), 5, "eval.top1",
     POLICY("\"eval\":{\"top1_min\":0.95}"), .evidence = WITH(.top1_spread = 0.23)},
    {"top-1 agreement that does not", V(PASS), 0, "eval.top1",
     POLICY("\"eval\":{\"top1_min\":0.95}"), .evidence = WITH(.top1_spread = 0.01)},
    {"top-1 agreement of few tokens", V(INCONCLUSIVE), 5, "eval.top1",
     POLICY("\"eval\":{\"top1_min\":0.95,\"min_tokens\":80}"), .evidence = WITH(.tokens = 80)},
    {"a baseline whose agreement varies", V(INCONCLUSIVE), 5, "eval.top1-vs-baseline",
     POLICY("\"eval\":{\"top1_drop_vs_baseline\":0.01}"), .baseline = PLAIN(.top1_spread = 0.23)},
    {"a ratio to plain rounding near its limit", V(INCONCLUSIVE), 5, "eval.kld-vs-baseline",
     .evidence = WITH(.kld = 0.0087, .spread = 0.5), .baseline = PLAIN()},
    {"requantized, near the limit", V(INCONCLUSIVE), 5, "eval.kld-vs-floor",
     POLICY("\"eval\":{\"requantized\":true}"), .evidence = WITH(.requant = 0.0113)},
    {"inputs not named, none asked for", V(PASS), 0, "eval", .evidence = WITH(.no_inputs = true)},
    {"inputs not named, the policy pins them", V(FOREIGN), 5, "eval",
     POLICY("\"eval\":{\"inputs\":\"33333333\"}"), .evidence = WITH(.no_inputs = true)},
    {"inputs that the policy pins", V(PASS), 0, "eval",
     POLICY("\"eval\":{\"inputs\":\"33333333\"}")},

    /* nothing judged */
    {"only a limit of top-1", V(MISSING), 5, "eval.limits",
     POLICY("\"eval\":{\"kld_vs_baseline\":null,\"kld_vs_floor\":null,\"top1_min\":0.1}")},
    {"no limits at all", V(MISSING), 5, "eval.limits",
     POLICY("\"eval\":{\"kld_vs_baseline\":null,\"kld_vs_floor\":null,"
            "\"top1_drop_vs_baseline\":null}")},
    {"a policy that asks for nothing", V(MISSING), 5, "gate",
     POLICY("\"eval\":{\"required\":false},\"verify\":{\"required\":false}"), .no_evidence = true,
     .no_verify = true},
    {"the same, and a fallback", V(MISSING), 5, "gate",
     POLICY("\"eval\":{\"required\":false},\"verify\":{\"required\":false}"), .no_evidence = true,
     .no_verify = true, .fallback = true},

    /* baselines */
    {"the judged evidence as its own baseline", V(FOREIGN), 5, "baseline", .baseline = WITH()},
    {"the same bytes on other samples", V(FOREIGN), 5, "baseline",
     .baseline = WITH(.inputs = OTHER)},
    {"a baseline that is not plain", V(FOREIGN), 5, "baseline",
     .baseline = PLAIN(.rounding = "gptq")},
    {"a baseline of unknown rounding", V(FOREIGN), 5, "baseline",
     .baseline = PLAIN(.rounding = NULL)},
    {"a baseline of a source with itself", V(FOREIGN), 5, "baseline",
     .baseline = PLAIN(.source = SRC, .output = SRC)},
    {"a baseline of other samples", V(FOREIGN), 5, "baseline", .baseline = PLAIN(.n_samples = 4)},
    {"a baseline of another kind", V(FOREIGN), 5, "baseline", .baseline = PLAIN(.kind = "drift")},
    {"a baseline without fingerprints", V(MISSING), 5, "baseline", .baseline = PLAIN(.source = 0)},
    {"neither costs anything", V(INCONCLUSIVE), 5, "eval.kld-vs-baseline",
     .evidence = WITH(.kld = 0), .baseline = PLAIN(.kld = 0)},
    {"requantized, against requantized", V(PASS), 0, "eval.kld-vs-baseline",
     POLICY("\"eval\":{\"requantized\":true,\"kld_vs_floor\":null}"),
     .evidence = WITH(.requant = 0.0100), .baseline = PLAIN(.requant = 0.0098)},
    {"requantized, against what was not", V(MISSING), 5, "eval.kld-vs-baseline",
     POLICY("\"eval\":{\"requantized\":true}"), .evidence = WITH(.requant = 0.0100),
     .baseline = PLAIN()},

    /* directions */
    {"perplexity rises, by the file's own word", V(FAIL), 1, "task.gsm8k",
     .task = {TWO_METRICS("12.0", "0.60", DIRECTION("false", "true")),
              TWO_METRICS("40.0", "0.60", DIRECTION("false", "true"))}},
    {"the second metric falls", V(FAIL), 1, "task.gsm8k.acc,none",
     .task = {TWO_METRICS("12.0", "0.60", DIRECTION("false", "true")),
              TWO_METRICS("12.0", "0.30", DIRECTION("false", "true"))}},
    {"a known name, and no word of the file", V(FAIL), 1, "task.gsm8k",
     .task = {ONE_METRIC("word_perplexity", "12.0", ""),
              ONE_METRIC("word_perplexity", "40.0", "")}},
    {"an unknown name", V(MISSING), 5, "task.gsm8k",
     .task = {ONE_METRIC("quux", "0.60", ""), ONE_METRIC("quux", "0.61", "")}},
    {"an unknown name, null in the file", V(MISSING), 5, "task.gsm8k",
     .task = {ONE_METRIC("quux", "0.60", ",\"higher_is_better\":{\"gsm8k\":{\"quux\":null}}"),
              ONE_METRIC("quux", "0.61", "")}},
    {"an unknown name that the policy explains", V(PASS), 0, "task.gsm8k", LOWER,
     .task = {ONE_METRIC("quux", "0.60", ""), ONE_METRIC("quux", "0.6001", "")}},
    {"the same, the other way round", V(FAIL), 1, "task.gsm8k", HIGHER,
     .task = {ONE_METRIC("quux", "0.60", ""), ONE_METRIC("quux", "0.50", "")}},
    {"the policy contradicts the file", V(FOREIGN), 5, "task.gsm8k", LOWER,
     .task = {TWO_METRICS("12.0", "0.60", DIRECTION("true", "true")),
              TWO_METRICS("12.1", "0.60", DIRECTION("true", "true"))}},
    {"the policy contradicts the name", V(FOREIGN), 5, "task.gsm8k", HIGHER,
     .task = {ONE_METRIC("perplexity", "12.0", ""), ONE_METRIC("perplexity", "40.0", "")}},
    {"the two runs contradict each other", V(FOREIGN), 5, "task.gsm8k",
     .task = {TWO_METRICS("12.0", "0.60", DIRECTION("true", "true")),
              TWO_METRICS("40.0", "0.60", DIRECTION("false", "true"))}},
    {"a metric that only one run has", V(FOREIGN), 5, "task.gsm8k",
     .task = {ONE_METRIC("acc", "0.60", ""), TWO_METRICS("12.0", "0.60", "")}},

    /* groups and counts of lm-eval */
    {"a group whose parts are counted", V(PASS), 0, "task.gsm8k",
     .task = {GROUP("0.7500", PARTS), GROUP("0.7510", PARTS)}},
    {"a group whose parts are not known", V(MISSING), 5, "task.gsm8k",
     .task = {GROUP("0.7500", ""), GROUP("0.7510", "")}},
    {"a group that holds itself", V(MISSING), 5, "task.gsm8k",
     .task = {GROUP("0.7500", ",\"group_subtasks\":{\"gsm8k\":[\"gsm8k\"]}"),
              GROUP("0.7510", ",\"group_subtasks\":{\"gsm8k\":[\"gsm8k\"]}")}},
    {"a count of 1e60", V(MISSING), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "0.01", "1e60", "3.0"),
              LM_RESULTS("0.76", "0.01", "1e60", "3.0")}},
    {"a mean of 1e60", V(FOREIGN), 5, "task.gsm8k",
     .task = {LM_RESULTS("1e60", "0.01", "100", "3.0"), LM_RESULTS("0.7", "0.01", "100", "3.0")}},
    {"a negative count", V(MISSING), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "0.01", "-5", "3.0"), LM_RESULTS("0.76", "0.01", "-5", "3.0")}},
    {"other numbers of items", V(FOREIGN), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "0.0043", "10000", "3.0"),
              LM_RESULTS("0.80", "0.0043", "9999", "3.0")}},
    {"a share on one side, per cent on the other", V(FOREIGN), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "0.0043", "10000", "3.0"),
              LM_RESULTS("75.0", "0.43", "10000", "3.0")}},
    {"scores of 0 and 1, and of 0 and 100", V(FOREIGN), 5, "task.gsm8k",
     .task = {"id,score\n1,1\n2,0\n3,1\n", "id,score\n1,100\n2,0\n3,0\n"}},
    {"one item, error nought", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.5", "0.0", "1", "3.0"), LM_RESULTS("0.50", "0.0", "1", "3.0")}},
    {"few items, error nought", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.513", "0.0", "20", "3.0"), LM_RESULTS("0.5130", "0.0", "20", "3.0")}},
    {"an error that no proportion has", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "0.2", "10000", "3.0"),
              LM_RESULTS("0.7501", "0.2", "10000", "3.0")}},

    /* the same on both sides, and nothing to lose */
    {"one file for both sides", V(FOREIGN), 5, "task.gsm8k", .task = {.n = 1319, .both = 1000}},
    {"one results file for both sides", V(FOREIGN), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.75", "0.0043", "10000", "3.0"),
              LM_RESULTS("0.75", "0.0043", "10000", "3.0")}},
    {"the base model solves nothing", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {.n = 500, .both = 0, .quant_only = 1}},
    {"a mean of nothing", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {LM_RESULTS("0.0", "0.0", "1000", "3.0"),
              LM_RESULTS("0.001", "0.001", "1000", "3.0")}},
    {"one score for all items", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {"id,score\n1,0.5\n2,0.5\n", "id,score\n2,0.5\n1,0.5\n"}},
    {"one item, half solved", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {"id,score\n1,0.5\n", "id,score\n1,0.50\n"}},
    {"three items", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {"id,score\n1,0.51\n2,0.62\n3,0.7\n", "id,score\n1,0.51\n2,0.625\n3,0.7\n"}},
    {"items of one cluster", V(INCONCLUSIVE), 5, "task.gsm8k",
     .task = {"id,score,cluster\n1,1,a\n2,0,a\n3,1,a\n",
              "id,score,cluster\n1,1,a\n2,1,a\n3,1,a\n"}},
    {"clusters on one side only", V(FOREIGN), 5, "task.gsm8k",
     .task = {"id,score,cluster\n1,1,a\n2,0,b\n", "id,score\n1,1\n2,0\n"}},
    {"an item in another cluster", V(FOREIGN), 5, "task.gsm8k",
     .task = {"id,score,cluster\n1,1,a\n2,0,b\n", "id,score,cluster\n1,1,a\n2,0,c\n"}},

    /* log-probabilities */
    {"one position of one prompt", V(INCONCLUSIVE), 5, "task.gsm8k.nll",
     .task = {LOGPROB("1", "-0.1"), LOGPROB("1", "-0.1001")}},
    {"the same log-probabilities", V(FOREIGN), 5, "task.gsm8k",
     .task = {LOGPROB("1", "-0.1") LOGPROB("2", "-0.2"),
              LOGPROB("1", "-0.10") LOGPROB("2", "-0.2")}},
    {"log-probabilities and no limit", V(MISSING), 5, "task.gsm8k",
     POLICY("\"serving\":{\"delta_nll_max\":null}"),
     .task = {LOGPROB("1", "-0.1"), LOGPROB("1", "-0.1001")}},
    {"fewer prompts than the policy asks", V(INCONCLUSIVE), 5, "task.gsm8k.nll",
     POLICY("\"tasks\":{\"min_items\":5},\"serving\":{\"delta_nll_max\":100}"),
     .task = {LOGPROB("1", "-0.1") LOGPROB("2", "-0.2"),
              LOGPROB("1", "-0.11") LOGPROB("2", "-0.2")}},
    {"a token that underflowed", V(FAIL), 1, "task.gsm8k.nll",
     POLICY("\"serving\":{\"delta_nll_max\":0.02},\"confidence\":0.6"),
     .task = {LOGPROB("1", "-0.1") LOGPROB("2", "-0.2") LOGPROB("3", "-0.2") LOGPROB("4", "-0.3"),
              LOGPROB("1", "-1e300") LOGPROB("2", "-1e300") LOGPROB("3", "-1e300")
                  LOGPROB("4", "-1e300")}},
};
#pragma GCC diagnostic pop

static int exit_of(int status)
{
    return status == FP8Q_OK           ? 0
           : status == FP8Q_E_MISMATCH ? 1
           : status == FP8Q_E_POLICY   ? 4
           : status == FP8Q_E_EVIDENCE ? 5
                                       : -1;
}

static const struct fp8q_gate_check *find_check(const struct fp8q_gate *gate, const char *id,
                                                enum fp8q_verdict verdict)
{
    for (size_t i = 0; i < gate->n_checks; i++)
        if (strcmp(gate->checks[i].id, id) == 0 && gate->checks[i].verdict == verdict)
            return &gate->checks[i];
    return NULL;
}

static void print_checks(const struct fp8q_gate *gate)
{
    for (size_t i = 0; i < gate->n_checks; i++)
        print_message("    %-12s %s: %s\n", fp8q_verdict_name(gate->checks[i].verdict),
                      gate->checks[i].id, gate->checks[i].message);
}

static void run_scenario(const struct scenario *s)
{
    struct fp8q_error err = {0};
    struct fp8q_policy policy;
    struct fp8q_evidence evidence[2] = {{0}}, baseline = {0};
    struct fp8q_task_pairs pairs = {0};
    struct fp8q_gate gate;
    fp8q_policy_default(&policy);
    if (s->policy)
        assert_ok(fp8q_policy_parse(s->policy, strlen(s->policy), "policy.json", &policy, &err),
                  &err);
    make_evidence(s->evidence.kind ? &s->evidence : &good, &evidence[0]);
    if (s->second.kind)
        make_evidence(&s->second, &evidence[1]);
    if (s->baseline.kind)
        make_evidence(&s->baseline, &baseline);
    bool has_task = s->task.n || s->task.base;
    if (has_task)
        make_tasks(&s->task, &pairs);
    struct fp8q_gate_task tasks[4];
    for (size_t i = 0; i < pairs.n_pairs; i++)
        tasks[i] =
            (struct fp8q_gate_task){"gsm8k", &pairs.pairs[i].base, &pairs.pairs[i].quant, i > 0};
    struct fp8q_gate_request request = {
        .policy = &policy,
        .facts = {.verify_ran = !s->no_verify,
                  .verify_status = s->verify_fails ? FP8Q_E_MISMATCH : FP8Q_OK,
                  .verify_message = s->verify_fails ? "tensor \"x\": code 3 differs" : NULL,
                  .lock_given = s->lock,
                  .first_widened = "model.visual.blocks.0.attn.qkv.weight",
                  .n_widened = s->widened,
                  .output = {true, OUT},
                  .config = {!s->no_config, CONFIG},
                  .source_config_differs = s->source_config_differs,
                  .is_planned = true,
                  .source = {!s->no_source, SRC},
                  .fallback_given = s->fallback,
                  .fallback_matches = !s->fallback_wrong},
        .evidence = evidence,
        .n_evidence = s->no_evidence   ? 0
                      : s->second.kind ? 2
                                       : 1,
        .baselines = &baseline,
        .n_baselines = s->baseline.kind != NULL,
        .tasks = tasks,
        .n_tasks = pairs.n_pairs,
        .stack = s->stack};
    assert_true(fp8q_time_parse(NOW, &request.now));
    assert_ok(fp8q_gate(&request, &gate, &err), &err);
    int code = exit_of(fp8q_verdict_status(gate.verdict));
    const struct fp8q_gate_check *check = find_check(&gate, s->check, s->verdict);
    if (gate.verdict != s->verdict || code != s->exit || !check) {
        print_checks(&gate);
        fail_msg("%s: %s, exit %d; expected %s of %s, exit %d", s->name,
                 fp8q_verdict_name(gate.verdict), code, fp8q_verdict_name(s->verdict), s->check,
                 s->exit);
    }
    if (s->n_needed_high &&
        (check->n_needed < s->n_needed_low || check->n_needed > s->n_needed_high))
        fail_msg("%s: %llu would decide", s->name, (unsigned long long)check->n_needed);
    fp8q_gate_reset(&gate);
    fp8q_task_pairs_reset(&pairs);
    fp8q_evidence_reset(&evidence[0]);
    fp8q_evidence_reset(&evidence[1]);
    fp8q_evidence_reset(&baseline);
    fp8q_policy_reset(&policy);
}

static void each_scenario_has_its_exit_status(void **state)
{
    (void)state;
    size_t n = sizeof(scenarios) / sizeof(*scenarios);
    for (size_t i = 0; i < n; i++)
        run_scenario(&scenarios[i]);
    print_message("%zu scenarios\n", n);
}

static void nothing_passes_by_accident(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(no_accident) / sizeof(*no_accident); i++)
        run_scenario(&no_accident[i]);
}

/* Figures that the samples of the same file do not give.  */
static void evidence_that_contradicts_itself_is_malformed(void **state)
{
    (void)state;
    static const char *const lies[] = {"kld", "top1", "tokens", "se", "ppl"};
    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        struct fp8q_error err = {0};
        struct fp8q_evidence e;
        struct figures f = good;
        f.extra = lies[i];
        char *text = evidence_text(&f);
        assert_failed(fp8q_evidence_parse(text, strlen(text), "e.json", &e, &err), FP8Q_E_FORMAT,
                      &err, strcmp(lies[i], "kld") == 0 ? "kld.mean" : lies[i]);
        assert_string_equal(err.id, "evidence-contradiction");
        free(text);
    }
}

/* Scores that are no counts: @shift is what the quantized model loses on each item.  */
static enum fp8q_verdict judge_scores(unsigned n, double shift, unsigned clusters,
                                      const char *policy_text)
{
    struct fp8q_text csv[2] = {{0}};
    for (int side = 0; side < 2; side++) {
        fp8q_text_puts(&csv[side], clusters ? "id,score,cluster\n" : "id,score,note\n");
        for (unsigned i = 0; i < n; i++)
            fp8q_text_printf(&csv[side], "%u,%.6f,%u\n", i,
                             0.5 + 0.01 * (i % 40) - (side ? shift + 0.001 * (i % 7) - 0.003 : 0),
                             clusters ? i % clusters : 0);
    }
    struct scenario s = {.policy = policy_text};
    struct fp8q_error err = {0};
    struct fp8q_policy policy;
    struct fp8q_task_pairs pairs;
    struct fp8q_gate gate;
    assert_ok(fp8q_policy_parse(s.policy, strlen(s.policy), "p", &policy, &err), &err);
    make_tasks(&(struct tasks_text){csv[0].data, csv[1].data, 0, 0, 0, 0}, &pairs);
    const struct fp8q_gate_task task = {"gsm8k", &pairs.pairs[0].base, &pairs.pairs[0].quant,
                                        false};
    const struct fp8q_gate_request request = {.policy = &policy, .tasks = &task, .n_tasks = 1};
    policy.verify_required = policy.eval_required = false;
    assert_ok(fp8q_gate(&request, &gate, &err), &err);
    enum fp8q_verdict verdict = gate.verdict;
    fp8q_gate_reset(&gate);
    fp8q_task_pairs_reset(&pairs);
    fp8q_policy_reset(&policy);
    fp8q_text_reset(&csv[0]);
    fp8q_text_reset(&csv[1]);
    return verdict;
}

static void scores_are_judged_in_their_direction(void **state)
{
    (void)state;
    const char *none = POLICY("\"confidence\":0.95");
    assert_int_equal(judge_scores(400, 0, 0, none), FP8Q_VERDICT_PASS);
    assert_int_equal(judge_scores(400, -0.1, 0, none), FP8Q_VERDICT_PASS);
    assert_int_equal(judge_scores(400, 0.1, 0, none), FP8Q_VERDICT_FAIL);
    assert_int_equal(judge_scores(40, 0, 0, none), FP8Q_VERDICT_INCONCLUSIVE);
    assert_int_equal(judge_scores(400, 0, 0, LOWER), FP8Q_VERDICT_PASS);
    assert_int_equal(judge_scores(400, 0.1, 0, LOWER), FP8Q_VERDICT_PASS);
    assert_int_equal(judge_scores(400, -0.1, 0, LOWER), FP8Q_VERDICT_FAIL);

    /* Four scenes are four units, however many episodes each has.  */
    assert_int_equal(judge_scores(400, 0, 4, none), FP8Q_VERDICT_INCONCLUSIVE);
    assert_int_equal(judge_scores(400, 0, 200, none), FP8Q_VERDICT_PASS);
    const char *margin = POLICY("\"tasks\":{\"margin\":null,\"recovery\":0.95}");
    assert_int_equal(judge_scores(400, 0, 0, margin), FP8Q_VERDICT_PASS);
    assert_int_equal(judge_scores(400, 0.1, 0, margin), FP8Q_VERDICT_FAIL);
    const char *exact = POLICY("\"tasks\":{\"margin\":null,\"recovery\":1}");
    assert_int_equal(judge_scores(400, 0, 0, exact), FP8Q_VERDICT_INCONCLUSIVE);
}

/* Real figures (Qwen2.5-0.5B, 4,088 tokens): compensated rounding with unit tokens has a higher
 * weight error than plain rounding and a lower KLD; without them the KLD is 1.8 times that of plain
 * rounding.  A made-up recipe with the lowest weight error of all and the worst KLD must fail.  */
static void the_wrong_recipe_is_caught(void **state)
{
    (void)state;
    static const struct {
        double weight_rmse, kld;
        enum fp8q_verdict verdict;
    } recipes[] = {
        {0.02640, 0.00735, FP8Q_VERDICT_PASS}, /* plain rounding itself */
        {0.03168, 0.00670, FP8Q_VERDICT_PASS}, /* higher weight error, lower KLD */
        {0.02614, 0.01308, FP8Q_VERDICT_FAIL}, /* lower weight error, higher KLD */
    };
    for (size_t i = 0; i < 3; i++) {
        struct scenario s = {.name = "recipe",
                             .verdict = recipes[i].verdict,
                             .exit = recipes[i].verdict == FP8Q_VERDICT_FAIL,
                             .check = "eval.kld-vs-baseline"};
        s.evidence = s.baseline = good;
        s.baseline.kld = 0.00735;
        s.baseline.output = OTHER;
        s.evidence.kld = recipes[i].kld;
        s.evidence.weight_rmse = recipes[i].weight_rmse;
        run_scenario(&s);
    }
}

/* ---- importers ----------------------------------------------------------------------------- */

static void importers_read_what_tools_write(void **state)
{
    (void)state;
    static const char samples[] = "{\"doc_id\":1,\"filter\":\"flexible-extract\",\"metrics\":["
                                  "\"exact_match\"],\"exact_match\":1.0}\n"
                                  "{\"doc_id\":0,\"filter\":\"flexible-extract\",\"metrics\":["
                                  "\"exact_match\"],\"exact_match\":0.0}\n\n"
                                  "{\"doc_id\":0,\"filter\":\"strict-match\",\"metrics\":[\"exact_"
                                  "match\"],\"exact_match\":1.0}\n"
                                  "{\"doc_id\":1,\"filter\":\"strict-match\",\"metrics\":[\"exact_"
                                  "match\"],\"exact_match\":NaN}\n";
    static const char lerobot_old[] =
        "{\"per_episode\":[{\"episode_ix\":0,\"sum_reward\":1.5,\"success\":true,\"seed\":1000},"
        "{\"episode_ix\":1,\"sum_reward\":0.5,\"success\":false,\"seed\":1001}],\"aggregated\":{"
        "\"pc_success\":50.0}}";
    static const char lerobot_new[] = "{\"per_task\":[{\"task_group\":\"libero_goal\",\"task_id\":"
                                      "3,\"metrics\":{\"sum_rewards\":[1.0,0.0],"
                                      "\"successes\":[true,false],\"video_paths\":[]}}],"
                                      "\"overall\":{\"pc_success\":50.0,\"n_episodes\":2}}";
    static const struct {
        const char *text, *metric, *first_id, *found_metric;
        double first, second;
    } cases[] = {
        {samples, NULL, "0", "exact_match,flexible-extract", 0, 1},
        {lerobot_old, NULL, "seed 1000", "success", 1, 0},
        {lerobot_old, "sum_reward", "seed 1000", "sum_reward", 1.5, 0.5},
        {lerobot_new, NULL, "libero_goal/3/0", "success", 1, 0},
        {lerobot_new, "sum_reward", "libero_goal/3/0", "sum_reward", 1, 0},
        {"\xEF\xBB\xBFscore,id,note\r\n0.5,\"a,\"\"b\",x\r\n0.25,b,\"y\nz\"\r\n", NULL, "a,\"b",
         "score", 0.5, 0.25},
        {"id,cluster,score\n7,t1,True\n8,t1,False", NULL, "7", "score", 1, 0},
        {"{\"id\":\"p\",\"score\":true}\n{\"id\":\"q\",\"score\":0.5,\"cluster\":\"c\"}", NULL, "p",
         "score", 1, 0.5},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_task_result r;
        assert_ok(fp8q_task_parse(cases[i].text, strlen(cases[i].text), "f", "gsm8k",
                                  cases[i].metric, &r, &err),
                  &err);
        assert_int_equal(r.n_items, 2);
        assert_string_equal(r.items[0].id, cases[i].first_id);
        assert_string_equal(r.metric, cases[i].found_metric);
        assert_true(r.items[0].score == cases[i].first && r.items[1].score == cases[i].second);
        fp8q_task_reset(&r);
    }
    struct fp8q_error err = {0};
    struct fp8q_task_result r;
    const char *results = LM_RESULTS("0.7513", "0.0119", "1319", "3.0");
    assert_ok(fp8q_task_parse(results, strlen(results), "f", "gsm8k", "exact_match", &r, &err),
              &err);
    assert_true(r.aggregate && r.mean == 0.7513 && r.se == 0.0119 && r.n == 1319);
    assert_string_equal(r.metric, "exact_match,strict");
    fp8q_task_reset(&r);
}

static void importers_name_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text, *metric;
        enum fp8q_status status;
        const char *part;
    } cases[] = {
        {"", NULL, FP8Q_E_EVIDENCE, "empty"},
        {" \n", NULL, FP8Q_E_EVIDENCE, "empty"},
        {"hello", NULL, FP8Q_E_FORMAT, "columns \"id\" and \"score\""},
        {"id,score\n1\n", NULL, FP8Q_E_FORMAT, "line 2"},
        {"id,score\n1,yes\n", NULL, FP8Q_E_FORMAT, "line 2"},
        {"id,score\n1,nan\n", NULL, FP8Q_E_FORMAT, "line 2"},
        {"id,score\n", NULL, FP8Q_E_EVIDENCE, "no results"},
        {"id,score\n1,1\n1,0\n", NULL, FP8Q_E_FORMAT, "\"1\" occurs twice"},
        {"{\"id\":1}", NULL, FP8Q_E_FORMAT, "item 1"},
        {"{\"id\":1,\"score\":1}\n{\"id\":", NULL, FP8Q_E_FORMAT, "line 2"},
        {"{\"id\":1,\"score\":1}\n{\"doc_id\":2}", NULL, FP8Q_E_EVIDENCE, "doc_id"},
        {"{\"results\":{\"mmlu\":{\"acc,none\":0.5}}}", NULL, FP8Q_E_EVIDENCE, "task \"gsm8k\""},
        {"{\"results\":{\"gsm8k\":{\"acc,none\":0.5}}}", "f1", FP8Q_E_EVIDENCE, "metric \"f1\""},
        {"{\"per_episode\":[{\"success\":true}]}", NULL, FP8Q_E_FORMAT, "episode 1"},
        {"{\"per_episode\":[]}", NULL, FP8Q_E_EVIDENCE, "no results"},
        {"{\"per_episode\":[{\"seed\":1,\"success\":true},{\"seed\":2,\"success\":false}],"
         "\"aggregated\":{\"pc_success\":90.0}}",
         NULL, FP8Q_E_FORMAT, "episodes give 50"},
        {"{\"per_task\":[{\"task_id\":1,\"metrics\":{\"successes\":[true]}}],\"overall\":{\"pc_"
         "success\":0}}",
         NULL, FP8Q_E_FORMAT, "overall.pc_success"},
        {"{\"per_episode\":[{\"seed\":1,\"success\":NaN}]}", NULL, FP8Q_E_FORMAT, "episode 1"},
        {"{\"per_episode\":[{\"seed\":1,\"success\":true},{\"seed\":1,\"success\":true}]}", NULL,
         FP8Q_E_FORMAT, "occurs twice"},
        {"id,score,score\n1,1,0\n", NULL, FP8Q_E_FORMAT, "two columns"},
        {"id,id,score\n1,1,0\n", NULL, FP8Q_E_FORMAT, "two columns"},
        {"id,score\n1,inf\n", NULL, FP8Q_E_FORMAT, "line 2"},
        {"id,score\n1,1e999\n", NULL, FP8Q_E_FORMAT, "line 2"},
        {"id,score\n1,\n", NULL, FP8Q_E_FORMAT, "line 2"},
        {"{\"id\":1,\"score\":Infinity}", NULL, FP8Q_E_FORMAT, "item 1"},
        {"{\"id\":1,\"score\":null}", NULL, FP8Q_E_FORMAT, "item 1"},
        {"{\"doc_id\":1,\"filter\":\"none\",\"metrics\":[\"perplexity\"],\"perplexity\":-3.5}",
         NULL, FP8Q_E_EVIDENCE, "log-likelihoods"},
        {"{\"doc_id\":1,\"filter\":\"none\",\"metrics\":[\"f1\"],\"f1\":[1,0]}", NULL,
         FP8Q_E_EVIDENCE, "no number \"f1\""},
        {"{\"results\":{\"gsm8k\":{\"acc,none\":NaN}}}", NULL, FP8Q_E_EVIDENCE, "metric"},
        {"{\"results\":{\"gsm8k\":{}}}", NULL, FP8Q_E_EVIDENCE, "metric"},
        {"{\"id\":1,\"tokens\":[1],\"top_logprobs\":[{\"1\":NaN}]}", NULL, FP8Q_E_FORMAT,
         "at most 0"},
        {"{\"per_task\":[{\"task_id\":1,\"metrics\":{}}]}", NULL, FP8Q_E_FORMAT,
         "metrics.successes"},
        {"{\"id\":1,\"tokens\":[],\"top_logprobs\":[{\"1\":-1}]}", NULL, FP8Q_E_FORMAT, "tokens"},
        {"{\"id\":1,\"tokens\":[1],\"top_logprobs\":[{\"x\":-1}]}", NULL, FP8Q_E_FORMAT,
         "token ids"},
        {"{\"id\":1,\"tokens\":[1],\"top_logprobs\":[{\"1\":0.5}]}", NULL, FP8Q_E_FORMAT,
         "at most 0"},
        {"{\"id\":1,\"tokens\":[1],\"top_logprobs\":[{\"2\":-1}]}", NULL, FP8Q_E_FORMAT,
         "each prompt token"},
        {"{\"id\":1,\"tokens\":[1],\"top_logprobs\":[null]}", NULL, FP8Q_E_FORMAT, "at least one"},
        {"{\"id\":1,\"meta_info\":{\"input_token_logprobs\":[[-1]]}}", NULL, FP8Q_E_FORMAT,
         "[log-probability"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_task_result r;
        assert_failed(fp8q_task_parse(cases[i].text, strlen(cases[i].text), "file", "gsm8k",
                                      cases[i].metric, &r, &err),
                      cases[i].status, &err, cases[i].part);
        assert_null(r.items);
    }
}

/* Enough prompts for an interval.  */
static char *ten_times(const char *line)
{
    struct fp8q_text t = {0};
    for (int i = 0; i < 10; i++)
        fp8q_text_printf(&t, "%s\n", line);
    return t.data;
}

/* The same two positions in the three shapes: token 6 with p 0.5 against 0.4, others listed in
 * part.  */
static void serving_logprobs_give_kld_and_nll(void **state)
{
    (void)state;
    const char *base = "{\"id\":\"a\",\"tokens\":[5,6,7],\"top_logprobs\":[null,{\"6\":-0."
                       "6931471805599453,\"9\":-1.3862943611198906},"
                       "{\"7\":-0.6931471805599453}]}";
    static const char *const quant[] = {
        "{\"id\":\"b\",\"tokens\":[5,6,7],\"top_logprobs\":[null,{\"6\":-0.916290731874155,\"9\":-"
        "1.2039728043259361},"
        "{\"7\":-0.6931471805599453}]}",
        "{\"choices\":[{\"prompt_logprobs\":[null,{\"6\":{\"logprob\":-0.916290731874155,\"rank\":"
        "1},"
        "\"9\":{\"logprob\":-1.2039728043259361,\"rank\":2}},{\"7\":{\"logprob\":-0."
        "6931471805599453}}]}]}",
        "{\"meta_info\":{\"input_token_logprobs\":[[null,5,null],[-0.916290731874155,6,null],[-0."
        "6931471805599453,7,null]],"
        "\"input_top_logprobs\":[null,[[-0.916290731874155,6,null],[-1.2039728043259361,9,null]],"
        "[[-0.6931471805599453,7,null]]]}}"};
    /* 0.5 ln(0.5/0.4) + 0.25 ln(0.25/0.3) + 0.25 ln(0.25/0.3), over two positions */
    double kld = (0.5 * log(0.5 / 0.4) + 0.5 * log(0.25 / 0.3)) / 2, nll = log(0.5 / 0.4) / 2;
    for (size_t i = 0; i < 3; i++) {
        struct fp8q_error err = {0};
        struct fp8q_policy policy;
        struct fp8q_task_result results[2];
        struct fp8q_gate gate;
        const char *overlay =
            POLICY("\"verify\":{\"required\":false},\"eval\":{\"required\":false},"
                   "\"serving\":{\"kld_max\":0.001}");
        assert_ok(fp8q_policy_parse(overlay, strlen(overlay), "p", &policy, &err), &err);
        char *many_base = ten_times(base), *many_quant = ten_times(quant[i]);
        make_task(&(struct tasks_text){many_base, many_quant, 0, 0, 0, 0}, results, NULL);
        free(many_base);
        free(many_quant);
        const struct fp8q_gate_task task = {"chat", &results[0], &results[1], false};
        const struct fp8q_gate_request request = {.policy = &policy, .tasks = &task, .n_tasks = 1};
        assert_ok(fp8q_gate(&request, &gate, &err), &err);
        const struct fp8q_gate_check *c = find_check(&gate, "task.chat.kld", FP8Q_VERDICT_FAIL);
        assert_non_null(c);
        assert_true(fabs(c->observed - kld) < 1e-12);
        c = find_check(&gate, "task.chat.nll", FP8Q_VERDICT_FAIL);
        assert_non_null(c);
        assert_true(fabs(c->observed - nll) < 1e-12);
        assert_non_null(find_check(&gate, "task.chat.top1", FP8Q_VERDICT_SKIPPED));
        fp8q_gate_reset(&gate);
        fp8q_task_reset(&results[0]);
        fp8q_task_reset(&results[1]);
        fp8q_policy_reset(&policy);
    }
}

/* ---- policy -------------------------------------------------------------------------------- */

static char *policy_text(const struct fp8q_policy *policy)
{
    struct fp8q_jsonw w = {.indent = 2};
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_policy_write(&w, policy);
    fp8q_jsonw_close(&w, '}');
    return w.text.data;
}

static void a_printed_policy_reads_back(void **state)
{
    (void)state;
    static const char *const overlays[] = {
        POLICY("\"confidence\":0.9"),
        POLICY("\"tasks\":{\"required\":[\"a\",\"b\"],\"margin\":null,\"recovery\":0.99,\"per_"
               "task\":{\"a\":{\"margin\":0.05,"
               "\"metric\":\"acc,none\",\"lower_is_better\":true}}},\"eval\":{\"inputs\":"
               "\"0123abcd\",\"kld_max\":0.1},"
               "\"evidence\":{\"stack\":\"x\",\"max_age_days\":null}")};
    for (size_t i = 0; i < 2; i++) {
        struct fp8q_error err = {0};
        struct fp8q_policy a, b;
        assert_ok(fp8q_policy_parse(overlays[i], strlen(overlays[i]), "p", &a, &err), &err);
        char *first = policy_text(&a);
        assert_ok(fp8q_policy_parse(first, strlen(first), "p", &b, &err), &err);
        char *second = policy_text(&b);
        assert_string_equal(first, second);
        free(first);
        free(second);
        fp8q_policy_reset(&a);
        fp8q_policy_reset(&b);
    }
}

static void a_wrong_policy_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{}", "schema"},
        {"{\"schema\":\"fp8q-policy/9\"}", "fp8q-policy/9"},
        {POLICY("\"evall\":{}"), "\"evall\""},
        {POLICY("\"eval\":7"), "\"eval\""},
        {POLICY("\"eval\":{\"kld_vs_flor\":3}"), "eval.kld_vs_flor"},
        {POLICY("\"eval\":{\"kld_vs_floor\":-3}"), "eval.kld_vs_floor"},
        {POLICY("\"eval\":{\"kld_vs_floor\":\"3\"}"), "eval.kld_vs_floor"},
        {POLICY("\"eval\":{\"required\":1}"), "eval.required"},
        {POLICY("\"eval\":{\"inputs\":\"xyz\"}"), "eval.inputs"},
        {POLICY("\"confidence\":0.2"), "confidence"},
        {POLICY("\"confidence\":null"), "confidence"},
        {POLICY("\"tasks\":{\"required\":\"a\"}"), "tasks.required"},
        {POLICY("\"tasks\":{\"required\":[1]}"), "tasks.required"},
        {POLICY("\"tasks\":{\"resamples\":1}"), "tasks.resamples"},
        {POLICY("\"tasks\":{\"per_task\":[]}"), "per_task"},
        {POLICY("\"tasks\":{\"per_task\":{\"a\":{\"margn\":1}}}"), "a.margn"},
        {POLICY("\"tasks\":{\"per_task\":{\"a\":{\"lower_is_better\":1}}}"), "a.lower_is_better"},
        {POLICY("\"evidence\":{\"stack\":1}"), "evidence.stack"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct fp8q_error err = {0};
        struct fp8q_policy p;
        assert_failed(fp8q_policy_parse(cases[i].text, strlen(cases[i].text), "p", &p, &err),
                      FP8Q_E_FORMAT, &err, cases[i].part);
    }
}

/* A limit reaches from its least to its most, and no further.  */
static void limits_have_their_range(void **state)
{
    static const struct {
        const char *object, *member;
        double least, most;
    } limits[] = {
        {"evidence", "max_age_days", 0, 1e6}, {"eval", "kld_vs_baseline", 0, 1e6},
        {"eval", "kld_vs_floor", 0, 1e6},     {"eval", "kld_max", 0, 1e6},
        {"eval", "top1_min", 0, 1},           {"eval", "top1_drop_vs_baseline", 0, 1},
        {"eval", "delta_ln_ppl_max", 0, 1e6}, {"eval", "min_tokens", 0, 1e15},
        {"tasks", "margin", 0, 1e6},          {"tasks", "recovery", 0, 1},
        {"tasks", "min_items", 0, 1e15},      {"tasks", "resamples", 100, 1e6},
        {"serving", "delta_nll_max", 0, 1e6}, {"serving", "kld_max", 0, 1e6},
    };
    (void)state;

    for (size_t i = 0; i < sizeof(limits) / sizeof(*limits); i++) {
        const double tried[] = {limits[i].least, limits[i].most, limits[i].least - 1,
                                limits[i].most + 1};
        for (size_t k = 0; k < 4; k++) {
            struct fp8q_policy policy;
            struct fp8q_error err = {0};
            char text[200];
            snprintf(text, sizeof(text), POLICY("\"%s\": {\"%s\": %.0f}"), limits[i].object,
                     limits[i].member, tried[k]);
            int status = fp8q_policy_parse(text, strlen(text), "p", &policy, &err);
            if ((status == FP8Q_OK) != (k < 2))
                fail_msg("%s: %s", text, err.message);
            fp8q_policy_reset(&policy);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_have_their_range),
        cmocka_unit_test(each_scenario_has_its_exit_status),
        cmocka_unit_test(nothing_passes_by_accident),
        cmocka_unit_test(evidence_that_contradicts_itself_is_malformed),
        cmocka_unit_test(scores_are_judged_in_their_direction),
        cmocka_unit_test(the_wrong_recipe_is_caught),
        cmocka_unit_test(importers_read_what_tools_write),
        cmocka_unit_test(importers_name_what_is_wrong),
        cmocka_unit_test(serving_logprobs_give_kld_and_nll),
        cmocka_unit_test(a_printed_policy_reads_back),
        cmocka_unit_test(a_wrong_policy_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
