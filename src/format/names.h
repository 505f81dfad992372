/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h - what files and tensors of a checkpoint are called.  Each name stands here once.
 */
#ifndef FP8Q_NAMES_H
#define FP8Q_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* ---- files ----------------------------------------------------------------------------------- */

#define FP8Q_CONFIG_NAME "config.json"
#define FP8Q_HF_QUANT_NAME "hf_quant_config.json" /* ModelOpt's */
#define FP8Q_INDEX_NAME "model.safetensors.index.json"
#define FP8Q_SINGLE_NAME "model.safetensors" /* a checkpoint of one shard and without an index */
#define FP8Q_SIDECAR_NAME "model-scales.safetensors"
#define FP8Q_MANIFEST_NAME "fp8q-manifest.json" /* --scales inline */

/* Beside a weights file NAME.safetensors stand NAME.scales.safetensors or
 * NAME.fp8q-manifest.json.  */
#define FP8Q_WEIGHTS_ENDING ".safetensors"
#define FP8Q_SCALES_ENDING ".scales.safetensors"
#define FP8Q_MANIFEST_ENDING ".fp8q-manifest.json"

/* In the metadata of every sidecar that fp8q writes.  */
#define FP8Q_SIDECAR_VERSION_KEY "fp8q.sidecar_version"

/* Length of the path of a weights file without ".safetensors"; all of it if it ends otherwise.  */
size_t fp8q_weights_stem(const char *path);
/* A sidecar by its name alone: NAME.scales.safetensors.  */
bool fp8q_is_scales_file(const char *name);
/* LeRobot's normalization statistics: small safetensors files that are no shards.  */
bool fp8q_is_policy_file(const char *name);

/* M of a file name that ends in "-N-of-M.safetensors", 0 of any other.  */
unsigned long fp8q_shards_of_name(const char *name);

/* ---- tensors --------------------------------------------------------------------------------- */

#define FP8Q_WEIGHT_ENDING ".weight"
#define FP8Q_SCALE_INV_ENDING "_scale_inv"
#define FP8Q_SCALE_ENDING "_scale"

/* "X.weight" with something before the dot.  */
bool fp8q_is_weight_name(const char *tensor);
/* Length of a name without ".weight"; all of it if it ends otherwise.  */
size_t fp8q_weight_stem(const char *tensor);

/* What a serving engine reads for FP8 keys and values ("...self_attn.k_scale"), and the markers that
 * image tools leave beside FP8 weights ("X.comfy_quant", "scaled_fp8"): a plain checkpoint has no place for them.
 */
bool fp8q_is_cache_scale(const char *tensor);
bool fp8q_is_quantization_marker(const char *tensor);

/* What the companions of a quantized weight are called: the weight is STEM with @owner behind it,
 * its companion STEM with @ending.  In the order in which they are looked for.  */
struct fp8q_companion {
    const char *ending, *owner;
    bool scales_weight; /* false: it scales the inputs */
};
extern const struct fp8q_companion fp8q_companions[];
extern const size_t fp8q_n_companions;

#endif
