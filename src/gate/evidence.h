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

#define FP8Q_EVIDENCE_NAME 64 /* bytes of a category's name, with the end */

/* One sample of an eval; no tokens: none of it was scored.  */
struct fp8q_evidence_sample {
    uint64_t tokens;
    double kld, top1; /* means over its tokens; @top1 NAN: not noted */
    char category[FP8Q_EVIDENCE_NAME];
};

/* Some of the tokens of an eval: those of a modality, or of the samples of a category.  */
struct fp8q_evidence_part {
    char name[FP8Q_EVIDENCE_NAME];
    uint64_t tokens, samples;
    double kld, kld_se;
};
struct fp8q_evidence_parts {
    struct fp8q_evidence_part *items; /* owned */
    size_t n;
};

/* Figures of one comparison; NAN: not measured.  Means are over scored tokens, KLD in nats.  Errors
 * have samples as units.  */
struct fp8q_evidence_row {
    double kld, kld_se;
    double top1, top1_se; /* 0..1 */
    double dln, dln_se;   /* change of ln PPL */
};

/* What one eval run found, as far as gate asks.  */
struct fp8q_evidence_eval {
    char acts[16]; /* how activations were treated: "served", "none" (weight-only), ... */
    uint64_t tokens;
    double clipped, unused; /* the worst linear with a static input scale; NaN: none has one */
    struct fp8q_evidence_row output;
    struct fp8q_evidence_row floor;        /* activations alone (eval --decompose) */
    struct fp8q_evidence_row requant;      /* scales made powers of two (eval --requant-ue8m0) */
    struct fp8q_evidence_sample *samples;  /* of the output; owned; may be NULL */
    size_t n_samples, n_scored;            /* all, and those with tokens */
    struct fp8q_evidence_parts modalities; /* as the file states them */
    struct fp8q_evidence_parts categories; /* of the samples; none if no sample has one */
    /* The largest relative error of keys, values and the last hidden state; NaN: not measured.  */
    double state_error;
};

struct fp8q_evidence {
    char *path, *kind;        /* owned */
    char *stack, *tool;       /* owned; may be NULL */
    char *rounding;           /* of the output, as its manifest says; owned; NULL: not known */
    char *config_differences; /* what the output computes otherwise than the source; NULL: none */
    int64_t created;          /* seconds since 1970, UTC */
    struct fp8q_fingerprint source, output, inputs;
    struct fp8q_fingerprint config; /* of the output: fp8q_network_fingerprint() */
    bool has_eval;                  /* kind "eval" */
    struct fp8q_evidence_eval eval;
};

/* What plain rounding is called in @rounding.  */
#define FP8Q_PLAIN_ROUNDING "nearest-even"

/* Reads and checks a file.  FP8Q_E_FORMAT: not JSON, another schema or version, a figure out of its
 * range, zero tokens, figures that contradict the samples of the same file.  On failure *@evidence_out is zeroed; else fp8q_evidence_reset().  */
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
/* The part of it that names the bytes: "fingerprints" and "rounding".  */
void fp8q_evidence_write_subject(struct fp8q_jsonw *w, const struct fp8q_evidence *evidence);

/* CRC-32 of what a config.json says of the network: all members but those that change no result
 * (quantization_config, dtypes, versions, names) and those that are null; order and white space do
 * not matter.  NULL: not known.  */
struct fp8q_fingerprint fp8q_network_fingerprint(const struct fp8q_json *config);

#endif
