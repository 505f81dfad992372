#!/bin/sh
# Fuzz targets (tests/fuzz), built by clang with libFuzzer, ASan and UBSan:
#
#     tools/fuzz.sh fixed                    each a fixed number of executions from a fixed seed: the same every time
#     tools/fuzz.sh SECONDS [TARGET...]      free-running: other inputs each time, all cores
#     tools/fuzz.sh campaign RUNS TARGET     that many executions on one core, at the lowest priority
#
# Every one works on a copy of the seeds, in build/fuzz/runs.  A crash ends the run; the last lines name its input.
set -eu
cd "$(dirname "$0")/.."
kind=${1:?fixed, SECONDS or campaign}
shift
cmake --preset fuzz >/dev/null
cmake --build build/fuzz -j"$(nproc)" >build/fuzz.log 2>&1 || { tail -n 50 build/fuzz.log; exit 1; }

# TARGET OPTION...: the options decide how long it runs.
run() {
    name=$1
    shift
    work=$PWD/build/fuzz/runs/$name # absolute: some targets change the directory
    rm -rf "$work"
    mkdir -p "$work/corpus" "$work/found"
    [ ! -d "tests/fuzz/seeds/$name" ] || cp "tests/fuzz/seeds/$name"/* "$work/corpus/"
    # A spelling of a checkpoint says little in a few bytes.
    [ "$name" != grammar ] || set -- "$@" -len_control=0 -max_len=160
    [ ! -f "tests/fuzz/$name.dict" ] || set -- "$@" "-dict=tests/fuzz/$name.dict"
    echo "$name: $*"
    # shellcheck disable=SC2086
    ${nice:-} "build/fuzz/tests/fuzz/fuzz_$name" "$@" -print_final_stats=1 -rss_limit_mb=2048 -timeout=30 \
        "-artifact_prefix=$work/found/" "$work/corpus" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }
    grep -E '^Done|stat::number_of_executed' "$work/log" || true
}

targets=$(cd tests/fuzz && ls fuzz_*.c | sed 's/fuzz_\(.*\)\.c/\1/')
case $kind in
fixed)
    for target in $targets; do
        # What writes files is slow, and gets fewer.
        case $target in
        checkpoint | grammar) runs=2000 ;;
        manifest | tokenizer | report) runs=20000 ;;
        *) runs=100000 ;;
        esac
        run "$target" -seed=1 "-runs=$runs" -reload=0
    done
    ;;
campaign)
    nice='nice -n 19'
    run "${2:?TARGET}" -seed="${FUZZ_SEED:-1}" "-runs=$1" -reload=0
    ;;
*[!0-9]*)
    echo "fuzz.sh: $kind is neither fixed, campaign nor a number of seconds" >&2
    exit 2
    ;;
*)
    for target in ${*:-$targets}; do
        run "$target" "-max_total_time=$kind"
    done
    ;;
esac
