"""Goal: each checker accepts clean histories and names every planted anomaly."""

from __future__ import annotations

import pathlib
import random
from typing import Any

import pytest

from chaos.checkers.bank import BankState, check_bank
from chaos.checkers.counter import check_counters
from chaos.checkers.linearizability import check_registers
from chaos.checkers.lists import check_lists
from chaos.checkers.rows import check_rows
from chaos.history import FOREVER, Operation, Recorder, Verdict, load


def op(
    client: str, kind: str, begin: int, end: int | None, outcome: str = "ok", **fields: Any
) -> Operation:
    operation = Operation(client, kind, invoked=begin, **fields)
    operation.completed = FOREVER if end is None else end
    operation.outcome = outcome  # type: ignore[assignment]
    return operation


def write(client: str, value: int, begin: int, end: int | None, outcome: str = "ok") -> Operation:
    return op(client, "write", begin, end, outcome, key="x", value=value)


def read(client: str, value: int, begin: int, end: int, fresh: bool = True) -> Operation:
    return op(client, "read", begin, end, key="x", result=value, fresh=fresh)


def clean(verdict: Verdict) -> None:
    assert verdict.ok, verdict.anomalies


def names(verdict: Verdict, *words: str) -> None:
    assert not verdict.ok
    for word in words:
        assert any(word in text for text in verdict.anomalies), verdict.anomalies


# ---- registers


def test_concurrent_writes_and_reads_are_linearizable() -> None:
    clean(
        check_registers(
            [
                read("c", 0, 0, 1),
                write("a", 1, 2, 10),
                write("b", 2, 3, 9),
                read("c", 1, 4, 5),
                read("d", 2, 6, 7),
                read("c", 2, 11, 12),
            ]
        )
    )


