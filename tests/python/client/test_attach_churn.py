"""Goal: many attachments, at once or one after the other, leave nothing behind on either side."""

from __future__ import annotations

import os
import pathlib
import threading
import time

import duckdb
import pytest

import quack
from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster

AT_ONCE = 120
IN_TURN = 150


def descriptors(pid: int) -> int:
    return len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))


def threads(pid: int) -> int:
    return len(list(pathlib.Path(f"/proc/{pid}/task").iterdir()))


def sessions(watcher: duckdb.DuckDBPyConnection) -> int:
    (row,) = watcher.execute("SELECT count(*) FROM quack_sessions('cp')").fetchall()
    return int(row[0])


def settle(condition, timeout_s: float = 20) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())


def test_clients_that_attach_at_once(cluster: LocalCluster) -> None:
    """All get in, none causes an election, and all sessions end with their clients."""
    node = cluster.nodes[0]
    watcher = cluster.connect(node)
    before = sessions(watcher)
    term = cluster.status(node)["term"]
    failed: list[str] = []
    slowest: list[float] = []
    barrier = threading.Barrier(AT_ONCE)

    def attach() -> None:
        client = quack.connect()
        barrier.wait()
        begun = time.monotonic()
        try:
            client.execute(cluster.attach_sql(node))
            assert client.execute("FROM cp.storm").fetchall() == [(1,)]
        except duckdb.Error as error:
            failed.append(str(error))
        slowest.append(time.monotonic() - begun)
        client.close()

    watcher.execute("CREATE OR REPLACE TABLE cp.storm AS SELECT 1 AS i")
    crowd = [threading.Thread(target=attach) for _ in range(AT_ONCE)]
    for thread in crowd:
        thread.start()
    for thread in crowd:
        thread.join()
    assert failed == []
    assert max(slowest) < 30
    assert settle(lambda: sessions(watcher) <= before)
    assert cluster.status(node)["term"] == term
    watcher.close()


def test_attach_and_detach_leave_nothing(cluster: LocalCluster) -> None:
    node = cluster.nodes[0]
    watcher = cluster.connect(node)
    client = quack.connect()
    watcher.execute("CREATE OR REPLACE TABLE cp.churn AS SELECT 1 AS i")

    def round_trip() -> None:
        client.execute(cluster.attach_sql(node, alias="again"))
        assert client.execute("FROM again.churn").fetchall() == [(1,)]
        client.execute("DETACH again")

    for _ in range(10):
        round_trip()
    mine, theirs = os.getpid(), node.process.pid
    settle(lambda: sessions(watcher) <= 1)
    levels = [(descriptors(pid), threads(pid)) for pid in (mine, theirs)]
    for _ in range(IN_TURN):
        round_trip()
    assert settle(lambda: sessions(watcher) <= 1)
    for pid, (files, tasks) in zip((mine, theirs), levels, strict=True):
        assert settle(lambda pid=pid, files=files: descriptors(pid) <= files + 10)
        assert settle(lambda pid=pid, tasks=tasks: threads(pid) <= tasks + 10)
    client.close()
    watcher.close()


def test_savepoints_are_refused_in_words(cluster: LocalCluster) -> None:
    client = cluster.connect()
    client.execute("CREATE OR REPLACE TABLE cp.points (i INTEGER)")
    client.execute("BEGIN")
    client.execute("INSERT INTO cp.points VALUES (1)")
    with pytest.raises(duckdb.Error):
        client.execute("SAVEPOINT here")
    client.execute("ROLLBACK")
    assert client.execute("SELECT count(*) FROM cp.points").fetchall() == [(0,)]
    client.close()


def test_replaced_attachment(cluster: LocalCluster) -> None:
    """ATTACH OR REPLACE gives a new attachment; one that fails keeps the old one."""
    client = cluster.connect(cluster.nodes[0])
    client.execute("CREATE OR REPLACE TABLE cp.kept AS SELECT 7 AS i")
    client.execute(cluster.attach_sql(cluster.nodes[1]).replace("ATTACH", "ATTACH OR REPLACE"))
    client.execute("SET quack_consistency = 'linearizable'")
    assert client.execute("FROM cp.kept").fetchall() == [(7,)]
    with pytest.raises(duckdb.Error):
        client.execute(
            cluster.attach_sql(cluster.nodes[2])
            .replace("ATTACH", "ATTACH OR REPLACE")
            .replace(cluster.token, "wrong-token")
        )
    assert client.execute("FROM cp.kept").fetchall() == [(7,)]
    client.close()
