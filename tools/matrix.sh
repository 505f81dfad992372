#!/bin/sh
# Output bytes must not depend on threads, kernel, compiler or build type: one digest for all.
#
#     tools/matrix.sh [BUILD...]     builds gcc-Debug gcc-Release clang-Debug clang-Release by default
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- gcc-Debug gcc-Release clang-Debug clang-Release
kernels=${KERNELS:-scalar avx2 avx512}
first='' n=0 failed=0
for build in "$@"; do
    dir=build/matrix-$build
    CC=${build%-*} cmake -B "$dir" -DCMAKE_BUILD_TYPE="${build#*-}" -DFP8Q_TESTS=OFF >/dev/null
    cmake --build "$dir" -j"${JOBS:-2}" --target fp8q >"$dir.log" 2>&1 || { tail "$dir.log"; exit 1; }
    for kernel in $kernels; do
        "$dir/fp8q" verify --kernel "$kernel" /dev/null 2>&1 | grep -q 'expected one that this CPU has' && {
            echo "$build: this machine has no $kernel"
            failed=1
            continue
        }
        for threads in 1 2 7; do
            digest=$(tools/digest.sh --threads $threads --kernel "$kernel" -- "$PWD/$dir/fp8q")
            n=$((n + 1))
            [ -n "$first" ] || first=$digest
            [ "$digest" = "$first" ] || {
                echo "$build, $kernel, $threads threads: $digest, expected $first"
                failed=1
            }
        done
    done
done
echo "$n combinations of build, kernel and threads: SHA-256 of all outputs $first"
exit $failed
