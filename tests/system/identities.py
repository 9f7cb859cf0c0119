"""Policies and tokens for system tests, and clients that show them."""

import hashlib
import os
import subprocess
import tempfile
import time

import numpy as np

from xopd import BUILD, LIMIT_S, Daemon, frame, operands

KIB, MIB = 1 << 10, 1 << 20
X, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)
ME = f"uid:{os.geteuid()}"
WORK = tempfile.TemporaryDirectory()
SECRETS = {name: f"{name}-0123456789abcdef" for name in ("red", "blue", "boss")}

ROOT = """
[policy boss]
match = token:boss
role = admin
"""
TEAM = """
[policy team]
match = token:red
match = token:blue
role = use
"""


def file_of(name, text, mode=0o600):
    path = os.path.join(WORK.name, name)
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


def digest(secret):
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()


TOKENS = file_of("tokens", f"red {SECRETS['red']}\nblue {SECRETS['blue']}\n"
                           f"boss {digest(SECRETS['boss'])}\n")


def daemon(policies, server="", **keys):
    """The policies, with the tokens of all; on several I/O threads, so that identities span them."""
    return Daemon(config=f"[server]\nio_threads = 3\ntokens = {TOKENS}\n{server}\n{policies}",
                  **keys)


def as_one(server, name):
    return server.client(token=SECRETS[name])


def works(client):
    assert np.array_equal(client.run("square_bias", [X, B])[0], X * X + B)


def begin(client, arrays=(X, B), **keys):
    """A request of whose body the last bytes are still to come; these, and its number."""
    described, body = operands(arrays)
    number = client.next_id
    client.next_id += 1
    data = frame({"type": "forward", "id": number, "op": "square_bias", "in": described, **keys},
                 body)
    client.send_raw(data[:-4])
    return number, data[-4:]


def finish(client, begun):
    number, rest = begun
    client.send_raw(rest)
    header, _ = client.answer()
    assert header["id"] == number and not header.get("status"), header


def identity(watcher, name):
    for found in watcher.document("stats")["identities"]:
        if found["identity"] == name:
            return found
    raise AssertionError(f"{name} is not listed")


def until(holds):
    """Each look is a request and its answer."""
    deadline = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < deadline, "it does not come about"


def until_used(watcher, name, quota, used):
    until(lambda: identity(watcher, name)["quotas"][quota]["used"] == used)


def xopctl(address, *arguments):
    done = subprocess.run([os.path.join(BUILD, "xopctl"), "-s", address, *arguments],
                          capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, done.stdout, done.stderr
