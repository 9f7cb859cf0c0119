"""An operator as an nn.Module."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch

from .. import _attributes
from .._describe import python_name
from ..client import Client
from ._functions import function


class Op(torch.nn.Module):  # type: ignore[misc]
    """A layer that is an operator: `Op("softmax", dim=-1)`. Keys are attributes, or inputs that
    belong to the layer: `Op("linear", w=Parameter(...))`. A Parameter is trained, another tensor
    is a buffer; the other inputs are forward's arguments, in their order."""

    def __init__(self, op: str, *, client: Optional[Client] = None, **keys: Any) -> None:
        super().__init__()
        self.op = op
        self._function = function(op, client)
        description = self._function.description
        self._names = [python_name(o.name) for o in description.forward.inputs]
        self.attributes: Dict[str, Any] = {}
        self._own: List[str] = []
        for key, value in keys.items():
            if key not in self._names:
                self.attributes[key] = value
                continue
            self._own.append(key)
            if value is None or isinstance(value, torch.nn.Parameter):
                self.register_parameter(key, value)
            else:
                self.register_buffer(key, value)
        _attributes.canonical(description, self.attributes)  # so that what is wrong shows here

    def forward(self, *inputs: Any) -> Any:
        free = len(self._names) - len(self._own)
        if len(inputs) > free:
            raise TypeError(f"{self.op} takes {free} inputs here, and {len(inputs)} were given")
        rest = [*inputs, *[None] * (free - len(inputs))]
        values = [getattr(self, n) if n in self._own else rest.pop(0) for n in self._names]
        return self._function.apply(values, self.attributes)

    def extra_repr(self) -> str:
        keys = [f"{k}={v!r}" for k, v in self.attributes.items()]
        return ", ".join([self.op, *keys, *self._own])
