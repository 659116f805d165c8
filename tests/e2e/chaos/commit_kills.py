"""Kills or pauses the leader at random points of COMMIT, and asks afterwards what became of each.

In every round three clients, one through each node (so one through the leader, two through
followers), open a transaction over two tables. They commit together, and somewhere inside the time
that a commit takes the leader gets SIGKILL or SIGSTOP. In the end every committed row is in both
tables of every node, every other one is in none, and all nodes give one answer for each commit whose
outcome the client was not told. Some clients have less patience than an election takes: they are not
told, and ask at once, while the commit may still be on its way.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import duckdb

from chaos.client import resolve, token_in
from chaos.cluster import ChaosCluster, ChaosNode
from chaos.report import quantile
from quack.errors import code_of
from quack.extension import connect

_TIMEOUT_MS = 8000
_IMPATIENT_MS = (40, 500)
#: So many rounds must have left something to ask for, or the run says nothing about asking.
_ROUNDS_THAT_SETTLE = 100


@dataclasses.dataclass
class Commit:
    """One commit under attack.

    Attributes:
        row: unique; in both tables when committed.
        through: "leader" or "follower".
        how: "transaction" or "statement" (autocommit).
        outcome: "ok", "fail" or "unknown", as the client was told.
        timeout_ms: the client's patience.
        truth: of an unknown one, what each node says, and what the client heard when it asked at once.

    """

    row: int
    through: str
    how: str
    outcome: str = "unknown"
    error: str = ""
    code: str | None = None
    token: str | None = None
    spent_ms: float = 0.0
    timeout_ms: int = _TIMEOUT_MS
    truth: dict[str, str] = dataclasses.field(default_factory=dict)


def create(session: duckdb.DuckDBPyConnection) -> None:
    """Make the tables."""
    session.execute("CREATE TABLE cp.main.commits_a (row BIGINT)")
    session.execute("CREATE TABLE cp.main.commits_b (row BIGINT)")


class _Committer(threading.Thread):
    """Prepares one commit, waits for the others, commits."""

    def __init__(
        self, cluster: ChaosCluster, node: ChaosNode, commit: Commit, start: threading.Barrier
    ) -> None:
        super().__init__()
        self.commit = commit
        self.start_together = start
        names = [one.node_id for one in cluster.nodes if one is not node]
        self.attach = cluster.attach_sql(order=[node.node_id, *names])
        self.failure: str | None = None

    def run(self) -> None:
        try:
            self._run()
        except (duckdb.Error, threading.BrokenBarrierError) as error:
            self.failure = f"before the commit: {type(error).__name__}: {error}"
            self.start_together.abort()

    def _run(self) -> None:
        session = connect(config={"threads": 1})
        session.execute(f"SET quack_request_timeout_ms = {_TIMEOUT_MS}")
        session.execute(self.attach)
        row = self.commit.row
        last = f"INSERT INTO cp.main.commits_a VALUES ({row})"
        if self.commit.how == "transaction":
            session.execute("BEGIN")
            session.execute(last)
            session.execute(f"INSERT INTO cp.main.commits_b VALUES ({row})")
            last = "COMMIT"
        session.execute(f"SET quack_request_timeout_ms = {self.commit.timeout_ms}")
        self.start_together.wait(30)
        begun = time.monotonic()
        try:
            session.execute(last)
            self.commit.outcome = "ok"
        except duckdb.Error as error:
            self.commit.code = code_of(error)
            self.commit.error = str(error)[:300]
            self.commit.token = token_in(error)
            self.commit.outcome = "unknown" if self.commit.code == "outcome_unknown" else "fail"
        self.commit.spent_ms = (time.monotonic() - begun) * 1000
        if self.commit.token is not None:
            session.execute(f"SET quack_request_timeout_ms = {_TIMEOUT_MS}")
            self.commit.truth["asked at once"] = resolve(session, self.commit.token, 15)
        session.close()


def run(
    cluster: ChaosCluster, seed: int, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Do the rounds; returns the report."""
    draw = random.Random(f"commits {seed}")
    cluster.start()
    create(cluster.session(cluster.nodes[0]))
    commits: list[Commit] = []
    problems: list[str] = []
    strikes: Counter[str] = Counter()
    usual_ms = 15.0
    for number in range(rounds):
        try:
            cluster.wait_equal(60)
            leader = cluster.wait_leader(30)
        except TimeoutError as error:
            problems.append(f"round {number}: {error}")
            break
        assert isinstance(leader, ChaosNode)
        how = "statement" if draw.random() < 0.25 else "transaction"
        kill = draw.random() < 0.5
        # Around the election timeout of 0.5 s, and shorter than the clients' deadline.
        pause_s = draw.choice([draw.uniform(0.02, 0.4), draw.uniform(0.4, 2.5)])
        delay_s = draw.uniform(0, 1.6 * usual_ms) / 1000
        together = threading.Barrier(len(cluster.nodes) + 1)
        now = [
            Commit(
                number * 10 + place,
                "leader" if node is leader else "follower",
                how,
                timeout_ms=draw.randint(*_IMPATIENT_MS) if draw.random() < 0.3 else _TIMEOUT_MS,
            )
            for place, node in enumerate(cluster.nodes)
        ]
        committers = [
            _Committer(cluster, node, commit, together)
            for node, commit in zip(cluster.nodes, now, strict=True)
        ]
        for one in committers:
            one.start()
        try:
            together.wait(30)
            time.sleep(delay_s)  # not a wait for anything: the point inside COMMIT
            strikes["kill" if kill else "pause"] += 1
            _strike(cluster, leader, None if kill else pause_s)
        except threading.BrokenBarrierError:
            pass  # a committer could not begin: it says why below
        for one in committers:
            one.join()
            if one.failure is not None:
                problems.append(f"round {number}: {one.failure}")
        if any(one.failure for one in committers):
            cluster.start_all()
            continue
        commits += now
        quiet = [one.spent_ms for one in commits[-60:] if one.outcome == "ok"]
        usual_ms = min(100.0, max(4.0, quantile(quiet, 0.3)))
        problems += _settle(cluster, number, now)
        if number % 20 == 19 or number + 1 == rounds:
            told = Counter(one.outcome for one in commits)
            say(f"round {number + 1}: {dict(told)}, problems: {len(problems)}")
    return _report(cluster, commits, problems, strikes, seed, rounds)


