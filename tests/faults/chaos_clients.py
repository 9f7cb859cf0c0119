"""Clients for the chaos run: each works in rounds until it is told to stop, holds every answer to what
is right, and counts. A round that ends early for want of a connection is counted too, never passed over."""

import json
import os
import socket
import subprocess
import threading
import time

import numpy as np

from xopd import (ABORTED, BUILD, Client, Closed, DATA_LOSS, DEVICE_FAULT, FAILED_PRECONDITION,
                  Failed, INTERNAL, INVALID_ARGUMENT, LIMIT_S, Memory, NOT_FOUND, RESOURCE_EXHAUSTED, UNAVAILABLE,
                  frame, operands, tensors)

B = np.array([1, 2, 3, 4], dtype=np.float32)
# What a request that did nothing wrong may be told while workers die around it: there is no worker,
# there is no room, or workers died of it as often as they may (complete.c: whoever killed them).
UNLUCKY = {UNAVAILABLE, RESOURCE_EXHAUSTED, DEVICE_FAULT}
# Tensors that stay may be lost with the worker that was writing them, and what relies on them is told.
STAYING = UNLUCKY | {ABORTED, DATA_LOSS, FAILED_PRECONDITION, NOT_FOUND}
POISON = {"address": UNLUCKY, "endless": UNLUCKY, "abort": UNLUCKY, "exit": UNLUCKY, "hang": UNLUCKY,
          "hog": UNLUCKY, "refuse": UNLUCKY | {INTERNAL}, "huge": UNLUCKY,
          "size": UNLUCKY | {INTERNAL, INVALID_ARGUMENT}}


class Tally:
    """What all clients together saw."""

    def __init__(self):
        self.lock = threading.Lock()
        self.stop = threading.Event()
        self.counts, self.wrong, self.longest = {}, [], 0.0

    def count(self, what, n=1):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + n

    def took(self, seconds):
        with self.lock:
            self.longest = max(self.longest, seconds)

    def fail(self, text):
        with self.lock:
            self.wrong.append(text)
        self.stop.set()


def exchange(client, tally, requests):
    """Sends them all, and takes exactly one answer to each. requests: (kind, keys, body, check,
    statuses): check is given arrays and body of an answer that is OK; statuses: errors that may be."""
    waiting, begun = {}, time.monotonic()
    with client.one_write():
        for kind, keys, body, check, statuses in requests:
            waiting[client.request(kind, body, **keys)] = (kind, keys, check, statuses)
    while waiting:
        header, body = client.answer()
        if header["type"] != "result" or header["id"] not in waiting:
            raise AssertionError(f"an answer to nothing, or a second one: {header}")
        kind, keys, check, statuses = waiting.pop(header["id"])
        status = header.get("status", 0)
        if status == 0:
            if not check(tensors(header, body), body):
                raise AssertionError(f"a wrong result of {kind} {keys}")
            tally.count("right")
        elif status in statuses and header.get("error"):
            tally.count(f"status {status}")
        else:
            raise AssertionError(f"{kind} {keys} was told {status}: {header.get('error')}")
    tally.took(time.monotonic() - begun)


def forward(op, arrays, want, statuses=UNLUCKY, **keys):
    described, body = operands(arrays)
    return ("forward", {"op": op, "in": described, **keys}, body,
            lambda out, _: want is None or np.array_equal(out[0], want), statuses)


def plain(connect, tally, rng):
    """Any number of requests in one write, small and large."""
    client = connect()
    while not tally.stop.is_set():
        requests = []
        for _ in range(int(rng.integers(1, 60))):
            x = rng.standard_normal((int(rng.integers(1, 300)), 4)).astype(np.float32)
            requests.append(forward("square_bias", [x, B], x * x + B))
        exchange(client, tally, requests)
    client.close()


def attached(client, memory, tally):
    """Its descriptor may not find room, and there may be no worker for it just now."""
    while not tally.stop.is_set():
        try:
            client.attach(1, memory.descriptor, memory.length)
            return
        except Failed as e:
            if e.status not in UNLUCKY | {INVALID_ARGUMENT}:
                raise
            tally.count(f"status {e.status}")


def shared(connect, tally, rng):
    client, memory, n = connect(), Memory(1 << 20), 10000
    attached(client, memory, tally)
    x, y = memory.array(0, n), memory.array(1 << 19, n)
    b = {"dtype": "f32", "shape": [1], "memory": 1, "offset": 0}
    while not tally.stop.is_set():
        x[:] = rng.standard_normal(n)
        place = {"dtype": "f32", "shape": [n], "memory": 1}
        keys = {"op": "square_bias", "in": [{**place, "offset": 0}, b],
                "out": [{**place, "offset": 1 << 19}]}
        exchange(client, tally, [("forward", keys, b"", lambda *_: np.array_equal(y, x * x + x[0]),
                                  UNLUCKY)])
    exchange(client, tally, [("detach", {"memory": 1}, b"", lambda *_: True, UNLUCKY)])
    client.close()
    memory.map = x = y = None
    os.close(memory.descriptor)


