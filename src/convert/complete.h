/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.h - whether a DST is already what a conversion would make.
 */
#ifndef FP8Q_COMPLETE_H
#define FP8Q_COMPLETE_H

#include "base/watch.h"
#include "convert/copies.h"
#include "plan/request.h"

/* *@complete_out: DST has a manifest of the same version of fp8q and the same request, and by their
 * checksums neither the source nor DST have changed since.  If only that last is not so,
 * *@changed_out names what has changed (free it; else NULL).  Reads all tensors of both.  */
int fp8q_complete(const struct fp8q_plan *plan, const struct fp8q_request *request,
                  const struct fp8q_copies *copies, const char *destination,
                  const struct fp8q_watch *watch, bool *complete_out, char **changed_out,
                  struct fp8q_error *err);

#endif
