"""Ids of every kind of tokenizer.json against the `tokenizers` library, over thousands of random texts.

FP8Q_TOKENIZE is the program that tests/CMakeLists.txt builds from tests/unit/tokenize_file.c.
"""
import json
import os
import random
import subprocess
import unittest

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

import common as c

TOKENIZE = os.environ.get("FP8Q_TOKENIZE", "tokenize_file")
TEXTS = int(os.environ.get("FP8Q_TEXTS", "2000"))
MARK = "\u2581"

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*"
          r"|\s*[\r\n]|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"]

SCRIPTS = [(0x20, 0x7E), (0xA0, 0x17F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5EA), (0x620, 0x66F),
           (0x900, 0x97F), (0xE00, 0xE5B), (0x1100, 0x11FF), (0x300, 0x36F), (0x2000, 0x206F), (0x2150, 0x218B),
           (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFB4F), (0xFF01, 0xFF5E),
           (0x1F300, 0x1F64F), (0x20000, 0x2A6DF), (0x180B, 0x180E), (0x2581, 0x2583)]
WORDS = "the model don't I'LL we'Ve it'S 12 1234567 3.14 x_y() {} == -- naïve İstanbul ſ'ſ K the The THE café CamelCase".split(" ")
SPECIALS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<tool_call>", "<|im"]


def random_text(rng):
    out = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.3:
            low, high = rng.choice(SCRIPTS)
            out.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 8))))
        elif kind < 0.65:
            out.append(rng.choice(["", " ", " ", " "]) + rng.choice(WORDS))
        elif kind < 0.8:
            out.append(rng.choice([" ", "  ", "\n", "\r\n", "\t", "\u3000", "\x85", "\u2028", MARK, "   ", "\n\n"]))
        elif kind < 0.88:
            out.append(rng.choice(SPECIALS))
        elif kind < 0.95:
            out.append(rng.choice(["👩‍👩‍👧‍👦", "👍🏽", "é", "가\u11a7", "각\u11a8", "가\u11a7\u0301", "ạ̈", "क़", "\u11a7"]))
        else:
            out.append(rng.choice("aAé0_漢=") * rng.choice([2, 9, 40]))
    return "".join(out).replace("\0", " ")


def texts(seed):
    rng = random.Random(seed)
    fixed = ["", " ", "  ", "a", " a", "a ", "\n", MARK, "<s>", "<s> a", " <s>", "a<s>a", "\u11a7", "가\u11a7x",
             "x\u11a7", "가\u11a8\u11a7"]
    return fixed + [random_text(rng) for _ in range(TEXTS)]


CORPUS = texts(99)[:800]


def train(pre, alphabet, normalizer=None, vocab=1200):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=alphabet,
                                                              show_progress=False))
    return json.loads(tokenizer.to_str())


def added(data, tokens):
    vocab = data["model"]["vocab"]
    new = len(vocab)  # the library numbers what is no word of the vocabulary from its end on
    for content, options in tokens:
        new += content not in vocab
        data["added_tokens"].append({"id": vocab.get(content, new - 1), "content": content,
                                     "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                                     "special": True} | options)
    return data


MARKS = [("<s>", {}), ("<|im_start|>", {"rstrip": True}), ("<|im_end|>", {"lstrip": True}), ("<|im", {}),
         ("é+", {"normalized": True}), ("  \n", {"normalized": True})]


def byte_level(steps, normalizer=None, **model):
    steps = steps + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not steps)]
    pre = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    data = train(pre, pre_tokenizers.ByteLevel.alphabet(), normalizer)
    data["model"] |= model
    return added(data, MARKS)


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def sentencepiece(normalizer, pre, unknown=True, marks=True, **model):
    """A vocabulary of characters with byte tokens, as converted from SentencePiece."""
    data = train(pre_tokenizers.Metaspace(split=True), [MARK] + list("abcdefghijklmnopqrstuvwxyz"), vocab=900)
    learned, merges = data["model"]["vocab"], data["model"]["merges"]
    pieces = (["<unk>"] if unknown else []) + [f"<0x{b:02X}>" for b in range(256)]
    pieces += [p for p in sorted(learned, key=learned.get) if p not in pieces]
    data["model"] = data["model"] | {"vocab": {p: i for i, p in enumerate(pieces)}, "merges": merges,
                                     "unk_token": "<unk>" if unknown else None, "fuse_unk": True,
                                     "byte_fallback": True} | model
    data["normalizer"], data["pre_tokenizer"] = normalizer, pre
    return added(data, MARKS if marks else [])


def sequence(*steps):
    return {"type": "Sequence", "normalizers": list(steps)}


PREPEND = {"type": "Prepend", "prepend": MARK}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}


def metaspace(scheme, cut):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": cut}


def behavior(name, invert=False):
    return lambda: byte_level([split(r"\s|\d", name, invert), split(r"\p{L}+")])


