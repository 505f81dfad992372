#!/bin/sh
# test_families_meta.py with the newest transformers in place of the pinned one.  By hand: what is new in it makes this fail.
#
#   tests/engines/newest_transformers.sh FP8Q [DIR]     default: build/newest beside the sources
#
# DIR keeps the package, so that a second run asks the registry for its version only.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
fp8q=$1
dir=${2:-$here/../../build/newest}
python=$("$here/../env.sh" "$dir/env" | tail -n 1)

"$python" -m pip install -qq --disable-pip-version-check --no-input --no-deps --upgrade --target "$dir/packages" transformers >&2

FP8Q=$fp8q FP8Q_NEWEST=1 PYTHONPATH=$dir/packages HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error OMP_NUM_THREADS=1 \
    "$python" -B "$here/test_families_meta.py"
