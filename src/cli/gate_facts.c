/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_facts.c - runs verify and reads fingerprints and manifests for gate.
 */
#include "gate_facts.h"

#include <stdlib.h>

#include "checkpoint.h"
#include "fingerprint.h"
#include "manifest.h"

/* ---- verify and lock ----------------------------------------------------------------------- */

/* The one place that calls verify.  Until it is called here, gate says "missing" where the policy
 * requires it: a gate that cannot check must not pass.  */
static int run_verify(struct cli *cli, const struct cli_gate_paths *paths,
                      const struct fp8q_policy *policy, struct cli_gate_findings *findings)
{
    (void)policy;
    findings->facts.verify_ran = false;
    if (!paths->lock)
        return FP8Q_OK;
    return fp8q_fail(&cli->error, FP8Q_E_UNSUPPORTED, "no-lock",
                     "--lock is not available in this build");
}

/* ---- fingerprints -------------------------------------------------------------------------- */

static int fingerprint_of(struct cli *cli, const struct fp8q_ckpt *ckpt,
                          struct fp8q_fingerprint *out)
{
    const struct fp8q_progress progress = {cli_progress, cli};
    FP8Q_TRY(fp8q_fingerprint(ckpt, (unsigned)cli->threads, &progress, &out->crc32, &cli->error));
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

int cli_gate_facts(struct cli *cli, const struct cli_gate_paths *paths,
                   const struct fp8q_policy *policy, struct cli_gate_findings *findings_out)
{
    struct fp8q_gate_facts *facts = &findings_out->facts;
    struct fp8q_fingerprint own = {0};
    *findings_out = (struct cli_gate_findings){0};
    FP8Q_TRY(run_verify(cli, paths, policy, findings_out));
    FP8Q_TRY(gather_output(cli, paths->output, facts));
    if (paths->source) {
        FP8Q_TRY(check_fallback(cli, paths->source, facts, &own));
        if (!facts->source.known) { /* another tool's output: --source says what it was made of */
            facts->source = own;
            facts->fallback_matches = true;
        }
    }
    return paths->fallback ? check_fallback(cli, paths->fallback, facts, &own) : FP8Q_OK;
}

void cli_gate_facts_reset(struct cli_gate_findings *findings)
{
    for (size_t i = 0; findings->widened && i < findings->facts.n_widened; i++)
        free(findings->widened[i]);
    free(findings->widened);
    free(findings->verify_message);
    *findings = (struct cli_gate_findings){0};
}
