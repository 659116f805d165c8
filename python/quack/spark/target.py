"""The table that is written: does the DataFrame fit it, and how its rows get there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import duckdb
from pyspark.sql.types import StructType

from quack.errors import SparkError
from quack.spark import ledger, types
from quack.spark.connection import explained
from quack.spark.options import QuackOptions, TableName, quoted, text

__all__ = ["Target"]


@dataclass(frozen=True)
class Target:
    """A table and the columns of it that are written.

    Attributes:
        table: its name.
        columns: name and DuckDB type of each written column, in the order of the DataFrame.
        create_sql: how to make the table; None when it is there.
        key: columns that identify a row; empty when rows are only appended.

    """

    table: TableName
    columns: tuple[tuple[str, str], ...]
    create_sql: str | None
    key: tuple[str, ...]

    @classmethod
    def examine(
        cls,
        session: duckdb.DuckDBPyConnection,
        options: QuackOptions,
        schema: StructType,
        *,
        overwrite: bool = False,
    ) -> Target:
        """Compare a DataFrame's schema with the table.

        Raises:
            SparkError: no such table, or columns that do not fit, each named with the fix.

        """
        table = options.check_write(overwrite=overwrite)
        canonical = _canonical(schema, table)
        try:
            exists = ledger.rows_of(
                session,
                "SELECT column_name, is_nullable, column_default, is_generated "
                "FROM duckdb_columns() "
                "WHERE database_name = 'cp' AND lower(schema_name) = lower(?) "
                "AND lower(table_name) = lower(?)",
                table.schema_name,
                table.name,
            )
            if exists:
                _require_table(session, table)
                columns = _fit(session, table, schema, canonical, exists)
                create_sql = None
            elif options.create_table:
                columns = tuple(canonical)
                create_sql = _create(session, options, table, columns)
            else:
                raise SparkError(
                    f"table {table} does not exist on {options.url}; create it, or give "
                    "create_table=true",
                    code="not_found",
                )
        except duckdb.Error as error:
            raise explained(f"cannot write to table {table}", error, options) from None
        ledger.note_target(session, str(table).lower())
        names = {name.lower(): name for name, _ in columns}
        key = options.key if options.mode == "upsert" and options.key else ()
        missing = [name for name in options.key or () if name.lower() not in names]
        if missing:
            raise SparkError(
                f"option key: the DataFrame has no column {', '.join(missing)}; it has "
                + ", ".join(names.values())
            )
        return cls(table, columns, create_sql, tuple(names[name.lower()] for name in key))

    @property
    def name(self) -> str:
        """The table's name for the ledger: names of DuckDB have no case."""
        return str(self.table).lower()

    def names_sql(self, prefix: str = "") -> str:
        """Return the written columns for a statement."""
        return ", ".join(prefix + quoted(name) for name, _ in self.columns)

    def publish(
        self,
        session: duckdb.DuckDBPyConnection,
        staging: str,
        attempts: list[int],
        *,
        overwrite: bool,
    ) -> None:
        """Bring the staged rows of these attempts into the table, in the open transaction.

        Raises:
            SparkError: rows without key, or two with the same key, for an upsert.
            duckdb.Error: the table refuses the rows, or the cluster fails.

        """
        if overwrite or self.key:
            ledger.take_turn(session, self.name)
        created = False
        if self.create_sql is not None:
            created = not ledger.rows_of(
                session,
                "SELECT 1 FROM duckdb_tables() WHERE database_name = 'cp' "
                "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
                self.table.schema_name,
                self.table.name,
            )
            if created:
                ledger.rows_of(session, self.create_sql)
        if overwrite and not created:
            ledger.rows_of(session, f"DELETE FROM {self.table.sql()}")
        if not attempts:
            return
        rows = (
            f"SELECT {self.names_sql()} FROM {ledger.SCHEMA}.{quoted(staging)} "
            f"WHERE {ledger.attempts_condition(attempts)}"
        )
        if self.key:
            self._check_keys(session, rows)
        if self.key and not created:
            ledger.rows_of(session, self._merge(rows))
        else:
            into = f"INSERT INTO {self.table.sql()} ({self.names_sql()})"
            ledger.rows_of(session, f"{into} {rows}")

    def _check_keys(self, session: duckdb.DuckDBPyConnection, rows: str) -> None:
        names = ", ".join(quoted(name) for name in self.key)
        some_null = " OR ".join(f"{quoted(name)} IS NULL" for name in self.key)
        found = ledger.rows_of(
            session,
            f"SELECT ({names})::VARCHAR, count(*), bool_or({some_null}) FROM ({rows}) "
            f"GROUP BY {names} HAVING count(*) > 1 OR bool_or({some_null}) LIMIT 1",
        )
        if not found:
            return
        key, count, has_null = found[0]
        listed = ", ".join(self.key)
        if has_null:
            raise SparkError(
                f"upsert into {self.table}: a row has NULL in key ({listed}): {key}; filter such "
                "rows out, NULL equals nothing"
            )
        raise SparkError(
            f"upsert into {self.table}: {count} rows have the same key ({listed}) = {key}; keep "
            "one of each, for example by dropDuplicates or a window"
        )

    def _merge(self, rows: str) -> str:
        on = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in self.key)
        lower = {name.lower() for name in self.key}
        changed = [name for name, _ in self.columns if name.lower() not in lower]
        update = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in changed)
        matched = f"WHEN MATCHED THEN UPDATE SET {update} " if changed else ""
        return (
            f"MERGE INTO {self.table.sql()} AS t USING ({rows}) AS s ON {on} {matched}"
            f"WHEN NOT MATCHED THEN INSERT ({self.names_sql()}) VALUES ({self.names_sql('s.')})"
        )


