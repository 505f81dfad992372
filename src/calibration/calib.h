/* SPDX-License-Identifier: Apache-2.0
 *
 * calib.h - calibration files: statistics of the inputs of linears, `*.calib.safetensors`.
 *
 * Of each site S (an input that one or more linears share, named after the first of them, as
 * "model.layers.0.self_attn.q_proj"), by modality g = 0 .. G-1:
 *
 *     S.count         I64 [G]          tokens
 *     S.sumsq         F32 [G,K]        sum of squares by channel; S.sum the same of values
 *     S.absmax        F32 [G,K]        largest magnitude
 *     S.amax_hist     I64 [64]         1x128 tiles by floor(log2(amax)) + 40, clamped to 0..63
 *     S.value_hist    I64 [768]        elements by magnitude, fp8q_value_bin()
 *     S.hblk          F32 [B,128,128]  Hessian: second moments within each block of 128 channels
 *                                      (B = ceil(K/128), zero padded) of token vectors scaled to
 *                                      length 1, of the tokens to fit
 *     S.hblk_held     F32 [B,128,128]  the same of the tokens held out
 *     S.hblk_count    I64 [2]          tokens in the two
 *
 * and of each attention A ("model.layers.0.self_attn"):
 *
 *     A.cache_absmax  F32 [2,H]        largest magnitude of the keys behind the rotation, and of the
 *                                      values, by key/value head
 *
 * All but count and sumsq are optional.  Everything is a sum or a maximum, so files merge.
 * `__metadata__`: format "fp8q-calib/1", source_fingerprint (fingerprint.h; "" if not known),
 * source, dataset, inputs_fingerprint, n_samples, n_tokens, nll_sum, nll_tokens, vocab, tool,
 * created.
 */
#ifndef FP8Q_CALIB_H
#define FP8Q_CALIB_H

#include "model/inputs.h"

#define FP8Q_CALIB_FORMAT "fp8q-calib/1"
#define FP8Q_HIST_BINS 64
#define FP8Q_VALUE_BINS 768
#define FP8Q_MOMENTS ((size_t)FP8Q_BLOCK * FP8Q_BLOCK) /* floats of one block's second moments */

enum fp8q_calib_array {
    FP8Q_CALIB_SUM,
    FP8Q_CALIB_SUMSQ,
    FP8Q_CALIB_ABSMAX,
    FP8Q_CALIB_HBLK,
    FP8Q_CALIB_HELD,
    FP8Q_CALIB_N_ARRAYS
};

/* Endings of their tensors: "sum", "sumsq", ...  */
extern const char *const fp8q_calib_array_names[FP8Q_CALIB_N_ARRAYS];

struct fp8q_calib_site {
    char name[160];
    uint64_t width;
    uint32_t n_groups;
    int64_t count[FP8Q_MODALITIES];
    int64_t moment_count[2]; /* tokens in HBLK and HELD */
    int64_t hist[FP8Q_HIST_BINS];
    int64_t values[FP8Q_VALUE_BINS];
    bool has[FP8Q_CALIB_N_ARRAYS], has_hist, has_values;
};

enum { FP8Q_CACHE_HEADS = 256 };
enum fp8q_cache_half { FP8Q_CACHE_KEYS, FP8Q_CACHE_VALUES };

struct fp8q_calib_cache {
    char name[160];
    uint32_t n_heads;
    float absmax[2][FP8Q_CACHE_HEADS];
};

struct fp8q_calib_meta {
    char source_fingerprint[16], inputs_fingerprint[16]; /* hexadecimal, or "" */
    char source[256], dataset[256], created[32];
    uint64_t n_samples, n_tokens;
    /* Negative log-likelihood that the model gives to some of the tokens (0: there were no
     * targets), and its words.  */
    double nll_sum;
    uint64_t nll_tokens, vocab;
};

struct fp8q_calib {
    struct fp8q_ckpt *file; /* NULL while collecting */
    struct fp8q_calib_meta meta;
    struct fp8q_calib_site *sites; /* sorted by name */
    size_t n_sites;
    struct fp8q_calib_cache *caches; /* sorted by name */
    size_t n_caches;
};

/* Opens and checks a file.  FP8Q_E_FORMAT: not a calibration file, or its parts disagree;
 * FP8Q_E_UNSUPPORTED: another version; FP8Q_E_EVIDENCE "calibration-missing", or
 * "calibration-empty": statistics of zero tokens.  */
