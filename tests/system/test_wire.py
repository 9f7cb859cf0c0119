#!/usr/bin/python3
"""The wire as docs/protocol.md specifies it, against a real xopd: what is right and what is not."""

import socket
import struct

import msgpack
import numpy as np

from xopd import (CANCELLED, Client, Closed, Daemon, INVALID_ARGUMENT, NOT_FOUND,
                  RESOURCE_EXHAUSTED, UNIMPLEMENTED, frame, operands, raises, run, tensors)

X = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.array([1, 2, 3, 4], dtype=np.float32)


def check_serves(daemon):
    """Another client is served as ever."""
    client = daemon.client()
    y, = client.run("square_bias", [X, B])
    assert np.array_equal(y, X * X + B)
    client.close()


def forward_and_backward_give_what_the_formula_says():
    with Daemon() as daemon:
        client = daemon.client()
        y, = client.run("square_bias", [X, B])
        assert np.array_equal(y, X * X + B)
        gy = np.ones_like(X) * 2
        gx, gb = client.run("square_bias", [X, B, gy], backward=True)
        assert np.array_equal(gx, 2 * X * gy) and np.array_equal(gb, gy.sum(0))
        assert gb.shape == B.shape


def hello_states_version_limits_and_generation():
    with Daemon() as daemon:
        hello = daemon.client().hello
        assert hello["version_min"] == hello["version_max"] == 1, hello
        assert hello["max_body"] > 1 << 20 and hello["max_in_flight"] > 0
        assert hello["generation"] == 1 and hello["agent"].startswith("xopd ")


def bytes_that_are_no_frame_are_closed_with_an_error():
    garbage = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 4,
               bytes(range(256)), b"XOP1" + struct.pack(">IQ", 0, 0),
               b"XOP1" + struct.pack(">IQ", 65537, 0), b"XOP1" + struct.pack(">IQ", 0xffffffff, 0),
               b"XOP1" + struct.pack(">IQ", 10, 2**64 - 1),
               b"XOP1" + struct.pack(">IQ", 10, 2**63)]
    with Daemon() as daemon:
        for data in garbage:
            for hello in (False, True):
                client = daemon.client(hello=hello)
                client.send_raw(data)
                error = client.error_then_close()
                assert error and error["type"] == "error", (data, error)
                assert error["status"] in (INVALID_ARGUMENT, RESOURCE_EXHAUSTED), error
        check_serves(daemon)


def a_connection_that_ends_within_a_frame_costs_nobody_anything():
    described, body = operands([X, B])
    whole = frame({"type": "forward", "id": 1, "op": "square_bias", "in": described}, body)
    with Daemon() as daemon:
        for cut in (1, 4, 15, 16, 17, 40, len(whole) - len(body), len(whole) - 1):
            client = daemon.client()
            client.send_raw(whole[:cut])
            client.close()
        check_serves(daemon)
        watcher = daemon.client()
        while len(watcher.document("stats")["clients"]) > 1:
            pass
        assert watcher.document("stats")["server"]["inbox_used"] == 0


def a_frame_split_at_every_byte_is_the_same_frame():
    described, body = operands([X, B])
    with Daemon() as daemon:
        client = daemon.client()
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        whole = frame({"type": "forward", "id": 1, "op": "square_bias", "in": described}, body)
        for i in range(len(whole)):
            client.send_raw(whole[i:i + 1])
        header, data = client.answer()
        assert np.array_equal(tensors(header, data)[0], X * X + B)


def a_thousand_frames_in_one_write_are_answered_once_each():
    with Daemon() as daemon:
        client = daemon.client()
        parts = []
        for i in range(1, 1001):
            described, body = operands([X * i, B])
            parts.append(frame({"type": "forward", "id": i, "op": "square_bias", "in": described}, body))
        client.send_raw(b"".join(parts))
        seen = set()
        for _ in range(1000):
            header, data = client.answer()
            i = header["id"]
            assert i not in seen
            seen.add(i)
            assert np.array_equal(tensors(header, data)[0], X * i * (X * i) + B), header
        assert seen == set(range(1, 1001))


