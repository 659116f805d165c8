"""Runs a job: its steps in their order, each once."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from quack.errors import ConfigError
from quack.pipeline import layout, runs
from quack.pipeline.compact import run_compact
from quack.pipeline.context import Context, StepSummary
from quack.pipeline.expire import run_expire
from quack.pipeline.ingest import run_ingest
from quack.pipeline.job import Compact, Expire, Ingest, Job, Tier, Verify
from quack.pipeline.layout import Lake
from quack.pipeline.tier import run_tier
from quack.pipeline.verify import run_verify
from quack.spark import check_environment, start_session
from quack.spark.options import QuackOptions, TableName

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Summary", "run"]

#: Called with the name of the running step, and finished and all tasks of its Spark job.
Progress = Callable[[str, int, int], None]

_STEPS: dict[type, Callable[[Context, str, Any], StepSummary]] = {
    Ingest: run_ingest,
    Tier: run_tier,
    Compact: run_compact,
    Expire: run_expire,
    Verify: run_verify,
}
#: Done in every run: a second time does what is left to do.
_ALWAYS = (Expire, Verify)


@dataclass
class Summary:
    """What a job did, step by step."""

    job_id: str
    dry_run: bool
    steps: list[StepSummary] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no step found damage."""
        return all(step.state != "damaged" for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"ok": self.ok, **asdict(self)}


def run(
    job: Job,
    *,
    cluster: QuackOptions | None = None,
    spark: SparkSession | None = None,
    master: str = "local[*]",
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Summary:
    """Run the steps that are not committed yet.

    Args:
        job: what to do.
        cluster: instead of the one in the job.
        spark: session to use; else the active one, and without any a session is started on
            `master` when a step needs it.
        master: of Spark, for a session that is started here; it is stopped at the end.
        dry_run: check everything, read the sources, and write nothing.
        progress: told how far the running step is.

    Raises:
        ConfigError: no cluster is given.
        PipelineError: a step is refused or failed; it left nothing half-written, and the steps
            before it stay committed: run the job again when the cause is mended.
        StorageError: the storage refuses.
        SparkError: the cluster or Spark refuses.

    """
    if cluster is None and job.cluster is None:
        raise ConfigError(["no cluster: give cluster: in the job, or --config or --url"])
    options = cluster or job.cluster.options()  # type: ignore[union-attr]
    starter = _SparkStarter(job, spark, master)
    lake = Lake(job.lake.catalog, job.lake.location)
    context = Context(job, options, lake, job.lake.store(), dry_run, starter.session)
    summary = Summary(job.job_id, dry_run)
    unmade: set[TableName] = set()
    try:
        _prepare(context)
        for name, step in job.named_steps():
            if progress is not None:
                progress(name, 0, 0)
                context.watcher = _named(progress, name)
            started = time.monotonic()
            kind = step.kind
            one = _already_done(context, name, step)
            if one is None and dry_run:
                step = _without_unmade(context, name, step, unmade)
                if step is None:
                    one = StepSummary(name, kind, "planned")  # there is nothing yet to look at
            one = one or _STEPS[type(step)](context, name, step)
            one.seconds = round(time.monotonic() - started, 3)
            summary.steps.append(one)
    finally:
        starter.stop()
    return summary


def _named(progress: Progress, name: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(name, done, total)


def _prepare(context: Context) -> None:
    """Look whether storage and catalog take what the steps will write, before Spark starts."""
    lake = context.lake
    doing = f"look for the lake in schema {lake.schema}"
    with context.session(doing) as session:
        found = layout.exists(session, lake)
    context.is_new = context.dry_run and not found
    if not context.is_new:
        if not found:
            layout.create(context.options, lake)
        with context.session(doing) as session:
            layout.check(session, lake)
    if not context.dry_run:
        probe = f"{runs.REJECTED}probe-{uuid.uuid4().hex}"
        context.store.put(probe, b"")
        context.store.delete(probe)


def _already_done(context: Context, name: str, step: Any) -> StepSummary | None:
    if context.is_new or isinstance(step, _ALWAYS):
        return None
    with context.session(f"look for step {name}") as session:
        done = runs.committed(session, context.lake, context.job.job_id, name, step.digest())
    if done is None:
        return None
    return StepSummary(name, step.kind, "already_done", done.counts)


def _without_unmade(context: Context, name: str, step: Any, unmade: set[TableName]) -> Any:
    """Return a step of a dry run without lake tables that only earlier steps would make.

    Args:
        context: of the job.
        name: of the step.
        step: one of the job's.
        unmade: those tables, in small letters; the step's own is added.

    Returns:
        The step; None when it has nothing to look at before the job has run.

    """
    if isinstance(step, Ingest | Tier):
        if context.table(step.table, name) is None:
            unmade.add(step.table.lower())
        return step
    if context.is_new:
        return None
    if isinstance(step, Compact):
        return None if step.table.lower() in unmade else step
    if isinstance(step, Verify) and step.tables is not None:
        left = [one for one in step.tables if one.lower() not in unmade]
        return step.model_copy(update={"tables": left}) if left else None
    return step


class _SparkStarter:
    """Starts a session when the first step needs one."""

    def __init__(self, job: Job, given: SparkSession | None, master: str) -> None:
        self._job = job
        self._session = given
        self._master = master
        self._is_ours = False

    def session(self) -> SparkSession:
        """Return the session.

        Raises:
            SparkError: Spark or Java are missing or too old.

        """
        if self._session is None:
            check_environment()
            from pyspark.sql import SparkSession

            self._session = SparkSession.getActiveSession()
        if self._session is None:
            from pyspark.logger import PySparkLogger

            # Progress is shown by who called us, if at all.
            settings: dict[str, Any] = {"spark__ui__showConsoleProgress": "false"}
            settings.update(
                {name.replace(".", "__"): value for name, value in self._job.spark.items()}
            )
            self._session = start_session(self._master, **settings)
            self._session.sparkContext.setLogLevel("ERROR")
            # PySpark logs errors with their stacks as JSON, which are told in words besides.
            for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
                PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
            self._is_ours = True
        return self._session

    def stop(self) -> None:
        """Stop the session that was started here."""
        if self._is_ours and self._session is not None:
            self._session.stop()
