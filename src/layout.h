/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.h - part of planning: output tensors and pieces become shards with offsets and headers.
 */
#ifndef FP8Q_LAYOUT_H
#define FP8Q_LAYOUT_H

#include "plan.h"

/* Names the output shards, sorts tensors into them as the official writer does, assigns offsets,
 * emits headers and the index.  Expects plan->tensors and plan->pieces in source order with
 * tensors[].shard = shard of the source.  */
int fp8q_layout(struct fp8q_plan *plan, struct fp8q_error *err);

#define FP8Q_SIDECAR_NAME "model-scales.safetensors"
#define FP8Q_MANIFEST_NAME "fp8q-manifest.json" /* --scales inline */

#endif
