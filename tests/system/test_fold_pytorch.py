"""Reductions over any dimensions beside PyTorch on the CPU: results, gradients, errors.

PyTorch is where python3-torch is installed; without it the test says that it was skipped.
"""

import itertools
import sys

import numpy as np

try:
    import torch
except ImportError:
    print("ok 1 - reductions are as PyTorch has them # skip python3-torch is not installed")
    sys.exit(0)

from xopd import Daemon, raises, run, INVALID_ARGUMENT

RANDOM = np.random.default_rng(11)
DTYPES = (np.float32, np.float64)
OPS = ("sum", "mean", "max", "min", "prod", "logsumexp", "var")
NEEDS_Y = ("max", "min", "logsumexp")
SHAPES = ((), (1,), (7,), (3, 4), (5, 31), (2, 3, 5), (4, 1, 6, 3), (2, 5000), (5000, 3), (129, 200),
          (3, 70, 40), (2, 3, 1, 3, 2, 1, 2, 3))


def subsets(rank):
    """Every set of dimensions, some counted from the end; the empty one is all."""
    for count in range(min(rank, 4) + 1):
        for dims in itertools.combinations(range(rank), count):
            yield tuple(d - rank if i % 2 else d for i, d in enumerate(dims))


def product(x, dims, keepdim):
    """torch.prod takes one dimension: the last first, so that the others stay where they are."""
    for d in sorted((d % x.dim() for d in dims), reverse=True):
        x = torch.prod(x, d, keepdim)
    return x


def by_torch(op, x, dims, keepdim, correction=1):
    every = tuple(range(x.dim()))
    if op == "prod":
        return product(x, dims or every, keepdim)
    dims = dims or every
    if op == "logsumexp" and not dims:
        return torch.logsumexp(x.reshape(1), 0)
    if op == "var":
        return torch.var(x, dims, correction=correction, keepdim=keepdim)
    name = {"max": "amax", "min": "amin"}.get(op, op)
    return getattr(torch, name)(x, dims, keepdim)


def close(got, want, dtype, what):
    want = want.detach().numpy()
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.shape, want.shape)
    tolerance = 3e-5 if dtype == np.float32 else 1e-11
    size = 1 + (np.abs(want[np.isfinite(want)]).max(initial=0) if want.size else 0)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * size, equal_nan=True, err_msg=what)


def check(client, op, x, dims, keepdim, dtype, correction=None):
    what = f"{op} {x.shape} {dtype.__name__} dim {dims} keepdim {keepdim} correction {correction}"
    attrs = {"dim": list(dims), "keepdim": keepdim}
    if correction is not None:
        attrs["correction"] = correction
    tx = torch.tensor(x, requires_grad=True)
    ty = by_torch(op, tx, dims, keepdim, 1 if correction is None else correction)
    y, = client.run(op, [x], attrs=attrs)
    close(y, ty, dtype, what)
    grad = np.asarray(RANDOM.normal(size=y.shape), dtype)
    ty.backward(torch.tensor(grad))
    gx, = client.run(op, [x, y, grad] if op in NEEDS_Y else [x, grad], backward=True, attrs=attrs)
    close(gx, tx.grad, dtype, what + ", backward")


def numbers(op, shape, dtype):
    if op in ("max", "min"): # with ties
        return np.asarray(RANDOM.integers(-9, 9, size=shape), dtype)
    if op == "prod":
        return np.asarray(np.exp(RANDOM.normal(size=shape) / 50) * RANDOM.choice([-1, 1], shape), dtype)
    return np.asarray(RANDOM.normal(size=shape) * 3 + 2, dtype)


def every_set_of_dimensions():
    with Daemon() as daemon:
        client = daemon.client()
        for op, shape, dtype in itertools.product(OPS, SHAPES, DTYPES):
            for dims in subsets(len(shape)):
                if op == "var" and shape == ():
                    continue # 2 / 0 * 0: PyTorch gives an infinity for a scalar alone
                keepdim = len(dims) % 2 == 1
                check(client, op, numbers(op, shape, dtype), dims, keepdim, dtype)
        for shape, correction in itertools.product(((4, 5), (4, 3000), (3000, 3)), (0, 1, 2, 4)):
            check(client, "var", numbers("var", shape, np.float64) + 1e3, (0,), True, np.float64, correction)


