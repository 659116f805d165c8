"""Goal: identities follow the contract, and each way to break it is named."""

from __future__ import annotations

import datetime
import json
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from quack.certs import CertificateAuthority, verify_certificate
from quack.cli.main import main
from quack.errors import CertificateError


@pytest.fixture
def authority(tmp_path):
    return CertificateAuthority.create(tmp_path / "ca")


def test_a_node_identity_fulfils_the_contract(authority, tmp_path):
    files = authority.issue_node(tmp_path / "n0", "n0", hosts=["127.0.0.1", "db.example"])
    report = verify_certificate(
        files.cert_file, key_file=files.key_file, ca_file=files.ca_file, node_id="n0"
    )
    assert report.ok, report.problems
    assert {"DNS:n0", "URI:n0", "IP:127.0.0.1", "DNS:db.example"} <= set(report.names)
    assert set(report.usages) == {"serverAuth", "clientAuth"}
    assert files.key_file.stat().st_mode & 0o077 == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.cert_file, files.key_file)


def test_wrong_name_says_expected_and_seen(authority, tmp_path):
    files = authority.issue_node(tmp_path, "n1", hosts=[])
    report = verify_certificate(files.cert_file, node_id="n0")
    assert any("expected the name DNS:n0" in p and "DNS:n1" in p for p in report.problems)
    assert any("expected the name URI:n0" in problem for problem in report.problems)


def test_a_client_identity_is_no_node(authority, tmp_path):
    files = authority.issue_client(tmp_path, "analyst")
    report = verify_certificate(files.cert_file, node_id="analyst")
    assert any("serverAuth" in problem for problem in report.problems)


def test_another_authority_is_named(authority, tmp_path):
    files = authority.issue_node(tmp_path / "a", "n0", hosts=[])
    CertificateAuthority.create(tmp_path / "other", name="other CA")
    report = verify_certificate(files.cert_file, ca_file=tmp_path / "other" / "ca.pem")
    assert any("other CA" in p and "quack cluster CA" in p for p in report.problems)


def test_expired(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "n0")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=2)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    file = tmp_path / "old.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    report = verify_certificate(file, node_id="n0")
    assert any(problem.startswith("expired at") for problem in report.problems)
    assert any("only CN=n0" in problem for problem in report.problems)


def test_an_authority_is_never_overwritten(authority, tmp_path):
    with pytest.raises(CertificateError, match="holds an authority already"):
        CertificateAuthority.create(tmp_path / "ca")
    assert CertificateAuthority.open(tmp_path / "ca")


def test_command_line(tmp_path, capsys, monkeypatch):
    def run(*arguments: str) -> int:
        monkeypatch.setattr("sys.argv", ["quack", *arguments])
        return main()

    ca, out = str(tmp_path / "ca"), str(tmp_path / "n7")
    assert run("certs", "init-ca", "--ca-dir", ca) == 0
    assert run("certs", "issue", "--ca-dir", ca, "--node", "n7", "--out-dir", out) == 0
    capsys.readouterr()
    assert run("certs", "verify", f"{out}/n7.pem", "--node", "n7", "--json") == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert run("certs", "verify", f"{out}/n7.pem", "--node", "n8") == 1
    assert "expected the name DNS:n8" in capsys.readouterr().out
    assert run("certs", "init-ca", "--ca-dir", ca) == 1
    assert "never" not in capsys.readouterr().out
    assert run("certs", "verify", str(tmp_path / "none.pem")) == 1
    assert "not a readable PEM" in capsys.readouterr().err
    assert run("certs", "issue", "--ca-dir", ca, "--out-dir", out) == 2
    assert run("no-such-command") == 2
