#!/usr/bin/python3
"""Frames and tensors that no honest client would send: each has its answer, and nobody else notices."""

import socket
import struct

import msgpack
import numpy as np

from xopd import (Closed, Daemon, INVALID_ARGUMENT, NOT_FOUND, RESOURCE_EXHAUSTED, frame, operands,
                  raises, run)

X = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.array([1, 2, 3, 4], dtype=np.float32)
OK = 0


def serves(client):
    assert np.array_equal(client.run("square_bias", [X, B])[0], X * X + B)


def answered(client, header, body=b""):
    """The result of one request, which has this id."""
    client.send(header, body)
    answer, data = client.answer()
    assert answer["type"] == "result" and answer["id"] == header["id"], (header, answer)
    return answer, data


def refused(client, header, body=b"", fragment="", statuses=(INVALID_ARGUMENT,)):
    answer, _ = answered(client, header, body)
    assert answer.get("status", OK) in statuses, (header, answer)
    assert fragment in answer["error"], (fragment, answer)
    return answer["error"]


def a_value_of_every_type_under_every_key_is_refused_by_name_or_used():
    # Of each key one value is right at most; whichever it is, the connection goes on.
    values = [None, True, -1, 2**63, 2**64 - 1, -2**63, 1.5, float("nan"), float("inf"), "", "f32",
              "\0", "a" * 5000, b"", b"\xff", [], [[]], [[[1]]], [None] * 100, {}, {"a": {"b": {}}},
              {"": 1}, [2**63], msgpack.ExtType(5, b"x"), msgpack.Timestamp(1)]
    described, body = operands([X, B])
    good = {"op": "square_bias", "in": described}
    keys = {"forward": (good, ("op", "in", "out", "attrs", "deadline_ms", "priority", "keep")),
            "backward": (good, ("op", "in", "out", "attrs", "context")),
            "put": ({"handle": 1, "in": [{"dtype": "f32", "shape": [16]}]},
                    ("handle", "in", "offset")),
            "get": ({"handle": 1, "offset": 0, "length": 16}, ("handle", "offset", "length", "out")),
            "free": ({"handle": 1}, ("handle",)), "cancel": ({"target": 1}, ("target",)),
            "attach": ({"memory": 1, "length": 64}, ("memory", "length", "write")),
            "detach": ({"memory": 1}, ("memory",)), "describe": ({}, ("op",))}
    with Daemon() as daemon:
        client = daemon.client()
        named = 0
        for kind, (fields, names) in keys.items():
            for name in names:
                for value in values:
                    header = {"type": kind, "id": client.next_id, **fields, name: value}
                    client.next_id += 1
                    carried = body if kind in ("forward", "backward") else bytes(64) * (kind == "put")
                    answer, _ = answered(client, header, carried)
                    if answer.get("status", OK) == INVALID_ARGUMENT:
                        named += name in answer["error"]
        assert named > 200, named
        serves(client)


def a_header_cut_anywhere_or_with_a_byte_changed_costs_its_sender_alone():
    described, body = operands([X, B])
    packed = msgpack.packb({"type": "forward", "id": 7, "op": "square_bias", "in": described,
                            "attrs": {}, "deadline_ms": 60000})
    with Daemon() as daemon:
        witness = daemon.client()
        for at in range(len(packed)):
            for header in (packed[:at], packed[:at] + bytes([packed[at] ^ 0xff]) + packed[at + 1:]):
                client = daemon.client()
                client.send_raw(frame(header, body))
                try:
                    answer, _ = client.receive()
                    assert answer["type"] in ("result", "error"), answer
                    # A changed name is one that there is not; a changed number may be as good.
                    assert answer.get("status", OK) in (OK, INVALID_ARGUMENT, NOT_FOUND), answer
                except Closed:
                    raise AssertionError(f"closed without a word: {header}")
                client.close()
        serves(witness)
        assert witness.document("stats")["server"]["restarts"] == 0


def ids_at_their_edges():
    with Daemon() as daemon:
        client = daemon.client()
        described, body = operands([X, B])
        for number in (1, 2**63, 2**64 - 1):
            header = {"type": "forward", "id": number, "op": "square_bias", "in": described}
            answer, _ = answered(client, header, body)
            assert answer.get("status", OK) == OK, answer
        for number in (0, -1, 1.0, "1", None):
            other = daemon.client()
            other.send({"type": "ping", "id": number})
            assert other.error_then_close()["status"] == INVALID_ARGUMENT
        serves(client)


