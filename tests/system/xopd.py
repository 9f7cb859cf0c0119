"""A real xopd for system tests, and a client of its own that speaks the wire from the specification.

The client shares no code with the C sources: what docs/protocol.md says has to be enough. A test
program calls run(tests) with a list of functions; each prints an `ok` or `not ok` line.
"""

import array
import contextlib
import fcntl
import json
import mmap
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import msgpack
import numpy as np

BUILD = os.environ.get("XOP_BUILD", "build")
BACKEND = os.environ.get("XOP_BACKEND", "cpu")
DTYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64,
          "bool": np.bool_}
NAMES = {np.dtype(t): n for n, t in DTYPES.items()}
LIMIT_S = 120  # how long anything may take before the test gives up; no test measures time


class Failed(Exception):
    """A response whose status is not OK."""

    def __init__(self, header):
        super().__init__(f"{header.get('status')}: {header.get('error')}")
        self.status = header.get("status", 0)
        self.message = header.get("error", "")
        self.header = header


class Closed(Exception):
    """The server closed the connection."""


def frame(header, body=b""):
    packed = header if isinstance(header, bytes) else msgpack.packb(header)
    return b"XOP1" + struct.pack(">IQ", len(packed), len(body)) + packed + body


def operands(arrays):
    """Descriptions of arrays laid one after the other in a body, and the body."""
    described, body = [], bytearray()
    for a in arrays:
        if a is None: # an input that is left out
            described.append(None)
            continue
        a = np.ascontiguousarray(a) if a.ndim else a
        body.extend(bytes(-len(body) % 64) if a.nbytes else b"")
        at = len(body) if a.nbytes else len(body) // 64 * 64
        described.append({"dtype": NAMES[a.dtype], "shape": list(a.shape), "body": at})
        body.extend(a.tobytes())
    return described, bytes(body)


def tensors(header, body):
    """The arrays of a result; None for what is omitted, the map itself for what lies elsewhere."""
    found = []
    for t in header.get("out", []):
        if not isinstance(t, dict):
            found.append(None)
            continue
        dtype, n = np.dtype(DTYPES[t["dtype"]]), int(np.prod(t["shape"], dtype=np.int64))
        if "body" not in t:
            found.append(t)
            continue
        at = t["body"]
        found.append(np.frombuffer(body[at:at + n * dtype.itemsize], dtype).reshape(t["shape"]))
    return found


