#!/usr/bin/env python3
"""Runs commands in turn, several rounds, and prints the median of each as one JSON object a line.

    measure.py [--rounds N] [--warm PATH]... NAME 'SHELL COMMAND' 'CLEANUP' [NAME COMMAND CLEANUP]...

One round runs every command once, so that a busy machine slows all of them alike; CLEANUP (may be
empty) runs after its command, outside the measurement.  Wall and CPU seconds and peak RSS come from
wait4(2) of the command with all its children; bytes read and written are those that its system
calls moved (rchar and wchar of /proc/PID/io: page cache included, mapped pages not).
"""
import json
import os
import statistics
import subprocess
import sys
import time


def io_counts(pid):
    """Counters of a process that has ended but not been reaped; its reaped children are in them."""
    try:
        with open(f"/proc/{pid}/io") as f:
            fields = dict(line.split(": ") for line in f)
        return int(fields["rchar"]), int(fields["wchar"])
    except (OSError, KeyError, ValueError):
        return None, None


def run_once(command):
    start = time.perf_counter()
    process = subprocess.Popen(["/bin/sh", "-c", command], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    message = process.stderr.read()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    wall = time.perf_counter() - start
    read, written = io_counts(process.pid)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"measure.py: exit {process.returncode}: {command}\n{message.decode(errors='replace')}")
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "rss": usage.ru_maxrss * 1024,
            "read": read, "written": written}


def warm(path):
    files = [path]
    if os.path.isdir(path):
        files = [os.path.join(root, name) for root, _, names in os.walk(path) for name in names]
    buffer = bytearray(1 << 20)
    for name in files:
        with open(name, "rb", buffering=0) as f:
            while f.readinto(buffer):
                pass


def main(args):
    rounds, warmed = 5, []
    while args and args[0].startswith("--"):
        option, value, args = args[0], args[1], args[2:]
        if option == "--rounds":
            rounds = int(value)
        elif option == "--warm":
            warmed.append(value)
        else:
            sys.exit(__doc__)
    if not args or len(args) % 3:
        sys.exit(__doc__)
    commands = [args[i:i + 3] for i in range(0, len(args), 3)]
    results = {name: [] for name, _, _ in commands}
    for path in warmed:
        warm(path)
    for _ in range(rounds):
        for name, command, cleanup in commands:
            results[name].append(run_once(command))
            if cleanup:
                subprocess.run(["/bin/sh", "-c", cleanup], check=True)
    for name, runs in results.items():
        median = {key: statistics.median(r[key] for r in runs) if runs[0][key] is not None else None
                  for key in runs[0]}
        print(json.dumps({"name": name, "rounds": rounds, **median,
                          "walls": [round(r["wall"], 4) for r in runs]}))


if __name__ == "__main__":
    main(sys.argv[1:])
