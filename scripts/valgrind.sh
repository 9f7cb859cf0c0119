#!/bin/bash
# Unit tests of what handles other people's bytes, and a daemon that serves a client, under valgrind.
set -eu
build=$(cd "${XOP_BUILD:-build}" && pwd)
memcheck=(valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite,indirect
    --errors-for-leak-kinds=definite)

for test in test_frame test_message test_reader test_npy test_seam test_arena test_generation; do
    [ -x "$build/tests/$test" ] || continue
    "${memcheck[@]}" "$build/tests/$test" >/dev/null
    echo "valgrind: $test: passed"
done

# The daemon's own processes, without those it executes.
directory=$(mktemp -d)
"${memcheck[@]}" --trace-children=no --child-silent-after-fork=no --log-file="$directory/valgrind.%p" \
    "$build/xopd" --backend cpu --listen "unix:$directory/s" 2>"$directory/log" &
daemon=$!
trap 'kill $daemon 2>/dev/null || true; rm -rf "$directory"' EXIT
for _ in $(seq 300); do
    "$build/xopctl" -s "unix:$directory/s" ping >/dev/null 2>&1 && break
    sleep 0.1
done
"$build/xopctl" -s "unix:$directory/s" run square_bias --in f32:[1,2,3] --in f32:1 >/dev/null
"$build/xopctl" -s "unix:$directory/s" verify --shape 3,4 --dtype f32 >/dev/null
"$build/xopctl" -s "unix:$directory/s" stats >/dev/null
kill $daemon
status=0
wait $daemon || status=$?
trap - EXIT
if [ $status != 0 ] || grep -l . "$directory"/valgrind.* >/dev/null 2>&1; then
    cat "$directory"/log "$directory"/valgrind.*
    echo "valgrind: the daemon: failed ($status)"
    rm -rf "$directory"
    exit 1
fi
rm -rf "$directory"
echo "valgrind: the daemon: passed"