def _strike(cluster: ChaosCluster, leader: ChaosNode, pause_s: float | None) -> None:
    if pause_s is None:
        leader.kill()
        cluster.forget(leader)
        leader.start()
    else:
        leader.pause()
        time.sleep(pause_s)
        leader.resume()


def _settle(cluster: ChaosCluster, number: int, commits: list[Commit]) -> list[str]:
    """Ask every node about each unknown outcome; all must know, and agree."""
    problems = []
    unknown = [one for one in commits if one.outcome == "unknown"]
    if not unknown:
        return []
    try:
        cluster.wait_equal(60)
    except TimeoutError as error:
        return [f"round {number}: {error}"]
    for commit in unknown:
        if commit.token is None:
            problems.append(f"round {number}: no token in the error: {commit.error}")
            continue
        for node in cluster.nodes:
            commit.truth[node.node_id] = resolve(cluster.session(node), commit.token, 15)
        if len(set(commit.truth.values())) != 1 or "unknown" in commit.truth.values():
            problems.append(f"round {number}: row {commit.row} has no one truth: {commit.truth}")
    return problems


def _report(
    cluster: ChaosCluster,
    commits: list[Commit],
    problems: list[str],
    strikes: Counter[str],
    seed: int,
    rounds: int,
) -> dict[str, Any]:
    hashes = set()
    try:
        cluster.start_all()
        cluster.wait_equal(90)
        for node in cluster.nodes:
            session = cluster.session(node, "linearizable")
            problems += _compare(node.node_id, session, commits)
            hashes.add(
                str(session.execute("SELECT * FROM quack_state_hash('cp') ORDER BY ALL").fetchall())
            )
    except (TimeoutError, duckdb.Error) as error:
        problems.append(f"end state: {error}")
    if len(hashes) > 1:
        problems.append("state hashes differ")
    spent = [one.spent_ms for one in commits if one.outcome == "ok"]
    settled = Counter(next(iter(one.truth.values())) for one in commits if one.truth)
    if rounds >= _ROUNDS_THAT_SETTLE and not settled:
        problems.append("no client was left without an answer: nothing is said about asking")
    return {
        "ok": not problems and len(commits) == 3 * rounds,
        "seed": seed,
        "rounds": rounds,
        "commits": len(commits),
        "kills": strikes["kill"],
        "pauses": strikes["pause"],
        "told": dict(Counter(f"{one.through} {one.outcome}" for one in commits)),
        "codes": dict(Counter(one.code or "none" for one in commits if one.error)),
        "unknown_resolved": sum(settled.values()),
        "truths": dict(settled),
        "hash_equal": len(hashes) == 1,
        "commit_ms": {"p50": quantile(spent, 0.5), "p99": quantile(spent, 0.99)},
        "problems": problems,
        "failed": [dataclasses.asdict(one) for one in commits if one.error][:200],
    }


def _compare(name: str, session: duckdb.DuckDBPyConnection, commits: list[Commit]) -> list[str]:
    """What the clients know against what a node holds."""
    found = []
    rows_a, rows_b = (
        Counter(row for (row,) in session.execute(f"FROM cp.main.{table}").fetchall())
        for table in ("commits_a", "commits_b")
    )
    for commit in commits:
        in_a, in_b = rows_a.pop(commit.row, 0), rows_b.pop(commit.row, 0)
        wanted_b = in_a if commit.how == "transaction" else 0
        truth = next(iter(commit.truth.values()), None)
        committed = commit.outcome == "ok" or truth == "committed"
        absent = commit.outcome == "fail" or truth == "not_committed"
        what = f"{name}: row {commit.row} ({commit.how} through {commit.through})"
        if in_a > 1 or in_b > 1:
            found.append(f"{what} is there {in_a} and {in_b} times")
        elif in_b != wanted_b:
            found.append(f"{what} is half there: {in_a} and {in_b}")
        elif committed and not in_a:
            found.append(f"{what} is lost, told: {commit.outcome} {truth}")
        elif absent and in_a:
            told = commit.error or truth
            found.append(f"{what} was told not to be committed, but is there: {told}")
    if rows_a or rows_b:
        found.append(f"{name}: rows that nobody committed: {list(rows_a)[:5]} {list(rows_b)[:5]}")
    return found
