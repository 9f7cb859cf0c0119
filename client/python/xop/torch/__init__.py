"""Operators of an xopd as functions of PyTorch tensors, with gradients.

    import xop.torch
    y = xop.torch.square_bias(x, b)
    y.sum().backward()                   # by xopd's backward
    layer = xop.torch.Op("sigmoid")      # an nn.Module

The daemon is xop.connect()'s, unless use() says another. What backward needs stays in the daemon
from forward on. CPU tensors are moved through shared memory; tensors on another device are copied
to the CPU and results back. docs/python.md has the rest.
"""

from __future__ import annotations

from typing import List

from ..errors import NotFound
from ._calls import client, use
from ._functions import OpFunction, function
from ._module import Op

__all__ = ["Op", "OpFunction", "client", "function", "use"]


def __getattr__(name: str) -> OpFunction:
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return function(name)
    except NotFound:
        raise AttributeError(f"xopd has no operator {name!r}") from None


def __dir__() -> List[str]:
    return sorted({*globals(), *client().operators()})
