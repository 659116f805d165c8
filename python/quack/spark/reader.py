"""Reads a table or a query of the cluster; all partitions of one read see one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import duckdb
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from quack.errors import SparkError
from quack.spark import staged, types
from quack.spark.connection import attached_for_planning, explained
from quack.spark.options import QuackOptions, TableName, quoted, text

__all__ = ["Rows", "SnapshotReader", "attempts", "source_columns", "stage"]

_BATCH_ROWS = 65_536
_SLICE_ROWS_MIN = 256
#: Of a partition, when neither options nor shards say how many there are.
_PARTITION_BYTES = 16 << 20
#: What partitions are put together from then.
_CHUNK_BYTES = 1 << 20
_PART = "__quack_partition"
_NUMBERS = frozenset(
    {f"{sign}{size}int" for sign in ("", "u") for size in ("tiny", "small", "big", "huge")}
    | {"integer", "uinteger", "float", "double", "decimal"}
)
_ATTEMPTS = 3

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Rows:
    """What is read: something that may stand behind FROM, and its name in messages."""

    source: str
    what: str

    @classmethod
    def asked_for(cls, options: QuackOptions) -> Rows:
        """Return the table or the query of the options."""
        if options.table is not None:
            return cls(options.table.sql(), f"table {options.table}")
        # The query may end with a comment, or with the semicolon of a habit.
        query = str(options.query).rstrip().removesuffix(";")
        return cls(f"({query}\n)", "the query")


def attempts(ask: Callable[[], Answer]) -> Answer:
    """Ask again when a node died in the middle: nothing of its answer was handed out yet.

    Raises:
        SparkError: what the last attempt said.

    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return ask()
        except SparkError as error:
            if error.code != "unavailable" or attempt == _ATTEMPTS:
                raise
    raise AssertionError("unreachable")


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
    session: duckdb.DuckDBPyConnection, options: QuackOptions, rows: Rows | None = None
) -> list[tuple[str, Any]]:
    """Return name and `duckdb` type of each column that the options ask for, in their order.

    Args:
        session: an attached one.
        options: of the read.
        rows: where they come from, when not from the table or query of the options.

    Raises:
        SparkError: no such table or column, or the query fails; names it.

    """
    _check_query(options)
    rows = rows or Rows.asked_for(options)
    try:
        relation = session.sql(f"SELECT * FROM {rows.source} LIMIT 0")
        found = list(zip(relation.columns, relation.types, strict=True))
    except duckdb.Error as error:
        raise explained(f"cannot read {rows.what}", error, options) from None
    if options.columns is None:
        return found
    by_name = {name.lower(): (name, kind) for name, kind in found}
    missing = [name for name in options.columns if name.lower() not in by_name]
    if missing:
        raise SparkError(
            f"option columns: {rows.what} has no column {', '.join(missing)}; it has "
            + ", ".join(name for name, _ in found)
        )
    return [by_name[name.lower()] for name in options.columns]


def _wanted_columns(
    schema: StructType, found: list[tuple[str, Any]], what: str
) -> list[tuple[str, Any]]:
    """Return the columns of the schema that Spark was given, which a user may have named.

    Raises:
        SparkError: one is missing or has another type; names every such column.

    """
    by_name = {name.lower(): (name, kind) for name, kind in found}
    wanted = []
    problems = []
    for field in schema.fields:
        name, kind = by_name.get(field.name.lower(), (None, None))
        if name is None or kind is None:
            problems.append(
                f"column {quoted(field.name)} of the schema is not in {what}; "
                f"it has {', '.join(one for one, _ in found)}"
            )
            continue
        has = types.read_schema([(name, kind)], what).fields[0].dataType
        if has.simpleString() != field.dataType.simpleString():
            problems.append(
                f"column {quoted(field.name)} of {what}: the schema expects "
                f"{field.dataType.simpleString()}, it is {kind}, which Spark reads as "
                f"{has.simpleString()}; read it as that and cast it in Spark"
            )
        wanted.append((name, kind))
    if problems:
        raise SparkError("\n".join(problems))
    return wanted


def stage(
    session: duckdb.DuckDBPyConnection,
    options: QuackOptions,
    schema: StructType,
    rows: Rows,
    parts: int | None,
    part_expression: str | None,
) -> list[staged.SnapshotPartition]:
    """Run one SELECT and cut its rows into parts, in which they keep their order.

    Args:
        session: an attached one.
        options: of the read.
        schema: in which Spark gets the rows.
        rows: what to read.
        parts: how many parts; None = as many as their size asks for.
        part_expression: the number of a row's part, as SQL; None = parts of about equal size.

    Raises:
        SparkError: the read fails; says why.

    """
    columns = _wanted_columns(schema, source_columns(session, options, rows), rows.what)
    expressions = [types.read_expression(name, kind) for name, kind in columns]
    if part_expression is not None:
        expressions.append(f"{part_expression} AS {_PART}")
    arrow = types.arrow_schema(schema)
    snapshot = staged.StagedSnapshot(arrow, options.staging_dir, options.inline_bytes_max)
    try:
        statement = f"SELECT {', '.join(expressions)} FROM {rows.source}"
        result = session.sql(statement).to_arrow_reader(_BATCH_ROWS)
        good = _checked(result, arrow, rows.what)
        if parts is None:
            return _parts_by_size(snapshot, (types.to_spark(batch, arrow) for batch in good))
        for number, batch in _split(good, parts, part_expression is not None):
            snapshot.add(number, types.to_spark(batch, arrow))
        return snapshot.finish([[number] for number in range(parts)])
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        snapshot.discard()
        raise explained(f"cannot read {rows.what}", error, options) from None
    except BaseException:
        snapshot.discard()
        raise


