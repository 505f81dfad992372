#!/usr/bin/env python3
"""Captures what a vision-language model or a policy feeds to its language model, for `fp8q eval`, `calibrate` and `sweep`.

    python examples/capture_inputs.py MODEL --samples samples.jsonl -o task.inputs.safetensors
    python examples/capture_inputs.py MODEL --samples my_module:batches -o task.inputs.safetensors
    python examples/capture_inputs.py --policy pi05 --samples observations.safetensors -o task.inputs.safetensors

The vision tower and the projector are not quantized, so what enters the first layer is the same for the original and the
FP8 checkpoint: captured once, it lets fp8q run real multimodal inputs without the tower. Needs torch, transformers and
safetensors, for policies LeRobot; a GPU helps but is not needed.

Samples of a model are JSON lines, {"text": "...", "images": ["a.jpg"]} (a plain prompt) or {"messages": [...], "images": [...]}
(for the chat template), with "category": "..." where figures are wanted by category; the checkpoint's own processor makes
inputs of them. Or MODULE:FUNCTION, a function that gets (model, processor) and yields keyword arguments of one forward call
each ("category" is taken out), with a batch of one.

Samples of a policy are observations as its select_action() gets them, tokenized and normalized: a safetensors file of tensors
i.KEY without a batch dimension, such as 0.observation.images.top [3,H,W], 0.observation.state, 0.observation.language.tokens,
0.observation.language.attention_mask, and 0.category (U8, UTF-8) if there is one; or MODULE:FUNCTION, which gets the policy
and yields batches.

The format of what is written: docs/reference/format.md, "Inputs". Every sample is checked: what fp8q cannot compute (image
tokens that see one another behind text, as in Gemma 3) is refused here.
"""
import argparse
import importlib
import json
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

TEXT, IMAGE, ACTION = 0, 1, 2
VISION_TOKENS = ("image_token_id", "video_token_id", "image_token_index", "video_token_index")
PLACES = ("model.language_model", "language_model.model", "model.text_model", "language_model", "text_model", "model")


# ---- one sample ---------------------------------------------------------------------------------

def prefix_of(allowed):
    """How many tokens at the front see one another; 0: a token sees those before it. @allowed: [T,T], query by key."""
    n = allowed.shape[0]
    seen = int(allowed[0].sum())
    prefix = seen if seen > 1 else 0
    expected = torch.ones(n, n, dtype=torch.bool).tril()
    expected[:prefix, :prefix] = True
    if not torch.equal(allowed, expected):
        raise SystemExit("a sample's attention is neither causal nor that of a prefix: fp8q cannot run it")
    return prefix


def as_allowed(mask):
    """[T,T] of a mask of one sample, boolean or to be added to scores."""
    mask = mask.detach().cpu()
    mask = mask.reshape(mask.shape[-2:]) if mask.ndim > 2 else mask
    return mask if mask.dtype == torch.bool else mask > -1


def sample_of(embeds, positions=None, allowed=None, ids=None, modality=None, deepstack=(), category=None,
              scored=None):
    """The tensors of one sample: @embeds [T,H], @positions [T] or [3,T], @allowed [T,T]; padding is left out."""
    keep = torch.ones(embeds.shape[0], dtype=torch.bool) if allowed is None else allowed.diagonal().clone()
    if not torch.isfinite(embeds.float()).all():
        raise SystemExit("an embedding is NaN or infinite")
    out = {"inputs_embeds": embeds.detach().cpu()[keep]}
    if positions is not None:
        out["position_ids"] = positions.detach().long().cpu()[..., keep]
    prefix = prefix_of(allowed[keep][:, keep]) if allowed is not None else 0
    if prefix:
        out["prefix_len"] = torch.tensor([prefix])
    if ids is not None:
        out["labels"] = ids.detach().long().cpu()[keep]
    if modality is not None:
        out["modality"] = modality.to(torch.uint8).cpu()[keep]
    if scored is None and ids is not None and modality is not None:
        scored = modality != IMAGE  # predicting image tokens means nothing
    if scored is not None:
        out["loss_mask"] = scored.to(torch.uint8).cpu()[keep]
    for k, rows in enumerate(deepstack):
        out[f"deepstack.{k}"] = rows.detach().cpu()[keep]
    if category:
        out["category"] = torch.tensor(list(category.encode()), dtype=torch.uint8)
    return {name: tensor.contiguous() for name, tensor in out.items()}


def save(samples, path, dataset):
    tensors = {f"{i}.{name}": t for i, sample in enumerate(samples) for name, t in sample.items()}
    save_file(tensors, path, metadata={"format": "fp8q-inputs/1", "dataset": dataset})
    tokens = sum(s["inputs_embeds"].shape[0] for s in samples)
    print(f"{path}: {len(samples)} samples, {tokens} tokens")


# ---- models of transformers ---------------------------------------------------------------------

def find_language_model(model, path=None):
    """The module that has the layers: by its attribute path, or where transformers keeps it."""
    for place in (path,) if path else PLACES:
        found = model
        for part in place.split("."):
            found = getattr(found, part, None)
        if found is not None and hasattr(found, "layers"):
            return found
    raise SystemExit("no language model found: name it with --language-model (such as model.language_model)")


