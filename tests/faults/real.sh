#!/bin/sh
# Faults of the real kind: a full disk, limits, signals, closed streams, locks, sources that change.
#
#     real.sh FP8Q MAKE_CHECKPOINT
#
# Needs root (or user namespaces) for its small tmpfs; without either it fails, it skips nothing.
set -eu
fp8q=$1 make_checkpoint=$2
if [ -z "${REAL_MOUNTED:-}" ] && [ "$(id -u)" != 0 ]; then
    REAL_MOUNTED=1 exec unshare -rm sh "$0" "$@"
fi
[ -d /dev/shm ] && [ -w /dev/shm ] && base=/dev/shm || base=${TMPDIR:-/tmp}
work=$(mktemp -d "$base/fp8q-real-XXXXXX")
trap 'umount "$work/small" 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
LC_ALL=C
export LC_ALL

n_ok=0
ok() {
    n_ok=$((n_ok + 1))
    echo "ok: $*"
}
fail() {
    echo "FAILED: $*" >&2
    [ ! -s err.txt ] || sed 's/^/    /' err.txt >&2
    exit 1
}
# expect STATUS TEXT COMMAND...: the status is right and standard error has the text.
expect() {
    want=$1 text=$2 code=0
    shift 2
    "$@" >out.txt 2>err.txt </dev/null || code=$?
    [ $code = "$want" ] || fail "status $code, expected $want: $*"
    grep -q -- "$text" err.txt || [ -z "$text" ] || fail "no \"$text\" in the message of: $*"
}
nothing_left() {
    [ -z "$(find "$1" -maxdepth 1 -name 'dst*')" ] || fail "left over: $(find "$1" -maxdepth 1 -name 'dst*')"
}
same_as_ref() {
    diff -r "$1" ref >diff.txt || fail "another output: $(cat diff.txt)"
}

"$make_checkpoint" tiny src
"$make_checkpoint" size=100 large.safetensors
"$fp8q" quantize -q src ref

# ---- no room -----------------------------------------------------------------------------------
mkdir small
mount -t tmpfs -o size=1m tmpfs small || fail "cannot mount a tmpfs"
expect 3 'No space left on device: the output needs' "$fp8q" quantize src small/dst
nothing_left small
ok "a disk that is known to be too small"
expect 3 'No space left on device' "$fp8q" quantize src small/dst --part 1/1
[ ! -e small/dst ] || fail "an output on a full disk"
rm -rf small/dst*
ok "a disk that turns out to be full"
mount -o remount,size=64m,nr_inodes=12 small
expect 3 'No space left on device' "$fp8q" quantize src small/dst
nothing_left small
ok "no more inodes"
mount -o remount,ro small
expect 3 'Read-only file system' "$fp8q" quantize src small/dst
ok "a read-only directory"
mount -o remount,rw,nr_inodes=0 small
"$fp8q" quantize -q src small/dst
same_as_ref small/dst
umount small
(ulimit -f 400 && expect 3 'File too large' "$fp8q" quantize src dst) || exit 1
nothing_left .
ok "a limit on the size of files"

# ---- streams -----------------------------------------------------------------------------------
closed() { "$fp8q" quantize src dst "$@" >&-; }
expect 3 'writing to standard output: Bad file descriptor' closed
same_as_ref dst
rm -rf dst
ok "standard output closed: said, and not written into the output"
all_closed() { "$fp8q" quantize src dst <&- >&- 2>&-; }
expect 3 '' all_closed
same_as_ref dst
rm -rf dst
ok "all three closed"
full() { "$fp8q" quantize src dst >/dev/full; }
expect 3 'writing to standard output: No space left on device' full
same_as_ref dst
rm -rf dst
full_json() { "$fp8q" inspect --json src >/dev/full; }
expect 3 'writing to standard output' full_json
full_help() { "$fp8q" --help >/dev/full; }
expect 3 'writing to standard output' full_help
ok "standard output full"
{
    sleep 0.3
    code=0
    "$fp8q" quantize src dst 2>err.txt || code=$?
    echo $code >code.txt
} | true
[ "$(cat code.txt)" = 3 ] || fail "status $(cat code.txt) with a broken pipe, expected 3"
[ ! -s err.txt ] || fail "a message though its reader has gone"
same_as_ref dst
rm -rf dst
ok "a pipe without a reader: the status says it, and nobody is told"
"$fp8q" quantize -q src out
weight=model.layers.0.mlp.down_proj.weight
for words in --help --version '__complete quantize --' 'quantize --help' 'families --json' 'check out' \
    "inspect out --tensor $weight" 'verify out' 'report out --format md' 'report out --json' 'compare src' \
    'quantize src -n' 'gate --print-policy'; do
    # shellcheck disable=SC2086
    each_full() { "$fp8q" $words >/dev/full; }
    expect 3 'writing to standard output: No space left' each_full
    {
        sleep 0.1
        code=0
        # shellcheck disable=SC2086
        "$fp8q" $words 2>/dev/null || code=$?
        echo $code >code.txt
    } | true
    [ "$(cat code.txt)" = 3 ] || fail "status $(cat code.txt) of \"$words\" with a broken pipe, expected 3"
