"""Does every read of all accounts see the same total, and does the ledger explain the balances?

Accounts lie in two tables; a "transfer" moves `value = [from, to, amount]` and writes one ledger
row named by `key` in the same transaction. A "read" returns `[total, ledger_rows]`, both taken from
one snapshot.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import Counter

from chaos.history import Operation, Verdict


@dataclasses.dataclass
class BankState:
    """What a node holds in the end: balances by account, and the ledger as (key, from, to, amount)."""

    balances: dict[int, int]
    ledger: list[tuple[str, int, int, int]]


def check_bank(
    history: list[Operation], final: dict[str, BankState], accounts: int, opening: int
) -> Verdict:
    """Check totals at every read and the books of every node at the end.

    Args:
        history: "transfer" and "read" operations.
        final: by node.
        accounts: their number, named 0 … accounts-1.
        opening: the balance each started with.

    """
    total = accounts * opening
    transfers = {op.key: op for op in history if op.kind == "transfer"}
    anomalies: list[str] = []
    for node, state in sorted(final.items()):
        anomalies += _books(node, state, transfers, accounts, opening)
    reads = [op for op in history if op.kind == "read" and op.outcome == "ok"]
    for read in reads:
        if read.result[0] != total:
            anomalies.append(f"total {read.result[0]} instead of {total}: {read.brief()}")
    anomalies += _ledger_sizes(reads, list(transfers.values()))
    outcomes = Counter(op.outcome for op in transfers.values())
    return Verdict.of("bank", anomalies, transfers=dict(outcomes), reads=len(reads), total=total)


def _ledger_sizes(reads: list[Operation], transfers: list[Operation]) -> list[str]:
    """A fresh read counts at least what was acknowledged before it and at most what was asked."""
    done = sorted(op.completed for op in transfers if op.outcome == "ok")
    asked = sorted(op.invoked for op in transfers if op.outcome != "fail")
    found = []
    for read in reads:
        at_least = _before(done, read.invoked) if read.fresh else 0
        at_most = _before(asked, read.completed)
        if not at_least <= read.result[1] <= at_most:
            found.append(f"ledger size outside {at_least} to {at_most}: {read.brief()}")
    return found


def _before(times: list[int], moment: int) -> int:
    return bisect.bisect_left(times, moment)


def _books(
    node: str,
    state: BankState,
    transfers: dict[str, Operation],
    accounts: int,
    opening: int,
) -> list[str]:
    found = []
    wanted = dict.fromkeys(range(accounts), opening)
    rows = Counter(row[0] for row in state.ledger)
    for key, source, target, amount in state.ledger:
        transfer = transfers.get(key)
        if transfer is None:
            found.append(f"{node}: ledger row {key} that nobody wrote")
        elif transfer.outcome == "fail":
            found.append(f"{node}: failed but in the ledger: {transfer.brief()}")
        elif list(transfer.value) != [source, target, amount]:
            found.append(f"{node}: ledger row {key} differs from {transfer.brief()}")
        wanted[source] -= amount
        wanted[target] += amount
    found += [f"{node}: ledger row {key} is there {n} times" for key, n in rows.items() if n > 1]
    found += [
        f"{node}: lost {transfer.brief()}"
        for key, transfer in transfers.items()
        if transfer.outcome == "ok" and key not in rows
    ]
    if state.balances != wanted:
        wrong = {
            account: (state.balances.get(account), wanted.get(account))
            for account in sorted({*state.balances, *wanted})
            if state.balances.get(account) != wanted.get(account)
        }
        found.append(f"{node}: balances against the ledger's (has, should have): {wrong}")
    return found
