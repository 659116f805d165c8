"""What several end-to-end tests ask of a cluster, and how they wait for an answer."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any

import duckdb

from quack.cluster.local import LocalCluster, LocalNode


def data_dir(node: LocalNode) -> pathlib.Path:
    """Where the node keeps its files."""
    return node.log_file.parent / "data"


def wait_until(
    condition: Callable[[], Any], what: str | Callable[[], str], timeout_s: float = 90
) -> Any:
    """Poll until the condition is true, and return its value; fails after the time, saying what."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        late = time.monotonic() >= deadline
        assert not late, f"not in time: {what if isinstance(what, str) else what()}"
        time.sleep(0.1)


def tails(cluster: LocalCluster) -> str:
    """Return the last lines of every node's log."""
    return "\n".join(f"-- {node.node_id}\n{node.log_tail(8)}" for node in cluster.nodes)


def query(
    cluster: LocalCluster, node: LocalNode, sql: str, **options: Any
) -> list[tuple[Any, ...]] | None:
    """Rows as one node gives them; None while it does not answer."""
    try:
        session = cluster.connect(node, **options)
    except duckdb.Error:
        return None
    try:
        return session.execute(sql).fetchall()
    except duckdb.Error:
        return None
    finally:
        session.close()


def wait_equal(cluster: LocalCluster) -> None:
    """Until all nodes are in service and hold the same."""

    def in_service(node: LocalNode) -> bool:
        # Of one that is not, another node answers everything but its status.
        row = cluster.status(node) or {"node_id": ""}
        return row["node_id"] == node.node_id and row["role"] in ("leader", "follower", "learner")

    def hashes() -> bool:
        if not all(in_service(node) for node in cluster.nodes):
            return False
        sql = "SELECT schema, object, type, rows, hash FROM quack_state_hash('cp') ORDER BY ALL"
        found = [query(cluster, node, sql, consistency="linearizable") for node in cluster.nodes]
        return found[0] is not None and all(rows == found[0] for rows in found)

    wait_until(hashes, lambda: f"equal nodes\n{tails(cluster)}", timeout_s=120)


def compare_changes(session: duckdb.DuckDBPyConnection, table: str) -> int:
    """How many different rows of a table are not what its change feed adds up to."""
    own = "change, commit_group, commit_index, commit_order, request_id"
    weight = "CASE WHEN change IN ('insert', 'update_postimage') THEN 1 ELSE -1 END"
    feed = f"""SELECT * EXCLUDE ({own}), sum({weight})::BIGINT AS n
        FROM quack_changes('cp', '{table}', NULL, NULL) GROUP BY ALL HAVING n <> 0"""
    rows = f"SELECT *, count(*) AS n FROM cp.{table} GROUP BY ALL"
    return len(session.execute(f"({feed} EXCEPT {rows}) UNION ({rows} EXCEPT {feed})").fetchall())
