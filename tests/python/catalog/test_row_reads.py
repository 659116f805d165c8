"""Old rows of deletes and updates, read from the segments of a checkpoint: near ids by scans, the others one by one."""

from __future__ import annotations

import duckdb
import pytest
from catalog_replica import Cluster

ROWS = 10_000
#: Several compressions: bit packing, floats, a dictionary, text without repetition, a list, NULLs.
COLUMNS = """i AS id, i % 7 AS small, i * 0.25 AS number, 'name ' || (i % 300) AS word, md5(i::VARCHAR) AS text,
    [i, i + 1] AS list, CASE WHEN i % 5 > 0 THEN {'a': i, 'b': 'x' || i} END AS nested"""
#: Which rows a statement takes; a vector has 2,048 rows, a row group 122,880.
CHOICES = {
    "all": "true",
    "every second": "id % 2 = 1",
    "close enough for a scan": "id % 64 = 3",
    "one by one": "id % 65 = 3",
    "a few next to each other": "id BETWEEN 100 AND 114",
    "around the border of vectors": "id BETWEEN 2040 AND 2060 OR id BETWEEN 6143 AND 6144",
    "far, and then near": "id IN (1, 700, 1500) OR id BETWEEN 8000 AND 8050",
    "near, far and near again": "id < 40 OR id % 500 = 0 OR id BETWEEN 9000 AND 9050",
    "the last": f"id >= {ROWS - 20}",
}


def prepared(con: duckdb.DuckDBPyConnection, key: str) -> None:
    con.execute(f"CREATE TABLE t (id BIGINT {key}, small BIGINT, number DOUBLE, word VARCHAR, text VARCHAR,"
                " list BIGINT[], nested STRUCT(a BIGINT, b VARCHAR))")  # fmt: skip
    con.execute(f"INSERT INTO t SELECT {COLUMNS} FROM range({ROWS}) r(i)")


@pytest.mark.parametrize("key", ["", "PRIMARY KEY"], ids=["no key", "key"])
def test_rows_of_a_checkpoint(cluster: Cluster, key: str) -> None:
    """Every choice of rows, beside rows that are gone and rows with newer values; as plain DuckDB does it."""
    plain = duckdb.connect()
    prepared(plain, key)
    prepared(cluster[0].con, key)
    for replica in cluster.replicas:
        replica.command("wait")
        replica.command("checkpoint")
    for number, choice in enumerate(CHOICES.values()):
        statements = [
            f"UPDATE t SET number = number + 1, word = word || '!' WHERE ({choice}) AND small <> 2",
            f"DELETE FROM t WHERE ({choice}) AND id % 4 = {number % 4}",
            f"DELETE FROM t WHERE ({choice}) AND small = {number % 7}",
        ]
        for session in (plain, cluster[number % 3].con):
            session.execute("BEGIN")
            for statement in statements:
                session.execute(statement)
            # Rows that the transaction has changed already: the old ones are those from before it.
            session.execute(f"UPDATE t SET number = -number WHERE {choice}")
            session.execute("COMMIT")
        for replica in cluster.replicas:
            replica.command("wait")
            if number % 2 == 1:
                replica.command("checkpoint")
        expected = plain.execute("SELECT * FROM t ORDER BY id").fetchall()
        assert cluster[0].rows("SELECT * FROM t ORDER BY id") == expected
        cluster.assert_equal()
    plain.close()
