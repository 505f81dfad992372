/* SPDX-License-Identifier: Apache-2.0
 *
 * rounding.c - decides and keeps the linear inputs that GPTQ rounds for.
 */
#include "calibration/rounding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/fingerprint.h"
#include "format/jsonw.h"
#include "base/mem.h"

/* ---- which tensors --------------------------------------------------------------------------- */

static bool takes_part(const struct fp8q_plan *plan, size_t source)
{
    const struct fp8q_tensor *t = &plan->ckpt->tensors[source];
    const struct fp8q_decision *d = &plan->selection.decisions[source];
    return d->quantize && d->scheme == FP8Q_SCHEME_BLOCK && t->ndim == 2;
}

static struct fp8q_rounding_site *find_site(struct fp8q_rounding *r, const char *name)
{
    for (size_t i = 0; i < r->n_sites; i++)
        if (strcmp(r->sites[i].name, name) == 0)
            return &r->sites[i];
    return NULL;
}

/* Gathers the tensors of each site.  Tensors are sorted by name, so those of a site are near each
 * other; the search is over layers x 4 entries.  */
static int gather(struct fp8q_rounding *r, struct fp8q_error *err)
{
    const struct fp8q_ckpt *ckpt = r->plan->ckpt;
    r->site_of = fp8q_array(ckpt->n_tensors, sizeof(*r->site_of));
    r->sites = fp8q_array(ckpt->n_tensors, sizeof(*r->sites));
    if (!r->site_of || !r->sites)
        return fp8q_fail_nomem(err);

    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        struct fp8q_name buf;
        r->site_of[i] = SIZE_MAX;
        if (!takes_part(r->plan, i))
            continue;

        const char *name = fp8q_calib_site_of(ckpt->tensors[i].name, &buf);
        struct fp8q_rounding_site *s = find_site(r, name);
        /* The first tensor of an input brings it in.  */
        if (!s) {
            s = &r->sites[r->n_sites++];
            snprintf(s->name, sizeof(s->name), "%s", name);
            s->n_cols = ckpt->tensors[i].shape[1];
        }

        r->site_of[i] = (size_t)(s - r->sites);
    }
    return FP8Q_OK;
}

/* ---- the guard ------------------------------------------------------------------------------- */

/* Whether GPTQ helps the tensors @names.  */
static int judge(struct fp8q_rounding *r, struct fp8q_rounding_site *s,
                 const struct fp8q_hessian *hessian, const char *const *names, size_t n,
                 const struct fp8q_watch *watch, struct fp8q_error *err)
{
    struct fp8q_gptq_guard_job job = {.hessian = hessian,
                                      .ckpt = r->plan->ckpt,
                                      .names = names,
                                      .n_names = n,
                                      .fmt = r->plan->options.scale_fmt,
                                      .kernel = r->kernel,
                                      .gemm = r->gemm,
                                      .n_threads = r->plan->threads,
                                      .watch = watch};
    FP8Q_TRY(fp8q_gptq_guard_run(&job, &s->guard, err));
    s->compensated = fp8q_gptq_helps(&s->guard);
    return FP8Q_OK;
}

static int decide_site(struct fp8q_rounding *r, size_t index, const char **names,
                       const struct fp8q_json *decided, const struct fp8q_watch *watch,
                       struct fp8q_error *err)
{
    struct fp8q_rounding_site *s = &r->sites[index];
    struct fp8q_hessian *hessian = NULL;
    size_t n = 0;

    /* Mates stand near each other, but nothing promises it.  */
    for (size_t i = 0; i < r->plan->ckpt->n_tensors; i++)
        if (r->site_of[i] == index)
            names[n++] = r->plan->ckpt->tensors[i].name;

    FP8Q_TRY(fp8q_hessian_create(&r->calib, names[0], s->n_cols, r->plan->threads, &hessian, err));
    if (!hessian) {
        r->n_without++;
        return FP8Q_OK;
    }

    /* The verifier derives what was decided, it does not decide again.  */
    int status = FP8Q_OK;
    if (decided)
        s->compensated = fp8q_json_has_string(decided, s->name);
    else
        status = judge(r, s, hessian, names, n, watch, err);

    r->n_compensated += s->compensated;
    r->n_plain += !s->compensated;
    fp8q_hessian_destroy(hessian);
    return status;
}

static int decide_all(struct fp8q_rounding *r, const char **names, const struct fp8q_json *decided,
                      const struct fp8q_watch *watch, struct fp8q_error *err)
{
    for (size_t i = 0; i < r->n_sites; i++) {
        FP8Q_TRY(fp8q_watch_check(watch, err));
        FP8Q_TRY(decide_site(r, i, names, decided, watch, err));
        fp8q_watch_report(watch, "guard", i + 1, r->n_sites, FP8Q_UNIT_STEPS);
    }
    return FP8Q_OK;
}

