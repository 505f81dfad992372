/* SPDX-License-Identifier: Apache-2.0
 *
 * families.h - what each model family calls its parts: one row a family.
 */
#ifndef FP8Q_FAMILIES_H
#define FP8Q_FAMILIES_H

#include "format/json.h"

/* How a family's stacked 3-D experts (experts.gate_up_proj, experts.down_proj) are treated.  */
enum fp8q_experts {
    FP8Q_EXPERTS_2D,      /* stored one by one; a stack is left alone and named */
    FP8Q_EXPERTS_STACKED, /* [E, H, 2I] and [E, I, H]: stay 3-D, with 3-D scales */
    FP8Q_EXPERTS_SPLIT,   /* [E, 2I, H] and [E, H, I]: become per-expert 2-D weights */
    FP8Q_EXPERTS_KEEP     /* engines have no FP8 path for them: stay as they are */
};

/* Lists are separated by spaces.  Roots are runs of whole dot-separated components, found anywhere
 * in a name.  A decoder root is the exact text before `layers.N.`; "" stands for none.
 *
 * @linears: module names after `layers.N.`.  Parentheses hold the members of one fused group, which
 * engines load as one matrix, so that it is quantized whole or not at all; E stands for an expert's
 * number, and all experts of a layer are one group.  */
struct fp8q_family {
    const char *name;
    const char *model_types; /* config.json "model_type", or LeRobot's "type" */
    const char *decoders;
    const char *linears;
    const char *vision, *projector,
        *action; /* kept roots; "action" holds whatever is no backbone */
    enum fp8q_experts experts;
    bool lerobot; /* its own loader would read bare codes as weights */
    const char *note;
};

extern const struct fp8q_family fp8q_families[]; /* ends with a row without a name */

/* For a file without config.json and for unknown types: no decoders (any text before `layers.N.`).
 */
extern const struct fp8q_family fp8q_general_family;

/* The row of this config (NULL allowed): by model_type, by `type`, by text_config.model_type where
 * the top level has none.  Falls back to fp8q_general_family with *@known_out false; *@type_out is
 * the type found or NULL.  */
const struct fp8q_family *fp8q_family_of(const struct fp8q_json *config, const char **type_out,
                                         bool *known_out);

/* Where a module stands in a family's @linears.  */
struct fp8q_linear_place {
    const char *entry; /* start of the entry in @linears that matched */
    size_t group_len;  /* leading bytes of the module's name that its fused group shares */
    bool fused;        /* belongs to a group of several */
    bool expert;
};

/* Whether @module is a linear of the family's decoder.  */
bool fp8q_family_linear(const struct fp8q_family *family, const char *module,
                        struct fp8q_linear_place *linear_out);
/* End of "<decoder>.layers.N." in @module (the offset after it), or 0 if it has no such prefix.  */
size_t fp8q_family_layer(const struct fp8q_family *family, const char *module);

#endif
