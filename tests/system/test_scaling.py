#!/usr/bin/python3
"""What docs/scaling.md says, as it stands there: HAProxy before three servers, Kubernetes, Slurm."""

import contextlib
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

import numpy as np
import yaml

from certificates import Authority, TlsClient, context
from xopd import BUILD, LIMIT_S, UNAVAILABLE, Closed, Daemon, Failed, run

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
HAPROXY = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
XOPCTL = os.path.join(BUILD, "xopctl")


def examples(language):
    with open(os.path.join(ROOT, "docs/scaling.md")) as f:
        found = re.findall(rf"^```{language}\n(.*?)^```$", f.read(), re.M | re.S)
    assert found, language
    return found


# ---- HAProxy ----

def port_of(daemon, kind):
    return int(daemon.wait_for(kind + r"127\.0\.0\.1:(\d+)").group(1))


class Server(Daemon):
    def __init__(self, authority):
        certificate, key = authority.issue(f"server{id(self)}")
        super().__init__(listen=["tls:127.0.0.1:0"], config=f"[tls]\ncert = {certificate}\nkey = {key}\n"
                         "require_client_cert = no\n[http]\nlisten = 127.0.0.1:0\n")


class Balancer:
    """HAProxy with the configuration of the document, but for addresses."""

    def __init__(self, directory, servers):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        text, addresses = examples("haproxy")[0], iter(servers)
        text, n = re.subn("bind :7070", f"bind fd@{self.listener.fileno()}", text)
        assert n == 1
        text, n = re.subn(r"10\.0\.0\.\d:7070 port 9464",
                          lambda _: "127.0.0.1:{} port {}".format(
                              port_of((s := next(addresses)), "listening on tls:"),
                              port_of(s, "http: listening on ")), text)
        assert n == len(servers)
        path = os.path.join(directory, "haproxy.cfg")
        with open(path, "w") as f:
            f.write(text)
        checked = subprocess.run([HAPROXY, "-c", "-f", path], capture_output=True, text=True,
                                 pass_fds=[self.listener.fileno()], timeout=LIMIT_S)
        assert checked.returncode == 0 and "WARNING" not in checked.stderr, checked
        self.process = subprocess.Popen([HAPROXY, "-db", "-f", path], stderr=subprocess.PIPE,
                                        text=True, pass_fds=[self.listener.fileno()])
        self.log, self.lines = "", threading.Condition()
        self.reader = threading.Thread(target=self.read_log)
        self.reader.start()

    def read_log(self):
        for line in self.process.stderr:
            with self.lines:
                self.log += line
                self.lines.notify_all()
        with self.lines:
            self.log += "(end)"
            self.lines.notify_all()

    def has_said(self, pattern):
        with self.lines:
            self.lines.wait_for(lambda: re.search(f"{pattern}|\\(end\\)", self.log), LIMIT_S)
            assert re.search(pattern, self.log), self.log

    def wait_for(self, pattern):
        """What a client of TLS asks the log of a server for: the port."""
        return re.match(pattern, f"listening on tls:127.0.0.1:{self.port}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(LIMIT_S)
        self.reader.join()
        self.listener.close()


class Persistent(threading.Thread):
    """A client that runs one request after the other, and tries again as the document says."""

    def __init__(self, balancer, authority, number):
        super().__init__()
        self.balancer, self.context, self.number = balancer, context(authority, None), number
        self.answered, self.again, self.failed = 0, 0, None
        self.changed, self.ends = threading.Condition(), False

    def attempt(self, client, x):
        """The client for the next request."""
        if client is None or client.notices:
            if client:
                client.close()
            client = TlsClient(self.balancer, self.context)
        y, = client.run("sigmoid", [x])
        assert np.allclose(y, 1 / (1 + np.exp(-x)), rtol=1e-6), (self.number, self.answered)
        return client

    def run(self):
        client, deadline = None, time.monotonic() + LIMIT_S
        try:
            while not self.ends:
                # Other numbers each time: an answer to another request would be noticed.
                x = np.float32(self.number + self.answered % 97 / 97) + np.arange(7, dtype=np.float32)
                try:
                    client = self.attempt(client, x)
                except (Closed, OSError, Failed) as e:
                    assert not isinstance(e, Failed) or e.status == UNAVAILABLE, e
                    assert time.monotonic() < deadline, e
                    client, self.again = None, self.again + 1
                    select.select([], [], [], 0.01)
                    continue
                with self.changed:
                    self.answered += 1
                    self.changed.notify_all()
        except BaseException as e:
            with self.changed:
                self.failed = e
                self.changed.notify_all()

    def go_on(self, requests):
        """Waits until that many more have been answered."""
        with self.changed:
            wanted = self.answered + requests
            assert self.changed.wait_for(lambda: self.failed or self.answered >= wanted, LIMIT_S)
            if self.failed:
                raise self.failed


def connections(server):
    return len(re.findall(r"client \d+ .*: connected", server.log))


@contextlib.contextmanager
def balanced():
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        authority = Authority(os.path.join(directory, "ca"))
        servers = [stack.enter_context(Server(authority)) for _ in range(3)]
        yield authority, servers, stack.enter_context(Balancer(directory, servers))


def no_request_is_lost_where_servers_stop_and_die_under_load():
    with balanced() as (authority, servers, balancer):
        clients = [Persistent(balancer, authority, i) for i in range(6)]
        for client in clients:
            client.start()
        try:
            for client in clients:
                client.go_on(50)
            assert all(connections(server) > 0 for server in servers)
            servers[0].process.send_signal(signal.SIGTERM)
            assert servers[0].process.wait(LIMIT_S) == 0
            assert "not finished" not in servers[0].log, servers[0].log
            for client in clients:
                client.go_on(50)
            # With the parent the whole server is gone, and no goaway was said.
            front = servers[1].children()["xopd-front"][0]
            with contextlib.suppress(ProcessLookupError):
                os.kill(front, signal.SIGSTOP)
                servers[1].process.kill()
                os.kill(front, signal.SIGKILL)
            servers[1].process.wait(LIMIT_S)
            for client in clients:
                client.go_on(50)
        finally:
            for client in clients:
                client.ends = True
            for client in clients:
                client.join()
        assert not [c.failed for c in clients if c.failed]
        assert sum(client.again for client in clients) > 0
        servers[1].process.returncode = 0 # as it was to be


def a_server_that_drains_is_left_alone_and_finishes():
    with balanced() as (authority, servers, balancer):
        client = TlsClient(balancer, context(authority, None))
        with client.one_write():
            client.request("ping")
            put = client.request("put", bytes(4000), handle=1, **{"in": [{"dtype": "f32", "shape": [1000]}]})
            client.held, rest = client.held[:-2000], client.held[-2000:]
        client.answer()
        busy, = [s for s in servers if connections(s)]
        busy.process.send_signal(signal.SIGTERM)
        assert client.receive()[0]["type"] == "goaway"
        balancer.has_said(rf"Server xopd/{'abc'[servers.index(busy)]} is DOWN.*code: 503")
        for _ in range(8):
            other = TlsClient(balancer, context(authority, None))
            other.run("sigmoid", [np.zeros(1, np.float32)])
            assert not other.notices
            other.close()
        assert connections(busy) == 1
        client.send_raw(rest)
        header, _ = client.receive()
        assert header["id"] == put and not header.get("status", 0), header


def xopctl_verifies_the_certificate_of_the_server_through_the_balancer():
    with balanced() as (authority, _, balancer):
        found = subprocess.run([XOPCTL, "-s", f"tls:127.0.0.1:{balancer.port}", "--ca",
                                authority.at("ca.pem"), "ping"], capture_output=True, text=True,
                               timeout=LIMIT_S)
        assert found.returncode == 0 and "generation 1" in found.stdout, found


# ---- Kubernetes and Slurm ----

def the_daemon_set_is_one_and_names_what_xopd_has():
    with Daemon("--http", "127.0.0.1:0") as daemon:
        port = port_of(daemon, "http: listening on ")
        for text in examples("yaml"):
            document = yaml.safe_load(text)
            assert document["kind"] == "DaemonSet" and document["apiVersion"] == "apps/v1"
            pod = document["spec"]["template"]
            assert document["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
            container, = pod["spec"]["containers"]
            assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
            help_ = subprocess.run([os.path.join(BUILD, "xopd"), "--help"], capture_output=True,
                                   text=True, timeout=LIMIT_S).stdout
            for option in container["args"][::2]:
                assert option in help_, option
            listens = container["args"][container["args"].index("--http") + 1]
            names = {p["name"]: p["containerPort"] for p in container["ports"]}
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                get = container[probe]["httpGet"]
                assert listens.endswith(f":{names[get['port']]}")
                with socket.create_connection(("127.0.0.1", port), LIMIT_S) as s:
                    s.sendall(f"GET {get['path']} HTTP/1.0\r\n\r\n".encode())
                    assert b" 200 " in s.recv(100), get
            volumes = {v["name"] for v in pod["spec"]["volumes"]}
            assert {m["name"] for m in container["volumeMounts"]} <= volumes


def the_job_for_slurm_runs_its_tasks_and_leaves_nothing():
    with tempfile.TemporaryDirectory() as directory:
        # What Slurm has: srun, which runs the tasks; their program is the user's.
        for name, text in (("srun", 'shift; exec "$@"'),
                           ("work", "xopctl run sigmoid --in f32:[0] && echo $XOP_ADDRESS")):
            with open(os.path.join(directory, name), "w") as f:
                f.write(f"#!/bin/sh\n{text}\n")
            os.chmod(os.path.join(directory, name), 0o755)
        env = {**os.environ, "PATH": f"{directory}:{os.path.abspath(BUILD)}:{os.environ['PATH']}",
               "TMPDIR": directory}
        job, = examples("bash")
        found = subprocess.run(["bash", "-c", job], cwd=directory, env=env, capture_output=True,
                               text=True, timeout=LIMIT_S)
        assert found.returncode == 0 and "0.5" in found.stdout, found
        assert not os.path.exists(os.path.dirname(found.stdout.split("unix:")[1].strip()))


balanced_tests = [no_request_is_lost_where_servers_stop_and_die_under_load,
                  a_server_that_drains_is_left_alone_and_finishes,
                  xopctl_verifies_the_certificate_of_the_server_through_the_balancer]
if not HAPROXY:
    for test in balanced_tests:
        print(f"# skipped, as there is no haproxy: {test.__name__.replace('_', ' ')}")
run((balanced_tests if HAPROXY else []) +
    [the_daemon_set_is_one_and_names_what_xopd_has,
     the_job_for_slurm_runs_its_tasks_and_leaves_nothing])
