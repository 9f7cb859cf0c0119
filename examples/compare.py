#!/usr/bin/env python3
"""y = x*x + b on a matrix, four ways: a nested loop in Python, NumPy, PyTorch on one thread, and
xopd. The values are compared bit by bit, the times printed as a table and, with --plot, drawn.

    XOP_ADDRESS=unix:/tmp/xopd.sock PYTHONPATH=client/python examples/compare.py --plot compare.svg
"""

import argparse
import statistics
import time

import numpy as np

import xop


def nested_loop(x, b):
    y = np.empty_like(x)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            y[i, j] = x[i, j] * x[i, j] + b[j]
    return y


def measured(run, repeats):
    """The result, and the median of the times in seconds; the first run is not counted."""
    result, times = run(), []
    for _ in range(repeats):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return result, statistics.median(times)


def ways(gpu, x, b, repeats):
    """Name, function, and how often it is run."""
    yield "nested loop", lambda: nested_loop(x, b), 1
    yield "NumPy", lambda: x * x + b, repeats
    try:
        import torch
    except ImportError:
        print("there is no PyTorch (python3-torch): it is left out")
    else:
        torch.set_num_threads(1)
        xt, bt = torch.from_numpy(x), torch.from_numpy(b)
        yield "PyTorch, one thread", lambda: (xt * xt + bt).numpy(), repeats
    yield "xopd", lambda: gpu.square_bias(x, b), repeats
    shared, out = gpu.asarray(x), gpu.empty(x.shape)
    yield "xopd, arrays of empty()", lambda: gpu.square_bias(shared, b, out=out), repeats


def draw(rows, title, file):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(7, 3), layout="constrained")
    names, times = zip(*((name, 1000 * seconds) for name, seconds in reversed(rows)))
    bars = axes.barh(names, times)
    axes.bar_label(bars, [f"{t:.0f}" if t >= 100 else f"{t:.3g}" for t in times], padding=3)
    axes.set_xscale("log")
    axes.margins(x=0.2)
    axes.set(xlabel="milliseconds (logarithmic)", title=title)
    figure.savefig(file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=1280, help="rows and columns (1280)")
    parser.add_argument("--repeats", type=int, default=20, help="runs of each (20)")
    parser.add_argument("--plot", metavar="FILE", help="draw the times (.svg, .png)")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((options.size, options.size)).astype(np.float32)
    b = rng.standard_normal(options.size).astype(np.float32)
    with xop.connect() as gpu:
        device = gpu.ping()
        title = (f"square_bias, {options.size}x{options.size} f32, "
                 f"{device['backend']} on {device['device']}")
        rows, expected = [], None
        for name, run, repeats in ways(gpu, x, b, options.repeats):
            y, seconds = measured(run, repeats)
            if expected is None:
                expected = y.copy()
            assert np.array_equal(y, expected), f"{name} differs from the nested loop"
            rows.append((name, seconds))
    print(title)
    print(f"{'':24} {'ms':>10} {'x NumPy':>9}")
    numpy = dict(rows)["NumPy"]
    for name, seconds in rows:
        print(f"{name:24} {1000 * seconds:10.3f} {seconds / numpy:9.2f}")
    if options.plot:
        draw(rows, title, options.plot)


if __name__ == "__main__":
    main()