def wrong_requests_are_named_and_the_connection_goes_on():
    with Daemon() as daemon:
        client = daemon.client()
        raises(NOT_FOUND, "no_such", client.run, "no_such", [X])
        raises(NOT_FOUND, "", client.run, "../\x01%s%n", [X])
        raises(INVALID_ARGUMENT, "", client.run, "square_bias", [X])
        raises(INVALID_ARGUMENT, "", client.run, "square_bias", [X, B, B])
        raises(INVALID_ARGUMENT, "(3, 4)", client.run, "square_bias", [X, np.ones(5, np.float32)])
        e = raises(INVALID_ARGUMENT, "f64", client.run, "square_bias", [X, B.astype(np.float64)])
        assert "f32" in e.message and "b" in e.message
        raises(INVALID_ARGUMENT, "i32", client.run, "square_bias",
               [X.astype(np.int32), B.astype(np.int32)])
        raises(INVALID_ARGUMENT, "colour", client.run, "square_bias", [X, B], attrs={"colour": 1})
        y, = client.run("square_bias", [X, B])
        assert np.array_equal(y, X * X + B)


def wrong_headers_are_answered_by_id_and_the_connection_goes_on():
    described, body = operands([X, B])
    good = {"type": "forward", "id": 1, "op": "square_bias", "in": described}

    def broken(**changes):
        return {**good, **changes}

    def tensor(**changes):
        return broken(**{"in": [{**described[0], **changes}, described[1]]})

    cases = [
        (broken(op=7), "op"), (broken(op=b"\xff\xfe"), "op"), (broken(**{"in": 3}), "in"),
        (broken(**{"in": [described[0]] * 17}), "in"), (tensor(dtype="f128"), "f128"),
        (tensor(shape=[3, -4]), "shape"), (tensor(shape=[1] * 9), "shape"),
        (tensor(shape=[2**62, 2**62]), "shape"), (tensor(shape=[3, 4.0]), "shape"),
        (tensor(shape=[2**31]), ""), (tensor(shape=[3, 5]), ""), (tensor(shape=[3, 3]), ""),
        (tensor(body=1), ""), (tensor(body=2**64 - 64), ""), (tensor(body=64), ""),
        (tensor(body=float("nan")), "body"), (tensor(body=-1), "body"),
        (broken(deadline_ms="soon"), "deadline_ms"), (broken(priority=1000), "priority"),
        (broken(attrs={"a": {"b": 1}}), "a"), (broken(attrs=[1]), "attrs"),
    ]
    with Daemon() as daemon:
        client = daemon.client()
        for number, (header, fragment) in enumerate(cases, 1):
            header = {**header, "id": number}
            client.send(header, body)
            answer, _ = client.answer()
            assert answer["id"] == number, (header, answer)
            assert answer["status"] == INVALID_ARGUMENT, (header, answer)
            assert fragment in answer["error"], (header, answer)
        assert np.array_equal(client.run("square_bias", [X, B])[0], X * X + B)


def headers_that_cannot_be_read_are_refused_in_bounded_memory():
    nested = b"\x81\xa1a" * 10000 + b"\xc0"
    cases = [nested, b"\xdf\xff\xff\xff\xff", b"\x81\xa4type\xdd\xff\xff\xff\xff", b"\x80" * 65536,
             b"\x81", b"\xc1", b"\x93\x01\x02\x03", msgpack.packb({"type": "ping", "id": 1}) + b"\x00",
             b"\x82\xa2id\x01\xa2id\x01", b"\x81\x01\x02", b"\x81\xa4type\xc7\x01\x05\x00",
             msgpack.packb({"type": "result", "id": 3}), msgpack.packb({"type": "nonsense", "id": 3}),
             msgpack.packb({"type": "forward", "id": 0, "op": "sigmoid", "in": []})]
    with Daemon() as daemon:
        for header in cases:
            client = daemon.client()
            client.send_raw(frame(header[:65536]))
            try:
                answer, _ = client.receive()
                assert answer["status"] == INVALID_ARGUMENT, (header[:40], answer)
            except Closed:
                raise AssertionError(f"closed without a word: {header[:40]}")
            client.close()
        check_serves(daemon)


