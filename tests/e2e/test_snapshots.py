"""Goal: a node gets the whole state from another one, whatever happens to either meanwhile.

Real processes over mTLS. The rate limit makes a transfer last for seconds, and a short log makes it
necessary.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from probes import data_dir, query, tails, wait_equal, wait_until
from quack.cluster.bootstrap import GeneratedNode, prepare_node
from quack.cluster.local import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster

RATE = 1_500_000
SLOW: dict[str, object] = {
    "snapshot_bytes_per_second": RATE,
    "log_tail_bytes": 200_000,
    "log_segment_bytes": 65_536,
    "checkpoint_idle_ms": 200,
    "checksum_interval_ms": 0,
}
ROWS = 1_200_000  # of 8 bytes that do not compress
PARTS = 6


def call(node: LocalNode, *arguments: str) -> dict[str, Any]:
    """Run a command through one node; its answer."""
    done = subprocess.run(
        [sys.executable, "-m", "quack", *arguments, "--config", str(node.config_file), "--json"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def write(node_session: Any, seed: int, rows: int) -> None:
    node_session.execute(f"INSERT INTO cp.t SELECT hash(range + {seed}) FROM range({rows})")


def oldest_segment(node: LocalNode) -> str:
    return min(file.name for file in (data_dir(node) / "log").glob("segment-*"))


def fill(cluster: LocalCluster) -> None:
    """Data in every catalog, and no log that reaches back to its beginning."""
    first = {node.node_id: oldest_segment(node) for node in cluster.nodes}
    session = cluster.connect()
    session.execute("CREATE TABLE cp.t (h UBIGINT)")
    for part in range(PARTS):
        write(session, part * ROWS, ROWS // PARTS)
    session.close()
    wait_until(
        lambda: all(oldest_segment(node) > first[node.node_id] for node in cluster.nodes),
        lambda: f"logs that are cut\n{tails(cluster)}",
    )


def transfers(cluster: LocalCluster, node: LocalNode, direction: str) -> list[dict[str, Any]]:
    """Rows of a node's own ``quack_snapshot_transfers``; none while it does not answer."""
    names = ("peer", "image", "state", "bytes_done", "bytes_total", "bytes_moved", "resumed")
    rows = query(
        cluster,
        node,
        f"""SELECT {", ".join(names)} FROM quack_snapshot_transfers('cp')
            WHERE node_id = '{node.node_id}' AND direction = '{direction}'""",
    )
    return [dict(zip(names, row, strict=True)) for row in rows or []]


def order_reseed(cluster: LocalCluster, node: LocalNode) -> None:
    session = cluster.connect(node)
    session.execute(f"CALL quack_reseed('{node.node_id}', 'cp')")
    session.close()


def reseed_follower(cluster: LocalCluster) -> LocalNode:
    """A follower that begins to get its data again."""
    leader = cluster.wait_leader()
    node = next(one for one in cluster.nodes if one is not leader)
    order_reseed(cluster, node)
    return node


def wait_received(cluster: LocalCluster, node: LocalNode, share: float) -> dict[str, Any]:
    """Until the node has this share of an image; its row then."""

    def far_enough() -> dict[str, Any] | None:
        for row in transfers(cluster, node, "receive"):
            if row["bytes_total"] and row["bytes_done"] >= share * row["bytes_total"]:
                return row
        return None

    return wait_until(far_enough, lambda: f"{share} of an image\n{tails(cluster)}")


def events(node: LocalNode, name: str) -> list[dict[str, Any]]:
    found = []
    for line in node.log_file.read_text(errors="replace").splitlines():
        if f'"event":"{name}"' in line:
            found.append(json.loads(line))
    return found


def sender_of(cluster: LocalCluster, row: dict[str, Any]) -> LocalNode:
    return cluster.node(row["peer"])


