"""The one tree of errors that the package raises, with the stable codes of the SQL surface."""

from __future__ import annotations

import re

__all__ = [
    "STATEMENT_ERRORS",
    "AlreadyExistsError",
    "BackupError",
    "CancelledError",
    "CertificateError",
    "ClusterError",
    "ConfigError",
    "ConflictError",
    "ConstraintError",
    "CorruptionError",
    "DeadlineExceededError",
    "DegradedError",
    "DiskFullError",
    "ExtensionError",
    "IncompatibleError",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "NotFoundError",
    "NotSupportedError",
    "OutcomeUnknownError",
    "OverloadedError",
    "PipelineError",
    "QuackError",
    "SchemaChangedError",
    "SparkError",
    "StatementError",
    "StorageError",
    "UnauthorizedError",
    "UnavailableError",
    "code_of",
    "typed",
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


class StorageError(QuackError):
    """An object cannot be written, read or listed.

    Attributes:
        code: a stable code (see ERRORS.md).
        words: the message without the code.

    """

    def __init__(self, code: str, words: str) -> None:
        self.code = code
        self.words = words
        super().__init__(f"{words} [quack:{code}]")

    def __reduce__(self) -> tuple[type[StorageError], tuple[str, str]]:
        """Let it travel from Spark's tasks."""
        return type(self), (self.code, self.words)


class BackupError(StorageError):
    """A backup cannot be made, read or restored."""


class PipelineError(QuackError):
    """A step of a pipeline is refused or failed; no secret is in the text.

    Attributes:
        code: the stable code (see ERRORS.md) when there is one.

    """

    def __init__(self, words: str, code: str | None = None) -> None:
        self.code = code
        super().__init__(words)


class SparkError(QuackError):
    """A read or a write of Spark is refused or failed; no secret is in the text.

    Attributes:
        code: the stable code (see ERRORS.md) when the cluster gave one.

    """

    def __init__(self, words: str, code: str | None = None) -> None:
        self.code = code
        super().__init__(words)


class StatementError(QuackError):
    """A statement failed on the cluster. Made by `typed` from the error that DuckDB raised.

    Attributes:
        code: the stable code (see ERRORS.md).
        retry: what may be done about it: ``statement``, ``transaction``, ``ask`` or ``no``.

    """

    code = ""
    retry = "no"


class ConflictError(StatementError):
    """Another transaction committed first; run the transaction again."""

    code, retry = "conflict", "transaction"


class SchemaChangedError(StatementError):
    """An object in use was changed after the statement was planned; run the transaction again."""

    code, retry = "schema_changed", "transaction"


class ConstraintError(StatementError):
    """A key, NOT NULL, CHECK or foreign key forbids it."""

    code = "constraint"


class OutcomeUnknownError(StatementError):
    """It may have been committed.

    Attributes:
        token: the argument for ``quack_transaction_outcome``; None when the text has none.

    """

    code, retry = "outcome_unknown", "ask"

    @property
    def token(self) -> str | None:
        """The argument for ``quack_transaction_outcome``."""
        found = _TOKEN.search(str(self))
        return found.group(1) if found else None


class UnavailableError(StatementError):
    """No quorum, no leader or no contact; nothing was done."""

    code, retry = "unavailable", "statement"


class OverloadedError(StatementError):
    """The node takes no more at once; nothing was done.

    Attributes:
        retry_after_ms: when to come back; 0 when the text does not say.

    """

    code, retry = "overloaded", "statement"

    @property
    def retry_after_ms(self) -> int:
        """Milliseconds after which the node expects to have room."""
        found = _RETRY_AFTER.search(str(self))
        return int(found.group(1)) if found else 0


class DeadlineExceededError(StatementError):
    """The time limit passed before anything was committed."""

    code, retry = "deadline_exceeded", "statement"


class CancelledError(StatementError):
    """Interrupted; nothing was committed."""

    code, retry = "cancelled", "statement"


class DegradedError(StatementError):
    """The node took itself out of service; the text says why."""

    code, retry = "degraded", "statement"


class DiskFullError(StatementError):
    """No space for the log; heals by itself when space returns."""

    code, retry = "disk_full", "statement"


class UnauthorizedError(StatementError):
    """Token or certificate refused."""

    code = "unauthorized"


class IncompatibleError(StatementError):
    """Versions, formats or cluster ids do not match."""

    code = "incompatible"


class NotSupportedError(StatementError):
    """A feature that is refused before any effect."""

    code = "not_supported"


class InvalidArgumentError(StatementError):
    """A value that no repetition mends."""

    code = "invalid_argument"


class NotFoundError(StatementError):
    """No such object, node, group or result."""

    code = "not_found"


class AlreadyExistsError(StatementError):
    """It exists already."""

    code = "already_exists"


class IoError(StatementError):
    """The operating system refused."""

    code = "io_error"


class CorruptionError(StatementError):
    """Stored bytes fail their checksum."""

    code = "corruption"


class InternalError(StatementError):
    """A bug of quack-duckdb."""

    code = "internal"


#: The class of each stable code.
STATEMENT_ERRORS: dict[str, type[StatementError]] = {
    kind.code: kind for kind in StatementError.__subclasses__()
}

_CODE = re.compile(r"\[quack:([a-z_]+)\]")
_TOKEN = re.compile(r"'([0-9a-f]{32})'")
_RETRY_AFTER = re.compile(r"retry after (\d+) ms")


def code_of(error: BaseException) -> str | None:
    """Return the stable code inside a DuckDB error raised by the extension.

    Args:
        error: any exception, typically a `duckdb.Error`.

    Returns:
        A code such as ``conflict`` or ``unavailable``; None when the error carries none.

    """
    found = _CODE.findall(str(error))
    return found[-1] if found else None


def typed(error: BaseException) -> StatementError | None:
    """Return the `StatementError` for a DuckDB error; None when it carries no known code.

    Use it as ``raise quack.errors.typed(error) or error from error``.
    """
    kind = STATEMENT_ERRORS.get(code_of(error) or "")
    return kind(str(error)) if kind else None
