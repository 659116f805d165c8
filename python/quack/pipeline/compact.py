"""The step `compact`: small files of a lake table become larger ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from quack.errors import PipelineError
from quack.pipeline import views
from quack.pipeline.context import Context, StepSummary, Working, sizes
from quack.pipeline.files import FilePlan, FileWriter, read_file
from quack.pipeline.job import Compact, LakePlace
from quack.pipeline.lake import (
    DataFile,
    LakeTable,
    SnapshotChange,
    WrittenFile,
    find_table,
    live_files,
)
from quack.pipeline.tasks import run_each, watched

__all__ = ["run_compact"]


def run_compact(context: Context, name: str, step: Compact) -> StepSummary:
    """Write the rows of small files anew and swap the files in one transaction.

    Files that come meanwhile stay as they are. Old snapshots go on naming the old files, which
    `expire` removes when no snapshot does any more.

    Raises:
        PipelineError: there is no such table, or another compaction took one of the files
            (code ``conflict``); nothing was changed.
        StorageError: the storage refuses.
        SparkError: the cluster refuses.

    """
    what = f"step {name}"
    with context.session(f"read the metadata for {what}") as session:
        table = find_table(session, context.lake, step.table)
        files = live_files(session, context.lake, table) if table is not None else []
    if table is None:
        raise PipelineError(f"{what}: there is no lake table {step.table}", code="not_found")
    groups = _groups(files, step)
    old = [file for group in groups for file in group]
    counts = {"files_before": len(old), "bytes_before": sum(file.size_bytes for file in old)}
    if context.dry_run:
        planned = {"rows": sum(file.record_count for file in old), **counts}
        return StepSummary(name, step.kind, "planned", planned)
    with Working(context, name, table.folder) as working:
        written = _rewrite(context, table, groups, working.run.run_id, step, what)

        def body(session: duckdb.DuckDBPyConnection, change: SnapshotChange) -> dict[str, int]:
            if old:
                change.end_files(table, old)
                change.add_files(table, written, working.run.run_id, compacted=True)
                views.follow(session, context.lake, table, None, None)
            return {**sizes(written), **counts}

        done = context.commit(working.run, step.kind, step.digest(), body)
        working.settle(done, {table.folder + file.path for file in written})
    return StepSummary(name, step.kind, counts=done.counts)


def _groups(files: Sequence[DataFile], step: Compact) -> list[list[DataFile]]:
    """Return the files that become one or few, each group of one partition."""
    by_partition: dict[tuple[str | None, ...], list[DataFile]] = {}
    for file in files:
        if file.size_bytes < step.target_file_bytes:
            by_partition.setdefault(file.partition_values, []).append(file)
    groups: list[list[DataFile]] = []
    for small in by_partition.values():
        if len(small) < step.min_files:
            continue
        groups.append([])
        size = 0
        for file in small:
            if size >= step.target_file_bytes:
                groups.append([])
                size = 0
            groups[-1].append(file)
            size += file.size_bytes
    return [group for group in groups if len(group) > 1]


def _rewrite(
    context: Context,
    table: LakeTable,
    groups: Sequence[Sequence[DataFile]],
    run_id: str,
    step: Compact,
    what: str,
) -> list[WrittenFile]:
    if not groups:
        return []
    # A group reaches the target with its last file: it shall not become two for that.
    size = 2 * step.target_file_bytes
    plan = FilePlan(table.folder, run_id, table.columns, table.partition_by, size)
    task = _RewriteTask(context.job.lake, plan)
    items = [json.dumps([file.path for file in group]) for group in groups]
    spark = context.start_spark()
    with watched(spark, context.watcher):
        answers = run_each(spark, task, items, f"{what}: cannot rewrite files")
    files = [WrittenFile.from_json(one) for answer in answers for one in json.loads(answer)]
    expected = sum(file.record_count for group in groups for file in group)
    found = sum(file.record_count for file in files)
    if found != expected:
        raise PipelineError(
            f"{what}: the files hold {found} rows and the metadata say {expected}; nothing was "
            "changed: run a verify step, it names the files",
            code="corruption",
        )
    return sorted(files, key=lambda file: file.path)


@dataclass(frozen=True)
class _RewriteTask:
    """Writes the rows of some files as one."""

    place: LakePlace
    plan: FilePlan

    def __call__(self, item: str) -> str:
        store = self.place.store()
        writer = FileWriter(store, self.plan)
        for path in json.loads(item):
            writer.write(read_file(store, path))
        return json.dumps([file.to_json() for file in writer.close()])
