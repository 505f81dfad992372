/* SPDX-License-Identifier: Apache-2.0
 *
 * engines.h - what each engine reads, as data.
 *
 * Three tables (engines.c): the engines; what each reads of a checkpoint format; and how each reads
 * an exclusion list.  The plan, verify, `check` and `--tp` go by them, and a test compares
 * docs/reference/format.md with them.
 */
#ifndef FP8Q_ENGINES_H
#define FP8Q_ENGINES_H

#include "base/error.h"

/* ---- engines --------------------------------------------------------------------------------- */

enum fp8q_engine {
    FP8Q_VLLM,
    FP8Q_SGLANG,
    FP8Q_TRANSFORMERS,
    FP8Q_TRTLLM,
    FP8Q_LMDEPLOY,
    FP8Q_LLAMA_CPP,
    FP8Q_N_ENGINES
};

struct fp8q_engine_row {
    const char *word; /* on the command line */
    const char *name;
    const char *version; /* the newest that was looked at */
    bool is_run;         /* tests load outputs with its own code; false: its source was read */
    bool cuts;           /* tensor parallelism cuts matrices, and so their block scales */
};
extern const struct fp8q_engine_row fp8q_engines[FP8Q_N_ENGINES];

/* Which matrices tensor parallelism cuts, and how, by components of their names.  All others are
 * cut by their rows.  */
struct fp8q_cutting_row {
    const char *by_columns;
    const char *whole;    /* every rank has all of it */
    const char *repeated; /* once there are more ranks than heads */
};
extern const struct fp8q_cutting_row fp8q_cutting;

/* ---- what is read of a format ---------------------------------------------------------------- */

/* What an engine asks of a checkpoint beyond E4M3 weights, and what it does with one.  */
enum fp8q_demand {
    FP8Q_FUSED_ALIKE = 1 << 0,       /* the parts of a matrix that it merges are all FP8 or none */
    FP8Q_PARTS_ALIGNED = 1 << 1,     /* their rows are multiples of 128 */
    FP8Q_ALL_BUT_LAST = 1 << 2,      /* but those of the last part may end as they like */
    FP8Q_ROWS_ALIGNED = 1 << 3,      /* rows of every matrix */
    FP8Q_ROWS_IN_FLOAT = 1 << 4,     /* the same, but only where FP8 becomes BF16 */
    FP8Q_COLUMNS_ALIGNED = 1 << 5,   /* columns of every matrix */
    FP8Q_BLOCKS_OF_128 = 1 << 6,     /* blocks of 128x128 and no others */
    FP8Q_HEAD_FLOAT = 1 << 7,        /* the output head is not FP8 */
    FP8Q_HEAD_NO_BLOCKS = 1 << 8,    /* the output head has no block scales */
    FP8Q_NO_STACKS = 1 << 9,         /* experts one by one */
    FP8Q_NO_BLOCK_EXPERTS = 1 << 24, /* experts have a scale a row or a tensor */
    FP8Q_ONE_GROUP = 1 << 10,        /* one config_group, so one kind of scales */
    FP8Q_NO_BYTE_SCALES = 1 << 11,   /* scales that are numbers, not E8M0 in U8 */
    FP8Q_INPUTS_GROUPED = 1 << 12,   /* block weights go with inputs in groups of 128 */
    FP8Q_SAYS_SCHEME = 1 << 13,      /* activation_scheme stands in the config */
    FP8Q_QUANTIZES_REST = 1 << 14,   /* what no list excludes is quantized while it is loaded */
    FP8Q_ROUNDS_SCALES = 1 << 15,    /* on Blackwell block scales become powers of two */
    FP8Q_EXPERTS_STATIC = 1 << 16, /* experts with a scale a tensor have one for their inputs too */
    FP8Q_ASSUMES_BLOCKS = 1 << 17, /* of 128x128, where the config gives no size */
    FP8Q_LINEAR_BLOCKS = 1 << 18,  /* those of merged matrices are said by the group of "Linear" */
    FP8Q_NO_CACHE_SCALES = 1 << 19 /* no scales of keys and values */
};

/* One demand in a few words: "no FP8 lm_head".  */
const char *fp8q_demand_text(enum fp8q_demand demand);

struct fp8q_reading {
    enum fp8q_engine engine;
    enum fp8q_format format;
    unsigned scalings;        /* bits 1 << enum fp8q_scaling */
    const char *block_scale;  /* what block scales of X.weight are called, behind its name */
    const char *other_scale;  /* the same of scales a row or a tensor */
    const char *group_scale;  /* the same of MXFP8, which the fp8 format calls mxfp8 */
    const char *group_alias;  /* another name that will do for these, or NULL */
    unsigned demands;         /* bits of enum fp8q_demand */
    const char *gpus, *other; /* FP8 arithmetic there; what happens elsewhere */
    const char *group_gpus;   /* both, of MXFP8 */
};

