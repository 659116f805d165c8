"""`quack changes`: follow the changed rows of a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quack.cli.options import AsJson, CaFile, Config, TokenFile, Url
from quack.errors import ConfigError

if TYPE_CHECKING:
    from quack.changes import Change, Start

_Table = Annotated[str, typer.Argument(help="table or schema.table.")]
_From = Annotated[
    str,
    typer.Option(
        "--from", help="earliest, latest, or a position as --json prints it: go on behind it."
    ),
]
_Follow = Annotated[bool, typer.Option("--follow", help="Wait for further changes until Ctrl-C.")]


def _start(words: str) -> Start:
    from quack.changes import parse_start

    try:
        return parse_start(words)
    except ValueError as error:
        raise ConfigError([f"--from: {error}"]) from error


def _plain(value: Any) -> str:
    """Write what JSON has no form for."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _print(change: Change, as_json: bool) -> None:
    if as_json:
        document = {
            "change": change.kind,
            "commit": f"{change.group}:{change.index}",
            "order": change.order,
            "request_id": change.request_id,
            "row": change.row,
        }
        typer.echo(json.dumps(document, default=_plain))
        return
    row = ", ".join(f"{name}={value}" for name, value in change.row.items())
    typer.echo(f"{change.group}:{change.index}.{change.order}  {change.kind:16}  {row}")


def changes(
    table: _Table,
    start: _From = "earliest",
    follow: _Follow = False,
    config: Config = None,
    url: Url = None,
    ca_file: CaFile = None,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> None:
    """Print the changed rows of a table, commit by commit. With --json one object per line.

    With --json a line {"position": ...} follows each group of whole commits: --from goes on there.
    """
    from quack.changes import follow as follow_changes
    from quack.cluster.target import Target

    target = Target.from_options(config, url, ca_file, token_file, all_peers=True)
    for batch in follow_changes(target, table, _start(start), wait_s=None if follow else 0):
        for change in batch.changes:
            _print(change, as_json)
        if as_json:
            typer.echo(json.dumps({"position": batch.position.as_json()}))
