#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares src/tokenizer with the `tokenizers` library on mixed text.

    tokenizer_check.py TOKENIZE_FILE WORK [CHECKPOINT ...] [--megabytes N] [--fixtures DIR]

TOKENIZE_FILE is the program that tests/CMakeLists.txt builds.  WORK is a folder for texts and for small
tokenizers that are trained here, one for each published pre-tokenizer; each CHECKPOINT is a folder with
a tokenizer.json of its own.  Texts: files of this machine (Python's sources, /usr/share), random
characters of many scripts, emoji, runs of white space, decomposed accents, special tokens and broken UTF-8.
Exit status 1 if any id differs.  --fixtures writes the files of tests/data/tokenizer.
"""
import argparse
import json
import random
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
SPECIALS = ["<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "<|im"]
SCRIPTS = [(0x20, 0x7E), (0xA0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5EA), (0x620, 0x66F),
           (0x900, 0x97F), (0xE00, 0xE5B), (0x1100, 0x11FF), (0x300, 0x36F), (0x2000, 0x206F), (0x2150, 0x218B),
           (0x2460, 0x24FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAD9),
           (0xFB00, 0xFB4F), (0xFF01, 0xFF5E), (0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0x1D400, 0x1D7FF),
           (0x20000, 0x2A6DF), (0xE000, 0xE0FF), (0x180B, 0x180E)]


def machine_text(limit: int) -> bytes:
    roots = [Path(sysconfig.get_path("stdlib")), Path("/usr/share/i18n/locales"), Path("/usr/share/doc"),
             Path("/usr/share/perl")]
    parts, size = [], 0
    for root in roots:
        taken = 0
        for path in sorted(p for p in root.rglob("*") if p.suffix in (".py", ".txt", ".pm", ".pod", "") and p.is_file()):
            data = path.read_bytes()[:200_000]
            if b"\0" in data:
                continue
            parts.append(data)
            taken += len(data)
            if taken > limit // len(roots):
                break
        size += taken
    return b"".join(parts)


def random_text(rng: random.Random, limit: int) -> bytes:
    words = "the model don't I'LL we'Ve 12 1234567 3.14 x_y() {}\t\n --== naïve İstanbul ſ'ſ K".split(" ")
    out, size = [], 0
    while size < limit:
        kind = rng.random()
        if kind < 0.35:
            lo, hi = rng.choice(SCRIPTS)
            piece = "".join(chr(rng.randint(lo, hi)) for _ in range(rng.randint(1, 12)))
        elif kind < 0.55:
            piece = rng.choice(words) + rng.choice(["", " ", "  ", "\n", "\r\n", "\t", "\u3000", "\u180e", "\x85", "\u2028"])
        elif kind < 0.65:
            piece = rng.choice(" \n\t\r\u00a0\u3000") * rng.choice([1, 2, 3, 17, 300])
        elif kind < 0.75:
            piece = rng.choice(["👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "é", "ạ̈", "각", "Å", "क़"]) * rng.randint(1, 3)
        elif kind < 0.85:
            piece = rng.choice(SPECIALS) * rng.randint(1, 2)
        elif kind < 0.9:
            piece = rng.choice("aAé0_漢=") * rng.choice([1, 5, 100, 3000])
        else:
            piece = bytes(rng.randrange(256) for _ in range(rng.randint(1, 8)))
        data = piece if isinstance(piece, bytes) else piece.encode()
        out.append(data)
        size += len(data)
    return b"".join(out)


def train(name: str, texts: list[str], vocab: int) -> Tokenizer:
    tok = Tokenizer(models.BPE(ignore_merges=name == "llama3"))
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=name in ("gpt2", "smollm"))
    if name == "smollm":
        steps = [pre_tokenizers.Digits(individual_digits=True), byte_level]
    elif name == "gpt2":
        steps = [byte_level]
    else:
        pattern = Regex(QWEN2 if name == "qwen2" else LLAMA3)
        steps = [pre_tokenizers.Split(pattern, "isolated"), byte_level]
    tok.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    if name == "qwen2":
        tok.normalizer = normalizers.NFC()
    tok.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    if name == "gpt2":  # some bytes have no token: the library drops them
        alphabet = sorted(alphabet)[:200]
    tok.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet, show_progress=False))
    tok.add_special_tokens([AddedToken(t, normalized=False, lstrip=t == "<|im_end|>", rstrip=t == "<|im_start|>")
                            for t in SPECIALS])
    tok.add_tokens([AddedToken("é+", normalized=True), AddedToken("  \n", normalized=True)])
    return tok


def save(tok: Tokenizer, folder: Path, merges_as_pairs: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    data = json.loads(tok.to_str())
    if not merges_as_pairs:
        data["model"]["merges"] = [" ".join(m) if isinstance(m, list) else m for m in data["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False, indent=None))


def compare(program: str, folder: Path, path: Path) -> bool:
    tok = Tokenizer.from_file(str(folder / "tokenizer.json"))
    data = path.read_bytes()
    start = time.time()
    expected = tok.encode(data.decode("utf-8", errors="replace"), add_special_tokens=False).ids
    middle = time.time()
    run = subprocess.run([program, str(folder), str(path)], capture_output=True, text=True)
    found = [int(x) for x in run.stdout.split()]
    end = time.time()
    same = found == expected and run.returncode == 0
    where = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), min(len(found), len(expected)))
    print(f"{'same' if same else 'DIFFER'}  {folder.name:12} {path.name:14} {len(data):9} bytes {len(expected):8} ids  "
          f"tokenizers {middle - start:.2f} s, fp8q {end - middle:.2f} s {run.stderr.strip()}")
    if not same:
        print("   at", where, "expected", [tok.id_to_token(i) for i in expected[where - 3:where + 5]],
              "found", [tok.id_to_token(i) for i in found[where - 3:where + 5]])
    return same


def fixtures(folder: Path, rng: random.Random) -> None:
    """Small tokenizers, one text, and the ids that the library gives for it."""
    text = random_text(rng, 12000) + b" The end's \xe2\x82 naive\xcc\x88 1234 \n\n  x"
    (folder).mkdir(parents=True, exist_ok=True)
    (folder / "mixed.bin").write_bytes(text)
    source = Path(json.__file__).read_text() + text.decode("utf-8", "replace")
    for i, name in enumerate(("qwen2", "llama3", "smollm", "gpt2")):
        tok = train(name, [source], 700)
        save(tok, folder / name, i % 2 == 0)
        ids = tok.encode(text.decode("utf-8", errors="replace"), add_special_tokens=False).ids
        (folder / f"{name}.ids").write_text("\n".join(map(str, ids)) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("work", type=Path)
    parser.add_argument("checkpoints", nargs="*", type=Path)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fixtures", type=Path)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    if args.fixtures:
        fixtures(args.fixtures, rng)
        return 0
    half = int(args.megabytes * 500_000)
    args.work.mkdir(parents=True, exist_ok=True)
    texts = {"machine.txt": machine_text(half), "random.bin": random_text(rng, half)}
    for name, data in texts.items():
        (args.work / name).write_bytes(data)
    sample = [texts["machine.txt"][:2_000_000].decode("utf-8", "replace"), texts["random.bin"][:500_000].decode("utf-8", "replace")]
    folders = list(args.checkpoints)
    for i, name in enumerate(("qwen2", "llama3", "smollm", "gpt2")):
        folder = args.work / name
        if not (folder / "tokenizer.json").exists():
            save(train(name, sample, 6000), folder, i % 2 == 0)
        folders.append(folder)
    results = [compare(args.program, folder, args.work / name) for folder in folders for name in texts]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
