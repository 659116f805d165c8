"""What all steps of a running job share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb

from quack.errors import PipelineError, SparkError, StorageError
from quack.pipeline import runs
from quack.pipeline.job import Job
from quack.pipeline.lake import DataFile, LakeTable, SnapshotChange, WrittenFile, find_table
from quack.pipeline.layout import Lake
from quack.pipeline.tasks import Watcher
from quack.spark.commit import commit_once
from quack.spark.connection import attached, explained
from quack.spark.options import QuackOptions, TableName
from quack.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Context", "StepSummary", "Working"]


@dataclass
class StepSummary:
    """What a step did.

    Attributes:
        name: of the step.
        kind: ingest, tier, compact, expire or verify.
        state: ``done``, ``already_done`` (an earlier run committed it), ``planned`` (dry run) or
            ``damaged`` (verify found damage).
        counts: rows, files, bytes and the like, by name.
        notes: findings in words.
        seconds: how long it took.

    """

    name: str
    kind: str
    state: str = "done"
    counts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Context:
    """A running job: how to reach cluster, storage and Spark."""

    job: Job
    options: QuackOptions
    lake: Lake
    store: Store
    dry_run: bool
    start_spark: Callable[[], SparkSession]
    watcher: Watcher | None = None
    #: A dry run of a lake that is not there yet.
    is_new: bool = False

    def table(self, name: TableName, doing: str) -> LakeTable | None:
        """Return a lake table; None when there is none.

        Raises:
            PipelineError: only DuckLake reads the table right.
            SparkError: no node answers, or it refuses.

        """
        if self.is_new:
            return None
        with self.session(f"read the metadata for {doing}") as session:
            return find_table(session, self.lake, name)

    @contextlib.contextmanager
    def session(self, doing: str) -> Iterator[duckdb.DuckDBPyConnection]:
        """Attach; a failure of a statement says what was being done.

        Raises:
            SparkError: no node answers, or a statement fails.

        """
        with attached(self.options, consistency="linearizable") as session:
            try:
                yield session
            except duckdb.Error as error:
                raise explained(f"cannot {doing}", error, self.options) from None

    def commit(
        self,
        run: runs.Run,
        kind: str,
        digest: str,
        body: Callable[[duckdb.DuckDBPyConnection, SnapshotChange], dict[str, int]],
    ) -> runs.Committed:
        """Write one snapshot and the note that the step is done, in one transaction.

        Args:
            run: whose files the snapshot names.
            kind: of the step.
            digest: of the step.
            body: changes the metadata; returns the counts. It may run several times.

        Returns:
            What is committed; by another run of the step when that was faster.

        Raises:
            PipelineError: refused; nothing was committed.
            SparkError: the cluster fails, or nobody told the outcome (code ``outcome_unknown``).

        """
        lake = self.lake

        def known(session: duckdb.DuckDBPyConnection) -> runs.Committed | None:
            return runs.committed(session, lake, run.job_id, run.step, digest)

        def whole(session: duckdb.DuckDBPyConnection) -> None:
            change = SnapshotChange(session, lake)
            counts = body(session, change)
            snapshot_id = change.finish(str(run)) if change.has_changes() else None
            runs.record(session, lake, run, kind, digest, snapshot_id, counts)

        commit_once(
            self.options,
            f"cannot commit {run}",
            lambda session: known(session) is not None,
            whole,
        )
        with self.session(f"read back {run}") as session:
            found = known(session)
        assert found is not None
        return found


class Working:
    """A step that writes files: a run of its own, whose leavings are swept whatever happens.

    A context manager: an error ends the run, so that it can never commit, and removes its files.
    """

    def __init__(self, context: Context, name: str, folder: str) -> None:
        """Begin.

        Args:
            context: of the job.
            name: of the step.
            folder: of the table that gets the files.

        """
        self._context = context
        self._folder = folder
        self.run = runs.begin(context.options, context.lake, context.job.job_id, name)
        for dead in self.run.dead:
            runs.sweep(context.store, folder, dead, set())

    def __enter__(self) -> Working:
        return self

    def settle(self, done: runs.Committed, keep: set[str]) -> None:
        """Remove files of attempts that did not count, or all when another run was faster.

        Args:
            done: what is committed.
            keep: paths of the files that count, from the lake's location on.

        """
        ours = done.run_id == self.run.run_id
        runs.sweep(self._context.store, self._folder, self.run.run_id, keep if ours else set())

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        with contextlib.suppress(SparkError, PipelineError, StorageError, duckdb.Error):
            with self._context.session("end a run") as session:
                never_commits = runs.end(session, self._context.lake, self.run)
            if never_commits:
                runs.sweep(self._context.store, self._folder, self.run.run_id, set())


def sizes(files: list[WrittenFile] | list[DataFile]) -> dict[str, int]:
    """Return the counts of files."""
    return {
        "rows": sum(file.record_count for file in files),
        "files": len(files),
        "bytes": sum(file.size_bytes for file in files),
    }


def table_folder(table: LakeTable | None, name: TableName) -> str:
    """Return the folder of a table that is there or will be made."""
    return table.folder if table is not None else f"{name.schema_name}/{name.name}/"
