"""The catalog tables of a lake: DuckLake's layout (version 1.0), and what the pipeline adds to it.

The tables of `DUCKLAKE` are those that DuckLake 1.0 expects in its metadata schema, column by
column; the pipeline fills those it has use for. `OWN` are the pipeline's: DuckLake ignores them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

import duckdb

from quack.errors import PipelineError
from quack.spark.commit import commit_once
from quack.spark.ledger import rows_of
from quack.spark.options import QuackOptions, quoted, text

__all__ = ["Lake", "check", "create", "exists"]

VERSION = "1.0"

DUCKLAKE: dict[str, str] = {
    "metadata": "key VARCHAR NOT NULL, value VARCHAR NOT NULL, scope VARCHAR, scope_id BIGINT",
    "snapshot": "snapshot_id BIGINT PRIMARY KEY, snapshot_time TIMESTAMPTZ, "
    "schema_version BIGINT, next_catalog_id BIGINT, next_file_id BIGINT",
    "snapshot_changes": "snapshot_id BIGINT PRIMARY KEY, changes_made VARCHAR, author VARCHAR, "
    "commit_message VARCHAR, commit_extra_info VARCHAR",
    "schema": "schema_id BIGINT PRIMARY KEY, schema_uuid UUID, begin_snapshot BIGINT, "
    "end_snapshot BIGINT, schema_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN",
    "table": "table_id BIGINT, table_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, "
    "schema_id BIGINT, table_name VARCHAR, path VARCHAR, path_is_relative BOOLEAN",
    "view": "view_id BIGINT, view_uuid UUID, begin_snapshot BIGINT, end_snapshot BIGINT, "
    "schema_id BIGINT, view_name VARCHAR, dialect VARCHAR, sql VARCHAR, column_aliases VARCHAR",
    "tag": "object_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, key VARCHAR, "
    "value VARCHAR",
    "column_tag": "table_id BIGINT, column_id BIGINT, begin_snapshot BIGINT, "
    "end_snapshot BIGINT, key VARCHAR, value VARCHAR",
    "data_file": "data_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, "
    "end_snapshot BIGINT, file_order BIGINT, path VARCHAR, path_is_relative BOOLEAN, "
    "file_format VARCHAR, record_count BIGINT, file_size_bytes BIGINT, footer_size BIGINT, "
    "row_id_start BIGINT, partition_id BIGINT, encryption_key VARCHAR, mapping_id BIGINT, "
    "partial_max BIGINT",
    "file_column_stats": "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, "
    "column_size_bytes BIGINT, value_count BIGINT, null_count BIGINT, min_value VARCHAR, "
    "max_value VARCHAR, contains_nan BOOLEAN, extra_stats VARCHAR",
    "file_variant_stats": "data_file_id BIGINT, table_id BIGINT, column_id BIGINT, "
    "variant_path VARCHAR, shredded_type VARCHAR, column_size_bytes BIGINT, value_count BIGINT, "
    "null_count BIGINT, min_value VARCHAR, max_value VARCHAR, contains_nan BOOLEAN, "
    "extra_stats VARCHAR",
    "delete_file": "delete_file_id BIGINT PRIMARY KEY, table_id BIGINT, begin_snapshot BIGINT, "
    "end_snapshot BIGINT, data_file_id BIGINT, path VARCHAR, path_is_relative BOOLEAN, "
    "format VARCHAR, delete_count BIGINT, file_size_bytes BIGINT, footer_size BIGINT, "
    "encryption_key VARCHAR, partial_max BIGINT",
    "column": "column_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT, table_id BIGINT, "
    "column_order BIGINT, column_name VARCHAR, column_type VARCHAR, initial_default VARCHAR, "
    "default_value VARCHAR, nulls_allowed BOOLEAN, parent_column BIGINT, "
    "default_value_type VARCHAR, default_value_dialect VARCHAR",
    "table_stats": "table_id BIGINT, record_count BIGINT, next_row_id BIGINT, "
    "file_size_bytes BIGINT",
    "table_column_stats": "table_id BIGINT, column_id BIGINT, contains_null BOOLEAN, "
    "contains_nan BOOLEAN, min_value VARCHAR, max_value VARCHAR, extra_stats VARCHAR",
    "partition_info": "partition_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, "
    "end_snapshot BIGINT",
    "partition_column": "partition_id BIGINT, table_id BIGINT, partition_key_index BIGINT, "
    "column_id BIGINT, transform VARCHAR",
    "file_partition_value": "data_file_id BIGINT, table_id BIGINT, partition_key_index BIGINT, "
    "partition_value VARCHAR",
    "files_scheduled_for_deletion": "data_file_id BIGINT, path VARCHAR, "
    "path_is_relative BOOLEAN, schedule_start TIMESTAMPTZ",
    "inlined_data_tables": "table_id BIGINT, table_name VARCHAR, schema_version BIGINT",
    "column_mapping": "mapping_id BIGINT, table_id BIGINT, type VARCHAR",
    "name_mapping": "mapping_id BIGINT, column_id BIGINT, source_name VARCHAR, "
    "target_field_id BIGINT, parent_column BIGINT, is_partition BOOLEAN",
    "schema_versions": "begin_snapshot BIGINT, schema_version BIGINT, table_id BIGINT",
    "macro": "schema_id BIGINT, macro_id BIGINT, macro_name VARCHAR, begin_snapshot BIGINT, "
    "end_snapshot BIGINT",
    "macro_impl": "macro_id BIGINT, impl_id BIGINT, dialect VARCHAR, sql VARCHAR, type VARCHAR",
    "macro_parameters": "macro_id BIGINT, impl_id BIGINT, column_id BIGINT, "
    "parameter_name VARCHAR, parameter_type VARCHAR, default_value VARCHAR, "
    "default_value_type VARCHAR",
    "sort_info": "sort_id BIGINT, table_id BIGINT, begin_snapshot BIGINT, end_snapshot BIGINT",
    "sort_expression": "sort_id BIGINT, table_id BIGINT, sort_key_index BIGINT, "
    "expression VARCHAR, dialect VARCHAR, sort_direction VARCHAR, null_order VARCHAR",
}
OWN: dict[str, str] = {
    # One row that every commit changes, so that two at once conflict and one runs again.
    "quack_turn": "commits BIGINT",
    # Runs that have begun and not ended.
    "quack_run": "job_id VARCHAR, step VARCHAR, run_id VARCHAR, started_at TIMESTAMPTZ, "
    "PRIMARY KEY (job_id, step)",
    # Steps that were committed.
    "quack_step": "job_id VARCHAR, step VARCHAR, run_id VARCHAR, kind VARCHAR, digest VARCHAR, "
    "snapshot_id BIGINT, counts VARCHAR, committed_at TIMESTAMPTZ, PRIMARY KEY (job_id, step)",
    "quack_file": "data_file_id BIGINT PRIMARY KEY, run_id VARCHAR, checksum VARCHAR",
    # Views that follow the files of a lake table; the hot table's rows are part of it if given.
    "quack_view": "schema_name VARCHAR, view_name VARCHAR, table_id BIGINT, hot_schema VARCHAR, "
    "hot_table VARCHAR, PRIMARY KEY (schema_name, view_name)",
}


@dataclass(frozen=True)
class Lake:
    """A lake: the schema of the catalog that describes it, and where its files lie."""

    schema: str
    location: str

    def sql(self, table: str) -> str:
        """Return the full name of a table: ``snapshot`` is DuckLake's, ``quack_run`` ours."""
        name = table if table.startswith("quack_") else f"ducklake_{table}"
        return f"cp.{quoted(self.schema)}.{name}"

    def place(self, path: str) -> str:
        """Return the full path of an object from its name in the storage."""
        return f"{self.location.rstrip('/')}/{path}"