class Capture:
    """Remembers the last call of a language model: what entered its first layer, and what was said beside it."""

    def __init__(self, language_model):
        self.call, self.embeds, self.mask = {}, None, None
        self.hooks = [language_model.register_forward_pre_hook(self.on_model, with_kwargs=True),
                      language_model.layers[0].register_forward_pre_hook(self.on_layer, with_kwargs=True)]

    def on_model(self, module, args, kwargs):
        self.call = kwargs

    def on_layer(self, module, args, kwargs):
        self.embeds = args[0] if args else kwargs["hidden_states"]
        self.mask = kwargs.get("attention_mask")
        if self.embeds.shape[0] != 1:
            raise SystemExit("one sample a batch, please: padding would be captured as tokens")

    def close(self):
        for hook in self.hooks:
            hook.remove()

    def positions(self):
        """[T] or [3,T]; None where the model counts by itself."""
        p = self.call.get("position_ids")
        if p is None:
            return None
        # [rows, 1, T]; newer transformers put the text positions before the three.
        return p[-3:, 0] if p.ndim == 3 else p.reshape(-1, p.shape[-1])[0]

    def deepstack(self):
        """What joins behind the first layers, as rows of all tokens."""
        given, visual = self.call.get("deepstack_visual_embeds"), self.call.get("visual_pos_masks")
        for rows in given if given is not None else ():
            full = torch.zeros_like(self.embeds[0])
            full[visual.reshape(-1)] = rows.to(full.dtype)
            yield full

    def sample(self, ids, modality, category):
        allowed = None if self.mask is None else as_allowed(self.mask)
        return sample_of(self.embeds[0], self.positions(), allowed, ids, modality, tuple(self.deepstack()), category)


def capture_model(model, batches, language_model=None):
    """Yields one sample for each of @batches (keyword arguments of model())."""
    # Eager attention is given its mask as a tensor, which is how a prefix shows.
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("eager")
    capture = Capture(language_model or find_language_model(model))
    vision = {getattr(model.config, name, None) for name in VISION_TOKENS} - {None}
    for batch in batches:
        batch = dict(batch)
        category = batch.pop("category", None)
        batch = {k: v.to(model.device) if torch.is_tensor(v) else v for k, v in batch.items()}
        with torch.no_grad():
            model(**batch, use_cache=False)
        ids = batch["input_ids"][0] if "input_ids" in batch else None
        modality = None if ids is None else torch.tensor([IMAGE if int(i) in vision else TEXT for i in ids])
        yield capture.sample(ids, modality, category)
    capture.close()


def read_jsonl(path, processor):
    from PIL import Image
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            item = json.loads(line)
            text = item.get("text")
            if text is None:
                text = processor.apply_chat_template(item["messages"], tokenize=False, add_generation_prompt=True)
        except (ValueError, KeyError) as e:
            raise SystemExit(f"{path}:{number}: {e!r}")
        images = [Image.open(Path(path).parent / name).convert("RGB") for name in item.get("images", [])]
        inputs = dict(processor(text=[text], images=images or None, return_tensors="pt"))
        yield inputs | ({"category": item["category"]} if "category" in item else {})


def load_model(args):
    import transformers
    dtype = getattr(torch, args.dtype)
    for kind in ("AutoModelForImageTextToText", "AutoModelForCausalLM"):
        try:
            model = getattr(transformers, kind).from_pretrained(args.model, dtype=dtype, trust_remote_code=args.trust)
            break
        except (ValueError, KeyError) as e:
            last = e
    else:
        raise SystemExit(f"{args.model}: {last}")
    processor = None
    if args.samples.endswith(".jsonl"):
        processor = transformers.AutoProcessor.from_pretrained(args.model, trust_remote_code=args.trust)
    return model.to(args.device).eval(), processor


# ---- policies of LeRobot ------------------------------------------------------------------------

