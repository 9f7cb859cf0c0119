#!/usr/bin/python3
"""Writes the seed corpora beside this file: valid inputs of every kind, for fuzzers to start from."""

import io
import json
import os
import struct

import msgpack
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def write(kind, name, data):
    directory = os.path.join(HERE, "corpus", kind)
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, name), "wb") as f:
        f.write(data)


def frame(header, body=b""):
    packed = msgpack.packb(header)
    return b"XOP1" + struct.pack(">IQ", len(packed), len(body)) + packed + body


X = {"dtype": "f32", "shape": [3, 4], "body": 0}
B = {"dtype": "f32", "shape": [4], "body": 64}
MESSAGES = {
    "hello": ({"type": "hello", "version_min": 1, "version_max": 1, "agent": "a", "token": "t"}, 0),
    "forward": ({"type": "forward", "id": 1, "op": "square_bias", "in": [X, B], "check": True,
                 "attrs": {"a": 1, "b": 0.5, "c": "s", "d": [1, 2], "e": [0.5], "f": True},
                 "deadline_ms": 5, "priority": -3}, 80),
    "backward": ({"type": "backward", "id": 2, "op": "sigmoid", "in": [X, None],
                  "out": [None, False, {"resident": 7, "access": "rw"},
                          {"memory": 1, "offset": 64, "dtype": "f16", "shape": []}]}, 48),
    "put": ({"type": "put", "id": 3, "handle": 9, "in": [{"dtype": "bf16", "shape": [2]}]}, 4),
    "cancel": ({"type": "cancel", "id": 4, "target": 1}, 0),
    "result": ({"type": "result", "id": 1, "out": [X, False, B], "queue_ns": 5, "batch": 2}, 80),
    "failure": ({"type": "result", "id": 1, "status": 3, "error": "no"}, 0),
    "generation": ({"type": "generation", "generation": 2}, 0),
}
for name, (header, body) in MESSAGES.items():
    write("message", name, struct.pack(">H", body) + msgpack.packb(header))
for name, (header, body) in MESSAGES.items():
    write("frame", name, b"\x14" + frame(header, bytes(body)))
write("frame", "stream", b"\x14" + b"".join(frame(header, bytes(body)) for header, body in MESSAGES.values()))
write("reader", "stream", b"\x06" + frame(MESSAGES["hello"][0]) +
      frame(MESSAGES["result"][0], bytes(80)) + frame(MESSAGES["failure"][0]))
write("reader", "whole", b"\xff" + frame(MESSAGES["result"][0], bytes(80)))
for name, array in {"f4": np.ones((2, 3), "f4"), "fortran": np.asfortranarray(np.ones((2, 3))),
                    "big": np.arange(3, dtype=">i4"), "scalar": np.array(1.0)}.items():
    buffer = io.BytesIO()
    np.save(buffer, array)
    write("npy", name, b"\x00" + buffer.getvalue())
header = json.dumps({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
write("npy", "safetensors", b"\x02" + struct.pack("<Q", len(header)) + header + bytes(8))
write("npy", "literal", b"\x03f32:[[1,2],[nan,-inf]]")
write("config", "all", b"[server]\nlisten = unix:/tmp/x\nsocket_mode = 0600\n; comment\n[device]\n"
                       b"inbox = 1G\nbackend = cpu\n[log]\nlevel = debug\n")
write("config", "policies", b"[policy a]\nmatch = uid:1\nmatch = gid:2\nmatch = cert:CN=a,O=b\n"
                            b"match = san:DNS:a\nrole = admin\nrate = 5\nburst = 2\n"
                            b"[policy b]\nmatch = anonymous\nmatch = any\nrole = use\n"
                            b"connections = 3\nin_flight = 4\ninbox = 1M\nresident = 2G\n"
                            b"attached = 1T\npriority = -8\n[policy a]\nmatch = uid:7\n")
write("tokens", "all", b"# names and tokens\n\nci 0123456789abcdef\n\tbuild  sha256:" + b"0a" * 32 +
      b"  \r\n")
