"""Goal: Spark reads exactly what the cluster holds, all partitions of one read at one moment."""

from __future__ import annotations

import datetime
import decimal
import os
import pathlib
import subprocess
import threading

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row
from pyspark.sql.types import IntegerType, StructField, StructType

import quack
from quack.errors import SparkError
from quack.spark import staged
from quack.spark.options import QuackOptions
from quack.spark.reader import SnapshotReader
from quack.spark.source import QuackDataSource

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def load(spark, options, **more):
    return spark.read.format("quack").options(**options, **more).load()


def refusal(action, *forbidden: str) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    words = str(caught.value)
    for secret in forbidden:
        assert secret not in words
    return words


def parts_of(options, schema=None, **more):
    """Plan a read as Spark's driver does."""
    source = QuackDataSource({**options, **more})
    return source.reader(schema or source.schema()).partitions()


TYPES = [
    ("BOOLEAN", "boolean", "true", True),
    ("TINYINT", "tinyint", "-128", -128),
    ("SMALLINT", "smallint", "-32768", -32768),
    ("INTEGER", "int", "-2147483648", -(2**31)),
    ("BIGINT", "bigint", "9223372036854775807", 2**63 - 1),
    ("UTINYINT", "smallint", "255", 255),
    ("USMALLINT", "int", "65535", 65535),
    ("UINTEGER", "bigint", "4294967295", 2**32 - 1),
    ("UBIGINT", "decimal(20,0)", "18446744073709551615", decimal.Decimal(2**64 - 1)),
    (
        "HUGEINT",
        "decimal(38,0)",
        "-99999999999999999999999999999999999999",
        decimal.Decimal(-(10**38 - 1)),
    ),
    ("FLOAT", "float", "'-inf'", float("-inf")),
    ("DOUBLE", "double", "1e308", 1e308),
    ("DECIMAL(4,1)", "decimal(4,1)", "-999.9", decimal.Decimal("-999.9")),
    (
        "DECIMAL(38,38)",
        "decimal(38,38)",
        "0.00000000000000000000000000000000000001",
        decimal.Decimal("1E-38"),
    ),
    ("VARCHAR", "string", "'it''s \u00e4 \U0001f986' || chr(0)", "it's \u00e4 \U0001f986\0"),
    ("BLOB", "binary", "'\\x00\\xFFa'::BLOB", bytearray(b"\x00\xffa")),
    ("UUID", "string", "'6b7d0c1e-0000-4000-8000-000000000001'", "6b7d0c1e-0000-4000-8000-000000000001"),
    ("JSON", "string", '\'{"a": [1]}\'', '{"a": [1]}'),
    ("ENUM('sad','ok')", "string", "'ok'", "ok"),
    ("DATE", "date", "'0001-01-01'", datetime.date(1, 1, 1)),
    ("TIME", "time(6)", "'23:59:59.999999'", datetime.time(23, 59, 59, 999999)),
    (
        "TIMESTAMP",
        "timestamp_ntz",
        "'1969-12-31 23:59:59.999999'",
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    ),
    ("TIMESTAMP_S", "timestamp_ntz", "'2020-02-29 01:02:03'", datetime.datetime(2020, 2, 29, 1, 2, 3)),
    (
        "TIMESTAMP_MS",
        "timestamp_ntz",
        "'2020-02-29 01:02:03.004'",
        datetime.datetime(2020, 2, 29, 1, 2, 3, 4000),
    ),
    (
        "INTERVAL",
        "interval day to second",
        "INTERVAL '-1 day' + INTERVAL '3 hours' + INTERVAL '5 microseconds'",
        datetime.timedelta(days=-1, hours=3, microseconds=5),
    ),
    ("INTEGER[]", "array<int>", "[1, NULL, -3]", [1, None, -3]),
    ("UTINYINT[2]", "array<smallint>", "[1, 255]", [1, 255]),
    ("VARCHAR[][]", "array<array<string>>", "[['a'], [], NULL]", [["a"], [], None]),
    ("MAP(VARCHAR, DECIMAL(9,2))", "map<string,decimal(9,2)>", "MAP {'k': 1.25, 'n': NULL}",
     {"k": decimal.Decimal("1.25"), "n": None}),
    (
        'STRUCT("a b" INTEGER, l STRUCT(x TIMESTAMP[]))',
        "struct<a b:int,l:struct<x:array<timestamp_ntz>>>",
        "{'a b': 1, 'l': {'x': ['2020-01-01 00:00:00'::TIMESTAMP]}}",
        Row(**{"a b": 1, "l": Row(x=[datetime.datetime(2020, 1, 1)])}),
    ),
]  # fmt: skip


