"""LeRobot's own policies with random weights: what their backbone sees, what eval says of it, and what their actions do.

Errors of keys, values and states by `fp8q eval --acts none` are held against those of the policy on dequantized weights.
"""
import json
import os
import sys
import unittest

import torch
from safetensors.torch import save_file

import common as c
import lerobot_policies as lerobot
from test_capture import qwen3

EXAMPLES = os.path.join(c.HERE, "..", "..", "examples")
sys.path[:0] = [EXAMPLES, os.path.join(EXAMPLES, "vla")]
import action_error  # noqa: E402
import capture_inputs as capture  # noqa: E402
from load_fp8 import FP8Linear, load_fp8  # noqa: E402

_made = {}


def policy(name):
    return getattr(lerobot, name)()


def saved(name):
    """Directories of the policy, its FP8 form, and that dequantized; each is made once."""
    if name not in _made:
        source = os.path.join(c.WORK, "policy-" + name)
        policy(name).save_pretrained(source)
        status, _, err = c.fp8q("quantize", source, source + "-q", "-q", "--unaligned", "quantize")
        assert status == 0, err
        status, _, err = c.fp8q("dequantize", source + "-q", source + "-d", "--dtype", "f32", "-q")
        assert status == 0, err
        _made[name] = source
    return _made[name]


def dequantized(name):
    """A policy of the class, with the weights of the dequantized checkpoint."""
    wide = policy(name)
    missing, unexpected = wide.load_state_dict(c.read(saved(name) + "-d"), strict=False)
    assert not unexpected and not missing, (missing, unexpected)
    return wide.eval()


class Listener:
    """Keys and values of a policy's prefix, layer by layer, and its hidden state behind the last norm."""

    def __init__(self, policy_, name):
        self.keys, self.values, self.final = [], [], None
        self.policy, self.name = policy_, name
        self.core = getattr(policy_.model, "paligemma_with_expert", None) or policy_.model.vlm_with_expert

    def listen(self, batch):
        inner = self.core.forward

        def forward(*args, **kwargs):
            first = kwargs["inputs_embeds"][0] is not None and self.final is None
            outputs, cache = inner(*args, **kwargs)
            if first:
                keep = capture.as_allowed(kwargs["attention_mask"][0]).diagonal()
                self.final = outputs[0][0][keep].detach()
                for layer in cache.layers if cache is not None else ():
                    self.keys.append(layer.keys[0].transpose(0, 1).flatten(1)[keep].detach())
                    self.values.append(layer.values[0].transpose(0, 1).flatten(1)[keep].detach())
            return outputs, cache
        self.core.forward = forward
        with torch.no_grad():
            self.policy.forward(dict(batch)) if self.name == "pi0_fast" else self.policy.predict_action_chunk(dict(batch))
        self.core.forward = inner
        return self


def relative(pairs):
    """Over all tokens of all samples."""
    diff = sum(((a - b).double() ** 2).sum() for a, b in pairs)
    return float((diff / sum((a.double() ** 2).sum() for a, _ in pairs)).sqrt())


