"""The client: operators as methods, NumPy arrays in and out."""

from __future__ import annotations

import ctypes
import json
import math
import threading
import weakref
from collections import namedtuple
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from . import _attributes, _describe, _dtypes
from ._connection import Connection
from ._describe import Description, Pass
from ._future import Future
from ._library import COptions, lib
from ._memory import IDLE
from ._operands import Operands, coerce, presented, storage
from ._operator import DEFAULTS, Operator, make, split
from ._request import ABSENT, Request, Result, Tensor
from ._resident import Held, Resident, put, writable
from .errors import Error, InvalidArgument, InvalidDtype, NotFound, Unimplemented

Array = np.ndarray[Any, Any]


class Prepared:
    """A request with what its outputs are to become."""

    def __init__(self, description: Description, one: Pass, request: Request) -> None:
        self.description, self.one, self.request = description, one, request
        self.key: Any = None
        self.expected: Optional[List[Optional[Array]]] = None
        self.given: Optional[Sequence[Any]] = None  # by the caller, as out=
        self.held: List[Optional[Held]] = []


class Client:
    """A connection to xopd. Every operator that it has is a method: `client.square_bias(x, b)`;
    dir() and tab completion list them, help() describes them."""

    def __init__(self, address: Optional[str] = None, *, token: Optional[str] = None,
                 ca: Optional[str] = None, cert: Optional[str] = None, key: Optional[str] = None,
                 insecure_token: bool = False, timeout: Optional[float] = None, agent: Optional[str] = None,
                 pool: int = IDLE) -> None:
        options = COptions(ctypes.sizeof(COptions))
        options.agent = (agent or "python").encode()
        for name, value in (("token", token), ("ca", ca), ("cert", cert), ("key", key)):
            setattr(options, name, value.encode() if value is not None else None)
        options.insecure_token = insecure_token
        options.timeout_ms = _milliseconds(timeout, "timeout")
        self._connection = Connection(address, options, pool)
        self._operands = Operands(self._connection)
        self._descriptions: Dict[str, Description] = {}
        self._described = False
        self._methods: Dict[Tuple[str, bool], Operator] = {}
        self._tuples: Dict[Tuple[str, bool], Callable[..., Any]] = {}
        self._lock = threading.Lock()
        self._close = weakref.finalize(self, Connection.close, self._connection)

    # ---- The connection ----

    @property
    def address(self) -> str:
        return self._connection.address

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def close(self) -> None:
        """Ends the connection: what is in flight is cancelled, what is resident freed. Arrays
        stay as they are."""
        self._connection.close()
        self._close.detach()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<xop.Client {self.address}{', closed' if self.closed else ''}>"

    def ping(self) -> Dict[str, Any]:
        """Version, backend, device, and whether the daemon is ready."""
        return self._document(lib.xop_ping)

    def stats(self) -> Dict[str, Any]:
        """The daemon's counters: `stats` of docs/protocol.md."""
        return self._document(lib.xop_stats)

    def _document(self, function: Any, *arguments: Any) -> Dict[str, Any]:
        document: Dict[str, Any] = json.loads(self._connection.document(function, *arguments))
        return document

    # ---- Operators ----

    def operators(self) -> List[str]:
        """The names of all operators that the daemon has now."""
        document = self._document(lib.xop_describe, None)
        descriptions = map(_describe.parse, document["operators"])
        with self._lock:
            self._descriptions = {d.name: d for d in descriptions}
            self._described = True
            # Operators may have been loaded anew since.
            self._tuples = {}
            self._methods = {k: m for k, m in self._methods.items()
                             if m.description == self._descriptions.get(k[0])}
            return list(self._descriptions)

    def describe(self, name: str) -> Description:
        """What an operator is; asked of the daemon once."""
        description = self._descriptions.get(name)
        if description is None and not self._described:
            self.operators()
            description = self._descriptions.get(name)
        if description is None:  # it may have been loaded since
            document = self._document(lib.xop_describe, name.encode())
            description = _describe.parse(document["operators"][0])
            self._descriptions[name] = description
        return description

    def operator(self, name: str, backward: bool = False) -> Operator:
        """An operator as a function; for names that are a method's of this class, too."""
        method = self._methods.get((name, backward))
        if method is None:
            method = make(self, self.describe(name), backward)
            self._methods[name, backward] = method
        return method

    def __getattr__(self, name: str) -> Operator:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.operator(name)
        except NotFound:
            raise AttributeError(f"{self!r} has no operator {name!r}") from None

    def __dir__(self) -> List[str]:
        try:
            return sorted({*super().__dir__(), *self.operators()})
        except Error:
            return list(super().__dir__())

    # ---- Running ----

    def run(self, op: str, *inputs: Any, backward: bool = False,
            attributes: Optional[Mapping[str, Any]] = None, **options: Any) -> Any:
        """Runs an operator by its name. options are those that its function has: out, resident,
        omit, deadline, priority, check."""
        given = attributes or {}
        return self._execute(lambda: self._prepare(op, inputs, backward, given, options, False),
                             self._finish)

    def _execute(self, prepare: Callable[[], "Prepared"],
                 finish: Callable[["Prepared", Result], Any]) -> Any:
        prepared = prepare()
        try:
            result = self._connection.run(prepared.request)
        except InvalidArgument as error:
            if prepared.expected is None:
                raise with_dtypes(error, prepared) from None
            # What was remembered of outputs may be of an operator that was replaced since.
            self._operands.forget(prepared.key)
            prepared = prepare()
            try:
                result = self._connection.run(prepared.request)
            except InvalidArgument as again:
                raise with_dtypes(again, prepared) from None
        try:
            return finish(prepared, result)
        finally:
            result.free()

    def submit(self, op: str, *inputs: Any, backward: bool = False, **keys: Any) -> Future:
        """Starts an operator and returns a future, which can be awaited as well. keys are
        attributes and options. Arrays may be changed at once, but for those of empty()."""
        description = self.describe(op)
        inputs_, attributes, options = split(description, backward, inputs, keys)
        prepared = self._prepare(op, inputs_, backward, attributes, options, True)
        future = Future()

        def finish(result: Optional[Result], error: Optional[Error]) -> None:
            value = None
            if error is not None:
                if isinstance(error, InvalidArgument):
                    self._operands.forget(prepared.key)
                    error = with_dtypes(error, prepared)
            else:
                assert result is not None
                try:
                    value = self._finish(prepared, result)
                except Error as failure:
                    error = failure
            future._finish(value, error)

        call = self._connection.submit(prepared.request, finish)
        future._drop = lambda: self._connection.cancel(call)
        return future

    def _prepare(self, op: str, inputs: Sequence[Any], backward: bool,
                 attributes: Mapping[str, Any], options: Mapping[str, Any],
                 snapshot: bool) -> Prepared:
        description = self.describe(op)
        one = description.of_pass(backward)
        if one is None:
            raise Unimplemented(f"{op} has no backward")
        for name in options:
            if name not in DEFAULTS:
                raise TypeError(f"{op} has no option {name!r}: it has {', '.join(DEFAULTS)}")
        get = {**DEFAULTS, **options}
        values = _attributes.canonical(description, attributes)
        request = Request(op, backward, attributes=_attributes.encode(description, values),
                          deadline_ms=_milliseconds(get["deadline"], "deadline"),
                          priority=get["priority"], check=bool(get["check"]))
        prepared = Prepared(description, one, request)
        request.inputs = self._inputs(one, op, inputs, request, snapshot)
        request.omit = _omit(one, get["omit"])
        if get["resident"]:
            self._leave_there(prepared)
        elif get["out"] is not None:
            _receive_into(prepared, get["out"], self._operands)
        else:
            self._expect(prepared, values)
        return prepared

    def _expect(self, prepared: Prepared, values: Any) -> None:
        """Outputs as they came the last time. values: what they depend on besides the inputs."""
        request = prepared.request
        if request.omit:
            request.outputs = [ABSENT] * len(prepared.one.outputs)
        prepared.key = (request.op, request.backward, values, request.omit,
                        tuple((t.dtype, t.shape) for t in request.inputs))
        prepared.expected = self._operands.expect(prepared.key, request)

    def _inputs(self, one: Pass, op: str, inputs: Sequence[Any], request: Request,
                snapshot: bool) -> List[Tensor]:
        if len(inputs) > len(one.inputs):
            raise TypeError(f"{op} takes {len(one.inputs)} inputs, and {len(inputs)} were given")
        like: Optional[int] = None  # of the first array of numbers, not of a condition or indices
        for value in inputs:
            if isinstance(value, Resident):
                number = value._dtype
            elif isinstance(value, (np.ndarray, np.generic)):
                number = _dtypes.number_of(value.dtype, "the first array")
            else:
                continue
            if like is None or number in _dtypes.FLOATS:
                like = number
            if number in _dtypes.FLOATS:
                break
        tensors = []
        for operand, value in zip(one.inputs, inputs):
            if value is None:
                tensors.append(ABSENT)
            elif isinstance(value, Resident):
                if value._operands is not self._operands:
                    raise InvalidArgument(f"{operand.name} is resident for another client")
                tensors.append(value._tensor())
            else:
                a = value if isinstance(value, np.ndarray) else coerce(value, operand.name, like,
                                                                       operand.dtypes)
                tensor = self._operands.array(a, operand.name, request, snapshot)
                tensors.append(tensor._replace(address=0) if operand.shape_only else tensor)
        return tensors

    def _leave_there(self, prepared: Prepared) -> None:
        request = prepared.request
        outputs = []
        for i in range(len(prepared.one.outputs)):
            held = None
            if not request.omit >> i & 1:
                held = Held(self._connection, self._connection.handle())
            prepared.held.append(held)
            outputs.append(Tensor(0, (), 0, held, held.handle) if held else ABSENT)
        request.outputs = outputs

    def _finish(self, prepared: Prepared, result: Result) -> Any:
        if prepared.held:
            tensors = [result.out(i) for i in range(result.nout)]
            values: List[Any] = [
                None if held is None else Resident(self, self._operands, held, t.dtype, t.shape)
                for held, t in zip(prepared.held, tensors)]
        elif prepared.given is not None:
            values = list(prepared.given)
        else:
            outputs = self._operands.collect(prepared.key, prepared.request, prepared.expected,
                                             result)
            values = [None if o is None else presented(o[1], o[0]) for o in outputs]
        if len(values) == 1:
            return values[0]
        return self._tuple(prepared)(*values)

    def _tuple(self, prepared: Prepared) -> Callable[..., Any]:
        key = (prepared.description.name, prepared.request.backward)
        if key not in self._tuples:
            fields = [o.name for o in prepared.one.outputs]
            self._tuples[key] = namedtuple(key[0], fields, rename=True)
        return self._tuples[key]

    # ---- Memory ----

    def empty(self, shape: Any, dtype: Any = "f32") -> Array:
        """An uninitialised array in memory that the daemon shares: as an input, or as out=, it is
        used where it lies. Over Unix sockets alone. While a request that was submitted uses it,
        leave it alone."""
        number = _dtypes.parse(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(int(n) for n in shape)
        if any(n < 0 for n in shape):
            raise InvalidArgument(f"shape {shape}: no dimension can be negative")
        n = _dtypes.size_of(number, shape)
        if n == 0:
            return np.empty(shape, _dtypes.numpy_of(number))
        return presented(self._operands.pool.take(n).array(number, shape), number)

    def asarray(self, value: Any, dtype: Any = None) -> Array:
        """A copy of an array, or of what DLPack or NumPy can read, in such memory."""
        a = coerce(value, "the value", None, ())
        number = _dtypes.number_of(a.dtype) if dtype is None else _dtypes.parse(dtype)
        to = self.empty(a.shape, _dtypes.NAMES[number])
        np.copyto(to, a, casting="unsafe" if dtype is not None else "same_kind")
        return to

    def put(self, value: Any) -> Resident:
        """Copies an array into the daemon, to stay there."""
        a = coerce(value, "the value", None, ())
        held = Held(self._connection, self._connection.handle())
        tensor = put(self._operands, held.handle, a)
        return Resident(self, self._operands, held, tensor.dtype, tensor.shape)


def _milliseconds(seconds: Optional[float], name: str) -> int:
    """0 is for none; a limit that rounds to 0 is the shortest there is."""
    if seconds is None:
        return 0
    if not 0 <= seconds < 1e9:
        raise ValueError(f"{name}: {seconds} is no number of seconds")
    return max(1, math.ceil(seconds * 1000))


def _omit(one: Pass, names: Any) -> int:
    if isinstance(names, str):
        names = (names,)
    outputs = [o.name for o in one.outputs]
    mask = 0
    for name in names:
        if name not in outputs:
            raise ValueError(f"omit: there is no output {name!r}: there are {', '.join(outputs)}")
        mask |= 1 << outputs.index(name)
    return mask


def _receive_into(prepared: Prepared, out: Any, mine: Operands) -> None:
    outputs = prepared.one.outputs
    arrays = out if isinstance(out, (tuple, list)) else (out,)
    if len(arrays) != len(outputs):
        raise InvalidArgument(f"out: {len(outputs)} arrays are needed, and {len(arrays)} given")
    tensors = []
    for i, (a, operand) in enumerate(zip(arrays, outputs)):
        if a is None:
            prepared.request.omit |= 1 << i
        if prepared.request.omit >> i & 1:
            tensors.append(ABSENT)
            continue
        if isinstance(a, Resident):
            if a._operands is not mine:
                raise InvalidArgument(f"out: {operand.name} is resident for another client")
            tensors.append(a._tensor())
            continue
        number = _dtypes.number_of(writable(a, None, operand.name).dtype, operand.name)
        stored = storage(a, number)
        tensors.append(Tensor(number, stored.shape, stored.ctypes.data, stored))
    prepared.request.outputs = tensors
    prepared.given = [None if t is ABSENT else a for a, t in zip(arrays, tensors)]


def with_dtypes(error: InvalidArgument, prepared: Prepared) -> Error:
    """The same sentence; as an InvalidDtype where the dtypes are what the operator does not
    declare."""
    one, request = prepared.one, prepared.request
    given = [(o, t.dtype) for o, t in zip(one.inputs, request.inputs) if t.dtype]
    strange = any(dtype not in operand.dtypes for operand, dtype in given)
    floats = {dtype for operand, dtype in given
              if dtype in prepared.description.dtypes and len(operand.dtypes) > 1}
    if strange or len(floats) > 1:
        return InvalidDtype(error.message)
    return error
