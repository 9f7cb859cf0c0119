#!/usr/bin/python3
"""Descriptors, memory, handles and contexts as no honest client would use them."""

import contextlib
import ctypes
import fcntl
import os
import re
import signal
import socket
import tempfile

import numpy as np

from xopd import (F_ADD_SEALS, INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED,
                  SEAL_SHRINK, Daemon, Failed, Memory, array, raises, run)

MIB = 1 << 20
X = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.array([1, 2, 3, 4], dtype=np.float32)
FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
MFD_HUGETLB = 4


def serves(client):
    assert np.array_equal(client.run("square_bias", [X, B])[0], X * X + B)


def at(memory, offset, *shape):
    return {"dtype": "f32", "shape": list(shape), "memory": memory, "offset": offset}


def descriptors(daemon):
    """How many each process has."""
    return {name: len(os.listdir(f"/proc/{pids[0]}/fd")) for name, pids in daemon.children().items()}


def until_as_before(daemon, before, watcher):
    """A descriptor may still be on its way out: each look is a request and its answer."""
    for _ in range(10000):
        if descriptors(daemon) == before:
            return
        watcher.document("ping")
    raise AssertionError((before, descriptors(daemon)))


@contextlib.contextmanager
def wrong_descriptors():
    """What is no sealed memfd, by name."""
    with contextlib.ExitStack() as stack:
        made = {}

        def keep(name, descriptor):
            stack.callback(os.close, descriptor)
            made[name] = descriptor

        pair = socket.socketpair()
        for name, end in zip(("a socket", "its other end"), pair):
            keep(name, end.detach())
        for name, end in zip(("a pipe", "where it is written"), os.pipe()):
            keep(name, end)
        for path in ("/dev/zero", "/dev/null", "/proc/self/status", "/"):
            keep(path, os.open(path, os.O_RDONLY))
        file = stack.enter_context(tempfile.TemporaryFile())
        os.ftruncate(file.fileno(), MIB)
        made["a file on disk"] = file.fileno()
        keep("an event counter", os.eventfd(0))
        keep("a path alone", os.open("/dev/shm", os.O_PATH))
        bare = os.memfd_create("bare", os.MFD_ALLOW_SEALING)
        os.ftruncate(bare, MIB)
        keep("not sealed", bare)
        keep("empty", os.memfd_create("empty", os.MFD_ALLOW_SEALING))
        fcntl.fcntl(made["empty"], F_ADD_SEALS, SEAL_SHRINK)
        with contextlib.suppress(OSError):
            huge = os.memfd_create("huge", os.MFD_ALLOW_SEALING | MFD_HUGETLB)
            keep("on huge pages", huge)
            os.ftruncate(huge, 2 * MIB)
            fcntl.fcntl(huge, F_ADD_SEALS, SEAL_SHRINK)
        yield made


def what_is_no_memory_is_refused_and_closed():
    with Daemon() as daemon, wrong_descriptors() as made:
        client = daemon.client()
        serves(client)
        before = descriptors(daemon)
        for name, descriptor in made.items():
            error = raises(INVALID_ARGUMENT, "", client.attach, 1, descriptor, MIB)
            assert len(error.message) > 20, (name, error.message)
        good = Memory(MIB)
        for length in (0, 2 * MIB, 2**40, 2**62, 2**63, 2**64 - 1):
            raises(INVALID_ARGUMENT, "", client.attach, 1, good.descriptor, length)
        number = client.request("attach", memory=1, length=MIB)  # without any
        header, _ = client.answer()
        assert header["id"] == number and header["status"] == INVALID_ARGUMENT, header
        client.send_with([good.descriptor] * 2, {"type": "attach", "id": 1000, "memory": 1,
                                                 "length": MIB})
        header, _ = client.answer()
        assert header["id"] == 1000, header
        if not header.get("status"):
            client.ask("detach", memory=1)
        until_as_before(daemon, before, client)
        client.attach(1, good.descriptor, MIB)
        serves(client)


