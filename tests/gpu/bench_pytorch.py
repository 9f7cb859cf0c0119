#!/usr/bin/python3
"""Requests through a real xopd beside what a user would write with PyTorch, row by row.

    XOP_BUILD=build python3 tests/gpu/bench_pytorch.py [--rounds N] [--only WORD]

Each row alternates rival and xopd, --rounds times, and compares the medians; a target is a ratio of
two figures of one run. Needs a GPU, PyTorch, NumPy and msgpack. Ends with a table in Markdown.
XOP_BACKEND=cpu measures the CPU backend against PyTorch on the CPU, to try this script.
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../system"))

import numpy as np
import torch

from xopd import BACKEND, BUILD, Daemon

CUDA = BACKEND == "cuda"
DEVICE = torch.device("cuda" if CUDA else "cpu")


def bench(daemon, *options, address=None):
    """One run of xopctl bench; its JSON."""
    command = [os.path.join(BUILD, "xopctl"), "-s", address or f"unix:{daemon.path}", "bench",
               "--json", *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def sync():
    if CUDA:
        torch.cuda.synchronize()


def median_us(call, seconds=0.5, least=10):
    """The median of what a call takes, after a warm-up."""
    for _ in range(5):
        call()
    times, until = [], time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < until:
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e6)
    return statistics.median(times)


def in_process(shape, pinned=True):
    """y = x*x + b with tensors in host memory, as a user of PyTorch writes it."""
    pin = pinned and CUDA
    make = lambda: torch.randn(*shape).pin_memory() if pin else torch.randn(*shape)
    x, b, out = make(), make(), make()

    def call():
        gx, gb = x.to(DEVICE, non_blocking=True), b.to(DEVICE, non_blocking=True)
        out.copy_(gx * gx + gb, non_blocking=True)
        sync()
    return call


def in_chunks(n, chunks):
    """The same in chunks over two streams, all memory pinned and allocated before."""
    if not CUDA:
        return in_process((n,))
    x, b, y = (torch.randn(n).pin_memory() for _ in range(3))
    gx, gb, gy = (torch.empty(n, device=DEVICE) for _ in range(3))
    streams = [torch.cuda.Stream() for _ in range(2)]
    pieces = [slice(n * i // chunks, n * (i + 1) // chunks) for i in range(chunks)]

    def call():
        for i, p in enumerate(pieces):
            with torch.cuda.stream(streams[i % 2]):
                gx[p].copy_(x[p], non_blocking=True)
                gb[p].copy_(b[p], non_blocking=True)
                torch.addcmul(gb[p], gx[p], gx[p], out=gy[p])
                y[p].copy_(gy[p], non_blocking=True)
        sync()
    return call


class Table:
    def __init__(self, rounds, only):
        self.rounds, self.only, self.rows = rounds, only, []

    def wants(self, name):
        return not self.only or self.only in name

    def add(self, work, rival, rival_value, value, unit, target, least=False):
        ratio = value / rival_value
        met = ratio >= target if least else ratio <= target
        row = (work, rival, f"{rival_value:.1f} {unit}", f"{value:.1f} {unit}", f"{ratio:.3f}",
               f"{'at least' if least else 'at most'} {target}", "yes" if met else "NO")
        self.rows.append(row)
        print("  ".join(row), flush=True)

    def alternate(self, rival, ours):
        """Medians of the two over the rounds."""
        a, b = [], []
        for _ in range(self.rounds):
            a.append(rival())
            b.append(ours())
        return statistics.median(a), statistics.median(b)

    def print(self):
        head = ("work", "rival", "rival took", "xopd", "ratio", "target", "met")
        print("\n| " + " | ".join(head) + " |\n| " + " | ".join("---" for _ in head) + " |")
        for row in self.rows:
            print("| " + " | ".join(row) + " |")


def lone_requests(table, daemon):
    spin = ("--spin-us", 5000) # as torch.cuda.synchronize() does, to whatever end
    rows = [("1024 f32, one at a time, inline", "inline", (1024,), 0.85, in_process((1024,)),
             "PyTorch, pinned"),
            ("1024 f32, one at a time, client memory", "shm", (1024,), 0.75, in_process((1024,)),
             "PyTorch, pinned"),
            ("1280x1280 f32, client memory", "shm", (1280, 1280), 0.85, in_process((1280, 1280)),
             "PyTorch, pinned"),
            ("1280x1280 f32, client memory", "shm", (1280, 1280), 0.20,
             in_process((1280, 1280), False), "PyTorch, pageable"),
            ("16 Mi f32, client memory", "shm", (1 << 24,), 1.05, in_chunks(1 << 24, 8),
             "8 chunks, 2 streams")]
    for work, path, shape, target, rival, name in rows:
        if not table.wants(work):
            continue
        ours = lambda: bench(daemon, "--path", path, "--shape", ",".join(map(str, shape)),
                             "--seconds", 0.7, *spin)["p50_us"]
        theirs, mine = table.alternate(lambda: median_us(rival), ours)
        table.add(work, name, theirs, mine, "us", target)


def many_clients(table, daemon):
    work = "1024 f32, 16 clients, 64 in flight, client memory"
    if not table.wants(work):
        return
    one = lambda: bench(daemon, "--path", "shm", "--shape", 1024, "--seconds",
                        1)["requests_per_s"] / 1000
    many = lambda: bench(daemon, "--path", "shm", "--shape", 1024, "--clients", 16, "--inflight",
                         64, "--seconds", 1.5)["requests_per_s"] / 1000
    theirs, mine = table.alternate(one, many)
    table.add(work, "one at a time", theirs, mine, "k/s", 10, least=True)
    table.add(work, "a million a second", 1000, mine, "k/s", 1.0, least=True)


@contextlib.contextmanager
def flood(daemon, *options):
    """Another client that sends without end."""
    command = [os.path.join(BUILD, "xopctl"), "-s", f"unix:{daemon.path}", "bench", "--json",
               "--seconds", "600", *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1.5)  # it is warm by then
        yield
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def fairness(table, daemon):
    floods = [("1024 f32 inline beside a flood of 1280x1280",
               ("--path", "shm", "--shape", "1280,1280", "--inflight", 64)),
              ("1024 f32 inline beside a flood of 16 Mi",
               ("--path", "shm", "--shape", 1 << 24, "--inflight", 4)),
              ("1024 f32 inline beside a flood of 1024",
               ("--path", "shm", "--shape", 1024, "--inflight", 256))]
    lone = lambda: bench(daemon, "--path", "inline", "--shape", 1024, "--seconds", 1)["p99_us"]
    for work, options in floods:
        if not table.wants(work):
            continue

        def beside():
            with flood(daemon, *options):
                return lone()
        theirs, mine = table.alternate(lone, beside)
        table.add(work + ", p99", "the same client alone", theirs, mine, "us", 2.0)


def describe(array):
    return {"dtype": "f32", "shape": list(array.shape)}


def resident_linear(table, daemon):
    """A layer whose weight stays and whose context is kept, against sending everything."""
    work = "linear 4096x4096, 256 rows, resident weight, kept context, forward and backward"
    if not table.wants(work):
        return
    client, n, rows = daemon.client(), 4096, 256
    if "linear" not in [o["name"] for o in client.document("describe")["operators"]]:
        print(f"{work}: this server has no operator linear")
        return
    w = np.random.randn(n, n).astype(np.float32) / 64
    x, gy = (np.random.randn(rows, n).astype(np.float32) for _ in range(2))
    client.put(1, w)
    bodies = [a.tobytes() for a in (x, gy)]
    both = x.tobytes() + w.tobytes()
    three = both + gy.tobytes()
    at = lambda a, offset: {**describe(a), "body": offset}

    def everything():
        client.ask("forward", both, op="linear", **{"in": [at(x, 0), at(w, x.nbytes)]})
        client.ask("backward", three, op="linear", out=[None, False, False],
                   **{"in": [at(x, 0), at(w, x.nbytes), at(gy, x.nbytes + w.nbytes)]})

    def kept():
        client.ask("forward", bodies[0], op="linear", keep=2,
                   **{"in": [at(x, 0), {"resident": 1}]})
        client.ask("backward", bodies[1], op="linear", context=2, out=[None, False, False],
                   **{"in": [None, None, at(gy, 0)]})
        client.ask("free", handle=2)

    theirs, mine = table.alternate(lambda: median_us(everything), lambda: median_us(kept))
    io = 2 * x.nbytes  # y and grad_x come back either way
    ratio = (x.nbytes + gy.nbytes + io) / (len(both) + len(three) + io)
    table.add(work, f"all of it sent; its bytes are {ratio:.3f} of that", theirs, mine, "us",
              round(1.1 * ratio, 3))
    client.ask("free", handle=1)


def device_us(call, repeats=15):
    """The median of what a call takes on the device, as bench_kernels measures it."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def their_products(rows, inner, outer, dtype):
    """linear's products in PyTorch, by the names that bench_kernels gives them."""
    # What bench_kernels fills its tensors with: what a product draws, and so how fast the clock may
    # go, depends on how many bits change.
    def numbers(shape):
        sign = torch.randint(0, 2, shape, device=DEVICE, dtype=torch.int8) * 2 - 1
        return (torch.rand(shape, dtype=dtype, device=DEVICE) + 1) * sign

    x, w, b, gy = (numbers(shape)
                   for shape in [(rows, inner), (outer, inner), (outer,), (rows, outer)])
    return {"forward, bias": device_us(lambda: torch.nn.functional.linear(x, w, b)),
            "grad_x": device_us(lambda: gy @ w), "grad_w": device_us(lambda: gy.t() @ x)}