def products_with_zeros():
    with Daemon() as daemon:
        client = daemon.client()
        x = np.array([[1, 2, 3, 4], [0, 2, 3, 4], [0, 2, 0, 4], [0, 0, 0, 0], [-1, 5, -0.0, 2]])
        for dims in ((1,), (0,)):
            check(client, "prod", x, dims, False, np.float64)


def infinities_and_nan():
    inf, nan = np.inf, np.nan
    rows = [[1, nan, 3, inf], [-inf, inf, 1, 2], [-inf] * 4, [inf, inf, 1, 2], [1e4, -1e4, 0, 1], [nan] * 4]
    with Daemon() as daemon:
        client = daemon.client()
        for op, dtype, repeat in itertools.product(OPS, DTYPES, (1, 700)):
            x = np.array([row * repeat for row in rows], dtype)
            for turned, dim in ((x, 1), (np.ascontiguousarray(x.T), 0)):
                if op == "prod" and repeat > 1:
                    continue # overflows on the way, or not, depending on the order
                y, = client.run(op, [turned], attrs={"dim": [dim]})
                close(y, by_torch(op, torch.tensor(turned), (dim,), False), dtype, f"{op} {turned.shape} {dim}")
        y, = client.run("max", [x], attrs={"dim": [1]})
        gx, = client.run("max", [x, y, np.ones(6, x.dtype)], backward=True, attrs={"dim": [1]})
        assert np.isnan(gx[0]).all() and not np.isnan(gx[1]).any(), gx


def nothing_to_reduce():
    with Daemon() as daemon:
        client = daemon.client()
        x = np.zeros((0, 3), np.float32)
        for op, wanted in (("sum", 0), ("mean", np.nan), ("prod", 1), ("logsumexp", -np.inf), ("var", np.nan)):
            y, = client.run(op, [x], attrs={"dim": [0]})
            np.testing.assert_array_equal(y, np.full(3, wanted, np.float32))
            y, = client.run(op, [x], attrs={"dim": [1]})
            assert y.shape == (0,), y.shape
            gx, = client.run(op, [x] + [np.zeros(3, np.float32)] * (1 + (op in NEEDS_Y)), backward=True,
                             attrs={"dim": [0]})
            assert gx.shape == (0, 3), gx.shape
        for op in ("max", "min"):
            raises(INVALID_ARGUMENT, "nothing to choose from", client.run, op, [x], attrs={"dim": [0]})
            y, = client.run(op, [x], attrs={"dim": [1]} if op == "max" else {"dim": [-1]})
            assert y.shape == (0,), y.shape


def what_is_wrong_is_said():
    x, four = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    with Daemon() as daemon:
        client = daemon.client()

        def said(fragment, *arguments, **keys):
            raises(INVALID_ARGUMENT, fragment, client.run, *arguments, **keys)

        said("from -2 to 1", "sum", [x], attrs={"dim": [2]})
        said("from -1 to 0", "mean", [np.float32(1).reshape(())], attrs={"dim": [-2]})
        said("names dimension 1 twice", "max", [x], attrs={"dim": [1, -1]})
        said("grad_y has shape (3, 4); it must be the result's, (4,)", "sum", [x, x], backward=True,
             attrs={"dim": [0]})
        said("y has shape (4,); it must be the result's, (1, 4)", "logsumexp", [x, four, four], backward=True,
             attrs={"dim": [0], "keepdim": True})
        said("they must be the same", "var", [x, np.ones(4)], backward=True, attrs={"dim": [0]})
        y, = client.run("sum", [x]) # and the connection lives
        assert y == 12


def a_context_keeps_what_backward_needs():
    with Daemon() as daemon:
        client = daemon.client()
        x, grad = numbers("sum", (5, 6), np.float32), np.ones(5, np.float32)
        for op in OPS:
            attrs, inputs = {"dim": [1]}, 3 if op in NEEDS_Y else 2
            y, = client.run(op, [x], attrs=attrs, keep=9)
            apart, = client.run(op, [x, y, grad][:1] + [y] * (inputs - 2) + [grad], backward=True, attrs=attrs)
            kept, = client.run(op, [None] * (inputs - 1) + [grad], backward=True, context=9, attrs=attrs)
            np.testing.assert_array_equal(kept, apart)
            client.ask("free", handle=9)


run([every_set_of_dimensions, products_with_zeros, infinities_and_nan, nothing_to_reduce, what_is_wrong_is_said,
     a_context_keeps_what_backward_needs])
