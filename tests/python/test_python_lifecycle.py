#!/usr/bin/python3
"""xop: interrupts, futures, faults, and the end of clients, daemons and processes."""

import asyncio
import concurrent.futures
import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading

import numpy as np

from pyxop import Daemon, PACKAGE, client_of, faulty_operators, raises, run, served

import xop

LARGE = np.arange(90000, dtype=np.float32)
LIMIT_S = 120
# An endless request costs its worker, soon or when the test says so.
HANGS = "[watchdog]\nrequest_ms = 300\nheartbeat_ms = 500\n"
NEVER = "[watchdog]\nrequest_ms = 3600000\nheartbeat_ms = 3600000\n"


@contextlib.contextmanager
def faulty(config=HANGS):
    with faulty_operators() as arguments, Daemon(*arguments, config=config) as daemon:
        with client_of(daemon) as gpu:
            yield daemon, gpu
        os.kill(daemon.worker(), signal.SIGKILL)  # which would stop when it is done: never


def until(condition):
    """Each look is a question to the daemon, so this waits for answers."""
    for _ in range(1000000):
        if condition():
            return
    raise AssertionError("it never came to that")


def in_flight(watcher, agent):
    return sum(c["in_flight"] for c in watcher.stats()["clients"] if c["agent"] == agent)


def ctrl_c_cancels():
    with faulty(NEVER) as (daemon, _), client_of(daemon, agent="me") as gpu, \
            client_of(daemon, agent="watcher") as watcher:
        def interrupt():
            until(lambda: in_flight(watcher, "me") == 1)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        for x in (LARGE[:3], LARGE):
            thread = threading.Thread(target=interrupt)
            thread.start()
            raises(KeyboardInterrupt, "", gpu.fault, x, how="endless")
            thread.join()
            os.kill(daemon.worker(), signal.SIGKILL)  # what was launched goes on otherwise
            until(lambda: in_flight(watcher, "me") == 0)
            assert np.array_equal(gpu.sigmoid(x), watcher.sigmoid(x))


class Alarm(Exception):
    pass


def interrupts_at_any_moment_do_no_harm():
    def on_alarm(*_):
        raise Alarm()
    interrupted = 0
    before = signal.signal(signal.SIGALRM, on_alarm)
    try:
        with served() as (_, gpu):
            expected = {x.size: gpu.square_bias(x, 1).copy() for x in (LARGE[:100], LARGE)}
            for i in range(400):
                x = LARGE[:100] if i % 2 else LARGE
                y = None
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-5 + (i % 50) * 2e-5)
                    try:
                        y = gpu.square_bias(x, 1)
                    finally:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                except Alarm:
                    interrupted += 1
                if y is not None:
                    assert np.array_equal(y, expected[x.size])
            assert np.array_equal(gpu.square_bias(LARGE, 1), expected[LARGE.size])
            assert interrupted > 0
            assert gpu.stats()["clients"][0]["in_flight"] == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def futures_come_in_any_number():
    with served() as (_, gpu):
        futures = {gpu.submit("square_bias", LARGE[i:i + 1 + i % 7 * 9000], np.float32(i)): i
                   for i in range(300)}
        for future in concurrent.futures.as_completed(futures, LIMIT_S):
            i = futures[future]
            x = LARGE[i:i + 1 + i % 7 * 9000]
            assert np.array_equal(future.result(), x * x + np.float32(i)), i
        called = threading.Event()
        gpu.submit("sigmoid", LARGE).add_done_callback(lambda f: called.set())
        assert called.wait(LIMIT_S)
        error = gpu.submit("square_bias", LARGE, LARGE[:7]).exception(LIMIT_S)
        assert isinstance(error, ValueError) and "do not broadcast" in str(error)
        error = gpu.submit("square_bias", LARGE, np.ones(1, np.int32)).exception(LIMIT_S)
        assert isinstance(error, TypeError)
        assert isinstance(gpu.submit("sigmoid", LARGE, resident=True).result(LIMIT_S), xop.Resident)


