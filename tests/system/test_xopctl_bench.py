#!/usr/bin/python3
"""xopctl bench and run: every path gives the same, what is printed and written, what is refused. No
speed is judged."""

import json
import os
import pty
import re
import signal
import subprocess
import tempfile
import xml.etree.ElementTree as tree

import numpy as np

from xopd import BUILD, Daemon, run

XOPCTL = os.path.join(BUILD, "xopctl")
KEYS = {"op", "pass", "shape", "dtype", "path", "clients", "inflight", "seconds", "requests", "errors",
        "p50_us", "p90_us", "p99_us", "p999_us", "requests_per_s", "bytes_per_s", "batch_mean",
        "floor_us", "ratio", "backend", "device"}
ROWS = ["plain loop, one thread", "vectorised, one thread", "vectorised, all threads", "xopd, inline",
        "xopd, shm", "xopd, resident"]
SHORT = ("--shape", "64", "--seconds", "0.1")


def call(address, *arguments, verb="bench"):
    done = subprocess.run([XOPCTL, "-s", address, verb, *arguments], capture_output=True,
                          timeout=300)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def good(address, *arguments, **keys):
    code, out, err = call(address, *arguments, **keys)
    assert code == 0, (arguments, code, out, err)
    assert err == "", err  # no progress where there is no terminal
    return out


def measured(address, *arguments):
    figures = json.loads(good(address, *arguments, "--json"))
    assert KEYS <= set(figures), KEYS - set(figures)
    assert figures["requests"] > 0 and figures["errors"] == 0
    assert 0 < figures["p50_us"] <= figures["p90_us"] <= figures["p99_us"] <= figures["p999_us"]
    assert figures["requests_per_s"] > 0 and figures["bytes_per_s"] >= 0 and figures["seconds"] > 0
    assert 1 <= figures["batch_mean"]
    return figures


def with_daemon(test):
    def wrapped():
        with Daemon() as daemon:
            test(f"unix:{daemon.path}")
    wrapped.__name__ = test.__name__
    return wrapped


@with_daemon
def json_has_plausible_numbers(address):
    figures = measured(address, *SHORT)
    assert figures["op"] == "square_bias" and figures["pass"] == "forward"
    assert figures["shape"] == [64] and figures["dtype"] == "f32"
    assert figures["clients"] == 1 and figures["inflight"] == 1 and figures["path"] == "inline"
    each = figures["bytes_per_s"] / figures["requests_per_s"]
    assert abs(each - 3 * 64 * 4) < 1e-3, each


@with_daemon
def every_path_measures_the_same_work(address):
    for path in ("inline", "shm", "resident"):
        for arguments in ((), ("--clients", "2", "--inflight", "8"), ("--backward",)):
            figures = measured(address, *SHORT, "--path", path, *arguments)
            assert figures["path"] == path
            assert figures["floor_us"] > 0
            assert abs(figures["ratio"] * figures["floor_us"] / figures["p50_us"] - 1) < 1e-6


@with_daemon
def tensors_of_64_kib_in_total_are_shared_unless_told_otherwise(address):
    short = ("--seconds", "0.1", "--shape")
    assert measured(address, *short, "5461")["path"] == "inline"  # 65532 bytes
    assert measured(address, *short, "5462")["path"] == "shm"
    assert measured(address, *short, "5462", "--no-shm")["path"] == "inline"


@with_daemon
def many_clients_with_many_requests_share_launches(address):
    figures = measured(address, "--shape", "16", "--seconds", "0.3", "--clients", "4", "--inflight", "32")
    assert figures["clients"] == 4 and figures["inflight"] == 32
    assert measured(address, *SHORT, "--spin-us", "20")["requests"] > 0


@with_daemon
def the_company_of_a_flood_is_measured(address):
    figures = measured(address, *SHORT, "--flood", "16")["flood"]
    assert figures["inflight"] == 16 and figures["requests_per_s"] > 0
    assert 0 < figures["alone_p50_us"] <= figures["alone_p99_us"]
    assert 0 < figures["beside_p50_us"] <= figures["beside_p99_us"]
    assert abs(figures["ratio"] * figures["alone_p99_us"] / figures["beside_p99_us"] - 1) < 1e-9
    out = good(address, *SHORT, "--flood", "16", "--path", "shm")
    assert re.search(r"^beside it .* us, which is [0-9.]+ of it$", out, re.M), out
    assert re.search(r"^the flood: 16 in flight, [0-9]+ requests/s$", out, re.M), out


