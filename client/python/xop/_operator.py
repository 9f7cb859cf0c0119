"""Operators as functions, with the signatures and docstrings that the daemon gives."""

from __future__ import annotations

from typing import (TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Protocol, Sequence, Tuple,
                    cast)

from . import _describe
from ._describe import Description

if TYPE_CHECKING:
    from .client import Client

DEFAULTS = {option.name: option.default for option in _describe.OPTIONS}


class Operator(Protocol):
    """Inputs by position or name, attributes and options by name. One output is returned as it
    is, several as a named tuple."""
    description: Description
    backward: Optional["Operator"]
    __name__: str

    def __call__(self, *inputs: Any, **keys: Any) -> Any: ...


def split(description: Description, backward: bool, inputs: Sequence[Any],
          keys: Mapping[str, Any]) -> Tuple[List[Any], Dict[str, Any], Dict[str, Any]]:
    """Arguments of an operator's function as inputs, attributes and options."""
    one = description.of_pass(backward)
    names = [_describe.python_name(o.name) for o in one.inputs] if one else []
    values: List[Any] = list(inputs)
    attributes: Dict[str, Any] = {}
    options: Dict[str, Any] = {}
    if not keys:
        return values, attributes, options
    by_position = len(values)
    known = {_describe.python_name(a.name): a.name for a in description.attributes}
    for name, value in keys.items():
        if name in known:
            attributes[known[name]] = value
        elif name in names:
            at = names.index(name)
            if at < by_position:
                raise TypeError(f"{description.name} got two values for {name!r}")
            values += [None] * (at + 1 - len(values))
            values[at] = value
        elif name in DEFAULTS:
            options[name] = value
        else:
            raise TypeError(f"{description.name} has no argument {name!r}: it has "
                            f"{', '.join([*names, *known, *DEFAULTS])}")
    return values, attributes, options


def make(client: "Client", description: Description, backward: bool) -> Operator:
    def call(*inputs: Any, **keys: Any) -> Any:
        values, attributes, options = split(description, backward, inputs, keys)
        return client.run(description.name, *values, backward=backward, attributes=attributes,
                          **options)

    function = cast(Any, call)
    function.__name__ = description.name + ("_backward" if backward else "")
    function.__qualname__ = function.__name__
    function.__module__ = "xop"
    function.__doc__ = _describe.docstring(description, backward)
    function.__signature__ = _describe.signature(description, backward)
    function.description = description
    function.backward = None
    if not backward and description.backward is not None:
        function.backward = make(client, description, True)
    return cast(Operator, function)
