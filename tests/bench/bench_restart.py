#!/usr/bin/python3
"""How long clients feel that a worker died: it is killed again and again, and the time is taken from the
kill to the next answer. One client asks once the worker is dead, as one does that was idle; another has
a request under way when it dies, of which the daemon has to decide whether it is run again.

    XOP_BUILD=build tests/bench/bench_restart.py [--kills N] [--attached MIB] [--json]

The worker is left alone for as long as it needs to count as settled before each kill: one that dies at
once is started again after a pause, which is not what is measured here. XOP_BACKEND=cuda takes that one."""

import argparse
import json
import os
import select
import signal
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system"))
from xopd import BACKEND, UNAVAILABLE, Daemon, Failed, Memory, tensors  # noqa: E402

SETTLED_S = 2.2  # daemon/front/workers.c: SETTLED_NS, and something to be sure
PAUSE_S = 0.001  # between tries while there is no worker


def kill(worker):
    """Returns when it was killed, once it is dead."""
    handle = os.pidfd_open(worker)
    try:
        began = time.monotonic()
        os.kill(worker, signal.SIGKILL)
        if not select.select([handle], [], [], 60)[0]:
            raise AssertionError(f"worker {worker} does not die")
    finally:
        os.close(handle)
    return began


def check(y, x, b):
    if not np.array_equal(y, x * x + b):
        raise AssertionError("an answer is wrong")


def ask_until_answered(client, x, b):
    """Returns how many tries were refused."""
    refused = 0
    while True:
        try:
            check(client.run("square_bias", [x, b])[0], x, b)
            return refused
        except Failed as e:
            if e.status != UNAVAILABLE:
                raise
            refused += 1
            time.sleep(PAUSE_S)


def idle(daemon, client, x, b):
    began = kill(daemon.worker())
    refused = ask_until_answered(client, x, b)
    return time.monotonic() - began, refused


def under_way(daemon, client, x, b):
    """The worker is stopped first, so that it cannot have answered."""
    worker = daemon.worker()
    os.kill(worker, signal.SIGSTOP)
    client.submit("square_bias", [x, b])
    began = kill(worker)
    header, body = client.answer()
    status = header.get("status", 0)
    if status not in (0, UNAVAILABLE):
        raise Failed(header)
    if status == 0:
        check(tensors(header, body)[0], x, b)
        return time.monotonic() - began, 0
    refused = ask_until_answered(client, x, b)
    return time.monotonic() - began, refused + 1


def measure(kills, attached_mib):
    x, b = np.linspace(-3, 3, 1024, dtype=np.float32), np.ones(1024, np.float32)
    found = []
    with Daemon() as daemon:
        client = daemon.client()
        if attached_mib:
            memory = Memory(attached_mib << 20)
            client.attach(1, memory.descriptor, memory.length)
        for name, take in (("asked once it was dead", idle), ("under way when it died", under_way)):
            times, refused = [], 0
            for _ in range(kills):
                ask_until_answered(client, x, b)
                time.sleep(SETTLED_S)
                took, more = take(daemon, client, x, b)
                times.append(took * 1e3)
                refused += more
            found.append({"request": name, "kills": kills, "median_ms": statistics.median(times),
                          "longest_ms": max(times), "refused": refused})
        client.close()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--kills", type=int, default=5, metavar="N")
    parser.add_argument("--attached", type=int, default=0, metavar="MIB",
                        help="client memory that each worker has to be given first")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.kills < 1 or arguments.attached < 0:
        parser.error("--kills is 1 at least, and --attached not negative")
    found = measure(arguments.kills, arguments.attached)
    if arguments.json:
        print(json.dumps({"backend": BACKEND, "attached_mib": arguments.attached, "rows": found}))
        return
    print(f"from kill -9 of the worker to the next answer, {BACKEND}, {arguments.attached} MiB attached, ms\n")
    print(f"| {'request':24} | kills | median | longest | refused before |")
    print("| --- | --- | --- | --- | --- |")
    for row in found:
        print(f"| {row['request']:24} | {row['kills']:5} | {row['median_ms']:6.1f} |"
              f" {row['longest_ms']:7.1f} | {row['refused']:14} |")


main()
