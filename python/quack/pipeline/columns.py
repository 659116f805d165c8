"""Columns of a lake table: their types in Spark, Parquet and the metadata, and their statistics."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quack.errors import PipelineError

__all__ = ["Column", "Statistics", "arrow_schema", "columns_of", "differences", "flat", "tree"]

#: DuckLake's name of a type, Arrow's type, DuckDB's name.
_TYPES: dict[str, tuple[pa.DataType, str]] = {
    "boolean": (pa.bool_(), "BOOLEAN"),
    "int8": (pa.int8(), "TINYINT"),
    "int16": (pa.int16(), "SMALLINT"),
    "int32": (pa.int32(), "INTEGER"),
    "int64": (pa.int64(), "BIGINT"),
    "float32": (pa.float32(), "FLOAT"),
    "float64": (pa.float64(), "DOUBLE"),
    "varchar": (pa.string(), "VARCHAR"),
    "blob": (pa.binary(), "BLOB"),
    "date": (pa.date32(), "DATE"),
    "time": (pa.time64("us"), "TIME"),
    "timestamp": (pa.timestamp("us"), "TIMESTAMP"),
    "timestamptz": (pa.timestamp("us", tz="UTC"), "TIMESTAMP WITH TIME ZONE"),
}
_OF_SPARK = {
    "boolean": "boolean",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "varchar",
    "binary": "blob",
    "date": "date",
    **{f"time({digits})": "time" for digits in range(7)},
    "timestamp_ntz": "timestamp",
    "timestamp": "timestamptz",
}
_NESTED = ("struct", "list", "map")
#: Longer texts are of no use as bounds and would fill the catalog.
_BOUND_CHARACTERS_MAX = 256


@dataclass(frozen=True)
class Column:
    """A column, or a part of a nested one.

    Attributes:
        column_id: of the metadata, and the field id in the Parquet files.
        name: as the user wrote it.
        kind: DuckLake's name of its type.
        nulls_allowed: whether a row may lack it.
        children: of a struct its fields, of a list ``element``, of a map ``key`` and ``value``.

    """

    column_id: int
    name: str
    kind: str
    nulls_allowed: bool = True
    children: tuple[Column, ...] = ()

    def arrow_type(self) -> pa.DataType:
        """Return the type in Parquet files."""
        fields = [child.arrow_field() for child in self.children]
        if self.kind == "struct":
            return pa.struct(fields)
        if self.kind == "list":
            return pa.list_(fields[0])
        if self.kind == "map":
            return pa.map_(fields[0].with_nullable(False), fields[1])
        if self.kind.startswith("decimal("):
            precision, scale = self.kind[8:-1].split(",")
            return pa.decimal128(int(precision), int(scale))
        return _TYPES[self.kind][0]

    def arrow_field(self) -> pa.Field:
        """Return the field, with its id."""
        metadata = {b"PARQUET:field_id": str(self.column_id).encode()}
        return pa.field(self.name, self.arrow_type(), metadata=metadata)

    def duckdb_type(self) -> str:
        """Return the type in DuckDB, as SQL."""
        if self.kind == "struct":
            parts = (f'"{one.name}" {one.duckdb_type()}' for one in self.children)
            return f"STRUCT({', '.join(parts)})"
        if self.kind == "list":
            return self.children[0].duckdb_type() + "[]"
        if self.kind == "map":
            key, value = self.children
            return f"MAP({key.duckdb_type()}, {value.duckdb_type()})"
        if self.kind.startswith("decimal("):
            return self.kind.upper()
        return _TYPES[self.kind][1]

    def shape(self) -> str:
        """Return its type with all parts, for comparison and messages."""
        if not self.children:
            return self.kind
        parts = ", ".join(f"{one.name} {one.shape()}" for one in self.children)
        return f"{self.kind}({parts})"


def columns_of(schema: Any, not_null: Iterable[str], what: str) -> tuple[Column, ...]:
    """Return the columns of a Spark schema.

    Args:
        schema: a `StructType`.
        not_null: names of columns that every row must have.
        what: for the message.

    Raises:
        PipelineError: names every column that has no place, with the fix.

    """
    wanted = {name.lower() for name in not_null}
    numbers = iter(range(1, 1_000_000))
    problems = []
    found = []
    for field in schema.fields:
        try:
            column = _column(field.name, field.dataType, numbers)
        except ValueError as error:
            problems.append(f"{what}: column {field.name}: {error}")
            continue
        nullable = field.name.lower() not in wanted
        found.append(Column(column.column_id, column.name, column.kind, nullable, column.children))
    lower = [field.name.lower() for field in schema.fields]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    problems += [f"{what}: two columns are named {name}; rename one" for name in twice]
    if not found and not problems:
        problems.append(f"{what}: there are no columns")
    if problems:
        raise PipelineError("\n".join(problems))
    return tuple(found)


def _column(name: str, kind: Any, numbers: Iterator[int]) -> Column:
    number = next(numbers)
    simple = kind.simpleString()
    if simple in _OF_SPARK:
        return Column(number, name, _OF_SPARK[simple])
    if simple.startswith("decimal("):
        return Column(number, name, simple)
    word = simple.partition("<")[0]
    if word == "struct" and kind.fields:
        children = tuple(_column(one.name, one.dataType, numbers) for one in kind.fields)
        return Column(number, name, "struct", True, children)
    if word == "array":
        return Column(number, name, "list", True, (_column("element", kind.elementType, numbers),))
    if word == "map":
        key = _column("key", kind.keyType, numbers)
        return Column(number, name, "map", True, (key, _column("value", kind.valueType, numbers)))
    raise ValueError(f"type {simple} has no place in the lake; cast it, for example to string")


def flat(
    columns: Sequence[Column], parent: int | None = None
) -> Iterator[tuple[Column, int | None]]:
    """Give every column and part with the id of what it is part of, in the order of ids."""
    for column in columns:
        yield column, parent
        yield from flat(column.children, column.column_id)


def tree(rows: Sequence[tuple[int, str, str, bool, int | None]]) -> tuple[Column, ...]:
    """Return the columns from (id, name, kind, nulls_allowed, parent), in their order."""

    def below(parent: int | None) -> tuple[Column, ...]:
        return tuple(
            Column(number, name, kind, nullable, below(number))
            for number, name, kind, nullable, above in rows
            if above == parent
        )

    return below(None)


def differences(expected: Sequence[Column], came: Sequence[Column], what: str) -> list[str]:
    """Return in words how columns differ from those of a table; the order is free."""
    has = {column.name.lower(): column for column in came}
    wants = {column.name.lower(): column for column in expected}
    problems = []
    for name, column in wants.items():
        other = has.get(name)
        if other is None:
            problems.append(f"{what}: column {column.name} is missing, expected {column.shape()}")
        elif other.shape() != column.shape():
            problems.append(
                f"{what}: column {column.name}: expected {column.shape()}, came {other.shape()}; "
                "cast it in select"
            )
    problems += [
        f"{what}: column {column.name} is not in the table; leave it out by select"
        for name, column in has.items()
        if name not in wants
    ]
    return problems


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return the schema of the Parquet files."""
    return pa.schema([column.arrow_field() for column in columns])


