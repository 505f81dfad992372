"""Every causal and multimodal language class of transformers, built without weights, and what fp8q would quantize of it.

Two forms of each class: its own names, and those that it is saved with, which are the published ones.  Held: no weight
outside the language model is quantized, and none that is no linear; of the language model every linear whose sizes are
multiples of 128 is, unless a list below says why not.  A class that cannot be built is in a list too, and no list has an
entry that is needed no more.

newest_transformers.sh runs this with the newest transformers instead of the pinned one.
"""
import re
import struct
import warnings

from common import *

warnings.filterwarnings("ignore")
import transformers
from transformers import AutoConfig
from transformers.core_model_loading import revert_weight_conversion
from transformers.models.auto import modeling_auto as auto

CLASSES = sorted({(kind, name) for table in (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
                                             auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
                                             auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES)
                  for kind, names in table.items() for name in ([names] if isinstance(names, str) else names)})

# ---- what is not promised, and why ---------------------------------------------------------------

# Kinds of which nothing is promised; what must not be quantized is held all the same.
UNSUPPORTED = {
    "bert|bert-generation|big_bird|camembert|data2vec-text|electra|ernie|megatron-bert|rembert|roberta|"
    "roberta-prelayernorm|roc_bert|roformer|xlm|xlm-roberta|xlm-roberta-xl|xlnet|xmod|reformer|ctrl|cpmant":
        "encoders, and decoders before 2020: nobody serves them in FP8",
    "bart|bigbird_pegasus|blenderbot|blenderbot-small|marian|mbart|mvp|pegasus|plbart|prophetnet|trocr|whisper|"
    "vision-encoder-decoder|udop|pix2struct|pp_formulanet|t5gemma2|kosmos-2.*|git|blip":
        "encoder and decoder in one: no engine reads block FP8 of them (Florence-2 is in the table)",
    "falcon_mamba|mamba|mamba2|rwkv|xlstm|recurrent_gemma|zamba|zamba2":
        "a state in place of attention in all or most layers: engines build its linears without quantization",
    "moshi|kyutai_speech_to_text": "each linear is in a module of its own, and no engine serves them in FP8",
    "blt|evolla|hrm_text|idefics|jetmoe|zaya|mllama|inkling2.*|diffusion_gemma|bitnet|doge|modernbert-decoder|"
    "openai-gpt|gpt2|gpt-sw3":
        "a layout of its own that no table has: left unquantized where it is not that of a usual decoder",
}

# (kinds, names, why): linears of a supported language model that are left.
LEFT = [
    (".*", r"\.indexer\.", "the indexer of sparse attention: engines keep it"),
    ("nemotron_h_omni", r"(^|\.)lm_head\.", "the output head"),
    ("gemma3n_text|gemma4.*", r"per_layer_|\.altup_", "per-layer inputs: engines keep them"),
    ("opt|blip-2|instructblip|instructblipvideo", r"\.project_(in|out)\.", "outside the layers"),
    ("bloom|falcon|fuyu|gpt_neox|gpt_neox_japanese|persimmon", r"\.query_key_value\.", "rows interleaved by heads"),
    ("codegen|minimax", r"\.qkv_proj\.", "rows interleaved"),
    ("gpt_bigcode", r"\.c_attn\.", "rows interleaved"),
    ("nemotron_h.*|granitemoehybrid|bamba|falcon_h1|jamba", r"\.in_proj\.", "Mamba: parts are no multiples of 128"),
    ("jamba", r"\.mamba\.(out_proj|dt_proj)\.", "engines build its Mamba without quantization"),
    ("olmo_hybrid", r"\.linear_attn\.", "linear attention"),
    ("glm5_next", r"\.self_attn\.", "engines build its attention without quantization"),
    ("kimi_linear|bailing_hybrid", r"\.(f_proj|g_proj|f_a_proj|f_b_proj|g_a_proj|g_b_proj)\.", "gates of delta attention"),
    ("kimi_linear|bailing_hybrid", r"\.(self_attn|attention)\.[qkv]_proj\.", "loaded with b_proj, whose rows are few"),
    ("inkling_mm_model", r"\.(wq_du|wk_dv|wv_dv|wr_du|[qkvr]_proj)\.", "loaded with r_proj, whose rows are few there"),
    ("dots3_note.*", r"\.q_a_proj\.", "loaded with kv_a_proj_with_mqa, whose rows are no multiple of 128"),
    ("dots3_note.*", r"\.g_proj\.", "the gate of the output"),
    ("deepseek_v4", r"\.compressor\.", "the compressor: engines build it without quantization"),
    ("muse_spark", r"\.(pre|post)_expert_proj\.", "around the experts: engines build them without quantization"),
    ("phimoe|mixtral|minimax.*|kimi_linear|longcat_flash|deepseek_v4", r"\.experts\.(gate_up|down)_proj$",
     "a stack in memory only: published one by one under other names"),
    ("nemotron_h.*|nemo_speechlm", r"\.experts\.(up|down)_proj$", "a stack in memory only: published one by one"),
    ("ernie4_5_vl_moe", r"\.(text|vision)_moe\.experts\.", "a stack in memory only: published one by one"),
    ("granitemoe.*|gpt_oss|llama4.*|muse_spark|inkling.*|aria.*", r"\.(experts|block_sparse_moe|shared_experts)\.",
     "stacks that engines do not read in FP8"),
    ("qwen3_vl_moe", r"\.experts\.", "in memory the stack is transposed; published, its layout is another"),
    ("kimi_k25", r"\.blocks\.", "the way back of transformers renames the decoder as if it were the tower"),
    ("qianfan_ocr", r"\.encoder\.layers\.", "the way back of transformers renames the decoder as if it were the tower"),
    ("hy_v4.*", r"\.mlp\..*linear_gate\.", "the way back of transformers renames gate_proj of the MLP too"),
    ("kimi_linear", r"\.block_sparse_moe\.(gate|up|down)_proj\.", "the way back of transformers renames the dense MLP too"),
]

