#!/usr/bin/env python3
"""Reference figures for tests/unit/test_measure_eval.c, by transformers in float32.

    python tests/reference/eval_reference.py            writes tests/data/eval/

Needs torch, transformers >= 5 and safetensors. Shares no code with fp8q: models are transformers' own
classes, quantization is torch's cast to float8_e4m3fn. For every case: the negative log-likelihood of each
scored token of the source, and KL divergence, top-1 agreement and perplexity of the quantized model, weight-only
(w8a16) and with activations quantized per token and 128 channels (w8a8).

A case is a checkpoint of tests/data/checkpoints, sometimes with a changed config.json (stored in the case), run
on text.inputs.safetensors or, for the VL models, on vl.inputs.safetensors: embeddings with three rows of positions, a
loss mask, labels and modalities.
"""
import copy
import json
import re
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2_5_VLForConditionalGeneration

torch.set_num_threads(1)
ROOT = Path(__file__).resolve().parents[1] / "data"
CHECKPOINTS, OUT = ROOT / "checkpoints", ROOT / "eval"
LINEAR = re.compile(r"(^|\.)layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)$")


# ---------------------------------------------------------------- inputs

def make_inputs():
    g = torch.Generator().manual_seed(7)
    text = {f"{i}.input_ids": torch.randint(0, 128, (n,), generator=g) for i, n in enumerate((96, 57, 130))}
    text["1.input_ids"] = text["1.input_ids"].int()
    save_file(text, OUT / "text.inputs.safetensors", metadata={"dataset": "random ids"})
    vl = {}
    for i, (n, image) in enumerate(((80, 36), (64, 16))):
        side = int(image ** 0.5)
        grid = torch.stack([torch.zeros(image, dtype=torch.long), torch.arange(image) // side,
                            torch.arange(image) % side]) + 5
        before, after = torch.arange(5).expand(3, 5), torch.arange(n - 5 - image).expand(3, -1) + 5 + side
        vl[f"{i}.position_ids"] = torch.cat([before, grid, after], 1).contiguous()
        vl[f"{i}.inputs_embeds"] = (torch.randn(n, 256, generator=g) * 0.05).bfloat16()
        vl[f"{i}.labels"] = torch.randint(0, 128, (n,), generator=g)
        vl[f"{i}.modality"] = torch.tensor([0] * 5 + [1] * image + [0] * (n - 5 - image), dtype=torch.uint8)
        vl[f"{i}.loss_mask"] = 1 - vl[f"{i}.modality"]
    vl["1.labels"][50] = -100
    save_file(vl, OUT / "vl.inputs.safetensors", metadata={"dataset": "random embeddings"})

    make_policy_inputs()


def make_policy_inputs():
    """What the backbone of pi0.5 sees: an image and a command that see one another. For the guide."""
    g, pi05 = torch.Generator().manual_seed(8), {}
    for i, (words, task) in enumerate(((9, "pick up"), (14, "pour"), (7, "pick up"), (11, "pour"))):
        n = 16 + words
        pi05[f"{i}.inputs_embeds"] = torch.randn(n, 128, generator=g).bfloat16()
        pi05[f"{i}.position_ids"] = torch.arange(n)
        pi05[f"{i}.prefix_len"] = torch.tensor([n])
        pi05[f"{i}.modality"] = (torch.arange(n) < 16).to(torch.uint8)
        pi05[f"{i}.category"] = torch.tensor(list(task.encode()), dtype=torch.uint8)
    save_file(pi05, OUT / "pi05.inputs.safetensors", metadata={"format": "fp8q-inputs/1", "dataset": "random"})


def load_samples(name):
    with safe_open(OUT / name, "pt") as f:
        t = {k: f.get_tensor(k) for k in f.keys()}
    samples = {}
    for k, v in t.items():
        i, field = k.split(".", 1)
        samples.setdefault(int(i), {})[field] = v
    return [samples[i] for i in sorted(samples)]


# ---------------------------------------------------------------- quantization

