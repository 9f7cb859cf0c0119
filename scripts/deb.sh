#!/bin/bash
# Builds the packages of debian/ into $BUILD/deb, from a copy of the tree there. $NVCC: build xopd-cuda
# with it, for the GPUs in $CUDA_ARCHS; empty: no xopd-cuda.
set -eu
say() { echo "deb.sh: $*" >&2; }
packages=$BUILD/deb
version=$(sed -n '1s/^xopd (\(.*\)) .*/\1/p' debian/changelog)
if [ "$version" != "$VERSION" ]; then
    say "debian/changelog begins with version $version, but VERSION is $VERSION: they have to be the same"
    exit 78
fi
for tool in dpkg-buildpackage dh pybuild; do
    if ! command -v $tool >/dev/null; then
        say "there is no $tool; make deps DEPS=deb installs what packages need"
        exit 69
    fi
done

# Nothing is built among the sources. Out of git, the tree is what an archive had, and what was built.
rm -rf "$packages"
mkdir -p "$packages/xopd-$version"
if git rev-parse --git-dir >/dev/null 2>&1 && [ -z "$(git rev-parse --show-prefix)" ]; then
    git ls-files -z | while IFS= read -r -d '' file; do
        [ ! -e "$file" ] || printf '%s\0' "$file"
    done
else
    find . -path "./${BUILD#./}" -prune -o -type f -print0
fi | tar -c --null -T - | tar -x -C "$packages/xopd-$version"

options=nocheck
[ -z "${DEB_BUILD_OPTIONS:-}" ] || options=$DEB_BUILD_OPTIONS
profiles=()
if [ -n "${NVCC:-}" ]; then
    export NVCC CUDA_ARCHS
    profiles=(-Ppkg.xopd.cuda)
else
    say "there is no nvcc: xopd-cuda is not built"
fi
# The package's own makefile decides, and not what this one was called with.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL BUILD CFLAGS CPPFLAGS LDFLAGS COMPILE_COMMAND VERSION
# Its tools are to find Debian's Python.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
log=$packages/build.log
if ! (cd "$packages/xopd-$version" &&
    DEB_BUILD_OPTIONS=$options dpkg-buildpackage -b -us -uc "-j${JOBS:-$(nproc)}" "${profiles[@]}") \
    >"$log" 2>&1; then
    tail -n 40 "$log" | cut -c 1-200 >&2
    say "dpkg-buildpackage failed; all that it said is in $log"
    exit 70
fi
rm -rf "$packages/xopd-$version"
ls "$packages"/*.deb