class Statistics:
    """Bounds and counts of one column, gathered batch by batch."""

    def __init__(self, column: Column) -> None:
        self.column = column
        self.values = 0
        self.nulls = 0
        self.has_nan: bool | None = None
        self._is_known = True
        self._low: Any = None
        self._high: Any = None

    def add(self, array: Any) -> None:
        """Take in the values of a batch."""
        self.values += len(array)
        self.nulls += array.null_count
        if self.column.kind in ("float32", "float64"):
            is_nan = pc.is_nan(array)
            self.has_nan = bool(self.has_nan) or bool(pc.any(is_nan).as_py())
            array = pc.filter(array, pc.invert(is_nan))
        try:
            bounds = pc.min_max(array).as_py()
        except (ValueError, OverflowError):  # a moment that Python cannot say
            self._is_known = False
            return
        if bounds["min"] is None:
            return
        self._low = bounds["min"] if self._low is None else min(self._low, bounds["min"])
        self._high = bounds["max"] if self._high is None else max(self._high, bounds["max"])

    def bounds(self) -> tuple[str | None, str | None]:
        """Return the lowest and highest value as the metadata write them; None when not known."""
        if not self._is_known:
            return None, None
        return _bound(self._low), _bound(self._high)


def _bound(value: Any) -> str | None:
    word = value_text(value)
    return None if word is None or len(word) > _BOUND_CHARACTERS_MAX else word


def value_text(value: Any) -> str | None:
    """Return a value as DuckLake's metadata write it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            return str(value.astimezone(datetime.UTC).replace(tzinfo=None)) + "+00"
        return str(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def is_plain(column: Column) -> bool:
    """Whether it is not nested."""
    return column.kind not in _NESTED
