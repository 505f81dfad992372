#!/bin/sh
# Installs what is needed and runs the tests.  `tools/test.sh PART...` runs single parts:
#
#     dev        gcc, -O1, ASan, UBSan, -Werror: all tests
#     O0         gcc, -O0: kernels, blocks and command line
#     release    gcc, Release: all tests, those with Python too, installation
#     package    static binaries and wheels, made and tried; the action, examples/ci and hooks with them (tools/package.sh
#                makes Debian packages and a container image too, as root)
#     clang      clang, -O3, -Werror: all tests
#     tsan       ThreadSanitizer: all tests but those that start no thread (label `single`)
#     report     the page of `fp8q report` in a browser, under axe and a validator (not among the default parts)
#     scalar     no SIMD built: kernels, blocks and command line
#     fuzz       each fuzz target a fixed number of times from a fixed seed (free-running: tools/fuzz.sh SECONDS)
#     engines    each engine's own loader on outputs, and `fp8q check` against it (fetches its Python packages once and
#                keeps them in the user's cache, or in $FP8Q_ENGINES; not among the default parts)
#     newest     the same with the newest release of each engine: prints what differs (not among the default parts)
#     cluster    the recipes of examples/cluster, on a real Slurm (as root; not among the default parts)
#     tidy       clang-tidy on all of src/, with the checks of .clang-tidy
#     style      clang-format, no variable of bench or tools that nothing sets, no untracked files
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- dev O0 release package clang tsan scalar fuzz tidy style
tools/install-deps.sh test
jobs=$(nproc)
export FP8Q_REQUIRE_KERNELS="${FP8Q_REQUIRE_KERNELS:-scalar}"

build() { # PRESET [CMAKE OPTION...]
    preset=$1
    shift
    cmake --preset "$preset" "$@" >/dev/null
    cmake --build "build/$preset" -j"$jobs" >"build/$preset.log" 2>&1 || {
        tail -n 50 "build/$preset.log"
        exit 1
    }
    if grep -n 'warning:' "build/$preset.log"; then exit 1; fi
}

run_tests() { # PRESET [CTEST OPTION...]
    preset=$1
    shift
    ctest --test-dir "build/$preset" --output-on-failure --no-tests=error -j"$jobs" "$@"
}

# Of each engine that tests/engines/own has; a hang ends.
own_loaders() { # newest, or nothing
    for list in tests/engines/own/*.txt; do
        engine=$(basename "$list" .txt)
        # shellcheck disable=SC2086
        timeout -k 10 1200 tests/engines/own/run.py "$engine" build/release/fp8q $1 || {
            echo "$engine: status $? (124: it took longer than 20 minutes)"
            exit 1
        }
    done
}

for part in "$@"; do
    echo "== $part"
    case $part in
    dev)
        build dev
        run_tests dev
        ;;
    O0)
        cmake -B build/O0 -DCMAKE_BUILD_TYPE=None -DCMAKE_C_FLAGS=-O0 -DFP8Q_TESTS=ON >/dev/null
        cmake --build build/O0 -j"$jobs" >build/O0.log 2>&1 || { tail -n 50 build/O0.log; exit 1; }
        run_tests O0 -R 'kernel|cli_'
        ;;
    release)
        build release -DFP8Q_PYTHON_TESTS=ON -DFP8Q_SHELL_TESTS=ON
        run_tests release
        rm -rf build/prefix
        cmake --install build/release --prefix build/prefix >/dev/null
        build/prefix/bin/fp8q --version
        ;;
    package)
        tools/package.sh binaries wheels ci
        ;;
    clang)
        CC=clang cmake -B build/clang -DCMAKE_BUILD_TYPE=Release -DFP8Q_WERROR=ON -DFP8Q_TESTS=ON >/dev/null
        cmake --build build/clang -j"$jobs" >build/clang.log 2>&1 || { tail -n 50 build/clang.log; exit 1; }
        run_tests clang
        ;;
    tsan)
        build tsan
        run_tests tsan -LE single
        ;;
    engines)
        build release
        own_loaders ""
        ;;
    newest)
        build release
        own_loaders newest
        ;;
    cluster)
        tools/install-deps.sh cluster
        build release -DFP8Q_CLUSTER_TESTS=ON
        run_tests release -L cluster
        ;;
    report)
        tools/install-deps.sh report
        build release -DFP8Q_REPORT_TESTS=ON
        run_tests release -L report
        ;;
    scalar)
        build scalar
        run_tests scalar -R 'kernel|cli_'
        ;;
    fuzz)
        tools/fuzz.sh fixed
        ;;
    tidy)
        cmake --preset release -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
        run-clang-tidy-14 -quiet -p build/release -j"$jobs" "^$PWD/src/" >build/tidy.log 2>&1 || {
            grep -E -A6 '(error|warning):' build/tidy.log | head -n 100
            exit 1
        }
        ;;
    style)
        find src include tests bench examples -name '*.[ch]' -print0 |
            xargs -0 clang-format-14 --dry-run --Werror
        git ls-files 'bench/*.sh' 'tools/*.sh' | xargs shellcheck --include=SC2154
        if [ -n "$(git status --porcelain 2>/dev/null)" ]; then
            git status --short
            echo "the build or the tests left files behind"
            exit 1
        fi
        ;;
    *)
        echo "unknown part $part" >&2
        exit 2
        ;;
    esac
done
echo "all parts passed: $*"
