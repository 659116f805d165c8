"""What can be seen on the machine itself: files, certificates, disk, port, versions."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import socket
import time

import duckdb

import quack
from quack.certs.verify import verify_certificate
from quack.config import NodeConfig
from quack.doctor.findings import Report
from quack.errors import CertificateError, ExtensionError
from quack.extension import SUPPORTED_DUCKDB, extension_path
from quack.offline import lock_owner

__all__ = ["check_certificate", "check_data_directory", "check_port", "check_versions"]

_FREE_BYTES_BAD = 256 * 2**20
_FREE_BYTES_WARN = 2 * 2**30
_WARN_DAYS = 30


def check_versions(report: Report) -> None:
    """DuckDB and the extension must fit each other, on every node alike."""
    subject = f"quack-duckdb {quack.__version__}, DuckDB {duckdb.__version__}"
    if duckdb.__version__ != SUPPORTED_DUCKDB:
        report.bad(
            "versions",
            subject,
            f"this release runs with DuckDB {SUPPORTED_DUCKDB}",
            f"pip install duckdb=={SUPPORTED_DUCKDB}",
        )
        return
    try:
        report.good("versions", subject, f"extension {extension_path()}")
    except ExtensionError as error:
        report.bad("versions", subject, str(error), "install the wheel of this platform")


def check_certificate(report: Report, config: NodeConfig, node_id: str) -> None:
    """The node's own identity, by the same rules that its peers apply."""
    tls = config.cluster_mode.tls
    if tls is None:
        report.warn(
            "certificate",
            node_id,
            "none: plain text on loopback",
            "set cluster_mode.tls before other machines take part",
        )
        return
    try:
        found = verify_certificate(
            tls.cert_file,
            key_file=tls.key_file,
            ca_file=tls.ca_file,
            node_id=node_id,
            warn_days=0,
        )
    except CertificateError as error:
        report.bad(
            "certificate", str(tls.cert_file), str(error), "quack certs issue --node " + node_id
        )
        return
    facts = (
        f"names {', '.join(found.names) or 'none'}; usages {', '.join(found.usages) or 'none'}; "
        f"issuer {found.issuer}; expires {found.expires:%Y-%m-%d %H:%M} UTC"
    )
    for problem in found.problems:
        report.bad(
            "certificate", found.file, f"{problem} ({facts})", f"quack certs issue --node {node_id}"
        )
    left = found.expires - datetime.datetime.now(datetime.UTC)
    if not found.problems and left < datetime.timedelta(days=_WARN_DAYS):
        report.warn(
            "certificate",
            found.file,
            f"expires in {left.days} days ({facts})",
            f"quack certs issue --node {node_id}; running nodes reload the files by themselves",
        )
    elif not found.problems:
        report.good("certificate", found.file, facts)
    mode = tls.key_file.stat().st_mode & 0o077 if tls.key_file.exists() else 0
    if mode:
        report.warn(
            "certificate",
            str(tls.key_file),
            "the private key can be read by others on this machine",
            f"chmod 600 {tls.key_file}",
        )


def check_data_directory(report: Report, config: NodeConfig, node_id: str) -> bool:
    """Whose directory it is, whether it can be written, how much room is left.

    Returns:
        Whether a node runs on it now.

    """
    data_dir = config.data_dir
    pid = lock_owner(data_dir)
    if not data_dir.exists():
        report.good("data_dir", str(data_dir), "does not exist yet: made at the first start")
    elif not data_dir.is_dir() or not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        report.bad(
            "data_dir",
            str(data_dir),
            "cannot be read and written by this user",
            f"run as the node's user, or: chown -R $USER {data_dir}",
        )
    else:
        _check_identity(report, config, node_id, pid)
    place = data_dir
    while not place.exists():
        place = place.parent
    usage = shutil.disk_usage(place)
    words = f"{usage.free / 2**30:.1f} GiB free of {usage.total / 2**30:.1f} GiB"
    if usage.free < _FREE_BYTES_BAD:
        report.bad("disk", str(place), words, "free space: a full disk makes the node read-only")
    elif usage.free < _FREE_BYTES_WARN:
        report.warn("disk", str(place), words, "free space before the log needs it")
    else:
        report.good("disk", str(place), words)
    return pid is not None


def _check_identity(report: Report, config: NodeConfig, node_id: str, pid: int | None) -> None:
    file = config.data_dir / "identity.json"
    running = f"; in use by process {pid}" if pid else ""
    if not file.exists():
        report.good(
            "data_dir", str(config.data_dir), "empty: the node will be a new member" + running
        )
        return
    try:
        identity = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        report.bad("data_dir", str(file), f"unreadable: {error}", "restore it from a copy")
        return
    for key, wanted in (("cluster_id", config.cluster_id()), ("node_id", node_id)):
        if identity.get(key) != wanted:
            report.bad(
                "data_dir",
                str(config.data_dir),
                f"belongs to {key} '{identity.get(key)}', the file says '{wanted}'",
                f"give the node another data_dir, or mend {key}",
            )
            return
    formed = "has taken part" if identity.get("formed") else "has not taken part yet"
    words = f"disk {identity.get('incarnation')} of node '{node_id}', {formed}{running}"
    log_dir = config.data_dir / "log"
    if identity.get("formed") and not (log_dir.is_dir() and any(log_dir.iterdir())):
        report.bad(
            "data_dir",
            str(log_dir),
            f"the log is gone, but {words}: its votes are lost",
            "restore it, or empty the whole data_dir, start the node and run: "
            f"quack cluster node replace {node_id}",
        )
        return
    report.good("data_dir", str(config.data_dir), words)


def check_port(report: Report, config: NodeConfig, running: bool) -> None:
    """The node's own port: free for it, or held by it."""
    host = config.cluster_mode.listen_host or "0.0.0.0"
    port = config.cluster_mode.cp_metadata_port
    subject = f"{host}:{port}"
    if running:
        report.good("port", subject, "held by the running node")
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            report.bad(
                "port",
                subject,
                f"cannot be bound: {error.strerror}",
                f"find its owner (ss -ltnp | grep :{port}) or choose another cp_metadata_port",
            )
            return
    report.good("port", subject, "free")


def wall_clock_ms() -> int:
    """Return this machine's wall clock."""
    return time.time_ns() // 1_000_000
