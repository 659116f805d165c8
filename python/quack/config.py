"""Node configuration: the YAML an operator writes, checked in full before anything starts."""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import uuid
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from quack.certs.verify import verify_certificate
from quack.documents import Document, read_document
from quack.errors import CertificateError, ConfigError
from quack.storage import check_location

__all__ = [
    "BackupSchedule",
    "ClusterMode",
    "NodeConfig",
    "PeerSpec",
    "TlsConfig",
    "load_config",
    "parse_peer",
]

_NODE_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PEER = re.compile(
    r"(?P<node_id>[^:=]+):(?P<role>voter|learner)"
    r"=quack:(?P<host>\[[^\]]+\]|[^:\[\]]+):(?P<port>\d+)"
)
_PEER_FORM = (
    "expected '<node_id>:voter=quack:<host>:<port>' (or :learner=), "
    "e.g. n0:voter=quack:10.0.0.1:9494"
)


@dataclass(frozen=True)
class PeerSpec:
    """One entry of ``cp_metadata_peers``."""

    node_id: str
    role: Literal["voter", "learner"]
    host: str
    port: int


def parse_peer(text: str) -> PeerSpec:
    """Parse ``n0:voter=quack:host:port``.

    Raises:
        ValueError: with the expected form.

    """
    found = _PEER.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}': {_PEER_FORM}")
    node_id, port = found["node_id"], int(found["port"])
    if not _NODE_ID.fullmatch(node_id):
        raise ValueError(f"'{text}': node id '{node_id}' must be a DNS label or dotted name")
    if not 1 <= port <= 65535:
        raise ValueError(f"'{text}': port {port} is outside 1..65535")
    role: Literal["voter", "learner"] = "voter" if found["role"] == "voter" else "learner"
    return PeerSpec(node_id, role, found["host"].strip("[]"), port)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class TlsConfig(_Strict):
    """Files of this node's identity; relative paths count from the configuration file."""

    cert_file: pathlib.Path
    key_file: pathlib.Path
    ca_file: pathlib.Path


class ClusterMode(_Strict):
    """The ``cluster_mode:`` section."""

    enabled: bool
    node_id_path: pathlib.Path
    advertised_host: str
    cp_metadata_enabled: bool = True
    cp_metadata_port: int = Field(ge=1, le=65535)
    cp_metadata_peers: list[str] = Field(min_length=1)
    cp_metadata_token: SecretStr
    cluster_id: uuid.UUID | None = None
    listen_host: str | None = None
    allow_plaintext_loopback: bool = False
    #: A client certificate of the cluster's authority opens sessions without a token.
    accept_client_certificates: bool = False
    tls: TlsConfig | None = None


class Limits(_Strict):
    """What the node takes on at once; the extension's defaults where absent.

    ``FROM quack_node_statistics()`` shows them beside what is in use.
    """

    #: Client sessions and connections; past it clients are told `overloaded`.
    sessions_max: int | None = Field(default=None, ge=1, le=100_000)
    connections_max: int | None = Field(default=None, ge=1, le=100_000)
    #: Statements that run or wait, over all sessions.
    statements_max: int | None = Field(default=None, ge=1, le=1_000_000)
    #: Bytes of large requests, of rows on their way in and results on their way out, in all.
    buffer_bytes_max: int | None = Field(default=None, ge=1024 * 1024)
    #: Bytes of one result that wait for its reader.
    result_buffer_bytes_max: int | None = Field(default=None, ge=64 * 1024)
    #: Bytes of one request.
    request_bytes_max: int | None = Field(default=None, ge=64 * 1024)
    #: Longest run of a statement; 0 = no limit. A client's own deadline only shortens it.
    statement_timeout_ms: int | None = Field(default=None, ge=0, le=86_400_000)
    #: How long autocommit statements without a deadline are repeated after conflicts.
    conflict_retry_ms_max: int | None = Field(default=None, ge=0, le=86_400_000)


