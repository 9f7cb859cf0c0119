"""The losses and where beside PyTorch on the CPU: results, gradients, empty tensors, indices out of range."""

import itertools
import sys

import numpy as np

try:
    import torch
except ImportError:
    print("ok 1 - losses are as PyTorch has them # skip python3-torch is not installed")
    sys.exit(0)

import xopd
from xopd import Daemon, raises, INVALID_ARGUMENT

F = torch.nn.functional
RANDOM = np.random.default_rng(11)
DTYPES = (np.float16, np.float32, np.float64)
TOLERANCE = {np.float16: 2e-3, np.float32: 3e-5, np.float64: 1e-12}
REDUCTIONS = ("none", "mean", "sum")
POINTWISE = ((), (1,), (0,), (7,), (3, 4), (2, 0, 3), (65, 33), (4099,), (2, 3, 50, 31))
CLASSES = ((3,), (1, 1), (0, 4), (5, 10), (65, 33), (300, 3), (3, 1030), (2, 5000), (2, 3, 0), (4, 7, 5),
           (2, 5, 3, 35), (3, 2, 1, 2, 2))


def close(got, want, dtype, what):
    """PyTorch computes in f64 what has been rounded to dtype, since its CPU has no f16."""
    with np.errstate(over="ignore"):
        want = want.detach().numpy().astype(dtype)
    assert got.dtype == dtype and got.shape == want.shape, (what, got.shape, want.shape)
    size = np.abs(want[np.isfinite(want)]).max(initial=1)
    np.testing.assert_allclose(got / size, want / size, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype],
                               equal_nan=True, err_msg=what)


def random(shape, dtype, low=-3.0, high=3.0):
    return np.asarray(RANDOM.uniform(low, high, size=shape), dtype)


def tensor(array, wants_grad):
    if array is None or array.dtype.kind == "i":
        return None if array is None else torch.tensor(array.astype(np.int64))
    return torch.tensor(array, dtype=torch.float64, requires_grad=wants_grad)


def compare(client, op, arrays, formula, attrs, dtype, of):
    """The operator and formula(*tensors): the result, and the gradients of inputs of."""
    what = f"{op} {[None if a is None else (a.shape, a.dtype.name) for a in arrays]} {attrs}"
    leaves = [tensor(a, i in of) for i, a in enumerate(arrays)]
    want = formula(*leaves)
    y, = client.run(op, arrays, attrs=attrs)
    close(y, want, dtype, what)
    grad = random(want.shape, dtype)
    want.backward(torch.tensor(grad.astype(np.float64)))
    got = client.run(op, [*arrays, grad], backward=True, attrs=attrs)
    for i, gradient in zip(of, got):
        close(gradient, leaves[i].grad, dtype, f"{what}, gradient of input {i}")


def mse_loss_of_every_reduction():
    with Daemon() as daemon:
        client = daemon.client()
        for shape, dtype, reduction in itertools.product(POINTWISE, DTYPES, REDUCTIONS):
            compare(client, "mse_loss", [random(shape, dtype), random(shape, dtype)],
                    lambda x, t: F.mse_loss(x, t, reduction=reduction), {"reduction": reduction}, dtype, (0, 1))


def binary_cross_entropy_with_weights_that_broadcast():
    with Daemon() as daemon:
        client = daemon.client()
        for shape, dtype, reduction, weighted in itertools.product(POINTWISE, DTYPES, REDUCTIONS, range(4)):
            columns, rows = shape[-1:], shape[:-1] + (1,) if shape else ()
            compare(client, "binary_cross_entropy_with_logits",
                    [random(shape, dtype, -20, 20), random(shape, dtype, 0, 1),
                     random(rows, dtype) if weighted & 1 else None,
                     random(columns, dtype, 0, 3) if weighted & 2 else None],
                    lambda x, t, w, p: F.binary_cross_entropy_with_logits(x, t, w, reduction=reduction,
                                                                          pos_weight=p),
                    {"reduction": reduction}, dtype, (0, 1))


