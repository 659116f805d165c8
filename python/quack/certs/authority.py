"""A small certificate authority for one cluster (RFC 5280, ECDSA P-256)."""

from __future__ import annotations

import datetime
import ipaddress
import os
import pathlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quack.errors import CertificateError

__all__ = ["CertificateAuthority", "IssuedFiles"]

_CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True)
class IssuedFiles:
    """Where an issued identity was written. The key file is readable by its owner only."""

    cert_file: pathlib.Path
    key_file: pathlib.Path
    ca_file: pathlib.Path


def _write(path: pathlib.Path, content: bytes, mode: int) -> None:
    """Write through a temporary file and a rename, so that a reader never sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.rename(path)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


class CertificateAuthority:
    """The key and certificate that sign every identity of one cluster."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(
        cls, folder: pathlib.Path, *, name: str = "quack cluster CA", days: int = 3650
    ) -> CertificateAuthority:
        """Make a new authority in ``folder/ca.pem`` and ``folder/ca.key``.

        Raises:
            CertificateError: an authority is there already; it is never overwritten.

        """
        if (folder / "ca.key").exists() or (folder / "ca.pem").exists():
            raise CertificateError(
                f"{folder}: holds an authority already (ca.pem, ca.key). Choose another folder; "
                "replacing it would cut off every node that it signed."
            )
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(sign_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "ca.key", _key_pem(key), 0o600)
        _write(folder / "ca.pem", certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        return cls(certificate, key)

    @classmethod
    def open(cls, folder: pathlib.Path) -> CertificateAuthority:
        """Open an authority made by `create`.

        Raises:
            CertificateError: a file is missing, unreadable, or key and certificate do not match.

        """
        try:
            certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
            key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"{folder}: no usable authority ({error}). Make one with `quack certs init-ca`."
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateError(f"{folder}/ca.key: expected an ECDSA key")
        if key.public_key() != certificate.public_key():
            raise CertificateError(f"{folder}: ca.key does not belong to ca.pem")
        return cls(certificate, key)

    def issue_node(
        self, folder: pathlib.Path, node_id: str, *, hosts: list[str], days: int = 825
    ) -> IssuedFiles:
        """Issue a node certificate: ``DNS:<node_id>``, ``URI:<node_id>``, both usages, ``hosts``.

        Args:
            folder: receives ``<node_id>.pem``, ``<node_id>.key`` and a copy of ``ca.pem``.
            node_id: the node's name in the configuration.
            hosts: further names and addresses that clients dial.
            days: lifetime.

        """
        names: list[x509.GeneralName] = [
            x509.DNSName(node_id),
            x509.UniformResourceIdentifier(node_id),
        ]
        names += [_general_name(host) for host in hosts if host != node_id]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._issue(folder, node_id, names, usages, days)

    def issue_client(self, folder: pathlib.Path, name: str, *, days: int = 825) -> IssuedFiles:
        """Issue a client certificate: ``URI:<name>``, client usage; no good for a node."""
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(name)]
        return self._issue(folder, name, names, [ExtendedKeyUsageOID.CLIENT_AUTH], days)

    def _issue(
        self,
        folder: pathlib.Path,
        name: str,
        names: list[x509.GeneralName],
        usages: list[x509.ObjectIdentifier],
        days: int,
    ) -> IssuedFiles:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        end = min(now + datetime.timedelta(days=days), self._certificate.not_valid_after_utc)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCK_SKEW)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
            .sign(self._key, hashes.SHA256())
        )
        folder.mkdir(parents=True, exist_ok=True)
        files = IssuedFiles(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")
        _write(files.key_file, _key_pem(key), 0o600)
        _write(files.cert_file, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        authority = self._certificate.public_bytes(serialization.Encoding.PEM)
        if not files.ca_file.exists() or files.ca_file.read_bytes() != authority:
            _write(files.ca_file, authority, 0o644)
        return files


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )
