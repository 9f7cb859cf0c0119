"""Operators as custom ops of torch.library, for torch.compile: torch.ops.xop.NAME.

They are defined where PyTorch is 2.4 or later. What backward needs is saved by PyTorch as usual,
since a compiler has to see it; the functions of _calls, which keep it in the daemon, are what runs
without a compiler. Fake kernels ask the daemon for shapes, by running the operator once on zeros.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch

from .. import _attributes, _dtypes
from .._describe import Description, Pass, python_name
from .._request import ABSENT, Request, Result, Tensor
from ..client import Client, Prepared
from . import _tensors
from ._calls import Values, client, device_of, run

_TYPES = {"int": "int", "float": "float", "bool": "bool", "string": "str", "ints": "int[]",
          "floats": "float[]"}
_lock = threading.Lock()
_defined: Dict[str, Tuple[Description, Callable[..., Any]]] = {}


def available() -> bool:
    return hasattr(torch.library, "custom_op") and hasattr(torch.library, "register_autograd")


def compiling() -> bool:
    compiler = getattr(torch, "compiler", None)
    return compiler is not None and hasattr(compiler, "is_compiling") and compiler.is_compiling()


def _schema(description: Description, backward: bool) -> str:
    one = description.of_pass(backward)
    assert one is not None
    words = [f"Tensor{'?' if operand.optional else ''} {python_name(operand.name)}"
             for operand in one.inputs]
    if backward:
        words.append("int omit")
    # None stands for what the operator takes by itself.
    words += [f"{_TYPES[a.type]}{'' if a.required else '?'} {python_name(a.name)}"
              + ("" if a.required else "=None")
              for a in sorted(description.attributes, key=lambda a: not a.required)]
    outputs = ["Tensor"] * len(one.outputs)
    return f"({', '.join(words)}) -> " + (outputs[0] if len(outputs) == 1
                                          else f"({', '.join(outputs)})")


def _order(description: Description) -> List[str]:
    return [a.name for a in sorted(description.attributes, key=lambda a: not a.required)]


def _values(description: Description, given: Sequence[Any]) -> Values:
    """Attributes in the schema's order."""
    return _attributes.canonical(description, dict(zip(_order(description), given)))


def _taken(outputs: Sequence[Optional[torch.Tensor]], device: torch.device) -> Any:
    """A custom op has to return a tensor for what was omitted, too."""
    made = [torch.empty(0, device=device) if t is None else t for t in outputs]
    return made[0] if len(made) == 1 else tuple(made)


def shapes(gpu: Client, description: Description, backward: bool, inputs: Sequence[Any],
           values: Values, omit: int) -> List[Optional[Tuple[int, Tuple[int, ...]]]]:
    """dtypes and shapes of the outputs for inputs of which these alone are known."""
    one = description.of_pass(backward)
    assert one is not None

    def prepare() -> Prepared:
        assert one is not None
        request = Request(description.name, backward, omit=omit,
                          attributes=_attributes.encode(description, values))
        operands: List[Tensor] = []
        for operand, t in zip(one.inputs, inputs):
            if t is None:
                operands.append(ABSENT)
                continue
            number = _tensors.number_of(t, operand.name)
            zeros = np.zeros(tuple(int(n) for n in t.shape) or 1, _dtypes.STORAGE[number])
            shape = tuple(int(n) for n in t.shape)
            address = 0 if operand.shape_only else zeros.ctypes.data
            operands.append(Tensor(number, shape, address, zeros))
        request.inputs = operands
        prepared = Prepared(description, one, request)
        gpu._expect(prepared, (values, None))
        return prepared

    known = gpu._operands.known(prepare().key)
    if known is None:
        def finish(prepared: Prepared, result: Result) -> Any:
            gpu._operands.collect(prepared.key, prepared.request, prepared.expected, result)
            return gpu._operands.known(prepared.key)
        known = gpu._execute(prepare, finish)
    assert known is not None
    return list(known)


def _empty(found: Sequence[Optional[Tuple[int, Tuple[int, ...]]]], device: torch.device) -> Any:
    made = [None if s is None else
            torch.empty(s[1], dtype=_tensors.DTYPES[s[0]], device=device) for s in found]
    return _taken(made, device)


def _define_pass(description: Description, backward: bool) -> Any:
    one = description.of_pass(backward)
    assert one is not None
    count = len(one.inputs)

    def parts(arguments: Sequence[Any]) -> Tuple[Sequence[Any], int, Values]:
        omit = arguments[count] if backward else 0
        return (arguments[:count], omit,
                _values(description, arguments[count + (1 if backward else 0):]))

    def real(*arguments: Any) -> Any:
        inputs, omit, values = parts(arguments)
        device = device_of(inputs)
        return _taken(run(client(), description, backward, inputs, values, device, omit=omit),
                      device)

    def fake(*arguments: Any) -> Any:
        inputs, omit, values = parts(arguments)
        return _empty(shapes(client(), description, backward, inputs, values, omit),
                      device_of(inputs))

    name = f"xop::{description.name}" + ("_backward" if backward else "")
    op = torch.library.custom_op(name, real, mutates_args=(), schema=_schema(description, backward))
    op.register_fake(fake)
    return op


def _define_gradient(description: Description, one: Pass, op: Any, gradient: Any) -> None:
    forward = description.forward
    names = [o.name for o in forward.inputs]

    def setup_context(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        there = dict(zip(names, inputs))
        there.update(zip((o.name for o in forward.outputs), outputs))
        ctx.save_for_backward(*(there.get(o.name) for o in one.inputs))
        ctx.given = [t is not None for t in inputs[:len(names)]]
        ctx.attributes = inputs[len(names):]
        integers = [t for t in outputs if not t.is_floating_point()]
        if integers:
            ctx.mark_non_differentiable(*integers)

    def backward(ctx: Any, *grads: Any) -> Any:
        by_name = {f"grad_{o.name}": g for o, g in zip(forward.outputs, grads)}
        inputs = [by_name.get(o.name, saved) for o, saved in zip(one.inputs, ctx.saved_tensors)]
        wanted = {f"grad_{n}": i for i, n in enumerate(names)
                  if ctx.given[i] and ctx.needs_input_grad[i]}
        omit = sum([1 << k for k, o in enumerate(one.outputs) if o.name not in wanted])
        made = gradient(*inputs, omit, *ctx.attributes)
        outputs = made if isinstance(made, (tuple, list)) else (made,)
        result: List[Any] = [None] * (len(names) + len(ctx.attributes))
        for operand, t in zip(one.outputs, outputs):
            if operand.name in wanted:
                result[wanted[operand.name]] = t
        return tuple(result)

    op.register_autograd(backward, setup_context=setup_context)


def define(description: Description) -> Optional[Callable[..., Any]]:
    """The custom op of an operator, as a function of inputs and attributes. None where there is
    one of that name already that is not the same, since PyTorch keeps what is defined."""
    with _lock:
        if description.name not in _defined:
            _defined[description.name] = (description, _define(description))
        known, made = _defined[description.name]
        return made if known == description else None


def _define(description: Description) -> Callable[..., Any]:
    op = _define_pass(description, False)
    if description.backward is not None:
        _define_gradient(description, description.backward, op, _define_pass(description, True))
    count, order = len(description.forward.inputs), _order(description)
    overload = getattr(torch.ops.xop, description.name).default

    def made(inputs: Sequence[Any], attributes: Dict[str, Any]) -> Any:
        values = [*inputs, *[None] * (count - len(inputs))]
        values = [_tensors.like(v, inputs) for v in values]
        return overload(*values, *[attributes.get(name) for name in order])
    return made