def test_two_nodes_at_once_while_the_leader_writes_compacts_and_changes(tmp_path):
    with LocalCluster.create(tmp_path / "cluster", 3, settings=SLOW) as cluster:
        cluster.start()
        fill(cluster)
        leader = cluster.wait_leader()
        follower = next(node for node in cluster.nodes if node is not leader)
        other = next(node for node in cluster.nodes if node not in (leader, follower))
        made = prepare_node(
            cluster.folder, "n3", like=leader.config_file, ca_dir=cluster.folder / "ca"
        )
        joiner = LocalNode(
            cluster.folder, GeneratedNode("n3", made.host, made.port, made.config_file)
        )
        order_reseed(cluster, follower)
        cluster.nodes.append(joiner)
        joiner.start()
        add = subprocess.Popen(
            [
                *[sys.executable, "-m", "quack", "cluster", "voter", "add", "n3", "--learner"],
                *["--config", str(leader.config_file)],
            ]
        )
        before = int(str((cluster.status(leader) or {})["checkpoint_index"]))
        receiving = [wait_received(cluster, node, 0.05) for node in (follower, joiner)]
        images = {(row["peer"], row["image"]) for row in receiving}

        # Seen on both sides, also in what an operator asks.
        document = call(leader, "cluster", "status")
        nodes = {node["node_id"]: node for node in document["nodes"]}
        for node in (follower, joiner):
            rows = [t for t in nodes[node.node_id]["transfers"] if t["direction"] == "receive"]
            assert len(rows) == 1 and rows[0]["bytes_total"] > ROWS * 8, document
            sent = [
                t
                for t in nodes[rows[0]["peer"]]["transfers"]
                if t["direction"] == "send" and t["peer"] == node.node_id
            ]
            assert [t["image"] for t in sent] == [rows[0]["image"]]

        # Writes and checkpoints go on, and another node takes over.
        session = cluster.connect(other)
        for part in range(5):
            write(session, 10_000_000 + part, 20_000)
        session.close()
        wait_until(
            lambda: (
                int(str((cluster.status(leader) or {"checkpoint_index": 0})["checkpoint_index"]))
                > before
            ),
            lambda: f"a checkpoint\n{tails(cluster)}",
        )
        assert call(leader, "cluster", "leader", "stepdown", "--preferred", other.node_id)["ok"]
        for node in (follower, joiner):
            assert transfers(cluster, node, "receive"), "the transfer outlasts the leader's change"

        assert add.wait(180) == 0
        wait_equal(cluster)
        for node in (follower, joiner):
            assert len(events(node, "snapshot_installed")) == 1, node.log_tail(30)
            assert not events(node, "snapshot_begun_anew")
        for peer, _ in images:
            source = cluster.node(peer)
            receivers = len([1 for row in receiving if row["peer"] == peer])
            # One image for all who asked that node.
            assert len(events(source, "snapshot_opened")) == 1, (receivers, source.log_tail(30))
        total = query(cluster, leader, "SELECT count(*) FROM cp.t")
        assert total == [(ROWS + 100_000,)]


@pytest.mark.parametrize("victim", ["receiver", "sender"])
def test_a_transfer_goes_on_after_kill_9(tmp_path, victim):
    with LocalCluster.create(tmp_path / "cluster", 3, settings=SLOW) as cluster:
        cluster.start()
        fill(cluster)
        node = reseed_follower(cluster)
        row = wait_received(cluster, node, 0.6)
        source = sender_of(cluster, row)
        killed = node if victim == "receiver" else source
        killed.kill()
        killed.start()
        wait_received(cluster, node, 0.65)
        if victim == "receiver":
            resumed = events(node, "snapshot_resumed")
            assert len(resumed) == 1, node.log_tail(30)
            assert int(resumed[0]["offset"]) > row["bytes_total"] / 3
            assert resumed[0]["image"] == events(node, "snapshot_begun")[0]["image"]

        moved = row["bytes_moved"]

        def is_installed() -> bool:
            """Counts, on the way, the bytes that moved, on the side that lives."""
            nonlocal moved
            side, direction = (source, "send") if victim == "receiver" else (node, "receive")
            for seen in transfers(cluster, side, direction):
                moved = max(moved, seen["bytes_moved"])
            return bool(events(node, "snapshot_installed"))

        wait_until(is_installed, lambda: f"an image\n{tails(cluster)}")
        wait_equal(cluster)
        assert row["bytes_moved"] <= moved < 1.5 * row["bytes_total"]
        assert len(events(node, "snapshot_installed")) == 1
        assert not events(node, "snapshot_begun_anew"), node.log_tail(30)
        if victim == "sender":
            assert events(source, "snapshot_kept"), source.log_tail(30)
        # What a transfer needs goes with it: the fetcher looks every so often whether the image was taken.
        incoming = data_dir(node) / "incoming"
        wait_until(lambda: not list(incoming.iterdir()), lambda: f"nothing in {incoming}")


def test_a_part_of_an_image_that_is_gone_is_dropped_and_the_log_says_so(tmp_path):
    with LocalCluster.create(tmp_path / "cluster", 3, settings=SLOW) as cluster:
        cluster.start()
        fill(cluster)
        node = reseed_follower(cluster)
        row = wait_received(cluster, node, 0.3)
        source = sender_of(cluster, row)
        node.kill()
        source.kill()
        for file in (data_dir(source) / "catalog").glob("*.snapshot.*"):
            file.unlink()
        source.start()
        node.start()
        wait_equal(cluster)
        said = events(node, "snapshot_begun_anew")
        assert len(said) == 1 and "are dropped" in said[0]["message"], node.log_tail(30)
        assert not events(node, "snapshot_resumed")
