#!/usr/bin/python3
"""xop.torch: operators on PyTorch's tensors, their gradients, and modules."""

import contextlib
import copy
import gc
import io
import os
import sys
import threading

from pyxop import Daemon, client_of, faulty_operators, raises, run, served

import xop

try:
    import torch
except ImportError:
    print("ok 1 - there is no PyTorch (python3-torch): nothing is tested")
    sys.exit(0)

import xop.torch

torch.manual_seed(1)
torch.set_num_threads(1)
F64 = {"dtype": torch.float64, "requires_grad": True}


@contextlib.contextmanager
def daemon_in_use(*arguments, **options):
    with served(*arguments, **options) as (daemon, gpu):
        xop.torch.use(gpu)
        try:
            yield daemon, gpu
        finally:
            xop.torch.use(None)


def contexts(gpu):
    return gpu.stats()["clients"][0]["contexts"]


def tensors_in_tensors_out_of_every_size_and_dtype():
    with daemon_in_use():
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            for shape in ((), (0,), (3, 0, 2), (7, 5), (300, 500)):
                for _ in range(2):
                    x, b = torch.randn(shape).to(dtype), torch.randn(()).to(dtype)
                    y = xop.torch.square_bias(x, b)
                    wide = torch.float64 if dtype == torch.float64 else torch.float32
                    expected = (x.to(wide) * x.to(wide) + b.to(wide)).to(dtype)
                    assert y.dtype == dtype and torch.equal(y, expected), (dtype, shape)
        x = torch.randn(30, 40)
        for view in (x.t(), x[::2, 1::3], x[:, 5].expand(4, 30), torch.randn(3, 2).cfloat().imag):
            assert torch.equal(xop.torch.square_bias(view, 2), view * view + 2)


def the_tutorials_gradients_are_pytorchs():
    """y = x*x + b: the gradients of x and b equal PyTorch's."""
    with daemon_in_use():
        for shape, of_b in (((1280,), (1280,)), ((3, 4), (4,)), ((5, 3), ()),
                            ((2, 300, 200), (300, 1))):
            x, b = torch.randn(shape, **F64), torch.randn(of_b, **F64)
            g = torch.randn(shape, dtype=torch.float64)
            (xop.torch.square_bias(x, b) * g).sum().backward()
            gx, gb = x.grad, b.grad
            x.grad = b.grad = None
            ((x * x + b) * g).sum().backward()
            assert torch.equal(gx, x.grad) and torch.allclose(gb, b.grad, rtol=1e-13)


def gradcheck_passes():
    with daemon_in_use():
        x, w, b = torch.randn(4, 3, **F64), torch.randn(5, 3, **F64), torch.randn(5, **F64)
        check = torch.autograd.gradcheck
        assert check(xop.torch.square_bias, (x, torch.randn(3, **F64)))
        assert check(xop.torch.linear, (x, w, b)) and check(xop.torch.linear, (x, w))
        for name in ("sigmoid", "sigmoid_complement"):
            assert check(xop.torch.function(name), (x,))
        assert check(xop.torch.bose_einstein, (x.detach().abs().add(0.5).requires_grad_(),))
        # A wrong gradient would be found: this one is PyTorch's own of something else.
        raises(Exception, "Jacobian mismatch", check,
               lambda t: xop.torch.sigmoid(t) + (t * t).detach(), (x,))


def what_is_saved_stays_in_the_daemon_as_long_as_pytorch_keeps_it():
    with daemon_in_use() as (_, gpu):
        x, b = torch.randn(6, **F64), torch.randn(6, **F64)
        y = xop.torch.square_bias(x, b)
        assert contexts(gpu) == 1
        y.sum().backward(retain_graph=True)
        first = x.grad.clone()
        assert contexts(gpu) == 1
        y.sum().backward()
        assert torch.equal(x.grad, 2 * first) and contexts(gpu) == 0
        raises(RuntimeError, "second time", y.sum().backward)
        y = xop.torch.square_bias(x, b)
        assert contexts(gpu) == 1
        del y
        gc.collect()
        assert contexts(gpu) == 0
        with torch.no_grad():
            y = xop.torch.square_bias(x, b)
        assert contexts(gpu) == 0 and not y.requires_grad
        xop.torch.square_bias(x.detach(), b.detach())
        assert contexts(gpu) == 0


