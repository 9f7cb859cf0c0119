"""Operators by their names."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from .. import _describe
from .._operator import DEFAULTS, split
from ..client import Client
from . import _custom
from ._calls import call, client


class OpFunction:
    """An operator as a function of tensors: inputs by position or name, attributes by name."""

    def __init__(self, name: str, gpu: Optional[Client] = None) -> None:
        self.__name__ = name
        self._gpu = gpu
        description = self.description = self.client.describe(name)
        signature = _describe.signature(description, False)
        self.__signature__ = signature.replace(parameters=[
            p for p in signature.parameters.values() if p.name not in DEFAULTS])
        self.__doc__ = _describe.docstring(description, False)
        self._custom: Optional[Callable[..., Any]] = None
        if gpu is None and _custom.available():
            self._custom = _custom.define(description)

    @property
    def client(self) -> Client:
        return self._gpu if self._gpu is not None else client()

    def __call__(self, *inputs: Any, **keys: Any) -> Any:
        values, attributes, options = split(self.description, False, inputs, keys)
        if options:
            raise TypeError(f"{self.__name__} takes no {', '.join(options)} here; xop.Client has "
                            "calls that do")
        return self.apply(values, attributes)

    def apply(self, inputs: Sequence[Any], attributes: Dict[str, Any]) -> Any:
        if self._custom is not None and _custom.compiling():
            return self._custom(inputs, attributes)
        return call(self.client, self.description, inputs, attributes)

    def __reduce__(self) -> Tuple[Any, ...]:
        return function, (self.__name__,)  # a connection is no part of a model

    def __repr__(self) -> str:
        return f"<xop.torch.{self.__name__}>"


_functions: Dict[str, OpFunction] = {}


def function(name: str, gpu: Optional[Client] = None) -> OpFunction:
    """An operator by its name, for names that are this module's own, too."""
    if gpu is not None:
        return OpFunction(name, gpu)
    made = _functions.get(name)
    # Another client may have another operator of that name.
    if made is None or made.description != client().describe(name):
        made = _functions[name] = OpFunction(name)
    return made
