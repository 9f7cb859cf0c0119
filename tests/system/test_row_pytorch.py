"""softmax, log_softmax, layer_norm and rms_norm beside PyTorch on the CPU: results, gradients, errors.

PyTorch is where python3-torch is installed; without it the test says that it was skipped.
"""

import itertools
import sys

import numpy as np

try:
    import torch
except ImportError:
    print("ok 1 - rows are as PyTorch has them # skip python3-torch is not installed")
    sys.exit(0)

import xopd
from xopd import Daemon, raises, INVALID_ARGUMENT

RANDOM = np.random.default_rng(7)
DTYPES = (np.float32, np.float64)
SHAPES = ((), (1,), (7,), (3, 4), (0, 4), (3, 0), (5, 31), (65, 33), (2, 3, 5), (4, 1, 6, 3), (3, 4099),
          (2, 9001), (300, 5))


def close(got, want, dtype, what):
    want = want.detach().numpy()
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.shape, want.shape)
    tolerance = 2e-5 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=what)


def random(shape, dtype):
    return np.asarray(RANDOM.normal(size=shape) * 3, dtype)


def leaf(array):
    return torch.tensor(array, requires_grad=True)


def check_softmax(client, op, x, dim, dtype):
    what = f"{op} {x.shape} {dtype.__name__} dim {dim}"
    tx, grad = leaf(x), random(x.shape, dtype)
    ty = getattr(torch, op)(tx, dim)
    y, = client.run(op, [x], attrs={"dim": dim})
    close(y, ty, dtype, what)
    ty.backward(torch.tensor(grad))
    gx, = client.run(op, [y, grad], backward=True, attrs={"dim": dim})
    close(gx, tx.grad, dtype, what + ", backward")


def softmax_and_log_softmax_along_every_dimension():
    with Daemon() as daemon:
        client = daemon.client()
        for op, shape, dtype in itertools.product(("softmax", "log_softmax"), SHAPES, DTYPES):
            rank = max(len(shape), 1)
            for dim in range(-rank, rank):
                check_softmax(client, op, random(shape, dtype), dim, dtype)


def rows_with_infinities_and_nan():
    inf, nan = np.inf, np.nan
    rows = [[-inf, 0, 1, -inf], [-inf] * 4, [inf, 0, 0, 1], [inf, inf, 0, 1], [nan, 0, -inf, 1],
            [1e4, 1e4, -1e4, 0], [0, 0, 0, 0], [-1e30, 1e30, 0, 1], [3, 3, 3, 3]]
    with Daemon() as daemon:
        client = daemon.client()
        for dtype, tail in itertools.product(DTYPES, (0, 3000)):
            # What follows takes no part in a softmax, but makes the rows long.
            x = np.array([row + [-inf] * tail for row in rows], dtype)
            for op in ("softmax", "log_softmax"):
                y, = client.run(op, [x])
                close(y, getattr(torch, op)(torch.tensor(x), -1), dtype, op)
                y, = client.run(op, [np.ascontiguousarray(x.T)], attrs={"dim": 0})
                close(y, getattr(torch, op)(torch.tensor(x.T.copy()), 0), dtype, op + " of columns")
        x = np.array([[1, nan, 1, 1], [1, inf, 1, 1], [3, 3, 3, 3], [1e3, 1e3 + 1, 1e3, 1e3]])
        y, = client.run("layer_norm", [x])
        close(y, torch.nn.functional.layer_norm(torch.tensor(x), (4,)), np.float64, "layer_norm")


def rms_norm(x, dims, weight, eps):
    square = x.pow(2).mean(tuple(range(-dims, 0)), keepdim=True)
    y = x * torch.rsqrt(square + (torch.finfo(x.dtype).eps if eps is None else eps))
    return y if weight is None else y * weight