@with_daemon
def other_operators_and_dtypes_are_measured(address):
    for op in ("sigmoid", "bose_einstein"):
        for dtype in ("f16", "bf16", "f64"):
            for more in ((), ("--backward",)):
                figures = measured(address, op, "--dtype", dtype, "--shape", "3,5", "--seconds", "0.05",
                                   *more)
                assert figures["op"] == op and figures["dtype"] == dtype
    assert measured(address, "--shape", "8,16", "--shape", "16", "--seconds", "0.05")["shape"] == [8, 16]
    assert measured(address, "--shape", "0", "--seconds", "0.05")["bytes_per_s"] == 0


@with_daemon
def text_names_backend_device_and_floor(address):
    out = good(address, *SHORT)
    assert out.startswith("bench on "), out
    for fragment in ("p50", "p99.9", "requests/s", "GB/s", "a batch", "queue", "floor"):
        assert fragment in out, (fragment, out)


def over_tcp_memory_is_not_shared():
    with Daemon("--insecure-tcp", listen=["tcp:127.0.0.1:0"]) as daemon:
        port = daemon.wait_for(r"listening on tcp:127\.0\.0\.1:(\d+)").group(1)
        address = f"tcp:127.0.0.1:{port}"
        assert measured(address, "--shape", "300,400", "--seconds", "0.1")["path"] == "inline"
        code, _, err = call(address, *SHORT, "--path", "shm")
        assert code == 64 and "Unix sockets alone" in err, (code, err)
        rows = json.loads(good(address, *SHORT, "--compare", "--json"))["compare"]
        assert [row["name"] for row in rows if row["time_us"] is None] == ["xopd, shm"], rows


@with_daemon
def compare_prints_all_rows(address):
    out = good(address, "--shape", "1000", "--seconds", "0.3", "--compare")
    for name in ROWS:
        assert re.search(rf"^{name}.* us +[0-9.]+x$", out, re.M), (name, out)
    assert "all values agree" in out
    rows = json.loads(good(address, *SHORT, "--compare", "--json"))["compare"]
    assert len(rows) == len(ROWS)
    for row, name in zip(rows, ROWS):
        assert row["name"].startswith(name) and row["time_us"] > 0 and row["speedup"] > 0, row
    assert rows[0]["speedup"] == 1


@with_daemon
def the_report_is_one_well_formed_page(address):
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "r<&>.html")
        good(address, *SHORT, "--compare", "--flood", "4", "--report", file)
        assert os.listdir(directory) == ["r<&>.html"]
        with open(file) as f:
            page = f.read()
    root = tree.fromstring(page.replace("<!DOCTYPE html>", ""))
    assert not re.search(r"https?:|<script|<link|@import|url\(", page)
    plots = root.findall(".//svg")
    assert len(plots) == 3, len(plots)
    for plot in plots:
        assert plot.find("polyline") is not None and plot.get("aria-label")
        for element in plot.iter():
            for value in element.attrib.values():
                assert "nan" not in value and "inf" not in value.split(), value
    words = " ".join(root.itertext())
    for fragment in ("Throughput by size", "16777216", "connections", "resident", "µs", "GB/s", address,
                     "beside a client that floods", "r<&>.html", *ROWS):
        assert fragment in words, fragment


