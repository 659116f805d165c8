"""Certificates of a cluster: one authority, node certificates, client certificates, checks."""

from __future__ import annotations

from quack.certs.authority import CertificateAuthority, IssuedFiles
from quack.certs.verify import CertificateReport, verify_certificate

__all__ = ["CertificateAuthority", "CertificateReport", "IssuedFiles", "verify_certificate"]
