"""Goal: what is too large for one log entry goes through a real cluster as one transaction, or is refused in words.

With a lowered setting a few thousand rows take many fragments; values and definitions have their
real size. Checked: through ATTACH, streamed and computed on the node; the leader killed between
fragments; other writers in between; equal state at the end.
"""

from __future__ import annotations

import threading
import time

import duckdb
import pytest

import quack
from quack.cluster.local import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster

SPLIT_BYTES = 64 * 1024
COLUMNS = "i AS id, md5(i::VARCHAR) AS text"


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory):
    """Three voters that split transactions above 64 KiB."""
    folder = tmp_path_factory.mktemp("large")
    settings = {"transaction_split_bytes": SPLIT_BYTES, "transaction_patience_ms": 3000}
    with LocalCluster.create(folder, 3, settings=settings) as running:
        running.start()
        yield running


def connect(cluster: LocalCluster, node: LocalNode | None = None) -> duckdb.DuckDBPyConnection:
    session = cluster.connect(node)
    session.execute("SET quack_request_timeout_ms = 120000")
    return session


def statistic(cluster: LocalCluster, node: LocalNode, name: str) -> int:
    session = cluster.connect(node)
    row = session.execute(
        "SELECT value FROM quack_node_statistics('cp') WHERE name = ?", [name]
    ).fetchone()
    session.close()
    assert row is not None
    return int(row[0])