@with_daemon
def an_interrupt_shows_what_was_measured(address):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([XOPCTL, "-s", address, "bench", "--shape", "64", "--seconds", "600"],
                               stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    try:
        progress = b""
        while not re.search(rb"square_bias \[[# ]{30}\] .* [1-9][0-9]* requests", progress):
            progress += os.read(ours, 4096)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        os.close(ours)
    assert process.returncode == 0 and b"requests/s" in out, (process.returncode, out)


@with_daemon
def wrong_usage_has_its_exit_code_and_a_sentence(address):
    cases = [(64, ["--shape", "3,x"]), (64, ["--shape", "3,"]), (64, ["--shape", "-1"]),
             (64, ["--shape", "1,1,1,1,1,1,1,1,1"]), (64, ["--clients", "0"]),
             (64, ["--clients", "-1"]), (64, ["--clients", "2000"]), (64, ["--inflight", "0"]),
             (64, ["--inflight", "1e3"]), (64, ["--path", "smoke"]), (64, ["--flood", "0"]), (64, ["--flood", "x"]), (64, ["--seconds", "0"]),
             (64, ["--seconds", "nan"]), (64, ["--dtype", "f99"]), (64, ["--spin-us", "x"]),
             (64, ["--path", "shm", "--no-shm"]), (64, ["--bogus"]), (64, ["sigmoid", "square_bias"]),
             (64, ["no_such"]), (64, ["--dtype", "i32"]), (64, ["--attr", "x=1"]),
             (64, ["sigmoid", "--compare"]), (64, ["--compare", "--backward"]), (64, ["--report", ""]),
             (65, ["--shape", "3", "--shape", "4"]),
             (73, ["--report", "/nonexistent/r.html"]), (73, ["--report", "/tmp"])]
    for expected, arguments in cases:
        code, _, err = call(address, "--seconds", "0.1", *arguments)
        assert code == expected and len(err) > 10, (arguments, code, expected, err)
    code, out, _ = call(address, "no_such", "--json")
    assert code == 64 and json.loads(out)["error"]["status"] == "NOT_FOUND"
    code, _, err = call("unix:/nonexistent/s")
    assert code == 69 and "No such file" in err
    code, _, err = call(address, *SHORT, "--report", "/dev/full")
    assert code == 74 and "/dev/full" in err, (code, err)


def run_gives(address, directory, arguments, *more):
    """The path and the files of the outputs of a run."""
    names = [os.path.join(directory, f"out{i}.npy") for i in range(2)]
    outs = [word for name in names[:2 if "--backward" in arguments else 1] for word in ("--out", name)]
    answer = json.loads(good(address, *arguments, *outs, *more, "--json", verb="run"))
    found = []
    for name in outs[1::2]:
        with open(name, "rb") as f:
            found.append(f.read())
        os.unlink(name)
    return answer["path"], found


@with_daemon
def run_gives_the_same_through_shared_memory(address):
    rng = np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as directory:
        def save(name, *shape, dtype="f4"):
            file = os.path.join(directory, name)
            np.save(file, rng.standard_normal(shape).astype(dtype))
            return file

        large, row, small = save("x.npy", 200, 301), save("b.npy", 301), save("s.npy", 5, 301)
        square = ("square_bias", "--in", large, "--in")
        for path, arguments in [("shm", (*square, large)), ("shm", (*square, row)),
                                ("shm", (*square, row, "--backward", "--grad", large)),
                                ("inline", ("square_bias", "--in", small, "--in", row))]:
            shared = run_gives(address, directory, arguments)
            sent = run_gives(address, directory, arguments, "--no-shm")
            assert shared[0] == path and sent[0] == "inline", (arguments, shared[0], sent[0])
            assert shared[1] == sent[1] and all(shared[1]), arguments
        # One output alone, forward first where backward needs it, and poisoned outputs.
        wide = save("w.npy", 7, 9000, dtype="f2")
        for arguments in [("sigmoid", "--in", wide), ("sigmoid", "--in", wide, "--check")]:
            shared, sent = (run_gives(address, directory, arguments, *more)
                            for more in ((), ("--no-shm",)))
            assert shared[0] == "shm" and shared[1] == sent[1], arguments
        outs = {}
        for more in ("--json", "--no-shm"):
            file = os.path.join(directory, "gx.npy")
            good(address, "sigmoid", "--in", wide, "--backward", "--grad", wide, "--out", file, more,
                 verb="run")
            with open(file, "rb") as f:
                outs[more] = f.read()
        assert outs["--json"] == outs["--no-shm"]
        code, out, _ = call(address, "square_bias", "--in", large, "--in", wide, verb="run")
        assert code == 65 and not out, (code, out)


def run_sends_what_the_daemon_does_not_share():
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "x.npy")
        np.save(file, np.linspace(-1, 1, 50000, dtype="f4"))
        with Daemon(config="[quota]\nattached = 4096\n") as daemon:
            path, outs = run_gives(f"unix:{daemon.path}", directory, ("sigmoid", "--in", file))
            assert path == "inline" and len(outs[0]) > 200000, path
            code, _, err = call(f"unix:{daemon.path}", "--shape", "50000", "--path", "shm")
            assert code == 75 and "attach" in err, (code, err)
        with Daemon("--insecure-tcp", listen=["tcp:127.0.0.1:0"]) as daemon:
            port = daemon.wait_for(r"listening on tcp:127\.0\.0\.1:(\d+)").group(1)
            tcp = run_gives(f"tcp:127.0.0.1:{port}", directory, ("sigmoid", "--in", file))
            assert tcp == ("inline", outs), tcp[0]


run([json_has_plausible_numbers,
     every_path_measures_the_same_work,
     tensors_of_64_kib_in_total_are_shared_unless_told_otherwise,
     many_clients_with_many_requests_share_launches,
     the_company_of_a_flood_is_measured,
     other_operators_and_dtypes_are_measured,
     text_names_backend_device_and_floor,
     over_tcp_memory_is_not_shared,
     compare_prints_all_rows,
     the_report_is_one_well_formed_page,
     an_interrupt_shows_what_was_measured,
     wrong_usage_has_its_exit_code_and_a_sentence,
     run_gives_the_same_through_shared_memory,
     run_sends_what_the_daemon_does_not_share])
