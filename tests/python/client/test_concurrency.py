"""Goal: many threads share one attachment: no statement is lost, doubled or mixed up."""

from __future__ import annotations

import random
import threading
import time

import duckdb
import pytest

pytestmark = pytest.mark.cluster


def test_many_cursors(cluster, session) -> None:
    """Inserts, streamed inserts, queries, mixed queries, transactions and DDL at once, then everything is counted."""
    session.execute("CREATE TABLE cp.m (worker INTEGER, n INTEGER)")
    session.execute("CREATE TABLE here AS SELECT range::INTEGER AS n FROM range(50)")
    counts = [0] * 6
    failures: list[str] = []
    end = time.monotonic() + 6

    def work(number: int) -> None:
        cursor = session.cursor()
        chance = random.Random(number)
        try:
            while time.monotonic() < end:
                kind = chance.randrange(6)
                if kind == 0:
                    cursor.execute("INSERT INTO cp.m VALUES (?, ?)", [number, counts[number]])
                    counts[number] += 1
                elif kind == 1:
                    done = cursor.execute(
                        f"INSERT INTO cp.m SELECT {number}, n FROM here"
                    ).fetchall()
                    assert done == [(50,)]
                    counts[number] += 50
                elif kind == 2:
                    got = cursor.execute(
                        "SELECT count(*) FROM cp.m WHERE worker = ?", [number]
                    ).fetchone()[0]
                    assert got == counts[number], f"{got} rows instead of {counts[number]}"
                elif kind == 3:
                    sql = f"SELECT count(*) FROM cp.m JOIN (SELECT 1 AS one FROM here LIMIT 1) x ON worker = {number}"
                    assert cursor.execute(sql).fetchone()[0] == counts[number]
                elif kind == 4:
                    cursor.execute("BEGIN")
                    cursor.execute(f"INSERT INTO cp.m VALUES ({number}, -1), ({number}, -2)")
                    inside = cursor.execute(
                        f"SELECT count(*) FROM cp.m WHERE worker = {number}"
                    ).fetchone()[0]
                    assert inside == counts[number] + 2
                    keep = chance.random() < 0.5
                    cursor.execute("COMMIT" if keep else "ROLLBACK")
                    counts[number] += 2 if keep else 0
                else:
                    cursor.execute(
                        f"CREATE OR REPLACE TABLE cp.own{number} AS SELECT {number} AS w"
                    )
                    assert cursor.execute(f"FROM cp.own{number}").fetchall() == [(number,)]
        except (duckdb.Error, AssertionError) as error:
            failures.append(f"worker {number}: {error}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(counts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert session.execute("SELECT count(*) FROM cp.m").fetchone()[0] == sum(counts) > 0
    for number in range(len(counts)):
        session.execute(f"DROP TABLE IF EXISTS cp.own{number}")
    session.execute("DROP TABLE cp.m")


def test_detach_with_an_open_transaction(cluster) -> None:
    """DETACH while another cursor is in a transaction neither hangs nor commits."""
    session = cluster.connect()
    session.execute("CREATE TABLE cp.d (i INTEGER)")
    cursor = session.cursor()
    cursor.execute("BEGIN")
    cursor.execute("INSERT INTO cp.d VALUES (1)")
    session.execute("DETACH cp")
    with pytest.raises(duckdb.Error):
        session.execute("FROM cp.d")
    cursor.close()
    session.close()
    fresh = cluster.connect(consistency="linearizable")
    assert fresh.execute("SELECT count(*) FROM cp.d").fetchone() == (0,)
    fresh.execute("DROP TABLE cp.d")
    fresh.close()
