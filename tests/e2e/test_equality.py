"""Goal: replicas that differ or cannot follow are named, taken out of service, and reseeded.

Real processes over mTLS. What a stopped node stores is changed with plain DuckDB, behind the node's
back.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import threading
import time

import duckdb
import pytest

from probes import data_dir, query, tails, wait_until
from quack.cluster.local import LocalCluster, LocalNode
from quack.extension import connect

pytestmark = pytest.mark.cluster

#: Compared twice a second; the default is every ten minutes.
OFTEN = {"checksum_interval_ms": 500, "checkpoint_idle_ms": 100}


def checksums(cluster: LocalCluster, node: LocalNode, condition: str) -> list[tuple]:
    """Rows (log_index, node_id, rows, hash, verdict) of table t; none while it does not answer."""
    return (
        query(
            cluster,
            node,
            f"""SELECT log_index, node_id, rows, hash, verdict FROM quack_checksums('cp')
                WHERE "group" = 'root' AND schema = 'main' AND object = 't' AND type = 'table'
                  AND {condition} ORDER BY ALL""",
        )
        or []
    )


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


def change_by_hand(node: LocalNode, statement: str) -> None:
    """Change the catalog file of a node that does not run."""
    file = data_dir(node) / "catalog" / "cp.duckdb"
    session = duckdb.connect()
    session.execute(f"ATTACH '{file}' AS cp")
    session.execute(statement)
    session.execute("CHECKPOINT cp")
    session.close()


def change_a_value(node: LocalNode) -> None:
    change_by_hand(node, "UPDATE cp.main.t SET s = 'flipped' WHERE i = 4711")


def is_degraded(cluster: LocalCluster, node: LocalNode) -> str:
    status = cluster.status(node)
    return str(status["reason"]) if status and status["degraded"] else ""


def is_in_service(cluster: LocalCluster, node: LocalNode) -> bool:
    status = cluster.status(node)
    return status is not None and status["node_id"] == node.node_id and not status["degraded"]


def wait_degraded(cluster: LocalCluster, node: LocalNode) -> str:
    return str(
        wait_until(lambda: is_degraded(cluster, node), lambda: f"a degraded node\n{tails(cluster)}")
    )


def run_quack(via: LocalNode, *command: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "quack", *command, "--json", "--config", str(via.config_file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout, done.stderr
    return done


def quack(via: LocalNode, *command: str) -> tuple[int, dict]:
    done = run_quack(via, *command)
    return done.returncode, json.loads(done.stdout)


def block_identity(node: LocalNode) -> pathlib.Path:
    """Let nothing replace the node's identity.json, as on a disk without space for a new file."""
    obstacle = data_dir(node) / "identity.json.new"
    obstacle.mkdir()
    return obstacle


@pytest.mark.parametrize("victim", ["leader", "follower", "follower that cannot note it"])
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
        obstacle = block_identity(node) if "cannot" in victim else None
        node.start()

        reason = wait_degraded(cluster, node)
        for part in (node.node_id, "main.t", "index", "group root", "quack cluster node reseed"):
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
        # So says the doctor, who also gets an answer from the node that is out of service.
        code, document = quack(others[0], "doctor")
        assert code == 1
        problems = [f for f in document["findings"] if f["level"] == "problem"]
        named = [f for f in problems if f["check"] == "equality" and "main.t" in f["message"]]
        assert {f["fix"] for f in named} == {f"quack cluster node reseed {node.node_id}"}
        assert any(f["check"] == "status" and reason in f["message"] for f in problems)

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

        # A restart does not make it right, whatever was in the way of writing that down.
        assert node.stop() == 3
        noted = "distrusted" in (data_dir(node) / "identity.json").read_text()
        assert noted == (obstacle is None)
        assert "distrust_not_recorded" not in node.log_file.read_text()
        node.start()
        assert wait_degraded(cluster, node) == reason
        if obstacle is not None:
            obstacle.rmdir()
            code, document, _ = reseed(cluster, others[0], node.node_id)
            assert code == 0, document
            node.stop()
            node.start()
            wait_until(lambda: is_in_service(cluster, node), lambda: tails(cluster))
            wait_for_proof(cluster, after=index)


def reseed(cluster: LocalCluster, via: LocalNode, node_id: str) -> tuple[int, dict, str]:
    """Run the command as an operator does: its code, its answer, its progress."""
    done = run_quack(via, "cluster", "node", "reseed", node_id)
    return done.returncode, json.loads(done.stdout), done.stderr


def oldest_segment(node: LocalNode) -> str:
    return min(file.name for file in (data_dir(node) / "log").glob("segment-*"))


