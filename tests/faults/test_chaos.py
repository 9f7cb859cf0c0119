#!/usr/bin/python3
"""Everything at once: clients of all kinds at work while workers are killed, stopped and poisoned,
descriptors run out and clients vanish in mid-frame. Every accepted request has exactly one answer, the
right one or a named error; at the end memory and descriptors are back to where they were.

XOP_CHAOS_SECONDS (8) is for how long, XOP_CHAOS_SEED what it does (it is printed)."""

import os
import resource
import select
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))

import numpy as np

import certificates
import chaos_clients as clients
from xopd import BUILD, Daemon, LIMIT_S, faulty_operators, run

SECONDS = float(os.environ.get("XOP_CHAOS_SECONDS", "8"))
SEED = int(os.environ.get("XOP_CHAOS_SEED", str(time.time_ns() % 1000000)))
# As in tests/system/test_soak.py: what allocators keep, and what a sanitizer does not give back.
SLACK_KB = 400 * 1024 if os.path.basename(BUILD) == "asan" else 16 * 1024
POOL = 64 << 20
CONFIG = """[server]
drain_timeout_ms = 20000
write_timeout_ms = 60000
[device]
inbox = 32M
outbox = 32M
[watchdog]
heartbeat_ms = 1000
request_ms = 700
"""


class Saboteur:
    """Does one harm after the other, and takes back what can be taken back."""

    def __init__(self, daemon, tally, rng):
        self.daemon, self.tally, self.rng = daemon, tally, rng
        self.front, = daemon.children()["xopd-front"]
        self.limits = resource.prlimit(self.front, resource.RLIMIT_NOFILE)

    def strike(self, number):
        workers = self.daemon.children().get("xopd-worker", [])
        for pid in workers:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        self.strike(signal.SIGKILL)

    def crash(self):
        self.strike(signal.SIGSEGV)

    def stop(self):
        self.strike(signal.SIGSTOP)

    def starve(self):
        used = len(os.listdir(f"/proc/{self.front}/fd"))
        resource.prlimit(self.front, resource.RLIMIT_NOFILE, (used + 2, self.limits[1]))
        self.tally.stop.wait(0.5)
        self.feed()

    def feed(self):
        resource.prlimit(self.front, resource.RLIMIT_NOFILE, self.limits)

    def work(self, seconds):
        harms = (self.kill, self.crash, self.stop, self.starve)
        end, struck = time.monotonic() + seconds, 0
        while time.monotonic() < end and not self.tally.stop.wait(float(self.rng.uniform(0.1, 0.9))):
            harm = harms[int(self.rng.integers(len(harms)))]
            harm()
            self.tally.count(harm.__name__)
            struck += 1
            # Workers that end again and again soon after their start are started later and later: one
            # that may settle brings the next back at once.
            if struck % 6 == 0:
                self.tally.stop.wait(2.5)
        self.tally.stop.set()


def usage(daemon):
    """Anonymous memory in KiB and descriptors of each process."""
    found = {}
    for name, pids in daemon.children().items():
        with open(f"/proc/{pids[0]}/status") as f:
            lines = dict(line.split(":", 1) for line in f)
        found[name] = int(lines["RssAnon"].split()[0]), len(os.listdir(f"/proc/{pids[0]}/fd"))
    return found


def quiet(daemon):
    """What there is once nobody is connected and nothing is left to do, and one request was answered."""
    client = clients.unix(daemon)
    x = np.ones(4, np.float32)
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        stats = client.document("stats")["server"]
        left = [stats[k] for k in ("in_flight", "inbox_used", "attached_bytes")]
        # One pool is kept for the next tensors.
        if stats["ready"] and stats["connections"] == 1 and not any(left) and \
                stats["resident_bytes"] <= POOL:
            assert np.array_equal(client.run("square_bias", [x, x])[0], x * x + x)
            return usage(daemon)
        select.select([], [], [], 0.01)
    raise AssertionError(f"never quiet: {stats}")


def chaos(daemon, tls, seconds, seed):
    tally = clients.Tally()
    rngs = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(16))
    over_unix = lambda: clients.unix(daemon)
    over_tls = lambda: clients.is_told_why(lambda: certificates.TlsClient(daemon, tls))
    everybody = [(clients.plain, over_unix), (clients.plain, over_unix), (clients.plain, over_tls),
                 (clients.resident, over_unix), (clients.resident, over_tls),
                 (clients.shared, over_unix), (clients.poison, over_unix),
                 (clients.vanish, over_unix), (clients.xopctl, f"unix:{daemon.path}")]
    threads = [clients.start(work, connect, tally, next(rngs)) for work, connect in everybody]
    saboteur = Saboteur(daemon, tally, next(rngs))
    try:
        saboteur.work(seconds)
    finally:
        tally.stop.set()
        saboteur.feed()
        for thread in threads:
            thread.join(LIMIT_S)
    hung = [thread.name for thread in threads if thread.is_alive()]
    assert not hung and not tally.wrong, (hung, tally.wrong)
    return tally


def everything_goes_wrong_at_once_and_nobody_is_told_wrong():
    print(f"# XOP_CHAOS_SEED={SEED}", flush=True)
    leave = ":handle_segv=0:handle_abort=0"
    with tempfile.TemporaryDirectory() as directory, faulty_operators() as arguments:
        authority = certificates.Authority(os.path.join(directory, "ca"))
        server, alice = authority.issue("server"), authority.issue("alice")
        config = CONFIG + (f"[tls]\ncert = {server[0]}\nkey = {server[1]}\n"
                           f"client_ca = {authority.at('ca.pem')}\n")
        path = os.path.join(directory, "xopd.sock")
        with Daemon(*arguments, listen=[f"unix:{path}", "tls:127.0.0.1:0"], config=config,
                    env={"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + leave}) as daemon:
            daemon.path = path
            tls = certificates.context(authority, alice)
            chaos(daemon, tls, min(SECONDS / 4, 10), SEED)  # tables and caches grow to their size
            before = quiet(daemon)
            tally = chaos(daemon, tls, SECONDS, SEED + 1)
            after = quiet(daemon)
            stats = clients.unix(daemon).document("stats")["server"]
    print(f"# {dict(sorted(tally.counts.items()))}, {stats['restarts']} workers replaced in all, the "
          f"longest exchange took {tally.longest:.2f} s\n# {before} -> {after}", flush=True)
    assert tally.counts["right"] > 0 and stats["restarts"] > 0
    for name in before:
        assert after[name][0] - before[name][0] < SLACK_KB, (name, before, after)
        assert after[name][1] == before[name][1], (name, before, after)


run([everything_goes_wrong_at_once_and_nobody_is_told_wrong])
