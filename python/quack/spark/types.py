"""Which type of Spark stands for which type of DuckDB, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from quack.errors import SparkError
from quack.spark.options import quoted, text

__all__ = ["arrow_schema", "duckdb_type", "read_expression", "read_schema", "spark_type"]

_FROM_DUCKDB: dict[str, spark.DataType] = {
    "boolean": spark.BooleanType(),
    "tinyint": spark.ByteType(),
    "smallint": spark.ShortType(),
    "integer": spark.IntegerType(),
    "bigint": spark.LongType(),
    "utinyint": spark.ShortType(),
    "usmallint": spark.IntegerType(),
    "uinteger": spark.LongType(),
    "ubigint": spark.DecimalType(20, 0),
    "hugeint": spark.DecimalType(38, 0),
    "uhugeint": spark.DecimalType(38, 0),
    "float": spark.FloatType(),
    "double": spark.DoubleType(),
    "varchar": spark.StringType(),
    "enum": spark.StringType(),
    "uuid": spark.StringType(),
    "blob": spark.BinaryType(),
    "date": spark.DateType(),
    "time": spark.TimeType(6),
    "timestamp": spark.TimestampNTZType(),
    "timestamp_s": spark.TimestampNTZType(),
    "timestamp_ms": spark.TimestampNTZType(),
    "timestamp with time zone": spark.TimestampType(),
    "interval": spark.DayTimeIntervalType(0, 3),
}
#: Why a type has no place in Spark, and what to do.
_REFUSED = {
    "timestamp_ns": "Spark's timestamps have microseconds; read it by query with c::TIMESTAMP",
    "time with time zone": "Spark has no time with zone; read it by query with c::VARCHAR",
    "bit": "Spark has no bit strings; read it by query with c::VARCHAR",
    "bignum": "Spark's widest number is DECIMAL(38); read it by query with c::VARCHAR",
    "union": "Spark has no unions; read it by query with c::VARCHAR or its members",
    "variant": "DuckDB's and Spark's variants differ; read it by query with c::JSON",
    "geometry": "not mapped; read it by query as text or as BLOB",
}
_TO_DUCKDB: list[tuple[type[spark.DataType], str]] = [
    (spark.BooleanType, "BOOLEAN"),
    (spark.ByteType, "TINYINT"),
    (spark.ShortType, "SMALLINT"),
    (spark.IntegerType, "INTEGER"),
    (spark.LongType, "BIGINT"),
    (spark.FloatType, "FLOAT"),
    (spark.DoubleType, "DOUBLE"),
    (spark.BinaryType, "BLOB"),
    (spark.DateType, "DATE"),
    (spark.TimeType, "TIME"),
    (spark.TimestampType, "TIMESTAMP WITH TIME ZONE"),
    (spark.TimestampNTZType, "TIMESTAMP"),
    (spark.DayTimeIntervalType, "INTERVAL"),
    (spark.StringType, "VARCHAR"),
    (spark.CharType, "VARCHAR"),
    (spark.VarcharType, "VARCHAR"),
]


def spark_type(duck: Any, *, nested: bool = False) -> spark.DataType:
    """Return the type in which Spark reads a column.

    Args:
        duck: a `duckdb` type.
        nested: it is part of another type.

    Raises:
        ValueError: there is none; says why and what to do.

    """
    kind: str = duck.id
    if kind == "decimal":
        parts = dict(duck.children)
        return spark.DecimalType(parts["precision"], parts["scale"])
    if kind in ("list", "array"):
        return spark.ArrayType(spark_type(duck.children[0][1], nested=True), True)
    if kind == "map":
        parts = dict(duck.children)
        key = spark_type(parts["key"], nested=True)
        return spark.MapType(key, spark_type(parts["value"], nested=True), True)
    if kind == "struct":
        fields = [
            spark.StructField(name, spark_type(child, nested=True), True)
            for name, child in duck.children
        ]
        return spark.StructType(fields)
    if kind in _FROM_DUCKDB and not (nested and kind == "interval"):
        return _FROM_DUCKDB[kind]
    reason = _REFUSED.get(kind, "not mapped; read it by query with c::VARCHAR")
    if kind == "interval":
        reason = "an interval inside another type is not mapped; read it by query with c::VARCHAR"
    raise ValueError(f"{duck}: {reason}")


def duckdb_type(given: spark.DataType) -> str:
    """Return the type in which DuckDB keeps a column of Spark, as SQL.

    Raises:
        ValueError: there is none; says why and what to do.

    """
    if isinstance(given, spark.DecimalType):
        return f"DECIMAL({given.precision},{given.scale})"
    if isinstance(given, spark.ArrayType):
        return duckdb_type(given.elementType) + "[]"
    if isinstance(given, spark.MapType):
        return f"MAP({duckdb_type(given.keyType)}, {duckdb_type(given.valueType)})"
    if isinstance(given, spark.StructType):
        if not given.fields:
            raise ValueError("struct without fields: DuckDB has none; drop the column")
        fields = (f"{quoted(field.name)} {duckdb_type(field.dataType)}" for field in given.fields)
        return f"STRUCT({', '.join(fields)})"
    for kind, name in _TO_DUCKDB:
        if type(given) is kind:
            return name
    if isinstance(given, spark.NullType):
        raise ValueError("void: the column has no type; cast it, as in lit(None).cast('int')")
    if isinstance(given, spark.VariantType):
        raise ValueError("variant: DuckDB's variants differ; write to_json(c)")
    raise ValueError(f"{given.simpleString()}: not mapped; cast it to string or binary")


def read_schema(columns: Sequence[tuple[str, Any]], what: str) -> spark.StructType:
    """Return the schema in which Spark reads columns.

    Args:
        columns: name and `duckdb` type.
        what: table or query, for the message.

    Raises:
        SparkError: names every column that has no place in Spark, with the fix.

    """
    fields = []
    problems = []
    for name, duck in columns:
        try:
            fields.append(spark.StructField(name, spark_type(duck), True))
        except ValueError as error:
            problems.append(f"column {quoted(name)} of {what}: {error}")
    lower = [name.lower() for name, _ in columns]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    problems += [f"{what} has two columns {quoted(name)}; rename one" for name in twice]
    if problems:
        raise SparkError("\n".join(problems))
    return spark.StructType(fields)


def read_expression(name: str, duck: Any) -> str:
    """Return the expression that gives a column in exactly the form of its Spark type."""
    column = quoted(name)
    wanted = spark_type(duck)
    if isinstance(wanted, spark.DayTimeIntervalType):
        complaint = text(
            f"column {column}: an interval with months has no place in Spark's day-time interval;"
            " read it by query with c::VARCHAR"
        )
        return (
            f"CASE WHEN datepart('year', {column}) <> 0 OR datepart('month', {column}) <> 0 "
            f"THEN error({complaint})::BIGINT ELSE epoch_us({column}) END AS {column}"
        )
    canonical = duckdb_type(wanted)
    if canonical == str(duck):
        return column
    return f"CAST({column} AS {canonical}) AS {column}"


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects and gives for a schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
