#!/bin/sh
# An installed fp8q as its users meet it: find_package and pkg-config, shared and static, C and C++.
#
#     install.sh CMAKE BUILD_TREE SOURCE_TREE QWEN3_CHECKPOINT
#
# Also: the shared library exports the names of fp8q.h and no others; man pages and completions are there.
set -eu
cmake=$1 build=$2 source=$3 checkpoint=$4
work=$(mktemp -d "${TMPDIR:-/tmp}/fp8q-install-XXXXXX")
trap 'rm -rf "$work"' EXIT
prefix=$work/prefix
flags='-Wall -Wextra -Wpedantic -Werror'

"$cmake" --install "$build" --prefix "$prefix" >"$work/log"
lib=$(dirname "$(find "$prefix" -name libfp8q.a)")
export PKG_CONFIG_PATH="$lib/pkgconfig"

# The header alone, in C and in C++.
echo '#include <fp8q.h>
int main(void) { struct fp8q_request r; fp8q_request_init(&r); return r.size == sizeof(r) && fp8q_version() ? 0 : 1; }' >"$work/header.c"
cp "$work/header.c" "$work/header.cpp"
cc -std=c11 $flags "$work/header.c" $(pkg-config --cflags --libs fp8q) -o "$work/header_c"
LD_LIBRARY_PATH=$lib "$work/header_c"
if command -v c++ >/dev/null; then
    c++ -std=c++11 $flags "$work/header.cpp" $(pkg-config --cflags --libs fp8q) -o "$work/header_cpp"
    LD_LIBRARY_PATH=$lib "$work/header_cpp"
else
    echo "no C++ compiler: not tested with one"
fi

run_example() {
    rm -rf "$work/out"
    LD_LIBRARY_PATH=$lib "$1" "$checkpoint" "$work/out" >"$work/log"
    grep -q '^7 of 14 tensors' "$work/log"
    grep -q ' 0 failed' "$work/log"
    "$prefix/bin/fp8q" verify --strict -q "$work/out"
}

# pkg-config, shared and static.
cc -std=c11 $flags "$source/examples/c/quantize.c" $(pkg-config --cflags --libs fp8q) -lm -o "$work/shared"
run_example "$work/shared"
mkdir "$work/archive"
cp "$lib/libfp8q.a" "$work/archive"
cc -std=c11 $flags "$source/examples/c/quantize.c" -L"$work/archive" $(pkg-config --static --cflags --libs-only-l fp8q) \
    $(pkg-config --cflags fp8q) -lm -pthread -o "$work/static"
if ldd "$work/static" | grep fp8q; then
    echo "linked statically, and yet it needs the shared library"
    exit 1
fi
run_example "$work/static"

# find_package, from a project outside.
"$cmake" -S "$source/examples/c" -B "$work/project" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release >"$work/log"
"$cmake" --build "$work/project" >"$work/log"
run_example "$work/project/quantize"
run_example "$work/project/quantize_static"

# A man page and a completion for whoever looks for one.
for command in '' $("$prefix/bin/fp8q" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/-\1/p'); do
    test -s "$prefix/share/man/man1/fp8q$command.1"
done
bash -c 'source "$1" && complete -p fp8q' - "$prefix/share/bash-completion/completions/fp8q" >"$work/log"
test -s "$prefix/share/zsh/site-functions/_fp8q"
test -s "$prefix/share/fish/vendor_completions.d/fp8q.fish"

# Exported names: those of the header.
sed 's/static inline//' "$prefix/include/fp8q.h" | cc -E -P -x c -I"$prefix/include" - |
    grep -o 'fp8q_[a-z0-9_]* *[([]' | tr -d ' ([' | grep -v '_init$' | sort -u >"$work/header"
nm -D --defined-only "$lib/libfp8q.so" | sed -n 's/.* [TRDBV] //p' | sed 's/@.*//' | sort -u >"$work/exported"
diff "$work/header" "$work/exported"
