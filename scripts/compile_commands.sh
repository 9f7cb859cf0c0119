#!/bin/sh
# Prints compile_commands.json for every C file: compile_commands.sh 'CC FLAGS...'
set -eu
command=$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')
here=$(pwd)
first=1
echo '['
git ls-files '*.c' | while read -r file; do
    [ $first = 1 ] || echo ','
    first=0
    printf '{"directory": "%s", "file": "%s", "command": "%s -c %s"}' "$here" "$file" "$command" "$file"
done
echo
echo ']'
