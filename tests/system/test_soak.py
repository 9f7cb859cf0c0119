#!/usr/bin/python3
"""Memory stays flat: many small requests, connections that come and go, tensors made and freed.

XOP_SOAK=full runs ten million requests and 100,000 connections, and prints what the processes had
before and after; without it a hundredth of that.
"""

import json
import os
import subprocess

import numpy as np

from xopd import BUILD, Daemon, Memory, operands, run

FULL = os.environ.get("XOP_SOAK") == "full"
REQUESTS, CONNECTIONS, TENSORS = (10_000_000, 100_000, 200_000) if FULL else (100_000, 1_000, 2_000)
# What allocators and tables may still grow by once they are warm; a sanitizer keeps what was freed.
SLACK_KB = 400 * 1024 if os.path.basename(BUILD) == "asan" else 6 * 1024
X = np.ones(64, np.float32)


def resident_kb(daemon):
    """What each process has in memory that no other shares, and its open descriptors."""
    found = {}
    for name, pids in daemon.children().items():
        for pid in pids:
            with open(f"/proc/{pid}/status") as f:
                lines = dict(line.split(":", 1) for line in f)
            found[name] = int(lines["RssAnon"].split()[0]), len(os.listdir(f"/proc/{pid}/fd"))
    return found


def flat(daemon, what, warm, work):
    """Does a part of the work to warm up, then all of it: nothing may have grown much."""
    work(warm)
    before = resident_kb(daemon)
    work(None)
    after = resident_kb(daemon)
    for name in before:
        grown = after[name][0] - before[name][0]
        if FULL:
            print(f"# {what}: {name} {before[name][0]} -> {after[name][0]} KiB, "
                  f"{before[name][1]} -> {after[name][1]} descriptors")
        assert grown < SLACK_KB, (what, name, before[name], after[name])
        assert after[name][1] <= before[name][1] + 2, (what, name, before[name], after[name])


def bench(daemon, count):
    done = 0
    while done < count:
        out = subprocess.run([os.path.join(BUILD, "xopctl"), "-s", f"unix:{daemon.path}", "bench",
                              "--json", "--shape", "64", "--inflight", "256", "--path", "inline",
                              "--seconds", "5" if FULL else "0.3"],
                             capture_output=True, text=True, check=True)
        figures = json.loads(out.stdout)
        assert figures["errors"] == 0, figures
        done += figures["requests"]


def small_requests():
    with Daemon() as daemon:
        flat(daemon, "requests", REQUESTS // 10, lambda n: bench(daemon, n or REQUESTS))


def connections():
    def connect(n):
        for i in range(n or CONNECTIONS):
            client = daemon.client()
            if i % 8 == 0: # and some leave in the middle of things
                client.put(1, X)
                client.submit("square_bias", [X, X])
            client.close()
    with Daemon() as daemon:
        flat(daemon, "connections", CONNECTIONS // 10, connect)
        client = daemon.client()
        stats = client.document("stats")
        while len(stats["clients"]) > 1 or stats["server"]["resident_bytes"] > 64 << 20:
            stats = client.document("stats")


def tensors_contexts_and_memory():
    def churn(n):
        client, memory = daemon.client(), Memory(1 << 16)
        described, body = operands([X, X])
        for i in range(n or TENSORS):
            client.put(1, X)
            client.ask("forward", body, op="square_bias", keep=2, out=[{"resident": 3}],
                       **{"in": described})
            client.ask("free", handle=2)
            client.ask("free", handle=3)
            client.ask("free", handle=1)
            if i % 16 == 0:
                client.attach(1, memory.descriptor, memory.length)
                client.ask("detach", memory=1)
        client.close()
        os.close(memory.descriptor)
    with Daemon() as daemon:
        flat(daemon, "tensors", TENSORS // 10, churn)


run([small_requests, connections, tensors_contexts_and_memory])
