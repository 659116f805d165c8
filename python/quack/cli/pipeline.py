"""`quack pipeline`: bulk data to object storage, with its metadata in the cluster."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quack.cli.failures import failure_as_json
from quack.cli.options import AsJson, CaFile, Config, TokenFile, Url
from quack.errors import ClusterError, ConfigError, PipelineError, SparkError, StorageError

if TYPE_CHECKING:
    from quack.pipeline.runner import Progress, Summary
    from quack.spark.options import QuackOptions

app = typer.Typer(help="Ingest, tier, compact, expire and verify.", no_args_is_help=True)

_FAILURES = (PipelineError, StorageError, SparkError, ClusterError)
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE for ${NAME} in the job file; may come several times."),
]


@app.callback()
def _group() -> None:
    """Keep `run` a command of its own while it is the only one."""


@contextlib.contextmanager
def _progress() -> Iterator[Progress]:
    """Show on standard error how far the running step is."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} tasks"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        rows: dict[str, Any] = {}

        def show(step: str, done: int, total: int) -> None:
            if step not in rows:
                rows[step] = bars.add_task(step, total=None)
            bars.update(rows[step], completed=done, total=total or None)

        yield show


def _cluster(
    config: pathlib.Path | None,
    url: str | None,
    ca_file: pathlib.Path | None,
    token_file: pathlib.Path | None,
) -> QuackOptions | None:
    if config is None and url is None:
        return None
    from quack.cluster.target import Target
    from quack.spark.options import QuackOptions

    target = Target.from_options(config, url, ca_file, token_file, all_peers=True)
    given = {"url": f"quack:{target.hosts}", "token": target.token}
    if target.ca_file is not None:
        given["ca_file"] = str(target.ca_file)
    return QuackOptions.parse(given)


def _variables(given: list[str] | None) -> dict[str, str]:
    found = dict(one.partition("=")[::2] for one in given or [])
    wrong = [one for one in given or [] if "=" not in one]
    if wrong:
        raise ConfigError([f"--set {one}: expected NAME=VALUE" for one in wrong])
    return found


def _tell(summary: Summary) -> None:
    for step in summary.steps:
        counts = ", ".join(f"{count} {name}" for name, count in step.counts.items())
        state = step.state.replace("_", " ")
        typer.echo(f"{step.name:24} {state:13} {step.seconds:8.1f} s  {counts}")
        for note in step.notes:
            typer.echo(f"  {note}")


@app.command()
def run(
    job: Annotated[pathlib.Path, typer.Argument(help="Job file, YAML.")],
    master: Annotated[str, typer.Option("--master", help="Where Spark runs.")] = "local[*]",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all, read the sources, write nothing.")
    ] = False,
    variables: _Set = None,
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Run the steps of a job that are not committed yet. Exit code 1 on a failure or on damage."""
    from quack.spark import check_environment

    with failure_as_json(as_json, SparkError):
        check_environment()
    from quack.pipeline import load_job
    from quack.pipeline import run as run_job

    loaded = load_job(job, _variables(variables))
    with failure_as_json(as_json, *_FAILURES, job_id=loaded.job_id), _progress() as progress:
        cluster = _cluster(config, url, ca_file, token_file)
        summary = run_job(
            loaded, cluster=cluster, master=master, dry_run=dry_run, progress=progress
        )
    if as_json:
        typer.echo(json.dumps(summary.as_dict()))
    else:
        _tell(summary)
    raise typer.Exit(0 if summary.ok else 1)
