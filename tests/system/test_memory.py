#!/usr/bin/python3
"""Tensors in memory that clients share: read and written in place, in order, and only theirs."""

import fcntl
import os
import signal
import socket
import tempfile

import numpy as np

from xopd import (ABORTED, ALREADY_EXISTS, CANCELLED, Client, Daemon, FAILED_PRECONDITION,
                  INVALID_ARGUMENT, Memory, NAMES, NOT_FOUND, PERMISSION_DENIED,
                  RESOURCE_EXHAUSTED, F_ADD_SEALS, SEAL_SHRINK, operands, raises, run, tensors)

RNG = np.random.default_rng(11)
MIB = 1 << 20


def at(memory, offset, *shape, dtype="f32"):
    return {"dtype": dtype, "shape": list(shape), "memory": memory, "offset": offset}


def forward(client, op, inputs, out=None, **keys):
    keys.update({"out": out} if out else {})
    return client.request("forward", op=op, **{"in": inputs}, **keys)


def ok(client, number):
    header, body = client.answer()
    assert header["id"] == number and not header.get("status"), header
    return header, body


def inputs_and_outputs_lie_in_it():
    with Daemon() as daemon:
        client, memory, n = daemon.client(), Memory(4 * MIB), 1000
        client.attach(1, memory.descriptor, memory.length)
        x, b = memory.array(0, n), memory.array(4096, n)
        y = memory.array(2 * MIB, n)
        for _ in range(3):
            x[:], b[:] = RNG.standard_normal(n), RNG.standard_normal(n)
            number = forward(client, "square_bias", [at(1, 0, n), at(1, 4096, n)],
                             [at(1, 2 * MIB, n)])
            header, body = ok(client, number)
            assert not body and header["out"] == [{"dtype": "f32", "shape": [n], "memory": 1,
                                                   "offset": 2 * MIB}], header
            assert np.array_equal(y, x * x + b)
        # An output whose shape is left to the server, and inputs beside tensors of the body.
        y[:] = 0
        described, body = operands([np.array(b)])
        number = client.request("forward", body, op="square_bias",
                                **{"in": [at(1, 0, n)] + described,
                                   "out": [{"memory": 1, "offset": 2 * MIB}]})
        ok(client, number)
        assert np.array_equal(y, x * x + b)
        number = forward(client, "square_bias", [at(1, 0, n), at(1, 4096, n)])
        header, body = ok(client, number)
        assert np.array_equal(tensors(header, body)[0], y)
        client.ask("detach", memory=1)
        raises(NOT_FOUND, "no memory 1", client.ask, "forward", op="sigmoid",
               **{"in": [at(1, 0, n)]})
        raises(NOT_FOUND, "no memory 1", client.ask, "detach", memory=1)
        assert client.document("stats")["server"]["attached_bytes"] == 0


def the_three_paths_give_the_same_bits():
    with Daemon() as daemon:
        client, memory = daemon.client(), Memory(16 * MIB)
        client.attach(1, memory.descriptor, memory.length)
        for dtype, name in [(np.float16, "f16"), (np.float32, "f32"), (np.float64, "f64")]:
            for op in ("square_bias", "sigmoid", "bose_einstein"):
                for shape in ((1,), (1000,), (300, 700)):
                    count = int(np.prod(shape))
                    inputs = [RNG.standard_normal(shape).astype(dtype)
                              for _ in range(2 if op == "square_bias" else 1)]
                    inline = client.run(op, inputs)[0]
                    for i, value in enumerate(inputs):
                        memory.array(i * 4 * MIB, shape, dtype)[:] = value
                        client.put(i + 1, value)
                    number = forward(client, op,
                                     [at(1, i * 4 * MIB, *shape, dtype=name)
                                      for i in range(len(inputs))],
                                     [at(1, 12 * MIB, *shape, dtype=name)])
                    ok(client, number)
                    shared = memory.array(12 * MIB, shape, dtype)
                    number = forward(client, op, [{"resident": i + 1} for i in range(len(inputs))],
                                     [{"resident": 9}])
                    ok(client, number)
                    resident = client.get(9, inline)
                    assert inline.tobytes() == shared.tobytes() == resident.tobytes(), (op, dtype)
                    for i in list(range(1, len(inputs) + 1)) + [9]:
                        client.ask("free", handle=i)
                    assert count


