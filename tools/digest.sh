#!/bin/sh
# Prints one SHA-256 over all files that a fixed set of conversions writes, and runs verify on each.
#
#     tools/digest.sh [OPTION...] -- COMMAND...      COMMAND is fp8q, with an emulator before it perhaps
#
# OPTIONs go to every command: --threads 7 --kernel scalar
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
ln -s "$data" data # paths are part of an output
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
    run "$@" quantize "data/checkpoints/$source" $to $more
    run "$@" verify $to --source "data/checkpoints/$source"
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
LIST
run "$@" dequantize 1 back
run "$@" dequantize data/checkpoints/deepseek-v3-fp8 back-f32 --dtype f32
rm -f err.txt data
find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -d' ' -f1
