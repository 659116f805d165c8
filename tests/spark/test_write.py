"""Goal: a write brings all rows or none, exactly once, and what does not fit is told before."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import pathlib
import pickle
import tempfile
import threading
import time
import uuid

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql import functions as f

from quack.cli.main import main
from quack.errors import SparkError
from quack.spark import ledger
from quack.spark.connection import connection_slot
from quack.spark.source import QuackDataSource

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore::ResourceWarning")]


def save(frame, options, save_mode="append", **more):
    frame.write.format("quack").options(**options, **more).mode(save_mode).save()


def refusal(action) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


def staging(sql) -> list:
    return sql(
        "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'quack_spark' AND table_name LIKE 'stage%'"
    )


VALUES = {
    "b": ("boolean", True),
    "i8": ("tinyint", -128),
    "i16": ("smallint", 32767),
    "i32": ("int", -(2**31)),
    "i64": ("bigint", 2**63 - 1),
    "f32": ("float", float("inf")),
    "f64": ("double", -0.0),
    "d1": ("decimal(1,0)", decimal.Decimal(9)),
    "d38": ("decimal(38,10)", decimal.Decimal("-9999999999999999999999999999.9999999999")),
    "s": ("string", "it's \u00e4 \U0001f986\0"),
    "bin": ("binary", bytearray(b"\x00\xff")),
    "d": ("date", datetime.date(1582, 10, 4)),
    "t": ("time(6)", datetime.time(23, 59, 59, 999999)),
    "ntz": ("timestamp_ntz", datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)),
    "iv": ("interval day to second", datetime.timedelta(days=-3, microseconds=7)),
    "a": ("array<int>", [1, None, 3]),
    "aa": ("array<array<string>>", [["x"], [], None]),
    "m": ("map<string,decimal(9,2)>", {"k": decimal.Decimal("1.25"), "n": None}),
    "st": ("struct<x:int,y:struct<z:array<date>>>", Row(x=1, y=Row(z=[datetime.date(2024, 2, 29)]))),
}  # fmt: skip


def test_every_type_goes_there_and_back(spark, sql, options, table):
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items())
    rows = [tuple(value for _, value in VALUES.values()), (None,) * len(VALUES)]
    frame = spark.createDataFrame(rows, schema)
    save(frame, options, table=table, create_table="true")
    back = spark.read.format("quack").options(**options, table=table).load()
    expected = [field.dataType.simpleString() for field in frame.schema]
    assert [field.dataType.simpleString() for field in back.schema] == expected
    first, second = sorted(back.collect(), key=lambda row: row[0] is None)
    assert list(second) == [None] * len(VALUES)
    for name, (_, value) in VALUES.items():
        assert first[name] == value, name
    assert str(first.f64) == "-0.0"
    # What was read can be written into the table it came from.
    save(back, options, table=table)
    assert sql(f"SELECT count(*) FROM {table}") == [(4,)]


def test_an_instant_stays_an_instant(spark, sql, options, table):
    frame = spark.sql("SELECT timestamp_micros(1719835200000001L) AS t")
    save(frame, options, table=table, create_table="true")
    assert sql(f"SELECT epoch_us(t) FROM {table}") == [(1_719_835_200_000_001,)]


def test_duckdb_types_take_what_spark_reads_from_them(spark, sql, options, table):
    sql(
        f"CREATE TABLE {table} (u8 UTINYINT, u64 UBIGINT, h HUGEINT, id UUID, m ENUM('ok', 'sad'), j JSON, "
        "f INTEGER[2], s TIMESTAMP_S)"
    )
    sql(
        f"INSERT INTO {table} VALUES (255, 18446744073709551615, -7, "
        "'6b7d0c1e-0000-4000-8000-000000000001', 'ok', '[1]', [1, 2], '2020-01-01 00:00:01')"
    )
    save(spark.read.format("quack").options(**options, table=table).load(), options, table=table)
    rows = sql(f"SELECT * FROM {table}")
    assert len(rows) == 2
    assert rows[0] == rows[1]


def test_values_that_do_not_fit_fail_before_anything_shows(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (m ENUM('ok', 'sad'))")
    frame = spark.range(100).select(f.when(f.col("id") == 77, "angry").otherwise("ok").alias("m"))
    words = refusal(lambda: save(frame, options, table=table))
    assert "angry" in words
    assert f"writes to table main.{table}" in words
    assert sql(f"SELECT count(*) FROM {table}") == [(0,)]
    assert staging(sql) == []


def test_a_schema_that_does_not_fit_is_told_per_column(spark, sql, options, table):
    sql(
        f"CREATE TABLE {table} (a INTEGER, b VARCHAR, c DATE, n INTEGER NOT NULL, d INTEGER NOT NULL DEFAULT 4)"
    )
    frame = spark.sql("SELECT 1L AS a, 2 AS b, DATE '2024-01-01' AS c, 1 AS extra")
    words = refusal(lambda: save(frame, options, table=table))
    assert f'column "a" of table main.{table}: expected INTEGER, got bigint (BIGINT)' in words
    assert f'column "b" of table main.{table}: expected VARCHAR, got int (INTEGER)' in words
    assert f'column "extra" is not in table main.{table}; it has a, b, c, n, d' in words
    assert 'column "n" of table' in words
    assert "is NOT NULL without default" in words
    assert 'column "c"' not in words
    assert 'column "d"' not in words
    bad = spark.sql(
        "SELECT NULL AS v, array(parse_json('1')) AS j, INTERVAL '1' MONTH AS y, "
        "map(1, parse_json('1')) AS m, ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040') AS g"
    )
    words = refusal(lambda: save(bad, options, table=table, create_table="true"))
    for name in ("v", "j", "y", "m", "g"):
        assert f'column "{name}" for table main.{table}: ' in words
    assert (
        refusal(lambda: save(spark.range(1), options, table="nope")).count("create_table=true") == 1
    )
    assert staging(sql) == []


def test_what_can_never_be_written_is_refused_before_rows_move(spark, sql, options, table):
    sql(
        f"CREATE TABLE {table} (a INTEGER, b INTEGER AS (a + 1), t TIMESTAMPTZ, s STRUCT(t TIMESTAMP))"
    )
    sql(f"CREATE VIEW {table}_view AS SELECT a FROM {table}")
    frame = spark.sql(
        "SELECT 1 AS a, 2 AS b, TIMESTAMP_NTZ '2024-01-01' AS t, named_struct('t', TIMESTAMP '2024-01-01') AS s"
    )

    def begin(frame, name):
        QuackDataSource({**options, "table": name}).writer(frame.schema, False)

    with pytest.raises(SparkError) as caught:
        begin(frame, table)
    words = str(caught.value)
    assert f'column "b" of table main.{table} is generated from others; drop it' in words
    assert 'column "t" of table' in words
    assert "expected TIMESTAMP WITH TIME ZONE, got timestamp_ntz (TIMESTAMP); cast it" in words
    assert 'column "s" of table' in words
    with pytest.raises(SparkError, match=f"main.{table}_view is a view; write to the tables"):
        begin(spark.sql("SELECT 1 AS a"), f"{table}_view")
    assert staging(sql) == []


def test_variants_go_there_and_back(spark, sql, options, table):
    frame = spark.sql(
        "SELECT * FROM VALUES (1, parse_json('{\"a\": [1, 2.5, null, \"x\"]}')), (2, DATE '1960-02-29'::VARIANT), "
        "(3, NULL), (4, X'00FF'::VARIANT) AS t(i, v)"
    )
    save(frame, options, table=table, create_table="true")
    assert sql(f"SELECT i, v::JSON::VARCHAR, variant_typeof(v) FROM {table} WHERE i < 3 ORDER BY i") == [
        (1, '{"a":[1,2.5,null,"x"]}', "OBJECT(a)"),
        (2, '"1960-02-29"', "DATE"),
    ]  # fmt: skip
    told = ("i", "to_json(v) AS j", "schema_of_variant(v) AS s")
    back = spark.read.format("quack").options(**options, table=table).load()
    assert sorted(back.selectExpr(*told).collect()) == sorted(frame.selectExpr(*told).collect())
    # A key that is written again, and names that hold commas.
    more = spark.sql("SELECT 2 AS `i, j`, parse_json('true') AS v")
    for _ in range(2):
        save(more, options, table=f"{table}_k", create_table="true", key='"i, j"', mode="upsert")
    assert sql(f"FROM {table}_k") == [(2, True)]


def test_missing_columns_get_their_defaults(spark, sql, options, table):
    sql(
        f"CREATE TABLE {table} (a BIGINT, d INTEGER DEFAULT 4, g BIGINT GENERATED ALWAYS AS (a + 1))"
    )
    save(spark.range(2).selectExpr("id AS A"), options, table=table)
    assert sorted(sql(f"FROM {table}")) == [(0, 4, 1), (1, 4, 2)]


def test_append_overwrite_and_empty_frames(spark, sql, options, table):
    save(spark.range(5), options, table=table, create_table="true")
    save(spark.range(5, 8), options, table=table)
    save(spark.range(0), options, table=table)
    assert sorted(sql(f"FROM {table}")) == [(i,) for i in range(8)]
    save(spark.range(100, 103, 1, 2), options, "overwrite", table=table)
    assert sorted(sql(f"FROM {table}")) == [(100,), (101,), (102,)]
    save(spark.range(0), options, "overwrite", table=table)
    assert sql(f"FROM {table}") == []
    assert staging(sql) == []


def test_readers_never_see_half_of_an_overwrite(spark, sql, options, table, spark_cluster):
    sql(f"CREATE TABLE {table} AS SELECT range AS id FROM range(3000)")
    stop = threading.Event()
    seen = set()

    def watch() -> None:
        session = spark_cluster.connect(spark_cluster.nodes[1], consistency="linearizable")
        while not stop.is_set():
            seen.add(
                tuple(session.execute(f"SELECT count(*), min(id) FROM cp.{table}").fetchall()[0])
            )
        session.close()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for start in (10_000, 20_000, 30_000):
            save(spark.range(start, start + 5000, 1, 3), options, "overwrite", table=table)
    finally:
        stop.set()
        thread.join()
    assert seen <= {(3000, 0), (5000, 10_000), (5000, 20_000), (5000, 30_000)}
    assert len(seen) > 1


def test_upsert(spark, sql, options, table):
    sql(
        f"CREATE TABLE {table} (k BIGINT, s VARCHAR, v INTEGER, kept INTEGER DEFAULT 7, PRIMARY KEY (k, s))"
    )
    sql(f"INSERT INTO {table} VALUES (1, 'a', 1, 100), (2, 'b', 2, 100)")
    frame = spark.sql("SELECT * FROM VALUES (2L, 'b', 20), (2L, 'c', 30) AS t(k, s, v)")
    save(frame, options, table=table, mode="upsert", key="K,s")
    expected = [(1, "a", 1, 100), (2, "b", 20, 100), (2, "c", 30, 7)]
    assert sorted(sql(f"FROM {table}")) == expected
    twice = frame.union(frame)
    words = refusal(lambda: save(twice, options, table=table, mode="upsert", key="k,s"))
    assert "2 rows have the same key (k, s)" in words
    nulls = spark.sql("SELECT CAST(NULL AS bigint) AS k, 'x' AS s, 1 AS v")
    words = refusal(lambda: save(nulls, options, table=table, mode="upsert", key="k,s"))
    assert "a row has NULL in key (k, s)" in words
    words = refusal(lambda: save(frame, options, table=table, mode="upsert", key="z"))
    assert "option key: the DataFrame has no column z; it has k, s, v" in words
    assert sorted(sql(f"FROM {table}")) == expected
    save(frame, options, table=f"{table}_new", mode="upsert", key="k,s", create_table="true")
    save(frame, options, table=f"{table}_new", mode="upsert", key="k,s", create_table="true")
    assert sorted(sql(f"FROM {table}_new")) == [(2, "b", 20), (2, "c", 30)]


def test_a_violated_constraint_leaves_nothing(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, n BIGINT CHECK (n >= 0))")
    sql(f"INSERT INTO {table} VALUES (7, 7)")
    words = refusal(lambda: save(spark.range(10).selectExpr("id", "id AS n"), options, table=table))
    assert "[quack:constraint]" in words
    words = refusal(
        lambda: save(spark.range(10, 20).selectExpr("id", "15 - id AS n"), options, table=table)
    )
    assert "CHECK constraint" in words
    assert sql(f"FROM {table}") == [(7, 7)]
    assert staging(sql) == []


@pytest.fixture
def groups(sql):
    """The statements that place tables are switched on."""
    sql("SELECT quack_multiraft_sql_set_enabled(true)")
    yield
    sql("SELECT quack_multiraft_sql_set_enabled(false)")


def placement(sql, table: str) -> tuple[str | None, set[str]]:
    rows = sql(
        "SELECT shard_key, \"group\" FROM quack_table_groups('cp') WHERE table_name = ?", table
    )
    return rows[0][0], {group for _, group in rows}


def test_a_table_is_created_where_the_options_say(spark, sql, options, table, groups):
    frame = spark.range(1000).selectExpr("id", "id % 7 AS tenant")
    save(frame, options, table=table, create_table="true", group="lane")
    assert placement(sql, table) == (None, {"lane"})
    # One transaction over all shards, in each of the ways to write.
    shards = f"{table}_s"
    placed = {"create_table": "true", "shard_key": "tenant", "initial_groups": "3"}
    save(frame, options, table=shards, key="id,tenant", **placed)
    key, lanes = placement(sql, shards)
    assert (key, len(lanes)) == ("tenant", 3)
    save(frame.where("id < 500"), options, "overwrite", table=shards)
    save(frame.where("id >= 400"), options, table=shards, mode="upsert", key="id,tenant")
    assert sql(f"SELECT count(*), sum(id) FROM {shards}") == [(1000, 499_500)]


def test_what_the_cluster_cannot_place_is_refused_at_once(spark, sql, options, table, groups):
    def create(**placed: str) -> str:
        return refusal(
            lambda: save(spark.range(3), options, table=table, create_table="true", **placed)
        )

    assert f"cannot write to table main.{table}" in create(shard_key="nope")
    assert "a table has from 1 to" in create(shard_key="id", initial_groups="100000")
    sql("SELECT quack_multiraft_sql_set_enabled(false)")
    assert "quack_multiraft_sql_set_enabled" in create(group="lane")
    assert sql(f"SELECT count(*) FROM duckdb_tables() WHERE table_name = '{table}'") == [(0,)]
    assert staging(sql) == []


def test_a_job_id_makes_a_rerun_a_no_op(spark, sql, options, table):
    job = f"job-{table}"
    save(spark.range(5), options, table=table, create_table="true", job_id=job)
    save(spark.range(5), options, table=table, create_table="true", job_id=job)
    assert sql(f"SELECT count(*) FROM {table}") == [(5,)]
    assert sql("SELECT mode, row_count FROM quack_spark.jobs WHERE job_id = ?", job) == [
        ("append", 5)
    ]
    words = refusal(lambda: save(spark.range(5), options, "overwrite", table=table, job_id=job))
    assert f"{job} was used already to append table main.{table}, now it is to overwrite" in words


def test_failed_tasks_are_retried_and_their_rows_do_not_count(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (id BIGINT)")

    def fail_once(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        count = 0
        for batch in batches:
            yield batch
            count += batch.num_rows
            if context.attemptNumber() == 0 and context.partitionId() != 1 and count >= 260_000:
                raise RuntimeError("first attempt")

    frame = spark.range(0, 900_000, 1, 3).mapInArrow(fail_once, "id bigint")
    save(frame, options, table=table)
    assert sql(f"SELECT count(*), count(DISTINCT id), max(id) FROM {table}") == [
        (900_000, 900_000, 899_999)
    ]

    def fail_always(batches):
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().partitionId() == 1:
            raise RuntimeError("every attempt")

    words = refusal(
        lambda: save(
            spark.range(0, 9, 1, 3).mapInArrow(fail_always, "id bigint"), options, table=table
        )
    )
    assert "every attempt" in words
    assert sql(f"SELECT count(*) FROM {table}") == [(900_000,)]
    assert staging(sql) == []


def writer_of(options, frame_schema, overwrite=False, **more):
    """A writer as Spark has it in tasks and in commit: a copy that was pickled."""
    writer = QuackDataSource({**options, **more}).writer(frame_schema, overwrite)
    return pickle.loads(pickle.dumps(writer))


def batches(start: int, end: int):
    return iter([pa.record_batch({"id": pa.array(range(start, end), pa.int64())})])


def test_duplicate_tasks_and_duplicate_commits(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (id BIGINT)")
    writer = writer_of(options, spark.range(1).schema, table=table)
    winners = [writer.write(batches(0, 10)), writer.write(batches(10, 30))]
    writer.write(batches(0, 10))  # a speculative copy that lost
    empty = writer.write(iter([]))
    again = pickle.loads(pickle.dumps(writer))
    writer.commit([*winners, empty])
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(30, 30)]
    again.commit([*winners, empty])
    again.abort([winners[0], None, None])
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(30, 30)]


def commit_at_once(runs, messages) -> list[Exception]:
    """Commit all writers, each on a thread of its own; returns what failed."""
    failures = []

    def commit(number: int) -> None:
        try:
            runs[number].commit(messages[number])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=commit, args=(number,)) for number in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def test_two_drivers_with_one_job_id(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (id BIGINT)")
    runs = [
        writer_of(options, spark.range(1).schema, table=table, job_id=f"twice-{table}")
        for _ in range(3)
    ]
    messages = [[run.write(batches(0, 1000))] for run in runs]
    assert commit_at_once(runs, messages) == []
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(1000, 1000)]
    late = writer_of(options, spark.range(1).schema, table=table, job_id=f"twice-{table}")
    late.commit([late.write(batches(0, 1000))])
    assert sql(f"SELECT count(*) FROM {table}") == [(1000,)]
    assert staging(sql) == []


@pytest.mark.parametrize("kind", ["overwrite", "upsert"])
def test_writes_at_the_same_time_come_one_after_the_other(spark, sql, options, table, kind):
    """On an empty table without keys they have no row in common, and must not both count as first."""
    sql(f"CREATE TABLE {table} (id BIGINT)")
    more = {"mode": "upsert", "key": "id"} if kind == "upsert" else {}
    runs = [
        writer_of(options, spark.range(1).schema, kind == "overwrite", table=table, **more)
        for _ in range(4)
    ]
    messages = [[run.write(batches(0, 500))] for run in runs]
    assert commit_at_once(runs, messages) == []
    assert sql(f"SELECT count(*), count(DISTINCT id) FROM {table}") == [(500, 500)]


def test_rows_that_vanished_from_staging_are_not_committed_in_part(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (id BIGINT)")
    writer = writer_of(options, spark.range(1).schema, table=table)
    message = writer.write(batches(0, 10))
    sql(f'DELETE FROM quack_spark."{writer._staging}" WHERE id = 3')
    with pytest.raises(
        SparkError, match=r"holds 9 rows of the tasks, they staged 10;.*Nothing was committed"
    ):
        writer.commit([message])
    assert sql(f"FROM {table}") == []
    writer.abort([message])


def test_staging_of_dead_jobs_is_swept(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (id BIGINT)")
    dead = writer_of(options, spark.range(1).schema, table=table)
    message = dead.write(batches(0, 10))
    alive = writer_of(options, spark.range(1).schema, table=table)
    assert len(staging(sql)) == 2
    sql(
        f"UPDATE quack_spark.staging SET created_at = now() - INTERVAL 2 days WHERE name = '{dead._staging}'"
    )
    save(spark.range(1), options, table=table)
    assert staging(sql) == [(alive._staging,)]
    with pytest.raises(SparkError, match="cannot commit job"):
        dead.commit([message])
    assert sql(f"FROM {table}") == [(0,)]
    alive.abort([])
    assert staging(sql) == []


def test_the_ledger_forgets_jobs_without_a_name(spark, sql, options, table, spark_cluster):
    save(spark.range(1), options, table=table, create_table="true")
    save(spark.range(1), options, table=table, job_id=f"named-{table}")
    mine = "SELECT count(*) FROM quack_spark.jobs WHERE target = ?"
    assert sql(mine, f"main.{table}") == [(2,)]
    session = spark_cluster.connect(consistency="linearizable")
    ledger.sweep(session, 3600)
    assert sql(mine, f"main.{table}") == [(2,)]
    ledger.sweep(session, 0)
    session.close()
    assert sql("SELECT job_id FROM quack_spark.jobs WHERE target = ?", f"main.{table}") == [
        (f"named-{table}",)
    ]


def test_places_are_limited():
    """Of many tasks of one host, so many hold a connection at the same time."""
    holding = 0
    most = 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal holding, most
        with connection_slot(name, 2):
            with lock:
                holding += 1
                most = max(most, holding)
            time.sleep(0.02)
            with lock:
                holding -= 1

    name = uuid.uuid4().hex
    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 2
    with (
        connection_slot(name, 1),
        pytest.raises(SparkError, match="1 tasks of this host write"),
        connection_slot(name, 1, timeout_s=0.1),
    ):
        pass
    slots = pathlib.Path(tempfile.gettempdir()) / f"quack-spark-{os.getuid()}" / "slots"
    assert list(slots.glob(f"{name}.*")) == []


def test_a_plain_duckdb_sees_the_ledger(sql):
    names = {
        row[0]
        for row in sql("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'quack_spark'")
    }
    assert {"jobs", "streams", "staging"} <= names
    with pytest.raises(duckdb.Error):
        sql("INSERT INTO quack_spark.jobs SELECT * FROM quack_spark.jobs")


def test_the_command_lists_and_sweeps(spark, sql, options, table, spark_cluster, capsys):
    sql(f"CREATE TABLE {table} (id BIGINT)")
    save(spark.range(3), options, table=table, job_id=f"listed-{table}")
    dead = writer_of(options, spark.range(1).schema, table=table, job_id=f"dead-{table}")
    dead.write(batches(0, 10))
    config = str(spark_cluster.nodes[0].config_file)

    def command(*words: str) -> dict:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.argv", ["quack", "spark", *words, "--config", config, "--json"])
            assert main() == 0
        return json.loads(capsys.readouterr().out)

    found = command("jobs")
    (job,) = (one for one in found["jobs"] if one["job_id"] == f"listed-{table}")
    assert (job["target"], job["mode"], job["row_count"]) == (f"main.{table}", "append", 3)
    assert dead._staging in [one["name"] for one in found["staging"]]
    assert dead._staging not in command("sweep")["removed"]
    assert dead._staging in command("sweep", "--older-than-hours", "0")["removed"]
    assert dead._staging not in [one["name"] for one in command("jobs")["staging"]]
    assert staging(sql) == []
