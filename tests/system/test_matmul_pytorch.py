"""Products of matrices and batches of them beside PyTorch on the CPU: results, gradients, errors.

PyTorch is where python3-torch is installed; without it the test says that it was skipped.
"""

import itertools
import sys

import numpy as np

try:
    import torch
except ImportError:
    print("ok 1 - matmul is as PyTorch has it # skip python3-torch is not installed")
    sys.exit(0)

from xopd import BACKEND, Daemon, INVALID_ARGUMENT, raises, run, tensors

RANDOM = np.random.default_rng(23)
DTYPES = (np.float32, np.float64)
# (batch of a, batch of b); None is a vector.
BATCHES = (((), ()), ((3,), ()), ((), (3,)), ((3,), (3,)), ((1,), (3,)), ((3,), (1,)),
           ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 3)), ((2, 3), (2, 1)), ((2, 1, 4), (3, 1)),
           ((2, 3, 1, 2), (1, 3, 4, 1)), ((1, 2, 1, 2, 1, 2), (2, 1, 2, 1, 2, 1)), ((0,), ()),
           ((0,), (1,)), ((2, 0), (1,)), ((), (0, 3)), (None, None), (None, ()), ((), None),
           (None, (2, 3)), ((2, 3), None), ((0,), None), ((70,), (1,)), ((1,), (70,)), ((5, 70), (5, 1)))
SIZES = ((1, 1, 1), (2, 3, 4), (5, 5, 5), (1, 7, 3), (8, 1, 2), (3, 0, 2), (0, 3, 2), (2, 3, 0), (33, 65, 17))
TRANSPOSED = tuple(itertools.product((False, True), repeat=2))


def close(got, want, dtype, terms, what):
    want = want.detach().numpy()
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.shape, want.shape)
    tolerance = np.finfo(dtype).eps * (4 + terms)
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=4 * tolerance, err_msg=what)


def numbers(shape, dtype):
    return np.asarray(RANDOM.uniform(-2, 2, size=shape), dtype)


def stored(batch, rows, columns, transposed, is_row, dtype):
    """A vector where batch is None, else matrices, which PyTorch sees through a transposition."""
    if batch is None:
        return numbers((columns if is_row else rows,), dtype)
    return numbers(batch + ((columns, rows) if transposed else (rows, columns)), dtype)


def check(client, a, b, transpose_a, transpose_b, dtype, repeated):
    what = f"{a.shape} {b.shape} {transpose_a} {transpose_b} {dtype.__name__}"
    attrs = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    ta, tb = torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)
    ty = torch.matmul(ta.mT if transpose_a else ta, tb.mT if transpose_b else tb)
    y, = client.run("matmul", [a, b], attrs=attrs)
    close(y, ty, dtype, a.shape[-1], what)
    grad = numbers(y.shape, dtype)
    ty.backward(torch.tensor(grad))
    ga, gb = client.run("matmul", [a, b, grad], backward=True, attrs=attrs)
    close(ga, ta.grad, dtype, repeated, what + ", grad_a")
    close(gb, tb.grad, dtype, repeated, what + ", grad_b")


def results_and_gradients_are_pytorchs():
    with Daemon() as daemon:
        client = daemon.client()
        for (a_batch, b_batch), (n, k, m), dtype in itertools.product(BATCHES, SIZES, DTYPES):
            for transpose_a, transpose_b in TRANSPOSED:
                if (transpose_a and a_batch is None) or (transpose_b and b_batch is None):
                    continue
                if (n, k, m) == (33, 65, 17) and (transpose_a, dtype) != (transpose_b, np.float32):
                    continue
                check(client, stored(a_batch, n, k, transpose_a, True, dtype),
                      stored(b_batch, k, m, transpose_b, False, dtype), transpose_a, transpose_b,
                      dtype, 400 * max(n, k, m))


