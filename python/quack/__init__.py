"""Raft-replicated DuckDB: `connect`, `load`, and the errors a caller can meet."""

from __future__ import annotations

from importlib import metadata

from quack import errors
from quack.extension import connect, extension_path, load

try:
    __version__ = metadata.version("quack-duckdb")
except metadata.PackageNotFoundError:  # running from a source tree
    __version__ = "0.1.0"

__all__ = ["__version__", "connect", "errors", "extension_path", "load"]
