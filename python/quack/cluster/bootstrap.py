"""Writes everything that a new cluster needs: certificates, tokens, one configuration per node."""

from __future__ import annotations

import os
import pathlib
import secrets
import socket
import uuid
from dataclasses import dataclass

import yaml

from quack.certs.authority import CertificateAuthority
from quack.config import load_config, parse_peer
from quack.errors import ConfigError

__all__ = ["GeneratedNode", "free_ports", "generate_local_configs", "prepare_node"]


@dataclass(frozen=True)
class GeneratedNode:
    """One generated node: its name, address, and files."""

    node_id: str
    host: str
    port: int
    config_file: pathlib.Path


#: Below the range from which the kernel takes the ports of outgoing connections, so that a node
#: that restarts finds its port free. The variable QUACK_PORT_RANGE ("LOW-HIGH") names another one.
DEFAULT_PORT_RANGE = "12000-29999"

_handed_out: set[int] = set()


def _port_range() -> range:
    text = os.environ.get("QUACK_PORT_RANGE", DEFAULT_PORT_RANGE)
    low, dash, high = text.partition("-")
    if dash and low.isdecimal() and high.isdecimal() and 1024 <= int(low) <= int(high) <= 65535:
        return range(int(low), int(high) + 1)
    raise ConfigError(
        [
            f"QUACK_PORT_RANGE is '{text}'; expected LOW-HIGH, both from 1024 to 65535, as in"
            f" {DEFAULT_PORT_RANGE}"
        ]
    )


def free_ports(count: int) -> list[int]:
    """Return ``count`` distinct loopback ports that were free a moment ago.

    A process is handed each port once, as long as there are others: a node that is down keeps its
    own. Raises ConfigError when the range of ports is no range, or has too few that are free.
    """
    ports = _port_range()
    start = secrets.randbelow(len(ports))
    order = [ports[(start + i) % len(ports)] for i in range(len(ports))]
    order.sort(key=lambda port: port in _handed_out)
    found: list[int] = []
    for port in order:
        if len(found) == count:
            break
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
    if len(found) < count:
        raise ConfigError(
            [
                f"{count} free ports are needed, and {ports[0]}-{ports[-1]} has {len(found)};"
                " set QUACK_PORT_RANGE to another range"
            ]
        )
    _handed_out.update(found)
    return found


def _write_private(path: pathlib.Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)


def generate_local_configs(
    folder: pathlib.Path,
    nodes: int,
    *,
    host: str = "127.0.0.1",
    ports: list[int] | None = None,
    settings: dict[str, object] | None = None,
) -> list[GeneratedNode]:
    """Write ``node0.yaml`` … and certificates for a cluster on one machine.

    The folder then holds ``ca/`` (the authority), ``n0/`` … (certificate, key, node id; the data
    goes to ``n0/data``), ``token`` and ``client.pem``/``client.key``. mTLS is on.

    Args:
        folder: created when missing; refused when it holds a cluster already.
        nodes: number of voters, 1 to 9.
        host: address to listen on and to dial.
        ports: one per node; free ones are chosen when omitted.
        settings: further top-level keys for every node's file, such as ``log_level``.

    Raises:
        ConfigError: bad numbers, or the folder is in use.

    """
    if not 1 <= nodes <= 9:
        raise ConfigError([f"--nodes {nodes}: expected 1 to 9"])
    if (folder / "node0.yaml").exists():
        raise ConfigError(
            [f"{folder}: holds a cluster already (node0.yaml); choose another folder"]
        )
    chosen = ports or free_ports(nodes)
    if len(chosen) != nodes:
        raise ConfigError([f"{len(chosen)} ports for {nodes} nodes; give one per node"])
    folder.mkdir(parents=True, exist_ok=True)
    authority = CertificateAuthority.create(folder / "ca")
    names = [f"n{position}" for position in range(nodes)]
    token = secrets.token_hex(16)
    cluster_id = str(uuid.uuid4())
    peers = [f"{name}:voter=quack:{host}:{port}" for name, port in zip(names, chosen, strict=True)]
    _write_private(folder / "token", token + "\n")
    authority.issue_client(folder, "client")
    generated = []
    for position, (name, port) in enumerate(zip(names, chosen, strict=True)):
        home = folder / name
        authority.issue_node(home, name, hosts=[host, "localhost", "127.0.0.1"])
        (home / "node_id").write_text(name + "\n")
        document = {
            "cluster_mode": {
                "enabled": True,
                "cluster_id": cluster_id,
                "node_id_path": f"{name}/node_id",
                "advertised_host": host,
                "listen_host": host,
                "cp_metadata_enabled": True,
                "cp_metadata_port": port,
                "cp_metadata_peers": peers,
                "cp_metadata_token": token,
                "tls": {
                    "cert_file": f"{name}/{name}.pem",
                    "key_file": f"{name}/{name}.key",
                    "ca_file": f"{name}/ca.pem",
                },
            },
            "data_dir": f"{name}/data",
            **(settings or {}),
        }
        config_file = folder / f"node{position}.yaml"
        _write_private(config_file, yaml.safe_dump(document, sort_keys=False))
        generated.append(GeneratedNode(name, host, port, config_file))
    return generated


