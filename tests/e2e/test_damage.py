"""Goal: a node whose files are damaged moves them aside, says why, and heals from its peers.

Real processes over mTLS. One bit of a file is flipped while the node is down; nobody gives a
command. A node without peers refuses and changes nothing.
"""

from __future__ import annotations

import json
import pathlib

import duckdb
import pytest

from probes import data_dir, query, tails, wait_until
from quack.cluster.local import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster

MARKER = b"the bytes that will be damaged"
#: Checkpoints come soon and leave no log behind them.
NO_LOG_TAIL = {"checkpoint_idle_ms": 100, "log_tail_bytes": 0}


def incarnation(node: LocalNode) -> str:
    return str(json.loads((data_dir(node) / "identity.json").read_text())["incarnation"])


def wait_equal(cluster: LocalCluster, rows: int) -> None:
    """All nodes are voters, hold that many rows, and their states have one hash."""

    def is_equal() -> bool:
        seen = set()
        for node in cluster.nodes:
            count = query(cluster, node, "SELECT count(*) FROM cp.t")
            state = query(cluster, node, "SELECT * FROM quack_state_hash('cp') ORDER BY ALL")
            roles = query(
                cluster, node, "SELECT node_id FROM quack_members('cp') WHERE role = 'voter'"
            )
            if count != [(rows,)] or roles is None or len(roles) != len(cluster.nodes):
                return False
            seen.add(tuple(state or ()))
        return len(seen) == 1

    wait_until(is_equal, lambda: f"equal states with {rows} rows\n{tails(cluster)}")


def flip(file: pathlib.Path, offset: int) -> None:
    with file.open("r+b") as handle:
        handle.seek(offset)
        byte = handle.read(1)[0]
        handle.seek(offset)
        handle.write(bytes([byte ^ 0x10]))


def find_entry(node: LocalNode) -> tuple[pathlib.Path, int]:
    """Where in the log the marked row lies."""
    for segment in sorted((data_dir(node) / "log").glob("segment-*.log")):
        offset = segment.read_bytes().find(MARKER)
        if offset >= 0:
            return segment, offset
    raise AssertionError("the marked row is in no segment")


def quarantined(node: LocalNode) -> pathlib.Path:
    """The one directory in quarantine/."""
    (found,) = (data_dir(node) / "quarantine").iterdir()
    return found


def fill(cluster: LocalCluster) -> None:
    """Ten rows, the marked one among them, and a few hundred more behind it."""
    session = cluster.connect()
    session.execute("CREATE TABLE cp.t (i INTEGER PRIMARY KEY, s VARCHAR)")
    session.execute("INSERT INTO cp.t VALUES (0, ?)", [MARKER.decode()])
    for number in range(1, 10):
        session.execute("INSERT INTO cp.t VALUES (?, 'a row')", [number])
    session.execute("INSERT INTO cp.t SELECT range, md5(range::VARCHAR) FROM range(10, 5000)")
    session.close()


def checkpoint_index(cluster: LocalCluster, node: LocalNode) -> int:
    status = cluster.status(node)
    return int(str(status["checkpoint_index"])) if status else 0


def forget_log(cluster: LocalCluster) -> None:
    """Wait until no node's log reaches back to its beginning.

    A checkpoint that covers a later write tells that the log was cut at the one before.
    """
    session = cluster.connect()
    session.execute("CREATE TABLE cp.later (i INTEGER)")
    for number in range(2):
        session.execute("INSERT INTO cp.later VALUES (?)", [number])
        status = cluster.status(cluster.wait_leader())
        assert status is not None
        goal = int(str(status["commit_index"]))
        for node in cluster.nodes:
            wait_until(
                lambda n=node, g=goal: checkpoint_index(cluster, n) >= g,
                lambda: f"a checkpoint\n{tails(cluster)}",
            )
    session.close()


