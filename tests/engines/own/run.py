#!/usr/bin/env python3
"""What an engine's own loader makes of outputs, and whether `fp8q check` says the same.  run.py ENGINE FP8Q [newest]

Sources are made by the engine's transformers (sources.py), converted in every format, place of scales and scale format,
and loaded by ENGINE_load.py: every parameter must hold what lies on disk, in the precision in which it lies there, with the
scale that belongs to it; every tensor must be used.  Where `check` says that the engine loads a checkpoint, it must; where
it says no, it must not.  With "newest" the newest release is taken, and differences are printed, not judged.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
INPUTS = HERE.parents[1] / "data/eval/text.inputs.safetensors"
ALL_VARIANTS = ("qwen3", "qwen3-moe")      # the others in two of them: the loaders do not know what differs
VARIANTS = {f"{form}-{place}-{scales}": ["--format", form, "--scales", place, "--scale-fmt", scales]
            for form in ("fp8", "compressed-tensors") for place in ("sidecar", "inline") for scales in ("f32", "ue8m0")}
FEW = PARALLEL = ("fp8-sidecar-f32", "compressed-tensors-inline-f32")
# What engines load, but not as it lies on disk: lmdeploy quantizes what no entry excludes, and in its DeepSeek, which asks no
# list, all; SGLang's attention of Qwen 3 has no scales of a cache.
OTHERWISE = [*(("lmdeploy", n) for n in ("qwen3 unlisted", "deepseek-v2 fp8-sidecar-f32", "deepseek-v3 fp8-sidecar-f32")),
             *(("sglang", f"qwen3 {n}") for n in ("cache", "cache-static", "cache-modelopt"))]
NO_FP8 = "nothing was built in FP8"

# Engines that know no ranks.  They turn FP8 into floats tensor by tensor, so that fewer networks say all.
ONE_RANK = {"llama.cpp": ("qwen3", "qwen3-moe", "phi3", "gemma2", "deepseek-v2"),
            "transformers": ("qwen3", "qwen3-moe", "phi3", "deepseek-v3", "gpt-oss", "qwen2.5-vl", "qwen3-vl-moe", "paligemma")}

# What else `check` speaks of: options of quantize, and what is done to config.json afterwards.
CALIBRATION = "--calibration=calib.safetensors"
OTHERS = {
    "tensor": (["--scheme", "FP8", "--format", "fp8"], None),
    "channel": (["--scheme", "FP8_DYNAMIC"], None),
    "mxfp8": (["--scheme", "MXFP8"], None),
    "mxfp8-fp8": (["--scheme", "MXFP8", "--format", "fp8"], None),
    "static": (["--scheme", "FP8_STATIC", CALIBRATION], None),
    "static-modelopt": (["--scheme", "FP8_STATIC", "--format", "modelopt", CALIBRATION], None),
    "cache": (["--kv-cache", "fp8", CALIBRATION], None),
    "llama cache": (["--kv-cache", "fp8", "--format", "compressed-tensors", CALIBRATION], None),
    "cache-static": (["--scheme", "FP8_STATIC", "--kv-cache", "fp8", CALIBRATION], None),
    "cache-modelopt": (["--scheme", "FP8_STATIC", "--format", "modelopt", "--kv-cache", "fp8", CALIBRATION], None),
    "no-scheme": ([], lambda q: q.pop("activation_scheme")),
    "says-static": ([], lambda q: q.update(activation_scheme="static")),
    "no-blocks": ([], lambda q: q.pop("weight_block_size")),
    "listed": ([], lambda q: q["ignored_layers"].append("model.layers.0.self_attn.o_proj")),
    "part-listed": ([], lambda q: q["ignored_layers"].append("model.layers.0.self_attn.q_proj")),
    "unlisted": (["--ignore", "o_proj"], lambda q: [q.update({k: [e for e in q[k] if "o_proj" not in e]})
                                                     for k in ("ignored_layers", "modules_to_not_convert")]),
    "method": ([], lambda q: q.update(quant_method="fp9")),
}

# Several schemes in one checkpoint; the last is one that neither vLLM nor SGLang has for experts.
MIX = "--scheme=mlp=MXFP8 --scheme=lm_head=FP8_DYNAMIC --scheme=o_proj=FP8"
MIXES = {
    "qwen3 mix": MIX,
    "qwen3 mix-layers": "--scheme=FP8_DYNAMIC --scheme=layers.0=FP8_BLOCK --scheme=layers.1.mlp=FP8",
    "qwen3-moe mix": MIX,
    "qwen3-moe mix-experts": "--scheme=FP8_DYNAMIC --scheme=experts=FP8_BLOCK",
    "qwen3-moe mix-tensor": "--scheme=FP8_DYNAMIC --scheme=experts=FP8",
}


def run(*command, **options):
    return subprocess.run([str(c) for c in command], check=True, text=True, **options)


def make(fp8q, sources, out):
    """{name: path} of all outputs."""
    made = {}
    for source in sorted(sources.iterdir()):
        for variant, options in VARIANTS.items():
            if variant not in FEW and source.name not in ALL_VARIANTS:
                continue
            made[f"{source.name} {variant}"] = out / f"{source.name}-{variant}"
            run(fp8q, "quantize", "-q", *options, source, out / f"{source.name}-{variant}", stderr=subprocess.DEVNULL)
    for name, options in MIXES.items():
        source, variant = name.split()
        made[name] = out / f"{source}-{variant}"
        run(fp8q, "quantize", "-q", *options.split(), sources / source, made[name], stderr=subprocess.DEVNULL)
    for source in ("llama", "qwen3"):
        (out / source).mkdir()
        run(fp8q, "calibrate", "-q", sources / source, "--inputs", INPUTS, "-o", out / source / CALIBRATION.partition("=")[2])
    for name, (options, edit) in OTHERS.items():
        source, variant = ["qwen3", *name.split()][-2:]
        path = made[f"{source} {variant}"] = out / f"{source}-{variant}"
        run(fp8q, "quantize", "-q", *options, sources / source, path, stderr=subprocess.DEVNULL, cwd=out / source)
        if edit:
            config = json.loads((path / "config.json").read_text())
            edit(config["quantization_config"])
            (path / "config.json").write_text(json.dumps(config))
    return made


# What stops an engine on a GPU only, where this test has none: a linear without a scale, and scales without the size of blocks.
ON_GPUS = {"transformers": ("qwen3 no-blocks", "qwen3 unlisted")}


def says(fp8q, engine, path, ways):
    """What check says: True, False, or None where it does not know; and why."""
    done = subprocess.run([fp8q, "check", path, "--engine", engine, "--tp", str(ways), "--json"], capture_output=True, text=True)
    answer = json.loads(done.stdout)["engines"][0]
    assert done.returncode == (answer["loads"] is not True), (path, done.returncode, answer)
    return answer["loads"], [f["id"] for f in answer["findings"] if f["status"] != "note"]


def load(python, engine, ways, paths):
    """{path: faults, none if it was loaded as it lies on disk}, and the engine's version."""
    done = run(python, "-B", HERE / f"{engine}_load.py", ways, *paths, stdout=subprocess.PIPE,
               stderr=None if os.environ.get("FP8Q_TRACEBACK") else subprocess.DEVNULL)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    faults, unused = {}, {}
    for answer in lines[1:]:
        if answer.get("skipped"):
            print(f"{engine} knows no such network: {os.path.basename(answer['path'])}: {answer['skipped']}")
            continue
        found = faults.setdefault(answer["path"], [])
        found += answer["faults"] + ([answer["error"]] if answer["error"] else [])
        if answer["loaded"] and not answer.get("fp8"):
            found.append(NO_FP8)

        # With several ranks one of them has what is added once, such as the bias of a matrix that is cut by columns.
        here = set(answer.get("unused", ()))
        unused[answer["path"]] = unused.get(answer["path"], here) & here
    for path, names in unused.items():
        faults[path] += [f"{n}: no parameter holds it" for n in sorted(names)]
    return faults, lines[0]["version"]


