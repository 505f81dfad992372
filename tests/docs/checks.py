#!/usr/bin/env python3
"""Every check of verify stands in docs/guide/checks.md, and no other does.

    checks.py SOURCE_TREE
"""
import pathlib
import re
import sys


def main():
    tree = pathlib.Path(sys.argv[1])
    page = (tree / "docs/guide/checks.md").read_text()
    rows = re.findall(r"^\| (`[^|]*`) \|", page, flags=re.M)
    described = {name for row in rows for name in re.findall(r"`([a-z0-9-]+)`", row)}
    made = set()
    for path in (tree / "src/verify").glob("*.c"):
        made |= set(re.findall(r'\.id = "([a-z0-9-]+)"|= \{"(lock[a-z-]*)", "', path.read_text()))
    made = {a or b for a, b in made}
    for name in sorted(made - described):
        print(f"docs/guide/checks.md lacks {name}")
    for name in sorted(described - made):
        print(f"docs/guide/checks.md has {name}, which verify has not")
    print(f"{len(made)} checks")
    return 1 if made != described or len(made) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
