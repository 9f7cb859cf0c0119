"""What can go wrong, as exceptions: one for each status, with xopd's own sentence."""

from __future__ import annotations

import enum
from typing import Dict, Type


class Status(enum.IntEnum):
    """The numbers of docs/protocol.md."""
    OK = 0
    CANCELLED = 1
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16
    DEVICE_FAULT = 64


class Error(Exception):
    """Any failure. `status` says which kind, `message` is the sentence."""
    status = Status.INTERNAL

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(Error, ValueError):
    """The request is wrong whatever the daemon's state: shapes, attributes, values."""
    status = Status.INVALID_ARGUMENT


class InvalidDtype(InvalidArgument, TypeError):
    """The operator does not take these data types."""


class Cancelled(Error):
    """Cancelled before there was a result."""
    status = Status.CANCELLED


class DeadlineExceeded(Error, TimeoutError):
    """The deadline passed before the answer came."""
    status = Status.DEADLINE_EXCEEDED


class NotFound(Error, LookupError):
    """No such operator, tensor or context."""
    status = Status.NOT_FOUND


class AlreadyExists(Error):
    """A handle that is taken."""
    status = Status.ALREADY_EXISTS


class PermissionDenied(Error):
    """This identity may not do this."""
    status = Status.PERMISSION_DENIED


class ResourceExhausted(Error, MemoryError):
    """A limit, a quota or memory is used up."""
    status = Status.RESOURCE_EXHAUSTED


class FailedPrecondition(Error):
    """Not in this state: a closed client, a context whose tensors were written since."""
    status = Status.FAILED_PRECONDITION


class Aborted(Error):
    """A request that this one depends on failed."""
    status = Status.ABORTED


class Unimplemented(Error, NotImplementedError):
    """Known, but not offered here: an operator without that pass, for instance."""
    status = Status.UNIMPLEMENTED


class Internal(Error):
    """A bug in xopd or in an operator."""
    status = Status.INTERNAL


class Unavailable(Error, ConnectionError):
    """No daemon, or no worker just now; trying again may help."""
    status = Status.UNAVAILABLE


class DataLoss(Error):
    """What the request needed or wrote was lost with a worker."""
    status = Status.DATA_LOSS


class Unauthenticated(Error):
    """No valid token or certificate."""
    status = Status.UNAUTHENTICATED


class DeviceFault(Error):
    """This very request breaks the device each time that it runs."""
    status = Status.DEVICE_FAULT


_BY_STATUS: Dict[int, Type[Error]] = {
    c.status: c for c in (InvalidArgument, Cancelled, DeadlineExceeded, NotFound, AlreadyExists,
                          PermissionDenied, ResourceExhausted, FailedPrecondition, Aborted,
                          Unimplemented, Internal, Unavailable, DataLoss, Unauthenticated,
                          DeviceFault)}


def error_of(status: int, message: str) -> Error:
    """The exception for a status; a status that this version does not know is an Error."""
    kind = _BY_STATUS.get(status)
    return kind(message) if kind else Error(f"status {status}: {message}")
