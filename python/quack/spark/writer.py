"""Writes DataFrames: tasks stage, the driver commits once. DESIGN.md has the argument."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from quack.errors import SparkError, code_of
from quack.spark import ledger, types
from quack.spark.commit import commit_once
from quack.spark.connection import attached, connection_slot, explained
from quack.spark.options import QuackOptions, quoted
from quack.spark.target import Target

__all__ = ["BatchWriter", "StagedRows", "StreamWriter"]

_STATEMENT_BYTES = 16 * 1024 * 1024
_STATEMENT_ROWS = 250_000


@dataclass
class StagedRows(WriterCommitMessage):
    """What one successful attempt of a task staged.

    Attributes:
        attempt: names its rows in the staging table.
        rows: how many they are.
        query_id: of the stream; empty for batch writes.

    """

    attempt: int
    rows: int
    query_id: str = ""


def _stage(
    session: duckdb.DuckDBPyConnection,
    target: Target,
    staging: str,
    attempt: int,
    batches: Iterator[pa.RecordBatch],
) -> int:
    """Insert the batches as rows of this attempt, in statements of bounded size."""
    casts = ", ".join(f"CAST({quoted(name)} AS {kind})" for name, kind in target.columns)
    into = (
        f"INSERT INTO {ledger.SCHEMA}.{quoted(staging)} ({target.names_sql()}, {ledger.ATTEMPT}) "
        f"SELECT {casts}, {attempt} FROM __quack_rows"
    )
    kept: list[pa.RecordBatch] = []
    total = 0

    def flush() -> None:
        if not kept:
            return
        table = pa.Table.from_batches(kept).rename_columns([name for name, _ in target.columns])
        session.register("__quack_rows", types.to_duckdb(table))
        ledger.rows_of(session, into)
        session.unregister("__quack_rows")
        kept.clear()

    for batch in batches:
        if batch.num_rows == 0:
            continue
        kept.append(batch)
        total += batch.num_rows
        size = sum(one.nbytes for one in kept)
        if size >= _STATEMENT_BYTES or sum(one.num_rows for one in kept) >= _STATEMENT_ROWS:
            flush()
    flush()
    return total


def _check_counts(
    session: duckdb.DuckDBPyConnection, staging: str, messages: Sequence[StagedRows], what: str
) -> None:
    """Refuse to commit unless every attempt's rows are all in the staging table."""
    expected = {one.attempt: one.rows for one in messages if one.rows}
    if not expected:
        return
    found = dict(
        ledger.rows_of(
            session,
            f"SELECT {ledger.ATTEMPT}, count(*) FROM {ledger.SCHEMA}.{quoted(staging)} "
            f"WHERE {ledger.attempts_condition(list(expected))} GROUP BY 1",
        )
    )
    if found != expected:
        raise SparkError(
            f"{what}: staging table {staging} holds {sum(found.values())} rows of the tasks, they "
            f"staged {sum(expected.values())}; somebody changed or removed them. Nothing was "
            "committed: run the write again"
        )


def _sweep(session: duckdb.DuckDBPyConnection, options: QuackOptions) -> None:
    try:
        ledger.sweep(session, options.staging_ttl_s)
    except duckdb.Error as error:
        # Two jobs may sweep the same table; a later one tries again.
        print(explained("staging of dead jobs stays for now", error, options), file=sys.stderr)


