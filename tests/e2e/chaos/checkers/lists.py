"""Which orders of transactions explain the lists they read? Cycles show the anomalies.

Transactions append numbers, each written once, to lists and read whole lists. A list that was read
tells the order of its appends, hence all dependencies (Kingsbury and Alvaro, "Elle", VLDB 2020):
ww from the order of a list, wr from the last element read, rw from the element after it.

Anomalies, after Adya:
  G0            cycle of ww edges: writes interleaved
  G1a           read of an element whose transaction failed
  G1b           read of a state in the middle of a transaction
  G1c           cycle of ww and wr edges
  G-single      cycle with exactly one rw edge (read skew, lost update)
  G-nonadjacent cycle in which no two rw edges follow each other
  G2            any cycle with rw edges; with two in a row it is write skew

Snapshot isolation forbids all but the last: **write skew (G2 with two rw edges in a row) is allowed
and only counted**; `isolation="serializable"` forbids it too. Cycles are searched once by data alone,
and once with order edges, which hold a session to its own order and transactions that asked for
fresh reads to real time; those are named with "-realtime".
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections import Counter, defaultdict
from typing import Any, Literal

from chaos.checkers.cycles import Edge, Graph
from chaos.history import FOREVER, Operation, Verdict

Isolation = Literal["snapshot", "serializable"]


@dataclasses.dataclass
class _Read:
    """A read of what other transactions wrote: its own appends are cut off."""

    reader: int
    key: Any
    values: list[Any]


class _Lists:
    """The history, sorted out."""

    def __init__(self, history: list[Operation], final: dict[str, dict[Any, list[Any]]]) -> None:
        self.transactions = [op for op in history if op.kind == "txn"]
        for node, lists in sorted(final.items()):
            micro = [["r", key, values] for key, values in sorted(lists.items(), key=repr)]
            last = Operation(
                f"final state of {node}", "txn", invoked=FOREVER - 2, completed=FOREVER - 1
            )
            last.outcome, last.result, last.value = "ok", micro, micro
            self.transactions.append(last)
        self.anomalies: list[str] = []
        self.writer: dict[tuple[Any, Any], int] = {}
        self.last_of: dict[tuple[int, Any], Any] = {}
        self.reads: list[_Read] = []
        self.order: dict[Any, list[Any]] = defaultdict(list)
        self._note_writers()
        self._note_reads()
        self._find_orders()

    def name(self, number: int) -> str:
        op = self.transactions[number]
        return f"T{number}({op.client})"

    def _note_writers(self) -> None:
        for number, op in enumerate(self.transactions):
            for what, key, value in op.value or []:
                if what == "append":
                    if (key, value) in self.writer:
                        raise ValueError(f"{value!r} is appended twice to list {key!r}")
                    self.writer[key, value] = number
                    self.last_of[number, key] = value

    def _note_reads(self) -> None:
        for number, op in enumerate(self.transactions):
            if op.outcome != "ok" or op.result is None:
                continue
            known: dict[Any, list[Any]] = {}
            own: dict[Any, list[Any]] = defaultdict(list)
            for what, key, value in op.result:
                if what == "append":
                    own[key].append(value)
                    if key in known:
                        known[key] = [*known[key], value]
                    continue
                values = list(value or [])
                if key in known:
                    if known[key] != values:
                        self.anomalies.append(
                            f"internal: {self.name(number)} read {values} from list {key!r} "
                            f"after {known[key]}"
                        )
                    continue
                known[key] = values
                cut = len(values) - len(own[key])
                if values[cut:] != own[key]:
                    self.anomalies.append(
                        f"internal: {self.name(number)} does not see its own appends "
                        f"{own[key]} in list {key!r}: {values}"
                    )
                    cut = len(values)
                self.reads.append(_Read(number, key, values[:cut]))

    def _find_orders(self) -> None:
        for read in self.reads:
            if len(read.values) > len(self.order[read.key]):
                self.order[read.key] = read.values
        for read in self.reads:
            longest = self.order[read.key]
            if longest[: len(read.values)] != read.values:
                self.anomalies.append(
                    f"incompatible order: list {read.key!r} read by {self.name(read.reader)} as "
                    f"{_tail(read.values)} is no beginning of {_tail(longest)}"
                )
        for key, values in self.order.items():
            double = [value for value, count in Counter(map(repr, values)).items() if count > 1]
            if double:
                self.anomalies.append(f"duplicated: list {key!r} holds {double[:5]} more than once")


def _tail(values: list[Any]) -> str:
    return repr(values) if len(values) <= 12 else f"[… {len(values) - 8} …, {values[-8:]!r}]"


def check_lists(
    history: list[Operation],
    final: dict[str, dict[Any, list[Any]]],
    isolation: Isolation = "snapshot",
) -> Verdict:
    """Check "txn" operations.

    Args:
        history: `value` is the transaction as asked, `result` as answered: a list of
            `["append", key, element]` and `["r", key, elements]`.
        final: the lists by node after everything came to rest.
        isolation: what was promised.

    """
    lists = _Lists(history, final)
    anomalies = lists.anomalies + _dirty_reads(lists)
    if final:
        anomalies += _lost(lists)
    skews = 0
    if not any(text.startswith(("incompatible", "duplicated")) for text in anomalies):
        found, skews = _cycles(lists, isolation)
        anomalies += found
    outcomes = Counter(
        op.outcome for op in lists.transactions[: len(lists.transactions) - len(final)]
    )
    return Verdict.of(
        "lists",
        anomalies,
        isolation=isolation,
        transactions=dict(outcomes),
        lists=len(lists.order),
        longest=max(map(len, lists.order.values()), default=0),
        write_skews_allowed=skews,
    )


def _dirty_reads(lists: _Lists) -> list[str]:
    found = []
    for read in lists.reads:
        where = f"list {read.key!r} read by {lists.name(read.reader)}"
        for value in read.values:
            number = lists.writer.get((read.key, value))
            if number is None:
                found.append(f"garbage: {value!r}, which nobody appended, in {where}")
            elif lists.transactions[number].outcome == "fail":
                failed = lists.transactions[number].brief()
                found.append(f"G1a: {where} holds {value!r} of a failed transaction: {failed}")
        if read.values:
            number = lists.writer.get((read.key, read.values[-1]), -1)
            last = lists.last_of.get((number, read.key))
            if number >= 0 and last != read.values[-1]:
                found.append(
                    f"G1b: {where} ends with {read.values[-1]!r}, in the middle of "
                    f"{lists.name(number)}, which appends up to {last!r}"
                )
    return found


def _lost(lists: _Lists) -> list[str]:
    """Acknowledged appends are in the end state; of an unknown transaction all or none are."""
    found = []
    present = {(key, value) for key, values in lists.order.items() for value in values}
    for number, op in enumerate(lists.transactions):
        appends = [(key, value) for what, key, value in op.value or [] if what == "append"]
        missing = [one for one in appends if one not in present]
        if op.outcome == "ok" and missing:
            found.append(f"lost: {missing} of {lists.name(number)}: {op.brief()}")
        elif op.outcome == "unknown" and 0 < len(missing) < len(appends):
            found.append(f"half applied: {missing} missing of {op.brief()}")
    return found


def _data_edges(lists: _Lists) -> list[Edge]:
    edges = []
    for key, values in lists.order.items():
        for before, after in itertools.pairwise(values):
            first, second = lists.writer.get((key, before)), lists.writer.get((key, after))
            if first is not None and second is not None:
                why = f"list {key!r}: {before!r} before {after!r}"
                edges.append(Edge(first, second, "ww", why))
    for read in lists.reads:
        order, length = lists.order[read.key], len(read.values)
        if read.values:
            writer = lists.writer.get((read.key, read.values[-1]))
            if writer is not None:
                why = f"list {read.key!r}: read up to {read.values[-1]!r}"
                edges.append(Edge(writer, read.reader, "wr", why))
        if length < len(order):
            writer = lists.writer.get((read.key, order[length]))
            if writer is not None:
                why = f"list {read.key!r}: read without {order[length]!r}"
                edges.append(Edge(read.reader, writer, "rw", why))
    return edges


def _order_edges(lists: _Lists) -> list[Edge]:
    """A session's transactions in their order; a fresh one after all that had ended before it."""
    edges = []
    by_client: dict[str, int] = {}
    done = []
    for number, op in sorted(enumerate(lists.transactions), key=lambda one: one[1].invoked):
        if op.outcome == "ok":
            if op.client in by_client:
                edges.append(Edge(by_client[op.client], number, "order", "next in its session"))
            by_client[op.client] = number
            done.append((op.completed, number))
    done.sort()
    for position, (_, number) in enumerate(done):
        edges.append(Edge(number, ("time", position), "order", "ended before"))
        edges.append(Edge(("time", position), ("time", position + 1), "order"))
    ends = [end for end, _ in done]
    for number, op in enumerate(lists.transactions):
        position = bisect.bisect_left(ends, op.invoked) - 1
        if op.fresh and op.outcome != "fail" and position >= 0:
            edges.append(Edge(("time", position), number, "order", "began"))
    return edges


