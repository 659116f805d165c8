"""Failures of commands as documents."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import typer

from quack.errors import QuackError, code_of

__all__ = ["failure_as_json"]


@contextlib.contextmanager
def failure_as_json(as_json: bool, *kinds: type[QuackError], **about: str) -> Iterator[None]:
    """With --json a failure is a document too; exit code 1 either way.

    Args:
        as_json: whether --json is given.
        kinds: errors that are failures of the command, not mistakes in how it was called.
        about: what the document says besides code and error.

    """
    try:
        yield
    except kinds as error:
        if not as_json:
            raise
        code = code_of(error) or getattr(error, "code", None)
        typer.echo(json.dumps({"ok": False, **about, "code": code, "error": str(error)}))
        raise typer.Exit(1) from error