def the_order_of_hello_is_enforced():
    with Daemon() as daemon:
        client = daemon.client(hello=False)
        client.send({"type": "ping", "id": 1})
        assert "hello" in client.error_then_close()["error"]
        client = daemon.client()
        client.send({"type": "hello", "version_min": 1, "version_max": 1})
        assert "second" in client.error_then_close()["error"]
        client = daemon.client(hello=False)
        client.send({"type": "hello", "version_min": 2, "version_max": 9})
        assert "version 1" in client.error_then_close()["error"]


def every_rank_and_empty_tensors_work():
    with Daemon() as daemon:
        client = daemon.client()
        for shape in [(), (0,), (1,), (0, 3), (2, 0, 2), (1,) * 8, (2,) * 8]:
            x = np.ones(shape, np.float64)
            y, = client.run("square_bias", [x, x])
            assert y.shape == shape and np.array_equal(y, x * x + x)
        y, = client.run("square_bias", [np.ones((0, 4), np.float32), B])
        assert y.shape == (0, 4)
        raises(INVALID_ARGUMENT, "", client.run, "square_bias", [np.ones((2, 0, 3), np.float32), X])


def outputs_can_be_left_out():
    with Daemon() as daemon:
        client = daemon.client()
        gx, gb = client.run("square_bias", [X, B, X], backward=True, out=[False, None])
        assert gx is None and np.array_equal(gb, X.sum(0))
        raises(INVALID_ARGUMENT, "", client.run, "square_bias", [X, B], out=[None, None])


def results_beyond_the_outbox_are_refused_before_anything_is_allocated():
    with Daemon(config="[device]\noutbox = 16M\ninbox = 16M\n") as daemon:
        client = daemon.client()
        column, row = np.ones((1 << 16, 1), np.float32), np.ones((1, 1 << 16), np.float32)
        raises(RESOURCE_EXHAUSTED, "y", client.run, "square_bias", [column, row])
        check_serves(daemon)


def tensors_larger_than_a_socket_buffer_arrive_whole():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2048, 1536)).astype(np.float32)
    with Daemon() as daemon:
        client = daemon.client()
        for _ in range(3):
            y, = client.run("square_bias", [x, x[0]])
            assert np.array_equal(y, x * x + x[0])


def duplicate_ids_in_flight_are_refused():
    with Daemon(config="[batch]\nmax_delay_us = 300000\n") as daemon:
        client = daemon.client()
        described, body = operands([X, B])
        header = {"type": "forward", "id": 5, "op": "square_bias", "in": described}
        client.send_raw(frame(header, body) * 2)
        kinds = []
        try:
            while True:
                kinds.append(client.receive()[0])
        except Closed:
            pass
        assert any(k["status"] == INVALID_ARGUMENT for k in kinds if k.get("status")), kinds
        check_serves(daemon)


def cancel_is_answered_and_so_is_what_it_cancels():
    with Daemon(config="[batch]\nmax_delay_us = 1000000\n") as daemon:
        client = daemon.client()
        number = client.submit("square_bias", [X, B])
        client.request("cancel", target=number)
        by_id = {}
        while len(by_id) < 2:
            header, _ = client.answer()
            by_id[header["id"]] = header
        assert by_id[number]["status"] == CANCELLED and not by_id[number].get("started")
        assert by_id[number + 1].get("status", 0) == 0
        client.request("cancel", target=12345)
        header, _ = client.answer()
        assert header["status"] == NOT_FOUND


