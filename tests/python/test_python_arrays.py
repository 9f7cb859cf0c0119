#!/usr/bin/python3
"""xop: operators on NumPy arrays."""

import inspect
import pydoc

import numpy as np

from pyxop import client_of, Daemon, faulty_operators, raises, run, served

import xop

RNG = np.random.default_rng(1)
DTYPES = (np.float16, np.float32, np.float64)
LARGE = (300, 500)  # beyond what goes through the socket


def values(shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def close(a, b, dtype=np.float32):
    return np.allclose(np.asarray(a, np.float64), np.asarray(b, np.float64),
                       rtol=8 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps)


def square_bias_of(x, b, dtype):
    if dtype == np.float16:
        return (x.astype(np.float32) ** 2 + b.astype(np.float32)).astype(dtype)
    return x * x + b


def numpy_in_numpy_out_of_every_size_and_dtype():
    with served() as (_, gpu):
        for dtype in DTYPES:
            for shape in ((), (0,), (1,), (3, 0, 2), (7, 5), LARGE):
                for _ in range(3):  # the first time, and when shapes are remembered
                    x, b = values(shape, dtype), values((), dtype)
                    y = gpu.square_bias(x, b)
                    assert y.dtype == dtype and y.shape == shape, (y.dtype, y.shape)
                    assert np.array_equal(y, square_bias_of(x, b, np.dtype(dtype)))


def results_stay_when_their_memory_would_be_wanted_again():
    with served() as (_, gpu):
        kept = []
        for i in range(12):
            x = np.full(LARGE, i, np.float32)
            kept.append((i, gpu.square_bias(x, np.float32(1))[10:, ::2]))  # views keep it, too
        for i, y in kept:
            assert (y == i * i + 1).all()


def memory_is_used_again_and_not_without_end():
    with served() as (daemon, gpu):
        x = values((512, 512))
        for _ in range(50):
            gpu.square_bias(x, x)
        attached = gpu.stats()["clients"][0]["attached_bytes"]
        assert 0 < attached <= 8 << 20, attached


def strides_byte_orders_and_alignments_do_not_matter():
    with served() as (_, gpu):
        for shape in ((6, 8), LARGE):
            x = values(shape)
            odd = np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(shape)
            for given in (x.T.copy().T, np.asfortranarray(x), x.astype(">f4"), odd):
                assert np.array_equal(gpu.sigmoid(given), gpu.sigmoid(x))
            assert np.array_equal(gpu.sigmoid(x[::-2, 1::3]), gpu.sigmoid(x[::-2, 1::3].copy()))


def numbers_and_lists_are_inputs():
    with served() as (_, gpu):
        x = values(4)
        for b in (2, 2.0):
            y = gpu.square_bias(x, b)
            assert y.dtype == np.float32 and np.array_equal(y, x * x + np.float32(2))
        assert gpu.square_bias([1.0, 2.0], [0.5]).tolist() == [1.5, 4.5]
        raises(TypeError, "no array", gpu.sigmoid, object())
        chosen = gpu.where(x > 0, x, 0.0)  # a number is as x is, not as the condition beside it
        assert chosen.dtype == np.float32 and np.array_equal(chosen, np.where(x > 0, x, 0))
        raises(xop.InvalidArgument, "is 4 at its element 1", gpu.nll_loss,
               np.zeros((2, 4), np.float32), np.array([3, 4]))


def arrays_of_empty_are_not_copied():
    with served() as (daemon, gpu):
        x, y = gpu.empty((64, 64)), gpu.empty((64, 64))
        x[:] = values((64, 64))

        def received():
            return gpu.stats()["clients"][0]["bytes_in"]  # over the socket, headers and all
        before = received()
        assert gpu.square_bias(x, x, out=y) is y
        assert received() - before < x.nbytes
        assert np.array_equal(y, x * x + x)
        before = received()
        assert gpu.square_bias(x.copy(), x, out=y) is y
        assert received() - before > x.nbytes
        raises(ValueError, "negative", gpu.empty, (-1,))
        raises(TypeError, "complex", gpu.empty, 3, np.complex64)
        assert gpu.empty(0).shape == (0,) and gpu.empty((2, 3), "i64").dtype == np.int64
        a = gpu.asarray(values(LARGE, np.float64), "f32")
        assert a.dtype == np.float32 and a.shape == LARGE


def outputs_go_where_the_caller_says():
    with served() as (_, gpu):
        for shape in ((4,), LARGE):
            x, y = values(shape), np.empty(shape, np.float32)
            assert gpu.square_bias(x, 1, out=y) is y and np.array_equal(y, x * x + 1)
            raises(ValueError, "y", gpu.square_bias, x, 1, out=np.empty(3, np.float32))
            raises(ValueError, "contiguous", gpu.square_bias, x, 1, out=np.empty((9, 9)).T[::2])
            raises(TypeError, "no NumPy array", gpu.square_bias, x, 1, out=[3])
        gx, gb = np.empty(4, np.float32), np.empty(1, np.float32)
        x, g = values(4), values(4)
        gpu.square_bias.backward(x, np.ones(1, np.float32), g, out=(gx, gb))
        assert close(gx, 2 * x * g) and close(gb, g.sum())


def gradients_have_names_and_can_be_omitted():
    with served() as (_, gpu):
        x, b, g = values((5, 3)), values(3), values((5, 3))
        both = gpu.square_bias.backward(x, b, g)
        assert both._fields == ("grad_x", "grad_b")
        assert close(both.grad_x, 2 * x * g) and close(both.grad_b, g.sum(0))
        one = gpu.square_bias.backward(x, b, g, omit="grad_x")
        assert one.grad_x is None and np.array_equal(one.grad_b, both.grad_b)
        raises(ValueError, "no output 'grad_z'", gpu.square_bias.backward, x, b, g, omit="grad_z")


def optional_inputs_may_be_left_out():
    with served() as (_, gpu):
        x, w, b = values((6, 4)), values((3, 4)), values(3)
        assert close(gpu.linear(x, w, b), x @ w.T + b)
        assert close(gpu.linear(x, w), x @ w.T) and close(gpu.linear(w=w, x=x, b=None), x @ w.T)


def wrong_shapes_and_dtypes_raise_what_python_people_expect():
    with served() as (_, gpu):
        x = values((2, 3))
        error = raises(ValueError, "do not broadcast", gpu.square_bias, x, values(4))
        assert not isinstance(error, TypeError) and error.status == xop.Status.INVALID_ARGUMENT
        assert "(2, 3)" in error.message
        for b in (values(3, np.float64), np.ones(3, np.int32)):
            error = raises(TypeError, "b", gpu.square_bias, x, b)
            assert isinstance(error, xop.InvalidDtype)
        raises(TypeError, "complex64", gpu.sigmoid, np.ones(3, np.complex64))
        raises(TypeError, "2 inputs, and 3 were given", gpu.square_bias, x, x, x)
        raises(TypeError, "no argument 'z'", gpu.square_bias, x, z=1)
        raises(TypeError, "two values for 'x'", gpu.square_bias, x, x=1)
        raises(ValueError, "9 dimensions", gpu.sigmoid, np.ones((1,) * 9))
        raises(ValueError, "deadline", gpu.sigmoid, x, deadline=-1)
        raises(xop.NotFound, "nothing", gpu.run, "nothing", x)
        # All of these went wrong without harm.
        assert close(gpu.square_bias(x, x), x * x + x)


def operators_describe_themselves():
    with faulty_operators() as arguments, served(*arguments) as (_, gpu):
        names = dir(gpu)
        assert {"square_bias", "sigmoid", "linear", "fault", "empty", "submit"} <= set(names)
        signature = inspect.signature(gpu.linear)
        assert list(signature.parameters)[:3] == ["x", "w", "b"]
        assert signature.parameters["b"].default is None
        assert inspect.signature(gpu.fault).parameters["how"].default == ""
        assert inspect.signature(gpu.fault).parameters["how"].annotation is str
        assert list(inspect.signature(gpu.square_bias.backward).parameters)[:3] == ["x", "b",
                                                                                      "grad_y"]
        text = pydoc.plain(pydoc.render_doc(gpu.square_bias))
        assert "y = x*x + b" in text and "square_bias(x, b, *" in text
        assert "of a shape that broadcasts" in gpu.square_bias.__doc__
        assert gpu.fault.backward is None and gpu.sigmoid.backward is not None
        raises(AttributeError, "no operator 'nothing'", getattr, gpu, "nothing")
        assert not hasattr(gpu, "_nothing")
        assert gpu.operator("square_bias") is gpu.square_bias
        # One that was loaded anew, and is another now, is described anew.
        before = gpu.sigmoid
        before.description = gpu.linear.description
        assert gpu.operators() and gpu.sigmoid is not before and "sigmoid" in gpu.sigmoid.__doc__


def attributes_are_checked_and_arrive():
    with faulty_operators() as arguments, served(*arguments) as (_, gpu):
        x = values(3)
        assert np.array_equal(gpu.fault(x, how=""), x)
        raises(TypeError, "how: 3 is no string", gpu.fault, x, how=3)
        raises(TypeError, "no attribute 'why'", gpu.run, "fault", x, attributes={"why": ""})


def attributes_of_every_type_are_encoded():
    from xop import _attributes, _describe
    types = {"i": "int", "f": "float", "b": "bool", "s": "string", "l": "ints", "m": "floats"}
    description = _describe.parse({
        "name": "all", "dtypes": ["f32"],
        "attributes": [{"name": n, "type": t, "required": False, "default": None}
                       for n, t in types.items()],
        "forward": {"inputs": [], "outputs": []}, "backward": None})
    given = {"m": [1, 2.5], "i": np.int64(-3), "f": 2, "b": True, "s": "ä", "l": 7}
    values_ = _attributes.canonical(description, given)
    assert values_ == (("i", -3), ("f", 2.0), ("b", True), ("s", "ä"), ("l", (7,)),
                       ("m", (1.0, 2.5)))
    array, _ = _attributes.encode(description, values_)
    assert [a.type for a in array] == [1, 2, 3, 4, 5, 6]
    assert array[0].value.i == -3 and array[1].value.f == 2 and array[2].value.i == 1
    assert array[3].value.string == "ä".encode() and array[3].count == 2
    assert array[4].value.ints[0] == 7 and array[4].count == 1
    assert array[5].value.floats[1] == 2.5 and array[5].count == 2
    for name, bad in (("i", 1.5), ("f", "x"), ("b", 1), ("l", [1.5]), ("m", ["x"])):
        raises(TypeError, name + ":", _attributes.canonical, description, {name: bad})
    raises(ValueError, "64 bits", _attributes.encode, description, (("i", 1 << 63),))


def resident_tensors_stay_and_are_freed():
    with served() as (_, gpu):
        def held():
            return gpu.stats()["clients"][0]["residents"]
        for shape in ((3,), LARGE, ()):
            x = values(shape)
            r = gpu.put(x)
            assert r.shape == shape and r.dtype == np.float32 and "f32" in repr(r)
            assert np.array_equal(r.numpy(), x) and np.array_equal(np.asarray(r), x)
            y = gpu.square_bias(r, 1, resident=True)
            want = x * x + np.float32(1)  # a Python number would make a scalar f64
            assert isinstance(y, xop.Resident) and np.array_equal(y, want)
            out = np.empty(shape, np.float32)
            assert y.numpy(out) is out and np.array_equal(out, want)
            r.write(x + np.float32(1))
            assert np.array_equal(gpu.sigmoid(r), gpu.sigmoid(x + np.float32(1)))
            assert np.array_equal(np.from_dlpack(r), x + np.float32(1))
            assert held() == 2
            del y
            r.free()
            assert held() == 0
            raises(xop.FailedPrecondition, "freed", gpu.sigmoid, r)
        with gpu.put(values(3)) as r:
            raises(ValueError, "shape", r.write, values(4))
            raises(ValueError, "shape", r.numpy, np.empty(4, np.float32))
            raises(TypeError, "float64", r.numpy, np.empty(3))
            assert held() == 1
        assert held() == 0
        grads = gpu.square_bias.backward(values(3), values(1), values(3), resident=True,
                                         omit="grad_b")
        assert grads.grad_b is None and grads.grad_x.shape == (3,)


def a_step_updates_residents_where_they_lie():
    """adamw with out= its own inputs: the same as on arrays, and nothing comes back."""
    with served() as (daemon, gpu), client_of(daemon) as other:
        for shape in ((5,), LARGE):
            param = values(shape)
            p = gpu.put(param)
            m = v = None
            for step in (1, 2, 3):
                grad = values(shape)
                param, avg, square, _ = gpu.adamw(param, None if step == 1 else avg,
                                                  None if step == 1 else square, None, grad, step=step)
                if step == 1: # the states come into being
                    _, m, v, _ = gpu.adamw(p, None, None, None, grad, step=1, resident=True, omit=("param",))
                    got = gpu.adamw(p, None, None, None, grad, step=1, out=(p, None, None, None))
                    assert got.param is p and got.exp_avg is None
                else:
                    got = gpu.adamw(p, m, v, None, grad, step=step, out=(p, m, v, None))
                    assert got[:3] == (p, m, v) and got[3] is None
                assert np.array_equal(p.numpy(), param), step
            assert np.array_equal(m.numpy(), avg) and np.array_equal(v.numpy(), square)
            raises(xop.InvalidArgument, "overlap", gpu.adamw, p, m, v, None, grad, step=4, out=(m, None, None, None))
            raises(xop.InvalidArgument, "another client", other.adamw, values(shape), None, None, None, grad,
                   step=1, out=(p, None, None, None))
            raises(ValueError, "step", gpu.adamw, p, m, v, None, grad)


def residents_belong_to_one_client():
    with Daemon() as daemon, client_of(daemon) as one, client_of(daemon) as other:
        raises(ValueError, "another client", other.sigmoid, one.put(values(3)))


def dlpack_works_both_ways():
    class Foreign:  # an array of another library's
        def __init__(self, a):
            self.a = a

        def __dlpack__(self, **keys):
            return self.a.__dlpack__(**keys)

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    class Elsewhere(Foreign):
        def __dlpack__(self, **keys):
            raise BufferError("it is on another device")

    with served() as (_, gpu):
        x = values(LARGE)
        assert np.array_equal(gpu.square_bias(Foreign(x), Foreign(x)), x * x + x)
        assert np.array_equal(np.from_dlpack(gpu.square_bias(x, x)), x * x + x)
        assert np.array_equal(gpu.asarray(Foreign(x)), x)
        raises(TypeError, "another device", gpu.sigmoid, Elsewhere(x))


def bf16_needs_ml_dtypes_and_says_so():
    from xop import _dtypes
    with served() as (_, gpu):
        if _dtypes.bfloat16 is None:
            raises(TypeError, "ml_dtypes", _dtypes.numpy_of, _dtypes.BF16)
            raises(TypeError, "ml_dtypes", gpu.empty, 3, "bf16")
            return
        for shape in ((3, 4), LARGE):
            x = values(shape).astype(_dtypes.bfloat16)
            y = gpu.square_bias(x, x)
            wide = x.astype(np.float32)
            assert y.dtype == _dtypes.bfloat16
            assert np.array_equal(y, (wide * wide + wide).astype(_dtypes.bfloat16))
            assert gpu.put(x).numpy().dtype == _dtypes.bfloat16


def a_connection_by_tcp_works_without_shared_memory():
    with Daemon(listen=["tcp:127.0.0.1:0"], config="[server]\ninsecure_tcp = yes\n") as daemon:
        port = daemon.wait_for(r"listening on tcp:127\.0\.0\.1:(\d+)").group(1)
        with xop.connect(f"tcp:127.0.0.1:{port}") as gpu:
            x = values(LARGE)
            for _ in range(3):
                assert np.array_equal(gpu.square_bias(x, x), x * x + x)
            assert np.array_equal(gpu.submit("square_bias", x, x).result(60), x * x + x)
            assert np.array_equal(gpu.put(x).numpy(), x)
            raises(xop.FailedPrecondition, "Unix sockets", gpu.empty, 3)


def a_quota_of_memory_is_no_end():
    with served(config="[quota]\nattached = 4M\n") as (_, gpu):
        x = values((1024, 1024))  # 4 MiB: two of them do not fit
        for _ in range(3):
            assert np.array_equal(gpu.square_bias(x, x), x * x + x)
        small = [gpu.empty(1 << 18) for _ in range(4)]
        raises(xop.ResourceExhausted, "", gpu.empty, 1 << 18)
        raises(MemoryError, "", gpu.empty, 1 << 18)
        del small
        assert gpu.empty(1 << 20).nbytes == 4 << 20


run([numpy_in_numpy_out_of_every_size_and_dtype,
     results_stay_when_their_memory_would_be_wanted_again,
     memory_is_used_again_and_not_without_end,
     strides_byte_orders_and_alignments_do_not_matter,
     numbers_and_lists_are_inputs,
     arrays_of_empty_are_not_copied,
     outputs_go_where_the_caller_says,
     gradients_have_names_and_can_be_omitted,
     optional_inputs_may_be_left_out,
     wrong_shapes_and_dtypes_raise_what_python_people_expect,
     operators_describe_themselves,
     attributes_are_checked_and_arrive,
     attributes_of_every_type_are_encoded,
     resident_tensors_stay_and_are_freed,
     a_step_updates_residents_where_they_lie,
     residents_belong_to_one_client,
     dlpack_works_both_ways,
     bf16_needs_ml_dtypes_and_says_so,
     a_connection_by_tcp_works_without_shared_memory,
     a_quota_of_memory_is_no_end])
