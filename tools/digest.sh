#!/bin/sh
# Prints one SHA-256 over all files that a fixed set of conversions writes, and runs verify on each.
#
#     tools/digest.sh [OPTION...] -- COMMAND...      COMMAND is fp8q, with an emulator before it perhaps
#
# OPTIONs go to every command: --threads 7 --kernel scalar.  The set: each scheme and format, stacked
# experts whole and cut over many shards, static scales, scales of a cache and GPTQ from statistics, the same in parts
# that run in another order, FP8 taken through F32 again, and the way back.
set -eu
data=$(cd "$(dirname "$0")/../tests/data" && pwd)
options=
while [ "$1" != -- ]; do
    options="$options $1"
    shift
done
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-digest-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
ln -s "$data/checkpoints" c # paths are part of an output
run() {
    # shellcheck disable=SC2086
    "$@" $options -q 2>err.txt || { cat err.txt >&2; echo "failed: $* $options" >&2; exit 1; }
}

n=0
while read -r source more; do
    n=$((n + 1))
    to=$n
    case $source in *.safetensors) to=$n.safetensors ;; esac
    # shellcheck disable=SC2086
    run "$@" quantize "c/$source" $to $more
    run "$@" verify $to --source "c/$source"
done <<'LIST'
qwen3
qwen2.5-vl-new --scales inline
mixtral --format compressed-tensors
llama-f32 --scale-fmt ue8m0
phi3 --scheme FP8_DYNAMIC
llama-f16 --scheme FP8
llama-untied --max-shard-size 400KB
qwen3-moe
bare-file/model.safetensors
qwen3.5-moe
qwen3.5-moe --max-shard-size 100KB
qwen3-vl-moe --max-shard-size 60KB --scheme FP8_DYNAMIC
qwen3.5-moe --max-shard-size 60KB --scheme FP8
qwen3-vl-moe --max-shard-size 150KB --scales inline --format compressed-tensors
deepseek-v3-fp8 --requantize
smolvlm-ragged --unaligned quantize
smolvlm-ragged --unaligned per-channel
smolvlm-ragged --scheme MXFP8
qwen3.5-moe --scheme MXFP8 --format fp8 --max-shard-size 100KB
LIST

# Scales and rounding that data decide, and scales of a cache.  One set of statistics for all: whether
# calibrate itself gives the same bytes on every kernel is its own test.
SOURCE_DATE_EPOCH=1790000000
export SOURCE_DATE_EPOCH
"$@" calibrate c/llama-untied --inputs "$data/eval/text.inputs.safetensors" --threads 1 --kernel scalar -q -o statistics
while read -r to more; do
    # shellcheck disable=SC2086
    run "$@" quantize c/llama-untied $to --calibration statistics $more
    run "$@" verify $to --source c/llama-untied
    for part in 2/2 1/2; do
        # shellcheck disable=SC2086
        run "$@" quantize c/llama-untied parts-$to --calibration statistics --part $part $more
    done
    run "$@" finish parts-$to
    diff -r $to parts-$to >&2
done <<'LIST'
static --scheme FP8_STATIC
cache --kv-cache fp8
gptq --max-shard-size 400KB
LIST
run "$@" dequantize static back-static
run "$@" dequantize cache back-cache

# In parts, the last one first: the bytes of one run.
while read -r to source more; do
    for part in 3/3 1/3 2/3; do
        # shellcheck disable=SC2086
        run "$@" quantize c/$source parts-$to --part $part --max-shard-size 100KB $more
    done
    run "$@" finish parts-$to
    run "$@" verify parts-$to --source c/$source
    # shellcheck disable=SC2086
    run "$@" quantize c/$source whole-$to --max-shard-size 100KB $more
    diff -r whole-$to parts-$to >&2
done <<'LIST'
qwen3.5-moe qwen3.5-moe
qwen3-vl-moe qwen3-vl-moe
tensor qwen3-next --scheme FP8
LIST

run "$@" dequantize 1 back
run "$@" dequantize 11 back-stack
run "$@" dequantize parts-qwen3-vl-moe back-parts --max-shard-size 100KB
run "$@" dequantize c/deepseek-v3-fp8 back-f32 --dtype f32
run "$@" quantize back-stack again-stack --max-shard-size 100KB
run "$@" quantize 1 again --requantize --scale-fmt ue8m0
rm -f err.txt c
find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1
