"""A connection to the daemon: calls that block and can be interrupted, futures, and the end.

The library's threads are the callers. While there are futures, two threads of this module's serve
them: the reader, which is inside xop_client_wait as long as something is in flight, and the
finisher, to which callbacks give their results through a queue.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from ctypes import byref, c_void_p
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from ._library import (CError, COptions, CResult, CTensor, append_result, lib, queue_result)
from ._memory import IDLE, Pool
from ._request import Call, Request, Result, Tensor, fill
from .errors import Cancelled, DeadlineExceeded, Error, FailedPrecondition, error_of

LOOK_UP_MS = 100  # how long a wait may keep Python from a signal that came before the wait did

Finish = Callable[[Optional[Result], Optional[Error]], None]


def check(status: int, error: CError) -> None:
    if status != 0:
        raise error_of(status, error.message.decode("utf-8", "replace"))


class Connection:
    def __init__(self, address: Optional[str], options: COptions, idle: int = IDLE) -> None:
        self.client = c_void_p()
        error = CError()
        check(lib.xop_client_open(address.encode() if address else None, byref(options),
                                  byref(self.client), byref(error)), error)
        self.address: str = lib.xop_client_address(self.client).decode()
        self.pid = os.getpid()
        self.pool = Pool(self._attach, lib.xop_memory_free, idle)
        # Reentrant, because finalisers use the connection, and come at any moment.
        self._lock = threading.RLock()
        self._left = threading.Condition(self._lock)
        self._inside: Dict[int, int] = {}  # threads in the library: how deep
        self._closing = self._closed = False
        self._calls: Set[Call] = set()      # that the library may know
        self._garbage: Deque[int] = deque()  # handles of what finalisers left
        self._ignored: List[int] = []        # results that nobody waits for
        self._registering = threading.Lock()
        self._finishes: Dict[int, Tuple[Call, Finish]] = {}
        self._results: "SimpleQueue[Optional[int]]" = SimpleQueue()
        self._submitted = threading.Semaphore(0)
        self._threads: List[threading.Thread] = []

    # ---- Who is inside, and the end ----

    def __enter__(self) -> c_void_p:
        """Within, the client is there."""
        if os.getpid() != self.pid:
            raise FailedPrecondition("this connection was opened by the parent process: connect "
                                     "again after fork")
        me = threading.get_ident()
        with self._lock:
            if self._closing:
                raise FailedPrecondition("the connection is closed")
            self._inside[me] = self._inside.get(me, 0) + 1
        return self.client

    def __exit__(self, *_: object) -> None:
        me = threading.get_ident()
        with self._lock:
            depth = self._inside[me] - 1
            if depth:
                self._inside[me] = depth
            else:
                del self._inside[me]
                if self._closing:
                    self._left.notify_all()

    def close(self) -> None:
        """Ends it: what is in flight is cancelled, what is resident freed. Arrays stay."""
        if os.getpid() != self.pid:
            return
        me = threading.get_ident()
        with self._lock:
            if me in self._inside:
                raise FailedPrecondition("close: this thread is inside a call of the connection")
            if self._closing:
                while not self._closed and me not in (t.ident for t in self._threads):
                    self._left.wait()
                return
            self._closing = True
            calls = list(self._calls)
        for call in calls:
            if call.id.value:
                lib.xop_cancel(self.client, call.id, None)
        self._submitted.release()
        with self._lock:
            while self._inside:
                self._left.wait()
        lib.xop_client_close(self.client)
        self._results.put(None)
        for thread in self._threads:
            if thread.ident != me:
                thread.join()
        self._free_ignored()
        self.pool.close()
        with self._lock:
            self._closed = True
            self._left.notify_all()

    @property
    def closed(self) -> bool:
        return self._closing

    # ---- Calls that block ----

    def run(self, request: Request) -> Result:
        """Sends it and waits. An exception meanwhile, KeyboardInterrupt above all, cancels it."""
        call = Call(request)
        error = CError()
        with self as client:
            self._free_garbage()
            self._calls.add(call)
            try:
                status = lib.xop_submit(client, byref(call.c), append_result, call.box,
                                        byref(call.id), byref(error))
                while status == 0 and not lib.xop_wait(client, call.id, LOOK_UP_MS):
                    pass
            except BaseException:
                self._give_up(call)
                raise
            self._calls.discard(call)
        check(status, error)
        result = Result(call.box.pop())
        failure = result.error()
        if failure is not None:
            self.failed(request, failure)
            raise failure
        return result

    def _give_up(self, call: Call) -> None:
        if call.id.value == 0 or call.box:
            self._calls.discard(call)  # never taken on, or done already
        else:
            lib.xop_cancel(self.client, call.id, None)
            # Another interrupt leaves it among the calls, which keep what it uses.
            while not lib.xop_wait(self.client, call.id, LOOK_UP_MS):
                pass
            self._calls.discard(call)
        while call.box:
            Result(call.box.pop())
        for block in call.request.blocks:
            self.pool.doubt(block)

    def failed(self, request: Request, error: Error) -> None:
        """What was launched runs on where its answer was CANCELLED or DEADLINE_EXCEEDED, and may
        still use its memory."""
        if isinstance(error, (Cancelled, DeadlineExceeded)):
            for block in request.blocks:
                self.pool.doubt(block)

    def document(self, function: Any, *arguments: Any) -> bytes:
        """What xop_describe, xop_stats or xop_ping answers."""
        address = c_void_p()
        with self as client:
            status = function(client, *arguments, byref(address))
        if not address.value:
            raise error_of(status, "out of memory")
        result = Result(address.value)
        failure = result.error()
        if failure is not None:
            raise failure
        return result.text()

    # ---- Memory and tensors that stay ----

    def _attach(self, n: int) -> Tuple[int, int]:
        memory, error = c_void_p(), CError()
        check(lib.xop_memory_create(n, byref(memory), byref(error)), error)
        try:
            with self as client:
                check(lib.xop_memory_attach(client, memory, True, byref(error)), error)
        except BaseException:
            lib.xop_memory_free(memory)
            raise
        assert memory.value is not None
        return memory.value, lib.xop_memory_data(memory)

    def handle(self) -> int:
        with self as client:
            return int(lib.xop_handle(client))

    def transfer(self, function: Any, handle: int, tensor: Tensor) -> None:
        """xop_put or xop_get."""
        c, error = CTensor(), CError()
        fill(c, tensor)
        with self as client:
            self._free_garbage()
            check(function(client, handle, byref(c), byref(error)), error)

    def discard(self, handle: int) -> None:
        """Frees a tensor or a context; never waits, never fails, may come from a finaliser."""
        if self._closing or os.getpid() != self.pid:
            return
        self._garbage.append(handle)
        try:
            with self:
                self._free_garbage()
        except FailedPrecondition:
            pass  # closed meanwhile, and so it is freed

    def _free_garbage(self) -> None:
        self._free_ignored()
        while self._garbage:
            try:
                handle = self._garbage.popleft()
            except IndexError:
                return  # another thread was faster
            lib.xop_submit_free(self.client, handle, append_result, self._ignored, None)

    def _free_ignored(self) -> None:
        while self._ignored:
            try:
                lib.xop_result_free(self._ignored.pop())
            except IndexError:
                return

    # ---- Futures ----

    def submit(self, request: Request, finish: Finish) -> Call:
        """Sends it and returns; finish is called once, on the finisher's thread."""
        call = Call(request)
        error = CError()
        with self as client:
            self._free_garbage()
            self._start_threads()
            self._calls.add(call)
            # The finisher looks for the id under the same lock, so it cannot come too early.
            with self._registering:
                status = lib.xop_submit(client, byref(call.c), queue_result, self._results,
                                        byref(call.id), byref(error))
                if status == 0:
                    self._finishes[call.id.value] = (call, finish)
            if status != 0:
                self._calls.discard(call)
                check(status, error)
        self._submitted.release()
        return call

    def cancel(self, call: Call) -> None:
        try:
            with self as client:
                lib.xop_cancel(client, call.id, None)
        except FailedPrecondition:
            pass  # closing cancels everything

    def _start_threads(self) -> None:
        with self._lock:
            if self._threads:
                return
            for target in (self._read, self._finish):
                thread = threading.Thread(target=target, name="xop" + target.__name__, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _read(self) -> None:
        while True:
            self._submitted.acquire()
            try:
                with self as client:
                    while (not self._closing
                           and lib.xop_client_wait(client, LOOK_UP_MS, None)
                           == DeadlineExceeded.status):
                        pass
            except FailedPrecondition:
                return

    def _finish(self) -> None:
        while True:
            address = self._results.get()
            if address is None:
                return
            number = CResult.from_address(address).id
            with self._registering:
                call, finish = self._finishes.pop(number, (None, None))
            result = Result(address)
            if call is None or finish is None:
                continue  # whoever submitted it was interrupted, and has no future
            self._calls.discard(call)
            failure = result.error()
            if failure is not None:
                self.failed(call.request, failure)
            finish(None if failure else result, failure)
            del call, finish, result  # not to be kept until the next one comes
