#!/bin/sh
# The container file: rules that a linter would ask for, an image by buildah (no daemon is needed), and the image used as
# root's users use it: another user, a mounted folder, nothing else there.
[ "$(id -u)" = 0 ] || exec sudo -E "$0" "$@"
# shellcheck source=SCRIPTDIR/common.sh
. "$(dirname "$0")/common.sh"
file=$here/Containerfile
arch=$(uname -m)

rule() { # WHAT PATTERN: a line of the file must match
    grep -qE "$2" "$file" || fail "Containerfile: $1"
}
rule "the last stage is scratch" '^FROM scratch$'
rule "nobody runs it as root" '^USER [1-9][0-9]*:[1-9][0-9]*$'
rule "the entry point is a list, not a line for a shell" '^ENTRYPOINT \["/bin/fp8q"\]$'
rule "its version is that of fp8q.h" "^ARG VERSION=$version\$"
! grep -qE '^ADD .*(https?|git):' "$file" || fail "Containerfile: nothing is fetched while it is built"
[ "$(grep -c "^ARG VERSION=$version\$" "$file")" = "$(grep -c '^ARG VERSION=' "$file")" ] || fail "Containerfile: two versions"
[ -f "$dist/fp8q-$version-linux-$arch.tar.gz" ] || fail "there is no static binary: tools/package.sh binaries"

storage=$work/container
rm -rf "$storage"
mkdir -p "$storage/models"
set -- --root "$storage/root" --runroot "$storage/run" --storage-driver vfs
quietly "$storage/log" buildah "$@" build --isolation chroot --build-arg ARCH="$arch" -f "$file" -t fp8q "$top"
container=$(buildah "$@" from fp8q)
mounted=$(buildah "$@" mount "$container")
[ "$(find "$mounted" -type f ! -path "$mounted/licences/*" | sed "s,$mounted,,")" = /bin/fp8q ] || fail "the image holds more than fp8q"

cp -RL "$top/tests/data/checkpoints/qwen3" "$storage/models/model"
chmod -R a+rX "$storage/models"
chown -R 65534:65534 "$storage/models"
mkdir -p "$mounted/models"
cp -Rp "$storage/models/." "$mounted/models/"
chroot --userspec=65534:65534 "$mounted" /bin/fp8q quantize -q /models/model /models/out
chroot --userspec=65534:65534 "$mounted" /bin/fp8q verify -q /models/out --source /models/model
quietly "$storage/log" buildah "$@" rm "$container"
rm -rf "$storage"
echo "container image: built, holds one file, converts as nobody"
