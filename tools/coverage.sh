#!/bin/sh
# Line and branch coverage of src/ by the whole test suite; build/coverage/report.txt has every file.
#
#     tools/coverage.sh [LINES BRANCHES]     fails below these percentages (default 90 80)
set -eu
cd "$(dirname "$0")/.."
lines=${1:-90} branches=${2:-80}
cmake -B build/coverage -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS="--coverage -O1 -DNDEBUG -fprofile-update=atomic" >/dev/null
cmake --build build/coverage -j"${JOBS:-2}" >build/coverage/build.log 2>&1 || { tail build/coverage/build.log; exit 1; }
find build/coverage -name '*.gcda' -delete
ctest --test-dir build/coverage -j"${JOBS:-2}" --timeout 1200 >build/coverage/tests.log 2>&1 || {
    tail -n 20 build/coverage/tests.log
    exit 1
}
# An allocation that fails is a branch of nearly every line; inlined copies in other files count once.
gcovr -r . --object-directory build/coverage -f 'src/' --exclude-unreachable-branches \
    --exclude-throw-branches --gcov-ignore-parse-errors -s --txt build/coverage/report.txt
gcovr -r . --object-directory build/coverage -f 'src/' --exclude-unreachable-branches --branches \
    --gcov-ignore-parse-errors --txt build/coverage/branches.txt
tail -n 3 build/coverage/report.txt
awk -v want="$lines" '/^TOTAL/ { sub(/%/, "", $4); exit !($4 >= want) }' build/coverage/report.txt
awk -v want="$branches" '/^TOTAL/ { sub(/%/, "", $4); exit !($4 >= want) }' build/coverage/branches.txt
