#!/usr/bin/python3
"""Workers that die, stop or misbehave under load, and clients that do: nobody else notices."""

import os
import select
import signal

import numpy as np

from xopd import (CANCELLED, Closed, DEADLINE_EXCEEDED, Daemon, UNAVAILABLE, faulty_operators,
                  operands, raises, run, tensors)

B = np.array([1, 2, 3, 4], dtype=np.float32)


def x_of(i, n=4):
    return np.arange(i, i + n, dtype=np.float32)


def submit_many(client, first, count, n=4):
    return {client.submit("square_bias", [x_of(i, n), B if n == 4 else B[:1]]): i
            for i in range(first, first + count)}


def collect(client, expected, n=4):
    """Every answer once, and right."""
    waiting = dict(expected)
    while waiting:
        header, body = client.answer()
        assert header.get("status", 0) == 0, header
        i = waiting.pop(header["id"])
        assert np.array_equal(tensors(header, body)[0],
                              x_of(i, n) * x_of(i, n) + (B if n == 4 else B[:1])), i


def a_thousand_requests_in_flight_survive_kill_9_of_the_worker():
    # Requests wait for company long enough for the worker to die with them in hand.
    with Daemon(config="[batch]\nmax_delay_us = 20000\n") as daemon:
        client = daemon.client()
        expected = submit_many(client, 0, 1000)
        os.kill(daemon.worker(), signal.SIGKILL)
        collect(client, expected)
        daemon.wait_for(r"ready: ", 2)
        assert client.document("stats")["server"]["restarts"] >= 1


def kill_9_again_and_again_under_load_loses_nothing():
    with Daemon() as daemon:
        client = daemon.client()
        big = 1 << 14
        for round_ in range(1, 6):
            expected = submit_many(client, round_ * 1000, 40, big)
            daemon.wait_for(r"ready: ", round_)
            os.kill(daemon.worker(), signal.SIGKILL)
            collect(client, expected, big)


def every_connection_is_told_of_the_new_generation():
    with Daemon() as daemon:
        first, second = daemon.client(), daemon.client()
        os.kill(daemon.worker(), signal.SIGKILL)
        for client in (first, second):
            header, _ = client.receive()
            assert header["type"] == "generation" and header["generation"] == 2, header


def a_worker_that_is_stopped_is_replaced():
    with Daemon(config="[watchdog]\nheartbeat_ms = 500\n") as daemon:
        client = daemon.client()
        os.kill(daemon.worker(), signal.SIGSTOP)
        expected = submit_many(client, 0, 50)
        collect(client, expected)
        assert "stands still" in daemon.log