def test_every_type_is_read_exactly(spark, sql, options, table):
    columns = ", ".join(f"c{number} {one[0]}" for number, one in enumerate(TYPES))
    sql(f"CREATE TABLE {table} ({columns})")
    sql(f"INSERT INTO {table} VALUES ({', '.join(one[2] for one in TYPES)})")
    sql(f"INSERT INTO {table} SELECT {', '.join(['NULL'] * len(TYPES))}")
    frame = load(spark, options, table=table)
    assert [field.dataType.simpleString() for field in frame.schema] == [one[1] for one in TYPES]
    rows = sorted(frame.collect(), key=lambda row: row[0] is None)
    assert list(rows[1]) == [None] * len(TYPES)
    for number, one in enumerate(TYPES):
        assert rows[0][number] == one[3], one[0]


def test_an_instant_stays_an_instant(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (t TIMESTAMPTZ)")
    sql(f"INSERT INTO {table} VALUES ('2024-07-01 12:00:00.000001+00')")
    frame = load(spark, options, table=table)
    assert frame.schema[0].dataType.simpleString() == "timestamp"
    (row,) = frame.selectExpr("unix_micros(t) u", "cast(t AS string) s").collect()
    assert (row.u, row.s) == (1_719_835_200_000_001, "2024-07-01 14:00:00.000001")


def test_what_has_no_type_is_named_per_column(spark, sql, options, table):
    refused = [
        "TIMESTAMP_NS",
        "TIMETZ",
        "BIT",
        "BIGNUM",
        "UNION(a INTEGER)",
        "INTERVAL[]",
        "VARIANT[]",
    ]
    columns = ", ".join(f"bad{number} {kind}" for number, kind in enumerate(refused))
    sql(f"CREATE TABLE {table} (good INTEGER, {columns})")
    words = refusal(lambda: load(spark, options, table=table))
    for number in range(len(refused)):
        assert f'column "bad{number}" of table main.{table}:' in words
    assert '"good"' not in words
    assert "read it by query with c::VARCHAR" in words
    assert load(spark, options, table=table, columns="good").count() == 0


def test_values_that_do_not_fit_are_told_before_the_first_row(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (i INTERVAL)")
    sql(f"INSERT INTO {table} VALUES (INTERVAL '1 month')")
    frame = load(spark, options, table=table)
    assert "an interval with months has no place" in refusal(frame.collect)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("'infinity'::DATE", "Spark's dates know no infinity"),
        ("'-infinity'::TIMESTAMP_MS", "Spark's timestamps know no infinity"),
        ("'infinity'::TIMESTAMPTZ", "Spark's timestamps know no infinity"),
        ("'24:00:00'::TIME", "Spark's days end before 24:00:00"),
    ],
)
def test_values_that_spark_does_not_have_never_become_others(options, value, expected):
    with pytest.raises(SparkError, match=f'column "c": {expected}'):
        parts_of(options, query=f"SELECT {value} AS c")