class BackupSchedule(_Strict):
    """Backups that whichever node leads makes by itself; the same in the file of every node."""

    #: A folder that all nodes share, or s3://bucket/prefix (credentials: environment variables).
    to: str
    interval_ms: int = Field(ge=1000, le=2_678_400_000)
    #: So many of the newest stay.
    keep: int = Field(default=7, ge=1, le=100_000)

    @field_validator("to")
    @classmethod
    def _check_to(cls, value: str) -> str:
        return check_location(value)


class NodeConfig(_Strict):
    """One node's file. Durations are milliseconds."""

    cluster_mode: ClusterMode
    data_dir: pathlib.Path
    log_level: Literal["debug", "info", "warn", "error"] = "info"
    election_timeout_ms: int = Field(default=500, ge=50, le=60_000)
    heartbeat_interval_ms: int = Field(default=75, ge=5, le=20_000)
    memory_limit_mb: int | None = Field(default=None, ge=64)
    #: A checkpoint starts after so many applied bytes or log entries, so long after the first
    #: change, or when nothing was applied for so long. A node that starts applies again what came
    #: after the last one.
    checkpoint_log_bytes: int | None = Field(default=None, ge=64 * 1024, le=1 << 40)
    checkpoint_log_entries: int | None = Field(default=None, ge=1000, le=1 << 40)
    checkpoint_interval_ms: int | None = Field(default=None, ge=100, le=86_400_000)
    checkpoint_idle_ms: int | None = Field(default=None, ge=100, le=86_400_000)
    #: A checkpoint that an open transaction holds back aborts writers, respectively any
    #: transaction, that were open for so long.
    checkpoint_writer_patience_ms: int | None = Field(default=None, ge=100, le=86_400_000)
    checkpoint_reader_patience_ms: int | None = Field(default=None, ge=100, le=86_400_000)
    #: The nodes compare checksums of all tables this often; 0 = never.
    checksum_interval_ms: int | None = Field(default=None, ge=0, le=86_400_000)
    #: Rows and DDL of a transaction that take more than this go through the log in fragments.
    transaction_split_bytes: int | None = Field(default=None, ge=16 * 1024, le=64 * 1024 * 1024)
    #: A transaction in fragments to which nothing is added for so long is given up.
    transaction_patience_ms: int | None = Field(default=None, ge=100, le=86_400_000)
    limits: Limits = Limits()
    backup: BackupSchedule | None = None
    #: Log kept behind a checkpoint for slow followers, within both bounds; further behind means a
    #: snapshot.
    log_tail_bytes: int | None = Field(default=None, ge=0, le=1 << 40)
    log_tail_entries: int | None = Field(default=None, ge=0, le=1 << 40)
    #: What this node sends of its state to all nodes that need a copy together; 0 = no limit.
    snapshot_bytes_per_second: int | None = Field(default=None, ge=0, le=1 << 40)
    #: Size of one file of the log.
    log_segment_bytes: int | None = Field(default=None, ge=64 * 1024)

    def node_id(self) -> str:
        """Read the node's name from ``node_id_path``."""
        return self.cluster_mode.node_id_path.read_text().strip()

    def peers(self) -> list[PeerSpec]:
        """Return the initial members in file order."""
        return [parse_peer(text) for text in self.cluster_mode.cp_metadata_peers]

    def cluster_id(self) -> str:
        """Return the configured cluster id, or one derived from the initial members' names."""
        if self.cluster_mode.cluster_id is not None:
            return str(self.cluster_mode.cluster_id)
        names = ",".join(sorted(peer.node_id for peer in self.peers()))
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"quack-cluster:{names}"))

    def start_parameters(self) -> str:
        """Return the JSON that the extension's ``quack_node_start`` takes. Holds the token."""
        mode = self.cluster_mode
        document: dict[str, Any] = {
            "cluster_id": self.cluster_id(),
            "node_id": self.node_id(),
            "data_dir": str(self.data_dir),
            "advertised_host": mode.advertised_host,
            "listen_host": mode.listen_host or "0.0.0.0",
            "port": mode.cp_metadata_port,
            "peers": [
                {"node_id": p.node_id, "role": p.role, "host": p.host, "port": p.port}
                for p in self.peers()
            ],
            "token": mode.cp_metadata_token.get_secret_value(),
            "plaintext": mode.tls is None,
            "accept_client_certificates": mode.accept_client_certificates,
            "election_timeout_ms": self.election_timeout_ms,
            "heartbeat_interval_ms": self.heartbeat_interval_ms,
            "log_level": self.log_level,
        }
        document.update(self.limits.model_dump(exclude_none=True))
        for name in (
            "checkpoint_log_bytes",
            "checkpoint_log_entries",
            "checkpoint_interval_ms",
            "checkpoint_idle_ms",
            "checkpoint_writer_patience_ms",
            "checkpoint_reader_patience_ms",
            "checksum_interval_ms",
            "transaction_split_bytes",
            "transaction_patience_ms",
            "log_tail_bytes",
            "log_tail_entries",
            "log_segment_bytes",
            "snapshot_bytes_per_second",
        ):
            value = getattr(self, name)
            if value is not None:  # else the extension's default
                document[name] = value
        if mode.tls is not None:
            document["tls"] = {
                "cert_file": str(mode.tls.cert_file),
                "key_file": str(mode.tls.key_file),
                "ca_file": str(mode.tls.ca_file),
            }
        return json.dumps(document)


