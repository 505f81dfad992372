"""examples/capture_inputs.py: what it captures of VLMs with images is what the whole model, with its tower, makes of them.

For each model: `fp8q eval` on the captured inputs, beside the logits of transformers for the same images and prompts, of
the source and of the dequantized output.
"""
import json
import os
import sys
import unittest

import torch
import transformers

import common as c
from test_forward import SMALL, VISION, shaken

sys.path.insert(0, os.path.join(c.HERE, "..", "..", "examples"))
import capture_inputs as capture  # noqa: E402

IMAGE = 319  # the id of image tokens
MROPE = dict(rope_parameters={"rope_type": "default", "rope_theta": 1e4, "mrope_section": [16, 8, 8]})
QWEN_IDS = dict(image_token_id=IMAGE, video_token_id=318, vision_start_token_id=317, vision_end_token_id=316)
CATEGORIES = ("charts", "photos", "charts")


def random(*shape, seed=7):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def prompt(n_image, seed, n_text=24):
    """Text, an image, text."""
    g = torch.Generator().manual_seed(seed)
    return torch.cat([torch.randint(3, 300, (5 + seed,), generator=g), torch.full((n_image,), IMAGE),
                      torch.randint(3, 300, (n_text,), generator=g)])[None]


def qwen(seed):
    grid = (1, 4, 4 + 4 * (seed % 2))
    ids = prompt(grid[1] * grid[2] // 4, seed)
    return dict(input_ids=ids, attention_mask=torch.ones_like(ids), image_grid_thw=torch.tensor([grid]),
                pixel_values=random(grid[1] * grid[2], 3 * 2 * 14 * 14, seed=seed) * 0.5,
                mm_token_type_ids=(ids == IMAGE).int())


def qwen3(seed):
    batch = qwen(seed)
    grid = batch["image_grid_thw"][0]
    return batch | dict(pixel_values=random(int(grid[1] * grid[2]), 3 * 2 * 16 * 16, seed=seed) * 0.5)


def pixels(seed, images=None):
    ids = prompt(4, seed)
    values = random(1, 3, 28, 28, seed=seed) * 0.5
    return dict(input_ids=ids, attention_mask=torch.ones_like(ids),
                pixel_values=values[None] if images else values)


def prefixed(seed):
    """PaliGemma: image and prompt see one another, the answer is causal."""
    batch = pixels(seed)
    types = torch.ones_like(batch["input_ids"])
    types[0, :20 + seed] = 0
    return batch | dict(token_type_ids=types)


def paligemma():
    return transformers.PaliGemmaForConditionalGeneration(transformers.PaliGemmaConfig(
        text_config=SMALL | dict(model_type="gemma"), vision_config=VISION, image_token_id=IMAGE, projection_dim=256,
        vocab_size=320))


def smolvlm():
    return transformers.SmolVLMForConditionalGeneration(transformers.SmolVLMConfig(
        text_config=SMALL | dict(model_type="llama"), vision_config=VISION, image_token_id=IMAGE, scale_factor=1))


def internvl():
    return transformers.InternVLForConditionalGeneration(transformers.InternVLConfig(
        text_config=SMALL | dict(model_type="qwen2"), image_token_id=IMAGE, downsample_ratio=1.0,
        vision_config=dict(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
                           image_size=[28, 28], patch_size=[14, 14])))


def llava():
    return transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(
        text_config=SMALL | dict(model_type="llama"), vision_config=VISION, image_token_index=IMAGE,
        vision_feature_select_strategy="full", vision_feature_layer=-1))


def qwen2_5_vl():
    vision = dict(depth=2, hidden_size=64, intermediate_size=64, num_heads=2, out_hidden_size=256, fullatt_block_indexes=[1],
                  patch_size=14)
    return transformers.Qwen2_5_VLForConditionalGeneration(transformers.Qwen2_5_VLConfig(
        text_config=SMALL | MROPE, vision_config=vision, **QWEN_IDS))


def qwen3_vl():
    text = SMALL | dict(rope_parameters=MROPE["rope_parameters"] | {"mrope_interleaved": True})
    vision = dict(depth=2, hidden_size=64, intermediate_size=64, num_heads=2, out_hidden_size=256,
                  deepstack_visual_indexes=[0, 1], num_position_embeddings=64)
    return transformers.Qwen3VLForConditionalGeneration(transformers.Qwen3VLConfig(
        text_config=text, vision_config=vision, **QWEN_IDS))


# name: (model, inputs of a seed, tensors of a sample that must be there beside the usual ones)
CASES = {
    "qwen2.5-vl": (qwen2_5_vl, qwen, {"position_ids"}),
    "qwen3-vl": (qwen3_vl, qwen3, {"position_ids", "deepstack.0", "deepstack.1"}),
    "smolvlm": (smolvlm, lambda seed: pixels(seed, images=True), set()),
    "paligemma": (paligemma, prefixed, {"prefix_len"}),
    "internvl": (internvl, pixels, set()),
    "llava": (llava, pixels, set()),
}


