"""Random writers on all replicas at once: whatever commits, commits everywhere alike."""

from __future__ import annotations

import random
import threading
import time

import duckdb
import pytest
from catalog_replica import Cluster, Replica

#: Errors that concurrency may cause; any other fails the test.
EXPECTED = (
    "quack conflict", "quack constraint", "quack schema_changed", "onflict", "Interrupted", "aborted",
    "no transaction is active", "does not exist", "already exists", "Duplicate key", "does not have a column",
    "depend on it", "altered", "dropped", "Constraint Error", "outstanding updates", "values were supplied",
)  # fmt: skip


def statement(rng: random.Random) -> str:
    """One random statement over a few tables."""
    table = rng.choice(["k", "n", "w"])
    low = rng.randrange(200)
    value = f"'{rng.randrange(1000)}'"
    return rng.choice(
        [
            f"INSERT INTO {table}(i, s) SELECT {low} + range, {value} FROM range({rng.randrange(1, 20)}) "
            + ("ON CONFLICT DO NOTHING" if table == "k" else ""),
            f"INSERT INTO {table}(i, s) VALUES ({rng.randrange(10000)}, {value})",
            f"UPDATE {table} SET s = {value} WHERE i BETWEEN {low} AND {low + 10}",
            f"UPDATE {table} SET i = i + 1000 WHERE i = {low}",
            f"DELETE FROM {table} WHERE i BETWEEN {low} AND {low + 3}",
            f"INSERT INTO {table}(i, s) SELECT nextval('sq') + 100000, {value}",
        ]
    )


def ddl(rng: random.Random) -> str:
    name = rng.choice(["x1", "x2"])
    return rng.choice(
        [
            f"CREATE TABLE {name} AS SELECT range i FROM range({rng.randrange(50)})",
            f"DROP TABLE IF EXISTS {name}",
            f"CREATE OR REPLACE VIEW v AS SELECT count(*) c FROM {rng.choice(['k', 'n', 'w'])}",
            f"CREATE INDEX i{rng.randrange(3)} ON w(s)",
            f"DROP INDEX IF EXISTS i{rng.randrange(3)}",
            f"ALTER TABLE w ADD COLUMN c{rng.randrange(4)} INT DEFAULT {rng.randrange(9)}",
            f"ALTER TABLE w DROP COLUMN IF EXISTS c{rng.randrange(4)}",
        ]
    )


class Writer(threading.Thread):
    def __init__(self, replica: Replica, seed: int, deadline: float) -> None:
        super().__init__()
        self.con = replica.session()
        self.rng = random.Random(seed)
        self.deadline = deadline
        self.committed = 0
        self.failures: list[str] = []

    def run(self) -> None:
        while time.monotonic() < self.deadline and not self.failures:
            self.step()

    def step(self) -> None:
        explicit = self.rng.random() < 0.4
        count = self.rng.randrange(1, 4) if explicit else 1
        work = [
            ddl(self.rng) if self.rng.random() < 0.05 else statement(self.rng) for _ in range(count)
        ]
        if explicit:
            work = ["BEGIN", *work, "ROLLBACK" if self.rng.random() < 0.1 else "COMMIT"]
        try:
            for sql in work:
                self.con.execute(sql).fetchall()
            self.committed += 1
        except duckdb.Error as error:
            if not any(text in str(error) for text in EXPECTED):
                self.failures.append(f"{sql}: {error}")
            self.roll_back()

    def roll_back(self) -> None:
        while True:
            try:
                self.con.execute("ROLLBACK")
                return
            except duckdb.InterruptException:
                continue
            except duckdb.Error as error:
                if "no transaction is active" not in str(error):
                    self.failures.append(f"ROLLBACK: {error}")
                return


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_random_writers(cluster: Cluster, seed: int) -> None:
    """Three replicas with three writers each for some seconds, with checkpoints in between."""
    first = cluster[0].con
    first.execute("CREATE SEQUENCE sq")
    first.execute("CREATE TABLE k(i BIGINT PRIMARY KEY, s VARCHAR)")
    first.execute("CREATE TABLE n(i BIGINT, s VARCHAR)")
    first.execute("CREATE TABLE w(i BIGINT, s VARCHAR)")
    for replica in cluster.replicas:
        replica.command("wait")
    deadline = time.monotonic() + 6
    writers = [
        Writer(replica, 100 * seed + 10 * i + j, deadline)
        for i, replica in enumerate(cluster.replicas)
        for j in range(3)
    ]
    for writer in writers:
        writer.start()
    rng = random.Random(seed)
    while time.monotonic() < deadline:
        time.sleep(0.3)
        try:
            cluster[rng.randrange(3)].command("checkpoint")
        except duckdb.InvalidInputException as error:
            assert "postponed" in str(error)
    for writer in writers:
        writer.join()
    assert [replica.command("degraded") for replica in cluster.replicas] == ["", "", ""]
    assert [failure for writer in writers for failure in writer.failures] == []
    cluster.assert_equal()
    assert all(writer.committed > 0 for writer in writers)
    fresh = Replica(cluster.directory / "fresh.db", cluster.log, "fresh")
    assert fresh.hashes() == cluster[0].hashes()
    fresh.close()
