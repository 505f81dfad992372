#!/bin/sh
# Static binaries: fp8q-VERSION-linux-ARCH.tar.gz with program, man pages, completions, licences and SPDX document.
#
#     binaries.sh build ARCH...      builds and packs
#     binaries.sh try                tries what was built
# shellcheck source=SCRIPTDIR/common.sh
. "$(dirname "$0")/common.sh"
action=$1
shift

# What stands in the archive, from an installation of the build.
pack() { # ARCH BUILD
    name=fp8q-$version-linux-$1
    stage=$2/stage
    rm -rf "$stage"
    quietly "$2/log" cmake --install "$2" --prefix "$stage/all"
    mkdir -p "$stage/$name/bin" "$stage/$name/licences"
    cp "$stage/all/bin/fp8q" "$stage/$name/bin/"
    cp -R "$stage/all/share" "$stage/$name/"
    rm -rf "$stage/$name/share/doc"
    cp "$top/README.md" "$top/LICENSE" "$stage/$name/"
    each_source | while read -r library _; do
        cp "$work/sources/$library/debian/copyright" "$stage/$name/licences/$library"
    done
    python3 "$here/sbom.py" "$here/sources.txt" "$version" "$SOURCE_DATE_EPOCH" "$stage/$name/bin/fp8q" \
        "$stage/$name/$name.spdx.json"
    archive "$dist/$name.tar.gz" "$stage" "$name"
    cp "$stage/$name/$name.spdx.json" "$dist/"
}

build() {
    package_env
    package_sources
    for arch in "$@"; do
        package_libraries "$arch-linux-musl"
        build_fp8q "$arch-linux-musl" "$top" "$work/$arch-linux-musl/fp8q" -DFP8Q_SHARED=OFF \
            "-DCMAKE_EXE_LINKER_FLAGS=-static -s"
        pack "$arch" "$work/$arch-linux-musl/fp8q"
    done
}

# The whole way again, libraries too, in a folder with another name.
build_again() { # ARCH
    again=$work/again/elsewhere
    rm -rf "$work/again"
    mkdir -p "$again/build/package"
    tar -C "$top" --exclude=./build --exclude=./.git -cf - . | tar -C "$again" -xf -
    cp -R "$work/sources" "$again/build/package/"
    ln -s "$work/env" "$again/build/package/env"
    "$again/tools/package/binaries.sh" build "$1"
    cmp "$again/build/package/dist/fp8q-$version-linux-$1.tar.gz" "$dist/fp8q-$version-linux-$1.tar.gz" ||
        fail "two builds of $1 in two folders differ"
    rm -rf "$work/again"
}

# The digest of the program as Debian's compiler and libraries make it.
reference_digest() {
    quietly "$work/reference.log" cmake -S "$top" -B "$work/reference" -DCMAKE_BUILD_TYPE=Release -DFP8Q_TESTS=OFF
    quietly "$work/reference.log" cmake --build "$work/reference" -j"$jobs" --target fp8q
    "$top/tools/digest.sh" -- "$work/reference/fp8q"
}

try() {
    package_env
    reference=$(reference_digest)
    for archive in "$dist"/fp8q-"$version"-linux-*.tar.gz; do
        name=$(basename "$archive" .tar.gz)
        arch=${name##*-linux-}
        rm -rf "$work/try"
        mkdir -p "$work/try"
        tar -C "$work/try" -xf "$archive"
        program=$work/try/$name/bin/fp8q

        run=
        [ "$arch" = "$(uname -m)" ] || run=qemu-$arch-static
        readelf -d "$program" | grep -q NEEDED && fail "$name: not static"
        readelf -l "$program" | grep -q 'INTERP' && fail "$name: wants an interpreter"
        # shellcheck disable=SC2086
        digest=$("$top/tools/digest.sh" -- $run "$program")
        [ "$digest" = "$reference" ] || fail "$name: other bytes: $digest, expected $reference"
        # The document is valid, and names the bytes that are there.
        quietly "$work/try/log" "$python" -m spdx_tools.spdx.clitools.pyspdxtools -i "$work/try/$name/$name.spdx.json"
        grep -q "$(sha256sum <"$program" | cut -d' ' -f1)" "$work/try/$name/$name.spdx.json" || fail "$name: SBOM of other bytes"
        echo "$name: static, outputs $(echo "$digest" | cut -c1-8), $(wc -c <"$archive") bytes"
    done
    build_again "$(uname -m)"
    echo "built again elsewhere: the same bytes"
    # Every file of dist that others may have added, too.
    (cd "$dist" && find . -maxdepth 1 -type f ! -name 'SHA256SUMS*' | sed 's,^\./,,' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
}

"$action" "$@"
