#!/usr/bin/env python3
"""examples/capture_inputs.py on the small Qwen2.5-VL, and `fp8q eval` on what it captured.

    python tests/reference/capture_test.py build/release/fp8q

Not part of ctest: needs torch and transformers. Checks that the captured embeddings, positions and labels give, in fp8q, the
negative log-likelihood that the whole model (vision tower included) gives in torch.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests/data/checkpoints/qwen2.5-vl-new"


def batches(model, processor):
    g = torch.Generator().manual_seed(3)
    config = model.config
    for grid in ((1, 4, 4), (1, 4, 8)):
        n = grid[0] * grid[1] * grid[2] // 4
        ids = torch.cat([torch.randint(1, 100, (7,), generator=g), torch.tensor([config.vision_start_token_id]),
                         torch.full((n,), config.image_token_id), torch.tensor([config.vision_end_token_id]),
                         torch.randint(1, 100, (20,), generator=g)])[None]
        patch = config.vision_config.patch_size ** 2 * 2 * 3
        yield {"input_ids": ids, "attention_mask": torch.ones_like(ids), "image_grid_thw": torch.tensor([grid]),
               "pixel_values": torch.randn(grid[1] * grid[2], patch, generator=g) * 0.5,
               "mm_token_type_ids": (ids == config.image_token_id).int()}


def expected_nll():
    from transformers import AutoModelForImageTextToText
    model = AutoModelForImageTextToText.from_pretrained(MODEL, dtype=torch.bfloat16).eval()
    from capture_inputs import Capture, find_language_model
    capture, total, n = Capture(find_language_model(model, None)), 0.0, 0
    calls = []
    for batch in batches(model, None):
        with torch.no_grad():
            model(**batch, use_cache=False)
        calls.append((capture.embeds.float()[None], capture.positions, batch["input_ids"][0]))
    model = model.float()
    for embeds, positions, ids in calls:
        with torch.no_grad():
            h = model.model.language_model(inputs_embeds=embeds, position_ids=positions).last_hidden_state
            logp = torch.log_softmax(model.lm_head(h)[0].double(), -1)
        text = ids[1:] != model.config.image_token_id
        total -= logp[:-1].gather(1, ids[1:, None])[text].sum().item()
        n += int(text.sum())
    return total / n, n


def main():
    sys.path[:0] = [str(ROOT / "tools"), str(Path(__file__).parent)]
    with tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp) / "x.inputs.safetensors"
        subprocess.run([sys.executable, str(ROOT / "examples/capture_inputs.py"), str(MODEL), "--samples",
                        "capture_test:batches", "-o", str(out)], check=True, cwd=Path(__file__).parent,
                       env=os.environ | {"PYTHONPATH": str(Path(__file__).parent)})
        run = subprocess.run([sys.argv[1], "eval", str(MODEL), str(MODEL), "--inputs", str(out), "--json"], check=True,
                             capture_output=True, text=True)
    import math
    result = json.loads(run.stdout)
    nll, n = expected_nll()
    found = math.log(result["ppl"]["source"])
    print(f"tokens {result['tokens']} (expected {n}), NLL {found:.6f} (torch {nll:.6f})")
    assert result["tokens"] == n and abs(found - nll) < 1e-4


if __name__ == "__main__":
    main()
