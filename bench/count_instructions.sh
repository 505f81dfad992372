#!/bin/sh
# Instructions for 1,000 weights from BF16 to E4M3, counted by valgrind: does not depend on load or
# clock, so that a change of it means a change of the code (or of the compiler).
#
#     bench/count_instructions.sh FP8Q MAKE_CHECKPOINT        Debian: valgrind
#
# One line a kernel: amax and encode by itself, and the loops over a stripe around them.  Valgrind
# has no AVX-512.
set -eu
fp8q=$(readlink -f "$1") make_checkpoint=$(readlink -f "$2")
dir=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-count-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
"$make_checkpoint" size=20 in.safetensors
# Weights that are quantized: one byte each in the output.
weights=$("$fp8q" quantize --json in.safetensors out.safetensors |
    tr '{' '\n' | sed -n 's/.*"action": *"quantize".*"shape": *\[\([0-9]*\), *\([0-9]*\)\].*/\1 \2/p' |
    awk '{ n += $1 * $2 } END { print n }')
for kernel in avx2 scalar; do
    rm -f out.*
    valgrind --tool=callgrind --callgrind-out-file=counts -q \
        "$fp8q" quantize -q --threads 1 --kernel $kernel in.safetensors out.safetensors
    callgrind_annotate --auto=no --threshold=100 counts | tr -d , |
        awk -v weights="$weights" -v kernel=$kernel '
            $1 ~ /^[0-9]+$/ && /amax_half|amax_bf16|amax_16/ { amax += $1 }
            $1 ~ /^[0-9]+$/ && /encode_bf16/ { encode += $1 }
            $1 ~ /^[0-9]+$/ && /fp8q_stripe_(amax|encode)/ { loops += $1 }
            /PROGRAM TOTALS/ { total = $1 }
            END { printf "%-7s amax %7.1f  encode %8.1f  loops %6.1f  whole program %8.1f\n", kernel,
                  1000 * amax / weights, 1000 * encode / weights, 1000 * loops / weights, 1000 * total / weights }'
done
