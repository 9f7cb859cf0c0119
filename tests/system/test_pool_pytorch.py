"""max_pool2d, avg_pool2d and upsample beside PyTorch on the CPU: results, gradients, errors.

PyTorch is where python3-torch is installed; without it the test says that it was skipped.
"""

import itertools
import sys

import numpy as np

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("ok 1 - pools and upsample are as PyTorch has them # skip python3-torch is not installed")
    sys.exit(0)

import xopd
from xopd import Daemon, raises, INVALID_ARGUMENT

RANDOM = np.random.default_rng(17)
DTYPES = (np.float32, np.float64)
SHAPES = ((1, 1, 1, 1), (2, 3, 4, 4), (3, 5, 7), (2, 1, 9, 10), (1, 2, 17, 31), (0, 2, 6, 6), (1, 1, 3, 60))


def random(shape, dtype):
    return np.asarray(RANDOM.normal(size=shape) * 3, dtype)


def close(got, want, dtype, what):
    want = want.detach().numpy().astype(dtype)
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.shape, want.shape)
    tolerance = 2e-6 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=what)


def both(client, op, x, attrs, by_torch, oracle=torch.float64):
    """Forward and backward; PyTorch computes in f64 what ours rounds once. False: PyTorch refuses."""
    what = f"{op} {x.shape} {x.dtype} {attrs}"
    tx = torch.tensor(x, dtype=oracle, requires_grad=True)
    try:
        ty = by_torch(tx)
    except RuntimeError:
        raises(INVALID_ARGUMENT, "", client.run, op, [x], attrs=attrs)
        return False
    y, = client.run(op, [x], attrs=attrs)
    close(y, ty, x.dtype, what)
    if np.isfinite(x).all() and not np.isfinite(y).all():
        return True # windows in the padding, for which PyTorch 1.13 writes gradients out of bounds
    grad = random(y.shape, x.dtype)
    if oracle == torch.float32:
        grad = np.round(grad) # of whole numbers sums are exact
    ty.backward(torch.tensor(grad, dtype=oracle))
    gx, = client.run(op, [x, grad], backward=True, attrs=attrs)
    close(gx, tx.grad, x.dtype, what + ", backward")
    return True


def geometries():
    """PyTorch's arguments; what does not fit is refused by both."""
    for kernel, stride, padding, ceil_mode in itertools.product(
            ((1, 1), (2, 2), (3, 2), (5, 3)), (None, (1, 1), (2, 3)), ((0, 0), (1, 1), (2, 1)), (False, True)):
        yield {"kernel_size": kernel, "stride": stride, "padding": padding, "ceil_mode": ceil_mode}


def asked(arguments):
    return {k: list(v) if isinstance(v, tuple) else v for k, v in arguments.items() if v is not None}


def max_pool2d_with_every_argument():
    done = 0
    with Daemon() as daemon:
        client = daemon.client()
        for shape, geometry, dilation in itertools.product(SHAPES, geometries(), ((1, 1), (2, 3))):
            arguments = {**geometry, "dilation": dilation}
            x = np.round(random(shape, DTYPES[done % 2])) # whole numbers: many are equal
            done += both(client, "max_pool2d", x, asked(arguments),
                         lambda t, a=arguments: F.max_pool2d(t, **a))
    assert done > 300, done


def avg_pool2d_with_every_argument():
    done = 0
    with Daemon() as daemon:
        client = daemon.client()
        for shape, geometry, include, divisor in itertools.product(SHAPES, geometries(), (True, False), (None, 7, -2)):
            arguments = {**geometry, "count_include_pad": include, "divisor_override": divisor}
            done += both(client, "avg_pool2d", random(shape, DTYPES[done % 2]), asked(arguments),
                         lambda t, a=arguments: F.avg_pool2d(t, **a))
    assert done > 900, done


def nan_and_infinities_in_a_pool():
    inf, nan = np.inf, np.nan
    x = np.array([[1, nan, 3, nan], [-inf, -inf, 2, 2], [-inf, -inf, inf, 1], [nan, 5, inf, inf]]).reshape(1, 4, 4)
    with Daemon() as daemon:
        client = daemon.client()
        for kernel, stride in ((2, 1), (2, 2), (3, 1)):
            attrs = {"kernel_size": [kernel], "stride": [stride]}
            both(client, "max_pool2d", x, attrs, lambda t, k=kernel, s=stride: F.max_pool2d(t, k, s))
            both(client, "avg_pool2d", x, attrs, lambda t, k=kernel, s=stride: F.avg_pool2d(t, k, s))


def by_interpolate(mode, arguments):
    align = {"align_corners": arguments.get("align_corners", False)} if mode == "bilinear" else {}
    return lambda t: F.interpolate(t, size=arguments.get("size"), scale_factor=arguments.get("scale_factor"),
                                   mode=mode, **align)


