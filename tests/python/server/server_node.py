"""Starts node processes for the tests of the server."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import quack_wire as wire

from quack.certs import CertificateAuthority
from quack.cluster.bootstrap import free_ports

HOST = pathlib.Path(__file__).parent / "node_host.py"
TOKEN = "server-test-token"


def free_port() -> int:
    return free_ports(1)[0]


def wait_for(condition: Callable[[], Any], timeout_s: float = 30) -> Any:
    """Poll until the condition is true; fails after the time."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "condition not met in time"
        time.sleep(0.02)


class NodeError(Exception):
    """The node refused a statement of its own process."""


class Node:
    """One node process; statements of its own process go through `sql`."""

    def __init__(self, parameters: dict[str, Any], log_file: pathlib.Path) -> None:
        self.parameters = parameters
        self.log_file = log_file
        self.process: subprocess.Popen[str] | None = None
        self.tls: ssl.SSLContext | None = None
        self.sessions: list[wire.Session] = []

    @property
    def port(self) -> int:
        return int(self.parameters["port"])

    def start(self) -> Node:
        """Start the process and the node in it.

        Raises:
            NodeError: quack_node_start refused.

        """
        with self.log_file.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(HOST)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=dict(os.environ),
            )
        try:
            self.ask(self.parameters)
        except NodeError:
            self.stop()
            raise
        return self

    def ask(self, request: dict[str, Any]) -> list[list[Any]]:
        assert (
            self.process is not None
            and self.process.stdin is not None
            and self.process.stdout is not None
        )
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the node process ended: {self.log_file.read_text()[-2000:]}"
        reply = json.loads(line)
        if "error" in reply:
            raise NodeError(reply["error"])
        rows: list[list[Any]] = reply["rows"]
        return rows

    def sql(self, text: str) -> list[list[Any]]:
        return self.ask({"sql": text})

    def close_sessions(self) -> None:
        for session in self.sessions:
            session.http.close()
        self.sessions.clear()

    def stop(self) -> None:
        self.close_sessions()
        if self.process is None:
            return
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait(60)
        self.process = None
        del rest

    def kill(self) -> None:
        self.close_sessions()
        if self.process is None:
            return
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None

    def session(self, token: str = TOKEN, **options: Any) -> wire.Session:
        opened = wire.Session(self.port, token, tls=self.tls, **options)
        self.sessions.append(opened)
        return opened

    def status(self) -> dict[str, Any]:
        names = [
            "group", "role", "term", "leader_id", "is_leader", "commit_index", "applied_index", "degraded", "reason",
            "linearizable_read_safe",
        ]  # fmt: skip
        (row,) = self.sql(
            "SELECT " + ", ".join(f'"{name}"' for name in names) + " FROM quack_raft_status()"
        )
        return dict(zip(names, row, strict=True))

    def wait_ready(self) -> None:
        """Wait until writes can be taken: a leader is known."""
        wait_for(lambda: self.status()["leader_id"])


def single_parameters(folder: pathlib.Path, **changes: Any) -> dict[str, Any]:
    port = free_port()
    return {
        "cluster_id": "server-tests",
        "node_id": "n0",
        "data_dir": str(folder / "data"),
        "listen_host": "127.0.0.1",
        "port": port,
        "peers": [{"node_id": "n0", "role": "voter", "host": "127.0.0.1", "port": port}],
        "token": TOKEN,
        "plaintext": True,
        "log_level": "warn",
        **changes,
    }


def make_single(folder: pathlib.Path, **changes: Any) -> Node:
    return Node(single_parameters(folder, **changes), folder / "node.log")


def make_cluster(folder: pathlib.Path, count: int = 3) -> list[Node]:
    """Nodes over mTLS on loopback, not started."""
    authority = CertificateAuthority.create(folder / "ca", name="server tests CA")
    peers = [
        {"node_id": f"n{i}", "role": "voter", "host": "127.0.0.1", "port": free_port()}
        for i in range(count)
    ]
    nodes = []
    for peer in peers:
        name = str(peer["node_id"])
        files = authority.issue_node(folder / name, name, hosts=["127.0.0.1", "localhost"])
        parameters = {
            "cluster_id": "server-tests",
            "node_id": name,
            "data_dir": str(folder / name / "data"),
            "listen_host": "127.0.0.1",
            "port": peer["port"],
            "peers": peers,
            "token": TOKEN,
            "tls": {
                "cert_file": str(files.cert_file),
                "key_file": str(files.key_file),
                "ca_file": str(files.ca_file),
            },
            "log_level": "info",
        }
        node = Node(parameters, folder / f"{name}.log")
        node.tls = ssl.create_default_context(cafile=str(folder / "ca" / "ca.pem"))
        nodes.append(node)
    return nodes


def wait_leader(nodes: list[Node], timeout_s: float = 30) -> Node:
    """The running node that leads and can serve."""

    def find() -> Node | None:
        for node in nodes:
            if node.process is not None:
                status = node.status()
                if status["is_leader"] and status["linearizable_read_safe"]:
                    return node
        return None

    found: Node = wait_for(find, timeout_s)
    return found
