"""Reads a table or a query of the cluster; all partitions of one read see one snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from quack.errors import SparkError
from quack.spark import staged, types
from quack.spark.connection import attached, explained
from quack.spark.options import QuackOptions, quoted, text

__all__ = ["SnapshotReader", "source_columns"]

_BATCH_ROWS = 65_536
_SLICE_ROWS_MIN = 256
_PARTITIONS = 4
_PART = "__quack_partition"
_ATTEMPTS = 3


def _source(options: QuackOptions) -> str:
    return options.table.sql() if options.table is not None else f"({options.query})"


def _what(options: QuackOptions) -> str:
    return f"table {options.table}" if options.table is not None else "the query"


def _check_query(options: QuackOptions) -> None:
    if options.query is None:
        return
    try:
        statements = duckdb.extract_statements(options.query)
    except duckdb.Error as error:
        raise explained("option query", error, options) from None
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise SparkError(
            f"option query: {len(statements)} statements; expected one SELECT without semicolon"
            if len(statements) != 1
            else "option query: expected a SELECT, it only reads"
        )


def source_columns(
    session: duckdb.DuckDBPyConnection, options: QuackOptions
) -> list[tuple[str, Any]]:
    """Return name and `duckdb` type of each column that the options ask for, in their order.

    Raises:
        SparkError: no such table or column, or the query fails; names it.

    """
    _check_query(options)
    try:
        relation = session.sql(f"SELECT * FROM {_source(options)} LIMIT 0")
        found = list(zip(relation.columns, relation.types, strict=True))
    except duckdb.Error as error:
        raise explained(f"cannot read {_what(options)}", error, options) from None
    if options.columns is None:
        return found
    by_name = {name.lower(): (name, kind) for name, kind in found}
    missing = [name for name in options.columns if name.lower() not in by_name]
    if missing:
        raise SparkError(
            f"option columns: {_what(options)} has no column {', '.join(missing)}; it has "
            + ", ".join(name for name, _ in found)
        )
    return [by_name[name.lower()] for name in options.columns]


class SnapshotReader(DataSourceReader):
    """Stages the result of one statement on the driver and hands the parts to the tasks.

    See DESIGN.md, "One snapshot".
    """

    def __init__(self, options: QuackOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def __getstate__(self) -> dict[str, Any]:
        # Tasks read what was staged; they get no secret.
        return {**self.__dict__, "_options": self._options.without_secret()}

    def partitions(self) -> Sequence[InputPartition]:
        """Read everything now, in one statement; runs on the driver.

        Raises:
            SparkError: the read fails; says why.

        """
        options = self._options
        staged.sweep(options.staging_dir, options.snapshot_ttl_s)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with attached(options) as session:
                    return list(self._stage(session))
            except SparkError as error:
                # A node that dies in the middle takes the statement with it: nothing of it
                # was handed out yet, so it is read anew.
                if error.code != "unavailable" or attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def _stage(self, session: duckdb.DuckDBPyConnection) -> list[staged.SnapshotPartition]:
        options = self._options
        columns = self._wanted(source_columns(session, options))
        parts = options.num_partitions or _PARTITIONS
        schema = types.arrow_schema(self._schema)
        snapshot = staged.StagedSnapshot(
            schema, parts, options.staging_dir, options.inline_bytes_max
        )
        try:
            result = session.sql(self._statement(columns)).to_arrow_reader(_BATCH_ROWS)
            for number, batch in self._split(result, parts):
                snapshot.add(number, batch.cast(schema))
            partitions = snapshot.finish()
        except duckdb.Error as error:
            snapshot.discard()
            raise explained(f"cannot read {_what(options)}", error, options) from None
        except (pa.ArrowException, OSError) as error:
            snapshot.discard()
            raise explained(f"cannot read {_what(options)}", error, options) from None
        except BaseException:
            snapshot.discard()
            raise
        if options.num_partitions is None:
            return [part for part in partitions if part.rows] or partitions[:1]
        return partitions

    def _wanted(self, found: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Return the columns of the schema that Spark was given, which a user may have named."""
        by_name = {name.lower(): (name, kind) for name, kind in found}
        wanted = []
        problems = []
        for field in self._schema.fields:
            name, kind = by_name.get(field.name.lower(), (None, None))
            if name is None or kind is None:
                problems.append(
                    f"column {quoted(field.name)} of the schema is not in {_what(self._options)}; "
                    f"it has {', '.join(one for one, _ in found)}"
                )
                continue
            has = types.read_schema([(name, kind)], _what(self._options)).fields[0].dataType
            if has.simpleString() != field.dataType.simpleString():
                problems.append(
                    f"column {quoted(field.name)} of {_what(self._options)}: the schema expects "
                    f"{field.dataType.simpleString()}, it is {kind}, which Spark reads as "
                    f"{has.simpleString()}; read it as that and cast it in Spark"
                )
            wanted.append((name, kind))
        if problems:
            raise SparkError("\n".join(problems))
        return wanted

    def _statement(self, columns: list[tuple[str, Any]]) -> str:
        expressions = [types.read_expression(name, kind) for name, kind in columns]
        if self._options.partition_column is not None:
            expressions.append(self._part_expression(columns))
        return f"SELECT {', '.join(expressions)} FROM {_source(self._options)}"

    def _part_expression(self, columns: list[tuple[str, Any]]) -> str:
        options = self._options
        name = str(options.partition_column)
        kind = {one.lower(): kind for one, kind in columns}.get(name.lower())
        if kind is None:
            raise SparkError(
                f"option partition_column: {name} is not among the columns that are read: "
                + ", ".join(one for one, _ in columns)
            )
        low, high = text(str(options.lower_bound)), text(str(options.upper_bound))
        if kind.id.startswith(("timestamp", "date")):
            value = f"epoch({quoted(name)})"
            low, high = (f"epoch({bound}::{kind})" for bound in (low, high))
        else:
            value = f"{quoted(name)}::DOUBLE"
            low, high = f"{low}::DOUBLE", f"{high}::DOUBLE"
        last = int(options.num_partitions or 1) - 1
        share = f"floor(({value} - {low}) / ({high} - {low}) * {last + 1})"
        bounded = f"CASE WHEN isfinite({share}::DOUBLE) THEN {share} ELSE 0 END"
        return f"CAST(greatest(0, least({last}, coalesce({bounded}, 0))) AS INTEGER) AS {_PART}"

    def _split(
        self, batches: Iterable[pa.RecordBatch], parts: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        if self._options.partition_column is not None:
            for batch in batches:
                numbers = batch.column(batch.num_columns - 1)
                rows = batch.drop_columns([_PART])
                for number in pc.unique(numbers).to_pylist():
                    yield number, rows.filter(pc.equal(numbers, number))
            return
        turn = 0
        for batch in batches:
            rows_per_slice = max(_SLICE_ROWS_MIN, -(-batch.num_rows // parts))
            for start in range(0, batch.num_rows, rows_per_slice):
                yield turn % parts, batch.slice(start, rows_per_slice)
                turn += 1

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one part; runs in a task."""
        assert isinstance(partition, staged.SnapshotPartition)
        return staged.read_partition(partition)
