"""Goal: statements over remote tables, alone and beside local data, do what one DuckDB would do."""

from __future__ import annotations

import datetime
import decimal
import pathlib
import time
import uuid

import duckdb
import pandas
import pyarrow
import pytest

from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def table(session: duckdb.DuckDBPyConnection):
    """``cp.t`` with three rows, dropped afterwards."""
    session.execute("CREATE OR REPLACE TABLE cp.t (i INTEGER, s VARCHAR)")
    session.execute("INSERT INTO cp.t VALUES (1, 'a'), (2, 'b'), (3, NULL)")
    yield session
    session.execute("DROP TABLE IF EXISTS cp.t")


def rows(session: duckdb.DuckDBPyConnection, sql: str) -> list[tuple]:
    return session.execute(sql).fetchall()


def test_local_and_remote_in_one_query(table) -> None:
    table.execute("CREATE TABLE here AS SELECT range AS i, 'h' || range AS h FROM range(10)")
    assert rows(table, "SELECT i, s, h FROM cp.t JOIN here USING (i) ORDER BY i") == [
        (1, "a", "h1"),
        (2, "b", "h2"),
        (3, None, "h3"),
    ]
    assert rows(table, "SELECT count(*) FROM cp.t, here") == [(30,)]
    assert rows(table, "SELECT h FROM here WHERE i IN (SELECT i FROM cp.t WHERE s = 'b')") == [
        ("h2",)
    ]
    assert rows(
        table, "SELECT x.i FROM cp.t x, cp.t y, here WHERE x.i = y.i AND y.i = here.i ORDER BY 1"
    ) == [
        (1,),
        (2,),
        (3,),
    ]


def test_filters_of_mixed_queries_travel(table) -> None:
    """EXPLAIN shows the filter that the node applies; the result is the same as without it."""
    table.execute("CREATE TABLE here AS SELECT 2 AS i")
    sql = "SELECT t.i FROM cp.t, here WHERE t.i >= 2 AND t.s = 'b' AND t.i = here.i"
    plan = rows(table, f"EXPLAIN {sql}")[0][1]
    assert "Remote filter" in plan
    assert rows(table, sql) == [(2,)]


def test_whole_statements_are_one_remote_statement(table) -> None:
    plan = rows(
        table, "EXPLAIN SELECT x.s, count(*) FROM cp.t x JOIN cp.t y USING (i) GROUP BY ALL"
    )[0][1]
    assert "Remote SQL" in plan and "HASH_JOIN" not in plan


def test_explain_and_prepare_run_nothing(table) -> None:
    table.execute("EXPLAIN INSERT INTO cp.t VALUES (9, 'x')")
    table.execute("EXPLAIN DELETE FROM cp.t RETURNING i")
    table.execute("PREPARE ins AS INSERT INTO cp.t VALUES ($1, $2) RETURNING i")
    table.execute("PREPARE del AS DELETE FROM cp.t")
    assert rows(table, "SELECT count(*) FROM cp.t") == [(3,)]
    assert rows(table, "EXECUTE ins(10, 'p')") == [(10,)]
    assert rows(table, "SELECT count(*) FROM cp.t") == [(4,)]
    assert rows(table, "EXECUTE del") == [(4,)]


def test_relations_do_not_write_twice(table) -> None:
    assert table.sql("FROM cp.t ORDER BY i").fetchall()[0] == (1, "a")
    assert table.sql("INSERT INTO cp.t VALUES (5, 'once') RETURNING i").fetchall() == [(5,)]
    assert rows(table, "SELECT count(*) FROM cp.t WHERE i = 5") == [(1,)]


def test_unfetched_writes_happen(table) -> None:
    """execute() alone is enough; nobody has to fetch the count."""
    table.execute("INSERT INTO cp.t VALUES (6, 'x')")
    table.execute("UPDATE cp.t SET s = 'y' WHERE i = 6")
    assert rows(table, "SELECT s FROM cp.t WHERE i = 6") == [("y",)]


