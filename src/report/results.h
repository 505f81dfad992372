/* SPDX-License-Identifier: Apache-2.0
 *
 * results.h - what eval, sweep, compare, drift and gate wrote, and calibration files, read and
 * checked for a report.
 *
 * Numbers that a file leaves out are NaN.  Texts are borrowed from the file's document.
 */
#ifndef FP8Q_REPORT_RESULTS_H
#define FP8Q_REPORT_RESULTS_H

#include "calibration/calib.h"
#include "gate/evidence.h"

/* NULL: not given.  */
struct fp8q_result_paths {
    const char *eval, *sweep, *compare, *drift, *gate, *calibration;
};

/* One comparison of an eval.  KLD in nats.  */
struct fp8q_result_row {
    const char *name; /* for people; static */
    bool there;
    double mean, se, median, p95, p99, p999, max;
    double top1, top1_se, ppl_source, ppl_output, dln, dln_se;
    uint64_t flips;
};
enum { FP8Q_RESULT_OUTPUT, FP8Q_RESULT_FLOOR, FP8Q_RESULT_WEIGHTS, FP8Q_RESULT_REQUANT };
enum { FP8Q_RESULT_ROWS = 4 };

/* Tokens taken together: a sample, a modality, a category of samples, a range of positions.  */
struct fp8q_result_part {
    uint64_t key;     /* its number, or the first position */
    const char *name; /* of a category, and of a modality that says it; "": none */
    uint64_t tokens, samples;
    double kld, kld_se, top1;
};
struct fp8q_result_parts {
    struct fp8q_result_part *items;
    size_t count, cap;
};

struct fp8q_result_eval {
    bool there;
    const char *dataset, *acts, *stack, *created, *differences;
    uint64_t tokens;
    struct fp8q_result_row rows[FP8Q_RESULT_ROWS];
    struct fp8q_result_parts samples, modalities, categories, positions;
    double *layer_error;
    size_t n_layers, layers_cap;
};

struct fp8q_result_unit {
    const char *name;
    double kld, kld_se;
    uint64_t bytes_saved;
    bool quantized;
};
struct fp8q_result_split {
    uint64_t kept, bytes;
    double kld;
    const char *last_kept; /* NULL: none is */
};
struct fp8q_result_sweep {
    bool there, has_budget;
    struct fp8q_result_unit *units;
    struct fp8q_result_split *splits; /* from all quantized on */
    size_t n_units, units_cap, n_splits, splits_cap;
    uint64_t source_bytes, tokens, chosen_bytes, chosen_kept;
    double all_predicted, all_measured, all_se, chosen_measured;
    bool met;
};

struct fp8q_result_format {
    const char *format, *granularity;
    double rmse, relative, sqnr;
    uint64_t bytes;
};
struct fp8q_result_compare {
    bool there;
    const char *selection;
    uint64_t source_bytes, n_tensors;
    struct fp8q_result_format *rows;
    size_t count, cap;
};

struct fp8q_result_site {
    const char *name;
    bool moved;
    double rms, absmax, overlap, hist, channels;
};
struct fp8q_result_drift {
    bool there, stale;
    const char *old_path, *new_path;
    uint64_t n_moved;
    double mix, codes_changed;
    struct fp8q_result_site *sites;
    size_t count, cap;
};

struct fp8q_result_check {
    const char *id, *status, *message;
    uint64_t tier, n;
    double observed, limit, low, high;
};
struct fp8q_result_gate {
    bool there;
    const char *verdict;
    struct fp8q_result_check *checks;
    size_t count, cap;
};

struct fp8q_measurements {
    struct fp8q_result_document {
        const char *path;       /* borrowed from the request */
        struct fp8q_json *json; /* owned; all texts are borrowed from it */
    } documents[5];
    size_t n_documents;
    struct fp8q_result_eval eval;
    struct fp8q_result_sweep sweep;
    struct fp8q_result_compare compare;
    struct fp8q_result_drift drift;
    struct fp8q_result_gate gate;
    struct fp8q_calib calibration;
    bool has_calibration;
};

/* FP8Q_E_FORMAT "report-input": not what the option asks for, or a figure is missing or out of its
 * range.  fp8q_measurements_reset() it in every case; it borrows from @paths.  */
int fp8q_measurements_read(const struct fp8q_result_paths *paths,
                           struct fp8q_measurements *results_out, struct fp8q_error *err);
/* FP8Q_E_EVIDENCE "result-foreign" or "calibration-foreign" if one of them is of other bytes.  What
 * is not known is not compared.  */
int fp8q_measurements_check(const struct fp8q_measurements *results, struct fp8q_fingerprint source,
                            struct fp8q_fingerprint output, struct fp8q_error *err);
void fp8q_measurements_reset(struct fp8q_measurements *results);

#endif
