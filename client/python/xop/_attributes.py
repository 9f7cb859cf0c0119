"""Attributes of a request: Python's values as the operator declares them."""

from __future__ import annotations

import ctypes
import numbers
import operator
from typing import Any, List, Mapping, Sequence, Tuple

from ._describe import Attribute, Description
from ._library import (ATTR_BOOL, ATTR_FLOAT, ATTR_FLOATS, ATTR_INT, ATTR_INTS, ATTR_STRING, CAttr)

_NUMBERS = {"int": ATTR_INT, "float": ATTR_FLOAT, "bool": ATTR_BOOL, "string": ATTR_STRING,
            "ints": ATTR_INTS, "floats": ATTR_FLOATS}


def _float(value: Any) -> float:
    if not isinstance(value, numbers.Real):
        raise TypeError
    return float(value)


def _bool(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    if type(value).__module__ == "numpy" and type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise TypeError


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _ints(value: Any) -> Tuple[int, ...]:
    """A single number is a list of one, as in PyTorch's normalized_shape."""
    if isinstance(value, numbers.Integral):
        return (operator.index(value),)
    return tuple(operator.index(v) for v in value)


def _floats(value: Any) -> Tuple[float, ...]:
    if isinstance(value, numbers.Real):
        return (float(value),)
    return tuple(_float(v) for v in value)


_CHECKS = {"int": operator.index, "float": _float, "bool": _bool, "string": _string, "ints": _ints,
           "floats": _floats}


def checked(attribute: Attribute, value: Any) -> Any:
    """The value as an immutable one of the declared type."""
    check = _CHECKS.get(attribute.type)
    try:
        return check(value) if check else value
    except TypeError:
        raise TypeError(f"{attribute.name}: {value!r} is no {attribute.type}") from None


def canonical(description: Description, given: Mapping[str, Any]) -> Tuple[Tuple[str, Any], ...]:
    """What was given, None left out, in the declaration's order: hashable."""
    known = {a.name: a for a in description.attributes}
    for name in given:
        if name not in known:
            raise TypeError(f"{description.name} has no attribute {name!r}"
                            + (f": it has {', '.join(known)}" if known else ""))
    return tuple((name, checked(a, given[name])) for name, a in known.items()
                 if given.get(name) is not None)


def encode(description: Description,
           values: Sequence[Tuple[str, Any]]) -> Tuple[Any, List[Any]]:
    """An array of xop_attr, and what it points to."""
    types = {a.name: a.type for a in description.attributes}
    array = (CAttr * len(values))()
    owners: List[Any] = []
    for to, (name, value) in zip(array, values):
        kind = _NUMBERS[types[name]]
        to.name, to.type = name.encode(), kind
        if kind in (ATTR_INT, ATTR_BOOL):
            if not -(1 << 63) <= value < 1 << 63:
                raise ValueError(f"{name}: {value} does not fit into 64 bits")
            to.value.i = value
        elif kind == ATTR_FLOAT:
            to.value.f = value
        elif kind == ATTR_STRING:
            text = value.encode()
            to.value.string, to.count = text, len(text)
            owners.append(text)
        elif kind == ATTR_INTS:
            ints = (ctypes.c_int64 * len(value))(*value)
            to.value.ints, to.count = ints, len(value)
            owners.append(ints)
        else:
            floats = (ctypes.c_double * len(value))(*value)
            to.value.floats, to.count = floats, len(value)
            owners.append(floats)
    return array, owners