def test_variants_are_those_of_spark(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (i INTEGER, v VARIANT)")
    sql(
        f"INSERT INTO {table} VALUES (1, {{'d': DATE '1960-02-29', 'n': 1.25::DECIMAL(9,2), 'l': [1, NULL]}}), "
        "(2, 'text'), (3, NULL)"
    )
    frame = load(spark, options, table=table)
    assert frame.schema["v"].dataType.simpleString() == "variant"
    told = frame.selectExpr("i", "schema_of_variant(v) AS s", "to_json(v) AS j").orderBy("i")
    assert [tuple(row) for row in told.collect()] == [
        (1, "OBJECT<d: DATE, l: ARRAY<BIGINT>, n: DECIMAL(3,2)>",
         '{"d":"1960-02-29","l":[1,null],"n":1.25}'),
        (2, "STRING", '"text"'),
        (3, None, None),
    ]  # fmt: skip


def test_all_partitions_see_one_moment(spark, sql, options, table, spark_cluster):
    """A writer moves amounts between rows all the time; a mixed state would have another sum."""
    sql(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, amount BIGINT)")
    sql(f"INSERT INTO {table} SELECT range, 100 FROM range(2000)")
    stop = threading.Event()
    moved = []

    def move() -> None:
        session = spark_cluster.connect()
        number = 0
        while not stop.is_set():
            number += 1
            low, high = number % 1000, 1999 - number % 1000
            session.execute(
                f"UPDATE cp.{table} SET amount = amount + CASE WHEN id = {low} THEN -7 ELSE 7 END "
                f"WHERE id IN ({low}, {high})"
            ).fetchall()
            moved.append(number)
        session.close()

    thread = threading.Thread(target=move)
    thread.start()
    try:
        for more in ({}, {"inline_bytes_max": "0"}, {"partition_column": "id", "lower_bound": "0",
                                                     "upper_bound": "2000"}):  # fmt: skip
            frame = load(spark, options, table=table, num_partitions="7", **more)
            row = frame.selectExpr("sum(amount) s", "count(*) n", "count(DISTINCT id) d").first()
            assert (row.s, row.n, row.d) == (200_000, 2000, 2000)
    finally:
        stop.set()
        thread.join()
    assert moved


def test_rows_are_split_and_complete(spark, sql, options, table, tmp_path):
    sql(f"CREATE TABLE {table} (i BIGINT, d DATE)")
    sql(
        f"INSERT INTO {table} SELECT range, DATE '2024-01-01' + (range % 366)::INTEGER FROM range(10000)"
    )
    sql(f"INSERT INTO {table} VALUES (NULL, NULL), (-5, NULL), (99999, NULL)")
    frame = load(
        spark,
        options,
        table=table,
        num_partitions="5",
        inline_bytes_max="0",
        staging_dir=str(tmp_path),
    )
    sizes = frame.rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert len(sizes) == 5
    assert sum(sizes) == 10_003
    assert min(sizes) > 1000
    assert len(list(tmp_path.glob("quack-spark-read-*/part-*.arrow"))) == 5
    ranged = load(
        spark,
        options,
        table=table,
        num_partitions="4",
        partition_column="i",
        lower_bound="0",
        upper_bound="10000",
    )
    parts = ranged.rdd.mapPartitions(lambda rows: [[row.i for row in rows]]).collect()
    assert [len(part) for part in parts] == [2502, 2500, 2500, 2501]
    assert {None, -5, 0, 2499} <= set(parts[0])
    assert {7500, 9999, 99999} <= set(parts[3])
    by_day = load(
        spark,
        options,
        table=table,
        num_partitions="2",
        partition_column="d",
        lower_bound="2024-01-01",
        upper_bound="2024-12-31",
    )
    days = by_day.rdd.mapPartitions(lambda rows: [[row.d for row in rows if row.d]]).collect()
    assert max(days[0]) < min(days[1])


def test_parts_have_the_size_that_is_worth_a_task(sql, options, table, tmp_path):
    sql(f"CREATE TABLE {table} AS SELECT range AS i, repeat('x', 1000) AS s FROM range(40000)")
    given = {**options, "staging_dir": str(tmp_path)}

    def read(**more: str) -> list[pa.Table]:
        source = QuackDataSource({**given, **more})
        reader = source.reader(source.schema())
        return [pa.Table.from_batches(reader.read(part)) for part in reader.partitions()]

    parts = read(query=f"SELECT * FROM {table} ORDER BY i")
    assert [abs(part.num_rows - 20_000) < 2500 for part in parts] == [True, True]
    assert pa.concat_tables(parts).column("i").to_pylist() == list(range(40_000))
    assert [part.num_rows for part in read(query=f"FROM {table} WHERE i < 3000")] == [3000]
    assert [part.num_rows for part in read(table=table, columns="i")] == [40_000]


def test_planning_keeps_a_session_and_replaces_one_that_does_not_answer(
    sql, options, table, monkeypatch
):
    sql(f"CREATE TABLE {table} AS SELECT range AS i FROM range(3)")
    opened: list[duckdb.DuckDBPyConnection] = []

    def connect_and_note(**given: object) -> duckdb.DuckDBPyConnection:
        opened.append(quack.connect(**given))
        return opened[-1]

    monkeypatch.setattr("quack.spark.connection.connect", connect_and_note)

    def rows(**more: str) -> list[int]:
        source = QuackDataSource({**options, "table": table, **more})
        reader = source.reader(source.schema())
        found = [batch for part in reader.partitions() for batch in reader.read(part)]
        return [value for batch in found for value in batch.column("i").to_pylist()]

    assert rows(request_timeout_s="41") == [0, 1, 2]
    assert len(opened) == 1
    sql(f"INSERT INTO {table} VALUES (3)")
    sql(f"ALTER TABLE {table} ADD COLUMN k INTEGER")
    assert rows(request_timeout_s="41") == [0, 1, 2, 3]
    assert len(opened) == 1
    opened[0].execute("USE memory")
    opened[0].execute("DETACH cp")
    assert rows(request_timeout_s="41") == [0, 1, 2, 3]
    assert rows(request_timeout_s="42") == [0, 1, 2, 3]
    assert len(opened) == 3
    with pytest.raises(duckdb.ConnectionException):
        opened[1].execute("SELECT 1")  # of other options: closed


def test_a_sharded_table_is_split_by_its_shards(spark, sql, options, table):
    sql("SELECT quack_multiraft_sql_set_enabled(true)")
    sql(
        f'CREATE TABLE {table} ("The, Tenant" VARCHAR, region INTEGER, n BIGINT)'
        """ WITH (quack_shard_key = '"The, Tenant",region', quack_initial_groups = 3)"""
    )
    sql(f"INSERT INTO {table} SELECT 'tenant ' || range % 40, range % 3, range FROM range(5000)")

    def parts(**more: str) -> list[set[int]]:
        read = load(spark, options, table=table, columns="n", **more)
        found = read.rdd.mapPartitions(lambda rows: [[row.n for row in rows]]).collect()
        assert sum(len(part) for part in found) == 5000
        return [set(part) for part in found]

    def expected(groups: int) -> list[set[int]]:
        slot = f'quack_slot("The, Tenant", region) % {groups}'
        rows = sql(f"SELECT list(n) FROM {table} GROUP BY {slot} ORDER BY {slot}")
        return [set(part) for (part,) in rows]

    assert parts() == expected(3)
    sql(f"ALTER TABLE {table} SET GROUPS 5")
    assert parts() == expected(5)
    assert len(parts(num_partitions="2")) == 2
    sql(f"ALTER TABLE {table} SET GROUP DEFAULT")
    assert len(parts()) == 1
    sql("SELECT quack_multiraft_sql_set_enabled(false)")


@pytest.mark.parametrize(
    ("column", "lower", "upper", "expected"),
    [
        (
            "i",
            "abc",
            "9",
            "option lower_bound: 'abc' is not a number, as partition_column i .BIGINT.",
        ),
        ("d", "2024-01-01", "9", "option upper_bound: '9' is not a date or timestamp"),
        ("i", "9", "1", "options lower_bound and upper_bound: 9 is above 1"),
        ("s", "a", "z", "option partition_column: s is VARCHAR; expected a column of numbers"),
        (
            "x",
            "1",
            "9",
            "option partition_column: x is not among the columns that are read: i, d, s",
        ),
    ],
)
def test_bounds_are_checked_before_anything_is_read(options, column, lower, upper, expected):
    with pytest.raises(SparkError, match=expected):
        parts_of(
            options,
            query="SELECT 1::BIGINT AS i, DATE '2024-01-01' AS d, 'a' AS s",
            num_partitions="2",
            partition_column=column,
            lower_bound=lower,
            upper_bound=upper,
        )


def test_queries_may_end_as_people_end_them(options):
    for end in (" -- comment", ";", " ;\n", "\n-- comment\n"):
        assert sum(part.rows for part in parts_of(options, query=f"SELECT 1 AS a{end}")) == 1


def test_null_where_the_given_schema_has_none(options):
    schema = StructType([StructField("a", IntegerType(), nullable=False)])
    query = "SELECT unnest([1, NULL]) AS a"
    with pytest.raises(SparkError, match='column "a" of the query has NULL, and the schema'):
        parts_of(options, schema, query=query)
    assert sum(part.rows for part in parts_of(options, schema, query=f"{query} LIMIT 1")) == 1


def test_queries_columns_and_given_schemas(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (a INTEGER, b VARCHAR, c DOUBLE)")
    sql(f"INSERT INTO {table} VALUES (1, 'x', 0.5), (2, 'y', 1.5)")
    query = f"SELECT b, sum(a) AS total FROM {table} GROUP BY b"
    assert sorted(load(spark, options, query=query).collect()) == [("x", 1), ("y", 2)]
    some = load(spark, options, table=table, columns="C,a")
    assert some.columns == ["c", "a"]
    assert sorted(some.collect()) == [(0.5, 1), (1.5, 2)]
    given = spark.read.format("quack").options(**options, table=table).schema("b string")
    assert sorted(row.b for row in given.load().collect()) == ["x", "y"]
    wrong = spark.read.format("quack").options(**options, table=table).schema("b int, z int")
    words = refusal(wrong.load().collect)
    assert 'column "b"' in words
    assert "the schema expects int, it is VARCHAR" in words
    assert 'column "z" of the schema is not in table' in words


def test_an_empty_table_has_no_rows(spark, sql, options, table):
    sql(f"CREATE TABLE {table} (a INTEGER)")
    assert load(spark, options, table=table).collect() == []
    assert load(spark, options, table=table, num_partitions="3").count() == 0


def test_a_dataframe_is_one_snapshot_for_its_life(spark, sql, options, table):
    """So a self-join never mixes two states; a new load sees the new one."""
    sql(f"CREATE TABLE {table} AS SELECT range AS i FROM range(10)")
    frame = load(spark, options, table=table)
    assert frame.count() == 10
    sql(f"INSERT INTO {table} VALUES (10)")
    assert frame.alias("l").join(frame.alias("r"), "i").count() == 10
    assert frame.where("i >= 9").count() == 1
    assert load(spark, options, table=table).count() == 11


def test_filters_are_never_pushed(spark, sql, options, table):
    """Spark would keep the rows of the first filter for all later uses of the DataFrame."""
    sql(f"CREATE TABLE {table} AS SELECT range AS i FROM range(10)")
    assert "option pushdown: Spark 4.3 gives wrong rows" in refusal(
        lambda: load(spark, options, table=table, pushdown="true")
    )
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, options, table=table)
        assert frame.where("i = 5").count() == 1
        assert frame.count() == 10
        assert frame.where("i < 3").count() == 3
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")


def test_an_expired_snapshot_says_so(sql, options, table, tmp_path):
    sql(f"CREATE TABLE {table} AS SELECT range AS i FROM range(1000)")
    given = {**options, "table": table, "inline_bytes_max": "0", "staging_dir": str(tmp_path)}
    source = QuackDataSource(given)
    reader = source.reader(source.schema())
    (part, *_) = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(part)) == part.rows > 0
    os.utime(pathlib.Path(part.files[0]).parent, (1, 1))
    assert staged.sweep(tmp_path, 60) == 1
    with pytest.raises(
        SparkError, match=r"snapshot expired or out of reach: .*Make the DataFrame anew"
    ):
        list(reader.read(part))