def random_shapes_are_pytorchs():
    with Daemon() as daemon:
        client = daemon.client()
        for _ in range(400):
            whole = [int(s) for s in RANDOM.integers(1, 4, size=RANDOM.integers(0, 5))]
            batches = []
            for _ in range(2):
                batch = [s if RANDOM.random() < 0.6 else 1 for s in whole]
                batches.append(tuple(batch[int(RANDOM.integers(0, len(batch) + 1)):]))
            n, k, m = (int(s) for s in RANDOM.integers(0, 20, size=3))
            transpose_a, transpose_b = (bool(t) for t in RANDOM.integers(0, 2, size=2))
            dtype = DTYPES[int(RANDOM.integers(0, 2))]
            check(client, stored(batches[0], n, k, transpose_a, True, dtype),
                  stored(batches[1], k, m, transpose_b, False, dtype), transpose_a, transpose_b,
                  dtype, 100 * max(n, k, m))


def a_gradient_that_is_summed_is_the_same_bits_alone_and_in_company():
    with Daemon() as daemon:
        client = daemon.client()
        a, b = numbers((300, 17, 9), np.float32), numbers((9, 21), np.float32)
        grad = numbers((300, 17, 21), np.float32)
        for attrs in ({}, {"transpose_a": True}):
            a_stored = np.ascontiguousarray(a.swapaxes(-1, -2)) if attrs else a
            alone = client.run("matmul", [a_stored, b, grad], backward=True, attrs=attrs)
            for _ in range(20):
                client.submit("matmul", [a_stored, b, grad], backward=True, attrs=attrs)
            for _ in range(20):
                header, body = client.answer()
                assert not header.get("status"), header
                for one, other in zip(tensors(header, body), alone, strict=True):
                    assert one.tobytes() == other.tobytes(), attrs


def attributes_of_the_library_change_no_more_than_digits():
    with Daemon() as daemon:
        client = daemon.client()
        a, b = numbers((4, 64, 96), np.float32), numbers((96, 32), np.float32)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        for attrs in ({"deterministic": False}, {"allow_tf32": True},
                      {"allow_tf32": True, "deterministic": False}):
            y, = client.run("matmul", [a, b], attrs=attrs)
            limit = 0.2 if attrs.get("allow_tf32") and BACKEND == "cuda" else 1e-4
            assert np.abs(y - exact).max() < limit, attrs
            y, = client.run("linear", [a, np.ascontiguousarray(b.T)], attrs=attrs)
            assert np.abs(y - exact).max() < limit, attrs


def what_does_not_fit_is_refused_in_a_sentence():
    with Daemon() as daemon:
        client = daemon.client()
        one = lambda *shape: np.ones(shape, np.float32)
        for a, b, attrs, says in (
                (one(), one(3), {}, "a is a scalar"),
                (one(3), one(), {}, "b is a scalar"),
                (one(3), one(4), {}, "sum over 3 elements of a and 4 of b"),
                (one(2, 3), one(2, 3), {}, "sum over 3 elements of a and 2 of b"),
                (one(2, 3), one(4, 3), {"transpose_a": True, "transpose_b": True},
                 "(2, 3) (transposed) and b (4, 3) (transposed)"),
                (one(2, 2, 3), one(3, 3, 4), {}, "does not broadcast"),
                (one(3), one(3, 4), {"transpose_a": True}, "a has one dimension"),
                (one(4, 3), one(3), {"transpose_b": True}, "b has one dimension"),
                (one(2, 3), np.ones((3, 2)), {}, "the same")):
            raises(INVALID_ARGUMENT, says, client.run, "matmul", [a, b], attrs=attrs)
        raises(INVALID_ARGUMENT, "grad_y has shape", client.run, "matmul",
               [one(2, 3), one(3, 4), one(4, 2)], backward=True)
        y, = client.run("matmul", [one(2, 3), one(3, 4)])
        assert np.array_equal(y, np.full((2, 4), 3, np.float32))


run([results_and_gradients_are_pytorchs,
     random_shapes_are_pytorchs,
     a_gradient_that_is_summed_is_the_same_bits_alone_and_in_company,
     attributes_of_the_library_change_no_more_than_digits,
     what_does_not_fit_is_refused_in_a_sentence])
