# shellcheck shell=sh disable=SC2034
# Sourced by the other scripts of this folder: where things are, the libraries, and fp8q built by zig.
#
# zig (from PyPI) is a C compiler with the headers and libraries of musl and of every glibc, so that one machine
# builds for all.  Everything lies below build/package: sources/, env/ (Python), TARGET/ (libraries), dist/ (results).
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
here=$top/tools/package
work=$top/build/package
dist=$work/dist
jobs=$(nproc)
version=$(sed -n 's/^#define FP8Q_VERSION "\(.*\)"/\1/p' "$top/include/fp8q.h")
mkdir -p "$dist"

# The time that stands in archives: that of the last commit, where there is one.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$top" log -1 --format=%ct 2>/dev/null || echo 1767225600)}
export SOURCE_DATE_EPOCH
umask 022

fail() {
    echo "$*" >&2
    exit 1
}

# Runs a command whose output matters only if it fails: quietly LOG COMMAND...
quietly() {
    log=$1
    shift
    "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2; fail "failed: $*"; }
}

# The Python environment, made anew when the list of its packages changes.
package_env() {
    env=$work/env
    wanted=$(sha256sum <"$here/requirements.txt")
    [ "$(cat "$env/stamp" 2>/dev/null)" = "$wanted" ] || {
        rm -rf "$env"
        quietly "$work/env.log" python3 -m venv "$env"
        quietly "$work/env.log" "$env/bin/pip" install -q --no-compile --disable-pip-version-check -r "$here/requirements.txt"
        echo "$wanted" >"$env/stamp"
    }
    python=$env/bin/python
    zig=$("$python" -c 'import os, ziglang; print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
}

# Rows of sources.txt: package version sha256 licence home
each_source() {
    grep -v '^#' "$here/sources.txt"
}

# Where this machine's apt gets Debian 12 from.
debian_mirror() {
    echo "${FP8Q_DEBIAN_MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' | head -n 1)}"
}

# Debian's source packages, their patches applied, in sources/PACKAGE.
package_sources() {
    wanted=$(sha256sum <"$here/sources.txt")
    [ "$(cat "$work/sources/stamp" 2>/dev/null)" = "$wanted" ] && return
    rm -rf "$work/sources" "$work/apt"
    mkdir -p "$work/sources/files" "$work/apt/lists/partial" "$work/apt/cache/archives/partial"
    echo "deb-src $(debian_mirror) bookworm main" >"$work/apt/sources.list"

    set -- -q -o Dir::State="$work/apt" -o Dir::State::status=/dev/null -o Dir::Cache="$work/apt/cache" \
        -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=
    quietly "$work/apt.log" apt-get "$@" update
    each_source | while read -r name package_version sha _; do
        cd "$work/sources/files"
        quietly "$work/apt.log" apt-get "$@" source --download-only "$name=$package_version"
        dsc=${name}_${package_version#*:}.dsc
        echo "$sha  $dsc" | sha256sum --status -c || fail "$dsc is not the one of sources.txt"
        # Checks the files that the .dsc names; who signed it is not asked, its bytes are known.
        quietly "$work/apt.log" dpkg-source --no-check -x "$dsc" "../$name"
        sed -n '/^Checksums-Sha256:/,/^[^ ]/s/^ \([0-9a-f]*\) [0-9]* \(.*\)/\1  \2/p' "$dsc" | sha256sum --status -c ||
            fail "$dsc: a file has another checksum"
    done
    echo "$wanted" >"$work/sources/stamp"
}

# cc, ar and ranlib for TARGET (aarch64-linux-musl) as CMake wants them: one word each.
zig_tools() { # TARGET DIR
    mkdir -p "$2"
    printf '#!/bin/sh\nexec "%s" cc -target %s "$@"\n' "$zig" "$1" >"$2/cc"
    printf '#!/bin/sh\nexec "%s" ar "$@"\n' "$zig" >"$2/ar"
    printf '#!/bin/sh\nexec "%s" ranlib "$@"\n' "$zig" >"$2/ranlib"
    chmod +x "$2/cc" "$2/ar" "$2/ranlib"
}

# Configures and builds, all or the target $only.
zig_cmake() { # TARGET SOURCE BUILD OPTION...
    target=$1 from=$2 to=$3
    shift 3
    zig_tools "$target" "$to/tools"
    quietly "$to/log" cmake -S "$from" -B "$to" -DCMAKE_BUILD_TYPE=Release -DCMAKE_SYSTEM_NAME=Linux \
        -DCMAKE_SYSTEM_PROCESSOR="${target%%-*}" -DCMAKE_C_COMPILER="$to/tools/cc" -DCMAKE_AR="$to/tools/ar" \
        -DCMAKE_RANLIB="$to/tools/ranlib" -DCMAKE_C_COMPILER_LAUNCHER= "$@"
    quietly "$to/log" cmake --build "$to" -j"$jobs" ${only:+--target "$only"}
}

# The libraries for TARGET, once for each state of what they are made from.
package_libraries() { # TARGET
    prefix=$work/$1/prefix
    wanted=$({ cat "$here/sources.txt" "$here/libraries/CMakeLists.txt"; grep ziglang "$here/requirements.txt"; } | sha256sum)
    [ "$(cat "$prefix/stamp" 2>/dev/null)" = "$wanted" ] && return
    rm -rf "${work:?}/$1"
    mkdir -p "$work/$1/libraries"
    set -- "$1" "$here/libraries" "$work/$1/libraries" -DCMAKE_INSTALL_PREFIX="$prefix" -DSOURCES="$work/sources"
    while read -r name package_version _; do
        set -- "$@" "-D$(echo "$name" | tr '[:lower:]' '[:upper:]')=$(echo "$package_version" | sed 's/^.*://; s/-[^-]*$//')"
    done <<EOF
$(each_source)
EOF
    zig_cmake "$@"
    quietly "$work/$1/log" cmake --install "$work/$1/libraries"
    echo "$wanted" >"$prefix/stamp"
}

# fp8q for TARGET from the tree SOURCE: build_fp8q TARGET SOURCE BUILD OPTION...
build_fp8q() {
    PKG_CONFIG_LIBDIR=$work/$1/prefix/lib/pkgconfig
    export PKG_CONFIG_LIBDIR
    target=$1 from=$2 to=$3
    shift 3
    mkdir -p "$to"
    zig_cmake "$target" "$from" "$to" -DFP8Q_TESTS=OFF \
        "-DCMAKE_C_FLAGS=-g0 -ffile-prefix-map=$from=. -ffile-prefix-map=$to=build" "$@"
}

# A .tar.gz whose bytes depend on the files alone: archive FILE DIR NAME
archive() {
    tar -C "$2" --sort=name --format=ustar --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        -cf - "$3" | gzip -9n >"$1"
}
