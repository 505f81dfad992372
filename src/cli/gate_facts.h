/* SPDX-License-Identifier: Apache-2.0
 *
 * gate_facts.h - what gate must know about the checkpoint itself, gathered from disk.
 */
#ifndef FP8Q_CLI_GATE_FACTS_H
#define FP8Q_CLI_GATE_FACTS_H

#include "cli/cli.h"
#include "gate/gate.h"

struct cli_gate_paths {
    const char *output;
    const char *source;   /* NULL: not given */
    const char *fallback; /* the source or a dequantized copy; NULL: not given */
    const char *lock;     /* NULL: not given */
};

/* Runs verify, compares with the lock and computes fingerprints.  A status other than 0 is no
 * finding but a reason to stop: a path that cannot be read, a lock file that is broken.  @facts_out
 * borrows from the result; cli_gate_facts_reset() releases what it holds.  */
struct cli_gate_findings {
    struct fp8q_gate_facts facts;
    char verify_message[2000], first_widened[256];
};
int cli_gate_facts(struct cli *cli, const struct cli_gate_paths *paths,
                   const struct fp8q_policy *policy, struct cli_gate_findings *findings_out);

#endif
