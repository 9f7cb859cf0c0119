#!/usr/bin/python3
"""xopctl as a person uses it: files that NumPy wrote and reads, literals, exit codes, JSON."""

import io
import json
import os
import subprocess
import tempfile

import numpy as np

from xopd import BUILD, Daemon, run

XOPCTL = os.path.join(BUILD, "xopctl")


def call(daemon, *arguments, stdin=b"", env=None):
    environment = {**os.environ, **(env or {})}
    if daemon:
        environment["XOP_ADDRESS"] = f"unix:{daemon.path}"
    done = subprocess.run([XOPCTL, *arguments], input=stdin, capture_output=True, timeout=300,
                          env=environment)
    return done.returncode, done.stdout, done.stderr.decode()


def good(daemon, *arguments, **keys):
    code, out, err = call(daemon, *arguments, **keys)
    assert code == 0, (arguments, code, err)
    return out


def in_directory(test):
    def wrapped():
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as directory, Daemon() as daemon:
            os.chdir(directory)
            try:
                test(daemon)
            finally:
                os.chdir(before)
    wrapped.__name__ = test.__name__
    return wrapped


def square_bias(x, b):
    if x.dtype == np.float16:
        return (x.astype(np.float32) ** 2 + b.astype(np.float32)).astype(np.float16)
    return x * x + b


@in_directory
def files_of_numpy_make_the_round_trip(daemon):
    rng = np.random.default_rng(3)
    for dtype in ("f2", "f4", "f8"):
        x = rng.standard_normal((5, 7)).astype(dtype)
        b = rng.standard_normal(7).astype(dtype)
        np.save("x.npy", x)
        np.save("b.npy", b)
        good(daemon, "run", "square_bias", "--in", "x.npy", "--in", "b.npy", "--out", "y.npy")
        y = np.load("y.npy")
        assert y.dtype == x.dtype and np.array_equal(y, square_bias(x, b)), dtype
        np.save("f.npy", np.asfortranarray(x))
        np.save("big.npy", b.astype(b.dtype.newbyteorder(">")))
        good(daemon, "run", "square_bias", "--in", "f.npy", "--in", "big.npy", "--out", "y.npy")
        assert np.array_equal(np.load("y.npy"), square_bias(x, b)), dtype
    for version in ((1, 0), (2, 0), (3, 0)):
        with open("v.npy", "wb") as f:
            np.lib.format.write_array(f, x, version=version)
        good(daemon, "run", "sigmoid", "--in", "v.npy", "--out", "y.npy")
        assert np.allclose(np.load("y.npy"), 1 / (1 + np.exp(-x)), rtol=1e-14)


@in_directory
def backward_of_every_operator_is_numpys(daemon):
    x = np.linspace(0.25, 3, 12).reshape(3, 4)
    gy = np.linspace(-1, 1, 12).reshape(3, 4)
    np.save("x.npy", x)
    np.save("gy.npy", gy)
    s = 1 / (1 + np.exp(-x))
    t = np.exp(-x) / (1 + np.exp(-x))
    u = np.exp(-x) / (1 - np.exp(-x))
    for name, gradient in [("sigmoid", gy * s * (1 - s)), ("sigmoid_complement", -gy * t * (1 - t)),
                           ("bose_einstein", -gy * u * (u + 1))]:
        good(daemon, "run", name, "--backward", "--in", "x.npy", "--grad", "gy.npy", "--out", "gx.npy")
        assert np.allclose(np.load("gx.npy"), gradient, rtol=1e-12), name
    b = np.ones(4)
    np.save("b.npy", b)
    good(daemon, "run", "square_bias", "--backward", "--in", "x.npy", "--in", "b.npy", "--grad",
         "gy.npy", "--out", "gx.npy", "--out", "gb.npy")
    assert np.allclose(np.load("gx.npy"), 2 * x * gy) and np.allclose(np.load("gb.npy"), gy.sum(0))
    # What backward needs can be given by name instead of being computed.
    np.save("s.npy", s)
    good(daemon, "run", "sigmoid", "--backward", "--in", "y=s.npy", "--grad", "gy.npy", "--out",
         "gx.npy")
    assert np.allclose(np.load("gx.npy"), gy * s * (1 - s), rtol=1e-12)


@in_directory
def standard_input_and_output_stream_npy(daemon):
    x, buffer = np.arange(6, dtype=np.float32).reshape(2, 3), io.BytesIO()
    np.save(buffer, x)
    out = good(daemon, "run", "square_bias", "--in", "-", "--in", "f32:1", "--out", "-",
               stdin=buffer.getvalue())
    assert np.array_equal(np.load(io.BytesIO(out)), x * x + 1)


@in_directory
def results_print_as_numpy_would(daemon):
    rng = np.random.default_rng(5)
    for shape in [(3,), (2, 3), (2, 2, 2), (1001,), (40, 30), (20, 20, 20), (0,), (50,)]:
        x = (rng.standard_normal(shape) * 4).astype(np.float32)
        np.save("x.npy", x)
        out = good(daemon, "run", "square_bias", "--in", "x.npy", "--in", "f32:-2").decode()
        assert out == str(x * x + np.float32(-2)) + "\n", (shape, out)


