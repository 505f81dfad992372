#!/bin/sh
# Unpacks Debian's libraries of another architecture below build/, without installing anything:
#
#     tools/sysroot.sh arm64|i386 [PACKAGE...]        prints the directory; PACKAGEs come along
set -eu
cd "$(dirname "$0")/.."
arch=$1
shift
root=$PWD/build/sysroot-$arch
packages="libc6 libc6-dev linux-libc-dev libgcc-s1 libgcc-12-dev libcjson1 libcjson-dev zlib1g zlib1g-dev
libdeflate0 libdeflate-dev libpcre2-8-0 libpcre2-16-0 libpcre2-32-0 libpcre2-posix3 libpcre2-dev libutf8proc2
libutf8proc-dev libcmocka0 libcmocka-dev libcrypt1 $*"
stamp=$root/complete-$(echo "$packages" | cksum | cut -d' ' -f1)
if [ ! -e "$stamp" ]; then
    mkdir -p "$root/apt/lists/partial" "$root/apt/cache/archives/partial" "$root/debs"
    : >"$root/apt/status"
    apt() {
        apt-get -q -o APT::Architecture="$arch" -o APT::Architectures="$arch" \
            -o Dir::State="$root/apt" -o Dir::State::status="$root/apt/status" \
            -o Dir::Cache="$root/apt/cache" -o Debug::NoLocking=1 "$@"
    }
    {
        apt update
        # shellcheck disable=SC2086
        cd "$root/debs" && apt download $packages
    } >"$root/apt.log" 2>&1 || { tail "$root/apt.log" >&2; exit 1; }
    for deb in "$root"/debs/*.deb; do dpkg -x "$deb" "$root"; done
    # Absolute links would lead to the machine's own files.
    find "$root" -type l -lname '/*' | while read -r link; do
        ln -sfn "$root$(readlink "$link")" "$link"
    done
    touch "$stamp"
fi
echo "$root"
