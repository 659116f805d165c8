"""A process of clients of one workload: real DuckDB sessions, every operation recorded.

Standard input brings one line of JSON that describes the clients; the process works until its
standard input ends (or its number of operations is done), then finishes what is under way and prints one line of JSON with its counts.

Outcomes: no error is "ok". An error with the code `outcome_unknown` is "unknown"; the client then
asks `quack_transaction_outcome` when the error names the transaction. **Any other error means that
nothing happened** - that is what the product promises, and what the checkers hold it to.
"""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import sys
import threading
import time
from typing import Any

import duckdb

from chaos.cluster import client_attach_sql
from chaos.history import Operation, Recorder
from chaos.workloads import WORKLOADS, Client, Session
from quack.errors import code_of
from quack.extension import connect

_TOKEN = re.compile(r"\b[0-9a-f]{32}\b")


class SharedSessions:
    """Opens sessions; where many are wanted, some share one DuckDB instance and its attachment."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.setup = setup
        self._lock = threading.Lock()
        self._instances: dict[int, Session] = {}
        self._left = setup["operations"] or sys.maxsize

    def take_turn(self) -> bool:
        """Return whether another operation may begin; False when the number is used up."""
        with self._lock:
            self._left -= 1
            return self._left >= 0

    def open(self, number: int, consistency: str) -> Session:
        """Return a session of its own for a client."""
        share = self.setup["sessions_per_instance"]
        if share == 1:
            return open_session(self.setup, number, consistency)
        with self._lock:
            place = number // share
            if place not in self._instances:
                self._instances[place] = open_session(self.setup, number, consistency)
            return self._instances[place].cursor()


def open_session(setup: dict[str, Any], number: int, consistency: str) -> Session:
    """Open a session that starts with the node of its number and knows the others."""
    folder = pathlib.Path(setup["folder"])
    addresses = [tuple(one) for one in setup["addresses"]]
    turn = number % len(addresses) if setup["spread"] else 0
    session = connect(config={"threads": 1})
    session.execute(f"SET quack_request_timeout_ms = {setup['timeout_ms']}")
    session.execute(
        client_attach_sql(
            folder,
            addresses[turn:] + addresses[:turn],
            (folder / "token").read_text().strip(),
            consistency=consistency,
        )
    )
    return session


def token_in(error: duckdb.Error) -> str | None:
    """Return the transaction token that an error of unknown outcome names."""
    found = _TOKEN.search(str(error))
    return found.group(0) if found else None


def resolve(session: Session, token: str, patience_s: float) -> str:
    """Ask until a node knows; returns "committed", "not_committed" or "unknown"."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            rows = session.execute(
                f"SELECT outcome FROM quack_transaction_outcome('cp', '{token}')"
            ).fetchall()
            if rows and rows[0][0] != "unknown":
                return str(rows[0][0])
        except duckdb.Error:
            pass  # no node answers at present
        if time.monotonic() > deadline:
            return "unknown"
        time.sleep(0.2)


class Worker(threading.Thread):
    """One client: its session, its operations one after the other."""

    def __init__(
        self, setup: dict[str, Any], number: int, recorder: Recorder, sessions: SharedSessions
    ) -> None:
        super().__init__(name=f"{setup['label']}-{number}")
        self.setup = setup
        self.sessions = sessions
        self.recorder = recorder
        self.stop = threading.Event()
        self.workload = WORKLOADS[setup["workload"]]
        self.number = number
        draw = random.Random(f"{setup['seed']} {self.name}")
        # One client in four reads at session consistency: it must see its own writes, no more.
        fresh = draw.random() >= 0.25
        self.client = Client(self.name, setup["first_number"] + number, draw, fresh)
        self.unresolved = 0
        self.resolved = 0
        self.failure: str | None = None

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.failure = f"{self.name}: {type(error).__name__}: {error}"

    def _work(self) -> None:
        session: Session | None = None
        think_s = self.setup["think_ms"] / 1000
        while not self.stop.wait(self.client.draw.uniform(0, 2 * think_s)):
            if session is None:
                session = self._open()
                continue
            if not self.sessions.take_turn():
                break
            self.client.count += 1
            self.client.elapsed_s = time.monotonic() - self.setup["began"]
            operation = self.workload.next(self.client)
            handle = self.recorder.invoke(operation)
            error = self._try(session, operation)
            self.recorder.complete(handle, operation)
            if isinstance(error, duckdb.FatalException):
                session.close()
                session = None
        if session is not None:
            session.close()

    def _open(self) -> Session | None:
        try:
            consistency = "linearizable" if self.client.fresh else "session"
            return self.sessions.open(self.number, consistency)
        except duckdb.Error:
            return None  # no node can be reached at present

    def _try(self, session: Session, operation: Operation) -> duckdb.Error | None:
        try:
            operation.result = self.workload.run(session, operation)
            operation.outcome = "ok"
            return None
        except duckdb.Error as error:
            operation.code = code_of(error)
            operation.error = str(error)[:400]
            operation.outcome = "unknown" if operation.code == "outcome_unknown" else "fail"
            if operation.outcome == "unknown":
                self._resolve(session, operation, error)
            return error

    def _resolve(self, session: Session, operation: Operation, error: duckdb.Error) -> None:
        if operation.kind == "read":
            operation.outcome = "fail"  # it has no effect, and its answer is lost
            return
        token = token_in(error)
        operation.resolved = resolve(session, token, 15) if token else None
        if operation.resolved == "committed":
            operation.outcome = "ok"
        elif operation.resolved == "not_committed":
            operation.outcome = "fail"
        settled = operation.resolved in ("committed", "not_committed")
        self.resolved += settled
        self.unresolved += not settled


def main() -> int:
    setup = json.loads(sys.stdin.readline())
    recorder = Recorder(pathlib.Path(setup["history"]))
    sessions = SharedSessions(setup)
    workers = [Worker(setup, n, recorder, sessions) for n in range(setup["clients"])]
    for worker in workers:
        worker.start()
    print("ready", flush=True)
    if setup["operations"]:
        for worker in workers:
            worker.join()
    else:
        sys.stdin.read()
    for worker in workers:
        worker.stop.set()
    deadline = time.monotonic() + setup["patience_s"]
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
    stuck = [worker.name for worker in workers if worker.is_alive()]
    failures = [worker.failure for worker in workers if worker.failure]
    document = {
        "stuck": stuck,
        "failures": failures,
        "resolved": sum(worker.resolved for worker in workers),
        "unresolved": sum(worker.unresolved for worker in workers),
    }
    print(json.dumps(document), flush=True)
    if stuck:
        os._exit(2)  # a thread that hangs in a session would keep the process
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