class BatchWriter(DataSourceArrowWriter):
    """One batch write, named by its job id. Made on the driver, copied to tasks and to commit.

    Raises:
        SparkError: target or schema do not fit, or the cluster refuses; nothing was done.

    """

    def __init__(self, options: QuackOptions, schema: StructType, overwrite: bool) -> None:
        options.check_write(overwrite=overwrite)
        self._options = options
        self._overwrite = overwrite
        self._job_id = options.job_id or ledger.unnamed_job()
        self._mode = "overwrite" if overwrite else options.mode
        with attached(options, consistency="linearizable") as session:
            try:
                ledger.prepare(session)
                done = ledger.find_job(session, self._job_id)
                self._is_done = done is not None
                if done is not None:
                    self._check_same(done)
                self._target = Target.examine(session, options, schema, overwrite=overwrite)
                _sweep(session, options)
                self._staging = ledger.staging_name(self._job_id)
                if not self._is_done:
                    ledger.create_staging(
                        session,
                        self._staging,
                        self._target.name,
                        self._target.columns,
                        job_id=self._job_id,
                    )
            except duckdb.Error as error:
                raise explained(f"cannot begin {self._what()}", error, options) from None

    def _what(self) -> str:
        return f"job {self._job_id} that writes to table {self._options.table}"

    def _check_same(self, done: ledger.Job) -> None:
        expected = (str(self._options.table).lower(), self._mode)
        if (done.target, done.mode) != expected:
            raise SparkError(
                f"option job_id: {self._job_id} was used already to {done.mode} table "
                f"{done.target}, now it is to {self._mode} table {self._options.table}; give "
                "every write a job_id of its own"
            )

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one attempt of a task; runs in the task.

        Raises:
            SparkError: a value does not fit the table, or the cluster failed; the task is
                retried by Spark, and what this attempt staged will not be committed.

        """
        attempt = ledger.new_attempt()
        if self._is_done:
            for _ in iterator:
                pass
            return StagedRows(attempt, 0)
        options = self._options
        with (
            connection_slot(self._staging, options.max_connections),
            attached(options, consistency="linearizable") as session,
        ):
            try:
                rows = _stage(session, self._target, self._staging, attempt, iterator)
            except duckdb.Error as error:
                if code_of(error) is None and self._committed_by_other():
                    return StagedRows(attempt, 0)
                raise explained(f"cannot stage rows of {self._what()}", error, options) from None
        return StagedRows(attempt, rows)

    def _committed_by_other(self) -> bool:
        with attached(self._options, consistency="linearizable") as session:
            return ledger.find_job(session, self._job_id) is not None

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the staged rows of the successful attempts visible, once; runs on the driver.

        Raises:
            SparkError: nothing was committed, or the outcome is unknown; says which, and that
                the same write with this job id settles it.

        """
        staged = [one for one in messages if isinstance(one, StagedRows)]
        rows = sum(one.rows for one in staged)

        def is_committed(session: duckdb.DuckDBPyConnection) -> bool:
            return ledger.find_job(session, self._job_id) is not None

        def body(session: duckdb.DuckDBPyConnection) -> None:
            attempts = [one.attempt for one in staged if one.rows]
            _check_counts(session, self._staging, staged, self._what())
            self._target.publish(session, self._staging, attempts, overwrite=self._overwrite)
            ledger.rows_of(
                session,
                f"INSERT INTO {ledger.SCHEMA}.jobs VALUES (?, ?, ?, ?, now())",
                self._job_id,
                self._target.name,
                self._mode,
                rows,
            )

        if not self._is_done:
            try:
                commit_once(self._options, f"cannot commit {self._what()}", is_committed, body)
            except SparkError as error:
                if error.code == "outcome_unknown":
                    raise SparkError(
                        f"{error}. Run the same write with option job_id={self._job_id}: it adds "
                        "the rows if they are not there, else nothing",
                        code=error.code,
                    ) from None
                raise
        self._clean()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Remove what was staged. What a commit may have made visible stays."""
        self._clean()

    def _clean(self) -> None:
        if self._is_done:
            return
        try:
            with attached(self._options) as session:
                ledger.drop_staging(session, self._staging)
        except (SparkError, duckdb.Error) as error:
            # The outcome of the write does not depend on it; the next job or the command sweeps.
            words = explained(f"staging of {self._what()} stays for now", error, self._options)
            print(words, file=sys.stderr)


class StreamWriter(DataSourceStreamArrowWriter):
    """The sink of a streaming query: each micro-batch once, named by query id and batch id.

    Spark makes one for the tasks and another one for the commit of the same micro-batch, so
    everything that both need is in the messages or follows from the options.
    """

    def __init__(self, options: QuackOptions, schema: StructType, overwrite: bool) -> None:
        options.check_write(overwrite=overwrite)
        if options.job_id is not None:
            raise SparkError("option job_id is for batch writes; a stream has its query id")
        self._options = options
        self._overwrite = overwrite
        with attached(options, consistency="linearizable") as session:
            try:
                ledger.prepare(session)
                self._target = Target.examine(session, options, schema, overwrite=overwrite)
                name = self._target.name
                self._staging = ledger.stream_staging_name(name, self._target.columns)
                ledger.create_staging(
                    session, self._staging, name, self._target.columns, job_id=None
                )
            except duckdb.Error as error:
                raise explained(f"cannot begin {self._what()}", error, options) from None

    def _what(self) -> str:
        return f"micro-batch for table {self._options.table}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Stage the rows of one attempt of a task; runs in the task.

        Raises:
            SparkError: a value does not fit the table, or the cluster failed.

        """
        context = TaskContext.get()
        query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
        if not query_id:
            raise SparkError(
                f"{self._what()}: Spark does not tell the id of the query, without which a replay "
                "cannot be recognised; use Spark 4.2 or newer"
            )
        attempt = ledger.new_attempt()
        options = self._options
        with (
            connection_slot(self._staging, options.max_connections),
            attached(options, consistency="linearizable") as session,
        ):
            try:
                rows = _stage(session, self._target, self._staging, attempt, iterator)
            except duckdb.Error as error:
                raise explained(f"cannot stage rows of {self._what()}", error, options) from None
        return StagedRows(attempt, rows, query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Make the micro-batch visible, once; a replay of a committed one changes nothing.

        Raises:
            SparkError: nothing was committed, or the outcome is unknown; the replay settles it.

        """
        staged = [one for one in messages if isinstance(one, StagedRows)]
        if not staged:
            return
        query_id = staged[0].query_id
        name = self._target.name
        rows = sum(one.rows for one in staged)
        attempts = [one.attempt for one in staged if one.rows]

        def is_committed(session: duckdb.DuckDBPyConnection) -> bool:
            last = ledger.last_batch(session, query_id, name)
            return last is not None and last >= batchId

        def body(session: duckdb.DuckDBPyConnection) -> None:
            _check_counts(session, self._staging, staged, self._what())
            self._target.publish(session, self._staging, attempts, overwrite=self._overwrite)
            self._forget(session, attempts)
            if ledger.last_batch(session, query_id, name) is None:
                sql = f"INSERT INTO {ledger.SCHEMA}.streams VALUES (?, ?, ?, ?, now())"
                ledger.rows_of(session, sql, query_id, name, batchId, rows)
            else:
                sql = (
                    f"UPDATE {ledger.SCHEMA}.streams SET batch_id = ?, row_count = ?, "
                    "committed_at = now() WHERE query_id = ? AND target = ?"
                )
                ledger.rows_of(session, sql, batchId, rows, query_id, name)

        what = f"cannot commit batch {batchId} of query {query_id} to table {name}"
        if not commit_once(self._options, what, is_committed, body):
            self._clean(attempts)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Remove what was staged. What a commit may have made visible stays."""
        self._clean([one.attempt for one in messages if isinstance(one, StagedRows)])

    def _forget(self, session: duckdb.DuckDBPyConnection, attempts: list[int]) -> None:
        if attempts:
            ledger.rows_of(
                session,
                f"DELETE FROM {ledger.SCHEMA}.{quoted(self._staging)} "
                f"WHERE {ledger.attempts_condition(attempts)}",
            )

    def _clean(self, attempts: list[int]) -> None:
        try:
            with attached(self._options) as session:
                self._forget(session, attempts)
        except (SparkError, duckdb.Error) as error:
            words = explained(f"staging of {self._what()} stays for now", error, self._options)
            print(words, file=sys.stderr)
