#!/usr/bin/python3
"""How much an identity may have: quotas that are reached and given back."""

import array
import re
import select
import socket

import numpy as np

from identities import (KIB, MIB, X, B, SECRETS, ROOT, TEAM, file_of, daemon, as_one, works,
                        begin, finish, identity, until, until_used,
                        xopctl)
from xopd import NOT_FOUND, RESOURCE_EXHAUSTED, Failed, Memory, frame, operands, raises, run


def connections_are_counted_by_identity():
    with daemon(TEAM.replace("role", "connections = 2\nrole")) as server:
        first, _second = as_one(server, "red"), as_one(server, "red")
        raises(RESOURCE_EXHAUSTED, "token:red may have 2 connections (policy team.connections), of "
               "which 2 are used: no 1 more", as_one, server, "red")
        works(as_one(server, "blue"))
        first.close()
        server.wait_for("client 1 .* ended")
        works(as_one(server, "red"))


def requests_in_flight_are_counted_by_identity():
    with daemon(ROOT + TEAM.replace("role", "in_flight = 2\nrole")) as server:
        boss, blue = as_one(server, "boss"), as_one(server, "blue")
        some, others = as_one(server, "red"), as_one(server, "red")
        assert some.hello["max_in_flight"] == 2, some.hello
        assert boss.hello["max_in_flight"] == 4096, boss.hello
        begun = begin(some), begin(others)
        until_used(boss, "token:red", "in_flight", 2)
        third = as_one(server, "red")
        raises(RESOURCE_EXHAUSTED, "token:red may have 2 requests in flight (policy "
               "team.in_flight), of which 2 are used", third.run, "square_bias", [X, B])
        assert third.document("ping")["ready"] # which is answered at once
        works(blue)
        finish(some, begun[0])
        works(third)
        finish(others, begun[1])
        until_used(boss, "token:red", "in_flight", 0)
        # One that is cancelled, late, refused or its connection's last is given back too.
        number, _ = begin(some, deadline_ms=1)
        header, _ = some.answer()
        assert header["id"] == number and header["status"] == 4, header
        raises(NOT_FOUND, "there is no operator", third.run, "no_such", [X, B])
        begin(others)
        others.close()
        until_used(boss, "token:red", "in_flight", 0)
        works(third)


def bytes_of_requests_are_counted_by_identity():
    with daemon(ROOT + TEAM.replace("role", "inbox = 1M\nrole")) as server:
        boss, blue = as_one(server, "boss"), as_one(server, "blue")
        some, others = as_one(server, "red"), as_one(server, "red")
        assert some.hello["max_body"] == MIB, some.hello
        x, b = np.ones(150000, np.float32), np.ones(1, np.float32)
        begun = begin(some, [x, b])
        until(lambda: identity(boss, "token:red")["quotas"]["inbox"]["used"] > 0)
        raises(RESOURCE_EXHAUSTED, "token:red may have 1048576 bytes of requests (policy "
               "team.inbox)", others.run, "square_bias", [x, b])
        works(others) # there is room for a small one
        assert np.array_equal(blue.run("square_bias", [x, b])[0], x * x + b)
        finish(some, begun)
        assert np.array_equal(others.run("square_bias", [x, b])[0], x * x + b)
        raises(RESOURCE_EXHAUSTED, "policy team.inbox", others.run, "square_bias",
               [np.ones(300000, np.float32), b])
        begin(some, [x, b])
        some.close()
        until_used(boss, "token:red", "inbox", 0)


def bytes_of_resident_tensors_are_counted_by_identity():
    with daemon(ROOT + TEAM.replace("role", "resident = 1M\nrole")) as server:
        boss, blue = as_one(server, "boss"), as_one(server, "blue")
        some, others = as_one(server, "red"), as_one(server, "red")
        large = np.ones(150000, np.float32)
        some.put(1, large)
        raises(RESOURCE_EXHAUSTED, "token:red may have 1048576 bytes of resident tensors (policy "
               "team.resident), of which 600000 are used: no 600000 more", others.put, 1, large)
        # An output and what a context keeps count as well.
        described, body = operands([large, B[:1]])
        number = others.request("forward", body, op="square_bias", out=[{"resident": 5}],
                                **{"in": described})
        header, _ = others.answer()
        assert header["id"] == number and header["status"] == RESOURCE_EXHAUSTED, header
        number = others.request("forward", body, op="square_bias", keep=9, **{"in": described})
        header, _ = others.answer()
        assert header["id"] == number and header["status"] == RESOURCE_EXHAUSTED, header
        blue.put(1, large)
        some.ask("free", handle=1)
        others.put(1, large)
        assert np.array_equal(others.get(1, large), large)
        others.close()
        until_used(boss, "token:red", "resident", 0)
        some.put(1, large)


def bytes_of_attached_memory_are_counted_by_identity():
    with daemon(ROOT + TEAM.replace("role", "attached = 1M\nrole")) as server:
        boss, blue = as_one(server, "boss"), as_one(server, "blue")
        some, others = as_one(server, "red"), as_one(server, "red")
        memory = Memory(MIB)
        some.attach(1, memory.descriptor, 600 * KIB)
        raises(RESOURCE_EXHAUSTED, "token:red may have 1048576 bytes of attached memory (policy "
               "team.attached)", others.attach, 1, memory.descriptor, 600 * KIB)
        blue.attach(1, memory.descriptor, MIB)
        some.ask("detach", memory=1)
        until_used(boss, "token:red", "attached", 0)
        others.attach(1, memory.descriptor, MIB)
        others.close()
        until_used(boss, "token:red", "attached", 0)
        some.attach(1, memory.descriptor, MIB)


