"""Operators as functions of PyTorch, and what their gradients need."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch

from .. import _attributes
from .._describe import Description
from .._request import ABSENT, Request, Result
from .._resident import Held
from ..client import Client, Prepared
from ..errors import Unimplemented
from . import _tensors

Values = Tuple[Tuple[str, Any], ...]
Outputs = List[Optional[torch.Tensor]]

_lock = threading.Lock()
_client: Optional[Client] = None


def use(client: Optional[Client]) -> None:
    """Makes this the client of everything in xop.torch that is given none of its own; None: one
    that is connected when it is needed."""
    global _client
    _client = client


def client() -> Client:
    """The client in use."""
    global _client
    with _lock:
        if _client is None or _client._connection.pid != os.getpid():
            _client = Client()
        return _client


class _Token:
    """A context in the daemon, as memory that a tensor can be over: the context's id. PyTorch
    frees a saved tensor when no backward can come any more, and with it the context."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.id = ctypes.c_int64(held.handle)
        self.__array_interface__ = {"shape": (1,), "typestr": "<i8", "version": 3,
                                    "data": (ctypes.addressof(self.id), False)}

    @staticmethod
    def tensor(held: Held) -> torch.Tensor:
        return torch.from_numpy(np.asarray(_Token(held)))


def run(gpu: Client, description: Description, backward: bool, inputs: Sequence[Any],
        values: Values, device: torch.device, omit: int = 0, keep: int = 0, context: int = 0,
        of: Any = None) -> Outputs:
    """Runs an operator on tensors. of: what the outputs' shapes depend on besides."""
    one = description.of_pass(backward)
    if one is None:
        raise Unimplemented(f"{description.name} has no backward")
    if len(inputs) > len(one.inputs):
        raise TypeError(f"{description.name} takes {len(one.inputs)} inputs, and {len(inputs)} "
                        "were given")

    def prepare() -> Prepared:
        assert one is not None
        request = Request(description.name, backward, omit=omit, keep=keep, context=context,
                          attributes=_attributes.encode(description, values))
        operands = []
        for operand, t in zip(one.inputs, inputs):
            if t is None:
                operands.append(ABSENT)
                continue
            made = _tensors.operand(gpu._operands, t, operand.name, request)
            operands.append(made._replace(address=0) if operand.shape_only else made)
        request.inputs = operands
        prepared = Prepared(description, one, request)
        gpu._expect(prepared, (values, of))
        return prepared

    def finish(prepared: Prepared, result: Result) -> Outputs:
        outputs = gpu._operands.collect(prepared.key, prepared.request, prepared.expected, result)
        return [None if o is None else _tensors.tensor(o[0], o[1], device) for o in outputs]

    outputs: Outputs = gpu._execute(prepare, finish)
    return outputs


def shapes(tensors: Sequence[Any]) -> Tuple[Any, ...]:
    return tuple(None if t is None else (t.dtype, tuple(t.shape)) for t in tensors)


class _Once(torch.autograd.Function):  # type: ignore[misc]
    """A gradient that is asked to be differentiable says that it is not where that is tried. (With
    once_differentiable its part would be missing from a sum, in silence.)"""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, gradient: torch.Tensor, name: str) -> Any:
        ctx.name = name
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise Unimplemented(f"{ctx.name}: xopd has no second derivatives")

    @staticmethod
    def of(gradient: torch.Tensor, name: str) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return gradient
        return _Once.apply(torch.zeros((), requires_grad=True), gradient, name)


class _Differentiable(torch.autograd.Function):  # type: ignore[misc]
    """Forward keeps in the daemon what backward needs; the graph has a token for that."""

    @staticmethod
    def forward(ctx: Any, gpu: Client, description: Description, values: Values,
                *tensors: Any) -> Any:
        held = None
        if description.backward is not None:
            held = Held(gpu._connection, gpu._connection.handle())
        device = device_of(tensors)
        outputs = run(gpu, description, False, tensors, values, device,
                      keep=held.handle if held else 0)
        if held is not None:
            ctx.save_for_backward(_Token.tensor(held))
        ctx.of = (gpu, description, values, [None if t is None else t.device for t in tensors],
                  shapes(tensors))
        ctx.mark_non_differentiable(*(t for t in outputs
                                      if t is not None and not t.is_floating_point()))
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        gpu, description, values, devices, of = ctx.of
        one = description.backward
        if one is None:
            raise Unimplemented(f"{description.name} has no backward")
        (token,) = ctx.saved_tensors  # kept until the end: a checkpoint has no other reference
        by_name = {f"grad_{o.name}": g for o, g in zip(description.forward.outputs, grads)}
        wanted = {f"grad_{o.name}": i for i, o in enumerate(description.forward.inputs)
                  if i < len(devices) and devices[i] is not None and ctx.needs_input_grad[3 + i]}
        omit = sum(1 << k for k, o in enumerate(one.outputs) if o.name not in wanted)
        outputs = run(gpu, description, True, [by_name.get(o.name) for o in one.inputs], (),
                      torch.device("cpu"), omit=omit, context=int(token), of=(values, of))
        made: List[Optional[torch.Tensor]] = [None] * len(devices)
        for operand, t in zip(one.outputs, outputs):
            if t is not None:
                at = wanted[operand.name]
                made[at] = _Once.of(t.to(devices[at]), description.name)
        return (None, None, None, *made)


def device_of(tensors: Sequence[Any]) -> torch.device:
    """Where the result belongs: to the first tensor that is not the CPU's, if there is one."""
    devices = [t.device for t in tensors if t is not None]
    return next((d for d in devices if d.type != "cpu"), torch.device("cpu"))


def call(gpu: Client, description: Description, inputs: Sequence[Any],
         attributes: Dict[str, Any]) -> Any:
    values = _attributes.canonical(description, attributes)
    tensors = [_tensors.like(value, inputs) for value in inputs]
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        outputs = _Differentiable.apply(gpu, description, values, *tensors)
        return outputs
    made = run(gpu, description, False, tensors, values, device_of(tensors))
    return made[0] if len(made) == 1 else tuple(made)
