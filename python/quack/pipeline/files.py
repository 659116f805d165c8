"""Writes and reads the Parquet files of a lake; runs in Spark's tasks."""

from __future__ import annotations

import hashlib
import math
import urllib.parse
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quack.pipeline.columns import Column, Statistics, arrow_schema, is_plain, value_text
from quack.pipeline.lake import ColumnStatistics, WrittenFile
from quack.storage import Store

__all__ = ["FilePlan", "FileWriter", "checksum_of", "read_file"]

#: Rows of a row group: DuckDB reads one per thread.
_GROUP_ROWS = 122_880
_GROUP_BYTES = 32 * 1024 * 1024
#: How Hive, and those who read its folders, call a NULL.
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def checksum_of(data: bytes) -> str:
    """Return the checksum of a file, as the metadata have it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def read_file(store: Store, path: str) -> pa.Table:
    """Return the rows of a file.

    Raises:
        StorageError: it is missing or cannot be read.

    """
    return pq.read_table(pa.BufferReader(store.get(path)))


@dataclass(frozen=True)
class FilePlan:
    """What the files of a run are; travels to the tasks.

    Attributes:
        folder: of the table.
        run_folder: below it, for the files of this run.
        columns: of the table.
        partition_by: names of the partition columns.
        target_file_bytes: a file that is so large is ended.

    """

    folder: str
    run_folder: str
    columns: tuple[Column, ...]
    partition_by: tuple[str, ...]
    target_file_bytes: int


class FileWriter:
    """Writes rows of one lake table as files of about one size.

    Rows with the same partition values must come together. A file is in memory until it is whole
    and then goes to the storage at once, so that nobody ever sees half of one. Names hold random
    parts: an attempt of a task that is repeated writes other files, and whoever commits names
    only those of the attempt that counted.
    """

    def __init__(self, store: Store, plan: FilePlan) -> None:
        """Begin; nothing is written before rows come."""
        self._store = store
        self._plan = plan
        self._schema = arrow_schema(plan.columns)
        by_name = {column.name.lower(): column.name for column in plan.columns}
        self._partition_by = [by_name[name.lower()] for name in plan.partition_by]
        self._values: tuple[Any, ...] | None = None
        self._kept: list[pa.Table] = []
        self._file: _OpenFile | None = None
        self._written: list[WrittenFile] = []

    def write(self, rows: pa.Table) -> None:
        """Take in rows, whose columns are those of the table in any order and case.

        Raises:
            StorageError: the storage refuses a file.

        """
        if rows.num_rows == 0:
            return
        has = {name.lower(): name for name in rows.column_names}
        rows = rows.select([has[name.lower()] for name in self._schema.names])
        rows = rows.rename_columns(self._schema.names).cast(self._schema)
        for values, part in self._parts(rows):
            if values != self._values:
                self._end_file()
                self._values = values
            self._kept.append(part)
            if (
                sum(one.num_rows for one in self._kept) >= _GROUP_ROWS
                or sum(one.nbytes for one in self._kept) >= _GROUP_BYTES
            ):
                self._flush()

    def close(self) -> list[WrittenFile]:
        """Write what is left; returns all files."""
        self._end_file()
        return self._written

    def _parts(self, rows: pa.Table) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
        """Cut rows where a partition value changes."""
        if not self._partition_by:
            yield (), rows
            return
        columns = (map(_key, rows[name].to_pylist()) for name in self._partition_by)
        keys = list(zip(*columns, strict=True))
        start = 0
        for position in range(1, len(keys) + 1):
            if position == len(keys) or keys[position] != keys[start]:
                yield keys[start], rows.slice(start, position - start)
                start = position

    def _flush(self) -> None:
        if not self._kept:
            return
        if self._file is None:
            self._file = _OpenFile(self._schema, self._plan.columns)
        self._file.write(pa.concat_tables(self._kept))
        self._kept.clear()
        if self._file.size() >= self._plan.target_file_bytes:
            self._end_file()

    def _end_file(self) -> None:
        self._flush()
        if self._file is None:
            return
        values = tuple(value_text(value) for value in self._values or ())
        levels = [
            f"{urllib.parse.quote(name, safe='')}="
            + (_NULL_FOLDER if value is None else urllib.parse.quote(value, safe=""))
            for name, value in zip(self._partition_by, values, strict=True)
        ]
        path = "/".join([self._plan.run_folder, *levels, f"{uuid.uuid4().hex}.parquet"])
        file, self._file = self._file, None
        data = file.close()
        self._store.put(self._plan.folder + path, data)
        self._written.append(
            WrittenFile(
                path,
                file.record_count,
                len(data),
                int.from_bytes(data[-8:-4], "little"),
                checksum_of(data),
                values,
                file.statistics(data),
            )
        )


def _key(value: Any) -> Any:
    """Return a value that equals itself: every NaN becomes the same one."""
    return value if value == value else math.nan


class _OpenFile:
    """A file that grows in memory."""

    def __init__(self, schema: pa.Schema, columns: Sequence[Column]) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")
        self._statistics = [Statistics(column) for column in columns if is_plain(column)]
        self.record_count = 0

    def write(self, rows: pa.Table) -> None:
        """Add a row group."""
        self._writer.write_table(rows, row_group_size=_GROUP_ROWS)
        self.record_count += rows.num_rows
        for one in self._statistics:
            one.add(rows[one.column.name])

    def size(self) -> int:
        """Return the bytes so far."""
        return int(self._sink.tell())

    def close(self) -> bytes:
        """Return the whole file."""
        self._writer.close()
        return bytes(self._sink.getvalue())

    def statistics(self, data: bytes) -> tuple[ColumnStatistics, ...]:
        """Return what is known of its columns."""
        sizes: dict[str, int] = {}
        metadata = pq.read_metadata(pa.BufferReader(data))
        for group in range(metadata.num_row_groups):
            for number in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(number)
                name = chunk.path_in_schema
                sizes[name] = sizes.get(name, 0) + chunk.total_compressed_size
        return tuple(
            ColumnStatistics(
                one.column.column_id,
                sizes[one.column.name],
                one.values,
                one.nulls,
                *one.bounds(),
                one.has_nan,
            )
            for one in self._statistics
        )
