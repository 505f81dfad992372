#!/bin/sh
# Builds and tests on everything that this machine can run or emulate, and compares output bytes.
#
#     tools/portability.sh [NAME...]      gcc-O0 gcc-O2 gcc-O3 clang-O0 clang-O2 clang-O3 unsigned-char
#                                         i386 aarch64 musl big-endian (all by default)
#
# Other architectures get their libraries from tools/sysroot.sh; needed besides: clang,
# gcc-aarch64-linux-gnu, qemu-user.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- gcc-O0 gcc-O2 gcc-O3 clang-O0 clang-O2 clang-O3 unsigned-char i386 aarch64 musl big-endian
jobs=${JOBS:-2}
here=$PWD
UNIT='test_(base|kernel|format|checkpoint|select)[a-z0-9_]*$'
# These run everywhere; the rest of the suite needs the machine's own tools.
cmake --preset release >/dev/null
cmake --build build/release -j"$jobs" --target fp8q >build/release.log 2>&1 || { tail build/release.log; exit 1; }
reference=$(tools/digest.sh -- "$here/build/release/fp8q")
rows=build/portability.txt
mkdir -p build
: >"$rows"

note() {
    printf '%-14s %s\n' "$1" "$2" | tee -a "$rows"
}

configure() { # NAME CMAKE-OPTION...
    name=$1
    shift
    cmake -B "build/port-$name" -DFP8Q_WERROR=ON "$@" >"build/port-$name.log" 2>&1 &&
        cmake --build "build/port-$name" -j"$jobs" >>"build/port-$name.log" 2>&1 || {
        grep -E 'error|undefined' "build/port-$name.log" | head -n 5 >&2
        note "$name" "DOES NOT BUILD"
        return 1
    }
}

# Unit tests, then the digest of the outputs against that of the release build.
check() { # NAME COMMAND...
    name=$1
    shift
    ctest --test-dir "build/port-$name" -R "$UNIT" --timeout 1200 --no-tests=error >>"build/port-$name.log" 2>&1 || {
        note "$name" "TESTS FAIL: $(grep -E '\(Failed|\(Timeout|\(SEGV' "build/port-$name.log" | tr -s ' ' | tr '\n' ';')"
        return 1
    }
    digest=$(tools/digest.sh --threads 2 -- "$@") || {
        note "$name" "A CONVERSION FAILS"
        return 1
    }
    [ "$digest" = "$reference" ] || {
        note "$name" "OTHER BYTES: $digest"
        return 1
    }
    note "$name" "tests pass, outputs ${digest%"${digest#????????????}"}"
}

native() { # NAME COMPILER FLAGS
    configure "$1" -DCMAKE_BUILD_TYPE=None -DCMAKE_C_COMPILER="$2" -DCMAKE_C_FLAGS="$3" &&
        check "$1" "$here/build/port-$1/fp8q"
}

# The library is clean with -Wshorten-64-to-32, some tests are not: no -Werror here.
i386() {
    root=$(tools/sysroot.sh i386)
    lib=$root/lib/i386-linux-gnu:$root/usr/lib/i386-linux-gnu
    PKG_CONFIG_LIBDIR=$root/usr/lib/i386-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root configure i386 \
        -DFP8Q_WERROR=OFF -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang -DCMAKE_SYSTEM_NAME=Linux \
        -DCMAKE_SYSTEM_PROCESSOR=i686 -DCMAKE_CROSSCOMPILING_EMULATOR=/usr/bin/env \
        -DCMAKE_C_FLAGS="--target=i686-linux-gnu --sysroot=$root -msse2 -mfpmath=sse -Wno-unused-command-line-argument" \
        -DCMAKE_EXE_LINKER_FLAGS="-Wl,--dynamic-linker=$root/lib/ld-linux.so.2 -Wl,-rpath,$lib" &&
        check i386 "$here/build/port-i386/fp8q"
}

aarch64() {
    root=$(tools/sysroot.sh arm64)
    PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root configure aarch64 \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc -DCMAKE_SYSTEM_NAME=Linux \
        -DCMAKE_SYSTEM_PROCESSOR=aarch64 "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-L;$root" \
        -DCMAKE_C_FLAGS="--sysroot=$root" \
        -DCMAKE_EXE_LINKER_FLAGS="--sysroot=$root -Wl,-rpath-link,$root/lib/aarch64-linux-gnu" || return 1
    FP8Q_REQUIRE_KERNELS=scalar,neon check aarch64 qemu-aarch64 -L "$root" "$here/build/port-aarch64/fp8q" || return 1
    digest=$(tools/digest.sh --kernel scalar -- qemu-aarch64 -L "$root" "$here/build/port-aarch64/fp8q")
    [ "$digest" = "$reference" ] || { note aarch64 "scalar: OTHER BYTES"; return 1; }
}

# Debian packages none of the libraries for musl: whoever wants this puts them into build/musl.
musl() {
    command -v musl-gcc >/dev/null || { note musl "not tried: no musl-gcc (apt-get install musl-tools)"; return 0; }
    [ -d build/musl/lib/pkgconfig ] || {
        note musl "not tried: needs static cJSON, zlib, libdeflate, PCRE2 and utf8proc for musl in build/musl"
        return 0
    }
    PKG_CONFIG_LIBDIR=$here/build/musl/lib/pkgconfig configure musl -DCMAKE_BUILD_TYPE=Release -DFP8Q_TESTS=OFF \
        -DCMAKE_C_COMPILER=musl-gcc -DCMAKE_EXE_LINKER_FLAGS=-static -DCMAKE_POSITION_INDEPENDENT_CODE=OFF || return 1
    digest=$(tools/digest.sh -- "$here/build/port-musl/fp8q")
    [ "$digest" = "$reference" ] && note musl "static, same outputs" || { note musl "OTHER BYTES"; return 1; }
}

# Only the preprocessor and the assertion are asked, so no big-endian library is needed.
big_endian() {
    if clang --target=mips-linux-gnu -fsyntax-only -ffreestanding -std=c11 -Iinclude -Isrc -x c - 2>build/port-be.log <<'C'
#include "base/endian_check.h"
C
    then
        note big-endian "NOT REFUSED"
        return 1
    fi
    grep -q 'little-endian' build/port-be.log || { note big-endian "fails for another reason"; return 1; }
    note big-endian "refused at compile time"
}

failed=0
for name in "$@"; do
    case $name in
    gcc-O?) native "$name" gcc "-${name#*-}" || failed=1 ;;
    clang-O?) native "$name" clang "-${name#*-}" || failed=1 ;;
    unsigned-char) native "$name" gcc "-O2 -funsigned-char" || failed=1 ;;
    i386) i386 || failed=1 ;;
    aarch64) aarch64 || failed=1 ;;
    musl) musl || failed=1 ;;
    big-endian) big_endian || failed=1 ;;
    *) echo "unknown: $name" >&2; failed=1 ;;
    esac
done
exit $failed
