#!/usr/bin/python3
"""Workers that end in every way, clients that hold on to what they can, logs that nobody reads."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile

import numpy as np

import xopd
from xopd import (BACKEND, BUILD, DEVICE_FAULT, INTERNAL, INVALID_ARGUMENT,
                  RESOURCE_EXHAUSTED, UNAVAILABLE, Client, Daemon, Failed, Memory,
                  faulty_operators, operands, raises, run, tensors)

X = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.array([1, 2, 3, 4], dtype=np.float32)
SMALL = np.arange(4, dtype=np.float32)


def serves(client):
    assert np.array_equal(client.run("square_bias", [X, B])[0], X * X + B)


def every_way_in_which_a_worker_ends_costs_the_guilty_alone():
    # Company waits with them in the same launch, and has its results.
    for how in ("abort", "exit", "hang"):
        with faulty_operators() as arguments, \
                Daemon(*arguments, config="[batch]\nmax_delay_us = 20000\n"
                       "[watchdog]\nheartbeat_ms = 400\nrequest_ms = 400\n",
                       env={"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") +
                            ":handle_abort=0"}) as daemon:
            guilty, mates = daemon.client(), daemon.client()
            with mates.one_write():
                ids = [mates.submit("fault", [SMALL + i]) for i in range(10)]
            number = guilty.submit("fault", [SMALL], attrs={"how": how})
            with mates.one_write():
                ids += [mates.submit("fault", [SMALL + i]) for i in range(10, 20)]
            header, _ = guilty.answer()
            assert header["id"] == number and header["status"] == DEVICE_FAULT, (how, header)
            found = {}
            for _ in ids:
                header, body = mates.answer()
                assert header["id"] not in found and not header.get("status"), (how, header)
                found[header["id"]] = tensors(header, body)[0]
            for i, number in enumerate(ids):
                assert np.array_equal(found[number], SMALL + i), (how, i)
            serves(guilty)


def a_launch_that_fails_costs_its_request_alone():
    with faulty_operators() as arguments, Daemon(*arguments) as daemon:
        client, other = daemon.client(), daemon.client()
        raises(INTERNAL, "does not want to", client.run, "fault", [X], attrs={"how": "refuse"})
        raises(RESOURCE_EXHAUSTED, "no more memory", client.run, "fault", [X], attrs={"how": "hog"})
        raises(RESOURCE_EXHAUSTED, "", client.run, "fault", [X], attrs={"how": "huge"})
        e = None
        try:
            client.run("fault", [X], attrs={"how": "size"})
        except Failed as failed:
            e = failed
        assert e and e.status in (INTERNAL, INVALID_ARGUMENT), e
        serves(other)
        assert client.document("stats")["server"]["restarts"] == 0


def poison_in_a_loop_does_not_hold_the_others_down():
    with faulty_operators() as arguments, Daemon(*arguments) as daemon:
        poison, other = daemon.client(), daemon.client()
        described, body = operands([SMALL])
        for round_ in range(5):
            poison.request("forward", body, op="fault", attrs={"how": "exit"}, **{"in": described})
            serves(other)
            header, _ = poison.answer()
            assert header["status"] in (DEVICE_FAULT, UNAVAILABLE), header
        serves(poison)


def a_worker_that_never_starts_is_tried_again_until_it_does():
    with tempfile.TemporaryDirectory() as build:
        backend = os.path.join(build, f"xop-{BACKEND}.so")
        shutil.copy(os.path.join(BUILD, "xopd"), build)
        with open(backend, "wb") as f:
            f.write(b"\x7fELF nothing more")
        kept, xopd.BUILD = xopd.BUILD, build
        try:
            daemon = Daemon(config="[log]\nlevel = debug\n", ready=False)
        finally:
            xopd.BUILD = kept
        with daemon:
            daemon.wait_for("ended: ", 3)
            # It is told once; what repeats is for who looks closely.
            assert len(re.findall("warn  front: worker generation .* ended: ", daemon.log)) == 1
            client = daemon.client()
            error = raises(UNAVAILABLE, "no worker", client.run, "square_bias", [X, B])
            assert len(error.message) > 20, error.message
            ping = client.document("ping")
            assert ping["ready"] is False, ping
            replaced = backend + ".new"
            shutil.copy(os.path.join(kept, f"xop-{BACKEND}.so"), replaced)
            os.rename(replaced, backend)
            daemon.wait_for("ready: ")
            serves(client)


def out_of_descriptors_those_there_are_served_and_those_who_wait_are_later():
    with Daemon(config="[server]\nmax_connections = 1000\n") as daemon:
        first = daemon.client()
        serves(first)
        front, = daemon.children()["xopd-front"]
        used = len(os.listdir(f"/proc/{front}/fd"))
        _, most = resource.prlimit(front, resource.RLIMIT_NOFILE)
        resource.prlimit(front, resource.RLIMIT_NOFILE, (used + 5, most))
        waiting = [daemon.client(hello=False) for _ in range(20)]
        daemon.wait_for("cannot accept: ")
        serves(first)
        memory = Memory(4096)
        try:  # its descriptor cannot come
            first.attach(1, memory.descriptor, 4096)
        except Failed as e:
            assert e.status in (INVALID_ARGUMENT, RESOURCE_EXHAUSTED), e
        serves(first)
        os.kill(daemon.worker(), signal.SIGKILL)  # and a new one needs some
        resource.prlimit(front, resource.RLIMIT_NOFILE, (most, most))
        for client in waiting:
            client.greet()
            serves(client)
        serves(first)


def who_sends_and_never_reads_is_given_up_in_bounded_memory():
    with Daemon(config="[server]\nwrite_timeout_ms = 300\n"
                "[device]\ninbox = 16M\noutbox = 16M\n") as daemon:
        greedy, other = daemon.client(), daemon.client()
        described, body = operands([np.zeros(1 << 16, np.float32)])
        greedy.socket.settimeout(0.1)
        sent = frame_number = 0
        ended = False
        while not ended:
            frame_number += 1
            assert frame_number < 100000
            try:
                greedy.send({"type": "forward", "id": frame_number, "op": "sigmoid",
                             "in": described}, body)
                sent += 1
            except socket.timeout:
                serves(other)
                # Half a frame may have gone: nothing that is whole can follow.
                while not ended:
                    try:
                        greedy.send_raw(b"X")
                    except socket.timeout:
                        serves(other)
                    except OSError:
                        ended = True
            except OSError:
                ended = True
        daemon.wait_for(r"client 1 .*ended")
        assert sent < 2000, sent
        while other.document("stats")["server"]["inbox_used"] > 0:
            pass
        serves(other)


def a_log_that_nobody_reads_holds_nothing_up():
    directory = tempfile.mkdtemp(prefix="xopd-test-")
    path = os.path.join(directory, "xopd.sock")
    read, write = os.pipe()
    process = subprocess.Popen([os.path.join(BUILD, "xopd"), "--backend", BACKEND, "--listen",
                                f"unix:{path}"], stderr=write)
    os.close(write)
    try:
        said = b""
        while b"ready: " not in said:
            piece = os.read(read, 65536)
            assert piece, said
            said += piece
        client = Client((socket.AF_UNIX, path))
        # Each has a line of its coming and one of its going, and the pipe holds 64 KiB.
        for _ in range(600):
            Client((socket.AF_UNIX, path)).close()
        serves(client)
        # Once it is read it says what it could not.
        os.set_blocking(read, False)
        said = b""
        while b"since nobody read the log" not in said:
            try:
                said += os.read(read, 65536)
            except BlockingIOError:
                Client((socket.AF_UNIX, path)).close()
        serves(client)
        # And it may go away altogether.
        os.close(read)
        read = -1
        for _ in range(10):
            Client((socket.AF_UNIX, path)).close()
        serves(client)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        if read >= 0:
            os.close(read)
        shutil.rmtree(directory)


def a_full_device_for_the_log_is_no_reason_to_stop():
    directory = tempfile.mkdtemp(prefix="xopd-test-")
    path = os.path.join(directory, "xopd.sock")
    with open("/dev/full", "w") as full:
        process = subprocess.Popen([os.path.join(BUILD, "xopd"), "--backend", BACKEND, "--listen",
                                    f"unix:{path}"], stderr=full)
    try:
        client = None
        while client is None:
            assert process.poll() is None
            try:
                client = Client((socket.AF_UNIX, path))
            except OSError:
                client = None
        serves(client)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        shutil.rmtree(directory)


def libraries_that_are_none_are_named_and_the_others_load():
    with faulty_operators() as (option, directory):
        name = f"fault-{BACKEND}.so"
        with open(os.path.join(directory, name), "rb") as f:
            whole = f.read()

        def put(other, data, mode=0o644):
            with open(os.path.join(directory, other), "wb") as f:
                f.write(data)
            os.chmod(os.path.join(directory, other), mode)

        put("truncated.so", whole[:len(whole) // 2])
        put("text.so", b"not an object\n")
        put("empty.so", b"")
        put("foreign.so", whole[:18] + b"\xf3\x00" + whole[20:])  # of another machine
        put("open.so", whole, 0o666)
        os.symlink("/lib/x86_64-linux-gnu/libc.so.6", os.path.join(directory, "outside.so"))
        os.mkfifo(os.path.join(directory, "pipe.so"))
        with Daemon(option, directory) as daemon:
            client = daemon.client()
            assert np.array_equal(client.run("fault", [X])[0], X)
            for other in ("truncated", "text", "empty", "foreign", "open", "outside", "pipe"):
                assert f"{other}.so" in daemon.log, (other, daemon.log)


run([every_way_in_which_a_worker_ends_costs_the_guilty_alone,
     a_launch_that_fails_costs_its_request_alone,
     poison_in_a_loop_does_not_hold_the_others_down,
     a_worker_that_never_starts_is_tried_again_until_it_does,
     out_of_descriptors_those_there_are_served_and_those_who_wait_are_later,
     who_sends_and_never_reads_is_given_up_in_bounded_memory,
     a_log_that_nobody_reads_holds_nothing_up,
     a_full_device_for_the_log_is_no_reason_to_stop,
     libraries_that_are_none_are_named_and_the_others_load])
