#!/bin/sh
# clang-format, clang-tidy and cppcheck over the files given, mandoc over the manual pages. A line a
# stage; what is found is shown.
set -u
passed=0
failed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT

stage() {
    name=$1
    shift
    if "$@" >"$log" 2>&1; then
        echo "lint: $name: passed"
        passed=$((passed + 1))
    else
        cat "$log"
        echo "lint: $name: failed"
        failed=$((failed + 1))
    fi
}

c_files=$(printf '%s\n' "$@" | grep '\.c$')
# Sources in CUDA C++ are for nvcc to judge; clang 14 does not know this toolkit.
tidy() {
    printf '%s\n' $c_files |
        xargs -P 2 -n 4 clang-tidy -p . --quiet --warnings-as-errors='*' --extra-arg=-Werror
}
check() {
    # It does not read jansson's header, where this macro is a loop.
    # shellcheck disable=SC2086
    cppcheck --quiet --error-exitcode=1 --inline-suppr --std=c11 -j 2 \
        --enable=warning,portability,performance --suppress=missingIncludeSystem \
        --suppress=unmatchedSuppression -D__GNUC__=12 -DXOP_VERSION='""' -DXOPD_LIBDIR='""' \
        -D'json_array_foreach(a,i,v)=while(((i)=json_array_size(a),(v)=json_array_get(a,i)))' \
        -Iproto/include -Ikernels/include -Iclient/include -I. \
        $(printf '%s\n' $c_files | grep -v '^tests/unit/')
}

stage clang-format clang-format --dry-run -Werror "$@"
stage clang-tidy tidy
stage cppcheck check
# Our lines are longer than the style that it would also ask for.
stage mandoc mandoc -T lint -W warning docs/*.[1-8]
echo "$passed passed, $failed failed"
[ $failed = 0 ]
