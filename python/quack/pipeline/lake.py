"""Reads the metadata of a lake and writes its next snapshot, in DuckLake's words."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from quack.errors import PipelineError
from quack.pipeline.columns import Column, flat, tree
from quack.pipeline.layout import Lake
from quack.spark.ledger import rows_of
from quack.spark.options import TableName, quoted

__all__ = [
    "FILE_PATH",
    "ColumnStatistics",
    "DataFile",
    "LakeTable",
    "SnapshotChange",
    "WrittenFile",
    "all_files",
    "find_table",
    "live_files",
    "take_turn",
]

_ROWS_PER_STATEMENT = 200
#: The path of file ``f`` of table ``t`` in schema ``s``, from the lake's location on.
FILE_PATH = "CASE WHEN f.path_is_relative THEN s.path || t.path ELSE '' END || f.path"


@dataclass(frozen=True)
class ColumnStatistics:
    """What is known of the values of a column in one file."""

    column_id: int
    size_bytes: int
    value_count: int
    null_count: int
    min_value: str | None
    max_value: str | None
    contains_nan: bool | None


@dataclass(frozen=True)
class WrittenFile:
    """A Parquet file that a task wrote.

    Attributes:
        path: from the table's folder on.
        checksum: ``sha256:`` and 64 hex digits.
        footer_size: bytes of the Parquet footer, without its length and magic.
        partition_values: of the partition columns, as the metadata write them.

    """

    path: str
    record_count: int
    size_bytes: int
    footer_size: int
    checksum: str
    partition_values: tuple[str | None, ...]
    statistics: tuple[ColumnStatistics, ...]

    def to_json(self) -> str:
        """Return the form in which it travels from a task."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, document: str) -> WrittenFile:
        """Return what `to_json` gave away."""
        given = json.loads(document)
        given["partition_values"] = tuple(given["partition_values"])
        given["statistics"] = tuple(ColumnStatistics(**one) for one in given["statistics"])
        return cls(**given)


@dataclass(frozen=True)
class DataFile:
    """A file that the metadata name."""

    data_file_id: int
    table_id: int
    #: From the lake's location on, as the storage knows it.
    path: str
    record_count: int
    size_bytes: int
    checksum: str | None
    partition_values: tuple[str | None, ...]
    begin_snapshot: int
    end_snapshot: int | None


@dataclass(frozen=True)
class LakeTable:
    """A table as the last snapshot has it."""

    table_id: int
    name: TableName
    #: Folder of its files, from the lake's location on; ends with a slash.
    folder: str
    columns: tuple[Column, ...]
    partition_id: int | None
    partition_by: tuple[str, ...]


def find_table(session: duckdb.DuckDBPyConnection, lake: Lake, name: TableName) -> LakeTable | None:
    """Return a table of the last snapshot; None when there is none.

    Raises:
        PipelineError: the table has rows that are not in Parquet files, or deleted ones that
            still are, which only DuckLake reads right.

    """
    rows = rows_of(
        session,
        f"SELECT t.table_id, s.path || t.path FROM {lake.sql('table')} t "
        f"JOIN {lake.sql('schema')} s ON s.schema_id = t.schema_id "
        "WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL "
        "AND lower(s.schema_name) = lower(?) AND lower(t.table_name) = lower(?)",
        name.schema_name,
        name.name,
    )
    if not rows:
        return None
    table_id, folder = rows[0]
    _require_plain(session, lake, table_id, name)
    columns = rows_of(
        session,
        "SELECT column_id, column_name, column_type, nulls_allowed, parent_column "
        f"FROM {lake.sql('column')} WHERE table_id = ? AND end_snapshot IS NULL "
        "ORDER BY column_order, column_id",
        table_id,
    )
    partition = rows_of(
        session,
        f"SELECT c.partition_id, k.column_name FROM {lake.sql('partition_info')} i "
        f"JOIN {lake.sql('partition_column')} c ON c.partition_id = i.partition_id "
        f"JOIN {lake.sql('column')} k ON k.column_id = c.column_id AND k.table_id = i.table_id "
        "WHERE i.table_id = ? AND i.end_snapshot IS NULL AND k.end_snapshot IS NULL "
        "ORDER BY c.partition_key_index",
        table_id,
    )
    return LakeTable(
        table_id,
        name,
        folder,
        tree(columns),
        partition[0][0] if partition else None,
        tuple(column for _, column in partition),
    )


def _require_plain(
    session: duckdb.DuckDBPyConnection, lake: Lake, table_id: int, name: TableName
) -> None:
    deletes = rows_of(
        session,
        f"SELECT 1 FROM {lake.sql('delete_file')} WHERE table_id = ? AND end_snapshot IS NULL "
        f"UNION ALL SELECT 1 FROM {lake.sql('inlined_data_tables')} WHERE table_id = ? LIMIT 1",
        table_id,
        table_id,
    )
    if deletes:
        raise PipelineError(
            f"lake table {name} has deleted or inlined rows that DuckLake wrote; only DuckLake "
            "reads them: rewrite its files there (ducklake_rewrite_data_files, "
            "ducklake_flush_inlined_data), then run this again"
        )


