#!/usr/bin/env python3
"""Compares the map in docs/design.md with src/: it must name each room and each module, and nothing else.

    map.py SOURCE_TREE [--write]

--write makes the part below "## Files" anew: a module's line is the first sentence of its header (or of its .c file).
"""
import pathlib
import re
import sys

MARK = "## Files\n"


def modules(room):
    """{name: (endings, first sentence)}"""
    found = {}
    for path in sorted(room.glob("*.[ch]")):
        found.setdefault(path.stem, []).append(path)
    return {name: (" ".join(p.suffix[1:] for p in paths), sentence(sorted(paths, key=lambda p: p.suffix == ".c")[0]))
            for name, paths in found.items()}


def sentence(path):
    head = re.match(r"/\*.*?\*/", path.read_text(), flags=re.S)[0]
    text = " ".join(line.strip(" */") for line in head.splitlines())
    m = re.search(rf"{re.escape(path.name)} - (.*)", text)
    if not m:
        sys.exit(f"{path}: its first comment does not say \"{path.name} - what it is for\"")
    first = re.split(r"(?<=[a-z0-9)\]\"'`*])\.(?:\s|$)|:?\s{2,}", m[1].strip())[0]
    return first.replace("|", "\\|")


def rooms(tree):
    return sorted(p for p in (tree / "src").iterdir() if p.is_dir())


def write(tree):
    out = MARK + "\nOne line a module, from the head of its file; `tests/docs/map.py . --write` makes this part anew.\n"
    for path in sorted((tree / "src").glob("*.[ch]")):
        out += f"\n`{path.name}`: {sentence(path)}.\n"
    for room in rooms(tree):
        out += f"\n### {room.name}/\n\n| module | |\n|---|---|\n"
        for name, (_, text) in modules(room).items():
            out += f"| `{name}` | {text} |\n"
    return out


def main():
    tree = pathlib.Path(sys.argv[1])
    page = tree / "docs/design.md"
    hand, _, files = page.read_text().partition(MARK)
    if "--write" in sys.argv:
        page.write_text(hand + write(tree))
        return 0
    failed = False
    sections = dict(re.findall(r"^### (\w+)/\n(.*?)(?=^### |\Z)", files, flags=re.S | re.M))
    for room in rooms(tree):
        named = set(re.findall(r"^\| `(\w+)` \|", sections.get(room.name, ""), flags=re.M))
        there = set(modules(room))
        if f"`{room.name}/`" not in hand:
            print(f"docs/design.md: the table of rooms lacks `{room.name}/`")
            failed = True
        for name in sorted(there - named):
            print(f"docs/design.md does not name src/{room.name}/{name}")
            failed = True
        for name in sorted(named - there):
            print(f"docs/design.md names src/{room.name}/{name}, which is not there")
            failed = True
    for name in sorted(set(sections) - {r.name for r in rooms(tree)}):
        print(f"docs/design.md names the room {name}/, which is not there")
        failed = True
    if failed:
        print("tests/docs/map.py . --write makes the list of files anew; rooms are described by hand")
    return failed


if __name__ == "__main__":
    sys.exit(main())
