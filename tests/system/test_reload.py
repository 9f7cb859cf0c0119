#!/usr/bin/python3
"""SIGHUP: what changes without anybody being dropped, and what does not."""

import os
import signal

import numpy as np

from xopd import RESOURCE_EXHAUSTED, Daemon, Manager, raises, run

X = np.ones(3, np.float32)


def serves(client):
    return client.run("sigmoid", [X])[0].shape == (3,)


def the_log_level_changes_in_every_process():
    with Daemon(config="[log]\nlevel = info\n") as daemon:
        client = daemon.client()
        daemon.reload("[log]\nlevel = debug\n")
        daemon.wait_for("debug worker: ")
        daemon.client()
        daemon.wait_for(r"debug front: client 2 \(.*\): it is ")
        daemon.reload("[log]\nlevel = info\n", 'log.level: "info", was "debug"')
        assert serves(client)


def limits_change_for_those_who_are_connected():
    fixed = "[server]\nio_threads = 1\n"
    with Daemon(config=fixed + "max_connections = 1\n[quota]\nresident = 100\n") as daemon:
        client = daemon.client()
        raises(RESOURCE_EXHAUSTED, "quota.resident", client.put, 1, np.ones(100, np.float32))
        assert daemon.client(hello=False).error_then_close()
        daemon.reload(fixed + "max_connections = 2\n[quota]\nresident = 1M\n")
        daemon.wait_for('changed: quota.resident: "1048576", was "100"')
        assert serves(daemon.client())  # so that the thread has heard of it
        client.put(1, np.ones(100, np.float32))
        assert serves(client)


def requests_wait_for_company_as_long_as_it_says_now():
    with Daemon(config="[batch]\nmax = 2\n") as daemon:
        client = daemon.client()
        daemon.reload("[batch]\nmax = 2\nmax_delay_us = 1000000\n[log]\nlevel = debug\n")
        daemon.wait_for("worker: .*max_delay_us is 1000000")
        client.submit("sigmoid", [X])
        client.document("ping")
        client.submit("sigmoid", [X])
        assert [client.answer()[0]["batch"] for _ in range(2)] == [2, 2]
        # So does the next worker.
        os.kill(daemon.worker(), signal.SIGKILL)
        daemon.wait_for("ready: .*generation 2")
        client.submit("sigmoid", [X])
        client.document("ping")
        client.submit("sigmoid", [X])
        assert [client.answer()[0]["batch"] for _ in range(2)] == [2, 2]


def timeouts_change():
    with Daemon(config="[server]\nhello_timeout_ms = 3600000\n") as daemon:
        daemon.reload("[server]\nhello_timeout_ms = 10\n")
        assert "hello" in daemon.client(hello=False).error_then_close()["error"]


def what_needs_a_restart_is_named_and_left_as_it_is():
    with Daemon(config="[device]\ninbox = 32M\nstreams = 2\n") as daemon:
        client = daemon.client()
        daemon.reload("[device]\ninbox = 64M\nstreams = 2\n[server]\nmax_in_flight = 7\n")
        daemon.wait_for('warn *parent: this needs a restart: device.inbox: "67108864", '
                        'was "33554432"')
        assert client.hello["max_body"] == daemon.client().hello["max_body"]
        assert daemon.client().hello["max_in_flight"] == 7
        assert "streams" not in daemon.log


def a_wrong_file_changes_nothing():
    right = "[server]\nmax_in_flight = 5\n"
    with Daemon(config=right) as daemon:
        client = daemon.client()
        stays = "the configuration stays as it was"
        line = daemon.reload("[server]\nmax_in_flight = 6\nmin_rate = no\n", stays)
        assert f"{daemon.file}:3: server.min_rate" in line, line
        line = daemon.reload("[server]\nmax_in_flight = 6\n[device]\nrecords = 77\n", stays)
        assert "power of two" in line, line
        os.unlink(daemon.file)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("stays as it was: .*No such file")
        assert serves(client) and daemon.client().hello["max_in_flight"] == 5
        daemon.reload("[server]\nmax_in_flight = 6\n")
        assert daemon.client().hello["max_in_flight"] == 6


def the_command_line_still_comes_first():
    with Daemon("--log-level", "debug", config="[log]\nlevel = info\n") as daemon:
        daemon.reload("[log]\nlevel = error\n[server]\nmax_in_flight = 5\n")
        daemon.client()
        daemon.wait_for(r"debug front: client 1 \(.*\): it is ")


def nothing_is_lost_by_any_number_of_reloads():
    with Daemon(config="") as daemon:
        client = daemon.client()
        ids = set()
        for i in range(50):
            ids |= {client.submit("sigmoid", [X]) for _ in range(20)}
            daemon.write_config(f"[server]\nmax_in_flight = {2000 + i}\npoll_us = {i % 2 * 50}\n")
            daemon.process.send_signal(signal.SIGHUP)
        for _ in range(len(ids)):
            header, _ = client.answer()
            assert not header.get("status", 0), header
            ids.remove(header["id"])
        daemon.wait_for('server.max_in_flight: "2049"')


def the_service_manager_hears_of_it():
    manager = Manager()
    with Daemon(config="", env=manager.env) as daemon:
        manager.until(READY="1")
        for text in ("", "[server]\nnonsense = 1\n"):
            daemon.write_config(text)
            daemon.process.send_signal(signal.SIGHUP)
            assert int(manager.until(RELOADING="1")["MONOTONIC_USEC"]) > 0
            assert manager.receive() == {"READY": "1"}


run([the_log_level_changes_in_every_process,
     limits_change_for_those_who_are_connected,
     requests_wait_for_company_as_long_as_it_says_now,
     timeouts_change,
     what_needs_a_restart_is_named_and_left_as_it_is,
     a_wrong_file_changes_nothing,
     the_command_line_still_comes_first,
     nothing_is_lost_by_any_number_of_reloads,
     the_service_manager_hears_of_it])