static int decide(struct fp8q_rounding *r, const struct fp8q_json *decided,
                  const struct fp8q_watch *watch, struct fp8q_error *err)
{
    /* Room for the names of one input's tensors, at most all.  */
    const char **names = fp8q_array(r->plan->ckpt->n_tensors, sizeof(*names));
    if (!names)
        return fp8q_fail_nomem(err);
    int status = decide_all(r, names, decided, watch, err);
    free(names);
    return status;
}

int fp8q_rounding_open(const struct fp8q_plan *plan, const char *path,
                       const struct fp8q_kernel *kernel, const struct fp8q_json *decided,
                       const struct fp8q_watch *watch, struct fp8q_rounding *r,
                       struct fp8q_error *err)
{
    *r = (struct fp8q_rounding){.plan = plan,
                                .kernel = kernel,
                                .gemm = fp8q_gemm_select(kernel->name),
                                .path = path,
                                .lock = PTHREAD_MUTEX_INITIALIZER};

    FP8Q_TRY(fp8q_calib_open(path, &r->calib, err));
    /* Statistics of other weights would round these worse than no statistics.  */
    FP8Q_TRY(fp8q_fingerprint(plan->ckpt, plan->threads, watch, &r->source_fingerprint, err));
    FP8Q_TRY(fp8q_calib_matches(&r->calib, r->source_fingerprint, err));

    FP8Q_TRY(gather(r, err));
    return decide(r, decided, watch, err);
}

void fp8q_rounding_close(struct fp8q_rounding *r)
{
    for (size_t i = 0; i < r->n_sites; i++)
        fp8q_hessian_destroy(r->sites[i].hessian);
    free(r->sites);
    free(r->site_of);
    fp8q_calib_close(&r->calib);
    *r = (struct fp8q_rounding){.plan = NULL};
}

/* ---- while streaming ------------------------------------------------------------------------- */

/* Unused sites beyond one are dropped before another is loaded: two are in memory, plus one for
 * each worker that is still busy with an older one.  */
static void drop_idle(struct fp8q_rounding *r, const struct fp8q_rounding_site *keep)
{
    for (size_t i = 0; i < r->n_sites; i++)
        if (&r->sites[i] != keep && r->sites[i].users == 0 && r->sites[i].hessian) {
            fp8q_hessian_destroy(r->sites[i].hessian);
            r->sites[i].hessian = NULL;
        }
}

/* With the lock held.  */
static int load_site(struct fp8q_rounding *r, struct fp8q_rounding_site *s, size_t source,
                     struct fp8q_error *err)
{
    if (!s->hessian) {
        /* Stripes run in order, so the one before is done or nearly so.  */
        drop_idle(r, s);
        FP8Q_TRY(fp8q_hessian_create(&r->calib, r->plan->ckpt->tensors[source].name, s->n_cols, 1,
                                     &s->hessian, err));
    }
    s->users++;
    return FP8Q_OK;
}

int fp8q_rounding_acquire(struct fp8q_rounding *r, size_t source,
                          const struct fp8q_hessian **hessian_out, struct fp8q_error *err)
{
    *hessian_out = NULL;
    if (r->site_of[source] == SIZE_MAX || !r->sites[r->site_of[source]].compensated)
        return FP8Q_OK;

    struct fp8q_rounding_site *s = &r->sites[r->site_of[source]];
    pthread_mutex_lock(&r->lock);
    int status = load_site(r, s, source, err);
    *hessian_out = s->hessian;
    pthread_mutex_unlock(&r->lock);
    return status;
}

void fp8q_rounding_release(struct fp8q_rounding *r, size_t source)
{
    if (r->site_of[source] == SIZE_MAX || !r->sites[r->site_of[source]].compensated)
        return;

    pthread_mutex_lock(&r->lock);
    r->sites[r->site_of[source]].users--;
    pthread_mutex_unlock(&r->lock);
}

/* ---- the manifest ---------------------------------------------------------------------------- */

int fp8q_rounding_json(const struct fp8q_rounding *r, struct fp8q_text *out, struct fp8q_error *err)
{
    struct fp8q_jsonw w = {.indent = 0};
    fp8q_jsonw_open(&w, NULL, '{');
    fp8q_jsonw_string(&w, "method", "error-compensated");
    fp8q_jsonw_string(&w, "calibration", r->path);
    fp8q_jsonw_string(&w, "inputs_fingerprint", r->calib.meta.inputs_fingerprint);

    fp8q_jsonw_open(&w, "compensated", '[');
    for (size_t i = 0; i < r->n_sites; i++)
        if (r->sites[i].compensated)
            fp8q_jsonw_string(&w, NULL, r->sites[i].name);

    fp8q_jsonw_close(&w, ']');
    fp8q_jsonw_close(&w, '}');
    *out = w.text;
    return fp8q_text_status(out, err);
}
