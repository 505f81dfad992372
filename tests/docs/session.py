#!/usr/bin/env python3
"""Every command that a page shows is run, and prints what the page says.

    session.py FP8Q MAKE_CHECKPOINT PAGE.md...        UPDATE=1 rewrites what the pages show

The blocks of a page run one after the other in one shell and one empty directory:

    ```console        lines that begin with "$ " are run; the others are what they print, both streams.  A line
                      that is "..." stands for any number of lines, "[exit N]" for a status that is not 0
    <!-- run: X -->   is run, and not shown: it makes what the page takes for granted ($DATA: tests/data)
    <!-- file: F -->  before a block of any language: its text is written to F

Every other block is of a language that is not run here (python, yaml, ...), or of "sh" and stands below
<!-- needs: WHAT -->, which says why it cannot be run here; a page that has a block of another kind fails.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"(?:^<!-- (?P<word>file|needs): (?P<what>.*?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$"
                   r"|^<!-- run:\s(?P<run>.*?)\s-->$", re.M | re.S)
END = "--- end of the command"
TIMEOUT = 300


class Shell:
    """One bash in a directory of its own, which is asked for a command at a time."""

    def __init__(self, tools, data, where):
        for name, path in tools.items():
            (where / "bin").mkdir(exist_ok=True)
            (where / "bin" / name).symlink_to(path)
        (where / "work").mkdir()
        env = dict(os.environ, PATH=f"{where}/bin:{os.environ['PATH']}", DATA=data, LC_ALL="C")
        self.bash = subprocess.Popen(["timeout", str(TIMEOUT), "bash"], cwd=where / "work", env=env, text=True,
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def run(self, command):
        self.bash.stdin.write(f"{{ {command}\n}} </dev/null\n{{ code=$?; [ $code = 0 ] || echo \"[exit $code]\"; echo '{END}'; }}\n")
        self.bash.stdin.flush()
        lines = []
        for line in self.bash.stdout:
            if line.endswith(END + "\n"):
                return "".join(lines) + line[:-len(END) - 1]
            lines.append(line)
        raise SystemExit(f"the shell ended in: {command}\n{''.join(lines)}")


def commands(text):
    """Pairs of a command and the output shown below it; a command goes on after a backslash."""
    pairs = []
    for line in text.splitlines(keepends=True):
        if line.startswith("$ "):
            pairs.append([line, ""])
        elif pairs and not pairs[-1][1] and pairs[-1][0].endswith("\\\n"):
            pairs[-1][0] += line
        elif pairs:
            pairs[-1][1] += line
        else:
            raise SystemExit(f"output before the first command: {line}")
    return pairs


def matches(shown, printed):
    pattern = "".join(r"(?:.*\n)*?" if line == "...\n" else re.escape(line) for line in shown.splitlines(keepends=True))
    return re.fullmatch(pattern, printed) is not None


def session(shell, page, text):
    """Runs a block; returns it as it should read, and whether it does."""
    out, right = "", True
    for command, shown in commands(text):
        printed = shell.run(command[2:])
        same = matches(shown, printed)
        if not same:
            print(f"{page}: {command}shown:\n{shown}printed:\n{printed}")
        right = right and same
        out += command + (shown if same else printed)
    return out, right


def check(page, tools, data):
    failed = ran = 0
    text, out, at = page.read_text(), "", 0
    with tempfile.TemporaryDirectory(prefix="fp8q-session-") as where:
        shell = Shell(tools, data, pathlib.Path(where))
        for m in BLOCK.finditer(text):
            block = m[0]
            if m["run"]:
                shell.run(m["run"])
            elif m["word"] == "file":
                (pathlib.Path(where) / "work" / m["what"]).write_text(m["text"])
            elif m["kind"] == "console":
                shown, right = session(shell, page, m["text"])
                block = m[0].replace(m["text"], shown)
                failed += not right
                ran += 1
            elif m["kind"] in ("", "sh", "bash") and m["word"] != "needs":
                print(f"{page}: a block that is neither run nor says what it needs:\n{m['text']}")
                failed += 1
            out += text[at:m.start()] + block
            at = m.end()
    if os.environ.get("UPDATE") == "1":
        page.write_text(out + text[at:])
    print(f"{page.name}: {ran} blocks run, {failed} wrong")
    return failed


def main():
    tools = {"fp8q": sys.argv[1], "make_checkpoint": sys.argv[2]}
    data = str(pathlib.Path(__file__).resolve().parent.parent / "data")
    return min(sum(check(pathlib.Path(name), tools, data) for name in sys.argv[3:]), 1)


if __name__ == "__main__":
    sys.exit(main())
