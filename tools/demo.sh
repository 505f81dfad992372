#!/bin/sh
# Installs what is needed, builds fp8q, makes a small Qwen2.5-VL checkpoint, quantizes and verifies it.
set -eu
cd "$(dirname "$0")/.."
tools/install-deps.sh build
cmake -B build/demo -DFP8Q_TESTS=OFF >/dev/null
cmake --build build/demo -j"$(nproc)" | tail -n 2
PATH=$PWD/build/demo:$PATH
rm -rf build/demo/tiny build/demo/tiny-FP8
cd build/demo
make_checkpoint tiny tiny
fp8q quantize tiny
fp8q verify tiny-FP8 --source tiny
