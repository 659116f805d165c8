"""Is every acknowledged row there once, every refused one absent, and no statement half applied?

Rows are inserted into a table without a key, so nothing but the product itself can keep a repeated
insert from showing twice. An "insert" operation has `value = [first, count]`: it adds the numbers
`first … first + count - 1` in one statement or transaction, and belongs to the part `key`. A "read"
of a part returns the sorted numbers in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from chaos.history import Operation, Verdict


def check_rows(history: list[Operation], final: dict[str, list[int]]) -> Verdict:
    """Check the inserts against the final contents and against the reads on the way.

    Args:
        history: "insert" and "read" operations.
        final: all numbers in the table, by node, after everything came to rest.

    """
    inserts = [operation for operation in history if operation.kind == "insert"]
    anomalies: list[str] = []
    lost = duplicated = unexpected = torn = 0
    for node, numbers in sorted(final.items()):
        counts = Counter(numbers)
        for operation in inserts:
            here = [counts.pop(number, 0) for number in _numbers(operation)]
            missing = sum(count == 0 for count in here)
            double = sum(count > 1 for count in here)
            if double:
                duplicated += double
                anomalies.append(f"{node}: duplicated {double} rows of {operation.brief()}")
            if operation.outcome == "ok" and missing:
                lost += missing
                anomalies.append(f"{node}: lost {missing} rows of {operation.brief()}")
            elif operation.outcome == "fail" and missing < len(here):
                unexpected += len(here) - missing
                anomalies.append(f"{node}: failed but there: {operation.brief()}")
            elif 0 < missing < len(here):
                torn += 1
                anomalies.append(f"{node}: half applied, {missing} missing: {operation.brief()}")
        if counts:
            unexpected += len(counts)
            anomalies.append(f"{node}: {len(counts)} rows nobody inserted: {sorted(counts)[:5]}")
    anomalies += _reads(history, inserts)
    anomalies += _vanished(history, inserts, final)
    outcomes = Counter(operation.outcome for operation in inserts)
    return Verdict.of(
        "rows",
        anomalies,
        inserts=dict(outcomes),
        rows_acknowledged=sum(op.value[1] for op in inserts if op.outcome == "ok"),
        lost=lost,
        duplicated=duplicated,
        unexpected=unexpected,
        torn=torn,
        reads=sum(op.kind == "read" and op.outcome == "ok" for op in history),
    )


def _numbers(operation: Operation) -> range:
    first, count = operation.value
    return range(first, first + count)


def _reads(history: list[Operation], inserts: list[Operation]) -> list[str]:
    """Each fresh read holds what was acknowledged before it, and nothing not yet asked for."""
    by_part: dict[Any, list[Operation]] = defaultdict(list)
    for operation in inserts:
        by_part[operation.key].append(operation)
    found = []
    for read in history:
        if read.kind != "read" or read.outcome != "ok":
            continue
        seen = Counter(read.result)
        for operation in by_part[read.key]:
            present = sum(seen[number] > 0 for number in _numbers(operation))
            count = operation.value[1]
            if any(seen[number] > 1 for number in _numbers(operation)):
                found.append(f"read twice: {operation.brief()} by {read.brief()}")
            if 0 < present < count:
                found.append(f"read half: {operation.brief()} by {_short(read)}")
            due = operation.outcome == "ok" and operation.completed < read.invoked and read.fresh
            if due and present == 0:
                found.append(f"stale read, misses {operation.brief()}: {_short(read)}")
            if present and operation.invoked > read.completed:
                found.append(f"read from the future: {operation.brief()} by {_short(read)}")
            if present and operation.outcome == "fail":
                found.append(f"read of a failed insert: {operation.brief()} by {_short(read)}")
    return found


def _vanished(
    history: list[Operation], inserts: list[Operation], final: dict[str, list[int]]
) -> list[str]:
    """What was read once of an insert with unknown outcome is there in the end."""
    seen: set[int] = set()
    for read in history:
        if read.kind == "read" and read.outcome == "ok":
            seen.update(read.result)
    found = []
    for node, numbers in sorted(final.items()):
        gone = seen.difference(numbers)
        for operation in inserts:
            if operation.outcome == "unknown" and gone.intersection(_numbers(operation)):
                found.append(f"{node}: was read, then vanished: {operation.brief()}")
    return found


def _short(read: Operation) -> str:
    return f"{read.client} at {read.invoked / 1e9:.4f} to {read.completed / 1e9:.4f}"
