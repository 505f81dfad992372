#!/bin/sh
# Every option of every --help-all stands in the man page, in the section of its command (or where the
# common ones and those of the inputs stand), and the reverse; and both list the same commands.  --help
# is one screen of them.
#
#     options.sh FP8Q FP8Q.1
set -eu
fp8q=$1 man=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-options-XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=0

# "SECTION --option" for each option that heads a paragraph (.TP) of the man page.
awk '
    /^\.SH/ { section = tolower(substr($0, 5)) }
    heads   { line = $0; gsub(/\\f[RIPB]/, "", line); gsub(/\\-/, "-", line)
              while (match(line, /--[a-z][a-z0-9-]*/)) {
                  print section " " substr(line, RSTART, RLENGTH)
                  line = substr(line, RSTART + RLENGTH)
              } }
    { heads = ($0 == ".TP") }
' "$man" >"$work/man"
sed -n 's/^common options //p' "$work/man" | sort -u >"$work/common"
sed -n 's/^inputs of eval, calibrate and sweep //p' "$work/man" | sort -u >"$work/inputs"

commands=$("$fp8q" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ]

# COMMANDS says of each what --help says of it.
"$fp8q" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\)  *\(.*\)/\1 \2/p' >"$work/commands"
awk '/^\.SH/ { inside = ($0 == ".SH COMMANDS"); rest = 0 }
    inside && rest == 1 { name = $3; sub("\".*", "", name) }
    inside && rest == 2 { print name " " $0 }
    { rest = $0 == ".TP" ? 1 : rest ? rest + 1 : 0 }' "$man" | diff "$work/commands" - || failed=1

for command in $commands; do
    "$fp8q" "$command" --help-all >"$work/all.txt"
    "$fp8q" "$command" --help >"$work/short.txt"
    for text in all short; do
        sed '/^Rare/,$d' "$work/$text.txt" | grep -oE '^ +(-[a-z], )?--[a-z0-9-]+' | sed 's/.*--/--/' | sort >"$work/$text"
    done

    # --help is one screen with an example, and names what it does not explain.  Nothing of it is not in
    # --help-all, or there twice.
    lines=$(wc -l <"$work/short.txt")
    grep -oE -- '--[a-z0-9-]+' "$work/short.txt" | sort -u >"$work/named"
    for option in $(comm -13 "$work/named" "$work/all"); do
        echo "fp8q $command --help: does not name $option"
        failed=1
    done
    if [ "$lines" -gt 36 ] || ! grep -q '^Example: fp8q ' "$work/short.txt"; then
        echo "fp8q $command --help: $lines lines, of 36 at most, and an example"
        failed=1
    fi
    for option in $(comm -23 "$work/short" "$work/all") $(uniq -d "$work/all"); do
        echo "fp8q $command $option: in --help alone, or twice"
        failed=1
    done
    mv "$work/all" "$work/help"
    sed -n "s/^fp8q $command //p" "$work/man" >"$work/own"
    case $command in
    eval | calibrate | sweep) cat "$work/inputs" >>"$work/own" ;;
    esac
    cat "$work/common" >>"$work/own"
    sort -u "$work/own" >"$work/said"
    for option in $(comm -23 "$work/help" "$work/said"); do
        echo "fp8q $command $option: not in $man"
        failed=1
    done
    for option in $(comm -13 "$work/help" "$work/said"); do
        echo "$man: fp8q $command has no $option"
        failed=1
    done
done
exit $failed
