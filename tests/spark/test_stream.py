"""Goal: every micro-batch of a stream is in the table exactly once, through replays and crashes."""

from __future__ import annotations

import os
import pickle
import random
import time

import pyarrow as pa
import pytest
from killing import streaming
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException

from quack.errors import SparkError
from quack.spark import ledger, writer
from quack.spark.source import QuackDataSource

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

WAIT_S = 120
KILLS = 5 if "QUACK_SPARK_ROUNDS" in os.environ else 1


def put(folder, name: str, first: int, count: int) -> None:
    """Add one file to the stream's source; it appears whole."""
    hidden = folder / f".{name}"
    hidden.write_text(
        "".join(f'{{"id": {first + i}, "k": {(first + i) % 5}}}\n' for i in range(count))
    )
    hidden.rename(folder / f"{name}.json")


def start(spark, options, source, checkpoint, output_mode="append", frame=None, **more):
    lines = (
        spark.readStream.schema("id bigint, k int")
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
    )
    stream = (
        (frame or (lambda given: given))(lines)
        .writeStream.format("quack")
        .options(**options, **more)
    )
    return (
        stream.option("checkpointLocation", str(checkpoint))
        .outputMode(output_mode)
        .trigger(availableNow=True)
        .start()
    )


def run(*args, **more) -> None:
    query = start(*args, **more)
    assert query.awaitTermination(WAIT_S), "the stream did not end"


@pytest.fixture
def places(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    return source, tmp_path / "checkpoint"


def test_a_stream_goes_on_where_it_was(spark, sql, options, table, places):
    source, checkpoint = places
    sql(f"CREATE TABLE {table} (id BIGINT, k INTEGER)")
    put(source, "a", 0, 100)
    put(source, "b", 100, 100)
    run(spark, options, source, checkpoint, table=table)
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(200, 200)]
    put(source, "c", 200, 50)
    run(spark, options, source, checkpoint, table=table)
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(250, 250)]
    assert sql(
        "SELECT max(batch_id), sum(row_count) FROM quack_spark.streams WHERE target = ?",
        f"main.{table}",
    ) == [(2, 50)]
    (name,) = sql("SELECT name FROM quack_spark.staging WHERE target = ?", f"main.{table}")[0]
    assert sql(f"SELECT count(*) FROM quack_spark.{name}") == [(0,)]


def test_a_replayed_batch_adds_nothing(spark, sql, options, table, places):
    """Spark forgets that it committed the last batch, as it does when it dies right after."""
    source, checkpoint = places
    sql(f"CREATE TABLE {table} (id BIGINT, k INTEGER)")
    for number in range(3):
        put(source, f"f{number}", number * 10, 10)
    run(spark, options, source, checkpoint, table=table)
    for file in checkpoint.glob("commits/*2*"):
        file.unlink(missing_ok=True)
    run(spark, options, source, checkpoint, table=table)
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(30, 30)]
    for file in [
        *checkpoint.glob("commits/*1*"),
        *checkpoint.glob("commits/*2*"),
        *checkpoint.glob("commits/.*"),
    ]:
        file.unlink(missing_ok=True)
    for file in [*checkpoint.glob("offsets/*2*"), *checkpoint.glob("offsets/.*2*")]:
        file.unlink(missing_ok=True)
    run(spark, options, source, checkpoint, table=table)
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(30, 30)]


def test_upserts_and_complete_mode(spark, sql, options, table, places, tmp_path):
    source, checkpoint = places
    sql(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, k INTEGER, kept INTEGER DEFAULT 7)")
    sql(f"INSERT INTO {table} VALUES (3, 99, 1)")
    put(source, "a", 0, 10)
    put(source, "b", 5, 10)
    run(spark, options, source, checkpoint, table=table, mode="upsert", key="id")
    assert sorted(sql(f"FROM {table}")) == [(i, i % 5, 1 if i == 3 else 7) for i in range(15)]
    sql(f"CREATE TABLE {table}_counts (k INTEGER, n BIGINT)")
    sql(f"INSERT INTO {table}_counts VALUES (99, 99)")

    def counted(lines):
        return lines.groupBy("k").count().withColumnRenamed("count", "n")

    run(spark, options, source, tmp_path / "other", "complete", counted, table=f"{table}_counts")
    assert sorted(sql(f"FROM {table}_counts")) == [(k, 4) for k in range(5)]


def test_a_stream_survives_the_leader(spark, sql, options, table, places, spark_cluster):
    source, checkpoint = places
    sql(f"CREATE TABLE {table} (id BIGINT, k INTEGER)")
    for number in range(6):
        put(source, f"f{number}", number * 1000, 1000)
    query = start(spark, options, source, checkpoint, table=table)
    leader = spark_cluster.wait_leader()
    leader.kill()
    try:
        assert query.awaitTermination(WAIT_S)
    finally:
        leader.start()
        spark_cluster.wait_leader()
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(6000, 6000)]


def test_values_that_do_not_fit_stop_the_stream(spark, sql, options, table, places):
    source, checkpoint = places
    sql(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, k INTEGER)")
    sql(f"INSERT INTO {table} VALUES (13, 0)")
    put(source, "a", 0, 10)
    put(source, "b", 10, 10)
    with pytest.raises(StreamingQueryException) as caught:
        run(spark, options, source, checkpoint, table=table)
    words = str(caught.value)
    assert "cannot commit batch 1 of query" in words
    assert "[quack:constraint]" in words
    assert options["token"] not in words
    assert sql(f"SELECT count(*) FROM {table}") == [(11,)]
    sql(f"DELETE FROM {table} WHERE id = 13")
    run(spark, options, source, checkpoint, table=table)
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(20, 20)]