def test_create_table_as_both_ways(table) -> None:
    table.execute("CREATE TABLE mine AS FROM cp.t")
    assert rows(table, "SELECT count(*) FROM mine") == [(3,)]
    table.execute(
        "CREATE TABLE source AS SELECT range::INTEGER AS n, range % 7 AS m FROM range(5000)"
    )
    assert rows(table, "CREATE TABLE cp.copied AS FROM source") == [(5000,)]
    assert rows(table, "SELECT sum(n), sum(m), count(*) FROM cp.copied") == rows(
        table, "SELECT sum(n), sum(m), count(*) FROM source"
    )
    assert rows(table, "CREATE TABLE cp.inside AS SELECT * FROM cp.copied WHERE n < 10") == [(10,)]
    with pytest.raises(duckdb.Error, match="already exists"):
        table.execute("CREATE TABLE cp.copied AS FROM source")
    table.execute("DROP TABLE cp.copied")
    table.execute("DROP TABLE cp.inside")


def test_insert_from_frames(table) -> None:
    frame = pandas.DataFrame({"i": [10, 11], "s": ["p", None]})
    assert table.execute("INSERT INTO cp.t SELECT * FROM frame").fetchall() == [(2,)]
    arrow = pyarrow.table({"i": list(range(100, 4100)), "s": [str(n) for n in range(4000)]})
    assert table.execute("INSERT INTO cp.t SELECT * FROM arrow").fetchall() == [(4000,)]
    assert rows(table, "SELECT count(*), sum(i) FROM cp.t WHERE i >= 100") == [
        (4000, sum(range(100, 4100)))
    ]
    assert table.execute("INSERT INTO cp.t SELECT * FROM frame WHERE i < 0").fetchall() == [(0,)]
    assert (frame.shape, arrow.num_rows) == ((2, 2), 4000)


def test_slow_sources_have_no_deadline(session) -> None:
    """The deadline is about the answer; rows may take as long as they take."""
    session.execute("CREATE OR REPLACE TABLE cp.slow (i BIGINT, s VARCHAR)")
    session.execute("SET quack_request_timeout_ms = 1000")
    session.create_function("wait", lambda n: time.sleep(0.002) or n, [int], int)
    sql = "INSERT INTO cp.slow SELECT wait(i), repeat('x', 2000) FROM (SELECT range AS i FROM range(1500))"
    begun = time.monotonic()
    assert rows(session, sql) == [(1500,)]
    assert time.monotonic() - begun > 2
    assert rows(session, "SELECT count(*) FROM cp.slow") == [(1500,)]
    session.execute("DROP TABLE cp.slow")


def test_order_is_kept(session) -> None:
    session.execute("CREATE OR REPLACE TABLE cp.ordered (i INTEGER)")
    session.execute("CREATE TABLE src AS SELECT range::INTEGER AS i FROM range(20000)")
    session.execute("INSERT INTO cp.ordered SELECT i FROM src ORDER BY i DESC")
    got = [row[0] for row in rows(session, "FROM cp.ordered")]
    assert got == list(range(19999, -1, -1))
    session.execute("DROP TABLE cp.ordered")


def test_defaults_and_sequences_are_the_servers(session) -> None:
    session.execute("CREATE SEQUENCE cp.ids START 100")
    session.execute(
        "CREATE TABLE cp.d (id BIGINT DEFAULT nextval('ids'), n INTEGER, k VARCHAR DEFAULT 'lit', g INTEGER AS (n * 2))"
    )
    session.execute("CREATE TABLE src AS SELECT 7 AS n UNION ALL SELECT 8")
    assert rows(session, "INSERT INTO cp.d (n) SELECT n FROM src ORDER BY n") == [(2,)]
    assert rows(session, "SELECT id, n, k, g FROM cp.d ORDER BY n") == [
        (100, 7, "lit", 14),
        (101, 8, "lit", 16),
    ]
    assert rows(
        session, "INSERT INTO cp.d (k, n) SELECT 'w', n FROM src WHERE n = 8 RETURNING id, n, k"
    ) == [(102, 8, "w")]
    with pytest.raises(duckdb.Error, match="not supported: DEFAULT"):
        session.execute("INSERT INTO cp.d VALUES (DEFAULT, (SELECT max(n) FROM src), 'x')")
    assert rows(
        session,
        "SELECT column_name, column_default FROM duckdb_columns() WHERE table_name = 'd' AND column_default IS NOT NULL AND column_name <> 'g'",
    ) == [
        ("id", "nextval('ids')"),
        ("k", "'lit'"),
    ]
    session.execute("DROP TABLE cp.d")
    session.execute("DROP SEQUENCE cp.ids")