def unknown(engine, sources, faults):
    """Sources that the engine does not load in high precision either: it knows no such network, which is no word on FP8."""
    names = set()
    for source in sources:
        found = [f for f in faults.pop(str(source), []) if f != NO_FP8]
        if found:
            names.add(source.name)
            print(f"{engine} knows no such network: {source.name}: {found[0]}")
    return names


def compare(fp8q, python, engine, made, ways, sources=()):
    """Prints where check and the engine differ; how many there are."""
    sources = [] if engine in ONE_RANK else sorted(sources)      # whose loaders look for themselves
    faults, version = load(python, engine, ways, [*sources, *made.values()])
    strange, differences = unknown(engine, sources, faults), 0
    for name, path in made.items():
        if name.split()[0] in strange:
            faults.pop(str(path), None)
        if str(path) not in faults or name in ON_GPUS.get(engine, ()):
            continue
        said, ids = says(fp8q, engine, path, ways)
        found = faults[str(path)]
        if (engine, name) in OTHERWISE:
            said = False
        if said is not None and said != (not found):
            differences += 1
            print(f"DIFFERS: {name}, {ways} way(s): check says {'loads' if said else f'does not load {ids}'}; "
                  f"{engine}: {found[:3] or 'loaded it whole'}")
        elif os.environ.get("FP8Q_VERBOSE"):
            print(f"{name}, {ways} way(s): {'loads' if said else f'stopped by {ids}'}; {engine}: {found[:1]}")
    loaded = sum(not f for f in faults.values())
    print(f"{engine} {version}, {ways} way(s): {loaded} of {len(faults)} loaded as they lie on disk, {differences} differences")
    return differences, loaded


def main(engine, fp8q, newest=""):
    fp8q = os.environ["FP8Q"] = os.path.abspath(fp8q)
    python = run(HERE / "env.sh", engine, *([newest] if newest else []), stdout=subprocess.PIPE).stdout.splitlines()[-1]
    work = pathlib.Path(tempfile.mkdtemp(prefix="fp8q-engines-"))
    try:
        run(python, "-B", HERE / "sources.py", work / "sources", *ONE_RANK.get(engine, ()))
        (work / "out").mkdir()
        made = make(fp8q, work / "sources", work / "out")
        sources = list((work / "sources").iterdir())
        differences, loaded = compare(fp8q, python, engine, made, 1, sources)
        parallel = {n: p for n, p in made.items() if n.split()[1] in PARALLEL}
        more, together = compare(fp8q, python, engine, parallel, 2, sources) if engine not in ONE_RANK else (0, 1)
    finally:
        shutil.rmtree(work, ignore_errors=True)

    # Many must have been loaded: a run in which nothing works proves nothing.
    return 0 if newest else differences + more > 0 or loaded < len(made) // 5 or not together


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
