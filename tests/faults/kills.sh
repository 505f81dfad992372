#!/bin/sh
# Kills conversions with SIGKILL at seeded moments and looks at what is there afterwards.
#
#     tests/faults/kills.sh FP8Q MAKE_CHECKPOINT [COUNT [SEED]]        COUNT is 200 by default
#
# Four kinds in turn: a directory, a file, a directory with --overwrite over an older output, a file
# with --overwrite.  After each kill DST is absent, the old output as it was, or complete; `--resume`
# then ends it with the bytes of an undisturbed run and leaves nothing beside it.  Some resumed runs
# are killed once more before.  At the end: --resume with other options, another source or another
# state is refused with status 2, and with a complete DST it says so.
set -eu
fp8q=$1 make_checkpoint=$2 count=${3:-200} seed=${4:-1}
[ -d /dev/shm ] && [ -w /dev/shm ] && base=/dev/shm || base=${TMPDIR:-/tmp}
work=$(mktemp -d "$base/fp8q-kills-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
size=${KILLS_MB:-30}

fail() {
    echo "kill $i ($kind, after $delay s): $*" >&2
    exit 1
}

now() { date +%s.%N; }

# Undisturbed runs: what must come out, and how long it takes.
"$make_checkpoint" "shards=4,$size" src
"$make_checkpoint" "size=$size" src.safetensors
mkdir ref old dir
for kind in dir file; do
    if [ $kind = dir ]; then s=src d=dst; else s=src.safetensors d=dst.safetensors; fi
    "$fp8q" quantize -q $s $d --scale-fmt ue8m0
    mv dst* old/
    begin=$(now)
    "$fp8q" quantize -q $s $d
    eval "seconds_$kind=$(awk -v a="$begin" -v b="$(now)" 'BEGIN { print b - a }')"
    "$fp8q" verify -q $d --source $s
    mv dst* ref/
done
before=$(find src src.safetensors -type f -exec cksum {} + | sort)

# Either everything of ref/ or old/ under these names, or no weights under the final name.
look() {
    [ -e "$dst" ] || return 0
    whole=
    for of in ref old; do
        if diff -r "$dst" "$of/$dst" >diff.txt 2>&1; then whole=$of; fi
    done
    [ -n "$whole" ] || fail "$dst is neither complete nor the old one: $(cat diff.txt)"
    if [ $kind != dir ] && [ $kind != dir-over ]; then
        cmp -s dst.scales.safetensors "$whole/dst.scales.safetensors" || fail "scales of another output"
    fi
}

# Starts a run and kills it after $delay; true if it was still running.
kill_one() {
    "$fp8q" quantize -q "$src" "$dst" "$@" >out.txt 2>&1 &
    pid=$!
    sleep "$delay"
    kill -9 $pid 2>/dev/null || true
    code=0
    wait $pid 2>/dev/null || code=$?
    [ $code = 137 ] || return 1
    killed=$((killed + 1))
}

# What stood there before the run.
set_out() {
    rm -rf dst*
    case $kind in
    dir-over) cp -r old/dst . ;;
    file-over) cp old/dst.*safetensors . ;;
    esac
}

killed=0 early=0 resumed=0 i=0
while [ $i -lt "$count" ]; do
    case $((i % 4)) in
    0) kind=dir src=src dst=dst over= t=$seconds_dir ;;
    1) kind=file src=src.safetensors dst=dst.safetensors over= t=$seconds_file ;;
    2) kind=dir-over src=src dst=dst over=--overwrite t=$seconds_dir ;;
    3) kind=file-over src=src.safetensors dst=dst.safetensors over=--overwrite t=$seconds_file ;;
    esac
    delay=$(awk -v s="$seed" -v i="$i" -v t="$t" 'BEGIN { srand(s * 100003 + i); print rand() * t * 1.1 }')
    set_out
    # A run that ended before is looked at too, and the moment is tried again, sooner.
    # shellcheck disable=SC2086
    while ! kill_one --resume $over; do
        look
        early=$((early + 1))
        delay=$(awk -v d="$delay" 'BEGIN { print d * 0.8 }')
        set_out
    done
    look
    # shellcheck disable=SC2086
    if [ $((i % 5)) = 4 ]; then
        kill_one --resume $over || true
        look
    fi
    "$fp8q" quantize "$src" "$dst" --resume $over >out.txt 2>&1 || fail "--resume: $(cat out.txt)"
    grep -q 'taken over' out.txt && resumed=$((resumed + 1))
    case $kind in
    dir*) expected=dst ;;
    *) expected="dst.safetensors dst.scales.safetensors" ;;
    esac
    # shellcheck disable=SC2012
    [ "$(ls -d dst* | tr '\n' ' ')" = "$expected " ] || fail "left over: $(ls -d dst*)"
    for f in $expected; do
        diff -r "$f" "ref/$f" >diff.txt 2>&1 || fail "$f is another one: $(cat diff.txt)"
    done
    i=$((i + 1))
done
[ "$count" -lt 100 ] || [ $resumed -gt 0 ] || fail "no run found a finished shard to go on from"
[ "$before" = "$(find src src.safetensors -type f -exec cksum {} + | sort)" ] || fail "the source changed"

# What --resume refuses.
refuse() {
    code=0
    "$fp8q" quantize "$@" >out.txt 2>&1 || code=$?
    [ $code = 2 ] || fail "status $code, expected 2: fp8q quantize $*: $(cat out.txt)"
}
kind=refusals delay=0 src=src dst=dst
rm -rf dst*
"$fp8q" quantize -q src dst --resume
"$fp8q" quantize src dst --resume | grep -q 'complete already' || fail "a complete output is not noticed"
refuse src dst
refuse src dst --resume --scale-fmt ue8m0
rm -rf dst
# A partial output whose state is known: kill until one is left.
tries=0
while [ ! -e dst.partial.fp8q/state.json ]; do
    rm -rf dst*
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "cannot make a partial output"
    delay=$(awk -v t="$seconds_dir" -v n="$tries" 'BEGIN { srand(n); print (0.3 + rand() / 2) * t }')
    kill_one --resume || true
done
delay=0
cp -r dst.partial kept
refuse src dst --resume --scale-fmt ue8m0
touch src/model-00001-of-0*.safetensors
refuse src dst --resume
touch -r src.safetensors src/config.json
sed -i 's/"fp8q": "/"fp8q": "9/' dst.partial.fp8q/state.json
refuse src dst --resume
[ -e dst.partial ] && [ ! -e dst ] || fail "a refusal removed what was there"
"$fp8q" quantize -q src dst || fail "a fresh run over leftovers"
diff -r dst ref/dst >diff.txt || fail "another output: $(cat diff.txt)"
echo "$count of $count moments: $killed runs killed, $early more had ended; $resumed resumed with finished shards; all outputs identical"
