/* SPDX-License-Identifier: Apache-2.0
 *
 * families.h - what each architecture calls its parts.
 *
 * Two tables (languages.c, wrappers.c).  A language model says what the layers of a decoder hold; a wrapper
 * says where the decoder is, and what stands around it.  A vision-language model is a wrapper
 * around the language model that its own config names, so a new wrapper of a known language model
 * needs one row, or none.
 */
#ifndef FP8Q_FAMILIES_H
#define FP8Q_FAMILIES_H

#include "format/json.h"

/* How stacked 3-D experts (experts.gate_up_proj, experts.down_proj) are treated.  */
enum fp8q_experts {
    FP8Q_EXPERTS_2D,      /* stored one by one; a stack is left alone and named */
    FP8Q_EXPERTS_STACKED, /* [E, H, 2I] and [E, I, H]: stay 3-D, with 3-D scales */
    FP8Q_EXPERTS_SPLIT,   /* [E, 2I, H] and [E, H, I]: become per-expert 2-D weights */
    FP8Q_EXPERTS_KEEP     /* engines have no FP8 path for them: left as they are */
};

/* Lists are separated by spaces.
 *
 * @linears: module names after `layers.N.`.  Parentheses hold the members of one fused group, which
 * engines load as one matrix, so that it is quantized whole or not at all; E stands for an expert's
 * number, and all experts of a layer are one group.  */
struct fp8q_language_model {
    const char *name;
    const char *model_types; /* "model_type" of its config, alone or nested in a wrapper's */
    const char *decoders;    /* roots beside those of general names, as of a draft head: "mtp" */
    const char *linears;
    enum fp8q_experts experts;
    const char *note;
};

/* A decoder root is the exact text before `layers.N.`, or before `N.` where layers have another name
 * (`transformer.h`); "." says that the layers have no root.  The other roots are runs of whole
 * dot-separated components, found anywhere in a name.  */
struct fp8q_wrapper {
    const char *name;
    const char *model_types; /* config.json "model_type", or LeRobot's "type" */
    const char *decoders;
    const char *language; /* model_type of the language model where the config names none */
    const char *vision, *projector;
    const char *action; /* whatever else is no language model */
    const char *note;
};

extern const struct fp8q_language_model fp8q_language_models[]; /* both end with a row */
extern const struct fp8q_wrapper fp8q_wrappers[];               /* without a name */

/* For a file without config.json and for unknown types: the linears of usual names.  */
extern const struct fp8q_language_model fp8q_general_language;
extern const struct fp8q_wrapper fp8q_general_wrapper;

/* What the tables say of one checkpoint.  Borrows from the tables and from the config.  */
struct fp8q_family {
    const char *name;
    const char *language;      /* name of the language model's row */
    const char *model_type;    /* NULL: the config has none */
    const char *language_type; /* model_type of the language model, as far as the config has one */
    bool known;                /* the type is in a table */
    bool language_known;       /* so is that of the language model, or none is named */
    bool lerobot;              /* a policy: its own loader would read bare FP8 values as weights */
    const char *decoders;      /* exact roots; NULL: roots of general names */
    const char *more_decoders; /* allowed in either case, or NULL */
    const char *linears;
    const char *vision, *projector, *action;
    enum fp8q_experts experts;
    const char *note;
};

/* The rows of this config (NULL allowed).  Never fails: unknown types get the general rows.  */
struct fp8q_family fp8q_family_of(const struct fp8q_json *config);

/* The object of a config that describes the language model: text_config, llm_config,
 * language_config, thinker_config.text_config, ... or @config itself.  */
const struct fp8q_json *fp8q_language_config(const struct fp8q_json *config);

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
/* Whether @name is that of all experts of a layer in one 3-D tensor ("mlp.experts.gate_up_proj", or its
 * down_proj), which ends without ".weight".  */
bool fp8q_family_stacked_experts(const struct fp8q_family *family, const char *name,
                                 bool *gate_up_out);
/* End of "<decoder>.layers.N." in @module (the offset after it), or 0 if it has no such prefix.  */
size_t fp8q_family_layer(const struct fp8q_family *family, const char *module);

/* Length of the text before the last "layers.N." of @module, without its dot, if a linear of usual
 * names follows it; SIZE_MAX if it is no such module.  Says which stacks were passed over.  */
size_t fp8q_stack_root(const char *module);

/* Whether a component of the first @len bytes of @name says that it is no language model: a tower,
 * an encoder, a codec ("vision_model", "vit", "speech_encoder").  */
bool fp8q_names_tower(const char *name, size_t len);

#endif