def test_a_stream_whose_driver_dies_again_and_again(spark, sql, options, table, places, folder):
    """Each driver is killed with all its processes at a drawn moment; the last one may end."""
    source, checkpoint = places
    sql(f"CREATE TABLE {table} (id BIGINT, k INTEGER)")
    files = 6 * KILLS
    for number in range(files):
        put(source, f"f{number:03d}", number * 100, 100)
    given = {
        "options": {**options, "table": table},
        "source": str(source),
        "checkpoint": str(checkpoint),
    }
    dice = random.Random(os.environ.get("QUACK_SPARK_SEED", "1"))
    for _ in range(KILLS):
        with streaming(folder, given, lambda: sql(f"SELECT count(*) FROM {table}")):
            time.sleep(dice.uniform(0, 2))
        (count, distinct) = sql(f"SELECT count(*), count(DISTINCT id) FROM {table}")[0]
        assert count == distinct
        assert count % 100 == 0
    run(spark, options, source, checkpoint, table=table)
    total = files * 100
    assert sql(f"SELECT count(*), count(DISTINCT id), max(id) FROM {table}") == [
        (total, total, total - 1)
    ]


class FakeContext:
    """What a task of a stream sees of Spark."""

    def __init__(self, query_id: str) -> None:
        self.query_id = query_id

    def getLocalProperty(self, name: str) -> str | None:
        return {"sql.streaming.queryId": self.query_id}.get(name)


def sink(spark, options, table):
    schema = spark.range(1).schema
    return pickle.loads(
        pickle.dumps(QuackDataSource({**options, "table": table}).streamWriter(schema, False))
    )


def batch(start: int, end: int):
    return iter([pa.record_batch({"id": pa.array(range(start, end), pa.int64())})])


def test_an_abort_after_a_lost_answer_undoes_nothing(spark, sql, options, table, monkeypatch):
    """The commit is done but its answer is lost: Spark aborts, then replays the batch."""
    sql(f"CREATE TABLE {table} (id BIGINT)")
    monkeypatch.setattr(TaskContext, "get", lambda: FakeContext(f"query-{table}"))
    tasks, driver = sink(spark, options, table), sink(spark, options, table)
    messages = [tasks.write(batch(0, 10)), tasks.write(batch(10, 20)), tasks.write(iter([]))]

    def lose(*arguments: object) -> bool:
        done(*arguments)
        raise SparkError("outcome unknown: lost", code="outcome_unknown")

    done = writer.commit_once
    with monkeypatch.context() as losing:
        losing.setattr(writer, "commit_once", lose)
        with pytest.raises(SparkError, match="outcome unknown"):
            driver.commit(messages, 0)
    driver.abort([messages[0], None, messages[2]], 0)
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(20, 20)]
    replay = [tasks.write(batch(0, 10)), tasks.write(batch(10, 20))]
    sink(spark, options, table).commit(replay, 0)
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(20, 20)]
    assert sql(f"SELECT count(*) FROM quack_spark.{driver._staging}") == [(0,)]
    sink(spark, options, table).commit([tasks.write(batch(20, 25))], 1)
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(25, 25)]


def test_two_queries_do_not_count_as_one(spark, sql, options, table, monkeypatch):
    sql(f"CREATE TABLE {table} (id BIGINT)")
    for number in range(2):
        monkeypatch.setattr(TaskContext, "get", lambda name=f"q{number}-{table}": FakeContext(name))
        tasks = sink(spark, options, table)
        tasks.commit([tasks.write(batch(number, number + 1))], 0)
    assert sorted(sql(f"FROM {table}")) == [(0,), (1,)]


def test_rows_of_lost_attempts_are_swept(spark, sql, options, table, monkeypatch, spark_cluster):
    sql(f"CREATE TABLE {table} (id BIGINT)")
    monkeypatch.setattr(TaskContext, "get", lambda: FakeContext(f"query-{table}"))
    tasks = sink(spark, options, table)
    tasks.write(batch(0, 10))
    session = spark_cluster.connect(consistency="linearizable")
    assert tasks._staging not in ledger.sweep(session, 3600)
    assert sql(f"SELECT count(*) FROM quack_spark.{tasks._staging}") == [(10,)]
    assert tasks._staging in ledger.sweep(session, 0)
    session.close()
    again = sink(spark, options, table)
    again.commit([again.write(batch(0, 3))], 0)
    assert sql(f"SELECT count(*) FROM {table}") == [(3,)]


def test_what_a_stream_cannot_take_is_refused(spark, options, sql, table, places):
    source, checkpoint = places
    put(source, "a", 0, 1)
    sql(f"CREATE TABLE {table} (id BIGINT, k VARCHAR)")
    with pytest.raises(StreamingQueryException, match="expected VARCHAR, got int"):
        run(spark, options, source, checkpoint, table=table)
    with pytest.raises(
        SparkError, match="option job_id is for batch writes; a stream has its query id"
    ):
        QuackDataSource({**options, "table": table, "job_id": "x"}).streamWriter(
            spark.range(1).schema, False
        )
