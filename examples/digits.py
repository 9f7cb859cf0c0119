#!/usr/bin/env python3
"""A classifier of handwritten digits (scikit-learn's), trained twice from the same start: with
layers that run on xopd, forward and backward, and with PyTorch's own. The losses have to agree to
rounding; with --plot they are drawn.

    XOP_ADDRESS=unix:/tmp/xopd.sock PYTHONPATH=client/python examples/digits.py --plot digits.svg
"""

import argparse
import sys

import torch
from torch.nn import Linear, Parameter, Sequential, Sigmoid
from torch.nn.functional import cross_entropy

import xop.torch


def data(dtype):
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit("scikit-learn is needed, for its digits: python3-sklearn")
    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=dtype)
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[:1400], order[1400:]
    return x[train], y[train], x[test], y[test]


def plain(dtype):
    torch.manual_seed(0)
    return Sequential(Linear(64, 48, dtype=dtype), Sigmoid(), Linear(48, 10, dtype=dtype))


def by_xopd(model):
    """The same layers, from the same weights, as operators of xopd."""
    def linear(layer):
        return xop.torch.Op("linear", w=Parameter(layer.weight.detach().clone()),
                            b=Parameter(layer.bias.detach().clone()))
    return Sequential(linear(model[0]), xop.torch.Op("sigmoid"), linear(model[2]))


def train(model, x, y, epochs, batch=100):
    """The loss of every step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    shuffle = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=shuffle).split(batch):
            optimizer.zero_grad()
            loss = cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).double().mean().item()


def draw(ours, theirs, title, file):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (top, bottom) = pyplot.subplots(2, sharex=True, figsize=(7, 5), layout="constrained",
                                            height_ratios=(2, 1))
    top.plot(theirs, label="PyTorch", linewidth=3, alpha=0.4)
    top.plot(ours, label="xopd", linewidth=1)
    top.set(ylabel="loss", yscale="log", title=title)
    top.legend()
    bottom.plot([abs(a - b) for a, b in zip(ours, theirs)], linewidth=1)
    bottom.set(xlabel="step", ylabel="difference")
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(description="train a classifier of digits through xopd")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--plot", metavar="FILE", help="draw the losses (.svg, .png)")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    x, y, x_test, y_test = data(dtype)
    theirs = plain(dtype)
    ours = by_xopd(theirs)
    losses, expected = (train(model, x, y, options.epochs) for model in (ours, theirs))
    worst = max(abs(a - b) / b for a, b in zip(losses, expected))
    score = accuracy(ours, x_test, y_test)
    print(f"{len(losses)} steps, loss {losses[0]:.4f} to {losses[-1]:.4f}, "
          f"{100 * score:.1f} % of the digits kept back are right")
    print(f"PyTorch's losses differ by {worst:.1e} of themselves at most")
    # Rounding grows from step to step; these bounds leave it room over 20 epochs.
    assert worst < {"float32": 1e-4, "float64": 1e-12}[options.dtype]
    assert losses[-1] < losses[0]
    if options.plot:
        draw(losses, expected, "digits, 64-48-10, loss of each step", options.plot)


if __name__ == "__main__":
    main()