done
ok "a full disk and a broken pipe behind what each command prints"
for how in json line; do
    "$fp8q" quantize src dst --progress $how >/dev/null 2>/dev/full || fail "--progress $how on a full disk"
    same_as_ref dst
    rm -rf dst
    {
        sleep 0.1
        "$fp8q" quantize src dst --progress $how 2>&1 >/dev/null || echo failed >code.txt
    } | true
    [ "$(cat code.txt)" = 3 ] || fail "--progress $how on a broken pipe"
    same_as_ref dst
    rm -rf dst
done
rm -r out
ok "progress that nobody can read stops nothing"

# ---- signals -----------------------------------------------------------------------------------
for signal in INT:130 TERM:143 HUP:129; do
    tries=0 code=0
    while [ $code != "${signal#*:}" ]; do # the run may have ended before the signal came
        tries=$((tries + 1)) code=0
        [ $tries -le 20 ] || fail "${signal%:*}: status $code, expected ${signal#*:}"
        rm -f dst*
        timeout --preserve-status -s "${signal%:*}" "0.0$((tries % 9 + 1))" \
            "$fp8q" quantize -q large.safetensors dst.safetensors --threads 1 2>err.txt || code=$?
    done
    nothing_left .
    ok "SIG${signal%:*} ends it with status $code and leaves nothing"
done

# ---- locks -------------------------------------------------------------------------------------
for lock in dst.partial.fp8q/lock; do
    mkdir -p dst.partial.fp8q
    : >dst.partial.fp8q/lock
    flock $lock sleep 60 &
    holder=$!
    while flock -n $lock true; do sleep 0.05; done
    for option in "" --resume; do
        # shellcheck disable=SC2086
        expect 2 'another fp8q is working on it' "$fp8q" quantize src dst $option
    done
    kill $holder
    wait $holder 2>/dev/null || true
    pkill -P $holder 2>/dev/null || true
    [ -e dst.partial.fp8q/lock ] && [ ! -e dst ] || fail "a locked conversion was touched"
    ok "refused while someone holds $lock"
    rm -rf dst*
done
"$fp8q" quantize -q large.safetensors dst.safetensors --threads 1 &
first=$!
while [ ! -e dst.safetensors.partial.fp8q/state.json ] && [ ! -e dst.safetensors ]; do sleep 0.01; done
code=0
"$fp8q" quantize -q large.safetensors dst.safetensors 2>err.txt || code=$?
wait $first || fail "the first of two runs failed"
[ $code = 2 ] || fail "the second of two runs: status $code"
"$fp8q" verify -q dst.safetensors || fail "two runs on one output"
rm -f dst*
ok "two runs on one output"

# ---- a source that changes ---------------------------------------------------------------------
# The run is stopped in the middle, the source changed, and the run goes on.  It may end well only if it
# had read all: then its output is a right conversion of what the source was.
changing() { # WHAT COMMAND
    what=$1 tries=0 noticed=0
    shift
    while [ $noticed = 0 ]; do
        tries=$((tries + 1)) code=0
        [ $tries -le 40 ] || fail "$what was never noticed"
        cp large.safetensors changes.safetensors
        "$fp8q" quantize -q changes.safetensors dst.safetensors --threads 1 2>err.txt &
        pid=$!
        while [ ! -e dst.safetensors.partial ] && [ ! -e dst.safetensors ]; do :; done
        kill -STOP $pid 2>/dev/null || true
        "$@"
        kill -CONT $pid 2>/dev/null || true
        wait $pid || code=$?
        case $code in
        0) "$fp8q" verify -q dst.safetensors --source large.safetensors || fail "$what: status 0, and a wrong output" ;;
        3)
            nothing_left .
            grep -Eq 'changed|ends at byte' err.txt || fail "$what: $(cat err.txt)"
            noticed=1
            ;;
        *) fail "$what: status $code" ;;
        esac
        rm -f dst* changes.safetensors
    done
    ok "$what during the run"
}
shorten() { truncate -s 1000000 changes.safetensors; }
rewrite() { printf x | dd of=changes.safetensors bs=1 seek=50000000 conv=notrunc 2>/dev/null; }
changing "a source that is cut short" shorten
changing "a source that is written to" rewrite

# ---- descriptors -------------------------------------------------------------------------------
"$make_checkpoint" many=1000 many
(
    ulimit -n 64
    "$fp8q" quantize -q many dst --threads 16 &&
        "$fp8q" verify -q dst --source many --threads 16 &&
        "$fp8q" dequantize -q dst dst-back --threads 16
) || fail "1,000 shards with 64 descriptors"
rm -rf dst dst-back many
ok "1,000 shards with 64 descriptors"

echo "$n_ok real faults"
