"""attention and rotary_embedding beside PyTorch on the CPU, in f64: results, gradients, errors.

PyTorch is where python3-torch is installed; without it the test says that it was skipped.
"""

import itertools
import sys

import numpy as np

try:
    import torch
except ImportError:
    print("ok 1 - attention is as PyTorch has it # skip python3-torch is not installed")
    sys.exit(0)

import xopd
from xopd import Daemon, raises, INVALID_ARGUMENT

RANDOM = np.random.default_rng(19)
DTYPES = (np.float16, np.float32, np.float64)
TOLERANCES = {np.float16: 4e-3, np.float32: 2e-5, np.float64: 1e-11}
# query, key and value without the samples: heads, rows, columns
SHAPES = (((1, 1, 1), (1, 1, 1), (1, 1, 1)), ((2, 3, 4), (2, 5, 4), (2, 5, 3)), ((4, 5, 8), (2, 7, 8), (2, 7, 8)),
          ((6, 70, 5), (1, 3, 5), (1, 3, 7)), ((2, 64, 64), (2, 64, 64), (2, 64, 64)),
          ((4, 130, 16), (2, 65, 16), (2, 65, 140)), ((1, 3, 200), (1, 200, 200), (1, 200, 2)),
          ((2, 0, 4), (2, 3, 4), (2, 3, 4)), ((2, 3, 4), (2, 3, 4), (2, 3, 0)))


def random(shape, dtype):
    return np.asarray(RANDOM.normal(size=shape), dtype)


def close(got, want, dtype, what):
    want = want.detach().numpy()
    assert got.dtype == dtype and got.shape == want.shape, (what, got.shape, want.shape)
    size = 1 + np.nanmax(np.abs(want), initial=0)
    np.testing.assert_allclose(got, want, rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype] * size, equal_nan=True,
                               err_msg=what)


def leaf(array):
    return torch.tensor(array.astype(np.float64), requires_grad=True)


def by_torch(query, key, value, causal, scale):
    shared = query.shape[-3] // key.shape[-3]
    key, value = (t.repeat_interleave(shared, -3) for t in (key, value))
    scores = query @ key.transpose(-2, -1) * (scale or query.shape[-1] ** -0.5)
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.softmax(scores, -1) @ value


def check(client, shapes, dtype, causal, scale):
    what = f"attention {shapes} {dtype.__name__} {causal} {scale}"
    attrs = {"is_causal": causal, **({} if scale is None else {"scale": scale})}
    inputs = [random(shape, dtype) for shape in shapes]
    leaves = [leaf(a) for a in inputs]
    ty = by_torch(*leaves, causal, scale)
    y, = client.run("attention", inputs, attrs=attrs)
    close(y, ty, dtype, what)
    grad = random(y.shape, dtype)
    ty.backward(torch.tensor(grad.astype(np.float64)))
    gradients = client.run("attention", [*inputs, grad], backward=True, attrs=attrs)
    for got, of, name in zip(gradients, leaves, ("query", "key", "value")):
        close(got, of.grad, dtype, f"{what}, {name}")


def attention_of_every_kind():
    with Daemon() as daemon:
        client = daemon.client()
        for shapes, dtype, causal, scale in itertools.product(SHAPES, DTYPES, (False, True), (None, -0.7)):
            check(client, shapes, dtype, causal, scale)
            check(client, [(2, *shape) for shape in shapes], dtype, causal, scale)


def what_has_no_elements():
    with Daemon() as daemon:
        client = daemon.client()
        q, k, v = np.ones((1, 2, 3, 4)), np.ones((1, 2, 0, 4)), np.ones((1, 2, 0, 5))
        y, = client.run("attention", [q, k, v])
        assert y.shape == (1, 2, 3, 5) and (y == 0).all()
        gq, gk, gv = client.run("attention", [q, k, v, y], backward=True)
        assert (gq == 0).all() and gk.shape == k.shape and gv.shape == v.shape
        y, = client.run("attention", [q[:0], q[:0], q[:0]])
        assert y.shape == (0, 2, 3, 4)
        value = random((1, 2, 3, 4), np.float64)
        y, = client.run("attention", [q[..., :0], q[..., :0], value])
        np.testing.assert_allclose(y, np.broadcast_to(value.mean(-2, keepdims=True), y.shape))


