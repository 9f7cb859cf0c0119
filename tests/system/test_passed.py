#!/usr/bin/python3
"""Sockets that a service manager passes on, and restarts that nobody is refused by."""

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

import numpy as np

from xopd import BUILD, UNAVAILABLE, Client, Closed, Daemon, Failed, run

X = np.ones(3, np.float32)


def high(made):
    """The same socket with a descriptor above those that passing gives."""
    moved = socket.socket(fileno=fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, 50))
    made.close()
    return moved


def unix_listener(path):
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
    made.listen(100)
    return high(made)


def tcp_listener():
    made = socket.create_server(("127.0.0.1", 0), backlog=100)
    return high(made)


def address(listener):
    return listener.family, listener.getsockname()


def serves(where):
    client = Client(where)
    return client.run("sigmoid", [X])[0].shape == (3,)


def passed_sockets_are_served_and_left_where_they_are():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "passed.sock")
        sockets = [("xopd.socket", unix_listener(path)), ("tcp", tcp_listener())]
        with Daemon("--insecure-tcp", passed=sockets) as daemon:
            for _, made in sockets:
                assert serves(address(made))
            # Where sockets are passed there is no default address.
            assert len(set(daemon.log.split("listening on ")[1:])) == 2, daemon.log
            assert daemon.stop() == 0
        assert os.path.exists(path)
        # And still listen: this waits for the next server.
        socket.create_connection(sockets[1][1].getsockname()).close()


def configured_addresses_that_were_passed_are_not_opened_again():
    with tempfile.TemporaryDirectory() as directory:
        passed, other = (os.path.join(directory, name) for name in ("passed.sock", "other.sock"))
        tcp = tcp_listener()
        sockets = [("any", unix_listener(passed)), ("any", tcp)]
        listen = [f"unix:{passed}", f"unix:{other}", f"tcp:127.0.0.1:{tcp.getsockname()[1]}"]
        with Daemon("--insecure-tcp", listen=listen, passed=sockets) as daemon:
            for where in [(socket.AF_UNIX, passed), (socket.AF_UNIX, other), address(tcp)]:
                assert serves(where)
            daemon.wait_for(r"listening on tcp:127\.0\.0\.1:\d+, which was passed")
        assert os.path.exists(passed) and not os.path.exists(other)


def what_is_passed_and_cannot_be_used_is_named():
    udp = high(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    for arguments, passed, expected in [
            ([], [("tcp", tcp_listener())], "insecure_tcp"),
            (["--insecure-tcp"], [("xopd.socket", tcp_listener())], "FileDescriptorName"),
            (["--insecure-tcp"], [("tls", tcp_listener())], "tls.cert"),
            ([], [("odd", udp)], r"descriptor 3 \(odd\)")]:
        daemon = Daemon(*arguments, passed=passed, ready=False)
        daemon.wait_for("cannot start: .*" + expected)
        assert daemon.process.wait(60) == 69
        daemon.stop()


def a_server_is_started_by_its_first_client():
    """As systemd does it: nothing runs until somebody connects."""
    if not shutil.which("systemd-socket-activate"):
        return
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "s.sock")
        manager = subprocess.Popen(["systemd-socket-activate", "-l", path, "--",
                                    os.path.join(BUILD, "xopd"), "--backend", "cpu"],
                                   stderr=subprocess.PIPE, text=True)
        try:
            for line in manager.stderr:
                if "Listening" in line:
                    break
            reader = threading.Thread(target=manager.stderr.read)
            reader.start()
            assert serves((socket.AF_UNIX, path))
        finally:
            manager.terminate()  # which is the daemon by now
            assert manager.wait(60) == 0
            reader.join()


class Regular(threading.Thread):
    """Connects, asks, and goes, again and again; who is told to go away comes again."""

    def __init__(self, where):
        super().__init__()
        self.where, self.ended, self.error = where, threading.Event(), None
        self.served, self.lock = 0, threading.Condition()

    def ask(self):
        client = Client(self.where)  # which says hello, and is answered
        try:
            client.run("sigmoid", [X])
        except Failed as e:
            assert e.status == UNAVAILABLE and "stop" in e.message, e.message
        except (Closed, ConnectionError):
            if not client.notices:  # sending failed: what came before is still to be read
                client.notices.append(client.receive()[0])
            assert [n["type"] for n in client.notices] == ["goaway"], client.notices
        else:
            with self.lock:
                self.served += 1
                self.lock.notify_all()
        client.close()

    def run(self):
        try:
            while not self.ended.is_set():
                self.ask()
        except BaseException as e:  # for the main thread
            self.error = e
        with self.lock:
            self.lock.notify_all()

    def wait_for_more(self, n):
        with self.lock:
            target = self.served + n
            assert self.lock.wait_for(lambda: self.served >= target or self.error, 60)
        assert not self.error, self.error


def a_restart_refuses_nobody():
    with tempfile.TemporaryDirectory() as directory:
        sockets = [("unix", unix_listener(os.path.join(directory, "a.sock"))),
                   ("unix", unix_listener(os.path.join(directory, "b.sock"))),
                   ("tcp", tcp_listener())]
        clients = [Regular(address(made)) for _, made in sockets]
        daemon = Daemon("--insecure-tcp", passed=sockets)
        for client in clients:
            client.start()
        try:
            for _ in range(3):
                for client in clients:
                    client.wait_for_more(5)
                daemon.process.send_signal(signal.SIGTERM)
                assert daemon.process.wait(60) == 0
                daemon.stop()
                daemon = Daemon("--insecure-tcp", passed=sockets)
            for client in clients:
                client.wait_for_more(5)
        finally:
            for client in clients:
                client.ended.set()
                client.join()
            daemon.stop()
        assert not any(client.error for client in clients), [client.error for client in clients]


run([passed_sockets_are_served_and_left_where_they_are,
     configured_addresses_that_were_passed_are_not_opened_again,
     what_is_passed_and_cannot_be_used_is_named,
     a_server_is_started_by_its_first_client,
     a_restart_refuses_nobody])
