#!/usr/bin/python3
"""Who may do what, and how much of it: identities, roles, quotas that are reached and given back."""

import array
import hashlib
import os
import re
import select
import socket
import subprocess
import tempfile
import time

import numpy as np

import certificates
from certificates import Authority, TlsClient
from xopd import (BUILD, LIMIT_S, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAUTHENTICATED,
                  Client, Daemon, Failed, Memory, frame, operands, raises, run)

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


# ---- Who it is


def without_policies_everybody_is_served_as_ever():
    with Daemon() as server:
        client = server.client(token="whatever this is for")
        works(client)
        stats = client.document("stats")
        assert stats["clients"][0]["identity"] == ME, stats
        assert stats["clients"][0]["policy"] == "administrators", stats
        assert stats["clients"][0]["role"] == "admin", stats
        assert client.hello["max_in_flight"] == 4096, client.hello
        assert stats["identities"] == [{"identity": ME, "policy": "administrators",
                                        "role": "admin", "connections": 1, "rate": 0,
                                        "priority": 7, "quotas": {}}], stats


def a_token_says_who_it_is():
    with daemon(ROOT + TEAM + f"[policy me]\nmatch = {ME}\nrole = use\n") as server:
        for name in SECRETS:
            client = as_one(server, name)
            works(client)
            mine = client.document("stats")["clients"]
            assert {c["identity"] for c in mine} >= {f"token:{name}"}, mine
        works(server.client())
        e = raises(UNAUTHENTICATED, "not one that this server knows", server.client,
                   token=SECRETS["red"] + "x")
        assert SECRETS["red"] not in e.message
        server.wait_for("refused: the token is not one that this server knows")
        # The digest that stands in the file is no token.
        raises(UNAUTHENTICATED, "", server.client, token=digest(SECRETS["boss"]))
        assert not any(secret in server.log for secret in SECRETS.values()), server.log


def who_no_policy_is_about_is_refused():
    with daemon(TEAM) as server:
        raises(PERMISSION_DENIED, f"{ME} may not use this server: no policy is about it",
               server.client)
        works(as_one(server, "red"))
        raises(PERMISSION_DENIED, "token:boss may not use", as_one, server, "boss")


def the_role_none_keeps_out():
    with daemon("[policy out]\nmatch = token:red\nrole = none\n[policy in]\nmatch = any\n"
                "role = use\n") as server:
        raises(PERMISSION_DENIED, "token:red may not use this server (policy out)", as_one, server,
               "red")
        works(as_one(server, "blue"))
        works(server.client())


def users_and_groups_are_those_that_the_kernel_names():
    if os.geteuid() != 0:
        return # others cannot be played
    name = f"@xopd-test-policy-{os.getpid()}"
    policies = ("[policy team]\nmatch = gid:4242\nrole = use\n"
                "[policy one]\nmatch = uid:1234\nrole = admin\n")

    def connect(uid, gid, groups):
        had = os.getgroups()
        os.setgroups(groups)
        os.setegid(gid)
        os.seteuid(uid)
        try:
            return Client((socket.AF_UNIX, "\0" + name[1:]))
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(had)

    with daemon(policies, listen=["unix:" + name]) as server:
        found = {}
        for uid, gid, groups in (1234, 1, []), (1235, 4242, []), (1236, 1, [7, 4242]):
            client = connect(uid, gid, groups)
            works(client)
            found[uid] = client # they stay
        raises(PERMISSION_DENIED, "uid:1237 may not use", connect, 1237, 1, [4241])
        raises(PERMISSION_DENIED, "uid:0 may not use", connect, 0, 0, [])
        clients = found[1234].document("stats")["clients"]
        assert sorted((c["identity"], c["policy"], c["role"]) for c in clients
                      if c["identity"]) == [("uid:1234", "one", "admin"),
                                            ("uid:1235", "team", "use"),
                                            ("uid:1236", "team", "use")], clients


def tcp(server, token=None):
    port = int(server.wait_for(r"listening on tcp:127.0.0.1:(\d+)").group(1))
    return Client((socket.AF_INET, ("127.0.0.1", port)), token=token)


