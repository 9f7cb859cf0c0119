#!/usr/bin/env python3
"""Gradients of y = x*x + b by xopd's backward, beside PyTorch's own.

    XOP_ADDRESS=unix:/tmp/xopd.sock PYTHONPATH=client/python examples/autograd.py
"""

import torch

import xop.torch


def gradients(function, x, b, weights):
    x, b = x.clone().requires_grad_(), b.clone().requires_grad_()
    y = function(x, b)
    (y * weights).sum().backward()
    return y.detach(), x.grad, b.grad


def compare(shape, of_b, dtype):
    x, b = torch.randn(shape, dtype=dtype), torch.randn(of_b, dtype=dtype)
    weights = torch.randn(shape, dtype=dtype)
    ours = gradients(xop.torch.square_bias, x, b, weights)
    theirs = gradients(lambda x, b: x * x + b, x, b, weights)
    for name, mine, other in zip(("y", "gradient of x", "gradient of b"), ours, theirs):
        worst = (mine - other).abs().max().item()
        # A sum may be taken in another order; everything else is equal bit by bit.
        tolerance = 0 if mine.shape == weights.shape else 1e-5 * other.abs().max().item()
        assert worst <= tolerance, f"{name} differs by {worst}"
        print(f"  {name:14} {tuple(mine.shape)!s:14} worst difference {worst:.1e}")


def main():
    torch.manual_seed(0)
    for shape, of_b, dtype in (((1280, 1280), (1280,), torch.float32),
                               ((1280, 1280), (1280, 1280), torch.float32),
                               ((3, 4, 5), (4, 1), torch.float64)):
        print(f"x {shape}, b {of_b}, {dtype}")
        compare(shape, of_b, dtype)
    x, b = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(xop.torch.square_bias, (x, b))
    print("gradcheck: passed")


if __name__ == "__main__":
    main()
