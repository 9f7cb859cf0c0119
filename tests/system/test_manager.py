#!/usr/bin/python3
"""The daemon as a service manager meets it: what it notifies, and what it writes to a journal."""

import os
import re
import signal
import subprocess

import numpy as np

from xopd import (BUILD, DEVICE_FAULT, NOT_FOUND, UNAVAILABLE, Daemon, Manager, faulty_operators,
                  frame, raises, run)

X = np.ones(3, np.float32)
XOPD = os.path.join(BUILD, "xopd")


def it_says_that_it_is_ready_and_what_it_does():
    manager = Manager()
    with Daemon(env=manager.env) as daemon:
        assert manager.until(READY="1")["STATUS"].startswith("serving on ")
        daemon.process.send_signal(signal.SIGTERM)
        manager.until(STOPPING="1")


def it_asks_for_as_much_time_as_its_drain_may_take():
    manager = Manager()
    with Daemon(config="[server]\ndrain_timeout_ms = 3600000\n", env=manager.env) as daemon:
        daemon.process.send_signal(signal.SIGTERM)
        message = manager.until(STOPPING="1")
        assert int(message["EXTEND_TIMEOUT_USEC"]) > 3600000000, message


def without_a_device_it_is_ready_to_say_why():
    manager = Manager()
    # No machine has a GPU of that number.
    with Daemon("--backend", "cuda", config="[device]\nindex = 1023\n", env=manager.env,
                ready=False) as daemon:
        status = manager.until(READY="1")["STATUS"]
        assert "requests are refused" in status, status
        raises(UNAVAILABLE, "no worker", daemon.client().run, "sigmoid", [X])


def a_worker_that_is_replaced_is_no_second_readiness():
    manager = Manager()
    with Daemon(env=manager.env) as daemon:
        manager.until(READY="1")
        os.kill(daemon.worker(), signal.SIGKILL)
        daemon.wait_for("ready: .* generation 2")
        message = manager.receive()
        assert "READY" not in message and "serving on" in message["STATUS"], message


def the_watchdog_is_fed_while_a_worker_is_replaced_too():
    manager = Manager()
    with Daemon(env={**manager.env, "WATCHDOG_USEC": "2000000"}) as daemon:
        manager.until(READY="1")
        for number in (2, 3):
            manager.until(WATCHDOG="1")
            os.kill(daemon.worker(), signal.SIGKILL)
            daemon.wait_for(f"ready: .* generation {number}")
        manager.until(WATCHDOG="1")
        assert "no sign of life" not in daemon.log


def a_watchdog_that_makes_no_sense_is_said_not_to_be_served():
    with Daemon(env={"WATCHDOG_USEC": "soon"}) as daemon:
        daemon.wait_for("WATCHDOG_USEC")


def written_to(stream, *arguments):
    """The log of a daemon that cannot start, with JOURNAL_STREAM made of the pipe by `stream`."""
    reading, writing = os.pipe()
    info = os.fstat(writing)
    env = {**os.environ, "JOURNAL_STREAM": stream(info.st_dev, info.st_ino)}
    subprocess.run([XOPD, "--listen", "unix:/proc/nowhere/x", *arguments], env=env, stderr=writing,
                   timeout=60)
    os.close(writing)
    with open(reading) as f:
        return f.read()


def priorities_are_written_to_the_journal_alone():
    log = written_to(lambda device, inode: f"{device}:{inode}")
    assert re.search(r"^<3>front: cannot start", log, re.M), log
    for other in (lambda d, i: f"{d}:{i + 1}", lambda d, i: f"{d + 1}:{i}", lambda d, i: "",
                  lambda d, i: f"{d}:{i}0"):
        log = written_to(other)
        assert re.search(r"^\d+-\d+-\S+Z error front: cannot start", log, re.M), log


def lines_name_client_and_request():
    with Daemon(config="[log]\nlevel = debug\n") as daemon:
        client = daemon.client()
        client.next_id = 77
        raises(NOT_FOUND, "no operator", client.run, "none", [X])
        who = rf"client 1 \(unix uid {os.getuid()} gid {os.getgid()} pid {os.getpid()}\)"
        daemon.wait_for(rf"debug front: {who} request 77: NOT_FOUND: there is no operator")
        daemon.wait_for(f"info  front: {who}: connected")
        client.send_raw(frame({"type": "forward", "id": 78}))
        client.answer()
        daemon.wait_for(f"info  front: {who} request 78: refused: ")
        client.close()
        daemon.wait_for(f"info  front: {who}: ended: closed")


def requests_that_end_workers_are_named():
    with faulty_operators() as arguments, \
            Daemon(*arguments, config="[watchdog]\nrequest_ms = 500\n") as daemon:
        client = daemon.client()
        client.next_id = 5
        raises(DEVICE_FAULT, "", client.run, "fault", [X], attrs={"how": "endless"})
        daemon.wait_for("warn  front: client 1 .* request 5: fault: it runs for longer")
        daemon.wait_for("warn  front: client 1 .* request 5: fault: workers end of it")


def nothing_below_the_level_is_written():
    manager = Manager()
    with Daemon("--log-level", "error", env=manager.env, ready=False) as daemon:
        manager.until(READY="1")
        daemon.client().run("sigmoid", [X])
        os.kill(daemon.worker(), signal.SIGKILL)
        assert daemon.client().run("sigmoid", [X])[0].shape == (3,)
        assert daemon.stop() == 0
        assert daemon.log == "(end)", daemon.log


def a_wrong_configuration_is_an_error_in_the_journal():
    log = written_to(lambda device, inode: f"{device}:{inode}", "-c", "/nowhere")
    assert log.startswith("<3>parent: ") and "/nowhere" in log and log.count("\n") == 1, log


run([it_says_that_it_is_ready_and_what_it_does,
     it_asks_for_as_much_time_as_its_drain_may_take,
     without_a_device_it_is_ready_to_say_why,
     a_worker_that_is_replaced_is_no_second_readiness,
     the_watchdog_is_fed_while_a_worker_is_replaced_too,
     a_watchdog_that_makes_no_sense_is_said_not_to_be_served,
     priorities_are_written_to_the_journal_alone,
     lines_name_client_and_request,
     requests_that_end_workers_are_named,
     nothing_below_the_level_is_written,
     a_wrong_configuration_is_an_error_in_the_journal])