def arrays_may_be_written_once_they_are_submitted():
    def submit(gpu):
        futures = []
        for x in (LARGE[:10].copy(), LARGE.copy(), LARGE[::2].copy()[::-1]):
            futures.append((x.copy(), gpu.submit("square_bias", x, np.float32(1))))
            x[:] = -1
        return futures
    with faulty(NEVER) as (daemon, gpu):
        for _, future in submit(gpu):
            future.result(LIMIT_S)
        del future  # so that there is memory, which a worker that is busy cannot attach
        with requests_seen(gpu, "submit") as (inputs, _):
            for x in (LARGE[:10], LARGE):
                gpu.submit("sigmoid", x).result(LIMIT_S)
                assert inputs.pop() != x.ctypes.data  # it is read later than submit returns
        with client_of(daemon) as other:
            blocking = other.submit("fault", LARGE[:1], how="endless")
            futures = submit(gpu)
            blocking.cancel()
        os.kill(daemon.worker(), signal.SIGKILL)
        for x, future in futures:
            assert np.array_equal(future.result(LIMIT_S), x * x + 1)


def futures_can_be_cancelled():
    with faulty() as (daemon, gpu):
        first = gpu.submit("fault", LARGE, how="endless")
        second = gpu.submit("fault", LARGE, how="endless")
        assert not first.done()
        assert first.cancel() and second.cancel() and first.cancelled()
        assert first.cancel()  # once more is as good
        raises(concurrent.futures.CancelledError, "", second.result, 1)
        done, _ = concurrent.futures.wait([first, second], LIMIT_S)
        assert done == {first, second}
        y = gpu.submit("sigmoid", LARGE)
        y.result(LIMIT_S)
        assert not y.cancel()


def futures_can_be_awaited():
    with faulty() as (_, gpu):
        async def main():
            xs = [LARGE[:n] for n in (1, 5, 50000)]
            ys = await asyncio.gather(*(gpu.submit("square_bias", x, 1) for x in xs))
            for x, y in zip(xs, ys):
                assert np.array_equal(y, x * x + 1)
            try:
                await gpu.submit("square_bias", LARGE, LARGE[:3])
            except ValueError as error:
                assert "do not broadcast" in str(error)
            else:
                raise AssertionError("no error")

            async def endless():
                await gpu.submit("fault", LARGE, how="endless")
            task = asyncio.ensure_future(endless())
            try:
                await asyncio.wait_for(task, 0.05)
            except asyncio.TimeoutError:
                pass
            else:
                raise AssertionError("it ended")
            assert task.cancelled()
        asyncio.run(main())
        until(lambda: gpu.stats()["clients"][0]["in_flight"] == 0)


@contextlib.contextmanager
def requests_seen(gpu, method):
    """Where the inputs of requests lie, and the segments of their blocks."""
    inputs, segments = [], []
    call = getattr(gpu._connection, method)

    def spy(request, *rest):
        inputs.extend(t.address for t in request.inputs)
        segments.extend(b.segment for b in request.blocks)
        return call(request, *rest)
    setattr(gpu._connection, method, spy)
    yield inputs, segments
    delattr(gpu._connection, method)


def memory_of_what_may_still_run_is_not_handed_out():
    with faulty(NEVER) as (daemon, gpu):
        def handed_out():
            return {a.base.segment for a in [gpu.empty(LARGE.shape) for _ in range(4)]}
        with requests_seen(gpu, "run") as (_, segments):
            gpu.sigmoid(LARGE)
        assert segments and set(segments) <= handed_out()  # what has ended is used again
        with requests_seen(gpu, "run") as (_, segments):
            raises(xop.DeadlineExceeded, "", gpu.fault, LARGE, how="endless", deadline=0.05)
        assert segments
        os.kill(daemon.worker(), signal.SIGKILL)  # which has no time to attach memory
        assert not set(segments) & handed_out()
        with requests_seen(gpu, "submit") as (_, segments):
            future = gpu.submit("fault", LARGE, how="endless", deadline=0.05)
            assert isinstance(future.exception(LIMIT_S), xop.DeadlineExceeded)
        assert segments
        os.kill(daemon.worker(), signal.SIGKILL)
        assert not set(segments) & handed_out()
        assert issubclass(xop.DeadlineExceeded, TimeoutError)
        assert np.array_equal(gpu.square_bias(LARGE, 1), LARGE * LARGE + 1)


