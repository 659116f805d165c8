"""Does a counter count every acknowledged increment once?

An "add" of `value` to the counter `key` may be an autocommit update; a "read" returns its value.
"""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from itertools import accumulate
from typing import Any

from chaos.history import Operation, Verdict


def check_counters(history: list[Operation], final: dict[str, dict[Any, int]]) -> Verdict:
    """Check every fresh read and the final value on every node against the bounds.

    Args:
        history: "add" with positive values, and "read".
        final: by node, the value by key.

    """
    by_key: dict[Any, list[Operation]] = defaultdict(list)
    for operation in history:
        by_key[operation.key].append(operation)
    anomalies: list[str] = []
    for key, operations in sorted(by_key.items(), key=repr):
        adds = [op for op in operations if op.kind == "add"]
        reads = [op for op in operations if op.kind == "read" and op.outcome == "ok" and op.fresh]
        done = _Sums([(op.completed, op.value) for op in adds if op.outcome == "ok"])
        asked = _Sums([(op.invoked, op.value) for op in adds if op.outcome != "fail"])
        for read in reads:
            at_least, at_most = done.before(read.invoked), asked.before(read.completed)
            if not at_least <= read.result <= at_most:
                anomalies.append(f"counter {key!r} outside {at_least} to {at_most}: {read.brief()}")
        anomalies += _backwards(reads)
        for node, values in sorted(final.items()):
            if not done.total <= values.get(key, -1) <= asked.total:
                anomalies.append(
                    f"{node}: counter {key!r} ends at {values.get(key)}, "
                    f"expected {done.total} to {asked.total}"
                )
    outcomes = Counter(op.outcome for op in history if op.kind == "add")
    reads_ok = sum(op.kind == "read" and op.outcome == "ok" for op in history)
    return Verdict.of("counter", anomalies, adds=dict(outcomes), reads=reads_ok)


class _Sums:
    def __init__(self, events: list[tuple[int, int]]) -> None:
        events.sort()
        self.times = [time for time, _ in events]
        self.sums = [0, *accumulate(value for _, value in events)]
        self.total = self.sums[-1]

    def before(self, moment: int) -> int:
        return self.sums[bisect.bisect_left(self.times, moment)]


def _backwards(reads: list[Operation]) -> list[str]:
    """A read that begins after another one ended sees no less."""
    found = []
    by_end = sorted(reads, key=lambda op: op.completed)
    ends = [op.completed for op in by_end]
    best: list[Operation] = []
    for read in by_end:
        best.append(read if not best or read.result > best[-1].result else best[-1])
    for read in reads:
        position = bisect.bisect_left(ends, read.invoked)
        if position and best[position - 1].result > read.result:
            found.append(f"went back: {best[position - 1].brief()}, then {read.brief()}")
    return found
