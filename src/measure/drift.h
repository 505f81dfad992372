/* SPDX-License-Identifier: Apache-2.0
 *
 * drift.h - two calibration files: has the distribution of inputs moved?
 *
 * Scales of activations are dynamic, so a wider range alone breaks nothing: what goes stale is
 * evidence (an evaluation on inputs that are no longer representative) and error-compensated codes.
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
    double mix;      /* change of a modality's share of tokens (whole file) */
    double sites;    /* share of sites that may have moved before the verdict is stale */
};
extern const struct fp8q_drift_limits fp8q_drift_defaults;

struct fp8q_drift_site {
    const char *name; /* borrowed from the old file */
    double rms, absmax, overlap, hist,
        channels;         /* as above; NaN where a file lacks the statistics */
    double codes_changed; /* share of codes that re-rounding with the new statistics changes; NaN:
                             not computed */
    uint64_t n_codes;
    bool moved;
};

struct fp8q_drift {
    struct fp8q_drift_site *sites; /* owned */
    size_t n_sites, n_moved;
    double mix, codes_changed;
    bool stale;
};

/* FP8Q_E_ARG if the files do not describe the same sites; FP8Q_E_EVIDENCE if they are of different
 * weights.  With
 * @ckpt (may be NULL) also the share of codes that would change, for scales of @fmt.  */
int fp8q_drift_run(const struct fp8q_calib *old_calib, const struct fp8q_calib *new_calib,
                   const struct fp8q_drift_limits *limits, const struct fp8q_ckpt *ckpt,
                   enum fp8q_scale_fmt fmt, const char *kernel, unsigned n_threads,
                   const struct fp8q_watch *watch, struct fp8q_drift *drift_out,
                   struct fp8q_error *err);
void fp8q_drift_reset(struct fp8q_drift *drift);
void fp8q_drift_json(const struct fp8q_drift *drift, const struct fp8q_drift_limits *limits,
                     struct fp8q_jsonw *w);

#endif
