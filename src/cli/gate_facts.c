/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_facts.c - runs verify and reads fingerprints and manifests for gate.
 */
#include "cli/gate_facts.h"

#include <stdio.h>

#include "checkpoint/fingerprint.h"
#include "plan/lock.h"
#include "verify/verify.h"

/* ---- what a checkpoint is ------------------------------------------------------------------ */

static bool equal(struct fp8q_fingerprint a, struct fp8q_fingerprint b)
{
    return a.known && b.known && a.crc32 == b.crc32;
}

static void read_crc(const struct fp8q_json *root, const char *path, struct fp8q_fingerprint *out)
{
    out->known = fp8q_parse_crc(fp8q_json_string(fp8q_json_path(root, path), ""), &out->crc32);
}

static int read_manifest(struct cli *cli, const struct fp8q_ckpt *ckpt, struct cli_origin *origin)
{
    struct fp8q_manifest manifest;
    struct fp8q_fingerprint written;
    FP8Q_TRY(fp8q_manifest_read(ckpt, &manifest, &origin->has_manifest, &cli->error));
    if (!origin->has_manifest)
        return FP8Q_OK;

    read_crc(manifest.json, "source.fingerprint", &origin->source);
    read_crc(manifest.json, "fingerprint", &written);

    /* Bytes that were changed since are rounded as nobody knows.  */
    if (equal(written, origin->output))
        snprintf(origin->rounding, sizeof(origin->rounding), "%s",
                 fp8q_json_string(fp8q_json_path(manifest.json, "rounding.method"), ""));

    fp8q_manifest_reset(&manifest);
    return FP8Q_OK;
}

int cli_origin_read(struct cli *cli, const struct fp8q_ckpt *ckpt, struct cli_origin *origin_out)
{
    *origin_out = (struct cli_origin){.config = fp8q_network_fingerprint(ckpt->config)};

    FP8Q_TRY(fp8q_fingerprint(ckpt, (unsigned)cli->threads, &cli->watch, &origin_out->output.crc32,
                              &cli->error));
    origin_out->output.known = true;
    return read_manifest(cli, ckpt, origin_out);
}

static int origin_of_path(struct cli *cli, const char *path, struct cli_origin *origin_out)
{
    struct fp8q_ckpt *ckpt;
    FP8Q_TRY(fp8q_ckpt_open(path, &ckpt, &cli->warnings, &cli->error));

    int status = cli_origin_read(cli, ckpt, origin_out);
    fp8q_ckpt_close(ckpt);
    return status;
}

/* A fallback is the source itself, or a dequantized copy: a checkpoint made of this output.  */
static bool is_fallback(const struct cli_origin *other, const struct fp8q_gate_facts *facts)
{
    return equal(other->output, facts->source) || equal(other->source, facts->output);
}

/* What --source names.  *@source_out is NULL if there is nothing to verify against: the check
 * "fallback" says so.  */
static int take_source(struct cli *cli, const char *path, struct fp8q_gate_facts *facts,
                       const char **source_out)
{
    struct cli_origin other;
    *source_out = NULL;
    FP8Q_TRY(origin_of_path(cli, path, &other));

    /* Another tool's checkpoint does not say of what it was made: --source does.  But neither the
     * checkpoint itself nor a copy made of it can be its source.  */
    if (!facts->source.known && !equal(other.output, facts->output) &&
        !equal(other.source, facts->output))
        facts->source = other.output;

    /* The source is a fallback too: whoever has it can go back.  */
    facts->fallback_given = true;
    facts->fallback_matches = is_fallback(&other, facts);

    if (equal(other.output, facts->source)) {
        *source_out = path;
        facts->source_config_differs =
            other.config.known && facts->config.known && !equal(other.config, facts->config);
    }
    return FP8Q_OK;
}

/* ---- verify and lock ----------------------------------------------------------------------- */