def a_sparse_terabyte_is_refused_by_its_size():
    with Daemon(config="[quota]\nattached = 64M\n") as daemon:
        client = daemon.client()
        sparse = os.memfd_create("sparse", os.MFD_ALLOW_SEALING)
        os.ftruncate(sparse, 1 << 40)
        fcntl.fcntl(sparse, F_ADD_SEALS, SEAL_SHRINK)
        raises(RESOURCE_EXHAUSTED, "quota.attached", client.attach, 1, sparse, 1 << 40)
        client.attach(1, sparse, MIB)  # a part of it is as good as any
        client.ask("forward", op="sigmoid", **{"in": [at(1, 0, 16)], "out": [at(1, 4096, 16)]})
        os.close(sparse)
        serves(client)


def descriptors_with_frames_that_take_none_and_too_many_at_once():
    with Daemon() as daemon:
        client, watcher = daemon.client(), daemon.client()
        before = descriptors(daemon)
        memory = Memory(MIB)
        for _ in range(20):
            other = daemon.client()
            other.socket.sendmsg([b"X"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                           array.array("i", [memory.descriptor] * 250))])
            other.close()
        # In one write each, without ever a whole frame.
        for byte in b"XOP1":
            client.socket.sendmsg([bytes([byte])],
                                  [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                    array.array("i", [memory.descriptor] * 250))])
        client.close()
        before["xopd-front"] -= 1
        until_as_before(daemon, before, watcher)
        serves(watcher)


def holes_and_scribbles_while_it_is_in_use_change_only_its_own_numbers():
    with Daemon() as daemon:
        client, other = daemon.client(), daemon.client()
        n = 400000
        memory = Memory(4 * MIB)
        client.attach(1, memory.descriptor, memory.length)
        libc = ctypes.CDLL(None, use_errno=True)
        for round_ in range(30):
            number = client.request("forward", op="sigmoid", **{"in": [at(1, 0, n)],
                                                                "out": [at(1, 2 * MIB, n)]})
            punched = libc.fallocate(memory.descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                     ctypes.c_long(0), ctypes.c_long(2 * MIB))
            assert punched == 0
            memory.map[:4096] = bytes([round_]) * 4096
            serves(other)
            header, _ = client.answer()
            assert header["id"] == number and not header.get("status"), header
        assert other.document("stats")["server"]["restarts"] == 0


def what_is_anothers_or_was_never_reads_the_same():
    """The sentence for a number that exists elsewhere is that for one that does not."""
    with Daemon() as daemon:
        owner, thief = daemon.client(), daemon.client()
        memory = Memory(MIB)
        owner.put(5, X)
        owner.attach(5, memory.descriptor, MIB)
        owner.run("square_bias", [X, B], keep=5)
        asks = [lambda n: thief.get(n, X), lambda n: thief.ask("free", handle=n),
                lambda n: thief.ask("detach", memory=n),
                lambda n: thief.ask("forward", op="sigmoid", **{"in": [at(n, 0, 4)]}),
                lambda n: thief.ask("forward", op="sigmoid", **{"in": [{"resident": n}]}),
                lambda n: thief.run("square_bias", [X, B, X], backward=True, context=n)]
        for ask in asks:
            said = []
            for number in (5, 6, 2**63, 2**64 - 1):
                try:
                    ask(number)
                except Failed as e:
                    said.append((e.status, e.message.replace(str(number), "N")))
            assert len(said) == 4 and len(set(said)) == 1, said
        assert np.array_equal(owner.get(5, X), X)
        owner.ask("forward", op="sigmoid", **{"in": [at(5, 0, 4)]})


def handles_after_free_twice_and_in_use():
    with Daemon(config="[batch]\nmax_delay_us = 100000\n") as daemon:
        client = daemon.client()
        client.put(1, X)
        with client.one_write():
            number = client.request("forward", op="sigmoid", **{"in": [{"resident": 1}]})
            freed = client.request("free", handle=1)
            again = client.request("free", handle=1)
        found = {}
        for _ in range(3):
            header, _ = client.answer()
            found[header["id"]] = header
        assert not found[number].get("status") and not found[freed].get("status"), found
        assert found[again]["status"] == NOT_FOUND, found
        raises(NOT_FOUND, "", client.get, 1, X)
        client.put(1, X)  # the number is free for another
        os.kill(daemon.worker(), signal.SIGKILL)
        daemon.wait_for("ready: ", 2)
        client.ask("free", handle=1)
        raises(NOT_FOUND, "", client.get, 1, X)
        raises(NOT_FOUND, "", client.ask, "free", handle=1)


