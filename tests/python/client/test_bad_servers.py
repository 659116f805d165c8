"""Goal: whatever answers at the address, the client says what came and what it expected, quickly."""

from __future__ import annotations

import contextlib
import datetime
import ipaddress
import pathlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator

import duckdb
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import quack
from quack.certs import CertificateAuthority
from quack.cluster.local import LocalCluster


@contextlib.contextmanager
def server(answer: bytes | None, context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Answer every connection with fixed bytes; None = keep silent."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        open_sockets = []
        while not stop.is_set():
            try:
                peer, _ = listener.accept()
            except OSError:
                break
            try:
                if context:
                    peer = context.wrap_socket(peer, server_side=True)
                peer.recv(65536)
                if answer is None:
                    open_sockets.append(peer)
                    continue
                peer.sendall(answer)
                peer.close()
            except OSError:
                continue
        for held in open_sockets:
            held.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stop.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def http(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


def attach_error(port: int, options: str = "plaintext true") -> str:
    session = quack.connect()
    begun = time.monotonic()
    with pytest.raises(duckdb.Error) as error:
        session.execute(
            f"ATTACH 'quack:127.0.0.1:{port}' AS cp (TYPE quack, TOKEN 'secret-token', {options})"
        )
    assert time.monotonic() - begun < 10
    session.close()
    assert "secret-token" not in str(error.value)
    assert str(port) in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer in HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x50", "client_ca_file"),
        (b"", "closed the connection"),
        (http(b"", "500 Internal Server Error"), "HTTP status 500"),
        (http(b"garbage, no message at all"), "no Quack message"),
        (http(b""), "no Quack message"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", "middle of an answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n", "larger than"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100000, "does not answer in HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n", "larger than"),
    ],
)
def test_strange_answers(answer: bytes, message: str) -> None:
    with server(answer) as port:
        text = attach_error(port)
    assert message in text
    assert "outcome_unknown" not in text  # a login has no outcome to ask for


def test_protocol_version_of_duckdb_15() -> None:
    """A CONNECTION_RESPONSE that says version 1 is refused with both versions."""
    unset = b"\xff" * 9 + b"\x01"
    header = b"\x01\x00\x02" + b"\x02\x00\x04abcd" + b"\x03\x00" + unset + b"\xff\xff"
    body = b"\x01\x00\x06v1.5.5" + b"\x02\x00\x0blinux_amd64" + b"\x03\x00\x01" + b"\xff\xff"
    with server(http(header + body)) as port:
        text = attach_error(port)
    assert "version 1, expected 3" in text


def test_silence_ends_at_an_interrupt() -> None:
    with server(None) as port:
        session = quack.connect()
        timer = threading.Timer(0.5, session.interrupt)
        timer.start()
        begun = time.monotonic()
        with pytest.raises(duckdb.InterruptException):
            session.execute(
                f"ATTACH 'quack:127.0.0.1:{port}' AS cp (TYPE quack, TOKEN 't', plaintext true)"
            )
        assert time.monotonic() - begun < 3
        session.close()


def test_silence_ends_at_the_deadline() -> None:
    with server(None) as port:
        text = attach_error(port, "plaintext true, request_timeout_ms 700")
    assert "before the deadline" in text


def expired_certificate(folder: pathlib.Path) -> tuple[pathlib.Path, ssl.SSLContext]:
    """A certificate for 127.0.0.1 that was valid until yesterday, and the CA that signed it."""
    now = datetime.datetime.now(datetime.UTC)
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test CA")])

    def build(
        subject: x509.Name, public: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(ca_name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=30))
            .not_valid_after(now + datetime.timedelta(days=days))
        )

    ca = (
        build(ca_name, ca_key.public_key(), 30)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    leaf = (
        build(x509.Name([]), key.public_key(), -1)
        .add_extension(names, critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(ca.public_bytes(pem))
    (folder / "leaf.pem").write_bytes(leaf.public_bytes(pem))
    (folder / "leaf.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "leaf.pem", folder / "leaf.key")
    return folder / "ca.pem", context


def test_expired_certificate(tmp_path: pathlib.Path) -> None:
    ca, context = expired_certificate(tmp_path)
    with server(b"", context) as port:
        text = attach_error(port, f"client_ca_file '{ca}'")
    assert "expired" in text and "valid until" in text and "renew" in text


@pytest.mark.cluster
def test_client_certificate_beside_the_token(cluster: LocalCluster, tmp_path: pathlib.Path) -> None:
    files = CertificateAuthority.open(cluster.folder / "ca").issue_client(tmp_path, "analyst")
    session = quack.connect()
    ca = cluster.folder / "ca" / "ca.pem"
    session.execute(
        f"ATTACH 'quack:{cluster.nodes[0].endpoint}' AS cp (TYPE quack, TOKEN '{cluster.token}',"
        f" client_ca_file '{ca}', cert_file '{files.cert_file}', key_file '{files.key_file}')"
    )
    assert session.execute("FROM cp.query('SELECT 1')").fetchall() == [(1,)]
    session.close()
    other = quack.connect()
    with pytest.raises(duckdb.Error, match="key_file"):
        other.execute(
            f"ATTACH 'quack:{cluster.nodes[0].endpoint}' AS cp (TYPE quack, TOKEN 'x', client_ca_file '{ca}',"
            f" cert_file '{files.cert_file}', key_file '{ca}')"
        )
    other.close()


@pytest.mark.cluster
def test_node_that_leaves_during_the_handshake_is_passed_over(cluster: LocalCluster) -> None:
    """A killed node's port may still take a connection: that is no refusal, the next node is asked."""
    ca = cluster.folder / "ca" / "ca.pem"
    with server(b"") as port:
        assert "[quack:unavailable]" in attach_error(port, f"client_ca_file '{ca}'")
        session = quack.connect()
        session.execute(
            f"ATTACH 'quack:127.0.0.1:{port},{cluster.nodes[0].endpoint}' AS cp (TYPE quack, TOKEN '{cluster.token}',"
            f" client_ca_file '{ca}')"
        )
        session.execute("CREATE OR REPLACE TABLE cp.passed AS SELECT 1 AS i")
        assert session.execute("FROM cp.passed").fetchall() == [(1,)]
        session.close()
