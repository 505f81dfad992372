#!/bin/sh
# Wheels for manylinux and musllinux, x86_64 and aarch64: the static program of binaries.sh, and the Python module with a
# shared library that wants nothing but the C library.
#
#     wheels.sh build ARCH...      builds
#     wheels.sh try                tries them: with the standard library alone, with numpy, with mypy
# shellcheck source=SCRIPTDIR/common.sh
. "$(dirname "$0")/common.sh"
action=${1:-build}
[ $# = 0 ] || shift

wheel() { # ARCH TARGET TAG
    only=fp8q_shared
    build_fp8q "$2" "$top" "$work/$2/library" -DFP8Q_SHARED=ON -DCMAKE_SHARED_LINKER_FLAGS=-s
    only=
    set -- "$1" "$2" "$3" "$top/LICENSE"
    for copyright in "$work"/sources/*/debian/copyright; do
        set -- "$@" "$copyright"
    done
    arch=$1 target=$2 tag=$3
    shift 3
    python3 "$here/wheel.py" "$dist" "$version" "$tag" "$work/$arch-linux-musl/fp8q/fp8q" \
        "$work/$target/library/libfp8q.so" "$SOURCE_DATE_EPOCH" "$@"
}

build() {
    package_env
    package_sources
    for arch in "$@"; do
        [ -x "$work/$arch-linux-musl/fp8q/fp8q" ] || fail "there is no static program for $arch: binaries.sh build $arch"
        package_libraries "$arch-linux-gnu.2.28"
        wheel "$arch" "$arch-linux-gnu.2.28" "manylinux_2_28_$arch"
        wheel "$arch" "$arch-linux-musl" "musllinux_1_2_$arch"
    done
}

# Installs the wheel as pip does, and uses it from a directory that holds nothing else.
use() { # PACKAGE...
    venv=$work/try-venv
    rm -rf "$venv"
    quietly "$work/try.log" python3 -m venv "$venv"
    quietly "$work/try.log" "$venv/bin/pip" install -q --disable-pip-version-check --no-index --no-deps "$wheel"
    for package in "$@"; do
        quietly "$work/try.log" "$venv/bin/pip" install -q --disable-pip-version-check "$(grep "^$package==" "$here/requirements.txt")"
    done
    [ "$("$venv/bin/fp8q" --version)" = "fp8q $version" ] || fail "the wheel's program is not on PATH"
    (cd "$work" && env -u FP8Q -u FP8Q_LIBRARY -u PYTHONPATH "$venv/bin/python" -I -B "$here/python/try_module.py" \
        "$top/tests/data/checkpoints/qwen3" "$top/tests/data/eval/text.inputs.safetensors" "$@")
}

# The library of the musllinux wheel in a program for musl, with the loader and the C library of Debian's package `musl`: older
# than the headers that it was built with, as on a user's machine.
use_musl() {
    from=$work/$(uname -m)-linux-musl
    zig_tools "$(uname -m)-linux-musl" "$work/try-musl"
    quietly "$work/try.log" "$work/try-musl/cc" -O2 -dynamic -std=c11 -I"$top/include" "$top/examples/c/quantize.c" \
        "$from/library/libfp8q.so" -o "$work/try-musl/program"
    rm -rf "$work/try-musl/out"
    quietly "$work/try.log" env LD_LIBRARY_PATH="$from/library" "$work/try-musl/program" "$top/tests/data/checkpoints/qwen3" \
        "$work/try-musl/out"
    "$from/fp8q/fp8q" verify -q "$work/try-musl/out" --source "$top/tests/data/checkpoints/qwen3"
    echo "the musl library works"
}

# The aarch64 wheel in an aarch64 Python, run by qemu: Debian's, unpacked and not installed.
use_emulated() {
    root=$("$top/tools/sysroot.sh" arm64 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libexpat1 libffi8 \
        libssl3 libbz2-1.0 liblzma5 libuuid1)
    home=$work/try-aarch64
    rm -rf "$home"
    mkdir -p "$home"
    unzip -q "$dist/fp8q-$version-py3-none-manylinux_2_28_aarch64.whl" -d "$home"

    # The kernel of this machine starts no program of another: the wheel's own goes through qemu by a script.
    printf '#!/bin/sh\nexec qemu-aarch64-static "%s" "$@"\n' "$home/fp8q-$version.data/scripts/fp8q" >"$home/program"
    chmod +x "$home/program" "$home/fp8q-$version.data/scripts/fp8q"
    # Beside the module of the wheel: a script's own folder is searched first.
    cp "$here/python/try_module.py" "$home/"
    (cd "$home" && env FP8Q="$home/program" qemu-aarch64-static -L "$root" "$root/usr/bin/python3.11" -B \
        try_module.py "$top/tests/data/checkpoints/qwen3" "$top/tests/data/eval/text.inputs.safetensors")
    echo "the aarch64 wheel works"
}

try() {
    package_env
    for wheel in "$dist"/fp8q-"$version"-py3-none-*.whl; do
        library=$work/try-library.so
        unzip -p "$wheel" fp8q/libfp8q.so >"$library"
        needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | tr '\n' ' ')
        case $wheel:$needed in
        *musllinux*:"libc.so " | *manylinux*) ;;
        *) fail "$wheel: the library needs $needed" ;;
        esac
        case $wheel in
        *manylinux*)
            # auditwheel compares every versioned symbol with what the tag promises.
            quietly "$work/try.log" "$env/bin/auditwheel" show "$wheel"
            tr '\n' ' ' <"$work/try.log" | grep -q '"manylinux_2_[0-9]*_' || { cat "$work/try.log"; fail "$wheel: not as its tag says"; }
            ;;
        esac
        echo "$(basename "$wheel"): $(wc -c <"$wheel") bytes, needs $needed"
    done
    wheel=$dist/fp8q-$version-py3-none-manylinux_2_28_$(uname -m).whl
    use
    use numpy
    use_musl
    [ "$(uname -m)" = aarch64 ] || use_emulated
    quietly "$work/try.log" "$env/bin/mypy" --strict --cache-dir=/dev/null "$here/python/fp8q"
    FP8Q_LIBRARY=$work/$(uname -m)-linux-gnu.2.28/library/libfp8q.so python3 -B "$here/python/try_layout.py" "$top/include/fp8q.h"
}

if [ "$action" = build ] && [ $# = 0 ]; then
    build x86_64 aarch64
    try
else
    "$action" "$@"
fi
