#!/usr/bin/python3
"""TLS as a client meets it: who is let in, who is not and what the log says of it."""

import fcntl
import os
import shutil
import socket
import ssl
import subprocess
import tempfile

import numpy as np

import certificates
from certificates import Authority, TlsClient, plain
from xopd import BUILD, LIMIT_S, Closed, Daemon, run

X, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(3, np.float32)

WORK = tempfile.TemporaryDirectory()
CA = Authority(os.path.join(WORK.name, "right"))
OTHER = Authority(os.path.join(WORK.name, "other"))
SERVER, ALICE, MALLORY = CA.issue("server"), CA.issue("alice"), CA.issue("mallory")
EXPIRED = CA.issue("late", "-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
STRANGER = OTHER.issue("alice")
CONFIG = (f"[tls]\ncert = {SERVER[0]}\nkey = {SERVER[1]}\nclient_ca = {CA.at('ca.pem')}\n"
          f"crl = {CA.revoke(MALLORY[0])}\n")


def daemon(extra=""):
    return Daemon(listen=["tls:127.0.0.1:0"], config=CONFIG + extra)


def context(certificate=ALICE):
    return certificates.context(CA, certificate)


def works(client):
    assert np.array_equal(client.run("square_bias", [X, B])[0], X * X + B)


def is_refused(server, made, reason):
    """That client is not served, and the log says why."""
    try:
        TlsClient(server, made)
    except (OSError, Closed):
        pass
    else:
        raise AssertionError("it was let in")
    server.wait_for("refused: .*" + reason)


def refused(made, reason):
    with daemon() as server:
        is_refused(server, made, reason)
        works(TlsClient(server, context()))


def the_right_certificate_is_served_and_named_in_the_log():
    with daemon() as server:
        client = TlsClient(server, context())
        works(client)
        assert client.socket.version() == "TLSv1.3"
        assert client.socket.selected_alpn_protocol() == "xop/1"
        server.wait_for("TLSv1.3 .*CN=alice")


def a_certificate_of_another_authority_is_refused():
    refused(context(STRANGER), "(unable to get local issuer|signature failure|self.signed)")


def an_expired_certificate_is_refused():
    refused(context(EXPIRED), "certificate has expired")


def a_revoked_certificate_is_refused():
    refused(context(MALLORY), "certificate revoked")


def no_certificate_is_refused():
    refused(context(None), "peer did not return a certificate")


def tls_1_2_is_refused():
    made = context()
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    refused(made, "unsupported protocol")


def another_protocol_is_refused():
    made = context()
    made.set_alpn_protocols(["h2"])
    refused(made, "no application protocol")


def no_certificate_is_asked_for_where_it_is_not_required():
    with daemon("require_client_cert = no\n") as server:
        works(TlsClient(server, context(None)))


def plain_bytes_are_refused():
    with daemon() as server:
        raw = plain(server)
        raw.sendall(b"XOP1" + bytes(60))
        server.wait_for("refused: TLS: ")
        works(TlsClient(server, context()))


def a_handshake_that_stands_still_is_ended():
    with daemon("handshake_timeout_ms = 50\n") as server:
        raw = plain(server)
        assert raw.recv(1) == b""
        server.wait_for("no TLS handshake in time")


def handshakes_count_as_connections():
    with daemon("[server]\nmax_connections = 1\n") as server:
        raw = plain(server)
        server.wait_for(r"client 1 \(.*\): connected")
        assert plain(server).recv(1) == b""
        server.wait_for("refused: there are 1 connections already")
        raw.close()


def a_session_is_resumed():
    with daemon() as server:
        made = context()
        first = TlsClient(server, made)
        works(first)
        again = TlsClient(server, made, first.socket.session)
        works(again)
        assert again.socket.session_reused
        server.wait_for("resumed.*CN=alice")


def large_tensors_go_both_ways():
    x = np.arange(5 << 20, dtype=np.float32).reshape(-1, 1024)
    b = np.ones(1024, np.float32)
    with daemon() as server:
        client = TlsClient(server, context())
        for _ in range(3):
            assert np.array_equal(client.run("square_bias", [x, b])[0], x * x + b)


def many_small_requests_in_one_write_are_all_answered():
    with daemon() as server:
        client = TlsClient(server, context())
        with client.one_write():
            numbers = {client.submit("square_bias", [X, B]) for _ in range(2000)}
        for _ in range(2000):
            header, _ = client.answer()
            assert not header.get("status", 0), header
            numbers.remove(header["id"])


def files_that_cannot_be_used_are_named():
    wrong = CONFIG.replace(SERVER[1], ALICE[1])
    server = Daemon(listen=["tls:127.0.0.1:0"], config=wrong, ready=False)
    server.wait_for("tls.key .*: key values mismatch")
    assert server.process.wait(LIMIT_S) == 69
    server.stop()


def xopctl(server, *arguments, host="127.0.0.1", ca=CA, certificate=ALICE):
    port = server.wait_for(r"listening on tls:127.0.0.1:(\d+)").group(1)
    shown = ["--cert", certificate[0], "--key", certificate[1]] if certificate else []
    done = subprocess.run([os.path.join(BUILD, "xopctl"), "-s", f"tls:{host}:{port}", "--ca",
                           ca.at("ca.pem"), *shown, *arguments],
                          capture_output=True, text=True, timeout=LIMIT_S)
    return done.returncode, done.stdout, done.stderr


def a_reload_reads_certificates_and_the_revocation_list_again():
    bob, crl = CA.issue("bob"), CA.at("other.crl")
    shutil.copy(CA.at("crl.pem"), crl)
    config = CONFIG.replace("crl.pem", "other.crl")
    with Daemon(listen=["tls:127.0.0.1:0"], config=config) as server:
        before = TlsClient(server, context(bob))
        CA.revoke(bob[0])
        # Nothing is read before it is asked for.
        TlsClient(server, context(bob)).close()
        shutil.copy(CA.at("crl.pem"), crl)
        renewed = CA.issue("renewed")
        server.reload(config.replace(SERVER[0], renewed[0]).replace(SERVER[1], renewed[1]))
        is_refused(server, context(bob), "certificate revoked")
        after = TlsClient(server, context(ALICE))
        subject = dict(pair[0] for pair in after.socket.getpeercert()["subject"])
        assert subject["commonName"] == "renewed", subject
        # Who is there stays, whatever its certificate is worth now.
        assert np.array_equal(before.run("sigmoid", [X])[0], after.run("sigmoid", [X])[0])


def a_socket_that_was_passed_speaks_tls():
    made = socket.create_server(("127.0.0.1", 0))
    passed = socket.socket(fileno=fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, 50))
    made.close()
    with Daemon(config=CONFIG, passed=[("tls", passed)]) as server:
        works(TlsClient(server, context()))
        server.wait_for("TLSv1.3 .*CN=alice")