def live_files(session: duckdb.DuckDBPyConnection, lake: Lake, table: LakeTable) -> list[DataFile]:
    """Return the files of the last snapshot, in the order in which they came."""
    return [one for one in all_files(session, lake, table.table_id) if one.end_snapshot is None]


def all_files(
    session: duckdb.DuckDBPyConnection, lake: Lake, table_id: int | None = None
) -> list[DataFile]:
    """Return every file that a snapshot names, of one table or of all."""
    rows = rows_of(
        session,
        f"SELECT f.data_file_id, f.table_id, {FILE_PATH}, f.record_count, f.file_size_bytes, "
        "q.checksum, "
        "list(p.partition_value ORDER BY p.partition_key_index) "
        "FILTER (p.data_file_id IS NOT NULL), f.begin_snapshot, f.end_snapshot "
        f"FROM {lake.sql('data_file')} f JOIN {lake.sql('table')} t ON t.table_id = f.table_id "
        f"JOIN {lake.sql('schema')} s ON s.schema_id = t.schema_id "
        f"LEFT JOIN {lake.sql('quack_file')} q ON q.data_file_id = f.data_file_id "
        f"LEFT JOIN {lake.sql('file_partition_value')} p ON p.data_file_id = f.data_file_id "
        "WHERE coalesce(f.table_id = ?, true) GROUP BY ALL ORDER BY f.data_file_id",
        table_id,
    )
    return [
        DataFile(number, table, path, count, size, checksum, tuple(values or ()), begin, end)
        for number, table, path, count, size, checksum, values, begin, end in rows
    ]


def insert_rows(
    session: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[Any]]
) -> None:
    """Insert rows in the open transaction, many with each statement."""
    for start in range(0, len(rows), _ROWS_PER_STATEMENT):
        part = rows[start : start + _ROWS_PER_STATEMENT]
        places = ", ".join(f"({', '.join('?' for _ in row)})" for row in part)
        rows_of(session, f"INSERT INTO {table} VALUES {places}", *(v for row in part for v in row))