KINDS = {
    "gpt2": lambda: byte_level([]),
    "qwen2": lambda: byte_level([split(QWEN2)], normalizers.NFC()),
    "llama3": lambda: byte_level([split(LLAMA3)], ignore_merges=True),
    "smollm": lambda: byte_level([pre_tokenizers.Digits(True)]),
    "digits": lambda: byte_level([pre_tokenizers.Digits(False), split(QWEN2)]),
    "cl100k": lambda: byte_level([split(CL100K)]),
    "o200k": lambda: byte_level([split(O200K)]),
    "tekken": lambda: byte_level([split(TEKKEN)], ignore_merges=True),
    "deepseek": lambda: byte_level([split(p) for p in DEEPSEEK]),
    "merged-with-previous": behavior("merged_with_previous"),
    "merged-with-next": behavior("merged_with_next"),
    "contiguous": behavior("contiguous"),
    "removed": behavior("removed"),
    "removed-inverted": behavior("removed", True),
    "next-inverted": behavior("merged_with_next", True),
    "llama2": lambda: sentencepiece(sequence(PREPEND, REPLACE), None),
    "gemma": lambda: sentencepiece(REPLACE, {"type": "Split", "pattern": {"String": " "},
                                             "behavior": "MergedWithPrevious", "invert": False}),
    "mistral": lambda: sentencepiece(None, metaspace("first", False)),
    "metaspace-always": lambda: sentencepiece(None, metaspace("always", True)),
    "metaspace-first": lambda: sentencepiece(None, metaspace("first", True)),
    "metaspace-never": lambda: sentencepiece(None, metaspace("never", True)),
    "unknown-fused": lambda: sentencepiece(sequence(PREPEND, REPLACE), None, byte_fallback=False),
    "unknown-single": lambda: sentencepiece(sequence(PREPEND, REPLACE), None, byte_fallback=False, fuse_unk=False),
    "no-unknown": lambda: sentencepiece(REPLACE, None, unknown=False, byte_fallback=False),
    "nfc-then-marks": lambda: sentencepiece(sequence({"type": "NFC"}, REPLACE), metaspace("always", True), marks=False),
    "ignore-merges": lambda: sentencepiece(None, metaspace("always", True), ignore_merges=True),
}

# Equal pieces, or a refusal that names the part.
PATTERNS = [r"\p{L}{1,3}+|.", r"\p{L}{2}+|.", r"(?:ab|\p{N}){1,2}+|.", r"\p{Han}+|.", r"\P{L}+", r"[^\P{L}]+|.", r"\d+|\D",
            r"[\d\s]+|.", r".+", r"\u0041|.", r"\x{e9}+|.", r"(?<=a)b|.", r"(?<!a)b|.", r"a(?!b)|.", r"(?>a+)b|.", r"(a|b)+?|.",
            r"a??b|.", r"\p{Lu}?+\p{Ll}*+|.", r"[\-a-z]+|.", r"[a\]]+|.", r"\p{N}{2,}?|.", r"\p{Latin}+|.", r"\{|\}|."]
REFUSED = [r"^a", r"a$", r"\h+", r"\w+", r"\bthe\b", r"\X", r"[[:alpha:]]+", r"[\p{L}&&[^\p{Han}]]+", r"[\S]+", r"(?i)a", r"(?m:.)",
           r"a{,3}", r"a{2}?", r"(a)\1", r"(?<n>a)", r"\p{^L}", r"\p{Alphabetic}", r"a**", r"\Aa", r"a\z", r"\xe9", r"\K", r"[a[b]]",
           r"\R", r"(?x:a b)", r"\Gx", r"\p{Greek_Extended}"]


class Tokenizers(unittest.TestCase):
    def found(self, data, lines):
        folder = c.fresh_dir("tokenizer")
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as f:
            json.dump(data, f, ensure_ascii=False)
        path = os.path.join(folder, "texts")
        with open(path, "wb") as f:
            f.write(b"\0".join(line.encode() for line in lines))
        done = subprocess.run([TOKENIZE, folder, path, "-0"], capture_output=True, text=True)
        return done, [[int(i) for i in line.split()] for line in done.stdout.split("\n")[:len(lines)]]

    def compare(self, name, data):
        library, lines = Tokenizer.from_str(json.dumps(data)), texts(7)
        done, ids = self.found(data, lines)
        self.assertEqual(done.returncode, 0, f"{name}: {done.stderr}")
        for line, got in zip(lines, ids):
            expected = library.encode(line, add_special_tokens=False).ids
            self.assertEqual(got, expected, f"{name}: {line!r}: {[library.id_to_token(i) for i in expected]}")

    def test_patterns(self):
        for pattern in PATTERNS:
            with self.subTest(pattern):
                self.compare(pattern, byte_level([split(pattern)]))

    def test_patterns_that_mean_something_else(self):
        base = byte_level([split("a")])
        for pattern in REFUSED:
            with self.subTest(pattern):
                base["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {"Regex": pattern}
                done, _ = self.found(base, ["a"])
                self.assertEqual(done.returncode, 3, pattern)
                self.assertIn("is not supported", done.stderr)


def add(name, make):
    setattr(Tokenizers, "test_" + name.replace("-", "_"), lambda self: self.compare(name, make()))


for kind, maker in KINDS.items():
    add(kind, maker)

if __name__ == "__main__":
    unittest.main()
