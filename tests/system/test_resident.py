#!/usr/bin/python3
"""Tensors that stay in the server: put, get, free, contexts, order, quotas, export, and what is left
of them when a worker dies."""

import mmap
import os
import signal

import numpy as np

from xopd import (ABORTED, ALREADY_EXISTS, DATA_LOSS, DEVICE_FAULT, Daemon, FAILED_PRECONDITION,
                  Failed, INVALID_ARGUMENT, NAMES, NOT_FOUND, RESOURCE_EXHAUSTED, Closed,
                  faulty_operators, operands, raises, run, tensors)

RNG = np.random.default_rng(7)


def values(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def handle(number, **keys):
    return {"resident": number, **keys}


def type_of(value):
    return {"dtype": NAMES[value.dtype], "shape": list(value.shape)}


def forward(client, op, inputs, out=None, **keys):
    keys.update({"out": out} if out else {})
    return client.request("forward", op=op, **{"in": inputs}, **keys)


def answers(client, n):
    """The next n results, by id."""
    found = {}
    for _ in range(n):
        header, body = client.answer()
        found[header["id"]] = (header, body)
    return found


def what_was_put_is_got_in_any_dtype_and_shape():
    with Daemon() as daemon:
        client = daemon.client()
        cases = [values(3, 5), values(7, dtype=np.float16), values(2, 2, dtype=np.float64),
                 np.arange(5, dtype=np.int64), np.float32(3.5).reshape(()), values(0, 4),
                 values(1 << 22)]
        for number, value in enumerate(cases, 1):
            client.put(number, value)
        for number, value in enumerate(cases, 1):
            assert np.array_equal(client.get(number, value), value), number
        for number in range(1, len(cases) + 1):
            client.ask("free", handle=number)
            raises(NOT_FOUND, "there is no resident", client.get, number, cases[number - 1])
        assert client.document("stats")["clients"][0]["resident_bytes"] == 0


def pieces_make_a_tensor_and_a_part_of_it_is_no_whole():
    with Daemon() as daemon:
        client = daemon.client()
        value = values(1000)
        piece = lambda a, b: client.ask("put", value[a:b].tobytes(), handle=1, offset=4 * a,
                                        **{"in": [type_of(value)]})
        piece(500, 1000)
        raises(FAILED_PRECONDITION, "bytes from 0 on are missing", client.get, 1, value)
        part = client.ask("get", handle=1, offset=2000, length=2000)
        assert part == value[500:].tobytes()
        raises(FAILED_PRECONDITION, "missing", client.ask, "forward",
               op="sigmoid", **{"in": [handle(1)]})
        piece(0, 400)
        raises(FAILED_PRECONDITION, "bytes from 1600 on", client.get, 1, value)
        piece(300, 600)
        assert np.array_equal(client.get(1, value), value)
        raises(INVALID_ARGUMENT, "cannot become", client.put, 1, values(4))
        raises(INVALID_ARGUMENT, "4000 bytes", client.ask, "get", handle=1, offset=4000, length=4)
        raises(INVALID_ARGUMENT, "whole elements", client.ask, "get", handle=1, offset=2, length=4)
        assert np.array_equal(client.get(1, value), value)


def inputs_and_outputs_may_be_resident():
    with Daemon() as daemon:
        client = daemon.client()
        x, b = values(64, 32), values(32)
        client.put(1, x)
        client.put(2, b)
        number = forward(client, "square_bias", [handle(1), handle(2)], out=[handle(3)])
        header, body = client.answer()
        assert header["id"] == number and not header.get("status"), header
        assert header["out"] == [{"dtype": "f32", "shape": [64, 32], "resident": 3}] and not body
        assert np.array_equal(client.get(3, x), x * x + b)
        # A part of one, and one beside tensors of the body.
        row = {"dtype": "f32", "shape": [32], "resident": 1, "offset": 4 * 32 * 5}
        described, body = operands([b])
        client.request("forward", body, op="square_bias", **{"in": [row] + described})
        header, body = client.answer()
        assert np.array_equal(tensors(header, body)[0], x[5] * x[5] + b), header
        # An output that is there already has to be of that shape.
        client.put(4, values(3))
        forward(client, "square_bias", [handle(1), handle(2)], out=[handle(4)])
        header, _ = client.answer()
        assert header["status"] == INVALID_ARGUMENT, header
        raises(INVALID_ARGUMENT, "were named", client.ask, "forward", op="sigmoid",
               **{"in": [{"dtype": "f32", "shape": [2049], "resident": 1}]})
        raises(INVALID_ARGUMENT, "f64 was named", client.ask, "forward", op="sigmoid",
               **{"in": [{"dtype": "f64", "shape": [2], "resident": 1}]})
        raises(NOT_FOUND, "resident tensor 99", client.ask, "forward", op="sigmoid",
               **{"in": [handle(99)]})
        assert np.array_equal(client.get(3, x), x * x + b)


def a_chain_goes_out_in_one_write():
    with Daemon() as daemon:
        client = daemon.client()
        x, b = values(100, 10), values(10)
        gy = values(100, 10)
        described, body = operands([gy])
        ids = [client.request("put", x.tobytes(), handle=1, offset=0, **{"in": [type_of(x)]}),
               client.request("put", b.tobytes(), handle=2, offset=0, **{"in": [type_of(b)]}),
               forward(client, "square_bias", [handle(1), handle(2)], out=[handle(3)]),
               forward(client, "square_bias", [handle(3), handle(2)], out=[handle(4)]),
               forward(client, "sigmoid", [handle(4)], out=[handle(3)]),
               client.request("get", handle=3, offset=0, length=x.nbytes),
               client.request("free", handle=3),
               client.request("get", handle=4, offset=0, length=x.nbytes)]
        found = answers(client, len(ids))
        for number in ids:
            assert not found[number][0].get("status"), found[number][0]
        y = x * x + b
        z = y * y + b
        assert np.array_equal(np.frombuffer(found[ids[7]][1], np.float32).reshape(z.shape), z)
        expected = client.run("sigmoid", [z])[0]
        assert np.array_equal(np.frombuffer(found[ids[5]][1], np.float32).reshape(z.shape),
                              expected)


def many_updates_of_one_tensor_run_in_order():
    with Daemon() as daemon:
        client = daemon.client()
        n, count = 32, 300
        ids = []
        for i in range(count):
            value = np.full(n, i, np.float32)
            ids.append(client.request("put", value.tobytes(), handle=1, offset=0,
                                      **{"in": [type_of(value)]}))
            ids.append(client.request("get", handle=1, offset=0, length=4 * n))
        found = answers(client, len(ids))
        for i in range(count):
            assert np.frombuffer(found[ids[2 * i + 1]][1], np.float32)[0] == i, i


def what_depends_on_a_failure_is_aborted_and_the_rest_is_not():
    with Daemon() as daemon:
        client = daemon.client()
        x = values(8)
        client.put(1, x)
        with client.one_write():
            bad = forward(client, "square_bias", [handle(1)], out=[handle(2)])
            reads = forward(client, "sigmoid", [handle(2)], out=[handle(3)])
            further = client.request("get", handle=3, offset=0, length=32)
            good = client.request("get", handle=1, offset=0, length=32)
        found = answers(client, 4)
        assert found[bad][0]["status"] == INVALID_ARGUMENT
        assert found[reads][0]["status"] == ABORTED and str(bad) in found[reads][0]["error"]
        assert found[further][0]["status"] == ABORTED and str(reads) in found[further][0]["error"]
        assert found[good][1] == x.tobytes()
        # What never came to be does not exist, and its handle is free.
        raises(NOT_FOUND, "resident tensor 2", client.get, 2, x)
        client.put(2, values(3, 3))
        assert client.document("stats")["clients"][0]["residents"] == 2


def a_refused_request_leaves_no_trace():
    with Daemon(config="[server]\nio_threads = 1\n") as daemon:
        client, other = daemon.client(), daemon.client()
        x = values(8)
        for _ in range(20):
            with client.one_write():
                client.request("put", x.tobytes(), handle=1, **{"in": [type_of(x)]})
                bad = forward(client, "square_bias", [handle(1), handle(77)])
                last = client.request("put", x.tobytes(), handle=1, **{"in": [type_of(x)]})
            found = answers(client, 3)
            assert found[bad][0]["status"] == NOT_FOUND and not found[last][0].get("status"), found
            # One that took its place in the server's memory is not let go in its stead.
            other.run("sigmoid", [x])
            client.ask("free", handle=1)


def what_is_read_is_behind_what_makes_it():
    with Daemon() as daemon:
        client, x = daemon.client(), values(8)
        for _ in range(20):
            with client.one_write():
                client.request("put", x.tobytes()[:16], handle=1, **{"in": [type_of(x)]})
                none = client.request("get", handle=1, offset=16, length=0)
                missing = client.request("get", handle=1, offset=16, length=4)
            found = answers(client, 3)
            assert not found[none][0].get("status"), found[none]
            assert found[missing][0]["status"] == FAILED_PRECONDITION, found[missing]
            client.ask("free", handle=1)


def a_context_keeps_what_backward_needs():
    with Daemon() as daemon:
        client = daemon.client()
        x, b, gy = values(16, 8), values(8), values(16, 8)
        plain = client.run("square_bias", [x, b, gy], backward=True)
        described, body = operands([x, b])
        first = client.request("forward", body, op="square_bias", **{"in": described}, keep=5)
        header, body = client.answer()
        assert header["id"] == first and np.array_equal(tensors(header, body)[0], x * x + b), header
        described, body = operands([gy])
        for _ in range(2):
            client.request("backward", body, op="square_bias", context=5,
                           **{"in": [None, None] + described})
            header, answer = client.answer()
            assert not header.get("status"), header
            for got, expected in zip(tensors(header, answer), plain):
                assert np.array_equal(got, expected)
        assert client.document("stats")["clients"][0]["contexts"] == 1
        # An output that is needed is kept as well, and what is given goes before what is kept.
        y = client.run("sigmoid", [x])[0]
        plain = client.run("sigmoid", [y, gy], backward=True)[0]
        described, body = operands([x])
        client.request("forward", body, op="sigmoid", **{"in": described}, keep=6)
        header, answer = client.answer()
        assert np.array_equal(tensors(header, answer)[0], y)
        described, body = operands([gy])
        client.request("backward", body, op="sigmoid", context=6, **{"in": [None] + described})
        header, answer = client.answer()
        assert np.array_equal(tensors(header, answer)[0], plain)
        other = values(16, 8)
        described, body = operands([other, gy])
        client.request("backward", body, op="sigmoid", context=6, **{"in": described})
        header, answer = client.answer()
        assert np.array_equal(tensors(header, answer)[0],
                              client.run("sigmoid", [other, gy], backward=True)[0])
        raises(ALREADY_EXISTS, "context 6", client.run, "sigmoid", [x], keep=6)
        raises(INVALID_ARGUMENT, "kept by sigmoid", client.run, "square_bias", [x, b, gy],
               backward=True, context=6)
        raises(NOT_FOUND, "context 77", client.run, "sigmoid", [y, gy], backward=True, context=77)
        client.ask("free", handle=5)
        client.ask("free", handle=6)
        raises(NOT_FOUND, "context 6", client.run, "sigmoid", [y, gy], backward=True, context=6)
        stats = client.document("stats")["clients"][0]
        assert stats["contexts"] == 0 and stats["residents"] == 0, stats


def a_context_whose_tensors_were_written_is_refused_by_name():
    with Daemon() as daemon:
        client = daemon.client()
        x, b, gy = values(8), values(8), values(8)
        client.put(1, x)
        client.put(2, b)
        forward(client, "square_bias", [handle(1), handle(2)], keep=3)
        client.answer()
        described, body = operands([gy])
        backward = lambda: client.request("backward", body, op="square_bias", context=3,
                                          **{"in": [None, None] + described})
        backward()
        header, _ = client.answer()
        assert not header.get("status"), header
        # In one write: the backward before the update sees the old one, that behind it is refused.
        with client.one_write():
            before = backward()
            update = client.request("put", b.tobytes(), handle=1, offset=0, **{"in": [type_of(x)]})
            behind = backward()
        found = answers(client, 3)
        assert not found[before][0].get("status") and not found[update][0].get("status")
        assert np.array_equal(tensors(*found[before])[0], 2 * x * gy)
        assert found[behind][0]["status"] == FAILED_PRECONDITION, found[behind][0]
        assert "resident tensor 1" in found[behind][0]["error"]
        # Its handle's end takes nothing from a context.
        forward(client, "square_bias", [handle(1), handle(2)], keep=4)
        client.answer()
        client.ask("free", handle=1)
        client.request("backward", body, op="square_bias", context=4,
                       **{"in": [None, None] + described})
        header, answer = client.answer()
        assert np.array_equal(tensors(header, answer)[0], 2 * b * gy), header


def a_context_of_a_forward_that_failed_is_none():
    with Daemon() as daemon:
        client = daemon.client()
        gy = values(8)
        described, body = operands([values(8), values(3)])
        bad = client.request("forward", body, op="square_bias", **{"in": described}, keep=1)
        described, body = operands([gy])
        behind = client.request("backward", body, op="square_bias", context=1,
                                **{"in": [None, None] + described})
        found = answers(client, 2)
        assert found[bad][0]["status"] == INVALID_ARGUMENT
        assert found[behind][0]["status"] in (ABORTED, NOT_FOUND), found[behind][0]
        stats = client.document("stats")["clients"][0]
        assert stats["contexts"] == 0 and stats["residents"] == 0, stats
        described, body = operands([values(8), values(8)])
        client.request("forward", body, op="square_bias", **{"in": described}, keep=1)
        header, _ = client.answer()
        assert not header.get("status"), header


def handles_are_a_connections_own_and_end_with_it():
    with Daemon() as daemon:
        first, second = daemon.client(), daemon.client()
        x = values(1 << 22)
        first.put(1, x)
        raises(NOT_FOUND, "resident tensor 1", second.get, 1, x)
        raises(NOT_FOUND, "resident tensor", second.ask, "free", handle=1)
        second.put(1, values(4))
        assert np.array_equal(first.get(1, x), x)
        used = second.document("stats")["server"]["resident_bytes"]
        assert used >= x.nbytes
        first.close()
        while second.document("stats")["server"]["resident_bytes"] > used - x.nbytes:
            pass


def quotas_hold():
    config = "[quota]\nresident = 1M\n[device]\nresident = 200M\n"
    with Daemon(config=config) as daemon:
        client = daemon.client()
        client.put(1, values(200, 1000))
        e = raises(RESOURCE_EXHAUSTED, "quota.resident", client.put, 2, values(200, 1000))
        assert "1048576" in e.message
        raises(NOT_FOUND, "", client.get, 2, values(1))
        client.ask("free", handle=1)
        client.put(2, values(200, 1000))
    with Daemon(config="[device]\nresident = 100M\n") as daemon:
        client = daemon.client()
        client.put(1, values(20 << 20))
        raises(RESOURCE_EXHAUSTED, "device.resident", client.put, 2, values(20 << 20))
        client.ask("free", handle=1)
        client.put(2, values(20 << 20))


def an_update_in_place_is_in_order():
    with Daemon() as daemon:
        client = daemon.client()
        x = values(1000)
        client.put(1, x)
        ids = [forward(client, "sigmoid", [handle(1)], out=[handle(1)]) for _ in range(5)]
        found = answers(client, 5)
        for number in ids:
            assert not found[number][0].get("status"), found[number][0]
        for _ in range(5):
            x = client.run("sigmoid", [x])[0]
        assert np.array_equal(client.get(1, x), x)


def everything_survives_the_workers_death():
    with Daemon() as daemon:
        client = daemon.client()
        kept = {i: values(*shape) for i, shape in enumerate([(10,), (300, 300), (3 << 20,), (0,)], 1)}
        for number, value in kept.items():
            client.put(number, value)
        x, b, gy = values(50), values(50), values(50)
        described, body = operands([x, b])
        client.request("forward", body, op="square_bias", **{"in": described}, keep=9)
        client.answer()
        for round_ in (2, 3):
            os.kill(daemon.worker(), signal.SIGKILL)
            daemon.wait_for("ready: ", round_)
            for number, value in kept.items():
                assert np.array_equal(client.get(number, value), value), number
            described, body = operands([gy])
            client.request("backward", body, op="square_bias", context=9,
                           **{"in": [None, None] + described})
            header, answer = client.answer()
            assert np.array_equal(tensors(header, answer)[0], 2 * x * gy), header
        client.ask("free", handle=3)
        client.put(3, values(3 << 20))


def no_fault_costs_more_than_what_was_being_written():
    shapes = [(10,), (300, 300), (3 << 20,), (20 << 20,)]
    for how in ("killed", "address", "endless"):
        with faulty_operators() as arguments, \
                Daemon(*arguments, config="[watchdog]\nrequest_ms = 500\n") as daemon:
            client, other = daemon.client(), daemon.client()
            kept = {i: values(*shape) for i, shape in enumerate(shapes, 1)}
            others = values(1000)
            for number, value in kept.items():
                client.put(number, value)
            other.put(1, others)
            client.put(9, kept[1])
            if how == "killed":
                os.kill(daemon.worker(), signal.SIGKILL)
            else:
                raises(DEVICE_FAULT, "", client.ask, "forward", op="fault", attrs={"how": how},
                       **{"in": [handle(1)], "out": [handle(9)]})
            for number, value in kept.items():
                assert client.get(number, value).tobytes() == value.tobytes(), (how, number)
            assert other.get(1, others).tobytes() == others.tobytes(), how
            if how == "killed":
                assert client.get(9, kept[1]).tobytes() == kept[1].tobytes()
            else:
                raises(DATA_LOSS, "resident tensor 9", client.get, 9, kept[1])
            # Written anew it is as good as any, and so is the operator.
            client.ask("forward", op="fault", **{"in": [handle(1)], "out": [handle(9)]})
            assert client.get(9, kept[1]).tobytes() == kept[1].tobytes()


def requests_in_flight_on_residents_survive_kills():
    with Daemon() as daemon:
        client = daemon.client()
        x, b = values(1 << 16), values(1 << 16)
        client.put(1, x)
        client.put(2, b)
        for round_ in range(1, 5):
            ids = [forward(client, "square_bias", [handle(1), handle(2)], out=[handle(10 + i)])
                   for i in range(20)]
            daemon.wait_for("ready: ", round_)
            os.kill(daemon.worker(), signal.SIGKILL)
            found = answers(client, len(ids))
            for number in ids:
                assert not found[number][0].get("status"), found[number][0]
            for i in range(20):
                assert np.array_equal(client.get(10 + i, x), x * x + b), (round_, i)


def an_exported_tensor_is_shared():
    with Daemon() as daemon:
        client = daemon.client()
        x, b = values(1000), values(1000)
        number = client.request("export", handle=1, **{"in": [type_of(x)]})
        header, _ = client.answer()
        assert header["id"] == number and header["length"] >= x.nbytes, header
        descriptor, = client.descriptors
        if os.environ.get("XOP_BACKEND", "cpu") == "cpu":
            shared = np.frombuffer(mmap.mmap(descriptor, header["length"]), np.float32, 1000)
            assert not shared.any()
            shared[:] = x
            described, body = operands([b])
            client.request("forward", body, op="square_bias", **{"in": [handle(1)] + described})
            assert np.array_equal(tensors(*client.answer())[0], x * x + b)
            os.kill(daemon.worker(), signal.SIGKILL)
            assert np.array_equal(client.get(1, x), x)
            shared[:] = b
            assert np.array_equal(client.get(1, x), b)
        os.close(descriptor)
        raises(ALREADY_EXISTS, "resident tensor 1", client.ask, "export", handle=1,
               **{"in": [type_of(x)]})
        raises(INVALID_ARGUMENT, "empty", client.ask, "export", handle=2,
               **{"in": [type_of(values(0))]})
        client.ask("free", handle=1)


def a_probe_times_the_device():
    with Daemon() as daemon:
        client = daemon.client()
        document = client.document("probe", bytes_in=8192, bytes_out=4096)
        assert document["direct_ns"] > 0 and document["bytes_in"] == 8192, document


def a_connection_may_end_with_anything_in_flight():
    with Daemon() as daemon:
        for round_ in range(20):
            client = daemon.client()
            x = values(1 << 14)
            client.request("put", x.tobytes(), handle=1, offset=0, **{"in": [type_of(x)]})
            for i in range(10):
                forward(client, "square_bias", [handle(1), handle(1)], out=[handle(2 + i % 3)],
                        keep=50 + i)
                client.request("get", handle=2 + i % 3, offset=0, length=x.nbytes)
            if round_ % 3 == 0:
                client.request("free", handle=1)
            client.close()
        client = daemon.client()
        # The last small slab stays; everything else is given back.
        while client.document("stats")["server"]["resident_bytes"] > 64 << 20:
            pass
        assert client.document("stats")["server"]["connections"] >= 1


run([what_was_put_is_got_in_any_dtype_and_shape,
     pieces_make_a_tensor_and_a_part_of_it_is_no_whole,
     inputs_and_outputs_may_be_resident,
     a_chain_goes_out_in_one_write,
     many_updates_of_one_tensor_run_in_order,
     what_depends_on_a_failure_is_aborted_and_the_rest_is_not,
     a_refused_request_leaves_no_trace,
     what_is_read_is_behind_what_makes_it,
     a_context_keeps_what_backward_needs,
     a_context_whose_tensors_were_written_is_refused_by_name,
     a_context_of_a_forward_that_failed_is_none,
     handles_are_a_connections_own_and_end_with_it,
     quotas_hold,
     an_update_in_place_is_in_order,
     everything_survives_the_workers_death,
     no_fault_costs_more_than_what_was_being_written,
     requests_in_flight_on_residents_survive_kills,
     an_exported_tensor_is_shared,
     a_probe_times_the_device,
     a_connection_may_end_with_anything_in_flight])