def over_tcp_there_is_the_token_and_the_address():
    listen = ["tcp:127.0.0.1:0"]
    with daemon(TEAM, "insecure_tcp = yes", listen=listen) as server:
        raises(UNAUTHENTICATED, "give a token", tcp, server)
        works(tcp(server, SECRETS["red"]))
        server.wait_for("its token came in the clear")
    anonymous = "[policy guests]\nmatch = anonymous\nrole = use\nconnections = 1\n"
    with daemon(TEAM + anonymous, "insecure_tcp = yes", listen=listen) as server:
        guest = tcp(server)
        works(guest)
        assert guest.document("stats")["identities"][0]["identity"] == "address:127.0.0.1"
        raises(RESOURCE_EXHAUSTED, "address:127.0.0.1 may have 1 connections (policy guests", tcp,
               server)
        works(tcp(server, SECRETS["red"]))


def certificates_are_known_by_subject_and_alternative_name():
    ca = Authority(os.path.join(WORK.name, "ca"))
    shown = {"server": ca.issue("server"), "alice": ca.issue("alice"),
             "lab": ca.issue("bob", subject="/CN=bob/O=lab"),
             "ci": ca.issue("ci", alternative="DNS:ci.lab,URI:spiffe://lab/ci"),
             "mail": ca.issue("carol", alternative="email:carol@lab"),
             "stranger": ca.issue("mallory", alternative="DNS:ci.lab.evil"),
             # One name, with an end of line in it.
             "forger": ca.issue("eve", alternative=r"DNS:x\nURI:spiffe://lab/ci")}
    tls = (f"[tls]\ncert = {shown['server'][0]}\nkey = {shown['server'][1]}\n"
           f"client_ca = {ca.at('ca.pem')}\nrequire_client_cert = no\n")
    policies = ("[policy alice]\nmatch = cert:CN=alice\nrole = admin\n"
                "[policy lab]\nmatch = cert:O=lab\nmatch = san:email:carol@lab\nrole = use\n"
                "[policy robots]\nmatch = san:URI:spiffe://lab/ci\nrole = use\n")

    def connect(server, name, **keys):
        return TlsClient(server, certificates.context(ca, shown.get(name)), **keys)

    with daemon(tls + policies + TEAM, listen=["tls:127.0.0.1:0"]) as server:
        expected = {"alice": ("cert:CN=alice", "alice"), "lab": ("cert:O=lab,CN=bob", "lab"),
                    "ci": ("san:URI:spiffe://lab/ci", "robots"),
                    "mail": ("san:email:carol@lab", "lab")}
        for name, (known_as, policy) in expected.items():
            client = connect(server, name)
            works(client)
            found = [(i["identity"], i["policy"]) for i in client.document("stats")["identities"]]
            assert (known_as, policy) in found, found
        raises(PERMISSION_DENIED, "cert:CN=mallory may not use this server", connect, server,
               "stranger")
        raises(PERMISSION_DENIED, "cert:CN=eve may not use this server", connect, server, "forger")
        raises(UNAUTHENTICATED, "give a token, or a certificate", connect, server, "nobody")
        works(connect(server, "nobody", token=SECRETS["blue"]))
        # A certificate does not make up for a token that is wrong.
        raises(UNAUTHENTICATED, "the token is not one", connect, server, "alice", token="wrong")


# ---- What it may do


def administration_is_for_administrators():
    with daemon(ROOT + TEAM) as server:
        red, boss = as_one(server, "red"), as_one(server, "boss")
        for kind, keys in (("define", {"text": "x"}), ("load", {"text": "x"}), ("drain", {}),
                           ("reload", {})):
            raises(PERMISSION_DENIED, f'"{kind}" is for administrators: token:red has the role '
                   '"use" (policy team)', red.ask, kind, **keys)
        number = boss.request("load", text="x")
        header, _ = boss.answer()
        assert header["id"] == number and header.get("status") != PERMISSION_DENIED, header
        works(red)


def users_see_themselves_in_stats_and_administrators_all():
    with daemon(ROOT + TEAM) as server:
        red, also_red = as_one(server, "red"), as_one(server, "red")
        blue, boss = as_one(server, "blue"), as_one(server, "boss")
        for client, seen in ((red, ["token:red"] * 2), (also_red, ["token:red"] * 2),
                             (blue, ["token:blue"]),
                             (boss, ["token:blue", "token:boss"] + ["token:red"] * 2)):
            stats = client.document("stats")
            assert sorted(c["identity"] for c in stats["clients"]) == seen, stats["clients"]
            assert sorted(i["identity"] for i in stats["identities"]) == sorted(set(seen)), stats


