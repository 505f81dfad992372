/* SPDX-License-Identifier: Apache-2.0
 *
 * engines.c - what each engine reads: the tables.
 *
 * A row is changed after reading the engine's source, or after tests/engines ran its loader; the
 * version in its row of @fp8q_engines says which.
 */
#include "engines/engines.h"

#include <string.h>

#include "checkpoint/scales.h"
#include "format/names.h"
#include "select/pattern.h"

#define OF(engine) (1U << FP8Q_##engine)
#define ALL ((1U << FP8Q_N_ENGINES) - 1)

const struct fp8q_engine_row fp8q_engines[FP8Q_N_ENGINES] = {
    [FP8Q_VLLM] = {"vllm", "vLLM", "0.33.0", true, true},
    [FP8Q_SGLANG] = {"sglang", "SGLang", "0.5.23", true, true},
    [FP8Q_TRANSFORMERS] = {"transformers", "transformers", "5.24.0", true, true},
    [FP8Q_TRTLLM] = {"trtllm", "TensorRT-LLM", "source of 2026", false, true},
    [FP8Q_LMDEPLOY] = {"lmdeploy", "lmdeploy", "0.18.0", true, true},
    [FP8Q_LLAMA_CPP] = {"llama.cpp", "llama.cpp", "as in llama-cpp-python 0.3.36", true, false},
};

const struct fp8q_cutting_row fp8q_cutting = {
    .by_columns = "o_proj down_proj out_proj wo w2 fc2 c_proj dense dense_4h_to_h output_linear "
                  "attn_out ff_out fc_out to_out wo_b wo_ud",
    .whole = "q_a_proj kv_a_proj_with_mqa",
    .repeated = "k_proj v_proj",
};

/* ---- what is read of a format ---------------------------------------------------------------- */

enum {
    BLOCK = 1 << FP8Q_SCALING_BLOCK,
    ROW = 1 << FP8Q_SCALING_ROW,
    TENSOR = 1 << FP8Q_SCALING_TENSOR,
    GROUP = 1 << FP8Q_SCALING_GROUP
};

