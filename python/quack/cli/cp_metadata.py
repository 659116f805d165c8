"""`quack cp-metadata`: configurations and status of the replicated catalog."""

from __future__ import annotations

import json
import pathlib
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quack.cli.options import AsJson, CaFile, Config, TokenFile, Url
from quack.errors import ConfigError

if TYPE_CHECKING:
    from quack.cluster.target import Target

app = typer.Typer(help="The replicated catalog of a cluster.", no_args_is_help=True)


@app.command("generate-local-configs")
def generate(
    directory: Annotated[pathlib.Path, typer.Option("--dir", help="Folder to fill.")],
    nodes: Annotated[int, typer.Option("--nodes", help="Number of voters.")] = 3,
    host: Annotated[str, typer.Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        list[int] | None, typer.Option("--port", help="One per node; default: free ports.")
    ] = None,
) -> None:
    """Write certificates, a token and one configuration per node."""
    from quack.cluster.bootstrap import generate_local_configs

    for node in generate_local_configs(directory, nodes, host=host, ports=port):
        typer.echo(f"{node.config_file}  ({node.node_id} on {node.host}:{node.port})")


@app.command("validate-config")
def validate(
    files: Annotated[list[pathlib.Path], typer.Argument(help="Node configuration files.")],
) -> None:
    """Check configuration files; prints every mistake at once with its line and the fix."""
    from quack.config import load_config

    problems: list[str] = []
    for file in files:
        try:
            load_config(file)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    typer.echo(f"{len(files)} file{'s' if len(files) != 1 else ''} ok")


def read_status(target: Target) -> dict[str, Any]:
    """Attach and read ``quack_raft_status``.

    Raises:
        ClusterError: the node does not answer.

    """
    with target.open() as session:
        rows = session.rows("quack_raft_status")
    root: dict[str, Any] = next((row for row in rows if row["group"] == "root"), {})
    safe = bool(root.get("linearizable_read_safe"))
    return {
        "enabled": True,
        "ok": safe and not any(row["degraded"] for row in rows),
        "leader_id": root.get("leader_id"),
        "is_leader": bool(root.get("is_leader")),
        "linearizable_read_safe": safe,
        "groups": rows,
    }


@app.command()
def status(
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show how one node sees the cluster. Exit code 1 unless it can serve fresh reads."""
    from quack.cluster.target import Target as Reached

    document = read_status(Reached.from_options(config, url, ca_file, token_file))
    if as_json:
        typer.echo(json.dumps(document, default=str))
    else:
        from rich.console import Console
        from rich.table import Table

        columns = ["group", "node_id", "role", "term", "leader_id", "commit_index"]
        columns += ["applied_index", "lease", "degraded", "reason"]
        table = Table(*columns)
        for row in document["groups"]:
            table.add_row(*(str(row.get(name, "")) for name in columns))
        Console().print(table)
    raise typer.Exit(0 if document["ok"] else 1)