def tls_files_that_cannot_be_used_change_nothing():
    with daemon() as server:
        client = TlsClient(server, context())
        broken = CONFIG.replace(SERVER[1], ALICE[1]) + "[server]\nmax_connections = 1\n"
        line = server.reload(broken, "the configuration stays as it was")
        assert "tls.key" in line and ALICE[1] in line, line
        other = TlsClient(server, context())  # there may be two, and the key is the old one
        for one in (client, other):
            assert one.run("sigmoid", [X])[0].shape == X.shape


def the_library_verifies_names_and_numbers():
    with daemon() as server:
        for host in "127.0.0.1", "localhost":
            code, _, errors = xopctl(server, "ping", host=host)
            assert code == 0, errors
        server.wait_for("CN=alice", 2)


def the_library_refuses_another_authority_and_another_name():
    with daemon() as server:
        code, _, errors = xopctl(server, "ping", ca=OTHER)
        assert code == 77 and "tls:127.0.0.1" in errors, (code, errors)
        code, _, errors = xopctl(server, "ping", host="127.1")
        assert code == 77 and "mismatch" in errors, (code, errors)


def the_library_says_why_the_server_refused_it():
    with daemon() as server:
        code, _, errors = xopctl(server, "ping", certificate=None)
        assert code == 69 and "certificate required" in errors, (code, errors)
        code, _, errors = xopctl(server, "ping", certificate=(ALICE[0], MALLORY[1]))
        assert code == 64 and MALLORY[1] in errors, (code, errors)


def the_library_carries_large_tensors_and_many_requests():
    with daemon() as server:
        code, output, errors = xopctl(server, "verify", "square_bias", "--shape", "2048,1024")
        assert code == 0, (output, errors)
        code, output, errors = xopctl(server, "bench", "square_bias", "--clients", "2",
                                      "--inflight", "64", "--seconds", "0.2", "--json")
        assert code == 0 and '"errors": 0' in output, (output, errors)


run([the_right_certificate_is_served_and_named_in_the_log,
     a_certificate_of_another_authority_is_refused,
     an_expired_certificate_is_refused,
     a_revoked_certificate_is_refused,
     no_certificate_is_refused,
     tls_1_2_is_refused,
     another_protocol_is_refused,
     no_certificate_is_asked_for_where_it_is_not_required,
     plain_bytes_are_refused,
     a_handshake_that_stands_still_is_ended,
     handshakes_count_as_connections,
     a_session_is_resumed,
     large_tensors_go_both_ways,
     many_small_requests_in_one_write_are_all_answered,
     files_that_cannot_be_used_are_named,
     a_reload_reads_certificates_and_the_revocation_list_again,
     a_socket_that_was_passed_speaks_tls,
     tls_files_that_cannot_be_used_change_nothing,
     the_library_verifies_names_and_numbers,
     the_library_refuses_another_authority_and_another_name,
     the_library_says_why_the_server_refused_it,
     the_library_carries_large_tensors_and_many_requests])