/* The first check of @status, for people; false: there is none.  */
static bool describe(const struct fp8q_report *report, enum fp8q_check_status status, char *message,
                     size_t size)
{
    for (size_t i = 0; i < report->n_checks; i++) {
        const struct fp8q_check *c = &report->checks[i];
        if (c->status != status)
            continue;
        snprintf(message, size, "%s: %s%s%s; expected: %s", c->id, c->observed,
                 c->where[0] ? ": " : "", c->where, c->limit);
        return true;
    }
    return false;
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
    /* Without a manifest and without a source, nothing says what was to be quantized.  */
    facts->is_planned = report.ours || source;

    if (facts->verify_status != FP8Q_OK) {
        /* What kept verify from looking stands in no check.  */
        if (!describe(&report, FP8Q_CHECK_FAIL, findings->verify_message,
                      sizeof(findings->verify_message)))
            snprintf(findings->verify_message, sizeof(findings->verify_message), "%s",
                     cli->error.message);
        facts->verify_message = findings->verify_message;
    } else if (describe(&report, FP8Q_CHECK_WARN, findings->verify_message,
                        sizeof(findings->verify_message))) {
        facts->verify_warning = findings->verify_message;
    }
    fp8q_report_reset(&report);

    /* A check that failed is for gate to judge; anything else ends the command.  */
    bool is_finding = facts->verify_status == FP8Q_OK || facts->verify_status == FP8Q_E_MISMATCH;
    return is_finding ? FP8Q_OK : facts->verify_status;
}

static void take_lock_result(const struct fp8q_lock_result *result,
                             struct cli_gate_findings *findings)
{
    struct fp8q_gate_facts *facts = &findings->facts;
    struct fp8q_shown shown;

    facts->lock_given = true;
    facts->n_widened = result->n_beyond;
    facts->n_narrowed = result->n_of[FP8Q_LOCK_MISSING];

    /* The name is the result's, which does not live as long as the findings.  */
    snprintf(findings->first_widened, sizeof(findings->first_widened), "%s",
             result->n_beyond ? fp8q_show(&shown, result->items[0].name) : "");
    facts->first_widened = findings->first_widened;
}

static int compare_lock(struct cli *cli, const char *output, const char *lock,
                        struct cli_gate_findings *findings)
{
    struct fp8q_ckpt *ckpt;
    struct fp8q_lock_result result;

    /* Warnings of opening were given when its origin was read.  */
    FP8Q_TRY(fp8q_ckpt_open(output, &ckpt, NULL, &cli->error));

    int status = fp8q_lock_compare(lock, ckpt, &result, &cli->error);
    if (status == FP8Q_OK)
        take_lock_result(&result, findings);

    fp8q_lock_result_reset(&result);
    fp8q_ckpt_close(ckpt);
    return status;
}

/* ---- the whole ----------------------------------------------------------------------------- */

int cli_gate_facts(struct cli *cli, const struct cli_gate_paths *paths,
                   const struct fp8q_policy *policy, struct cli_gate_findings *findings_out)
{
    struct fp8q_gate_facts *facts = &findings_out->facts;
    struct cli_origin origin;
    const char *source = NULL;

    *findings_out = (struct cli_gate_findings){0};
    FP8Q_TRY(origin_of_path(cli, paths->output, &origin));
    facts->output = origin.output;
    facts->config = origin.config;
    facts->source = origin.source;

    /* The source first: with it, it is known what a fallback must match.  */
    if (paths->source)
        FP8Q_TRY(take_source(cli, paths->source, facts, &source));
    if (paths->fallback) {
        FP8Q_TRY(origin_of_path(cli, paths->fallback, &origin));
        facts->fallback_given = true;
        facts->fallback_matches = is_fallback(&origin, facts);
    }

    /* The long part, done only if the policy demands it.  */
    if (policy->verify_required)
        FP8Q_TRY(run_verify(cli, paths->output, source, policy, findings_out));

    return paths->lock ? compare_lock(cli, paths->output, paths->lock, findings_out) : FP8Q_OK;
}
