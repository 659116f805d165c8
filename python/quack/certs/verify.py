"""Checks a certificate against the identity contract of the cluster, before a node meets it."""

from __future__ import annotations

import datetime
import pathlib
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quack.errors import CertificateError

__all__ = ["CertificateReport", "verify_certificate"]


@dataclass(frozen=True)
class CertificateReport:
    """What a certificate says, and every way in which it breaks the contract.

    Attributes:
        names: ``DNS:``, ``URI:`` and ``IP:`` subject alternative names.
        problems: empty when the certificate can be used; each entry says what to do.

    """

    file: str
    common_name: str
    names: list[str]
    usages: list[str]
    issuer: str
    expires: datetime.datetime
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems


_USAGES = {
    ExtendedKeyUsageOID.SERVER_AUTH: "serverAuth",
    ExtendedKeyUsageOID.CLIENT_AUTH: "clientAuth",
}


def _load(path: pathlib.Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CertificateError(f"{path}: not a readable PEM certificate ({error})") from error


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    names = [f"DNS:{name}" for name in san.get_values_for_type(x509.DNSName)]
    names += [f"URI:{name}" for name in san.get_values_for_type(x509.UniformResourceIdentifier)]
    names += [f"IP:{name}" for name in san.get_values_for_type(x509.IPAddress)]
    return names


def _usages(certificate: x509.Certificate) -> list[str]:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return []
    return [_USAGES.get(oid, oid.dotted_string) for oid in usage]


def _common_name(name: x509.Name) -> str:
    found = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def verify_certificate(
    cert_file: pathlib.Path,
    *,
    key_file: pathlib.Path | None = None,
    ca_file: pathlib.Path | None = None,
    node_id: str | None = None,
    warn_days: int = 30,
) -> CertificateReport:
    """Read a certificate and check it.

    Args:
        cert_file: PEM certificate.
        key_file: its private key, to check that both belong together.
        ca_file: the authority that must have signed it.
        node_id: check the node contract for this name: ``DNS:`` and ``URI:`` names, both usages.
        warn_days: report an expiry nearer than this.

    Raises:
        CertificateError: a file cannot be read at all.

    """
    certificate = _load(cert_file)
    names, usages = _names(certificate), _usages(certificate)
    problems: list[str] = []
    now = datetime.datetime.now(datetime.UTC)
    expires = certificate.not_valid_after_utc
    if now > expires:
        problems.append(f"expired at {expires:%Y-%m-%d %H:%M} UTC: issue a new one")
    elif expires - now < datetime.timedelta(days=warn_days):
        problems.append(f"expires soon, at {expires:%Y-%m-%d %H:%M} UTC: issue a new one")
    if now < certificate.not_valid_before_utc:
        start = certificate.not_valid_before_utc
        problems.append(f"not valid before {start:%Y-%m-%d %H:%M} UTC: check this machine's clock")
    if node_id is not None:
        seen = ", ".join(names) or f"none (only CN={_common_name(certificate.subject)})"
        for wanted in (f"DNS:{node_id}", f"URI:{node_id}"):
            if wanted not in names:
                problems.append(f"expected the name {wanted}, the certificate has {seen}")
        for usage in ("serverAuth", "clientAuth"):
            if usage not in usages:
                problems.append(f"expected the usage {usage}, has {', '.join(usages) or 'none'}")
    if ca_file is not None:
        problems += _check_issuer(certificate, _load(ca_file), ca_file)
    if key_file is not None:
        problems += _check_key(certificate, key_file)
    return CertificateReport(
        file=str(cert_file),
        common_name=_common_name(certificate.subject),
        names=names,
        usages=usages,
        issuer=certificate.issuer.rfc4514_string(),
        expires=expires,
        problems=problems,
    )


def _check_issuer(
    certificate: x509.Certificate, authority: x509.Certificate, ca_file: pathlib.Path
) -> list[str]:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return [
            f"not signed by {ca_file} ({authority.subject.rfc4514_string()}); "
            f"its issuer is {certificate.issuer.rfc4514_string()}"
        ]
    return []


def _check_key(certificate: x509.Certificate, key_file: pathlib.Path) -> list[str]:
    try:
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        return [f"{key_file}: not a readable private key"]
    encoding, form = serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    ours = key.public_key().public_bytes(encoding, form)
    if ours != certificate.public_key().public_bytes(encoding, form):
        return [f"{key_file}: the key does not belong to this certificate"]
    return []