def detach_and_leave_while_requests_use_it():
    with Daemon(config="[batch]\nmax_delay_us = 50000\n") as daemon:
        watcher = daemon.client()
        for leave in (False, True):
            client, memory, n = daemon.client(), Memory(4 * MIB), 300000
            client.attach(1, memory.descriptor, memory.length)
            with client.one_write():
                ids = [client.request("forward", op="sigmoid", **{"in": [at(1, 0, n)],
                                                                  "out": [at(1, 2 * MIB, n)]})
                       for _ in range(6)]
                gone = client.request("detach", memory=1)
                late = client.request("forward", op="sigmoid", **{"in": [at(1, 0, n)]})
            if leave:
                client.close()
                continue
            found = {}
            while len(found) < len(ids) + 2:
                header, _ = client.answer()
                found[header["id"]] = header.get("status", 0)
            assert [found[i] for i in ids + [gone]] == [0] * 7, found
            assert found[late] == NOT_FOUND, found
            client.close()
        while watcher.document("stats")["server"]["attached_bytes"] > 0:
            pass
        serves(watcher)


def outputs_that_overlap_are_refused():
    with Daemon() as daemon:
        client, memory = daemon.client(), Memory(MIB)
        client.attach(1, memory.descriptor, MIB)
        # The same input twice is as good as two.
        client.ask("forward", op="square_bias", **{"in": [at(1, 0, 16), at(1, 0, 16)],
                                                   "out": [at(1, 4096, 16)]})
        for inputs, out in (([at(1, 0, 64), at(1, 64, 64)], at(1, 64, 64)),
                            ([at(1, 0, 64), at(1, 4096, 64)], at(1, 64, 64))):
            raises(INVALID_ARGUMENT, "", client.ask, "forward", op="square_bias",
                   **{"in": inputs, "out": [out]})
        raises(INVALID_ARGUMENT, "", client.ask, "backward", op="square_bias",
               **{"in": [at(1, 0, 64), at(1, 4096, 64), at(1, 8192, 64)],
                  "out": [at(1, 16384, 64), at(1, 16384 + 64, 64)]})
        serves(client)


def nothing_of_the_server_is_in_its_errors():
    with Daemon() as daemon:
        client, memory = daemon.client(), Memory(MIB)
        client.attach(1, memory.descriptor, MIB)
        said = []
        for ask in (lambda: client.run("none", [X]), lambda: client.attach(1, memory.descriptor, MIB),
                    lambda: client.attach(2, 0, MIB), lambda: client.get(9, X),
                    lambda: client.run("square_bias", [X, X[:, :3]]),
                    lambda: client.ask("forward", op="sigmoid", **{"in": [at(1, MIB, 4)]}),
                    lambda: client.ask("forward", op="sigmoid", **{"in": [at(1, 2**63, 4)]}),
                    lambda: client.put(1, np.zeros(1 << 14, np.float32), offset=2**62)):
            try:
                ask()
            except Failed as e:
                said.append(e.message)
        assert len(said) == 8, said
        for text in said + [line for line in daemon.log.splitlines() if " client " in line]:
            assert not re.search(r"0x[0-9a-f]{6,}|/proc/|/tmp/|\.so\b|memfd:|xopd-inbox", text), text


run([what_is_no_memory_is_refused_and_closed,
     a_sparse_terabyte_is_refused_by_its_size,
     descriptors_with_frames_that_take_none_and_too_many_at_once,
     holes_and_scribbles_while_it_is_in_use_change_only_its_own_numbers,
     what_is_anothers_or_was_never_reads_the_same,
     handles_after_free_twice_and_in_use,
     detach_and_leave_while_requests_use_it,
     outputs_that_overlap_are_refused,
     nothing_of_the_server_is_in_its_errors])