def _checked(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, what: str
) -> Iterator[pa.RecordBatch]:
    """Refuse NULL where the schema that the user gave has none."""
    for batch in batches:
        for number, field in enumerate(schema):
            if not field.nullable and batch.column(number).null_count:
                raise SparkError(
                    f"column {quoted(field.name)} of {what} has NULL, and the schema that was "
                    "given says NOT NULL; leave that out"
                )
        yield batch


def _parts_by_size(
    snapshot: staged.StagedSnapshot, batches: Iterable[pa.RecordBatch]
) -> list[staged.SnapshotPartition]:
    """Cut rows, in their order, into as many parts of equal size as there are bytes for."""
    sizes = [0]  # of the chunks
    for batch in batches:
        # Wide rows make large batches.
        step = max(_SLICE_ROWS_MIN, batch.num_rows * 2 * _CHUNK_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            rows = batch.slice(start, step)
            snapshot.add(len(sizes) - 1, rows)
            sizes[-1] += rows.nbytes
            if sizes[-1] >= _CHUNK_BYTES:
                snapshot.seal(len(sizes) - 1)
                sizes.append(0)
    total = max(1, sum(sizes))
    parts = max(1, round(total / _PARTITION_BYTES))
    chunks: list[list[int]] = [[] for _ in range(parts)]
    before = 0
    for number, size in enumerate(sizes):
        chunks[min(before * parts // total, parts - 1)].append(number)
        before += size
    return snapshot.finish(chunks)


def _split(
    batches: Iterable[pa.RecordBatch], parts: int, is_numbered: bool
) -> Iterator[tuple[int, pa.RecordBatch]]:
    if is_numbered:
        # Every planning process imports this module, and most have no use for these.
        import pyarrow.compute as pc

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


def _shards(session: duckdb.DuckDBPyConnection, table: TableName) -> tuple[int, str] | None:
    """Return of a sharded table how many groups it has, and which of them a row is in, as SQL."""
    found = session.execute(
        "SELECT shard_key, count(*) FROM quack_table_groups('cp') WHERE shard_key IS NOT NULL "
        "AND lower(table_schema) = lower(?) AND lower(table_name) = lower(?) GROUP BY 1",
        [table.schema_name, table.name],
    ).fetchall()
    if not found:
        return None
    ((shard_key, groups),) = found
    return groups, f"(quack_slot({shard_key}) % {groups})::INTEGER"


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

        def ask() -> list[staged.SnapshotPartition]:
            with attached_for_planning(options) as session:
                return self._stage(session)

        return attempts(ask)

    def _stage(self, session: duckdb.DuckDBPyConnection) -> list[staged.SnapshotPartition]:
        options = self._options
        parts, expression = options.num_partitions, None
        if options.partition_column is not None:
            expression = self._part_expression(session, source_columns(session, options))
        elif options.num_partitions is None and options.table is not None:
            parts, expression = _shards(session, options.table) or (None, None)
        rows = Rows.asked_for(options)
        partitions = stage(session, options, self._schema, rows, parts, expression)
        if options.num_partitions is None:
            return [part for part in partitions if part.rows] or partitions[:1]
        return partitions

    def _part_expression(
        self, session: duckdb.DuckDBPyConnection, columns: list[tuple[str, Any]]
    ) -> str:
        options = self._options
        name = str(options.partition_column)
        kind = {one.lower(): kind for one, kind in columns}.get(name.lower())
        if kind is None:
            raise SparkError(
                f"option partition_column: {name} is not among the columns that are read: "
                + ", ".join(one for one, _ in columns)
            )
        if kind.id.startswith(("timestamp", "date")):
            value, form, expected = f"epoch({quoted(name)})", "epoch({}::{})", "a date or timestamp"
        elif kind.id in _NUMBERS:
            value, form, expected = f"{quoted(name)}::DOUBLE", "{}::DOUBLE", "a number"
        else:
            raise SparkError(
                f"option partition_column: {name} is {kind}; expected a column of "
                "numbers, dates or timestamps"
            )
        bounds: list[str] = []
        numbers: list[float] = []
        for option in ("lower_bound", "upper_bound"):
            given = text(str(getattr(options, option)))
            bounds.append(form.format(given, kind))
            try:
                numbers += session.execute(f"SELECT {bounds[-1]}").fetchall()[0]
            except duckdb.ConversionException:
                raise SparkError(
                    f"option {option}: {given} is not {expected}, as partition_column {name} "
                    f"({kind}) needs"
                ) from None
        low, high = bounds
        if numbers[0] > numbers[1]:
            raise SparkError(
                f"options lower_bound and upper_bound: {options.lower_bound} is above "
                f"{options.upper_bound}"
            )
        last = int(options.num_partitions or 1) - 1
        share = f"floor(({value} - {low}) / ({high} - {low}) * {last + 1})"
        bounded = f"CASE WHEN isfinite({share}::DOUBLE) THEN {share} ELSE 0 END"
        return f"CAST(greatest(0, least({last}, coalesce({bounded}, 0))) AS INTEGER)"

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of one part; runs in a task."""
        assert isinstance(partition, staged.SnapshotPartition)
        return staged.read_partition(partition)
