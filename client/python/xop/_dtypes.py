"""Data types: xopd's numbers and names, and NumPy's types for them.

NumPy has no bf16; the package ml_dtypes adds it. Without that package bf16 travels all the same,
between PyTorch and the daemon for instance, and only what is to become a NumPy array needs it.
"""

from __future__ import annotations

import math
from typing import Any, Dict, Optional, Tuple

import numpy as np

from .errors import InvalidDtype

F16, BF16, F32, F64, I32, I64, BOOL = range(1, 8)
NAMES = {F16: "f16", BF16: "bf16", F32: "f32", F64: "f64", I32: "i32", I64: "i64", BOOL: "bool"}
NUMBERS = {name: number for number, name in NAMES.items()}

bfloat16: Optional[np.dtype[Any]]
try:
    import ml_dtypes
    bfloat16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    bfloat16 = None

# What elements are stored as; bf16 as its bits.
STORAGE: Dict[int, np.dtype[Any]] = {
    F16: np.dtype(np.float16), BF16: np.dtype(np.uint16), F32: np.dtype(np.float32),
    F64: np.dtype(np.float64), I32: np.dtype(np.int32), I64: np.dtype(np.int64),
    BOOL: np.dtype(np.bool_)}
_NUMPY = dict(STORAGE)
del _NUMPY[BF16]
if bfloat16 is not None:
    _NUMPY[BF16] = bfloat16
_NUMBER_OF: Dict[np.dtype[Any], int] = {dtype: number for number, dtype in _NUMPY.items()}
FLOATS = (F16, BF16, F32, F64)


def number_of(dtype: np.dtype[Any], what: str = "the array") -> int:
    """xopd's number of a NumPy dtype, whatever its byte order."""
    number = _NUMBER_OF.get(dtype)
    if number is None:
        number = _NUMBER_OF.get(dtype.newbyteorder("="))
    if number is None:
        raise InvalidDtype(f"{what} is {dtype}, which xopd has not: float16, bfloat16, float32, "
                           "float64, int32, int64 and bool are")
    return number


def numpy_of(number: int) -> np.dtype[Any]:
    """NumPy's dtype for xopd's number."""
    dtype = _NUMPY.get(number)
    if dtype is None:
        raise InvalidDtype("a bf16 tensor is to become a NumPy array, and NumPy has no bf16 of its "
                           "own: install the package ml_dtypes")
    return dtype


def parse(dtype: Any) -> int:
    """xopd's number of what names a dtype: "bf16", np.float32, an array's dtype."""
    if isinstance(dtype, str) and dtype in NUMBERS:
        return NUMBERS[dtype]
    return number_of(np.dtype(dtype), "the dtype")


def size_of(number: int, shape: Tuple[int, ...]) -> int:
    """Bytes of a dense tensor."""
    return math.prod(shape) * STORAGE[number].itemsize
