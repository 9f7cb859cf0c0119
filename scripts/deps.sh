#!/bin/bash
# Installs with apt what is missing: deps.sh build | test | all | deb. Each of the first three includes
# the ones before it: `build` is what compiling and running need, `test` what the tests need besides,
# `all` the tools of lint, fuzzing and valgrind, and PyTorch, which operators are tested against; `deb`
# is `build` and what packages are made and tested with. Debian 12 and Ubuntu 24.04.
set -eu
level=${1:-all}

# a|b: releases differ in the name; either will do, and the first that apt knows is installed.
build='gcc make libc6-dev pkgconf|pkg-config libevent-dev libmsgpack-dev|libmsgpack-c-dev
    libjansson-dev libinih-dev libsystemd-dev libssl-dev libopenblas0-pthread python3 python3-numpy'
test='libcmocka-dev python3-msgpack python3-torch python3-pip python3-setuptools python3-wheel
    python3-matplotlib python3-sklearn python3-yaml mypy openssl systemd haproxy'
tools='clang libclang-rt-dev|libclang-rt-18-dev|libclang-rt-14-dev clang-format clang-tidy cppcheck
    valgrind git mandoc python3-torch'
deb='dpkg-dev debhelper dh-python pybuild-plugin-pyproject python3-all python3-setuptools python3-wheel
    libcmocka-dev systemd-dev|systemd lintian mmdebstrap'

case $level in
build) wanted=$build ;;
test) wanted="$build $test" ;;
all) wanted="$build $test $tools" ;;
deb) wanted="$build $deb" ;;
*) echo "deps.sh: build, test, all or deb is expected, not $level" >&2; exit 64 ;;
esac

installed() { dpkg-query -W -f '${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed; }

# Whether one of a|b|c is installed.
any_installed() {
    local name
    for name in ${1//|/ }; do
        installed "$name" && return
    done
    return 1
}

# The one of a|b|c that apt can install; the first where it knows none, so that it says so.
choose() {
    local name
    for name in ${1//|/ }; do
        if apt-cache policy "$name" 2>/dev/null | grep -q 'Candidate: [^(]'; then
            echo "$name"
            return
        fi
    done
    echo "${1%%|*}"
}

missing=()
for names in $wanted; do
    any_installed "$names" || missing+=("$names")
done
[ ${#missing[@]} != 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "deps.sh: this is no Debian or Ubuntu; please install what corresponds to: ${missing[*]}" >&2
    exit 69
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
        echo "deps.sh: packages are missing, and there is no sudo;" \
            "as root: apt-get install ${missing[*]%%|*}" >&2
        exit 77
    fi
    as_root=sudo
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT

install_missing() {
    local names packages=()
    for names in "${missing[@]}"; do
        packages+=("$(choose "$names")")
    done
    echo "installing: ${packages[*]}"
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        "${packages[@]}" >"$log" 2>&1
}

# What is known of the archive may be absent or too old; only then is it worth asking anew.
install_missing && exit 0
$as_root apt-get update -qq || echo "deps.sh: apt-get update failed; trying with what is known" >&2
if ! install_missing; then
    cat "$log" >&2
    echo "deps.sh: apt-get could not install: ${missing[*]}" >&2
    exit 69
fi
