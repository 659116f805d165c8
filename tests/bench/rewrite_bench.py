"""UPDATE and DELETE of many rows that a checkpoint has written, against DuckDB alone.

Three voters over mTLS and a DuckDB file of its own in this process, with the same table. Each
statement is timed on the cluster until it is committed there, right after the same statement on
the file; the ratio is the price of replication. The last line is one JSON object with seconds;
the exit code is 0 only when both end with the same rows.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import time

import duckdb

from quack.cluster.local import LocalCluster

STATEMENTS = {
    "update_third": "UPDATE {t} SET number = number + 1 WHERE id % 3 = 0",
    "delete_half": "DELETE FROM {t} WHERE id % 2 = 0",
    "delete_rest": "DELETE FROM {t} WHERE id % 10 > 0",
}
CONTENT = "SELECT count(*), sum(id), sum(number), count(DISTINCT word) FROM {t}"


def seconds(session: duckdb.DuckDBPyConnection, sql: str) -> float:
    begin = time.monotonic()
    session.execute(sql)
    return time.monotonic() - begin


def fill(session: duckdb.DuckDBPyConnection, table: str, key: str, rows: int) -> None:
    session.execute(f"CREATE TABLE {table} (id BIGINT {key}, number DOUBLE, word VARCHAR)")
    session.execute(
        f"INSERT INTO {table} SELECT i, i * 1.5, 'name ' || (i % 100000) FROM range({rows}) r(i)"
    )


def wait_for_checkpoints(cluster: LocalCluster, timeout_s: float = 120) -> None:
    """Return when the file of every node holds all that the node has applied."""
    deadline = time.monotonic() + timeout_s
    for node in cluster.nodes:
        while True:
            row = cluster.status(node)
            if row and row["checkpoint_index"] == row["applied_index"] == row["commit_index"]:
                break
            if time.monotonic() > deadline:
                raise SystemExit(f"no checkpoint in {timeout_s} s: {row}")
            time.sleep(0.05)


def run(rows: int, folder: pathlib.Path) -> dict[str, object]:
    document: dict[str, object] = {"rows": rows, "ok": True}
    alone = duckdb.connect(str(folder / "alone.duckdb"))
    settings = {"checkpoint_idle_ms": 200, "checkpoint_interval_ms": 1000}
    with LocalCluster.create(folder / "cluster", 3, settings=settings) as cluster:
        cluster.start()
        cluster.wait_leader()
        session = cluster.connect()
        session.execute("SET quack_request_timeout_ms = 600000")
        for name, key in (("without_key", ""), ("with_key", "PRIMARY KEY")):
            table = f"cp.{name}"
            fill(alone, name, key, rows)
            fill(session, table, key, rows)
            alone.execute("CHECKPOINT")
            wait_for_checkpoints(cluster)
            figures: dict[str, object] = {}
            for step, sql in STATEMENTS.items():
                plain = seconds(alone, sql.format(t=name))
                replicated = seconds(session, sql.format(t=table))
                figures[step] = {
                    "alone_s": round(plain, 3),
                    "cluster_s": round(replicated, 3),
                    "ratio": round(replicated / plain, 1),
                }
            document[name] = figures
            wanted = alone.execute(CONTENT.format(t=name)).fetchall()
            document["ok"] &= session.execute(CONTENT.format(t=table)).fetchall() == wanted
        session.close()
    alone.close()
    return document


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quack-rewrite-") as scratch:
        document = run(arguments.rows, pathlib.Path(scratch))
    print(json.dumps(document))
    return 0 if document["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
