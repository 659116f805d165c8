"""The change feed of a table, and what it says the table holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

from catalog_replica import Replica

#: Columns in front of the table's own; the last of them is the request id.
OWN_COLUMNS = 5


def changes(replica: Replica, table: str, start: Any = None, end: Any = None) -> list[tuple]:
    """Rows of the feed without the request id."""
    replica.command("wait")
    rows = replica.rows("SELECT * FROM quack_changes(?, ?, ?)", table, start, end)
    return [row[:4] + row[OWN_COLUMNS:] for row in rows]


def fold(rows: list[tuple], content: Counter | None = None) -> Counter:
    """The content of a table after the changes; fails when one of them does not fit."""
    content = Counter() if content is None else content
    for row in rows:
        change, values = row[0], row[4:]
        if change in ("insert", "update_postimage"):
            content[values] += 1
        else:
            assert content[values] > 0, f"{row} is about a row that is not there"
            content[values] -= 1
    return +content


def content(replica: Replica, table: str) -> Counter:
    return Counter(replica.rows(f"SELECT * FROM {table}"))