@pytest.mark.parametrize("victim", ["leader", "follower"])
def test_a_node_with_a_damaged_log_takes_part_again_as_another_disk(tmp_path, victim):
    with LocalCluster.create(tmp_path / "cluster", 3) as cluster:
        cluster.start()
        fill(cluster)
        wait_equal(cluster, 5000)
        leader = cluster.wait_leader()
        node = leader if victim == "leader" else next(n for n in cluster.nodes if n is not leader)
        before = incarnation(node)
        node.kill()
        segment, offset = find_entry(node)
        flip(segment, offset)

        # The others go on, and never notice more than a missing member.
        session = cluster.connect()
        session.execute("INSERT INTO cp.t SELECT range, 'later' FROM range(5000, 6000)")
        session.close()

        node.start()
        wait_equal(cluster, 6000)
        after = incarnation(node)
        assert after != before
        rows = query(
            cluster,
            cluster.wait_leader(),
            f"SELECT incarnation, role FROM quack_members('cp') WHERE node_id = '{node.node_id}'",
        )
        assert sorted(rows or []) == sorted([(before, "removed"), (after, "voter")])

        aside = quarantined(node)
        readme = (aside / "README.md").read_text()
        assert str(segment) in readme and "offset" in readme and "index" in readme
        assert before in readme and after in readme
        assert (aside / "log" / segment.name).exists() and (aside / "catalog").is_dir()
        assert "damaged_log_moved_aside" in node.log_file.read_text()

        # The new disk is as good as any: it restarts, and its log counts for the quorum.
        node.stop()
        node.start()
        other = next(n for n in cluster.nodes if n is not node and n is not cluster.wait_leader())
        other.kill()
        session = cluster.connect()
        session.execute("INSERT INTO cp.t VALUES (6000, 'with the new disk')")
        session.close()
        other.start()
        wait_equal(cluster, 6001)
        assert len(list((data_dir(node) / "quarantine").iterdir())) == 1


def used_block(file: pathlib.Path) -> int:
    """Offset of a block that holds rows of the table."""
    session = duckdb.connect()
    session.execute(f"ATTACH '{file}' AS cp (READ_ONLY)")
    (number,) = session.execute(
        "SELECT max(block_id) FROM pragma_storage_info('cp.main.t') WHERE persistent"
    ).fetchone()
    session.close()
    return 3 * 4096 + number * 262144


@pytest.mark.parametrize("log", ["whole", "truncated"])
def test_a_node_with_a_damaged_catalog_file_stays_who_it_is(tmp_path, log):
    settings = dict(NO_LOG_TAIL) if log == "truncated" else {}
    with LocalCluster.create(tmp_path / "cluster", 3, settings=settings) as cluster:
        cluster.start()
        fill(cluster)
        wait_equal(cluster, 5000)
        if log == "truncated":
            forget_log(cluster)
        node = cluster.wait_leader()
        before = incarnation(node)
        node.stop()
        file = data_dir(node) / "catalog" / "cp.duckdb"
        flip(file, used_block(file) + 1000)

        session = cluster.connect()
        session.execute("INSERT INTO cp.t SELECT range, 'later' FROM range(5000, 6000)")
        session.close()

        node.start()
        wait_equal(cluster, 6000)
        assert incarnation(node) == before
        aside = quarantined(node)
        assert str(file) in (aside / "README.md").read_text()
        assert (aside / "catalog" / "cp.duckdb").exists() and not (aside / "log").exists()
        text = node.log_file.read_text()
        assert "damaged_catalog_moved_aside" in text
        assert ("state_is_missing" in text) == (log == "truncated")


def test_every_node_gets_its_lost_state_back_while_one_peer_has_it(tmp_path):
    """Two of three lose their catalog: no majority runs until the third has given it to them."""
    with LocalCluster.create(tmp_path / "cluster", 3, settings=dict(NO_LOG_TAIL)) as cluster:
        cluster.start()
        fill(cluster)
        wait_equal(cluster, 5000)
        forget_log(cluster)
        cluster.stop()
        for node in cluster.nodes[:2]:
            (data_dir(node) / "catalog" / "cp.duckdb").unlink()
        for node in cluster.nodes:
            node.start()
        wait_equal(cluster, 5000)


def refusal(node: LocalNode) -> str:
    """Start a node that must refuse; its last words."""
    node.start()
    assert node.process is not None
    assert node.process.wait(60) != 0
    node.process = None
    return node.log_tail(5)


def files(node: LocalNode) -> dict[str, bytes]:
    folder = data_dir(node)
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != "LOCK"
    }


def test_a_node_without_peers_refuses_and_changes_nothing(tmp_path):
    with LocalCluster.create(tmp_path / "one", 1, settings=dict(NO_LOG_TAIL)) as cluster:
        cluster.start()
        fill(cluster)
        wait_equal(cluster, 5000)
        forget_log(cluster)
        (node,) = cluster.nodes
        node.stop()
        file = data_dir(node) / "catalog" / "cp.duckdb"
        block = used_block(file)
        flip(file, block + 1000)
        before = files(node)
        words = refusal(node)
        assert str(file) in words and "checksum" in words and "restore" in words
        assert files(node) == before

        flip(file, block + 1000)
        node.start()
        cluster.wait_leader()
        session = cluster.connect()
        session.execute("INSERT INTO cp.t VALUES (5000, ?)", [MARKER.decode()])
        session.execute("INSERT INTO cp.t VALUES (5001, 'behind it')")
        session.close()
        node.kill()
        segment, offset = find_entry(node)
        flip(segment, offset)
        before = files(node)
        words = refusal(node)
        for part in (str(segment), "offset", "index", "quack log verify", "nothing was changed"):
            assert part in words, words
        assert files(node) == before