static const struct fp8q_reading readings[] = {
    {.engine = FP8Q_VLLM,
     .format = FP8Q_FORMAT_FP8,
     .scalings = BLOCK | TENSOR | GROUP,
     .block_scale = FP8Q_SCALE_INV_ENDING,
     .other_scale = FP8Q_SCALE_ENDING,
     .group_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_PARTS_ALIGNED | FP8Q_ALL_BUT_LAST | FP8Q_COLUMNS_ALIGNED |
                FP8Q_HEAD_FLOAT | FP8Q_NO_BYTE_SCALES | FP8Q_BLOCKS_OF_128 | FP8Q_SAYS_SCHEME |
                FP8Q_ROUNDS_SCALES,
     .gpus = "NVIDIA Ada, Hopper, Blackwell; AMD MI300 and later; x86 CPUs with AMX",
     .other = "Turing and Ampere by weight-only kernels (Marlin)",
     .group_gpus = "NVIDIA Blackwell; Ampere to Hopper by weight-only kernels"},
    {.engine = FP8Q_VLLM,
     .format = FP8Q_FORMAT_COMPRESSED_TENSORS,
     .scalings = BLOCK | ROW | TENSOR | GROUP,
     .block_scale = FP8Q_SCALE_ENDING,
     .other_scale = FP8Q_SCALE_ENDING,
     .group_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_PARTS_ALIGNED | FP8Q_ALL_BUT_LAST | FP8Q_COLUMNS_ALIGNED |
                FP8Q_NO_BYTE_SCALES | FP8Q_BLOCKS_OF_128 | FP8Q_ROUNDS_SCALES | FP8Q_EXPERTS_STATIC,
     .gpus = "NVIDIA Ada, Hopper, Blackwell; AMD MI300 and later; x86 CPUs with AMX",
     .other = "Turing and Ampere by weight-only kernels (Marlin)",
     .group_gpus = "NVIDIA Blackwell; Ampere to Hopper by weight-only kernels"},
    {.engine = FP8Q_VLLM,
     .format = FP8Q_FORMAT_MODELOPT,
     .scalings = TENSOR,
     .other_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_NO_STACKS,
     .gpus = "NVIDIA Ada, Hopper, Blackwell; AMD MI300 and later",
     .other = "Ampere by weight-only kernels (Marlin)"},
    {.engine = FP8Q_SGLANG,
     .format = FP8Q_FORMAT_FP8,
     .scalings = BLOCK | TENSOR | GROUP,
     .block_scale = FP8Q_SCALE_INV_ENDING,
     .other_scale = FP8Q_SCALE_ENDING,
     .group_scale = FP8Q_SCALE_INV_ENDING,
     .group_alias = FP8Q_SCALE_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_PARTS_ALIGNED | FP8Q_COLUMNS_ALIGNED | FP8Q_HEAD_FLOAT |
                FP8Q_NO_BYTE_SCALES | FP8Q_BLOCKS_OF_128 | FP8Q_SAYS_SCHEME | FP8Q_ROUNDS_SCALES,
     .gpus = "NVIDIA Ada, Hopper, Blackwell; AMD MI300 and later; x86 CPUs with AMX",
     .other = "Ampere by weight-only kernels (Marlin)",
     .group_gpus = "NVIDIA Blackwell; AMD MI300 and later"},
    {.engine = FP8Q_SGLANG,
     .format = FP8Q_FORMAT_COMPRESSED_TENSORS,
     .scalings = BLOCK | ROW | TENSOR,
     .block_scale = FP8Q_SCALE_ENDING,
     .other_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_PARTS_ALIGNED | FP8Q_COLUMNS_ALIGNED | FP8Q_HEAD_NO_BLOCKS |
                FP8Q_NO_BYTE_SCALES | FP8Q_BLOCKS_OF_128 | FP8Q_ROUNDS_SCALES |
                FP8Q_EXPERTS_STATIC | FP8Q_LINEAR_BLOCKS,
     .gpus = "NVIDIA Ada, Hopper, Blackwell; AMD MI300 and later",
     .other = "Ampere by weight-only kernels (Marlin) where a scale is of a row or a tensor"},
    {.engine = FP8Q_SGLANG,
     .format = FP8Q_FORMAT_MODELOPT,
     .scalings = TENSOR,
     .other_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_NO_STACKS,
     .gpus = "NVIDIA Ada, Hopper, Blackwell",
     .other = "no other"},
    {.engine = FP8Q_TRANSFORMERS,
     .format = FP8Q_FORMAT_FP8,
     .scalings = BLOCK | TENSOR | GROUP,
     .block_scale = FP8Q_SCALE_INV_ENDING,
     .other_scale = FP8Q_SCALE_INV_ENDING,
     .group_scale = FP8Q_SCALE_INV_ENDING,
     .demands = FP8Q_ROWS_IN_FLOAT | FP8Q_COLUMNS_ALIGNED | FP8Q_NO_STACKS,
     .gpus = "NVIDIA Ada, Hopper, Blackwell",
     .other = "everywhere else, CPUs too, weights become BF16 while they are loaded",
     .group_gpus = "none; weights become BF16 while they are loaded"},
    {.engine = FP8Q_TRANSFORMERS,
     .format = FP8Q_FORMAT_COMPRESSED_TENSORS,
     .scalings = BLOCK | ROW | TENSOR | GROUP,
     .block_scale = FP8Q_SCALE_ENDING,
     .other_scale = FP8Q_SCALE_ENDING,
     .group_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_ROWS_ALIGNED | FP8Q_COLUMNS_ALIGNED | FP8Q_NO_STACKS | FP8Q_NO_BLOCK_EXPERTS |
                FP8Q_NO_BYTE_SCALES,
     .gpus = "none",
     .other = "weights become BF16 on use or while they are loaded",
     .group_gpus = "none; weights become BF16 on use or while they are loaded"},
    {.engine = FP8Q_TRTLLM,
     .format = FP8Q_FORMAT_FP8,
     .scalings = BLOCK,
     .block_scale = FP8Q_SCALE_INV_ENDING,
     .other_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_PARTS_ALIGNED | FP8Q_ALL_BUT_LAST | FP8Q_COLUMNS_ALIGNED |
                FP8Q_HEAD_FLOAT | FP8Q_NO_BYTE_SCALES | FP8Q_BLOCKS_OF_128 | FP8Q_ROUNDS_SCALES,
     .gpus = "NVIDIA Ada, Hopper, Blackwell",
     .other = "no other"},
    {.engine = FP8Q_TRTLLM,
     .format = FP8Q_FORMAT_COMPRESSED_TENSORS,
     .scalings = BLOCK | ROW,
     .block_scale = FP8Q_SCALE_ENDING,
     .other_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_PARTS_ALIGNED | FP8Q_ALL_BUT_LAST | FP8Q_COLUMNS_ALIGNED |
                FP8Q_HEAD_FLOAT | FP8Q_NO_STACKS | FP8Q_NO_BYTE_SCALES | FP8Q_ONE_GROUP |
                FP8Q_INPUTS_GROUPED | FP8Q_BLOCKS_OF_128 | FP8Q_ROUNDS_SCALES,
     .gpus = "NVIDIA Ada, Hopper, Blackwell",
     .other = "no other"},
    {.engine = FP8Q_TRTLLM,
     .format = FP8Q_FORMAT_MODELOPT,
     .scalings = TENSOR,
     .other_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_NO_STACKS,
     .gpus = "NVIDIA Ada, Hopper, Blackwell",
     .other = "no other"},
    {.engine = FP8Q_LMDEPLOY,
     .format = FP8Q_FORMAT_FP8,
     .scalings = BLOCK,
     .block_scale = FP8Q_SCALE_INV_ENDING,
     .other_scale = FP8Q_SCALE_INV_ENDING,
     .demands = FP8Q_FUSED_ALIKE | FP8Q_PARTS_ALIGNED | FP8Q_COLUMNS_ALIGNED | FP8Q_HEAD_FLOAT |
                FP8Q_NO_BYTE_SCALES | FP8Q_BLOCKS_OF_128 | FP8Q_ASSUMES_BLOCKS |
                FP8Q_QUANTIZES_REST | FP8Q_NO_CACHE_SCALES,
     .gpus = "NVIDIA Ada, Hopper, Blackwell",
     .other = "older ones by the TurboMind engine, for the models that it has"},
    {.engine = FP8Q_LLAMA_CPP,
     .format = FP8Q_FORMAT_FP8,
     .scalings = BLOCK | TENSOR,
     .block_scale = FP8Q_SCALE_INV_ENDING,
     .other_scale = FP8Q_SCALE_INV_ENDING,
     .demands = FP8Q_NO_BYTE_SCALES,
     .gpus = "none",
     .other = "the converter turns FP8 into the GGUF type that is asked for"},
    {.engine = FP8Q_LLAMA_CPP,
     .format = FP8Q_FORMAT_COMPRESSED_TENSORS,
     .scalings = BLOCK | ROW,
     .block_scale = FP8Q_SCALE_ENDING,
     .other_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_ONE_GROUP | FP8Q_NO_STACKS | FP8Q_NO_BYTE_SCALES,
     .gpus = "none",
     .other = "the converter turns FP8 into the GGUF type that is asked for"},
    {.engine = FP8Q_LLAMA_CPP,
     .format = FP8Q_FORMAT_MODELOPT,
     .scalings = TENSOR,
     .other_scale = FP8Q_SCALE_ENDING,
     .demands = FP8Q_NO_STACKS,
     .gpus = "none",
     .other = "the converter turns FP8 into the GGUF type that is asked for"},
};

