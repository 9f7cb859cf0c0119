#!/bin/sh
# Prints compile_commands.json for every C file, compiled with $COMPILE_COMMAND.
set -eu
command=$(printf '%s' "$COMPILE_COMMAND" | sed 's/[\\"]/\\&/g')
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
