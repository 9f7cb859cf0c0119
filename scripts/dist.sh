#!/bin/sh
# $BUILD/xopd-$VERSION.tar.gz: the last commit, with its time on every file, so that the same commit makes
# the same bytes for everybody.
set -eu
name=xopd-$VERSION
if ! commit=$(git rev-parse --verify --quiet HEAD 2>/dev/null) || [ -n "$(git rev-parse --show-prefix)" ]; then
    echo "dist.sh: a source archive is made of a commit, and this is no git checkout" >&2
    exit 69
fi
[ -z "$(git status --porcelain --untracked-files=no)" ] ||
    echo "dist.sh: what is not committed is not in the archive" >&2
mkdir -p "$BUILD"
archive=$BUILD/$name.tar.gz
trap 'rm -f "$archive.part" "$archive.tar"' EXIT
# Whoever makes it may have another umask, other attributes and another gzip in git's configuration.
GIT_ATTR_NOSYSTEM=1 git -c tar.umask=0022 -c core.attributesFile=/dev/null archive \
    --format=tar --prefix="$name/" -o "$archive.tar" "$commit"
gzip -9n <"$archive.tar" >"$archive.part"
mv "$archive.part" "$archive"
echo "$archive"
