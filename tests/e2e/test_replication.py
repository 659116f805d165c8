"""Goal: three real voters hold one catalog, through every kind of statement, kill and restart."""

from __future__ import annotations

import time

import duckdb
import pytest

import quack
from quack.cluster.local import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster


def state_hash(cluster: LocalCluster, node: LocalNode) -> tuple | None:
    """The state hash of one node; None while it does not answer yet."""
    try:
        session = cluster.connect(node)
    except duckdb.Error:
        return None
    rows = session.execute("SELECT * FROM quack_state_hash('cp') ORDER BY ALL").fetchall()
    session.close()
    return tuple(rows)


def hashes(cluster: LocalCluster, timeout_s: float = 30) -> set[tuple | None]:
    """The state hashes of all running nodes, once they have applied the same index."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = {state_hash(cluster, node) for node in cluster.nodes if node.running()}
        if (len(seen) == 1 and None not in seen) or time.monotonic() > deadline:
            return seen
        time.sleep(0.1)


def test_a_write_on_any_node_is_read_on_every_node(cluster):
    for number, node in enumerate(cluster.nodes):
        session = cluster.connect(node)
        session.execute(f"CREATE TABLE cp.from_{node.node_id} (i INTEGER, s VARCHAR)")
        session.execute(f"INSERT INTO cp.from_{node.node_id} VALUES ({number}, 'x'), (NULL, NULL)")
        session.close()
    for reader in cluster.nodes:
        session = cluster.connect(reader, consistency="linearizable")
        for number, writer in enumerate(cluster.nodes):
            rows = session.execute(f"FROM cp.from_{writer.node_id} ORDER BY ALL").fetchall()
            assert rows == [(number, "x"), (None, None)]
        session.close()
    assert len(hashes(cluster)) == 1


def test_random_values_and_clocks_are_stored_once(cluster):
    session = cluster.connect(cluster.nodes[1])
    session.execute("CREATE SEQUENCE cp.ids")
    session.execute(
        "CREATE TABLE cp.chance (id BIGINT DEFAULT nextval('cp.ids'), r DOUBLE DEFAULT random(),"
        " t TIMESTAMPTZ DEFAULT now(), u UUID DEFAULT uuid(), n INTEGER)"
    )
    session.execute("INSERT INTO cp.chance (n) SELECT range FROM range(500)")
    session.execute("UPDATE cp.chance SET r = random() WHERE n % 2 = 0")
    assert session.execute(
        "SELECT count(DISTINCT u), count(DISTINCT id) FROM cp.chance"
    ).fetchone() == (
        500,
        500,
    )
    session.close()
    assert len(hashes(cluster)) == 1


def test_transactions_are_whole(cluster):
    session = cluster.connect(cluster.nodes[2])
    session.execute("CREATE TABLE cp.account (id INTEGER PRIMARY KEY, amount INTEGER)")
    session.execute("INSERT INTO cp.account VALUES (1, 100), (2, 0)")
    session.execute("BEGIN")
    session.execute("UPDATE cp.account SET amount = amount - 40 WHERE id = 1")
    session.execute("UPDATE cp.account SET amount = amount + 40 WHERE id = 2")
    assert session.execute("SELECT amount FROM cp.account WHERE id = 2").fetchone() == (40,)
    other = cluster.connect(cluster.nodes[0], consistency="linearizable")
    assert other.execute("SELECT amount FROM cp.account WHERE id = 2").fetchone() == (0,)
    session.execute("ROLLBACK")
    assert session.execute("FROM cp.account ORDER BY id").fetchall() == [(1, 100), (2, 0)]
    session.execute("BEGIN")
    session.execute("UPDATE cp.account SET amount = amount - 40 WHERE id = 1")
    session.execute("UPDATE cp.account SET amount = amount + 40 WHERE id = 2")
    session.execute("COMMIT")
    assert other.execute("FROM cp.account ORDER BY id").fetchall() == [(1, 60), (2, 40)]
    with pytest.raises(duckdb.Error, match="(?i)duplicate key|constraint"):
        session.execute("INSERT INTO cp.account VALUES (1, 5)")
    assert other.execute("SELECT count(*) FROM cp.account").fetchone() == (2,)
    session.close()
    other.close()
    assert len(hashes(cluster)) == 1


def test_first_committer_wins_and_the_loser_is_told(cluster):
    first = cluster.connect(cluster.nodes[0])
    second = cluster.connect(cluster.nodes[1], consistency="linearizable")
    first.execute("CREATE TABLE cp.race (id INTEGER PRIMARY KEY, n INTEGER)")
    first.execute("INSERT INTO cp.race VALUES (1, 0)")
    second.execute("BEGIN")
    second.execute("UPDATE cp.race SET n = n + 1 WHERE id = 1")
    assert second.execute("SELECT n FROM cp.race").fetchone() == (1,)
    first.execute("UPDATE cp.race SET n = n + 10 WHERE id = 1")
    with pytest.raises(duckdb.Error) as caught:
        second.execute("COMMIT")
    assert quack.errors.code_of(caught.value) == "conflict", caught.value
    reader = cluster.connect(cluster.nodes[2], consistency="linearizable")
    assert reader.execute("SELECT n FROM cp.race").fetchone() == (10,)
    for session in (first, second, reader):
        session.close()


def test_a_schema_change_is_seen_at_the_next_statement(cluster):
    first = cluster.connect(cluster.nodes[0])
    second = cluster.connect(cluster.nodes[2], consistency="linearizable")
    first.execute("CREATE TABLE cp.shape (a INTEGER)")
    second.execute("INSERT INTO cp.shape VALUES (1)")
    first.execute("ALTER TABLE cp.shape ADD COLUMN b VARCHAR DEFAULT 'new'")
    second.execute("INSERT INTO cp.shape VALUES (2, 'two')")
    assert second.execute("FROM cp.shape ORDER BY a").fetchall() == [(1, "new"), (2, "two")]
    first.execute("DROP TABLE cp.shape")
    with pytest.raises(duckdb.Error, match="(?i)does not exist"):
        second.execute("FROM cp.shape")
    first.close()
    second.close()


def test_kill_of_each_node_in_turn_loses_nothing(cluster):
    session = cluster.connect()
    session.execute("CREATE TABLE cp.turns (n INTEGER)")
    written = 0
    for node in cluster.nodes:
        node.kill()
        for _ in range(5):
            session.execute(f"INSERT INTO cp.turns VALUES ({written})")
            written += 1
        node.start()
        cluster.wait_leader()
    reader = cluster.connect(consistency="linearizable")
    assert reader.execute("SELECT count(*), count(DISTINCT n) FROM cp.turns").fetchone() == (
        written,
        written,
    )
    session.close()
    reader.close()
    assert len(hashes(cluster, 60)) == 1


def test_kill_of_all_nodes_loses_nothing(cluster):
    session = cluster.connect()
    session.execute("CREATE TABLE cp.everything (i INTEGER, blob BLOB)")
    session.execute("INSERT INTO cp.everything SELECT range, 'x'::BLOB FROM range(5000)")
    session.close()
    before = hashes(cluster)
    assert len(before) == 1
    for node in cluster.nodes:
        node.kill()
    cluster.start()
    after = hashes(cluster, 60)
    assert len(after) == 1
    reader = cluster.connect(consistency="linearizable")
    assert reader.execute("SELECT count(*) FROM cp.everything").fetchone() == (5000,)
    reader.close()


def test_a_minority_refuses_fresh_reads_in_words(cluster):
    session = cluster.connect(cluster.nodes[0])
    session.execute("CREATE TABLE IF NOT EXISTS cp.alone (i INTEGER)")
    session.close()
    for node in cluster.nodes[1:]:
        node.kill()
    try:
        reader = cluster.connect(cluster.nodes[0], consistency="linearizable")
        reader.execute("SET quack_request_timeout_ms = 3000")
        # A leader may answer until its lease ends; from then on nobody may.
        deadline = time.monotonic() + 30
        text = None
        while text is None:
            assert time.monotonic() < deadline
            try:
                reader.execute("FROM cp.alone").fetchall()
            except duckdb.Error as error:
                text = str(error)
        assert "n1" in text and "n2" in text, text
        reader.close()
    finally:
        cluster.start()