def assert_equal(cluster: LocalCluster, timeout_s: float = 120) -> None:
    """All nodes hold the same, and nothing of a large transaction is left over."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen: set[tuple[object, ...]] = set()
        left: list[int] = []
        trouble = ""
        try:
            for node in cluster.nodes:
                session = connect(cluster, node)
                rows = session.execute(
                    "SELECT * FROM quack_state_hash('cp') ORDER BY ALL"
                ).fetchall()
                seen.add(tuple(rows))
                session.close()
            left = [statistic(cluster, node, "large_transactions_open") for node in cluster.nodes]
        except duckdb.Error as error:
            trouble = str(error)  # a node that was started a moment ago
        if not trouble and len(seen) == 1 and not any(left):
            return
        assert time.monotonic() < deadline, (seen, left, trouble)
        time.sleep(0.2)


@pytest.mark.parametrize("source", ["client", "node"])
def test_insert_select_is_one_transaction(large: LocalCluster, source: str) -> None:
    session = connect(large)
    session.execute(f"CREATE TABLE cp.rows_{source} (id BIGINT PRIMARY KEY, text VARCHAR)")
    rows = f"SELECT {COLUMNS} FROM range(100000) r(i)"
    if source == "client":
        session.execute(f"CREATE TABLE source AS {rows}")
        rows = "FROM source"
    before = statistic(large, large.nodes[0], "entries_applied")
    session.execute(f"INSERT INTO cp.rows_{source} {rows}")
    assert session.execute(f"SELECT count(*), sum(id) FROM cp.rows_{source}").fetchone() == (
        100_000,
        4_999_950_000,
    )
    session.close()
    assert_equal(large)
    assert statistic(large, large.nodes[0], "entries_applied") > before + 20, "it was not split"


def test_explicit_transaction_with_ddl(large: LocalCluster) -> None:
    session = connect(large, large.nodes[1])
    session.execute("BEGIN")
    session.execute(f"CREATE TABLE cp.made AS SELECT {COLUMNS} FROM range(20000) r(i)")
    session.execute("ALTER TABLE cp.made ADD COLUMN more INTEGER DEFAULT 7")
    session.execute("UPDATE cp.made SET text = 'x' || text WHERE id % 2 = 0")
    session.execute("DELETE FROM cp.made WHERE id >= 15000")
    session.execute("COMMIT")
    for node in large.nodes:
        reader = large.connect(node, consistency="linearizable")
        assert reader.execute(
            "SELECT count(*), sum(more), sum(length(text)) FROM cp.made"
        ).fetchone() == (
            15_000,
            7 * 15_000,
            32 * 15_000 + 7_500,
        )
        reader.close()
    session.close()
    assert_equal(large)


SHARDS = "WITH (quack_shard_key = 'id', quack_initial_groups = 4)"


@pytest.mark.parametrize("placement", ["", SHARDS], ids=["one group", "shards"])
def test_the_leader_is_killed_between_fragments(large: LocalCluster, placement: str) -> None:
    """Nothing of the transaction is half there; it commits under its request id, or is swept and told."""
    session = connect(large)
    session.execute("SELECT quack_multiraft_sql_set_enabled(true)")
    session.execute("DROP TABLE IF EXISTS cp.killed")
    session.execute(f"CREATE TABLE cp.killed (id BIGINT, text VARCHAR) {placement}")
    session.execute("CREATE TABLE IF NOT EXISTS cp.small (i BIGINT)")
    outcome: list[str] = []

    def insert() -> None:
        try:
            session.execute(f"INSERT INTO cp.killed SELECT {COLUMNS} FROM range(400000) r(i)")
            outcome.append("committed")
        except duckdb.Error as error:
            outcome.append(str(quack.errors.code_of(error)))

    leader = large.wait_leader()
    survivor = next(node for node in large.nodes if node is not leader)
    thread = threading.Thread(target=insert)
    thread.start()
    deadline = time.monotonic() + 60
    while statistic(large, survivor, "large_transactions_open") == 0 and thread.is_alive():
        assert time.monotonic() < deadline
    was_under_way = thread.is_alive()
    leader.kill()
    large.wait_leader()
    other = connect(large, survivor)
    other.execute("INSERT INTO cp.small VALUES (1)")
    leader.start()
    thread.join(150)
    assert not thread.is_alive()
    assert was_under_way, "the insert was through before the leader could be killed"
    assert outcome[0] in ("committed", "unavailable", "conflict"), outcome
    # Linearizable, so that it sees what was committed before it.
    reader = large.connect(survivor, consistency="linearizable")
    expected = 400_000 if outcome[0] == "committed" else 0
    assert reader.execute("SELECT count(*), count(DISTINCT id) FROM cp.killed").fetchone() == (
        expected,
        expected,
    )
    for one in (session, other, reader):
        one.close()
    assert_equal(large)


def test_definitions_of_two_megabytes(large: LocalCluster) -> None:
    session = connect(large)
    choice = ", ".join(f"'value {i:06} {'.' * 180}'" for i in range(10_000))
    assert len(choice) > 1_900_000
    session.execute("CREATE TABLE cp.texts (text VARCHAR)")
    session.execute(f"CREATE VIEW cp.choice AS SELECT text FROM cp.texts WHERE text IN ({choice})")
    session.execute("INSERT INTO cp.texts VALUES (?), ('other')", [f"value 000007 {'.' * 180}"])
    for node in large.nodes:
        reader = large.connect(node, consistency="linearizable")
        assert reader.execute("SELECT count(*) FROM cp.choice").fetchone() == (1,)
        reader.close()
    session.close()
    assert_equal(large)


def test_a_value_of_300_megabytes(large: LocalCluster) -> None:
    """In through the client, on all nodes, and out again; one above the limit is refused by name."""
    session = connect(large)
    session.execute("CREATE TABLE cp.huge (id INTEGER, text VARCHAR, bytes BLOB)")
    session.execute(
        "CREATE TABLE huge AS SELECT 1 AS id, repeat(repeat('0123456789', 100), 300000) AS text"
    )
    session.execute("INSERT INTO cp.huge SELECT id, text, NULL FROM huge")
    assert session.execute(
        "SELECT length(text), md5(text) = (SELECT md5(text) FROM huge) FROM cp.huge"
    ).fetchone() == (
        300_000_000,
        True,
    )
    session.execute("DROP TABLE huge")
    session.execute(
        "CREATE TABLE huge AS SELECT 2 AS id, repeat(repeat('x', 1000), 430000) AS text"
    )
    with pytest.raises(duckdb.Error, match="more than the 419430400 that one row may take"):
        session.execute("INSERT INTO cp.huge SELECT id, text, NULL FROM huge")
    with pytest.raises(
        duckdb.Error, match="more than the 419430400 that one row may take"
    ) as caught:
        session.execute("INSERT INTO cp.huge SELECT 2, repeat(repeat('x', 1000), 430000), NULL")
    assert quack.errors.code_of(caught.value) == "invalid_argument", caught.value
    assert session.execute("SELECT count(*) FROM cp.huge").fetchone() == (1,)
    session.close()
    assert_equal(large)