def faults_have_an_exception_of_their_own():
    with faulty() as (_, gpu):
        error = raises(xop.DeviceFault, "", gpu.fault, LARGE[:3], how="address")
        assert error.status == xop.Status.DEVICE_FAULT == 64 and error.message
        assert np.array_equal(gpu.sigmoid(LARGE), gpu.sigmoid(LARGE))


def a_workers_death_is_not_noticed():
    with served() as (daemon, gpu):
        kept = gpu.put(LARGE)
        for n in range(1, 4):
            futures = [gpu.submit("square_bias", LARGE, np.float32(i)) for i in range(20)]
            os.kill(daemon.worker(), signal.SIGKILL)
            for i, future in enumerate(futures):
                assert np.array_equal(future.result(LIMIT_S), LARGE * LARGE + np.float32(i))
            daemon.wait_for("ready: ", n + 1)
        assert np.array_equal(kept.numpy(), LARGE)


def no_daemon_is_unavailable():
    error = raises(xop.Unavailable, "/nowhere.sock", xop.connect, "unix:/nowhere.sock")
    assert isinstance(error, ConnectionError) and error.status == xop.Status.UNAVAILABLE
    raises(ValueError, "", xop.connect, "nonsense:1")
    with Daemon() as daemon:
        gpu = xop.connect("unix:" + daemon.path)
        kept = gpu.put(LARGE)
        os.kill(daemon.worker(), signal.SIGSTOP)
        future = gpu.submit("sigmoid", LARGE)
        os.kill(daemon.worker(), signal.SIGKILL)
        future.exception(LIMIT_S)
        daemon.stop()
        raises(xop.Unavailable, "", gpu.sigmoid, LARGE)
        raises(xop.Unavailable, "", gpu.submit, "sigmoid", LARGE)
        raises(xop.Unavailable, "", kept.numpy)
        assert gpu.closed is False
        gpu.close()


def a_daemon_that_dies_ends_what_is_in_flight():
    with faulty_operators() as arguments:
        daemon = Daemon(*arguments, config=NEVER)
        with client_of(daemon) as gpu:
            future = gpu.submit("fault", LARGE, how="endless")
            front, worker = daemon.children()["xopd-front"][0], daemon.worker()
            until(lambda: gpu.stats()["clients"][0]["in_flight"] == 1)
            os.kill(front, signal.SIGKILL)
            os.kill(worker, signal.SIGKILL)
            assert isinstance(future.exception(LIMIT_S), xop.Unavailable)
        daemon.stop()


def closing_ends_everything_and_keeps_arrays():
    with faulty(NEVER) as (daemon, _):
        gpu = xop.connect("unix:" + daemon.path)
        y, kept = gpu.square_bias(LARGE, 1), gpu.put(LARGE)
        y = gpu.square_bias(LARGE, 1)
        future = gpu.submit("fault", LARGE, how="endless")
        errors = []

        def blocked():
            try:
                gpu.fault(LARGE, how="endless")
            except xop.Error as error:
                errors.append(error)
        thread = threading.Thread(target=blocked)
        thread.start()
        with client_of(daemon, agent="watcher") as watcher:
            until(lambda: in_flight(watcher, "python") == 2)
        gpu.close()
        thread.join()
        assert isinstance(errors[0], (xop.Cancelled, xop.FailedPrecondition)), errors
        assert isinstance(future.exception(LIMIT_S), xop.Cancelled)
        assert np.array_equal(y, LARGE * LARGE + 1)
        assert gpu.closed and "closed" in repr(gpu)
        gpu.close()
        raises(xop.FailedPrecondition, "closed", gpu.sigmoid, LARGE)
        raises(xop.FailedPrecondition, "closed", gpu.submit, "sigmoid", LARGE)
        raises(xop.FailedPrecondition, "closed", kept.numpy)
        kept.free()
        del y, future
        errors.clear()  # whose tracebacks keep what was under way
        gc.collect()
        assert not gpu._operands.pool._ranges, "memory is left that nothing uses"


