#!/bin/bash
# Measures how fast fp8q is against what it must be, as ratios: both commands in turn, medians of five.
#
#     bench/bars.sh FP8Q MAKE_CHECKPOINT [TMPFS_DIR [DISK_DIR]]
#
# Prints one line a bar: the ratio, its limit, and pass or FAIL; ends with status 1 if one failed.
# Needs 14 GB of memory in TMPFS_DIR (/dev/shm), 16 GB in DISK_DIR (.), two cores and python3, and a
# machine that does nothing else.  The peers have a script of their own, peers.sh.
set -eu
fp8q=$(readlink -f "$1") make_checkpoint=$(readlink -f "$2")
here=$(cd "$(dirname "$0")" && pwd)
tmpfs=$(mktemp -d "${3:-/dev/shm}/fp8q-bars-XXXXXX")
disk=$(mktemp -d "${4:-.}/fp8q-bars-XXXXXX")
disk=$(readlink -f "$disk")
trap 'rm -rf "$tmpfs" "$disk"' EXIT
rounds=${ROUNDS:-5}
failed=0

measure() {
    python3 "$here/measure.py" --rounds "$rounds" "$@" >"$tmpfs/results"
    [ -z "${LOG:-}" ] || cat "$tmpfs/results" >>"$LOG"
}

wall() { # NAME
    python3 -c 'import json,sys
print(next(r["wall"] for r in map(json.loads, open(sys.argv[1])) if r["name"] == sys.argv[2]))' "$tmpfs/results" "$1"
}

bar() { # TEXT VALUE LIMIT [UNIT]
    verdict=$(awk "BEGIN { print $2 <= $3 ? \"pass\" : \"FAIL\" }")
    printf '%-62s %7.3f%s  limit %s%s  %s\n' "$1" "$2" "${4:-}" "$3" "${4:-}" "$verdict"
    [ "$verdict" = pass ] || failed=1
}

ratio() { # TEXT A B LIMIT [FACTOR]: wall time of A to that of B
    bar "$1" "$(awk "BEGIN { print $(wall "$2") / $(wall "$3") / ${5:-1} }")" "$4"
}

q="$fp8q quantize -q"
cd "$tmpfs"
"$make_checkpoint" vl-2gb vl
measure quantize "$q vl q" "rm -rf q" cp "cp -r vl c" "rm -rf c"
ratio "1  tmpfs, 2.2 GB in 2 shards: quantize / cp -r" quantize cp 0.8
$q vl q
measure quantize "$q vl q2" "rm -rf q2" verify "$fp8q verify -q q" "" \
    source "$fp8q verify -q q --source vl" ""
ratio "3  verify --source / quantize" source quantize 1.2
ratio "3  verify / quantize" verify quantize 0.5
$fp8q dequantize -q q d
measure dequantize "$fp8q dequantize -q q d2" "rm -rf d2" cp "cp -r d c" "rm -rf c"
ratio "3  dequantize / cp -r of its output" dequantize cp 1.2
rm -rf q d
measure one "$q --threads 1 vl q" "rm -rf q" two "$q --threads 2 vl q" "rm -rf q"
ratio "4  one thread / two threads" one two 2.2

cp -r vl "$disk/vl"
rm -rf vl
"$make_checkpoint" file-2gb one.safetensors
measure quantize "$q one.safetensors o.safetensors" "rm -f o.*" cp "cp one.safetensors c" "rm -f c"
ratio "1  tmpfs, one file of 2.2 GB: quantize / cp" quantize cp 0.8
cp one.safetensors "$disk/"
rm one.safetensors

"$make_checkpoint" size=1000 1gb.safetensors
"$make_checkpoint" size=8000 8gb.safetensors
gb1=$(stat -c %s 1gb.safetensors) gb8=$(stat -c %s 8gb.safetensors)
measure 1gb "$q 1gb.safetensors o.safetensors" "rm -f o.*" 8gb "$q 8gb.safetensors o.safetensors" "rm -f o.*"
ratio "4  time a byte at 8 GB / at 1 GB" 8gb 1gb 1.15 "$gb8 * $gb1"
rm -f 8gb.safetensors 1gb.safetensors
"$make_checkpoint" shards=100,20 shards
"$make_checkpoint" size=2000 file.safetensors
many=$(cat shards/*.safetensors | wc -c) one=$(stat -c %s file.safetensors)
measure many "$q shards q" "rm -rf q" one "$q file.safetensors o.safetensors" "rm -f o.*"
ratio "4  time a byte, $(find shards -name '*.safetensors' | wc -l) small shards / one file" many one 1.25 "$many * $one"
rm -rf shards file.safetensors
"$make_checkpoint" size=1 1mb.safetensors
measure version "$fp8q --version" "" small "$q 1mb.safetensors o.safetensors" "rm -f o.*"
bar "4  --version" "$(wall version)" 0.010 " s"
bar "4  a checkpoint of $(($(stat -c %s 1mb.safetensors) / 1000000)) MB" "$(wall small)" 0.050 " s"
rm -f 1mb.safetensors

cd "$disk"
sync
measure --warm vl quantize "$q vl q" "rm -rf q; sync" \
    cp "cp -r vl c && python3 $here/fsync_files.py c" "rm -rf c; sync"
ratio "1  disk, 2 shards: quantize / cp -r and fsync" quantize cp 0.75
rm -rf vl
measure --warm one.safetensors quantize "$q one.safetensors o.safetensors" "rm -f o.*; sync" \
    cp "cp one.safetensors c && python3 $here/fsync_files.py c" "rm -f c; sync"
ratio "1  disk, one file: quantize / cp and fsync" quantize cp 0.75
exit $failed