def names_are_escaped_in_messages_and_in_the_log():
    names = ["../../etc/passwd", "a\0b", "\x1b[31mred\x07", "%s%n%p", "line\nxopd: front: forged",
             "\u202egnirts", "a" * 63, "a" * 64, "a" * 60000]
    with Daemon(config="[log]\nlevel = debug\n") as daemon:
        client = daemon.client()
        for number, name in enumerate(names, 1):
            error = refused(client, {"type": "forward", "id": number, "op": name, "in": []},
                            statuses=(NOT_FOUND, INVALID_ARGUMENT))
            assert len(error) < 512, error
            assert not any(ord(c) < 32 or ord(c) == 127 for c in error), error
        serves(client)
    assert "\x1b" not in daemon.log and "\nxopd: front: forged" not in daemon.log
    assert "\0" not in daemon.log


def shapes_that_wrap_or_are_too_many():
    with Daemon() as daemon:
        client = daemon.client()
        body = bytes(256)

        def tensor(shape, **keys):
            client.next_id += 1
            one = {"dtype": "f32", "shape": shape, "body": 0, **keys}
            return {"type": "forward", "id": client.next_id, "op": "sigmoid", "in": [one]}

        for shape in ([2**31] * 2, [2**63 - 1], [2**62, 4], [2**32, 2**32], [3, 2**62, 3], [-1],
                      [-2**63], [64, -1], [1] * 9, [1] * 1000, [2**61], [65]):
            refused(client, tensor(shape), body)
        # Nothing is in them, whatever the other dimensions would come to.
        for shape in ([0], [0, 2**62], [2**31, 0, 2**31], [2**62, 2**62, 0]):
            answer, data = answered(client, tensor(shape))
            assert answer.get("status", OK) in (OK, INVALID_ARGUMENT) and not data, answer
        for at in (1, 63, 2**63, 2**64 - 64, 64, 256, 320):
            refused(client, tensor([64], body=at), body)
        refused(client, tensor([64]), body + b"\0")
        refused(client, tensor([64]), body[:-1])
        refused(client, tensor([64]), b"")
        refused(client, tensor([64]), bytes(1 << 20))
        serves(client)


def ranges_of_one_body_may_not_leave_it():
    with Daemon() as daemon:
        client = daemon.client()
        number = 0
        for first, second, body in ((0, 64, 80), (0, 128, 144), (64, 0, 80), (128, 0, 112)):
            number += 1
            inputs = [{"dtype": "f32", "shape": [12], "body": first},
                      {"dtype": "f32", "shape": [1], "body": second}]
            answer, _ = answered(client, {"type": "forward", "id": number, "op": "square_bias",
                                          "in": inputs}, bytes(body))
            assert answer.get("status", OK) in (OK, INVALID_ARGUMENT), answer
            if second + 4 > body or first + 48 > body:
                assert answer["status"] == INVALID_ARGUMENT, answer
        client.next_id = number + 1
        serves(client)


def counts_beyond_the_limits_are_refused():
    with Daemon() as daemon:
        client = daemon.client()
        omitted = {"type": "forward", "op": "square_bias"}
        for number, changes in enumerate((
                {"in": [None] * 17}, {"in": [None] * 5000}, {"in": [], "out": [None] * 17},
                {"in": [], "out": [None] * 5000}, {"in": [], "attrs": {f"a{i}": 1 for i in range(25)}},
                {"in": [], "attrs": {"a": "x" * 1025}}, {"in": [], "attrs": {"a": "x" * 60000}},
                {"in": [], "attrs": {"a": [1] * 65}}, {"in": [], "attrs": {"a" * 64: 1}}), 1):
            refused(client, {**omitted, "id": number, **changes})
        client.next_id = 100
        serves(client)
        client.send_raw(b"XOP1" + struct.pack(">IQ", 65537, 0))
        assert client.error_then_close()["status"] == INVALID_ARGUMENT


def attributes_at_their_edges_give_a_result_or_a_reason():
    values = [0, -1, 1, 2**31, -2**31, 2**63 - 1, -2**63, 2**64 - 1, 0.0, -0.0, 1e-320, 1e308,
              float("nan"), float("inf"), float("-inf"), "", "none", "x" * 1024, True, [], [0],
              [-1, -1], [2**62] * 8, [1.5], [float("nan")] * 64, ["a"], None]
    with Daemon() as daemon:
        client = daemon.client()
        seen = 0
        for op in client.document("describe")["operators"]:
            for backward in (False, True):
                side = op["backward" if backward else "forward"]
                if not side:
                    continue
                inputs = [X for _ in side["inputs"]]
                for attr in op["attributes"]:
                    for value in values:
                        number = client.submit(op["name"], inputs, backward,
                                               attrs={attr["name"]: value})
                        answer, _ = client.answer()
                        assert answer["id"] == number, answer
                        assert answer.get("status", OK) in (OK, INVALID_ARGUMENT,
                                                            RESOURCE_EXHAUSTED), (op["name"], answer)
                        seen += 1
        assert seen > 100, seen
        assert client.document("stats")["server"]["restarts"] == 0
        serves(client)


