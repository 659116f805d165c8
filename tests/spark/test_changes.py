"""Goal: a stream of changes gives every change once, in order per key, whatever is killed."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import threading
import time
from collections import defaultdict

import pytest
from killing import streaming, wait_for
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from quack.errors import SparkError
from quack.spark.source import QuackDataSource

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]

WAIT_S = 120
KILLS = 5
#: Of the feed, as a stream has them; the table's own follow.
OWN = "change, commit_group::BIGINT, commit_index::BIGINT, commit_order::BIGINT, request_id"


@pytest.fixture(autouse=True)
def _kept(sql):
    """The cluster keeps changes."""
    sql("SELECT quack_changes_set_retention('256MB')")


@pytest.fixture
def source(sql, table):
    """A table whose changes are read."""
    sql(f"CREATE TABLE {table} (k INTEGER PRIMARY KEY, v INTEGER)")
    return table


@pytest.fixture
def sink(sql, source):
    """A table that takes the changes as they come."""
    name = f"{source}_sink"
    sql(
        f"CREATE TABLE {name} (change VARCHAR, commit_group BIGINT, commit_index BIGINT, "
        "commit_order BIGINT, request_id VARCHAR, k INTEGER, v INTEGER)"
    )
    return name


def copying(spark, options, source, sink, checkpoint, **more):
    """A stream from one table to the other, before it starts."""
    lines = spark.readStream.format("quack").options(
        **{**options, "table": source, "change_feed": "true", **more}
    )
    sink = lines.load().writeStream.format("quack").options(**options, table=sink)
    return sink.option("checkpointLocation", str(checkpoint))


def run(spark, options, source, sink, checkpoint, **more) -> None:
    """Copy what there is."""
    stream = copying(spark, options, source, sink, checkpoint, **more)
    query = stream.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S), "the stream did not end"


def assert_copied(sql, source, sink) -> None:
    """The sink has each change exactly once."""
    feed = f"SELECT {OWN}, k, v FROM quack_changes('cp', '{source}', NULL, NULL)"
    assert sql(f"SELECT * FROM (FROM {sink} EXCEPT ALL ({feed}))") == []
    assert sql(f"SELECT * FROM ({feed} EXCEPT ALL FROM {sink})") == []


def change_randomly(sql, source, dice, steps) -> None:
    for _ in range(steps):
        k = dice.randrange(20)
        sql(
            dice.choice(
                [
                    f"INSERT INTO {source} VALUES ({k}, 0) ON CONFLICT DO NOTHING",
                    f"UPDATE {source} SET v = v + 1 WHERE k = {k}",
                    f"UPDATE {source} SET v = v + 1 WHERE k < {k}",
                    f"DELETE FROM {source} WHERE k = {k}",
                ]
            )
        )


def test_a_stream_copies_changes_and_goes_on_where_it_was(
    spark, sql, options, source, sink, tmp_path
):
    change_randomly(sql, source, random.Random(1), 20)
    run(spark, options, source, sink, tmp_path, max_rows_per_batch="8")
    assert_copied(sql, source, sink)
    batches = {file.name for file in (tmp_path / "offsets").glob("[0-9]*")}
    assert len(batches) > 1
    offset = json.loads((tmp_path / "offsets" / "0").read_text().splitlines()[-1])
    assert set(offset) == {"cluster_id", "applied"}
    change_randomly(sql, source, random.Random(2), 10)
    sql(f"ALTER TABLE {source} RENAME TO {source}_renamed")
    run(spark, options, f"{source}_renamed", sink, tmp_path)
    assert_copied(sql, f"{source}_renamed", sink)


def reader(options, source, **more):
    made = QuackDataSource({**options, "table": source, "change_feed": "true", **more})
    return made.streamReader(made.schema())


def all_rows(stream, start, end):
    return list(itertools.chain(*rows_of(stream, start, end)))


def rows_of(stream, start, end):
    """Rows of each partition."""
    return [
        [tuple(row.values()) for batch in stream.read(part) for row in batch.to_pylist()]
        for part in stream.partitions(start, end)
    ]


def test_partitions_keep_the_order_of_each_key_and_replays_are_equal(
    sql, options, table, spark_cluster
):
    """Of a table over several groups: statements over several keys are decided in one of them."""
    source = f"{table}_sharded"
    sql("SELECT quack_multiraft_sql_set_enabled(true)")
    sql(
        f"CREATE TABLE {source} (k INTEGER PRIMARY KEY, v INTEGER) "
        "WITH (quack_shard_key = 'k', quack_initial_groups = 2)"
    )
    stream = reader(options, source, num_partitions="3", key="k")
    start = stream.initialOffset()
    change_randomly(sql, source, random.Random(3), 60)
    end = stream.latestOffset(start, ReadAllAvailable())
    parts = rows_of(stream, start, end)
    assert len(parts) == 3 and all(parts)
    keys = [{row[5] for row in part} for part in parts]
    assert sum(map(len, keys)) == len(set.union(*keys)), "a key is in two partitions"
    expected = defaultdict(list)
    applied = [start["applied"], end["applied"]]
    for row in sql(f"SELECT {OWN}, k, v FROM quack_changes('cp', '{source}', ?, ?)", *applied):
        expected[row[5]].append(row)
    got = defaultdict(list)
    for part in parts:
        for row in part:
            got[row[5]].append(row)
    assert got == expected
    for node in spark_cluster.nodes:
        replay = reader({**options, "url": f"quack:{node.endpoint}"}, source)
        assert sorted(all_rows(replay, start, end)) == sorted(itertools.chain(*parts))
    assert stream.partitions(end, end) == []


def test_limits_and_the_place_of_a_quiet_table(sql, options, source, table):
    stream = reader(options, source, max_rows_per_batch="2", starting_position="latest")
    start = stream.initialOffset()
    assert stream.latestOffset(start, stream.getDefaultReadLimit()) == start
    sql(f"CREATE TABLE {table}_other (i INTEGER)")
    assert stream.latestOffset(start, ReadAllAvailable()) == start, "nothing for this table"
    for k in range(3):
        sql(f"INSERT INTO {source} VALUES ({k}, 0)")
    first = stream.latestOffset(start, ReadMaxRows(2))
    assert len(all_rows(stream, start, first)) == 2
    last = stream.latestOffset(first, ReadMaxRows(2))
    assert len(all_rows(stream, first, last)) == 1
    stream.prepareForTriggerAvailableNow()
    sql(f"INSERT INTO {source} VALUES (9, 0)")
    end = stream.latestOffset(start, ReadAllAvailable())
    assert len(all_rows(stream, start, end)) == 3
    assert stream.latestOffset(end, ReadAllAvailable()) == end
    resumed = reader(options, source, starting_position=json.dumps(last))
    assert resumed.initialOffset() == last


def test_a_quiet_table_does_not_fall_behind(sql, options, source, table):
    """Others write so much that its place would be dropped: the place moves without rows."""
    sql("SELECT quack_changes_set_retention('1MB')")
    sql(f"CREATE TABLE {table}_loud (v VARCHAR)")
    stream = reader(options, source)
    at = stream.initialOffset()
    for _ in range(4):
        for _ in range(2):
            sql(f"INSERT INTO {table}_loud SELECT repeat('x', 2500000)")
        at = stream.latestOffset(at, ReadAllAvailable())
    sql(f"INSERT INTO {source} VALUES (1, 1)")
    end = stream.latestOffset(at, ReadAllAvailable())
    assert [row[0] for row in all_rows(stream, at, end)] == ["insert"]


def test_what_is_wrong_is_said(spark, sql, options, source, sink, tmp_path):
    with pytest.raises(SparkError, match="add option change_feed=true"):
        QuackDataSource({**options, "table": source}).streamReader(None)
    with pytest.raises(SparkError, match="option table is missing"):
        QuackDataSource({**options, "change_feed": "true"}).schema()
    with pytest.raises(SparkError, match="num_partitions needs key"):
        reader(options, source, num_partitions="2")
    with pytest.raises(
        SparkError, match="starting_position: .* is neither earliest, latest, nor a pos"
    ):
        reader(options, source, starting_position="noon")
    with pytest.raises(SparkError, match="there is no table"):
        reader(options, "nothing_here")
    with pytest.raises(SparkError, match="change_feed is for spark.readStream"):
        QuackDataSource({**options, "table": source, "change_feed": "true"}).reader(None)
    stream = reader(options, source)
    start = stream.initialOffset()
    with pytest.raises(SparkError, match="where it means nothing"):
        stream.latestOffset({**start, "cluster_id": "another"}, ReadAllAvailable())
    stream = reader(options, source, num_partitions="2", key="nobody")
    change_randomly(sql, source, random.Random(3), 1)
    end = stream.latestOffset(start, ReadAllAvailable())
    with pytest.raises(SparkError, match="option key: the changes of table .* no column nobody"):
        stream.partitions(start, end)

    change_randomly(sql, source, random.Random(4), 5)
    run(spark, options, source, sink, tmp_path)
    sql("SELECT quack_changes_set_retention('1MB')")
    sql(f"CREATE TABLE {source}_loud (v VARCHAR)")
    for _ in range(4):
        sql(f"INSERT INTO {source}_loud SELECT repeat('x', 5000000)")
    with pytest.raises(StreamingQueryException) as caught:
        run(spark, options, source, sink, tmp_path)
    words = str(caught.value)
    assert f"cannot read the changes of table main.{source}" in words
    assert "are not all kept any more" in words and "[quack:not_found]" in words
    assert options["token"] not in words


@contextlib.contextmanager
def changing(cluster, source, seed):
    """Others change the table at random meanwhile."""
    is_done = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            with cluster.connect() as writer:
                writer.execute("USE cp")
                drawn = random.Random(seed)
                while not is_done.wait(0.2):
                    change_randomly(lambda text: writer.execute(text), source, drawn, 1)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join(timeout=60)
    assert failures == []


def test_a_node_dies_under_a_running_stream(
    spark, sql, options, source, sink, tmp_path, spark_cluster
):
    query = copying(spark, options, source, sink, tmp_path, max_rows_per_batch="20").start()
    try:
        with changing(spark_cluster, source, "node"):
            for victim in spark_cluster.nodes[:2]:
                before = sql(f"SELECT count(*) FROM {sink}")
                victim.kill()
                wait_for(
                    "the stream goes on",
                    lambda before=before: sql(f"SELECT count(*) FROM {sink}") != before,
                )
                victim.start()
                spark_cluster.wait_leader()
        query.processAllAvailable()
    finally:
        query.stop()
    assert_copied(sql, source, sink)


@pytest.mark.skipif("QUACK_SPARK_ROUNDS" not in os.environ, reason="part of make spark-matrix")
def test_kills_of_drivers_and_nodes(
    spark, sql, options, source, sink, tmp_path, folder, spark_cluster
):
    """Drivers and nodes are killed at drawn moments while others write; nothing is lost or twice."""
    checkpoint = tmp_path / "checkpoint"
    parts = {"num_partitions": "2", "key": "k"}
    feed = {**options, "table": source, "change_feed": "true", "max_rows_per_batch": "20", **parts}
    given = {
        "options": {**options, "table": sink},
        "changes": feed,
        "checkpoint": str(checkpoint),
    }
    seed = os.environ.get("QUACK_SPARK_SEED", "1")
    dice = random.Random(seed)
    with changing(spark_cluster, source, seed):
        for kill in range(KILLS):
            victim = spark_cluster.nodes[kill % len(spark_cluster.nodes)]
            with streaming(folder, given, lambda: sql(f"SELECT count(*) FROM {sink}")):
                victim.kill()
                time.sleep(dice.uniform(0, 1))
            victim.start()
            spark_cluster.wait_leader()
    run(spark, options, source, sink, checkpoint, **parts)
    assert_copied(sql, source, sink)