def prepare_node(
    folder: pathlib.Path,
    node_id: str,
    *,
    like: pathlib.Path,
    ca_dir: pathlib.Path | None = None,
    host: str | None = None,
    port: int | None = None,
) -> GeneratedNode:
    """Write the file of a node that will join the cluster of another node's file.

    The folder then holds ``<node_id>.yaml`` and ``<node_id>/`` with the node id and, when the
    authority is at hand, the certificate; without it the file names where the certificate goes.

    Args:
        folder: created when missing.
        node_id: name of the new node.
        like: file of a member: cluster id, token, peers and settings come from it.
        ca_dir: folder of ``ca.pem`` and ``ca.key``.
        host: address others dial; default: that of ``like``.
        port: default: a free one.

    Raises:
        ConfigError: ``like`` has mistakes, the name is taken, or the file exists.

    """
    member = load_config(like, check_files=False)
    config_file = folder / f"{node_id}.yaml"
    if config_file.exists():
        raise ConfigError([f"{config_file}: exists already; choose another folder or name"])
    taken = [peer.node_id for peer in member.peers()]
    if node_id in taken:
        raise ConfigError(
            [
                f"{node_id}: is a member of {like} already; to give it a new disk, start it with "
                f"its own file and an empty data_dir: quack cluster node replace {node_id}"
            ]
        )
    document = yaml.safe_load(like.read_text())
    mode = document["cluster_mode"]
    chosen_host = host or member.cluster_mode.advertised_host
    chosen_port = port or free_ports(1)[0]
    own_peer = f"{node_id}:learner=quack:{chosen_host}:{chosen_port}"
    parse_peer(own_peer)
    mode["cluster_id"] = member.cluster_id()
    mode["node_id_path"] = f"{node_id}/node_id"
    mode["advertised_host"] = chosen_host
    if "listen_host" in mode:
        mode["listen_host"] = chosen_host
    mode["cp_metadata_port"] = chosen_port
    mode["cp_metadata_peers"] = [*mode["cp_metadata_peers"], own_peer]
    document["data_dir"] = f"{node_id}/data"
    home = folder / node_id
    home.mkdir(parents=True, exist_ok=True)
    (home / "node_id").write_text(node_id + "\n")
    if mode.get("tls") is not None:
        mode["tls"] = {
            "cert_file": f"{node_id}/{node_id}.pem",
            "key_file": f"{node_id}/{node_id}.key",
            "ca_file": f"{node_id}/ca.pem",
        }
        if ca_dir is not None:
            authority = CertificateAuthority.open(ca_dir)
            authority.issue_node(home, node_id, hosts=[chosen_host, "localhost", "127.0.0.1"])
    _write_private(config_file, yaml.safe_dump(document, sort_keys=False))
    return GeneratedNode(node_id, chosen_host, chosen_port, config_file)
