"""`quack cp-metadata`: configurations and status of the replicated catalog."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Annotated, Any

import typer

from quack.errors import ClusterError, ConfigError

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


def _attach(config: pathlib.Path | None, url: str | None, ca_file: pathlib.Path | None) -> str:
    """Build the ATTACH statement from a node's file, or from --url and QUACK_TOKEN."""
    if (config is None) == (url is None):
        raise typer.BadParameter("give exactly one of --config and --url")
    if config is not None:
        from quack.config import load_config

        loaded = load_config(config)
        mode = loaded.cluster_mode
        url = f"quack:{mode.advertised_host}:{mode.cp_metadata_port}"
        token = mode.cp_metadata_token.get_secret_value()
        ca_file = mode.tls.ca_file if mode.tls else None
    else:
        token = os.environ.get("QUACK_TOKEN", "")
        if not token:
            raise ConfigError(["QUACK_TOKEN: not set; --url takes the token from the environment"])
    options = ["TYPE quack", "TOKEN '" + token.replace("'", "''") + "'"]
    if ca_file is not None:
        options.append(f"client_ca_file '{ca_file}'")
    else:
        options.append("disable_ssl true")
    return f"ATTACH '{url}' AS cp ({', '.join(options)})"


def read_status(statement: str) -> dict[str, Any]:
    """Attach and read ``quack_raft_status``; never raises for an unreachable node."""
    import duckdb

    from quack.extension import connect

    session = connect()
    try:
        session.execute(statement)
        cursor = session.execute("SELECT * FROM quack_raft_status('cp')")
        names = [column[0] for column in cursor.description or []]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    except duckdb.Error as error:
        raise ClusterError(str(error)) from None
    finally:
        session.close()
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
    config: Annotated[
        pathlib.Path | None, typer.Option("--config", help="Ask the node of this file.")
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", help="quack:host:port; token from QUACK_TOKEN.")
    ] = None,
    ca_file: Annotated[pathlib.Path | None, typer.Option("--ca-file", help="With --url.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how one node sees the cluster. Exit code 1 unless it can serve fresh reads."""
    document = read_status(_attach(config, url, ca_file))
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
