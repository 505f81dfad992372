/* SPDX-License-Identifier: Apache-2.0
 *
 * scales.h - scales that data decide: the one with which an engine quantizes all inputs of a linear.
 */
#ifndef FP8Q_CALIBRATION_SCALES_H
#define FP8Q_CALIBRATION_SCALES_H

#include "calibration/calib.h"
#include "plan/plan.h"

struct fp8q_data_scales_of {
    struct fp8q_calib calib;
    float *ranges;                  /* by site: the largest magnitude that is not clipped */
    struct fp8q_data_scales scales; /* for a plan; borrows from this */
};

/* Opens a calibration file and chooses the range of each site.  FP8Q_E_EVIDENCE as
 * fp8q_calib_open(), or "calibration-range" where it lacks the statistics that @range needs.  */
int fp8q_data_scales_open(const char *path, enum fp8q_input_range range,
                          struct fp8q_data_scales_of *scales_out, struct fp8q_error *err);
void fp8q_data_scales_close(struct fp8q_data_scales_of *scales);

/* Share of the site's values beyond @range, by whole bins of the histogram: what is in the bin of
 * @range itself does not count.  NaN without a histogram.  */
double fp8q_clipped_share(const struct fp8q_calib_site *site, float range);
/* Largest magnitude of a site, over channels and modalities.  */
int fp8q_site_absmax(const struct fp8q_calib *calib, const struct fp8q_calib_site *site,
                     float *absmax_out, struct fp8q_error *err);

#endif
