#!/bin/sh
# Runs every fuzz target for SECONDS (default 60) on a copy of its seeds; a crash stops with its input's path.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
cmake --preset fuzz >/dev/null
cmake --build build/fuzz -j"$(nproc)" >build/fuzz.log 2>&1 || { tail -n 50 build/fuzz.log; exit 1; }
for target in build/fuzz/tests/fuzz/fuzz_*; do
    [ -x "$target" ] && [ ! -d "$target" ] || continue
    name=$(basename "$target")
    seeds=tests/fuzz/seeds/${name#fuzz_}
    work=build/fuzz/work/$name
    rm -rf "$work"
    mkdir -p "$work"
    echo "$name: $seconds s"
    dict=
    [ ! -f "tests/fuzz/${name#fuzz_}.dict" ] || dict=-dict=tests/fuzz/${name#fuzz_}.dict
    "$target" -max_total_time="$seconds" -print_final_stats=1 -rss_limit_mb=2048 -timeout=20 -artifact_prefix="$work/" $dict \
        "$work" "$seeds" >"$work.log" 2>&1 || { tail -n 30 "$work.log"; exit 1; }
    grep -E '^Done|stat::number_of_executed' "$work.log" || true
done
