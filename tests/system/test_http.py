#!/usr/bin/python3
"""Metrics, health and the status page over HTTP, with a client and a parser of their own."""

import contextlib
import ctypes
import fcntl
import json
import math
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import termios
import time

import numpy as np

from xopd import (BACKEND, BUILD, Daemon, INVALID_ARGUMENT, LIMIT_S, Memory, NOT_FOUND, faulty_operators,
                  raises, run)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
LOOPBACK = "127.0.0.1:0"


# ---- A client ----

def connect(daemon):
    """To where the log says that HTTP is."""
    where = daemon.wait_for(r"http: listening on (\S+)").group(1)
    if where.startswith("unix:"):
        s = socket.socket(socket.AF_UNIX)
        address = where[len("unix:"):].replace("@", "\0", 1)
    else:
        host, port = where.rsplit(":", 1)
        s = socket.socket(socket.AF_INET6 if host.startswith("[") else socket.AF_INET)
        address = host.strip("[]"), int(port)
    s.settimeout(LIMIT_S)
    s.connect(address)
    return s


def to_the_end(s):
    data = b""
    with contextlib.suppress(ConnectionError):
        while piece := s.recv(1 << 16):
            data += piece
    return data


def raw(daemon, request):
    """What the server answers until it closes the connection."""
    with connect(daemon) as s:
        s.sendall(request)
        return to_the_end(s)


class Answer:
    def __init__(self, data):
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("ascii").split("\r\n")
        match = re.fullmatch(r"HTTP/1\.[01] (\d{3}) .*", lines[0])
        assert match, data[:200]
        self.status = int(match.group(1))
        self.headers = {}
        for line in lines[1:]:
            name, value = line.split(": ", 1)
            self.headers[name.lower()] = value
        self.text = self.body.decode()


def ask(daemon, path, method="GET", host="localhost", version="1.1", headers=(), body=b""):
    lines = [f"{method} {path} HTTP/{version}", *([f"Host: {host}"] if host is not None else []), *headers]
    answer = Answer(raw(daemon, ("\r\n".join(lines) + "\r\n\r\n").encode() + body))
    if method != "HEAD" and "content-length" in answer.headers:
        assert int(answer.headers["content-length"]) == len(answer.body)
    return answer


def until(condition, what):
    """Asks again until it holds."""
    deadline = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        select.select([], [], [], 0.02)
    return found


# ---- A strict reader of Prometheus' text format 0.0.4 ----

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"'
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


def number(text):
    assert re.fullmatch(r"[+-]?Inf|NaN|[+-]?\d+(\.\d+)?(e[+-]?\d+)?", text), text
    return float(text.replace("Inf", "inf"))


def read_labels(text):
    assert re.fullmatch(rf"{LABEL}(,{LABEL})*", text), text
    found = [(name, re.sub(r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), value))
             for name, value in re.findall(LABEL, text)]
    assert len(dict(found)) == len(found), f"a label twice: {text}"
    return tuple(found)


def check_histogram(name, samples):
    """Buckets grow to +Inf, which is the count; each has its sum."""
    series = {}
    for (sample, labels), value in samples.items():
        rest = tuple(pair for pair in labels if pair[0] != "le")
        at = series.setdefault(rest, {"buckets": []})
        if sample == f"{name}_bucket":
            at["buckets"].append((number(dict(labels)["le"]), value))
        else:
            at[sample[len(name):]] = value
    for labels, at in series.items():
        bounds, counts = zip(*at["buckets"])
        assert list(bounds) == sorted(set(bounds)) and bounds[-1] == math.inf, (name, labels, bounds)
        assert list(counts) == sorted(counts) and counts[-1] == at["_count"], (name, labels, counts)
        assert at["_sum"] >= 0, (name, labels)


