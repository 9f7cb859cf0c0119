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
     casts_round_as_pytorch_does])