def _cycles(lists: _Lists, isolation: Isolation) -> tuple[list[str], int]:
    """Return the forbidden cycles in words, and the number of write skews that are allowed."""
    data = _data_edges(lists)
    found: list[str] = []
    for suffix, edges in (("", data), ("-realtime", data + _order_edges(lists))):
        graph = Graph(edges)
        extra = ("order",) if suffix else ()
        found += _named(lists, graph.only("ww", *extra), "G0" + suffix)
        if not found:
            found += _named(lists, graph.only("ww", "wr", *extra), "G1c" + suffix)
        if not found:
            found += _named(lists, graph.no_two_rw_in_a_row(), "G-nonadjacent" + suffix)
        if found:
            return found, 0
    full = Graph(data if isolation == "snapshot" else data + _order_edges(lists))
    skews = _named(lists, full, "G2")
    return (skews, 0) if isolation == "serializable" else ([], len(skews))


def _is_rw(edge: Edge) -> bool:
    return edge.kind == "rw"


def _named(lists: _Lists, graph: Graph, name: str) -> list[str]:
    found = []
    for component in graph.components():
        cycle = graph.shortest_cycle(component, _is_rw, back=lambda edge: not _is_rw(edge))
        cycle = cycle or graph.shortest_cycle(component, _is_rw)
        cycle = cycle or graph.shortest_cycle(component, lambda edge: edge.kind != "order")
        single = sum(edge.kind == "rw" for edge in cycle) == 1
        shown = name.replace("G-nonadjacent", "G-single") if single else name
        found.append(f"{shown}: {_in_words(lists, cycle)}")
    return found


def _in_words(lists: _Lists, cycle: list[Edge]) -> str:
    steps = []
    for edge in cycle:
        source = edge.source[0] if isinstance(edge.source, tuple) else edge.source
        if isinstance(source, tuple):  # (time, came by rw)
            source = "time"
        name = lists.name(source) if isinstance(source, int) else "(time)"
        if name != "(time)" or not steps or steps[-1] != "(time)":
            steps.append(name if edge.kind == "order" else f"{name} -{edge.kind}[{edge.why}]->")
    members = sorted(
        {n for edge in cycle for n in _numbers_of(edge)},
        key=lambda n: lists.transactions[n].invoked,
    )
    details = "; ".join(f"T{n} = {lists.transactions[n].brief()}" for n in members[:6])
    return f"{' '.join(steps)} back to the first. {details}"


def _numbers_of(edge: Edge) -> list[int]:
    node = edge.source
    while isinstance(node, tuple):
        node = node[0]
    return [node] if isinstance(node, int) else []
