#!/bin/sh
# What the built library and program promise: names, the seam to the system, hardening.
#
#     hygiene.sh LIBRARY PROGRAM hardened|plain
set -eu
library=$1 program=$2 kind=$3
failed=0
calls=$(mktemp)
trap 'rm -f "$calls"' EXIT
complain() {
    echo "$*" >&2
    failed=1
}

# Every external symbol has the prefix.  Sanitizers add their own.
foreign=$(nm -g --defined-only "$library" | awk 'NF == 3 && $3 !~ /^fp8q_/ && $3 !~ /^__odr_asan/ { print $3 }')
[ -z "$foreign" ] || complain "symbols without the prefix fp8q_:
$foreign"

# Only io.c, file.c, dir.c, path.c, output.c and fresh.c ask the system for files, and nothing in the library prints, exits or reads the environment.
files='open|open64|openat|openat64|creat|fopen|fopen64|freopen|read|pread|pread64|write|pwrite|pwrite64'
files="$files|stat|stat64|lstat|lstat64|fstat|fstat64|rename|renameat2|unlink|remove|rmdir|mkdir|opendir"
files="$files|readdir|readdir64|fsync|fdatasync|ftruncate|ftruncate64|fallocate|fallocate64|flock|statvfs"
files="$files|statvfs64|__open_2|__open64_2|__openat_2|__openat64_2|readlink|symlink|link|linkat|mmap|mmap64|realpath|access|chdir|system|popen|fork"
never='printf|vprintf|puts|putchar|fputs|fprintf|vfprintf|fwrite|perror|exit|_exit|abort|getenv|setlocale|signal|sigaction'
nm -A -u "$library" | sed 's/.*:\([^:]*\.o\): *U */\1 /' | awk -v files="^($files)$" -v never="^($never)$" '
    { sub(/@.*/, "", $2) }
    # A hardened build calls __read_chk for read, glibc 2.38 __isoc23_sscanf for sscanf.
    { sub(/^__isoc[0-9]+_/, "", $2) }
    $2 ~ /^__.*_chk$/ { sub(/^__/, "", $2); sub(/_chk$/, "", $2) }
    $2 ~ never || ($1 !~ /^(io|file|dir|path|output|fresh)\.c\.o$/ && $2 ~ files) { print $1 ": " $2; bad = 1 }
    END { exit bad }' >"$calls" || complain "calls that the library must not make there:
$(cat "$calls")"

if [ "$kind" = hardened ]; then
    readelf -h "$program" | grep -q 'Type: *DYN' || complain "no position-independent executable"
    readelf -lW "$program" | grep -q GNU_RELRO || complain "no RELRO"
    readelf -dW "$program" | grep -Eq 'BIND_NOW|FLAGS.*NOW' || complain "no BIND_NOW"
    readelf -lW "$program" | grep GNU_STACK | grep -q 'RWE' && complain "an executable stack"
    nm -D "$program" | grep -q __stack_chk_fail || complain "no stack protector"
    nm -D "$program" | grep -Eq '__[a-z]+_chk' || complain "no _FORTIFY_SOURCE"
fi
exit $failed