def an_output_may_be_used_twice_and_an_input_too():
    with daemon_in_use():
        x = torch.randn(5, **F64)
        y = xop.torch.square_bias(x, x)
        z = y * y + xop.torch.sigmoid(y)
        z.sum().backward()
        ours, x.grad = x.grad, None
        t = x * x + x
        (t * t + torch.sigmoid(t)).sum().backward()
        assert torch.allclose(ours, x.grad, rtol=1e-12)


def conditions_and_indices_are_inputs_without_gradients():
    with daemon_in_use():
        x = torch.randn(6, 5, requires_grad=True)
        target, condition = torch.tensor([0, 4, 2, -100, 1, 3]), torch.randn(6, 5) > 0
        loss = xop.torch.cross_entropy(x, target, label_smoothing=0.1)
        (loss + xop.torch.where(condition, x, 2.0).sum()).backward()
        got, x.grad = x.grad, None
        loss = torch.nn.functional.cross_entropy(x, target, label_smoothing=0.1)
        (loss + torch.where(condition, x, torch.tensor(2.0)).sum()).backward()
        assert torch.allclose(got, x.grad, atol=1e-6)


def values_are_those_of_forward_though_inputs_change():
    with daemon_in_use():
        x = torch.randn(5, dtype=torch.float64)
        leaf = x.clone().requires_grad_()
        inner = leaf * 1
        y = xop.torch.square_bias(inner, 0.0)
        inner.data.zero_()
        y.sum().backward()
        assert torch.equal(leaf.grad, 2 * x)


def gradients_that_nobody_needs_are_not_computed():
    with daemon_in_use() as (_, gpu):
        asked = []
        connection_run = gpu._connection.run

        def spy(request):
            if request.backward:
                asked.append(request.omit)
            return connection_run(request)
        gpu._connection.run = spy
        x, b = torch.randn(4, 3), torch.randn(3)
        for needs_x, needs_b in ((True, False), (False, True), (True, True)):
            xr, br = x.clone().requires_grad_(needs_x), b.clone().requires_grad_(needs_b)
            xop.torch.square_bias(xr, br).sum().backward()
            assert (xr.grad is not None) == needs_x and (br.grad is not None) == needs_b
            if needs_x:
                assert torch.equal(xr.grad, 2 * x)
            if needs_b:
                assert torch.equal(br.grad, torch.full((3,), 4.0))
        assert asked == [2, 1, 0], asked
        w = torch.randn(2, 3, requires_grad=True)
        xop.torch.linear(x, w).sum().backward()  # without a bias there is no gradient of one
        assert asked[-1] == 0b101 and torch.allclose(w.grad, x.sum(0).expand(2, 3))


def second_derivatives_are_refused_in_words():
    with daemon_in_use():
        x = torch.randn(3, **F64)
        (g,) = torch.autograd.grad(xop.torch.sigmoid(x).sum(), x, create_graph=True)
        raises(xop.Unimplemented, "second derivatives", (x + g).sum().backward)
        assert torch.allclose(g, torch.sigmoid(x) * (1 - torch.sigmoid(x)))


def an_operator_without_backward_says_so():
    with faulty_operators() as arguments, daemon_in_use(*arguments):
        x = torch.randn(3, requires_grad=True)
        y = xop.torch.fault(x)
        assert torch.equal(y, x)
        raises(xop.Unimplemented, "no backward", y.sum().backward)
        raises(xop.DeviceFault, "", xop.torch.fault, x, how="address")


def wrong_arguments_raise_what_people_expect():
    with daemon_in_use():
        x = torch.randn(2, 3)
        raises(ValueError, "do not broadcast", xop.torch.square_bias, x, torch.randn(4))
        raises(TypeError, "f64", xop.torch.square_bias, x, torch.randn(3).double())
        raises(TypeError, "complex", xop.torch.sigmoid, x.cfloat())
        raises(ValueError, "layout", xop.torch.sigmoid, x.to_sparse())
        raises(TypeError, "takes no out", xop.torch.sigmoid, x, out=x)
        raises(AttributeError, "nothing", getattr, xop.torch, "nothing")
        assert "square_bias" in dir(xop.torch) and "y = x*x + b" in xop.torch.square_bias.__doc__


