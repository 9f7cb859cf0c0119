#!/usr/bin/python3
"""Operators beside PyTorch's of the same name: values, gradients by autograd, names and defaults of
attributes, and what comes of NaN, infinities and kinks. Skipped where there is no PyTorch.
"""

import sys

import numpy as np

from xopd import Daemon, run

try:
    import torch
    from torch.nn import functional
except ImportError:
    print("ok 1 - # skipped: there is no PyTorch here (python3-torch)")
    sys.exit(0)

# What PyTorch calls an operator, and the attributes that it is asked with.
UNARY = {
    "relu": (functional.relu, [{}]),
    "leaky_relu": (functional.leaky_relu, [{}, {"negative_slope": 0.3}]),
    "elu": (functional.elu, [{}, {"alpha": 1.7}]),
    "gelu": (functional.gelu, [{}, {"approximate": "tanh"}, {"approximate": "none"}]),
    "silu": (functional.silu, [{}]),
    "tanh": (torch.tanh, [{}]),
    "softplus": (functional.softplus, [{}, {"beta": 2.5, "threshold": 3.0}]),
    "exp": (torch.exp, [{}]),
    "log": (torch.log, [{}]),
    "sqrt": (torch.sqrt, [{}]),
    "rsqrt": (torch.rsqrt, [{}]),
    "abs": (torch.abs, [{}]),
    "neg": (torch.neg, [{}]),
    "sin": (torch.sin, [{}]),
    "cos": (torch.cos, [{}]),
    "erf": (torch.erf, [{}]),
    "clamp": (torch.clamp, [{"min": -0.7, "max": 1.1}, {"min": 0.3}, {"max": 0.3},
                            {"min": 1.0, "max": -1.0}]),
    "hardswish": (functional.hardswish, [{}]),
    "mish": (functional.mish, [{}]),
}
BINARY = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "pow": torch.pow,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
}
POSITIVE = {"log", "sqrt", "rsqrt"}
# Beyond 1e12, PyTorch overflows on the way to finite results of gelu and hardswish.
EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3.0, -3.0, 1.0, -1.0, 20.0, -20.0, 21.0, 1e12, -1e12,
         1e-42, -1e-42, 100.0, -100.0]


def theirs(function, attrs, x, g):
    """y and grad_x."""
    x = torch.tensor(x, requires_grad=True)
    y = function(x, **attrs)
    y.backward(torch.tensor(g))
    return y.detach().numpy(), x.grad.numpy()


def ours(client, op, attrs, saved, x, g):
    y, = client.run(op, [x], attrs=attrs)
    inputs = [{"x": x, "y": y}[name] for name in saved] + [g]
    grad_x, = client.run(op, inputs, backward=True, attrs=attrs)
    return y, grad_x


def saved_by(client):
    """What each operator's backward takes besides grad_y."""
    document = client.document("describe")
    return {op["name"]: [i["name"] for i in op["backward"]["inputs"][:-1]]
            for op in document["operators"] if op["backward"]}


def each(client, dtype):
    saved = saved_by(client)
    for op, (function, settings) in UNARY.items():
        for attrs in settings:
            yield op, function, attrs, saved[op], np.dtype(dtype).type


def values_and_gradients_are_those_of_pytorch():
    random = np.random.default_rng(1)
    with Daemon() as daemon:
        client = daemon.client()
        for dtype in (np.float32, np.float64):
            for op, function, attrs, saved, number in each(client, dtype):
                x = random.uniform(0.01 if op in POSITIVE else -6, 6, (37, 41)).astype(dtype)
                g = random.uniform(-2, 2, x.shape).astype(dtype)
                # The oracle has more digits than what it judges, where there are more.
                y, grad_x = theirs(function, attrs, x.astype(np.float64), g.astype(np.float64))
                close = 32 * np.finfo(number).eps
                got_y, got_grad = ours(client, op, attrs, saved, x, g)
                assert got_y.dtype == got_grad.dtype == x.dtype
                np.testing.assert_allclose(got_y, y, close, close, err_msg=f"{op} {attrs} {dtype}")
                np.testing.assert_allclose(got_grad, grad_x, close, close * np.abs(grad_x).max(),
                                           err_msg=f"gradient of {op} {attrs} {dtype}")


def edges_come_out_as_in_pytorch():
    with Daemon() as daemon, np.errstate(all="ignore"):
        client = daemon.client()
        for dtype in (np.float32, np.float64):
            for op, function, attrs, saved, number in each(client, dtype):
                x = np.array(EDGES, dtype)
                g = np.full_like(x, 0.75)
                y, grad_x = theirs(function, attrs, x, g)
                got_y, got_grad = ours(client, op, attrs, saved, x, g)
                close = 32 * np.finfo(number).eps
                np.testing.assert_allclose(got_y, y, close, close, err_msg=f"{op} {attrs} {dtype}")
                np.testing.assert_allclose(got_grad, grad_x, close, close,
                                           err_msg=f"gradient of {op} {attrs} {dtype}")