const struct fp8q_reading *fp8q_reading_of(enum fp8q_engine engine, enum fp8q_format format)
{
    for (size_t i = 0; i < sizeof(readings) / sizeof(*readings); i++)
        if (readings[i].engine == engine && readings[i].format == format)
            return &readings[i];

    return NULL;
}

const char *fp8q_demand_text(enum fp8q_demand demand)
{
    switch (demand) {
    case FP8Q_FUSED_ALIKE:
        return "merged matrices alike";
    case FP8Q_PARTS_ALIGNED:
        return "their rows multiples of 128";
    case FP8Q_ALL_BUT_LAST:
        return "but the last";
    case FP8Q_ROWS_ALIGNED:
        return "all rows multiples of 128";
    case FP8Q_ROWS_IN_FLOAT:
        return "all rows multiples of 128 where FP8 becomes BF16";
    case FP8Q_COLUMNS_ALIGNED:
        return "columns multiples of 128";
    case FP8Q_HEAD_FLOAT:
        return "no FP8 `lm_head`";
    case FP8Q_HEAD_NO_BLOCKS:
        return "no `lm_head` in blocks";
    case FP8Q_NO_STACKS:
        return "no stacked experts";
    case FP8Q_ONE_GROUP:
        return "one config group";
    case FP8Q_NO_BYTE_SCALES:
        return "no scales of blocks in U8";
    case FP8Q_BLOCKS_OF_128:
        return "blocks of 128x128";
    case FP8Q_ASSUMES_BLOCKS:
        return "without `weight_block_size` too";
    case FP8Q_SAYS_SCHEME:
        return "`activation_scheme` dynamic";
    case FP8Q_QUANTIZES_REST:
        return "what no entry excludes is quantized while it is loaded";
    case FP8Q_NO_BLOCK_EXPERTS:
        return "no experts in blocks";
    case FP8Q_ROUNDS_SCALES:
        return "block scales become powers of two on Blackwell";
    case FP8Q_INPUTS_GROUPED:
        return "with blocks, inputs in groups of 128";
    case FP8Q_NO_CACHE_SCALES:
        return "no scales of keys and values";
    case FP8Q_LINEAR_BLOCKS:
        return "merged matrices in blocks only by the group of `Linear`";
    case FP8Q_EXPERTS_STATIC:
        return "experts with a scale a tensor have static inputs";
    }
    return "?";
}

