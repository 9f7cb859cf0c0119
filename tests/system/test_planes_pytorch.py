"""group_norm and batch_norm beside PyTorch on the CPU: results, running statistics, gradients, errors.

PyTorch is where python3-torch is installed; without it the test says that it was skipped.
"""

import itertools
import sys

import numpy as np

try:
    import torch
except ImportError:
    print("ok 1 - norms of channels are as PyTorch has them # skip python3-torch is not installed")
    sys.exit(0)

import xopd
from xopd import Daemon, raises, INVALID_ARGUMENT

RANDOM = np.random.default_rng(13)
DTYPES = (np.float32, np.float64)
SHAPES = ((2, 4), (7, 6), (300, 12), (3, 4, 5), (2, 6, 3, 3), (1, 4, 9, 7), (5, 8, 1), (2, 2, 70, 90),
          (2, 4, 2, 3, 2), (0, 4, 3))


def close(got, want, dtype, what):
    want = want.detach().numpy().astype(dtype)
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.shape, want.shape)
    tolerance = 3e-5 if dtype == np.float32 else 1e-11
    size = 1 + np.abs(want).max(initial=0)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * size, equal_nan=True, err_msg=what)


def random(shape, dtype):
    return np.asarray(RANDOM.normal(size=shape) * 3 + 1, dtype)


def exact(array):
    """For PyTorch, which computes in f32 what is f32, where ours is rounded once."""
    return None if array is None else torch.tensor(array, dtype=torch.float64)


def leaf(array):
    return None if array is None else exact(array).requires_grad_()


def parameters(channels, dtype):
    for with_weight, with_bias in itertools.product((False, True), repeat=2):
        yield (random(channels, dtype) if with_weight else None,
               random(channels, dtype) if with_bias else None)


def check_gradients(gradients, leaves, dtype, what):
    for got, of, name in zip(gradients, leaves, ("x", "weight", "bias")):
        if of is not None:
            close(got, of.grad, dtype, f"{what}, {name}")


def group_norm_over_groups_of_channels():
    with Daemon() as daemon:
        client = daemon.client()
        for shape, dtype in itertools.product(SHAPES, DTYPES):
            for (weight, bias), groups, eps in itertools.product(
                    parameters(shape[1], dtype), (1, 2, shape[1]), (None, 0.3)):
                if shape[1] == groups and len(shape) == 2 and eps is None:
                    continue # groups of one element, of which 1 / sqrt(eps) magnifies rounding
                what = f"group_norm {shape} {dtype.__name__} of {groups}, {eps}"
                attrs = {"num_groups": groups, **({} if eps is None else {"eps": eps})}
                x, grad = random(shape, dtype), random(shape, dtype)
                # PyTorch 1.13 has no backward without a weight.
                tx, tb = leaf(x), leaf(bias)
                tw = leaf(np.ones(shape[1], dtype) if weight is None else weight)
                ty = torch.group_norm(tx, groups, tw, tb, 1e-5 if eps is None else eps)
                y, = client.run("group_norm", [x, weight, bias], attrs=attrs)
                close(y, ty, dtype, what)
                ty.backward(exact(grad))
                check_gradients(client.run("group_norm", [x, weight, grad], backward=True, attrs=attrs),
                                (tx, tw, tb), dtype, what)


def check_batch(client, shape, dtype, weight, bias, training, running, momentum, eps):
    what = f"batch_norm {shape} {dtype.__name__} {training} {running} {momentum} {eps}"
    attrs = {"training": training, "momentum": momentum, "eps": eps}
    x, grad = random(shape, dtype), random(shape, dtype)
    mean = random(shape[1], dtype) if running else None
    var = np.abs(random(shape[1], dtype)) + dtype(0.5) if running else None
    tx, tw, tb = leaf(x), leaf(weight), leaf(bias)
    tmean, tvar = (exact(a) for a in (mean, var))
    ty = torch.nn.functional.batch_norm(tx, tmean, tvar, tw, tb, training, momentum, eps)
    y, got_mean, invstd, new_mean, new_var = client.run("batch_norm", [x, weight, bias, mean, var], attrs=attrs)
    close(y, ty, dtype, what)
    if running:
        close(new_mean, tmean, dtype, what + ", running_mean")
        close(new_var, tvar, dtype, what + ", running_var")
    else:
        assert new_mean.shape == new_var.shape == (0,)
    if training and x.size:
        _, save_mean, save_invstd = torch.native_batch_norm(tx, tw, tb, None, None, True, momentum, eps)
        close(got_mean, save_mean, dtype, what + ", mean")
        close(invstd, save_invstd, dtype, what + ", invstd")
    elif not training:
        assert (got_mean == mean).all() and np.allclose(invstd, 1 / np.sqrt(var + eps), rtol=1e-6)
    ty.backward(exact(grad))
    given = [None, None] if training else [got_mean, invstd]
    check_gradients(client.run("batch_norm", [x, weight, *given, grad], backward=True, attrs=attrs),
                    (tx, tw, tb), dtype, what)


