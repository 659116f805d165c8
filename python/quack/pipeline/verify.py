"""The step `verify`: storage is compared with the metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from quack.errors import PipelineError, StorageError
from quack.pipeline import runs
from quack.pipeline.context import Context, StepSummary
from quack.pipeline.files import checksum_of
from quack.pipeline.job import LakePlace, Verify
from quack.pipeline.lake import FILE_PATH, DataFile, all_files, find_table
from quack.pipeline.tasks import run_each, watched
from quack.spark.ledger import rows_of
from quack.storage import Store

__all__ = ["listed", "named_paths", "orphans", "run_verify"]

#: Bytes of files that one task reads.
_TASK_BYTES = 256 * 1024 * 1024


def run_verify(context: Context, name: str, step: Verify) -> StepSummary:
    """Compare; what is wrong is in the notes, and the state is ``damaged`` then.

    The metadata are read before and after the storage is listed: a file counts as missing only
    when it was named all the while, and as an orphan when nobody named it at either moment.

    Raises:
        PipelineError: a table that the step names is not there.
        StorageError: the storage cannot be listed.

    """
    files = _files(context, step)
    before = named_paths(context)
    present = listed(context.store)
    after = named_paths(context)
    still = {file.path for file in _files(context, step)}
    files = [file for file in files if file.path in still]
    problems = []
    sound = []
    for file in files:
        size = present.get(file.path)
        if size is None:
            problems.append(f"missing: {context.lake.place(file.path)}")
        elif size != file.size_bytes:
            problems.append(
                f"changed: {context.lake.place(file.path)}: expected {file.size_bytes} bytes, "
                f"found {size}"
            )
        else:
            sound.append(file)
    if step.checksums:
        problems += _read_through(context, sound, f"step {name}")
    problems += _wrong_sums(context, files, step)
    lost = orphans(present, before | after)
    summary = StepSummary(name, step.kind, "damaged" if problems else "done")
    summary.counts = {
        "files": len(files),
        "rows": sum(file.record_count for file in files),
        "bytes": sum(file.size_bytes for file in files),
        "damaged": len(problems),
        "orphans": len(lost),
    }
    summary.notes = problems + [f"orphan: {context.lake.place(path)}" for path in lost]
    return summary


def _files(context: Context, step: Verify) -> list[DataFile]:
    with context.session("read the metadata") as session:
        if step.tables is None:
            return all_files(session, context.lake)
        found = []
        for name in step.tables:
            table = find_table(session, context.lake, name)
            if table is None:
                raise PipelineError(f"there is no lake table {name}", code="not_found")
            found += all_files(session, context.lake, table.table_id)
        return found


def listed(store: Store) -> dict[str, int]:
    """Return name and size of every object; empty when nothing was written yet."""
    try:
        return store.sizes()
    except StorageError as error:
        if error.code == "not_found":  # nothing was written yet
            return {}
        raise


def named_paths(context: Context) -> set[str]:
    """Return the paths that the metadata name, and the folders of running jobs, with a slash."""
    lake = context.lake
    with context.session("read the metadata") as session:
        paths = {file.path for file in all_files(session, lake)}
        paths |= {
            row[0]
            for row in rows_of(
                session,
                f"SELECT {FILE_PATH} FROM {lake.sql('delete_file')} f "
                f"JOIN {lake.sql('table')} t USING (table_id) "
                f"JOIN {lake.sql('schema')} s ON s.schema_id = t.schema_id "
                f"UNION ALL SELECT path FROM {lake.sql('files_scheduled_for_deletion')}",
            )
        }
        live = rows_of(session, f"SELECT run_id FROM {lake.sql('quack_run')}")
    return paths | {f"{row[0]}/" for row in live}


def orphans(present: dict[str, int], named: set[str]) -> list[str]:
    """Return the objects that nobody names and no running job is writing."""
    live = {name for name in named if name.endswith("/")}
    return [
        path
        for path in sorted(present)
        if path not in named
        and not path.startswith(runs.REJECTED)
        and not any(f"/{folder}" in f"/{path}" for folder in live)
    ]


def _wrong_sums(context: Context, files: Sequence[DataFile], step: Verify) -> list[str]:
    """Compare the row counts of the tables with those of their files."""
    with context.session("read the metadata") as session:
        rows = rows_of(
            session,
            "SELECT t.table_id, t.table_name, s.record_count, coalesce(sum(f.record_count), 0) "
            f"FROM {context.lake.sql('table')} t "
            f"JOIN {context.lake.sql('table_stats')} s ON s.table_id = t.table_id "
            f"LEFT JOIN {context.lake.sql('data_file')} f "
            "ON f.table_id = t.table_id AND f.end_snapshot IS NULL "
            "WHERE t.end_snapshot IS NULL GROUP BY ALL ORDER BY ALL",
        )
    tables = {file.table_id for file in files}
    return [
        f"wrong: the metadata say {counted} rows of lake table {name}, and its files have {summed}"
        for table_id, name, counted, summed in rows
        if counted != summed and (step.tables is None or table_id in tables)
    ]


def _read_through(context: Context, files: Sequence[DataFile], doing: str) -> list[str]:
    """Read files in Spark's tasks; returns what is wrong with them."""
    tasks: list[list[dict[str, object]]] = []
    size = _TASK_BYTES
    for file in files:
        if size >= _TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append({"path": file.path, "rows": file.record_count, "checksum": file.checksum})
        size += file.size_bytes
    if not tasks:
        return []
    spark = context.start_spark()
    with watched(spark, context.watcher):
        answers = run_each(
            spark,
            _ReadTask(context.job.lake, context.lake.place("")),
            [json.dumps(one) for one in tasks],
            f"{doing}: cannot read the files",
        )
    return sorted(problem for answer in answers for problem in json.loads(answer))


@dataclass(frozen=True)
class _ReadTask:
    """Reads files through and says what is wrong."""

    place: LakePlace
    prefix: str

    def __call__(self, item: str) -> str:
        store = self.place.store()
        problems = []
        for file in json.loads(item):
            where = self.prefix + file["path"]
            try:
                data = store.get(file["path"])
            except StorageError as error:
                if error.code != "not_found":
                    raise
                problems.append(f"missing: {where}")
                continue
            found = checksum_of(data)
            if file["checksum"] is not None and found != file["checksum"]:
                problems.append(f"changed: {where}: expected {file['checksum']}, found {found}")
                continue
            rows = pq.read_metadata(pa.BufferReader(data)).num_rows
            if rows != file["rows"]:
                problems.append(f"wrong: {where}: expected {file['rows']} rows, found {rows}")
        return json.dumps(problems)
