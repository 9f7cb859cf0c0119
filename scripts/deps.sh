#!/bin/sh
# Installs with apt what is missing: deps.sh build | test | all. Each includes the ones before it:
# `build` is what compiling and running need, `test` what the tests need besides, `all` the tools of
# lint, fuzzing and valgrind. Debian 12 and Ubuntu 24.04.
set -eu
level=${1:-all}

build="gcc make libc6-dev pkg-config libevent-dev libmsgpack-dev libjansson-dev libinih-dev
    libsystemd-dev python3 python3-numpy"
test="libcmocka-dev python3-msgpack"
tools="clang libclang-rt-dev clang-format clang-tidy cppcheck valgrind git"

case $level in
build) wanted=$build ;;
test) wanted="$build $test" ;;
all) wanted="$build $test $tools" ;;
*) echo "deps.sh: build, test or all is expected, not $level" >&2; exit 64 ;;
esac

installed() { dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

missing=
for package in $wanted; do
    # Releases differ in some names; where one is unknown, the other is meant.
    case $package in
    libclang-rt-dev) installed libclang-rt-14-dev && continue ;;
    pkg-config) installed pkgconf && continue ;;
    esac
    installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "deps.sh: this is no Debian or Ubuntu; please install what corresponds to:$missing" >&2
    exit 69
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps.sh: packages are missing; as root: apt-get install$missing" >&2
        exit 77
    fi
    as_root=sudo
fi
echo "installing:$missing"
# shellcheck disable=SC2086 # the list is meant to be split
if ! $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null 2>&1; then
    $as_root apt-get update -qq
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
fi
