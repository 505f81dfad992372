#!/bin/sh
# Output bytes must not depend on threads or kernel: one digest over tools/digest.sh's conversions.
#
#     determinism.sh FP8Q
#
# Seven threads twice, since what depends on timing may come out right once.  Under ThreadSanitizer this is
# also where races of stacked experts, re-sharding and parts show.
set -eu
fp8q=$1
digest=$(cd "$(dirname "$0")/../tools" && pwd)/digest.sh
first=$("$digest" --threads 1 -- "$fp8q")
[ -n "$first" ] || exit 1
for options in "--threads 7" "--threads 7" "--threads 3 --kernel scalar"; do
    # shellcheck disable=SC2086
    other=$("$digest" $options -- "$fp8q")
    [ "$other" = "$first" ] || { echo "$options: $other, with one thread $first"; exit 1; }
done
echo "one SHA-256 for 1, 3 and 7 threads and the scalar kernel: $first"