static const char float_attention[] =
    "SGLang builds the attention of this network in BF16, and takes FP8 values for weights";

static const struct fp8q_exception exceptions[] = {
    {FP8Q_VLLM, FP8Q_FORMAT_FP8, "mistral3",
     "vLLM renames weight_scale_inv to weight_scale for this model type, and then finds no "
     "parameter of that name",
     "quantize with --format compressed-tensors", false},
    {FP8Q_LMDEPLOY, FP8Q_FORMAT_FP8, "mistral_large4", "lmdeploy has no class for this model type",
     "serve it with vLLM, SGLang or transformers", true},
    {FP8Q_SGLANG, FP8Q_FORMAT_FP8, "llama mistral ministral3 phi3 internlm3 iquestcoder mistral3",
     "SGLang's class for Llama renames weight_scale_inv to weight_scale, finds no such parameter, "
     "and goes on without the scales",
     "quantize with --format compressed-tensors", false},
    {FP8Q_SGLANG, FP8Q_FORMAT_COMPRESSED_TENSORS,
     "aria aya_vision bamba cwm emu3 fast_vlm flex_olmo fuyu got_ocr2 gpt_neox helium idefics2 "
     "idefics3 internvl jamba llava_next llava_onevision nanochat ovis2 paligemma perception_lm "
     "seed_oss smollm3 smolvlm vaultgemma video_llava vipllava",
     "SGLang runs this network by transformers' class, and renames the target \"Linear\" as if it "
     "were a module, so that it reaches none",
     "quantize with --format fp8", false},
    {FP8Q_SGLANG, FP8Q_FORMAT_FP8, "gpt_oss", float_attention, "serve it with another engine",
     false},
    {FP8Q_SGLANG, FP8Q_FORMAT_COMPRESSED_TENSORS, "gpt_oss", float_attention,
     "serve it with another engine", false},
};

const struct fp8q_exception *fp8q_exception_of(enum fp8q_engine engine, enum fp8q_format format,
                                               const char *model_type)
{
    size_t len;

    for (size_t i = 0; i < sizeof(exceptions) / sizeof(*exceptions); i++) {
        const struct fp8q_exception *x = &exceptions[i];
        if (x->engine == engine && x->format == format && model_type &&
            fp8q_has_any_components(model_type, x->model_types, &len))
            return x;
    }

    return NULL;
}

const struct fp8q_config_place fp8q_config_places[] = {
    {"quantization_config", ALL},
    {"text_config.quantization_config", OF(VLLM) | OF(TRANSFORMERS) | OF(LMDEPLOY) | OF(LLAMA_CPP)},
    {"compression_config", OF(VLLM) | OF(SGLANG)},
};
const size_t fp8q_n_config_places = sizeof(fp8q_config_places) / sizeof(*fp8q_config_places);

const struct fp8q_trap fp8q_traps[] = {
    {.warning = "index-beside-model",
     .engines = OF(TRANSFORMERS),
     .why = "it opens model.safetensors, and never looks at the index beside it",
     .change = "remove model.safetensors"},
    {.warning = "index-no-metadata",
     .engines = OF(TRANSFORMERS),
     .why = "it needs the index's \"metadata\"",
     .change = "add \"metadata\": {} to the index"},
    {.warning = "unindexed-tensor",
     .engines = OF(LLAMA_CPP),
     .why = "it refuses an index that does not name every tensor of the files",
     .change = "complete the index"},
    {.warning = "unindexed-file",
     .engines = OF(TRTLLM),
     .why = "it reads every .safetensors file of the directory, those too that the index does not "
            "name",
     .change = "move the other .safetensors files away"},
    {.file = "consolidated",
     .engines = OF(VLLM),
     .why = "it takes a directory with consolidated*.safetensors for one in Mistral's own format",
     .change = "move the consolidated* files away"},
    {.file = "hf_quant_config.json",
     .method = "modelopt",
     .engines = OF(TRTLLM),
     .why = "it goes by hf_quant_config.json in place of config.json",
     .change = "remove hf_quant_config.json"},
};
const size_t fp8q_n_traps = sizeof(fp8q_traps) / sizeof(*fp8q_traps);