# ---- How much of it


def connections_are_counted_by_identity():
    with daemon(TEAM.replace("role", "connections = 2\nrole")) as server:
        first, _second = as_one(server, "red"), as_one(server, "red")
        raises(RESOURCE_EXHAUSTED, "token:red may have 2 connections (policy team.connections), of "
               "which 2 are used: no 1 more", as_one, server, "red")
        works(as_one(server, "blue"))
        first.close()
        server.wait_for("client 1 .* ended")
        works(as_one(server, "red"))


def requests_in_flight_are_counted_by_identity():
    with daemon(ROOT + TEAM.replace("role", "in_flight = 2\nrole")) as server:
        boss, blue = as_one(server, "boss"), as_one(server, "blue")
        some, others = as_one(server, "red"), as_one(server, "red")
        assert some.hello["max_in_flight"] == 2, some.hello
        assert boss.hello["max_in_flight"] == 4096, boss.hello
        begun = begin(some), begin(others)
        until_used(boss, "token:red", "in_flight", 2)
        third = as_one(server, "red")
        raises(RESOURCE_EXHAUSTED, "token:red may have 2 requests in flight (policy "
               "team.in_flight), of which 2 are used", third.run, "square_bias", [X, B])
        assert third.document("ping")["ready"] # which is answered at once
        works(blue)
        finish(some, begun[0])
        works(third)
        finish(others, begun[1])
        until_used(boss, "token:red", "in_flight", 0)
        # One that is cancelled, late, refused or its connection's last is given back too.
        number, _ = begin(some, deadline_ms=1)
        header, _ = some.answer()
        assert header["id"] == number and header["status"] == 4, header
        raises(NOT_FOUND, "there is no operator", third.run, "no_such", [X, B])
        begin(others)
        others.close()
        until_used(boss, "token:red", "in_flight", 0)
        works(third)


def bytes_of_requests_are_counted_by_identity():
    with daemon(ROOT + TEAM.replace("role", "inbox = 1M\nrole")) as server:
        boss, blue = as_one(server, "boss"), as_one(server, "blue")
        some, others = as_one(server, "red"), as_one(server, "red")
        assert some.hello["max_body"] == MIB, some.hello
        x, b = np.ones(150000, np.float32), np.ones(1, np.float32)
        begun = begin(some, [x, b])
        until(lambda: identity(boss, "token:red")["quotas"]["inbox"]["used"] > 0)
        raises(RESOURCE_EXHAUSTED, "token:red may have 1048576 bytes of requests (policy "
               "team.inbox)", others.run, "square_bias", [x, b])
        works(others) # there is room for a small one
        assert np.array_equal(blue.run("square_bias", [x, b])[0], x * x + b)
        finish(some, begun)
        assert np.array_equal(others.run("square_bias", [x, b])[0], x * x + b)
        raises(RESOURCE_EXHAUSTED, "policy team.inbox", others.run, "square_bias",
               [np.ones(300000, np.float32), b])
        begin(some, [x, b])
        some.close()
        until_used(boss, "token:red", "inbox", 0)


def bytes_of_resident_tensors_are_counted_by_identity():
    with daemon(ROOT + TEAM.replace("role", "resident = 1M\nrole")) as server:
        boss, blue = as_one(server, "boss"), as_one(server, "blue")
        some, others = as_one(server, "red"), as_one(server, "red")
        large = np.ones(150000, np.float32)
        some.put(1, large)
        raises(RESOURCE_EXHAUSTED, "token:red may have 1048576 bytes of resident tensors (policy "
               "team.resident), of which 600000 are used: no 600000 more", others.put, 1, large)
        # An output and what a context keeps count as well.
        described, body = operands([large, B[:1]])
        number = others.request("forward", body, op="square_bias", out=[{"resident": 5}],
                                **{"in": described})
        header, _ = others.answer()
        assert header["id"] == number and header["status"] == RESOURCE_EXHAUSTED, header
        number = others.request("forward", body, op="square_bias", keep=9, **{"in": described})
        header, _ = others.answer()
        assert header["id"] == number and header["status"] == RESOURCE_EXHAUSTED, header
        blue.put(1, large)
        some.ask("free", handle=1)
        others.put(1, large)
        assert np.array_equal(others.get(1, large), large)
        others.close()
        until_used(boss, "token:red", "resident", 0)
        some.put(1, large)


