#!/bin/sh
# Makes the Python environment of one engine, or leaves it alone if it is there; the last line is its python.
#
#     env.sh ENGINE [newest]      ENGINE.txt says what goes in; "newest" takes the newest of the engine itself
#
# Kept by what goes in, under $FP8Q_ENGINES or the user's cache: outside of any build, so that a second run fetches nothing.
# Never skips: whatever goes wrong ends in a message and status 1.
set -eu

fail() {
    echo "env.sh: $*" >&2
    exit 1
}

install() { # OPTION AND PACKAGE...
    "$dir/bin/python" -m pip install -qq --disable-pip-version-check --no-input "$@" >&2 ||
        fail "pip could not install what $engine needs; can the package index be reached?"
}

here=$(cd "$(dirname "$0")" && pwd)
engine=$1 newest=${2:-}
list=$here/$engine.txt
[ -f "$list" ] || fail "there is no $list"
bare=$(sed -n 's/^# no-deps: //p' "$list")
sources=$(sed -n 's/^# sources: //p' "$list")
below=$(sed -n 's/^# over: //p' "$list")
free=$(sed -n 's/^# newest: //p' "$list")     # pins that "newest" leaves out
if [ -n "$newest" ]; then
    bare=$(echo "$bare" | sed 's/^\([^ ]*\)==[^ ]*/\1/')
    sources=${sources%%==*}
fi

# What lies below is made first, and its packages are seen from here: one torch for several engines.
[ -z "$below" ] || below=$("$0" "$below" | tail -n 1)

key=$(cat "$list" - <<KEY | sha256sum | cut -c1-12
$bare $sources $below $(python3 --version)
KEY
)
dir=${FP8Q_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/fp8q-engines}/$engine-${newest:-$key}
[ -z "$newest" ] || rm -rf "$dir"

if [ ! -f "$dir/.done" ]; then
    rm -rf "$dir"
    mkdir -p "$dir"
    python3 -m venv "$dir" >&2 || fail "python3 -m venv failed. On Debian: apt-get install python3-venv"
    [ -z "$below" ] || "$below" - "$dir" <<'PATHS'
import pathlib, sys, sysconfig
site, = pathlib.Path(sys.argv[1]).glob("lib/python3*/site-packages")
(site / "below.pth").write_text(sysconfig.get_path("purelib"))
PATHS
    mkdir "$dir/pins"
    cp "$list" "$dir/pins"
    [ -z "$newest" ] || for package in $free; do
        sed -i "s/^$package==.*/$package/" "$dir/pins/$engine.txt"
    done
    install -r "$dir/pins/$engine.txt"
    # shellcheck disable=SC2086
    [ -z "$bare" ] || install --no-deps $bare
    if [ -n "$sources" ]; then
        "$dir/bin/python" -m pip download -qq --disable-pip-version-check --no-input --no-deps \
            --no-binary "${sources%%==*}" -d "$dir" "$sources" >&2 || fail "pip could not download $sources"
        mkdir "$dir/llama.cpp"
        tar xzf "$dir"/*.tar.gz -C "$dir/llama.cpp" --wildcards --strip-components=3 \
            '*/vendor/llama.cpp/convert_hf_to_gguf.py' '*/vendor/llama.cpp/conversion/*' '*/vendor/llama.cpp/gguf-py/*'
        (cd "$dir" && echo *.tar.gz) >"$dir/llama.cpp/version"
        rm "$dir"/*.tar.gz
    fi
    touch "$dir/.done"
fi
echo "$dir/bin/python"