/* The row, or NULL: the engine does not read that format.  */
const struct fp8q_reading *fp8q_reading_of(enum fp8q_engine engine, enum fp8q_format format);

/* Checkpoints that an engine does not load although all the rest is right.  */
struct fp8q_exception {
    enum fp8q_engine engine;
    enum fp8q_format format;
    const char *model_types; /* separated by spaces */
    const char *why, *change;
    bool has_no_class; /* of such models, so that its reader of lists is not asked about them */
};
const struct fp8q_exception *fp8q_exception_of(enum fp8q_engine engine, enum fp8q_format format,
                                               const char *model_type);

/* Where in config.json a quantization may be described: @path of the object, from the one that is
 * looked for first.  */
struct fp8q_config_place {
    const char *path;
    unsigned engines; /* that look there, as bits */
};
extern const struct fp8q_config_place fp8q_config_places[];
extern const size_t fp8q_n_config_places;

/* What else may lie in a directory and lead an engine astray.  @warning is what opening the
 * checkpoint said of it, or NULL; else @file is the beginning of a name.  */
struct fp8q_trap {
    const char *warning, *file;
    const char *method; /* quant_method to which the file belongs: then it is no trap; or NULL */
    unsigned engines;
    const char *why, *change;
};
extern const struct fp8q_trap fp8q_traps[];
extern const size_t fp8q_n_traps;

/* Whether the engine reads @quant_method in a way that this table does not describe.  */
bool fp8q_reads_otherwise(enum fp8q_engine engine, const char *quant_method);

/* ---- exclusion lists ------------------------------------------------------------------------- */

/* How an entry E reaches a module M.  */
enum fp8q_rule {
    FP8Q_EXACT = 1 << 0,          /* E is M */
    FP8Q_RUN = 1 << 1,            /* E is a run of whole components of M */
    FP8Q_LAST_RUN = 1 << 2,       /* E is a run of components that ends M */
    FP8Q_ANCESTOR = 1 << 3,       /* E is a run that begins M, or a glob of M or of such a run */
    FP8Q_BEGINS = 1 << 4,         /* E, as a regular expression, matches the beginning of M */
    FP8Q_BEGINS_MODULE = 1 << 5,  /* the same, and the match ends where a component does */
    FP8Q_ENDS = 1 << 6,           /* M ends with E */
    FP8Q_PART = 1 << 7,           /* E is anywhere in M */
    FP8Q_WITHIN = 1 << 8,         /* M is anywhere in E */
    FP8Q_EXPERTS_WITHIN = 1 << 9, /* of an M with "experts": M is anywhere in an E with "experts" */
    FP8Q_EXPERTS_ONLY_SO = 1 << 10, /* and by no other rule */
    FP8Q_REGEX = 1 << 11,           /* "re:" E matches from the beginning of M */
    FP8Q_BOTH_SPELLINGS = 1 << 12,  /* every E with and without a leading "model." */
    FP8Q_NO_CASE = 1 << 13,         /* upper and lower case are one */
    FP8Q_GLOB = 1 << 14             /* E is a glob of M */
};

/* Which list is read.  */
enum fp8q_list_keys {
    FP8Q_IGNORED_IF_FILLED,
    FP8Q_IGNORED_IF_PRESENT,
    FP8Q_NOT_CONVERTED_FIRST,
    FP8Q_NOT_CONVERTED,
    FP8Q_BOTH_KEYS,
    FP8Q_IGNORE
};

/* Modules that an engine asks its list about.  */
enum fp8q_module_kind {
    FP8Q_MODULE_LINEAR = 1,  /* a matrix of the checkpoint */
    FP8Q_MODULE_PART = 2,    /* a part of one that is fused on disk */
    FP8Q_MODULE_EXPERTS = 4, /* all experts of a layer, which engines build as one module */
    FP8Q_MODULE_EXPERT = 8,  /* one matrix of one expert */
    FP8Q_MODULE_MERGED = 16, /* what engines merge, by its name there */
    FP8Q_MODULE_STACKED = 32 /* one matrix of one expert of a stack */
};

struct fp8q_reader {
    const char *name; /* "SGLang before 0.5.23" */
    unsigned engines; /* bits 1 << enum fp8q_engine */
    enum fp8q_format format;
    enum fp8q_list_keys keys;
    unsigned rules;
    unsigned kinds;       /* of modules that it asks about */
    bool is_older;        /* newer versions read otherwise */
    const char *built_in; /* components that it knows by itself, whatever the list says */
    const char *key_text; /* @keys and @rules for people: "E matches M if ..." */
    const char *rule_text;
};
extern const struct fp8q_reader fp8q_readers[];
extern const size_t fp8q_n_readers;

#endif
