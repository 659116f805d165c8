"""Goal: replicas that differ are found, named and taken out of service.

Real processes over mTLS. One stored value of a stopped node is changed with plain DuckDB, behind
the node's back.
"""

from __future__ import annotations

import pathlib
import time

import duckdb
import pytest

from quack.cluster.local import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster

#: Compared twice a second; the default is every ten minutes.
OFTEN = {"checksum_interval_ms": 500, "checkpoint_idle_ms": 100}


def data_dir(node: LocalNode) -> pathlib.Path:
    return node.log_file.parent / "data"


def wait_until(condition, what, timeout_s: float = 90):
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"not in time: {what()}"
        time.sleep(0.1)


def tails(cluster: LocalCluster) -> str:
    return "\n".join(f"-- {node.node_id}\n{node.log_tail(8)}" for node in cluster.nodes)


def checksums(cluster: LocalCluster, node: LocalNode, condition: str) -> list[tuple]:
    """Rows (log_index, node_id, rows, hash, verdict) of table t; none while it does not answer."""
    try:
        session = cluster.connect(node)
    except duckdb.Error:
        return []
    try:
        return session.execute(
            f"""SELECT log_index, node_id, rows, hash, verdict FROM quack_checksums('cp')
                WHERE "group" = 'root' AND schema = 'main' AND object = 't' AND type = 'table'
                  AND {condition} ORDER BY ALL"""
        ).fetchall()
    except duckdb.Error:
        return []
    finally:
        session.close()


def fill(cluster: LocalCluster) -> None:
    session = cluster.connect()
    session.execute("CREATE TABLE cp.t (i INTEGER PRIMARY KEY, s VARCHAR)")
    session.execute("CREATE TABLE cp.other (i INTEGER)")
    session.execute("INSERT INTO cp.t SELECT range, md5(range::VARCHAR) FROM range(5000)")
    session.close()


def newest_round(rows: list[tuple]) -> list[tuple]:
    return [row for row in rows if row[0] == rows[-1][0]]


def wait_for_proof(cluster: LocalCluster, after: int = 0) -> int:
    """Until every node has seen the same round with equal reports of all; its index."""

    def proven() -> int:
        found = None
        for node in cluster.nodes:
            equal = checksums(cluster, node, f"verdict = 'equal' AND log_index > {after}")
            rounds = {row[0] for row in equal}
            complete = {
                index
                for index in rounds
                if {row[1] for row in equal if row[0] == index}
                == {other.node_id for other in cluster.nodes}
                and len({row[2:4] for row in equal if row[0] == index}) == 1
            }
            found = complete if found is None else found & complete
        return max(found) if found else 0

    return int(wait_until(proven, lambda: f"a round in which all are equal\n{tails(cluster)}"))


def change_a_value(node: LocalNode) -> None:
    """Flip one stored value of a node that does not run."""
    file = data_dir(node) / "catalog" / "cp.duckdb"
    session = duckdb.connect()
    session.execute(f"ATTACH '{file}' AS cp")
    session.execute("UPDATE cp.main.t SET s = 'flipped' WHERE i = 4711")
    session.execute("CHECKPOINT cp")
    session.close()


def is_degraded(cluster: LocalCluster, node: LocalNode) -> str:
    status = cluster.status(node)
    return str(status["reason"]) if status and status["degraded"] else ""


def wait_degraded(cluster: LocalCluster, node: LocalNode) -> str:
    return str(
        wait_until(lambda: is_degraded(cluster, node), lambda: f"a degraded node\n{tails(cluster)}")
    )


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_the_odd_node_out_is_named_and_latched(tmp_path, victim):
    with LocalCluster.create(tmp_path / "cluster", 3, settings=dict(OFTEN)) as cluster:
        cluster.start()
        fill(cluster)
        index = wait_for_proof(cluster)
        leader = cluster.wait_leader()
        node = leader if victim == "leader" else next(n for n in cluster.nodes if n is not leader)
        others = [other for other in cluster.nodes if other is not node]
        node.stop()
        change_a_value(node)
        node.start()

        reason = wait_degraded(cluster, node)
        for part in (node.node_id, "main.t", "index", "group root", "cluster node replace"):
            assert part in reason, reason
        for one in others:
            odd = wait_until(
                lambda one=one: checksums(cluster, one, "verdict = 'odd'"),
                lambda: f"a named node\n{tails(cluster)}",
            )
            assert {row[1] for row in odd} == {node.node_id}
            assert all(row[0] > index and row[2] == 5000 for row in odd)
            assert is_degraded(cluster, one) == ""
            assert "replicas_differ" in one.log_file.read_text()
        # The other tables and nodes are not blamed.
        session = cluster.connect(others[0])
        blamed = session.execute(
            "SELECT DISTINCT node_id, object FROM quack_checksums('cp') WHERE verdict = 'odd'"
        ).fetchall()
        session.close()
        assert blamed == [(node.node_id, "t")]

        # It answers nothing but status: who asks it is led to a node that holds the right value.
        session = cluster.connect(node)
        assert session.execute("SELECT s = md5('4711') FROM cp.t WHERE i = 4711").fetchall() == [
            (True,)
        ]
        session.close()
        # The others go on without it.
        session = cluster.connect(others[0])
        session.execute("INSERT INTO cp.t VALUES (5000, 'later')")
        assert session.execute("SELECT count(*) FROM cp.t").fetchall() == [(5001,)]
        session.close()

        # A restart does not make it right.
        assert node.stop() == 3
        node.start()
        assert wait_degraded(cluster, node) == reason


def test_without_a_majority_everybody_is_told_and_nobody_latched(tmp_path):
    with LocalCluster.create(tmp_path / "cluster", 2, settings=dict(OFTEN)) as cluster:
        cluster.start()
        fill(cluster)
        wait_for_proof(cluster)
        node = cluster.nodes[1]
        node.stop()
        change_a_value(node)
        node.start()
        for one in cluster.nodes:
            rows = wait_until(
                lambda one=one: checksums(cluster, one, "verdict = 'no_majority'"),
                lambda: f"a difference\n{tails(cluster)}",
            )
            newest = newest_round(rows)
            assert {row[1] for row in newest} == {other.node_id for other in cluster.nodes}
            assert len({row[3] for row in newest}) == 2
            assert "replicas_differ" in one.log_file.read_text()
            assert is_degraded(cluster, one) == ""
