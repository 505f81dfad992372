#!/bin/sh
# The man pages, by the two programs that print them: neither has a warning, and each command's page is whole.
#
#     man_pages.sh FP8Q FP8Q.1 DIR_OF_PAGES
set -eu
fp8q=$1 whole=$2 pages=$3
failed=0

for page in "$whole" "$pages"/*.1; do
    mandoc -T lint -W warning "$page" || failed=1
    said=$(groff -man -ww -rCHECKSTYLE=3 -Tutf8 -z "$page" 2>&1)
    [ -z "$said" ] || { echo "$said"; failed=1; }
done

for command in $("$fp8q" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    mandoc -T ascii -O width=200 "$pages/fp8q-$command.1" | sed "s/.$(printf '\b')//g" >"$pages/text"
    for needed in "^ *fp8q-$command - " "^ *fp8q $command " '--json' 'EXIT STATUS'; do
        grep -q -- "$needed" "$pages/text" || { echo "fp8q-$command.1: no \"$needed\""; failed=1; }
    done
    for option in $("$fp8q" "$command" --help | sed -n 's/^ *\(-[a-z], \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p'); do
        grep -q -- "^ .*$option\b" "$pages/text" || { echo "fp8q-$command.1: no $option"; failed=1; }
    done
done
rm -f "$pages/text"
exit $failed