def our_products():
    """{(size, dtype, product): microseconds} of bench_kernels."""
    command = [os.path.join(BUILD, "tests/gpu/bench_kernels"), "--linear"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines
             if " x " in line and line.startswith("|")]
    return {(tuple(int(n) for n in size.split("x")), dtype, product): float(us)
            for size, dtype, product, us, _ in cells}


def products(table):
    """linear in device memory; both by cuBLASLt or cuBLAS, so what differs is what they choose."""
    if not CUDA or not table.wants("linear on the device"):
        return
    cases = [((8192, 8192, 8192), "bf16", torch.bfloat16), ((4096, 4096, 4096), "f32", torch.float32)]
    theirs, mine = {}, {}
    for _ in range(table.rounds):
        for size, name, dtype in cases:
            for product, us in their_products(*size, dtype).items():
                theirs.setdefault((size, name, product), []).append(us)
        torch.cuda.empty_cache()
        for key, us in our_products().items():
            mine.setdefault(key, []).append(us)
    for (size, name, product), times in theirs.items():
        table.add(f"linear on the device, {'x'.join(map(str, size))} {name}, {product}", "PyTorch",
                  statistics.median(times), statistics.median(mine[size, name, product]), "us",
                  round(1 / 0.98, 3))


def recovery(table):
    """From the death of a worker to the next answer."""
    work = "a worker's death, requests in flight"
    if not table.wants(work):
        return
    times = []
    for _ in range(table.rounds):
        with Daemon() as daemon:
            client = daemon.client()
            x = np.ones(1024, np.float32)
            client.run("square_bias", [x, x])
            pid = daemon.worker()
            waiting = {client.submit("square_bias", [x, x]) for _ in range(64)}
            begin = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            # One more, which no worker that is dead can have answered.
            waiting.add(client.submit("square_bias", [x, x]))
            while waiting:
                header, _ = client.answer()
                assert not header.get("status"), header
                waiting.remove(header["id"])
            times.append((time.perf_counter() - begin) * 1e3)
    table.add(work, "one second", 1000, statistics.median(times), "ms", 1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose name has this word")
    arguments = parser.parse_args()
    table = Table(arguments.rounds, arguments.only)
    name = torch.cuda.get_device_name() if CUDA else "CPU"
    print(f"PyTorch {torch.__version__}, {name}, {os.cpu_count()} cores, {arguments.rounds} rounds")
    with Daemon() as daemon:
        lone_requests(table, daemon)
        many_clients(table, daemon)
        fairness(table, daemon)
        resident_linear(table, daemon)
    products(table)
    recovery(table)
    table.print()


main()
