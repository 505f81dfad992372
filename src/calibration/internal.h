/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h - what the files that read and write calibration files share.
 */
#ifndef FP8Q_CALIBRATION_INTERNAL_H
#define FP8Q_CALIBRATION_INTERNAL_H

#include "calibration/calib.h"

#define FP8Q_CALIB_FORMAT "fp8q-calib/1"

/* Endings of the arrays' tensors, by enum fp8q_calib_array: "sum", "sumsq", ...  */
extern const char *const fp8q_calib_array_names[FP8Q_CALIB_N_ARRAYS];

#endif
