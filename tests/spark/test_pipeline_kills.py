"""Goal: a step happens once, and readers see all of it or nothing, whichever node dies meanwhile.

ROUNDS and SEED of the environment make it longer: `make spark-matrix`.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import duckdb
import pytest
from pipeline_jobs import Pipeline

import quack.pipeline
from probes import tails, wait_equal, wait_until
from quack.cluster.local import LocalCluster, LocalNode
from quack.errors import PipelineError, SparkError, code_of
from quack.pipeline import Job, Summary

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROUNDS = int(os.environ.get("QUACK_SPARK_ROUNDS", "1"))
SEED = int(os.environ.get("QUACK_SPARK_SEED", "1"))
#: Runs of one job until it is done, with a node killed every few seconds.
RUNS_MAX = 10


def sums(numbers: range) -> tuple[int, int]:
    return len(numbers), sum(numbers)


#: What readers may see: of the files, and of hot rows and files together.
BEFORE, AFTER = ((*sums(range(last)), *sums(range(500))) for last in (60, 120))


@dataclass
class Moving:
    """A lake table with a view, a table whose rows move, and a job that changes both."""

    pipeline: Pipeline
    cluster: LocalCluster
    job: Job
    #: Counts and sums of both views.
    query: str

    def run(self) -> Summary:
        return quack.pipeline.run(self.job, spark=self.pipeline.spark)

    def check(self, summary: Summary) -> None:
        """Everything happened once, and nothing is left of what did not count."""
        assert summary.ok, summary
        again = self.run()
        assert [step.state for step in again.steps] == ["already_done"] * 3 + ["done"]
        assert again.steps[-1].counts["orphans"] == 0
        assert self.pipeline.sql(self.query) == [AFTER]
        snapshots = self.pipeline.metadata("ducklake_snapshot", "snapshot_id")
        assert snapshots == [(number,) for number in range(6)]
        assert self.pipeline.metadata("quack_run") == []
        named = self.pipeline.metadata("ducklake_data_file", "path")
        assert len(self.pipeline.files()) == len(named)
        wait_equal(self.cluster)


@pytest.fixture
def moving(pipeline, sql, spark_cluster, table) -> Moving:
    leader = spark_cluster.wait_leader()
    nodes = sorted(spark_cluster.nodes, key=lambda node: node is leader)
    url = "quack:" + ",".join(node.endpoint for node in nodes)  # the first is asked first
    pipeline.cluster = pipeline.cluster.model_copy(update={"url": url})
    sql(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, note VARCHAR)")
    sql(f"INSERT INTO {table} SELECT i, 'note ' || i FROM range(500) r(i)")
    tier = {"kind": "tier", "source": table, "table": "cold"}
    pipeline.run(
        pipeline.ingest(0, 60, view=table + "_files"),
        {**tier, "where": "id < 100", "view": table + "_both"},
    )
    job = pipeline.job(
        pipeline.ingest(60, 120),
        {**tier, "where": "id < 300"},
        {"kind": "compact", "table": "rows"},
        {"kind": "verify"},
    )
    views = (f"(SELECT count(*), sum(id) FROM cp.{table}_{what})" for what in ("files", "both"))
    return Moving(pipeline, spark_cluster, job, f"SELECT * FROM {', '.join(views)}")


def wait_in_service(cluster: LocalCluster) -> LocalNode:
    """Until every node answers by itself; returns the leader."""

    def in_service() -> bool:
        # Of one that is not, another node answers everything but its status.
        rows = [cluster.status(node) for node in cluster.nodes]
        return [row and row["node_id"] for row in rows] == [node.node_id for node in cluster.nodes]

    wait_until(in_service, lambda: tails(cluster))
    return cluster.wait_leader()


def restart(node: LocalNode, after_s: float) -> None:
    time.sleep(after_s)
    node.kill()
    node.start()


@contextlib.contextmanager
def reading(moving: Moving) -> Iterator[None]:
    """Ask every node in turn what it has, fresh or not: all of a step or nothing of it."""
    seen = {BEFORE}
    refusals: set[str | None] = set()
    stop = threading.Event()

    def read(node: LocalNode) -> None:
        session = moving.cluster.connect(node, consistency="eventual")
        try:
            seen.add(session.execute(moving.query).fetchone())
        finally:
            session.close()

    def run() -> None:
        while not stop.is_set():
            for node in moving.cluster.nodes:
                try:
                    read(node)
                except duckdb.CatalogException:
                    continue  # it has just come back, and is not so far in its log
                except duckdb.Error as error:
                    refusals.add(code_of(error) or str(error))

    reader = threading.Thread(target=run)
    reader.start()
    try:
        yield
    finally:
        stop.set()
        reader.join()
    assert seen == {BEFORE, AFTER}
    assert refusals <= {"unavailable"}


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("victim", ["leader", "own"])
def test_a_node_dies_during_every_commit(moving, monkeypatch, victim, number):
    """The leader, or the node that the driver talks to, right before COMMIT or within."""
    cluster = moving.cluster
    whole = quack.pipeline.context.commit_once
    dice = random.Random(f"{SEED} {victim} {number}")
    killers: list[threading.Thread] = []

    def struck(options, what, is_committed, body):
        leader = wait_in_service(cluster)
        before = len(killers)

        def body_and_strike(session) -> None:
            body(session)
            if len(killers) > before:
                return
            node = leader
            if victim == "own":
                status = session.execute("SELECT node_id FROM quack_raft_status('cp')")
                node = cluster.node(status.fetchone()[0])
            after_s = dice.choice([0, dice.uniform(0, 0.1)])
            killers.append(threading.Thread(target=restart, args=(node, after_s)))
            killers[-1].start()
            if after_s == 0:
                killers[-1].join()

        return whole(options, what, is_committed, body_and_strike)

    with monkeypatch.context() as patched:
        patched.setattr(quack.pipeline.context, "commit_once", struck)
        try:
            with reading(moving):
                summary = moving.run()
        finally:
            for killer in killers:
                killer.join()
    assert len(killers) == 3
    assert [step.state for step in summary.steps] == ["done"] * 4
    moving.check(summary)


@pytest.mark.parametrize("number", range(ROUNDS))
def test_leaders_die_while_steps_run(moving, number):
    """At any moment; a run that gives up says so, and the next one goes on."""
    dice = random.Random(f"{SEED} any {number}")
    stop = threading.Event()
    kills = 0

    def kill() -> None:
        nonlocal kills
        while not stop.wait(dice.uniform(0, 2)):
            restart(moving.cluster.wait_leader(), 0)
            kills += 1
            wait_in_service(moving.cluster)

    killer = threading.Thread(target=kill)
    refusals: list[str] = []
    summary = None
    with reading(moving):
        killer.start()
        try:
            while summary is None:
                try:
                    summary = moving.run()
                except (PipelineError, SparkError) as error:
                    refusals.append(str(error))
                    assert len(refusals) < RUNS_MAX, refusals
        finally:
            stop.set()
            killer.join()
    assert kills > 0
    moving.check(summary)
