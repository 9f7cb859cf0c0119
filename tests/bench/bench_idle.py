#!/usr/bin/python3
"""What xopd takes of a core while it has nothing to do, after it was busy, with clients connected.

    XOP_BUILD=build python3 tests/bench/bench_idle.py [--seconds S]
"""

import argparse
import os
import sys
import time

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system"))

from xopd import Daemon


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20)
    seconds = parser.parse_args().seconds
    with Daemon() as daemon:
        clients = [daemon.client() for _ in range(16)]
        x = np.ones(1024, np.float32)
        for client in clients:
            for _ in range(100):
                client.run("square_bias", [x, x])
        pids = {name: pid for name, pids in daemon.children().items() for pid in pids}
        pids["xopd"] = daemon.process.pid
        before = {name: cpu_s(pid) for name, pid in pids.items()}
        time.sleep(seconds)
        print(f"{len(clients)} clients connected, {seconds:.0f} s without a request")
        for name, pid in sorted(pids.items()):
            print(f"{name}: {100 * (cpu_s(pid) - before[name]) / seconds:.2f} % of a core")


main()