@in_directory
def bf16_is_named_by_the_option_or_by_safetensors(daemon):
    bits = np.array([0x3f80, 0x4000, 0xc040], np.uint16)  # 1, 2, -3
    np.save("x.npy", bits.view("V2"))
    code, _, err = call(daemon, "run", "square_bias", "--in", "x.npy", "--in", "bf16:0")
    assert code == 65 and "--dtype bf16" in err
    good(daemon, "run", "square_bias", "--in", "x.npy", "--in", "bf16:0", "--dtype", "bf16", "--out",
         "y.npy")
    assert np.array_equal(np.load("y.npy").view(np.uint16), [0x3f80, 0x4080, 0x4110])
    good(daemon, "run", "square_bias", "--in", "bf16:[1,2,-3]", "--in", "bf16:0", "--out",
         "y.safetensors")
    with open("y.safetensors", "rb") as f:
        n = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(n))
        assert header["y"]["dtype"] == "BF16" and header["y"]["shape"] == [3]
        assert np.array_equal(np.frombuffer(f.read(), np.uint16), [0x3f80, 0x4080, 0x4110])
    assert good(daemon, "run", "square_bias", "--in", "y.safetensors:y", "--in", "bf16:0") == \
        b"[ 1. 16. 81.]\n"


@in_directory
def bad_input_has_its_exit_code_and_a_sentence(daemon):
    np.save("ok.npy", np.ones(3, np.float32))
    np.save("object.npy", np.array([{}]), allow_pickle=True)
    np.savez("a.npz", np.ones(3))
    with open("ok.npy", "rb") as f:
        whole = f.read()
    for name, data in [("short.npy", whole[:-1]), ("empty.npy", b""), ("magic.npy", b"x" * 200),
                       ("huge.npy", b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + whole[10:]),
                       ("shape.npy", whole.replace(b"(3,)", b"(9999999999999,)"))]:
        with open(name, "wb") as f:
            f.write(data)
    one = ["run", "sigmoid", "--in"]
    cases = [(65, [*one, n]) for n in ("short.npy", "empty.npy", "magic.npy", "huge.npy", "shape.npy",
                                       "object.npy", "a.npz", "f32:[1,", "f32:[[1],[2,3]]")]
    cases += [(66, [*one, "missing.npy"]), (66, [*one, "/"]),
              (73, [*one, "ok.npy", "--out", "/nonexistent/y.npy"]),
              (74, [*one, "ok.npy", "--out", "/dev/full"]),
              (64, ["run", "no_such", "--in", "ok.npy"]), (64, ["run"]), (64, ["frobnicate"]),
              (64, []), (64, [*one, "ok.npy", "--attr", "x=1"]), (64, ["run", "sigmoid", "--bogus"]),
              (64, [*one, "ok.npy", "--grad", "ok.npy"]),
              (64, [*one, "ok.npy", "--out", "a.npy", "--out", "b.npy"]),
              (64, [*one, "ok.npy", "--deadline", "-5"]), (64, [*one, "ok.npy", "--deadline", "1x"]),
              (64, ["verify", "--seed", "-1"]), (64, ["verify", "--seed", ""]),
              (64, ["run", "sigmoid", "--backward", "--in", "ok.npy"]),
              (65, ["run", "sigmoid"]), (65, [*one, "i32:[1]"]),
              (65, ["run", "square_bias", "--in", "f32:[1,2]", "--in", "f32:[1,2,3]"]),
              (65, ["run", "square_bias", "--in", "f32:[1,2]", "--in", "f64:[1,2]"]),
              (64, ["verify", "no_such"]), (64, ["verify", "--dtype", "f99"]), (64, ["stats", "x"])]
    for expected, arguments in cases:
        code, _, err = call(daemon, *arguments)
        assert code == expected and len(err) > 10, (arguments, code, expected, err)
    leftovers = [n for n in os.listdir(".") if n.startswith(("y", "a.npy", "b."))]
    assert not leftovers, leftovers


@in_directory
def without_a_server_each_address_tried_is_listed(daemon):
    env = {"XDG_RUNTIME_DIR": "/nonexistent"}
    os.environ.pop("XOP_ADDRESS", None)
    code, _, err = call(None, "ping", env=env)
    assert code == 69 and "/nonexistent/xopd/xopd.sock" in err and "/run/xopd/xopd.sock" in err, err
    code, _, err = call(None, "-s", "unix:/nonexistent/s", "ping")
    assert code == 69 and "No such file" in err
    code, _, err = call(None, "-s", "what", "ping")
    assert code == 64 and "no address" in err


