/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.h - evidence files: what was measured, on which bytes, with what, and when.
 *
 * eval writes them, gate reads them.  docs/reference/policy.md describes the schema.  Fingerprints guard
 * against accident (another checkpoint, another version), not against forgery.
 */
#ifndef FP8Q_EVIDENCE_H
#define FP8Q_EVIDENCE_H

#include "format/json.h"
#include "format/jsonw.h"

#define FP8Q_EVIDENCE_SCHEMA "fp8q-evidence/1"

struct fp8q_fingerprint {
    bool known;
    uint32_t crc32;
};

/* One sample of an eval; no tokens: none of it was scored.  */
struct fp8q_evidence_sample {
    uint64_t tokens;
    double kld; /* mean over its tokens */
};

/* What one eval run found, as far as gate asks; NAN: not measured.  Means are over scored tokens,
 * KLD in nats.  */
struct fp8q_evidence_eval {
    char acts[16]; /* how activations were treated: "dynamic" (as served), "none" (weight-only), ...
                    */
    uint64_t tokens;
    double kld, kld_se; /* error with samples as units, or tokens where there is one sample */
    double top1;        /* 0..1 */
    double ppl_source, ppl_output, delta_ln_ppl;
    double floor_kld;   /* what quantizing activations alone costs (eval --decompose) */
    double weights_kld; /* what the weights alone cost */
    double requant_kld; /* with scales requantized to powers of two (eval --requant-ue8m0) */
    struct fp8q_evidence_sample *samples; /* owned; may be NULL */
    size_t n_samples;
};

struct fp8q_evidence {
    char *path, *kind, *stack, *tool; /* owned; @stack and @tool may be NULL */
    int64_t created;                  /* seconds since 1970, UTC */
    struct fp8q_fingerprint source, output, inputs;
    bool has_eval; /* kind "eval" */
    struct fp8q_evidence_eval eval;
};

/* Reads and checks a file.  FP8Q_E_FORMAT: not JSON, another schema or version, a figure out of its
 * range, zero tokens.  On failure *@evidence_out is zeroed; else fp8q_evidence_reset().  */
int fp8q_evidence_read(const char *path, struct fp8q_evidence *evidence_out,
                       struct fp8q_error *err);
/* The same from memory; this is the fuzz target.  */
int fp8q_evidence_parse(const char *text, size_t len, const char *what,
                        struct fp8q_evidence *evidence_out, struct fp8q_error *err);
void fp8q_evidence_reset(struct fp8q_evidence *evidence);

/* Writes the members that every evidence has (schema, kind, created, tool, stack, fingerprints)
 * into the open object of @w.  The caller adds the results: readers skip members that they do not
 * know.  */
void fp8q_evidence_write(struct fp8q_jsonw *w, const struct fp8q_evidence *evidence);

#endif