class Client:
    def __init__(self, address, hello=True, token=None):
        family, where = address
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(LIMIT_S)
        self.socket.connect(where)
        self.next_id = 1
        self.held = None # frames for one write
        self.notices = []
        self.early = []  # frames that came while another was waited for
        self.descriptors = []
        if hello:
            self.greet(token)

    def greet(self, token=None):
        self.send({"type": "hello", "version_min": 1, "version_max": 1, "agent": "test",
                   **({"token": token} if token else {})})
        self.hello, _ = self.receive()
        if self.hello["type"] == "error":
            raise Failed(self.hello)
        assert self.hello["type"] == "hello", self.hello

    def close(self):
        self.socket.close()

    def send(self, header, body=b""):
        if self.held is None:
            self.socket.sendall(frame(header, body))
        else:
            self.held += frame(header, body)

    @contextlib.contextmanager
    def one_write(self):
        """What is sent within goes out together."""
        self.held = b""
        yield
        held, self.held = self.held, None
        self.socket.sendall(held)

    def send_raw(self, data):
        self.socket.sendall(data)

    def read(self, n):
        data = bytearray()
        while len(data) < n:
            piece, parts, _, _ = self.socket.recvmsg(min(n - len(data), 1 << 20),
                                                     socket.CMSG_SPACE(16))
            for _, _, data_ in parts:
                self.descriptors.extend(array.array("i", data_))
            if not piece:
                raise Closed()
            data.extend(piece)
        return bytes(data)

    def receive(self):
        return self.early.pop(0) if self.early else self.next_frame()

    def next_frame(self):
        magic, header, body = struct.unpack(">4sIQ", self.read(16))
        assert magic == b"XOP1", magic
        return msgpack.unpackb(self.read(header)), self.read(body)

    def answer(self):
        """The next result; notices are kept aside."""
        while True:
            header, body = self.receive()
            if header["type"] not in ("generation", "goaway"):
                return header, body
            self.notices.append(header)

    def request(self, kind, body=b"", **keys):
        number = self.next_id
        self.next_id += 1
        self.send({"type": kind, "id": number, **keys}, body)
        return number

    def submit(self, op, arrays, backward=False, **keys):
        described, body = operands(arrays)
        return self.request("backward" if backward else "forward", body, op=op, **{"in": described},
                            **keys)

    def run(self, op, arrays, backward=False, **keys):
        number = self.submit(op, arrays, backward, **keys)
        header, body = self.answer()
        assert header["type"] == "result" and header["id"] == number, header
        if header.get("status", 0):
            raise Failed(header)
        return tensors(header, body)

    def document(self, kind, **keys):
        """What that request answers; what comes before it is kept for receive."""
        number = self.request(kind, **keys)
        header, body = self.next_frame()
        while header.get("id") != number:
            self.early.append((header, body))
            header, body = self.next_frame()
        if header.get("status", 0):
            raise Failed(header)
        assert header["media"] == "application/json"
        return json.loads(body)

    def ask(self, kind, body=b"", **keys):
        """A request that has nothing but a body to give back."""
        number = self.request(kind, body, **keys)
        header, answer = self.answer()
        assert header["type"] == "result" and header["id"] == number, header
        if header.get("status", 0):
            raise Failed(header)
        return answer

    def put(self, handle, value, **keys):
        type_ = {"dtype": NAMES[value.dtype], "shape": list(value.shape)}
        return self.ask("put", value.tobytes(), handle=handle, **{"in": [type_]}, **keys)

    def get(self, handle, like):
        answer = self.ask("get", handle=handle, offset=0, length=like.nbytes)
        return np.frombuffer(answer, like.dtype).reshape(like.shape)

    def send_with(self, descriptors, header, body=b""):
        """The descriptors go with the frame's first byte."""
        data = frame(header, body)
        sent = self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                             array.array("i", descriptors))])
        self.socket.sendall(data[sent:])

    def attach(self, memory, descriptor, length, write=True):
        number = self.next_id
        self.next_id += 1
        self.send_with([descriptor], {"type": "attach", "id": number, "memory": memory,
                                      "length": length, "write": write})
        header, _ = self.answer()
        assert header["id"] == number, header
        if header.get("status", 0):
            raise Failed(header)

    def error_then_close(self):
        """The error frame that ends this connection, or None if it was just closed."""
        try:
            header, _ = self.receive()
        except (Closed, ConnectionError):
            return None
        try:
            while True:
                self.receive()
        except (Closed, ConnectionError):
            return header


F_ADD_SEALS, SEAL_SHRINK = 1033, 2


class Memory:
    """A memfd, sealed as the protocol asks, and mapped."""

    def __init__(self, length, seals=SEAL_SHRINK):
        self.descriptor = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, length)
        if seals:
            fcntl.fcntl(self.descriptor, F_ADD_SEALS, seals)
        self.length = length
        self.map = mmap.mmap(self.descriptor, length)

    def array(self, offset, shape, dtype=np.float32):
        n = int(np.prod(shape))
        return np.frombuffer(self.map, dtype, n, offset).reshape(shape)


@contextlib.contextmanager
def faulty_operators():
    """Arguments for a daemon that has the operator `fault` (tests/faults)."""
    with tempfile.TemporaryDirectory() as directory:
        name = f"fault-{BACKEND}.so"
        shutil.copy(os.path.join(BUILD, "ops-faulty", name), os.path.join(directory, name))
        yield "--operators", directory


