"""A request on its way and what came of it, in terms of libxopclient."""

from __future__ import annotations

import ctypes
from ctypes import c_uint64
from dataclasses import dataclass, field
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ._dtypes import STORAGE
from ._library import (BACKWARD, FORWARD, CAttr, CRequest, CResult, CTensor, lib)
from ._memory import Block
from .errors import Error, error_of


class Tensor(NamedTuple):
    """An operand: where its bytes are, and what keeps them there. dtype 0: not given; address 0:
    the shape alone; handle: a resident tensor."""
    dtype: int
    shape: Tuple[int, ...]
    address: int = 0
    owner: Any = None
    handle: int = 0


ABSENT = Tensor(0, ())


@dataclass
class Request:
    """Everything that a run of an operator is asked with."""
    op: str
    backward: bool = False
    inputs: Sequence[Tensor] = ()
    outputs: Optional[Sequence[Tensor]] = None
    omit: int = 0
    keep: int = 0
    context: int = 0
    attributes: Tuple[Any, List[Any]] = ((), [])
    deadline_ms: int = 0
    priority: int = 0
    check: bool = False
    blocks: List[Block] = field(default_factory=list)  # of the pool, for inputs and outputs


def fill(to: CTensor, tensor: Tensor) -> None:
    to.dtype, to.rank = tensor.dtype, len(tensor.shape)
    for i, n in enumerate(tensor.shape):
        to.shape[i] = n
    to.data = tensor.address or None


def _handles(tensors: Sequence[Tensor]) -> Any:
    if not any(t.handle for t in tensors):
        return None
    return (c_uint64 * len(tensors))(*(t.handle for t in tensors))


def _tensors(tensors: Sequence[Tensor]) -> Any:
    array = (CTensor * len(tensors))()
    for to, tensor in zip(array, tensors):
        fill(to, tensor)
    return array


class Call:
    """A request that the library has, or is about to have. It has to live until its result is in
    `box`: the library writes where it says, and into `box`."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.box: List[int] = []
        self.id = c_uint64(0)
        c = self.c = CRequest()
        c.op = request.op.encode()
        c.pass_ = BACKWARD if request.backward else FORWARD
        c.in_, c.nin = _tensors(request.inputs), len(request.inputs)
        c.in_resident = _handles(request.inputs)
        if request.outputs is not None:
            c.out, c.nout = _tensors(request.outputs), len(request.outputs)
            c.out_resident = _handles(request.outputs)
        c.omit, c.keep, c.context = request.omit, request.keep, request.context
        attributes, _ = request.attributes
        if len(attributes):
            c.attrs, c.nattrs = ctypes.cast(attributes, ctypes.POINTER(CAttr)), len(attributes)
        c.deadline_ms, c.priority, c.check = (request.deadline_ms, request.priority, request.check)


class Result:
    """A result of the library's. free() is called by whoever has it; no finaliser does that, since
    an interrupt in one is lost."""
    __slots__ = ("address", "c", "nout", "_keeper")

    def __init__(self, address: int) -> None:
        self.address = address
        self.c = CResult.from_address(address)
        self.nout: int = self.c.nout
        self._keeper: Optional[_Keeper] = None

    def free(self) -> None:
        """Not what keeper() has taken over."""
        address, self.address = self.address, 0
        if address and self._keeper is None:
            lib.xop_result_free(address)

    def keeper(self) -> "_Keeper":
        """What keeps the outputs' memory from now on."""
        if self._keeper is None:
            self._keeper = _Keeper(self.address)
        return self._keeper

    @property
    def failed(self) -> bool:
        return bool(self.c.error.status != 0)

    def error(self) -> Error:
        error = self.c.error
        return error_of(error.status, error.message.decode("utf-8", "replace"))

    def text(self) -> bytes:
        return ctypes.string_at(self.c.text, self.c.text_bytes)

    def out(self, i: int) -> Tensor:
        tensor = self.c.out[i]
        return Tensor(tensor.dtype, tuple(tensor.shape[:tensor.rank]), tensor.data or 0)


class _Keeper:
    """Frees a result with the last array over its memory."""
    __slots__ = ("address", "__weakref__")

    def __init__(self, address: int) -> None:
        self.address = address

    def __del__(self) -> None:
        lib.xop_result_free(self.address)


class _View:
    """Makes an array over memory that another object keeps."""
    __slots__ = ("__array_interface__", "owner")

    def __init__(self, tensor: Tensor) -> None:
        self.owner = tensor.owner
        self.__array_interface__ = {"shape": tensor.shape, "typestr": STORAGE[tensor.dtype].str,
                                    "version": 3, "data": (tensor.address, False)}


def view(tensor: Tensor) -> np.ndarray[Any, Any]:
    """The elements as they are stored (bf16 as its bits), in place."""
    if tensor.address == 0 or 0 in tensor.shape:
        return np.empty(tensor.shape, STORAGE[tensor.dtype])
    return np.asarray(_View(tensor))


