"""`quack node`: run a node, and look into the files of one."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated, Any

import typer

from quack.cli.options import AsJson
from quack.errors import ConfigError

app = typer.Typer(invoke_without_command=True)


@app.callback()
def node(
    context: typer.Context,
    config: Annotated[
        pathlib.Path | None, typer.Option("--config", help="The node's YAML file.")
    ] = None,
) -> None:
    """Run a voter in the foreground; SIGTERM stops it cleanly."""
    if context.invoked_subcommand is not None:
        return
    if config is None:
        raise ConfigError(["--config is missing: the node's YAML file"])
    from quack.config import load_config
    from quack.node import run_node

    raise typer.Exit(run_node(load_config(config)))


def _print(report: dict[str, Any]) -> None:
    def line(what: str, words: object) -> None:
        typer.echo(f"{what:11} {words}")

    identity = report["identity"] or {}
    line("data_dir", report["data_dir"])
    line("in use", f"by process {report['in_use_by']}" if report["in_use_by"] else "no")
    for key in ("cluster_id", "node_id", "incarnation", "formed"):
        line(key, identity.get(key, "unknown"))
    if identity.get("replaces"):
        line("replaces", ", ".join(identity["replaces"]))
    log = report["log"]
    if log:
        line("log", f"{log['segments']} segments, {log['entries']} entries")
        for group in log["groups"]:
            line(
                f"  group {group['group']}",
                f"term {group['term']}, vote {group['voted_for'] or 'none'}, entries "
                f"{group['snapshot_index'] + 1} to {group['last_index']}, "
                f"commit {group['commit_index']}",
            )
    catalog = report["catalog"]
    if catalog:
        line("catalog", f"{catalog['bytes']} bytes")
        for position in catalog["applied"]:
            line(f"  group {position['group']}", f"applied up to {position['applied_index']}")
    for name in report["quarantine"]:
        line("quarantine", name)
    for problem in report["problems"]:
        line("PROBLEM", problem)


@app.command()
def inspect(
    directory: Annotated[pathlib.Path, typer.Argument(help="A node's data_dir.")],
    as_json: AsJson = False,
) -> None:
    """Say what a data_dir holds and whether it is sound; nothing is changed. Exit code 1 if not."""
    from quack.offline import inspect_node

    report = inspect_node(directory)
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print(report)
    raise typer.Exit(0 if report["ok"] else 1)