class Backbones(unittest.TestCase):
    def captured(self, name):
        file = saved(name) + ".inputs.safetensors"
        batches = list(lerobot.observations(fast=name == "pi0_fast"))
        kinds = ("pick up", "pour", "pick up")
        samples = list(capture.capture_policy(policy(name), [b | {"category": [k]} for b, k in zip(batches, kinds)]))
        capture.save(samples, file, "episodes")
        return file, batches

    def evaluated(self, name):
        file, batches = self.captured(name)
        status, found = c.fp8q_json("eval", saved(name), saved(name) + "-q", "--inputs", file, "--acts", "none")
        self.assertEqual(status, 0, found)
        self.assertEqual(found["quantized_linears"], 21)
        return found, batches

    def states(self, name):
        """Errors of what the expert reads, beside those of the policy on dequantized weights."""
        found, batches = self.evaluated(name)
        source, wide = policy(name), dequantized(name)
        a = [Listener(source, name).listen(b) for b in batches]
        b = [Listener(wide, name).listen(b) for b in batches]
        self.assertAlmostEqual(found["final_error"] / relative([(x.final, y.final) for x, y in zip(a, b)]), 1, delta=0.01)
        if a[0].keys:
            self.assertEqual(len(found["key_error"]), len(a[0].keys))
        for layer in range(len(a[0].keys)):
            for mine, his in (("keys", "key_error"), ("values", "value_error")):
                expected = relative([(getattr(x, mine)[layer], getattr(y, mine)[layer]) for x, y in zip(a, b)])
                self.assertGreater(expected, 1e-3)
                self.assertAlmostEqual(found[his][layer] / expected, 1, delta=0.01, msg=f"{name} {mine} {layer}")
            self.assertEqual(found["worst_layer"]["keys"], max(range(len(a[0].keys)), key=lambda i: found["key_error"][i]))
        return found

    def test_pi05(self):
        found = self.states("pi05")
        self.assertEqual((found["tokens"], found["kld"]["mean"]), (0, None))

    def test_pi0(self):
        self.states("pi0")

    def test_smolvla(self):
        self.states("smolvla")

    def test_pi0_fast(self):
        """Action tokens have logits."""
        found = self.states("pi0_fast")
        batches = list(lerobot.observations(fast=True))
        source, wide = policy("pi0_fast"), dequantized("pi0_fast")
        klds = []
        for batch in batches:
            p, q = (torch.log_softmax(self.logits(x, batch).double(), -1) for x in (source, wide))
            klds.append((p.exp() * (p - q)).sum(-1))
        self.assertEqual(found["tokens"], sum(len(k) for k in klds))
        self.assertAlmostEqual(found["kld"]["mean"] / torch.cat(klds).mean().item(), 1, delta=0.01)
        part = {p["name"]: p for p in found["categories"]}
        self.assertEqual((part["pick up"]["samples"], part["pour"]["samples"]), (2, 1))
        self.assertAlmostEqual(part["pour"]["kld"] / klds[1].mean().item(), 1, delta=0.01)
        self.assertEqual([p["name"] for p in found["modalities"]], ["action"])

    def test_groot(self):
        """The action head reads the state behind the last layer that was left, before any norm."""
        where = os.path.join(c.WORK, "policy-groot")
        one = lerobot.groot_backbone(where + "-config")
        batches = [qwen3(seed) for seed in range(3)]
        file = where + ".inputs.safetensors"
        samples = list(capture.capture_policy(one, [b | {"category": ["x"]} for b in batches]))
        self.assertEqual(set(samples[0]), {"inputs_embeds", "position_ids", "modality", "deepstack.0", "category"})
        capture.save(samples, file, "episodes")
        backbone = one._groot_model.backbone
        os.makedirs(where)
        c.make({f"backbone.{k}": v.contiguous() for k, v in backbone.state_dict().items() if k != "model.lm_head.weight"},
               {"model_type": "Gr00tN1d7"}, path=where)
        self.assertEqual(c.fp8q("quantize", where, where + "-q", "-q")[0], 0)
        self.assertEqual(c.fp8q("dequantize", where + "-q", where + "-d", "--dtype", "f32", "-q")[0], 0)
        status, found = c.fp8q_json("eval", where, where + "-q", "--inputs", file, "--acts", "none")
        self.assertEqual(status, 0, found)
        self.assertEqual((found["quantized_linears"], len(found["layer_error"])), (14, 2))

        wide = lerobot.groot_backbone(where + "-config")._groot_model.backbone
        wide.load_state_dict({k.removeprefix("backbone."): v for k, v in c.read(where + "-d").items()}, strict=False)
        with torch.no_grad():
            pairs = [(backbone(dict(b))["backbone_features"][0], wide(dict(b))["backbone_features"][0]) for b in batches]
        self.assertGreater(relative(pairs), 1e-3)
        self.assertAlmostEqual(found["layer_error"][1] / relative(pairs), 1, delta=0.01)

    def logits(self, policy_, batch):
        """Those that the loss of pi0-FAST is taken of."""
        seen = []
        head = policy_.model.paligemma_with_expert.paligemma.lm_head
        hook = head.register_forward_hook(lambda module, args, out: seen.append(out[0, :-1]))
        with torch.no_grad():
            policy_.forward(dict(batch))
        hook.remove()
        return seen[0]