int fp8q_calib_open(const char *path, struct fp8q_calib *calib_out, struct fp8q_error *err);
void fp8q_calib_close(struct fp8q_calib *calib);

/* Bins of magnitudes: 16 for each power of two from 2^-24 up to 2^24; what is smaller or larger
 * counts in the first or the last.  fp8q_value_edge() is the least magnitude of a bin.  */
unsigned fp8q_value_bin(float magnitude);
float fp8q_value_edge(unsigned bin);

/* NULL if there is none of that name.  */
const struct fp8q_calib_site *fp8q_calib_find(const struct fp8q_calib *calib, const char *site);
const struct fp8q_calib_cache *fp8q_calib_find_cache(const struct fp8q_calib *calib,
                                                     const char *attention);
/* Site that feeds tensor @tensor_name ("...k_proj.weight" -> "...q_proj"): q/k/v share one, gate/up
 * too.  */
const char *fp8q_calib_site_of(const char *tensor_name, struct fp8q_name *buf);
/* Floats of one array of a site.  */
uint64_t fp8q_calib_floats(const struct fp8q_calib_site *site, enum fp8q_calib_array array);
/* Reads one array; values are checked to be finite (and squares not to be negative).  */
int fp8q_calib_read(const struct fp8q_calib *calib, const struct fp8q_calib_site *site,
                    enum fp8q_calib_array array, float *out, struct fp8q_error *err);

/* FP8Q_E_EVIDENCE "calibration-foreign" unless the statistics are of weights with this fingerprint.
 */
int fp8q_calib_matches(const struct fp8q_calib *calib, uint32_t fingerprint,
                       struct fp8q_error *err);

/* The model finds the inputs no likelier than words drawn at random: 0.9 ln(vocabulary) nats or
 * more a token (the expectation for random ids is at least ln(vocabulary)).  Such statistics are no
 * guide to rounding.  Not asked of vocabularies under 1,024 words, where chance is not far from
 * what a byte-level model can do.  */
bool fp8q_calib_is_noise(const struct fp8q_calib *calib);

/* Whether a site is an expert's; and whether an expert's tokens are fewer than the channels of a block,
 * so that their second moments say too little: its weights are rounded plainly.  */
bool fp8q_calib_is_expert(const char *site);
bool fp8q_calib_is_few(const struct fp8q_calib_site *site);

/* Linear inputs of whose tokens none was held out: the guard of GPTQ cannot judge them.  */
size_t fp8q_calib_unheld(const struct fp8q_calib *calib);

/* Gives the floats of one array of site @index; @out has room for fp8q_calib_floats().  */
typedef int fp8q_calib_get_fn(void *ctx, size_t index, enum fp8q_calib_array array, float *out,
                              struct fp8q_error *err);
/* Writes a new file, or replaces one in one step if @overwrite, array by array.  */
int fp8q_calib_write(const struct fp8q_calib *calib, const char *path, bool overwrite,
                     fp8q_calib_get_fn *get, void *ctx, struct fp8q_error *err);

/* Sum of files: of the same weights (FP8Q_E_EVIDENCE) and sites (FP8Q_E_ARG).  What one lacks, the
 * result lacks.  */
int fp8q_calib_merge(const char *const *paths, size_t n_paths, const char *created, const char *out,
                     bool overwrite, struct fp8q_error *err);

/* Converts a llama.cpp importance matrix (GGUF or the older .dat): sums of squares, counts, and
 * sums where it has them.  It knows no second moments between channels, so it cannot drive GPTQ;
 * `drift` reads it.  */
int fp8q_calib_import(const char *path, const char *created, const char *out, bool overwrite,
                      struct fp8q_error *err);

/* ---- collecting ---------------------------------------------------------------------------- */

struct fp8q_calibrate_options {
    unsigned n_threads;
    const char *kernel;
    bool no_moments; /* leave HBLK and HELD out: a file 60 times smaller, for drift only */
    uint64_t buffer_bytes;
    const struct fp8q_watch *watch; /* may be NULL */
    uint32_t source_fingerprint;
    const char *created;
};

/* Runs @model on @inputs in F32 and writes the statistics.  A quarter of the samples (every fourth;
 * of fewer than four samples, every fourth run of 64 tokens, or of a quarter of the longest where
 * that is no more than 192) is held out.  */
int fp8q_calibrate(const struct fp8q_model *model, const struct fp8q_inputs *inputs,
                   const struct fp8q_calibrate_options *options, const char *out, bool overwrite,
                   struct fp8q_error *err);

#endif