def test_a_full_or_missing_staging_folder_is_named(sql, options, table, tmp_path):
    sql(f"CREATE TABLE {table} AS SELECT range AS i FROM range(1000)")
    given = {
        **options,
        "table": table,
        "inline_bytes_max": "0",
        "staging_dir": str(tmp_path / "none"),
    }
    source = QuackDataSource(given)
    with pytest.raises(
        SparkError, match=r"cannot stage the rows .*none: No such file.*staging_dir"
    ):
        source.reader(source.schema()).partitions()
    source = QuackDataSource({**given, "staging_dir": "/dev/full"})
    with pytest.raises(SparkError, match="cannot stage the rows of the read in /dev/full"):
        source.reader(source.schema()).partitions()
    assert list(tmp_path.iterdir()) == []


def test_a_staging_folder_without_space_is_named(options, tmp_path):
    words = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0777", "tmpfs", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"this user cannot mount a small file system: {done.stderr.strip()}")
    try:
        with pytest.raises(
            SparkError, match=r"cannot stage the rows .*No space left on device.*staging_dir"
        ):
            parts_of(
                options,
                query="SELECT range AS i FROM range(200000)",
                inline_bytes_max="0",
                staging_dir=str(tmp_path),
            )
        assert list(tmp_path.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_read_goes_on_when_the_leader_dies(spark, sql, options, table, spark_cluster):
    sql(f"CREATE TABLE {table} AS SELECT range AS i FROM range(1000)")
    frame = load(spark, options, table=table)
    leader = spark_cluster.wait_leader()
    leader.kill()
    try:
        assert frame.count() == 1000
    finally:
        leader.start()
        spark_cluster.wait_leader()


def test_bad_places_and_tokens(spark, options, sql, table):
    sql(f"CREATE TABLE {table} (a INTEGER)")
    token = options["token"]
    good = {**options, "request_timeout_s": "3"}
    words = refusal(lambda: load(spark, {**good, "url": "quack:127.0.0.1:1"}, table=table), token)
    assert "cannot attach quack:127.0.0.1:1" in words
    assert "[quack:unavailable]" in words
    words = refusal(lambda: load(spark, {**good, "token": "wr0ng-one"}, table=table), "wr0ng-one")
    assert "cannot attach" in words
    assert "[quack:unauthorized]" in words
    bad = {**good, "ca_file": "/etc/hostname"}
    words = refusal(lambda: load(spark, bad, table=table), token)
    assert 'option ca_file "/etc/hostname" cannot be read as PEM certificates' in words
    words = refusal(lambda: load(spark, good, table="nope"), token)
    assert "cannot read table main.nope" in words
    words = refusal(lambda: load(spark, good, query="DELETE FROM x"), token)
    assert "option query: expected a SELECT" in words
    words = refusal(lambda: load(spark, good, query="SELECT 1; SELECT 2"), token)
    assert "2 statements; expected one SELECT" in words
    words = refusal(lambda: load(spark, good, query="SELECT nope"), token)
    assert "cannot read the query" in words
    words = refusal(lambda: load(spark, good, table=table, columns="b"), token)
    assert "has no column b; it has a" in words


def test_no_secret_in_plans_and_parts(spark, sql, options, table, capfd):
    sql(f"CREATE TABLE {table} (a INTEGER)")
    sql(f"INSERT INTO {table} VALUES (1)")
    frame = load(spark, options, table=table)
    frame.explain(True)
    frame.explain("formatted")
    out, err = capfd.readouterr()
    assert "quack" in out
    assert options["token"] not in out + err
    from pyspark import cloudpickle

    reader = SnapshotReader(QuackOptions.parse({**options, "table": table}), frame.schema)
    parts = reader.partitions()
    assert options["token"].encode() not in cloudpickle.dumps((reader, parts))
    assert options["token"] not in repr(parts)


def test_spark_finds_the_source_by_itself():
    from pyspark_quack import DefaultSource

    assert DefaultSource.name() == "quack"
    assert issubclass(DefaultSource, QuackDataSource)


def test_the_default_save_mode_is_refused_by_spark(spark, options, sql, table):
    sql(f"CREATE TABLE {table} (a INTEGER)")
    with pytest.raises(AnalysisException):
        spark.range(1).selectExpr("cast(id AS int) a").write.format("quack").options(
            **options, table=table
        ).save()
