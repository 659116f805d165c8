"""`quack spark`: what Spark jobs left in the cluster."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from quack.cli.options import AsJson, CaFile, Config, TokenFile, Url
from quack.errors import ClusterError

if TYPE_CHECKING:
    import duckdb

app = typer.Typer(help="Ledger and staging of Spark jobs.", no_args_is_help=True)

_OlderThan = Annotated[
    float,
    typer.Option("--older-than-hours", min=0, help="Age of staging that belongs to no live job."),
]


@contextlib.contextmanager
def _session(
    doing: str,
    config: pathlib.Path | None,
    url: str | None,
    ca_file: pathlib.Path | None,
    token_file: pathlib.Path | None,
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Reach the cluster; ``doing`` is for the words of a failure."""
    import duckdb

    from quack.cluster.target import Target

    target = Target.from_options(config, url, ca_file, token_file, all_peers=True)
    with target.attached() as session:
        try:
            yield session
        except duckdb.Error as error:
            raise ClusterError(f"cannot {doing}: {error}") from error


@app.command()
def sweep(
    older_than_hours: _OlderThan = 24,
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove rows that dead jobs left in staging. A job that is swept while it runs fails whole."""
    from quack.spark import ledger

    with _session("sweep the staging of Spark jobs", config, url, ca_file, token_file) as session:
        removed = ledger.sweep(session, older_than_hours * 3600)
    if as_json:
        typer.echo(json.dumps({"ok": True, "removed": removed}))
        return
    for name in removed:
        typer.echo(f"removed {name}")
    typer.echo(f"{len(removed)} staging tables removed")


@app.command()
def jobs(
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """List committed batch writes and what is in staging, newest first."""
    from quack.spark import ledger

    with _session("list Spark jobs", config, url, ca_file, token_file) as session:
        found = ledger.overview(session)
    if as_json:
        typer.echo(json.dumps({"ok": True, **found}))
        return
    for one in found["jobs"]:
        typer.echo(
            f"{one['committed_at']}  {one['job_id']}  {one['mode']} {one['row_count']} rows "
            f"{one['target']}"
        )
    for one in found["streams"]:
        typer.echo(
            f"{one['committed_at']}  stream {one['query_id']} batch {one['batch_id']} "
            f"{one['target']}"
        )
    for one in found["staging"]:
        typer.echo(f"{one['created_at']}  staging {one['name']} of {one['job_id']} {one['target']}")
