"""Runs the voters of a generated folder as separate processes on this machine."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from types import TracebackType

import duckdb

from quack.cluster.bootstrap import GeneratedNode, generate_local_configs
from quack.errors import ClusterError
from quack.extension import connect

__all__ = ["LocalCluster", "LocalNode"]


class LocalNode:
    """One voter process. Its output goes to ``<folder>/<node_id>/node.log``."""

    def __init__(self, folder: pathlib.Path, generated: GeneratedNode) -> None:
        self.node_id = generated.node_id
        self.host = generated.host
        self.port = generated.port
        self.config_file = generated.config_file
        self.log_file = folder / generated.node_id / "node.log"
        #: Words before the command, such as ``["ip", "netns", "exec", "x"]``.
        self.launcher: list[str] = []
        #: Further variables of the process.
        self.environment: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    def running(self) -> bool:
        """Whether the process lives."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the process; returns at once."""
        if self.running():
            return
        # The package must be importable in the child even when this one runs from a source tree.
        root = str(pathlib.Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "quack", "node", "--config", str(self.config_file)]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.launcher, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path, **self.environment},
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL: no goodbye, no checkpoint."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self, timeout_s: float = 30) -> int:
        """SIGTERM and wait: leadership is handed over and a checkpoint written.

        Returns:
            The exit code; 0 after a clean stop, -9 when it had to be killed.

        """
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.process = None
        return code

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of the log, for error messages."""
        if not self.log_file.exists():
            return "(no log)"
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])


class LocalCluster:
    """All voters of one folder. A context manager: leaving it stops what it started."""

    def __init__(self, folder: pathlib.Path, nodes: list[GeneratedNode]) -> None:
        self.folder = folder
        self.nodes = [LocalNode(folder, node) for node in nodes]
        self.token = (folder / "token").read_text().strip()

    @classmethod
    def create(
        cls, folder: pathlib.Path, nodes: int = 3, settings: dict[str, object] | None = None
    ) -> LocalCluster:
        """Generate certificates and configurations in an empty folder; starts nothing."""
        return cls(folder, generate_local_configs(folder, nodes, settings=settings))

    def __enter__(self) -> LocalCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def node(self, node_id: str) -> LocalNode:
        """Return a node by name.

        Raises:
            ClusterError: there is no such node.

        """
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        names = ", ".join(node.node_id for node in self.nodes)
        raise ClusterError(f"no node '{node_id}' in {self.folder}; it has {names}")

    def start(self, timeout_s: float = 60) -> None:
        """Start every node and wait until one leader serves linearizable reads.

        Raises:
            ClusterError: a process ended, or no leader in time; holds the tail of the log.

        """
        for node in self.nodes:
            node.start()
        self.wait_leader(timeout_s)

    def stop(self) -> dict[str, int]:
        """Stop every node cleanly; returns their exit codes by name."""
        for node in self.nodes:
            if node.process is not None and node.running():
                node.process.send_signal(signal.SIGTERM)
        return {node.node_id: node.stop() for node in self.nodes}

    def attach_sql(
        self, node: LocalNode | None = None, *, alias: str = "cp", consistency: str | None = None
    ) -> str:
        """Return the ATTACH statement for one node, or for all (the client then fails over).

        Holds the token: do not log it.
        """
        hosts = node.endpoint if node else ",".join(one.endpoint for one in self.nodes)
        options = ["TYPE quack", f"TOKEN '{self.token}'"]
        options.append(f"client_ca_file '{self.folder / 'ca' / 'ca.pem'}'")
        if consistency:
            options.append(f"consistency '{consistency}'")
        return f"ATTACH 'quack:{hosts}' AS {alias} ({', '.join(options)})"

    def connect(
        self, node: LocalNode | None = None, *, consistency: str | None = None
    ) -> duckdb.DuckDBPyConnection:
        """Open a fresh client session attached to one node (or all) as ``cp``."""
        session = connect()
        try:
            session.execute(self.attach_sql(node, consistency=consistency))
        except duckdb.Error:
            session.close()
            raise
        return session

    def status(self, node: LocalNode) -> dict[str, object] | None:
        """Return the root group's row of ``quack_raft_status()``; None while unreachable."""
        try:
            session = self.connect(node)
        except duckdb.Error:
            return None
        try:
            rows = session.execute("SELECT * FROM quack_raft_status('cp')")
            names = [column[0] for column in rows.description or []]
            row = rows.fetchone()
            return dict(zip(names, row, strict=True)) if row else None
        except duckdb.Error:
            return None
        finally:
            session.close()

    def leader(self) -> LocalNode | None:
        """Return the node that says of itself that it leads, at the highest term seen."""
        best: tuple[int, LocalNode] | None = None
        for node in self.nodes:
            row = self.status(node) if node.running() else None
            if row and row["is_leader"] and (best is None or int(str(row["term"])) > best[0]):
                best = (int(str(row["term"])), node)
        return best[1] if best else None

    def wait_leader(self, timeout_s: float = 30) -> LocalNode:
        """Wait until a leader is there; every started process must stay alive meanwhile.

        Raises:
            ClusterError: a process ended or time ran out.

        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for node in self.nodes:
                if node.process is not None and node.process.poll() is not None:
                    raise ClusterError(
                        f"{node.node_id} ended with code {node.process.returncode}:\n"
                        f"{node.log_tail()}"
                    )
            leader = self.leader()
            if leader is not None:
                return leader
            time.sleep(0.1)
        tails = "\n".join(f"-- {node.node_id}\n{node.log_tail(5)}" for node in self.nodes)
        raise ClusterError(f"no leader within {timeout_s:.0f} s\n{tails}")