def _canonical(schema: StructType, table: TableName) -> list[tuple[str, str]]:
    columns = []
    problems = []
    for field in schema.fields:
        try:
            columns.append((field.name, types.duckdb_type(field.dataType)))
        except ValueError as error:
            problems.append(f"column {quoted(field.name)} for table {table}: {error}")
    lower = [field.name.lower() for field in schema.fields]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    problems += [f"the DataFrame has two columns {quoted(name)}; rename one" for name in twice]
    reserved = [name for name in lower if name.startswith("__quack_")]
    problems += [f"column {quoted(name)}: names in __quack_ are reserved" for name in reserved]
    if not schema.fields:
        problems.append(f"the DataFrame for table {table} has no columns")
    if problems:
        raise SparkError("\n".join(problems))
    return columns


def _require_table(session: duckdb.DuckDBPyConnection, table: TableName) -> None:
    views = ledger.rows_of(
        session,
        "SELECT 1 FROM duckdb_views() WHERE database_name = 'cp' "
        "AND lower(schema_name) = lower(?) AND lower(view_name) = lower(?)",
        table.schema_name,
        table.name,
    )
    if views:
        raise SparkError(f"{table} is a view; write to the tables that it shows")


def _fit(
    session: duckdb.DuckDBPyConnection,
    table: TableName,
    schema: StructType,
    canonical: list[tuple[str, str]],
    details: list[Any],
) -> tuple[tuple[str, str], ...]:
    relation = session.sql(f"SELECT * FROM {table.sql()} LIMIT 0")
    has = {
        name.lower(): (name, kind)
        for name, kind in zip(relation.columns, relation.types, strict=True)
    }
    generated = {name.lower() for name, _, _, is_generated in details if is_generated}
    columns = []
    problems = []
    for field, (name, given) in zip(schema.fields, canonical, strict=True):
        column, kind = has.get(name.lower(), (None, None))
        if column is None or kind is None:
            problems.append(
                f"column {quoted(name)} is not in table {table}; it has "
                f"{', '.join(one for one, _ in has.values())}: drop or rename it"
            )
        elif name.lower() in generated:
            problems.append(
                f"column {quoted(name)} of table {table} is generated from others; drop it"
            )
        elif not _may_be_stored(session, field.dataType, given, kind):
            problems.append(
                f"column {quoted(name)} of table {table}: expected {kind}, got "
                f"{field.dataType.simpleString()} ({given}); cast it in Spark"
            )
        else:
            columns.append((column, str(kind)))
    written = {name.lower() for name, _ in canonical}
    for name, nullable, default, _ in details:
        if name.lower() not in written and not nullable and default is None:
            problems.append(
                f"column {quoted(name)} of table {table} is NOT NULL without default, and the "
                "DataFrame does not have it; add it"
            )
    if problems:
        raise SparkError("\n".join(problems))
    return tuple(columns)


def _may_be_stored(
    session: duckdb.DuckDBPyConnection, given: Any, given_sql: str, wanted: Any
) -> bool:
    """Whether a Spark type goes into a column.

    It does when the column is read as that type, and when the values always or nearly always fit
    (DuckDB casts it implicitly); a value that does not fit fails its task, before anything shows.
    A time without zone never becomes an instant: that would depend on who does it.
    """
    try:
        if types.spark_type(wanted).simpleString() == given.simpleString():
            return True
    except ValueError:
        pass
    if ("WITH TIME ZONE" in str(wanted)) != ("WITH TIME ZONE" in given_sql):
        return False
    answer = ledger.rows_of(
        session, f"SELECT can_cast_implicitly(NULL::{given_sql}, NULL::{wanted})"
    )
    return bool(answer[0][0])


def _create(
    session: duckdb.DuckDBPyConnection,
    options: QuackOptions,
    table: TableName,
    columns: tuple[tuple[str, str], ...],
) -> str:
    parts = [f"{quoted(name)} {kind}" for name, kind in columns]
    if options.key:
        parts.append(f"PRIMARY KEY ({', '.join(quoted(name) for name in options.key)})")
    placed = ""
    if options.group is not None:
        placed = f" WITH (quack_group = {text(options.group)})"
    if options.shard_key is not None:
        placed = (
            f" WITH (quack_shard_key = {text(','.join(options.shard_key))},"
            f" quack_initial_groups = {options.initial_groups})"
        )
    sql = f"CREATE TABLE {table.sql()} ({', '.join(parts)}){placed}"
    # Tried and taken back now, so that what the cluster refuses shows before any row moves.
    session.execute("BEGIN")
    try:
        ledger.rows_of(session, sql)
    finally:
        ledger.roll_back(session)
    return sql