def read_metrics(text):
    """{(name, labels): value}; whatever the format does not allow is an error."""
    assert text.endswith("\n")
    samples, families, name, kind = {}, {}, None, None
    of_family = {}
    for line in text[:-1].split("\n"):
        if match := re.fullmatch(rf"# HELP ({NAME}) (.+)", line):
            if kind == "histogram":
                check_histogram(name, of_family)
            name, kind, of_family = match[1], None, {}
            assert name not in families, f"{name} in two places"
            families[name] = None
        elif match := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line):
            assert match[1] == name and kind is None, line
            families[name] = kind = match[2]
            assert name.endswith("_total") == (kind == "counter"), name
        else:
            match = re.fullmatch(rf"({NAME})(?:\{{(.*)\}})? (\S+)", line)
            assert match and kind, f"no sample: {line!r}"
            assert match[1] in [name + suffix for suffix in SUFFIXES[kind]], (name, line)
            key = match[1], read_labels(match[2]) if match[2] is not None else ()
            assert key not in samples, f"twice: {line}"
            samples[key] = of_family[key] = number(match[3])
            assert kind == "gauge" or samples[key] >= 0, line
    if kind == "histogram":
        check_histogram(name, of_family)
    assert None not in families.values(), families
    return samples, families


class Metrics:
    def __init__(self, daemon):
        answer = ask(daemon, "/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        self.text = answer.text
        self.samples, self.families = read_metrics(answer.text)

    def get(self, name, **labels):
        return self.samples[name, tuple(labels.items())]

    def find(self, name):
        return {labels: value for (n, labels), value in self.samples.items() if n == name}


def daemon_with(*arguments, http="unix", **keys):
    """http: an address, or a socket beside the daemon's own."""
    if http == "unix":
        http = "unix:@xopd-test-" + os.urandom(8).hex()
    return Daemon("--http", http, *arguments, **keys)


# ---- What is counted ----

X, B = np.ones((4, 8), np.float32), np.ones(8, np.float32)


def nothing_listens_unless_it_is_asked_for():
    with Daemon() as daemon:
        assert "http" not in daemon.log


def requests_are_counted_by_operator_pass_and_status():
    with daemon_with() as daemon, contextlib.closing(daemon.client()) as client:
        fresh = Metrics(daemon)
        assert not fresh.find("xopd_requests_total") and fresh.get("xopd_ready") == 1
        for _ in range(7):
            client.run("square_bias", [X, B])
        for _ in range(2):
            raises(INVALID_ARGUMENT, "", client.run, "square_bias", [X, B[:3]])
        for _ in range(3):
            client.run("sigmoid", [X, X], backward=True)
        raises(NOT_FOUND, "", client.run, "no_such", [X])
        metrics = Metrics(daemon)
        forward = {"operator": "square_bias", "pass": "forward"}
        backward = {"operator": "sigmoid", "pass": "backward"}
        assert metrics.get("xopd_requests_total", **forward, status="OK") == 7
        assert metrics.get("xopd_requests_total", **forward, status="INVALID_ARGUMENT") == 2
        assert metrics.get("xopd_requests_total", **backward, status="OK") == 3
        assert len(metrics.find("xopd_requests_total")) == 3
        assert metrics.get("xopd_requests_rejected_total", reason="no_operator") == 1
        for name in "xopd_request_queue_seconds", "xopd_request_run_seconds", "xopd_request_batch_size":
            assert metrics.get(f"{name}_count", **forward) == 7, name
            assert metrics.get(f"{name}_count", **backward) == 3, name
        # One after the other, so that each had a launch to itself.
        assert metrics.get("xopd_launches_total", **forward) == 7
        assert metrics.get("xopd_request_batch_size_sum", **forward) == 7
        assert metrics.get("xopd_request_batch_size_bucket", **forward, le="1") == 7
        assert 0 < metrics.get("xopd_request_run_seconds_sum", **forward) < 60
        # The same numbers as xopctl stats has.
        ops = {(op["name"], op["pass"]): op for op in client.document("stats")["operators"]}
        assert ops["square_bias", "forward"]["requests"] == 9
        assert ops["square_bias", "forward"]["errors"] == 2
        assert ops["sigmoid", "backward"]["requests"] == 3


def bytes_are_counted_by_the_way_they_travel():
    with daemon_with() as daemon, contextlib.closing(daemon.client()) as client:
        def moved():
            found = Metrics(daemon).find("xopd_tensor_bytes_total")
            return {tuple(dict(labels).values()): value for labels, value in found.items()}

        n = X.nbytes
        assert set(moved().values()) == {0}
        client.run("sigmoid", [X])
        assert moved() == {**moved(), ("inline", "in"): n, ("inline", "out"): n}
        client.put(1, X)
        after = moved()
        assert after["inline", "in"] == 2 * n and after["resident", "out"] == n, after
        client.get(1, X[:2]) # a piece
        after = moved()
        assert after["inline", "out"] == 1.5 * n and after["resident", "in"] == n / 2, after
        # From one resident to another nothing is inline.
        client.ask("forward", op="sigmoid", **{"in": [{"resident": 1}]}, out=[{"resident": 2}])
        after = moved()
        assert after["resident", "in"] == 1.5 * n and after["resident", "out"] == 2 * n, after
        assert after["inline", "in"] == 2 * n and after["inline", "out"] == 1.5 * n, after
        memory = Memory(1 << 16)
        memory.array(0, X.shape)[:] = X
        client.attach(5, memory.descriptor, memory.length)
        place = {"dtype": "f32", "shape": list(X.shape), "memory": 5}
        client.ask("forward", op="sigmoid", **{"in": [{**place, "offset": 0}]},
                   out=[{**place, "offset": 4096}])
        after = moved()
        assert after["shm", "in"] == n and after["shm", "out"] == n, after
        client.ask("put", handle=9, **{"in": [{**place, "offset": 0}]})
        after = moved()
        assert after["shm", "in"] == 2 * n and after["resident", "out"] == 3 * n, after
        assert after["inline", "in"] == 2 * n and after["inline", "out"] == 1.5 * n, after
        metrics = Metrics(daemon)
        assert metrics.get("xopd_attached_bytes") == memory.length
        assert metrics.get("xopd_resident_bytes") >= 2 * n
        # What runs no operator is there as well.
        assert metrics.get("xopd_requests_total", operator="(others)", **{"pass": "forward"},
                           status="OK") == 3


def connections_and_their_rejections_are_counted():
    config = "[server]\nmax_connections = 2\nhello_timeout_ms = 100\n"
    with daemon_with(config=config) as daemon:
        first, second = daemon.client(), daemon.client()
        third = daemon.client(hello=False)
        assert third.error_then_close()
        metrics = Metrics(daemon)
        assert metrics.get("xopd_connections") == 2 and metrics.get("xopd_connections_total") == 2
        assert metrics.get("xopd_connections_rejected_total", reason="limit") == 1
        second.close()
        until(lambda: Metrics(daemon).get("xopd_connections") == 1, "the second is still there")
        silent = daemon.client(hello=False)
        assert silent.error_then_close()
        assert Metrics(daemon).get("xopd_connections_rejected_total", reason="no_hello") == 1
        until(lambda: Metrics(daemon).get("xopd_connections") == 1, "the silent one is still there")
        wrong = daemon.client()
        wrong.send_raw(b"no frame at all, but longer than a prefix")
        assert wrong.error_then_close()
        metrics = Metrics(daemon)
        assert metrics.get("xopd_connections_rejected_total", reason="protocol") == 1
        assert metrics.get("xopd_connections_total") == 4
        first.send({"type": "forward", "id": 1, "op": 7})
        assert first.answer()[0]["status"] == INVALID_ARGUMENT
        assert Metrics(daemon).get("xopd_requests_rejected_total", reason="malformed") == 1


def what_lint_and_documents_say_holds():
    with daemon_with() as daemon, contextlib.closing(daemon.client()) as client:
        client.run("square_bias", [X, B])
        metrics = Metrics(daemon)
    promtool = shutil.which("promtool")
    if promtool:
        result = subprocess.run([promtool, "check", "metrics"], input=metrics.text, text=True,
                                capture_output=True, timeout=LIMIT_S)
        assert result.returncode == 0 and not result.stderr, result.stderr
    with open(os.path.join(ROOT, "docs/xopd.8")) as f:
        page = f.read()
    for family in metrics.families:
        assert f".It Li {family}" in page, f"{family} is not in xopd.8"
    documented = set(re.findall(r"^\.It Li ((?:xopd|process)_\w+)", page, re.M))
    with open(os.path.join(ROOT, "docs/grafana.json")) as f:
        dashboard = json.load(f)
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    used = set(re.findall(r"\bxopd_\w+", " ".join(expressions)))
    assert len(used) > 10
    for name in used:
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        assert name in documented or family in documented, f"{name} is no metric"


def a_gpu_tells_how_it_does():
    """On the CPU none of it is there; on a GPU with NVML what every one of them has."""
    with daemon_with() as daemon, contextlib.closing(daemon.client()) as client:
        def told():
            return {n: v for (n, labels), v in Metrics(daemon).samples.items() if n.startswith("xopd_gpu_")}

        try:
            ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            assert not told()
            return
        if BACKEND == "cpu":
            assert not told()
            return
        client.put(1, np.ones(1 << 24, np.float32))
        until(lambda: "xopd_gpu_temperature_celsius" in told(), "NVML does not answer:\n" + daemon.log)
        found = told()
        assert 0 <= found["xopd_gpu_utilization_ratio"] <= 1, found
        assert 0 <= found["xopd_gpu_memory_utilization_ratio"] <= 1, found
        assert 10 < found["xopd_gpu_temperature_celsius"] < 120, found
        assert 1 < found["xopd_gpu_power_watts"] < 3000, found
        assert 1 < found["xopd_gpu_power_limit_watts"] < 3000, found
        assert found["xopd_gpu_memory_used_bytes"] >= 1 << 26, found
        assert found["xopd_gpu_memory_used_bytes"] <= Metrics(daemon).get("xopd_device_memory_bytes") * 1.2


# ---- Health ----

def readiness_follows_the_worker():
    config = "[watchdog]\nheartbeat_ms = 200\n"
    with daemon_with(config=config) as daemon:
        assert ask(daemon, "/readyz").status == 200
        assert ask(daemon, "/livez").text == "alive\n"
        # The parent, which would replace it, stands still: so the state lasts.
        os.kill(daemon.process.pid, signal.SIGSTOP)
        try:
            os.kill(daemon.worker(), signal.SIGSTOP)
            answer = until(lambda: (a := ask(daemon, "/readyz")).status == 503 and a, "still ready")
            assert answer.text == "not ready: its loop stands still\n", answer.text
            assert Metrics(daemon).get("xopd_ready") == 0
            assert ask(daemon, "/livez").status == 200
        finally:
            os.kill(daemon.process.pid, signal.SIGCONT)
        daemon.wait_for("ready: ", count=2)
        assert ask(daemon, "/readyz").status == 200
        metrics = Metrics(daemon)
        assert metrics.get("xopd_ready") == 1 and metrics.get("xopd_worker_restarts_total") == 1


def a_server_that_drains_is_alive_and_not_ready():
    with faulty_operators() as arguments, daemon_with(*arguments) as daemon, contextlib.closing(daemon.client()) as client:
        client.submit("fault", [np.ones(4, np.float32)], attrs={"how": "endless"})
        until(lambda: Metrics(daemon).get("xopd_requests_in_flight") == 1, "nothing is in flight")
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait_for("draining")
        answer = ask(daemon, "/readyz")
        assert answer.status == 503 and "not ready: draining" in answer.text, answer.text
        assert ask(daemon, "/livez").status == 200
        client.close() # nothing is left to wait for


# ---- The page ----

def the_page_is_as_written_and_needs_nothing_from_elsewhere():
    with daemon_with(http=LOOPBACK) as daemon:
        for path, file, kind in (("/", "status.html", "text/html"), ("/status.js", "status.js", "text/javascript"),
                                 ("/status.css", "status.css", "text/css")):
            answer = ask(daemon, path)
            with open(os.path.join(ROOT, "daemon/front/page", file)) as f:
                assert answer.text == f.read(), file
            assert answer.headers["content-type"] == f"{kind}; charset=utf-8"
            assert answer.headers["content-security-policy"].startswith("default-src 'none';")
            assert answer.headers["x-content-type-options"] == "nosniff"
            elsewhere = set(re.findall(r"https?://[^\"'\s]*|url\([^)]*\)|@import.*", answer.text))
            assert elsewhere <= {"http://www.w3.org/2000/svg"}, elsewhere # a name, never fetched
            assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|style=", answer.text)


# ---- What clients may do ----

def only_reading_is_allowed():
    with daemon_with() as daemon:
        for method in "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE":
            answer = ask(daemon, "/metrics", method)
            assert answer.status == 405 and answer.headers["allow"] == "GET, HEAD", (method, answer.status)
        assert ask(daemon, "/metrics", "BREW").status == 501
        assert ask(daemon, "/metrics", "POST", headers=["Content-Length: 9"], body=b"123456789").status == 413
        head, get = ask(daemon, "/readyz", "HEAD"), ask(daemon, "/readyz")
        assert head.status == 200 and head.body == b""
        assert head.headers["content-length"] == get.headers["content-length"] == "6"
        for path in "/metrics/", "/etc/passwd", "/../status.js", "/status.html", "//metrics":
            assert ask(daemon, path).status == 404, path
        assert ask(daemon, "/metrics?x=1").status == 200


def malformed_and_oversized_requests_are_refused():
    with daemon_with() as daemon:
        for request in (b"GET\r\n\r\n", b"\0\1\2\3\r\n\r\n", b"GET /metrics HTTP/9.9.9\r\n\r\n",
                        b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", b"GET http://[::1 HTTP/1.1\r\nHost: a\r\n\r\n",
                        b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
                        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 20000 + b"\r\n\r\n",
                        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 5000 + b"\r\n"):
            data = raw(daemon, request)
            assert not data or Answer(data).status // 100 == 4, (request[:40], data[:80])
        assert ask(daemon, "/livez").status == 200


def a_name_that_is_not_the_servers_is_refused_on_loopback():
    for address, own in ((LOOPBACK, "127.0.0.1"), ("[::1]:0", "[::1]")):
        with daemon_with(http=address) as daemon:
            port = daemon.wait_for(r"http: listening on \S+:(\d+)").group(1)
            for host in "localhost", f"localhost:{port}", "LOCALHOST", own, f"{own}:{port}", "127.0.0.2":
                assert ask(daemon, "/metrics", host=host).status == 200, host
            for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "10.0.0.1", "[::2]", "",
                         "127.0.0.1.evil.example", "[::1", "a" * 500):
                assert ask(daemon, "/metrics", host=host).status in (400, 403), host
            assert ask(daemon, f"http://evil.example:{port}/metrics").status == 403
            assert ask(daemon, "/metrics", host=None).status == 400
            assert ask(daemon, "/metrics", host=None, version="1.0").status == 200 # no browser's
    with daemon_with() as daemon: # which no browser reaches
        assert ask(daemon, "/metrics", host="evil.example").status == 200


