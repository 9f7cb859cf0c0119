#!/usr/bin/python3
"""Small requests through a Unix socket beside Redis, which does little but receive and answer.

    XOP_BUILD=build python3 tests/bench/bench_redis.py [--rounds N]

square_bias of 1024 f32 with its bytes in the frame (8 KiB there, 4 KiB back), 64 in flight on one
connection, against SET of 8 KiB values in pipelines of 16 on 4 connections. The two take turns;
medians. Needs redis-server and redis-benchmark.
"""

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system"))

from xopd import BUILD, Daemon


def redis_per_s(socket):
    done = subprocess.run(["redis-benchmark", "-s", socket, "-t", "set", "-d", "8192", "-P", "16",
                           "-c", "4", "-n", "400000", "--csv"], capture_output=True, text=True,
                          check=True)
    rows = list(csv.reader(done.stdout.splitlines()))
    return float(next(row for row in rows if row[0] == "SET")[1])


def xopd_per_s(daemon, path):
    done = subprocess.run([os.path.join(BUILD, "xopctl"), "-s", f"unix:{daemon.path}", "bench",
                           "square_bias", "--shape", "1024", "--inflight", "64", "--path", path,
                           "--seconds", "2", "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["requests_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    figures = {"redis": [], "inline": [], "shm": []}
    with tempfile.TemporaryDirectory() as directory, Daemon() as daemon:
        socket = os.path.join(directory, "redis.sock")
        redis = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", socket, "--save", "",
                                  "--appendonly", "no"], stdout=subprocess.DEVNULL)
        try:
            while not os.path.exists(socket) and redis.poll() is None:
                time.sleep(0.01)
            for _ in range(rounds):
                figures["redis"].append(redis_per_s(socket))
                for path in ("inline", "shm"):
                    figures[path].append(xopd_per_s(daemon, path))
        finally:
            redis.terminate()
            redis.wait()
    theirs = statistics.median(figures["redis"])
    print(f"{os.cpu_count()} cores, {rounds} rounds\n")
    print("| work | requests/s | of Redis |\n| --- | --- | --- |")
    print(f"| Redis, SET of 8 KiB | {theirs:.0f} | 1 |")
    for name, path in (("1024 f32, inline", "inline"), ("1024 f32, client memory", "shm")):
        ours = statistics.median(figures[path])
        print(f"| {name} | {ours:.0f} | {ours / theirs:.2f} |")


main()
