#!/bin/sh
# The newcomer's path by each package: from a bare Debian to a quantized and verified checkpoint.
#
#     tools/package/newcomer.sh [WAY...]      ways: source deb static wheel (all by default); as root, for debootstrap
#
# Takes the packages that tools/package.sh has made.  Each way begins in a fresh chroot.  A row: seconds by the clock, seconds
# of CPU, megabytes that the chroot has grown by, without the caches of the package system.
# shellcheck source=SCRIPTDIR/common.sh
. "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || set -- source deb static wheel
scratch=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-newcomer-XXXXXX")
trap 'rm -rf "$scratch"' EXIT
bare=$scratch/bare root=$scratch/root

commands() { # WAY
    case $1 in
    source) echo 'apt-get -q update && tools/install-deps.sh build && cmake -B build && cmake --build build -j && cmake --install build' ;;
    deb) echo "apt-get -q update && apt-get install -yq --no-install-recommends /packages/fp8q_*.deb" ;;
    static) echo "tar -C /usr/local --strip-components=1 -xf /packages/fp8q-$version-linux-$(uname -m).tar.gz" ;;
    wheel) echo "apt-get -q update && apt-get install -yq --no-install-recommends python3-venv && python3 -m venv /venv && /venv/bin/pip install -q /packages/fp8q-$version-py3-none-manylinux_2_28_$(uname -m).whl" ;;
    *) fail "no way $1" ;;
    esac
}


megabytes() {
    du -sm --exclude=var/cache --exclude=var/lib/apt --exclude=source/build --exclude=tmp "$root" | cut -f1
}

quietly "$scratch/log" debootstrap --variant=minbase bookworm "$bare" "$(debian_mirror)"
echo "| way | seconds | CPU seconds | MB | commands |"
echo "|---|---|---|---|---|"
for way; do
    rm -rf "$root"
    cp -a "$bare" "$root"
    mkdir "$root/packages" "$root/source"
    [ "$way" = source ] || cp "$dist"/* "$root/packages/"
    git -C "$top" archive HEAD | tar -C "$root/source" -xf -
    cp -RL "$top/tests/data/checkpoints/qwen3" "$root/tmp/model"
    rm -rf "$root/source/tests/data"
    before=$(megabytes)

    do=$(commands "$way")
    printf 'cd /source && %s && cd /tmp && fp8q quantize model -q && fp8q verify model-FP8 --source model -q\n' "$do" >"$root/tmp/run"
    python3 - "$root" >"$scratch/times" <<'EOF' || { tail -n 20 "$root/tmp/log" >&2; fail "failed: $way"; }
import os, subprocess, sys, time
begin = time.monotonic()
path = "/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
env = {"PATH": path, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8", "HOME": "/tmp"}
code = subprocess.run(["chroot", sys.argv[1], "sh", "-ec", ". /tmp/run >/tmp/log 2>&1"], env=env).returncode
used = os.times()
print(f"{time.monotonic() - begin:.0f} {used.children_user + used.children_system:.0f}")
sys.exit(code)
EOF
    read -r seconds cpu <"$scratch/times"
    echo "| $way | $seconds | $cpu | $(($(megabytes) - before)) | \`$do\` |"
done
