"""A connection to the daemon: calls that block and can be interrupted, futures, and the end.

The library's threads are the callers. While there are futures, two threads of this module's serve
them: the reader, which is inside xop_client_wait as long as something is in flight, and the
finisher, to which callbacks give their results through a queue.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from ctypes import byref, c_void_p
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, List, Optional, Set, Tuple

from ._library import (CError, COptions, CResult, CTensor, append_result, lib, queue_result)
from ._memory import IDLE, Pool
from ._request import Call, Request, Result, Tensor, fill
from .errors import Cancelled, DeadlineExceeded, Error, FailedPrecondition, Unavailable, error_of

LOOK_UP_MS = 100  # how long a wait may keep Python from a signal that came before the wait did

Finish = Callable[[Optional[Result], Optional[Error]], None]


def _error_of(status: int, error: CError) -> Error:
    return error_of(status, error.message.decode("utf-8", "replace"))


class Connection:
    def __init__(self, address: Optional[str], options: COptions, idle: int = IDLE) -> None:
        self.client = c_void_p()
        error = CError()
        status = lib.xop_client_open(address.encode() if address else None, byref(options),
                                     byref(self.client), byref(error))
        if status != 0:
            raise _error_of(status, error)
        self.address: str = lib.xop_client_address(self.client).decode()
        self.pid = os.getpid()
        self.pool = Pool(self._attach, self._detach, lib.xop_memory_free, idle)
        self.closed = False
        self._lock = threading.Lock()
        self._calls: Set[Call] = set()       # that the library may know
        self._garbage: Deque[int] = deque()  # handles of what finalisers left
        self._ignored: List[int] = []        # results that nobody waits for
        self._finishes: Dict[int, Tuple[Call, Finish]] = {}
        self._results: "SimpleQueue[Optional[int]]" = SimpleQueue()
        self._submitted = threading.Semaphore(0)
        self._threads: List[threading.Thread] = []

    # ---- The end ----

    def close(self) -> None:
        """Ends it: what is in flight is cancelled, what is resident freed. Arrays stay."""
        if os.getpid() != self.pid:
            return
        with self._lock:  # submit() looks under it, so the reader waits for all that were taken
            self.closed = True
        with socket.socket(fileno=os.dup(lib.xop_client_descriptor(self.client))) as end:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the daemon was faster, or this was called before
        self._submitted.release()
        me = threading.current_thread()
        if me not in self._threads:
            for thread in self._threads:
                thread.join()
        self.pool.close()

    def __del__(self) -> None:
        # Nobody can be in the library: whoever is has a reference to this object.
        if self.client:
            lib.xop_client_close(self.client)
            self._free_ignored()
            self.pool.close()

    def _check(self) -> None:
        if os.getpid() != self.pid:
            raise FailedPrecondition("this connection was opened by the parent process: connect "
                                     "again after fork")
        if self.closed:
            raise FailedPrecondition("the connection is closed")

    # Errors are raised without a name for them: a frame that refers to the exception whose
    # traceback refers to the frame would keep arrays until there is a garbage collection.

    def _named(self, error: Error) -> Error:
        """What the end of the connection does to a call has a name of its own."""
        if self.closed and isinstance(error, Unavailable):
            return Cancelled("the connection was closed")
        return error

    def _check_status(self, status: int, error: CError) -> None:
        if status != 0:
            raise self._named(_error_of(status, error))

    # ---- Calls that block ----

    def run(self, request: Request) -> Result:
        """Sends it and waits; the result is the caller's to free. An exception meanwhile, a
        KeyboardInterrupt above all, cancels it."""
        call = Call(request)
        error = CError()
        self._check()
        self._free_garbage()
        self._calls.add(call)
        try:
            status = lib.xop_submit(self.client, byref(call.c), append_result, call.box,
                                    byref(call.id), byref(error))
            while status == 0 and not lib.xop_wait(self.client, call.id, LOOK_UP_MS):
                pass
        except BaseException:
            self._give_up(call)
            raise
        if status != 0:
            self._calls.discard(call)
            self._check_status(status, error)
        result = Result(call.box.pop())
        if result.failed:
            raise self._failed(call, result)
        self._calls.discard(call)
        return result

    def _failed(self, call: Call, result: Result) -> Error:
        """What went wrong. What was launched runs on where the answer is CANCELLED or
        DEADLINE_EXCEEDED, and may still use its memory."""
        error = self._named(result.error())
        result.free()
        if isinstance(error, (Cancelled, DeadlineExceeded)):
            for block in call.request.blocks:
                self.pool.doubt(block)
        self._calls.discard(call)
        return error

    def _give_up(self, call: Call) -> None:
        if call.id.value and not call.box:
            lib.xop_cancel(self.client, call.id, None)
            # Another interrupt leaves it among the calls, which keep what it uses.
            while not lib.xop_wait(self.client, call.id, LOOK_UP_MS):
                pass
        while call.box:
            lib.xop_result_free(call.box.pop())
        for block in call.request.blocks:
            self.pool.doubt(block)
        self._calls.discard(call)

    def document(self, function: Any, *arguments: Any) -> bytes:
        """What xop_describe, xop_stats or xop_ping answers."""
        address = c_void_p()
        self._check()
        status = function(self.client, *arguments, byref(address))
        if not address.value:
            raise error_of(status, "out of memory")
        result = Result(address.value)
        try:
            if result.failed:
                raise self._named(result.error())
            return result.text()
        finally:
            result.free()

    # ---- Memory and tensors that stay ----

    def _attach(self, n: int) -> Tuple[int, int]:
        self._check()
        memory, error = c_void_p(), CError()
        self._check_status(lib.xop_memory_create(n, byref(memory), byref(error)), error)
        try:
            status = lib.xop_memory_attach(self.client, memory, True, byref(error))
            self._check_status(status, error)
        except BaseException:
            lib.xop_memory_free(memory)
            raise
        assert memory.value is not None
        return memory.value, lib.xop_memory_data(memory)

    def _detach(self, memory: int) -> None:
        lib.xop_memory_detach(self.client, memory, None)

    def handle(self) -> int:
        return int(lib.xop_handle(self.client))

    def transfer(self, function: Any, handle: int, tensor: Tensor) -> None:
        """xop_put or xop_get."""
        c, error = CTensor(), CError()
        fill(c, tensor)
        self._check()
        self._free_garbage()
        self._check_status(function(self.client, handle, byref(c), byref(error)), error)

    def discard(self, handle: int) -> None:
        """Frees a tensor or a context; never waits, never fails, may come from a finaliser."""
        if not self.closed and os.getpid() == self.pid:
            self._garbage.append(handle)
            self._free_garbage()

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
        self._check()
        self._free_garbage()
        self._calls.add(call)
        # The finisher looks for the id under the same lock, so it cannot come too early.
        with self._lock:
            self._check()
            self._start_threads()
            status = lib.xop_submit(self.client, byref(call.c), queue_result, self._results,
                                    byref(call.id), byref(error))
            if status == 0:
                self._finishes[call.id.value] = (call, finish)
        if status != 0:
            self._calls.discard(call)
            self._check_status(status, error)
        self._submitted.release()
        return call

    def cancel(self, call: Call) -> None:
        lib.xop_cancel(self.client, call.id, None)

    def _start_threads(self) -> None:
        if not self._threads:
            for target in (self._read, self._finish):
                thread = threading.Thread(target=target, name="xop" + target.__name__, daemon=True)
                self._threads.append(thread)
                thread.start()

    def _read(self) -> None:
        while not self.closed:
            self._submitted.acquire()
            while lib.xop_client_wait(self.client, 0, None) == DeadlineExceeded.status:
                pass
        self._results.put(None)  # behind the last of the results

    def _finish(self) -> None:
        while True:
            address = self._results.get()
            if address is None:
                return
            number = CResult.from_address(address).id
            with self._lock:
                call, finish = self._finishes.pop(number, (None, None))
            result = Result(address)
            if call is not None and finish is not None:
                failure = self._failed(call, result) if result.failed else None
                self._calls.discard(call)
                finish(None if failure else result, failure)
                del failure
            # else whoever submitted it was interrupted, and has no future
            result.free()
            del call, finish, result  # not to be kept until the next one comes