def requests_that_overlap_run_in_order():
    with Daemon() as daemon:
        client, memory, n = daemon.client(), Memory(MIB), 5000
        client.attach(1, memory.descriptor, memory.length)
        x = RNG.standard_normal(n).astype(np.float32)
        memory.array(0, n)[:] = x
        # Each reads what the one before wrote, back and forth between two places.
        places = (0, 65536)
        ids = [forward(client, "sigmoid", [at(1, places[i % 2], n)], [at(1, places[(i + 1) % 2], n)])
               for i in range(50)]
        for _ in ids:
            header, _ = client.answer()
            assert not header.get("status"), header
        for _ in ids:
            x = client.run("sigmoid", [x])[0]
        assert np.array_equal(memory.array(0, n), x)
        with client.one_write():
            bad = forward(client, "square_bias", [at(1, 0, n), at(1, 0, 3)], [at(1, 65536, n)])
            behind = forward(client, "sigmoid", [at(1, 65536, n)])
            beside = forward(client, "sigmoid", [at(1, 0, n)])
        found = {}
        for _ in range(3):
            header, _ = client.answer()
            found[header["id"]] = header
        assert found[bad]["status"] == INVALID_ARGUMENT
        assert found[behind]["status"] == ABORTED and str(bad) in found[behind]["error"]
        assert not found[beside].get("status")


def in_place_is_what_an_operator_says():
    with Daemon() as daemon:
        client, memory, n = daemon.client(), Memory(MIB), 100
        client.attach(1, memory.descriptor, memory.length)
        x = RNG.standard_normal(n).astype(np.float32)
        memory.array(0, n)[:] = x
        ok(client, forward(client, "sigmoid", [at(1, 0, n)], [at(1, 0, n)]))
        assert np.array_equal(memory.array(0, n), client.run("sigmoid", [x])[0])
        # Not shifted, and not with an operator that does not say so.
        raises(INVALID_ARGUMENT, "overlap", client.ask, "forward", op="sigmoid",
               **{"in": [at(1, 0, n)], "out": [at(1, 64, n)]})
        raises(INVALID_ARGUMENT, "overlap", client.ask, "forward", op="square_bias",
               **{"in": [at(1, 0, n), at(1, 4096, n)], "out": [at(1, 4096, n)]})


def what_is_no_such_memory_is_refused():
    with Daemon() as daemon:
        client = daemon.client()
        plain = Memory(MIB, seals=0)
        raises(INVALID_ARGUMENT, "F_SEAL_SHRINK", client.attach, 1, plain.descriptor, MIB)
        sealed = Memory(MIB)
        raises(INVALID_ARGUMENT, "length", client.attach, 1, sealed.descriptor, MIB + 1)
        raises(INVALID_ARGUMENT, "length", client.attach, 1, sealed.descriptor, 0)
        with tempfile.TemporaryFile() as file:
            os.ftruncate(file.fileno(), MIB)
            raises(INVALID_ARGUMENT, "memfd", client.attach, 1, file.fileno(), MIB)
        read, write = os.pipe()
        raises(INVALID_ARGUMENT, "", client.attach, 1, read, MIB)
        raises(INVALID_ARGUMENT, "no descriptor", client.ask, "attach", memory=1, length=MIB)
        # Sealed against writing: it can be read, and not attached for more.
        frozen = os.memfd_create("frozen", os.MFD_ALLOW_SEALING)
        os.ftruncate(frozen, MIB)
        fcntl.fcntl(frozen, F_ADD_SEALS, SEAL_SHRINK | 8)
        e = raises(INVALID_ARGUMENT, "", client.attach, 1, frozen, MIB, True)
        assert "writ" in e.message, e.message
        client.attach(1, frozen, MIB, False)
        raises(ALREADY_EXISTS, "memory 1", client.attach, 1, sealed.descriptor, MIB)
        raises(PERMISSION_DENIED, "reading alone", client.ask, "forward", op="sigmoid",
               **{"in": [at(1, 0, 4)], "out": [at(1, 4096, 4)]})
        raises(PERMISSION_DENIED, "reading alone", client.ask, "forward", op="sigmoid",
               **{"in": [dict(at(1, 0, 4), access="rw")]})
        raises(INVALID_ARGUMENT, "1048576 bytes", client.ask, "forward", op="sigmoid",
               **{"in": [at(1, MIB - 64, 17)]})
        raises(INVALID_ARGUMENT, "not a multiple of 64", client.ask, "forward", op="sigmoid",
               **{"in": [at(1, 4, 4)]})
        raises(NOT_FOUND, "no memory 2", client.ask, "forward", op="sigmoid", **{"in": [at(2, 0, 4)]})
        assert np.array_equal(client.run("sigmoid", [np.zeros(3, np.float32)])[0],
                              np.full(3, .5, np.float32))


