#!/usr/bin/env python3
"""Every file and link that a document, script or comment names must be there.

    links.py SOURCE_TREE

Looked at: links of Markdown, with their headings, and paths that begin with a directory of this tree (docs, tools,
...), in every tracked text but transcripts and test data; and names of tests (test_x) in Markdown.
"""
import pathlib
import re
import subprocess
import sys

TOP = "docs|tools|tests|bench|examples|src|include|cmake|packaging"
PATH = re.compile(rf"(?<![\w./<$}}-])((?:{TOP})/[\w./+-]*\w)")


def anchors(path):
    heads = re.findall(r"^#+ (.*)$", path.read_text(), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}


def main():
    tree = pathlib.Path(sys.argv[1]).resolve()
    names = subprocess.run(["git", "-C", tree, "ls-files"], capture_output=True, text=True).stdout.split("\n")
    if len(names) < 100:  # an unpacked archive
        names = [str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file()]
    names = [n for n in names if n and not re.search(r"^tests/data/|^build/|\.expected$|^tests/fuzz/seeds|\.svg$|\.tsv$", n)]
    failed = checked = 0
    tests = "\n".join(p.read_text() for ending in ("c", "py", "sh", "txt") for p in (tree / "tests").rglob(f"*.{ending}")
                      if "data" not in p.parts) + " ".join(p.stem for p in (tree / "tests").rglob("*.*"))
    for name in names:
        path = tree / name
        try:
            text = path.read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            continue
        plain = re.sub(r"^#include .*$", "", text, flags=re.M)
        wanted = [(m[1], tree / m[1]) for m in PATH.finditer(plain)
                  if not re.match(r"(src|include)/(?!.*\.[ch]$)", m[1])]
        if name.endswith(".md"):
            for test in re.findall(r"\btest_\w+", text):
                if test not in tests:
                    print(f"{name}: there is no {test}")
                    failed += 1
            for target in re.findall(r"\]\(([^)\s]+)\)", text):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                there = path.parent / file if file else path
                wanted.append((target, there))
                if anchor and there.is_file() and anchor not in anchors(there):
                    print(f"{name}: {target}: no such heading")
                    failed += 1
        for shown, there in wanted:
            checked += 1
            if not there.exists() and not any(there.parent.glob(there.name + "*")):
                print(f"{name}: {shown} is not there")
                failed += 1
    print(f"{checked} paths and links in {len(names)} files")
    return failed > 0 or checked < 100


if __name__ == "__main__":
    sys.exit(main())