def targets(shape, dtype, ignored):
    classes = shape[len(shape) > 1]
    target = RANDOM.integers(0, classes, size=shape[:1] * (len(shape) > 1) + shape[2:]).astype(dtype)
    target = np.asarray(target)
    if ignored is not None:
        target[RANDOM.uniform(size=target.shape) < 0.3] = ignored
    return target


def classes_of(shape):
    return (shape[len(shape) > 1],)


def nll_loss_and_cross_entropy_of_indices():
    with Daemon() as daemon:
        client = daemon.client()
        for shape, dtype, reduction, weighted, ignored in itertools.product(
                CLASSES, DTYPES, REDUCTIONS, (False, True), (None, -100, 0)):
            x, target = random(shape, dtype, -8, 8), targets(shape, RANDOM.choice(["i4", "i8"]), ignored)
            weight = random(classes_of(shape), dtype, 0.25, 2) if weighted else None
            keys = {"reduction": reduction, "ignore_index": -100 if ignored is None else ignored}
            compare(client, "nll_loss", [x, target, weight], lambda x, t, w: F.nll_loss(x, t, w, **keys), keys,
                    dtype, (0,))
            for smoothing in (0.0, 0.3):
                keys["label_smoothing"] = smoothing
                if smoothing and shape == (0, 4) and weighted and reduction == "mean":
                    continue # PyTorch 1.13 fails
                compare(client, "cross_entropy", [x, target, weight],
                        lambda x, t, w: F.cross_entropy(x, t, w, **keys), keys, dtype, (0,))


def cross_entropy_of_probabilities():
    with Daemon() as daemon:
        client = daemon.client()
        for shape, dtype, reduction, weighted, smoothing in itertools.product(
                CLASSES, DTYPES, REDUCTIONS, (False, True), (0.0, 0.1)):
            keys = {"reduction": reduction, "label_smoothing": smoothing}
            compare(client, "cross_entropy",
                    [random(shape, dtype, -8, 8), random(shape, dtype, 0, 1),
                     random(classes_of(shape), dtype, 0.25, 2) if weighted else None],
                    lambda x, t, w: F.cross_entropy(x, t, w, **keys), keys, dtype, (0,))


def infinities_and_nan():
    inf, nan = np.inf, np.nan
    rows = [[-inf, 0, 1, -inf], [0, -inf, 1, 2], [-inf] * 4, [inf, 0, 0, 1], [0, inf, 0, 1], [nan, 0, -inf, 1],
            [0, nan, 1, 2], [1e4, 1e4, -1e4, 0], [-1e30, 1e30, 0, 1]]
    with Daemon() as daemon:
        client = daemon.client()
        for dtype, tail in itertools.product((np.float32, np.float64), (0, 3000)):
            x = np.array([row + [-inf] * tail for row in rows], dtype)
            target = np.ones(len(rows), np.int64)
            y, = client.run("cross_entropy", [x, target, None], attrs={"reduction": "none"})
            close(y, F.cross_entropy(torch.tensor(x), torch.tensor(target), reduction="none"), dtype, "rows")
        x = np.array([-inf, inf, nan, 0, 800, -800, -0.0] * 2, np.float64)
        target = np.array([0] * 7 + [1] * 7, np.float64)
        y, = client.run("binary_cross_entropy_with_logits", [x, target, None, None],
                        attrs={"reduction": "none"})
        close(y, F.binary_cross_entropy_with_logits(torch.tensor(x), torch.tensor(target), reduction="none"),
              np.float64, "logits")


def an_index_out_of_range_is_named():
    with Daemon() as daemon:
        client = daemon.client()
        x = random((300, 10), np.float32)
        good = RANDOM.integers(0, 10, size=300)
        for op, dtype, bad in itertools.product(("cross_entropy", "nll_loss"), ("i4", "i8"), (-1, 10, 2**31 - 1)):
            target = good.astype(dtype)
            target[[17, 200, 299]] = bad
            said = f"input target of {op} is {bad} at its element 17: it must be from 0 to 9"
            raises(INVALID_ARGUMENT, said, client.run, op, [x, target, None])
            raises(INVALID_ARGUMENT, said, client.run, op, [x, target, None, np.float32(1).reshape(())],
                   backward=True)
            client.run(op, [x, good, None]) # and the worker lives
        client.run("nll_loss", [x, np.full(300, -7), None], attrs={"ignore_index": -7})