def upsample_by_size_and_by_factor():
    sizes = ((1, 1), (2, 3), (4, 4), (7, 94), (13, 60), (110, 31))
    factors = ((2.0, 2.0), (1.0, 3.0), (2.3, 0.7), (0.5, 1.7), (1.1, 1.01))
    with Daemon() as daemon:
        client = daemon.client()
        for shape, dtype in itertools.product((s for s in SHAPES if len(s) == 4), DTYPES):
            for key, value in [("size", s) for s in sizes] + [("scale_factor", f) for f in factors]:
                for mode, align in (("nearest", None), ("bilinear", False), ("bilinear", True)):
                    if align and key == "scale_factor" and min(shape[2:]) * min(value) < 1:
                        continue
                    if mode == "nearest" and key == "scale_factor" and any(
                            f % 1 and int(n * f) in (n, 2 * n) for n, f in zip(shape[2:], value)):
                        continue # some loops of PyTorch take these sizes for factors of 1 and 2, some do not
                    arguments = {key: value, **({} if align is None else {"align_corners": align})}
                    # In f64 PyTorch finds the nearest in one precision or the other, as the case may be.
                    nearest = mode == "nearest"
                    x = np.round(random(shape, dtype)) if nearest else random(shape, dtype)
                    both(client, "upsample", x, {**asked(arguments), "mode": mode},
                         by_interpolate(mode, arguments), torch.float32 if nearest else torch.float64)


def nearest_finds_the_same_elements():
    """Where a rounding decides."""
    with Daemon() as daemon:
        client = daemon.client()
        for rows in range(1, 60, 3):
            x = np.arange(float(rows)).reshape(1, 1, rows, 1)
            for size in range(1, 120):
                y, = client.run("upsample", [x], attrs={"size": [size, 1]})
                want = F.interpolate(torch.tensor(x, dtype=torch.float32), size=(size, 1)).numpy()
                assert (y == want).all(), (rows, size)


def what_is_wrong_is_said():
    def said(fragment, *arguments, **keys):
        raises(INVALID_ARGUMENT, fragment, client.run, *arguments, **keys)

    x = np.ones((1, 2, 4, 5), np.float32)
    with Daemon() as daemon:
        client = daemon.client()
        said("kernel_size", "max_pool2d", [x])
        said("it must have 1 or 2", "max_pool2d", [x], attrs={"kernel_size": [1, 2, 3]})
        said("kernel_size is 0", "avg_pool2d", [x], attrs={"kernel_size": [0]})
        said("stride is -1", "avg_pool2d", [x], attrs={"kernel_size": [2], "stride": [-1]})
        said("dilation is 9223372036854775807", "max_pool2d", [x],
             attrs={"kernel_size": [2], "dilation": [2**63 - 1]})
        said("at most half of kernel_size", "max_pool2d", [x], attrs={"kernel_size": [3], "padding": [2]})
        said("no window fits", "avg_pool2d", [x], attrs={"kernel_size": [5]})
        said("width of 5, in which no window fits", "avg_pool2d", [x], attrs={"kernel_size": [4, 6]})
        said("a window has", "max_pool2d", [x], attrs={"kernel_size": [2**31 - 2, 4], "padding": [2**30 - 1, 0]})
        said("must be at least 1", "max_pool2d", [x[:, :0]], attrs={"kernel_size": [2]})
        said("needs 3 to 4 dimensions", "max_pool2d", [x[0, 0]], attrs={"kernel_size": [2]})
        said("grad_y has shape", "avg_pool2d", [x, x], backward=True, attrs={"kernel_size": [2]})
        said("one of size and scale_factor", "upsample", [x])
        said("one of size and scale_factor", "upsample", [x], attrs={"size": [2], "scale_factor": [2.0]})
        said("bicubic", "upsample", [x], attrs={"size": [2], "mode": "bicubic"})
        said("bilinear\" alone", "upsample", [x], attrs={"size": [2], "align_corners": True})
        said("height would be 0", "upsample", [x], attrs={"size": [0]})
        said("height would be nan", "upsample", [x], attrs={"scale_factor": [float("nan")]})
        said("height would be inf", "upsample", [x], attrs={"scale_factor": [float("inf")]})
        said("width would be -5", "upsample", [x], attrs={"scale_factor": [1.0, -1.0]})
        said("2^63 bytes", "upsample", [x], attrs={"size": [2**40, 2**40]})
        y, = client.run("avg_pool2d", [x], attrs={"kernel_size": [2]}) # and the connection lives
        assert (y == 1).all()


xopd.run([max_pool2d_with_every_argument, avg_pool2d_with_every_argument, nan_and_infinities_in_a_pool,
          upsample_by_size_and_by_factor, nearest_finds_the_same_elements, what_is_wrong_is_said])
