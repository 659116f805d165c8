"""Goal: results far larger than memory stream through a bounded node; whoever stops reading costs nothing for long."""

from __future__ import annotations

import pathlib
import time

import pytest

from quack.cluster.local import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster

#: 300 MB of text, made on the node as it is read. What moves at once is a vector of 2,048 rows.
HUGE = "SELECT i, repeat(chr(97 + (i % 26)::INTEGER), 10000) AS s FROM cp.many"


def resident_mb(node: LocalNode) -> float:
    status = pathlib.Path(f"/proc/{node.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


@pytest.fixture
def node(cluster: LocalCluster):
    setup = cluster.connect(cluster.nodes[0])
    setup.execute("CREATE OR REPLACE TABLE cp.many AS SELECT range AS i FROM range(30000)")
    setup.close()
    return cluster.nodes[0]


def test_large_rows_stream(cluster: LocalCluster, node: LocalNode) -> None:
    """The whole result passes; the node never holds more than a little of it."""
    client = cluster.connect(node)
    result = client.execute(HUGE)
    count, size, highest = 0, 0, 0.0
    while rows := result.fetchmany(200):
        count += len(rows)
        size += sum(len(row[1]) for row in rows)
        if count % 2000 == 0:
            highest = max(highest, resident_mb(node))
        assert all(row[1][0] == chr(97 + row[0] % 26) for row in rows[:1])
        if count >= 8000:
            break
    assert count == 8000 and size == 8000 * 10000
    assert highest < 700
    client.close()


def test_reader_that_stops_frees_the_node(cluster: LocalCluster, node: LocalNode) -> None:
    """LIMIT-like use: a few rows are read, then the cursor is dropped; the session goes on at once."""
    client = cluster.connect(node)
    watcher = cluster.connect(node)
    for _ in range(3):
        assert len(client.execute(HUGE).fetchmany(5)) == 5
        begun = time.monotonic()
        assert client.execute("SELECT count(*) FROM cp.many").fetchall() == [(30000,)]
        assert time.monotonic() - begun < 20
    deadline = time.monotonic() + 10
    while True:
        (row,) = watcher.execute(
            "SELECT count(*) FROM quack_sessions('cp') WHERE state = 'active' AND query LIKE '%repeat(chr%'"
            " AND query NOT LIKE '%quack_sessions%'"
        ).fetchall()
        if row[0] == 0:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    client.close()
    watcher.close()


def test_slow_readers_see_one_snapshot(cluster: LocalCluster, node: LocalNode) -> None:
    """Rows written while a result is read do not appear in it, and none is missing or doubled."""
    client, writer = cluster.connect(node), cluster.connect(node)
    result = client.execute("SELECT i, repeat('x', 2000) FROM cp.many")
    seen = [row[0] for row in result.fetchmany(100)]
    writer.execute("INSERT INTO cp.many SELECT range FROM range(100000, 101000)")
    writer.execute("DELETE FROM cp.many WHERE i BETWEEN 20000 AND 21000")
    while rows := result.fetchmany(3000):
        seen += [row[0] for row in rows]
    assert sorted(seen) == list(range(30000))
    client.close()
    writer.close()


def test_large_statements(cluster: LocalCluster) -> None:
    """A statement text of several MB, and one value of 20 MB."""
    client = cluster.connect()
    client.execute("CREATE OR REPLACE TABLE cp.large (i INTEGER, s VARCHAR)")
    values = ", ".join(f"({number}, '{'v' * 200}')" for number in range(15000))
    client.execute(f"INSERT INTO cp.large VALUES {values}")
    client.execute("INSERT INTO cp.large VALUES (-1, ?)", ["z" * 20 * 1024 * 1024])
    assert client.execute("SELECT count(*), max(len(s)) FROM cp.large").fetchall() == [
        (15001, 20 * 1024 * 1024)
    ]
    client.close()