def bytes_of_attached_memory_are_counted_by_identity():
    with daemon(ROOT + TEAM.replace("role", "attached = 1M\nrole")) as server:
        boss, blue = as_one(server, "boss"), as_one(server, "blue")
        some, others = as_one(server, "red"), as_one(server, "red")
        memory = Memory(MIB)
        some.attach(1, memory.descriptor, 600 * KIB)
        raises(RESOURCE_EXHAUSTED, "token:red may have 1048576 bytes of attached memory (policy "
               "team.attached)", others.attach, 1, memory.descriptor, 600 * KIB)
        blue.attach(1, memory.descriptor, MIB)
        some.ask("detach", memory=1)
        until_used(boss, "token:red", "attached", 0)
        others.attach(1, memory.descriptor, MIB)
        others.close()
        until_used(boss, "token:red", "attached", 0)
        some.attach(1, memory.descriptor, MIB)


def wait_as_told(error):
    select.select([], [], [], int(re.search(r"try again in (\d+) ms", error).group(1)) / 1000)


def requests_come_at_a_rate():
    with daemon(TEAM.replace("role", "rate = 1\nburst = 5\nrole")) as server:
        red, blue = as_one(server, "red"), as_one(server, "blue")
        with red.one_write():
            for _ in range(200):
                red.request("ping")
        answers = [red.answer()[0] for _ in range(200)]
        assert not any(a.get("status", 0) for a in answers[:5]), answers[:5]
        refused = [a for a in answers if a.get("status", 0)]
        assert refused and {a["status"] for a in refused} == {RESOURCE_EXHAUSTED}, refused
        pause = re.fullmatch(r"token:red may send 1 requests a second, 5 at once \(policy "
                             r"team.rate\): try again in (\d+) ms", refused[-1]["error"])
        assert pause and 0 < int(pause.group(1)) <= 1000, refused[-1]
        works(blue)
        # What frees is let through, and a new connection starts with what is left.
        raises(NOT_FOUND, "", red.ask, "free", handle=1)
        raises(NOT_FOUND, "", red.ask, "cancel", target=999)
        again = as_one(server, "red")
        with again.one_write():
            for _ in range(200):
                again.request("ping")
        assert any([again.answer()[0].get("status", 0) for _ in range(200)])
        try:
            again.document("ping")
        except Failed as e:
            wait_as_told(e.message)
        assert again.document("ping")["ready"]


def attach_after_a_refused_one(client, wait, before=b""):
    """The first is refused, with the beginning of another frame behind it; when wait is over, the
    rest of that and the second go out together."""
    client.next_id += 1000
    number, small, large = client.next_id, Memory(64 * KIB), Memory(MIB)
    attach = {"type": "attach", "id": number, "memory": 1, "length": 64 * KIB}
    between = frame({"type": "free", "id": number + 1, "handle": 1})
    second = frame({**attach, "id": number + 2, "length": MIB})

    def send(data, memory):
        client.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                        array.array("i", [memory.descriptor]))])

    send(before + frame(attach) + between[:10], small)
    header = {"id": 0}
    while header["id"] != number:
        header, _ = client.answer()
    assert header["status"] == RESOURCE_EXHAUSTED, header
    wait(header["error"])
    send(between[10:] + second, large)
    assert client.answer()[0]["status"] == NOT_FOUND
    header, _ = client.answer()
    assert header["id"] == number + 2 and not header.get("status"), header # small would not do


def a_descriptor_of_a_refused_attach_is_not_the_next_ones():
    with daemon(ROOT + TEAM.replace("role", "in_flight = 1\nrole")) as server:
        boss, some, others = (as_one(server, n) for n in ("boss", "red", "red"))
        begun = begin(some)
        until_used(boss, "token:red", "in_flight", 1)
        attach_after_a_refused_one(others, lambda _: finish(some, begun))
    with daemon(TEAM.replace("role", "rate = 1\nburst = 2\nrole")) as server:
        pings = b"".join(frame({"type": "ping", "id": n}) for n in range(1, 100))
        attach_after_a_refused_one(as_one(server, "red"), wait_as_told, pings)


