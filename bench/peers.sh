#!/bin/bash
# Measures fp8q beside cp, llm-compressor's model_free_ptq and convert-to-quant on the same bytes.
#
#     bench/peers.sh FP8Q MAKE_CHECKPOINT [DIR] >results.jsonl
#
# One JSON object a line: wall and CPU seconds, peak RSS, bytes read and written; medians of ROUNDS
# (default 3; the peers take minutes).  The Python environments are made in VENVS (default:
# build/peers), with the CPU build of torch where pip can get it.  DIR (default: /dev/shm) needs 8 GB.
set -eu
fp8q=$(readlink -f "$1") make_checkpoint=$(readlink -f "$2")
here=$(cd "$(dirname "$0")" && pwd)
venvs=${VENVS:-$here/../build/peers}
llmc=$venvs/llmcompressor ctq=$venvs/convert-to-quant

make_venv() { # DIR PACKAGE...
    [ -x "$1/bin/python" ] && [ -e "$1/.complete" ] && return
    rm -rf "$1"
    "${PYTHON:-python3.11}" -m venv "$1"
    "$1/bin/pip" install -qq torch==2.13.0 >&2
    "$1/bin/pip" install -qq "${@:2}" >&2
    touch "$1/.complete"
}
mkdir -p "$venvs"
make_venv "$llmc" llmcompressor==0.14.0.1
# It imports these three without asking for them.
make_venv "$ctq" convert-to-quant==1.3.4 numpy safetensors tqdm
llmc=$(readlink -f "$llmc") ctq=$(readlink -f "$ctq")

dir=$(mktemp -d "${3:-/dev/shm}/fp8q-peers-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
export HF_HUB_OFFLINE=1 # nothing is to be fetched
"$make_checkpoint" vl-2gb vl
"$make_checkpoint" file-2gb one.safetensors
convert="$ctq/bin/convert_to_quant -i one.safetensors -o p.safetensors --simple --device cpu \
--scaling_mode block --block_size 128 --exclude-layers 'visual|embed_tokens'"
# The same modules in high precision for all: vision tower, projector and embeddings.
python3 "$here/measure.py" --rounds "${ROUNDS:-3}" \
    "fp8q, 2 shards" "$fp8q quantize -q vl q" "rm -rf q" \
    "cp -r, 2 shards" "cp -r vl c" "rm -rf c" \
    "model_free_ptq, 2 shards, 1 worker (its default)" \
    "$llmc/bin/python $here/peer_llmcompressor.py vl l 1" "rm -rf l" \
    "model_free_ptq, 2 shards, 2 workers" \
    "$llmc/bin/python $here/peer_llmcompressor.py vl l 2" "rm -rf l" \
    "fp8q, one file" "$fp8q quantize -q one.safetensors o.safetensors" "rm -f o.*" \
    "cp, one file" "cp one.safetensors c" "rm -f c" \
    "convert-to-quant, one file" "$convert" "rm -f p.safetensors" \
    "convert-to-quant --low-memory, one file" "$convert --low-memory" "rm -f p.safetensors"
