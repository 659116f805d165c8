"""What the connector keeps in the cluster: staged rows, and the ledger of what was committed.

Schema ``quack_spark`` has `jobs` (one row per committed batch write), `streams` (the last committed
micro-batch of each query and target), `staging` (which staging tables there are), `targets` (one
row per overwritten or upserted table) and the staging tables themselves. See DESIGN.md.
"""

from __future__ import annotations

import functools
import hashlib
import random
import secrets
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from quack.errors import code_of
from quack.spark.options import quoted

__all__ = [
    "ATTEMPT",
    "SCHEMA",
    "UNNAMED",
    "Job",
    "create_staging",
    "drop_staging",
    "find_job",
    "last_batch",
    "new_attempt",
    "note_target",
    "overview",
    "prepare",
    "staging_name",
    "sweep",
    "take_turn",
    "transaction",
    "unnamed_job",
]

SCHEMA = "cp.quack_spark"
#: Column of a staging table that says which attempt of which task staged a row (`new_attempt`).
ATTEMPT = "__quack_attempt"
#: How ids of jobs begin that the user did not name.
UNNAMED = "unnamed-"
_STAGED_AT = "__quack_staged_at"
_RETRIED = ("conflict", "schema_changed", "already_exists")
_ROUNDS = 10
_PAUSE_S_MAX = 2.0