def empty_tensors_and_shapes_that_do_not_go_together_through_every_operator():
    shapes = [(), (0,), (1,), (4,), (0, 4), (4, 0), (3, 4), (2, 0, 3), (2**16, 1), (1, 2**16),
              (1,) * 8]
    rng = np.random.default_rng(3)
    with Daemon(config="[device]\noutbox = 16M\ninbox = 16M\n") as daemon:
        client = daemon.client()
        good = 0
        for op in client.document("describe")["operators"]:
            for backward in (False, True):
                side = op["backward" if backward else "forward"]
                if not side:
                    continue
                n = len(side["inputs"])
                choices = [[shape] * n for shape in shapes]
                choices += [[shapes[i] for i in rng.integers(len(shapes), size=n)] for _ in range(20)]
                for chosen in choices:
                    arrays = [np.ones(shape, np.float32) for shape in chosen]
                    number = client.submit(op["name"], arrays, backward)
                    answer, _ = client.answer()
                    assert answer["id"] == number, answer
                    status = answer.get("status", OK)
                    assert status in (OK, INVALID_ARGUMENT, RESOURCE_EXHAUSTED), (op["name"], answer)
                    good += status == OK
        assert good > 50, good
        assert client.document("stats")["server"]["restarts"] == 0
        serves(client)


def numbers_at_their_edges_go_through_every_operator():
    with Daemon() as daemon:
        client = daemon.client()
        for dtype in (np.float16, np.float32, np.float64):
            limits = np.finfo(dtype)
            x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, limits.max, limits.min, limits.tiny,
                          limits.smallest_subnormal, -limits.smallest_subnormal, 1, -1], dtype)
            for op in client.document("describe")["operators"]:
                for backward in (False, True):
                    side = op["backward" if backward else "forward"]
                    if side:
                        client.submit(op["name"], [x for _ in side["inputs"]], backward)
                        answer, _ = client.answer()
                        assert answer.get("status", OK) in (OK, INVALID_ARGUMENT), (op["name"], answer)
        y, = client.run("sigmoid", [np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)])
        assert np.isnan(y[0]) and np.array_equal(y[1:], [1, 0, .5]), y
        assert client.document("stats")["server"]["restarts"] == 0


def a_result_of_terabytes_is_refused_before_it_is_allocated():
    with Daemon() as daemon:
        client = daemon.client()
        column, row = np.ones((2**20, 1), np.float32), np.ones((1, 2**20), np.float32)
        raises(RESOURCE_EXHAUSTED, "", client.run, "square_bias", [column, row])
        cube = [np.ones([2**10 if i == k else 1 for i in range(3)], np.float32) for k in range(2)]
        assert client.run("square_bias", cube)[0].shape == (2**10, 2**10, 1)
        serves(client)


def one_byte_at_a_time_is_given_up_at_every_stage():
    config = "[server]\nhello_timeout_ms = 300\nframe_timeout_ms = 300\n"
    described, body = operands([np.ones(1 << 16, np.float32), B[:1]])
    whole = frame({"type": "forward", "id": 1, "op": "square_bias", "in": described}, body)
    header = len(whole) - len(body)
    with Daemon(config=config) as daemon:
        stages = [daemon.client(hello=False), daemon.client(), daemon.client(), daemon.client()]
        for client, sent in zip(stages, (b"", whole[:3], whole[:header - 1], whole[:header + 100])):
            client.send_raw(sent)
            client.socket.settimeout(0.02)
        over, steps = set(), 0
        while len(over) < len(stages):
            steps += 1
            assert steps < 5000, over
            for i, client in enumerate(stages):
                if i in over:
                    continue
                try:
                    client.send_raw(b"X")
                    if not client.socket.recv(4096, socket.MSG_PEEK):
                        over.add(i)
                    else:
                        over.add(i)  # it is told so
                except socket.timeout:
                    pass
                except OSError:
                    over.add(i)
        watcher = daemon.client()
        while len(watcher.document("stats")["clients"]) > 1:
            pass
        assert watcher.document("stats")["server"]["inbox_used"] == 0
        serves(watcher)


run([a_value_of_every_type_under_every_key_is_refused_by_name_or_used,
     a_header_cut_anywhere_or_with_a_byte_changed_costs_its_sender_alone,
     ids_at_their_edges,
     names_are_escaped_in_messages_and_in_the_log,
     shapes_that_wrap_or_are_too_many,
     ranges_of_one_body_may_not_leave_it,
     counts_beyond_the_limits_are_refused,
     attributes_at_their_edges_give_a_result_or_a_reason,
     empty_tensors_and_shapes_that_do_not_go_together_through_every_operator,
     numbers_at_their_edges_go_through_every_operator,
     a_result_of_terabytes_is_refused_before_it_is_allocated,
     one_byte_at_a_time_is_given_up_at_every_stage])
