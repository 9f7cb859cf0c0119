#!/bin/bash
# Unit tests of what handles other people's bytes, and a daemon that serves a client, under valgrind.
# A line a program, and the sum.
set -u
build=$(cd "${XOP_BUILD:-build}" && pwd)
passed=0
failed=0
directory=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null; rm -rf "$directory"' EXIT
# What hangs is ended, so that it is a failure and not the end of everything after it.
limited=(timeout --kill-after=10 "${XOP_TEST_LIMIT:-300}")
memcheck=("${limited[@]}" valgrind --quiet --error-exitcode=9 --leak-check=full
    --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite)

# Says how a program ended; its log is shown where that was not well.
tell() {
    local name=$1 status=$2
    shift 2
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
        echo "valgrind: $name: passed"
    else
        failed=$((failed + 1))
        cat "$@"
        echo "valgrind: $name: failed"
    fi
}

for test in test_frame test_message test_message_decode test_reader test_files test_seam test_arena \
    test_generation test_table test_order test_resident test_keeper test_memories test_client \
    test_client_memory; do
    "${memcheck[@]}" "$build/tests/$test" >"$directory/log" 2>&1
    tell $test $? "$directory/log"
done

# The daemon with its worker, and clients by every path.
export XOP_ADDRESS=unix:$directory/s
"${memcheck[@]}" --trace-children=yes \
    --log-file="$directory/valgrind.%p" "$build/xopd" --backend cpu --listen "$XOP_ADDRESS" \
    2>"$directory/log" &
daemon=$!
for _ in $(seq 600); do
    "$build/xopctl" ping >/dev/null 2>&1 && break
    kill -0 $daemon 2>/dev/null || break
    sleep 0.1
done
status=0
for command in "run square_bias --in f32:[1,2,3] --in f32:1" "verify square_bias --shape 3,4 --dtype f32" stats \
    "bench square_bias --shape 1024 --inflight 8 --seconds 0.3 --path inline" \
    "bench square_bias --shape 1024 --inflight 8 --seconds 0.3 --path shm" \
    "bench square_bias --shape 1024 --inflight 8 --seconds 0.3 --path resident"; do
    # shellcheck disable=SC2086 # words are meant
    "${memcheck[@]}" "$build/xopctl" $command >>"$directory/log" 2>&1 || status=1
done
kill $daemon
wait $daemon || status=1
daemon=
cat "$directory"/valgrind.* | grep -q . && status=1
tell "xopd" $status "$directory/log" "$directory"/valgrind.*

echo "$passed passed, $failed failed"
[ $failed = 0 ]
