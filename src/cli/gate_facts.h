/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_facts.h - what gate must know about the checkpoint itself, gathered from disk.
 */
#ifndef FP8Q_CLI_GATE_FACTS_H
#define FP8Q_CLI_GATE_FACTS_H

#include "checkpoint/checkpoint.h"
#include "cli/cli.h"
#include "gate/gate.h"

/* What a checkpoint is, and what its manifest says of it.  */
struct cli_origin {
    struct fp8q_fingerprint output, config; /* of its tensors and of its network */
    bool has_manifest;                      /* else only those are known */
    struct fp8q_fingerprint source;         /* of what it was made */
    char rounding[32]; /* "nearest-even" ...; "": not known, also where bytes changed since */
};
int cli_origin_read(struct cli *cli, const struct fp8q_ckpt *ckpt, struct cli_origin *origin_out);

struct cli_gate_paths {
    const char *output;
    const char *source;   /* NULL: not given */
    const char *fallback; /* the source or a dequantized copy; NULL: not given */
    const char *lock;     /* NULL: not given */
};

/* Runs verify, compares with the lock and computes fingerprints.  A status other than 0 is no
 * finding but a reason to stop: a path that cannot be read, a lock file that is broken.  The facts
 * borrow from the texts beside them.  */
struct cli_gate_findings {
    struct fp8q_gate_facts facts;
    char verify_message[2000], first_widened[256];
};
int cli_gate_facts(struct cli *cli, const struct cli_gate_paths *paths,
                   const struct fp8q_policy *policy, struct cli_gate_findings *findings_out);

#endif