class Manager:
    """Stands where a service manager does: receives what the daemon notifies."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.path = f"\0xopd-test-{os.getpid()}-{id(self)}"
        self.socket.bind(self.path)
        self.socket.settimeout(LIMIT_S)
        self.env = {"NOTIFY_SOCKET": "@" + self.path[1:]}

    def receive(self):
        """The next message, as a dictionary."""
        lines = self.socket.recv(65536).decode().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def until(self, **wanted):
        """The first message that has all of these."""
        while True:
            message = self.receive()
            if all(message.get(key) == value for key, value in wanted.items()):
                return message


class Daemon:
    """xopd on a Unix socket in a directory of its own; a context manager."""

    def __init__(self, *arguments, listen=None, config=None, env=None, ready=True, passed=None):
        """passed: sockets by names, as a service manager would pass them; listen is then none."""
        self.directory = tempfile.mkdtemp(prefix="xopd-test-")
        self.path = os.path.join(self.directory, "xopd.sock")
        command = [os.path.join(BUILD, "xopd"), "--backend", BACKEND]
        self.file = os.path.join(self.directory, "xopd.conf")
        if config is not None:
            self.write_config(config)
            command += ["-c", self.file]
        for address in listen or ([] if passed else [f"unix:{self.path}"]):
            command += ["--listen", address]
        command += arguments
        descriptors = [(socket_.fileno(), name) for name, socket_ in passed or []]
        if passed:
            # Only what is to become the daemon knows its process id and may number descriptors.
            moves = " ".join(f"{3 + i}<&{fd}" for i, (fd, _) in enumerate(descriptors))
            names = ":".join(name for _, name in descriptors)
            command = ["bash", "-c", f"exec {moves}; export LISTEN_PID=$$ LISTEN_FDS={len(passed)} "
                       f"LISTEN_FDNAMES={names}; exec \"$@\"", "bash"] + command
        self.log, self.lines = "", threading.Condition()
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})}, errors="replace",
                                        pass_fds=[fd for fd, _ in descriptors])
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()
        if ready:
            try:
                self.wait_for("ready: ")
            except Exception:
                self.stop()
                raise

    def write_config(self, text):
        with open(self.file, "w") as f:
            f.write(text)

    def reload(self, text, says="the configuration was read again"):
        """Has it read another configuration; returns the line of the log that ends this."""
        with self.lines:
            before = len(re.findall(says, self.log))
        self.write_config(text)
        self.process.send_signal(signal.SIGHUP)
        return self.wait_for(f".*{says}.*", before + 1).group()

    def _read_log(self):
        for line in self.process.stderr:
            with self.lines:
                self.log += line
                self.lines.notify_all()
        with self.lines:
            self.log += "(end)"
            self.lines.notify_all()

    def wait_for(self, pattern, count=1):
        """Waits until the log has that many lines that match; returns the last match."""
        deadline = time.monotonic() + LIMIT_S
        with self.lines:
            while True:
                found = list(re.finditer(pattern, self.log))
                if len(found) >= count:
                    return found[count - 1]
                if self.log.endswith("(end)") or time.monotonic() > deadline:
                    raise AssertionError(f"no {pattern!r} in the log:\n{self.log}")
                self.lines.wait(1)

    def address(self):
        return socket.AF_UNIX, self.path

    def client(self, **keys):
        return Client(self.address(), **keys)

    def children(self):
        """Process ids of front and workers, by name."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/stat") as f:
                    stat = f.read()
                name, rest = stat[stat.index("(") + 1:stat.rindex(")")], stat[stat.rindex(")") + 2:]
                if int(rest.split()[1]) == self.process.pid and rest.split()[0] != "Z":
                    found.setdefault(name, []).append(int(pid))
        return found

    def worker(self):
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            pids = self.children().get("xopd-worker", [])
            if pids:
                return pids[0]
            select.select([], [], [], 0.01)
        raise AssertionError("no worker:\n" + self.log)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.reader.join()
        shutil.rmtree(self.directory, ignore_errors=True)
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        code = self.stop()
        for bad in ("AddressSanitizer", "runtime error:", "ThreadSanitizer", "LeakSanitizer"):
            if bad in self.log:
                raise AssertionError("a sanitizer spoke:\n" + self.log)
        if kind is None and code != 0:
            raise AssertionError(f"xopd exited with {code}:\n{self.log}")
        if kind is not None:
            sys.stderr.write("---- log of xopd\n" + self.log + "\n----\n")


def raises(status, fragment, call, *arguments, **keys):
    try:
        call(*arguments, **keys)
    except Failed as e:
        assert e.status == status, f"status {e.status} ({e.message}), expected {status}"
        assert fragment in e.message, f"{fragment!r} is not in {e.message!r}"
        return e
    raise AssertionError(f"no error; expected {status} with {fragment!r}")


def run(tests):
    failed = 0
    for number, test in enumerate(tests, 1):
        name = test.__name__.replace("_", " ")
        try:
            test()
            print(f"ok {number} - {name}", flush=True)
        except Exception:
            failed += 1
            print(f"not ok {number} - {name}", flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)


INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED = 3, 4, 5, 6, 7
FAILED_PRECONDITION, ABORTED, DATA_LOSS = 9, 10, 15
RESOURCE_EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE, CANCELLED = 8, 12, 13, 14, 1
UNAUTHENTICATED = 16
DEVICE_FAULT = 64
