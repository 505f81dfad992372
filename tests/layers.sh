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
table=$(mktemp)
trap 'rm -f "$out" "$table"' EXIT

rooms='
base
format       base
kernel       base
checkpoint   base format kernel
select       base format kernel checkpoint
engines      base format kernel checkpoint select
tokenizer    base format
model        base format kernel checkpoint select
plan         base format kernel checkpoint select engines
calibration  base format kernel checkpoint select model plan
destination  base format kernel checkpoint select plan
convert      base format kernel checkpoint select plan calibration destination
verify       base format kernel checkpoint select engines plan calibration
measure      base format kernel checkpoint select model plan calibration
gate         base format checkpoint
report       base format kernel checkpoint select engines plan calibration verify measure gate
bench        base format kernel
api          base format kernel checkpoint select plan calibration convert verify
cli          base format kernel checkpoint select tokenizer model plan verify gate
commands     base format kernel checkpoint select engines tokenizer model plan calibration measure gate report bench cli
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
    count=$(find "$room" -name '*.c' | wc -l)
    [ "$count" -le 16 ] || complain "src/$room: $count .c files; at most 16 make a room"
done

# One pass over all include lines: "room/file.c:12:#include \"other/file.h\"".
echo "$rooms" >"$table"
grep -rn '^#include "' . | sed 's,^\./,,' | awk -v clients="$clients" '
    NR == FNR { if (NF) { known[$1] = 1; for (i = 1; i <= NF; i++) may[$1, $i] = 1; row[$1] = $0 } next }
    {
        split($0, at, ":")
        room = at[1]; sub("/.*", "", room)
        header = $0; sub(".*#include \"", "", header); sub("\".*", "", header)
        target = header; sub("/.*", "", target)
        command = at[1]; sub("^commands/cmd_", "", command); sub("\\.c$", "", command)

        if (header == "fp8q.h")
            next
        if (header !~ "/")
            print "src/" $0 ": a header without its room"
        else if (!((room, target) in may))
            print "src/" $0 ": a row of this room: " row[room]
        else if (target != room && header ~ "/internal\\.h$")
            print "src/" $0 ": an internal header of another room"
        else if (index(" " clients " ", " " command " ") && target !~ "^(base|cli|commands)$")
            print "src/" $0 ": this command is a client of fp8q.h and cli/ only"
    }' "$table" - >"$out"
[ ! -s "$out" ] || complain "$(cat "$out")"

# A module is X.c with X.h; a room's internal.h is a part of all of them.  Each with what it includes,
# in an order: tsort names what goes round.
grep -r '^#include "' . | sed -n 's,^\./\(.*\)\.[ch]:#include "\(.*/.*\)\.h".*,\1 \2,p' |
    awk '$1 != $2 && $0 !~ "/internal"' | sort -u | tsort >/dev/null 2>"$out" || true
[ ! -s "$out" ] || complain "modules that include each other in a circle: $(cat "$out")"

exit $failed
