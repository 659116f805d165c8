"""What can be seen of other nodes: from here by dialing them, from there by asking them."""

from __future__ import annotations

import pathlib
import socket
import ssl
import tempfile
from typing import Any

from quack.certs.verify import verify_certificate
from quack.cluster.target import Target
from quack.config import PeerSpec, TlsConfig
from quack.doctor.equality import check_equality
from quack.doctor.findings import Report
from quack.doctor.machine import wall_clock_ms
from quack.errors import CertificateError, ClusterError

__all__ = ["ask_node", "check_peer"]

_DIAL_S = 3.0
_ASK_S = 5.0
_CLOCK_WARN_MS = 5_000


def check_peer(report: Report, peer: PeerSpec, tls: TlsConfig | None) -> bool:
    """Dial a peer as this node would.

    Returns:
        Whether it can be reached and proves who it is.

    """
    subject = f"{peer.node_id} ({peer.host}:{peer.port})"
    try:
        with socket.create_connection((peer.host, peer.port), _DIAL_S) as plain:
            if tls is None:
                report.good("reach", subject, "accepts connections")
                return True
            return _handshake(report, subject, plain, peer, tls)
    except OSError as error:
        report.bad(
            "reach",
            subject,
            f"cannot be reached: {error.strerror or error}",
            "start the node; check its address in cp_metadata_peers and the firewall between",
        )
        return False


def _handshake(
    report: Report, subject: str, plain: socket.socket, peer: PeerSpec, tls: TlsConfig
) -> bool:
    # Names are checked below by the cluster's own rules, which are stricter than host names.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file)
        with context.wrap_socket(plain, server_hostname=peer.node_id) as channel:
            certificate = channel.getpeercert(binary_form=True)
    except (OSError, ssl.SSLError) as error:
        report.bad(
            "tls",
            subject,
            f"the TLS handshake failed: {error}",
            "is another service on this port? Check the address",
        )
        return False
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "peer.pem"
        file.write_text(ssl.DER_cert_to_PEM_cert(certificate or b""))
        try:
            found = verify_certificate(file, ca_file=tls.ca_file, node_id=peer.node_id, warn_days=0)
        except CertificateError as error:
            report.bad("tls", subject, str(error).replace(str(file), "its certificate"), "")
            return False
    facts = (
        f"names {', '.join(found.names) or 'none'}; issuer {found.issuer}; "
        f"expires {found.expires:%Y-%m-%d %H:%M} UTC"
    )
    for problem in found.problems:
        report.bad(
            "tls",
            subject,
            f"its certificate is refused here: {problem} ({facts})",
            f"on that machine: quack certs issue --node {peer.node_id}, with this cluster's CA",
        )
    if found.ok:
        report.good("tls", subject, f"proves its name: {facts}")
    return found.ok


def ask_node(report: Report, target: Target, name: str, about: str | None) -> list[dict[str, Any]]:
    """Ask one node how it sees itself, the others, and this node.

    Args:
        report: gets the findings.
        target: the node.
        name: what to call it.
        about: node id whose refusals are of interest; None = all.

    Returns:
        Its rows of ``quack_members()``; empty when it does not answer.

    """
    try:
        before = wall_clock_ms()
        with target.open(timeout_s=_ASK_S) as session:
            statistics = session.rows("quack_node_statistics")
            after = wall_clock_ms()
            groups = session.rows("quack_raft_status")
            peers = session.rows("quack_peers")
            members = session.rows("quack_members")
            refusals = session.rows("quack_connection_refusals")
            checksums = session.rows("quack_checksums")
    except ClusterError as error:
        report.bad(
            "status",
            name,
            f"does not answer: {str(error).splitlines()[0]}",
            "start the node; the token of this file must be that of the cluster",
        )
        return []
    _check_clock(report, name, statistics, before, after)
    check_equality(report, name, checksums)
    for group in groups:
        words = f"group {group['group']}: {group['role']}, term {group['term']}"
        words += f", leader {group['leader_id'] or 'unknown'}, applied {group['applied_index']}"
        if group["degraded"]:
            report.bad(
                "status", name, f"{words}; out of service: {group['reason']}", "see the reason"
            )
        elif not group["leader_id"]:
            report.bad("status", name, f"{words}; {group['reason']}", "bring the named nodes back")
        else:
            report.good("status", name, words)
    for peer in peers:
        if peer["connected"] or (about is not None and peer["node_id"] != about):
            continue
        report.bad(
            "seen_from",
            name,
            f"has no session to {peer['node_id']} ({peer['address']}): "
            f"{peer['last_error'] or 'never tried'}",
            "the words above name the fix",
        )
    for refusal in refusals[-3:]:
        if about is None or f"'{about}'" in str(refusal["reason"]):
            report.warn(
                "seen_from",
                name,
                f"refused {refusal['remote_address']} {refusal['ms_ago']} ms ago: "
                f"{refusal['reason']}",
                "the words above name the fix; nothing to do if it has healed since",
            )
    return members


def _check_clock(
    report: Report, name: str, statistics: list[dict[str, Any]], before: int, after: int
) -> None:
    there = next((int(row["value"]) for row in statistics if row["name"] == "wall_clock_ms"), None)
    if there is None:
        return
    off = there - after if there > after else there - before if there < before else 0
    if abs(off) > _CLOCK_WARN_MS:
        report.warn(
            "clock",
            name,
            f"its wall clock is {off} ms off from this machine's",
            "run a time daemon on both: certificates and logs depend on it, consistency does not",
        )
    else:
        report.good("clock", name, f"within {max(abs(off), after - before)} ms of this machine's")
