"""libxopclient.so as ctypes sees it: what xop/types.h and xop/client.h declare, and no more.

Results are handed over by callbacks that are methods written in C (`list.append`,
`SimpleQueue.put`): a signal's handler runs between instructions of Python, and there are none in
them, so a KeyboardInterrupt cannot take the place of a result.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from ctypes import (POINTER, Structure, Union, c_bool, c_char, c_char_p, c_double, c_int, c_int32,
                    c_int64, c_size_t, c_uint32, c_uint64, c_void_p, py_object)
from queue import SimpleQueue
from typing import Any, List

MAX_RANK = 8
MAX_OPERANDS = 16
FORWARD, BACKWARD = 0, 1
ATTR_INT, ATTR_FLOAT, ATTR_BOOL, ATTR_STRING, ATTR_INTS, ATTR_FLOATS = range(1, 7)


class CError(Structure):
    _fields_ = [("status", c_int), ("message", c_char * 512)]


class CTensor(Structure):
    _fields_ = [("dtype", c_int), ("rank", c_uint32), ("shape", c_int64 * MAX_RANK),
                ("data", c_void_p)]


class CAttrValue(Union):
    _fields_ = [("i", c_int64), ("f", c_double), ("string", c_char_p), ("ints", POINTER(c_int64)),
                ("floats", POINTER(c_double))]


class CAttr(Structure):
    _fields_ = [("name", c_char_p), ("type", c_int), ("count", c_uint32), ("value", CAttrValue)]


class COptions(Structure):
    _fields_ = [("size", c_size_t), ("agent", c_char_p), ("token", c_char_p),
                ("timeout_ms", c_uint64), ("max_response", c_uint64), ("spin_us", c_uint32),
                ("ca", c_char_p), ("cert", c_char_p), ("key", c_char_p),
                ("insecure_token", c_bool)]


class CRequest(Structure):
    _fields_ = [("op", c_char_p), ("pass_", c_int), ("in_", POINTER(CTensor)), ("nin", c_uint32),
                ("out", POINTER(CTensor)), ("nout", c_uint32), ("omit", c_uint32),
                ("in_resident", POINTER(c_uint64)), ("out_resident", POINTER(c_uint64)),
                ("keep", c_uint64), ("context", c_uint64), ("attrs", POINTER(CAttr)),
                ("nattrs", c_uint32), ("deadline_ms", c_uint64), ("priority", c_int32),
                ("check", c_bool)]


class CResult(Structure):
    _fields_ = [("error", CError), ("out", POINTER(CTensor)), ("nout", c_uint32),
                ("started", c_bool), ("queue_ns", c_uint64), ("copy_ns", c_uint64),
                ("run_ns", c_uint64), ("batch", c_uint32), ("text", c_void_p),
                ("text_bytes", c_size_t), ("id", c_uint64)]


DoneFunction = ctypes.CFUNCTYPE(None, py_object, c_void_p)
# The argument is a list, or a SimpleQueue; it takes the result's address, which is to be freed.
append_result = DoneFunction(list.append)
queue_result = DoneFunction(SimpleQueue.put)

_client, _error, _memory = c_void_p, POINTER(CError), c_void_p
_FUNCTIONS = {
    "xop_client_open": (c_int, [c_char_p, POINTER(COptions), POINTER(c_void_p), _error]),
    "xop_client_close": (None, [_client]),
    "xop_client_address": (c_char_p, [_client]),
    "xop_client_descriptor": (c_int, [_client]),
    "xop_client_wait": (c_int, [_client, c_uint64, _error]),
    "xop_result_free": (None, [c_void_p]),
    "xop_submit": (c_int, [_client, POINTER(CRequest), DoneFunction, py_object, POINTER(c_uint64),
                           _error]),
    "xop_wait": (c_bool, [_client, c_uint64, c_uint64]),
    "xop_cancel": (c_int, [_client, c_uint64, _error]),
    "xop_describe": (c_int, [_client, c_char_p, POINTER(c_void_p)]),
    "xop_stats": (c_int, [_client, POINTER(c_void_p)]),
    "xop_ping": (c_int, [_client, POINTER(c_void_p)]),
    "xop_memory_create": (c_int, [c_size_t, POINTER(c_void_p), _error]),
    "xop_memory_data": (c_void_p, [_memory]),
    "xop_memory_bytes": (c_size_t, [_memory]),
    "xop_memory_free": (None, [_memory]),
    "xop_memory_attach": (c_int, [_client, _memory, c_bool, _error]),
    "xop_memory_detach": (c_int, [_client, _memory, _error]),
    "xop_handle": (c_uint64, [_client]),
    "xop_put": (c_int, [_client, c_uint64, POINTER(CTensor), _error]),
    "xop_get": (c_int, [_client, c_uint64, POINTER(CTensor), _error]),
    "xop_submit_free": (c_int, [_client, c_uint64, DoneFunction, py_object, _error]),
}


def _candidates() -> List[str]:
    """Where the library may be: XOP_LIBRARY alone where it is set."""
    named = os.environ.get("XOP_LIBRARY")
    if named:
        return [named]
    found = ctypes.util.find_library("xopclient")
    return ([found] if found else []) + ["libxopclient.so.1", "/usr/local/lib/libxopclient.so.1"]


def _load() -> Any:
    tried = []
    for name in _candidates():
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            tried.append(f"{name}: {error}")
            continue
        for function, (result, arguments) in _FUNCTIONS.items():
            try:
                entry = getattr(library, function)
            except AttributeError:
                raise ImportError(f"{name} has no {function}: it is older than this package; "
                                  "install the xopd that it came with") from None
            entry.restype, entry.argtypes = result, arguments
        return library
    raise ImportError("libxopclient cannot be loaded; install it (make install), or name its file "
                      "in XOP_LIBRARY. Tried " + "; ".join(tried))


lib = _load()
