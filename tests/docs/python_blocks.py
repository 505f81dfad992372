#!/usr/bin/env python3
"""Runs what pages show of the module fp8q: every block of Python, one page after the other.

    python_blocks.py MAKE_CHECKPOINT PAGE.md...

The blocks of a page share their names, and a directory that holds two small checkpoints under the names that pages
use; `weight` is a matrix.  The module is found as any other is (PYTHONPATH, FP8Q, FP8Q_LIBRARY).
"""
import array
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def run(page, make_checkpoint):
    blocks = BLOCK.findall(page.read_text())
    names = {"weight": memoryview(array.array("f", [0.5] * 256 * 128)).cast("B").cast("f", (256, 128))}
    with tempfile.TemporaryDirectory(prefix="fp8q-python-") as where:
        os.chdir(where)
        for name in ("model", "Qwen3-4B"):
            subprocess.run([make_checkpoint, "tiny", name], check=True)
        for block in blocks:
            exec(compile(block, page.name, "exec"), names)
        os.chdir("/")
    print(f"{page.name}: {len(blocks)} blocks run")
    return len(blocks)


def main():
    pages = [pathlib.Path(name).resolve() for name in sys.argv[2:]]
    if not all([run(page, sys.argv[1]) for page in pages]):
        sys.exit("a page has no block of Python")


if __name__ == "__main__":
    main()