def scores_that_are_large_or_no_numbers():
    inf, nan = np.inf, np.nan
    with Daemon() as daemon:
        client = daemon.client()
        for dtype, score in itertools.product((np.float32, np.float64), (1e4, -inf, inf, nan)):
            # Where a query sees no other key than the changed one the row is no number at all.
            query = np.ones((1, 70, 1), dtype)
            key, value = random((1, 100, 1), dtype), random((1, 100, 3), dtype)
            for at in (0, 64, 99):
                changed = key.copy()
                changed[0, at] = score
                for causal in (False, True):
                    y, = client.run("attention", [query, changed, value], attrs={"is_causal": causal})
                    close(y, by_torch(leaf(query), leaf(changed), leaf(value), causal, None), dtype,
                          f"{score} at {at} {causal}")
        y, = client.run("attention", [query, np.full((1, 100, 1), -inf), value])
        assert np.isnan(y).all()


def rotary_embedding_rotates_pairs():
    with Daemon() as daemon:
        client = daemon.client()
        for dtype, interleaved, own in itertools.product(DTYPES, (False, True), (False, True)):
            for width, rotated in ((8, 8), (9, 6), (64, 64), (2, 2), (5, 0)):
                x, grad = random((3, 2, 11, width), dtype), random((3, 2, 11, width), dtype)
                angles = RANDOM.normal(size=(3, 11, rotated // 2) if own else (11, rotated // 2)) * 9
                c, s = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
                tx, tc, ts = leaf(x), leaf(c), leaf(s)
                if own:
                    tc, ts = tc[:, None], ts[:, None]
                if interleaved:
                    a, b = tx[..., 0:rotated:2], tx[..., 1:rotated:2]
                    turned = torch.stack((a * tc - b * ts, a * ts + b * tc), -1).flatten(-2)
                else:
                    a, b = tx[..., :rotated // 2], tx[..., rotated // 2:rotated]
                    turned = torch.cat((a * tc - b * ts, a * ts + b * tc), -1)
                ty = torch.cat((turned, tx[..., rotated:]), -1)
                ty.backward(torch.tensor(grad.astype(np.float64)))
                attrs = {"interleaved": interleaved}
                what = f"rotary {dtype.__name__} {interleaved} {own} {width} {rotated}"
                close(client.run("rotary_embedding", [x, c, s], attrs=attrs)[0], ty, dtype, what)
                gx, = client.run("rotary_embedding", [c, s, grad], backward=True, attrs=attrs)
                close(gx, tx.grad, dtype, what + ", backward")


def what_is_wrong_is_said():
    def said(fragment, *arguments, **keys):
        raises(INVALID_ARGUMENT, fragment, client.run, *arguments, **keys)

    q, k = np.ones((1, 4, 3, 2), np.float32), np.ones((1, 2, 5, 2), np.float32)
    with Daemon() as daemon:
        client = daemon.client()
        said("needs 3 to 4 dimensions", "attention", [q[0, 0], k, k])
        said("a multiple of H", "attention", [q[:, :3], k, k])
        said("a multiple of H", "attention", [q, k[:, :0], k[:, :0]])
        said("a multiple of H", "attention", [q, k, k[:, :, :4]])
        said("a multiple of H", "attention", [q, k[..., :1], k])
        said("a multiple of H", "attention", [q, k[0], k[0]])
        said("a multiple of H", "attention", [np.ones((2, 4, 3, 2), np.float32), k, k])
        said("grad_y has shape", "attention", [q, k, k, k], backward=True)
        x, c = np.ones((2, 5, 8), np.float32), np.ones((5, 4), np.float32)
        said("needs (S, R / 2)", "rotary_embedding", [x, c[:4], c[:4]])
        said("needs (S, R / 2)", "rotary_embedding", [x[..., :7], c, c])
        said("needs (S, R / 2)", "rotary_embedding", [x, np.ones((3, 5, 4), np.float32), np.ones((3, 5, 4), np.float32)])
        said("needs (S, R / 2)", "rotary_embedding", [x[0], c[None], c[None]])
        said("sin has shape", "rotary_embedding", [x, c, c[:, :3]])
        y, = client.run("attention", [q, k, k]) # and the connection lives
        assert np.allclose(y, 1)


def a_context_keeps_what_backward_needs():
    with Daemon() as daemon:
        client = daemon.client()
        q, k, v, grad = (random((1, 2, 6, 4), np.float32) for _ in range(4))
        client.run("attention", [q, k, v], attrs={"is_causal": True}, keep=9)
        apart = client.run("attention", [q, k, v, grad], backward=True, attrs={"is_causal": True})
        kept = client.run("attention", [None, None, None, grad], backward=True, context=9)
        for got, want in zip(kept, apart):
            np.testing.assert_array_equal(got, want)
        client.ask("free", handle=9)


xopd.run([attention_of_every_kind, what_has_no_elements, scores_that_are_large_or_no_numbers,
          rotary_embedding_rotates_pairs, what_is_wrong_is_said, a_context_keeps_what_backward_needs])