class PolicyCapture:
    """Listens to the module in which a policy's backbone and its action expert run together."""

    def __init__(self, policy):
        self.core = next((getattr(policy.model, name) for name in ("paligemma_with_expert", "vlm_with_expert")
                          if hasattr(policy.model, name)), None)
        if self.core is None:
            raise SystemExit(f"{type(policy).__name__}: no backbone that is known here; capture it with a Capture()")
        self.kinds, self.calls = [], []
        # Policies call forward() itself, which hooks do not see.
        self.saved = {name: getattr(self.core, name) for name in ("forward", "embed_image", "embed_language_tokens")}
        self.core.forward = self.forward
        self.core.embed_image = lambda *args: self.embed(IMAGE, "embed_image", *args)
        self.core.embed_language_tokens = lambda *args: self.embed(TEXT, "embed_language_tokens", *args)

    def embed(self, kind, name, *args):
        """Images and text are embedded in the order in which they enter."""
        out = self.saved[name](*args)
        self.kinds += [kind] * out.shape[1]
        return out

    def forward(self, *args, **kwargs):
        embeds = kwargs.get("inputs_embeds", [None])[0]
        if embeds is not None and embeds.shape[1] > 1:  # the prefix; not a step of decoding or of denoising
            self.calls.append((embeds, kwargs["attention_mask"], kwargs["position_ids"]))
        return self.saved["forward"](*args, **kwargs)

    def close(self):
        for name, method in self.saved.items():
            setattr(self.core, name, method)

    def samples(self, batch, categories):
        """What was heard since the last time; the first call has the prefix."""
        embeds, mask, positions = self.calls[0]
        kinds = self.kinds[:embeds.shape[1]]
        kinds = torch.tensor(kinds + [ACTION] * (embeds.shape[1] - len(kinds)))  # the state comes last
        tokens = batch.get("action.tokens")
        for i in range(embeds.shape[0]):
            ids, scored, modality = None, None, kinds.clone()
            if tokens is not None:  # pi0-FAST: the actions are the last tokens; but for the first all are predicted
                n = tokens.shape[1]
                ids, scored = torch.full((embeds.shape[1],), -1), torch.zeros(embeds.shape[1])
                modality[-n:], ids[-n:], scored[1 - n:] = ACTION, tokens[i].cpu(), 1
            yield sample_of(embeds[i], positions[i], as_allowed(mask[i]), ids, modality,
                            category=categories[i] if categories else None, scored=scored)
        self.kinds, self.calls = [], []


class GrootCapture:
    """GR00T: its backbone is a model of transformers, whose last state the action head reads."""

    def __init__(self, policy):
        backbone = policy._groot_model.backbone
        backbone.model.set_attn_implementation("eager")
        self.capture = Capture(backbone.language_model)

    def close(self):
        self.capture.close()

    def samples(self, batch, categories):
        visual = self.capture.call.get("visual_pos_masks")
        modality = None if visual is None else torch.where(visual.reshape(-1), IMAGE, TEXT)
        yield self.capture.sample(None, modality, categories[0] if categories else None)


def capture_policy(policy, batches):
    """Yields one sample for each observation of @batches. Batches with action.tokens (pi0-FAST) go through forward()."""
    policy.eval()
    capture = (GrootCapture if hasattr(policy, "_groot_model") else PolicyCapture)(policy)
    for batch in batches:
        batch = dict(batch)
        categories = batch.pop("category", None)
        with torch.no_grad():
            policy.forward(dict(batch)) if "action.tokens" in batch else policy.predict_action_chunk(dict(batch))
        yield from capture.samples(batch, categories)
    capture.close()


def read_observations(path):
    """Batches of one of a file of observations."""
    with safe_open(path, "pt") as f:
        names = list(f.keys())
        for i in range(1 + max(int(n.split(".", 1)[0]) for n in names)):
            item = {n.split(".", 1)[1]: f.get_tensor(n) for n in names if n.split(".", 1)[0] == str(i)}
            category = item.pop("category", None)
            batch = {key: tensor[None] for key, tensor in item.items()}
            yield batch | ({"category": [bytes(category.tolist()).decode()]} if category is not None else {})


def load_policy(path):
    from lerobot.configs.policies import PreTrainedConfig
    from lerobot.policies.factory import get_policy_class
    config = PreTrainedConfig.from_pretrained(path)
    return get_policy_class(config.type).from_pretrained(path, config=config).eval()


# ---- command line -------------------------------------------------------------------------------

def called(spec, *args):
    """What MODULE:FUNCTION yields."""
    sys.path.insert(0, ".")
    module, function = spec.split(":", 1)
    return getattr(importlib.import_module(module), function)(*args)


def samples_of(args):
    if args.policy:
        policy = load_policy(args.policy)
        return capture_policy(policy, called(args.samples, policy) if ":" in args.samples else
                              read_observations(args.samples))
    model, processor = load_model(args)
    batches = read_jsonl(args.samples, processor) if processor else called(args.samples, model, processor)
    return capture_model(model, batches, find_language_model(model, args.language_model))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", help="checkpoint directory or hub name")
    parser.add_argument("--policy", help="a LeRobot policy in place of a model")
    parser.add_argument("--samples", required=True, help="FILE.jsonl, FILE.safetensors or MODULE:FUNCTION")
    parser.add_argument("-o", "--output", required=True, type=Path)
    parser.add_argument("--dataset", help="name that evidence will give (default: the samples' name)")
    parser.add_argument("--language-model", help="attribute path of the module that has the layers")
    parser.add_argument("--limit", type=int, help="capture this many samples")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--trust", action="store_true", help="run code that comes with the checkpoint")
    args = parser.parse_args()
    if (args.model is None) == (args.policy is None):
        parser.error("give either a model or --policy")
    if args.output.exists():
        raise SystemExit(f"{args.output} exists")
    samples = []
    for sample in samples_of(args):
        samples.append(sample)
        if len(samples) == args.limit:
            break
    if not samples:
        raise SystemExit("there were no samples")
    save(samples, args.output, args.dataset or args.samples)


if __name__ == "__main__":
    main()
