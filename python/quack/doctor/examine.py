"""The order of the examination."""

from __future__ import annotations

import pathlib
from typing import Any

from quack.cluster.target import Target
from quack.config import NodeConfig, PeerSpec, load_config
from quack.doctor.findings import Report
from quack.doctor.machine import (
    check_certificate,
    check_data_directory,
    check_port,
    check_versions,
)
from quack.doctor.peers import ask_node, check_peer
from quack.errors import ConfigError

__all__ = ["examine_config", "examine_url"]


def _load(report: Report, file: pathlib.Path) -> NodeConfig | None:
    try:
        config = load_config(file, check_files=False)
    except ConfigError as error:
        for problem in error.problems:
            report.bad("config", str(file), problem, "mend the named line")
        return None
    try:
        load_config(file)
    except ConfigError as error:
        # Certificates have a check of their own that says more.
        for problem in error.problems:
            if "tls" not in problem:
                report.bad("config", str(file), problem, "mend the named line")
    if all(finding.level == "ok" for finding in report.findings):
        report.good("config", str(file), f"cluster {config.cluster_id()}")
    return config


def examine_config(file: pathlib.Path) -> Report:
    """Examine the node of a configuration file, on its machine, and its peers from there."""
    report = Report()
    check_versions(report)
    config = _load(report, file)
    if config is None:
        return report
    mode = config.cluster_mode
    try:
        node_id = config.node_id()
    except OSError as error:
        report.bad(
            "config",
            str(mode.node_id_path),
            f"cannot be read: {error.strerror}",
            "write the node's name into it",
        )
        return report
    check_certificate(report, config, node_id)
    running = check_data_directory(report, config, node_id)
    check_port(report, config, running)
    target = Target.from_config(file)
    members = ask_node(report, target, node_id, None) if running else []
    if not running:
        report.warn("status", node_id, "the node does not run", f"quack node --config {file}")
    peers = {peer.node_id: peer for peer in config.peers() if peer.node_id != node_id}
    _check_addresses(report, file, list(peers.values()), members)
    for peer in peers.values():
        if check_peer(report, peer, mode.tls):
            ask_node(report, target.at(f"{peer.host}:{peer.port}"), peer.node_id, node_id)
    return report


def _check_addresses(
    report: Report, file: pathlib.Path, peers: list[PeerSpec], members: list[dict[str, Any]]
) -> None:
    """The file may name members by addresses that they have left."""
    known = {m["node_id"]: str(m["address"]) for m in members if m["role"] in ("voter", "learner")}
    for peer in peers:
        address = f"{peer.host}:{peer.port}"
        if known.get(peer.node_id, address) != address:
            report.warn(
                "config",
                str(file),
                f"names {peer.node_id} at {address}, the cluster knows it at {known[peer.node_id]}",
                "bring cp_metadata_peers up to date",
            )


def examine_url(target: Target) -> Report:
    """Examine a running node, and its members as it names them, from anywhere."""
    report = Report()
    check_versions(report)
    members = ask_node(report, target, target.hosts, None)
    for member in members:
        if member["role"] in ("voter", "learner"):
            address = str(member["address"])
            ask_node(report, target.at(address), f"{member['node_id']} ({address})", None)
    return report
