/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c - how a call is to be carried out; the version; and the tables of architectures.
 */
#include "api/internal.h"

#include "base/caller.h"
#include "base/mem.h"
#include "base/pool.h"
#include "select/families.h"

enum { MOST_THREADS = 1024 };

const char *fp8q_version(void)
{
    return FP8Q_VERSION;
}

int fp8q_require(const void *pointer, const char *name, struct fp8q_error *err)
{
    if (pointer)
        return FP8Q_OK;
    return fp8q_fail(err, FP8Q_E_ARG, "null-argument", "%s: is NULL", name);
}

/* "scalar, avx2": what may be asked for here.  */
static void list_kernels(struct fp8q_text *out)
{
    for (size_t i = 0; fp8q_kernels[i]; i++)
        if (fp8q_kernels[i]->usable())
            fp8q_text_printf(out, "%s%s", out->len ? ", " : "", fp8q_kernels[i]->name);
}

static int fail_kernel(const char *name, struct fp8q_error *err)
{
    struct fp8q_text usable = {0};
    struct fp8q_shown shown;

    list_kernels(&usable);
    int status = fp8q_text_status(&usable, err);
    if (status == FP8Q_OK)
        status = fp8q_fail(err, FP8Q_E_ARG, "kernel",
                           "kernel \"%s\" is unknown or not usable here; this CPU has %s",
                           fp8q_show(&shown, name), usable.data);
    fp8q_text_reset(&usable);
    return status;
}

int fp8q_manner_of(const struct fp8q_run *run, struct fp8q_manner *manner, struct fp8q_error *err)
{
    struct fp8q_run r = {0};
    *manner = (struct fp8q_manner){0};
    if (run)
        FP8Q_TRY(fp8q_struct_copy(&r, sizeof(r), run, "run", err));

    manner->kernel = fp8q_kernel_select(r.kernel);
    if (!manner->kernel)
        return fail_kernel(r.kernel, err);

    manner->threads = r.threads ? r.threads : fp8q_cpu_count();
    /* Each worker has a buffer: a mistyped number must not take all memory.  */
    if (manner->threads > MOST_THREADS)
        manner->threads = MOST_THREADS;
    manner->max_memory = r.max_memory;
    manner->overwrite = r.overwrite;
    manner->resume = r.resume;
    manner->watch = (struct fp8q_watch){r.progress, r.cancel};
    return FP8Q_OK;
}

/* ---- architectures --------------------------------------------------------------------------- */

static const char *experts_word(enum fp8q_experts experts)
{
    static const char *const words[] = {"one by one", "stacked, stay stacked",
                                        "stacked, split into 2-D", "stacked, left unquantized"};
    return words[experts];
}

static void describe_language(const struct fp8q_language_model *l,
                              struct fp8q_architecture_info *row)
{
    *row = (struct fp8q_architecture_info){.name = l->name,
                                           .model_types = l->model_types,
                                           .decoders = l->decoders,
                                           .linears = l->linears,
                                           .experts = experts_word(l->experts),
                                           .note = l->note};
}

static void describe_wrapper(const struct fp8q_wrapper *w, struct fp8q_architecture_info *row)
{
    *row = (struct fp8q_architecture_info){.is_wrapper = true,
                                           .name = w->name,
                                           .model_types = w->model_types,
                                           .decoders = w->decoders,
                                           .language = w->language,
                                           .vision = w->vision,
                                           .projector = w->projector,
                                           .action = w->action,
                                           .note = w->note};
}

/* Each table ends with the general rule, which stands beside it.  */
bool fp8q_architecture_row(size_t index, struct fp8q_architecture_info *row)
{
    size_t n_languages = 0, n_wrappers = 0;
    while (fp8q_language_models[n_languages].name)
        n_languages++;
    while (fp8q_wrappers[n_wrappers].name)
        n_wrappers++;
    if (!row || index > n_languages + 1 + n_wrappers)
        return false;

    if (index < n_languages)
        describe_language(&fp8q_language_models[index], row);
    else if (index == n_languages)
        describe_language(&fp8q_general_language, row);
    else if (index <= n_languages + n_wrappers)
        describe_wrapper(&fp8q_wrappers[index - n_languages - 1], row);
    else
        describe_wrapper(&fp8q_general_wrapper, row);
    return true;
}
