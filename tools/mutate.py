#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutants of chosen source files: which changes of the code does no test notice?

    tools/mutate.py [-n COUNT] [-s SEED] [-b BUILD_DIR] [-m TARGET ... --] [-t TESTS_REGEX] FILE.c ...

Changes one operator, constant or condition of one line at a time in a copy of the tree, builds it,
runs the tests whose names match, and lists the mutants that survive.  A survivor is either an
equivalent program or a test that cannot fail.  Which mutants are tried depends on the seed alone.
Run by hand: each takes as long as a build and the tests.
"""

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RULES = [
    (r"(?<![<>=!-])>(?![>=])", ">="), (r"(?<![<>=!])<(?![<=])", "<="),
    (r">=", ">"), (r"<=", "<"), (r"==", "!="), (r"!=", "=="),
    (r"&&", "||"), (r"\|\|", "&&"),
    (r"(?<![+\w(] )\+ (?=\w)", "- "), (r"(?<=\w) - (?=\w)", " + "),
    (r"(?<=\w) \* (?=\w)", " / "), (r"(?<=\w) / (?=\w)", " * "),
    (r"\btrue\b", "false"), (r"\bfalse\b", "true"),
    (r"\bfmax\(", "fmin("), (r"\bfmin\(", "fmax("),
    (r"\b0\b(?!\.)", "1"), (r"\b1\b(?!\.)", "2"),
    (r"if \((?=[^)])", "if (!("), (r"return FP8Q_OK;", "return FP8Q_E_NOMEM;"),
]
SKIP = re.compile(r"^\s*(\*|/\*|//|#|static const|FP8Q_TRY\(fp8q_grow)|fp8q_fail|^\s*\"|FP8Q_SPDX|\bfor \(")


def mutants(path):
    """(line number, new text) of every mutant of a file."""
    in_comment = False
    for number, line in enumerate(path.read_text().split("\n")):
        if "/*" in line and "*/" not in line:
            in_comment = True
        if "*/" in line:
            in_comment = False
            continue
        if in_comment or SKIP.search(line) or line[:1] not in (" ", "\t"):
            continue
        code = re.sub(r'"(\\.|[^"\\])*"', lambda m: '"' + "_" * (len(m.group()) - 2) + '"', line)
        for pattern, replacement in RULES:
            for m in re.finditer(pattern, code):
                new = line[:m.start()] + replacement + line[m.end():]
                if replacement.endswith("(!("):
                    if line.rstrip().count("(") != line.rstrip().count(")"):
                        continue
                    new = new.replace(") {", ")) {") if line.rstrip().endswith("{") else new + ")"
                yield number, new


def run(command, cwd, timeout):
    try:
        return subprocess.run(command, cwd=cwd, timeout=timeout, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode
    except subprocess.TimeoutExpired:
        return -1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-n", type=int, default=40, help="how many mutants (40)")
    parser.add_argument("-s", type=int, default=1, help="seed of the choice (1)")
    parser.add_argument("-b", type=Path, help="keep the build here, for the next run")
    parser.add_argument("-m", nargs="*", default=[], help="what to make, where not all of it is tested")
    parser.add_argument("-t", default="^test_(gate|measure)", help="tests to run, as for ctest -R")
    args = parser.parse_args()

    top = Path(subprocess.check_output(["git", "rev-parse", "--show-toplevel"], text=True).strip())
    work = Path(tempfile.mkdtemp(prefix="fp8q-mutants-"))
    build = args.b.resolve() if args.b else work / "build"
    tree = build.with_name(build.name + "-tree") # where it was: a build knows its sources by their path
    subprocess.check_call(["git", "worktree", "add", "--detach", str(tree), "HEAD"], cwd=top,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        subprocess.check_call(["cmake", "-S", str(tree), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"],
                              stdout=subprocess.DEVNULL)
        make = ["cmake", "--build", str(build), "-j2"]
        make += ["--target", *args.m] if args.m else []
        test = ["ctest", "--test-dir", str(build), "-j2", "-R", args.t]
        if run(make, tree, 1200) != 0 or run(test, tree, 600) != 0:
            sys.exit("the tree does not build or pass as it is")

        files = [f.resolve().relative_to(top) for f in args.files]
        chosen = [(f, *m) for f in files for m in mutants(tree / f)]
        random.Random(args.s).shuffle(chosen)
        killed = broken = survivors = 0
        for path, number, new in chosen[:args.n]:
            target = tree / path
            before = target.read_text()
            lines = before.split("\n")
            old, lines[number] = lines[number], new
            target.write_text("\n".join(lines))
            if run(make, tree, 1200) != 0:
                broken += 1
            elif run(test, tree, 300) != 0:
                killed += 1
            else:
                survivors += 1
                print(f"{path}:{number + 1}\n  - {old.strip()}\n  + {new.strip()}", flush=True)
            target.write_text(before)

        print(f"{killed} killed, {survivors} survived, {broken} did not compile")
    finally:
        subprocess.call(["git", "worktree", "remove", "--force", str(tree)], cwd=top)
        shutil.rmtree(work, ignore_errors=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
