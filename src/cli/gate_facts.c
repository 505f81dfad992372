/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_facts.c - runs verify and reads fingerprints and manifests for gate.
 */
#include "cli/gate_facts.h"

#include <stdio.h>

#include "checkpoint/fingerprint.h"
#include "plan/lock.h"
#include "verify/verify.h"

/* ---- fingerprints -------------------------------------------------------------------------- */

static int fingerprint_of(struct cli *cli, const struct fp8q_ckpt *ckpt,
                          struct fp8q_fingerprint *out)
{
    FP8Q_TRY(fp8q_fingerprint(ckpt, (unsigned)cli->threads, &cli->watch, &out->crc32, &cli->error));
    out->known = true;
    return FP8Q_OK;
}

/* Of what @ckpt was made, as its manifest says; not known for the checkpoints of other tools.  */
static int source_of(struct cli *cli, const struct fp8q_ckpt *ckpt, struct fp8q_fingerprint *out)
{
    struct fp8q_manifest manifest;
    bool found;
    *out = (struct fp8q_fingerprint){0};
    FP8Q_TRY(fp8q_manifest_read(ckpt, &manifest, &found, &cli->error));
    if (!found)
        return FP8Q_OK;
    const char *text = fp8q_json_string(fp8q_json_path(manifest.json, "source.fingerprint"), "");
    out->known = fp8q_parse_crc(text, &out->crc32);
    fp8q_manifest_reset(&manifest);
    return FP8Q_OK;
}

static bool equal(struct fp8q_fingerprint a, struct fp8q_fingerprint b)
{
    return a.known && b.known && a.crc32 == b.crc32;
}

/* A fallback is the source itself, or a dequantized copy: a checkpoint made of this output.  */
static int check_fallback(struct cli *cli, const char *path, struct fp8q_gate_facts *facts,
                          struct fp8q_fingerprint *own_out)
{
    struct fp8q_ckpt *ckpt;
    struct fp8q_fingerprint made_of;
    FP8Q_TRY(fp8q_ckpt_open(path, &ckpt, &cli->warnings, &cli->error));
    int status = fingerprint_of(cli, ckpt, own_out);
    if (status == FP8Q_OK)
        status = source_of(cli, ckpt, &made_of);
    if (status == FP8Q_OK) {
        facts->fallback_given = true;
        facts->fallback_matches = equal(*own_out, facts->source) || equal(made_of, facts->output);
    }
    fp8q_ckpt_close(ckpt);
    return status;
}

static int gather_output(struct cli *cli, const char *path, struct fp8q_gate_facts *facts)
{
    struct fp8q_ckpt *ckpt;
    FP8Q_TRY(fp8q_ckpt_open(path, &ckpt, &cli->warnings, &cli->error));
    int status = fingerprint_of(cli, ckpt, &facts->output);
    if (status == FP8Q_OK)
        status = source_of(cli, ckpt, &facts->source);
    fp8q_ckpt_close(ckpt);
    return status;
}

/* ---- verify and lock ----------------------------------------------------------------------- */

/* The first check that did not pass, for people.  */
static void describe_failure(const struct fp8q_report *report, const char *otherwise, char *message,
                             size_t size)
{
    snprintf(message, size, "%s", otherwise);
    for (size_t i = 0; i < report->n_checks; i++) {
        const struct fp8q_check *c = &report->checks[i];
        if (c->status == FP8Q_CHECK_FAIL) {
            snprintf(message, size, "%s: %s%s%s; expected: %s", c->id, c->observed,
                     c->where[0] ? ": " : "", c->where, c->limit);
            return;
        }
    }
}

static int run_verify(struct cli *cli, const char *output, const char *source,
                      const struct fp8q_policy *policy, struct cli_gate_findings *findings)
{
    const struct fp8q_verify_options options = {.source = source,
                                                .strict = policy->verify_strict,
                                                .threads = (unsigned)cli->threads,
                                                .kernel = fp8q_kernel_select(cli->kernel),
                                                .watch = &cli->watch};
    struct fp8q_report report;
    struct fp8q_gate_facts *facts = &findings->facts;
    if (!options.kernel)
        return fp8q_fail(&cli->error, FP8Q_E_ARG, "usage",
                         "--kernel: \"%s\" is unknown or not usable here", cli->kernel);
    facts->verify_status = fp8q_verify(output, &options, &report, &cli->warnings, &cli->error);
    facts->verify_ran = true;
    if (facts->verify_status != FP8Q_OK) {
        describe_failure(&report, cli->error.message, findings->verify_message,
                         sizeof(findings->verify_message));
        facts->verify_message = findings->verify_message;
    }
    fp8q_report_reset(&report);
    bool is_finding = facts->verify_status == FP8Q_OK || facts->verify_status == FP8Q_E_MISMATCH;
    return is_finding ? FP8Q_OK : facts->verify_status;
}

static int compare_lock(struct cli *cli, const char *output, const char *lock,
                        struct cli_gate_findings *findings)
{
    struct fp8q_ckpt *ckpt;
    struct fp8q_lock_result result;
    struct fp8q_gate_facts *facts = &findings->facts;
    FP8Q_TRY(fp8q_ckpt_open(output, &ckpt, NULL, &cli->error));
    int status = fp8q_lock_compare(lock, ckpt, &result, &cli->error);
    if (status == FP8Q_OK) {
        struct fp8q_shown shown;
        facts->lock_given = true;
        facts->n_widened = result.n_beyond;
        facts->n_narrowed = result.n_of[FP8Q_LOCK_MISSING];
        snprintf(findings->first_widened, sizeof(findings->first_widened), "%s",
                 result.n_beyond ? fp8q_show(&shown, result.items[0].name) : "");
        facts->first_widened = findings->first_widened;
    }
    fp8q_lock_result_reset(&result);
    fp8q_ckpt_close(ckpt);
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

int cli_gate_facts(struct cli *cli, const struct cli_gate_paths *paths,
                   const struct fp8q_policy *policy, struct cli_gate_findings *findings_out)
{
    struct fp8q_gate_facts *facts = &findings_out->facts;
    struct fp8q_fingerprint own = {0};
    const char *source = paths->source;
    *findings_out = (struct cli_gate_findings){0};
    FP8Q_TRY(gather_output(cli, paths->output, facts));
    if (source) {
        FP8Q_TRY(check_fallback(cli, source, facts, &own));
        if (!facts->source.known) { /* another tool's output: --source says what it was made of */
            facts->source = own;
            facts->fallback_matches = true;
        } else if (!equal(own, facts->source)) {
            source = NULL; /* nothing to verify against; the check "fallback" says so */
        }
    }
    if (paths->fallback)
        FP8Q_TRY(check_fallback(cli, paths->fallback, facts, &own));
    if (policy->verify_required)
        FP8Q_TRY(run_verify(cli, paths->output, source, policy, findings_out));
    return paths->lock ? compare_lock(cli, paths->output, paths->lock, findings_out) : FP8Q_OK;
}
