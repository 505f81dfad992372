#!/usr/bin/env python3
"""Compares docs/reference/errors.md with the ids in src/: both must have the same ones, with the same exit statuses.

    errors.py SOURCE_TREE [--list]

An id is the third argument of fp8q_fail() or fp8q_warn().  Where that is a parameter, the callers of the function are
read instead, and where it is a member of a table, the table.  --list prints what was found, with messages.
"""
import pathlib
import re
import sys

ID = re.compile(r'"([a-z0-9]+(?:-[a-z0-9]+)*)"')
# Ids that are not in the sources as words: the page says in prose where they come from.
EXPLAINED = {"src/commands/cmd_gate.c: fp8q_verdict_name(gate->verdict)", "src/verify/verify.c: c->id (id)",
             "src/verify/verify.c: of_opening->items[i].id (id)"}
EXIT = {"FP8Q_E_MISMATCH": "1", "FP8Q_E_ARG": "2", "FP8Q_E_UNSUPPORTED": "2", "FP8Q_E_IO": "3", "FP8Q_E_FORMAT": "3",
        "FP8Q_E_NOMEM": "3", "FP8Q_E_CANCELLED": "3", "FP8Q_E_POLICY": "4", "FP8Q_E_EVIDENCE": "5", "warning": "-"}
STATUS = re.compile(r"\bFP8Q_E_[A-Z]+\b")


def arguments(text, start):
    """Arguments of the call whose opening bracket is at text[start]; None if it does not end."""
    parts, depth, at, begin, quote = [], 0, start, start + 1, None
    while at < len(text):
        c = text[at]
        if quote:
            if c == "\\":
                at += 1
            elif c == quote:
                quote = None
        elif c in "\"'":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                return parts + [text[begin:at].strip()]
        elif c == "," and depth == 1:
            parts.append(text[begin:at].strip())
            begin = at + 1
        at += 1
    return None


class Sources:
    def __init__(self, tree):
        self.files = {}
        for path in sorted((tree / "src").rglob("*.c")):
            text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), path.read_text(), flags=re.S)
            self.files[path.relative_to(tree)] = text
        self.found = {}  # id -> set of (status or "warning", where, message)
        self.unclear = []
        self.done = set()

    def note(self, name, status, path, text, at, message=""):
        line = text.count("\n", 0, at) + 1
        self.found.setdefault(name, set()).add((status, f"{path}:{line}", message))

    def calls(self, function):
        for path, text in self.files.items():
            for m in re.finditer(rf"\b{function}\(", text):
                args = arguments(text, m.end() - 1)
                if args and not re.match(r"(static |const |int |void |struct |enum )", " ".join(args)):
                    yield path, text, m.start(), args

    def enclosing(self, text, at):
        """Name and parameters of the function around text[at]."""
        heads = list(re.finditer(r"^(?:[a-z][\w \*]*?)\b(\w+)\(([^;{}]*?)\)\n\{", text[:at], flags=re.M))
        return (heads[-1][1], arguments("(" + heads[-1][2] + ")", 0)) if heads else (None, [])

    def ids(self, path, text, at, args, index, status):
        """Ids that the argument @index can be."""
        value = args[index] if index < len(args) else ""
        message = " ".join(args[index + 1:])[:200]
        literals = ID.findall(value)
        if literals:
            for name in literals:
                self.note(name, status, path, text, at, message)
        elif re.fullmatch(r"\w+", value):
            function, parameters = self.enclosing(text, at)
            position = next((i for i, p in enumerate(parameters) if re.search(rf"\b{value}$", p)), None)
            if position is None:  # a variable: what is assigned to it
                names = ID.findall(" ".join(re.findall(rf"\b{value} = ([^;]*);", text)))
                for name in names:
                    self.note(name, status, path, text, at, message)
                if not names:
                    self.unclear.append(f"{path}: {value} in {function}()")
            elif (function, position) not in self.done:
                self.done.add((function, position))
                for p, t, a, inner in self.calls(function):
                    statuses = STATUS.findall(" ".join(inner))
                    self.ids(p, t, a, inner, position, statuses[0] if statuses else status)
        elif member := re.fullmatch(r"(?:\w+(?:\[\w+\])?(?:\.|->))+(\w+)", value):
            # Rows of a table in the same file: the literals of the initializer that look like ids with a status near.
            array = re.match(r"\w+", value)[0]
            m = re.search(rf"\b{array}\[\] = \{{(.*?)\}};", text, flags=re.S)
            rows = re.findall(r"\{[^{}]*\}", m[1]) if m else []
            for row in rows:
                names = ID.findall(row)
                if names:
                    self.note(names[0], status, path, text, at, message)
            if not rows:
                self.unclear.append(f"{path}: {value} ({member[1]})")
        else:
            self.unclear.append(f"{path}: {value}")

    def read(self):
        for path, text, at, args in self.calls("fp8q_fail"):
            if len(args) >= 4:
                statuses = STATUS.findall(args[1])
                for status in statuses or ["?"]:
                    self.ids(path, text, at, args, 2, status)
        for path, text, at, args in self.calls("fp8q_warn"):
            if len(args) >= 4:
                self.ids(path, text, at, args, 2, "warning")
        for path, text in self.files.items():
            for m in re.finditer(r'id\), "([a-z0-9-]+)"\)', text):
                self.note(m[1], "?", path, text, m.start())
        return self.found


def page(path):
    """{id: exit statuses} of the tables, whose first cells are ids in backquotes."""
    ids = {}
    for line in path.read_text().splitlines():
        if m := re.match(r"\| `([a-z0-9-]+)` \|", line):
            if m[1] in ids:
                sys.exit(f"{path}: `{m[1]}` stands twice")
            ids[m[1]] = set(line.split("|")[2].replace(",", " ").split())
    return ids


def main():
    tree = pathlib.Path(sys.argv[1])
    sources = Sources(tree)
    found = sources.read()
    if "--list" in sys.argv:
        for name in sorted(found):
            print(name)
            for status, where, message in sorted(found[name]):
                print(f"    {status:18} {where:36} {' '.join(message.split())}")
        return 0
    listed = page(tree / "docs/reference/errors.md")
    failed = False
    for name in sorted(found.keys() - listed.keys()):
        print(f"{sorted(found[name])[0][1]}: id \"{name}\" has no row in docs/reference/errors.md")
        failed = True
    for name in sorted(listed.keys() - found.keys()):
        print(f"docs/reference/errors.md: `{name}` is no id of src/ any more")
        failed = True
    for name in sorted(found.keys() & listed.keys()):
        exits = {EXIT.get(status) for status, _, _ in found[name]} - {None}
        if exits and exits != listed[name]:
            print(f"docs/reference/errors.md: `{name}` has exit {', '.join(sorted(exits))} in src/")
            failed = True
    for text in set(sources.unclear) - EXPLAINED:
        print(f"{text}: cannot tell which ids this is")
        failed = True
    print(f"{len(found)} ids, {len(listed)} rows")
    return failed or len(found) < 100


if __name__ == "__main__":
    sys.exit(main())