def memory_is_a_connections_own():
    with Daemon() as daemon:
        first, second, memory = daemon.client(), daemon.client(), Memory(MIB)
        first.attach(1, memory.descriptor, MIB)
        raises(NOT_FOUND, "no memory 1", second.ask, "forward", op="sigmoid",
               **{"in": [at(1, 0, 4)]})
        second.attach(1, memory.descriptor, MIB) # the same may be attached twice
        first.close()
        while second.document("stats")["server"]["attached_bytes"] > MIB:
            pass
        ok(second, forward(second, "sigmoid", [at(1, 0, 4)]))


def quotas_hold():
    with Daemon(config="[quota]\nattached = 1M\n[device]\nattached = 3M\n") as daemon:
        client = daemon.client()
        large, small = Memory(2 * MIB), Memory(MIB)
        raises(RESOURCE_EXHAUSTED, "quota.attached", client.attach, 1, large.descriptor, 2 * MIB)
        client.attach(1, small.descriptor, MIB)
        raises(RESOURCE_EXHAUSTED, "quota.attached", client.attach, 2, small.descriptor, MIB)
        others = [daemon.client() for _ in range(3)]
        others[0].attach(1, small.descriptor, MIB)
        others[1].attach(1, small.descriptor, MIB)
        raises(RESOURCE_EXHAUSTED, "device.attached", others[2].attach, 1, small.descriptor, MIB)
        client.ask("detach", memory=1)
        others[2].attach(1, small.descriptor, MIB)


def it_is_there_again_after_the_workers_death():
    with Daemon() as daemon:
        client, memory, n = daemon.client(), Memory(4 * MIB), 100000
        client.attach(1, memory.descriptor, memory.length)
        x, y = memory.array(0, n), memory.array(2 * MIB, n)
        for round_ in range(1, 4):
            x[:] = RNG.standard_normal(n)
            ids = [forward(client, "square_bias", [at(1, 0, n), at(1, 0, 1)],
                           [at(1, 2 * MIB, n)]) for _ in range(10)]
            daemon.wait_for("ready: ", round_)
            os.kill(daemon.worker(), signal.SIGKILL)
            for _ in ids:
                header, _ = client.answer()
                assert not header.get("status"), header
            assert np.array_equal(y, x * x + x[0])


def an_attach_that_failed_attached_nothing():
    with Daemon(config="[watchdog]\nheartbeat_ms = 60000\n") as daemon:
        client, memory, n = daemon.client(), Memory(4096), 16
        worker = daemon.worker()
        os.kill(worker, signal.SIGSTOP)
        client.send_with([memory.descriptor], {"type": "attach", "id": 1000, "memory": 1,
                                               "length": 4096, "write": True})
        client.request("cancel", target=1000)
        answers = [client.answer()[0] for _ in range(2)]
        assert {h["id"]: h.get("status", 0) for h in answers}[1000] == CANCELLED, answers
        client.send_with([memory.descriptor], {"type": "attach", "id": 1001, "memory": 1,
                                               "length": 4096, "write": True})
        os.kill(worker, signal.SIGCONT)
        ok(client, 1001)
        x, y = memory.array(0, n), memory.array(1024, n)
        x[:] = RNG.standard_normal(n)
        ok(client, forward(client, "square_bias", [at(1, 0, n), at(1, 0, n)], [at(1, 1024, n)]))
        assert np.array_equal(y, x * x + x)


def empty_tensors_in_it_are_as_good_after_the_workers_death():
    with Daemon() as daemon:
        client, memory = daemon.client(), Memory(MIB)
        client.attach(1, memory.descriptor, memory.length)
        os.kill(daemon.worker(), signal.SIGKILL)
        daemon.wait_for(r"ready: ", 2)
        header, body = ok(client, forward(client, "sigmoid", [at(1, 0, 0)], [at(1, 64, 0)]))
        assert not body and header["out"][0]["shape"] == [0], header


