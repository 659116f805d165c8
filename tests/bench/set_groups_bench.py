"""ALTER TABLE ... SET GROUPS of a small and of a large table, one after the other in one run.

Three voters over mTLS. Both tables are sharded over 8 groups and change to 16, 4, 12, 2 and back to
8, the small one right before the large one, so that both meet the same machine; timed until the
statement returns. The last line is one JSON object with milliseconds; the exit code is 0 only when
both tables still hold all of their rows and the large one took less than three times as long.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import duckdb

from quack.cluster.local import LocalCluster

GROUPS = (16, 4, 12, 2, 8)
ROWS_PER_INSERT = 500_000


def fill(session: duckdb.DuckDBPyConnection, table: str, rows: int) -> None:
    session.execute(
        f"CREATE TABLE {table} (k BIGINT, v DOUBLE) WITH (quack_shard_key = 'k', quack_initial_groups = 8)"
    )
    for begin in range(0, rows, ROWS_PER_INSERT):
        end = min(rows, begin + ROWS_PER_INSERT)
        session.execute(f"INSERT INTO {table} SELECT i, i * 0.5 FROM range({begin}, {end}) r(i)")


def run(sizes: tuple[int, int], folder: pathlib.Path) -> dict[str, object]:
    with LocalCluster.create(folder / "cluster", 3) as cluster:
        cluster.start()
        cluster.wait_leader()
        session = cluster.connect()
        session.execute("SET quack_request_timeout_ms = 600000")
        session.execute("SELECT quack_multiraft_sql_set_enabled(true)")
        for rows in sizes:
            fill(session, f"cp.main.t{rows}", rows)
        times: dict[int, list[float]] = {rows: [] for rows in sizes}
        for groups in GROUPS:
            for rows in sizes:
                begin = time.monotonic()
                session.execute(f"ALTER TABLE cp.main.t{rows} SET GROUPS {groups}")
                times[rows].append(round((time.monotonic() - begin) * 1000, 1))
        kept = all(
            session.execute(f"SELECT count(*) FROM cp.main.t{rows}").fetchall() == [(rows,)]
            for rows in sizes
        )
        session.close()
    medians = [statistics.median(times[rows]) for rows in sizes]
    return {
        "ok": kept and medians[1] < 3 * medians[0],
        "ms": {str(rows): times[rows] for rows in sizes},
        "median_ms": dict(zip(map(str, sizes), medians, strict=True)),
        "ratio": round(medians[1] / medians[0], 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", type=int, default=1_000, help="rows of the small table")
    parser.add_argument("--large", type=int, default=10_000_000, help="rows of the large table")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quack-set-groups-") as folder:
        document = run((arguments.small, arguments.large), pathlib.Path(folder))
    print(json.dumps(document))
    return 0 if document["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