@in_directory
def json_has_stable_keys(daemon):
    ops = json.loads(good(daemon, "ops", "--json"))
    assert {"name", "doc", "inputs", "outputs", "attributes", "dtypes", "backward"} <= \
        set(ops["operators"][0])
    ran = json.loads(good(daemon, "run", "bose_einstein", "--in", "f64:[0,nan,1]", "--json"))
    assert ran["outputs"][0]["data"][:2] == ["inf", "nan"] and ran["op"] == "bose_einstein"
    assert abs(ran["outputs"][0]["data"][2] - 1 / np.expm1(1)) < 1e-15
    verified = json.loads(good(daemon, "verify", "sigmoid", "--dtype", "f32", "--shape", "3,4",
                               "--json"))
    assert verified["failed"] == 0 and verified["passed"] == 2 and verified["skipped"] == 0
    assert verified["worst"]["ratio"] <= 1 and verified["backend"]
    assert json.loads(good(daemon, "ping", "--json"))["ready"] is True
    assert json.loads(good(daemon, "stats", "--json"))["server"]["generation"] == 1
    code, out, _ = call(daemon, "run", "no_such", "--json")
    assert code == 64 and json.loads(out)["error"]["status"] == "NOT_FOUND"


@in_directory
def output_that_cannot_be_written_is_told(daemon):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([XOPCTL, "-s", f"unix:{daemon.path}", "ops"], stdout=full,
                              stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 74, done.returncode


@in_directory
def linear_is_numpys_with_and_without_a_bias(daemon):
    rng = np.random.default_rng(5)
    x, w, b = (rng.integers(-9, 9, n).astype("f4") for n in [(2, 3, 77), (5, 77), 5])
    gy = rng.integers(-9, 9, (2, 3, 5)).astype("f4")
    for name, value in [("x", x), ("w", w), ("b", b), ("gy", gy)]:
        np.save(f"{name}.npy", value)
    both = ["--in", "x.npy", "--in", "w.npy"]
    good(daemon, "run", "linear", *both, "--in", "b.npy", "--out", "y.npy")
    assert np.array_equal(np.load("y.npy"), x @ w.T + b)
    good(daemon, "run", "linear", *both, "--out", "y.npy")
    assert np.array_equal(np.load("y.npy"), x @ w.T)
    good(daemon, "run", "linear", "--backward", *both, "--grad", "gy.npy",
         "--out", "gx.npy", "--out", "gw.npy", "--out", "gb.npy")
    assert np.array_equal(np.load("gx.npy"), gy @ w)
    assert np.array_equal(np.load("gw.npy"), gy.reshape(6, 5).T @ x.reshape(6, 77))
    assert np.array_equal(np.load("gb.npy"), gy.reshape(6, 5).sum(0))
    code, _, err = call(daemon, "run", "linear", "--in", "w.npy", "--in", "b.npy")
    assert code == 65 and "w has shape (5,)" in err, err
    code, _, err = call(daemon, "run", "linear", *both, "--in", "f32:[1,2]")
    assert code == 65 and "b has shape (2,) but w (5, 77)" in err, err


@in_directory
def linear_is_verified_through_the_daemon(daemon):
    verified = json.loads(good(daemon, "verify", "linear", "--dtype", "bf16,f32", "--json"))
    assert verified["failed"] == 0 and verified["passed"] > 100 and verified["skipped"] == 0
    subjects = {(r["pass"], r["dtype"]) for r in verified["results"]}
    assert subjects == {(p, d) for p in ("forward", "backward") for d in ("bf16", "f32")}, subjects
    one = json.loads(good(daemon, "verify", "linear", "--shape", "3,4", "--json"))
    assert one["failed"] == 0 and one["passed"] == 8


def broken_operators_fail_verify_and_are_named():
    with Daemon("--operators", os.path.join(BUILD, "ops-broken")) as daemon:
        for name, fragment, op, *options in [
                ("index", "y[", "square_bias"), ("tail", "wrote outside its output", "square_bias"),
                ("unwritten", "nan", "square_bias"), ("gradient", "grad_x[", "square_bias"),
                ("half", "grad_b[", "square_bias"),
                ("product", "y[", "linear", "--dtype", "f32")]:
            code, out, _ = call(daemon, "verify", f"broken_{name}", "--reference", op, *options)
            assert code == 1, (name, code)
            assert fragment in out.decode() and "FAIL" in out.decode(), (name, out)
        assert call(daemon, "verify", "sigmoid", "--dtype", "f32")[0] == 0


run([files_of_numpy_make_the_round_trip,
     backward_of_every_operator_is_numpys,
     standard_input_and_output_stream_npy,
     results_print_as_numpy_would,
     bf16_is_named_by_the_option_or_by_safetensors,
     bad_input_has_its_exit_code_and_a_sentence,
     without_a_server_each_address_tried_is_listed,
     json_has_stable_keys,
     output_that_cannot_be_written_is_told,
     linear_is_numpys_with_and_without_a_bias,
     linear_is_verified_through_the_daemon,
     broken_operators_fail_verify_and_are_named])
