"""Tensors that stay in the daemon."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import numpy as np

from . import _dtypes
from ._connection import Connection
from ._library import lib
from ._operands import Operands, presented, storage
from ._request import Request, Tensor
from .errors import FailedPrecondition, InvalidArgument, InvalidDtype


class Held:
    """A handle, or a context's id, freed with this object."""

    def __init__(self, connection: Connection, handle: int) -> None:
        self.connection, self.handle = connection, handle

    def free(self) -> None:
        handle, self.handle = self.handle, 0
        if handle:
            self.connection.discard(handle)

    def __del__(self) -> None:
        self.free()


class Resident:
    """A tensor in the daemon's memory: an input of any call, or what one leaves there with
    resident=True. It is freed with this object, at the end of `with`, or by free()."""

    def __init__(self, client: Any, operands: Operands, held: Held, dtype: int,
                 shape: Tuple[int, ...]) -> None:
        self._client = client  # which lives as long as its tensors
        self._operands, self._held = operands, held
        self._dtype = dtype
        self.shape = shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return _dtypes.numpy_of(self._dtype)

    @property
    def dtype_name(self) -> str:
        """xopd's name, for bf16 without ml_dtypes, too."""
        return _dtypes.NAMES[self._dtype]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return _dtypes.size_of(self._dtype, self.shape)

    def _tensor(self) -> Tensor:
        if not self._held.handle:
            raise FailedPrecondition("this resident tensor was freed")
        return Tensor(self._dtype, self.shape, 0, self, self._held.handle)

    def numpy(self, out: Optional[np.ndarray[Any, Any]] = None) -> np.ndarray[Any, Any]:
        """Its elements; into out, where that is given."""
        handle = self._tensor().handle
        if out is None:
            stored = self._operands.empty(self._dtype, self.shape, None)
            out = presented(stored, self._dtype)
        else:
            stored = storage(writable(out, self._dtype, "out"), self._dtype)
            if stored.shape != self.shape:
                raise InvalidArgument(f"out has shape {stored.shape}, the tensor {self.shape}")
        self._operands.connection.transfer(
            lib.xop_get, handle, Tensor(self._dtype, self.shape, stored.ctypes.data, stored))
        return out

    def write(self, array: Any) -> None:
        """Writes it anew; dtype and shape stay."""
        a = np.asarray(array, self.dtype)
        if a.shape != self.shape:
            raise InvalidArgument(f"the array has shape {a.shape}, the tensor {self.shape}")
        put(self._operands, self._tensor().handle, a)

    def free(self) -> None:
        """Frees it in the daemon; requests that use it already are not disturbed."""
        self._held.free()

    def __enter__(self) -> "Resident":
        return self

    def __exit__(self, *_: object) -> None:
        self.free()

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("a resident tensor is not in this process: it has to be copied")
        a = self.numpy()
        return a if dtype is None else a.astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (1, 0)  # what it is copied to, in __dlpack__

    def __repr__(self) -> str:
        state = "" if self._held.handle else ", freed"
        return f"<xop.Resident {self.dtype_name} {list(self.shape)}{state}>"


def writable(a: Any, number: Optional[int], name: str) -> np.ndarray[Any, Any]:
    """An array that an output can be received into as it is."""
    if not isinstance(a, np.ndarray):
        raise InvalidDtype(f"{name}: {type(a).__name__} is no NumPy array")
    if number is not None and _dtypes.number_of(a.dtype, name) != number:
        raise InvalidDtype(f"{name} is {a.dtype}, and {_dtypes.NAMES[number]} is needed")
    if not (a.flags.c_contiguous and a.flags.writeable and a.flags.aligned and a.dtype.isnative):
        raise InvalidArgument(f"{name} has to be C-contiguous, writable, aligned and in the byte "
                              "order of this machine")
    return a


def put(operands: Operands, handle: int, a: np.ndarray[Any, Any]) -> Tensor:
    request = Request("put")  # which keeps the block that it is copied into
    tensor = operands.array(a, "the array", request, False)
    operands.connection.transfer(lib.xop_put, handle, tensor)
    return tensor
