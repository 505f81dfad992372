/* SPDX-License-Identifier: Apache-2.0
 *
 * matchers.h - how each engine reads an exclusion list, as code: asked while planning, before a
 * byte is written, and by verify.
 *
 * An engine builds a module in FP8 unless the list says otherwise.  The table of readers stands in
 * engines.c.
 */
#ifndef FP8Q_ENGINES_MATCHERS_H
#define FP8Q_ENGINES_MATCHERS_H

#include "checkpoint/checkpoint.h"
#include "engines/engines.h"

/* ---- modules ---------------------------------------------------------------------------------- */

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
    const char *model_type; /* borrowed from the checkpoint's config; NULL: not known */
};

/* All modules of @ckpt, those too that only engines build (`...mlp.experts` of a stack).
 * @is_quantized says of a tensor whether it is FP8, or will be.  Release with
 * fp8q_modules_reset(), also after a failure.  */
int fp8q_modules_of(const struct fp8q_ckpt *ckpt,
                    bool (*is_quantized)(const void *context, size_t tensor), const void *context,
                    struct fp8q_modules *modules_out, struct fp8q_error *err);
void fp8q_modules_reset(struct fp8q_modules *modules);

/* Whether the weight is a table that is looked up by token or position: no engine builds a linear
 * of one.  */
bool fp8q_is_token_table(const char *tensor);

/* ---- lists ------------------------------------------------------------------------------------ */

struct fp8q_name_list {
    const char **items; /* NULL: the key is absent */
    size_t count;
};

/* What a quantization_config excludes.  */
struct fp8q_exclusions {
    enum fp8q_format format;
    struct fp8q_name_list ignored_layers, not_converted; /* fp8: its two keys */
    struct fp8q_name_list ignore;                        /* the one key of the others */
};

/* Reads the lists of a quantization_config; names are borrowed from it.  Release with
 * fp8q_exclusions_reset().  */
int fp8q_exclusions_read(const struct fp8q_json *config, struct fp8q_exclusions *exclusions_out,
                         struct fp8q_error *err);
void fp8q_exclusions_reset(struct fp8q_exclusions *exclusions);

/* ---- readers ---------------------------------------------------------------------------------- */

/* One module that a reader would build otherwise than it lies on disk.  */
struct fp8q_misreading {
    const struct fp8q_reader *reader;
    const struct fp8q_module *module;
    const char *entry; /* reaches a module in FP8; NULL: nothing reaches one that is not */
};

/* Asks every reader of this format, if an engine of its has a class for the model, about every
 * module, and tells @found of each misreading; a
 * status that @found returns ends the search.  */
int fp8q_readers_ask(const struct fp8q_exclusions *exclusions, const struct fp8q_modules *modules,
                     int (*found)(void *context, const struct fp8q_misreading *misreading),
                     void *context, struct fp8q_error *err);

#endif