def threads_may_differentiate_at_once():
    with daemon_in_use() as (_, gpu):
        wrong = []

        def work():
            for _ in range(20):
                x = torch.randn(200, 200, requires_grad=True)
                xop.torch.square_bias(x, 1.0).sum().backward()
                if not torch.equal(x.grad, 2 * x):
                    wrong.append(x)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong and contexts(gpu) == 0


def checkpoints_compute_anew():
    from torch.utils.checkpoint import checkpoint
    with daemon_in_use() as (_, gpu):
        for reentrant in (False, True):
            x = torch.randn(5, **F64)
            y = checkpoint(lambda t: xop.torch.sigmoid(xop.torch.square_bias(t, 0.5)), x,
                           use_reentrant=reentrant)
            y.sum().backward()
            ours, x.grad = x.grad, None
            torch.sigmoid(x * x + 0.5).sum().backward()
            assert torch.allclose(ours, x.grad, rtol=1e-12)
            del y
            gc.collect()
            assert contexts(gpu) == 0


def operators_are_modules():
    with daemon_in_use():
        layer = xop.torch.Op("linear", w=torch.nn.Parameter(torch.randn(3, 4)),
                             b=torch.nn.Parameter(torch.zeros(3)))
        model = torch.nn.Sequential(layer, xop.torch.Op("sigmoid"))
        assert [n for n, _ in model.named_parameters()] == ["0.w", "0.b"]
        assert "linear" in repr(model)
        x = torch.randn(5, 4)
        expected = torch.sigmoid(torch.nn.functional.linear(x, layer.w, layer.b))
        assert torch.allclose(model(x), expected, atol=1e-6)
        model(x).sum().backward()
        assert layer.w.grad is not None and layer.b.grad is not None
        raises(TypeError, "1 inputs here, and 2", layer, x, x)
        raises(TypeError, "no attribute 'dim'", xop.torch.Op, "sigmoid", dim=-1)
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other = copy.deepcopy(model)
        with torch.no_grad():
            other[0].w.zero_()
        other.load_state_dict(torch.load(file))
        assert torch.equal(other(x), model(x))


def a_module_trains_as_pytorchs_does():
    with daemon_in_use():
        x, y = torch.randn(64, 8, dtype=torch.float64), torch.randn(64, 1, dtype=torch.float64)
        w0 = torch.randn(1, 8, dtype=torch.float64)

        def losses(layer):
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
            seen = []
            for _ in range(30):
                optimizer.zero_grad()
                loss = ((layer(x) - y) ** 2).mean()
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
            return torch.tensor(seen, dtype=torch.float64)
        ours = losses(xop.torch.Op("linear", w=torch.nn.Parameter(w0.clone())))
        theirs = torch.nn.Linear(8, 1, bias=False, dtype=torch.float64)
        with torch.no_grad():
            theirs.weight.copy_(w0)
        assert torch.allclose(ours, losses(theirs), rtol=1e-10) and ours[-1] < ours[0]


def dlpack_goes_both_ways():
    with served() as (_, gpu):
        x = torch.randn(300, 400)
        y = gpu.square_bias(x, x)  # a NumPy array, of a tensor
        assert torch.equal(torch.from_dlpack(y), x * x + x)
        shared = torch.from_numpy(gpu.empty((300, 400)))
        shared.copy_(x)
        received = gpu.stats()["clients"][0]["bytes_in"]
        xop.torch.use(gpu)
        assert torch.equal(xop.torch.square_bias(shared, shared), x * x + x)
        xop.torch.use(None)
        assert gpu.stats()["clients"][0]["bytes_in"] - received < 4096  # it was used in place


