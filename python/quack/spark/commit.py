"""One transaction on the cluster that commits once, whichever node dies meanwhile."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import duckdb

from quack.errors import SparkError
from quack.spark import ledger
from quack.spark.connection import attached, explained
from quack.spark.options import QuackOptions

__all__ = ["commit_once"]

#: After these the transaction is run again: it did not commit, or the ledger will say so.
_AGAIN = {
    "conflict",
    "schema_changed",
    "unavailable",
    "overloaded",
    "degraded",
    "deadline_exceeded",
    "disk_full",
    "outcome_unknown",
}


def commit_once(
    options: QuackOptions,
    what: str,
    is_committed: Callable[[duckdb.DuckDBPyConnection], bool],
    body: Callable[[duckdb.DuckDBPyConnection], None],
) -> bool:
    """Run one transaction until it is known to be committed.

    The ledger is asked first in every round: a commit whose answer was lost is found there, and
    two rounds cannot both commit, because both write the same row of the ledger.

    Returns:
        Whether this call committed; False when the ledger had it already.

    Raises:
        SparkError: it cannot be committed, or no node told the outcome before the deadline.

    """
    deadline = time.monotonic() + options.commit_timeout_s
    pause_s = 0.1
    unknown = False
    while True:
        try:
            with attached(options, consistency="linearizable") as session:
                try:
                    if is_committed(session):
                        return unknown
                    session.execute("BEGIN")
                    body(session)
                    session.execute("COMMIT")
                    return True
                except duckdb.Error as error:
                    raise explained(what, error, options) from None
                finally:
                    ledger.roll_back(session)
        except SparkError as error:
            failure = error
            if not str(error).startswith(what):
                failure = SparkError(f"{what}: {error}", code=error.code)
        unknown = unknown or failure.code == "outcome_unknown"
        if failure.code not in _AGAIN:
            # Another run of the same job may have won, and swept our staging.
            if _is_committed_elsewhere(options, is_committed):
                return False
            raise failure
        if time.monotonic() + pause_s > deadline:
            if unknown:
                raise SparkError(f"outcome unknown: {failure}", code="outcome_unknown")
            raise failure
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 2.0)


def _is_committed_elsewhere(
    options: QuackOptions, is_committed: Callable[[duckdb.DuckDBPyConnection], bool]
) -> bool:
    with (
        contextlib.suppress(SparkError, duckdb.Error),
        attached(options, consistency="linearizable") as session,
    ):
        return is_committed(session)
    return False
