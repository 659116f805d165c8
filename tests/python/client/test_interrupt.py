"""Goal: an interrupt stops the work on the node too, quickly, and leaves a usable session."""

from __future__ import annotations

import threading
import time

import duckdb
import pytest

pytestmark = pytest.mark.cluster

SLOW = "SELECT count(*) FROM cp.big a, cp.big b, cp.big c WHERE hash(a.i, b.i, c.i) = 1"


@pytest.fixture
def big(session: duckdb.DuckDBPyConnection):
    session.execute("CREATE OR REPLACE TABLE cp.big AS SELECT range AS i FROM range(20000)")
    yield session
    session.execute("DROP TABLE cp.big")


def active(session: duckdb.DuckDBPyConnection) -> int:
    """How many sessions of any node run the slow query now."""
    return session.execute(
        "SELECT count(*) FROM quack_sessions('cp') WHERE state = 'active' AND query LIKE '%big a%'"
        " AND query NOT LIKE '%quack_sessions%'"
    ).fetchone()[0]


def test_interrupt_stops_the_node(cluster, big) -> None:
    # The session and the watcher look at the same node, because sessions are per node.
    node = cluster.nodes[0]
    client, watcher = cluster.connect(node), cluster.connect(node)
    timer = threading.Timer(1.0, client.interrupt)
    timer.start()
    begun = time.monotonic()
    with pytest.raises(duckdb.InterruptException):
        client.execute(SLOW).fetchall()
    assert time.monotonic() - begun < 5
    deadline = time.monotonic() + 5
    while active(watcher) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert active(watcher) == 0
    assert client.execute("SELECT count(*) FROM cp.big").fetchall() == [(20000,)]
    client.close()
    watcher.close()


def test_vanished_client_leaves_nothing(cluster, big) -> None:
    """A session that is closed ends on the node at once."""
    node = cluster.nodes[0]
    watcher = cluster.connect(node)
    before = watcher.execute("SELECT count(*) FROM quack_sessions('cp')").fetchone()[0]
    client = cluster.connect(node)
    client.execute("BEGIN")
    client.execute("INSERT INTO cp.big VALUES (-5)")
    client.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        now = watcher.execute("SELECT count(*) FROM quack_sessions('cp')").fetchone()[0]
        if now <= before:
            break
        time.sleep(0.05)
    assert now <= before
    assert watcher.execute("SELECT count(*) FROM cp.big WHERE i = -5").fetchone() == (0,)
    watcher.close()
