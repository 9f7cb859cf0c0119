"""PyTorch's tensors as operands, and outputs as tensors."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np
import torch

from .. import _dtypes
from .._operands import Array, Operands
from .._request import Request, Tensor
from ..errors import InvalidArgument, InvalidDtype

NUMBERS = {torch.float16: _dtypes.F16, torch.bfloat16: _dtypes.BF16, torch.float32: _dtypes.F32,
           torch.float64: _dtypes.F64, torch.int32: _dtypes.I32, torch.int64: _dtypes.I64,
           torch.bool: _dtypes.BOOL}
DTYPES = {number: dtype for dtype, number in NUMBERS.items()}


def number_of(t: torch.Tensor, name: str) -> int:
    number = NUMBERS.get(t.dtype)
    if number is None:
        raise InvalidDtype(f"{name} is {t.dtype}, which xopd has not: float16, bfloat16, float32, "
                           "float64, int32, int64 and bool are")
    return number


def operand(operands: Operands, t: torch.Tensor, name: str, request: Request) -> Tensor:
    number = number_of(t, name)
    if t.layout != torch.strided:
        raise InvalidArgument(f"{name} has the layout {t.layout}, and xopd takes dense tensors")
    t = t.detach().resolve_neg().cpu().contiguous()
    shape = tuple(t.shape)
    if len(shape) > 8:
        raise InvalidArgument(f"{name}: {len(shape)} dimensions, and xopd takes 8")
    n = t.numel() * t.element_size()
    if n == 0:  # such a tensor has no address, which would be a shape alone
        empty: Any = np.empty(1, np.int64)
        return Tensor(number, shape, empty.ctypes.data, empty)
    return operands.place(t.data_ptr(), n, number, shape, t, request, False)


def tensor(number: int, stored: Array, device: torch.device) -> torch.Tensor:
    """A tensor over an output, which it keeps; copied where it belongs elsewhere."""
    if number == _dtypes.BF16:
        made = torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16)
    else:
        made = torch.from_numpy(stored)
    return made if device.type == "cpu" else made.to(device)


def like(value: Any, beside: Sequence[Any]) -> Any:
    """A number among tensors takes their dtype and device, as it does in PyTorch: that of the first
    of numbers, since a condition or indices beside them are of another kind."""
    if value is None or isinstance(value, torch.Tensor):
        return value
    tensors = [t for t in beside if isinstance(t, torch.Tensor)]
    tensors.sort(key=lambda t: not t.is_floating_point())  # a stable sort
    first: Optional[torch.Tensor] = tensors[0] if tensors else None
    if isinstance(value, (bool, int, float)) and first is not None:
        return torch.as_tensor(value, dtype=first.dtype, device=first.device)
    return torch.as_tensor(value)
