"""examples/vla/load_fp8.py: a module with FP8 weights in memory computes what the dequantized checkpoint computes."""
import sys

import transformers

from common import *

sys.path.insert(0, os.path.join(HERE, "..", "..", "examples", "vla"))
import load_fp8 as loader  # noqa: E402

OPTIONS = [(), ("--scale-fmt", "ue8m0"), ("--scales", "inline"), ("--format", "compressed-tensors"),
           ("--scheme", "FP8"), ("--format", "compressed-tensors", "--scheme", "FP8_DYNAMIC"), ("--scheme", "MXFP8")]
MODELS = ["llama-tied", "llama-untied", "qwen3", "qwen2.5-vl-new", "phi3", "gemma3-text"]


def bare(source):
    """The model's module as a caller has it: built from the config, its weights anything."""
    config = transformers.AutoConfig.from_pretrained(source)
    cls = getattr(transformers, config.architectures[0])
    torch.manual_seed(1)
    return cls(config).to(BF16).eval()


def renamed(model, source):
    """Names of the checkpoint as the class of this transformers has them."""
    have = set(model.state_dict())
    spelt = {}
    for name in read(source):
        for old, new in (("", ""), ("model.", "model.language_model."), ("visual.", "model.visual."),
                         ("language_model.model.", "model.language_model.")):
            if name.startswith(old) and new + name[len(old):] in have:
                spelt.setdefault(name, new + name[len(old):])
    return lambda name: spelt.get(name, name)


class LoadTest(unittest.TestCase):
    def logits(self, model):
        ids = torch.arange(24).reshape(2, 12) % 100
        with torch.no_grad():
            return model(input_ids=ids).logits

    def test_equal_to_dequantized(self):
        for name in MODELS:
            for options in OPTIONS:
                with self.subTest(model=name, options=options):
                    made = quantized(checkpoint(name), *options)
                    wide = fresh_dir()
                    self.assertEqual(fp8q("dequantize", made, os.path.join(wide, "x"), "-q")[0], 0)
                    a = bare(checkpoint(name))
                    b = bare(checkpoint(name))
                    to = renamed(a, checkpoint(name))
                    loader.load_fp8(a, made, rename=to)
                    loader.load_fp8(b, os.path.join(wide, "x"), rename=to)
                    narrow = [m for m in a.modules() if isinstance(m, loader.FP8Linear)]
                    self.assertEqual(len(narrow), sum(t.dtype == F8 for t in read(made).values()))
                    self.assertFalse(any(isinstance(m, loader.FP8Linear) for m in b.modules()))
                    self.assertTrue(torch.equal(self.logits(a), self.logits(b)))

    def test_values(self):
        """What a linear multiplies with is, element by element, the tensor of `dequantize`."""
        made = quantized(checkpoint("qwen3"))
        wide = os.path.join(fresh_dir(), "x")
        fp8q("dequantize", made, wide, "-q")
        files, values = loader.Checkpoint(made), read(wide)
        seen = 0
        for name in files.where:
            if files.where[name][2]["dtype"] == "F8_E4M3":
                scale = files[loader.scale_of(files, name)]
                self.assertTrue(torch.equal(loader.dequantize(files[name], scale, BF16), values[name]), name)
                seen += 1
        self.assertGreater(seen, 5)

    def test_memory_and_moves(self):
        """Half the bytes; a policy that is cast as a whole keeps them narrow, and its scales exact."""
        made = quantized(checkpoint("qwen3"))
        model = loader.load_fp8(bare(checkpoint("qwen3")), made)
        before = self.logits(model)
        model.to(torch.float32).to(BF16)
        narrow = [m for m in model.modules() if isinstance(m, loader.FP8Linear)]
        self.assertTrue(all(m.weight_fp8.dtype == F8 and m.weight_scale.dtype == F32 for m in narrow))
        self.assertTrue(torch.equal(before, self.logits(model)))

    def test_weight_is_wide(self):
        """Policies cast their inputs to the dtype of a weight, which is the module's, not that of the file."""
        made = quantized(checkpoint("qwen3"))
        wide = os.path.join(fresh_dir(), "x")
        fp8q("dequantize", made, wide, "-q")
        values, model = read(wide), loader.load_fp8(bare(checkpoint("qwen3")), made)
        for dtype in (BF16, F32, BF16):
            model.to(dtype)
            narrow = {n: m for n, m in model.named_modules() if isinstance(m, loader.FP8Linear)}
            for name, m in narrow.items():
                self.assertEqual(m.weight.dtype, dtype)
                self.assertTrue(torch.equal(m.weight.to(BF16), values[name + ".weight"]), name)
        self.assertGreater(len(narrow), 5)

    def test_refusals(self):
        made = quantized(checkpoint("qwen3"))
        with self.assertRaisesRegex(ValueError, "no place for"):
            loader.load_fp8(nn_linear(), made)
        smaller = transformers.AutoConfig.from_pretrained(checkpoint("qwen3"))
        smaller.intermediate_size //= 2
        with self.assertRaisesRegex(ValueError, "the module has"):
            loader.load_fp8(transformers.Qwen3ForCausalLM(smaller), made)


def nn_linear():
    return torch.nn.Sequential(torch.nn.Linear(4, 4))


if __name__ == "__main__":
    unittest.main()
