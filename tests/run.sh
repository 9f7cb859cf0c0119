#!/bin/bash
# Runs test programs: all of them, or those named, XOP_TEST_JOBS (2) at a time. A line a program; the
# log of what failed follows.
# Counts single tests, and ends with "N passed, N failed".
set -u
build=$(cd "${XOP_BUILD:-build}" && pwd)
python=${PYTHON:-/usr/bin/python3}
limit=${XOP_TEST_LIMIT:-300}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
export XOP_BUILD=$build
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0:exitcode=99}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-exitcode=99:halt_on_error=1}
cd "$(dirname "$0")/.." || exit 70

list() {
    local program
    for program in "$build"/tests/test_*; do
        [ -x "$program" ] && [ ! -d "$program" ] && echo "$program"
    done
    # Only the plain and the address-sanitized build have all that system tests start.
    [ "${XOP_SAN:-}" = thread ] && return
    for program in tests/system/test_*.py tests/system/test_*.sh tests/python/test_*.py \
        tests/faults/test_*.py; do
        [ -e "$program" ] && echo "$program"
    done
}

# Runs one program; leaves its log and a file with "passed failed".
run_one() {
    local program=$1 name log passed failed status
    name=$(basename "$program")
    log=$logs/$name.log
    case $program in
    tests/python/*)
        # Python is not built with the sanitizer that its library needs, and keeps what it has.
        (cd tests/python && LD_PRELOAD=$preload ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 \
            timeout -k 10 "$limit" "$python" "$name") >"$log" 2>&1 ;;
    tests/faults/*) (cd tests/faults && timeout -k 10 "$limit" "$python" "$name") >"$log" 2>&1 ;;
    *.py) (cd tests/system && timeout -k 10 "$limit" "$python" "$name") >"$log" 2>&1 ;;
    *.sh) timeout -k 10 "$limit" bash "$program" >"$log" 2>&1 ;;
    *) timeout -k 10 "$limit" "$program" >"$log" 2>&1 ;;
    esac
    status=$?
    if grep -q '^\[==========\]' "$log"; then
        passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -n 1)
        failed=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test(s).*/\1/p' "$log" | tail -n 1)
    else
        passed=$(grep -c '^ok ' "$log")
        failed=$(grep -c '^not ok ' "$log")
    fi
    passed=${passed:-0}
    failed=${failed:-0}
    # A crash, a time limit, or a program that ran nothing is a failure as well.
    if [ "$status" != 0 ] && [ "$failed" = 0 ]; then failed=1; fi
    if [ "$passed" = 0 ] && [ "$failed" = 0 ]; then failed=1; fi
    echo "$passed $failed" >"$logs/$name.count"
    if [ "$failed" = 0 ]; then
        echo "  pass  $name ($passed)"
    else
        {
            echo "  FAIL  $name ($passed passed, $failed failed, exit status $status)"
            tail -n 60 "$log" | sed 's/^/        /'
        }
    fi
}
preload=
if [ "${XOP_SAN:-}" = address ]; then
    # PyTorch throws exceptions: the sanitizer looks for their library when the program starts.
    preload=$("${CC:-gcc}" -print-file-name=libasan.so)
    preload="$preload $("${CC:-gcc}" -print-file-name=libstdc++.so.6)"
fi
export -f run_one
export logs python limit preload

wanted=" $* "
list | while read -r program; do
    name=$(basename "$program")
    [ $# = 0 ] || case $wanted in *" $name "* | *" ${name%.*} "*) ;; *) continue ;; esac
    echo "$program"
done >"$logs/list"
xargs -P "${XOP_TEST_JOBS:-2}" -I{} bash -c 'run_one "$1"' _ {} <"$logs/list"
cat "$logs"/*.count 2>/dev/null | awk '
    { passed += $1; failed += $2 }
    END {
        if (NR == 0) failed = 1
        printf "%d passed, %d failed\n", passed, failed
        exit failed > 0
    }'