def a_client_that_trickles_is_cut_off():
    with daemon_with(config="[http]\ntimeout_ms = 200\n") as daemon, connect(daemon) as s:
        s.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        deadline = time.monotonic() + LIMIT_S
        with contextlib.suppress(ConnectionError): # the server ends it
            while not select.select([s], [], [], 0.02)[0]:
                assert time.monotonic() < deadline, "a request may last for ever"
                s.sendall(b"a")
        assert to_the_end(s) == b""
        assert ask(daemon, "/livez").status == 200


def a_silent_client_is_cut_off():
    with daemon_with(config="[http]\ntimeout_ms = 200\n") as daemon, connect(daemon) as s:
        assert to_the_end(s) == b""


def unread(s):
    """Whether the other end of a Unix socket has not read all that was sent."""
    return struct.unpack("i", fcntl.ioctl(s, termios.TIOCOUTQ, bytes(4)))[0] > 0


def those_who_are_too_many_wait_for_a_place():
    with daemon_with(config="[http]\nmax_connections = 2\n") as daemon:
        first, second = connect(daemon), connect(daemon)
        daemon.wait_for("http: 2 connections: more have to wait")
        with connect(daemon) as third:
            third.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for byte in b"GET /":
                first.sendall(bytes([byte]))
                until(lambda: not unread(first), "the first is not read from")
            assert unread(third), "the server went round, and took the third"
            first.close()
            assert Answer(to_the_end(third)).status == 200
        second.close()


