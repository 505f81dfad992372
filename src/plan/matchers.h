/* SPDX-License-Identifier: Apache-2.0
 *
 * matchers.h - how each engine reads an exclusion list, as code: asked while planning, before a
 * byte is written, and by verify.
 *
 * An engine builds a module in FP8 unless the list says otherwise.  The table of readers stands in
 * matchers.c, and in words in docs/reference/format.md.
 */
#ifndef FP8Q_MATCHERS_H
#define FP8Q_MATCHERS_H

#include "checkpoint/checkpoint.h"

/* ---- modules ---------------------------------------------------------------------------------- */

enum fp8q_module_kind {
    FP8Q_MODULE_LINEAR = 1,  /* a matrix of the checkpoint */
    FP8Q_MODULE_PART = 2,    /* a part of one that is fused on disk */
    FP8Q_MODULE_EXPERTS = 4, /* all experts of a layer, which engines build as one module */
    FP8Q_MODULE_EXPERT = 8,  /* one matrix of one expert */
    FP8Q_MODULE_MERGED = 16  /* what engines merge, by its name there */
};

/* A module that an engine asks its list about.  */
struct fp8q_module {
    char *name; /* as the checkpoint spells it; owned */
    enum fp8q_module_kind kind;
    bool quantized; /* its weights on disk are FP8 */
    size_t tensor;  /* of the checkpoint, that it was made of */
};

struct fp8q_modules {
    struct fp8q_module *items; /* sorted by name */
    size_t count, cap;
};

/* All modules of @ckpt, those too that only engines build (`...mlp.experts` of a stack).
 * @is_quantized says of a tensor whether it is FP8, or will be.  Release with
 * fp8q_modules_reset(), also after a failure.  */
int fp8q_modules_of(const struct fp8q_ckpt *ckpt,
                    bool (*is_quantized)(const void *context, size_t tensor), const void *context,
                    struct fp8q_modules *modules_out, struct fp8q_error *err);
void fp8q_modules_reset(struct fp8q_modules *modules);

/* ---- lists ------------------------------------------------------------------------------------ */

struct fp8q_name_list {
    const char **items; /* NULL: the key is absent */
    size_t count;
};

/* What a quantization_config excludes.  */
struct fp8q_exclusions {
    enum fp8q_format format;
    struct fp8q_name_list ignored_layers, not_converted; /* fp8: its two keys */
    struct fp8q_name_list ignore;                        /* compressed-tensors */
};

/* Reads the lists of a quantization_config; names are borrowed from it.  Release with
 * fp8q_exclusions_reset().  */
int fp8q_exclusions_read(const struct fp8q_json *config, struct fp8q_exclusions *exclusions_out,
                         struct fp8q_error *err);
void fp8q_exclusions_reset(struct fp8q_exclusions *exclusions);

/* ---- readers ---------------------------------------------------------------------------------- */

/* One module that a reader would build otherwise than it lies on disk.  */
struct fp8q_misreading {
    const char *reader; /* "SGLang before 0.5.23" */
    bool is_current;    /* the newest version reads it so */
    const struct fp8q_module *module;
    const char *entry; /* reaches a module in FP8; NULL: nothing reaches one that is not */
};

/* Asks every reader of this format about every module, and tells @found of each misreading; a
 * status that @found returns ends the search.  */
int fp8q_readers_ask(const struct fp8q_exclusions *exclusions, const struct fp8q_modules *modules,
                     int (*found)(void *context, const struct fp8q_misreading *misreading),
                     void *context, struct fp8q_error *err);

#endif
