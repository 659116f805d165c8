"""The step `tier`: rows of a replicated table move to Parquet files of a lake table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb

from quack.errors import PipelineError
from quack.pipeline import views
from quack.pipeline.context import Context, StepSummary, Working, sizes, table_folder
from quack.pipeline.ingest import partition_columns, require_same, target_columns
from quack.pipeline.job import Rules, Tier
from quack.pipeline.lake import SnapshotChange, find_table
from quack.pipeline.rules import with_problems
from quack.pipeline.tasks import explained
from quack.pipeline.writing import SUMMED, write_frame
from quack.spark.ledger import rows_of
from quack.spark.options import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["run_tier"]

#: Tries of an export whose rows were changed before they could be cut.
_TRIES = 3


class _RowsChanged(Exception):
    """The rows are not those that were exported any more."""


def run_tier(context: Context, name: str, step: Tier) -> StepSummary:
    """Export the rows, then cut them and name the files in one transaction.

    Every row is exported with a hash that the cluster made. The transaction compares their count
    and sum with the rows that it is about to cut: a row that came, went or changed since the
    export makes the step begin anew.

    Raises:
        PipelineError: refused, or the rows keep changing; nothing was cut.
        StorageError: the storage refuses.
        SparkError: the cluster refuses.

    """
    for tries_left in reversed(range(_TRIES)):
        try:
            return _try_tier(context, name, step)
        except _RowsChanged as changed:
            if tries_left == 0:
                raise PipelineError(
                    f"step {name}: {changed}, {_TRIES} times; nothing was cut: let `where` select "
                    "rows that are not written any more",
                    code="conflict",
                ) from None
    raise AssertionError("unreachable")


def _try_tier(context: Context, name: str, step: Tier) -> StepSummary:
    what = f"step {name}"
    names = _source_columns(context, step, what)
    if context.dry_run:
        return _planned(context, name, step, names)
    frame = _exported(context, step, names, what)
    table = context.table(step.table, what)
    columns = target_columns(frame.drop(SUMMED).schema, step.table, table, ())
    partition_by = partition_columns(step.table, table, columns, step.partition_by)
    not_null = [column.name for column in columns if not column.nulls_allowed]
    frame = with_problems(frame, Rules(), not_null, what)
    folder = table_folder(table, step.table)
    with Working(context, name, folder) as working:
        written = write_frame(
            context, frame, columns, partition_by, folder, working.run, step, what
        )
        if written.counted.bad_rows:
            raise PipelineError(
                f"{what}: {written.counted.bad_rows} rows have NULL where lake table {step.table} "
                f"allows none: {', '.join(written.counted.broken)}; nothing was cut"
            )

        def body(session: duckdb.DuckDBPyConnection, change: SnapshotChange) -> dict[str, int]:
            counted = (written.counted.good_rows, written.summed)
            if _fingerprint(session, step, names) != counted:
                raise _RowsChanged(f"rows of {step.source} changed while they were exported")
            found = find_table(session, context.lake, step.table)
            if (found is None) != (table is None):
                require_same(found, columns, partition_by, step.table)
            found = found or change.create_table(step.table, columns, partition_by)
            change.add_files(found, written.files, working.run.run_id, compacted=False)
            rows_of(session, f"DELETE FROM {step.source.sql()} WHERE {step.where}")
            views.follow(session, context.lake, found, step.view, step.source)
            return sizes(written.files)

        done = context.commit(working.run, step.kind, step.digest(), body)
        working.settle(done, {folder + file.path for file in written.files})
    return StepSummary(name, step.kind, counts=done.counts)


def _planned(context: Context, name: str, step: Tier, names: list[str]) -> StepSummary:
    """Check what can be checked without an export, and count the rows."""
    from quack.spark.reader import Rows, source_columns
    from quack.spark.types import read_schema

    what = f"step {name}"
    listed = ", ".join(quoted(one) for one in names)
    rows = Rows(f"(SELECT {listed} FROM {step.source.sql()})", f"table {step.source}")
    with context.session(f"count rows of {step.source}") as session:
        count, _ = _fingerprint(session, step, names)
        schema = read_schema(source_columns(session, context.options, rows), rows.what)
    table = context.table(step.table, what)
    columns = target_columns(schema, step.table, table, ())
    partition_columns(step.table, table, columns, step.partition_by)
    return StepSummary(name, step.kind, "planned", {"rows": count})


def _source_columns(context: Context, step: Tier, what: str) -> list[str]:
    with context.session(f"read table {step.source}") as session:
        rows = rows_of(
            session,
            "SELECT column_name FROM duckdb_columns() WHERE database_name = 'cp' "
            "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?) "
            "ORDER BY column_index",
            step.source.schema_name,
            step.source.name,
        )
        is_table = rows_of(
            session,
            "SELECT 1 FROM duckdb_tables() WHERE database_name = 'cp' "
            "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
            step.source.schema_name,
            step.source.name,
        )
    if not rows:
        raise PipelineError(f"{what}: there is no table {step.source}", code="not_found")
    if not is_table:
        raise PipelineError(f"{what}: {step.source} is a view; rows move out of tables only")
    return [row[0] for row in rows]


def _hash(names: list[str]) -> str:
    """Return a 63-bit number that stands for a row."""
    return f"(hash({', '.join(quoted(name) for name in names)}) >> 1)::BIGINT"


def _fingerprint(
    session: duckdb.DuckDBPyConnection, step: Tier, names: list[str]
) -> tuple[int, int]:
    """Return count and sum of hashes of the rows that the step moves."""
    count, total = rows_of(
        session,
        f"SELECT count(*), coalesce(sum({_hash(names)}::HUGEINT), 0) FROM {step.source.sql()} "
        f"WHERE {step.where}",
    )[0]
    return int(count), int(total)


def _exported(context: Context, step: Tier, names: list[str], what: str) -> DataFrame:
    listed = ", ".join(quoted(name) for name in names)
    kept_back = {"token", "token_env", "commit_timeout_s"}
    given = context.options.model_dump(mode="json", exclude_unset=True, exclude=kept_back)
    secret = context.options.secret()
    if secret:
        # Spark plans in a process that has the environment of its start, not ours.
        given["token"] = secret
    given["query"] = (
        f"SELECT {listed}, {_hash(names)} AS {SUMMED} FROM {step.source.sql()} WHERE {step.where}"
    )
    try:
        return context.start_spark().read.format("quack").options(**given).load()
    except Exception as error:
        raise explained(f"{what}: cannot export table {step.source}", error) from None
