#!/bin/sh
# Runs one command-line test and compares its transcript with the expected one.
#
#     run.sh FP8Q MAKE_CHECKPOINT TEST.sh        UPDATE=1 rewrites the expectation
#
# TEST.sh runs in an empty directory that holds `data`, a link to the test data, and has two words:
#     run COMMAND...   prints "$ COMMAND", its output (both streams) and "[exit N]" unless N is 0
#     same A B         prints whether two files are equal
set -eu
fp8q=$1 make_checkpoint=$2 test=$3
expected=${test%.sh}.expected
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-cli-XXXXXX")
trap 'chmod -R u+w "$scratch" 2>/dev/null; rm -rf "$scratch"' EXIT
mkdir "$scratch/bin" "$scratch/work"
ln -s "$fp8q" "$scratch/bin/fp8q"
ln -s "$make_checkpoint" "$scratch/bin/make_checkpoint"
ln -s "$here/../data" "$scratch/work/data"
PATH=$scratch/bin:$PATH
LC_ALL=C
export PATH LC_ALL

run() {
    echo "\$ $*"
    code=0
    "$@" >out.txt 2>err.txt </dev/null || code=$?
    cat out.txt err.txt
    rm -f out.txt err.txt
    [ $code = 0 ] || echo "[exit $code]"
}

same() {
    if cmp -s "$1" "$2"; then echo "same: $1 $2"; else echo "DIFFERENT: $1 $2"; fi
}

(
    cd "$scratch/work"
    . "$test"
) >"$scratch/transcript" 2>&1 || echo "[test script failed]" >>"$scratch/transcript"

if [ "${UPDATE:-}" = 1 ]; then
    cp "$scratch/transcript" "$expected"
else
    diff -u "$expected" "$scratch/transcript"
fi
