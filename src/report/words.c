/* SPDX-License-Identifier: Apache-2.0
 *
 * words.c - the sentences and command lines of a report, as tables.
 */
#include <string.h>

#include "report/internal.h"
#include "report/markup.h"

const char *fp8q_reason_sentence(const char *reason)
{
    static const struct {
        const char *reason, *sentence;
    } rows[] = {
        {"norm", "scales of activations: few bytes, and every error is multiplied through"},
        {"bias", "few bytes, added in high precision"},
        {"embedding", "looked up, not multiplied: no engine reads it in FP8"},
        {"lm_head", "its error goes straight into the probabilities of the next token"},
        {"vision", "the tower stays as it was, so what the model sees is the same"},
        {"projector", "between tower and backbone; small, and sensitive"},
        {"action", "head or expert of actions: small, and errors add up over an episode"},
        {"router", "chooses experts: a changed choice is a large error"},
        {"conv", "convolutions have no FP8 path"},
        {"linear-attention", "parameters of a linear attention, which engines keep"},
        {"mtp", "engines keep this part of the draft head"},
        {"small", "not a matrix of weights"},
        {"ragged", "its sizes are no multiples of 128, so engines cannot scale it in blocks"},
        {"ragged-group", "fused with a matrix whose sizes are no multiples of 128"},
        {"experts-unsupported", "experts in a layout that no engine reads in FP8"},
        {"not-float", "no floating-point weights"},
        {"unclassified", "the tables of architectures do not know it"},
        {"already-fp8", "was FP8 in the source"},
        {"ignored", "asked for by --ignore"},
        {"ignored-group", "fused with one that --ignore names"},
        {"not-in-like", "not FP8 in the checkpoint of --like"},
        {"not-quantized", "could be FP8; whoever made this checkpoint decided otherwise"},
        {"backbone", "could be FP8; whoever made this checkpoint decided otherwise"},
        {"expert", "could be FP8; whoever made this checkpoint decided otherwise"}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].reason, reason) == 0)
            return rows[i].sentence;
    return "";
}

const char *fp8q_modality_name(uint64_t modality)
{
    static const char *const names[] = {"text", "image", "action or state"};
    return modality < sizeof(names) / sizeof(*names) ? names[modality] : "other";
}

/* ---- lines for a shell ----------------------------------------------------------------------- */

void fp8q_put_making(const struct fp8q_facts *f, const char *source, const char *output,
                     const char *indent, struct fp8q_text *t)
{
    if (!source)
        source = "SRC";

    if (f->proof.ours) {
        fp8q_text_printf(t, "%sfp8q quantize ", indent);
        fp8q_put_shell(t, source);
        fp8q_text_puts(t, " ");
        fp8q_put_shell(t, output);
        fp8q_text_printf(t, "%s\n", f->options);
    }

    fp8q_text_printf(t, "%sfp8q verify ", indent);
    fp8q_put_shell(t, output);
    fp8q_text_puts(t, " --source ");
    fp8q_put_shell(t, source);
    fp8q_text_puts(t, "\n");
}

void fp8q_put_serving(const struct fp8q_facts *f, const char *output, const char *indent,
                      struct fp8q_text *t)
{
    /* The path stands between the two.  A library serves nothing by itself, and has no row.  */
    static const struct {
        const char *before, *after;
    } rows[FP8Q_N_ENGINES] = {
        [FP8Q_VLLM] = {"vllm serve ", ""},
        [FP8Q_SGLANG] = {"python -m sglang.launch_server --model-path ", ""},
        [FP8Q_TRTLLM] = {"trtllm-serve ", ""},
        [FP8Q_LMDEPLOY] = {"lmdeploy serve api_server ", ""},
        [FP8Q_LLAMA_CPP] = {"convert_hf_to_gguf.py ", " --outtype q8_0"},
    };

    for (size_t i = 0; i < FP8Q_N_ENGINES; i++) {
        if (f->engines[i].state == FP8Q_FACTS_STOPS || !rows[i].before)
            continue;
        fp8q_text_printf(t, "%s%s", indent, rows[i].before);
        fp8q_put_shell(t, output);
        fp8q_text_printf(t, "%s\n", rows[i].after);
    }
}