def a_client_that_goes_away_with_requests_in_flight_harms_nobody():
    with Daemon() as daemon:
        other = daemon.client()
        for _ in range(20):
            client, memory, n = daemon.client(), Memory(4 * MIB), 200000
            client.attach(1, memory.descriptor, memory.length)
            for _ in range(8):
                forward(client, "sigmoid", [at(1, 0, n)], [at(1, 2 * MIB, n)])
            # It cuts holes into it, writes it, and is gone.
            memory.map[:4096] = b"\xff" * 4096
            client.close()
            memory.map.close()
            os.close(memory.descriptor)
        while other.document("stats")["server"]["attached_bytes"] > 0:
            pass
        assert np.array_equal(other.run("sigmoid", [np.zeros(3, np.float32)])[0],
                              np.full(3, .5, np.float32))
        assert other.document("stats")["server"]["restarts"] == 0


def descriptors_that_nobody_asked_for_are_closed():
    with Daemon() as daemon:
        client = daemon.client()
        front = daemon.children()["xopd-front"][0]
        count = lambda: len(os.listdir(f"/proc/{front}/fd"))
        before = count()
        memory = Memory(4096)
        for i in range(30):
            number = client.next_id
            client.next_id += 1
            client.send_with([memory.descriptor] * 8, {"type": "ping", "id": number})
            client.answer()
        # More than are kept, with one frame.
        client.send_with([memory.descriptor] * 200, {"type": "ping", "id": 10 ** 6})
        client.answer()
        assert count() <= before + 1, (count(), before)


def tcp_takes_no_memory():
    with Daemon("--insecure-tcp", listen=["tcp:127.0.0.1:0"]) as daemon:
        port = int(daemon.wait_for(r"listening on tcp:127.0.0.1:(\d+)").group(1))
        client = Client((socket.AF_INET, ("127.0.0.1", port)))
        raises(FAILED_PRECONDITION, "Unix sockets", client.ask, "attach", memory=1, length=4096)
        raises(FAILED_PRECONDITION, "Unix sockets", client.ask, "export", handle=1,
               **{"in": [{"dtype": "f32", "shape": [4]}]})
        # What is larger than the inbox passes in pieces.
        value = RNG.standard_normal(5 * MIB).astype(np.float32)
        type_ = {"dtype": NAMES[value.dtype], "shape": list(value.shape)}
        for i in range(0, value.size, MIB):
            client.ask("put", value[i:i + MIB].tobytes(), handle=1, offset=4 * i, **{"in": [type_]})
        assert np.array_equal(client.get(1, value), value)


def put_and_get_between_memory_and_residents():
    with Daemon() as daemon:
        client, memory, n = daemon.client(), Memory(4 * MIB), 1000
        client.attach(1, memory.descriptor, memory.length)
        x = memory.array(0, n)
        x[:] = RNG.standard_normal(n)
        client.ask("put", handle=3, **{"in": [at(1, 0, n)]})
        assert np.array_equal(client.get(3, x), x)
        client.ask("get", handle=3, offset=400, length=800, out=[{"memory": 1, "offset": 65536}])
        assert np.array_equal(memory.array(65536, 200), x[100:300])
        raises(INVALID_ARGUMENT, "4194304 bytes", client.ask, "get", handle=3, offset=0, length=4000,
               out=[{"memory": 1, "offset": 4 * MIB - 64}])


run([inputs_and_outputs_lie_in_it,
     the_three_paths_give_the_same_bits,
     requests_that_overlap_run_in_order,
     in_place_is_what_an_operator_says,
     what_is_no_such_memory_is_refused,
     memory_is_a_connections_own,
     quotas_hold,
     it_is_there_again_after_the_workers_death,
     an_attach_that_failed_attached_nothing,
     empty_tensors_in_it_are_as_good_after_the_workers_death,
     a_client_that_goes_away_with_requests_in_flight_harms_nobody,
     descriptors_that_nobody_asked_for_are_closed,
     tcp_takes_no_memory,
     put_and_get_between_memory_and_residents])
