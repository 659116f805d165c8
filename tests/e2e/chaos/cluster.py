"""A cluster on the hosts of a network, whose nodes can be killed, paused and given a false clock."""

from __future__ import annotations

import pathlib
import signal
import time

import duckdb
import yaml

from chaos.network import Network
from quack.certs.authority import CertificateAuthority
from quack.cluster.bootstrap import GeneratedNode, generate_local_configs, prepare_node
from quack.cluster.local import LocalCluster, LocalNode
from quack.extension import connect

_FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
#: Host of the harness itself: no fault touches its links.
OBSERVER = "observer"


class ChaosNode(LocalNode):
    """A node on a host of its own."""

    def __init__(self, folder: pathlib.Path, generated: GeneratedNode, network: Network) -> None:
        super().__init__(folder, generated)
        self.launcher = network.command(self.node_id)
        self.paused = False
        self._clock_file = folder / self.node_id / "clock"

    def use_false_clock(self) -> bool:
        """From the next start on, `step_clock` works; False when the library is missing."""
        if not _FAKETIME.exists():
            return False
        self._clock_file.write_text("+0\n")
        self.environment = {
            "LD_PRELOAD": str(_FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self._clock_file),
            "FAKETIME_CACHE_DURATION": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
        return True

    def step_clock(self, seconds: int) -> None:
        """Let the node's wall clock differ from the true one by so much."""
        self._clock_file.write_text(f"{seconds:+d}\n")

    def pause(self) -> None:
        """SIGSTOP: the process stands still, its sockets stay open."""
        if self.process is not None and self.running():
            self.process.send_signal(signal.SIGSTOP)
            self.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.process is not None and self.paused:
            self.process.send_signal(signal.SIGCONT)
        self.paused = False

    def kill(self) -> None:
        super().kill()
        self.paused = False

    def stop(self, timeout_s: float = 30) -> int:
        self.resume()
        return super().stop(timeout_s)


class ChaosCluster(LocalCluster):
    """The voters of a run."""

    nodes: list[ChaosNode]  # type: ignore[assignment]

    def __init__(
        self, folder: pathlib.Path, network: Network, generated: list[GeneratedNode]
    ) -> None:
        super().__init__(folder, [])
        self.network = network
        self.nodes = [ChaosNode(folder, one, network) for one in generated]
        self._sessions: dict[str, duckdb.DuckDBPyConnection] = {}

    @classmethod
    def on(
        cls,
        network: Network,
        folder: pathlib.Path,
        names: list[str],
        settings: dict[str, object] | None = None,
    ) -> ChaosCluster:
        """Write certificates and configurations for nodes on hosts n0, n1, …; starts nothing."""
        ports = [network.listen(name)[1] for name in names]
        if len(set(ports)) == 1:  # one port, many hosts
            ports = list(range(ports[0], ports[0] + len(names)))
        generated = generate_local_configs(folder, len(names), ports=ports, settings=settings)
        authority = CertificateAuthority.open(folder / "ca")
        placed = []
        for one in generated:
            host, port = network.listen(one.node_id)
            authority.issue_node(
                folder / one.node_id, one.node_id, hosts=[host, "localhost", "127.0.0.1"]
            )
            document = yaml.safe_load(one.config_file.read_text())
            peers = []
            for name in names:
                to_host, to_port = network.dial(one.node_id, name)
                peers.append(f"{name}:voter=quack:{to_host}:{to_port}")
            document["cluster_mode"].update(
                advertised_host=host, listen_host=host, cp_metadata_port=port
            )
            document["cluster_mode"]["cp_metadata_peers"] = peers
            one.config_file.write_text(yaml.safe_dump(document, sort_keys=False))
            placed.append(GeneratedNode(one.node_id, host, port, one.config_file))
        return cls(folder, network, placed)

    def prepare(self, name: str) -> ChaosNode:
        """Write the files of a node that will join; it takes the host of its name."""
        host, port = self.network.listen(name)
        like = self.nodes[0].config_file
        made = prepare_node(
            self.folder, name, like=like, ca_dir=self.folder / "ca", host=host, port=port
        )
        return ChaosNode(self.folder, made, self.network)

    def attach_sql(
        self,
        node: LocalNode | None = None,
        *,
        alias: str = "cp",
        consistency: str | None = None,
        host: str = OBSERVER,
        order: list[str] | None = None,
    ) -> str:
        """Return the ATTACH statement for clients on a host: mTLS and token. Do not log it.

        Args:
            node: only this one; otherwise all.
            alias: name of the attached catalog.
            consistency: as in ATTACH.
            host: where the client runs.
            order: names of the nodes in the order in which the client tries them.

        """
        names = [node.node_id] if node else order or [one.node_id for one in self.nodes]
        return client_attach_sql(
            self.folder,
            [self.network.dial(host, name) for name in names],
            self.token,
            alias=alias,
            consistency=consistency,
        )

    def session(self, node: LocalNode, consistency: str = "session") -> duckdb.DuckDBPyConnection:
        """Return the observer's session with this very node, kept open between calls.

        Raises:
            duckdb.Error: the node does not answer.

        """
        name = f"{node.node_id} {consistency}"
        for _ in range(2):
            if name not in self._sessions:
                self._sessions[name] = self._open(node, consistency)
            session = self._sessions[name]
            # A client learns all voters and moves on when its node fails; an observer must not.
            answered = session.execute("SELECT node_id FROM quack_raft_status('cp')").fetchall()
            if answered and answered[0][0] == node.node_id:
                return session
            self._sessions.pop(name).close()
        raise duckdb.IOException(f"{node.node_id} does not answer; another node did")

    def _open(self, node: LocalNode, consistency: str) -> duckdb.DuckDBPyConnection:
        opened = connect()
        try:
            opened.execute("SET quack_request_timeout_ms = 4000")
            opened.execute(self.attach_sql(node, consistency=consistency))
        except duckdb.Error:
            opened.close()
            raise
        return opened

    def status(self, node: LocalNode) -> dict[str, object] | None:
        if not node.running() or (isinstance(node, ChaosNode) and node.paused):
            return None
        try:
            found = self.session(node).execute("SELECT * FROM quack_raft_status('cp')")
            names = [column[0] for column in found.description or []]
            row = found.fetchone()
            return dict(zip(names, row, strict=True)) if row else None
        except duckdb.Error:
            self.forget(node)
            return None

    def forget(self, node: LocalNode) -> None:
        """Drop the observer's sessions with a node, which may have died."""
        for name in [name for name in self._sessions if name.split()[0] == node.node_id]:
            self._sessions.pop(name).close()

    def start_all(self) -> None:
        """Have every node run, whatever happened to it."""
        for node in self.nodes:
            node.resume()
            node.start()

    def wait_equal(self, timeout_s: float) -> list[dict[str, object]]:
        """Wait until there is a leader and all nodes have applied the same; return their status.

        Raises:
            TimeoutError: with what each node says.

        """
        deadline = time.monotonic() + timeout_s
        while True:
            rows = [self.status(node) for node in self.nodes]
            known = [row for row in rows if row is not None]
            if (
                len(known) == len(rows)
                and any(row["is_leader"] for row in known)
                and len({row["applied_index"] for row in known}) == 1
                and not any(row["degraded"] for row in known)
            ):
                return known
            if time.monotonic() > deadline:
                shown = {
                    node.node_id: row
                    and {key: row[key] for key in ("role", "term", "applied_index", "reason")}
                    for node, row in zip(self.nodes, rows, strict=True)
                }
                raise TimeoutError(f"no common state within {timeout_s:.0f} s: {shown}")
            time.sleep(0.1)

    def stop(self) -> dict[str, int]:
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()
        for node in self.nodes:
            node.resume()
        return super().stop()


def client_attach_sql(
    folder: pathlib.Path,
    addresses: list[tuple[str, int]],
    token: str,
    *,
    alias: str = "cp",
    consistency: str | None = None,
) -> str:
    """Return an ATTACH statement with the folder's client certificate. Holds the token."""
    options = [
        "TYPE quack",
        f"TOKEN '{token}'",
        f"client_ca_file '{folder / 'ca' / 'ca.pem'}'",
        f"cert_file '{folder / 'client.pem'}'",
        f"key_file '{folder / 'client.key'}'",
    ]
    if consistency:
        options.append(f"consistency '{consistency}'")
    hosts = ",".join(f"{host}:{port}" for host, port in addresses)
    return f"ATTACH 'quack:{hosts}' AS {alias} ({', '.join(options)})"