#: Whole log: the node replays it. Short log: it needs the image of a peer.
@pytest.mark.parametrize("log", ["whole", "short"])
def test_reseed_heals_a_wrong_node(tmp_path, log):
    settings: dict[str, object] = dict(OFTEN)
    if log == "short":
        # Long enough that a restarted node follows by the log, too short for a whole replay.
        settings |= {"log_tail_bytes": 1_000_000, "log_segment_bytes": 65536}
    with LocalCluster.create(tmp_path / "cluster", 3, settings=settings) as cluster:
        cluster.start()
        fill(cluster)
        leader = cluster.wait_leader()
        node = next(n for n in cluster.nodes if n is not leader)
        first = min(oldest_segment(one) for one in cluster.nodes)
        session = cluster.connect(leader)
        for i in range(10 if log == "short" else 1):
            session.execute(
                f"INSERT INTO cp.other SELECT hash(range + {i}) % 1000000000 FROM range(100000)"
            )
        session.close()
        if log == "short":
            wait_until(
                lambda: all(oldest_segment(one) > first for one in cluster.nodes),
                lambda: f"logs that are cut\n{tails(cluster)}",
            )
        node.stop()
        change_a_value(node)
        node.start()
        wait_degraded(cluster, node)
        process = node.process
        assert process is not None

        code, answer, progress = reseed(cluster, leader, node.node_id)
        assert (code, answer["ok"]) == (0, True), (answer, tails(cluster))
        assert "restarts" in progress
        assert node.process is process and node.running()
        moved = list((data_dir(node) / "quarantine").iterdir())
        assert len(moved) == 1
        assert (moved[0] / "catalog" / "cp.duckdb").exists()
        assert "main.t" in (moved[0] / "README.md").read_text()
        healed = node.log_file.read_text().rpartition('"reseeding"')[2]
        assert ("snapshot_installed" in healed) == (log == "short")
        index = int(str((cluster.status(leader) or {})["commit_index"]))
        wait_for_proof(cluster, after=index)
        assert is_degraded(cluster, node) == ""
        # For good.
        assert node.stop() == 0
        node.start()
        wait_for_proof(cluster, after=index)
        assert is_degraded(cluster, node) == ""
        assert len(list((data_dir(node) / "quarantine").iterdir())) == 1


def test_a_crash_after_the_order_does_not_bring_the_old_state_back(tmp_path):
    with LocalCluster.create(tmp_path / "cluster", 3, settings=dict(OFTEN)) as cluster:
        cluster.start()
        fill(cluster)
        leader = cluster.wait_leader()
        node = next(n for n in cluster.nodes if n is not leader)
        node.stop()
        change_a_value(node)
        node.start()
        wait_degraded(cluster, node)
        session = cluster.connect(node)
        session.execute("CALL quack_reseed(?, 'cp')", [node.node_id])
        node.kill()
        session.close()
        node.start()
        index = int(str((cluster.status(leader) or {})["commit_index"]))
        wait_for_proof(cluster, after=index)
        assert is_degraded(cluster, node) == ""
        assert len(list((data_dir(node) / "quarantine").iterdir())) == 1


def times_of(node: LocalNode, event: str) -> list[str]:
    """When the node's log names this event; such times sort as text."""
    lines = [
        line for line in node.log_file.read_text().splitlines() if f'"event":"{event}"' in line
    ]
    return [str(json.loads(line)["time"]) for line in lines]