def fake_quant_weight(w):
    n, k = w.shape
    padded = torch.zeros(-(-n // 128) * 128, -(-k // 128) * 128)
    padded[:n, :k] = w
    blocks = padded.view(padded.shape[0] // 128, 128, -1, 128)
    amax = blocks.abs().amax((1, 3), keepdim=True)
    scale = torch.where(amax == 0, torch.ones_like(amax), amax / 448)
    codes = (blocks / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    return (codes * scale).view_as(padded)[:n, :k].contiguous()


def fake_quant_acts(x):
    groups = x.split(128, -1)
    out = []
    for g in groups:
        amax = g.abs().amax(-1, keepdim=True)
        scale = torch.where(amax == 0, torch.ones_like(amax), amax / 448)
        out.append((g / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scale)
    return torch.cat(out, -1)


def quantized(model, acts):
    model = copy.deepcopy(model)
    for name, module in model.named_modules():
        if LINEAR.search(name) and "visual" not in name:
            module.weight.data = fake_quant_weight(module.weight.data)
            if acts:
                module.register_forward_pre_hook(lambda m, a: (fake_quant_acts(a[0]),) + a[1:])
    return model


# ---------------------------------------------------------------- figures

@torch.no_grad()
def log_probs(model, samples):
    """[(log-probabilities of scored positions, targets)] by sample."""
    out = []
    for s in samples:
        kw = {}
        if "position_ids" in s:
            kw["position_ids"] = s["position_ids"][..., None, :] if s["position_ids"].ndim == 2 else s["position_ids"][None]
        if "inputs_embeds" in s:
            kw["inputs_embeds"] = s["inputs_embeds"].float()[None]
        else:
            kw["input_ids"] = s["input_ids"].long()[None]
        logits = model(**kw).logits[0].double()
        target = s.get("labels", s.get("input_ids")).long()[1:]
        scored = s["loss_mask"][1:] != 0 if "loss_mask" in s else torch.ones_like(target, dtype=torch.bool)
        out.append((torch.log_softmax(logits[:-1][scored], -1), target[scored]))
    return out


def compare(source, output):
    kld = [(p.exp() * (p - q)).sum(-1) for (p, _), (q, _) in zip(source, output)]
    same = [(p.argmax(-1) == q.argmax(-1)).double() for (p, _), (q, _) in zip(source, output)]
    nll = [-q.gather(1, t.clamp(min=0)[:, None])[:, 0][t >= 0] for q, t in output]
    return {"kld": torch.cat(kld).mean().item(), "kld_max": torch.cat(kld).max().item(),
            "top1": torch.cat(same).mean().item(), "nll": torch.cat(nll).mean().item(),
            "sample_kld": [k.mean().item() for k in kld]}


def run_case(name, checkpoint, change=None, inputs="text.inputs.safetensors"):
    """@change: function that alters the parsed config.json in place."""
    path = CHECKPOINTS / checkpoint
    case = {"name": name, "checkpoint": checkpoint, "inputs": inputs}
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp) / checkpoint
        shutil.copytree(path, work)
        if change:
            config = json.loads((path / "config.json").read_text())
            change(config)
            case["config"] = json.dumps(config)
            (work / "config.json").write_text(case["config"])
        kind = Qwen2_5_VLForConditionalGeneration if "vl" in checkpoint else AutoModelForCausalLM
        model = kind.from_pretrained(work, dtype=torch.float32, attn_implementation="eager").eval()
    samples = load_samples(inputs)
    # On copies: dynamic rotary embeddings remember the longest sample that they have seen.
    source = log_probs(copy.deepcopy(model), samples)
    case["nll"] = [round(x, 7) for p, t in source for x in (-p.gather(1, t.clamp(min=0)[:, None])[:, 0]).where(t >= 0, 0.0).tolist()]
    case["w8a16"] = compare(source, log_probs(quantized(model, False), samples))
    case["w8a8"] = compare(source, log_probs(quantized(model, True), samples))
    print(f"{name:24s} kld w8a16 {case['w8a16']['kld']:.3e} w8a8 {case['w8a8']['kld']:.3e} top1 {case['w8a8']['top1']:.4f}"
          f" nll {sum(case['nll']) / len(case['nll']):.4f}")
    return case


def rope(**parameters):
    def change(config):
        config["rope_parameters"] = {"rope_theta": 10000.0} | parameters
    return change


def old_rope(config):
    """As transformers 4 wrote it: rope_theta and rope_scaling with "type"."""
    del config["rope_parameters"]
    config |= {"rope_theta": 500000.0, "rope_scaling": {"type": "linear", "factor": 2.0}}


def mistral(config):
    config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 32}


def windows(config):
    config |= {"use_sliding_window": True, "sliding_window": 24, "layer_types": ["sliding_attention"]}


def short_dynamic(config):
    config["max_position_embeddings"] = 64
    rope(rope_type="dynamic", factor=4.0)(config)


def biased(config):
    config["rope_parameters"]["rope_theta"] = 1e6


# ---------------------------------------------------------------- statistics

@torch.no_grad()
def statistics(checkpoint, module, inputs):
    """What `fp8q calibrate` must write for one input, the first 6 channels of it, by a hook."""
    kind = Qwen2_5_VLForConditionalGeneration if "vl" in checkpoint else AutoModelForCausalLM
    model = kind.from_pretrained(CHECKPOINTS / checkpoint, dtype=torch.float32, attn_implementation="eager").eval()
    seen = []
    (layer,) = [m for n, m in model.named_modules() if n.endswith(module)]
    layer.register_forward_pre_hook(lambda m, a: seen.append(a[0][0].double()))
    samples = load_samples(inputs)
    log_probs(model, samples)
    longest = max(len(x) for x in seen)
    run = 64 if longest > 192 else max(longest // 4, 1)
    held = [torch.arange(len(x)) // run % 4 == 3 for x in seen]  # fewer than 4 samples: every fourth run
    x, held = torch.cat(seen), torch.cat(held)
    modality = torch.cat([s.get("modality", torch.zeros(len(v), dtype=torch.uint8)) for s, v in zip(samples, seen)])
    unit = x / x.norm(dim=1, keepdim=True)
    tiles = torch.cat([t.abs().amax(1) for t in x.split(128, 1)])
    bins = torch.floor(torch.log2(tiles)).clamp(-40, 23).long() + 40
    groups = range(int(modality.max()) + 1)
    return {"checkpoint": checkpoint, "module": module, "inputs": inputs,
            "count": [int((modality == g).sum()) for g in groups],
            "sum": [x[modality == g].sum(0)[:6].tolist() for g in groups],
            "sumsq": [(x[modality == g] ** 2).sum(0)[:6].tolist() for g in groups],
            "absmax": [x[modality == g].abs().amax(0)[:6].tolist() for g in groups],
            "hblk_count": [int((~held).sum()), int(held.sum())],
            "hblk": (unit[~held, :6].T @ unit[~held, :6]).flatten().tolist(),
            "hblk_held": (unit[held, :6].T @ unit[held, :6]).flatten().tolist(),
            "amax_hist": torch.bincount(bins, minlength=64).tolist()}


def main():
    OUT.mkdir(exist_ok=True)
    make_inputs()
    vl = "vl.inputs.safetensors"
    cases = [
        run_case("llama-tied", "llama-tied"),
        run_case("llama-untied", "llama-untied"),
        run_case("llama-f16", "llama-f16"),
        run_case("llama-f32", "llama-f32"),
        run_case("qwen2", "qwen2"),
        run_case("qwen3", "qwen3"),
        run_case("qwen2.5-vl-new", "qwen2.5-vl-new", inputs=vl),
        run_case("qwen2.5-vl-old", "qwen2.5-vl-old", inputs=vl),
        run_case("qwen2.5-vl-text", "qwen2.5-vl-new"),
        run_case("mistral-window", "llama-untied", mistral),
        run_case("qwen2-window", "qwen2", windows),
        run_case("qwen2-theta", "qwen2", biased),
        run_case("rope-old-linear", "llama-untied", old_rope),
        run_case("rope-linear", "llama-untied", rope(rope_type="linear", factor=4.0)),
        run_case("rope-dynamic", "llama-untied", short_dynamic),
        run_case("rope-yarn", "llama-untied",
                 rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=512)),
        run_case("rope-llama3", "llama-untied",
                 rope(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=64)),
    ]
    calibration = [
        statistics("llama-untied", "layers.1.mlp.down_proj", "text.inputs.safetensors"),
        statistics("llama-untied", "layers.0.self_attn.q_proj", "text.inputs.safetensors"),
        statistics("qwen2.5-vl-new", "layers.0.mlp.gate_proj", vl),
    ]
    (OUT / "reference.json").write_text(
        json.dumps({"format": "eval-reference/1", "cases": cases, "calibration": calibration}, indent=0) + "\n")


if __name__ == "__main__":
    main()
