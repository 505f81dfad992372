#!/bin/sh
# Configures with cmocka hidden, as on a machine that has only the packages that the build needs.
#
#     without_cmocka.sh CMAKE SOURCE_TREE
#
# It must work, without tests, and say what to install for them; asking for the tests by name must fail.
set -eu
cmake=$1 source=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-without-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/pc"
for module in libcjson zlib libdeflate libpcre2-8 libutf8proc; do
    ln -s "$(pkg-config --variable=pcfiledir $module)/$module.pc" "$work/pc/"
done
PKG_CONFIG_LIBDIR=$work/pc
export PKG_CONFIG_LIBDIR

"$cmake" -S "$source" -B "$work/build" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
grep -q 'tests are left out.*libcmocka-dev' "$work/log" || { cat "$work/log"; echo "not a word about the tests"; exit 1; }
[ ! -e "$work/build/tests" ] || { echo "tests were configured"; exit 1; }

if "$cmake" -S "$source" -B "$work/asked" -DFP8Q_TESTS=ON >"$work/log" 2>&1; then
    echo "FP8Q_TESTS=ON went through without cmocka"
    exit 1
fi
grep -q 'apt-get install libcmocka-dev' "$work/log" || { cat "$work/log"; exit 1; }
echo "configures without cmocka; the tests, asked for, name their package"
