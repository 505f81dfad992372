"""Every checkpoint: the action of every tensor, and every byte that is written for it."""
import json
import os
import struct

from common import *

TABLE = expected()
REFUSED = {"deepseek-v3-fp8": 2, "qwen3-fp8-ct": 2}
NOTHING = {"smolvla": 1, "smolvlm-ragged": 1, "gpt-oss": 1, "unknown-family": 1}


def options_of(name):
    return ("--ignore", "visual") if name == "bare-file" else ()


def scheme_of(weight, scales):
    if scales.numel() == 1 and scales.dim() == 1:
        return ref.quantize_tensor(weight)
    if scales.shape[-1] == 1 and scales.shape[-2] == weight.shape[-2]:
        return ref.quantize_channel(weight)
    return ref.quantize_block(weight)


def expected_output(source, actions, suffix, quantize):
    """What the output must hold, from the source tensors and the actions."""
    out = {}
    for name, tensor in source.items():
        if actions[name] == "keep":
            out[name] = tensor
            continue
        split = actions[name] == "split"
        for weight, values in (ref.split_experts(name, tensor) if split else [(name, tensor)]):
            out[weight], out[weight + suffix] = quantize(values)
    return out


def header_of(file):
    with open(file, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        return size, json.loads(f.read(size))


class Actions(Case):
    def test_all(self):
        self.equal(len(TABLE), 32, "checkpoints in EXPECTED.tsv")
        for name, tensors in TABLE.items():
            with self.subTest(name):
                status, answer = fp8q_json("quantize", source_of(name), "--dry-run", *options_of(name))
                self.equal(status, REFUSED.get(name, NOTHING.get(name, 0)), "exit status")
                self.equal("error" in answer, status != 0, "error in the answer")
                got = {t["name"]: (t["dtype"], t["shape"], t["action"]) for t in answer["tensors"]}
                self.equal(sorted(got), sorted(tensors), "names")
                for tensor, (dtype, shape, action, _) in tensors.items():
                    self.equal(got[tensor], (dtype, shape, action), tensor)

    def test_reasons(self):
        """Reasons may be spelt otherwise, but a tower stays a tower."""
        for name, tensors in TABLE.items():
            _, answer = fp8q_json("quantize", source_of(name), "--dry-run", *options_of(name))
            reasons = {t["name"]: t["reason"] for t in answer["tensors"]}
            for tensor, (_, _, action, reason) in tensors.items():
                if action == "quantize" or reason in ("vision", "action", "router", "lm_head"):
                    self.equal(reasons[tensor], reason, f"{name} {tensor}")


class Written(Case):
    """quantize for real, in every dialect and placement that has a meaning for all of them."""

    def check_tensors(self, name, out, suffix="_scale_inv", ue8m0=False):
        source = read(source_of(name))
        actions = {t: "split" if reason == "expert-split" else action
                   for t, (_, _, action, reason) in TABLE[name].items()}
        want = expected_output(source, actions, suffix, lambda w: ref.quantize_block(w, ue8m0))
        got = read_output(out)
        self.equal(sorted(got), sorted(want), f"{name}: names")
        for tensor in want:
            self.same_bytes(got[tensor], want[tensor], f"{name}: {tensor}")

    def each(self):
        for name in TABLE:
            if name not in REFUSED and name not in NOTHING:
                yield name

    def test_sidecar(self):
        for name in self.each():
            out = output_of(name)
            self.check_tensors(name, out)
            self.check_files(out)

    def test_inline(self):
        for name in self.each():
            if name in LEROBOT:  # their loader would take FP8 values for weights
                status, _, _ = fp8q("quantize", source_of(name), os.path.join(WORK, "no"), "--scales", "inline")
                self.check(status == 2, f"{name}: inline scales of a policy are refused")
                continue
            out = output_of(name, "--scales", "inline")
            self.check_tensors(name, out)
            self.check_files(out)
            for file in weight_files(out):          # each scale beside its weight
                _, header = header_of(file)
                for tensor in header:
                    if tensor.endswith("_scale_inv"):
                        self.check(tensor[:-len("_scale_inv")] in header, f"{file}: {tensor}")

    def test_ue8m0(self):
        for name in self.each():
            self.check_tensors(name, output_of(name, "--scale-fmt", "ue8m0"), ue8m0=True)

    def test_resharded(self):
        for name in self.each():
            if name == "bare-file": # one file has one shard: an error, see tests/cli/bad_input.sh
                continue
            out = output_of(name, "--max-shard-size", "300kB")
            self.check_tensors(name, out)
            self.check_files(out)

    def test_compressed_tensors(self):
        for name in self.each():
            out = output_of(name, "--format", "compressed-tensors")
            self.check_tensors(name, out, suffix="_scale")
            self.check_files(out)

    def check_files(self, out):
        """The strictest union of what loaders ask for."""
        if not os.path.isdir(out):
            return
        files = sorted(f for f in os.listdir(out) if f.endswith(".safetensors"))
        policy = [f for f in files if f.startswith("policy_")]
        files = [f for f in files if f not in policy]
        index = os.path.join(out, INDEX)
        held = {}
        for file in files:
            start, header = header_of(os.path.join(out, file))
            self.equal(header.pop("__metadata__", {}).get("format"), "pt", f"{file}: format")
            self.equal((8 + start) % 8, 0, f"{file}: data start")
            end = 0
            for tensor, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
                self.equal(entry["data_offsets"][0], end, f"{file}: {tensor}: begin")
                end = entry["data_offsets"][1]
                held[tensor] = file
            self.equal(os.path.getsize(os.path.join(out, file)), 8 + start + end, f"{file}: size")
        if not os.path.exists(index):
            self.equal(files, ["model.safetensors"], f"{out}: no index")
            return
        with open(index, encoding="utf-8") as f:
            listed = json.load(f)
        self.check("model.safetensors" not in files, f"{out}: model.safetensors beside an index")
        self.equal(listed["weight_map"], held, f"{out}: index")
        size = sum(t.numel() * t.element_size() for t in read(out).values())
        self.equal(listed["metadata"]["total_size"], size, f"{out}: total_size")


def output_of(name, *options):
    """For the bare file the output is a file as well, with its scales beside it."""
    if name != "bare-file":
        return quantized(source_of(name), *options)
    out = os.path.join(fresh_dir(), "m.safetensors")
    status, _, err = fp8q("quantize", source_of(name), out, "-q", "--ignore", "visual", *options)
    if status:
        raise AssertionError(err)
    return out


def read_output(out):
    tensors = read(out)
    scales = out.replace(".safetensors", ".scales.safetensors")
    if os.path.isfile(out) and os.path.exists(scales):
        tensors.update(read(scales))
    return tensors


class Configs(Case):
    """config.json: our key and nothing else has changed."""

    def test_fp8(self):
        for name in TABLE:
            if name in REFUSED or name in NOTHING or name == "bare-file":
                continue
            with self.subTest(name):
                out = quantized(source_of(name))
                with open(os.path.join(checkpoint(name), "config.json"), encoding="utf-8") as f:
                    before = f.read()
                with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
                    after = f.read()
                head = before.rstrip().rstrip("}").rstrip()
                self.check(after.startswith(head), "text before our key")
                q = json.loads(after).pop("quantization_config")
                lists = q.pop("modules_to_not_convert"), q.pop("ignored_layers")
                self.equal(q, {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                               "weight_block_size": [128, 128]}, "quantization_config")
                self.equal(lists[0], lists[1], "both lists")
                self.equal(lists[0], sorted(set(lists[0])), "sorted")
                self.check("lm_head" in lists[0], "lm_head")

    def test_copies(self):
        for name in TABLE:
            if name in REFUSED or name in NOTHING or name == "bare-file":
                continue
            with self.subTest(name):
                out = quantized(source_of(name))
                for folder, _, files in os.walk(checkpoint(name)):
                    for file in files:
                        path = os.path.join(folder, file)
                        copy = os.path.join(out, os.path.relpath(path, checkpoint(name)))
                        if not belongs(file):
                            self.check(not os.path.exists(copy) or ours(file), f"{file} was copied")
                        elif file != "config.json":
                            with open(path, "rb") as a, open(copy, "rb") as b:
                                self.check(a.read() == b.read(), f"{file} differs")


def belongs(file):
    """Whether a file of the source is something that travels: neither weights nor the card of other ones."""
    if file.startswith("policy_"):
        return True
    return not (file.endswith((".safetensors", ".bin", ".index.json")) or file.startswith(("consolidated", "README")) or
                file == "params.json")


def ours(file):
    return file == INDEX or file.startswith("model-")


if __name__ == "__main__":
    main(at_least=15760)
