"""Goal: exactly once or not at all, whatever dies: append, overwrite and upsert against faults.

ROUNDS and SEED of the environment make the matrix larger: `make spark-matrix`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import pickle
import random
import signal
import threading
import time

import duckdb
import pyarrow as pa
import pytest
from killing import Driver, wait_for

from quack.errors import SparkError
from quack.spark.source import QuackDataSource

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

IS_MATRIX = "QUACK_SPARK_ROUNDS" in os.environ
ROUNDS = int(os.environ.get("QUACK_SPARK_ROUNDS", "1"))
SEED = int(os.environ.get("QUACK_SPARK_SEED", "1"))
KINDS = ("append", "overwrite", "upsert")
#: Of faults that take long, one kind each is enough outside of the matrix.
SLOW_KINDS = {"job": KINDS, "quorum": KINDS, "driver": KINDS, "worker": KINDS}
if not IS_MATRIX:
    SLOW_KINDS = {
        "job": ["upsert"],
        "quorum": ["append"],
        "driver": ["overwrite"],
        "worker": ["append"],
    }

OLD = [(i, "old") for i in range(100)]
ROWS = 3000


def prepare(sql, table: str) -> None:
    sql(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, s VARCHAR DEFAULT 'new')")
    sql(f"INSERT INTO {table} SELECT range, 'old' FROM range(100)")


def first_id(kind: str) -> int:
    return 50 if kind == "upsert" else 1000


def expected(kind: str) -> list[tuple[int, str]]:
    """What is there after the write; the column that is not written keeps what it had."""
    ids = range(first_id(kind), first_id(kind) + ROWS)
    if kind == "overwrite":
        return [(i, "new") for i in ids]
    return OLD + [(i, "new") for i in ids if i >= 100]


def write_options(kind: str, **more: str) -> dict[str, str]:
    return {**({"mode": "upsert", "key": "id"} if kind == "upsert" else {}), **more}


def save_mode(kind: str) -> str:
    return "overwrite" if kind == "overwrite" else "append"


def save(spark, options, kind: str, table: str, frame=None, **more: str) -> None:
    start = first_id(kind)
    frame = spark.range(start, start + ROWS, 1, 3) if frame is None else frame
    written = frame.write.format("quack").options(
        **options, **write_options(kind, table=table, **more)
    )
    written.mode(save_mode(kind)).save()


def content(sql, table: str) -> list[tuple[int, str]]:
    return sorted(sql(f"FROM {table}"))


@contextlib.contextmanager
def leader_dies(cluster, after_s: float):
    """Kill the leader so long after the block began; at its end the cluster is whole again."""
    leader = cluster.wait_leader()

    def kill() -> None:
        time.sleep(after_s)
        leader.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        leader.start()
        cluster.wait_leader()


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("kind", SLOW_KINDS["job"])
def test_the_leader_dies_during_a_job(spark, sql, options, table, spark_cluster, kind, number):
    prepare(sql, table)
    start = first_id(kind)

    def slowly(batches):
        for batch in batches:
            yield batch
            time.sleep(0.7)

    frame = spark.range(start, start + ROWS, 1, 3).mapInArrow(slowly, "id bigint")
    with leader_dies(spark_cluster, random.Random(f"{SEED} {kind} {number}").uniform(0, 4)):
        save(spark, options, kind, table, frame)
    assert content(sql, table) == expected(kind)


def staged(options, spark, kind: str, table: str, **more: str):
    """A writer whose tasks are done, and their messages."""
    given = {**options, **write_options(kind, table=table, **more)}
    writer = QuackDataSource(given).writer(spark.range(1).schema, kind == "overwrite")
    start = first_id(kind)
    cuts = [start, start + ROWS // 3, start + ROWS]
    messages = [
        writer.write(iter([pa.record_batch({"id": pa.array(range(low, high), pa.int64())})]))
        for low, high in itertools.pairwise(cuts)
    ]
    return pickle.loads(pickle.dumps((writer, messages)))


@pytest.mark.parametrize("number", range(2 * ROUNDS if IS_MATRIX else 1))
@pytest.mark.parametrize("kind", KINDS)
def test_the_leader_dies_during_commit(spark, sql, options, table, spark_cluster, kind, number):
    prepare(sql, table)
    writer, messages = staged(options, spark, kind, table)
    after_s = random.Random(f"{SEED} {kind} {number}").uniform(0, 0.15)
    with leader_dies(spark_cluster, after_s):
        time.sleep(0.05)
        writer.commit(messages)
    assert content(sql, table) == expected(kind)
    writer.commit(messages)
    assert content(sql, table) == expected(kind)


@pytest.mark.parametrize("kind", SLOW_KINDS["quorum"])
def test_no_quorum_is_an_error_that_a_rerun_mends(spark, sql, options, table, spark_cluster, kind):
    """Commit cannot end: it says so, with the job id; nothing shows unless the ledger has it."""
    prepare(sql, table)
    more = {"job_id": f"job-{table}", "commit_timeout_s": "2", "request_timeout_s": "2"}
    writer, messages = staged(options, spark, kind, table, **more)
    nodes = spark_cluster.nodes[:2]
    for node in nodes:
        node.kill()
    try:
        with pytest.raises(SparkError) as caught:
            writer.commit(messages)
        assert f"cannot commit job job-{table}" in str(caught.value)
        writer.abort([messages[0], None])
    finally:
        for node in nodes:
            node.start()
        spark_cluster.wait_leader()
    wait_for("a session that answers", lambda: content_or_none(spark_cluster, table) is not None)
    assert content_or_none(spark_cluster, table) in (OLD, expected(kind))
    save(spark, options, kind, table, job_id=f"job-{table}")
    assert content_or_none(spark_cluster, table) == expected(kind)


def content_or_none(cluster, table: str) -> list[tuple[int, str]] | None:
    try:
        session = cluster.connect(consistency="linearizable")
        rows = session.execute(f"FROM cp.{table} ORDER BY ALL").fetchall()
        session.close()
    except duckdb.Error:
        return None
    return rows


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("kind", SLOW_KINDS["driver"])
def test_the_driver_dies_and_the_job_is_run_again(spark, sql, options, table, folder, kind, number):
    """Killed with all its processes: while tasks stage, around the commit, or after it."""
    prepare(sql, table)
    job = f"job-{table}"
    start = first_id(kind)
    dice = random.Random(f"{SEED} driver {kind} {number}")
    given = {
        "options": {**options, **write_options(kind, table=table, job_id=job)},
        "save_mode": save_mode(kind),
        "first": start,
        "last": start + ROWS,
        "task_ms": 300,
    }
    driver = Driver(folder, given)
    try:
        wait_for("the driver starts", lambda: driver.has_said("started"))
        wait_for("the job stages", lambda: has_staging(sql, job) or content(sql, table) != OLD)
        time.sleep(dice.uniform(0, 5))
    finally:
        driver.kill()
    after_kill = content(sql, table)
    assert after_kill in (OLD, expected(kind))
    committed = sql("SELECT count(*) FROM quack_spark.jobs WHERE job_id = ?", job) == [(1,)]
    assert committed == (content(sql, table) == expected(kind))
    save(spark, options, kind, table, job_id=job)
    assert content(sql, table) == expected(kind)
    save(spark, options, kind, table, job_id=job)
    assert content(sql, table) == expected(kind)
    assert not has_staging(sql, job)


def has_staging(sql, job: str) -> bool:
    tables = "SELECT count(*) FROM duckdb_tables() WHERE schema_name = 'quack_spark' AND table_name = 'staging'"
    if sql(tables) == [(0,)]:
        return False
    return sql("SELECT count(*) FROM quack_spark.staging WHERE job_id = ?", job) != [(0,)]


@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("kind", SLOW_KINDS["worker"])
def test_workers_are_killed(spark, sql, options, table, folder, kind, number):
    """The process of a task dies with SIGKILL after it staged; Spark runs the task again."""
    prepare(sql, table)
    marker = folder / "killed"

    def die_once(batches):
        import os

        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 1:
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    start = first_id(kind)
    frame = spark.range(start, start + ROWS, 1, 3).mapInArrow(die_once, "id bigint")
    save(spark, options, kind, table, frame)
    assert marker.exists()
    assert content(sql, table) == expected(kind)


def executors_of(driver: Driver) -> list[int]:
    """Process ids of the executors that a driver started."""
    found = []
    for folder in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (folder / "cmdline").read_bytes()
            group = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[2])
            if (
                group == driver.process.pid
                and b"CoarseGrainedExecutorBackend" in words
                and b"java" in words.split(b"\0")[0]
            ):
                found.append(int(folder.name))
    return sorted(found)


@pytest.mark.skipif(not IS_MATRIX, reason="part of make spark-matrix: three JVMs on their own")
@pytest.mark.parametrize("number", range(ROUNDS))
@pytest.mark.parametrize("kind", KINDS)
def test_executors_are_killed(sql, options, table, folder, kind, number):
    """Two executors as processes, tasks run twice by speculation, one executor is killed."""
    prepare(sql, table)
    start = first_id(kind)
    job = f"job-{table}"
    given = {
        "master": "local-cluster[2,1,768]",
        "settings": {
            "spark__executor__memory": "512m",
            "spark__speculation": "true",
            "spark__speculation__multiplier": "1.01",
            "spark__speculation__quantile": "0.1",
            "spark__speculation__minTaskRuntime": "10ms",
            "spark__speculation__interval": "50ms",
        },
        "options": {**options, **write_options(kind, table=table, job_id=job)},
        "save_mode": save_mode(kind),
        "first": start,
        "last": start + ROWS,
        "task_ms": 1500,
    }
    dice = random.Random(f"{SEED} executor {kind} {number}")
    driver = Driver(folder, given)
    try:
        wait_for("the driver starts", lambda: driver.has_said("started"))
        wait_for("the job stages", lambda: has_staging(sql, job) and executors_of(driver))
        time.sleep(dice.uniform(1, 4))
        executors = executors_of(driver)
        assert len(executors) == 2, driver.text()[-3000:]
        os.kill(dice.choice(executors), signal.SIGKILL)
        wait_for("the driver ends", lambda: driver.process.poll() is not None)
        assert driver.process.returncode == 0, driver.text()[-3000:]
    finally:
        driver.kill()
    assert content(sql, table) == expected(kind)