def a_closed_client_keeps_no_descriptor_though_its_arrays_live():
    def sockets():
        found = []
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                found.append(os.readlink("/proc/self/fd/" + name))
        return sum(f.startswith("socket:") for f in found)
    with Daemon() as daemon:
        gc.collect()  # of what is left of other tests
        before = sockets()
        gpu = xop.connect("unix:" + daemon.path)
        arrays = [gpu.square_bias(LARGE, 1) for _ in range(3)]
        assert sockets() == before + 1
        gpu.close()
        del gpu
        gc.collect()
        assert sockets() == before
        for y in arrays:
            assert np.array_equal(y, LARGE * LARGE + 1)
        del arrays, y


def a_client_that_nobody_has_is_closed():
    with Daemon() as daemon, client_of(daemon, agent="watcher") as watcher:
        gpu = xop.connect("unix:" + daemon.path, agent="lost")
        y = gpu.submit("square_bias", LARGE, np.float32(1)).result(LIMIT_S)
        del gpu
        gc.collect()
        until(lambda: all(c["agent"] != "lost" for c in watcher.stats()["clients"]))
        assert np.array_equal(y, LARGE * LARGE + 1)


def threads_share_a_client():
    with served() as (_, gpu):
        wrong = []

        def work(seed):
            rng = np.random.default_rng(seed)
            for n in rng.integers(1, 40000, 30):
                x = rng.standard_normal(n).astype(np.float32)
                if not np.array_equal(gpu.square_bias(x, x), x * x + x):
                    wrong.append(seed)
                kept = gpu.put(x)
                if not np.array_equal(kept.numpy(), x):
                    wrong.append(seed)
        threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert gpu.stats()["clients"][0]["residents"] == 0


def a_child_has_to_connect_anew():
    with served() as (daemon, gpu):
        y, kept = gpu.square_bias(LARGE, 1), gpu.put(LARGE)
        gpu.submit("sigmoid", LARGE).result(LIMIT_S)
        pid = os.fork()
        if pid == 0:
            try:
                raises(xop.FailedPrecondition, "parent process", gpu.sigmoid, LARGE)
                assert y[2] == LARGE[2] * LARGE[2] + 1
                kept.free()
                with client_of(daemon) as mine:
                    assert np.array_equal(mine.square_bias(LARGE, 1), LARGE * LARGE + 1)
                gpu.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert np.array_equal(gpu.sigmoid(kept), gpu.sigmoid(LARGE))


def a_process_may_end_in_the_middle():
    with faulty(NEVER) as (daemon, _):
        program = textwrap.dedent(f"""
            import sys, numpy as np
            sys.path.insert(0, {PACKAGE!r})
            import xop
            gpu = xop.connect({"unix:" + daemon.path!r})
            x = np.ones(90000, np.float32)
            y, kept = gpu.square_bias(x, x), gpu.put(x)
            futures = [gpu.submit("fault", x, how="endless") for _ in range(3)]
            print(y[0])
            """)
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                               timeout=LIMIT_S)
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2.0\n", ""), ended


run([ctrl_c_cancels,
     interrupts_at_any_moment_do_no_harm,
     futures_come_in_any_number,
     arrays_may_be_written_once_they_are_submitted,
     futures_can_be_cancelled,
     futures_can_be_awaited,
     memory_of_what_may_still_run_is_not_handed_out,
     faults_have_an_exception_of_their_own,
     a_workers_death_is_not_noticed,
     no_daemon_is_unavailable,
     a_daemon_that_dies_ends_what_is_in_flight,
     closing_ends_everything_and_keeps_arrays,
     a_closed_client_keeps_no_descriptor_though_its_arrays_live,
     a_client_that_nobody_has_is_closed,
     threads_share_a_client,
     a_child_has_to_connect_anew,
     a_process_may_end_in_the_middle])
