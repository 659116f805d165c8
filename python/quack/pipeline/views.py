"""Views of the catalog that show a lake table, and replicated rows beside it.

The text of such a view lists the files. It is made anew in the transaction that changes them, so
that a reader sees the files and the replicated rows of one moment.
"""

from __future__ import annotations

import duckdb

from quack.errors import PipelineError
from quack.pipeline.lake import LakeTable, insert_rows, live_files
from quack.pipeline.layout import Lake
from quack.spark.ledger import rows_of
from quack.spark.options import TableName, quoted, text

__all__ = ["follow"]


def follow(
    session: duckdb.DuckDBPyConnection,
    lake: Lake,
    table: LakeTable,
    view: TableName | None,
    hot: TableName | None,
) -> None:
    """Make the views of a lake table anew, in the open transaction.

    Args:
        session: attached.
        lake: of the table.
        table: whose files have changed in the transaction.
        view: one more view that follows it from now on.
        hot: replicated table whose rows that view shows too.

    Raises:
        PipelineError: there is such a view of another table.

    """
    if view is not None:
        _note(session, lake, table, view, hot)
    views = rows_of(
        session,
        f"SELECT schema_name, view_name, hot_schema, hot_table FROM {lake.sql('quack_view')} "
        "WHERE table_id = ? ORDER BY ALL",
        table.table_id,
    )
    if not views:
        return
    paths = [lake.place(file.path) for file in live_files(session, lake, table)]
    for schema, name, hot_schema, hot_name in views:
        source = TableName(schema_name=hot_schema, name=hot_name) if hot_name else None
        rows_of(
            session,
            f"CREATE OR REPLACE VIEW {TableName(schema_name=schema, name=name).sql()} AS "
            + _select(session, table, paths, source),
        )


def _note(
    session: duckdb.DuckDBPyConnection,
    lake: Lake,
    table: LakeTable,
    view: TableName,
    hot: TableName | None,
) -> None:
    found = rows_of(
        session,
        f"SELECT table_id, hot_schema, hot_table FROM {lake.sql('quack_view')} "
        "WHERE schema_name = ? AND view_name = ?",
        view.schema_name,
        view.name,
    )
    hot_schema, hot_name = (hot.schema_name, hot.name) if hot is not None else (None, None)
    row = (table.table_id, hot_schema, hot_name)
    if found == [row]:
        return
    if found:
        raise PipelineError(
            f"view {view} shows another lake table, or other replicated rows; give the view of "
            f"lake table {table.name} another name"
        )
    insert_rows(session, lake.sql("quack_view"), [(view.schema_name, view.name, *row)])


def _select(
    session: duckdb.DuckDBPyConnection, table: LakeTable, paths: list[str], hot: TableName | None
) -> str:
    names = [column.name for column in table.columns]
    types = [column.duckdb_type() for column in table.columns]
    parts = []
    if hot is not None:
        kinds = dict(
            rows_of(
                session,
                "SELECT lower(column_name), data_type FROM duckdb_columns() "
                "WHERE database_name = 'cp' AND schema_name = ? AND table_name = ?",
                hot.schema_name,
                hot.name,
            )
        )
        types = [kinds[name.lower()] for name in names]
        listed = ", ".join(quoted(name) for name in names)
        parts.append(f"SELECT {listed} FROM {quoted(hot.schema_name)}.{quoted(hot.name)}")
    casts = ", ".join(
        f"CAST({quoted(name)} AS {kind}) AS {quoted(name)}"
        for name, kind in zip(names, types, strict=True)
    )
    if paths:
        files = ", ".join(text(path) for path in paths)
        parts.append(f"SELECT {casts} FROM read_parquet([{files}], hive_partitioning = false)")
    elif hot is None:
        empty = ", ".join(
            f"CAST(NULL AS {kind}) AS {quoted(name)}"
            for name, kind in zip(names, types, strict=True)
        )
        parts.append(f"SELECT {empty} WHERE false")
    return " UNION ALL ".join(parts)
