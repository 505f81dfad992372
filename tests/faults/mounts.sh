#!/bin/sh
# File systems of other kinds: real ones where they can be mounted, else what they answer, by a shim.
#
#     mounts.sh FP8Q MAKE_CHECKPOINT SHIM.so
#
# On each: quantize, --overwrite, --resume of a complete output, parts and finish, a result
# file, a file with its companion, dequantize.  The output is that of an ordinary file system, and nothing is left over.
# What this machine cannot mount is named and left out; so are the shims in a sanitized build.
set -eu
fp8q=$1 make_checkpoint=$2 shim=${3:-}
if [ -z "${MOUNTS_NS:-}" ]; then
    MOUNTS_NS=1 exec unshare -m sh "$0" "$@" || exec unshare -rm sh "$0" "$@"
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-mounts-XXXXXX")
mounted=
trap 'for m in $mounted; do umount "$m" 2>/dev/null || true; done; rm -rf "$work"' EXIT
cd "$work"
n_ok=0
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

"$make_checkpoint" tiny src
"$make_checkpoint" size=3 one.safetensors
"$fp8q" quantize -q src ref
"$fp8q" quantize -q src ref-ue8m0 --scale-fmt ue8m0
"$fp8q" quantize -q one.safetensors ref.safetensors
"$fp8q" dequantize -q ref back

same() {
    diff -r "$1" "$2" >diff.txt || fail "$kind: $1 is another output: $(cat diff.txt)"
}
only() { # nothing in directory $1 but these names
    dir=$1
    shift
    [ "$(cd "$dir" && ls -A | sort | tr '\n' ' ')" = "$* " ] || fail "$kind: left over: $(ls -A "$dir")"
}

# All commands in an empty directory $1; further words stand before the program.
try() {
    kind=$1 dir=$2
    shift 2
    "$@" "$fp8q" quantize -q src "$dir/dst" || fail "$kind: quantize"
    same "$dir/dst" ref
    "$@" "$fp8q" quantize -q src "$dir/dst" --overwrite --scale-fmt ue8m0 || fail "$kind: --overwrite"
    same "$dir/dst" ref-ue8m0
    "$@" "$fp8q" quantize -q src "$dir/dst" --resume --scale-fmt ue8m0 || fail "$kind: --resume"
    for i in 1 2; do "$@" "$fp8q" quantize -q src "$dir/dst" --overwrite --part $i/2 || fail "$kind: part $i"; done
    "$@" "$fp8q" finish -q "$dir/dst" --overwrite || fail "$kind: finish"
    same "$dir/dst" ref
    # A result file, new and over another.
    for i in 1 2; do "$@" "$fp8q" verify -q "$dir/dst" --junit "$dir/junit.xml" || fail "$kind: a result"; done
    grep -q '</testsuite>' "$dir/junit.xml" || fail "$kind: a result is not whole"
    only "$dir" dst junit.xml
    rm -r "$dir/dst" "$dir/junit.xml"
    "$@" "$fp8q" quantize -q one.safetensors "$dir/dst.safetensors" --scale-fmt ue8m0 || fail "$kind: a file"
    "$@" "$fp8q" quantize -q one.safetensors "$dir/dst.safetensors" --overwrite || fail "$kind: a file over another"
    same "$dir/dst.safetensors" ref.safetensors
    same "$dir/dst.scales.safetensors" ref.scales.safetensors
    rm "$dir"/dst.*
    "$@" "$fp8q" dequantize -q ref "$dir/dst" || fail "$kind: dequantize"
    same "$dir/dst" back
    only "$dir" dst
    rm -r "$dir/dst"
    n_ok=$((n_ok + 1))
    echo "ok: $kind"
}

# attach NAME MOUNT-ARGUMENTS...: mounts at ./NAME, or says that it cannot.
attach() {
    name=$1
    shift
    mkdir -p "$name"
    if mount "$@" "$name" 2>mount.txt; then
        mounted="$work/$name $mounted"
        return 0
    fi
    echo "SKIPPED: $name cannot be mounted here: $(head -1 mount.txt)"
    return 1
}
image() { # a file system of its own in a file
    truncate -s 320M "$1.img" # sparse; xfs takes no less
    command -v "mkfs.$1" >/dev/null && "mkfs.$1" -q "$1.img" >/dev/null 2>&1 || mkfs.$1 "$1.img" >/dev/null 2>&1 || {
        echo "SKIPPED: no mkfs.$1"
        return 1
    }
}

if attach tmpfs -t tmpfs tmpfs; then try tmpfs tmpfs; fi
for fs in ext4 vfat exfat xfs btrfs; do
    if image $fs && attach $fs -o loop $fs.img; then
        mkdir $fs/in
        try $fs $fs/in
    fi
done

# An image layer: the old output lies below, and cannot be renamed.
if attach layers -t tmpfs tmpfs; then
    mkdir layers/low layers/up layers/work
    cp -r ref-ue8m0 layers/low/dst
    cp ref.safetensors layers/low/f.safetensors
    cp ref.scales.safetensors layers/low/f.scales.safetensors
    if attach overlay -t overlay overlay -o "lowerdir=$work/layers/low,upperdir=$work/layers/up,workdir=$work/layers/work"; then
        kind="overlay, an output in a lower layer"
        "$fp8q" quantize -q src overlay/dst --overwrite || fail "$kind"
        same overlay/dst ref
        "$fp8q" quantize -q one.safetensors overlay/f.safetensors --overwrite || fail "$kind, a file"
        same overlay/f.safetensors ref.safetensors
        only overlay dst f.safetensors f.scales.safetensors
        rm -r overlay/dst overlay/f.*
        try overlay overlay
    fi
fi

# DST itself is a mount point, empty as a new volume is.
if attach volume -t tmpfs tmpfs; then
    code=0
    "$fp8q" quantize -q src volume 2>err.txt || code=$?
    [ $code = 2 ] && grep -q 'mount point' err.txt || fail "a mount point as DST: status $code, $(cat err.txt)"
    "$fp8q" quantize -q src volume/model
    same volume/model ref
    n_ok=$((n_ok + 1))
    echo "ok: a mount point as DST"
fi

# What other file systems answer.
if [ -n "$shim" ]; then
    for answer in noflock nolocks noswap nochmod nfs nofallocate notmpfile nolink nodirsync; do
        mkdir $answer
        try "answers like $answer" $answer env LD_PRELOAD="$shim" FP8Q_SHIM=$answer
    done
    LD_PRELOAD=$shim FP8Q_SHIM=noflock "$fp8q" quantize src told >out.txt 2>err.txt
    grep -q 'cannot lock' err.txt || fail "no warning without locks"
fi
echo "$n_ok kinds of file systems"