def of_two(function, x, b, g):
    """PyTorch's y, grad_x and grad_b."""
    x, b = (torch.tensor(a, requires_grad=True) for a in (x, b))
    y = function(x, b)
    y.backward(torch.tensor(g))
    return [y.detach().numpy(), x.grad.numpy(), b.grad.numpy()]


def two_arguments_broadcast_and_their_gradients_are_summed_as_in_pytorch():
    random = np.random.default_rng(2)
    shapes = [((37, 41), (37, 41)), ((37, 41), (41,)), ((37, 41), (37, 1)), ((37, 41), ()),
              ((41,), (37, 41)), ((37, 1), (1, 41)), ((5, 1, 7, 1), (6, 1, 3)), ((0, 3), (1, 3))]
    with Daemon() as daemon:
        client = daemon.client()
        for dtype in (np.float32, np.float64):
            close = 64 * np.finfo(dtype).eps
            for op, function in BINARY.items():
                for x_shape, b_shape in shapes:
                    # Of whole numbers, some are alike, which is where maximum halves.
                    x, b = (random.integers(-3, 4, shape).astype(dtype) if op.endswith("imum") else
                            random.uniform(0.2, 3, shape).astype(dtype)
                            for shape in (x_shape, b_shape))
                    x, b = np.asarray(x), np.asarray(b)
                    y_shape = np.broadcast_shapes(x_shape, b_shape)
                    g = np.asarray(random.uniform(-2, 2, y_shape).astype(dtype))
                    want = of_two(function, *(a.astype(np.float64) for a in (x, b, g)))
                    got = client.run(op, [x, b]) + client.run(op, [x, b, g], backward=True)
                    for ours_, theirs_ in zip(got, want):
                        assert ours_.dtype == x.dtype and ours_.shape == theirs_.shape
                        scale = np.abs(theirs_).max(initial=1)
                        np.testing.assert_allclose(ours_, theirs_, close, close * scale,
                                                   err_msg=f"{op} {x_shape} {b_shape} {dtype}")


def edges_of_two_arguments_come_out_as_in_pytorch():
    edges = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 0.5, -0.5, 1e30,
             -1e30, 1e-30, -1e-30]
    with Daemon() as daemon, np.errstate(all="ignore"):
        client = daemon.client()
        for dtype in (np.float32, np.float64):
            x, b = (np.ascontiguousarray(a) for a in np.meshgrid(np.array(edges, dtype),
                                                                 np.array(edges, dtype)))
            close = 64 * np.finfo(dtype).eps
            for gradient in (0.75, np.inf, np.nan):
                g = np.full_like(x, gradient)
                for op, function in BINARY.items():
                    want = of_two(function, x, b, g)
                    got = client.run(op, [x, b]) + client.run(op, [x, b, g], backward=True)
                    for name, ours_, theirs_ in zip(("y", "grad_x", "grad_b"), got, want):
                        np.testing.assert_allclose(ours_, theirs_, close, 0,
                                                   err_msg=f"{name} of {op} {dtype} {gradient}")


def casts_round_as_pytorch_does():
    names = {"f16": torch.float16, "f32": torch.float32, "f64": torch.float64}
    halfway = [1 + 2.0 ** -11, 1 + 3 * 2.0 ** -11, 65519.0, 65520.0, 2.0 ** -25, 3 * 2.0 ** -25,
               1 + 2.0 ** -24, 1 + 2.0 ** -11 + 2.0 ** -30, 1e300, -1e300]
    random = np.random.default_rng(1)
    with Daemon() as daemon, np.errstate(all="ignore"):
        client = daemon.client()
        for x_name, x_type in names.items():
            for y_name, y_type in names.items():
                x = torch.tensor(np.concatenate([EDGES, halfway, random.uniform(-9, 9, 2000)]))
                x = x.to(x_type).requires_grad_()
                y = x.to(y_type)
                g = torch.tensor(random.uniform(-2, 2, len(x))).to(y_type)
                y.backward(g)
                attrs = {"dtype": y_name}
                got_y, = client.run("cast", [x.detach().numpy()], attrs=attrs)
                got_grad, = client.run("cast", [x.detach().numpy(), g.numpy()], backward=True,
                                       attrs=attrs)
                for got, want in ((got_y, y.detach().numpy()), (got_grad, x.grad.numpy())):
                    assert got.dtype == want.dtype
                    np.testing.assert_array_equal(got, want, err_msg=f"{x_name} to {y_name}")


run([values_and_gradients_are_those_of_pytorch, edges_come_out_as_in_pytorch,
     two_arguments_broadcast_and_their_gradients_are_summed_as_in_pytorch,
     edges_of_two_arguments_come_out_as_in_pytorch, casts_round_as_pytorch_does])
