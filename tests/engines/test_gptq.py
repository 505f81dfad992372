"""quantize --gptq against sequential GPTQ in torch: as the paper writes it (by the inverse of the Hessian), in float64, on
inputs that transformers' own forward pass gives the linears, with the weights before them rounded already."""
import unittest

import torch

import quantize_ref as ref
import test_forward as forward
from common import *

DAMPING, SHRINKAGE = 0.01, 0.2
SITES = (("self_attn", ("q_proj", "k_proj", "v_proj")), ("self_attn", ("o_proj",)), ("mlp", ("gate_proj", "up_proj")),
         ("mlp", ("down_proj",)))


def samples(vocab):
    """Words that follow one another, so that channels are correlated; eight samples, of which two are held out."""
    generator = torch.Generator().manual_seed(3)
    return [(torch.randint(0, 40, (n,), generator=generator).cumsum(0) % vocab) for n in (90, 60, 75, 80, 61, 64, 77, 70)]


def moments(model, module, ids):
    """Second moments of the unit-length inputs of a linear: of the samples to fit, and of those held out."""
    sums = [0, 0]
    with torch.no_grad():
        for i, x in enumerate(ids):
            seen = []
            hook = module.register_forward_pre_hook(lambda m, a: seen.append(a[0].detach().flatten(0, -2).double()))
            model(input_ids=x[None])
            hook.remove()
            u = seen[0] / seen[0].norm(dim=1, keepdim=True)
            sums[i % 4 == 3] += u.T @ u
    return sums


def plain(w, scales):
    return ref.codes_of(w.float() / scales).double() * scales.double()


def compensated(w, scales, h):
    """Columns by falling moment, each error spread over those that follow."""
    n = len(h)
    order = torch.argsort(h.diagonal(), descending=True, stable=True)
    h = h[order][:, order]
    mean = h.diagonal().mean()
    a = h * (1 - SHRINKAGE) + torch.diag(h.diagonal() * SHRINKAGE + DAMPING * mean)
    u = torch.linalg.cholesky(torch.linalg.inv(a), upper=True)
    w, scales, out = w.double()[:, order].clone(), scales[:, order], torch.empty(w.shape, dtype=torch.float64)
    for i in range(n):
        q = ref.codes_of(w[:, i].float() / scales[:, i]).double() * scales[:, i].double()
        out[:, order[i]] = q
        w[:, i + 1:] -= ((w[:, i] - q) / u[i, i])[:, None] * u[i, i + 1:]
    return out


def error(w, q, h):
    d = w.double() - q
    return float(((d @ h) * d).sum())


def scales_of(w, options):
    """The scale of each element, by the rule of the scheme."""
    if "FP8_DYNAMIC" in options:
        return ref.quantize_channel(w)[1].expand(w.shape)
    if "MXFP8" in options:
        groups = w.float().reshape(len(w), -1, ref.GROUP)
        return ref.scale_of(groups.abs().amax(-1), True).repeat_interleave(ref.GROUP, 1)
    return ref.spread(ref.quantize_block(w, "ue8m0" in options)[1], w.shape)


class Gptq(Case):
    def compare(self, name, options, *more):
        source, model = forward.make(name, "llama", options)
        ids = samples(options["vocab_size"])
        inputs = forward.write_inputs(source + ".inputs.safetensors", ids)
        got = read(quantized(source, "--gptq", "--inputs", inputs, *more))
        before = after = beside = spread = 0

        for layer in range(options["num_hidden_layers"]):
            for part, linears in SITES:
                modules = {f"model.layers.{layer}.{part}.{l}": getattr(getattr(model.model.layers[layer], part), l)
                           for l in linears}
                fit, held = moments(model, next(iter(modules.values())), ids)
                weights = {n: m.weight.detach() for n, m in modules.items()}
                scales = {n: scales_of(w, more) for n, w in weights.items()}
                both = [sum(error(w, f(w, scales[n]), held) for n, w in weights.items())
                        for f in (plain, lambda w, s: compensated(w, s, fit))]
                helps = both[1] < both[0]
                spread += helps

                for n, w in weights.items():
                    want = compensated(w, scales[n], fit + held) if helps else plain(w, scales[n])
                    mine = got[n + ".weight"].double() * scales[n].double()
                    # F32 against F64: now and then a value near a tie goes the other way, and others follow it.
                    same = float((want == mine).double().mean())
                    self.check(same > 0.99 if helps else same == 1, f"{n}: {same:.4f} of the values are the reference's")
                    before += error(w, plain(w, scales[n]), fit + held)
                    after += error(w, mine, fit + held)
                    beside += error(w, want, fit + held)
                    with torch.no_grad():
                        modules[n].weight.copy_(mine.float())
        self.check(abs(after / beside - 1) < 0.01, f"{name}: output error {after:.6g}, the reference's {beside:.6g}")
        self.check(spread >= options["num_hidden_layers"], f"{name}: GPTQ in {spread} inputs of the reference")
        self.check(after < 0.95 * before, f"{name}: output error {after:.6g}, of plain rounding {before:.6g}")

    def test_blocks(self):
        self.compare("gptq", forward.SMALL)

    def test_powers_of_two(self):
        self.compare("gptq-ue8m0", forward.SMALL | dict(num_hidden_layers=1), "--scale-fmt", "ue8m0")

    def test_rows(self):
        self.compare("gptq-rows", forward.SMALL | dict(num_hidden_layers=1), "--scheme", "FP8_DYNAMIC")

    def test_groups(self):
        self.compare("gptq-groups", forward.SMALL | dict(num_hidden_layers=1), "--scheme", "MXFP8")

    def test_unaligned(self):
        self.compare("gptq-unaligned", forward.SMALL | dict(intermediate_size=328, num_hidden_layers=1), "--unaligned",
                     "quantize")

    def test_experts(self):
        """Experts are rounded by the tokens that come to them; those that none comes to stay plain, and are named."""
        source, _ = forward.make("gptq-experts", "qwen3_moe", forward.EXPERTS | dict(num_hidden_layers=1))
        ids = samples(forward.EXPERTS["vocab_size"])
        plain = read(quantized(source))
        some = forward.write_inputs(source + ".some.safetensors", ids)
        got = read(quantized(source, "--gptq", "--inputs", some))
        experts = [n for n in plain if ".experts." in n and n.endswith("proj.weight")]
        changed = [n for n in experts if raw(got[n]) != raw(plain[n])]
        self.check(len(experts) == 24 and len(changed) >= 12, f"GPTQ in {len(changed)} of {len(experts)} experts' weights")
        self.equal(fp8q("verify", quantized(source, "--gptq", "--inputs", some), "--source", source)[0], 0, "verify")

        # Two tokens come to four of the eight experts at most, and nothing is held out.
        few = forward.write_inputs(source + ".few.safetensors", [ids[0][:2]])
        status, told = fp8q_json("quantize", source, fresh_dir() + "/out", "--gptq", "--inputs", few)
        warnings = {w["id"]: w["message"] for w in told["warnings"]}
        self.equal((status, set(warnings)), (0, {"gptq-unreached", "calibration-unheld"}), "few")
        self.check("model.layers.0.mlp.experts." in warnings["gptq-unreached"], warnings["gptq-unreached"])
        out = read(told["output"])
        self.check(all(raw(out[n]) == raw(plain[n]) for n in plain if n.endswith("proj.weight")), "few: plain")


if __name__ == "__main__":
    main(at_least=66)
