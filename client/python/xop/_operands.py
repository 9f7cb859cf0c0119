"""Arrays as operands, and outputs as arrays: what is copied, and where to.

Small tensors go through the socket, which costs less than the bookkeeping of shared memory; large
ones are copied into blocks of the pool, unless they are in it already, and outputs are made there
once it is known how large they come.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np

from . import _dtypes
from ._connection import Connection
from ._request import Request, Result, Tensor, view
from .errors import InvalidArgument, InvalidDtype

Array = np.ndarray[Any, Any]
Shapes = Tuple[Optional[Tuple[int, Tuple[int, ...]]], ...]

SMALL = 64 << 10  # bytes of a tensor below which it goes through the socket
REMEMBERED = 4096  # kinds of calls whose outputs' shapes are remembered


def storage(a: Array, number: int) -> Array:
    """The array with its elements as they are stored."""
    return a.view(np.uint16) if number == _dtypes.BF16 else a


def presented(a: Array, number: int) -> Array:
    """The reverse, for people."""
    return a.view(_dtypes.numpy_of(number)) if number == _dtypes.BF16 else a


class Operands:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.pool = connection.pool
        self._shapes: Dict[Any, Shapes] = {}
        self._lock = threading.Lock()

    # ---- Inputs ----

    def place(self, address: int, n: int, number: int, shape: Tuple[int, ...], owner: Any,
              request: Request, snapshot: bool) -> Tensor:
        """A dense tensor of n bytes. snapshot: its owner may write it before the request is
        done."""
        in_pool = n > 0 and self.pool.find(address, n)
        if in_pool or n == 0 or (n < SMALL and not snapshot):
            return Tensor(number, shape, address, owner)
        block = self.pool.try_take(n) if n >= SMALL else None
        if block is None and not snapshot:
            return Tensor(number, shape, address, owner)
        source = view(Tensor(number, shape, address, owner))
        if block is None:
            copied = source.copy()
            return Tensor(number, shape, copied.ctypes.data, copied)
        copied = block.array(number, shape)
        np.copyto(copied, source)
        request.blocks.append(block)
        return Tensor(number, shape, block.address, copied)

    def array(self, a: Array, name: str, request: Request, snapshot: bool) -> Tensor:
        number = _dtypes.number_of(a.dtype, name)
        shape = a.shape
        if len(shape) > 8:
            raise InvalidArgument(f"{name}: {len(shape)} dimensions, and xopd takes 8")
        dense = a.flags.c_contiguous and a.flags.aligned and a.dtype.isnative
        if not dense:
            a = self._dense(a, number, request)
            snapshot = False
        return self.place(a.ctypes.data, a.nbytes, number, shape, a, request, snapshot)

    def _dense(self, a: Array, number: int, request: Request) -> Array:
        block = self.pool.try_take(a.nbytes) if a.nbytes >= SMALL else None
        if block is None:
            to: Array = np.empty(a.shape, _dtypes.STORAGE[number])
        else:
            to = block.array(number, a.shape)
            request.blocks.append(block)
        np.copyto(presented(to, number), a)
        return to

    # ---- Outputs ----

    def empty(self, number: int, shape: Tuple[int, ...], request: Optional[Request]) -> Array:
        """Memory for an output, in storage type: the pool's if it is large."""
        n = _dtypes.size_of(number, shape)
        block = self.pool.try_take(n) if n >= SMALL else None
        if block is None:
            return np.empty(shape, _dtypes.STORAGE[number])
        if request is not None:
            request.blocks.append(block)
        return block.array(number, shape)

    def expect(self, key: Any, request: Request) -> Optional[List[Optional[Array]]]:
        """Arrays for the outputs, where it is known from an earlier call what they are."""
        shapes = self._shapes.get(key)
        if shapes is None:
            return None
        made = [None if s is None else self.empty(s[0], s[1], request) for s in shapes]
        request.outputs = [Tensor(0, ()) if a is None or s is None else
                           Tensor(s[0], s[1], a.ctypes.data, a) for a, s in zip(made, shapes)]
        return made

    def known(self, key: Any) -> Optional[Shapes]:
        return self._shapes.get(key)

    def forget(self, key: Any) -> None:
        with self._lock:
            self._shapes.pop(key, None)

    def remember(self, key: Any, shapes: Shapes) -> None:
        with self._lock:
            if len(self._shapes) >= REMEMBERED:
                self._shapes.clear()
            self._shapes[key] = shapes

    def collect(self, key: Any, request: Request, expected: Optional[List[Optional[Array]]],
                result: Result) -> List[Optional[Tuple[int, Array]]]:
        """The outputs as (dtype, array in storage type); None for one that is not wanted."""
        tensors = [result.out(i) for i in range(result.nout)]
        if key is not None and expected is None:
            self.remember(key, tuple((t.dtype, t.shape) if t.dtype else None for t in tensors))
        outputs: List[Optional[Tuple[int, Array]]] = []
        for i, tensor in enumerate(tensors):
            mine = expected[i] if expected is not None else None
            if tensor.dtype == 0:
                outputs.append(None)
            elif mine is not None:
                outputs.append((tensor.dtype, mine))
            else:
                small = _dtypes.size_of(tensor.dtype, tensor.shape) < SMALL
                if not small:
                    tensor = tensor._replace(owner=result.keeper())
                received = view(tensor)
                outputs.append((tensor.dtype, received.copy() if small else received))
        return outputs


def coerce(value: Any, name: str, like: Optional[int], dtypes: Sequence[int]) -> Array:
    """An array of what is none yet. A number takes the type of the arrays beside it."""
    if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
        if like is not None and like in dtypes:
            return np.asarray(value, _dtypes.numpy_of(like))
        return np.asarray(value)
    if isinstance(value, (np.ndarray, np.generic, list, tuple)):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise InvalidDtype(f"{name} cannot be read as an array through DLPack: "
                               f"{error}") from None
    array = np.asarray(value)
    if array.dtype == object:
        raise InvalidDtype(f"{name}: {type(value).__name__} is no array")
    return array