class Actions(unittest.TestCase):
    """A policy with FP8 weights acts as the dequantized one does, and the gate judges how far it went."""

    def pair(self, name):
        observations = [o | {"action": torch.zeros(1, 8, lerobot.ACTION_DIM)} for o in lerobot.observations(n=6, n_text=20)]
        return action_error.compare(policy(name), lambda p: load_fp8(p, saved(name) + "-q"), observations)

    def acts(self, name):
        base, fp8 = self.pair(name)
        self.assertTrue(all(item["action_mse"] == 0 and item["noise"] > 0 for item in base))
        self.assertTrue(all(0 < item["action_mse"] < item["noise"] for item in fp8), fp8)
        self.assertTrue(all("demo_mse" in item for item in base + fp8))
        loaded = load_fp8(policy(name), saved(name) + "-q")
        self.assertEqual(sum(isinstance(m, FP8Linear) for m in loaded.modules()), 21)
        wide, batch = dequantized(name), next(lerobot.observations())
        self.assertTrue(torch.equal(action_error.act(loaded, batch, 3), action_error.act(wide, batch, 3)))
        return base, fp8

    def test_pi05(self):
        base, fp8 = self.acts("pi05")
        folder = c.fresh_dir()
        files = [os.path.join(folder, n) for n in ("base.jsonl", "fp8.jsonl")]
        for path, results in zip(files, (base, fp8)):
            action_error.write(action_error.pathlib.Path(path), results)
        worst = max(item["action_mse"] for item in fp8)
        for margin, passes in ((10 * worst, True), (worst / 100, False)):
            policy_file = os.path.join(folder, "gate.json")
            with open(policy_file, "w", encoding="utf-8") as f:
                json.dump({"schema": "fp8q-policy/1", "eval": {"required": False}, "tasks": {
                    "required": ["action"], "per_task": {"action": {"metric": "action_mse", "margin": margin}}}}, f)
            _, found = c.fp8q_json("gate", saved("pi05") + "-q", "--policy", policy_file, "--task",
                                   "action:" + ":".join(files))
            check = next(x for x in found["checks"] if x["id"] == "task.action")
            self.assertEqual((check["status"] == "pass", check["n"]), (passes, 6), found)

    def test_smolvla(self):
        self.acts("smolvla")

    def test_command_lines(self):
        """From a folder of LeRobot's: its own loading, then captures and results in files."""
        source, folder = saved("pi05"), c.fresh_dir()
        observations, inputs, results = (os.path.join(folder, n) for n in ("o.safetensors", "x.safetensors", "results"))
        save_file({f"{i}.{key}": value[0].contiguous() for i, batch in enumerate(lerobot.observations())
                   for key, value in batch.items()}, observations)
        old = sys.argv
        try:
            sys.argv = ["x", "--policy", source, "--samples", observations, "-o", inputs]
            capture.main()
            sys.argv = ["x", source, source + "-q", "--observations", observations, "-o", results]
            action_error.main()
        finally:
            sys.argv = old
        self.assertEqual(c.read(inputs)["2.prefix_len"].item(), 22)
        lines = [[json.loads(line) for line in open(os.path.join(results, name + ".jsonl"), encoding="utf-8")]
                 for name in ("base", "fp8")]
        self.assertEqual([[x["action_mse"] > 0 for x in side] for side in lines], [[False] * 3, [True] * 3])

    def test_observations_on_disk(self):
        """Stored observations come back as batches of one."""
        file = os.path.join(c.fresh_dir(), "observations.safetensors")
        stored, batches = {}, list(lerobot.observations())
        for i, batch in enumerate(batches):
            stored |= {f"{i}.{key}": value[0].contiguous() for key, value in batch.items()}
        stored["1.category"] = torch.tensor(list("groß".encode()), dtype=torch.uint8)
        save_file(stored, file)
        found = list(capture.read_observations(file))
        self.assertEqual(found[1].pop("category"), ["groß"])
        for a, b in zip(found, batches):
            self.assertEqual(sorted(a), sorted(b))
            self.assertTrue(all(torch.equal(a[k], b[k]) for k in a))


if __name__ == "__main__":
    unittest.main()
