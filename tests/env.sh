#!/bin/sh
# Makes the Python environment of the tests, or leaves it alone if it is there already.
#
#   tests/env.sh [DIR]     default: build/test-env beside the sources
#
# Needs python3 with venv (Debian: python3-venv).  The last line of output is the path of its python.
# Never skips: whatever goes wrong ends in a message and status 1.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
dir=${1:-$here/../build/test-env}
requirements=$here/requirements.txt
alone=$here/requirements-alone.txt
stamp=$dir/.requirements

fail() {
    echo "env.sh: $*" >&2
    exit 1
}

command -v python3 >/dev/null || fail "python3 is missing. On Debian: apt-get install python3 python3-venv"
wanted="$(cat "$requirements" "$alone" | sha256sum) $(python3 --version)"

if [ -x "$dir/bin/python" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    echo "$(cd "$dir" && pwd)/bin/python"
    exit 0
fi

# One at a time: several tests may ask for it at once.
mkdir -p "$(dirname "$dir")"
if command -v flock >/dev/null && [ -z "${FP8Q_ENV_LOCKED:-}" ]; then
    FP8Q_ENV_LOCKED=1 exec flock "$dir.lock" "$0" "$dir"
fi

rm -rf "$dir"
python3 -m venv "$dir" >&2 || fail "python3 -m venv failed. On Debian: apt-get install python3-venv"
"$dir/bin/python" -m pip install -qq --disable-pip-version-check --no-input \
    -r "$requirements" >&2 || fail "pip could not install $requirements"
"$dir/bin/python" -m pip install -qq --disable-pip-version-check --no-input --no-deps --ignore-requires-python \
    -r "$alone" >&2 || fail "pip could not install $alone"
"$dir/bin/python" - >&2 <<'CHECK' || fail "the environment in $dir does not work"
import accelerate, compressed_tensors, ml_dtypes, numpy, safetensors.torch, tokenizers, torch, transformers
assert torch.zeros(1).to(torch.float8_e4m3fn).dtype == torch.float8_e4m3fn
CHECK
printf '%s\n' "$wanted" >"$stamp"
echo "$(cd "$dir" && pwd)/bin/python"