def other_signals_end_a_worker_and_nothing_else():
    # A sanitizer would take them for faults of the worker's own.
    leave = ":handle_segv=0:handle_sigbus=0:handle_abort=0"
    with Daemon(env={"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + leave}) as daemon:
        client = daemon.client()
        for number, kill in enumerate((signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS), 2):
            os.kill(daemon.worker(), kill)
            daemon.wait_for(r"ready: ", number)
            collect(client, submit_many(client, 0, 20))


def deadlines_are_answered_while_no_worker_lives():
    with Daemon(config="[watchdog]\nheartbeat_ms = 100000\n") as daemon:
        client = daemon.client()
        os.kill(daemon.worker(), signal.SIGSTOP)
        raises(DEADLINE_EXCEEDED, "deadline", client.run, "square_bias", [x_of(1), B], deadline_ms=50)
        os.kill(daemon.worker(), signal.SIGCONT)
        assert client.run("square_bias", [x_of(1), B])[0].shape == (4,)


def what_is_cancelled_is_never_launched():
    # In the worker's hands it waits for company that long, and would end the worker.
    with faulty_operators() as arguments, \
            Daemon(*arguments, config="[batch]\nmax_delay_us = 400000\n") as daemon:
        client, other = daemon.client(), daemon.client()
        worker = daemon.worker()
        described, body = operands([x_of(0)])
        doomed = [client.request("forward", body, op="fault", attrs={"how": "address"}, **keys,
                                 **{"in": described}) for keys in ({}, {"deadline_ms": 100})]
        other.request("forward", body, op="fault", attrs={"how": "address"}, **{"in": described})
        other.close()
        client.request("cancel", target=doomed[0])
        statuses = {}
        for _ in range(3):
            header, _ = client.answer()
            statuses[header["id"]] = header.get("status", 0)
        assert [statuses[i] for i in doomed] == [CANCELLED, DEADLINE_EXCEEDED], statuses
        client.run("fault", [x_of(0)]) # it waits as long, behind them
        assert daemon.worker() == worker
        assert client.document("stats")["server"]["restarts"] == 0


def clients_that_vanish_with_requests_in_flight_leave_nothing_behind():
    with Daemon() as daemon:
        for _ in range(20):
            client = daemon.client()
            submit_many(client, 0, 200)
            client.close()
        watcher = daemon.client()
        while True:
            server = watcher.document("stats")["server"]
            if server["connections"] == 1 and server["inbox_used"] == 0 and server["in_flight"] == 0:
                break
        collect(watcher, submit_many(watcher, 0, 10))


def a_client_that_never_reads_holds_nobody_up():
    with Daemon(config="[device]\noutbox = 32M\ninbox = 32M\n") as daemon:
        greedy, other = daemon.client(), daemon.client()
        x = np.zeros(1 << 18, np.float32)
        described, body = operands([x, B[:1]])
        greedy.socket.settimeout(0.5)
        try:
            for i in range(1, 400):
                greedy.send({"type": "forward", "id": i, "op": "square_bias", "in": described}, body)
        except OSError:
            pass  # it is not read from any more, as it should be
        collect(other, submit_many(other, 0, 200))
        small = daemon.client()
        collect(small, submit_many(small, 5, 5))
        greedy.close()


def a_full_inbox_makes_clients_wait_and_all_are_served():
    with Daemon(config="[device]\ninbox = 16M\noutbox = 16M\n") as daemon:
        clients = [daemon.client() for _ in range(4)]
        n = 1 << 20  # 4 MiB each
        import threading
        errors = []

        def work(client, start):
            try:
                for i in range(start, start + 6):
                    y, = client.run("square_bias", [x_of(i, n), B[:1]])
                    assert np.array_equal(y, x_of(i, n) ** 2 + B[0])
            except Exception as e:  # reported by the main thread
                errors.append(e)

        threads = [threading.Thread(target=work, args=(c, 10 * k)) for k, c in enumerate(clients)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert not errors, errors


def sigterm_answers_what_was_accepted_and_says_goaway():
    daemon = Daemon(config="[batch]\nmax_delay_us = 200000\n")
    with daemon:
        client = daemon.client()
        expected = submit_many(client, 0, 100)
        client.document("ping")  # all of them have been read
        daemon.process.send_signal(signal.SIGTERM)
        waiting, goaway = dict(expected), False
        try:
            while True:
                header, body = client.receive()
                if header["type"] == "goaway":
                    goaway = True
                elif header["id"] in waiting:
                    assert header.get("status", 0) == 0, header
                    waiting.pop(header["id"])
        except (Closed, ConnectionError):
            pass
        assert goaway and not waiting, (goaway, len(waiting))
        assert daemon.process.wait(60) == 0
        assert not os.path.exists(daemon.path)


def ticks(pid):
    """Processor time that the process has had."""
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def sigterm_ends_what_does_not_end_by_itself():
    # Neither the request that is waited for nor the one that was given up holds the exit up.
    for cancelled in (False, True):
        with faulty_operators() as arguments, \
                Daemon(*arguments, config="[server]\ndrain_timeout_ms = 300\n") as daemon:
            client = daemon.client()
            described, body = operands([x_of(0)])
            number = client.request("forward", body, op="fault", attrs={"how": "endless"},
                                    **{"in": described})
            begun = ticks(daemon.worker())
            while ticks(daemon.worker()) < begun + 10:  # it is at it, and at nothing else
                select.select([], [], [], 0.01)
            if cancelled:
                client.request("cancel", target=number)
                answers = {client.answer()[0]["id"] for _ in range(2)}
                assert number in answers, answers
            daemon.process.send_signal(signal.SIGTERM)
            daemon.wait_for("the worker is still at a request and is ended")


def the_workers_go_when_the_front_is_killed():
    daemon = Daemon()
    worker = daemon.worker()
    front, = daemon.children()["xopd-front"]
    os.kill(front, signal.SIGKILL)
    code = daemon.process.wait(60)
    assert code == 70, code
    assert not os.path.exists(f"/proc/{worker}")
    daemon.stop()


def without_a_backend_requests_are_refused_with_the_reason():
    with Daemon(config="[operators]\npath =\n") as daemon:
        pass
    daemon = Daemon("--backend", "cuda", ready=False)
    if os.environ.get("XOP_BACKEND") == "cuda":
        daemon.stop()
        return
    with daemon:
        daemon.wait_for("ended: ")
        client = daemon.client()
        e = raises(UNAVAILABLE, "no worker", client.run, "square_bias", [x_of(1), B])
        assert len(e.message) > 20, e.message
        assert client.document("ping")["ready"] is False


run([a_thousand_requests_in_flight_survive_kill_9_of_the_worker,
     kill_9_again_and_again_under_load_loses_nothing,
     every_connection_is_told_of_the_new_generation,
     a_worker_that_is_stopped_is_replaced,
     other_signals_end_a_worker_and_nothing_else,
     deadlines_are_answered_while_no_worker_lives,
     what_is_cancelled_is_never_launched,
     clients_that_vanish_with_requests_in_flight_leave_nothing_behind,
     a_client_that_never_reads_holds_nobody_up,
     a_full_inbox_makes_clients_wait_and_all_are_served,
     sigterm_answers_what_was_accepted_and_says_goaway,
     sigterm_ends_what_does_not_end_by_itself,
     the_workers_go_when_the_front_is_killed,
     without_a_backend_requests_are_refused_with_the_reason])