def check_norm(client, op, shape, dims, dtype, with_weight, with_bias, eps):
    what = f"{op} {shape} {dims} {dtype.__name__} {with_weight} {with_bias} {eps}"
    x, grad, row = random(shape, dtype), random(shape, dtype), shape[len(shape) - dims:]
    weight = random(row, dtype) if with_weight else None
    bias = random(row, dtype) if with_bias else None
    tx, tw, tb = (None if a is None else leaf(a) for a in (x, weight, bias))
    if op == "layer_norm":
        ty = torch.nn.functional.layer_norm(tx, row, tw, tb, 1e-5 if eps is None else eps)
    else:
        ty = rms_norm(tx, dims, tw, eps)
    attrs = {} if eps is None else {"eps": eps}
    if dims != 1:
        attrs["normalized_shape"] = list(row)
    y, = client.run(op, [x, weight, bias][:3 if op == "layer_norm" else 2], attrs=attrs)
    close(y, ty, dtype, what)
    ty.backward(torch.tensor(grad))
    gradients = client.run(op, [x, weight, grad], backward=True, attrs=attrs)
    for got, of, name in zip(gradients, (tx, tw, tb), ("x", "weight", "bias")):
        if of is not None:
            # Sums over many rows, of terms of all sizes.
            close(got / np.sqrt(x.size + 1), of.grad / np.sqrt(x.size + 1), dtype, f"{what}, {name}")


def layer_norm_and_rms_norm_over_the_last_dimensions():
    with Daemon() as daemon:
        client = daemon.client()
        for op, shape, dtype in itertools.product(("layer_norm", "rms_norm"), SHAPES, DTYPES):
            for dims in range(1, len(shape) + 1):
                for with_weight, with_bias in ((False, False), (True, False), (True, True), (False, True)):
                    if with_bias and op == "rms_norm" or 0 in shape[len(shape) - dims:]:
                        continue
                    check_norm(client, op, shape, dims, dtype, with_weight, with_bias,
                               None if with_weight else 0.1)


def what_is_wrong_is_said():
    def said(fragment, *arguments, **keys):
        raises(INVALID_ARGUMENT, fragment, client.run, *arguments, **keys)

    x, four = np.ones((3, 4), np.float32), np.ones(4, np.float32)
    with Daemon() as daemon:
        client = daemon.client()
        said("from -2 to 1", "softmax", [x], attrs={"dim": 2})
        said("from -1 to 0", "log_softmax", [np.float32(1).reshape(())], attrs={"dim": -2})
        said("must be the same", "softmax", [x, four], backward=True)
        said("must be x's last dimensions", "layer_norm", [x], attrs={"normalized_shape": [3]})
        said("must be x's last dimensions", "rms_norm", [x], attrs={"normalized_shape": [2, 3, 4]})
        said("at least one dimension", "layer_norm", [np.float32(1).reshape(())])
        said("that of a row of x, (3, 4)", "layer_norm", [x, four], attrs={"normalized_shape": [3, 4]})
        said("bias has shape", "layer_norm", [x, four, x])
        said("grad_y has shape", "rms_norm", [x, four, four], backward=True)
        y, = client.run("layer_norm", [x]) # and the connection lives
        assert (y == 0).all()


def a_context_keeps_what_backward_needs():
    with Daemon() as daemon:
        client = daemon.client()
        x, grad = random((5, 6), np.float32), random((5, 6), np.float32)
        for op, kept in (("softmax", False), ("layer_norm", True)):
            attrs = {"dim": 0} if op == "softmax" else {"eps": 0.5}
            y, = client.run(op, [x], attrs=attrs, keep=9)
            apart = client.run(op, [x, None, grad] if kept else [y, grad], backward=True, attrs=attrs)
            gradients = client.run(op, [None, None, grad] if kept else [None, grad], backward=True,
                                   context=9)
            for got, want in zip(gradients, apart):
                np.testing.assert_array_equal(got, want)
            client.ask("free", handle=9)


xopd.run([softmax_and_log_softmax_along_every_dimension, rows_with_infinities_and_nan,
          layer_norm_and_rms_norm_over_the_last_dimensions, what_is_wrong_is_said,
          a_context_keeps_what_backward_needs])
