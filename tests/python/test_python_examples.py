#!/usr/bin/python3
"""The examples run, and what they print is there."""

import importlib.util
import os
import re
import subprocess
import sys
import tempfile

from pyxop import Daemon, PACKAGE, ROOT, run

LIMIT_S = 240


def example(name, *arguments):
    with Daemon() as daemon:
        done = subprocess.run(
            [sys.executable, os.path.join(ROOT, "examples", name), *arguments], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
            env={**os.environ, "XOP_ADDRESS": "unix:" + daemon.path, "PYTHONPATH": PACKAGE})
    assert done.returncode == 0, done.stdout
    return done.stdout


def has(*modules):
    missing = [m for m in modules if importlib.util.find_spec(m) is None]
    if missing:
        print(f"# there is no {', '.join(missing)}: nothing is tested")
    return not missing


def drawn(name, *arguments):
    with tempfile.TemporaryDirectory() as directory:
        file = os.path.join(directory, "plot.svg")
        said = example(name, *arguments, "--plot", file)
        with open(file) as f:
            assert "<svg" in f.read()
    return said


def the_comparison_agrees_and_has_a_table_and_a_plot():
    if not has("torch", "matplotlib"):
        return
    said = drawn("compare.py", "--size", "160", "--repeats", "2")
    for way in ("nested loop", "NumPy", "PyTorch, one thread", "xopd", "xopd, arrays of empty()"):
        assert re.search(rf"^{re.escape(way)} +[\d.]+ +[\d.]+$", said, re.M), said
    assert "160x160" in said


def the_tutorials_gradients_agree():
    if has("torch"):
        said = example("autograd.py")
        assert said.count("gradient of x") == 3 and "gradcheck: passed" in said


def digits_are_learned_as_pytorch_does():
    if not has("torch", "sklearn", "matplotlib"):
        return
    said = drawn("digits.py", "--epochs", "8")
    assert "112 steps" in said
    assert float(re.search(r"([\d.]+) % of the digits", said).group(1)) > 90, said


run([the_comparison_agrees_and_has_a_table_and_a_plot,
     the_tutorials_gradients_agree,
     digits_are_learned_as_pytorch_does])
