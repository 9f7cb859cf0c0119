#!/bin/bash
# The installed tree alone: a program of twenty lines, built with the pkg-config line, runs an operator
# on the installed daemon.
set -u
build=$(cd "${XOP_BUILD:-build}" && pwd)
source tests/system/check.sh
daemon=
trap '[ -z "$daemon" ] || kill $daemon 2>/dev/null; wait; rm -rf "$directory"' EXIT
sanitizer=()
case ${XOP_SAN:-} in address) sanitizer=(-fsanitize=address,undefined) ;; esac

check "a staged install has every file" bash -c "$(declare -f install_into); build=$build
    install_into $directory/stage /usr && cd $directory/stage/usr &&
    ls bin/xopd bin/xopctl lib/libxopclient.so.1 lib/libxopclient.a lib/pkgconfig/xopclient.pc \
       include/xop/client.h include/xop/types.h include/xop/op.h lib/xopd/xop-cpu.so &&
    grep -q '^prefix=/usr$' lib/pkgconfig/xopclient.pc"
check "it installs into a prefix" install_into "" "$directory/usr"
export PKG_CONFIG_PATH=$directory/usr/lib/pkgconfig
check "the example builds with the pkg-config line" bash -c "${CC:-gcc} -Wall -Wextra -Werror ${sanitizer[*]:-} \
    -o $directory/example examples/square_bias.c \$(pkg-config --cflags --libs xopclient)"
"$directory/usr/bin/xopd" --backend cpu --listen "unix:$directory/s" 2>"$directory/log" &
daemon=$!
export XOP_ADDRESS=unix:$directory/s LD_LIBRARY_PATH=$directory/usr/lib
check "the installed daemon is ready" bash -c "for i in \$(seq 600); do
    $directory/usr/bin/xopctl ping && exit 0; sleep 0.1; done; cat $directory/log; exit 1"
check "the example prints what it should" bash -c "[ \"\$($directory/example | tr '\n' ' ')\" = '11 14 19 ' ]"
check "the example for libevent builds" bash -c "${CC:-gcc} -Wall -Wextra -Werror ${sanitizer[*]:-} \
    -o $directory/async examples/async_libevent.c \$(pkg-config --cflags --libs xopclient libevent_core)"
check "it has a thousand requests answered" bash -c "[ \"\$($directory/async)\" = '1000 answered, 0 wrong' ]"
unset LD_LIBRARY_PATH
check "the installed xopctl finds its library" "$directory/usr/bin/xopctl" ops
check "only public symbols are exported" bash -c "! nm -D --defined-only $build/libxopclient.so.1 |
    awk '\$2 ~ /[TDBR]/ { sub(/@.*/, \"\", \$3); print \$3 }' | grep -v -E '^(xop_|XOPCLIENT_|_init|_fini)'"
check "uninstall leaves nothing" bash -c "DESTDIR= PREFIX=$directory/usr scripts/install.sh --uninstall &&
    [ -z \"\$(find $directory/usr -type f -o -type l)\" ]"
