"""`quack log`: what lies in a durable log, read without changing anything."""

from __future__ import annotations

import json
import pathlib
from typing import Annotated

import typer

from quack.cli.options import AsJson

app = typer.Typer(help="Read the durable log of a node; nothing is changed.", no_args_is_help=True)

_Directory = Annotated[
    pathlib.Path, typer.Argument(help="A node's data_dir, or the log directory in it.")
]


@app.command()
def dump(
    directory: _Directory,
    group: Annotated[int | None, typer.Option("--group", help="Only records of it.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per record.")
    ] = False,
) -> None:
    """Print every record, damaged ones too, in the order of the log."""
    from quack.offline import log_records

    for record in log_records(directory):
        if group is not None and record["group"] != group:
            continue
        if as_json:
            typer.echo(json.dumps(record))
            continue
        file = pathlib.Path(str(record["file"])).name
        mark = "" if record["is_sound"] else " DAMAGED"
        mark += "" if record["is_acknowledged"] else " unacknowledged"
        typer.echo(
            f"{file}:{record['offset']} {record['type']} group {record['group']} "
            f"term {record['term']} index {record['index']} ({record['size']} bytes){mark}"
            f" {record['detail']}"
        )


@app.command()
def verify(directory: _Directory, as_json: AsJson = False) -> None:
    """Check every checksum and what the records say together. Exit code 1 on damage."""
    from quack.offline import log_summary

    summary = log_summary(directory)
    if as_json:
        typer.echo(json.dumps(summary))
    else:
        typer.echo(
            f"{summary['segments']} segments, {summary['records']} records, "
            f"{summary['entries']} entries"
        )
        if summary["torn_bytes"]:
            typer.echo(
                f"{summary['torn_bytes']} bytes at the end were never acknowledged; "
                "the node cuts them when it starts"
            )
        words = f"{summary['damages']} damaged places, the first: {summary['first_damage']}"
        typer.echo("no damage" if summary["ok"] else words)
    raise typer.Exit(0 if summary["ok"] else 1)
