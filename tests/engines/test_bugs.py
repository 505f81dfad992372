"""Public bug reports of other tools, each as a small input with what must come of it.

The numbers are those of the collection that the project keeps; each test says the report in one line.
"""
import json
import os
import shutil
import struct
import time

from safetensors.torch import save_file

from common import *

LLAMA = {"model_type": "llama"}
DOWN = "model.layers.0.mlp.down_proj.weight"
UNALIGNED = "--unaligned", "quantize"
NO_FMT = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
FP8 = {**NO_FMT, "fmt": "e4m3"}


def down(i):
    return f"model.layers.{i}.mlp.down_proj.weight"


def fp8_source(tensors, settings=FP8, **more):
    return make(tensors, {**LLAMA, "quantization_config": settings, **more})


def with_backbone(tensors, settings=LLAMA):
    """A source of these tensors and one weight that is quantized, so that there is something to do."""
    return make({**tensors, DOWN: normal(128, 128)}, settings)


def exclusions(path):
    q = quantization(path)
    return q.get("modules_to_not_convert") or q["ignore"]


def new_path():
    return os.path.join(fresh_dir(), "out")


class Bugs(Case):
    def actions(self, path, *options):
        """{name: (action, reason)} of a plan, whatever its exit status."""
        _, answer = fp8q_json("quantize", path, "--dry-run", *options)
        return {t["name"]: (t["action"], t["reason"]) for t in answer["tensors"]}

    def refused(self, status, *arguments, says=()):
        """Exit status, one JSON object with an error, each of says in its message, nothing written."""
        out = new_path()
        got, answer = fp8q_json(*arguments, out)
        self.equal(got, status, f"{arguments}: {answer.get('error')}")
        for word in says:
            self.check(word in answer["error"]["message"], f"{word!r} in {answer['error']['message']!r}")
        self.equal(os.listdir(os.path.dirname(out)), [], "left behind")

    def all_kept(self, names, settings=LLAMA, shape=(256, 256)):
        """Kept by default, byte for byte, and listed by full path unless an embedding."""
        source = {n: normal(*shape, seed=i) for i, n in enumerate(names)}
        out = quantized(with_backbone(source, settings))
        for name in names:
            self.same_bytes(read(out)[name], source[name], name)
        return out

    def failing(self, path, *options):
        """Checks of verify that are not passed."""
        status, answer = fp8q_json("verify", path, *options)
        bad = [c for c in answer["checks"] if c["status"] != "pass"]
        return status, bad

    # ---- shapes and grids

    def test_O01_sizes_that_are_no_multiple(self):
        shapes = (576, 256), (192, 320), (129, 129), (3, 5)
        grids = [5, 2], [2, 3], [2, 2], [1, 1]
        source = {down(i): normal(*s, seed=i) for i, s in enumerate(shapes)}
        out = quantized(make(source, LLAMA), *UNALIGNED)
        back = new_path()
        self.equal(fp8q("dequantize", out, back, "--dtype", "f32", "-q")[0], 0, "dequantize")
        for i, grid in enumerate(grids):
            codes, scales = ref.quantize_block(source[down(i)])
            self.equal(list(read(out)[down(i) + "_scale_inv"].shape), grid, "grid")
            self.same_bytes(read(out)[down(i)], codes, "codes")
            w, got = source[down(i)].float(), read(back)[down(i)]
            s = ref.spread(scales, w.shape)
            limit = torch.maximum(w.abs() / 16, s * 2.0 ** -10) * (1 + 2.0 ** -20)
            self.check(bool(((w - got).abs() <= limit).all()), "bound")

    def test_O02_block_size_guessed_from_shapes(self):
        scales = 2.0 ** torch.arange(8).float().reshape(8, 1)
        path = fp8_source({DOWN: torch.ones(1000, 128).to(F8), DOWN + "_scale_inv": scales})
        back = new_path()
        self.equal(fp8q("dequantize", path, back, "-q")[0], 0, "exit")
        self.equal(read(back)[DOWN][[127, 128, 999], 0].tolist(), [1.0, 2.0, 128.0], "rows")
        unfit = fp8_source({DOWN: torch.ones(1000, 128).to(F8), DOWN + "_scale_inv": scales[:7].clone()})
        self.refused(3, "dequantize", unfit, says=[DOWN])

    def test_O03_squeezed_grids(self):
        for i, (shape, grid) in enumerate((((128, 384), [1, 3]), ((384, 128), [3, 1]), ((1, 128), [1, 1]))):
            out = quantized(make({DOWN: normal(*shape)}, LLAMA), *UNALIGNED)
            self.equal(list(read(out)[DOWN + "_scale_inv"].shape), grid, "grid")
            self.equal(tuple(read(out)[DOWN].shape), shape, "no padding")

    def test_O04_tensor_parallel(self):
        head = "model.layers.0.mlp.experts.0."
        path = make({head + "gate_proj.weight": normal(1536, 256), head + "up_proj.weight": normal(1536, 256),
                     head + "down_proj.weight": normal(256, 1536)},
                    {"model_type": "qwen3_moe", "moe_intermediate_size": 1536, "hidden_size": 256})
        _, answer = fp8q_json("quantize", path, "--dry-run")
        self.equal(answer["largest_tp"], 4, "1536 / 8 is 192")
        self.equal(fp8q("quantize", path, new_path(), "--tp", 4, "-q")[0], 0, "--tp 4")
        self.refused(1, "quantize", path, "--tp", 8, says=["128"])

    def test_O04_tensor_parallel_of_stacks(self):
        """The same weights, each expert by itself and stacked: the same answer, whichever size does not fit."""
        for inner, largest in ((768, 2), (1536, 4), (512, 4), (128, 1), (4096, 32)):
            answers = []
            head = "model.layers.0.mlp.experts."
            single = {f"{head}{e}.{n}_proj.weight": normal(*((2048, inner) if n == "down" else (inner, 2048)))
                      for e in range(2) for n in ("gate", "up", "down")}
            stacked = {head + "gate_up_proj": normal(2, 2 * inner, 2048), head + "down_proj": normal(2, 2048, inner)}
            turned = {head + "gate_up_proj": normal(2, 2048, 2 * inner), head + "down_proj": normal(2, inner, 2048)}
            settings = {"hidden_size": 2048, "moe_intermediate_size": inner}
            for tensors, kind in ((single, "qwen3_moe"), (stacked, "qwen3_5_moe_text"), (turned, "qwen3_vl_moe_text")):
                path = make(tensors, {"model_type": kind, **settings})
                _, answer = fp8q_json("quantize", path, "--dry-run")
                answers.append(answer.get("largest_tp"))
                self.equal(fp8q("quantize", path, new_path(), "--dry-run", "--tp", 2 * largest, "-q")[0], 1,
                           f"{kind}, {inner}, --tp {2 * largest}")
            self.equal(answers, [largest] * 3, f"moe_intermediate_size {inner}")

    def test_O05_small_outputs(self):
        names = "model.layers.0.linear_attn.in_proj_ba.weight", "model.layers.0.linear_attn.in_proj_b.weight"
        out = self.all_kept(names[:1], {"model_type": "qwen3_next"}, (8, 256))
        self.check("model.layers.0.linear_attn.in_proj_ba" in exclusions(out), "listed")
        out = self.all_kept(names[1:], {"model_type": "qwen3_5_text"}, (48, 256))
        self.check("model.layers.0.linear_attn.in_proj_b" in exclusions(out), "listed")

    def test_O06_shared_expert_gate(self):
        name = "model.layers.0.mlp.shared_expert_gate.weight"
        out = self.all_kept([name], {"model_type": "qwen3_next"}, (1, 512))
        self.check("model.layers.0.mlp.shared_expert_gate" in exclusions(out), "listed")

    def test_O07_other_ranks(self):
        source = {"conv.conv.weight": normal(512, 1, 3), "visual.patch_embed.proj.weight": normal(64, 3, 2, 16, 16),
                  "norm.weight": normal(512), "A_log": normal(32), "x.bias": normal(512), "scalar": normal(1)[0],
                  "model.layers.0.mlp.up_proj.bias": normal(128)}
        out = read(quantized(with_backbone(source)))
        for name, tensor in source.items():
            self.same_bytes(out[name], tensor, name)
        self.equal(sorted(out), sorted([*source, DOWN, DOWN + "_scale_inv"]), "no further tensor")

    def test_O08_stacked_experts(self):
        experts = "model.layers.0.mlp.experts."
        source = {experts + "gate_up_proj": normal(4, 512, 128), experts + "down_proj": normal(4, 128, 256)}
        sizes = {"hidden_size": 128, "moe_intermediate_size": 256}
        out = read(quantized(make(source, {"model_type": "qwen3_5_moe_text", **sizes})))
        self.equal(sum(t.dtype == F8 for t in out.values()), 12, "per-expert weights")
        status, answer = fp8q_json("quantize", make(source, {"model_type": "gpt_oss", **sizes}), "--dry-run")
        self.equal((status, {t["reason"] for t in answer["tensors"]}), (1, {"experts-unsupported"}), "named")
        self.check("expert" in answer["error"]["message"], "said in words")

    def test_O09_transposed_grid(self):
        weight = torch.zeros(256, 256)
        weight[:128, 128:], weight[128:, :128] = 448.0, 7.0
        path = make({DOWN: weight.to(BF16)}, LLAMA)
        out = quantized(path)
        scales = read(out)[DOWN + "_scale_inv"]
        self.equal((scales[0, 1].item(), scales[1, 0].item()), (1.0, 0.015625), "scales")
        tensors = read(out)
        tensors[DOWN + "_scale_inv"] = scales.t().contiguous()
        by_hand = make(tensors, config(out))
        status, bad = self.failing(by_hand, "--source", path)
        self.check(status == 1 and any(DOWN in c["where"] for c in bad), str(bad))

    def test_O10_another_block_layout(self):
        path = fp8_source({DOWN: torch.ones(128, 256).to(F8), DOWN + "_scale_inv": torch.ones(128, 2, 1)})
        self.refused(3, "dequantize", path, says=[DOWN, "128x128"])
        self.equal(self.failing(path)[0], 1, "verify")

    # ---- numbers

    def test_O11_zero_blocks(self):
        weight = torch.zeros(256, 256, dtype=BF16)
        weight[0, 0] = 1.0
        out = read(quantized(make({DOWN: weight}, LLAMA)))
        self.equal(out[DOWN + "_scale_inv"].reshape(-1)[1:].tolist(), [1.0, 1.0, 1.0], "scales")
        self.equal(sorted(set(raw(out[DOWN]))), [0x00, 0x7E], "codes")
        self.check(torch.equal(ref.dequantize(out[DOWN], out[DOWN + "_scale_inv"])[1:], weight.float()[1:]), "zeros")

    def test_O12_nan_code_in_a_file(self):
        codes = torch.zeros(128, 128, dtype=torch.uint8)
        codes[3, 5] = 0x7F
        path = fp8_source({DOWN: codes.view(F8), DOWN + "_scale_inv": torch.ones(1, 1)})
        status, bad = self.failing(path)
        self.check(status == 1 and any(DOWN in c["where"] + c["observed"] for c in bad), str(bad))
        self.check(any("389" in c["where"] + c["observed"] or "3, 5" in c["where"] + c["observed"] for c in bad), str(bad))

    def test_O13_ties_and_overflow(self):
        weight = torch.zeros(128, 128)
        weight[0, :9] = torch.tensor([448, 17, 19, 2.0 ** -10, 3 * 2.0 ** -10, 2.0 ** -9, -0.0, 0.5, 1.0])
        out = read(quantized(make({DOWN: weight}, LLAMA)))
        self.equal(list(raw(out[DOWN]))[:9], [0x7E, 0x58, 0x5A, 0x00, 0x02, 0x01, 0x80, 0x30, 0x38], "codes")
        beyond = torch.tensor([449.0, 464.0, 465.0, 480.0, 1e9])
        self.equal(set(raw(ref.codes_of(beyond))), {0x7E}, "the reference saturates")

    def test_O14_decoding_table(self):
        codes = torch.zeros(128, 128, dtype=torch.uint8)
        codes.view(-1)[:256] = torch.arange(256)
        codes.view(-1)[[0x7F, 0xFF]] = 0
        path = fp8_source({DOWN: codes.view(F8), DOWN + "_scale_inv": torch.ones(1, 1)})
        back = new_path()
        self.equal(fp8q("dequantize", path, back, "--dtype", "f32", "-q")[0], 0, "exit")
        values = read(back)[DOWN].reshape(-1)
        self.equal(values[0x78:0x7F].tolist(), [256, 288, 320, 352, 384, 416, 448], "top binade")
        self.equal(raw(values[0x80:0x81]), raw(torch.tensor([-0.0])), "negative zero")
        self.equal(values[1].item(), 2.0 ** -9, "smallest")

    def test_O15_far_underflow(self):
        weight = torch.zeros(128, 128)
        weight[0, :7] = torch.tensor([448, 1e-20, 1e-30, 1e-38, -1e-20, -1e-30, -1e-38])
        out = read(quantized(make({DOWN: weight}, LLAMA)))
        self.equal(list(raw(out[DOWN]))[:7], [0x7E, 0, 0, 0, 0x80, 0x80, 0x80], "codes")

    def test_O16_scale_rounded_after_quantizing(self):
        weight = torch.full((128, 128), 1.34375).to(BF16)
        out = read(quantized(make({DOWN: weight}, LLAMA), "--scale-fmt", "ue8m0"))
        self.equal(out[DOWN + "_scale_inv"].item(), 2.0 ** -8, "scale")
        self.same_bytes(out[DOWN], ref.codes_of(weight.float() * 256), "codes by that scale")

    def test_O17_power_of_two_ceiling(self):
        above = torch.nextafter(torch.tensor(0.875), torch.tensor(1.0))
        out = read(quantized(make({DOWN: above.expand(128, 128).clone()}, LLAMA), "--scale-fmt", "ue8m0"))
        self.equal(out[DOWN + "_scale_inv"].item(), 2.0 ** -8, "one step beyond")
        out = read(quantized(make({DOWN: torch.full((128, 128), 0.875)}, LLAMA), "--scale-fmt", "ue8m0"))
        self.equal(out[DOWN + "_scale_inv"].item(), 2.0 ** -9, "exactly a power of two")

    def test_O18_O22_scale_dtypes(self):
        codes, _ = ref.quantize_block(normal(256, 128, dtype=F32))
        scales = torch.tensor([[0.5], [0.25]])
        for dtype in (F32, BF16, F16, torch.float8_e8m0fnu):
            path = fp8_source({DOWN: codes, DOWN + "_scale_inv": scales.to(dtype)})
            back = new_path()
            self.equal(fp8q("dequantize", path, back, "--dtype", "f32", "-q")[0], 0, str(dtype))
            self.same_bytes(read(back)[DOWN], ref.dequantize(codes, scales), str(dtype))
        ours = read(quantized(make({DOWN: normal(128, 128)}, LLAMA)))
        self.equal(ours[DOWN + "_scale_inv"].dtype, F32, "written")

    def test_O19_statistics_shared_between_blocks(self):
        weight = torch.cat([torch.ones(128, 128), torch.full((128, 128), 100.0)], 1)
        want = (torch.tensor([1.0, 100.0]) / 448).tolist()
        for threads in (1, 2, 7):
            out = read(quantized(make({DOWN: weight}, LLAMA), "-t", str(threads)))
            self.equal(out[DOWN + "_scale_inv"].reshape(-1).tolist(), want, f"{threads} threads")

    def test_O20_nan_and_inf_in_the_source(self):
        for value, dtype in ((float("nan"), BF16), (float("inf"), F16), (float("-inf"), F32)):
            weight = normal(128, 128, dtype=dtype)
            weight[3, 5] = value
            self.refused(3, "quantize", make({DOWN: weight}, LLAMA), says=[DOWN, "[3, 5]"])
            kept = {"model.norm.weight": weight[3].clone(), "lm_head.weight": weight}
            out = read(quantized(with_backbone(kept)))
            self.same_bytes(out["lm_head.weight"], weight, "a kept tensor passes through")

    def test_O21_scale_names(self):
        codes, scales = ref.quantize_block(normal(128, 128, dtype=F32))
        for name in (DOWN + "_scale_inv", DOWN + "_scale"):
            back = new_path()
            self.equal(fp8q("dequantize", fp8_source({DOWN: codes, name: scales}), back, "-q")[0], 0, name)
            self.equal(sorted(read(back)), [DOWN], name)
        unknown = DOWN.replace("weight", "multiplier")
        self.refused(3, "dequantize", fp8_source({DOWN: codes, unknown: scales}), says=[DOWN, "scale"])

    def test_O21_activation_scales(self):
        """They mean nothing to a plain model, and are not carried."""
        codes, scales = ref.quantize_tensor(normal(128, 128, dtype=F32))
        module = DOWN[:-len(".weight")]
        back = new_path()
        path = fp8_source({DOWN: codes, DOWN + "_scale": scales, module + ".input_scale": torch.ones(1)},
                          {"quant_method": "fp8", "activation_scheme": "static"})
        self.equal(fp8q("dequantize", path, back, "-q")[0], 0, "exit")
        self.equal(sorted(read(back)), [DOWN], "names")

    def test_O23_f32_side_tensors(self):
        name = "model.layers.1.mlp.gate.e_score_correction_bias"
        bias = normal(256, dtype=F32)
        out = quantized(with_backbone({name: bias}, {"model_type": "deepseek_v3"}))
        self.same_bytes(read(out)[name], bias, "quantize")
        back = new_path()
        fp8q("dequantize", out, back, "-q")
        self.same_bytes(read(back)[name], bias, "dequantize")

    def test_O24_f16_overflow(self):
        path = fp8_source({DOWN: torch.full((128, 128), 448.0).to(F8), DOWN + "_scale_inv": torch.full((1, 1), 200.0)})
        out = new_path()
        status, answer = fp8q_json("dequantize", path, out, "--dtype", "f16")
        self.equal((status, answer["error"]["id"]), (2, "f16-overflow"), "refused")
        self.check(DOWN in answer["error"]["message"] and "89600" in answer["error"]["message"], "named with the value")
        self.equal(os.listdir(os.path.dirname(out)), [], "left behind")
        back = new_path()
        self.equal(fp8q("dequantize", path, back, "-q")[0], 0, "bf16")
        self.equal(read(back)[DOWN][0, 0].item(), 89600.0, "bf16 by default")

    # ---- what stays, and how it is listed

    def test_O25_anchored_vision_pattern(self):
        names = ["visual.merger.mlp.0.weight", "model.visual.merger.mlp.0.weight",
                 "model.language_model.layers.0.mlp.up_proj.weight", "model.language_model.layers.0.mlp.gate_proj.weight"]
        path = make({n: normal(256, 256) for n in names}, {"model_type": "qwen2_5_vl"})
        actions = self.actions(path)
        self.equal([actions[n][0] for n in names], ["keep", "keep", "quantize", "quantize"], "actions")
        _, answer = fp8q_json("quantize", path, "--dry-run", "--ignore", "re:visual.*")
        self.check(any(w["id"] == "pattern-anchored" for w in answer["warnings"]), "said")

    def test_O26_no_scale_in_the_vision_model(self):
        names = ["vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight", "multi_modal_projector.linear_1.weight",
                 "vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight"]
        for settings in ({"model_type": "gemma3"}, {"model_type": "paligemma"}, {"model_type": "no-such-type"}):
            out = read(self.all_kept(names, settings) if settings["model_type"] == "no-such-type" else
                       quantized(make({**{n: normal(256, 256) for n in names},
                                       "language_model.model.layers.0.mlp.down_proj.weight": normal(128, 128)}, settings)))
            self.check(not any("scale" in n and not n.endswith("down_proj.weight_scale_inv") for n in out), str(settings))

    def test_O27_broad_include(self):
        tower = "model.vision_tower.encoder.layers.0.mlp.fc1.weight"
        others = {"model.embed_vision.embedding_projection.weight": normal(128, 128)}
        path = with_backbone({tower: normal(304, 152), **others}, {"model_type": "gemma3"})
        self.check(self.actions(path, "--include", "*mlp*")[tower][0] == "keep", "unaligned tower")
        path = with_backbone({tower: normal(256, 128), **others}, {"model_type": "gemma3"})
        self.refused(4, "quantize", path, "--include", "*mlp*", says=[tower])
        self.equal(self.actions(path, "--include", "*mlp*", "--ignore", "vision_tower")[tower][0], "keep", "ignored")

    def test_O28_shapes_cannot_tell_a_tower(self):
        name = "model.visual.blocks.0.attn.qkv.weight"
        path = with_backbone({name: normal(384, 128)}, {"model_type": "qwen2_5_vl"})
        self.equal(self.actions(path)[name], ("keep", "vision"), "by name")
        status, out, _ = fp8q("quantize", path, "--dry-run")
        self.check(status == 0 and "vision" in out and "backbone" in out, "summary by reason")

    def test_O29_other_spellings(self):
        roots = ["multi_modal_projector", "mm_projector", "vision_language_adapter", "patch_merger", "vision_encoder",
                 "embed_vision", "vision_tower", "audio_tower", "connector", "visual"]
        names = [f"{r}.layers.0.{m}.weight" for r in roots for m in ("self_attn.q_proj", "mlp.up_proj")]
        names += ["lm_head.weight", "output.weight", "embed_tokens.weight", "tok_embeddings.weight", "wte.weight",
                  "pos_embed.weight"]
        for settings in (None, {"model_type": "no-such-type"}):
            path = make({**{n: normal(256, 256) for n in names}, DOWN: normal(128, 128)}, settings)
            actions = self.actions(path)
            for name in names:
                self.equal(actions[name][0], "keep", name)
            self.equal(actions[DOWN][0], "quantize", "the decoder")

    def test_O30_embeddings(self):
        names = ["model.embed_tokens.weight", "model.visual.pos_embed.weight"]
        self.all_kept(names, {"model_type": "qwen3_vl"})
        path = with_backbone({names[0]: normal(256, 256)})
        self.equal(self.actions(path, "--no-default-ignore")[names[0]][0], "keep", "even without default rules")

    def test_O31_full_paths(self):
        out = quantized(source_of("llama-untied"), "--ignore", "down_proj")
        for layer in (0, 1):
            self.check(f"model.layers.{layer}.mlp.down_proj" in exclusions(out), "full path")
        self.check("down_proj" not in exclusions(out), "no short name")

    def test_O32_wrapper_prefix(self):
        name = "model.language_model.layers.0.mlp.gate.weight"
        path = make({name: normal(8, 256), "model.language_model.layers.0.self_attn.o_proj.weight": normal(256, 256)},
                    {"model_type": "qwen3_vl_moe"})
        listed = exclusions(quantized(path))
        for spelling in ("model.language_model", "language_model.model", "model"):
            self.check(f"{spelling}.layers.0.mlp.gate" in listed, spelling)

    def test_O33_list_and_files_disagree(self):
        kept = "model.layers.0.linear_attn.in_proj_qkvz.weight"
        module = kept[:-len(".weight")]
        codes, scales = ref.quantize_block(normal(128, 128))
        settings = {**FP8, "modules_to_not_convert": ["lm_head", "model.layers.0.linear_attn.in_proj_z"]}
        path = make({kept: normal(256, 128), DOWN: codes, DOWN + "_scale_inv": scales},
                    {"model_type": "qwen3_next", "quantization_config": settings})
        _, bad = self.failing(path)
        places = [f["where"] for c in bad for f in c["findings"]]
        self.check(module in places, f"a kept weight that is not listed: {bad}")
        settings["modules_to_not_convert"] = [DOWN[:-len(".weight")]]
        path = make({DOWN: codes, DOWN + "_scale_inv": scales}, {**LLAMA, "quantization_config": settings})
        status, bad = self.failing(path)
        places = [f["where"] for c in bad for f in c["findings"]]
        self.check(status == 1 and DOWN[:-len(".weight")] in places, f"a quantized weight that is listed: {bad}")

    def test_O34_pattern_without_a_match(self):
        path = make({DOWN: normal(128, 128)}, LLAMA)
        self.refused(2, "quantize", path, "--ignore", "mlp.dwn_proj", says=["mlp.dwn_proj", "down_proj"])
        self.refused(2, "quantize", path, "--include", "nothing.here", says=["nothing.here"])
        self.equal(fp8q("quantize", path, new_path(), "-q", "--ignore", "nothing", "--allow-unmatched")[0], 0, "allowed")

    def test_O35_fused_names(self):
        out = quantized(source_of("llama-untied"), "--ignore", "layers.0.mlp")
        for part in ("gate_proj", "up_proj", "down_proj"):
            self.check(f"model.layers.0.mlp.{part}" in exclusions(out), part)
        out = quantized(source_of("phi3"), "--ignore", "gate_up_proj")
        self.check("model.layers.0.mlp.gate_up_proj" in exclusions(out), "fused on disk")

    def test_O36_key_of_the_list(self):
        codes, scales = ref.quantize_block(normal(128, 128))
        kept = {"lm_head.weight": normal(128, 128), "model.layers.0.self_attn.o_proj.weight": normal(128, 128)}
        names = [n[:-len(".weight")] for n in kept]
        ct = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {"group_0": {
            "targets": ["Linear"], "weights": {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "block",
                                               "block_structure": [128, 128], "dynamic": False}}}}
        # transformers reads no `ignored_layers`, so a list under that key alone is not read alike.
        alike, unlike = [("manifest", "warn")], [("manifest", "warn"), ("exclusions-readers", "warn")]
        for settings, key, end, warned in ((FP8, "ignored_layers", "_scale_inv", unlike),
                                           (FP8, "modules_to_not_convert", "_scale_inv", alike),
                                           (ct, "ignore", "_scale", alike)):
            path = make({**kept, DOWN: codes, DOWN + end: scales},
                        {**LLAMA, "quantization_config": {**settings, key: names}})
            status, bad = self.failing(path)
            self.equal((status, [(c["id"], c["status"]) for c in bad]), (0, warned), key)
            back = new_path()
            self.equal(fp8q("dequantize", path, back, "-q")[0], 0, key)

    def test_O37_routers(self):
        names = ["model.layers.0.mlp.gate.weight", "model.layers.0.block_sparse_moe.gate.weight",
                 "model.layers.0.block_sparse_moe.router.layer.weight"]
        for settings in ({"model_type": "qwen3_moe"}, {"model_type": "mixtral"}, None):
            path = make({**{n: normal(128, 256) for n in names}, DOWN: normal(128, 128)}, settings)
            actions = self.actions(path)
            for name in names:
                self.equal(actions[name], ("keep", "router"), f"{settings} {name}")

    def test_O38_draft_entry(self):
        names = ["mtp.fc.weight", "model.layers.61.eh_proj.weight"]
        out = self.all_kept(names, {"model_type": "deepseek_v3"})
        for name in names:
            self.check(name[:-len(".weight")] in exclusions(out), name)

    def test_O39_what_was_quantized(self):
        status, out, _ = fp8q("inspect", quantized(source_of("qwen3-moe")))
        self.check(status == 0 and "F8_E4M3" in out and "experts" in out, "by pattern and dtype")
        _, answer = fp8q_json("inspect", quantized(source_of("qwen3-moe")))
        tensors = read(quantized(source_of("qwen3-moe"))).items()
        weights = [(n, t) for n, t in tensors if not n.endswith("_scale_inv")]
        bits = 8 * sum(t.numel() * t.element_size() for _, t in tensors) / sum(t.numel() for _, t in weights if t.dim() >= 2)
        self.check(abs(answer["bits_per_weight"] - bits) < 0.01, f"average bits: {answer['bits_per_weight']}, {bits}")

    # ---- names and config

    def test_O40_scale_name(self):
        out = read(quantized(make({DOWN: normal(256, 128)}, LLAMA)))
        self.equal(sorted(out), [DOWN, DOWN + "_scale_inv"], "names")
        self.equal((out[DOWN + "_scale_inv"].dtype, list(out[DOWN + "_scale_inv"].shape)), (F32, [2, 1]), "scale")

    def test_O41_no_block_size_in_the_config(self):
        codes, scales = ref.quantize_block(normal(256, 128))
        settings = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
        status, bad = self.failing(fp8_source({DOWN: codes, DOWN + "_scale_inv": scales}, settings))
        self.check(status == 1 and any(c["id"] == "quantization-config" for c in bad), str(bad))
        q = quantization(quantized(make({DOWN: normal(128, 128)}, LLAMA)))
        self.equal((q["quant_method"], q["fmt"], q["weight_block_size"], q["activation_scheme"]),
                   ("fp8", "e4m3", [128, 128], "dynamic"), "written")

    def test_O41_name_without_blocks(self):
        """One scale a tensor: vLLM and SGLang rename nothing then, and other readers are warned of."""
        path = make({DOWN: normal(256, 128)}, LLAMA)
        out = quantized(path, "--scheme", "FP8", "--format", "fp8")
        self.equal(sorted(read(out)), [DOWN, DOWN + "_scale"], "names")
        self.check("weight_block_size" not in quantization(out), "no block size")
        _, answer = fp8q_json("quantize", path, "--dry-run", "--scheme", "FP8", "--format", "fp8")
        self.check(any(w["id"] == "scheme-format-name" for w in answer["warnings"]), "warning")
        self.equal(quantization(quantized(path, "--scheme", "FP8"))["quant_method"], "compressed-tensors", "default")
        by_row = quantization(quantized(path, "--scheme", "FP8_DYNAMIC"))
        self.equal(by_row["quant_method"], "compressed-tensors", "rows cannot be said in the fp8 dialect")

    def test_O42_no_fmt(self):
        codes, scales = ref.quantize_block(normal(128, 128))
        back = new_path()
        path = fp8_source({DOWN: codes, DOWN + "_scale_inv": scales}, NO_FMT)
        self.equal(fp8q("dequantize", path, back, "-q")[0], 0, "read")
        self.equal(quantization(quantized(make({DOWN: normal(128, 128)}, LLAMA)))["fmt"], "e4m3", "written")

    def test_O43_stale_configs(self):
        path = make({DOWN: normal(128, 128)}, LLAMA)
        with open(os.path.join(path, "hf_quant_config.json"), "w") as f:
            json.dump({"quantization": {"quant_algo": "FP8_PB_WO"}}, f)
        self.check(not os.path.exists(os.path.join(quantized(path), "hf_quant_config.json")), "copied")
        for settings in ({"quantization_config": {"quant_method": "gptq"}},
                         {"text_config": {"quantization_config": {"quant_method": "fp8"}}},
                         {"compression_config": {"quant_method": "compressed-tensors"}}):
            path = make({DOWN: normal(128, 128)}, {**LLAMA, **settings})
            self.refused(2, "quantize", path, says=["is quantized already"])
            out = quantized(path, "--requantize")
            self.equal(quantization(out)["quant_method"], "fp8", str(settings))
            self.check("compression_config" not in config(out), str(settings))
            self.check("quantization_config" not in config(out).get("text_config", {}), str(settings))

    def test_O44_nested_config(self):
        text = ('{\n    "model_type": "qwen2_5_vl",\n  "text_config": {"rms_norm_eps": 1e-05, "x": [1.0, 1E+2]},\n'
                '\t"vision_config": {"naïve": "\\u00e9 é 日本"},\n    "unknown": null, "big": 12345678901234567890\n}\n')
        path = make({DOWN: normal(128, 128)})
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            f.write(text)
        with open(os.path.join(quantized(path), "config.json"), encoding="utf-8") as f:
            after = f.read()
        self.check(after.startswith(text.rstrip()[:-1].rstrip()), "every other character as it was")
        self.check("quantization_config" in json.loads(after), "at the top level")
        self.equal(after.count('"quantization_config"'), 1, "there alone")
        back = new_path()
        fp8q("dequantize", quantized(path), back, "-q")
        with open(os.path.join(back, "config.json"), encoding="utf-8") as f:
            self.equal(json.loads(f.read()), json.loads(text), "and back")

    def test_O45_dequantized_model_claims_to_be_quantized(self):
        codes, scales = ref.quantize_block(normal(128, 128))
        nested = {"text_config": {"quantization_config": FP8, "n": 1}, "torch_dtype": "bfloat16"}
        path = make({DOWN: codes, DOWN + "_scale_inv": scales}, {**LLAMA, "quantization_config": FP8, **nested},
                    shards={"model-00001-of-00002.safetensors": [DOWN],
                            "model-00002-of-00002.safetensors": [DOWN + "_scale_inv"]})
        back = new_path()
        self.equal(fp8q("dequantize", path, back, "-q")[0], 0, "exit")
        self.equal(config(back), {**LLAMA, "text_config": {"n": 1}, "torch_dtype": "bfloat16"}, "config")
        self.equal(sorted(read(back)), [DOWN], "names")
        self.check(not any("scale" in f for f in os.listdir(back)), "files")

    # ---- coverage

    def test_O46_draft_layers_are_kept(self):
        source = {down(i): normal(128, 128, seed=i) for i in range(3)} | {"mtp.norm.weight": normal(128)}
        out = read(quantized(make(source, {**LLAMA, "num_hidden_layers": 2})))
        scales = {n + "_scale_inv" for n in source if n.endswith("down_proj.weight")}
        self.equal(set(out), set(source) | scales, "names")

    def test_O47_missing_tensors(self):
        source = {down(i): normal(128, 128, seed=i) for i in range(3)}
        path = make(source, LLAMA)
        tensors = read(quantized(path))
        del tensors[down(1)], tensors[down(1) + "_scale_inv"]
        status, bad = self.failing(make(tensors, config(quantized(path))), "--source", path)
        self.check(status == 1 and any(down(1) in c["where"] + c["observed"] for c in bad), str(bad))

    def test_O48_a_tensor_twice(self):
        path = make({DOWN: normal(128, 128)}, LLAMA)
        tensors = read(quantized(path))
        again = "model." + DOWN
        tensors.update({again: tensors[DOWN].clone(), again + "_scale_inv": tensors[DOWN + "_scale_inv"].clone()})
        status, answer = fp8q_json("verify", make(tensors, config(quantized(path))), "--source", path)
        self.check(status == 1 and again in json.dumps(answer), str(answer))

    def test_O49_very_many_tensors(self):
        """60,000 tensors in a sparse file: planned in a time that is not quadratic."""
        n, size = 60000, 128 * 128 * 2
        names = [f"model.layers.{i // 768}.mlp.experts.{i % 768 // 3}.{('gate', 'up', 'down')[i % 3]}_proj.weight"
                 for i in range(n)]
        header = json.dumps({name: {"dtype": "BF16", "shape": [128, 128], "data_offsets": [i * size, (i + 1) * size]}
                             for i, name in enumerate(names)}).encode()
        path = fresh_dir()
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump({"model_type": "qwen3_moe"}, f)
        with open(os.path.join(path, "model.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(header)) + header)
            f.truncate(8 + len(header) + n * size)
        start = time.monotonic()
        status, answer = fp8q_json("quantize", path, "--dry-run")
        self.equal((status, len(answer["tensors"])), (0, n), "planned")
        self.check(time.monotonic() - start < 20, "time")

    # ---- index, shards and other files

    def test_O50_O51_missing_shards(self):
        source = {down(i): normal(128, 128, seed=i) for i in range(3)}
        shards = {f"model-{i + 1:05d}-of-00003.safetensors": [down(i)] for i in range(3)}
        path = make(source, LLAMA, shards)
        os.remove(os.path.join(path, "model-00002-of-00003.safetensors"))
        self.refused(3, "quantize", path, says=["model-00002-of-00003.safetensors"])

    def test_O52_index_entry_without_its_tensor(self):
        source = {down(i): normal(128, 128, seed=i) for i in range(2)}
        path = make(source, LLAMA, {"model-00001-of-00002.safetensors": [down(0)],
                                    "model-00002-of-00002.safetensors": [down(1)]})
        with open(os.path.join(path, INDEX)) as f:
            index = json.load(f)
        index["weight_map"]["mtp.fc.weight"] = "model-00002-of-00002.safetensors"
        with open(os.path.join(path, INDEX), "w") as f:
            json.dump(index, f)
        self.refused(3, "quantize", path, says=["mtp.fc.weight", "model-00002-of-00002.safetensors"])

    def test_O53_extra_files(self):
        source = {down(i): normal(128, 128, seed=i) for i in range(2)}
        path = make(source, LLAMA, {"part-a.safetensors": [down(0)], "part-b.safetensors": [down(1)]})
        for extra in ("consolidated.safetensors", "adapter_model.safetensors", "pytorch_model.bin"):
            save_file({"x.weight": normal(128, 128)}, os.path.join(path, extra))
        out = quantized(path)
        self.equal(sorted(os.listdir(out)), ["config.json", SIDECAR, INDEX, "part-a.safetensors", "part-b.safetensors"],
                   "files")
        _, answer = fp8q_json("quantize", path, new_path())
        said = " ".join(w["message"] for w in answer["warnings"])
        for extra in ("consolidated.safetensors", "adapter_model.safetensors", "pytorch_model.bin"):
            self.check(extra in said, f"{extra} is not named")

    def test_O54_one_file(self):
        out = quantized(make({DOWN: normal(128, 128)}, LLAMA), "--scales", "inline")
        self.equal(sorted(f for f in os.listdir(out) if f.endswith((".safetensors", ".index.json"))),
                   ["model.safetensors"], "one file and no index")

    def test_O55_O57_index_is_made_anew(self):
        source = {down(i): normal(128, 128, seed=i) for i in range(2)}
        path = make(source, LLAMA, {"model-00001-of-00002.safetensors": [down(0)],
                                    "model-00002-of-00002.safetensors": [down(1)]})
        out, back = quantized(path), new_path()
        fp8q("dequantize", out, back, "-q")
        for made in (out, back):
            with open(os.path.join(made, INDEX)) as f:
                index = json.load(f)
            self.equal(set(index["weight_map"]), set(read(made)), "names")
            self.equal(index["metadata"]["total_size"], sum(len(raw(t)) for t in read(made).values()), "total_size")
        self.equal(set(read(back)), set(source), "none after dequantize")

    def test_O56_shard_names(self):
        names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model-mtp.safetensors"]
        source = {down(i): normal(128, 128, seed=i) for i in range(3)}
        out = quantized(make(source, LLAMA, {n: [down(i)] for i, n in enumerate(names)}))
        with open(os.path.join(out, INDEX)) as f:
            self.equal(sorted(set(json.load(f)["weight_map"].values())), sorted([*names, SIDECAR]), "names")

    def test_O58_paths_in_the_index(self):
        for bad in ("../x.safetensors", "/etc/x.safetensors", "", "a/../../x.safetensors", "x\0.safetensors"):
            path = make({DOWN: normal(128, 128)}, LLAMA, {"model-00001-of-00001.safetensors": [DOWN]})
            with open(os.path.join(path, INDEX), "w") as f:
                json.dump({"metadata": {}, "weight_map": {DOWN: bad}}, f)
            self.refused(3, "quantize", path)

    def test_O61_metadata(self):
        path = make({DOWN: normal(128, 128)}, LLAMA)
        save_file({DOWN: normal(128, 128)}, os.path.join(path, "model.safetensors"), metadata={"note": "kept"})
        out = quantized(path)
        for file in weight_files(out):
            with safe_open(file, "pt") as f:
                self.equal(f.metadata()["format"], "pt", file)
        with safe_open(weight_files(out)[0], "pt") as f:
            self.equal(f.metadata().get("note"), "kept", "the source's own")

    def test_O67_O68_odd_tensors_pass(self):
        source = {"marker": torch.empty(0), "empty": torch.empty(2, 0, dtype=BF16), "scalar": torch.tensor(1.5),
                  "ids": torch.arange(3), "flag": torch.tensor([True]),
                  "e8m0": torch.ones(4).to(torch.float8_e8m0fnu)}
        out = read(quantized(with_backbone(source)))
        for name, tensor in source.items():
            self.same_bytes(out[name], tensor, name)

    def test_O70_output_is_the_input(self):
        path = make({DOWN: normal(128, 128)}, LLAMA)
        before = raw(read(path)[DOWN])
        link = os.path.join(fresh_dir(), "link")
        os.symlink(path, link)
        inside = [path, path + "/", path + "//", path + "/.", link, link + "/", os.path.join(link, "inside"),
                  os.path.join(path, "inside"), os.path.join(path, "inside") + "/", os.path.join(path, "a", "b"),
                  os.path.join(path, "..", os.path.basename(path))]
        for out in inside:
            for options in ((), ("--overwrite",), ("--resume",), ("--resume", "--overwrite"), ("--part", "1/2")):
                status, answer = fp8q_json("quantize", path, out, *options)
                self.equal((status, "error" in answer), (2, True), f"{out} {options}")
        self.equal(raw(read(path)[DOWN]), before, "source")
        self.equal(sorted(os.listdir(path)), ["config.json", "model.safetensors"], "files")

    def test_O72_side_files(self):
        path = make({DOWN: normal(128, 128)}, LLAMA)
        files = ["tokenizer.json", "chat_template.jinja", "preprocessor_config.json", "generation_config.json",
                 "modeling_x.py", "merges.txt", "tokenizer.model", "LICENSE", "sub/folder/file.txt", "sub/README.md"]
        for file in files:
            os.makedirs(os.path.dirname(os.path.join(path, file)), exist_ok=True)
            with open(os.path.join(path, file), "w") as f:
                f.write(file)
        with open(os.path.join(path, "pytorch_model.bin"), "w") as f:
            f.write("x")
        out = quantized(path)
        for file in files:
            with open(os.path.join(out, file)) as f:
                self.equal(f.read(), file, "copied")
        self.check(not os.path.exists(os.path.join(out, "pytorch_model.bin")), "pickle")

    def test_O74_quantized_source(self):
        for options in ((), ("--format", "compressed-tensors")):
            out = os.path.join(fresh_dir(), "copy")
            shutil.copytree(quantized(make({DOWN: normal(128, 128)}, LLAMA), *options), out)
            self.refused(2, "quantize", out, says=["quantized already"])
            os.remove(os.path.join(out, "config.json"))
            self.refused(2, "quantize", out, says=["quantized already"])

    def test_O76_tied_heads(self):
        for settings in ({"tie_word_embeddings": True}, {"text_config": {"tie_word_embeddings": True}}):
            for head in ({}, {"lm_head.weight": normal(256, 128)}):
                source = {"model.embed_tokens.weight": normal(256, 128), **head}
                out = quantized(with_backbone(source, {**LLAMA, **settings}))
                self.equal(set(read(out)), {*source, DOWN, DOWN + "_scale_inv"}, "nothing added or removed")
                after = config(out)
                after.pop("quantization_config")
                self.equal(after, {**LLAMA, **settings}, "flag")

    def test_O77_head_missing(self):
        out = quantized(with_backbone({"model.embed_tokens.weight": normal(256, 128)},
                                      {**LLAMA, "tie_word_embeddings": False}))
        self.check("lm_head.weight" not in read(out), "the files are the truth")

    def test_O78_equal_tensors(self):
        same = normal(128, 128)
        out = read(quantized(make({down(0): same, down(1): same.clone()}, LLAMA)))
        self.equal(raw(out[down(0)]), raw(out[down(1)]), "both kept")

    # ---- verify

    def test_O79_stale_index(self):
        source = {down(i): normal(128, 128, seed=i) for i in range(2)}
        out = os.path.join(fresh_dir(), "copy")
        shutil.copytree(quantized(make(source, LLAMA)), out)
        shard = os.path.join(out, "model-00001-of-00001.safetensors")
        tensors = read(out)
        save_file({down(0): tensors[down(0)]}, shard, metadata={"format": "pt"})
        status, answer = fp8q_json("verify", out)
        self.check(status in (1, 3) and down(1) in json.dumps(answer), str(answer)[:500])

    def test_O80_damaged_bytes(self):
        path = make({DOWN: normal(256, 256)}, LLAMA)
        good = read(quantized(path))
        settings = config(quantized(path))

        def damaged(change):
            tensors = {n: t.clone() for n, t in good.items()}
            change(tensors[DOWN].view(torch.uint8), tensors[DOWN + "_scale_inv"])
            return make(tensors, settings)

        def flip_exponent(codes, scales):
            scales.view(torch.int32)[0, 1] ^= 1 << 25

        def flip_sign(codes, scales):
            codes[7, 9] ^= 0x80

        def swap_rows(codes, scales):
            scales.copy_(scales.flip(0))

        for change in (flip_exponent, flip_sign, swap_rows):
            status, bad = self.failing(damaged(change), "--source", path)
            self.check(status == 1 and any(DOWN in c["where"] for c in bad), f"{change.__name__}: {bad}")
        for value in (float("nan"), float("inf"), 0.0, -1.0):
            status, bad = self.failing(damaged(lambda codes, scales: scales.fill_(value)))
            self.check(status == 1 and any(c["id"] == "scale-values" for c in bad), f"{value}: {bad}")

    def test_O81_machine_readable(self):
        status, answer = fp8q_json("verify", quantized(source_of("llama-tied")))
        self.equal((status, answer["status"]), (0, "ok"), "verdict")
        for check in answer["checks"]:
            self.equal(set(check), {"id", "status", "observed", "limit", "where"}, "keys")

    def test_O82_fixed_point(self):
        first = quantized(make({DOWN: normal(256, 384)}, LLAMA))
        back = new_path()
        fp8q("dequantize", first, back, "--dtype", "f32", "-q")
        again = read(quantized(back))
        self.same_bytes(again[DOWN], read(first)[DOWN], "codes")
        a, b = again[DOWN + "_scale_inv"], read(first)[DOWN + "_scale_inv"]
        self.check(bool(((a.view(torch.int32) - b.view(torch.int32)).abs() <= 1).all()), "scales")


if __name__ == "__main__":
    main(at_least=360)