bool fp8q_reads_otherwise(enum fp8q_engine engine, const char *quant_method)
{
    static const char *const methods[FP8Q_N_ENGINES] = {
        [FP8Q_VLLM] = "modelopt fbgemm_fp8 quark",
        [FP8Q_SGLANG] = "modelopt quark w8a8_fp8",
        [FP8Q_TRANSFORMERS] = "fbgemm_fp8 quark",
        [FP8Q_TRTLLM] = "mxfp8 modelopt",
        [FP8Q_LMDEPLOY] = "",
        [FP8Q_LLAMA_CPP] = "modelopt",
    };
    size_t len;

    return fp8q_has_any_components(quant_method, methods[engine], &len) != NULL;
}

/* ---- exclusion lists ------------------------------------------------------------------------- */

enum {
    DENSE = FP8Q_MODULE_LINEAR,
    MERGED_AT_ONCE = FP8Q_MODULE_LINEAR | FP8Q_MODULE_PART | FP8Q_MODULE_EXPERTS,
    ONE_BY_ONE = FP8Q_MODULE_LINEAR | FP8Q_MODULE_PART | FP8Q_MODULE_EXPERT
};

/* clang-format off */
const struct fp8q_reader fp8q_readers[] = {
    {.name = "vLLM", .engines = OF(VLLM), .format = FP8Q_FORMAT_FP8,
     .keys = FP8Q_IGNORED_IF_FILLED,
     .rules = FP8Q_EXACT | FP8Q_EXPERTS_WITHIN | FP8Q_EXPERTS_ONLY_SO, .kinds = MERGED_AT_ONCE,
     .key_text = "`ignored_layers`, or `modules_to_not_convert` if that is empty",
     .rule_text = "E, after the model's renaming, is M; a fused module goes by its parts, which must "
                  "agree; experts are skipped if their prefix is part of an entry with \"experts\" in "
                  "it"},
    {.name = "SGLang", .engines = OF(SGLANG), .format = FP8Q_FORMAT_FP8,
     .keys = FP8Q_IGNORED_IF_PRESENT,
     .rules = FP8Q_RUN | FP8Q_EXPERTS_WITHIN | FP8Q_BOTH_SPELLINGS, .kinds = MERGED_AT_ONCE,
     .key_text = "the first of these keys that is present",
     .rule_text = "E or `model.`E is M, begins M before a dot, or is a run of its components; from "
                  "0.5.23 on also vLLM's rule for experts"},
    {.name = "transformers", .engines = OF(TRANSFORMERS), .format = FP8Q_FORMAT_FP8,
     .keys = FP8Q_NOT_CONVERTED_FIRST,
     .rules = FP8Q_BEGINS_MODULE | FP8Q_ENDS, .kinds = DENSE | FP8Q_MODULE_EXPERTS,
     .key_text = "`modules_to_not_convert`, else `ignored_layers`",
     .rule_text = "E as a regular expression matches the beginning of M up to a dot or its end, or M "
                  "ends with E"},
    {.name = "transformers before 5.24", .engines = OF(TRANSFORMERS), .format = FP8Q_FORMAT_FP8,
     .keys = FP8Q_NOT_CONVERTED_FIRST, .is_older = true,
     .rules = FP8Q_BEGINS | FP8Q_ENDS, .kinds = DENSE | FP8Q_MODULE_EXPERTS,
     .key_text = "the same",
     .rule_text = "E as a regular expression matches the beginning of M, or M ends with E"},
    {.name = "transformers 4", .engines = OF(TRANSFORMERS), .format = FP8Q_FORMAT_FP8,
     .keys = FP8Q_NOT_CONVERTED, .is_older = true, .built_in = "lm_head",
     .rules = FP8Q_PART, .kinds = DENSE | FP8Q_MODULE_EXPERT,
     .key_text = "`modules_to_not_convert`",
     .rule_text = "E is a substring of M"},
    {.name = "TensorRT-LLM", .engines = OF(TRTLLM), .format = FP8Q_FORMAT_FP8,
     .keys = FP8Q_BOTH_KEYS, .built_in = "kv_b_proj k_b_proj eh_proj",
     .rules = FP8Q_ANCESTOR, .kinds = DENSE | FP8Q_MODULE_EXPERTS,
     .key_text = "both together",
     .rule_text = "E as a glob matches M or one of its ancestors"},
    {.name = "lmdeploy", .engines = OF(LMDEPLOY), .format = FP8Q_FORMAT_FP8,
     .keys = FP8Q_IGNORED_IF_FILLED,
     .rules = FP8Q_WITHIN, .kinds = DENSE | FP8Q_MODULE_MERGED | FP8Q_MODULE_EXPERTS,
     .key_text = "as vLLM",
     .rule_text = "M is a substring of E"},
    {.name = "vLLM", .engines = OF(VLLM), .format = FP8Q_FORMAT_COMPRESSED_TENSORS,
     .keys = FP8Q_IGNORE,
     .rules = FP8Q_EXACT | FP8Q_REGEX, .kinds = ONE_BY_ONE | FP8Q_MODULE_STACKED,
     .key_text = "`ignore`",
     .rule_text = "E is M, or `re:` and a match from the beginning; of a stack of experts M is a matrix "
                  "of its first expert"},
    {.name = "transformers", .engines = OF(TRANSFORMERS), .format = FP8Q_FORMAT_COMPRESSED_TENSORS,
     .keys = FP8Q_IGNORE,
     .rules = FP8Q_EXACT | FP8Q_REGEX, .kinds = ONE_BY_ONE,
     .key_text = "`ignore`",
     .rule_text = "the same, but stacks are no modules of it"},
    {.name = "SGLang", .engines = OF(SGLANG), .format = FP8Q_FORMAT_COMPRESSED_TENSORS,
     .keys = FP8Q_IGNORE,
     .rules = FP8Q_EXACT | FP8Q_LAST_RUN | FP8Q_REGEX, .kinds = ONE_BY_ONE | FP8Q_MODULE_STACKED,
     .key_text = "`ignore`",
     .rule_text = "as vLLM, or E is a run of components that ends M"},
    {.name = "SGLang before 0.5.23", .engines = OF(SGLANG),
     .format = FP8Q_FORMAT_COMPRESSED_TENSORS, .keys = FP8Q_IGNORE, .is_older = true,
     .rules = FP8Q_PART | FP8Q_REGEX | FP8Q_NO_CASE, .kinds = ONE_BY_ONE | FP8Q_MODULE_STACKED,
     .key_text = "`ignore`",
     .rule_text = "as vLLM, or E is a substring of M, whatever the case"},
    {.name = "TensorRT-LLM", .engines = OF(TRTLLM), .format = FP8Q_FORMAT_COMPRESSED_TENSORS,
     .keys = FP8Q_IGNORE,
     .rules = FP8Q_ANCESTOR, .kinds = DENSE | FP8Q_MODULE_EXPERTS,
     .key_text = "`ignore`",
     .rule_text = "E as a glob matches M or one of its ancestors, or `re:` and a match of all of M"},
    {.name = "vLLM", .engines = OF(VLLM), .format = FP8Q_FORMAT_MODELOPT, .keys = FP8Q_IGNORE,
     .rules = FP8Q_EXACT | FP8Q_PART | FP8Q_GLOB, .kinds = MERGED_AT_ONCE,
     .key_text = "`ignore`, or `exclude_modules`",
     .rule_text = "E is a substring of M, or a glob that matches M; a fused module goes by its parts"},
    {.name = "SGLang", .engines = OF(SGLANG), .format = FP8Q_FORMAT_MODELOPT, .keys = FP8Q_IGNORE,
     .rules = FP8Q_RUN | FP8Q_GLOB | FP8Q_EXPERTS_WITHIN, .kinds = MERGED_AT_ONCE,
     .key_text = "`ignore`",
     .rule_text = "E is a run of M's components, or a glob that matches M; and vLLM's rule of the fp8 "
                  "format for experts"},
    {.name = "TensorRT-LLM", .engines = OF(TRTLLM), .format = FP8Q_FORMAT_MODELOPT,
     .keys = FP8Q_IGNORE, .rules = FP8Q_ANCESTOR, .kinds = DENSE | FP8Q_MODULE_EXPERTS,
     .key_text = "`exclude_modules` of hf_quant_config.json",
     .rule_text = "E as a glob matches M or one of its ancestors"},
};
/* clang-format on */

const size_t fp8q_n_readers = sizeof(fp8q_readers) / sizeof(*fp8q_readers);
