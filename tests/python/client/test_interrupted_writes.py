"""Goal: an interrupted or timed-out write is wholly absent, or is reported as done; the node stops its work."""

from __future__ import annotations

import random
import threading
import time

import duckdb
import pytest

from quack import errors
from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster

ROUNDS = 60


def active(session: duckdb.DuckDBPyConnection, mark: str) -> int:
    (row,) = session.execute(
        "SELECT count(*) FROM quack_sessions('cp') WHERE state = 'active' AND contains(query, ?)"
        " AND NOT contains(query, 'quack_sessions')",
        [mark],
    ).fetchall()
    return int(row[0])


def wait_idle(session: duckdb.DuckDBPyConnection, mark: str) -> float:
    """Seconds until no session of the node runs a statement with the mark."""
    begun = time.monotonic()
    while active(session, mark):
        assert time.monotonic() - begun < 10, "the node still works"
        time.sleep(0.02)
    return time.monotonic() - begun


def judge(error: duckdb.Error, watcher: duckdb.DuckDBPyConnection) -> bool:
    """Whether a write that ended with an error was committed all the same: never without saying so."""
    if errors.code_of(error) == "committed":
        return True
    unknown = errors.typed(error)
    if isinstance(unknown, errors.OutcomeUnknownError):
        ((outcome,),) = watcher.execute(
            "SELECT outcome FROM quack_transaction_outcome('cp', ?)", [unknown.token]
        ).fetchall()
        return str(outcome) == "committed"
    assert isinstance(error, duckdb.InterruptException), error
    return False


@pytest.mark.parametrize("kind", ["insert", "streamed", "commit"])
def test_interrupt_races_with_commit(cluster: LocalCluster, kind: str) -> None:
    chance = random.Random(17)
    client = cluster.connect(cluster.nodes[0])
    watcher = cluster.connect(cluster.nodes[1], consistency="linearizable")
    watcher.execute("CREATE OR REPLACE TABLE cp.raced (i INTEGER)")
    client.execute("CREATE TABLE src AS SELECT range::INTEGER AS n FROM range(50)")
    seen = {True: 0, False: 0}
    for number in range(ROUNDS):
        timer = threading.Timer(chance.uniform(0, 0.02), client.interrupt)
        rows = 1
        try:
            if kind == "commit":
                client.execute("BEGIN")
                client.execute(f"INSERT INTO cp.raced VALUES ({number})")
                timer.start()
                client.execute("COMMIT")
            elif kind == "streamed":
                rows = 50
                timer.start()
                client.execute(f"INSERT INTO cp.raced SELECT {number} FROM src")
            else:
                timer.start()
                client.execute(f"INSERT INTO cp.raced VALUES ({number})")
            committed = True
        except duckdb.Error as error:
            committed = judge(error, watcher)
        timer.join()
        if kind == "commit":
            try:
                client.execute("ROLLBACK")
            except duckdb.Error as error:
                assert "no transaction" in str(error), error
        ((there,),) = watcher.execute(
            f"SELECT count(*) FROM cp.raced WHERE i = {number}"
        ).fetchall()
        assert there == (rows if committed else 0), (number, committed)
        seen[committed] += 1
    assert seen[True] + seen[False] == ROUNDS
    assert client.execute("SELECT 1").fetchall() == [(1,)]
    client.close()
    watcher.close()


@pytest.mark.parametrize(
    ("statement", "mark"),
    [
        (
            "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r, cp.one",
            "RECURSIVE",
        ),
        ("SELECT a.i FROM cp.wide a, cp.wide b ORDER BY hash(a.i, b.i) LIMIT 3", "hash(a.i"),
        ("INSERT INTO cp.copy SELECT a.i FROM cp.wide a, cp.wide b", "cp.copy"),
        ("CREATE TABLE cp.copied AS SELECT a.i FROM cp.wide a, cp.wide b", "copied"),
    ],
)
def test_statement_timeout_stops_the_node(cluster: LocalCluster, statement: str, mark: str) -> None:
    node = cluster.nodes[0]
    client, watcher = cluster.connect(node), cluster.connect(node)
    client.execute("CREATE OR REPLACE TABLE cp.one AS SELECT 1 AS o")
    client.execute("CREATE OR REPLACE TABLE cp.wide AS SELECT range AS i FROM range(30000)")
    client.execute("CREATE OR REPLACE TABLE cp.copy (i BIGINT)")
    client.execute("SET quack_statement_timeout_ms = 700")
    begun = time.monotonic()
    with pytest.raises(duckdb.Error) as caught:
        client.execute(statement).fetchall()
    assert time.monotonic() - begun < 6
    assert errors.code_of(caught.value) in ("deadline_exceeded", "unavailable", "outcome_unknown")
    mark = mark.removeprefix("cp.")
    assert wait_idle(watcher, mark) < 2
    client.execute("SET quack_statement_timeout_ms = 0")
    assert client.execute("SELECT count(*) FROM cp.copy").fetchall() == [(0,)]
    assert client.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE table_name = 'copied'"
    ).fetchall() == [(0,)]
    client.close()
    watcher.close()


@pytest.mark.parametrize("mark", ["INSERT INTO cp.copy", "CREATE TABLE cp.copied AS"])
def test_interrupt_stops_long_writes(cluster: LocalCluster, mark: str) -> None:
    node = cluster.nodes[0]
    client, watcher = cluster.connect(node), cluster.connect(node)
    client.execute("CREATE OR REPLACE TABLE cp.wide AS SELECT range AS i FROM range(30000)")
    client.execute("CREATE OR REPLACE TABLE cp.copy (i BIGINT)")
    timer = threading.Timer(1.0, client.interrupt)
    timer.start()
    with pytest.raises(duckdb.InterruptException):
        client.execute(f"{mark} SELECT a.i FROM cp.wide a, cp.wide b").fetchall()
    timer.join()
    assert wait_idle(watcher, "wide") < 2
    assert client.execute("SELECT count(*) FROM cp.copy").fetchall() == [(0,)]
    client.close()
    watcher.close()