def where_broadcasts_three():
    shapes = (((), (), ()), ((3, 4), (3, 4), (3, 4)), ((3, 1), (4,), (3, 4)), ((4,), (3, 1), ()),
              ((5, 1, 1), (1, 6, 1), (1, 1, 7)), ((0, 4), (4,), (1, 1)), ((), (65, 33), (65, 1)))
    with Daemon() as daemon:
        client = daemon.client()
        for (c, x, b), dtype in itertools.product(shapes, DTYPES):
            condition, x, b = np.asarray(RANDOM.uniform(size=c) < 0.5), random(x, dtype), random(b, dtype)
            tx, tb = tensor(x, True), tensor(b, True)
            want = torch.where(torch.tensor(condition), tx, tb)
            y, = client.run("where", [condition, x, b])
            np.testing.assert_array_equal(y, want.detach().numpy().astype(dtype))
            grad = random(want.shape, dtype)
            want.backward(torch.tensor(grad.astype(np.float64)))
            for got, of in zip(client.run("where", [condition, x, b, grad], backward=True), (tx, tb)):
                close(got, of.grad, dtype, f"where {c} {x.shape} {b.shape}")
        # Bits stay, of a NaN as well, and any byte but 0 is true.
        payload = np.array([0x7fa12345, 0xffc00001, 1], np.uint32).view(np.float32)
        y, = client.run("where", [np.array([2, 0, 255], np.uint8).view(np.bool_), payload, -payload])
        assert (y.view(np.uint32) == [0x7fa12345, 0x7fc00001, 1]).all(), y.view(np.uint32)
        raises(INVALID_ARGUMENT, "condition of where is f32", client.run, "where", [payload] * 3)
        raises(INVALID_ARGUMENT, "condition", client.run, "where", [np.ones(2, np.bool_), payload, payload])


def what_is_wrong_is_said():
    def said(fragment, *arguments, **keys):
        raises(INVALID_ARGUMENT, fragment, client.run, *arguments, **keys)

    x, three, four = np.ones((3, 4), np.float32), np.zeros(3, np.int64), np.ones(4, np.float32)
    with Daemon() as daemon:
        client = daemon.client()
        said('"none", "mean" or "sum"', "mse_loss", [x, x], attrs={"reduction": "median"})
        said("target has shape (4,)", "mse_loss", [x, four])
        said("does not broadcast to x's", "binary_cross_entropy_with_logits", [four, four, x, None])
        said("it must be (3,)", "cross_entropy", [x, np.zeros(4, np.int64), None])
        said("it must be (4,), the number of classes", "cross_entropy", [x, three, np.ones(3, np.float32)])
        said("label_smoothing is 1.5", "cross_entropy", [x, three, None], attrs={"label_smoothing": 1.5})
        said("none can be ignored", "cross_entropy", [x, x, None], attrs={"ignore_index": 2})
        said("target of nll_loss is f32: it can be i32, i64", "nll_loss", [x, x, None])
        said("target, which holds probabilities,", "cross_entropy", [x, x.astype(np.float64), None])
        said("needs 1 to 8 dimensions", "nll_loss", [np.float32(1).reshape(()), three, None])
        said("grad_y has shape (3,)", "cross_entropy", [x, three, None, np.ones(3, np.float32)], backward=True)


xopd.run([mse_loss_of_every_reduction, binary_cross_entropy_with_weights_that_broadcast,
          nll_loss_and_cross_entropy_of_indices, cross_entropy_of_probabilities, infinities_and_nan,
          an_index_out_of_range_is_named, where_broadcasts_three, what_is_wrong_is_said])