@pytest.mark.parametrize(
    ("history", "why"),
    [
        ([write("a", 1, 0, 1), read("b", 0, 2, 3)], "stale read"),
        ([write("a", 1, 0, 9), read("b", 1, 2, 3), read("c", 0, 4, 5)], "read goes back"),
        ([write("a", 1, 0, 1), write("a", 2, 2, 3), read("b", 1, 4, 5)], "lost write"),
        ([read("b", 7, 0, 1), write("a", 7, 2, 3)], "read from the future"),
        ([read("b", 5, 0, 1)], "value from nowhere"),
        (
            [
                write("a", 1, 0, 1),
                write("b", 2, 2, None, "unknown"),
                read("c", 2, 3, 4),
                read("c", 1, 5, 6),
            ],
            "an unknown write that was read cannot be unread",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_register_anomalies(history: list[Operation], why: str) -> None:
    names(check_registers(history), "not linearizable")


def test_unknown_write_may_take_effect_late_or_never() -> None:
    pending = write("a", 1, 0, None, "unknown")
    clean(check_registers([pending, read("b", 0, 2, 3), read("b", 0, 500, 501)]))
    clean(check_registers([pending, read("b", 0, 2, 3), read("b", 1, 500, 501)]))


def test_failed_write_has_no_effect() -> None:
    failed = write("a", 1, 0, 1, "fail")
    clean(check_registers([failed, read("b", 0, 2, 3)]))
    names(check_registers([failed, read("b", 1, 2, 3)]), "reported as failed, yet read")


def test_reads_that_may_be_old_do_not_bind() -> None:
    clean(check_registers([write("a", 1, 0, 1), read("b", 0, 2, 3, fresh=False)]))


def test_keys_are_checked_apart() -> None:
    stale = [write("a", 1, 0, 1), read("b", 0, 2, 3)]
    for operation in stale:
        operation.key = "y"
    names(check_registers([write("a", 2, 0, 1), read("b", 2, 2, 3), *stale]), "'y'")


def simulated_register(seed: int, operations: int, clients: int = 6) -> list[Operation]:
    """A history of a correct register: each operation takes effect at one moment inside it."""
    draw = random.Random(seed)
    value, history, now = 0, [], 0
    busy: dict[str, tuple[Operation, int]] = {}
    names_ = [f"c{n}" for n in range(clients)]
    for number in range(1, operations + 1):
        now += 2
        client = draw.choice(names_)
        if client in busy:
            operation, _ = busy.pop(client)
            operation.completed = now
        kind = draw.choice(["read", "write"])
        effect = now + 1
        operation = op(client, kind, now, now + 1)
        operation.key = "x"
        if kind == "write":
            value = operation.value = number
            if draw.random() < 0.1:
                operation.outcome, operation.completed = "unknown", FOREVER
        else:
            operation.result = value
        if operation.outcome == "ok":
            busy[client] = (operation, effect)
        history.append(operation)
    for operation, _ in busy.values():
        operation.completed = now + 10
    return history


@pytest.mark.parametrize("seed", range(10))
def test_long_histories_are_decided_quickly(seed: int) -> None:
    history = simulated_register(seed, 3000)
    verdict = check_registers(history)
    clean(verdict)
    assert verdict.figures["steps"] < 200_000
    victim = next(o for o in history[1500:] if o.kind == "read" and o.outcome == "ok")
    victim.result = next(o.value for o in history if o.kind == "write" and o.outcome == "ok")
    names(check_registers(history), "not linearizable")


def test_search_that_cannot_decide_is_not_ok() -> None:
    names(check_registers(simulated_register(1, 200), steps_max=10), "undecided")


# ---- rows


def insert(first: int, count: int, begin: int, end: int | None, outcome: str = "ok") -> Operation:
    return op("a", "insert", begin, end, outcome, key=0, value=[first, count])


def test_rows_clean() -> None:
    history = [
        insert(0, 3, 0, 1),
        insert(10, 2, 2, 3, "fail"),
        insert(20, 2, 4, None, "unknown"),
        insert(30, 2, 4, None, "unknown"),
        op("b", "read", 5, 6, key=0, result=[0, 1, 2, 20, 21]),
    ]
    clean(check_rows(history, {"n0": [0, 1, 2, 20, 21], "n1": [20, 21, 2, 1, 0]}))


@pytest.mark.parametrize(
    ("final", "word"),
    [
        ([0, 1, 20, 21], "lost 1 rows"),
        ([0, 1, 2, 2], "duplicated 1 rows"),
        ([0, 1, 2, 10, 11], "failed but there"),
        ([0, 1, 2, 20], "half applied"),
        ([0, 1, 2, 99], "rows nobody inserted"),
    ],
)
def test_rows_anomalies_at_the_end(final: list[int], word: str) -> None:
    history = [
        insert(0, 3, 0, 1),
        insert(10, 2, 2, 3, "fail"),
        insert(20, 2, 4, None, "unknown"),
    ]
    names(check_rows(history, {"n0": final}), word)


@pytest.mark.parametrize(
    ("seen", "word"),
    [
        ([], "stale read"),
        ([0, 1], "read half"),
        ([0, 1, 2, 2], "read twice"),
        ([0, 1, 2, 40], "read from the future"),
        ([0, 1, 2, 10, 11], "read of a failed insert"),
        ([0, 1, 2, 20, 21], "vanished"),
    ],
)
def test_rows_anomalies_on_the_way(seen: list[int], word: str) -> None:
    history = [
        insert(0, 3, 0, 1),
        insert(10, 2, 2, 3, "fail"),
        insert(20, 2, 4, None, "unknown"),
        op("b", "read", 5, 6, key=0, result=seen),
        insert(40, 1, 7, 8),
    ]
    names(check_rows(history, {"n0": [0, 1, 2, 40]}), word)


# ---- bank


def bank_history() -> list[Operation]:
    return [
        op("a", "transfer", 0, 1, key="t1", value=[0, 1, 30]),
        op("a", "transfer", 2, 3, "fail", key="t2", value=[1, 0, 5]),
        op("b", "read", 4, 5, result=[200, 1]),
        op("a", "transfer", 6, None, "unknown", key="t3", value=[1, 0, 7]),
        op("b", "read", 8, 9, result=[200, 1]),
    ]


def test_bank_clean_with_and_without_the_unknown_transfer() -> None:
    without = BankState({0: 70, 1: 130}, [("t1", 0, 1, 30)])
    having = BankState({0: 77, 1: 123}, [("t1", 0, 1, 30), ("t3", 1, 0, 7)])
    clean(check_bank(bank_history(), {"n0": without, "n1": without}, 2, 100))
    clean(check_bank(bank_history(), {"n0": having}, 2, 100))


@pytest.mark.parametrize(
    ("state", "word"),
    [
        (BankState({0: 70, 1: 100}, [("t1", 0, 1, 30)]), "balances against the ledger"),
        (BankState({0: 100, 1: 100}, []), "lost"),
        (BankState({0: 40, 1: 160}, [("t1", 0, 1, 30)] * 2), "2 times"),
        (BankState({0: 75, 1: 125}, [("t1", 0, 1, 30), ("t2", 1, 0, 5)]), "failed but"),
        (BankState({0: 70, 1: 130}, [("t1", 0, 1, 30), ("z", 0, 1, 0)]), "nobody wrote"),
        (BankState({0: 60, 1: 140}, [("t1", 0, 1, 40)]), "differs"),
    ],
)
def test_bank_anomalies_in_the_books(state: BankState, word: str) -> None:
    names(check_bank(bank_history(), {"n0": state}, 2, 100), word)


def test_bank_anomalies_of_reads() -> None:
    state = BankState({0: 70, 1: 130}, [("t1", 0, 1, 30)])
    torn = [*bank_history(), op("b", "read", 10, 11, result=[170, 1])]
    names(check_bank(torn, {"n0": state}, 2, 100), "total 170 instead of 200")
    stale = [*bank_history(), op("b", "read", 10, 11, result=[200, 0])]
    names(check_bank(stale, {"n0": state}, 2, 100), "ledger size outside 1 to 2")
    old = [*bank_history(), op("b", "read", 10, 11, result=[200, 0], fresh=False)]
    clean(check_bank(old, {"n0": state}, 2, 100))


# ---- counter


def add(begin: int, end: int | None, outcome: str = "ok") -> Operation:
    return op("a", "add", begin, end, outcome, key=1, value=1)


def count(value: int, begin: int, end: int) -> Operation:
    return op("b", "read", begin, end, key=1, result=value)


def test_counter_clean() -> None:
    history = [
        add(0, 1),
        add(2, 3, "fail"),
        count(1, 4, 5),
        add(6, None, "unknown"),
        count(2, 7, 8),
        add(9, 12),
        count(2, 10, 11),
    ]
    clean(check_counters(history, {"n0": {1: 3}, "n1": {1: 3}}))


@pytest.mark.parametrize(
    ("history", "end", "word"),
    [
        ([add(0, 1), count(0, 2, 3)], 1, "outside 1 to 1"),
        ([add(0, 1), count(2, 2, 3)], 1, "outside 1 to 1"),
        ([add(0, 1)], 2, "ends at 2, expected 1 to 1"),
        ([add(0, 1), add(2, 3, "fail")], 2, "ends at 2"),
        ([add(0, 1)], 0, "ends at 0"),
        ([add(0, None, "unknown"), count(1, 2, 3), count(0, 4, 5)], 1, "went back"),
    ],
)
def test_counter_anomalies(history: list[Operation], end: int, word: str) -> None:
    names(check_counters(history, {"n0": {1: end}}), word)


# ---- lists


def txn(client: str, begin: int, end: int | None, *micro: list, outcome: str = "ok") -> Operation:
    operation = op(client, "txn", begin, end, outcome)
    operation.value = [
        [what, key, value if what == "append" else None] for what, key, value in micro
    ]
    operation.result = list(micro) if outcome == "ok" else None
    return operation


def a(key: str, value: int) -> list:
    return ["append", key, value]


def r(key: str, *values: int) -> list:
    return ["r", key, list(values)]


def judge(history: list[Operation], isolation: str = "snapshot", **final: list[int]) -> Verdict:
    return check_lists(history, {"n0": final} if final else {}, isolation)  # type: ignore[arg-type]


def test_lists_clean() -> None:
    history = [
        txn("a", 0, 1, r("x"), a("x", 1), r("x", 1), a("y", 2)),
        txn("b", 2, 3, r("x", 1), r("y", 2), a("x", 3)),
        txn("c", 4, 5, r("x", 1, 3), a("x", 9), outcome="fail"),
        txn("c", 6, None, a("x", 4), a("y", 5), outcome="unknown"),
        txn("d", 7, None, a("x", 6), outcome="unknown"),
        txn("b", 8, 9, r("x", 1, 3, 4), r("y", 2, 5)),
    ]
    clean(judge(history, "serializable", x=[1, 3, 4], y=[2, 5]))


def test_g0() -> None:
    history = [txn("a", 0, 9, a("x", 1), a("y", 1)), txn("b", 0, 9, a("x", 2), a("y", 2))]
    names(judge(history, x=[1, 2], y=[2, 1]), "G0:")


def test_g1a() -> None:
    history = [txn("a", 0, 1, a("x", 1), outcome="fail"), txn("b", 2, 3, r("x", 1))]
    names(judge(history), "G1a")


def test_g1b() -> None:
    history = [txn("a", 0, 9, a("x", 1), a("x", 2)), txn("b", 2, 3, r("x", 1))]
    names(judge(history, x=[1, 2]), "G1b")


def test_g1c() -> None:
    history = [txn("a", 0, 9, a("x", 1), r("y", 2)), txn("b", 0, 9, a("y", 2), r("x", 1))]
    names(judge(history), "G1c:")


def test_g_single_read_skew() -> None:
    history = [txn("a", 0, 9, a("x", 1), a("y", 1)), txn("b", 0, 9, r("x", 1), r("y"))]
    names(judge(history, x=[1], y=[1]), "G-single:")


def test_g_single_lost_update() -> None:
    history = [txn("a", 0, 9, r("x"), a("x", 1)), txn("b", 0, 9, r("x"), a("x", 2))]
    names(judge(history, x=[1, 2]), "G-single:")


def test_g_nonadjacent() -> None:
    """Two rw edges, each followed by a wr edge: forbidden under snapshot isolation."""
    history = [
        txn("a", 0, 9, r("x"), r("w", 4)),
        txn("b", 0, 9, a("x", 1), a("y", 2)),
        txn("c", 0, 9, r("y", 2), r("z")),
        txn("d", 0, 9, a("z", 3), a("w", 4)),
    ]
    names(judge(history, x=[1], y=[2], z=[3], w=[4]), "G-nonadjacent:")


def write_skew() -> list[Operation]:
    return [txn("a", 0, 9, r("x"), a("y", 1)), txn("b", 0, 9, r("y"), a("x", 1))]


def test_write_skew_is_allowed_under_snapshot_isolation_and_counted() -> None:
    verdict = judge(write_skew(), x=[1], y=[1])
    clean(verdict)
    assert verdict.figures["write_skews_allowed"] == 1


def test_write_skew_is_forbidden_under_serializability() -> None:
    names(judge(write_skew(), "serializable", x=[1], y=[1]), "G2:")


def test_stale_read_against_real_time() -> None:
    history = [txn("a", 0, 1, a("x", 1)), txn("b", 2, 3, r("x"))]
    names(judge(history, x=[1]), "G-single-realtime")
    history[1].fresh = False
    clean(judge(history, x=[1]))


def test_session_that_does_not_see_its_own_write() -> None:
    history = [txn("a", 0, 1, a("x", 1)), txn("a", 2, 3, r("x"))]
    history[1].fresh = False
    names(judge(history, x=[1]), "G-single-realtime")


@pytest.mark.parametrize(
    ("history", "final", "word"),
    [
        ([txn("a", 0, 1, a("x", 1))], [], "lost"),
        ([txn("a", 0, 1, a("x", 1))], [1, 1], "duplicated"),
        ([txn("a", 0, 1, a("x", 1))], [1, 2], "garbage"),
        (
            [txn("a", 0, 9, a("x", 1)), txn("b", 0, 9, a("x", 2)), txn("c", 0, 9, r("x", 2))],
            [1, 2],
            "incompatible",
        ),
        ([txn("a", 0, 1, r("x"), r("x", 1)), txn("b", 0, 1, a("x", 1))], [1], "internal"),
        ([txn("a", 0, 1, a("x", 1), r("x"))], [1], "internal"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_list_anomalies_without_cycles(history: list, final: list[int], word: str) -> None:
    names(check_lists(history, {"n0": {"x": final}}), word)


def test_half_of_an_unknown_transaction() -> None:
    history = [txn("a", 0, None, a("x", 1), a("y", 2), outcome="unknown")]
    names(judge(history, x=[1], y=[]), "half applied")


def test_nodes_that_differ_in_the_end() -> None:
    history = [txn("a", 0, 9, a("x", 1)), txn("b", 0, 9, a("x", 2))]
    names(check_lists(history, {"n0": {"x": [1, 2]}, "n1": {"x": [2, 1]}}), "incompatible")


@pytest.mark.parametrize("seed", range(5))
def test_simulated_serial_histories_are_clean_and_a_swap_is_found(seed: int) -> None:
    draw = random.Random(seed)
    state: dict[str, list[int]] = {key: [] for key in "xyzw"}
    history = []
    for number in range(2000):
        micro = []
        for part in range(draw.randint(1, 4)):
            key = draw.choice("xyzw")
            if draw.random() < 0.5:
                state[key] = [*state[key], number * 10 + part]
                micro.append(a(key, number * 10 + part))
            else:
                micro.append(["r", key, state[key][:]])
        history.append(txn(f"c{draw.randrange(5)}", number * 10, number * 10 + 9, *micro))
    clean(check_lists(history, {"n0": state}, "serializable"))
    late = next(
        operation
        for operation in history[1000:]
        if operation.value[0][0] == "r" and len(operation.result) == 1
    )
    late.result[0][2] = late.result[0][2][:-5]
    names(check_lists(history, {"n0": state}, "serializable"), "G-single")


# ---- history files


def test_history_survives_a_killed_client(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "h.jsonl"
    recorder = Recorder(file)
    done, cut = Operation("a", "write", "x", 1), Operation("a", "write", "x", 2)
    number = recorder.invoke(done)
    done.outcome = "ok"
    recorder.complete(number, done)
    recorder.invoke(cut)
    recorder.close()
    with file.open("a") as stream:
        stream.write('{"number": 2, "comp')
    first, second = load(file)
    assert (first.outcome, first.value) == ("ok", 1)
    assert first.invoked <= first.completed < FOREVER
    assert (second.outcome, second.completed) == ("unknown", FOREVER)
