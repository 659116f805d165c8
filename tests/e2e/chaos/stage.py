"""Where a run happens: the network, the cluster on it, and client processes."""

from __future__ import annotations

import contextlib
import json
import pathlib
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from chaos.cluster import OBSERVER, ChaosCluster
from chaos.network import open_network
from chaos.workloads import WORKLOADS

#: Host of the client processes.
CLIENT_HOST = "c0"


def draw_settings(seed: int) -> dict[str, object]:
    """Draw node settings: often so small that checkpoints and snapshots happen all the time."""
    draw = random.Random(f"settings {seed}")
    settings: dict[str, object] = {}
    if draw.random() < 0.6:
        settings["log_tail_bytes"] = draw.choice([0, 64 * 1024, 1 << 20])
        settings["checkpoint_log_bytes"] = draw.choice([64 * 1024, 1 << 20, 16 << 20])
        settings["checkpoint_interval_ms"] = draw.choice([200, 1000, 5000])
    return settings


@contextlib.contextmanager
def stage(
    folder: pathlib.Path,
    seed: int,
    network: str = "auto",
    settings: dict[str, object] | None = None,
    hosts: int = 3,
) -> Iterator[ChaosCluster]:
    """Give three nodes that run on a network of their own; this process moves to the observer.

    Args:
        folder: receives the cluster.
        seed: of the network's own draws.
        network: see `open_network`.
        settings: of every node.
        hosts: number of hosts for nodes; those past the third have no node yet.

    """
    names = [f"n{number}" for number in range(hosts)]
    opened = open_network(names, [CLIENT_HOST, OBSERVER], seed, network)
    try:
        opened.enter(OBSERVER)
        with ChaosCluster.on(opened, folder / "cluster", names[:3], settings) as cluster:
            yield cluster
    finally:
        opened.close()


class ClientProcess:
    """A started `chaos.client` on the clients' host."""

    def __init__(
        self,
        cluster: ChaosCluster,
        folder: pathlib.Path,
        workload: str,
        *,
        seed: int,
        clients: int,
        think_ms: float,
        timeout_ms: int,
        operations: int | None = None,
        start_with: str | None = None,
        sessions_per_instance: int = 1,
        first_number: int | None = None,
        name: str | None = None,
        began: float | None = None,
    ) -> None:
        """Start it.

        Args:
            cluster: whom to talk to.
            folder: receives `<name>.jsonl` and `<name>.log`.
            workload: a name of `WORKLOADS`.
            seed: of the clients' draws.
            clients: number of sessions.
            think_ms: mean pause of a client between operations.
            timeout_ms: the sessions' request timeout.
            operations: of all clients together; without it they work until asked to stop.
            start_with: node that all clients try first; otherwise they spread.
            sessions_per_instance: how many clients share a DuckDB instance and its attachment.
            first_number: makes the values of this process unique in the run.
            name: of its files and clients; the workload's by default.
            began: when the run began, as of `time.monotonic()`; now by default.

        """
        self.workload = workload
        self.history = folder / f"{name or workload}.jsonl"
        self.log = (folder / f"{name or workload}.log").open("w")
        names = [node.node_id for node in cluster.nodes]
        if start_with is not None:
            names = [start_with, *(one for one in names if one != start_with)]
        self.process = subprocess.Popen(
            [*cluster.network.command(CLIENT_HOST), sys.executable, "-m", "chaos.client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,
        )
        setup = {
            "folder": str(cluster.folder),
            "addresses": [cluster.network.dial(CLIENT_HOST, one) for one in names],
            "spread": start_with is None,
            "workload": workload,
            "label": name or workload,
            "history": str(self.history),
            "seed": seed,
            "clients": clients,
            "sessions_per_instance": sessions_per_instance,
            "operations": operations,
            "first_number": 100 * (1 + list(WORKLOADS).index(workload))
            if first_number is None
            else first_number,
            "think_ms": think_ms,
            "timeout_ms": timeout_ms,
            "patience_s": 3 * timeout_ms / 1000 + 45,
            "began": time.monotonic() if began is None else began,
        }
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(setup) + "\n")
        self.process.stdin.flush()
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"the clients of {workload} did not start: see {self.log.name}")

    def ask_to_stop(self) -> None:
        """Let the clients finish what is under way."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def working(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    def finish(self) -> dict[str, Any]:
        """Wait for the end; return the process's own report."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()
        if not line:
            code = self.process.returncode
            text = pathlib.Path(self.log.name).read_text(errors="replace")[-1500:]
            return {"stuck": [], "failures": [f"the process ended with code {code}: {text}"]}
        return dict(json.loads(line))

    def end(self) -> None:
        """Take the process down, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