def one_that_has_used_up_everything_is_no_matter_to_another():
    limits = "connections = 3\nin_flight = 1\ninbox = 64K\nresident = 4K\nattached = 64K\nrole"
    with daemon(ROOT + TEAM.replace("role", limits)) as server:
        boss, hog, more = (as_one(server, n) for n in ("boss", "red", "red"))
        hog.put(1, np.ones(1024, np.float32))
        memory = Memory(64 * KIB)
        hog.attach(1, memory.descriptor, 64 * KIB)
        begun = begin(hog, [np.ones(15000, np.float32), B[:1]])
        until_used(boss, "token:red", "in_flight", 1)
        _third = as_one(server, "red")
        raises(RESOURCE_EXHAUSTED, "connections", as_one, server, "red")
        for _ in range(20):
            raises(RESOURCE_EXHAUSTED, "in flight", more.run, "square_bias", [X, B])
        blue = as_one(server, "blue")
        for handle in range(1, 5):
            works(blue)
            blue.put(handle, np.ones(256, np.float32))
        blue.attach(1, memory.descriptor, 64 * KIB)
        assert np.array_equal(blue.get(4, np.ones(256, np.float32)), np.ones(256, np.float32))
        mine = blue.document("stats")["identities"]
        assert [(i["identity"], i["quotas"]["resident"]["used"]) for i in mine] == \
               [("token:blue", 4096)], mine
        finish(hog, begun)
        works(more)


def nobody_can_name_what_is_anothers():
    """Not even another connection of the same identity."""
    with daemon(ROOT + TEAM) as server:
        owner = as_one(server, "red")
        value = np.arange(1024, dtype=np.float32)
        owner.put(7, value)
        memory = Memory(64 * KIB)
        memory.array(0, 1024)[:] = value
        owner.attach(3, memory.descriptor, 64 * KIB)
        described, body = operands([value, B[:1]])
        owner.ask("forward", body, op="square_bias", keep=5, **{"in": described})
        begun = begin(owner)
        for name in "red", "blue", "boss":
            other = as_one(server, name)
            type_ = {"dtype": "f32", "shape": [1024]}
            raises(NOT_FOUND, "resident tensor 7", other.get, 7, value)
            raises(NOT_FOUND, "7", other.ask, "free", handle=7)
            raises(NOT_FOUND, "5", other.ask, "free", handle=5)
            raises(NOT_FOUND, "resident tensor 7", other.ask, "forward", op="square_bias",
                   **{"in": [{**type_, "resident": 7}, {**type_, "resident": 7}]})
            raises(NOT_FOUND, "no memory 3", other.ask, "forward", op="square_bias",
                   **{"in": [{**type_, "memory": 3, "offset": 0}] * 2})
            raises(NOT_FOUND, "no memory 3", other.ask, "put", handle=1,
                   **{"in": [{**type_, "memory": 3, "offset": 0}]})
            raises(NOT_FOUND, "no memory 3", other.ask, "detach", memory=3)
            raises(NOT_FOUND, "no context 5", other.ask, "backward", value.tobytes(),
                   op="square_bias", context=5, **{"in": [{**type_, "body": 0}]})
            raises(NOT_FOUND, f"request {begun[0]}", other.ask, "cancel", target=begun[0])
            # The same numbers are free here, and what they name is another thing.
            other.put(7, -value)
            assert np.array_equal(other.get(7, value), -value)
        finish(owner, begun)
        assert np.array_equal(owner.get(7, value), value)
        assert np.array_equal(memory.array(0, 1024), value)


# ---- Clients


def policies_and_tokens_are_read_again():
    tokens = file_of("changing", f"red {SECRETS['red']}\nblue {SECRETS['blue']}\n")
    config = f"[server]\ntokens = {tokens}\n{TEAM}"
    with Daemon(config=config) as server:
        red, blue = as_one(server, "red"), as_one(server, "blue")
        file_of("changing", f"red {SECRETS['red']}\ngreen {SECRETS['blue']}\n")
        server.reload(config, "policy team.match: there is no token \"blue\"")
        works(blue)  # what is wrong changes nothing
        server.reload(f"[server]\ntokens = {tokens}\n"
                      "[policy team]\nmatch = token:red\nrole = use\nin_flight = 1\n")
        server.wait_for("may not stay")
        assert blue.error_then_close()
        works(red)
        assert red.document("stats")["identities"][0]["quotas"]["in_flight"]["limit"] == 1
        raises(UNAUTHENTICATED, "", lambda: as_one(server, "boss"))


