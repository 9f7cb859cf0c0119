#!/usr/bin/python3
"""Random requests on tensors that stay and on client memory, many in one write, held to a plain model:
the same calls one after the other. In some rounds the worker is killed meanwhile.

XOP_SEED repeats a run; XOP_ROUNDS (40) makes it longer.
"""

import os
import random
import signal

import numpy as np

from xopd import Daemon, Memory, NAMES, NOT_FOUND, operands, run, tensors

SEED = int(os.environ.get("XOP_SEED", random.SystemRandom().randrange(1 << 32)))
ROUNDS = int(os.environ.get("XOP_ROUNDS", 40))
HANDLES, SLOTS, SLOT = range(1, 9), range(8), 1 << 16
SHAPES = [(1,), (7,), (1000,), (33, 31), (16384,)]


class World:
    """What the server is to have: arrays by handle and by slot of the memory, and contexts."""

    def __init__(self, daemon, seed):
        self.random = random.Random(seed)
        self.values = np.random.default_rng(seed)
        self.daemon = daemon
        self.client, self.plain = daemon.client(), daemon.client()
        self.memory = Memory(len(SLOTS) * SLOT)
        self.client.attach(1, self.memory.descriptor, self.memory.length)
        self.resident, self.shared, self.contexts = {}, {}, {}
        for slot in SLOTS:
            self.fill(slot)
        self.expected = {}  # by request id: what its body has to hold, or None
        self.busy = set()   # slots that requests under way use
        self.next_context = 1

    def fill(self, slot):
        array = self.array(self.random.choice(SHAPES))
        self.memory.array(slot * SLOT, array.shape)[:] = array
        self.shared[slot] = array

    def array(self, shape):
        return self.values.standard_normal(shape).astype(np.float32)

    def computed(self, op, inputs, backward=False):
        return self.plain.run(op, inputs, backward)[0]

    # ---- What a request may name ----

    def source(self, shape=None):
        """An input: how it is named, its array, and the bytes to send for it."""
        choices = [("resident", h) for h, a in self.resident.items() if shape in (None, a.shape)]
        choices += [("shared", s) for s, a in self.shared.items() if shape in (None, a.shape)]
        kind, which = self.random.choice(choices + [("body", None)])
        if kind == "resident":
            return {"resident": which}, self.resident[which], None
        if kind == "shared":
            array = self.shared[which]
            self.busy.add(which)
            return {"dtype": "f32", "shape": list(array.shape), "memory": 1,
                    "offset": which * SLOT}, array, None
        array = self.array(shape or self.random.choice(SHAPES))
        return None, array, array

    def send(self, kind, op, sources, out, keys):
        """A request of these inputs; returns its id."""
        described, body = operands([array for name, _, array in sources if name is None])
        described = iter(described)
        names = [name or next(described) for name, _, _ in sources]
        keys = {**keys, **({"out": [out]} if out else {})}
        return self.client.request(kind, body, op=op, **{"in": names}, **keys)

    def target(self, result, reads):
        """Where an output goes: None for the body."""
        kind = self.random.choice(["resident", "resident", "shared", "body"])
        if kind == "resident":
            fits = [h for h in HANDLES if h not in reads and
                    (h not in self.resident or self.resident[h].shape == result.shape)]
            if fits:
                handle = self.random.choice(fits)
                self.resident[handle] = result
                return {"resident": handle}
        if kind == "shared":
            slot = self.random.choice(SLOTS)
            if slot not in self.busy:
                self.busy.add(slot)
                self.shared[slot] = result
                return {"memory": 1, "offset": slot * SLOT}
        return None

    # ---- Requests ----

    def forward(self):
        op = self.random.choice(["sigmoid", "square_bias"])
        sources = [self.source()]
        if op == "square_bias":
            sources.append(self.source(sources[0][1].shape))
        result = self.computed(op, [array for _, array, _ in sources])
        reads = {name["resident"] for name, _, _ in sources if name and "resident" in name}
        out = self.target(result, reads)
        keep = {}
        if op == "square_bias" and self.random.random() < .3:
            keep = {"keep": self.next_context}
            self.contexts[self.next_context] = ([a for _, a, _ in sources], reads)
            self.next_context += 1
        number = self.send("forward", op, sources, out, keep)
        self.expected[number] = None if out else result
        if out and "resident" in out:
            self.written(out["resident"])

    def written(self, handle):
        """Contexts that rely on a tensor as it was are over."""
        self.contexts = {i: c for i, c in self.contexts.items() if handle not in c[1]}

    def backward(self):
        if not self.contexts:
            return
        number = self.random.choice(list(self.contexts))
        (x, b), _ = self.contexts[number]
        grad = self.array(x.shape)
        result = self.computed("square_bias", [x, b, grad], backward=True)
        described, body = operands([grad])
        request = self.client.request("backward", body, op="square_bias", context=number,
                                      out=[None, False], **{"in": [None, None] + described})
        self.expected[request] = result

    def put(self):
        handle = self.random.choice(HANDLES)
        shape = self.resident[handle].shape if handle in self.resident else self.random.choice(SHAPES)
        array = self.array(shape)
        data, cut = array.tobytes(), self.random.randrange(array.size + 1) * 4
        pieces = [(0, data)] if self.random.random() < .5 else [(cut, data[cut:]), (0, data[:cut])]
        for offset, piece in pieces:
            number = self.client.request("put", piece, handle=handle, offset=offset,
                                         **{"in": [{"dtype": NAMES[array.dtype],
                                                    "shape": list(shape)}]})
            self.expected[number] = None
        self.resident[handle] = array
        self.written(handle)

    def get(self):
        if not self.resident:
            return
        handle = self.random.choice(list(self.resident))
        array = self.resident[handle]
        begin = self.random.randrange(array.size)
        end = self.random.randrange(begin, array.size) + 1
        number = self.client.request("get", handle=handle, offset=4 * begin, length=4 * (end - begin))
        self.expected[number] = array.reshape(-1)[begin:end]

    def free(self):
        if len(self.resident) < 4:
            return
        handle = self.random.choice(list(self.resident))
        # A context has the same number, it may be; then it goes as well.
        self.expected[self.client.request("free", handle=handle)] = None
        del self.resident[handle]
        self.contexts.pop(handle, None)

    def refused(self):
        """Found out when it comes, behind others that it would have to wait for: it does nothing."""
        handle = self.random.choice(HANDLES)
        inputs = [{"resident": h} for h in (handle, 77)]
        number = self.client.request("forward", op="square_bias", out=[{"resident": handle}],
                                     **{"in": inputs})
        self.expected[number] = NOT_FOUND

    # ---- Rounds ----

    def round(self, kill):
        acts = ([self.forward] * 6 + [self.backward] * 2 + [self.put] * 2 + [self.get] * 2 +
                [self.free, self.refused])
        with self.client.one_write():
            for _ in range(self.random.randrange(1, 60)):
                self.random.choice(acts)()
        if kill:
            os.kill(self.daemon.worker(), signal.SIGKILL)
        while self.expected:
            header, body = self.client.answer()
            want = self.expected.pop(header["id"])
            assert header.get("status", 0) == (want if isinstance(want, int) else 0), header
            if isinstance(want, int):
                continue
            if want is None:
                assert not body, header
            else:
                got = tensors(header, body)[0].tobytes() if header.get("out") else body
                assert got == want.tobytes(), header
        for slot in self.busy:
            got = self.memory.array(slot * SLOT, self.shared[slot].shape)
            assert got.tobytes() == self.shared[slot].tobytes(), slot
        self.busy.clear()
        self.fill(self.random.choice(SLOTS))


def many_rounds(kills):
    print(f"# XOP_SEED={SEED}")
    with Daemon() as daemon:
        world = World(daemon, SEED)
        for i in range(ROUNDS):
            # Four times: a worker that dies again and again is not started again at once.
            world.round(kills and i % (ROUNDS // 4) == 1)
        world.client.close()
        stats = world.plain.document("stats")
        while len(stats["clients"]) > 1 or stats["server"]["attached_bytes"]:
            stats = world.plain.document("stats")


def random_requests_do_what_a_plain_model_says():
    many_rounds(False)


def and_so_they_do_while_workers_die():
    many_rounds(True)


run([random_requests_do_what_a_plain_model_says, and_so_they_do_while_workers_die])
