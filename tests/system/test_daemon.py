#!/usr/bin/python3
"""The daemon as an operator meets it: addresses, files, options, exit codes."""

import os
import signal
import socket
import subprocess
import tempfile

import numpy as np

from xopd import BUILD, Client, Closed, Daemon, Failed, run

XOPD = os.path.join(BUILD, "xopd")
X = np.ones(3, np.float32)


def call(*arguments):
    done = subprocess.run([XOPD, *arguments], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def the_socket_has_the_configured_mode():
    with Daemon(config="[server]\nsocket_mode = 0600\n") as daemon:
        assert os.stat(daemon.path).st_mode & 0o777 == 0o600


def a_stale_socket_file_is_taken_over_and_a_live_one_is_not():
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "s.sock")
        stale = socket.socket(socket.AF_UNIX)
        stale.bind(path)
        stale.close()
        with Daemon(listen=[f"unix:{path}"]):
            code, _, errors = call("--listen", f"unix:{path}")
            assert code == 69 and "in use" in errors, (code, errors)
            Client((socket.AF_UNIX, path)).close()


def what_is_no_socket_is_left_alone():
    with tempfile.NamedTemporaryFile() as file:
        code, _, errors = call("--listen", f"unix:{file.name}")
        assert code == 69 and "no socket" in errors
        assert os.path.exists(file.name)


def addresses_that_cannot_be_used_are_named():
    for address, fragment in [("unix:" + "/x" * 100, "bytes"), ("unix:/proc/nowhere/x", "/proc/nowhere/x"),
                              ("tcp:127.0.0.1:99999", "99999"), ("tcp:127.0.0.1", "host:port")]:
        code, _, errors = call("--insecure-tcp", "--listen", address)
        assert code == 69 and fragment in errors, (address, code, errors)


def tcp_needs_permission():
    code, _, errors = call("--listen", "tcp:127.0.0.1:0")
    assert code == 78 and "insecure_tcp" in errors, (code, errors)


def abstract_sockets_and_paths_with_spaces_work():
    with tempfile.TemporaryDirectory() as directory:
        name = f"xopd test {os.getpid()}"
        path = os.path.join(directory, "a b.sock")
        with Daemon(listen=[f"unix:@{name}", f"unix:{path}"]):
            for where in ("\0" + name, path):
                client = Client((socket.AF_UNIX, where))
                assert client.run("sigmoid", [X])[0].shape == (3,)


def ipv6_works_where_there_is_any():
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError:
        return
    with Daemon("--insecure-tcp", listen=["tcp:[::1]:0"]) as daemon:
        port = int(daemon.wait_for(r"listening on tcp:\[::1\]:(\d+)").group(1))
        client = Client((socket.AF_INET6, ("::1", port, 0, 0)))
        assert client.run("sigmoid", [X])[0].shape == (3,)


def bad_configuration_is_named_with_file_and_line():
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
        file.write("[device]\nbackend = gpu\n")
        file.flush()
        for arguments in (["-c", file.name], ["--check-config", "-c", file.name]):
            code, _, errors = call(*arguments)
            assert code == 78 and f"{file.name}:2:" in errors, (code, errors)
    code, out, _ = call("--check-config")
    assert code == 0 and "right" in out
    code, _, errors = call("-c", "/nonexistent")
    assert code == 78 and "No such file" in errors


def wrong_usage_exits_64():
    for arguments in (["--no-such"], ["stray"], ["--listen"]):
        code, _, _ = call(*arguments)
        assert code == 64, arguments
    for arguments in (["--help"], ["--version"], ["--help-config"]):
        code, out, _ = call(*arguments)
        assert code == 0 and out, arguments


def more_connections_than_allowed_are_told_so():
    with Daemon(config="[server]\nmax_connections = 3\n") as daemon:
        clients = [daemon.client() for _ in range(3)]
        refused = daemon.client(hello=False)
        error = refused.error_then_close()
        assert error["status"] == 14, error
        clients.pop().close()
        while True:  # until the server has seen that one close
            try:
                daemon.client()
                break
            except (Failed, Closed, OSError):
                pass
        assert clients[0].run("sigmoid", [X])[0].shape == (3,)


def silent_and_slow_clients_are_given_up():
    config = "[server]\nhello_timeout_ms = 200\nframe_timeout_ms = 200\n"
    with Daemon(config=config) as daemon:
        silent = daemon.client(hello=False)
        assert "hello" in silent.error_then_close()["error"]
        slow = daemon.client()
        slow.send_raw(b"XOP1")
        assert "slowly" in slow.error_then_close()["error"]
        idle = daemon.client()
        daemon.client().run("sigmoid", [X])
        assert idle.run("sigmoid", [X])[0].shape == (3,)


def signals_other_than_the_documented_are_ignored():
    with Daemon() as daemon:
        client = daemon.client()
        for kind in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE):
            daemon.process.send_signal(kind)
        assert client.run("sigmoid", [X])[0].shape == (3,)


def the_second_sigterm_ends_it_at_once():
    with Daemon(config="[batch]\nmax_delay_us = 1000000\n") as daemon:
        client = daemon.client()
        client.submit("sigmoid", [X])
        client.document("ping")
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait_for("draining")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(60) == 0


run([the_socket_has_the_configured_mode,
     a_stale_socket_file_is_taken_over_and_a_live_one_is_not,
     what_is_no_socket_is_left_alone,
     addresses_that_cannot_be_used_are_named,
     tcp_needs_permission,
     abstract_sockets_and_paths_with_spaces_work,
     ipv6_works_where_there_is_any,
     bad_configuration_is_named_with_file_and_line,
     wrong_usage_exits_64,
     more_connections_than_allowed_are_told_so,
     silent_and_slow_clients_are_given_up,
     signals_other_than_the_documented_are_ignored,
     the_second_sigterm_ends_it_at_once])
