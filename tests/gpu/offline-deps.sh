#!/bin/bash
# Libraries for a GPU host that has no network and lets nothing be installed:
#
#     offline-deps.sh fetch DIR           on a host with apt: downloads packages, installs nothing
#     offline-deps.sh unpack DIR PREFIX   on the GPU host: unpacks them under PREFIX, no root needed
#     make DEPS_PREFIX=PREFIX ...         builds against them
#
# Packages of an older release of Debian or Ubuntu run on a newer one; the reverse need not hold.
set -euo pipefail

dev="libevent-dev libmsgpack-dev libjansson-dev libinih-dev libsystemd-dev libcmocka-dev"

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 64
}

# The libraries that the development packages are for: what they depend on, but for other headers.
runtime() {
    # shellcheck disable=SC2086 # the list is meant to be split
    apt-cache depends --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances $dev | sed -n 's/^ *Depends: \(lib[a-z0-9.+-]*\)$/\1/p' | grep -v -- '-dev$' | sort -u
}

fetch() {
    local dir=$1 packages
    mkdir -p "$dir"
    packages="$dev $(runtime | tr '\n' ' ')"
    # shellcheck disable=SC2086
    (cd "$dir" && apt-get download -qq $packages)
    ls -l "$dir"/*.deb
}

unpack() {
    local dir=$1 prefix=$2 package
    mkdir -p "$prefix"
    for package in "$dir"/*.deb; do
        dpkg-deb -x "$package" "$prefix"
    done
    echo "unpacked under $prefix; build with: make DEPS_PREFIX=$prefix"
}

case ${1:-} in
fetch) [ $# = 2 ] || usage; fetch "$2" ;;
unpack) [ $# = 3 ] || usage; unpack "$2" "$3" ;;
*) usage ;;
esac
