"""What the daemon says of its operators, and the signatures and docstrings made of it."""

from __future__ import annotations

import inspect
import keyword
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _dtypes

NO_DEFAULT = inspect.Parameter.empty
_TYPES = {"int": int, "float": float, "bool": bool, "string": str, "ints": Sequence[int],
          "floats": Sequence[float]}


@dataclass(frozen=True)
class Operand:
    name: str
    doc: str
    dtypes: Tuple[int, ...]
    optional: bool = False
    shape_only: bool = False


@dataclass(frozen=True)
class Attribute:
    name: str
    type: str
    doc: str
    required: bool
    default: Any


@dataclass(frozen=True)
class Pass:
    inputs: Tuple[Operand, ...]
    outputs: Tuple[Operand, ...]


@dataclass(frozen=True)
class Description:
    """An operator as `describe` has it."""
    name: str
    doc: str
    dtypes: Tuple[int, ...]
    attributes: Tuple[Attribute, ...]
    forward: Pass
    backward: Optional[Pass]

    def of_pass(self, backward: bool) -> Optional[Pass]:
        return self.backward if backward else self.forward


@dataclass(frozen=True)
class Option:
    """What every call may be given besides inputs and attributes."""
    name: str
    default: Any
    doc: str


OPTIONS = (
    Option("out", None, "array or xop.Resident, or a tuple of them, that takes the outputs; None: not wanted"),
    Option("resident", False, "leave the outputs in the daemon, as xop.Resident"),
    Option("omit", (), "names of outputs that are not wanted; they are None"),
    Option("deadline", None, "seconds after which it is xop.DeadlineExceeded, whatever happens"),
    Option("priority", 0, "-8 (last) to 7 (first)"),
    Option("check", False, "guard the outputs, to find operators that write outside"),
)


def _dtypes_of(document: Dict[str, Any]) -> Tuple[int, ...]:
    known = (_dtypes.NUMBERS.get(name) for name in document.get("dtypes", ()))
    return tuple(number for number in known if number is not None)


def _operand(document: Dict[str, Any]) -> Operand:
    return Operand(document["name"], document.get("doc", ""), _dtypes_of(document),
                   bool(document.get("optional")), bool(document.get("shape_only")))


def _pass(document: Optional[Dict[str, Any]]) -> Optional[Pass]:
    if document is None:
        return None
    return Pass(tuple(map(_operand, document["inputs"])), tuple(map(_operand, document["outputs"])))


def parse(document: Dict[str, Any]) -> Description:
    attributes = tuple(
        Attribute(a["name"], a["type"], a.get("doc", ""), bool(a.get("required")), a.get("default"))
        for a in document.get("attributes", ()))
    forward = _pass(document["forward"])
    assert forward is not None
    return Description(document["name"], document.get("doc", ""), _dtypes_of(document), attributes,
                       forward, _pass(document.get("backward")))


def python_name(name: str) -> str:
    """A name that can be written as an argument's."""
    return name + "_" if keyword.iskeyword(name) or not name.isidentifier() else name


def options_of(operator: Description) -> List[Option]:
    """An attribute or an input of an option's name takes its place; Client.run has it still."""
    taken = {a.name for a in operator.attributes}
    for one in (operator.forward, operator.backward):
        taken.update(operand.name for operand in one.inputs) if one else None
    return [option for option in OPTIONS if option.name not in taken]


def signature(operator: Description, backward: bool) -> inspect.Signature:
    one = operator.of_pass(backward)
    assert one is not None
    parameters = []
    has_default = False
    # What follows an optional input is optional for Python, too; xopd says where it is not.
    for operand in one.inputs:
        has_default = has_default or operand.optional
        parameters.append(inspect.Parameter(
            python_name(operand.name), inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None if has_default else NO_DEFAULT))
    for attribute in operator.attributes:
        parameters.append(inspect.Parameter(
            python_name(attribute.name), inspect.Parameter.KEYWORD_ONLY,
            default=NO_DEFAULT if attribute.required else attribute.default,
            annotation=_TYPES.get(attribute.type, Any)))
    for option in options_of(operator):
        parameters.append(inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY,
                                            default=option.default))
    return inspect.Signature(parameters)


def _names(dtypes: Sequence[int]) -> str:
    return ", ".join(_dtypes.NAMES[d] for d in dtypes)


def docstring(operator: Description, backward: bool) -> str:
    one = operator.of_pass(backward)
    assert one is not None
    lines = [f"The gradients of {operator.name}." if backward else operator.doc.strip(), ""]
    if one.inputs:
        lines.append("Inputs:")
        for operand in one.inputs:
            may = ", may be None" if operand.optional else ""
            lines.append(f"    {python_name(operand.name)} ({_names(operand.dtypes)}{may}): "
                         f"{operand.doc}")
    if operator.attributes:
        lines.append("Attributes:")
        for a in operator.attributes:
            default = "required" if a.required else f"default {a.default!r}"
            lines.append(f"    {python_name(a.name)} ({a.type}, {default}): {a.doc}")
    lines.append("Outputs:")
    lines += [f"    {o.name} ({_names(o.dtypes)}): {o.doc}" for o in one.outputs]
    lines.append("Options:")
    lines += [f"    {o.name}: {o.doc}" for o in options_of(operator)]
    return "\n".join(lines) + "\n"
