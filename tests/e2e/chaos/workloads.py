"""What clients do: statements against the cluster, each recorded as one operation.

Every workload has tables, a way to draw the next operation of a client, and a way to read the end
state of a node. Values written are unique, so that a checker can tell who wrote what it reads.
"""

from __future__ import annotations

import dataclasses
import random
from abc import ABC, abstractmethod
from typing import Any

import duckdb

from chaos.checkers.bank import BankState, check_bank
from chaos.checkers.counter import check_counters
from chaos.checkers.linearizability import check_registers
from chaos.checkers.lists import check_lists
from chaos.checkers.rows import check_rows
from chaos.history import Operation, Verdict

Session = duckdb.DuckDBPyConnection


@dataclasses.dataclass
class Client:
    """One client of a workload.

    Attributes:
        name: unique in the run.
        number: unique in the run; makes its values unique.
        draw: its own random source.
        fresh: whether it attached with linearizable consistency.
        count: operations begun so far.
        elapsed_s: since the run began.

    """

    name: str
    number: int
    draw: random.Random
    fresh: bool
    count: int = 0
    elapsed_s: float = 0.0

    def unique(self) -> int:
        """Return a number that no other operation of the run has."""
        return self.count * 1000 + self.number


class Workload(ABC):
    """One kind of load with its checker."""

    name: str

    @abstractmethod
    def create(self, session: Session) -> None:
        """Make and fill the tables."""

    @abstractmethod
    def next(self, client: Client) -> Operation:
        """Draw what the client does next."""

    @abstractmethod
    def run(self, session: Session, operation: Operation) -> Any:
        """Do it; return the result, or raise what the session raised."""

    @abstractmethod
    def end_state(self, session: Session) -> Any:
        """Read everything on one node."""

    @abstractmethod
    def check(self, history: list[Operation], final: dict[str, Any]) -> Verdict:
        """Judge the history and the end states by node."""


def in_transaction(session: Session, statements: list[str]) -> list[list[tuple[Any, ...]]]:
    """Run statements in one explicit transaction; roll back what fails and raise its error."""
    answers = []
    session.execute("BEGIN")
    try:
        for statement in statements:
            answers.append(session.execute(statement).fetchall())
        session.execute("COMMIT")
    except BaseException:
        try:
            session.execute("ROLLBACK")
        except duckdb.Error:
            pass  # the failed COMMIT has ended the transaction already
        raise
    return answers


class Registers(Workload):
    """Blind writes and reads of a few rows by primary key, autocommit and in transactions."""

    name = "registers"
    keys = 8

    def create(self, session: Session) -> None:
        session.execute("CREATE TABLE cp.main.registers (k INTEGER PRIMARY KEY, v BIGINT)")
        session.execute(
            f"INSERT INTO cp.main.registers SELECT range::INTEGER, 0 FROM range({self.keys})"
        )

    def next(self, client: Client) -> Operation:
        key = client.draw.randrange(self.keys)
        if client.draw.random() < 0.5:
            return Operation(client.name, "read", key, fresh=client.fresh)
        return Operation(client.name, "write", key, client.unique())

    def run(self, session: Session, operation: Operation) -> Any:
        key, value = operation.key, operation.value
        if operation.kind == "read":
            return session.execute(f"SELECT v FROM cp.main.registers WHERE k = {key}").fetchall()[
                0
            ][0]
        upsert = f"INSERT INTO cp.main.registers VALUES ({key}, {value}) ON CONFLICT (k) DO UPDATE SET v = excluded.v"
        update = f"UPDATE cp.main.registers SET v = {value} WHERE k = {key}"
        if value % 5 == 0:
            session.execute(upsert)
        elif value % 5 == 1:
            in_transaction(session, [update])
        else:
            session.execute(update)
        return None

    def end_state(self, session: Session) -> dict[int, int]:
        return dict(session.execute("SELECT k, v FROM cp.main.registers").fetchall())

    def check(self, history: list[Operation], final: dict[str, dict[int, int]]) -> Verdict:
        end = max((op.invoked for op in history), default=0)
        end = max(end, *(op.completed for op in history if op.outcome == "ok"), 0) + 1
        reads = [
            Operation(
                f"final state of {node}", "read", key, None, end, end + 1, "ok", values.get(key)
            )
            for node, values in final.items()
            for key in range(self.keys)
        ]
        return check_registers(history + reads)


