#!/bin/sh
# Makes the figures of docs/results/reliability.md again, in one go or by part:
#
#     tools/reliability.sh [faults] [flips] [kills] [real] [resources] [fuzz] [threads]
#
# Further: tools/matrix.sh (compilers, kernels, threads), tools/portability.sh (other machines),
# tools/coverage.sh, and clang-tidy by .clang-tidy.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- faults flips kills real resources fuzz threads
jobs=${JOBS:-2}
build() { # PRESET TARGET...
    preset=$1
    shift
    cmake --preset "$preset" >/dev/null
    cmake --build "build/$preset" -j"$jobs" --target "$@" >"build/$preset.log" 2>&1 || { tail "build/$preset.log"; exit 1; }
}
bin=$PWD/build/release
for part in "$@"; do
    echo "== $part"
    case $part in
    faults) # every call and allocation, with ASan: FAULTS_PRESET=release is five times as fast
        preset=${FAULTS_PRESET:-dev}
        build "$preset" faults
        "build/$preset/tests/faults/faults" 1
        ;;
    flips)
        build release fp8q flips
        build/release/tests/faults/flips "$bin/fp8q" "${FLIPS:-10000}"
        ;;
    kills)
        build release fp8q make_checkpoint
        tests/faults/kills.sh "$bin/fp8q" "$bin/make_checkpoint" "${KILLS:-200}"
        ;;
    real)
        build release fp8q make_checkpoint
        tests/faults/real.sh "$bin/fp8q" "$bin/make_checkpoint"
        ;;
    resources)
        build release fp8q make_checkpoint peak
        tests/faults/resources.sh "$bin/fp8q" "$bin/make_checkpoint" "$bin/tests/faults/peak"
        ;;
    fuzz)
        tools/fuzz.sh "${FUZZ_SECONDS:-60}"
        ;;
    threads)
        build tsan fp8q test_base_pool
        TSAN_OPTIONS="halt_on_error=1 exitcode=66" build/tsan/tests/test_base_pool
        TSAN_OPTIONS="halt_on_error=1 exitcode=66" tools/digest.sh --threads 7 -- "$PWD/build/tsan/fp8q"
        ;;
    *)
        echo "unknown part $part" >&2
        exit 2
        ;;
    esac
done