def resident(connect, tally, rng):
    """Tensors that stay, chains on them in one write, and contexts."""
    client = connect()
    while not tally.stop.is_set():
        x = rng.standard_normal(int(rng.integers(1, 5000))).astype(np.float32)
        gy = rng.standard_normal(x.size).astype(np.float32)
        b = np.float32([2])
        type_ = {"dtype": "f32", "shape": [x.size]}
        described, body = operands([b])
        grad, grad_body = operands([gy])
        done = lambda *_: True
        got = lambda want: lambda _, data: np.array_equal(np.frombuffer(data, np.float32), want)
        y = x * x + b
        exchange(client, tally, [
            ("put", {"handle": 1, "in": [type_]}, x.tobytes(), done, STAYING),
            ("forward", {"op": "square_bias", "in": [{"resident": 1}, *described],
                         "out": [{"resident": 2}], "keep": 3}, body, done, STAYING),
            ("get", {"handle": 2, "offset": 0, "length": x.nbytes}, b"", got(y), STAYING),
            ("backward", {"op": "square_bias", "context": 3, "in": [None, None, *grad],
                          "out": [None, False]}, grad_body,
             lambda out, _: np.array_equal(out[0], 2 * x * gy), STAYING),
            ("free", {"handle": 3}, b"", done, STAYING),
            ("free", {"handle": 2}, b"", done, STAYING),
            ("free", {"handle": 1}, b"", done, STAYING)])
    client.close()


def poison(connect, tally, rng):
    """Alone, so that nobody else can be told that it was his."""
    client, kinds = connect(), sorted(POISON)
    x = np.arange(16, dtype=np.float32)
    while not tally.stop.is_set():
        how = kinds[int(rng.integers(len(kinds)))]
        never = np.full(1, np.nan, np.float32)  # it has no right result
        exchange(client, tally, [forward("fault", [x], never, POISON[how], attrs={"how": how}),
                                 forward("fault", [x], x)])
        tally.stop.wait(float(rng.uniform(0, 1)))
    client.close()


def vanish(connect, tally, rng):
    """In the middle of a frame, with requests in flight and descriptors sent, or with nonsense."""
    x = rng.standard_normal(20000).astype(np.float32)
    described, body = operands([x, B[:1]])
    whole = frame({"type": "forward", "id": 1000, "op": "square_bias", "in": described}, body)
    memory = Memory(4096)
    while not tally.stop.is_set():
        client = connect()
        try:
            client.attach(1, memory.descriptor, memory.length)
            for _ in range(int(rng.integers(0, 20))):
                client.submit("square_bias", [x, B[:1]])
            client.send_raw(whole[:int(rng.integers(len(whole)))])
            if rng.integers(4) == 0:
                client.send_raw(rng.bytes(400))
        except (Failed, OSError, Closed):
            pass  # out of descriptors, or it was closed for what it sent
        client.close()
        tally.count("vanished")
    os.close(memory.descriptor)


def xopctl(address, tally, rng):
    """The C library, a process each time."""
    while not tally.stop.is_set():
        x = rng.integers(-50, 50, int(rng.integers(1, 6)))
        literal = "f32:[" + ",".join(str(v) for v in x) + "]"
        done = subprocess.run([os.path.join(BUILD, "xopctl"), "-s", address, "run", "square_bias",
                               "--in", literal, "--in", "f32:1", "--json"], capture_output=True,
                              text=True, timeout=LIMIT_S, check=False)
        if done.returncode == 0:
            found = json.loads(done.stdout)["outputs"][0]["data"]
            if not np.array_equal(found, x * x + 1):
                raise AssertionError(f"xopctl: {literal} gave {found}")
            tally.count("right")
        elif done.returncode < 0 or not (done.stdout + done.stderr).strip():
            raise AssertionError(f"xopctl: {done.returncode} {done.stdout} {done.stderr}")
        else:
            tally.count(f"xopctl exit {done.returncode}")


def is_told_why(connect):
    """A connection, however long the server is out of descriptors for it."""
    while True:
        try:
            return connect()
        except (Closed, ConnectionError, Failed):
            pass  # hello_timeout_ms was over before it could be accepted and read


def start(work, connect, tally, rng):
    def body():
        try:
            work(connect, tally, rng)
        except Exception as e:  # the run ends, and says so
            tally.fail(f"{work.__name__}: {type(e).__name__}: {e}")
    thread = threading.Thread(target=body, name=work.__name__)
    thread.start()
    return thread


def unix(daemon):
    return is_told_why(lambda: Client((socket.AF_UNIX, daemon.path)))