# {class: why}: built by none of the tries below.
UNBUILT = {
    "ChameleonForConditionalGeneration": "needs the vocabulary map of a checkpoint",
    "CohereCompassForConditionalGeneration": "its default config lacks the angles of a layer type",
    "CohereCompassForCausalLM": "the same",
    "DbrxForCausalLM": "its config lacks rope_theta",
    "DeepseekOcr2ForConditionalGeneration": "its default config lacks the layer types of a tower",
    "DiffusionGemmaForBlockDiffusion": "its config refuses one head_dim for all layers",
    "Emu3ForConditionalGeneration": "needs the vocabulary map of a checkpoint",
    "FastVlmForConditionalGeneration": "needs timm",
    "Gemma3nForConditionalGeneration": "needs timm",
    "Gemma4AssistantForCausalLM": "its default config contradicts itself",
    "Gemma4UnifiedAssistantForCausalLM": "the same, up to 5.17",
    "Granite4VisionForConditionalGeneration": "its default config is for another language model",
    "MusicgenForCausalLM": "music", "MusicgenMelodyForCausalLM": "music",
    "PerceptionLMForConditionalGeneration": "needs timm",
    "Qwen3OmniMoeForConditionalGeneration": "the config of its talker lacks a size; its thinker is built",
    "ReformerModelWithLMHead": "asks for is_decoder",
    "VisionEncoderDecoderModel": "has no default config, up to 5.17",
}

# Where get_decoder() answers with the whole, or with another part.
DECODERS = {
    "Llama4ForCausalLM": ("model.",), "MllamaForCausalLM": ("model.",), "Phi4MultimodalForCausalLM": ("model.layers.",),
    "PI0ForConditionalGeneration": ("model.vlm.language_model.",),
    "Qwen2_5OmniForConditionalGeneration": ("thinker.model.layers.", "thinker.model.language_model."),
}

# Published weights that are made of several others, so that none of them alone leads there.
UNTRACED = {"ernie4_5_vl_moe": r"model\.layers\.\d+\.mlp\.experts\."}

# Saved forms that are not tried.
UNSAVED = {
    "cosmos3_edge": "no file has it: the way back of transformers gives the tower's MLP the names of the decoder's",
}

# ---- building ------------------------------------------------------------------------------------

SIZES = {"hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 384, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 128, "d_model": 512, "n_embd": 512, "n_head": 4, "num_heads": 4,
         "kv_lora_rank": 256, "q_lora_rank": 256, "qk_nope_head_dim": 128, "qk_rope_head_dim": 128, "v_head_dim": 128,
         "shared_expert_intermediate_size": 256, "moe_shared_expert_intermediate_size": 256, "embed_dim": 512}
COUNTS = {"num_hidden_layers": 2, "depth": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "num_experts": 4,
          "n_routed_experts": 4, "num_local_experts": 4, "encoder_layers": 2, "decoder_layers": 2}

# What a config lacks by default and its class needs: {member: value}, dots lead into nested configs.
NEEDED = {
    "dots1": {"n_shared_experts": 1, "n_routed_experts": 4},
    "idefics3": {"text_config.pad_token_id": 0, "pad_token_id": 0},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "smolvlm": {"text_config.pad_token_id": 0, "pad_token_id": 0},
}


def shrink(settings, table, fill):
    """Sets what the table names, in the nested configs too; what a config refuses stays as it is."""
    for key, value in table.items():
        try:
            old = getattr(settings, key, False)
            if (fill and old is None) or (isinstance(old, int) and not isinstance(old, bool)):
                setattr(settings, key, value)
        except Exception:
            pass
    for nested in list(vars(settings).values()):
        if isinstance(nested, transformers.PretrainedConfig):
            shrink(nested, table, fill)


def configured(kind, tables, fill):
    settings = AutoConfig.for_model(kind)
    for table in tables:
        shrink(settings, table, fill)
    for path, value in NEEDED.get(kind, {}).items():
        *nested, member = path.split(".")
        owner = settings
        for name in nested:
            owner = getattr(owner, name)
        setattr(owner, member, value)
    return settings


