/* SPDX-License-Identifier: Apache-2.0
 *
 * drift.h - two calibration files: has the distribution of inputs moved?
 *
 * Scales of activations are dynamic, so a wider range alone breaks nothing: what goes stale is
 * evidence (an evaluation on inputs that are no longer representative) and weights that GPTQ rounded.
 */
#ifndef FP8Q_DRIFT_H
#define FP8Q_DRIFT_H

#include "calibration/calib.h"
#include "format/jsonw.h"
#include "kernel/kernel.h"

/* A site has moved if any of these is exceeded.  */
struct fp8q_drift_limits {
    double rms;     /* |log2| of the ratio of the site's RMS */
    double absmax;  /* log2 of the growth of the largest magnitude */
    double overlap; /* share of the top 1 % of channels (at least 4, by energy) of either file that
                     * are in the top 4 % of the other; below is drift */
    double hist;    /* mean shift of the tiles' amax in powers of two (earth mover's distance of the
                       histograms) */
    double channels; /* mean over channels, weighted with energy, of |log2| of the ratio of their
                        RMS */
    double clipped;  /* share of the new inputs beyond the range of a static scale */
    double unused;   /* powers of two between the largest new input and the end of that range */
    double mix;      /* change of a modality's share of tokens (whole file) */
    double sites;    /* share of sites that may have moved before the verdict is stale */
};
extern const struct fp8q_drift_limits fp8q_drift_defaults;

struct fp8q_drift_site {
    const char *name; /* borrowed from the old file */
    double rms, absmax, overlap, hist,
        channels;           /* as above; NaN where a file lacks the statistics */
    double clipped, unused; /* NaN without a checkpoint of static scales */
    double codes_changed;   /* share of FP8 values that re-rounding with the new statistics changes;
                             NaN: not computed */
    uint64_t n_codes;       /* FP8 values of the site's weights */
    bool moved;
};

struct fp8q_drift {
    struct fp8q_drift_site *sites; /* owned */
    size_t n_sites, n_moved;
    double mix, codes_changed;
    bool stale;
};

struct fp8q_drift_options {
    struct fp8q_drift_limits limits;
    /* With the weights also the share of FP8 values that would change, for scales of @fmt.  */
    const struct fp8q_ckpt *ckpt; /* NULL: not asked for */
    enum fp8q_scale_fmt fmt;
    const struct fp8q_ckpt *statics; /* whose static input scales are judged; NULL: none */
    const char *kernel;              /* NULL: best */
    unsigned n_threads;
    const struct fp8q_watch *watch; /* NULL allowed; steps are sites */
};

/* FP8Q_E_ARG if a limit is no number from 0 on or the files do not describe the same sites;
 * FP8Q_E_EVIDENCE if they are of different weights.  On
 * failure *@drift_out is zeroed; else free with fp8q_drift_reset().  It borrows from @old_calib.  */
int fp8q_drift_run(const struct fp8q_calib *old_calib, const struct fp8q_calib *new_calib,
                   const struct fp8q_drift_options *options, struct fp8q_drift *drift_out,
                   struct fp8q_error *err);
void fp8q_drift_reset(struct fp8q_drift *drift);
void fp8q_drift_json(const struct fp8q_drift *drift, const struct fp8q_drift_limits *limits,
                     struct fp8q_jsonw *w);

#endif
