"""What tests of the Python package share: the package from the tree, with the library that was
built, and a daemon of their own."""

import contextlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PACKAGE = os.path.join(ROOT, "client", "python")
sys.path[:0] = [PACKAGE, os.path.join(ROOT, "tests", "system")]

from xopd import BUILD, Daemon, faulty_operators, run  # noqa: E402

os.environ["XOP_LIBRARY"] = os.path.join(BUILD, "libxopclient.so.1")
os.environ.pop("XOP_ADDRESS", None)

import xop  # noqa: E402

__all__ = ["BUILD", "Daemon", "PACKAGE", "ROOT", "client_of", "faulty_operators", "raises", "run",
           "served"]


@contextlib.contextmanager
def client_of(daemon, **options):
    with xop.connect("unix:" + daemon.path, **options) as gpu:
        yield gpu


@contextlib.contextmanager
def served(*arguments, **options):
    """A daemon and a client of it."""
    with Daemon(*arguments, **options) as daemon, client_of(daemon) as gpu:
        yield daemon, gpu


def raises(kind, fragment, call, *arguments, **keys):
    """The exception, which has to be of that kind and to say so."""
    try:
        call(*arguments, **keys)
    except kind as error:
        assert fragment in str(error), f"{fragment!r} is not in {error!r}"
        return error
    raise AssertionError(f"no {kind.__name__}; expected one with {fragment!r}")