def xopctl(address, *arguments):
    done = subprocess.run([os.path.join(BUILD, "xopctl"), "-s", address, *arguments],
                          capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, done.stdout, done.stderr


def xopctl_tells_a_token_from_a_file():
    with daemon(ROOT + TEAM.replace("role", "resident = 1M\nrole")) as server:
        address = "unix:" + server.path
        right = file_of("right", f"  {SECRETS['red']}\n")
        code, output, errors = xopctl(address, "--token-file", right, "stats")
        assert code == 0 and re.search(r"token:red +team +use +1 +- +- +0 B/1.0 MiB +-", output), \
            (output, errors)
        code, _, errors = xopctl(address, "ping")
        assert code == 77 and f"{ME} may not use this server" in errors, (code, errors)
        wrong = file_of("wrong", "something else entirely\n".replace(" ", "-"))
        code, _, errors = xopctl(address, "--token-file", wrong, "ping")
        assert code == 77 and "the token is not one" in errors, (code, errors)
        for text, mode, said in ((SECRETS["red"], 0o644, "chmod o= it"),
                                 ("", 0o600, "a token is expected"),
                                 ("two words", 0o600, "a token is expected"),
                                 ("x" * 4097, 0o600, "at most 4096 bytes")):
            code, _, errors = xopctl(address, "--token-file", file_of("bad", text, mode), "ping")
            assert code == 66 and said in errors, (code, errors)
        code, _, errors = xopctl(address, "--token-file", "/no/such", "ping")
        assert code == 66 and "No such file" in errors, (code, errors)
        code, output, errors = xopctl(address, "--token-file", right, "bench", "square_bias",
                                      "--clients", "2", "--seconds", "0.1", "--json")
        assert code == 0 and '"errors": 0' in output, (output, errors)


def the_library_sends_no_token_in_the_clear_unless_one_insists():
    with daemon(TEAM, "insecure_tcp = yes", listen=["tcp:127.0.0.1:0"]) as server:
        port = server.wait_for(r"listening on tcp:127.0.0.1:(\d+)").group(1)
        address, token = f"tcp:127.0.0.1:{port}", file_of("red", SECRETS["red"])
        code, _, errors = xopctl(address, "--token-file", token, "ping")
        assert code == 64 and "use tls:, or insist" in errors, (code, errors)
        assert "came in the clear" not in server.log
        code, _, errors = xopctl(address, "--token-file", token, "--insecure-token", "ping")
        assert code == 0, errors
        server.wait_for("came in the clear")


def a_library_keeps_within_what_it_was_promised():
    """It holds back what would be too many in flight, so that nothing is refused."""
    limits = "connections = 2\nin_flight = 3\ninbox = 256K\nrole"
    with daemon(TEAM.replace("role", limits)) as server:
        token = file_of("red", SECRETS["red"])
        code, output, errors = xopctl("unix:" + server.path, "--token-file", token, "bench",
                                      "square_bias", "--shape", "16,16", "--inflight", "32",
                                      "--no-shm", "--seconds", "0.2", "--json")
        assert code == 0 and '"errors": 0' in output, (output, errors)


run([without_policies_everybody_is_served_as_ever,
     a_token_says_who_it_is,
     who_no_policy_is_about_is_refused,
     the_role_none_keeps_out,
     users_and_groups_are_those_that_the_kernel_names,
     over_tcp_there_is_the_token_and_the_address,
     certificates_are_known_by_subject_and_alternative_name,
     administration_is_for_administrators,
     users_see_themselves_in_stats_and_administrators_all,
     connections_are_counted_by_identity,
     requests_in_flight_are_counted_by_identity,
     bytes_of_requests_are_counted_by_identity,
     bytes_of_resident_tensors_are_counted_by_identity,
     bytes_of_attached_memory_are_counted_by_identity,
     requests_come_at_a_rate,
     a_descriptor_of_a_refused_attach_is_not_the_next_ones,
     one_that_has_used_up_everything_is_no_matter_to_another,
     nobody_can_name_what_is_anothers,
     policies_and_tokens_are_read_again,
     xopctl_tells_a_token_from_a_file,
     the_library_sends_no_token_in_the_clear_unless_one_insists,
     a_library_keeps_within_what_it_was_promised])
