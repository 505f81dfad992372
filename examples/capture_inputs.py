#!/usr/bin/env python3
"""Capture what a vision-language (or vision-language-action) model feeds to its language model.

    python examples/capture_inputs.py MODEL --samples samples.jsonl -o task.inputs.safetensors
    python examples/capture_inputs.py MODEL --samples my_module:batches -o task.inputs.safetensors

The vision tower and the projector are not quantized, so the embeddings that enter the language model are the
same for the original and the FP8 checkpoint: captured once, they let `fp8q eval`, `calibrate` and `sweep` work on real
multimodal inputs without running the tower. Needs torch, transformers, safetensors; a GPU helps but is not needed.

Samples are either JSON lines, {"text": "...", "images": ["a.jpg"]} (a plain prompt) or {"messages": [...],
"images": [...]} (for the chat template), turned into inputs by the checkpoint's own processor; or MODULE:FUNCTION, a Python
function that gets (model, processor) and yields keyword arguments of one forward call each, with a batch of one. The
latter is the way in for policies: yield what the policy feeds to its backbone.

For each sample i the file holds i.inputs_embeds BF16 [T,H], i.position_ids I64 [T] or [3,T], i.labels I64 [T] (the ids), i.modality
U8 [T] (0 text, 1 image or video) and i.loss_mask U8 [T] (1 where the token is text: predicting image tokens means nothing).
"""
import argparse
import importlib
import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

VISION_TOKENS = ("image_token_id", "video_token_id", "image_token_index", "video_token_index")


def find_language_model(model, path):
    """The module that takes inputs_embeds: by its attribute path, or where transformers keeps it."""
    if path:
        for part in path.split("."):
            model = getattr(model, part)
        return model
    for candidate in ("model.language_model", "language_model.model", "language_model", "model.text_model", "model"):
        found = model
        for part in candidate.split("."):
            found = getattr(found, part, None)
        if found is not None and hasattr(found, "layers"):
            return found
    raise SystemExit("no language model found: name it with --language-model (such as model.language_model)")


def vision_ids(config):
    return {getattr(config, name) for name in VISION_TOKENS if getattr(config, name, None) is not None}


class Capture:
    """Remembers embeddings and positions of the language model's last call."""

    def __init__(self, language_model):
        self.embeds = self.positions = None
        language_model.register_forward_pre_hook(self.hook, with_kwargs=True)

    def hook(self, module, args, kwargs):
        embeds = kwargs.get("inputs_embeds")
        if embeds is None:
            ids = kwargs.get("input_ids", args[0] if args else None)
            embeds = module.get_input_embeddings()(ids)
        if embeds.shape[0] != 1:
            raise SystemExit("one sample a batch, please: padding would be captured as tokens")
        self.embeds, self.positions = embeds[0].detach(), kwargs.get("position_ids")

    def position_rows(self):
        """[T] or [3,T]; None where the model counts by itself."""
        p = self.positions
        if p is None:
            return None
        if p.ndim == 3:  # [rows, 1, T]; newer transformers put the text positions before the three
            return p[-3:, 0].long().cpu().contiguous()
        return p.reshape(-1, p.shape[-1])[0].long().cpu().contiguous()


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
        yield dict(processor(text=[text], images=images or None, return_tensors="pt"))


def load(args):
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
    if ":" not in args.samples:
        processor = transformers.AutoProcessor.from_pretrained(args.model, trust_remote_code=args.trust)
    return model.to(args.device).eval(), processor


def capture_all(model, batches, language_model, limit):
    capture, out, n = Capture(language_model), {}, 0
    vision = vision_ids(model.config)
    for batch in batches:
        if limit and n == limit:
            break
        batch = {k: v.to(model.device) if torch.is_tensor(v) else v for k, v in batch.items()}
        with torch.no_grad():
            model(**batch, use_cache=False)
        embeds = capture.embeds.bfloat16().cpu().contiguous()
        if not torch.isfinite(embeds.float()).all():
            raise SystemExit(f"sample {n}: an embedding is NaN or infinite")
        out[f"{n}.inputs_embeds"] = embeds
        positions = capture.position_rows()
        if positions is not None:
            out[f"{n}.position_ids"] = positions
        if "input_ids" in batch:
            ids = batch["input_ids"][0].long().cpu()
            is_vision = torch.tensor([int(i) in vision for i in ids], dtype=torch.uint8)
            out |= {f"{n}.labels": ids.contiguous(), f"{n}.modality": is_vision, f"{n}.loss_mask": 1 - is_vision}
        n += 1
    return out, n


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="checkpoint directory or hub name")
    parser.add_argument("--samples", required=True, help="FILE.jsonl or MODULE:FUNCTION")
    parser.add_argument("-o", "--output", required=True, type=Path)
    parser.add_argument("--dataset", help="name that evidence will give (default: the samples' name)")
    parser.add_argument("--language-model", help="attribute path of the module that takes inputs_embeds")
    parser.add_argument("--limit", type=int, help="capture this many samples")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--trust", action="store_true", help="run code that comes with the checkpoint")
    args = parser.parse_args()
    if args.output.exists():
        raise SystemExit(f"{args.output} exists")
    model, processor = load(args)
    if ":" in args.samples:
        sys.path.insert(0, ".")
        module, function = args.samples.split(":", 1)
        batches = getattr(importlib.import_module(module), function)(model, processor)
    else:
        batches = read_jsonl(args.samples, processor)
    out, n = capture_all(model, batches, find_language_model(model, args.language_model), args.limit)
    if n == 0:
        raise SystemExit("there were no samples")
    save_file(out, args.output, metadata={"format": "fp8q-inputs/1", "dataset": args.dataset or args.samples})
    print(f"{args.output}: {n} samples, {sum(v.shape[0] for k, v in out.items() if k.endswith('embeds'))} tokens")


if __name__ == "__main__":
    main()
