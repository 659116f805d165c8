"""Which type of Spark stands for which type of DuckDB, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark

from quack.errors import SparkError
from quack.spark.options import quoted, text

__all__ = [
    "arrow_schema",
    "duckdb_type",
    "read_expression",
    "read_schema",
    "spark_type",
    "to_duckdb",
    "to_spark",
]

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
    "variant": spark.VariantType(),
}
#: A stream of changes has no query, and a schema that names the columns it wants.
_WAY_OUT = "read it by query with c::VARCHAR, or leave it out: columns, or .schema() of a stream"
#: Values that Spark's type does not have: a condition on the column, and what to say.
_OUTSIDE = {
    "DATE": ("NOT isfinite({})", "Spark's dates know no infinity"),
    "TIMESTAMP": ("NOT isfinite({})", "Spark's timestamps know no infinity"),
    "TIMESTAMP WITH TIME ZONE": ("NOT isfinite({})", "Spark's timestamps know no infinity"),
    "TIME": ("{} = '24:00:00'::TIME", "Spark's days end before 24:00:00"),
}
#: Types that are mapped as a whole column only.
_NOT_NESTED = ("interval", "variant")
#: Why a type has no place in Spark, and what to do.
_REFUSED = {
    "timestamp_ns": "Spark's timestamps have microseconds; read it by query with c::TIMESTAMP",
    "time with time zone": "Spark has no time with zone; read it by query with c::VARCHAR",
    "bit": "Spark has no bit strings; read it by query with c::VARCHAR",
    "bignum": "Spark's widest number is DECIMAL(38); read it by query with c::VARCHAR",
    "union": "Spark has no unions; read it by query with c::VARCHAR or its members",
    "geometry": "not mapped; read it by query as text or as BLOB",
    "null": "it has no type; give it one by query, as in c::INTEGER",
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
#: Why a type of Spark has no place in DuckDB, and what to do.
_NOT_WRITTEN: list[tuple[type[spark.DataType], str]] = [
    (spark.NullType, "the column has no type; cast it, as in lit(None).cast('int')"),
    (
        spark.YearMonthIntervalType,
        "Spark gives it to no Python; write the months, as in c / INTERVAL '1' MONTH, or a string",
    ),
    (spark.CalendarIntervalType, "Spark gives it to no Python; cast it to string"),
    (spark.GeometryType, "not mapped; write ST_AsBinary(c)"),
    (spark.GeographyType, "not mapped; write ST_AsBinary(c)"),
]
#: How Arrow marks a struct of two blobs as a variant, in the encoding of Parquet.
_VARIANT_OF_ARROW = {
    "ARROW:extension:name": "arrow.parquet.variant",
    "ARROW:extension:metadata": "",
}


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
    if kind in _FROM_DUCKDB and not (nested and kind in _NOT_NESTED):
        return _FROM_DUCKDB[kind]
    reason = _REFUSED.get(kind, "not mapped; read it by query with c::VARCHAR")
    if kind in _NOT_NESTED:
        reason = f"{kind} inside another type is not mapped; read it by query with c::VARCHAR"
    raise ValueError(f"{duck}: {reason}")


def duckdb_type(given: spark.DataType, *, nested: bool = False) -> str:
    """Return the type in which DuckDB keeps a column of Spark, as SQL.

    Args:
        given: a type of Spark.
        nested: it is part of another type.

    Raises:
        ValueError: there is none; says why and what to do.

    """
    if isinstance(given, spark.DecimalType):
        return f"DECIMAL({given.precision},{given.scale})"
    if isinstance(given, spark.ArrayType):
        return duckdb_type(given.elementType, nested=True) + "[]"
    if isinstance(given, spark.MapType):
        key = duckdb_type(given.keyType, nested=True)
        return f"MAP({key}, {duckdb_type(given.valueType, nested=True)})"
    if isinstance(given, spark.StructType):
        if not given.fields:
            raise ValueError("struct without fields: DuckDB has none; drop the column")
        fields = (
            f"{quoted(field.name)} {duckdb_type(field.dataType, nested=True)}"
            for field in given.fields
        )
        return f"STRUCT({', '.join(fields)})"
    if isinstance(given, spark.VariantType) and not nested:
        return "VARIANT"
    for kind, name in _TO_DUCKDB:
        if type(given) is kind:
            return name
    if isinstance(given, spark.VariantType):
        raise ValueError("variant inside another type is not mapped; write to_json of it")
    for kind, reason in _NOT_WRITTEN:
        if isinstance(given, kind):
            raise ValueError(f"{given.simpleString()}: {reason}")
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
            f" {_WAY_OUT}"
        )
        return (
            f"CASE WHEN datepart('year', {column}) <> 0 OR datepart('month', {column}) <> 0 "
            f"THEN error({complaint})::BIGINT ELSE epoch_us({column}) END AS {column}"
        )
    canonical = duckdb_type(wanted)
    value = column if canonical == str(duck) else f"CAST({column} AS {canonical})"
    if canonical in _OUTSIDE:
        is_outside, why = _OUTSIDE[canonical]
        complaint = text(f"column {column}: {why}; {_WAY_OUT}")
        failing = f"WHEN {is_outside.format(column)} THEN error({complaint})::{canonical}"
        return f"CASE {failing} ELSE {value} END AS {column}"
    return column if value == column else f"{value} AS {column}"


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects and gives for a schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def _is_variant(field: pa.Field) -> bool:
    """Whether Spark marks a field as a variant."""
    if not pa.types.is_struct(field.type) or field.type.get_field_index("metadata") < 0:
        return False
    return b"variant" in (field.type.field("metadata").metadata or {})


def to_spark(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows of DuckDB in the form that Spark expects.

    Variants of both are those of Parquet; a NULL and a variant that is null are one in DuckDB.

    Args:
        batch: columns as `read_expression` gives them.
        schema: of `arrow_schema`.

    """
    if not any(map(_is_variant, schema)):
        return batch.cast(schema)
    columns = [
        pa.StructArray.from_arrays(
            [column.field("value"), column.field("metadata")],
            fields=list(field.type),
            mask=column.is_null(),
        )
        if _is_variant(field)
        else column.cast(field.type)
        for field, column in zip(schema, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def to_duckdb(rows: pa.Table) -> pa.Table:
    """Return rows of Spark in a form that DuckDB knows: variants get its mark."""
    for number, field in enumerate(rows.schema):
        if not _is_variant(field):
            continue
        kind = pa.struct([pa.field("metadata", pa.binary(), False), pa.field("value", pa.binary())])
        chunks = [
            pa.StructArray.from_arrays(
                [chunk.field("metadata"), chunk.field("value")],
                fields=list(kind),
                mask=chunk.is_null(),
            )
            for chunk in rows.column(number).chunks
        ]
        marked = pa.field(field.name, kind, metadata=_VARIANT_OF_ARROW)
        rows = rows.set_column(number, marked, pa.chunked_array(chunks, kind))
    return rows
