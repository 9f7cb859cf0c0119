#!/bin/bash
# compute-sanitizer over the direct test of the CUDA backend, in its reduced form: all of
# memcheck, racecheck, initcheck and synccheck, or those named. Ends with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 70
build=$(cd "${XOP_BUILD:-build}" && pwd) || exit 70
sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
tools=${*:-memcheck racecheck initcheck synccheck}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0 failed=0

for tool in $tools; do
    # Some tests make calls fail on purpose; what counts is what kernels do.
    "$sanitizer" --tool "$tool" --report-api-errors no --error-exitcode 9 --print-limit 20 \
        "$build/tests/gpu/test_cuda_backend" --reduced "$build/xop-cuda.so" >"$log" 2>&1
    status=$?
    summary=$(grep -h 'ERROR SUMMARY\|RACECHECK SUMMARY' "$log" | tail -n 1 | sed 's/^=* *//')
    # A sanitizer that cannot attach says nothing of the kind, and then nothing was proved.
    if [ "$status" = 0 ] && [ -n "$summary" ]; then
        passed=$((passed + 1))
        echo "  pass  $tool: $summary; $(grep ' passed, ' "$log" | tail -n 1)"
    else
        failed=$((failed + 1))
        echo "  FAIL  $tool (exit status $status)"
        grep -v '^ok ' "$log" | tail -n 80 | sed 's/^/        /'
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