def test_two_nodes_that_are_told_at_once_are_reseeded_one_after_the_other(tmp_path):
    with LocalCluster.create(tmp_path / "cluster", 3, settings=dict(OFTEN)) as cluster:
        cluster.start()
        fill(cluster)
        leader = cluster.wait_leader()
        followers = [node for node in cluster.nodes if node is not leader]
        refused: list[str] = []

        def order(node: LocalNode) -> None:
            """Until it is done: the order may be refused for now, or its answer get lost."""
            while not times_of(node, "reseeding"):
                try:
                    session = cluster.connect(node)
                    if not times_of(node, "reseeding"):  # it may have restarted meanwhile
                        session.execute("CALL quack_reseed(?, 'cp')", [node.node_id])
                    session.close()
                except duckdb.Error as error:
                    refused.append(str(error))
                time.sleep(0.2)

        threads = [threading.Thread(target=order, args=[node]) for node in followers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
            assert not thread.is_alive(), tails(cluster)
        index = int(str((cluster.status(leader) or {})["commit_index"]))
        wait_for_proof(cluster, after=index)
        first, second = sorted(followers, key=lambda node: times_of(node, "reseeding")[0])
        left = times_of(first, "reseeding")[0]
        back = min(time for time in times_of(first, "role_changed") if time > left)
        assert times_of(second, "reseeding")[0] > back, (refused, tails(cluster))
        assert [len(times_of(node, "reseeding")) for node in followers] == [1, 1]


def test_the_last_one_beside_the_leader_refuses_to_be_reseeded(tmp_path):
    with LocalCluster.create(tmp_path / "cluster", 3, settings=dict(OFTEN)) as cluster:
        cluster.start()
        fill(cluster)
        leader = cluster.wait_leader()
        node, away = (one for one in cluster.nodes if one is not leader)
        away.kill()
        session = cluster.connect(node)
        with pytest.raises(duckdb.Error) as refused:
            session.execute("CALL quack_reseed(?, 'cp')", [node.node_id])
        session.close()
        assert "2 of the 3 voters are needed, and 1 of them" in str(refused.value)
        assert not (data_dir(node) / "quarantine").exists()
        assert is_degraded(cluster, node) == ""


def test_a_refused_reseed_changes_nothing(tmp_path):
    with LocalCluster.create(tmp_path / "cluster", 2, settings=dict(OFTEN)) as cluster:
        cluster.start()
        fill(cluster)
        leader = cluster.wait_leader()
        code, answer, _ = reseed(cluster, leader, leader.node_id)
        assert (code, answer["code"]) == (1, "unavailable")
        assert f"node '{leader.node_id}' leads" in answer["error"]
        # Without it the leader alone would be no majority.
        follower = next(node for node in cluster.nodes if node is not leader)
        code, answer, _ = reseed(cluster, leader, follower.node_id)
        assert (code, answer["code"]) == (1, "unavailable")
        assert "2 of the 2 voters are needed, and 1 of them" in answer["error"]
        code, answer, _ = reseed(cluster, leader, "nobody")
        assert (code, answer["code"]) == (1, "not_found")
        for node in cluster.nodes:
            assert is_degraded(cluster, node) == ""
            assert not (data_dir(node) / "quarantine").exists()


def state(cluster: LocalCluster, node: LocalNode) -> list[tuple]:
    return query(cluster, node, "FROM quack_state_hash('cp') ORDER BY ALL") or []


def refusal(cluster: LocalCluster, node: LocalNode, statement: str) -> str:
    """What a client is told that asks this node, for a few seconds, in vain."""
    session = connect()
    try:
        attach = cluster.attach_sql(node, consistency="eventual")
        session.execute(f"{attach.removesuffix(')')}, request_timeout_ms 4000)")
        with pytest.raises(duckdb.Error) as caught:
            session.execute(statement).fetchall()
        return str(caught.value)
    finally:
        session.close()


def test_a_node_that_cannot_apply_takes_no_part_until_it_is_reseeded(tmp_path):
    settings = OFTEN | {"checksum_interval_ms": 0}
    with LocalCluster.create(tmp_path / "cluster", 3, settings=settings) as cluster:
        cluster.start()
        fill(cluster)
        leader = cluster.wait_leader()
        node, third = (n for n in cluster.nodes if n is not leader)
        node.stop()
        change_by_hand(node, "ALTER TABLE cp.main.other ADD COLUMN surplus INTEGER")
        node.start()
        session = cluster.connect(leader)
        session.execute("INSERT INTO cp.other VALUES (1)")
        session.close()
        reason = wait_degraded(cluster, node)
        assert "apply of entries from index" in reason, reason
        wait_until(
            lambda: '"node_degraded"' in node.log_file.read_text(), lambda: "a word of the process"
        )
        assert '"event":"degraded"' in node.log_file.read_text()
        # A new start tries once more and meets the same.
        assert node.stop() == 3
        node.start()
        assert wait_degraded(cluster, node) == reason

        # It is not reseeded while the cluster could need it.
        third.stop()
        code, answer, _ = reseed(cluster, leader, node.node_id)
        assert (code, answer["code"]) == (1, "unavailable")
        # Without its vote and its acknowledgement the leader alone is no majority.
        wait_until(
            lambda: (cluster.status(leader) or {"is_leader": True})["is_leader"] is False,
            lambda: f"a leader that steps down\n{tails(cluster)}",
        )
        refusal(cluster, leader, "INSERT INTO cp.other VALUES (2)")
        assert (cluster.status(leader) or {"is_leader": True})["is_leader"] is False
        assert is_degraded(cluster, node) == reason

        third.start()
        leader = cluster.wait_leader()
        assert leader is not node
        code, answer, _ = reseed(cluster, leader, node.node_id)
        assert (code, answer["ok"]) == (0, True), (answer, tails(cluster))
        session = cluster.connect(leader)
        session.execute("INSERT INTO cp.other VALUES (3)")
        session.close()
        wait_until(
            lambda: (
                bool(expected := state(cluster, leader))
                and all(state(cluster, other) == expected for other in cluster.nodes)
            ),
            lambda: f"equal states\n{tails(cluster)}",
        )
        moved = list((data_dir(node) / "quarantine").iterdir())
        assert "apply of entries from index" in (moved[0] / "README.md").read_text()
        assert is_degraded(cluster, node) == ""
        assert node.stop() == 0


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