def log_probs(model, batches):
    """Of the positions that predict text, prompts of a prefix left out."""
    out = []
    for batch in batches:
        with torch.no_grad():
            p = torch.log_softmax(model(**batch, use_cache=False).logits[0].double(), -1)[:-1]
        scored = batch["input_ids"][0, 1:] != IMAGE
        if "token_type_ids" in batch:
            scored &= batch["token_type_ids"][0, 1:] == 1
        out.append((p[scored], batch["input_ids"][0, 1:][scored], batch["input_ids"][0, :-1][scored] == IMAGE))
    return out


class Captured(unittest.TestCase):
    def compare(self, name):
        make, inputs, wanted = CASES[name]
        directory = os.path.join(c.WORK, "capture-" + name)
        torch.manual_seed(1)
        model = shaken(make().float().eval(), 3)
        model.save_pretrained(directory)
        batches = [inputs(seed) for seed in range(len(CATEGORIES))]
        samples = list(capture.capture_model(model, [b | {"category": k} for b, k in zip(batches, CATEGORIES)]))
        self.assertEqual(set(samples[0]), wanted | set(samples[0]) & {"position_ids"} |
                         {"inputs_embeds", "labels", "modality", "loss_mask", "category"})
        file = directory + ".inputs.safetensors"
        capture.save(samples, file, "pictures")
        self.assertEqual(c.fp8q("quantize", directory, directory + "-q", "-q")[0], 0)
        self.assertEqual(c.fp8q("dequantize", directory + "-q", directory + "-d", "--dtype", "f32", "-q")[0], 0)
        status, found = c.fp8q_json("eval", directory, directory + "-q", "--inputs", file, "--acts", "none")
        self.assertEqual(status, 0, found)
        self.assertEqual(found["warnings"], [])

        wide = type(model).from_pretrained(directory + "-d", dtype=torch.float32, attn_implementation="eager").eval()
        source, output = log_probs(model, batches), log_probs(wide, batches)
        klds = [(p.exp() * (p - q)).sum(-1) for (p, _, _), (q, _, _) in zip(source, output)]
        for (p, targets, _), kld, sample, category in zip(source, klds, found["samples"], CATEGORIES):
            self.assertEqual((sample["tokens"], sample["category"]), (len(targets), category))
            self.assertAlmostEqual(sample["nll_source"], -p.gather(1, targets[:, None]).mean().item(), delta=5e-5)
            self.assertAlmostEqual(sample["kld"] / kld.mean().item(), 1, delta=0.01)
        self.assertAlmostEqual(found["kld"]["mean"] / torch.cat(klds).mean().item(), 1, delta=0.01)
        self.parts(found, klds, source)

    def parts(self, found, klds, source):
        """Figures by category and by modality against means of torch's."""
        for k in set(CATEGORIES):
            part = next(p for p in found["categories"] if p["name"] == k)
            mine = torch.cat([x for x, category in zip(klds, CATEGORIES) if category == k])
            self.assertEqual((part["tokens"], part["samples"]), (len(mine), CATEGORIES.count(k)))
            self.assertAlmostEqual(part["kld"] / mine.mean().item(), 1, delta=0.01)
        for number, name in enumerate(("text", "image")):
            mine = torch.cat([x[image == bool(number)] for x, (_, _, image) in zip(klds, source)])
            part = [p for p in found.get("modalities", []) if p["modality"] == number]
            self.assertEqual(len(part), int(len(mine) > 0 and "modalities" in found))
            if part:
                self.assertEqual((part[0]["name"], part[0]["tokens"]), (name, len(mine)))
                self.assertAlmostEqual(part[0]["kld"] / mine.mean().item(), 1, delta=0.01)

    def test_what_cannot_be_run_is_refused(self):
        mask = torch.ones(6, 6, dtype=torch.bool).tril()
        self.assertEqual(capture.prefix_of(mask), 0)
        mask[:3, :3] = True
        self.assertEqual(capture.prefix_of(mask), 3)
        mask[3:5, 3:5] = True  # an image behind text, as in Gemma 3
        self.assertRaises(SystemExit, capture.prefix_of, mask)

    def test_command(self):
        """The command line, with a function for samples."""
        directory = os.path.join(c.WORK, "capture-command")
        torch.manual_seed(1)
        shaken(internvl().float().eval(), 3).save_pretrained(directory)
        out = directory + ".inputs.safetensors"
        arguments = ["x", directory, "--samples", "test_capture:for_command", "-o", out, "--dtype", "float32", "--limit", "2"]
        old, sys.argv = sys.argv, arguments
        try:
            capture.main()
            self.assertRaises(SystemExit, capture.main)  # it is there already
        finally:
            sys.argv = old
        tensors = c.read(out)
        self.assertEqual(sorted(tensors)[0], "0.category")
        self.assertEqual(bytes(tensors["1.category"].tolist()), b"photos")
        self.assertNotIn("2.labels", tensors)


def for_command(model, processor):
    return [pixels(seed) | {"category": k} for seed, k in enumerate(CATEGORIES)]


for key in CASES:
    setattr(Captured, "test_" + key.replace("-", "_").replace(".", "_"), lambda self, k=key: self.compare(k))

if __name__ == "__main__":
    unittest.main()
