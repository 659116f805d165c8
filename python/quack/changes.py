"""Follows what was inserted, updated and deleted in a table of the cluster, commit by commit.

The cluster keeps changes after ``SELECT quack_changes_set_retention('512MB')``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import duckdb

from quack.errors import ClusterError, typed

if TYPE_CHECKING:
    from quack.cluster.target import Target

__all__ = [
    "OWN_COLUMNS",
    "Change",
    "ChangeBatch",
    "Position",
    "Start",
    "follow",
    "oldest_position",
    "parse_start",
    "position_now",
    "read_range",
    "step",
]

#: Columns of ``quack_changes`` in front of the table's own.
OWN_COLUMNS = ("change", "commit_group", "commit_index", "commit_order", "request_id")

_POLL_S = 0.2
_PAUSE_S = 0.2


@dataclass(frozen=True)
class Position:
    """Where a reader stands: behind everything that one node had applied at one moment.

    Attributes:
        cluster_id: positions of another cluster mean nothing, also those of one that was restored.
        applied: the applied vector, as in ``1:120,4:7`` (group:index).

    """

    cluster_id: str
    applied: str

    def as_json(self) -> dict[str, str]:
        """Return a value that `json` writes; `from_json` takes it back."""
        return {"cluster_id": self.cluster_id, "applied": self.applied}

    @classmethod
    def from_json(cls, value: dict[str, str]) -> Position:
        """Take what `as_json` returned.

        Raises:
            ValueError: it is something else.

        """
        if set(value) != {"cluster_id", "applied"}:
            raise ValueError(f"expected cluster_id and applied, got {sorted(value)}")
        return cls(str(value["cluster_id"]), str(value["applied"]))


#: Where to begin: at everything that is kept, at what comes now, or behind a position.
Start = Position | Literal["earliest", "latest"]


def parse_start(words: str) -> Start:
    """Read what a user wrote to say where the changes begin.

    Raises:
        ValueError: it is neither of the two words nor the JSON of a position.

    """
    if words in ("earliest", "latest"):
        return cast(Literal["earliest", "latest"], words)
    try:
        return Position.from_json(json.loads(words))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"'{words}' is neither earliest, latest, nor a position like "
            f'{{"cluster_id": "...", "applied": "1:120,4:7"}}: {error}'
        ) from None


@dataclass(frozen=True)
class Change:
    """One changed row.

    Attributes:
        kind: ``insert``, ``delete``, ``update_preimage`` or ``update_postimage``.
        group: number of the group whose log has the commit.
        index: of the commit in that log.
        order: of the row within the commit.
        request_id: names the commit; what ``quack_transaction_outcome`` takes.
        row: the table's columns by name.

    """

    kind: str
    group: int
    index: int
    order: int
    request_id: str
    row: dict[str, Any]


@dataclass(frozen=True)
class ChangeBatch:
    """The changes of whole commits, and where to go on behind them."""

    changes: list[Change]
    position: Position


def _cluster_id(session: duckdb.DuckDBPyConnection) -> str:
    return str(session.execute("SELECT cluster_id FROM quack_raft_status('cp')").fetchall()[0][0])


def position_now(session: duckdb.DuckDBPyConnection) -> Position:
    """Return where the session's node stands.

    Args:
        session: has the cluster attached as ``cp``.

    Raises:
        duckdb.Error: the cluster's words.

    """
    found = session.execute("SELECT position FROM quack_changes_position('cp')").fetchall()
    return Position(_cluster_id(session), str(found[0][0]))


def oldest_position(session: duckdb.DuckDBPyConnection) -> Position:
    """Return the position behind which all changes are kept; as `position_now`."""
    rows = session.execute(
        "SELECT group_id, oldest_index FROM quack_changes_status('cp') "
        "WHERE oldest_index IS NOT NULL ORDER BY group_id"
    ).fetchall()
    applied = ",".join(f"{group}:{index}" for group, index in rows)
    return Position(_cluster_id(session), applied)


def step(
    session: duckdb.DuckDBPyConnection,
    table: str,
    start: Position,
    *,
    rows: int | None = None,
    size: int | None = None,
) -> tuple[Position, int]:
    """Say where the next part of a table's changes ends.

    Args:
        session: has the cluster attached as ``cp``.
        table: ``table`` or ``schema.table``.
        start: behind it.
        rows: the part ends with the commit that reaches so many changed rows; None = no limit.
        size: or so many bytes, as the cluster keeps them.

    Returns:
        The position, and how many changed rows lie before it. An update counts once.

    Raises:
        ClusterError: the position is of another cluster.
        duckdb.Error: the cluster's words.

    """
    cluster_id = _cluster_id(session)
    if start.cluster_id != cluster_id:
        raise ClusterError(
            f"the position is of cluster {start.cluster_id}, this is {cluster_id}, where it means "
            "nothing: copy the table and follow its changes from 'latest'"
        )
    found = session.execute(
        "SELECT position, rows FROM quack_changes_end('cp', ?, ?, ?, ?)",
        [table, start.applied, rows, size],
    ).fetchall()
    return Position(cluster_id, str(found[0][0])), int(found[0][1])


def read_range(
    session: duckdb.DuckDBPyConnection, table: str, start: Position, end: Position
) -> Iterator[Change]:
    """Give the changes between two positions, in the order in which the node applied them.

    Raises:
        duckdb.Error: the cluster's words.

    """
    cursor = session.execute(
        "SELECT * FROM quack_changes('cp', ?, ?, ?)", [table, start.applied, end.applied]
    )
    names = [column[0] for column in cursor.description or []][len(OWN_COLUMNS) :]
    while found := cursor.fetchmany(2048):
        for kind, group, index, order, request_id, *values in found:
            row = dict(zip(names, values, strict=True))
            yield Change(kind, group, index, order, request_id, row)


class _Follower:
    """Holds a session and replaces it when its node fails."""

    def __init__(self, target: Target, patience_s: float) -> None:
        self._target = target
        self._patience_s = patience_s
        self._session: duckdb.DuckDBPyConnection | None = None
        self._failing_since: float | None = None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def batch(self, table: str, start: Start, rows: int) -> ChangeBatch | None:
        """Return the next part, empty when there is none; None when it has to be asked again."""
        try:
            if self._session is None:
                self._session = self._target.attached(timeout_s=self._patience_s)
                # A node that has just come back may not know the table yet.
                self._session.execute("SET quack_consistency = 'linearizable'")
            session = self._session
            if start == "latest":
                return ChangeBatch([], position_now(session))
            begin = oldest_position(session) if start == "earliest" else start
            end, count = step(session, table, begin, rows=rows)
            changes = list(read_range(session, table, begin, end)) if count else []
        except (duckdb.Error, ClusterError) as error:
            self._fail(error)
            return None
        self._failing_since = None
        return ChangeBatch(changes, end)

    def _fail(self, error: duckdb.Error | ClusterError) -> None:
        """Drop the session; raises when another one will not help, or enough was tried."""
        self.close()
        known = typed(error)
        now = time.monotonic()
        self._failing_since = self._failing_since or now
        is_passing = known is not None and known.retry in ("statement", "transaction")
        if not is_passing or now - self._failing_since > self._patience_s:
            raise known or error from error
        time.sleep(_PAUSE_S)


def follow(
    target: Target,
    table: str,
    start: Start = "earliest",
    *,
    wait_s: float | None = 0,
    rows: int = 10_000,
    patience_s: float = 40,
) -> Iterator[ChangeBatch]:
    """Give the changes of a table, commit by commit, each once and in order.

    A reader that keeps the position of the last batch it took goes on there, on whatever node.
    A batch without changes comes when only the position has moved, at the end or before a wait.

    Args:
        target: the nodes; with several of them a dead one is replaced by the next.
        table: ``table`` or ``schema.table``.
        start: behind it; ``earliest`` is everything that is kept, ``latest`` only what comes now.
        wait_s: ends after so many seconds without a change; 0 = at the end of what there is,
            None = never.
        rows: a batch ends with the commit that reaches so many changed rows.
        patience_s: longest time without an answer of the cluster.

    Raises:
        NotFoundError: there is no such table, or changes behind ``start`` are not kept any more.
        NotSupportedError: the cluster keeps no changes.
        ClusterError: the position is of another cluster, or no node answers.
        StatementError: anything else that the cluster refuses.

    """
    follower = _Follower(target, patience_s)
    at = start
    quiet_since = time.monotonic()
    try:
        while True:
            batch = follower.batch(table, at, rows)
            if batch is None:
                continue
            if batch.changes or at != batch.position:
                at = batch.position
                yield batch
            if batch.changes:
                quiet_since = time.monotonic()
                continue
            if wait_s is not None and time.monotonic() - quiet_since >= wait_s:
                return
            time.sleep(_POLL_S)
    finally:
        follower.close()
