#!/bin/sh
# The Debian packages fp8q, libfp8q0 and libfp8q-dev: built, judged by lintian, and installed, used and removed in a fresh
# Debian (as root, for debootstrap).
[ "$(id -u)" = 0 ] || exec sudo -E "$0" "$@"
# shellcheck source=SCRIPTDIR/common.sh
. "$(dirname "$0")/common.sh"
tree=$work/debian/fp8q-$version
chroot=$work/debian/chroot

build() {
    rm -rf "$work/debian"
    mkdir -p "$tree"
    tar -C "$top" --exclude=./build --exclude=./.git -cf - . | tar -C "$tree" -xf -
    cp -R "$here/debian" "$tree/debian"
    cat >"$tree/debian/changelog" <<EOF
fp8q ($version) unstable; urgency=medium

  * Version $version; NEWS.md says what is new.

 -- fp8q developers <fp8q@example.org>  $(date -uR -d "@$SOURCE_DATE_EPOCH")
EOF
    cd "$tree"
    quietly "$work/debian/log" dpkg-buildpackage -us -uc -b
    cd "$work/debian"
    cp ./*.deb "$dist/"
    # A native package without a bug number: whoever uploads it has one.
    lintian --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs,no-symbols-control-file ./*.changes
}

inside() {
    chroot "$chroot" env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 "$@"
}

# Every file that belongs to no cache or log of the package system itself.
listing() {
    find "$chroot" -xdev \( -path '*/var/lib/dpkg' -o -path '*/var/lib/apt' -o -path '*/var/cache' -o -path '*/var/log' \
        -o -path "$chroot/proc" -o -path "$chroot/tmp" -o -path '*/etc/ld.so.cache' \) -prune -o -print | LC_ALL=C sort
}

try() {
    quietly "$work/debian/log" debootstrap --variant=minbase bookworm "$chroot" "$(debian_mirror)"
    cp "$work/debian"/*.deb "$chroot/tmp/"
    cp -RL "$top/tests/data/checkpoints/qwen3" "$chroot/tmp/model"
    cp -R "$top/examples/c" "$chroot/tmp/example"
    # What fp8q itself needs stays, as autoremove would keep it for others; what is asked is what its own removal leaves.
    quietly "$work/debian/log" inside apt-get install -y -q libcjson1 libdeflate0 libpcre2-8-0 libutf8proc2 zlib1g
    before=$(listing)
    quietly "$work/debian/log" inside sh -c "apt-get install -y -q /tmp/fp8q_*.deb"
    quietly "$work/debian/log" inside sh -c "cd /tmp && fp8q quantize model out && fp8q verify out --source model"
    inside test -s /usr/share/man/man1/fp8q-quantize.1.gz || echo "man pages: left out by the chroot's dpkg settings"
    quietly "$work/debian/log" inside sh -c "apt-get purge -y -q fp8q"
    [ "$(listing)" = "$before" ] || { echo "$before" >"$work/debian/before"; listing | diff "$work/debian/before" - || true; fail "removal left something, or took too much"; }

    # The library, by a program from outside.
    quietly "$work/debian/log" inside sh -c "apt-get install -y -q --no-install-recommends gcc libc6-dev pkg-config /tmp/libfp8q*.deb"
    quietly "$work/debian/log" inside sh -c "cd /tmp && cc -std=c11 example/quantize.c \$(pkg-config --cflags --libs fp8q) -lm -o program && ./program model out2"
    echo "Debian packages: installed, used and removed in a fresh Debian"
    rm -rf "$chroot"
}

build
try
