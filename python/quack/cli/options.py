"""Options that commands to a cluster share."""

from __future__ import annotations

import pathlib
from typing import Annotated

import typer

__all__ = ["AsJson", "CaFile", "Config", "Timeout", "TokenFile", "Url"]

Config = Annotated[
    pathlib.Path | None,
    typer.Option("--config", help="A node's file: address, token and certificates come from it."),
]
Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="quack:host:port[,host:port]; token from --token-file or QUACK_TOKEN."
    ),
]
CaFile = Annotated[
    pathlib.Path | None, typer.Option("--ca-file", help="Authority of the nodes, with --url.")
]
TokenFile = Annotated[
    pathlib.Path | None, typer.Option("--token-file", help="File that holds the token, with --url.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=1, help="Seconds for the whole operation.")
]