def the_client_is_found_by_the_environment_and_anew_after_fork():
    with Daemon() as daemon:
        os.environ["XOP_ADDRESS"] = "unix:" + daemon.path
        try:
            assert torch.equal(xop.torch.square_bias(torch.ones(2), 1), torch.full((2,), 2.0))
            pid = os.fork()
            if pid == 0:
                good = torch.equal(xop.torch.square_bias(torch.ones(2), 2), torch.full((2,), 3.0))
                os._exit(0 if good else 1)
            assert os.waitpid(pid, 0)[1] == 0
            with client_of(daemon) as other:
                assert xop.torch.function("sigmoid", other).client is other
        finally:
            del os.environ["XOP_ADDRESS"]
            xop.torch.client().close()
            xop.torch.use(None)


def a_compiler_takes_functions_and_modules_whole():
    with faulty_operators() as arguments, daemon_in_use(*arguments):
        x, b, w = (torch.randn(shape, requires_grad=True) for shape in ((4, 3), (3,), (5, 3)))
        layer = xop.torch.Op("linear", w=torch.nn.Parameter(torch.randn(2, 3)))

        def f(x, b):
            y = xop.torch.sigmoid(xop.torch.square_bias(x, b))
            return layer(y + xop.torch.linear(x, w, b=None).mean()).sum()
        ours = torch.autograd.grad(f(x, b), (x, b, w, layer.w))
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
        theirs = torch.autograd.grad(compiled(x, b), (x, b, w, layer.w))
        for one, other in zip(ours, theirs):
            assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
        y = torch.compile(lambda t: xop.torch.fault(t, how=""), fullgraph=True,
                          backend="aot_eager")(x.detach())
        assert torch.equal(y, x)
        dynamic = torch.compile(lambda t: xop.torch.sigmoid(t), fullgraph=True, dynamic=True,
                                backend="aot_eager")
        for n in (2, 5, 9):
            t = torch.randn(n, 3)
            assert torch.allclose(dynamic(t), torch.sigmoid(t), atol=1e-6)


def custom_ops_keep_pytorchs_rules():
    with faulty_operators() as arguments, daemon_in_use(*arguments):
        x, b, w = (torch.randn(shape, requires_grad=True) for shape in ((4, 3), (3,), (5, 3)))
        for name in ("square_bias", "linear", "sigmoid", "fault"):
            xop.torch.function(name)  # which defines it
        for op, given in ((torch.ops.xop.square_bias, (x, b)), (torch.ops.xop.linear, (x, w, None)),
                          (torch.ops.xop.linear, (x, w, torch.randn(5, requires_grad=True))),
                          (torch.ops.xop.sigmoid, (x,)), (torch.ops.xop.fault, (x.detach(), ""))):
            said = torch.library.opcheck(op.default, given)
            assert set(said.values()) == {"SUCCESS"}, said
        xd = torch.randn(4, 3, **F64)
        assert torch.autograd.gradcheck(torch.ops.xop.square_bias, (xd, torch.randn(3, **F64)))
        raises(ValueError, "do not broadcast", torch.ops.xop.square_bias, x, torch.randn(7))


TESTS = [tensors_in_tensors_out_of_every_size_and_dtype,
         the_tutorials_gradients_are_pytorchs,
         gradcheck_passes,
         what_is_saved_stays_in_the_daemon_as_long_as_pytorch_keeps_it,
         an_output_may_be_used_twice_and_an_input_too, conditions_and_indices_are_inputs_without_gradients,
         values_are_those_of_forward_though_inputs_change,
         gradients_that_nobody_needs_are_not_computed,
         second_derivatives_are_refused_in_words,
         an_operator_without_backward_says_so,
         wrong_arguments_raise_what_people_expect,
         threads_may_differentiate_at_once,
         checkpoints_compute_anew,
         operators_are_modules,
         a_module_trains_as_pytorchs_does,
         dlpack_goes_both_ways,
         the_client_is_found_by_the_environment_and_anew_after_fork]
if hasattr(torch.library, "register_autograd"):
    TESTS += [a_compiler_takes_functions_and_modules_whole, custom_ops_keep_pytorchs_rules]
run(TESTS)
