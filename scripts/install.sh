#!/bin/sh
# Installs what $OUT holds into $DESTDIR$PREFIX, or removes it again with --uninstall.
set -eu
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}$prefix
libdir=${LIBDIR:-$prefix/lib}
libraries=${DESTDIR:-}$libdir
units=${DESTDIR:-}${UNITDIR:-$prefix/lib/systemd/system}

if [ "${1:-}" = --uninstall ]; then
    rm -f "$root/bin/xopd" "$root/bin/xopctl" "$libraries"/libxopclient.* \
        "$libraries/pkgconfig/xopclient.pc" "$root/include/xop/types.h" \
        "$root/include/xop/client.h" "$root/include/xop/op.h" \
        "$root/include/xop/check.h" "$root/include/xop/elementwise.cuh" \
        "$root/include/xop/adapter_libevent.h" "$root"/lib/xopd/xop-*.so \
        "$root/share/bash-completion/completions/xopctl" \
        "$root/share/zsh/site-functions/_xopctl" "$root/share/xopd/grafana.json" \
        "$units/xopd.service" "$units/xopd.socket" "$root/lib/sysusers.d/xopd.conf" \
        "$root/lib/tmpfiles.d/xopd.conf"
    for page in docs/*.[1-8]; do
        rm -f "$root/share/man/man${page##*.}/$(basename "$page")"
    done
    rmdir "$root/lib/xopd" "$root/share/xopd" "$root/include/xop" 2>/dev/null || true
    exit 0
fi

put() { install -D -m "$1" "$2" "$root/$3"; }
put_library() { install -D -m "$1" "$2" "$libraries/$3"; }

put 755 "$OUT/xopd" bin/xopd
put 755 "$OUT/xopctl" bin/xopctl
put_library 755 "$OUT/libxopclient.so.1" libxopclient.so.1
put_library 644 "$OUT/libxopclient.a" libxopclient.a
ln -sf libxopclient.so.1 "$libraries/libxopclient.so"
# What an earlier build left there is not meant, so the makefile names what is.
for backend in ${BACKENDS:-"$OUT"/xop-*.so}; do
    put 755 "$backend" "lib/xopd/$(basename "$backend")"
done
put 644 proto/include/xop/types.h include/xop/types.h
put 644 client/include/xop/client.h include/xop/client.h
put 644 client/include/xop/adapter_libevent.h include/xop/adapter_libevent.h
for header in op.h check.h elementwise.cuh; do
    put 644 "kernels/include/xop/$header" "include/xop/$header"
done
mkdir -p "$libraries/pkgconfig" "$units"
sed -e "s|@PREFIX@|$prefix|" -e "s|@LIBDIR@|$libdir|" -e "s|@VERSION@|$VERSION|" \
    -e "s|@MSGPACK@|$MSGPACK|" client/xopclient.pc.in >"$libraries/pkgconfig/xopclient.pc"
for page in docs/*.[1-8]; do
    put 644 "$page" "share/man/man${page##*.}/$(basename "$page")"
done
put 644 client/xopctl/completion.bash share/bash-completion/completions/xopctl
put 644 client/xopctl/completion.zsh share/zsh/site-functions/_xopctl
put 644 docs/grafana.json share/xopd/grafana.json
install -m 644 systemd/xopd.service systemd/xopd.socket "$units"
sed -i "s|@PREFIX@|$prefix|" "$units/xopd.service"
put 644 systemd/xopd.sysusers lib/sysusers.d/xopd.conf
put 644 systemd/xopd.tmpfiles lib/tmpfiles.d/xopd.conf

# Where the loader looks there, it finds the library from now on; packagers' tools do this themselves.
PATH=$PATH:/usr/sbin:/sbin
if [ -z "${DESTDIR:-}" ] && [ "$(id -u)" = 0 ] && ldconfig -v -N -X 2>/dev/null | grep -q "^$libraries:"; then
    ldconfig
fi