def load_config(file: pathlib.Path, *, check_files: bool = True) -> NodeConfig:
    """Read and check one configuration file.

    Args:
        file: path of the YAML file.
        check_files: also check that certificates, keys and the node id file are there and fit.

    Raises:
        ConfigError: with every mistake at once, each with its line and the fix.

    """
    checker = read_document(file)
    if not isinstance(checker.content, dict):
        raise ConfigError([f"{file}:1: expected a mapping with cluster_mode: and data_dir:"])
    document = checker.content
    try:
        config = NodeConfig.model_validate(document)
    except ValidationError as error:
        checker.add_all(error)
        _check_peers(checker, document)
        raise ConfigError(checker.problems) from None
    config = _absolute(config, file.resolve().parent)
    _check_peers(checker, document)
    _check_rules(checker, config)
    if check_files and not checker.problems:
        _check_files(checker, config)
    if checker.problems:
        raise ConfigError(checker.problems)
    return config


def _absolute(config: NodeConfig, base: pathlib.Path) -> NodeConfig:
    mode = config.cluster_mode
    tls = mode.tls
    if tls is not None:
        tls = TlsConfig(
            cert_file=base / tls.cert_file,
            key_file=base / tls.key_file,
            ca_file=base / tls.ca_file,
        )
    mode = mode.model_copy(update={"node_id_path": base / mode.node_id_path, "tls": tls})
    backup = config.backup
    if backup is not None and "://" not in backup.to:
        backup = backup.model_copy(update={"to": str(base / backup.to)})
    changes = {"cluster_mode": mode, "data_dir": base / config.data_dir, "backup": backup}
    return config.model_copy(update=changes)


def _check_peers(checker: Document, document: dict[str, Any]) -> None:
    mode = document.get("cluster_mode")
    peers = mode.get("cp_metadata_peers") if isinstance(mode, dict) else None
    if not isinstance(peers, list):
        return
    seen_ids: dict[str, str] = {}
    seen_addresses: dict[tuple[str, int], str] = {}
    voters = 0
    for position, text in enumerate(peers):
        path = ("cluster_mode", "cp_metadata_peers", str(position))
        try:
            peer = parse_peer(str(text))
        except ValueError as error:
            checker.add(path, str(error))
            continue
        voters += peer.role == "voter"
        if peer.node_id in seen_ids:
            checker.add(path, f"node id '{peer.node_id}' is listed twice")
        address = (peer.host, peer.port)
        if address in seen_addresses:
            checker.add(path, f"{peer.host}:{peer.port} is {seen_addresses[address]}'s already")
        seen_ids[peer.node_id] = text
        seen_addresses[address] = peer.node_id
    if peers and voters == 0:
        checker.add(("cluster_mode", "cp_metadata_peers"), "no voter is listed; name at least one")


