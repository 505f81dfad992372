#!/bin/sh
# Converts and verifies real trained checkpoints: sizes, times, signal to quantization noise.
#
#     bench/real_convert.sh MODELS [WORK]
#
# MODELS holds qwen05 (Qwen2.5-Coder-0.5B-Instruct), smollm2 (SmolLM2-135M-Instruct) and minilm (all-MiniLM-L6-v2), each as
# transformers saves it.  WORK (default: a temporary directory) needs room for the outputs.
set -eu
models=$(cd "$1" && pwd)
work=${2:-$(mktemp -d)}
mkdir -p "$work"
fp8q=$(cd "$(dirname "$0")/.." && pwd)/build/release/fp8q
[ -x "$fp8q" ] || { echo "build the release preset first" >&2; exit 2; }

convert() { # MODEL [OPTION...]
    model=$1
    shift
    echo "== $model $*"
    rm -rf "$work/$model"
    begin=$(date +%s.%N)
    "$fp8q" quantize "$models/$model" "$work/$model" "$@" 2>/dev/null | grep -E 'tensors .* less|wrote'
    middle=$(date +%s.%N)
    "$fp8q" verify "$work/$model" --source "$models/$model" | grep -E 'noise|PASSED|FAILED'
    end=$(date +%s.%N)
    echo "quantize $(echo "$middle - $begin" | bc) s, verify --source $(echo "$end - $middle" | bc) s"
}

convert qwen05
convert qwen05 --scale-fmt ue8m0
convert smollm2 --unaligned quantize
convert smollm2 --unaligned per-channel
# BERT is no decoder: its linears are named by hand.
convert minilm --include 're:encoder\.layer\.\d+\.(attention\.self\.(query|key|value)|(attention\.output|intermediate|output)\.dense)$'