def create(options: QuackOptions, lake: Lake) -> None:
    """Make the schema and its tables in one transaction, unless another one has.

    Raises:
        SparkError: the cluster fails.

    """
    commit_once(
        options,
        f"cannot prepare the lake in schema {lake.schema}",
        lambda session: exists(session, lake),
        lambda session: _create(session, lake),
    )


def check(session: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    """Look whether the schema describes this lake.

    Raises:
        PipelineError: it describes a lake at another place, or of another version.

    """
    rows = dict(
        rows_of(session, f"SELECT key, value FROM {lake.sql('metadata')} WHERE scope IS NULL")
    )
    if rows.get("version") != VERSION:
        raise PipelineError(
            f"schema {lake.schema} holds DuckLake metadata of version {rows.get('version')}, "
            f"expected {VERSION}; give lake.catalog the name of another schema"
        )
    if rows.get("data_path") != lake.place(""):
        raise PipelineError(
            f"the lake of schema {lake.schema} lies at {rows.get('data_path')}, and the job says "
            f"{lake.place('')}; mend lake.location, or give lake.catalog another name"
        )


def exists(session: duckdb.DuckDBPyConnection, lake: Lake) -> bool:
    """Whether the schema has the tables of a lake."""
    found = rows_of(
        session,
        "SELECT 1 FROM duckdb_tables() WHERE database_name = 'cp' AND schema_name = ? "
        "AND table_name = 'quack_view'",
        lake.schema,
    )
    return bool(found)


def _create(session: duckdb.DuckDBPyConnection, lake: Lake) -> None:
    rows_of(session, f"CREATE SCHEMA IF NOT EXISTS cp.{quoted(lake.schema)}")
    for table, columns in {**DUCKLAKE, **OWN}.items():
        rows_of(session, f"CREATE TABLE {lake.sql(table)} ({columns})")
    rows_of(
        session,
        f"CREATE VIEW {lake.sql('quack_live_files')} AS "
        + _LIVE_FILES.format(schema=quoted(lake.schema)),
    )
    rows_of(
        session,
        f"CREATE MACRO {lake.sql('quack_files_at')}(wanted, at_snapshot) AS TABLE "
        + _FILES_AT.format(schema=quoted(lake.schema)),
    )
    rows_of(session, f"INSERT INTO {lake.sql('quack_turn')} VALUES (0)")
    rows_of(session, f"INSERT INTO {lake.sql('snapshot')} VALUES (0, now(), 0, 1, 0)")
    rows_of(
        session,
        f"INSERT INTO {lake.sql('snapshot_changes')} "
        "VALUES (0, 'created_schema:\"main\"', NULL, NULL, NULL)",
    )
    rows_of(
        session,
        f"INSERT INTO {lake.sql('metadata')} (key, value) VALUES ('version', {text(VERSION)}), "
        f"('created_by', 'quack-duckdb'), ('data_path', {text(lake.place(''))}), "
        "('encrypted', 'false')",
    )
    rows_of(
        session,
        f"INSERT INTO {lake.sql('schema')} VALUES (0, ?, 0, NULL, 'main', 'main/', true)",
        str(uuid.uuid4()),
    )


_ALL_FILES = """
SELECT s.schema_name, t.table_name,
    CASE WHEN f.path_is_relative THEN m.value || s.path || t.path ELSE '' END || f.path AS path,
    f.record_count, f.file_size_bytes, f.begin_snapshot, f.end_snapshot
FROM {schema}.ducklake_metadata m, {schema}.ducklake_schema s, {schema}.ducklake_table t,
    {schema}.ducklake_data_file f
WHERE m.key = 'data_path' AND m.scope IS NULL AND s.schema_id = t.schema_id
    AND f.table_id = t.table_id
"""
#: The files of the last snapshot, of all tables, with their full paths.
_LIVE_FILES = f"""
SELECT schema_name, table_name, path, record_count, file_size_bytes
FROM ({_ALL_FILES}) WHERE end_snapshot IS NULL
"""
#: The files of table `wanted` (schema.table) at a snapshot.
_FILES_AT = f"""
SELECT path, record_count, file_size_bytes FROM ({_ALL_FILES})
WHERE lower(schema_name || '.' || table_name)
        = lower(CASE WHEN contains(wanted, '.') THEN wanted ELSE 'main.' || wanted END)
    AND begin_snapshot <= at_snapshot AND (end_snapshot IS NULL OR end_snapshot > at_snapshot)
"""
