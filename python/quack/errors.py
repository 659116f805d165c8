"""The one tree of errors that the package raises, with the stable codes of the SQL surface."""

from __future__ import annotations

import re

__all__ = [
    "CertificateError",
    "ClusterError",
    "ConfigError",
    "ExtensionError",
    "QuackError",
    "code_of",
]


class QuackError(Exception):
    """Base of all errors of this package. The message says what is wrong and how to mend it."""


class ConfigError(QuackError):
    """One or more mistakes in a configuration file.

    Attributes:
        problems: every mistake, each with file, line where known, and the fix.

    """

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


class CertificateError(QuackError):
    """A certificate or key cannot be made, read, or does not fulfil its contract."""


class ExtensionError(QuackError):
    """The DuckDB extension is missing or does not fit the running DuckDB."""


class ClusterError(QuackError):
    """A node process or a cluster operation failed."""


_CODE = re.compile(r"\[quack:([a-z_]+)\]")


def code_of(error: BaseException) -> str | None:
    """Return the stable code inside a DuckDB error raised by the extension.

    Args:
        error: any exception, typically a `duckdb.Error`.

    Returns:
        A code such as ``conflict`` or ``unavailable``; None when the error carries none.

    """
    found = _CODE.search(str(error))
    return found.group(1) if found else None
