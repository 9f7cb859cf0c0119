#!/bin/bash
# The source archive and the packages: what they hold, and a life of theirs in a small Debian of its own,
# from installing over an upgrade to purging. Needs root, and a mirror of the distribution's.
set -u
cd "$(dirname "$0")/../.." || exit 70
source tests/packages/root.sh
source tests/system/check.sh
mkdir -p "${BUILD:-build}"
BUILD=$(cd "${BUILD:-build}" && pwd)
packages=$BUILD/deb
root=$directory/root
daemon=
trap 'stop_daemon; rm -rf --one-file-system "$directory"' EXIT
if [ "$(id -u)" != 0 ]; then
    echo "check-deb: packages are installed below a root directory of their own, which takes root" >&2
    exit 77
fi
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL
version=$(cat VERSION)
names=(xopd libxopclient1 libxopclient-dev python3-xop)
[ -z "${NVCC:-}" ] || names+=(xopd-cuda)
files=("${names[@]/#/./}")
files=("${files[@]/%/.deb}")

# ---- What is built ----
archive() { BUILD=$directory/$1 VERSION=$version scripts/dist.sh; }
same_archive() {
    archive one && git clone -q . "$directory/clone" && (
        umask 077 && export TZ=Asia/Tokyo &&
            cd "$directory/clone" && git config tar.umask 0 &&
            BUILD=$directory/two VERSION=$version scripts/dist.sh
    ) && cmp "$directory/one/xopd-$version.tar.gz" "$directory/two/xopd-$version.tar.gz" &&
        diff <(tar -tf "$directory/one/xopd-$version.tar.gz" | grep -v '/$' | sed "s|^xopd-$version/||" | sort) \
            <(git ls-tree -r --name-only HEAD | sort)
}
build() {
    local before
    before=$(git status --porcelain --ignored)
    make --no-print-directory BUILD="$BUILD" deb && [ "$(git status --porcelain --ignored)" = "$before" ]
}
named() { ls "$packages/$1"_"$version"_*.deb; }
lint() { lintian --allow-root --fail-on error "$packages"/*.changes; }
# Lines "package path": the path is in the package.
contents() {
    local name path missing=0
    while read -r name path; do
        dpkg-deb --fsys-tarfile "$(named "$name")" | tar -t | grep -q "^\./$path\$" ||
            { echo "$name lacks $path"; missing=1; }
    done <tests/packages/contents
    return $missing
}
field() { dpkg-deb -f "$(named "$1")" "$2"; }
dependencies() {
    field xopd Depends | grep -q 'libxopclient1 (>= ' && field python3-xop Depends | grep -q python3-numpy &&
        field python3-xop Depends | grep -q 'libxopclient1 (>= ' && [ "$(field python3-xop Architecture)" = all ] &&
        field libxopclient-dev Depends | grep -qF "libxopclient1 (= $version)"
}
# Of CUDA nothing is linked; what is opened when it is there is recommended.
cuda() {
    field xopd-cuda Depends && ! field xopd-cuda Depends | grep -i -E 'cuda|cublas|nvidia|stdc' &&
        field xopd-cuda Recommends | grep -q '^libcublas-[0-9]*-[0-9]* | libcublaslt[0-9]*$'
}

check "the source archive is the same for everybody, and whole" same_archive
check "packages are built, and nothing among the sources" build
check "lintian finds no errors" lint
check "packages hold what they should" contents
check "packages depend on what they should" dependencies
if [ -n "${NVCC:-}" ]; then
    check "the package for CUDA depends on none of it" cuda
else
    check "without nvcc there is no package for CUDA" bash -c "! ls $packages/xopd-cuda_*"
fi

# ---- A life ----
verified() { in_root xopctl verify square_bias; }
installed() {
    local name
    for name in "${names[@]}"; do
        in_root dpkg-query -W -f '${db:Status-Abbrev}${Version}\n' "$name" | grep -qxF "ii $1" ||
            { echo "$name is not installed as $1"; return 1; }
    done
}
install_first() { copy_in "$packages" && in_root apt-get install -y "${files[@]}" && installed "$version"; }
enabled() {
    ls "$root/etc/systemd/system/multi-user.target.wants/xopd.service" \
        "$root/etc/systemd/system/sockets.target.wants/xopd.socket" &&
        in_root getent passwd xopd && [ "$(stat -c %U "$root/etc/xopd/xopd.conf")" = root ]
}
members() {
    in_root setpriv --reuid nobody --regid nogroup --groups xopd xopctl ping &&
        ! in_root setpriv --reuid nobody --regid nogroup --clear-groups xopctl ping
}
python() {
    [ "$(in_root python3 -c 'import numpy, xop
print(*xop.connect().square_bias(numpy.arange(1, 4, dtype=numpy.float32), 10))')" = "11.0 14.0 19.0" ]
}
# Built here, against the headers and the library there.
example() {
    local flags
    flags=$(PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_LIBDIR=$root/usr/lib/$(gcc -print-multiarch)/pkgconfig \
        pkg-config --cflags --libs xopclient) &&
        gcc -Wall -Werror -o "$root/example" examples/square_bias.c $flags &&
        [ "$(in_root /example | tr '\n' ' ')" = '11 14 19 ' ]
}
edit() {
    sed -i 's/^; level = info$/level = debug/' "$root/etc/xopd/xopd.conf" &&
        grep -q '^level = debug$' "$root/etc/xopd/xopd.conf"
}
upgrade() {
    bump "$packages" "$directory/newer" "$version" "$version+1" && copy_in "$directory/newer" &&
        in_root apt-get install -y -o Dpkg::Options::=--force-confold "${files[@]}" && installed "$version+1"
}
edit_stays() {
    grep -q '^level = debug$' "$root/etc/xopd/xopd.conf" &&
        grep -q '^; newer$' "$root/etc/xopd/xopd.conf.dpkg-dist" && ! grep -q '^; newer$' "$root/etc/xopd/xopd.conf"
}
remove() {
    in_root dpkg -L "${names[@]}" | grep xop | sort -u >"$directory/owned" && [ -s "$directory/owned" ] &&
        in_root apt-get remove -y "${names[@]}" && [ -e "$root/etc/xopd/xopd.conf" ] &&
        ! ls "$root/usr/bin/xopd" "$root/usr/bin/xopctl" "$root/usr/include/xop/client.h" 2>/dev/null
}
# The user stays, as Debian's custom is: its number is not to become anybody else's.
nothing_left() {
    local left
    mkdir -p "$root/var/cache/xopd" && touch "$root/var/cache/xopd/kernel"
    in_root dpkg --purge "${names[@]}" || return
    left=$(cd "$root" && find . -xdev -path ./packages -prune -o -path ./var/log -prune -o \
        \( -name xop -o -name 'xop-*' -o -name '*-xop*' -o -name '*xopd*' -o -name '*xopctl*' -o \
        -name '*xopclient*' \) -print)
    left+=$(while read -r path; do [ ! -e "$root$path" ] || echo "$path"; done <"$directory/owned")
    echo "$left"
    [ -z "$left" ]
}

check "there is a Debian to install into" make_root
check "packages install, with what they depend on" install_first
check "units are enabled, there is a user, the configuration is root's" enabled
check "the daemon starts as its unit would start it" start_daemon
check "verify finds an operator right" verified
check "members of the group reach the daemon, and nobody else" members
check "Python has the operators" python
check "a program is built with the pkg-config line, and runs" example
check "the configuration is edited" edit
check "packages are upgraded while the daemon runs" upgrade
check "the edited configuration stays, the new one lies beside it" edit_stays
stop_daemon
check "the upgraded daemon starts with the edited configuration" start_daemon
check "verify finds the operator right again" verified
stop_daemon
check "removing leaves the configuration alone" remove
check "purging leaves nothing" nothing_left
