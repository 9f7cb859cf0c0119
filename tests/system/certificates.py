"""Certificates for system tests, made with openssl, and a client that shows them."""

import os
import socket
import ssl
import subprocess

from xopd import LIMIT_S, Client, Closed

CA_CONFIG = """[ca]
default_ca = own
[own]
dir = {0}
database = {0}/index
serial = {0}/serial
new_certs_dir = {0}
certificate = {0}/ca.pem
private_key = {0}/ca.key
default_md = sha256
default_days = 2
default_crl_days = 2
unique_subject = no
copy_extensions = copy
policy = any
[any]
commonName = supplied
organizationName = optional
"""


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=LIMIT_S)


class Authority:
    """A CA in a directory of its own."""

    def __init__(self, directory):
        os.mkdir(directory)
        self.directory, self.config = directory, os.path.join(directory, "ca.conf")
        with open(self.config, "w") as f:
            f.write(CA_CONFIG.format(directory))
        open(self.at("index"), "w").close()
        with open(self.at("serial"), "w") as f:
            f.write("01\n")
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", self.at("ca.key"), "-out", self.at("ca.pem"), "-subj", "/CN=test CA",
                "-days", "2")

    def at(self, name):
        return os.path.join(self.directory, name)

    def issue(self, name, *dates, alternative="IP:127.0.0.1,DNS:localhost", subject=None):
        """Files of a certificate for `name` and of its key."""
        certificate, key, request = (self.at(name + end) for end in (".pem", ".key", ".csr"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                key, "-out", request, "-subj", subject or f"/CN={name}", "-addext",
                f"subjectAltName={alternative}")
        openssl("ca", "-batch", "-notext", "-config", self.config, "-in", request, "-out",
                certificate, *dates)
        return certificate, key

    def revoke(self, *certificates):
        for certificate in certificates:
            openssl("ca", "-config", self.config, "-revoke", certificate)
        openssl("ca", "-config", self.config, "-gencrl", "-out", self.at("crl.pem"))
        return self.at("crl.pem")


def context(authority, certificate):
    """What a client knows: whom it trusts, and the certificate that it shows, if any."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.load_verify_locations(authority.at("ca.pem"))
    made.set_alpn_protocols(["xop/1"])
    if certificate:
        made.load_cert_chain(*certificate)
    return made


def plain(server):
    port = int(server.wait_for(r"listening on tls:127.0.0.1:(\d+)").group(1))
    return socket.create_connection(("127.0.0.1", port), LIMIT_S)


class TlsClient(Client):
    """As Client, over TLS; descriptors do not come here."""

    def __init__(self, server, made, session=None, token=None):
        self.socket = made.wrap_socket(plain(server), server_hostname="127.0.0.1", session=session)
        self.next_id, self.held, self.notices, self.early = 1, None, [], []
        self.greet(token)

    def read(self, n):
        data = bytearray()
        while len(data) < n:
            piece = self.socket.recv(min(n - len(data), 1 << 20))
            if not piece:
                raise Closed()
            data.extend(piece)
        return bytes(data)
