"""Kills the leader again and again and measures how long until a write is accepted."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import duckdb
import yaml

from chaos.cluster import ChaosCluster, ChaosNode
from chaos.report import quantile
from quack.extension import connect


class _Writer(threading.Thread):
    """Inserts one row after the other; notes when each accepted one began and ended."""

    def __init__(self, cluster: ChaosCluster, first: ChaosNode, number: int) -> None:
        super().__init__()
        names = [node.node_id for node in cluster.nodes if node is not first]
        self.attach = cluster.attach_sql(order=[first.node_id, *names])
        self.number = number
        self.stop = threading.Event()
        self.accepted: list[tuple[float, float]] = []
        self.errors: list[str] = []

    def run(self) -> None:
        session = connect(config={"threads": 1})
        session.execute("SET quack_request_timeout_ms = 20000")
        session.execute(self.attach)
        count = 0
        while not self.stop.wait(0.005):
            row, count = self.number + 10 * count, count + 1
            begun = time.monotonic()
            try:
                session.execute(f"INSERT INTO cp.main.failover_rows VALUES ({row})")
                self.accepted.append((begun, time.monotonic()))
            except duckdb.Error as error:
                self.errors.append(str(error)[:300])
        session.close()

    def first_after(self, moment: float) -> float | None:
        """Return when the first write was accepted that began after that moment."""
        ends = [end for begin, end in self.accepted[-2000:] if begin >= moment]
        return min(ends, default=None)


def run(
    cluster: ChaosCluster, seed: int, failovers: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Kill the leader so often; returns the distribution of the outages."""
    draw = random.Random(f"failovers {seed}")
    cluster.start()
    cluster.session(cluster.nodes[0]).execute("CREATE TABLE cp.main.failover_rows (row BIGINT)")
    writers = [_Writer(cluster, node, place) for place, node in enumerate(cluster.nodes)]
    for writer in writers:
        writer.start()
    outages: list[float] = []
    by_writer: list[float] = []
    problems: list[str] = []
    try:
        for number in range(failovers):
            leader = cluster.wait_leader(60)
            assert isinstance(leader, ChaosNode)
            _wait_all_followers(cluster)
            time.sleep(draw.uniform(0.0, 0.3))  # not a wait for anything: where the kill falls
            killed = time.monotonic()
            leader.kill()
            found = _wait_accepted(writers, killed, 30)
            if found is None:
                problems.append(f"kill {number} of {leader.node_id}: no write accepted in 30 s")
                break
            outages.append(found[0])
            by_writer += found[1]
            cluster.forget(leader)
            leader.start()
            if number % 10 == 9:
                say(f"{number + 1} kills, last {found[0]:.0f} ms")
    finally:
        for writer in writers:
            writer.stop.set()
        for writer in writers:
            writer.join()
    settings = yaml.safe_load(cluster.nodes[0].config_file.read_text())
    problems += [f"a writer was refused: {text}" for w in writers for text in w.errors][:5]
    problems += _rows(cluster, writers)
    return {
        "ok": not problems,
        "seed": seed,
        "failovers": len(outages),
        "election_timeout_ms": settings.get("election_timeout_ms", "default (500)"),
        "heartbeat_interval_ms": settings.get("heartbeat_interval_ms", "default (75)"),
        "first_write_ms": _distribution(outages),
        "every_client_ms": _distribution(by_writer),
        "rows_accepted": sum(len(writer.accepted) for writer in writers),
        "all_ms": [round(one) for one in outages],
        "problems": problems,
    }


def _distribution(values: list[float]) -> dict[str, float]:
    return {
        "min": round(min(values, default=0)),
        "p50": round(quantile(values, 0.5)),
        "p90": round(quantile(values, 0.9)),
        "p99": round(quantile(values, 0.99)),
        "max": round(max(values, default=0)),
    }


def _wait_all_followers(cluster: ChaosCluster) -> None:
    """A kill is only fair when the others could take over: all run and have nearly everything."""
    deadline = time.monotonic() + 60
    while True:
        rows = [cluster.status(node) for node in cluster.nodes]
        known = [int(str(row["applied_index"])) for row in rows if row is not None]
        if len(known) == len(rows) and max(known) - min(known) < 200:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"a node did not catch up within 60 s: {known}")
        time.sleep(0.05)


def _wait_accepted(
    writers: list[_Writer], killed: float, timeout_s: float
) -> tuple[float, list[float]] | None:
    """Return the first write's outage and that of every writer, in ms."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        ends = [writer.first_after(killed) for writer in writers]
        if all(end is not None for end in ends):
            spent = [(end - killed) * 1000 for end in ends if end is not None]
            return min(spent), spent
        time.sleep(0.002)
    return None


def _rows(cluster: ChaosCluster, writers: list[_Writer]) -> list[str]:
    """Every accepted row is there once, on all nodes."""
    accepted = sum(len(writer.accepted) for writer in writers)
    refused = sum(len(writer.errors) for writer in writers)
    try:
        cluster.start_all()
        cluster.wait_equal(90)
        found = []
        for node in cluster.nodes:
            query = "SELECT count(*), count(DISTINCT row) FROM cp.main.failover_rows"
            total, distinct = cluster.session(node, "linearizable").execute(query).fetchall()[0]
            if total != distinct or not accepted <= total <= accepted + refused:
                found.append(
                    f"{node.node_id}: {total} rows, {distinct} distinct, {accepted} accepted"
                )
        return found
    except (TimeoutError, duckdb.Error) as error:
        return [f"end state: {error}"]