def documents_have_the_specified_keys():
    with Daemon() as daemon:
        client = daemon.client()
        client.run("square_bias", [X, B])
        ping = client.document("ping")
        assert ping["ready"] is True and ping["generation"] == 1 and ping["backend"]
        ops = {o["name"]: o for o in client.document("describe")["operators"]}
        assert {"square_bias", "sigmoid", "sigmoid_complement", "bose_einstein"} <= set(ops)
        one = client.document("describe", op="sigmoid")["operators"]
        assert len(one) == 1 and one[0] == ops["sigmoid"]
        assert [i["name"] for i in ops["square_bias"]["forward"]["inputs"]] == ["x", "b"]
        raises(NOT_FOUND, "no_such", client.document, "describe", op="no_such")
        stats = client.document("stats")
        entry, = [o for o in stats["operators"] if o["name"] == "square_bias"]
        assert entry["requests"] == 1 and entry["batches"] == 1 and entry["run_us"]["max"] > 0
        assert stats["clients"][0]["agent"] == "test" and stats["server"]["connections"] == 1


def types_not_offered_answer_unimplemented():
    with Daemon() as daemon:
        client = daemon.client()
        for kind, keys in [("define", dict(text="y = x")), ("load", dict(text="a")), ("drain", {}),
                           ("reload", {})]:
            number = client.request(kind, **keys)
            header, _ = client.answer()
            assert header["id"] == number, (kind, header)
            assert header["status"] == UNIMPLEMENTED, (kind, header)
        assert np.array_equal(client.run("square_bias", [X, B])[0], X * X + B)


def tcp_speaks_the_same():
    with Daemon("--insecure-tcp", listen=["tcp:127.0.0.1:0"]) as daemon:
        port = int(daemon.wait_for(r"listening on tcp:127.0.0.1:(\d+)").group(1))
        client = Client((socket.AF_INET, ("127.0.0.1", port)))
        assert np.array_equal(client.run("square_bias", [X, B])[0], X * X + B)


def a_size_that_is_only_claimed_holds_nobody_up():
    with Daemon(config="[server]\nio_threads = 1\n") as daemon:
        clients, good = [daemon.client(), daemon.client()], daemon.client()
        huge = {"dtype": "f32", "shape": [1 << 60]}
        x = np.ones(4, np.float32)
        described, body = operands([x, x])
        for client in clients:
            with client.one_write():
                for _ in range(3):
                    client.request("forward", op="square_bias", **{"in": [huge, huge]})
                    client.request("forward", body, op="square_bias", out=[huge],
                                   **{"in": described})
        for client in clients:
            for _ in range(6):
                header, _ = client.answer()
                assert header["status"] == INVALID_ARGUMENT, header
        assert np.array_equal(good.run("square_bias", [x, x])[0], x + x)


run([a_size_that_is_only_claimed_holds_nobody_up,
     forward_and_backward_give_what_the_formula_says,
     hello_states_version_limits_and_generation,
     bytes_that_are_no_frame_are_closed_with_an_error,
     a_connection_that_ends_within_a_frame_costs_nobody_anything,
     a_frame_split_at_every_byte_is_the_same_frame,
     a_thousand_frames_in_one_write_are_answered_once_each,
     wrong_requests_are_named_and_the_connection_goes_on,
     wrong_headers_are_answered_by_id_and_the_connection_goes_on,
     headers_that_cannot_be_read_are_refused_in_bounded_memory,
     the_order_of_hello_is_enforced,
     every_rank_and_empty_tensors_work,
     outputs_can_be_left_out,
     results_beyond_the_outbox_are_refused_before_anything_is_allocated,
     tensors_larger_than_a_socket_buffer_arrive_whole,
     duplicate_ids_in_flight_are_refused,
     cancel_is_answered_and_so_is_what_it_cancels,
     documents_have_the_specified_keys,
     types_not_offered_answer_unimplemented,
     tcp_speaks_the_same])
