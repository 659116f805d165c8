"""What the crashing node is busy with, and what must be true of it afterwards."""

from __future__ import annotations

import contextlib
import threading
import time

import duckdb

from probes import compare_changes
from quack.cluster.local import LocalCluster, LocalNode
from quack.extension import connect

#: A transaction that holds everything DDL can do to one table. {n} is its step.
STORM = (
    "CREATE TABLE cp.s{n} (a INTEGER, b VARCHAR, c INTEGER)",
    "INSERT INTO cp.s{n} SELECT range, 'x' || range, range FROM range(50)",
    "ALTER TABLE cp.s{n} RENAME COLUMN c TO d",
    "ALTER TABLE cp.s{n} ADD COLUMN e INTEGER DEFAULT 7",
    "ALTER TABLE cp.s{n} DROP COLUMN b",
    "ALTER TABLE cp.s{n} RENAME TO r{n}",
    "ALTER TABLE cp.r{n} ADD PRIMARY KEY (a)",
    "CREATE INDEX i{n} ON cp.r{n} (d)",
    "DROP INDEX cp.i{n}",
    "CREATE INDEX j{n} ON cp.r{n} (e)",
    "CREATE SEQUENCE cp.q{n}",
    "CREATE VIEW cp.v{n} AS SELECT a, d, e FROM cp.r{n}",
)
#: And the end of an older one.
CALM = (
    "DROP VIEW IF EXISTS cp.v{n}",
    "DROP TABLE IF EXISTS cp.r{n}",
    "DROP SEQUENCE IF EXISTS cp.q{n}",
)
STORM_EVERY = 3
#: A step in between is too large for one log entry.
LARGE_ROWS = 1500
#: A storm is taken back so many steps later.
CALM_AFTER = 6


def open_session(cluster: LocalCluster, node: LocalNode | None = None) -> duckdb.DuckDBPyConnection:
    """A client that gives up soon."""
    session = connect()
    try:
        sql = cluster.attach_sql(node)
        session.execute(sql[:-1] + ", request_timeout_ms 8000)")
    except duckdb.Error:
        session.close()
        raise
    return session


def create(cluster: LocalCluster) -> None:
    session = open_session(cluster)
    session.execute("SELECT quack_changes_set_retention('1GB')")
    session.execute("CREATE TABLE cp.t (step INTEGER, filler VARCHAR)")
    session.execute("CREATE TABLE cp.u (step INTEGER PRIMARY KEY, changes INTEGER)")
    session.execute("CREATE TABLE cp.w (step INTEGER, text VARCHAR)")
    session.close()


def is_storm(step: int) -> bool:
    return step % STORM_EVERY == 0


def is_large(step: int) -> bool:
    return step % STORM_EVERY == 1


def statements(step: int) -> list[str]:
    """One transaction: rows in two tables, an update, and by turns a storm, many rows, nothing more."""
    run = [
        f"INSERT INTO cp.t SELECT {step}, repeat(md5({step}::VARCHAR), 100) FROM range(3)",
        f"INSERT INTO cp.u VALUES ({step}, 0)",
        f"UPDATE cp.u SET changes = changes + 1 WHERE step = {step - 1}",
    ]
    if is_large(step):
        rows = f"SELECT {step}, md5(range::VARCHAR) FROM range({LARGE_ROWS})"
        run.append(f"INSERT INTO cp.w {rows}")
    if is_storm(step):
        run += [text.format(n=step) for text in STORM]
        run += [text.format(n=step - CALM_AFTER) for text in CALM]
    return run


class Worker:
    """Runs steps one after the other in a thread and remembers which were acknowledged."""

    def __init__(self, cluster: LocalCluster, first: int, count: int) -> None:
        self.acknowledged: list[int] = []
        self.unknown: list[int] = []
        self.errors: list[str] = []
        self._cluster = cluster
        self._steps = range(first, first + count)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Worker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        session = None
        for step in self._steps:
            if self._stop.is_set():
                break
            try:
                session = session or open_session(self._cluster)
                session.execute("BEGIN")
                for text in statements(step):
                    session.execute(text)
                self.unknown.append(step)
                session.execute("COMMIT")
            except duckdb.Error as error:
                self.errors.append(f"{step}: {str(error).splitlines()[0]}")
                with contextlib.suppress(duckdb.Error):
                    if session is not None:
                        session.close()
                session = None
                time.sleep(0.05)
                continue
            self.unknown.remove(step)
            self.acknowledged.append(step)
        if session is not None:
            session.close()


def check(
    session: duckdb.DuckDBPyConnection, acknowledged: list[int], unknown: list[int]
) -> list[str]:
    """What is wrong with a node's data, in words."""
    problems = []
    rows = session.execute(
        "SELECT step, count(*), count(DISTINCT filler) FROM cp.t GROUP BY 1"
    ).fetchall()
    steps = {row[0] for row in rows}
    problems += [f"step {row[0]} is there {row[1]} / 3 times" for row in rows if row[1:] != (3, 1)]
    changes = dict(session.execute("SELECT step, changes FROM cp.u").fetchall())
    if set(changes) != steps:
        problems.append(f"half a transaction: {sorted(set(changes) ^ steps)}")
    if not set(acknowledged) <= steps:
        problems.append(f"lost: {sorted(set(acknowledged) - steps)}")
    if not steps <= set(acknowledged) | set(unknown):
        problems.append(f"nobody wrote: {sorted(steps - set(acknowledged) - set(unknown))}")
    for step, count in changes.items():
        if count != int(step + 1 in steps):
            problems.append(
                f"step {step} was updated {count} times, step {step + 1} is "
                f"{'there' if step + 1 in steps else 'not there'}"
            )
    large = dict(
        session.execute("SELECT step, count(DISTINCT text) FROM cp.w GROUP BY 1").fetchall()
    )
    if large != {step: LARGE_ROWS for step in steps if is_large(step)}:
        problems.append(f"large transactions left {large} rows of {LARGE_ROWS}")
    problems += [
        f"{count} rows of {table} are not what its changes say"
        for table in ("t", "u", "w")
        if (count := compare_changes(session, table))
    ]
    stormy = {step for step in steps if is_storm(step) and step + CALM_AFTER not in steps}
    tables = session.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = 'cp' AND schema_name = 'main'"
    ).fetchall()
    found = {int(name[1:]) for (name,) in tables if name[0] == "r"}
    if found != stormy or any(name[0] == "s" for (name,) in tables):
        problems.append(f"storms {sorted(stormy)} left tables {sorted(tables)}")
    for step in sorted(stormy & found):
        row = session.execute(f"SELECT count(*), sum(a), sum(d), sum(e) FROM cp.v{step}").fetchone()
        if row != (50, 1225, 1225, 350):
            problems.append(f"view v{step} holds {row}")
    return problems