def clients_of_the_daemon_do_not_notice():
    with daemon_with(config="[http]\nmax_connections = 4\n") as daemon, contextlib.closing(daemon.client()) as client:
        held = [connect(daemon) for _ in range(8)]
        for s in held:
            s.sendall(b"GET /metrics HTT")
        for _ in range(20):
            client.run("square_bias", [X, B])
        for s in held:
            s.close()


# ---- Configuration ----

def addresses_that_are_not_numeric_are_refused():
    for address in "localhost:9464", "9464", "127.0.0.1", "tcp:127.0.0.1:9464", ":9464", "127.0.0.1:http", "[::1]":
        result = subprocess.run([os.path.join(BUILD, "xopd"), "--http", address, "--check-config"],
                                capture_output=True, text=True, timeout=LIMIT_S)
        assert result.returncode == 78 and "http.listen is" in result.stderr, (address, result)


def an_address_that_is_taken_is_an_error():
    with daemon_with(http=LOOPBACK) as daemon:
        where = daemon.wait_for(r"http: listening on (\S+)").group(1)
        other = daemon_with(http=where, ready=False)
        assert other.process.wait(LIMIT_S) == 69
        other.wait_for(r"cannot start: .*Address already in use")
        other.stop()


def the_option_leaves_the_listeners_of_the_file_alone():
    with tempfile.TemporaryDirectory() as directory:
        path, web, file = (os.path.join(directory, name) for name in ("s", "web", "conf"))
        with open(file, "w") as f:
            f.write(f"[server]\nlisten = unix:{path}\nsocket_mode = 0600\n")
        process = subprocess.Popen([os.path.join(BUILD, "xopd"), "-c", file, "--backend", "cpu", "--http",
                                    f"unix:{web}"], stderr=subprocess.PIPE, text=True)
        try:
            log = ""
            while "ready: " not in log:
                line = process.stderr.readline()
                assert line, log
                log += line
            assert os.path.exists(path), log
            assert os.stat(web).st_mode & 0o777 == 0o600
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0 and not os.path.exists(web) and not os.path.exists(path)


if __name__ == "__main__":
    run([nothing_listens_unless_it_is_asked_for, requests_are_counted_by_operator_pass_and_status,
         bytes_are_counted_by_the_way_they_travel, connections_and_their_rejections_are_counted,
         what_lint_and_documents_say_holds, a_gpu_tells_how_it_does, readiness_follows_the_worker,
         a_server_that_drains_is_alive_and_not_ready, the_page_is_as_written_and_needs_nothing_from_elsewhere,
         only_reading_is_allowed, malformed_and_oversized_requests_are_refused,
         a_name_that_is_not_the_servers_is_refused_on_loopback, a_client_that_trickles_is_cut_off,
         a_silent_client_is_cut_off, those_who_are_too_many_wait_for_a_place, clients_of_the_daemon_do_not_notice,
         addresses_that_are_not_numeric_are_refused, an_address_that_is_taken_is_an_error,
         the_option_leaves_the_listeners_of_the_file_alone])
