#!/usr/bin/python3
"""What a server that stops still owes its clients."""

import os
import signal
import socket

import numpy as np

from xopd import UNAVAILABLE, Client, Closed, Daemon, frame, run

X = np.arange(1000, dtype=np.float32)


def half_a_request(client):
    """Sends the first half of a put, which the server has accepted then and cannot finish yet."""
    with client.one_write():
        client.request("ping")
        client.put_id = client.request("put", X.tobytes(), handle=1,
                                       **{"in": [{"dtype": "f32", "shape": [1000]}]})
        client.held, rest = client.held[:-2000], client.held[-2000:]
    # What came in one piece with the ping has been looked at when that is answered.
    client.answer()
    return rest


def until_closed(client):
    """All that comes until the server says that nothing more will."""
    found = []
    try:
        while True:
            found.append(client.receive()[0])
    except Closed:
        return found


def tcp(daemon):
    port = int(daemon.wait_for(r"listening on tcp:127\.0\.0\.1:(\d+)").group(1))
    return Client((socket.AF_INET, ("127.0.0.1", port)))


def goaway(client):
    header, _ = client.receive()
    assert header["type"] == "goaway", header


def a_request_whose_body_is_under_way_is_finished():
    with Daemon() as daemon:
        client = daemon.client()
        rest = half_a_request(client)
        daemon.process.send_signal(signal.SIGTERM)
        goaway(client)
        client.send_raw(rest)
        header, _ = client.receive()
        assert header["id"] == client.put_id and not header.get("status", 0), header
        assert until_closed(client) == []
        assert daemon.process.wait(60) == 0


def who_says_hello_to_a_server_that_stops_is_told_so():
    with Daemon() as daemon:
        busy, late = daemon.client(), daemon.client(hello=False)
        rest = half_a_request(busy)
        daemon.process.send_signal(signal.SIGTERM)
        goaway(busy)
        late.send({"type": "hello", "version_min": 1, "version_max": 1, "agent": "late"})
        header, _ = late.receive()
        assert header["type"] == "hello", header
        goaway(late)
        late.submit("sigmoid", [X])
        header, _ = late.receive()
        assert header["status"] == UNAVAILABLE and "stop" in header["error"], header
        busy.send_raw(rest)
        assert [h["id"] for h in until_closed(busy)] == [busy.put_id]
        assert until_closed(late) == []


def all_that_was_sent_before_goaway_came_is_answered():
    with Daemon() as daemon:
        client = daemon.client()
        with client.one_write():
            ids = {client.submit("sigmoid", [X[:3]]) for _ in range(3000)}
        daemon.process.send_signal(signal.SIGTERM)
        headers = until_closed(client)
        assert {h["id"] for h in headers if h["type"] == "result"} == ids
        assert {h.get("status", 0) for h in headers if h["type"] == "result"} <= {0, UNAVAILABLE}


def those_who_wait_to_be_accepted_are_still_served():
    with Daemon() as daemon:
        busy = daemon.client()
        rest = half_a_request(busy)
        front = daemon.children()["xopd-front"][0]
        os.kill(front, signal.SIGSTOP)
        clients = [daemon.client(hello=False) for _ in range(20)]
        daemon.process.send_signal(signal.SIGTERM)
        os.kill(front, signal.SIGCONT)
        goaway(busy)
        for client in clients:
            client.send({"type": "hello", "version_min": 1, "version_max": 1, "agent": "test"})
            assert [h["type"] for h in [client.receive()[0], client.receive()[0]]] == \
                ["hello", "goaway"]
        busy.send_raw(rest)
        assert [h["id"] for h in until_closed(busy)] == [busy.put_id]


def over_tcp_the_last_answers_are_not_lost_to_what_a_client_still_sends():
    with Daemon("--insecure-tcp", listen=["tcp:127.0.0.1:0"]) as daemon:
        client = tcp(daemon)
        rest = half_a_request(client)
        daemon.process.send_signal(signal.SIGTERM)
        goaway(client)
        client.send_raw(rest)
        assert [h["id"] for h in until_closed(client)] == [client.put_id]
        # The server has said that it ends and still reads: this gets no reset in return.
        for _ in range(3):
            client.send_raw(frame({"type": "ping", "id": 9}))
            assert client.socket.recv(1) == b""
        client.close()
        assert daemon.process.wait(60) == 0


def what_cannot_be_finished_in_time_gets_an_error():
    with Daemon(config="[server]\ndrain_timeout_ms = 0\n") as daemon:
        client = daemon.client()
        half_a_request(client)
        daemon.process.send_signal(signal.SIGTERM)
        goaway(client)
        last = until_closed(client)
        assert [h["type"] for h in last] == ["error"] and last[0]["status"] == UNAVAILABLE, last
        daemon.wait_for("requests that are not finished .*: 1")


run([a_request_whose_body_is_under_way_is_finished,
     who_says_hello_to_a_server_that_stops_is_told_so,
     all_that_was_sent_before_goaway_came_is_answered,
     those_who_wait_to_be_accepted_are_still_served,
     over_tcp_the_last_answers_are_not_lost_to_what_a_client_still_sends,
     what_cannot_be_finished_in_time_gets_an_error])