def _check_rules(checker: Document, config: NodeConfig) -> None:
    mode = config.cluster_mode
    if not mode.enabled or not mode.cp_metadata_enabled:
        checker.add(
            ("cluster_mode", "enabled" if not mode.enabled else "cp_metadata_enabled"),
            "is false: this file starts no voter; set it to true",
        )
    if len(mode.cp_metadata_token.get_secret_value()) < 4:
        checker.add(("cluster_mode", "cp_metadata_token"), "needs at least 4 characters")
    if config.heartbeat_interval_ms * 3 > config.election_timeout_ms:
        checker.add(
            ("heartbeat_interval_ms",),
            f"{config.heartbeat_interval_ms} is more than a third of election_timeout_ms "
            f"({config.election_timeout_ms}); lower it",
        )
    backup = config.backup
    if backup is not None and "://" not in backup.to:
        place = pathlib.Path(backup.to).resolve()
        if place.is_relative_to(config.data_dir.resolve()):
            checker.add(
                ("backup", "to"),
                f"{place} lies in data_dir: it would be lost with it; name another folder",
            )
    if (
        backup is not None
        and backup.to.startswith("s3://")
        and importlib.util.find_spec("obstore") is None
    ):
        checker.add(
            ("backup", "to"), "S3 needs the package obstore: pip install 'quack-duckdb[s3]'"
        )
    loopback = (mode.listen_host or "") in ("127.0.0.1", "::1", "localhost")
    if mode.tls is None and not (mode.allow_plaintext_loopback and loopback):
        checker.add(
            ("cluster_mode", "tls"),
            "missing; mTLS is required. (For experiments on one machine set listen_host: 127.0.0.1 "
            "and allow_plaintext_loopback: true)",
        )
    if mode.tls is None and mode.accept_client_certificates:
        checker.add(
            ("cluster_mode", "accept_client_certificates"), "needs tls:; nobody shows one without"
        )
    if mode.tls is not None and mode.allow_plaintext_loopback:
        checker.add(
            ("cluster_mode", "allow_plaintext_loopback"), "contradicts tls:; remove one of them"
        )


def _check_files(checker: Document, config: NodeConfig) -> None:
    mode = config.cluster_mode
    try:
        node_id = config.node_id()
    except OSError as error:
        checker.add(
            ("cluster_mode", "node_id_path"),
            f"{mode.node_id_path}: {error.strerror}; write the node's name into it",
        )
        return
    own = [peer for peer in config.peers() if peer.node_id == node_id]
    if not own:
        names = ", ".join(peer.node_id for peer in config.peers())
        checker.add(
            ("cluster_mode", "cp_metadata_peers"),
            f"this node is '{node_id}' ({mode.node_id_path}), but the peers are {names}; add it",
        )
    elif own[0].port != mode.cp_metadata_port:
        checker.add(
            ("cluster_mode", "cp_metadata_port"),
            f"{mode.cp_metadata_port} differs from this node's port {own[0].port} in "
            "cp_metadata_peers; make them equal",
        )
    if mode.tls is None:
        return
    for name in ("cert_file", "key_file", "ca_file"):
        if not getattr(mode.tls, name).is_file():
            checker.add(("cluster_mode", "tls", name), f"{getattr(mode.tls, name)}: no such file")
            return
    try:
        report = verify_certificate(
            mode.tls.cert_file,
            key_file=mode.tls.key_file,
            ca_file=mode.tls.ca_file,
            node_id=node_id,
            warn_days=0,
        )
    except CertificateError as error:
        checker.add(("cluster_mode", "tls", "cert_file"), str(error))
        return
    for problem in report.problems:
        checker.add(("cluster_mode", "tls", "cert_file"), f"{mode.tls.cert_file}: {problem}")