def test_copy_in_and_out(table, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "t.csv"
    table.execute(f"COPY cp.t TO '{file}' (HEADER)")
    assert file.read_text().splitlines() == ["i,s", "1,a", "2,b", "3,"]
    assert rows(table, f"COPY cp.t FROM '{file}' (HEADER)") == [(3,)]
    assert rows(table, "SELECT count(*) FROM cp.t") == [(6,)]
    table.execute(f"COPY (SELECT i FROM cp.t WHERE i = 1) TO '{tmp_path / 'q.csv'}'")


def test_updates_and_deletes_with_local_data(table) -> None:
    """Local rows pick remote rows: by join, subquery, data frame; the count and RETURNING are the node's."""
    table.execute(
        "CREATE TABLE here AS SELECT 1 AS i, 'new' AS v UNION ALL SELECT 3, NULL UNION ALL SELECT 9, 'x'"
    )
    assert rows(table, "UPDATE cp.t SET s = here.v FROM here WHERE here.i = t.i") == [(2,)]
    assert rows(table, "FROM cp.t ORDER BY i") == [(1, "new"), (2, "b"), (3, None)]
    assert rows(
        table,
        "UPDATE cp.t SET s = 'k', i = i + (SELECT max(i) FROM here) WHERE i = 2 RETURNING i, s",
    ) == [(11, "k")]
    assert rows(
        table, "DELETE FROM cp.t WHERE i IN (SELECT i FROM here WHERE v = 'new') RETURNING s"
    ) == [("new",)]
    assert rows(table, "DELETE FROM cp.t USING here WHERE t.i = here.i") == [(1,)]
    assert rows(table, "FROM cp.t") == [(11, "k")]
    assert rows(table, "DELETE FROM cp.t WHERE i IN (SELECT i FROM here WHERE false)") == [(0,)]


def test_merge_and_upsert_with_local_data(session) -> None:
    session.execute(
        "CREATE OR REPLACE TABLE cp.u (id INTEGER PRIMARY KEY, v VARCHAR DEFAULT 'dflt', n INTEGER)"
    )
    session.execute("INSERT INTO cp.u VALUES (1, 'a', 10), (2, 'b', 20), (3, 'c', 30)")
    frame = pandas.DataFrame({"id": [2, 3, 4], "v": ["B", "C", "D"], "n": [21, 31, 41]})
    session.execute(
        "MERGE INTO cp.u USING frame f ON u.id = f.id WHEN MATCHED AND f.id = 3 THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET v = f.v, n = u.n + 1"
        " WHEN NOT MATCHED THEN INSERT VALUES (f.id, f.v, f.n)"
    )
    assert rows(session, "FROM cp.u ORDER BY id") == [(1, "a", 10), (2, "B", 21), (4, "D", 41)]
    assert len(frame) == 3
    session.execute("INSERT OR IGNORE INTO cp.u SELECT * FROM frame")
    assert rows(session, "FROM cp.u ORDER BY id") == [
        (1, "a", 10),
        (2, "B", 21),
        (3, "C", 31),
        (4, "D", 41),
    ]
    session.execute(
        "INSERT INTO cp.u SELECT id, v || '!', n FROM frame"
        " ON CONFLICT (id) DO UPDATE SET v = excluded.v"
    )
    assert rows(session, "SELECT v FROM cp.u ORDER BY id") == [("a",), ("B!",), ("C!",), ("D!",)]
    session.execute("BEGIN")
    session.execute("INSERT OR REPLACE INTO cp.u SELECT id, 'R', 0 FROM frame")
    assert rows(session, "SELECT count(*) FROM cp.u WHERE v = 'R'") == [(3,)]
    session.execute("ROLLBACK")
    assert rows(session, "SELECT count(*) FROM cp.u WHERE v = 'R'") == [(0,)]
    with pytest.raises(duckdb.NotImplementedException, match="not supported: RETURNING"):
        session.execute(
            "MERGE INTO cp.u USING frame f ON u.id = f.id WHEN MATCHED THEN DELETE RETURNING u.id"
        )
    assert rows(session, "SELECT count(*) FROM cp.u") == [(4,)]
    session.execute("DROP TABLE cp.u")


def test_large_local_updates(session) -> None:
    """More rows than one batch, picked and changed by local data."""
    session.execute(
        "CREATE OR REPLACE TABLE cp.big AS SELECT range AS i, repeat('x', 50) AS s FROM range(60000)"
    )
    session.execute(
        "CREATE TABLE pick AS SELECT range * 2 AS i, repeat('y', 60) AS s FROM range(30000)"
    )
    assert rows(session, "UPDATE cp.big SET s = pick.s FROM pick WHERE big.i = pick.i") == [
        (30000,)
    ]
    assert rows(session, "SELECT count(*), sum(len(s)) FROM cp.big WHERE s[1] = 'y'") == [
        (30000, 1800000)
    ]
    assert rows(session, "DELETE FROM cp.big WHERE i IN (SELECT i FROM pick)") == [(30000,)]
    assert rows(session, "SELECT count(*) FROM cp.big") == [(30000,)]
    assert rows(
        session,
        "INSERT INTO cp.big SELECT pick.i, pick.s FROM pick LEFT JOIN cp.big b USING (i) WHERE b.i IS NULL",
    ) == [(30000,)]
    assert rows(session, "SELECT count(DISTINCT i) FROM cp.big") == [(60000,)]
    session.execute("DROP TABLE cp.big")


def test_python_functions_stay_here(table) -> None:
    table.create_function("twice", lambda n: n * 2, [int], int)
    assert rows(table, "SELECT twice(i) FROM cp.t WHERE twice(i) > 2 ORDER BY 1") == [(4,), (6,)]


VALUES = [
    True, -128, 2**31, 2**63 - 1, -(2**63), 2**64, 2**126, -(2**126), 0.1, -0.0, 1e300, 5e-324,
    float("inf"), float("-inf"), float("nan"), "", "it's", 'q"q', "nul\0x", "\N{DUCK}", b"\x00\xff'",
    decimal.Decimal("123456789.000000001"), datetime.date(2020, 2, 29), datetime.time(23, 59, 59, 999999),
    datetime.datetime(1, 1, 1), datetime.datetime(2020, 2, 29, 1, 2, 3, 456789),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), datetime.timedelta(days=3, microseconds=1),
    uuid.UUID(int=2**127 + 5), [1, None, 3], ["a", "b'c"], {"a": 1, "b c": "x"}, [[1.5], []], None,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_parameters_are_exact(table, value: object) -> None:
    """Type and value of a bound parameter arrive as they would locally."""
    plain = duckdb.connect()
    sql = "SELECT typeof(?), (?)::VARCHAR"
    wanted = plain.execute(sql, [value, value]).fetchall()
    assert table.execute(f"{sql} FROM cp.t LIMIT 1", [value, value]).fetchall() == wanted
    plain.close()


def test_parameters_in_every_place(table) -> None:
    assert table.execute(
        "SELECT i FROM cp.t WHERE i > $low AND i <= $high LIMIT $n", {"low": 1, "high": 3, "n": 1}
    ).fetchall() == [(2,)]
    assert table.execute("INSERT INTO cp.t VALUES (?, ?)", [50, "fifty"]).fetchall() == [(1,)]
    assert table.execute(
        "UPDATE cp.t SET s = ? WHERE i = ? RETURNING s", ["50!", 50]
    ).fetchall() == [("50!",)]
    table.executemany("INSERT INTO cp.t VALUES (?, ?)", [[60, "a"], [61, "b"], [62, None]])
    assert rows(table, "SELECT count(*) FROM cp.t WHERE i >= 60") == [(3,)]
    assert table.execute("DELETE FROM cp.t WHERE i = ANY(?)", [[60, 61]]).fetchall() == [(2,)]


def test_free_sql(table) -> None:
    assert rows(table, "FROM cp.query('SELECT i FROM t ORDER BY i')") == [(1,), (2,), (3,)]
    assert rows(table, "FROM quack_query_by_name('cp', 'UPDATE t SET s = ''u'' WHERE i = 3')") == [
        (1,)
    ]
    assert rows(table, "FROM cp.query('INSERT INTO t VALUES (4, ''d'') RETURNING i')") == [(4,)]
    assert rows(table, "SELECT s FROM cp.t WHERE i IN (3, 4) ORDER BY i") == [("u",), ("d",)]
    for sql, message in (
        ("BEGIN", "not supported"),
        ("SET threads = 1", "not supported"),
        ("SELECT 1; SELECT 2", "not supported"),
        ("", "no statement"),
        ("SELEC", "yntax error"),
    ):
        with pytest.raises(duckdb.Error, match=message):
            table.execute(f"FROM cp.query('{sql}')")
    with pytest.raises(duckdb.Error, match="nosuch"):
        table.execute("FROM quack_query_by_name('nosuch', 'SELECT 1')")


def test_abandoned_results_do_no_harm(table) -> None:
    table.execute("INSERT INTO cp.t SELECT range, 'x' FROM range(200000)")
    for _ in range(5):
        cursor = table.cursor()
        cursor.execute("SELECT * FROM cp.t")
        cursor.fetchone()
        cursor.close()
    assert rows(table, "SELECT count(*) FROM cp.t") == [(200003,)]
    assert rows(table, "SELECT i FROM cp.t WHERE i = 2 LIMIT 1") == [(2,)]


def test_use_and_unqualified_names(cluster: LocalCluster, table) -> None:
    table.execute("CREATE SCHEMA IF NOT EXISTS cp.sub")
    table.execute("CREATE TABLE cp.sub.only_here (x INTEGER)")
    table.execute("USE cp.sub")
    table.execute("INSERT INTO only_here VALUES (1)")
    assert rows(table, "SELECT * FROM only_here") == [(1,)]
    table.execute("USE cp")
    assert rows(table, "SELECT count(*) FROM t") == [(3,)]
    with pytest.raises(duckdb.Error, match="only_here"):
        table.execute("SELECT * FROM only_here")
    table.execute("DROP SCHEMA cp.sub CASCADE")
    table.execute("USE memory")


def test_attach_survives_whatever_the_schema_holds(cluster: LocalCluster, session) -> None:
    """Broken views and odd names are listed or skipped, never fatal."""
    session.execute('CREATE SCHEMA cp."odd schema"')
    session.execute(
        'CREATE TABLE cp."odd schema"."select" ("from" INTEGER, "a""b" VARCHAR DEFAULT upper(\'q\'))'
    )
    session.execute("CREATE TABLE cp.base (i INTEGER)")
    session.execute("CREATE VIEW cp.broken AS SELECT i FROM cp.base")
    session.execute("DROP TABLE cp.base")
    fresh = cluster.connect(consistency="linearizable")
    fresh.execute('INSERT INTO cp."odd schema"."select" ("from") VALUES (1)')
    assert rows(fresh, 'SELECT * FROM cp."odd schema"."select"') == [(1, "Q")]
    names = {
        row[0]
        for row in rows(
            fresh, "SELECT table_name FROM information_schema.tables WHERE table_catalog = 'cp'"
        )
    }
    assert {"select", "broken"} <= names
    with pytest.raises(duckdb.Error, match="base"):
        fresh.execute("FROM cp.broken")
    fresh.execute("DROP VIEW cp.broken")
    fresh.execute('DROP SCHEMA cp."odd schema" CASCADE')
    fresh.close()


def test_mixed_scans_see_one_snapshot(table, other) -> None:
    """Two remote pieces of one mixed statement agree although another client writes all the time."""
    import threading

    table.execute("CREATE TABLE one AS SELECT 1 AS x")
    stop = threading.Event()

    def write() -> None:
        n = 1000
        while not stop.is_set():
            other.execute("INSERT INTO cp.t VALUES (?, 'w')", [n])
            n += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(15):
            left, right = rows(
                table,
                "SELECT (SELECT count(*) FROM cp.t, one WHERE one.x = 1), (SELECT count(*) FROM cp.t, one WHERE one.x = 1)",
            )[0]
            assert left == right
    finally:
        stop.set()
        writer.join()
