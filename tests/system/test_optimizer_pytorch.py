"""Steps of optimisers beside torch.optim on the CPU, on tensors that are sent and on residents that
are updated where they lie; and what is left of those when a worker dies.

PyTorch is where python3-torch is installed; without it the test says that it was skipped.
"""

import os
import signal
import sys

import numpy as np

try:
    import torch
except ImportError:
    print("ok 1 - optimisers step as PyTorch's # skip python3-torch is not installed")
    sys.exit(0)

from xopd import (ABORTED, DATA_LOSS, Daemon, Failed, INVALID_ARGUMENT, operands, raises, run)

RANDOM = np.random.default_rng(31)
SHAPES = ((), (1,), (7,), (3, 5), (2, 0, 3), (0,), (1000,), (129, 257))
STATES = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")}
STATES["adamw"] = STATES["adam"]
SETTINGS = {
    "sgd": ({}, {"lr": 0.1, "weight_decay": 0.05}, {"lr": 0.1, "momentum": 0.9},
            {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01},
            {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
            {"lr": 0.1, "momentum": 0.5, "maximize": True}),
    "adam": ({}, {"lr": 0.1}, {"lr": 0.1, "betas": [0.5, 0.9], "eps": 1e-3},
             {"lr": 0.1, "weight_decay": 0.1}, {"lr": 0.1, "amsgrad": True},
             {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1, "maximize": True}),
}
SETTINGS["adamw"] = SETTINGS["adam"] + ({"lr": 0.1, "weight_decay": 0.0},)
STEPS = 6


def handle(number):
    return {"resident": number}


def numbers(shape, dtype):
    return np.asarray(RANDOM.uniform(-2, 2, size=shape), dtype)


def optimizer(op, param, setting):
    """PyTorch's, with the same defaults: of sgd's lr it has none in this version."""
    keys = {"lr": 1e-3, **setting}
    if "betas" in keys:
        keys["betas"] = tuple(keys["betas"])
    return {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[op]([param], **keys)


def used(op, setting):
    """Which states there are."""
    if op == "sgd":
        return [bool(setting.get("momentum"))]
    return [True, True, bool(setting.get("amsgrad"))]


def attrs_of(op, setting, step):
    return setting if op == "sgd" else {**setting, "step": step}


def close(got, want, dtype, what):
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (what, got.shape, want.shape)
    tolerance = 1e-5 if dtype == np.float32 else 1e-13
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=what)


def each_case():
    for op, settings in SETTINGS.items():
        for setting in settings:
            for shape in SHAPES:
                for dtype in (np.float32, np.float64):
                    yield op, setting, shape, dtype, f"{op} {setting} {shape} {dtype.__name__}"


def by_pytorch(op, setting, param, grads):
    """The parameter after each step, and the states at the end."""
    tensor = torch.tensor(param, requires_grad=True)
    theirs = optimizer(op, tensor, setting)
    path = []
    for grad in grads:
        tensor.grad = torch.tensor(grad)
        theirs.step()
        path.append(tensor.detach().numpy().copy())
    state = theirs.state[tensor]
    return path, [state.get(name) for name in STATES[op]]


def steps_are_pytorchs():
    with Daemon() as daemon:
        client = daemon.client()
        for op, setting, shape, dtype, what in each_case():
            param, grads = numbers(shape, dtype), [numbers(shape, dtype) for _ in range(STEPS)]
            path, their_states = by_pytorch(op, setting, param, grads)
            there = used(op, setting)
            states = [None] * len(there)
            for step, grad in enumerate(grads, 1):
                param, *states = client.run(op, [param, *states, grad], attrs=attrs_of(op, setting, step))
                close(param, path[step - 1], dtype, f"{what}, step {step}")
                assert all(s.shape == (0,) for s, is_used in zip(states, there) if not is_used), what
                states = [s if is_used else None for s, is_used in zip(states, there)]
            for ours, their, is_used in zip(states, their_states, there):
                if is_used:
                    close(ours, their, dtype, f"{what}, a state")


def resident_step(client, op, there, attrs, grad, begins, numbers_of=(1, 2, 3, 4)):
    """Sends a step that updates residents; where it begins, the states come into being."""
    places = [handle(n) if is_there else None for n, is_there in zip(numbers_of, (True, *there))]
    described, body = operands([grad])
    inputs = places[:1] + [None] * len(there) if begins else places
    return client.request("forward", body, op=op, attrs=attrs, **{"in": inputs + described},
                          out=[p if p else False for p in places])


def residents_are_updated_where_they_lie():
    """The same steps on residents, all of a case in one write: they run in order, and give the same
    bits as on tensors that are sent."""
    with Daemon() as daemon:
        client = daemon.client()
        for op, setting, shape, dtype, what in each_case():
            param, grads = numbers(shape, dtype), [numbers(shape, dtype) for _ in range(STEPS)]
            there = used(op, setting)
            client.put(1, param)
            with client.one_write():
                for step, grad in enumerate(grads, 1):
                    resident_step(client, op, there, attrs_of(op, setting, step), grad, step == 1)
            for _ in grads:
                header, body = client.answer()
                assert not header.get("status") and not body, (what, header)
            states = [None] * len(there)
            for step, grad in enumerate(grads, 1):
                param, *states = client.run(op, [param, *states, grad], attrs=attrs_of(op, setting, step))
                states = [s if is_used else None for s, is_used in zip(states, there)]
            assert client.get(1, param).tobytes() == param.tobytes(), what
            client.ask("free", handle=1)
            for number, state in enumerate(states, 2):
                if state is not None:
                    assert client.get(number, state).tobytes() == state.tobytes(), (what, number)
                    client.ask("free", handle=number)


def a_step_takes_the_place_of_its_own_input_alone():
    with Daemon() as daemon:
        client = daemon.client()
        for number in range(1, 6):
            client.put(number, numbers((100,), np.float32))
        before = [client.get(n, np.zeros(100, np.float32)) for n in range(1, 6)]
        for out in ([handle(2), False, False, False], [handle(5), False, False, False],
                    [False, handle(1), False, False], [False, handle(3), handle(2), False]):
            raises(INVALID_ARGUMENT, "overlap", client.ask, "forward", op="adam", attrs={"step": 2}, out=out,
                   **{"in": [handle(1), handle(2), handle(3), None, handle(5)]})
        for number, value in enumerate(before, 1):
            assert np.array_equal(client.get(number, value), value), number


def what_is_wrong_is_refused_and_changes_nothing():
    with Daemon() as daemon:
        client = daemon.client()
        p, g = numbers((4,), np.float32), numbers((4,), np.float32)
        sgd = lambda says, arrays, **attrs: raises(INVALID_ARGUMENT, says, client.run, "sgd", arrays, attrs=attrs)
        adam = lambda says, arrays, **attrs: [
            raises(INVALID_ARGUMENT, says, client.run, op, arrays, attrs=attrs) for op in ("adam", "adamw")]
        sgd("lr is -1", [p, None, g], lr=-1.0)
        sgd("lr is nan", [p, None, g], lr=float("nan"))
        sgd("momentum is -0.5", [p, None, g], momentum=-0.5)
        sgd("weight_decay", [p, None, g], weight_decay=-1.0)
        sgd("nesterov requires", [p, None, g], nesterov=True)
        sgd("nesterov requires", [p, None, g], nesterov=True, momentum=0.9, dampening=0.1)
        sgd("momentum is 0", [p, p, g])
        sgd("grad", [p, None, g[:3]])
        sgd("momentum_buffer", [p, g[:3], g], momentum=0.9)
        sgd("the same", [p, None, g.astype(np.float64)])
        adam("step", [p, None, None, None, g])
        adam("the first step is 1", [p, None, None, None, g], step=0)
        adam("exp_avg is missing, but step is 2", [p, None, p, None, g], step=2)
        adam("exp_avg_sq is missing, but step is 2", [p, p, None, None, g], step=2)
        adam("max_exp_avg_sq is missing", [p, p, p, None, g], step=2, amsgrad=True)
        adam("amsgrad is false", [p, p, p, p, g], step=2)
        adam("betas has 1", [p, None, None, None, g], step=1, betas=[0.9])
        adam("betas[0] is 1", [p, None, None, None, g], step=1, betas=[1.0, 0.9])
        adam("betas[1] is -0.1", [p, None, None, None, g], step=1, betas=[0.9, -0.1])
        adam("eps is -1", [p, None, None, None, g], step=1, eps=-1.0)
        adam("exp_avg_sq", [p, p, g[:3], None, g], step=2)
        client.put(1, p)
        client.put(2, p)
        raises(INVALID_ARGUMENT, "step", client.ask, "forward", op="adam", attrs={"step": 0},
               out=[handle(1), False, False, False], **{"in": [handle(1), handle(2), handle(2), None, handle(2)]})
        assert np.array_equal(client.get(1, p), p)


def not_a_number_and_infinities_are_pytorchs():
    values = np.array([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 1e38, 1e-40, 1e20], np.float64)
    param, grad = (a.ravel() for a in np.meshgrid(values, values))
    with Daemon() as daemon:
        client = daemon.client()
        for op, settings in SETTINGS.items():
            for setting in settings:
                for dtype in (np.float32, np.float64):
                    p, g = param.astype(dtype), grad.astype(dtype)
                    path, _ = by_pytorch(op, setting, p, [g, g])
                    there, states = used(op, setting), [None] * len(used(op, setting))
                    for step in (1, 2):
                        p, *states = client.run(op, [p, *states, g], attrs=attrs_of(op, setting, step))
                        states = [s if is_used else None for s, is_used in zip(states, there)]
                        np.testing.assert_allclose(p, path[step - 1], rtol=1e-5, atol=1e-37,
                                                   err_msg=f"{op} {setting} {step}")


def a_step_is_done_once_or_says_that_it_is_lost():
    """Each step adds 1. A worker is killed while one runs: what is answered well was done once, and
    where that is not certain, step and tensor say so."""
    n, steps, lost = 3 << 20, 12, False
    gradient, zeros = np.full(n, -1, np.float32), np.zeros(n, np.float32)
    for _ in range(20):
        with Daemon() as daemon:
            client = daemon.client()
            client.put(1, zeros)
            client.put(2, gradient)
            with client.one_write():
                for _ in range(steps):
                    client.request("forward", op="sgd", attrs={"lr": 1.0}, out=[handle(1), False],
                                   **{"in": [handle(1), None, handle(2)]})
            answers = [client.answer()]
            os.kill(daemon.worker(), signal.SIGKILL)
            answers += [client.answer() for _ in range(steps - 1)]
            statuses = [header.get("status", 0) for header, _ in answers]
            assert set(statuses) <= {0, DATA_LOSS, ABORTED}, statuses
            if any(statuses):
                assert DATA_LOSS in statuses, statuses
                raises(DATA_LOSS, "resident tensor 1", client.get, 1, zeros)
                assert np.array_equal(client.get(2, zeros), gradient) # which was only read
                client.put(1, zeros) # and then it is as good as any
                client.ask("forward", op="sgd", attrs={"lr": 1.0}, out=[handle(1), False],
                           **{"in": [handle(1), None, handle(2)]})
                assert (client.get(1, zeros) == 1).all()
                lost = True
                break
            assert (client.get(1, zeros) == steps).all()
    assert lost, "no worker died within a step"


run([steps_are_pytorchs,
     residents_are_updated_where_they_lie,
     a_step_takes_the_place_of_its_own_input_alone,
     what_is_wrong_is_refused_and_changes_nothing,
     not_a_number_and_infinities_are_pytorchs,
     a_step_is_done_once_or_says_that_it_is_lost])
