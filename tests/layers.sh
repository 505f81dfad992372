#!/bin/sh
# The rooms of src/: each may use only the rooms that its row names.
#
#     layers.sh SOURCE_TREE
#
# Refuses, with the line: an include of a room that the row does not name, an internal header of
# another room, files outside of rooms, more than 16 .c files in a room, and includes that go round
# in a circle.  A new room is a new row; docs/design.md says what each is for.
set -eu
cd "$1/src"
out=$(mktemp)
trap 'rm -f "$out"' EXIT

rooms='
base
format       base
kernel       base
checkpoint   base format kernel
select       base format kernel checkpoint
tokenizer    base format
model        base format kernel checkpoint
plan         base format kernel checkpoint select
calibration  base format kernel checkpoint select model plan
convert      base format kernel checkpoint select plan calibration
verify       base format kernel checkpoint select plan calibration
measure      base format kernel checkpoint select model plan calibration
gate         base format checkpoint
bench        base format kernel
api          base format kernel checkpoint select plan calibration convert verify
cli          base format kernel checkpoint select tokenizer model plan verify gate
commands     base format kernel checkpoint select tokenizer model plan calibration measure gate bench cli
'

# Commands that are clients of the public interface: fp8q.h and cli/, and base/ for files.
clients='quantize finish verify inspect dequantize families'

failed=0
complain() {
    echo "$*" >&2
    failed=1
}

for entry in *; do
    echo "$rooms" | grep -q "^$entry\( \|\$\)" || complain "src/$entry: no room of that name in tests/layers.sh"
done

for room in *; do
    [ -d "$room" ] || continue
    may=$(echo "$rooms" | sed -n "s/^$room\( \|\$\)//p")
    count=$(find "$room" -name '*.c' | wc -l)
    [ "$count" -le 16 ] || echo "src/$room: $count .c files; at most 16 make a room"

    grep -rn '^#include "' "$room" | while IFS= read -r line; do
        header=$(echo "$line" | sed 's/.*#include "\(.*\)".*/\1/')
        target=${header%%/*}
        case $header in
        fp8q.h) continue ;;
        "$room"/*) continue ;;
        */internal.h) echo "src/$line: an internal header of another room" ;;
        */*) ;;
        *) echo "src/$line: a header without its room" ;;
        esac
        case " $may " in
        *" $target "*) ;;
        *) echo "src/$line: $room/ may use: $may" ;;
        esac
    done
done >"$out"
for command in $clients; do
    grep -n '^#include "' "commands/cmd_$command.c" | grep -v '"\(base\|cli\|commands\)/' |
        sed "s,^,src/commands/cmd_$command.c:,; s,\$,: a client of fp8q.h and cli/ only,"
done >>"$out"
[ ! -s "$out" ] || complain "$(cat "$out")"

# A module is X.c with X.h.  Each with what it includes, in an order: tsort names what goes round.
for file in $(find . -name '*.[ch]' | sed 's,^\./,,'); do
    module=${file%.*}
    sed -n 's,^#include "\(.*/.*\)\.h".*,'"$module"' \1,p' "$file"
done | awk '$1 != $2' | sort -u | tsort >/dev/null 2>"$out" || true
[ ! -s "$out" ] || echo "modules that include each other in a circle: $(cat "$out")"

exit $failed
