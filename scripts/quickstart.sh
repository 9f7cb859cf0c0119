#!/bin/bash
# Shows xopd at work: starts it on a private socket, runs an operator forward and backward on .npy
# files, verifies every operator, shows statistics, and stops it.
set -eu
build=$(cd "${XOP_BUILD:-build}" && pwd)
python=${PYTHON:-/usr/bin/python3}
directory=$(mktemp -d "${TMPDIR:-/tmp}/xopd-quickstart-XXXXXX")
daemon=

finish() {
    status=$?
    if [ -n "$daemon" ] && kill "$daemon" 2>/dev/null; then wait "$daemon" || true; fi
    if [ $status != 0 ] && [ -s "$directory/log" ]; then
        echo "quickstart failed; the daemon's log:" >&2
        cat "$directory/log" >&2
    fi
    rm -rf "$directory"
    exit $status
}
trap finish EXIT

show() {
    printf '\n$ xopctl'
    printf ' %s' "$@"
    printf '\n'
    "$build/xopctl" "$@"
}

"$build/xopd" --listen "unix:$directory/xopd.sock" 2>"$directory/log" &
daemon=$!
export XOP_ADDRESS=unix:$directory/xopd.sock
until "$build/xopctl" ping >/dev/null 2>&1; do
    kill -0 "$daemon" # it has ended: the log says why
    sleep 0.05
done
cd "$directory"

show ping
"$python" - <<'END'
import numpy as np
np.save("x.npy", np.arange(12, dtype=np.float32).reshape(3, 4))
np.save("b.npy", np.array([1, 2, 3, 4], dtype=np.float32))
np.save("gy.npy", np.ones((3, 4), dtype=np.float32))
END
show run square_bias --in x.npy --in b.npy --out y.npy
show run square_bias --in x.npy --in b.npy
show run square_bias --backward --in x.npy --in b.npy --grad gy.npy --out gx.npy --out gb.npy
"$python" - <<'END'
import numpy as np
x, b, gy = (np.load(n + ".npy") for n in ("x", "b", "gy"))
assert np.array_equal(np.load("y.npy"), x * x + b)
assert np.array_equal(np.load("gx.npy"), 2 * x * gy)
assert np.array_equal(np.load("gb.npy"), gy.sum(0))
print("\nNumPy agrees with y.npy, gx.npy and gb.npy.")
END
show verify
show stats
kill "$daemon"
wait "$daemon"
daemon=
printf '\nquickstart: all went well\n'