def take_turn(session: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Begin a change of the metadata in the open transaction.

    Two transactions that do this change the same row, so that one of them runs again from its
    start and finds what the other one did.
    """
    rows_of(session, f"UPDATE {lake.sql('quack_turn')} SET commits = commits + 1")


class SnapshotChange:
    """The next snapshot of a lake, written within an open transaction, whose turn it takes."""

    def __init__(self, session: duckdb.DuckDBPyConnection, lake: Lake) -> None:
        self._session = session
        self._lake = lake
        take_turn(session, lake)
        last, version, catalog_id, file_id = rows_of(
            session,
            "SELECT snapshot_id, schema_version, next_catalog_id, next_file_id "
            f"FROM {lake.sql('snapshot')} ORDER BY snapshot_id DESC LIMIT 1",
        )[0]
        self.snapshot_id: int = last + 1
        self._schema_version: int = version
        self._next_catalog_id: int = catalog_id
        self._next_file_id: int = file_id
        self._changes: list[str] = []

    def _run(self, sql: str, *values: Any) -> list[Any]:
        return rows_of(self._session, sql, *values)

    def _new_id(self) -> int:
        self._next_catalog_id += 1
        return self._next_catalog_id - 1

    def create_table(
        self, name: TableName, columns: Sequence[Column], partition_by: Sequence[str]
    ) -> LakeTable:
        """Add a table to the lake."""
        lake = self._lake
        self._schema_version += 1
        schema_id, schema_path = self._schema(name.schema_name)
        table_id = self._new_id()
        path = f"{name.name}/"
        row = (
            table_id,
            str(uuid.uuid4()),
            self.snapshot_id,
            None,
            schema_id,
            name.name,
            path,
            True,
        )
        insert_rows(self._session, lake.sql("table"), [row])
        insert_rows(
            self._session,
            lake.sql("column"),
            [self._column_row(table_id, column, parent) for column, parent in flat(columns)],
        )
        partition_id = self._partition(table_id, columns, partition_by) if partition_by else None
        versions = [(self.snapshot_id, self._schema_version, table_id)]
        insert_rows(self._session, lake.sql("schema_versions"), versions)
        insert_rows(self._session, lake.sql("table_stats"), [(table_id, 0, 0, 0)])
        self._changes.append(f"created_table:{quoted(name.schema_name)}.{quoted(name.name)}")
        return LakeTable(
            table_id, name, schema_path + path, tuple(columns), partition_id, tuple(partition_by)
        )

    def _column_row(self, table_id: int, column: Column, parent: int | None) -> tuple[Any, ...]:
        kind = "" if column.children else "literal"
        number = column.column_id
        return (
            *(number, self.snapshot_id, None, table_id, number, column.name, column.kind),
            *(None, "NULL", column.nulls_allowed, parent, kind, "duckdb"),
        )

    def _partition(self, table_id: int, columns: Sequence[Column], names: Sequence[str]) -> int:
        partition_id = self._new_id()
        ids = {column.name.lower(): column.column_id for column in columns}
        insert_rows(
            self._session,
            self._lake.sql("partition_info"),
            [(partition_id, table_id, self.snapshot_id, None)],
        )
        insert_rows(
            self._session,
            self._lake.sql("partition_column"),
            [
                (partition_id, table_id, index, ids[name.lower()], "identity")
                for index, name in enumerate(names)
            ],
        )
        return partition_id

    def _schema(self, name: str) -> tuple[int, str]:
        found = self._run(
            f"SELECT schema_id, path FROM {self._lake.sql('schema')} "
            "WHERE lower(schema_name) = lower(?) AND end_snapshot IS NULL",
            name,
        )
        if found:
            return int(found[0][0]), str(found[0][1])
        schema_id = self._new_id()
        row = (schema_id, str(uuid.uuid4()), self.snapshot_id, None, name, f"{name}/", True)
        insert_rows(self._session, self._lake.sql("schema"), [row])
        self._changes.append(f"created_schema:{quoted(name)}")
        return schema_id, f"{name}/"

    def add_files(
        self, table: LakeTable, files: Sequence[WrittenFile], run_id: str, *, compacted: bool
    ) -> None:
        """Add files to a table.

        Args:
            table: of this lake.
            files: written and durable.
            run_id: of the run that wrote them.
            compacted: they hold rows of files that `end_files` takes away.

        """
        if not files:
            return
        next_row = self._run(
            f"SELECT next_row_id FROM {self._lake.sql('table_stats')} WHERE table_id = ?",
            table.table_id,
        )[0][0]
        data, own, values, statistics = [], [], [], []
        for file in files:
            number = self._next_file_id
            self._next_file_id += 1
            data.append(
                (
                    *(number, table.table_id, self.snapshot_id, None, None, file.path, True),
                    *("parquet", file.record_count, file.size_bytes, file.footer_size, next_row),
                    *(table.partition_id, None, None, None),
                )
            )
            next_row += file.record_count
            own.append((number, run_id, file.checksum))
            values += [
                (number, table.table_id, index, value)
                for index, value in enumerate(file.partition_values)
            ]
            statistics += [
                (
                    *(number, table.table_id, one.column_id, one.size_bytes, one.value_count),
                    *(one.null_count, one.min_value, one.max_value, one.contains_nan, None),
                )
                for one in file.statistics
            ]
        insert_rows(self._session, self._lake.sql("data_file"), data)
        insert_rows(self._session, self._lake.sql("quack_file"), own)
        insert_rows(self._session, self._lake.sql("file_partition_value"), values)
        insert_rows(self._session, self._lake.sql("file_column_stats"), statistics)
        self._run(
            f"UPDATE {self._lake.sql('table_stats')} SET record_count = record_count + ?, "
            "next_row_id = ?, file_size_bytes = file_size_bytes + ? WHERE table_id = ?",
            sum(file.record_count for file in files),
            next_row,
            sum(file.size_bytes for file in files),
            table.table_id,
        )
        verb = "compacted_table" if compacted else "inserted_into_table"
        self._changes.append(f"{verb}:{table.table_id}")

    def end_files(self, table: LakeTable, files: Sequence[DataFile]) -> None:
        """Take files away from a table; older snapshots go on naming them.

        Raises:
            PipelineError: one is not part of the last snapshot any more (code ``conflict``).

        """
        listed = ", ".join(str(file.data_file_id) for file in files)
        ended = self._run(
            f"UPDATE {self._lake.sql('data_file')} SET end_snapshot = ? "
            f"WHERE data_file_id IN ({listed}) AND end_snapshot IS NULL",
            self.snapshot_id,
        )[0][0]
        if ended != len(files):
            raise PipelineError(
                f"lake table {table.name}: {len(files) - ended} of {len(files)} files were "
                "replaced by another one meanwhile",
                code="conflict",
            )
        self._run(
            f"UPDATE {self._lake.sql('table_stats')} SET record_count = record_count - ?, "
            "file_size_bytes = file_size_bytes - ? WHERE table_id = ?",
            sum(file.record_count for file in files),
            sum(file.size_bytes for file in files),
            table.table_id,
        )

    def has_changes(self) -> bool:
        """Whether there is anything to write a snapshot for."""
        return bool(self._changes)

    def finish(self, message: str) -> int:
        """Write the snapshot itself; returns its id.

        Args:
            message: says which step of which job made it.

        """
        self._run(
            f"INSERT INTO {self._lake.sql('snapshot')} VALUES (?, now(), ?, ?, ?)",
            self.snapshot_id,
            self._schema_version,
            self._next_catalog_id,
            self._next_file_id,
        )
        self._run(
            f"INSERT INTO {self._lake.sql('snapshot_changes')} VALUES (?, ?, ?, ?, NULL)",
            self.snapshot_id,
            ",".join(self._changes),
            "quack pipeline",
            message,
        )
        return self.snapshot_id
