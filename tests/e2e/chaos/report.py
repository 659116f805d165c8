"""Figures of a run, for people and machines."""

from __future__ import annotations

from collections import Counter
from typing import Any

from chaos.history import Operation
from chaos.nemesis import Strike


def quantile(values: list[float], share: float) -> float:
    """Return the value below which that share of the values lies; 0 when there are none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def latencies_ms(history: list[Operation]) -> dict[str, float]:
    """Return quantiles over the acknowledged operations."""
    spent = [(op.completed - op.invoked) / 1e6 for op in history if op.outcome == "ok"]
    return {
        "p50": round(quantile(spent, 0.5), 1),
        "p99": round(quantile(spent, 0.99), 1),
        "max": round(max(spent, default=0.0), 1),
    }


def operations(history: list[Operation]) -> dict[str, Any]:
    """Count outcomes and error codes of one workload."""
    codes = Counter(op.code or "no code" for op in history if op.outcome != "ok" and op.error)
    plain = Counter(
        (op.error or "")[:160] for op in history if op.outcome == "fail" and op.code is None
    )
    return {
        **Counter(op.outcome for op in history),
        "codes": dict(codes),
        "errors_without_code": dict(plain.most_common(5)),
        "resolved": sum(op.resolved in ("committed", "not_committed") for op in history),
        "latency_ms": latencies_ms(history),
    }


def failovers_ms(strikes: list[Strike], histories: list[Operation]) -> list[float]:
    """For each fault that took the leader away: until the first write begun after it was accepted."""
    writes = sorted(
        (op.invoked, op.completed)
        for op in histories
        if op.outcome == "ok" and op.kind not in ("read", "txn")
    )
    found = []
    for strike in strikes:
        if strike.hit_leader and strike.fault.kind in ("kill", "pause", "isolate"):
            ends = [end for begin, end in writes if begin >= strike.began]
            if ends:
                found.append(round((min(ends) - strike.began) / 1e6, 1))
    return found
