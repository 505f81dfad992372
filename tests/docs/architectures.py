#!/usr/bin/env python3
"""Compares docs/reference/architectures.md with what `fp8q families --json` says.

    architectures.py SOURCE_TREE FP8Q [--write]

--write makes the tables behind the mark anew.
"""
import json
import pathlib
import subprocess
import sys

MARK = "<!-- fp8q families: tests/docs/architectures.py . FP8Q --write makes everything below anew -->\n"


def cell(text):
    return (text or "").replace("|", "\\|")


def code(text):
    return f"`{text}`" if text else ""


def group(modules):
    """["a.b", "a.c"] as a.(b c): the modules of a fused group have all but their last component in common."""
    head, last = zip(*(m.rpartition(".")[::2] for m in modules))
    dot = "." if head[0] else ""
    return head[0] + dot + (last[0] if len(last) == 1 else f"({' '.join(last)})")


def language(row):
    linears = " ".join(code(group(modules)) for modules in row["linears"])
    roots = f"<br>also under {' '.join(map(code, row['decoders']))}" if row["decoders"] else ""
    note = f"<br>{cell(row['note'])}" if row["note"] else ""
    return f"| **{cell(row['name'])}**{note} | {cell(' '.join(row['model_types'])) or 'any other'}{roots} | {linears} | {row['experts']} |\n"


def wrapper(row):
    kept = " ".join(code(root) for part in ("vision", "projector", "action") for root in row[part])
    roots = " ".join(map(code, row["decoders"])) or "roots of usual names"
    note = f"<br>{cell(row['note'])}" if row["note"] else ""
    return f"| **{cell(row['name'])}**{note} | {cell(' '.join(row['model_types'])) or 'any other'} | {roots} | {kept} |\n"


def tables(fp8q):
    done = subprocess.run([fp8q, "families", "--json"], capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout)
    out = MARK + "\n## Language models\n\n| language model | `model_type` | linears behind `layers.N.` | stacked experts |\n|---|---|---|---|\n"
    out += "".join(map(language, answer["language_models"]))
    out += "\n## Wrappers\n\n| wrapper | `model_type` | where its language model is | left unquantized |\n|---|---|---|---|\n"
    return out + "".join(map(wrapper, answer["families"]))


def main(tree, fp8q, write):
    path = pathlib.Path(tree) / "docs/reference/architectures.md"
    text = path.read_text()
    head = text[:text.index(MARK)]
    if write:
        path.write_text(head + tables(fp8q))
    elif text != head + tables(fp8q):
        sys.exit(f"{path} is not what `fp8q families` says: tests/docs/architectures.py . FP8Q --write")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "--write" in sys.argv[3:])
