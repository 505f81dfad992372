#!/bin/sh
# Memory against the size of the checkpoint, for a build without sanitizers.
#
#     tests/faults/resources.sh FP8Q MAKE_CHECKPOINT PEAK [quick]
#
# PEAK runs a command and prints its largest resident set in KiB.  A checkpoint of 100 GB and one of 100
# MB (both sparse) are planned, and one shard of each is converted (--part: the plan is that of the whole
# checkpoint); then 100 MB and 4 GB are converted and verified as a whole.  `quick` leaves the last out.
set -eu
fp8q=$1 make_checkpoint=$2 peak=$3 quick=${4:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-resources-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
limit=$((32 * 1024))
failed=0

measure() { "$peak" "$fp8q" "$@" -q --threads 2; }
compare() { # WHAT SMALL LARGE
    echo "$1: $(($2 / 1024)) MiB and $(($3 / 1024)) MiB"
    [ $(($3 - $2)) -le $limit ] || {
        echo "    differ by more than 32 MiB"
        failed=1
    }
}

"$make_checkpoint" sparse=1,100 small
"$make_checkpoint" sparse=1000,100 large
compare "plan of 100 MB and of 100 GB" "$(measure quantize -n small)" "$(measure quantize -n large)"
compare "one shard of 100 MB and of 100 GB" "$(measure quantize small a --part 1/1)" \
    "$(measure quantize large b --part 1/1000)"
rm -rf a.partial b.partial large

# What --max-memory promises: working memory, beside some 16 MiB for the program and its tables.
for megabytes in 16 32 64; do
    used=$(measure quantize small out --overwrite --max-memory ${megabytes}MiB)
    echo "--max-memory ${megabytes}MiB: $((used / 1024)) MiB resident"
    [ "$used" -le $(((megabytes + 16) * 1024)) ] || {
        echo "    more than that and 16 MiB"
        failed=1
    }
done

if [ "$quick" != quick ]; then
    "$make_checkpoint" sparse=20,200 large
    compare "all of 100 MB and of 4 GB" "$(measure quantize small out --overwrite)" "$(measure quantize large out2)"
    compare "verify --source of 100 MB and of 4 GB" "$(measure verify out --source small)" \
        "$(measure verify out2 --source large)"
fi
exit $failed
