"""Which steps are committed, which run, and what dead runs left in the storage."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import uuid
from dataclasses import dataclass

import duckdb

from quack.errors import PipelineError, StorageError
from quack.pipeline.layout import Lake
from quack.spark.commit import commit_once
from quack.spark.ledger import rows_of
from quack.spark.options import QuackOptions
from quack.storage import Store

__all__ = ["REJECTED", "Committed", "Run", "begin", "committed", "end", "record", "sweep"]

#: Folder of the rows that broke rules, from the lake's location on.
REJECTED = "_rejected/"


@dataclass(frozen=True)
class Run:
    """One try to do a step of a job.

    Attributes:
        run_id: also the name of the folder of its files, below that of the table.
        dead: of earlier runs of the step that never committed; their files may be swept.

    """

    job_id: str
    step: str
    run_id: str
    dead: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"step {self.step} of job {self.job_id}"


def _new_run_id(job_id: str, step: str) -> str:
    """Return a folder's name that shows the job and never comes twice."""
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", job_id)[:40].strip("-")
    digest = hashlib.sha256(f"{job_id}\n{step}".encode()).hexdigest()[:8]
    return f"{slug}.{digest}.{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class Committed:
    """What is known of a step that was committed: by which run, and its counts."""

    run_id: str
    counts: dict[str, int]


def committed(
    session: duckdb.DuckDBPyConnection, lake: Lake, job_id: str, step: str, digest: str
) -> Committed | None:
    """Return what a step did when it was committed; None when it was not.

    Raises:
        PipelineError: it was committed with another definition.

    """
    rows = rows_of(
        session,
        f"SELECT digest, run_id, counts FROM {lake.sql('quack_step')} "
        "WHERE job_id = ? AND step = ?",
        job_id,
        step,
    )
    if not rows:
        return None
    if rows[0][0] != digest:
        raise PipelineError(
            f"step {step} of job {job_id} was committed with another definition; a job id names "
            "one piece of work: give the changed job another job_id"
        )
    return Committed(rows[0][1], json.loads(rows[0][2]))


def begin(options: QuackOptions, lake: Lake, job_id: str, step: str) -> Run:
    """Note a run, and end every earlier run of the same step: it cannot commit any more.

    Raises:
        SparkError: the cluster fails.

    """
    run_id = _new_run_id(job_id, step)
    table = lake.sql("quack_run")
    dead: list[str] = []

    def is_noted(session: duckdb.DuckDBPyConnection) -> bool:
        return bool(rows_of(session, f"SELECT 1 FROM {table} WHERE run_id = ?", run_id))

    def body(session: duckdb.DuckDBPyConnection) -> None:
        found = rows_of(
            session, f"SELECT run_id FROM {table} WHERE job_id = ? AND step = ?", job_id, step
        )
        dead[:] = [row[0] for row in found]
        if dead:
            rows_of(
                session,
                f"UPDATE {table} SET run_id = ?, started_at = now() WHERE job_id = ? AND step = ?",
                run_id,
                job_id,
                step,
            )
        else:
            rows_of(session, f"INSERT INTO {table} VALUES (?, ?, ?, now())", job_id, step, run_id)

    commit_once(options, f"cannot begin step {step} of job {job_id}", is_noted, body)
    return Run(job_id, step, run_id, tuple(dead))


def record(
    session: duckdb.DuckDBPyConnection,
    lake: Lake,
    run: Run,
    kind: str,
    digest: str,
    snapshot_id: int | None,
    counts: dict[str, int],
) -> None:
    """Note in the open transaction that the step is done, and end its run.

    Raises:
        PipelineError: a later run of the step has begun and may have swept the files.

    """
    if not end(session, lake, run):
        raise PipelineError(
            f"{run}: another run of the same job began meanwhile and goes on with it; this one "
            "committed nothing"
        )
    rows_of(
        session,
        f"INSERT INTO {lake.sql('quack_step')} VALUES (?, ?, ?, ?, ?, ?, ?, now())",
        run.job_id,
        run.step,
        run.run_id,
        kind,
        digest,
        snapshot_id,
        json.dumps(counts),
    )


def end(session: duckdb.DuckDBPyConnection, lake: Lake, run: Run) -> bool:
    """Forget a run; returns whether it was there until now.

    A commit of the run forgets it too, in its transaction, so only one of the two can succeed:
    when this returned true, the run has not committed and never will.
    """
    found = rows_of(session, f"DELETE FROM {lake.sql('quack_run')} WHERE run_id = ?", run.run_id)
    return found == [(1,)]


def sweep(store: Store, folder: str, run_id: str, keep: set[str]) -> int:
    """Remove what a run wrote and nobody committed.

    Args:
        store: of the lake.
        folder: of the table.
        run_id: the run.
        keep: paths from the lake's location on that stay.

    Returns:
        How many files were removed. What cannot be removed now is left to `expire`.

    """
    removed = 0
    for place in (f"{folder}{run_id}", f"{REJECTED}{folder}{run_id}"):
        below = store.below(place)
        with contextlib.suppress(StorageError):
            for name in below.sizes():
                if f"{place}/{name}" not in keep:
                    below.delete(name)
                    removed += 1
    return removed
