#!/bin/bash
# Everything that needs a GPU, in one go: the backend by itself, operators judged by xopctl verify,
# the system tests and those of the Python package on the CUDA backend, and the broken operators, each of
# which verify must refuse.
# Ends with "N passed, N failed". XOP_BACKEND=cpu runs what does not need one, to try this script.
#
#     tests/gpu/check.sh [backend] [operators] [system] [python] [broken]
set -u
cd "$(dirname "$0")/../.." || exit 70
build=$(cd "${XOP_BUILD:-build}" && pwd) || exit 70
python=${PYTHON:-python3}
backend=${XOP_BACKEND:-cuda}
directory=$(mktemp -d)
socket=unix:$directory/xopd.sock
passed=0 failed=0 daemon=
export XOP_BUILD=$build XOP_BACKEND=$backend PYTHON=$python

cleanup() {
    stop
    rm -rf "$directory"
}
trap cleanup EXIT

ok() {
    passed=$((passed + 1))
    echo "  pass  $1"
}
not_ok() {
    failed=$((failed + 1))
    echo "  FAIL  $1"
    [ -z "${2:-}" ] || tail -n 40 "$2" | sed 's/^/        /'
}

# Starts xopd with the given options and reads its log until it is ready. Without a device it would
# try again for ever, so the lines that it goes on writing do not extend the limit.
start() {
    local line log=$directory/xopd.log until=$((SECONDS + 60))
    : >"$log"
    exec {output}< <(exec "$build/xopd" --backend "$backend" --listen "$socket" "$@" 2>&1)
    daemon=$!
    while [ "$SECONDS" -lt "$until" ] && read -r -t 60 line <&"$output"; do
        echo "$line" >>"$log"
        case $line in *"ready: "*)
            cat <&"$output" >>"$log" &
            return 0
            ;;
        esac
    done
    not_ok "xopd --backend $backend starts" "$log"
    stop
    return 1
}

stop() {
    [ -n "$daemon" ] || return 0
    kill "$daemon" 2>/dev/null
    wait "$daemon" 2>/dev/null
    exec {output}<&-
    daemon=
}

# Runs a test program that ends with "N passed, N failed", and adds that up.
count() {
    local name=$1 log=$directory/count.log status p f
    shift
    "$@" >"$log" 2>&1
    status=$?
    read -r p f < <(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)
    passed=$((passed + ${p:-0}))
    if [ "$status" = 0 ] && [ "${f:-1}" = 0 ]; then
        echo "  pass  $name (${p:-0})"
    else
        failed=$((failed + (${f:-0} > 0 ? ${f:-0} : 1)))
        echo "  FAIL  $name (${p:-0} passed, ${f:-0} failed, exit status $status)"
        grep -v '^ok \|^  pass ' "$log" | tail -n 60 | sed 's/^/        /'
    fi
}

check_backend() {
    count "the backend by itself" "$build/tests/gpu/test_cuda_backend"
    count "large arrays" "$build/tests/gpu/test_cuda_backend" --huge
    count "without cuBLASLt" "$build/tests/gpu/test_cuda_backend" --no-cublaslt
    count "a lost device" "$build/tests/gpu/test_cuda_backend" --fault
}

check_operators() {
    local log=$directory/verify.log
    start || return
    sed -n 's/.*ready: /  # /p' "$directory/xopd.log"
    if "$build/xopctl" -s "$socket" verify >"$log" 2>&1; then
        ok "xopctl verify: $(tail -n 1 "$log")"
    else
        not_ok "xopctl verify" "$log"
    fi
    stop
}

check_system() {
    # The installation has nothing to do with the device.
    local programs
    programs=$(for program in tests/system/test_*.py tests/system/test_*.c; do
        case $program in *'*'*) ;; *) basename "${program%.*}" ;; esac
    done)
    # shellcheck disable=SC2086 # the list is meant to be split
    XOP_TEST_JOBS=${XOP_TEST_JOBS:-$(($(nproc) / 2))} count "system tests" tests/run.sh $programs
}

# All but those of the package, which no device concerns.
check_python() {
    count "tests of the Python package" tests/run.sh test_python_arrays test_python_lifecycle \
        test_python_torch test_python_examples
}

# verify must end with 1, which says that an operator is wrong; anything else is no verdict.
check_broken() {
    local name log=$directory/broken.log status source
    mkdir -p "$directory/operators"
    cp "$build"/ops-broken/*-"$backend".so "$directory/operators" || return
    start --operators "$directory/operators" || return
    for source in tests/broken/broken_*.cu; do
        name=$(basename "$source" .cu)
        "$build/xopctl" -s "$socket" verify "$name" --reference square_bias >"$log" 2>&1
        status=$?
        if [ "$status" = 1 ]; then
            ok "verify refuses $name: $(tail -n 1 "$log")"
        else
            not_ok "verify refuses $name (exit status $status)" "$log"
        fi
    done
    if "$build/xopctl" -s "$socket" verify square_bias >"$log" 2>&1; then
        ok "square_bias is still right beside them"
    else
        not_ok "square_bias is still right beside them" "$log"
    fi
    stop
}

[ $# -gt 0 ] || set -- backend operators system python broken
if [ "$backend" = cuda ]; then
    nvidia-smi --query-gpu=name,driver_version,memory.total,compute_cap --format=csv,noheader ||
        echo "nvidia-smi does not answer"
fi
for part in "$@"; do
    [ "$part" = backend ] && [ "$backend" != cuda ] || "check_$part"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
