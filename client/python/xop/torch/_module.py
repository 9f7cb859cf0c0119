"""An operator as an nn.Module."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

import torch

from .. import _attributes
from .._describe import python_name
from ..client import Client
from ._calls import call, client


class Op(torch.nn.Module):  # type: ignore[misc]
    """A layer that is an operator: `Op("softmax", dim=-1)`. Keys are attributes, or inputs that
    belong to the layer: `Op("linear", w=Parameter(...))`. A Parameter is trained, another tensor
    is a buffer; the other inputs are forward's arguments, in their order."""

    def __init__(self, op: str, *, client: Optional[Client] = None, **keys: Any) -> None:
        super().__init__()
        self.op = op
        self._gpu = client
        description = self._client().describe(op)
        names = {python_name(o.name): o.name for o in description.forward.inputs}
        self.attributes: Dict[str, Any] = {}
        self._own: List[str] = []
        for key, value in keys.items():
            if key not in names:
                self.attributes[key] = value
                continue
            self._own.append(key)
            if value is None or isinstance(value, torch.nn.Parameter):
                self.register_parameter(key, value)
            else:
                self.register_buffer(key, value)
        _attributes.canonical(description, self.attributes)  # so that what is wrong shows here

    def _client(self) -> Client:
        return self._gpu if self._gpu is not None else client()

    def __getstate__(self) -> Dict[str, Any]:
        return {**self.__dict__, "_gpu": None}  # a connection is no part of a model

    def forward(self, *inputs: Any) -> Any:
        gpu = self._client()
        description = gpu.describe(self.op)
        names = [python_name(o.name) for o in description.forward.inputs]
        rest = iter(inputs)
        values = [getattr(self, n) if n in self._own else next(rest, None) for n in names]
        left = sum(1 for _ in rest)
        if left:
            raise TypeError(f"{self.op} takes {len(names) - len(self._own)} inputs here, and "
                            f"{len(inputs)} were given")
        return call(gpu, description, values, self.attributes)

    def extra_repr(self) -> str:
        keys = [f"{k}={v!r}" for k, v in self.attributes.items()]
        return ", ".join([self.op, *keys, *self._own])
