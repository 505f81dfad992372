#!/bin/sh
# Installs Debian packages: `build` for the program, `test` for its tests too, `cluster` for those of
# examples/cluster as well, `report` for what looks at reports, `package` for tools/package.sh.  As root,
# or with sudo.
set -eu
build="gcc cmake make pkg-config libc6-dev libcjson-dev zlib1g-dev libdeflate-dev libpcre2-dev
libutf8proc-dev"
test="clang libclang-rt-14-dev clang-format-14 clang-tidy-14 libcmocka-dev shellcheck python3 python3-venv python3-dev binutils
zsh fish mandoc groff dosfstools exfatprogs xfsprogs btrfs-progs"
packages=$build
[ "${1:-build}" = build ] || packages="$build $test"
[ "${1:-build}" != cluster ] || packages="$packages slurm-wlm munge"
[ "${1:-build}" != report ] || packages="$packages chromium default-jre-headless"
[ "${1:-build}" != package ] || packages="$packages dpkg-dev debhelper fakeroot lintian debootstrap qemu-user-static unzip buildah
musl shellcheck"

missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
sudo=
[ "$(id -u)" = 0 ] || sudo=sudo
$sudo apt-get update -q
# shellcheck disable=SC2086
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
