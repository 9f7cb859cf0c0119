"""Tensor operators of an xopd, with NumPy arrays in and out.

    import numpy as np, xop
    gpu = xop.connect()
    y = gpu.square_bias(x, b)
    f = gpu.submit("square_bias", x, b)
    f.result(timeout=1)                   # or: await f

docs/python.md has the rest; xop.torch is for PyTorch.
"""

from __future__ import annotations

from typing import Any

from ._describe import Attribute, Description, Operand, Pass
from ._future import Future
from ._operator import Operator
from ._resident import Resident
from .client import Client
from .errors import (Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, DeviceFault,
                     Error, FailedPrecondition, Internal, InvalidArgument, InvalidDtype, NotFound,
                     PermissionDenied, ResourceExhausted, Status, Unauthenticated, Unavailable,
                     Unimplemented)

__version__ = "0.1.0"
__all__ = ["Aborted", "AlreadyExists", "Attribute", "Cancelled", "Client", "DataLoss",
           "DeadlineExceeded", "Description", "DeviceFault", "Error", "FailedPrecondition",
           "Future", "Internal", "InvalidArgument", "InvalidDtype", "NotFound", "Operand",
           "Operator", "Pass", "PermissionDenied", "Resident", "ResourceExhausted", "Status",
           "Unauthenticated", "Unavailable", "Unimplemented", "connect"]


def connect(address: "str | None" = None, **options: Any) -> Client:
    """Connects to an xopd: "unix:/path", "tls:host:port" or "tcp:host:port". Without an address
    it looks at XOP_ADDRESS, then for the default sockets. options: token; ca, cert, key (files,
    for tls:); insecure_token, to send a token over tcp: in the clear; timeout in seconds; agent, the name in the daemon's log; pool, the bytes of unused
    shared memory that are kept."""
    return Client(address, **options)
