/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.h - all that a report says, collected once.
 *
 * The checkpoint is opened, proved (verify/) and measured (measure/values.h) here; results of other
 * commands are read from their files (results.h).  The writers - html.h, markdown.h, json.h - only
 * read it, so the three say the same.
 */
#ifndef FP8Q_REPORT_FACTS_H
#define FP8Q_REPORT_FACTS_H

#include "checkpoint/values.h"
#include "engines/engines.h"
#include "measure/values.h"
#include "report/results.h"
#include "select/inspect.h"
#include "select/select.h"
#include "verify/verify.h"

struct fp8q_facts_request {
    const char *output;
    const char *source;     /* NULL: no noise, no underflow */
    const char *tensor;     /* whose blocks are shown; NULL: the one whose scales differ most */
    const char *base_model; /* what the source is called on the hub; NULL: guessed, or not said */
    struct fp8q_result_paths results;
    const char *created; /* time of the report, as files spell it */
    unsigned threads;
    const struct fp8q_kernel *kernel;
    const struct fp8q_watch *watch;
};

/* A tensor of the output that is no scale.  */
struct fp8q_facts_tensor {
    const struct fp8q_tensor *tensor; /* borrowed, as all names below */
    const char *role;                 /* "backbone", "vision", "norm" */
    const char *reason;               /* why it is not FP8; NULL: it is */
    const char *kind;                 /* last component of its module: "q_proj" */
    size_t kind_len;
    uint64_t layer;                          /* UINT64_MAX: of none */
    double sqnr;                             /* dB; NaN: not known */
    const struct fp8q_value_figures *values; /* NULL: not measured */
};

/* Tensors of one role and dtype, or left for one reason, or of one shape among those.  */
struct fp8q_facts_group {
    const char *name;
    enum fp8q_dtype dtype;
    size_t n_tensors;
    uint64_t n_elems, bytes;
    const struct fp8q_tensor *example;
};
struct fp8q_facts_groups {
    struct fp8q_facts_group *items;
    size_t count, cap;
};

/* What an engine makes of the output.  */
enum fp8q_facts_reads { FP8Q_FACTS_READS, FP8Q_FACTS_UNSURE, FP8Q_FACTS_STOPS };
struct fp8q_facts_engine {
    enum fp8q_facts_reads state;
    char note[800]; /* where, and what stops it */
};

enum { FP8Q_FACTS_TP = 6 }; /* 2, 4, ... 64 ways */

enum fp8q_facts_verdict { FP8Q_FACTS_PASSED, FP8Q_FACTS_UNDECIDED, FP8Q_FACTS_FAILED };

/* What the model card of the source says of it, which holds for the output too.  */
enum fp8q_card_key {
    FP8Q_CARD_LICENSE,
    FP8Q_CARD_LICENSE_NAME,
    FP8Q_CARD_LICENSE_LINK,
    FP8Q_CARD_LIBRARY,
    FP8Q_CARD_PIPELINE,
    FP8Q_CARD_KEYS
};
extern const char *const fp8q_card_keys[FP8Q_CARD_KEYS]; /* as the hub spells them */

struct fp8q_facts {
    struct fp8q_facts_request request; /* borrowed */
    char *name;                        /* of the output's folder or file; owned */
    char *path, *source_path;          /* as given, or as the manifest says; NULL: not known */
    char *base_model;                  /* NULL: not known */
    char *inherited[FP8Q_CARD_KEYS];   /* NULL: not said; owned */
    char *options; /* of the quantize that made it, for a shell: " --tp 2"; "" */

    struct fp8q_report proof; /* owns the checkpoint */
    int proof_status;         /* 0, or what verify returned */
    struct fp8q_error proof_error;
    struct fp8q_inspection inspection;
    struct fp8q_selection selection; /* as quantize would decide on the output itself */
    bool has_selection;
    struct fp8q_values values;
    struct fp8q_statistics looked_at; /* one weight, for the map of its blocks */
    const char *map_tensor;           /* its name; NULL: there is none */

    struct fp8q_fingerprint output, source; /* of tensors */
    uint64_t source_bytes;                  /* 0: not known */

    struct fp8q_facts_tensor *tensors; /* sorted by name */
    size_t n_tensors, n_quantized;
    uint64_t scale_bytes, n_scale_tensors;
    uint64_t quantized_elems, weight_elems; /* of tensors of two and more dimensions */

    struct fp8q_facts_groups roles;        /* by role, then dtype */
    struct fp8q_facts_groups left;         /* by reason */
    struct fp8q_facts_groups left_shapes;  /* by reason and shape, of reasons that a shape forced */
    const char *tp_misfits[FP8Q_FACTS_TP]; /* a tensor that stops it; NULL: it fits */
    struct fp8q_facts_engine engines[FP8Q_N_ENGINES];

    struct fp8q_measurements results;
    enum fp8q_facts_verdict verdict;
    char verdict_text[512]; /* a sentence; safe to print */
};

/* FP8Q_OK whatever the verdict is: a report of a broken checkpoint is a report.  Fails with what
 * kept it from looking, FP8Q_E_FORMAT "report-input" for a result that is none, and FP8Q_E_EVIDENCE
 * "result-foreign" for one of another checkpoint.  fp8q_facts_reset() it in every case.  */
int fp8q_facts_collect(const struct fp8q_facts_request *request, struct fp8q_facts *facts_out,
                       struct fp8q_warnings *warnings, struct fp8q_error *err);
void fp8q_facts_reset(struct fp8q_facts *facts);

/* Largest power of two up to 64 that fits.  */
unsigned fp8q_facts_largest_tp(const struct fp8q_facts *facts);
/* Whether a reason comes from the shape of a tensor.  */
bool fp8q_facts_is_of_shape(const char *reason);

#endif
