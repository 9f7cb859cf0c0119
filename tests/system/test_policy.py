#!/usr/bin/python3
"""Who may do what: identities and roles, and what is whose."""

import os
import re
import socket

import numpy as np

import certificates
from certificates import Authority, TlsClient
from identities import (KIB, B, ME, WORK, SECRETS, ROOT, TEAM, file_of, digest, daemon,
                        as_one, works, begin, finish, identity, xopctl)
from xopd import (LIMIT_S, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED,
                  UNAUTHENTICATED, Client, Daemon, Memory, operands, raises, run)


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


run([without_policies_everybody_is_served_as_ever,
     a_token_says_who_it_is,
     who_no_policy_is_about_is_refused,
     the_role_none_keeps_out,
     users_and_groups_are_those_that_the_kernel_names,
     over_tcp_there_is_the_token_and_the_address,
     certificates_are_known_by_subject_and_alternative_name,
     administration_is_for_administrators,
     users_see_themselves_in_stats_and_administrators_all,
     nobody_can_name_what_is_anothers,
     policies_and_tokens_are_read_again,
     xopctl_tells_a_token_from_a_file,
     the_library_sends_no_token_in_the_clear_unless_one_insists])
