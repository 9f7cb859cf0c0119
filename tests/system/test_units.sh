#!/bin/bash
# What systemd says of the installed units: nothing is wrong with them, and little is open. Where there
# is no systemd-analyze, that is said and counts as passed.
set -u
build=$(cd "${XOP_BUILD:-build}" && pwd)
source tests/system/check.sh
trap 'rm -rf "$directory"' EXIT
units=$directory/usr/lib/systemd/system
install_all() {
    install_into "" "$directory/usr"
    ls "$units/xopd.service" "$units/xopd.socket" "$directory/usr/lib/sysusers.d/xopd.conf" \
        "$directory/usr/lib/tmpfiles.d/xopd.conf"
}
# Unknown directives are warnings, and leave the exit status 0: any word is one too many.
verify() {
    local said
    said=$(cd "$units" && systemd-analyze verify --man=no --recursive-errors=no \
        ./xopd.service ./xopd.socket 2>&1) && [ -z "$said" ] && return
    echo "$said"
    return 1
}
security() {
    systemd-analyze security --no-pager --offline=yes --threshold=30 "$units/xopd.service"
}
# The user and the group are made, the directory is theirs.
accounts() {
    mkdir -p "$directory/root/etc" &&
        systemd-sysusers --root="$directory/root" "$directory/usr/lib/sysusers.d/xopd.conf" &&
        grep -q '^xopd:.*:/usr/sbin/nologin$' "$directory/root/etc/passwd" &&
        grep -q '^xopd:' "$directory/root/etc/group" &&
        systemd-tmpfiles --root="$directory/root" --create "$directory/usr/lib/tmpfiles.d/xopd.conf" &&
        [ "$(stat -c %a "$directory/root/run/xopd")" = 755 ]
}

check "units, users and directories are installed" install_all
if ! command -v systemd-analyze >/dev/null; then
    echo "ok 2 - # skipped: there is no systemd-analyze here"
    exit 0
fi
check "systemd has nothing to say against the units" verify
check "the service has little exposure" security
check "sysusers and tmpfiles make user, group and directory" accounts
