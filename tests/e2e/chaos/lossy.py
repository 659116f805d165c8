"""Forwarded inserts into a table without a key, over links that lose a fifth of all packets.

Sessions insert single rows through a follower; loss lies on every link between nodes and to the
clients, and proxies delay answers up to near the clients' timeout, so that requests are repeated.
Three stretches: quiet leadership; the leader is killed and restarted; a follower is away until it
needs a snapshot. At the end each row is there exactly once, or was reported as not inserted.
"""

from __future__ import annotations

import pathlib
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import duckdb

from chaos.cluster import ChaosCluster, ChaosNode
from chaos.history import load
from chaos.report import latencies_ms
from chaos.stage import CLIENT_HOST, ClientProcess
from chaos.workloads import WORKLOADS

Disturb = Callable[[ChaosCluster, threading.Event, list[str]], None]

#: So small that a follower that is away for a moment needs a snapshot.
SETTINGS: dict[str, object] = {
    "log_tail_bytes": 0,
    "checkpoint_log_bytes": 256 * 1024,
    "checkpoint_interval_ms": 1000,
}
LOSS = 0.2
TIMEOUT_MS = 8_000
SESSIONS = 192


def run(
    cluster: ChaosCluster, folder: pathlib.Path, seed: int, rows: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Insert so many rows; returns the report."""
    cluster.start()
    workload = WORKLOADS["single_rows"]
    workload.create(cluster.session(cluster.nodes[0]))
    problems: list[str] = []
    history = []
    stretches: list[dict[str, Any]] = []
    for number, (name, share, disturb) in enumerate(STRETCHES):
        leader = cluster.wait_leader(60)
        follower = next(node for node in cluster.nodes if node is not leader)
        begun = time.monotonic()
        clients = ClientProcess(
            cluster,
            folder,
            "single_rows",
            seed=seed + number,
            clients=SESSIONS,
            sessions_per_instance=16,
            think_ms=0,
            timeout_ms=TIMEOUT_MS,
            operations=round(rows * share),
            start_with=follower.node_id,
            first_number=number * SESSIONS,
            name=f"inserts-{number}",
        )
        noted: list[str] = []
        try:
            _lose(cluster)
            end = threading.Event()
            thread = None
            if disturb is not None:
                thread = threading.Thread(
                    target=_guarded, args=(disturb, cluster, end, noted, problems)
                )
                thread.start()
            told = clients.finish()
            end.set()
            if thread is not None:
                thread.join()
        finally:
            clients.end()
            cluster.network.heal()
            cluster.start_all()
        problems += [f"{name}: {text}" for text in told["failures"] + told["stuck"]]
        now = load(clients.history)
        history += now
        spent = time.monotonic() - begun
        stretches.append(
            {
                "name": name,
                "rows": dict(Counter(op.outcome for op in now)),
                "codes": dict(Counter(op.code or "none" for op in now if op.error)),
                "seconds": round(spent, 1),
                "rows_per_s": round(len(now) / spent),
                "latency_ms": latencies_ms(now),
                "noted": noted[:20],
            }
        )
        say(str(stretches[-1]))
        if disturb is not None and not noted:
            problems.append(f"{name}: the disturbance never struck")
    final: dict[str, list[int]] = {}
    figures: dict[str, Any] = {}
    try:
        cluster.wait_equal(120)
        for node in cluster.nodes:
            session = cluster.session(node, "linearizable")
            session.execute("SET quack_request_timeout_ms = 60000")
            final[node.node_id] = workload.end_state(session)
        verdict = workload.check(history, final)
        problems += verdict.anomalies
        figures = verdict.figures
    except (TimeoutError, duckdb.Error) as error:
        problems.append(f"end state: {error}")
    return {
        "ok": not problems,
        "seed": seed,
        "rows": len(history),
        "loss": LOSS,
        "lost": figures.get("lost", -1),
        "duplicated": figures.get("duplicated", -1),
        "figures": figures,
        "stretches": stretches,
        "problems": problems,
    }


def _guarded(
    disturb: Disturb,
    cluster: ChaosCluster,
    end: threading.Event,
    noted: list[str],
    problems: list[str],
) -> None:
    try:
        disturb(cluster, end, noted)
    except Exception as error:
        problems.append(f"disturbance: {type(error).__name__}: {error}")


def _lose(cluster: ChaosCluster) -> None:
    names = [node.node_id for node in cluster.nodes]
    for source in [*names, CLIENT_HOST]:
        for target in [*names, CLIENT_HOST]:
            if source != target:
                cluster.network.lose(source, target, LOSS)


def _delays(cluster: ChaosCluster, end: threading.Event, noted: list[str]) -> None:
    """By turns, pieces of answers take up to nearly the time that clients wait, and get lost."""
    while not end.wait(3):
        for node in cluster.nodes:
            cluster.network.shape(
                CLIENT_HOST, node.node_id, delay_ms=[0, 0.45 * TIMEOUT_MS], lose_answers=0.02
            )
        noted.append("delay")
        if end.wait(5):
            return
        for node in cluster.nodes:
            cluster.network.shape(CLIENT_HOST, node.node_id, heal=True)


def _restart_leader(cluster: ChaosCluster, end: threading.Event, noted: list[str]) -> None:
    while not end.wait(8):
        leader = cluster.leader()
        if not isinstance(leader, ChaosNode):
            continue
        cluster.forget(leader)
        leader.kill()
        noted.append(f"killed {leader.node_id}")
        end.wait(1)
        leader.start()


def _snapshot(cluster: ChaosCluster, end: threading.Event, noted: list[str]) -> None:
    """A follower is dead until the others have cut their logs behind a checkpoint."""
    while not end.wait(3):
        leader = cluster.leader()
        if leader is None:
            continue
        victim = cluster.nodes[(cluster.nodes.index(leader) + 1) % 3]  # type: ignore[arg-type]
        cluster.forget(victim)
        victim.kill()
        before = snapshots_installed(victim)
        end.wait(6)
        victim.start()
        deadline = time.monotonic() + 60
        while not end.is_set() and time.monotonic() < deadline:
            if snapshots_installed(victim) > before:
                noted.append(f"{victim.node_id} installed a snapshot")
                break
            end.wait(0.2)


def snapshots_installed(node: ChaosNode) -> int:
    """Count what the node's log says."""
    return node.log_file.read_text(errors="replace").count("snapshot_installed")


#: Name, share of the rows, and what happens beside the loss.
STRETCHES: list[tuple[str, float, Disturb | None]] = [
    ("loss", 0.66, None),
    ("delays near the timeout", 0.04, _delays),
    ("leader restart", 0.15, _restart_leader),
    ("snapshot install", 0.15, _snapshot),
]