class Rows(Workload):
    """Inserts into a table without a key: single rows, and batches streamed from local data."""

    name = "rows"
    part_s = 5  # seconds of load that share a part

    def create(self, session: Session) -> None:
        session.execute("CREATE TABLE cp.main.unique_rows (part BIGINT, id BIGINT)")

    def next(self, client: Client) -> Operation:
        part = int(client.elapsed_s / self.part_s)
        if client.draw.random() < 0.1:
            read = max(0, part - client.draw.randrange(3))
            return Operation(client.name, "read", read, fresh=client.fresh)
        count = 1 if client.draw.random() < 0.7 else client.draw.randrange(2, 200)
        return Operation(client.name, "insert", part, [client.unique() * 1000, count])

    def run(self, session: Session, operation: Operation) -> Any:
        part = operation.key
        if operation.kind == "read":
            query = f"SELECT id FROM cp.main.unique_rows WHERE part = {part} ORDER BY id"
            return [row[0] for row in session.execute(query).fetchall()]
        first, count = operation.value
        single = f"INSERT INTO cp.main.unique_rows VALUES ({part}, {first})"
        if count == 1:
            session.execute(single)
        elif count % 3 == 0:
            rows = ", ".join(f"({part}, {first + n})" for n in range(count))
            in_transaction(session, [f"INSERT INTO cp.main.unique_rows VALUES {rows}"])
        else:
            session.execute(
                "CREATE OR REPLACE TEMP TABLE piece AS SELECT range AS id FROM range(0)"
            )
            session.execute(f"INSERT INTO piece SELECT range FROM range({first}, {first + count})")
            session.execute(f"INSERT INTO cp.main.unique_rows SELECT {part}, id FROM piece")
        return None

    def end_state(self, session: Session) -> list[int]:
        rows = session.execute("SELECT id FROM cp.main.unique_rows").fetchall()
        return [row[0] for row in rows]

    def check(self, history: list[Operation], final: dict[str, list[int]]) -> Verdict:
        return check_rows(history, final)


class SingleRows(Rows):
    """Nothing but single rows, without reads: for runs that bring reads of their own."""

    name = "single_rows"

    def next(self, client: Client) -> Operation:
        return Operation(client.name, "insert", 0, [client.unique(), 1])


class Bank(Workload):
    """Transfers between accounts in two tables, with a ledger; reads of all in one snapshot."""

    name = "bank"
    accounts = 16
    opening = 100

    def create(self, session: Session) -> None:
        for table, rest in (("bank_even", 0), ("bank_odd", 1)):
            session.execute(
                f"CREATE TABLE cp.main.{table} (id INTEGER PRIMARY KEY, balance BIGINT)"
            )
            session.execute(
                f"INSERT INTO cp.main.{table} SELECT range::INTEGER, {self.opening} "
                f"FROM range({self.accounts}) WHERE range % 2 = {rest}"
            )
        session.execute(
            "CREATE TABLE cp.main.bank_ledger (key VARCHAR, source INTEGER, target INTEGER, amount BIGINT)"
        )

    def next(self, client: Client) -> Operation:
        if client.draw.random() < 0.4:
            return Operation(client.name, "read", fresh=client.fresh)
        source, target = client.draw.sample(range(self.accounts), 2)
        moved = [source, target, client.draw.randint(1, 20)]
        return Operation(client.name, "transfer", f"t{client.unique()}", moved)

    def _table(self, account: int) -> str:
        return "cp.main.bank_odd" if account % 2 else "cp.main.bank_even"

    def run(self, session: Session, operation: Operation) -> Any:
        if operation.kind == "read":
            even, odd, rows = in_transaction(
                session,
                [
                    "SELECT sum(balance)::BIGINT FROM cp.main.bank_even",
                    "SELECT sum(balance)::BIGINT FROM cp.main.bank_odd",
                    "SELECT count(*) FROM cp.main.bank_ledger",
                ],
            )
            return [even[0][0] + odd[0][0], rows[0][0]]
        source, target, amount = operation.value
        take = f"UPDATE {self._table(source)} SET balance = balance - {amount} WHERE id = {source}"
        give = f"UPDATE {self._table(target)} SET balance = balance + {amount} WHERE id = {target}"
        note = f"INSERT INTO cp.main.bank_ledger VALUES ('{operation.key}', {source}, {target}, {amount})"
        in_transaction(session, [take, give, note])
        return None

    def end_state(self, session: Session) -> BankState:
        balances = session.execute("FROM cp.main.bank_even").fetchall()
        balances += session.execute("FROM cp.main.bank_odd").fetchall()
        return BankState(dict(balances), session.execute("FROM cp.main.bank_ledger").fetchall())

    def check(self, history: list[Operation], final: dict[str, BankState]) -> Verdict:
        return check_bank(history, final, self.accounts, self.opening)


