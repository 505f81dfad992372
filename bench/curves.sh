#!/bin/bash
# Time against size and against threads, for docs/results/performance.md: writes two SVG plots and their points.
#
#     bench/curves.sh FP8Q MAKE_CHECKPOINT OUT_DIR [DIR]      DIR (default /dev/shm): 12 GB
set -eu
fp8q=$(readlink -f "$1") make_checkpoint=$(readlink -f "$2") out=$(readlink -f "$3")
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d "${4:-/dev/shm}/fp8q-curves-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
q="$fp8q quantize -q"

points() { # RESULTS X: the names are the series
    python3 -c 'import json, sys
for r in map(json.loads, open(sys.argv[1])):
    print(r["name"], sys.argv[2], round(r["wall"], 4), sep="\t")' "$1" "$2"
}

for mb in 250 500 1000 2000 4000; do
    "$make_checkpoint" size=$mb in.safetensors
    python3 "$here/measure.py" fp8q "$q in.safetensors o.safetensors" "rm -f o.*" \
        cp "cp in.safetensors c" "rm -f c" >results
    points results "$(awk "BEGIN { print $(stat -c %s in.safetensors) / 1e9 }")"
    rm -f in.safetensors
done | sort -s -k1,1r >"$out/time-size.tsv"
"$make_checkpoint" vl-2gb vl
for threads in 1 2 3 4; do
    python3 "$here/measure.py" fp8q "$q --threads $threads vl q" "rm -rf q" \
        "cp -r" "cp -r vl c" "rm -rf c" >results
    points results $threads
done | sort -s -k1,1r >"$out/time-threads.tsv"
python3 "$here/plot.py" "quantize and cp on tmpfs, one file" "size of the source, GB" "seconds" \
    <"$out/time-size.tsv" >"$out/time-size.svg"
python3 "$here/plot.py" "2.2 GB in two shards on tmpfs, $(nproc) cores" "threads" "seconds" \
    <"$out/time-threads.tsv" >"$out/time-threads.svg"