def batch_norm_in_training_and_inference():
    with Daemon() as daemon:
        client = daemon.client()
        for shape, dtype in itertools.product(SHAPES, DTYPES):
            for weight, bias in parameters(shape[1], dtype):
                for training, running in ((True, True), (True, False), (False, True)):
                    check_batch(client, shape, dtype, weight, bias, training, running,
                                0.1 if running else 0.5, 1e-5 if weight is None else 0.2)


def what_is_wrong_is_said():
    def said(fragment, *arguments, **keys):
        raises(INVALID_ARGUMENT, fragment, client.run, *arguments, **keys)

    x, three, four = np.ones((2, 4, 3), np.float32), np.ones(3, np.float32), np.ones(4, np.float32)
    with Daemon() as daemon:
        client = daemon.client()
        said("num_groups", "group_norm", [x])
        said("a multiple of it", "group_norm", [x], attrs={"num_groups": 3})
        said("at least 1", "group_norm", [x], attrs={"num_groups": 0})
        said("at least 1", "group_norm", [x], attrs={"num_groups": -2})
        said("needs 2 to 8 dimensions", "group_norm", [four], attrs={"num_groups": 1})
        said("weight has shape (3,)", "group_norm", [x, three], attrs={"num_groups": 2})
        said("bias has shape (3,)", "batch_norm", [x, None, three, four, four])
        said("must be the same", "group_norm", [x, None, three], backward=True, attrs={"num_groups": 2})
        said("are needed where training is false", "batch_norm", [x])
        said("are needed where training is false", "batch_norm", [x, None, None, four, None])
        said("mean and invstd are needed", "batch_norm", [x, None, None, None, x], backward=True)
        said("running_var has shape (3,)", "batch_norm", [x, None, None, four, three])
        said("more than 1 element a channel", "batch_norm", [x[:1, :, :1]], attrs={"training": True})
        y, = client.run("group_norm", [x], attrs={"num_groups": 2}) # and the connection lives
        assert (y == 0).all()


def a_context_keeps_what_backward_needs():
    with Daemon() as daemon:
        client = daemon.client()
        x, grad, w = random((5, 6, 4), np.float32), random((5, 6, 4), np.float32), random(6, np.float32)
        mean, var = random(6, np.float32), np.abs(random(6, np.float32))
        for training in (True, False):
            attrs = {"training": training}
            outputs = client.run("batch_norm", [x, w, None, mean, var], attrs=attrs, keep=9)
            apart = client.run("batch_norm", [x, w, *outputs[1:3], grad], backward=True, attrs=attrs)
            kept = client.run("batch_norm", [None, None, None, None, grad], backward=True, context=9)
            for got, want in zip(kept, apart):
                np.testing.assert_array_equal(got, want)
            client.ask("free", handle=9)


def numbers_far_from_zero_keep_their_digits():
    with Daemon() as daemon:
        client = daemon.client()
        x = np.asarray(RANDOM.normal(size=(40, 2, 50)) + 1e6)
        for op, attrs in (("group_norm", {"num_groups": 2}), ("batch_norm", {"training": True})):
            y = client.run(op, [x], attrs=attrs)[0]
            tx = torch.tensor(x)
            want = torch.group_norm(tx, 2) if op == "group_norm" else torch.batch_norm(
                tx, None, None, None, None, True, 0.1, 1e-5, False)
            np.testing.assert_allclose(y, want.numpy(), rtol=1e-8, atol=1e-8)


xopd.run([group_norm_over_groups_of_channels, batch_norm_in_training_and_inference,
          what_is_wrong_is_said, a_context_keeps_what_backward_needs,
          numbers_far_from_zero_keep_their_digits])
