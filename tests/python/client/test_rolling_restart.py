"""Goal: stopping and starting each node in turn shows no error to clients with the default deadline."""

from __future__ import annotations

import pathlib
import threading
import time
from collections.abc import Callable

import duckdb
import pytest

from quack.cluster.local import LocalCluster, LocalNode

pytestmark = pytest.mark.cluster


def wait_caught_up(cluster: LocalCluster, node: LocalNode) -> None:
    """Wait until the node is back and has applied what the others had committed."""
    goal = 0
    for other in cluster.nodes:
        row = cluster.status(other) if other is not node else None
        goal = max(goal, int(str(row["commit_index"])) if row else 0)
    deadline = time.monotonic() + 60
    while True:
        row = cluster.status(node)
        if row and int(str(row["applied_index"])) >= goal and row["linearizable_read_safe"]:
            return
        assert time.monotonic() < deadline, node.log_tail()
        time.sleep(0.05)


class Load:
    """Clients that write all the time; each counts what was acknowledged."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.stopping = threading.Event()
        self.errors: list[str] = []
        self.counts: list[int] = []
        self.slowest = 0.0
        self.threads: list[threading.Thread] = []

    def add(self, node: LocalNode, step: Callable[[duckdb.DuckDBPyConnection, int], int]) -> None:
        self.threads.append(threading.Thread(target=self._run, args=(node, step)))

    def _run(self, node: LocalNode, step: Callable[[duckdb.DuckDBPyConnection, int], int]) -> None:
        client = self.cluster.connect(node)
        done = 0
        while not self.stopping.is_set():
            begun = time.monotonic()
            try:
                done += step(client, done)
            except duckdb.Error as error:
                self.errors.append(f"after {time.monotonic() - begun:.1f} s: {error}")
                break
            self.slowest = max(self.slowest, time.monotonic() - begun)
        self.counts.append(done)
        client.close()

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()


def test_rolling_restart_shows_no_error(tmp_path: pathlib.Path) -> None:
    with LocalCluster.create(tmp_path / "c", 3) as cluster:
        cluster.start()
        setup = cluster.connect()
        setup.execute("CREATE TABLE cp.single (client INTEGER, i INTEGER)")
        setup.execute("CREATE TABLE cp.streamed (i INTEGER)")
        setup.execute("CREATE TABLE cp.counter (id INTEGER PRIMARY KEY, n INTEGER)")
        setup.execute("INSERT INTO cp.counter VALUES (1, 0)")
        load = Load(cluster)

        def single(client: duckdb.DuckDBPyConnection, done: int) -> int:
            client.execute(f"INSERT INTO cp.single VALUES ({id(client) % 1000000}, {done})")
            return 1

        def streamed(client: duckdb.DuckDBPyConnection, done: int) -> int:
            client.execute("CREATE TABLE IF NOT EXISTS src AS SELECT range AS i FROM range(100)")
            client.execute("INSERT INTO cp.streamed SELECT i FROM src")
            return 100

        def count(client: duckdb.DuckDBPyConnection, _: int) -> int:
            client.execute("UPDATE cp.counter SET n = n + 1 WHERE id = 1")
            return 1

        def read(client: duckdb.DuckDBPyConnection, _: int) -> int:
            client.execute("SET quack_consistency = 'linearizable'")
            ((n,),) = client.execute("SELECT n FROM cp.counter").fetchall()
            assert n >= 0
            return 0

        for position, step in enumerate([single, streamed, count, count, read]):
            load.add(cluster.nodes[position % 3], step)
        with load:
            for node in cluster.nodes:
                time.sleep(1)  # load between the restarts; nothing waits for it
                assert node.stop() == 0, node.log_tail()
                node.start()
                wait_caught_up(cluster, node)
        assert load.errors == []
        fresh = cluster.connect(consistency="linearizable")
        (row,) = fresh.execute(
            "SELECT (SELECT count(*) FROM cp.single) + (SELECT count(*) FROM cp.streamed)"
            " + (SELECT n FROM cp.counter)"
        ).fetchall()
        assert row == (sum(load.counts),)
        assert load.slowest < 10
        fresh.close()
        setup.close()
