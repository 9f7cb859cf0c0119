#!/usr/bin/python3
"""Large tensors over TLS 1.3 beside the same over plain TCP, on loopback.

    XOP_BUILD=build python3 tests/bench/bench_tls.py [--rounds N]

neg of 64 MiB with its bytes in the frames, 4 connections with one request each at a time, client and
server on one machine. The two take turns; medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system"))

from certificates import Authority
from xopd import BUILD, Daemon


def bytes_per_s(address, *options):
    done = subprocess.run([os.path.join(BUILD, "xopctl"), "-s", address, *options, "bench", "neg",
                           "--shape", str(16 << 20), "--path", "inline", "--clients", "4",
                           "--seconds", "3", "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{address}: {done.stderr or done.stdout}")
    return json.loads(done.stdout)["bytes_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    figures = {"tcp": [], "tls": []}
    with tempfile.TemporaryDirectory() as directory:
        authority = Authority(os.path.join(directory, "ca"))
        server, client = authority.issue("server"), authority.issue("client")
        ca = authority.at("ca.pem")
        config = (f"[server]\ninsecure_tcp = yes\n[tls]\ncert = {server[0]}\nkey = {server[1]}\n"
                  f"client_ca = {ca}\n")
        with Daemon(listen=["tcp:127.0.0.1:0", "tls:127.0.0.1:0"], config=config) as daemon:
            port = lambda kind: daemon.wait_for(rf"listening on {kind}:127.0.0.1:(\d+)").group(1)
            shown = ["--ca", ca, "--cert", client[0], "--key", client[1]]
            tcp, tls = f"tcp:127.0.0.1:{port('tcp')}", f"tls:127.0.0.1:{port('tls')}"
            for _ in range(rounds):
                figures["tcp"].append(bytes_per_s(tcp))
                figures["tls"].append(bytes_per_s(tls, *shown))
    plain, secured = (statistics.median(figures[kind]) for kind in ("tcp", "tls"))
    print(f"{os.cpu_count()} cores, {rounds} rounds\n")
    print("| 64 MiB, 4 connections | GB/s | of plain TCP |\n| --- | --- | --- |")
    print(f"| TCP | {plain / 1e9:.2f} | 1 |\n| TLS 1.3 | {secured / 1e9:.2f} | "
          f"{secured / plain:.2f} |")


main()