class Lists(Workload):
    """Explicit transactions that read lists and append to them."""

    name = "lists"
    window_s = 10  # after that long other lists are used, so that none grows without end
    keys_per_window = 4
    keys_max = 4000

    def create(self, session: Session) -> None:
        session.execute("CREATE TABLE cp.main.lists (k INTEGER PRIMARY KEY, v BIGINT[])")
        session.execute(
            f"INSERT INTO cp.main.lists SELECT range::INTEGER, [] FROM range({self.keys_max})"
        )

    def next(self, client: Client) -> Operation:
        base = int(client.elapsed_s / self.window_s) * self.keys_per_window
        micro: list[list[Any]] = []
        for part in range(client.draw.randint(1, 4)):
            key = (base + client.draw.randrange(2 * self.keys_per_window)) % self.keys_max
            if client.draw.random() < 0.5:
                micro.append(["r", key, None])
            else:
                micro.append(["append", key, client.unique() * 10 + part])
        return Operation(client.name, "txn", None, micro, fresh=client.fresh)

    def run(self, session: Session, operation: Operation) -> Any:
        statements = []
        for what, key, value in operation.value:
            if what == "r":
                statements.append(f"SELECT v FROM cp.main.lists WHERE k = {key}")
            else:
                statements.append(
                    f"UPDATE cp.main.lists SET v = list_append(v, {value}::BIGINT) WHERE k = {key}"
                )
        answers = in_transaction(session, statements)
        return [
            [what, key, answer[0][0] if what == "r" else value]
            for (what, key, value), answer in zip(operation.value, answers, strict=True)
        ]

    def end_state(self, session: Session) -> dict[int, list[int]]:
        rows = session.execute("SELECT k, v FROM cp.main.lists WHERE len(v) > 0").fetchall()
        return dict(rows)

    def check(self, history: list[Operation], final: dict[str, dict[int, list[int]]]) -> Verdict:
        return check_lists(history, final, "snapshot")


class Counters(Workload):
    """Autocommit increments of hot rows; the server retries their conflicts."""

    name = "counter"
    keys = 2

    def create(self, session: Session) -> None:
        session.execute("CREATE TABLE cp.main.counters (k INTEGER PRIMARY KEY, n BIGINT)")
        session.execute(
            f"INSERT INTO cp.main.counters SELECT range::INTEGER, 0 FROM range({self.keys})"
        )

    def next(self, client: Client) -> Operation:
        key = client.draw.randrange(self.keys)
        if client.draw.random() < 0.3:
            return Operation(client.name, "read", key, fresh=client.fresh)
        return Operation(client.name, "add", key, 1)

    def run(self, session: Session, operation: Operation) -> Any:
        key = operation.key
        if operation.kind == "read":
            return session.execute(f"SELECT n FROM cp.main.counters WHERE k = {key}").fetchall()[0][
                0
            ]
        session.execute(f"UPDATE cp.main.counters SET n = n + 1 WHERE k = {key}")
        return None

    def end_state(self, session: Session) -> dict[int, int]:
        return dict(session.execute("SELECT k, n FROM cp.main.counters").fetchall())

    def check(self, history: list[Operation], final: dict[str, dict[int, int]]) -> Verdict:
        return check_counters(history, final)


WORKLOADS: dict[str, Workload] = {
    one.name: one for one in (Registers(), Rows(), Bank(), Lists(), Counters(), SingleRows())
}
#: What the main run does at once.
SOAK = ["registers", "rows", "bank", "lists", "counter"]
