"""`quack cluster`: who leads, who takes part."""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from quack.cli.failures import failure_as_json
from quack.cli.options import AsJson, CaFile, Config, Timeout, TokenFile, Url
from quack.errors import ClusterError, ConfigError

app = typer.Typer(help="Leadership and members of a running cluster.", no_args_is_help=True)
leader_app = typer.Typer(help="Who leads.", no_args_is_help=True)
voter_app = typer.Typer(help="Who takes part.", no_args_is_help=True)
node_app = typer.Typer(help="Machines behind the members.", no_args_is_help=True)
app.add_typer(leader_app, name="leader")
app.add_typer(voter_app, name="voter")
app.add_typer(node_app, name="node")

_Node = Annotated[str, typer.Argument(help="Node id.")]
_COLUMNS = ("node_id", "role", "becomes", "address", "is_leader", "connected", "lag", "state")


def _operations(
    config: pathlib.Path | None,
    url: str | None,
    ca_file: pathlib.Path | None,
    token_file: pathlib.Path | None,
    timeout: float,
) -> Any:
    from quack.cluster.members import MemberOperations
    from quack.cluster.target import Target

    target = Target.from_options(config, url, ca_file, token_file, all_peers=True)
    # Progress goes to standard error: standard output holds the answer alone.
    return MemberOperations(target, timeout, lambda words: print(words, file=sys.stderr))


def _run(as_json: bool, node_id: str, action: Callable[[], str]) -> None:
    with failure_as_json(as_json, ClusterError, node_id=node_id):
        words = action()
    typer.echo(json.dumps({"ok": True, "node_id": node_id, "result": words}) if as_json else words)


@app.command()
def status(
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Ask every node how it is and what it sends or gets. Exit code 1 unless all are in service."""
    with failure_as_json(as_json, ClusterError):
        nodes = _operations(config, url, ca_file, token_file, 30).status()
    is_ok = all(node["answers"] and not node["status"]["degraded"] for node in nodes)
    if as_json:
        typer.echo(json.dumps({"ok": is_ok, "nodes": nodes}, default=str))
    else:
        _print_status(nodes)
    raise typer.Exit(0 if is_ok else 1)


def _print_status(nodes: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    from quack.cluster.members import describe_transfer

    names = ("role", "term", "leader_id", "commit_index", "applied_index", "degraded")
    table = Table("node_id", "membership", "address", *names)
    for node in nodes:
        own = node["status"] or {}
        values = (str(own.get(name, "")) for name in names)
        table.add_row(node["node_id"], node["membership"], node["address"], *values)
    Console().print(table)
    for node in nodes:
        reason = node["error"] or node["status"]["reason"]
        if reason:
            typer.echo(f"{node['node_id']}: {reason}")
        for transfer in node["transfers"]:
            typer.echo(f"{node['node_id']} {describe_transfer(transfer)}")


@leader_app.command()
def stepdown(
    preferred: Annotated[
        str | None, typer.Option("--preferred", help="Node that takes over; default: the fittest.")
    ] = None,
    group: Annotated[str, typer.Option("--group", help="Group that is handed over.")] = "root",
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Hand leadership over and say who leads now, or why it stays. Exit code 1 when it stays."""
    if group != "root":
        raise ConfigError([f"--group {group}: there is no such group; this cluster has: root"])
    operations = _operations(config, url, ca_file, token_file, 30)
    with failure_as_json(as_json, ClusterError):
        answer = operations.step_down(preferred)
    typer.echo(json.dumps({"ok": True, **answer}) if as_json else answer["result"])


@app.command()
def rebalance(
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Spread the leaders of the groups over the nodes now, and say which have moved."""
    operations = _operations(config, url, ca_file, token_file, 30)
    with failure_as_json(as_json, ClusterError):
        words = operations.rebalance()
    typer.echo(json.dumps({"ok": True, "result": words}) if as_json else words)


@voter_app.command("list")
def list_members(
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Show members, those removed, and nodes that wait to be let in, as the leader sees them."""
    rows = _operations(config, url, ca_file, token_file, 30).members()
    if as_json:
        typer.echo(json.dumps({"ok": True, "members": rows}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*_COLUMNS)
    for row in rows:
        table.add_row(*("" if row[name] is None else str(row[name]) for name in _COLUMNS))
    Console().print(table)
    for row in rows:
        if row["role"] == "waiting":
            known = any(o["node_id"] == row["node_id"] and o["role"] == "voter" for o in rows)
            command = "node replace" if known else "voter add"
            typer.echo(f"{row['node_id']} waits: quack cluster {command} {row['node_id']}")
        elif row["last_error"] and row["role"] != "removed":
            typer.echo(f"{row['node_id']}: {row['last_error']}")


@voter_app.command()
def add(
    node_id: _Node,
    learner: Annotated[bool, typer.Option("--learner", help="Keep it a learner.")] = False,
    timeout: Timeout = 300,
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Let a node in that was started with an empty data_dir: a learner first, then a voter."""
    operations = _operations(config, url, ca_file, token_file, timeout)
    _run(as_json, node_id, lambda: str(operations.add(node_id, voter=not learner)))


@voter_app.command()
def promote(
    node_id: _Node,
    timeout: Timeout = 300,
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a learner a voter as soon as it has caught up."""
    operations = _operations(config, url, ca_file, token_file, timeout)
    _run(as_json, node_id, lambda: str(operations.promote(node_id)))


@voter_app.command()
def demote(
    node_id: _Node,
    timeout: Timeout = 60,
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a voter a learner; the leader hands over first."""
    operations = _operations(config, url, ca_file, token_file, timeout)
    _run(as_json, node_id, lambda: str(operations.demote(node_id)))


@voter_app.command()
def remove(
    node_id: _Node,
    timeout: Timeout = 60,
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Remove a member for good; the leader hands over first."""
    operations = _operations(config, url, ca_file, token_file, timeout)
    _run(as_json, node_id, lambda: str(operations.remove(node_id)))


@node_app.command()
def replace(
    node_id: _Node,
    timeout: Timeout = 600,
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Put a node with an empty data_dir in the place of the lost one of the same name."""
    operations = _operations(config, url, ca_file, token_file, timeout)
    _run(as_json, node_id, lambda: str(operations.replace(node_id)))


@node_app.command()
def reseed(
    node_id: _Node,
    timeout: Timeout = 600,
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Have a running node move its catalog aside, restart, and get the data from its peers."""
    operations = _operations(config, url, ca_file, token_file, timeout)
    _run(as_json, node_id, lambda: str(operations.reseed(node_id)))


@node_app.command()
def prepare(
    node_id: _Node,
    like: Annotated[pathlib.Path, typer.Option("--like", help="File of a node of the cluster.")],
    directory: Annotated[pathlib.Path, typer.Option("--dir", help="Where the files go.")],
    ca_dir: Annotated[
        pathlib.Path | None, typer.Option("--ca-dir", help="Authority to issue the certificate.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Address of the new node.")] = None,
    port: Annotated[int | None, typer.Option("--port", help="Default: a free one.")] = None,
) -> None:
    """Write the file, and with --ca-dir the certificate, of a node that will join."""
    from quack.cluster.bootstrap import prepare_node

    node = prepare_node(directory, node_id, like=like, ca_dir=ca_dir, host=host, port=port)
    typer.echo(f"{node.config_file}  ({node.node_id} on {node.host}:{node.port})")
    typer.echo(f"start it:  quack node --config {node.config_file}")
    typer.echo(f"let it in: quack cluster voter add {node_id} --config {like}")