def wait_as_told(error):
    select.select([], [], [], int(re.search(r"try again in (\d+) ms", error).group(1)) / 1000)


def requests_come_at_a_rate():
    with daemon(TEAM.replace("role", "rate = 1\nburst = 5\nrole")) as server:
        red, blue = as_one(server, "red"), as_one(server, "blue")
        with red.one_write():
            for _ in range(200):
                red.request("ping")
        answers = [red.answer()[0] for _ in range(200)]
        assert not any(a.get("status", 0) for a in answers[:5]), answers[:5]
        refused = [a for a in answers if a.get("status", 0)]
        assert refused and {a["status"] for a in refused} == {RESOURCE_EXHAUSTED}, refused
        pause = re.fullmatch(r"token:red may send 1 requests a second, 5 at once \(policy "
                             r"team.rate\): try again in (\d+) ms", refused[-1]["error"])
        assert pause and 0 < int(pause.group(1)) <= 1000, refused[-1]
        works(blue)
        # What frees is let through, and a new connection starts with what is left.
        raises(NOT_FOUND, "", red.ask, "free", handle=1)
        raises(NOT_FOUND, "", red.ask, "cancel", target=999)
        again = as_one(server, "red")
        with again.one_write():
            for _ in range(200):
                again.request("ping")
        assert any([again.answer()[0].get("status", 0) for _ in range(200)])
        try:
            again.document("ping")
        except Failed as e:
            wait_as_told(e.message)
        assert again.document("ping")["ready"]


def attach_after_a_refused_one(client, wait, before=b""):
    """The first is refused, with the beginning of another frame behind it; when wait is over, the
    rest of that and the second go out together."""
    client.next_id += 1000
    number, small, large = client.next_id, Memory(64 * KIB), Memory(MIB)
    attach = {"type": "attach", "id": number, "memory": 1, "length": 64 * KIB}
    between = frame({"type": "free", "id": number + 1, "handle": 1})
    second = frame({**attach, "id": number + 2, "length": MIB})

    def send(data, memory):
        client.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                        array.array("i", [memory.descriptor]))])

    send(before + frame(attach) + between[:10], small)
    header = {"id": 0}
    while header["id"] != number:
        header, _ = client.answer()
    assert header["status"] == RESOURCE_EXHAUSTED, header
    wait(header["error"])
    send(between[10:] + second, large)
    assert client.answer()[0]["status"] == NOT_FOUND
    header, _ = client.answer()
    assert header["id"] == number + 2 and not header.get("status"), header # small would not do


def a_descriptor_of_a_refused_attach_is_not_the_next_ones():
    with daemon(ROOT + TEAM.replace("role", "in_flight = 1\nrole")) as server:
        boss, some, others = (as_one(server, n) for n in ("boss", "red", "red"))
        begun = begin(some)
        until_used(boss, "token:red", "in_flight", 1)
        attach_after_a_refused_one(others, lambda _: finish(some, begun))
    with daemon(TEAM.replace("role", "rate = 1\nburst = 2\nrole")) as server:
        pings = b"".join(frame({"type": "ping", "id": n}) for n in range(1, 100))
        attach_after_a_refused_one(as_one(server, "red"), wait_as_told, pings)


def one_that_has_used_up_everything_is_no_matter_to_another():
    limits = "connections = 3\nin_flight = 1\ninbox = 64K\nresident = 4K\nattached = 64K\nrole"
    with daemon(ROOT + TEAM.replace("role", limits)) as server:
        boss, hog, more = (as_one(server, n) for n in ("boss", "red", "red"))
        hog.put(1, np.ones(1024, np.float32))
        memory = Memory(64 * KIB)
        hog.attach(1, memory.descriptor, 64 * KIB)
        begun = begin(hog, [np.ones(15000, np.float32), B[:1]])
        until_used(boss, "token:red", "in_flight", 1)
        _third = as_one(server, "red")
        raises(RESOURCE_EXHAUSTED, "connections", as_one, server, "red")
        for _ in range(20):
            raises(RESOURCE_EXHAUSTED, "in flight", more.run, "square_bias", [X, B])
        blue = as_one(server, "blue")
        for handle in range(1, 5):
            works(blue)
            blue.put(handle, np.ones(256, np.float32))
        blue.attach(1, memory.descriptor, 64 * KIB)
        assert np.array_equal(blue.get(4, np.ones(256, np.float32)), np.ones(256, np.float32))
        mine = blue.document("stats")["identities"]
        assert [(i["identity"], i["quotas"]["resident"]["used"]) for i in mine] == \
               [("token:blue", 4096)], mine
        finish(hog, begun)
        works(more)


def a_library_keeps_within_what_it_was_promised():
    """It holds back what would be too many in flight, so that nothing is refused."""
    limits = "connections = 2\nin_flight = 3\ninbox = 256K\nrole"
    with daemon(TEAM.replace("role", limits)) as server:
        token = file_of("red", SECRETS["red"])
        code, output, errors = xopctl("unix:" + server.path, "--token-file", token, "bench",
                                      "square_bias", "--shape", "16,16", "--inflight", "32",
                                      "--no-shm", "--seconds", "0.2", "--json")
        assert code == 0 and '"errors": 0' in output, (output, errors)


run([connections_are_counted_by_identity,
     requests_in_flight_are_counted_by_identity,
     bytes_of_requests_are_counted_by_identity,
     bytes_of_resident_tensors_are_counted_by_identity,
     bytes_of_attached_memory_are_counted_by_identity,
     requests_come_at_a_rate,
     a_descriptor_of_a_refused_attach_is_not_the_next_ones,
     one_that_has_used_up_everything_is_no_matter_to_another,
     a_library_keeps_within_what_it_was_promised])
