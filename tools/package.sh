#!/bin/sh
# Makes the packages and tries each: results in build/package/dist, with SHA256SUMS.
#
#     tools/package.sh [PART...]      binaries wheels debian container ci (all by default)
#
# Needs a network for what is fetched once: libraries (tools/package/sources.txt) and a compiler
# (tools/package/requirements.txt), both pinned.  docs/guide/install.md says how a release is signed.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- binaries wheels debian container ci
tools/install-deps.sh package

for part in "$@"; do
    echo "== package: $part"
    case $part in
    binaries)
        tools/package/binaries.sh build x86_64 aarch64
        tools/package/binaries.sh try
        ;;
    wheels | debian | container | ci) "tools/package/$part.sh" ;;
    *)
        echo "unknown part $part" >&2
        exit 2
        ;;
    esac
done