_DEFINITIONS = (
    f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.jobs (job_id VARCHAR PRIMARY KEY, target VARCHAR, "
    "mode VARCHAR, row_count BIGINT, committed_at TIMESTAMPTZ)",
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.streams (query_id VARCHAR, target VARCHAR, "
    "batch_id BIGINT, row_count BIGINT, committed_at TIMESTAMPTZ, PRIMARY KEY (query_id, target))",
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.staging (name VARCHAR PRIMARY KEY, job_id VARCHAR, "
    "target VARCHAR, created_at TIMESTAMPTZ)",
    f"CREATE TABLE IF NOT EXISTS {SCHEMA}.targets (target VARCHAR PRIMARY KEY, writes BIGINT)",
)


@dataclass(frozen=True)
class Job:
    """A committed write."""

    job_id: str
    target: str
    mode: str
    row_count: int


def rows_of(session: duckdb.DuckDBPyConnection, sql: str, *values: Any) -> list[Any]:
    """Run a statement to its end; returns its rows."""
    return session.execute(sql, list(values)).fetchall()


def transaction(session: duckdb.DuckDBPyConnection, body: Callable[[], None]) -> None:
    """Run statements as one transaction, again from the start after a conflict.

    Raises:
        duckdb.Error: it failed; rolled back.

    """
    for rounds_left in reversed(range(_ROUNDS)):
        session.execute("BEGIN")
        try:
            body()
            session.execute("COMMIT")
            return
        except duckdb.Error as error:
            roll_back(session)
            if code_of(error) not in _RETRIED or rounds_left == 0:
                raise
            # The other one may be open for a while yet: each round waits longer than the last.
            pause_s = min(_PAUSE_S_MAX, 0.05 * 2 ** (_ROUNDS - rounds_left))
            time.sleep(random.uniform(0.5, 1) * pause_s)
        except BaseException:
            roll_back(session)
            raise


def roll_back(session: duckdb.DuckDBPyConnection) -> None:
    """End the transaction, if one is open."""
    try:
        session.execute("ROLLBACK")
    except duckdb.Error:
        return  # a failed COMMIT, or a lost node, has ended it


def prepare(session: duckdb.DuckDBPyConnection) -> None:
    """Make the schema and its tables where they are missing."""
    found = rows_of(
        session,
        "SELECT count(*) FROM duckdb_tables() WHERE database_name = 'cp' AND "
        "schema_name = 'quack_spark' AND table_name IN ('jobs', 'streams', 'staging', 'targets')",
    )
    if found == [(len(_DEFINITIONS) - 1,)]:
        return
    for definition in _DEFINITIONS:
        transaction(session, functools.partial(_run, session, definition))


def _run(session: duckdb.DuckDBPyConnection, sql: str) -> None:
    rows_of(session, sql)


def note_target(session: duckdb.DuckDBPyConnection, target: str) -> None:
    """Make the row that `take_turn` changes, once per target."""
    rows_of(session, f"INSERT INTO {SCHEMA}.targets VALUES (?, 0) ON CONFLICT DO NOTHING", target)


def take_turn(session: duckdb.DuckDBPyConnection, target: str) -> None:
    """Let the open transaction conflict with every other one that does this for the target.

    Two that overwrite an empty table, or upsert the same new key, would change no common row, and
    both would commit.
    """
    rows_of(session, f"UPDATE {SCHEMA}.targets SET writes = writes + 1 WHERE target = ?", target)


def find_job(session: duckdb.DuckDBPyConnection, job_id: str) -> Job | None:
    """Return what was committed under a job id."""
    rows = rows_of(
        session,
        f"SELECT job_id, target, mode, row_count FROM {SCHEMA}.jobs WHERE job_id = ?",
        job_id,
    )
    return Job(*rows[0]) if rows else None


def last_batch(session: duckdb.DuckDBPyConnection, query_id: str, target: str) -> int | None:
    """Return the last micro-batch of a query that is in the target; None when there is none."""
    rows = rows_of(
        session,
        f"SELECT batch_id FROM {SCHEMA}.streams WHERE query_id = ? AND target = ?",
        query_id,
        target,
    )
    return int(rows[0][0]) if rows else None


def unnamed_job() -> str:
    """Return the id of a job to which the user gave none; nobody can run it again by name."""
    return UNNAMED + uuid.uuid4().hex


def staging_name(job_id: str) -> str:
    """Return a fresh name for the staging table of one run of a job."""
    digest = hashlib.sha256(job_id.encode()).hexdigest()[:16]
    return f"stage_{digest}_{uuid.uuid4().hex[:12]}"


def stream_staging_name(target: str, columns: Sequence[tuple[str, str]]) -> str:
    """Return the name of the staging table that streams with this target and schema share."""
    digest = hashlib.sha256(repr((target, list(columns))).encode()).hexdigest()[:24]
    return f"stream_{digest}"


def new_attempt() -> int:
    """Return the id of an attempt: random, 63 bits, small because each of its rows carries it.

    Two of one write that are equal (one chance in 10^15 for a hundred attempts) make the counts
    that a commit compares wrong, so that the write fails and nothing is committed.
    """
    return secrets.randbits(63)


def create_staging(
    session: duckdb.DuckDBPyConnection,
    name: str,
    target: str,
    columns: Sequence[tuple[str, str]],
    *,
    job_id: str | None,
) -> None:
    """Make a staging table, and the note that it is there, in one transaction.

    Args:
        session: attached.
        name: of the table.
        target: for the note.
        columns: name and DuckDB type of each column that is written.
        job_id: of the only job that uses it; None = streams share it, and its rows go by their age.

    """
    parts = [f"{quoted(column)} {kind}" for column, kind in columns]
    parts.append(f"{ATTEMPT} BIGINT")
    if job_id is None:
        parts.append(f"{_STAGED_AT} TIMESTAMPTZ DEFAULT now()")

    def body() -> None:
        if rows_of(session, f"SELECT 1 FROM {SCHEMA}.staging WHERE name = ?", name):
            return
        rows_of(session, f"CREATE TABLE {SCHEMA}.{quoted(name)} ({', '.join(parts)})")
        rows_of(
            session,
            f"INSERT INTO {SCHEMA}.staging VALUES (?, ?, ?, now())",
            name,
            job_id or "stream",
            target,
        )

    try:
        transaction(session, body)
    except duckdb.Error:
        # Another one may have made the same table of a stream meanwhile.
        if not rows_of(session, f"SELECT 1 FROM {SCHEMA}.staging WHERE name = ?", name):
            raise


def drop_staging(session: duckdb.DuckDBPyConnection, name: str) -> None:
    """Remove a staging table with its note; nothing happens when it is gone."""

    def body() -> None:
        rows_of(session, f"DROP TABLE IF EXISTS {SCHEMA}.{quoted(name)}")
        rows_of(session, f"DELETE FROM {SCHEMA}.staging WHERE name = ?", name)

    transaction(session, body)


def sweep(session: duckdb.DuckDBPyConnection, ttl_s: float) -> list[str]:
    """Remove what dead jobs left in staging.

    Staging of a job that the ledger has, by whichever run, is of no use any more and goes at once;
    other staging after ``ttl_s`` seconds. Of the staging of streams, rows of that age go, and the
    table itself when it is empty and that old: a stream makes it again with its next micro-batch.
    The ledger forgets jobs of that age whose user gave them no name; named ones stay.

    Returns:
        Names of the tables that were removed.

    """
    prepare(session)
    old = f"now() - to_microseconds({int(ttl_s * 1e6)})"
    dead = rows_of(
        session,
        f"SELECT name FROM {SCHEMA}.staging s WHERE name LIKE 'stage\\_%' ESCAPE '\\' "
        f"AND (created_at < {old} OR EXISTS "
        f"(FROM {SCHEMA}.jobs j WHERE j.job_id = s.job_id)) ORDER BY name",
    )
    removed = []
    for (name,) in dead:
        drop_staging(session, name)
        removed.append(name)
    streams = rows_of(
        session,
        f"SELECT name, created_at < {old} FROM {SCHEMA}.staging "
        "WHERE name LIKE 'stream\\_%' ESCAPE '\\' ORDER BY name",
    )
    for name, is_old in streams:
        table = f"{SCHEMA}.{quoted(name)}"
        rows_of(session, f"DELETE FROM {table} WHERE {_STAGED_AT} < {old}")
        if is_old and rows_of(session, f"SELECT count(*) FROM {table}") == [(0,)]:
            drop_staging(session, name)
            removed.append(name)
    rows_of(
        session,
        f"DELETE FROM {SCHEMA}.jobs WHERE starts_with(job_id, ?) AND committed_at < {old}",
        UNNAMED,
    )
    return removed


def overview(session: duckdb.DuckDBPyConnection) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of `jobs`, `streams` and `staging`, newest first; times as text in UTC."""
    prepare(session)
    found: dict[str, list[dict[str, Any]]] = {}
    columns = {
        "jobs": ("committed_at", "job_id, target, mode, row_count"),
        "streams": ("committed_at", "query_id, target, batch_id, row_count"),
        "staging": ("created_at", "name, job_id, target"),
    }
    for table, (moment, names) in columns.items():
        relation = session.sql(
            f"SELECT {names}, "
            f"strftime({moment} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%SZ') AS {moment} "
            f"FROM {SCHEMA}.{table} ORDER BY {table}.{moment} DESC"
        )
        rows = relation.fetchall()
        found[table] = [dict(zip(relation.columns, row, strict=True)) for row in rows]
    return found


def attempts_condition(attempts: Sequence[int]) -> str:
    """Return the condition that keeps the rows of these attempts."""
    return f"{ATTEMPT} IN ({', '.join(str(one) for one in attempts)})"
