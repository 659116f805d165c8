"""The data source `quack` of Spark's Python Data Source API."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from quack.spark import types
from quack.spark.change_stream import ChangeStreamReader, change_schema
from quack.spark.connection import attached_for_planning
from quack.spark.options import QuackOptions
from quack.spark.reader import SnapshotReader, source_columns
from quack.spark.writer import BatchWriter, StreamWriter

__all__ = ["QuackDataSource"]


class QuackDataSource(DataSource):
    """``spark.read.format("quack")`` and ``df.write.format("quack")``.

    Raises:
        SparkError: the options have mistakes; all of them are named.

    """

    def __init__(self, options: dict[str, str]) -> None:
        # Not kept by the base class: its options would hold the token in the clear.
        super().__init__({})
        self._parsed = QuackOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "quack"

    def schema(self) -> StructType:
        """Return the schema of the table or query.

        Raises:
            SparkError: it cannot be read; names every column without a type in Spark.

        """
        if self._parsed.change_feed:
            return change_schema(self._parsed)
        self._parsed.check_read()
        with attached_for_planning(self._parsed) as session:
            columns = source_columns(session, self._parsed)
        what = "the query" if self._parsed.table is None else f"table {self._parsed.table}"
        return types.read_schema(columns, what)

    def reader(self, schema: StructType) -> SnapshotReader:
        """Return the reader of a DataFrame."""
        self._parsed.check_read()
        return SnapshotReader(self._parsed, schema)

    def streamReader(self, schema: StructType) -> ChangeStreamReader:
        """Return the reader of a stream of changes."""
        return ChangeStreamReader(self._parsed, schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of one batch write; makes its staging table."""
        return BatchWriter(self._parsed, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the sink of a streaming query."""
        return StreamWriter(self._parsed, schema, overwrite)
