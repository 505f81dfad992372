/* SPDX-License-Identifier: Apache-2.0
 *
 * readers.c - which engine reads the output.
 */
#include <stdio.h>
#include <string.h>

#include "report/internal.h"

/* The format that config.json names; AUTO: none that engines know.  */
static enum fp8q_format format_of(const struct fp8q_ckpt *ckpt)
{
    const struct fp8q_json *q = fp8q_json_get(ckpt->config, "quantization_config");
    const char *method = fp8q_json_string(fp8q_json_get(q, "quant_method"), "");

    if (strcmp(method, "fp8") == 0)
        return FP8Q_FORMAT_FP8;
    return strcmp(method, "compressed-tensors") == 0 ? FP8Q_FORMAT_COMPRESSED_TENSORS
                                                     : FP8Q_FORMAT_AUTO;
}

int fp8q_facts_ask_engines(struct fp8q_facts *f, struct fp8q_error *err)
{
    enum fp8q_format format = format_of(f->proof.ckpt);
    (void)err;

    for (size_t i = 0; i < FP8Q_N_ENGINES; i++) {
        struct fp8q_facts_engine *e = &f->engines[i];
        const struct fp8q_reading *r = fp8q_reading_of((enum fp8q_engine)i, format);
        e->state = r ? FP8Q_FACTS_READS : FP8Q_FACTS_STOPS;
        if (r)
            snprintf(e->note, sizeof(e->note), "FP8 arithmetic: %s. Elsewhere: %s.", r->gpus,
                     r->other);
        else
            snprintf(e->note, sizeof(e->note), "It does not read this format.");
    }
    return FP8Q_OK;
}
