"""The step `ingest`: rows of any Spark source become Parquet files of a lake table."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb

from quack.errors import PipelineError
from quack.pipeline import runs, views
from quack.pipeline.columns import Column, columns_of, differences
from quack.pipeline.context import Context, StepSummary, Working, sizes, table_folder
from quack.pipeline.job import Ingest, Source
from quack.pipeline.lake import LakeTable, SnapshotChange, find_table
from quack.pipeline.rules import CORRUPT, with_problems
from quack.pipeline.tasks import explained
from quack.pipeline.writing import Counted, count_frame, write_frame
from quack.spark.options import TableName

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["partition_columns", "require_same", "run_ingest", "target_columns"]

_NO_DRIVER = re.compile(r"ClassNotFoundException|No suitable driver")


def run_ingest(context: Context, name: str, step: Ingest) -> StepSummary:
    """Read, check, write, and commit.

    Raises:
        PipelineError: the rows do not fit; nothing was committed and no file is left.
        StorageError: the storage refuses.
        SparkError: the cluster refuses.

    """
    what = f"step {name}"
    secrets = _secret_options(step.source, what)
    try:
        return _run(context, name, step, secrets)
    except PipelineError as error:
        raise _without(secrets, error) from None


def _run(context: Context, name: str, step: Ingest, secrets: dict[str, str]) -> StepSummary:
    what = f"step {name}"
    frame = _checked_source(context.start_spark(), step, secrets, what)
    table = context.table(step.table, what)
    columns = target_columns(_data_of(frame).schema, step.table, table, step.rules.not_null)
    partition_by = partition_columns(step.table, table, columns, step.partition_by)
    not_null = [column.name for column in columns if not column.nulls_allowed]
    frame = with_problems(frame, step.rules, not_null, what)
    if context.dry_run:
        counted = count_frame(context, frame, what)
        counts = {"rows": counted.good_rows, "rejected": counted.bad_rows}
        return StepSummary(name, step.kind, "planned", counts, _notes(counted))
    folder = table_folder(table, step.table)
    with Working(context, name, folder) as working:
        written = write_frame(
            context, frame, columns, partition_by, folder, working.run, step, what
        )
        _judge(written.counted, step, what)

        def body(session: duckdb.DuckDBPyConnection, change: SnapshotChange) -> dict[str, int]:
            found = find_table(session, context.lake, step.table)
            if (found is None) != (table is None):
                require_same(found, columns, partition_by, step.table)
            found = found or change.create_table(step.table, columns, partition_by)
            change.add_files(found, written.files, working.run.run_id, compacted=False)
            views.follow(session, context.lake, found, step.view, None)
            return {**sizes(written.files), "rejected": written.counted.bad_rows}

        done = context.commit(working.run, step.kind, step.digest(), body)
        keep = {folder + file.path for file in written.files} | written.rejected
        working.settle(done, keep)
    summary = StepSummary(name, step.kind, counts=done.counts, notes=_notes(written.counted))
    if written.rejected:
        where = context.lake.place(f"{runs.REJECTED}{folder}{working.run.run_id}")
        summary.notes.append(f"rejected rows are in {where}")
    return summary


def _data_of(frame: DataFrame) -> DataFrame:
    return frame.drop(CORRUPT)


def _secret_options(source: Source, what: str) -> dict[str, str]:
    """Return the options whose values are not in the job."""
    found = {}
    for option, variable in source.options_env.items():
        secret = os.environ.get(variable)
        if not secret:
            raise PipelineError(
                f"{what}: source.options_env.{option}: the environment variable {variable} is "
                "not set; export it before the job runs"
            )
        found[option] = secret
    for option, file in source.options_file.items():
        try:
            found[option] = file.read_text().rstrip("\r\n")
        except (OSError, UnicodeError) as error:
            words = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            raise PipelineError(
                f"{what}: source.options_file.{option}: {file} cannot be read: {words}"
            ) from None
    return found


def _without(secrets: dict[str, str], error: PipelineError) -> PipelineError:
    """Return the error without values of options that a driver quoted."""
    words = str(error)
    for secret in filter(None, secrets.values()):
        words = words.replace(secret, "***")
    return PipelineError(words, error.code)


def _checked_source(
    spark: SparkSession, step: Ingest, secrets: dict[str, str], what: str
) -> DataFrame:
    """Return the selected rows; of files with texts also column `CORRUPT`."""
    source = step.source
    try:
        frame = _read(spark, source, secrets)
        _compare(frame, source, what)
        if step.where is not None:
            frame = frame.where(step.where)
        if step.select is not None:
            kept = [f"`{CORRUPT}`"] if CORRUPT in frame.columns else []
            frame = frame.selectExpr(*step.select, *kept)
        _ = frame.schema  # Spark Connect looks at names and types only when asked
    except PipelineError:
        raise
    except Exception as error:
        failure = explained(f"{what}: cannot read the source", error)
        if source.format == "jdbc" and _NO_DRIVER.search(str(failure)):
            raise PipelineError(
                f"{failure}; Spark has no JDBC driver for it: name its jar in the job, spark: "
                "{spark.jars: /path/to/driver.jar} (or start the session that is used with it), "
                "and its class in source.options.driver"
            ) from None
        raise failure from None
    return frame


def _read(spark: SparkSession, source: Source, secrets: dict[str, str]) -> DataFrame:
    reader = spark.read.format(source.format)
    if source.format == "jdbc":
        # A time without zone stays one; Spark would take it for a time of this machine's zone.
        reader = reader.option("preferTimestampNTZ", "true")
    reader = reader.options(**source.options).options(**secrets)
    if source.format in ("csv", "json"):
        wanted = ", ".join(f"`{name}` {kind}" for name, kind in (source.columns or {}).items())
        reader = reader.schema(f"{wanted}, `{CORRUPT}` string")
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", CORRUPT)
        if source.format == "csv":
            # Without it a file with other columns would be read by position.
            reader = reader.option("enforceSchema", "false")
    paths = source.paths()
    if source.format == "table":
        return spark.table(paths[0])
    return reader.load(paths) if paths else reader.load()


def _compare(frame: DataFrame, source: Source, what: str) -> None:
    """Refuse a source with other columns than the job names."""
    if source.columns is None or source.format in ("csv", "json"):
        return
    from pyspark.sql.types import StructType

    wanted = ", ".join(f"`{name}` {kind}" for name, kind in source.columns.items())
    expected = columns_of(StructType.fromDDL(wanted), (), f"{what}: source.columns")
    came = columns_of(frame.schema, (), f"{what}: source")
    problems = differences(expected, came, f"{what}: source")
    if problems:
        raise PipelineError("\n".join(problems))


def target_columns(
    schema: StructType, name: TableName, table: LakeTable | None, not_null: Sequence[str]
) -> tuple[Column, ...]:
    """Return the columns of the table, which is there or will be made for rows of a schema.

    Raises:
        PipelineError: the rows do not fit the table; names every column.

    """
    came = columns_of(schema, not_null, f"lake table {name}")
    if table is None:
        return came
    problems = differences(table.columns, came, f"lake table {name}")
    if problems:
        raise PipelineError("\n".join(problems))
    return table.columns


def partition_columns(
    name: TableName,
    table: LakeTable | None,
    columns: Sequence[Column],
    wanted: Sequence[str],
) -> tuple[str, ...]:
    """Return the partition columns of the table.

    Raises:
        PipelineError: the table has others, or the columns are not there or nested.

    """
    if table is not None:
        if wanted and [one.lower() for one in wanted] != [
            one.lower() for one in table.partition_by
        ]:
            has = ", ".join(table.partition_by) or "nothing"
            raise PipelineError(
                f"lake table {name} is partitioned by {has}, and the job says partition_by: "
                f"{', '.join(wanted)}; leave partition_by out"
            )
        return table.partition_by
    by_name = {column.name.lower(): column for column in columns}
    problems = []
    for one in wanted:
        column = by_name.get(one.lower())
        if column is None or column.children:
            problems.append(
                f"lake table {name}: partition_by names {one}, which is not a plain column of it"
            )
    if problems:
        raise PipelineError("\n".join(problems))
    return tuple(by_name[one.lower()].name for one in wanted)


def require_same(
    found: LakeTable | None,
    columns: Sequence[Column],
    partition_by: Sequence[str],
    name: TableName,
) -> None:
    """Check the table that another job made or removed while this one wrote its files."""
    if (
        found is None
        or [(one.name.lower(), one.column_id, one.shape()) for one in found.columns]
        != [(one.name.lower(), one.column_id, one.shape()) for one in columns]
        or tuple(found.partition_by) != tuple(partition_by)
    ):
        raise PipelineError(
            f"lake table {name} was {'removed' if found is None else 'made with other columns'} "
            "while the files were written; run the job again",
            code="conflict",
        )


def _notes(counted: Counted) -> list[str]:
    return [f"{count} rows: {rule}" for rule, count in sorted(counted.broken.items())]


def _judge(counted: Counted, step: Ingest, what: str) -> None:
    """Refuse bad rows unless the job has a place for them."""
    if counted.bad_rows == 0 or step.on_bad_rows == "reject":
        return
    total = counted.bad_rows + counted.good_rows
    lines = [f"{what}: {counted.bad_rows} of {total} rows break its rules; nothing was committed"]
    lines += [f"  {note}" for note in _notes(counted)]
    lines += [f"  for example {one}" for one in counted.examples]
    lines.append("mend the rows or the rules, or give on_bad_rows: reject")
    raise PipelineError("\n".join(lines))
