# SPDX-License-Identifier: Apache-2.0
"""The completions in the shells themselves: keys go into an interactive bash and zsh on a terminal, fish is asked.

    completions.py FP8Q COMPLETIONS_DIR

Every line of CASES is typed, Tab is pressed, and the line that the shell makes of it must be the expected one.
"""
import os
import pty
import re
import select
import subprocess
import sys
import tempfile
import time

fp8q, completions = (os.path.abspath(path) for path in sys.argv[1:3])

# What is typed before Tab, and the whole line after it.  Where one word is left, shells set a space behind it.
CASES = [
    ("fp8q qua", "fp8q quantize "),
    ("fp8q --ver", "fp8q --version "),
    ("fp8q help cali", "fp8q help calibrate "),
    ("fp8q quantize --requ", "fp8q quantize --requantize "),
    ("fp8q quantize --format comp", "fp8q quantize --format compressed-tensors "),
    ("fp8q quantize --format=comp", "fp8q quantize --format=compressed-tensors "),
    ("fp8q quantize --scheme FP8_D", "fp8q quantize --scheme FP8_DYNAMIC "),
    ("fp8q quantize --ignore re:x --kernel sca", "fp8q quantize --ignore re:x --kernel scalar "),
    ("fp8q quantize my", "fp8q quantize my-model/"),
    ("fp8q verify --source my", "fp8q verify --source my-model/"),
    ("fp8q verify --source=my", "fp8q verify --source=my-model/"),
    ("fp8q verify --lock lo", "fp8q verify --lock lock.json "),
    ("fp8q families my", "fp8q families my"),
]


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, argv, setup, cwd):
        pid, self.fd = pty.fork()
        if pid == 0:
            os.chdir(cwd)
            env = {"PATH": os.path.join(cwd, "bin") + ":/usr/bin:/bin", "HOME": cwd, "TERM": "dumb", "PS1": "> ",
                   "LC_ALL": "C.UTF-8", "ZDOTDIR": cwd}
            os.execvpe(argv[0], argv, env)
        for line in setup:
            self.send(line + "\n")
        self.send("echo re''ady\n")
        self.wait("\nready")

    def send(self, text):
        os.write(self.fd, text.encode())

    def wait(self, text, seconds=20):
        seen, end = "", time.monotonic() + seconds
        while text not in seen:
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            if not ready:
                raise AssertionError(f"waited for {text!r}, the terminal shows {seen!r}")
            seen += os.read(self.fd, 65536).decode(errors="replace").replace("\r", "")
        return seen

    def complete(self, typed):
        # The line is not run: a widget (Ctrl-X p) writes what stands in it into a file.
        if os.path.exists("line"):
            os.unlink("line")
        self.send(typed + "\t")
        self.send("\x18p")
        end = time.monotonic() + 20
        while not os.path.exists("line") and time.monotonic() < end:
            time.sleep(0.02)
        self.send("\x15")
        with open("line") as file:
            return file.read()


def bash(cwd):
    return Terminal(["bash", "--norc", "--noprofile", "-i"], [
        f"source {completions}/fp8q.bash",
        "save() { printf %s \"$READLINE_LINE\" >line.new; mv line.new line; }",
        "bind -x '\"\\C-xp\": save'"], cwd)


def zsh(cwd):
    return Terminal(["zsh", "-f", "-i"], [
        f"fpath=({completions} $fpath); autoload -U compinit; compinit -u -D",
        "save() { print -rn -- \"$BUFFER\" >line.new; mv line.new line }; zle -N save; bindkey -e; bindkey '^Xp' save"], cwd)


class Fish:
    """fish tells what it would offer; one offer is what Tab would put there."""

    def complete(self, typed):
        run = subprocess.run(["fish", "--no-config", "-c", f"source {completions}/fp8q.fish; complete -C {typed!r}"],
                             capture_output=True, text=True, check=True,
                             env={"PATH": os.getcwd() + "/bin:/usr/bin:/bin", "HOME": os.getcwd(), "LC_ALL": "C.UTF-8"})
        offers = [line.split("\t")[0] for line in run.stdout.splitlines()]
        if len(offers) != 1:
            return typed
        word = re.sub(r"\S*$", "", typed) + offers[0]
        return word if word.endswith("/") else word + " "


with tempfile.TemporaryDirectory(prefix="fp8q-shells-") as work:
    os.chdir(work)
    os.mkdir("bin")
    os.mkdir("my-model")
    os.symlink(fp8q, "bin/fp8q")
    open("lock.json", "w").close()

    failed = 0
    for name, shell in (("bash", bash(work)), ("zsh", zsh(work)), ("fish", Fish())):
        for typed, expected in CASES:
            found = shell.complete(typed)
            if found.rstrip() != expected.rstrip() or (name != "zsh" and found != expected):
                print(f"{name}: {typed!r} became {found!r}, expected {expected!r}")
                failed = 1
        print(f"{name}: {len(CASES)} lines")
sys.exit(failed)
