# A small Debian below $root, for tests/packages/check.sh: made, entered, and xopd started in it.

# Of the same release as this machine, since the packages were linked here; kept for the next time.
make_root() {
    local components=main base
    . /etc/os-release
    [ "$ID" != ubuntu ] || components=main,universe
    base=$BUILD/$ID-$VERSION_CODENAME.tar
    if [ ! -e "$base" ]; then
        mmdebstrap --quiet --mode=root --variant=minbase --components=$components \
            "$VERSION_CODENAME" "$base.part.tar" && mv "$base.part.tar" "$base" || return
    fi
    mkdir "$root" "$root/packages" && tar -x -f "$base" -C "$root" && cp -L /etc/resolv.conf "$root/etc/resolv.conf" &&
        printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" && chmod 755 "$root/usr/sbin/policy-rc.d" &&
        in_root apt-get update -q
}

# Mounts end with the command.
in_root() {
    unshare --mount bash -c 'mount -t proc proc "$0/proc" && cd "$0/packages" && exec env -i \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
        ${http_proxy:+http_proxy=$http_proxy} \
        chroot "$0" sh -c "cd /packages && exec \"\$@\"" _ "$@"' "$root" "$@"
}

copy_in() {
    local name
    rm -rf "$root/packages"
    mkdir -p "$root/packages"
    for name in "${names[@]}"; do
        cp "$1/${name}"_*.deb "$root/packages/$name.deb" || return
    done
}

# bump FROM TO OLD NEW: the same packages as a newer version, with a configuration that differs.
bump() {
    local name tree
    mkdir -p "$2"
    for name in "${names[@]}"; do
        tree=$directory/tree-$name
        dpkg-deb -R "$1/${name}_$3"_*.deb "$tree" && sed -i -e "s/^Version: .*/Version: $4/" \
            -e "s/(= $3)/(= $4)/g" "$tree/DEBIAN/control" || return
        if [ -e "$tree/etc/xopd/xopd.conf" ]; then
            echo '; newer' >>"$tree/etc/xopd/xopd.conf"
            (cd "$tree" && find . -path ./DEBIAN -prune -o -type f ! -path './etc/*' -printf '%P\0' |
                xargs -0 md5sum >DEBIAN/md5sums) || return
        fi
        dpkg-deb --root-owner-group -Zgzip -z1 -b "$tree" "$2/${name}_new.deb" >/dev/null || return
        rm -rf "$tree"
    done
}

# What the unit runs, as the user that it names, with the directory that it would have made.
start_daemon() {
    local units command user options
    units=$(dirname "$(find "$root/lib/systemd/system/" "$root/usr/lib/systemd/system/" -name xopd.service | head -n 1)")
    command=$(sed -n 's/^ExecStart=//p' "$units/xopd.service")
    user=$(sed -n 's/^User=//p' "$units/xopd.service")
    options=$(sed -n 's/^Environment="XOPD_OPTIONS=\(.*\)"$/\1/p' "$units"/xopd.service.d/*.conf)
    if [ -z "$command" ] || [ -z "$user" ] || [ -z "$options" ]; then
        echo "the units in $units do not say what to run"
        return 1
    fi
    in_root systemd-tmpfiles --create xopd.conf || return
    in_root env XOPD_OPTIONS="$options" setpriv --reuid "$user" --regid "$user" --init-groups \
        sh -c "exec $command" >"$directory/log" 2>&1 &
    daemon=$!
    for _ in $(seq 600); do
        in_root xopctl ping && return
        kill -0 $daemon || break
        sleep 0.1
    done
    cat "$directory/log"
    return 1
}

stop_daemon() {
    [ -n "$daemon" ] || return 0
    kill "$daemon" 2>/dev/null
    wait "$daemon"
    daemon=
}
