"""Memory that the daemon reads and writes in place, as a pool of blocks.

A segment is one attached client memory, cut into blocks of one size. A block goes back to its pool
when the last array over it is gone, from whatever thread and in whatever moment that is, so its
finaliser does nothing but append to a deque, which who takes the next block empties.

A signal's handler may raise anywhere in here. What it may leave behind is a block or a segment that
is never used again; never one that two have.
"""

from __future__ import annotations

import bisect
import contextlib
import sys
import threading
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

import numpy as np

from ._dtypes import STORAGE
from .errors import FailedPrecondition, PermissionDenied, ResourceExhausted, Unimplemented

ALIGNMENT = 64
SMALLEST = 4096
SEGMENT = 1 << 20  # blocks smaller than this share a segment of this size
IDLE = 256 << 20   # bytes of segments without any use that are kept for the next


class Segment:
    __slots__ = ("memory", "address", "block_bytes", "blocks", "free", "live", "doubtful", "cut",
                 "pool")

    def __init__(self, pool: "Pool", memory: int, address: int, block_bytes: int,
                 blocks: int) -> None:
        self.pool = pool
        self.memory, self.address = memory, address
        self.block_bytes, self.blocks = block_bytes, blocks
        self.free: List[int] = []  # addresses of blocks that were used and are not now
        self.cut = 0               # blocks that were ever used
        self.live = 0
        self.doubtful = False

    def bytes(self) -> int:
        return self.block_bytes * self.blocks

    def take(self) -> Optional[int]:
        if not self.free and self.cut == self.blocks:
            return None
        self.live += 1  # before anything else: a segment without live blocks may be unmapped
        if self.free:
            return self.free.pop()
        self.cut += 1
        return self.address + (self.cut - 1) * self.block_bytes


class Block:
    """The right to a block, for as long as this object lives."""
    __slots__ = ("segment", "address", "__array_interface__", "__weakref__")

    def __init__(self, segment: Segment, address: int) -> None:
        self.address = address
        self.segment = segment

    def array(self, dtype: int, shape: Tuple[int, ...]) -> np.ndarray[Any, Any]:
        """An array over its beginning, which keeps it; in the type that elements are stored as."""
        self.__array_interface__ = {"shape": shape, "typestr": STORAGE[dtype].str, "version": 3,
                                    "data": (self.address, False)}
        return np.asarray(self)

    def __del__(self) -> None:
        segment = getattr(self, "segment", None)
        if segment is None:
            return  # what made it was interrupted
        segment.pool.returned.append((segment, self.address))
        if segment.pool.closed:
            segment.pool.tidy()


def _block_bytes(n: int) -> int:
    """n rounded up so that similar sizes share blocks: to a power of two, above 1 MiB to an eighth
    of one."""
    if n <= SMALLEST:
        return SMALLEST
    power = 1 << (n - 1).bit_length()
    if power <= SEGMENT:
        return power
    step = power >> 4
    return (n + step - 1) // step * step


class Pool:
    """attach makes attached memory of so many bytes: its handle and its address. detach waits until
    the daemon has no use of it, free frees it. After close() only free is used, from any thread."""

    def __init__(self, attach: Callable[[int], Tuple[int, int]], detach: Callable[[int], None],
                 free: Callable[[int], None], idle: int = IDLE) -> None:
        self._attach: Optional[Callable[[int], Tuple[int, int]]] = attach
        self._detach: Optional[Callable[[int], None]] = detach
        self._free, self._idle = free, idle
        self._lock = threading.Lock()
        self._by_size: Dict[int, List[Segment]] = {}
        self._ranges: List[Tuple[int, int]] = []  # addresses of all segments, in order
        self.returned: Deque[Tuple[Segment, int]] = deque()
        self.refusal: Optional[Exception] = None  # why there is no such memory on this connection
        self.closed = False

    def take(self, n: int) -> Block:
        """A block of at least n bytes."""
        size = _block_bytes(n)
        with self._lock:
            self._collect()
            for segment in self._by_size.get(size, ()):
                address = segment.take()
                if address is not None:
                    return Block(segment, address)
            segment = self._add(size)
            address = segment.take()
            assert address is not None
            return Block(segment, address)

    def try_take(self, n: int) -> Optional[Block]:
        """The same; None where there is no such memory, or no more of it."""
        if self.refusal is not None:
            return None
        try:
            return self.take(n)
        except ResourceExhausted:
            return None
        except (FailedPrecondition, PermissionDenied, Unimplemented) as error:
            self.refusal = error
            return None

    def find(self, address: int, n: int) -> bool:
        """Whether the daemon can use these bytes where they are."""
        with self._lock:
            at = bisect.bisect_right(self._ranges, (address, sys.maxsize)) - 1
            if at < 0:
                return False
            start, end = self._ranges[at]
            return address + n <= end and (address - start) % ALIGNMENT == 0

    def doubt(self, block: Block) -> None:
        """The daemon may be using the block although its request was answered: nothing of its
        segment is handed out any more."""
        with self._lock:
            segment = block.segment
            with contextlib.suppress(ValueError):
                self._by_size[segment.block_bytes].remove(segment)
            segment.doubtful = True

    def close(self) -> None:
        """The connection is closed: what no array needs is unmapped now, the rest when it can."""
        self.closed = True
        self._attach = self._detach = None  # arrays keep this object, but not the connection
        self.tidy()

    def tidy(self) -> None:
        # Whoever holds the lock is about to do the same; one that has just done it is followed by
        # another finaliser or by nobody, and then a segment stays until the process ends.
        while self.returned and self._lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self._lock.release()
        if self.closed and self._lock.acquire(blocking=False):
            try:
                self._shrink(0)
            finally:
                self._lock.release()

    # ---- Under the lock ----

    def _collect(self) -> None:
        idle = False
        while self.returned:
            segment, address = self.returned.popleft()
            segment.free.append(address)
            segment.live -= 1
            if segment.live == 0:
                idle = True
                if segment.doubtful:
                    self._drop(segment)
        if idle:
            self._shrink(0 if self.closed else self._idle)

    def _shrink(self, idle: int, wait: bool = False) -> None:
        """Of segments without use, keeps so many bytes."""
        kept = 0
        unused = [s for list_ in self._by_size.values() for s in list_ if s.live == 0]
        for segment in unused:
            kept += segment.bytes()
            if kept > idle:
                self._by_size[segment.block_bytes].remove(segment)
                self._drop(segment, wait)

    def _add(self, size: int) -> Segment:
        blocks = max(1, SEGMENT // size)
        attach = self._attach
        if attach is None:
            raise FailedPrecondition("the connection is closed")
        try:
            memory, address = attach(size * blocks)
        except ResourceExhausted:
            self._shrink(0, wait=True)
            memory, address = attach(size * blocks)
        segment = Segment(self, memory, address, size, blocks)
        bisect.insort(self._ranges, (address, address + segment.bytes()))
        self._by_size.setdefault(size, []).insert(0, segment)
        return segment

    def _drop(self, segment: Segment, wait: bool = False) -> None:
        self._ranges.remove((segment.address, segment.address + segment.bytes()))
        detach = self._detach
        if wait and detach is not None:
            detach(segment.memory)
        self._free(segment.memory)
