"""Finds the packaged DuckDB extension and loads it into connections."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import duckdb

from quack.errors import ExtensionError

SUPPORTED_DUCKDB = "2.0.1"

__all__ = ["SUPPORTED_DUCKDB", "connect", "extension_path", "load"]


def extension_path() -> pathlib.Path:
    """Return the extension file for the running DuckDB.

    The environment variable ``QUACK_EXTENSION`` overrides the packaged file.

    Raises:
        ExtensionError: DuckDB has another version, or the file is missing.

    """
    if duckdb.__version__ != SUPPORTED_DUCKDB:
        raise ExtensionError(
            f"DuckDB {duckdb.__version__} is running, the extension is built for "
            f"{SUPPORTED_DUCKDB}: pip install duckdb=={SUPPORTED_DUCKDB}"
        )
    explicit = os.environ.get("QUACK_EXTENSION")
    here = pathlib.Path(__file__).parent
    path = pathlib.Path(explicit) if explicit else here / "_native" / "quack.duckdb_extension"
    if not path.is_file():
        raise ExtensionError(f"{path}: no such file. In a source tree run `make build` first.")
    return path


def load(connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Load the extension into an existing connection and return it.

    Args:
        connection: must have been made with ``allow_unsigned_extensions`` on, as `connect` does;
            DuckDB fixes that setting when the database is opened.

    Raises:
        ExtensionError: the extension file is missing or DuckDB refuses it; the message says why.

    """
    path = str(extension_path()).replace("'", "''")
    try:
        connection.execute(f"LOAD '{path}'")
    except duckdb.Error as error:
        hint = ""
        if "unsigned" in str(error) or "signature" in str(error):
            hint = " Open the database with config={'allow_unsigned_extensions': 'true'}."
        raise ExtensionError(f"DuckDB refused {path}: {error}{hint}") from error
    return connection


def connect(
    database: str = ":memory:", *, config: dict[str, Any] | None = None, read_only: bool = False
) -> duckdb.DuckDBPyConnection:
    """Open a DuckDB database with the extension loaded.

    Args:
        database: path of a local database, or ``:memory:``.
        config: further DuckDB settings.
        read_only: open the local database read-only.

    Returns:
        A connection that understands ``ATTACH 'quack:host:port' AS cp (TYPE quack, …)``.

    """
    settings = {"allow_unsigned_extensions": "true", **(config or {})}
    return load(duckdb.connect(database, config=settings, read_only=read_only))
