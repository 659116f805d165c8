"""Is there an order of all operations on a register that respects real time and explains all reads?

The search of Wing and Gong with Lowe's memo: states already tried (which operations are placed, and
the value) are not tried again. Two reductions keep it near linear when every value is written once,
which the workload sees to:

- a write of unknown outcome that nobody ever read may be placed at the very end, so it is left out;
- a value is not replaced while a read that has to see it is still unplaced.

Each key is an object of its own: a history is linearizable when that of each key is (locality).
"""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from typing import Any

from chaos.history import FOREVER, Operation, Verdict

#: States after which the search gives up; a verdict "undecided" is not ok.
STEPS_MAX = 2_000_000


@dataclasses.dataclass
class _Entry:
    operation: Operation
    is_write: bool
    value: Any
    end: int


def check_registers(
    history: list[Operation], initial: Any = 0, steps_max: int = STEPS_MAX
) -> Verdict:
    """Check "read" and "write" operations, each key by itself.

    Args:
        history: reads of outcome "ok" bind; failed operations must have had no effect.
        initial: the value that every key holds before.
        steps_max: bound of the search per key.

    Reads that were not asked for as linearizable are left out: they may be old.

    """
    by_key: dict[Any, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    anomalies: list[str] = []
    reads = writes = steps = 0
    for key in sorted(by_key, key=repr):
        failed = _failed_but_read(by_key[key])
        anomalies += failed
        entries = _entries(by_key[key])
        reads += sum(not entry.is_write for entry in entries)
        writes += sum(entry.is_write for entry in entries)
        if failed:
            continue
        found, tried = _search(entries, initial, steps_max)
        steps += tried
        if found is not None:
            anomalies.append(f"register {key!r}: {found}")
    return Verdict.of(
        "registers", anomalies, keys=len(by_key), reads=reads, writes=writes, steps=steps
    )


def _failed_but_read(history: list[Operation]) -> list[str]:
    """A write that was reported as failed and yet read: named plainly, before any search."""
    failed = {
        repr(operation.value): operation
        for operation in history
        if operation.kind == "write" and operation.outcome == "fail"
    }
    for operation in history:
        if operation.kind == "write" and operation.outcome != "fail":
            failed.pop(repr(operation.value), None)
    found = []
    for operation in history:
        cause = failed.get(repr(operation.result)) if operation.kind == "read" else None
        if cause is not None and operation.outcome == "ok":
            found.append(
                f"register {operation.key!r}: reported as failed, yet read: "
                f"{cause.brief()} read by {operation.brief()}"
            )
    return found[:3]


def _entries(history: list[Operation]) -> list[_Entry]:
    seen = {repr(op.result) for op in history if op.kind == "read" and op.outcome == "ok"}
    entries = []
    for operation in history:
        if operation.kind == "write":
            if operation.outcome == "fail":
                continue
            if operation.outcome == "unknown" and repr(operation.value) not in seen:
                continue
            end = operation.completed if operation.outcome == "ok" else FOREVER
            entries.append(_Entry(operation, True, operation.value, end))
        elif operation.outcome == "ok" and operation.fresh:
            entries.append(_Entry(operation, False, operation.result, operation.completed))
    entries.sort(key=lambda entry: entry.operation.invoked)
    return entries


def _search(entries: list[_Entry], initial: Any, steps_max: int) -> tuple[str | None, int]:
    """Return what is wrong (None when an order exists) and the number of states tried."""
    values = Counter(repr(entry.value) for entry in entries if entry.is_write)
    values[repr(initial)] += 1
    once = all(count == 1 for count in values.values())
    readers: dict[str, list[int]] = defaultdict(list)
    for number, entry in enumerate(entries):
        if not entry.is_write:
            readers[repr(entry.value)].append(number)

    def placed(base: int, mask: int, number: int) -> bool:
        return number < base or bool(mask >> (number - base) & 1)

    def blocked(base: int, mask: int, value: Any) -> bool:
        """Whether somebody still has to read the present value."""
        return once and any(not placed(base, mask, one) for one in readers[repr(value)])

    def choices(base: int, mask: int, value: Any) -> list[int]:
        found, first_end = [], FOREVER + 1
        number, rest = base, mask
        while number < len(entries) and entries[number].operation.invoked <= first_end:
            if not rest & 1:
                found.append(number)
                first_end = min(first_end, entries[number].end)
            number, rest = number + 1, rest >> 1
        possible = [n for n in found if entries[n].operation.invoked <= first_end]
        reads = [n for n in possible if not entries[n].is_write and entries[n].value == value]
        if reads:
            return reads[:1]  # a read that fits now changes nothing: placing it is never wrong
        if blocked(base, mask, value):
            return []
        return sorted((n for n in possible if entries[n].is_write), key=lambda n: entries[n].end)

    def place(base: int, mask: int, number: int) -> tuple[int, int]:
        mask |= 1 << (number - base)
        while mask & 1:
            base, mask = base + 1, mask >> 1
        return base, mask

    tried: set[tuple[int, int, str]] = set()
    deepest, at = 0, (0, 0, initial)
    stack = [(0, 0, initial)]
    while stack:
        base, mask, value = stack.pop()
        if base == len(entries):
            return None, len(tried)
        state = (base, mask, repr(value))
        if state in tried:
            continue
        tried.add(state)
        if len(tried) > steps_max:
            return f"undecided after {steps_max} states", len(tried)
        if base + mask.bit_count() >= deepest:
            deepest, at = base + mask.bit_count(), (base, mask, value)
        for number in reversed(choices(base, mask, value)):
            entry = entries[number]
            stack.append((*place(base, mask, number), entry.value if entry.is_write else value))
    return _explain(entries, *at), len(tried)


def _explain(entries: list[_Entry], base: int, mask: int, value: Any) -> str:
    rest = [
        entries[number] for number in range(base, len(entries)) if not mask >> (number - base) & 1
    ]
    lines = "; ".join(entry.operation.brief() for entry in rest[:6])
    return (
        f"not linearizable: {len(entries) - len(rest)} of {len(entries)} operations can be ordered, "
        f"then the value is {value!r} and none of these fits: {lines}"
    )