def build(kind, name):
    """The class without weights: small, or with fewer layers, or as its config makes it; else the first error."""
    error = None
    for text in (False, True):
        for tables, fill in (((COUNTS, SIZES), False), ((COUNTS, SIZES), True), ((SIZES,), False), ((COUNTS,), False),
                             ((), False)):
            try:
                settings = configured(kind, tables, fill)
                settings = settings.get_text_config() if text else settings
                with torch.device("meta"):
                    return getattr(transformers, name)(settings)
            except Exception as e:
                error = error or f"{type(e).__name__}: {str(e)[:100]}"
    return error


# ---- what is in a class --------------------------------------------------------------------------

def decoder_of(model):
    """The text before the names of all that the language model has."""
    if type(model).__name__ in DECODERS:
        return DECODERS[type(model).__name__]
    decoder = model.get_decoder()
    return (next(name for name, module in model.named_modules() if module is decoder) + ".",)


def matrices_of(model):
    """Names of the weights of linears, and of stacks of them."""
    names = {name + ".weight" for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    return names | {name for name, p in model.named_parameters() if p.dim() == 3}


def saved_form(model, state):
    """{published name: (tensor, the names it was made of)}."""
    whole = revert_weight_conversion(model, dict(state))
    origins = {}
    for name, tensor in state.items():
        try:
            for other in revert_weight_conversion(model, {name: tensor}):
                origins.setdefault(other, set()).add(name)
        except Exception:  # made of several: UNTRACED has its name
            pass
    return {name: (tensor, origins.get(name, set())) for name, tensor in whole.items()}


def write(path, tensors, settings):
    """The header of a safetensors file, with zeros that take no room."""
    header, at = {}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * 2
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump(settings, f, default=str)


def quantized_of(tensors, settings):
    """The tensors that fp8q would quantize; it may answer that there are none."""
    path = fresh_dir()
    write(path, tensors, settings)
    status, answer = fp8q_json("quantize", path, "--dry-run")
    shutil.rmtree(path)
    if status != 0 and "nothing to quantize" not in answer["error"]["message"]:
        raise AssertionError(answer["error"]["message"])
    return {t["name"] for t in answer.get("tensors", []) if t["action"] == "quantize"}


def is_aligned(tensor):
    return tensor.dim() >= 2 and tensor.shape[-1] % 128 == 0 and tensor.shape[-2] % 128 == 0


class Meta(Case):
    used = set()  # entries of the lists that were needed

    def why_left(self, kind, name):
        """Notes every entry that speaks of the name, so that none seems unneeded because of another."""
        found = [row for row in LEFT if re.fullmatch(row[0], kind) and re.search(row[1], name)]
        self.used.update(found)
        return bool(found)

    def hold(self, kind, tensors, settings, decoder, matrices):
        """What is wrong with the plan for one form of one class."""
        taken, wrong = quantized_of({name: t for name, (t, _) in tensors.items()}, settings), []
        is_promised = not any(re.fullmatch(kinds, kind) for kinds in UNSUPPORTED)
        for name, (tensor, origins) in tensors.items():
            untraced = not origins and bool(re.match(UNTRACED.get(kind, "$^"), name))
            is_language = untraced or any(o.startswith(decoder) for o in origins)
            is_linear = untraced or bool(origins & matrices)
            self.check(True)
            if name in taken and not (is_language and is_linear):
                wrong.append(f"{name} is quantized, but no linear of the language model")
            if name not in taken and is_promised and is_language and is_linear and is_aligned(tensor):
                if not self.why_left(kind, name):
                    wrong.append(f"{name} is left")
        return wrong

    def test_classes(self):
        wrong, unbuilt, n_built = [], set(), 0
        for kind, name in CLASSES:
            model = build(kind, name)
            if isinstance(model, str):
                unbuilt.add(name)
                if name not in UNBUILT:
                    wrong.append(f"{name}: cannot be built: {model}")
                continue
            n_built += 1
            settings = {"model_type": kind, **model.config.to_dict()}
            state = {n: t for n, t in model.state_dict().items() if t.is_floating_point()}
            forms = [{n: (t, {n}) for n, t in state.items()}, saved_form(model, state)]
            if kind in UNSAVED or set(forms[0]) == set(forms[1]):
                forms.pop()
            decoder, matrices = decoder_of(model), matrices_of(model)
            for tensors in forms:
                found = self.hold(kind, tensors, settings, decoder, matrices)
                wrong += [f"{kind} {name}: {line}" for line in found[:4]]
                wrong += [f"{kind} {name}: and {len(found) - 4} more"] if len(found) > 4 else []
        print(f"{n_built} classes of transformers {transformers.__version__}")
        self.check(n_built > 230, "most classes must be built")
        self.equal(wrong, [], "\n".join([""] + wrong))
        if not os.environ.get("FP8Q_NEWEST"):
            known = {name for _, name in CLASSES}
            self.equal([n for n in UNBUILT if n in known and n not in unbuilt], [], "can be built now")
            self.equal([row[:2] for row in LEFT if row not in self.used and self.has_kind(row[0])], [], "needed no more")

    def has_kind(self, kinds):
        return any(re.fullmatch(kinds, kind) for kind, _ in CLASSES)


if __name__ == "__main__":
    main(at_least=20000)
