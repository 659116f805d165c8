"""The changes of a table as a stream; offsets are positions of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from quack import changes
from quack.changes import Position
from quack.errors import ClusterError, SparkError, code_of
from quack.spark import staged, types
from quack.spark.connection import attached, explained
from quack.spark.options import QuackOptions, TableName, quoted, text
from quack.spark.reader import Rows, attempts, source_columns, stage

__all__ = ["ChangeStreamReader", "change_schema"]

Answer = TypeVar("Answer")

_NUMBERS = ("commit_group", "commit_index", "commit_order")


def _name(table: TableName) -> str:
    return f"{quoted(table.schema_name)}.{quoted(table.name)}"


def _rows(options: QuackOptions, start: Position, end: Position) -> Rows:
    """Return the changes between two positions; the feed's own numbers fit a long of Spark."""
    table = options.check_changes()
    numbers = ", ".join(f"{one}::BIGINT AS {one}" for one in _NUMBERS)
    arguments = ", ".join(text(one) for one in ("cp", _name(table), start.applied, end.applied))
    return Rows(
        f"(SELECT * REPLACE ({numbers}) FROM quack_changes({arguments}))",
        f"the changes of table {table}",
    )


def _ask(
    options: QuackOptions, doing: str, question: Callable[[duckdb.DuckDBPyConnection], Answer]
) -> Answer:
    """Ask a node; another one when it dies.

    Raises:
        SparkError: with the cluster's words.

    """

    def once() -> Answer:
        with attached(options) as session:
            try:
                return question(session)
            except duckdb.Error as error:
                raise explained(doing, error, options) from None
            except ClusterError as error:
                raise SparkError(f"{doing}: {error}", code=code_of(error)) from None

    return attempts(once)


def change_schema(options: QuackOptions) -> StructType:
    """Return the schema of a stream of changes.

    Raises:
        SparkError: the table cannot be read; names every column without a type in Spark.

    """
    table = options.check_changes()

    def question(session: duckdb.DuckDBPyConnection) -> StructType:
        now = changes.position_now(session)
        rows = _rows(options, now, now)
        return types.read_schema(source_columns(session, options, rows), rows.what)

    return _ask(options, f"cannot read the changes of table {table}", question)


def _check_key(key: Sequence[str], columns: list[tuple[str, Any]], what: str) -> None:
    has = {name.lower() for name, _ in columns}
    missing = [name for name in key if name.lower() not in has]
    if missing:
        raise SparkError(
            f"option key: {what} have no column {', '.join(missing)}; they have "
            + ", ".join(name for name, _ in columns)
        )


def _indexes(position: Position) -> dict[int, int]:
    pairs = (one.split(":") for one in position.applied.split(",") if one)
    return {int(group): int(index) for group, index in pairs}


def _reaches(position: Position, target: Position) -> bool:
    """Whether everything before ``target`` lies before ``position``."""
    have = _indexes(position)
    return all(have.get(group, 0) >= index for group, index in _indexes(target).items())


class ChangeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Cuts the feed into micro-batches and stages each of them for the tasks.

    See DESIGN.md, "A stream of changes".
    """

    def __init__(self, options: QuackOptions, schema: StructType) -> None:
        self._table = options.check_changes()
        self._options = options
        self._schema = schema
        self._doing = f"cannot read the changes of table {self._table}"
        #: Nothing behind it is read; None = there is no such place.
        self._target: Position | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks read what was staged; they get no secret.
        return {**self.__dict__, "_options": self._options.without_secret()}

    def initialOffset(self) -> dict[str, str]:
        """Return where a new query begins.

        Raises:
            SparkError: no node answers.

        """
        start = self._options.starting_position
        if isinstance(start, Position):
            return start.as_json()
        find = changes.position_now if start == "latest" else changes.oldest_position
        return _ask(self._options, self._doing, find).as_json()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read nothing that comes from now on.

        Raises:
            SparkError: no node answers.

        """
        self._target = _ask(self._options, self._doing, changes.position_now)

    def latestOffset(self, start: dict[str, str], limit: ReadLimit) -> dict[str, str]:
        """Return the end of the next micro-batch; ``start`` while there is nothing for one.

        Raises:
            SparkError: changes behind ``start`` are not kept any more, or no node answers.

        """
        begin = Position.from_json(start)
        target = self._target
        if target is not None and _reaches(begin, target):
            return start
        options = self._options
        is_bounded = not isinstance(limit, ReadAllAvailable)
        rows = options.max_rows_per_batch if is_bounded else None
        size = options.max_bytes_per_batch if is_bounded else None

        def question(session: duckdb.DuckDBPyConnection) -> Position:
            end, count = changes.step(session, _name(self._table), begin, rows=rows, size=size)
            if count == 0 and not self._falls_behind(session, begin):
                return begin
            return end

        end = _ask(options, self._doing, question)
        if target is not None and not _reaches(target, end):
            end = target
        return end.as_json()

    def _falls_behind(self, session: duckdb.DuckDBPyConnection, begin: Position) -> bool:
        """Whether other tables' changes push the place out of what the cluster keeps."""
        oldest = _indexes(changes.oldest_position(session))
        now = _indexes(changes.position_now(session))
        have = _indexes(begin)
        return any(2 * have.get(group, 0) < oldest.get(group, 0) + now[group] for group in now)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit of Spark that stands for those of the options."""
        from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows

        options = self._options
        if options.max_rows_per_batch is not None:
            return ReadMaxRows(options.max_rows_per_batch)
        if options.max_bytes_per_batch is not None:
            return ReadMaxBytes(options.max_bytes_per_batch)
        return ReadAllAvailable()

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Read one micro-batch now, in one statement; runs on the driver.

        Raises:
            SparkError: the read fails; says why.

        """
        options = self._options
        staged.sweep(options.staging_dir, options.snapshot_ttl_s)
        rows = _rows(options, Position.from_json(start), Position.from_json(end))
        parts = options.num_partitions or 1
        expression = None
        if parts > 1:
            key = ", ".join(quoted(name) for name in options.key or ())
            expression = f"CAST(hash({key}) % {parts} AS INTEGER)"
        if start == end:
            return []

        def question(session: duckdb.DuckDBPyConnection) -> list[staged.SnapshotPartition]:
            if parts > 1:
                _check_key(options.key or (), source_columns(session, options, rows), rows.what)
            return stage(session, options, self._schema, rows, parts, expression)

        return _ask(options, self._doing, question)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one part, in order; runs in a task."""
        assert isinstance(partition, staged.SnapshotPartition)
        return staged.read_partition(partition)

    def commit(self, end: dict[str, str]) -> None:
        """Nothing to do: the cluster keeps changes by size, whoever reads them."""

    def stop(self) -> None:
        """Nothing to do: no session stays open."""
