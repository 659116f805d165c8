"""Corners: odd types and names, DDL and DML mixed, bulk ways in, snapshots of prepared sessions."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pandas
import pytest
from catalog_replica import Cluster, Replica

CASES = {
    "nested schemas": [
        "CREATE SCHEMA a", "CREATE SCHEMA a.b", "CREATE TABLE a.b.t(i INT)", "INSERT INTO a.b.t VALUES (1)",
        "UPDATE a.b.t SET i = 2", "CREATE VIEW a.b.v AS FROM a.b.t", "DROP VIEW a.b.v",
    ],
    "variant": [
        "CREATE TABLE v(x VARIANT, i INT)",
        "INSERT INTO v VALUES (42::VARIANT, 1), ('abc'::VARIANT, 2), ({'a': 1, 'b': [1, 2]}::VARIANT, 3), (NULL, 4)",
        "INSERT INTO v SELECT {'a': range, 'b': 's' || range}::VARIANT, 100 + range FROM range(20000)",
        "UPDATE v SET i = 10 WHERE i = 3", "UPDATE v SET x = 'new'::VARIANT WHERE i = 10",
        "DELETE FROM v WHERE i % 7 = 1",
    ],
    "geometry": [
        "CREATE TABLE g(p GEOMETRY, i INT)",
        "INSERT INTO g VALUES ('POINT(1 2)'::GEOMETRY, 1), ('LINESTRING(1 2, 3 4)'::GEOMETRY, 2), (NULL, 3)",
        "UPDATE g SET i = 5 WHERE i = 2", "DELETE FROM g WHERE i = 1",
    ],
    "nested values": [
        "CREATE TABLE n(l INT[], s STRUCT(a INT, b VARCHAR[]), m MAP(INT, VARCHAR), u UNION(n INT, t VARCHAR), a INT[3])",
        "INSERT INTO n VALUES ([1, 2, NULL], {'a': 1, 'b': ['x']}, MAP {1: 'a'}, 'tt', [1, 2, 3])",
        "UPDATE n SET s = {'a': 2, 'b': ['y']}", "UPDATE n SET l = [5]", "UPDATE n SET m = MAP {2: 'b'}, u = 7",
    ],
    "composite key": [
        "CREATE TABLE p(a INT, b VARCHAR, c INT, PRIMARY KEY (a, b))",
        "INSERT INTO p SELECT range % 10, 'k' || range, 0 FROM range(1000)", "UPDATE p SET c = 1 WHERE a = 3",
        "DELETE FROM p WHERE a = 4",
        "INSERT INTO p SELECT range % 10, 'k' || range, 9 FROM range(900) ON CONFLICT DO UPDATE SET c = excluded.c",
    ],
    "same key again in one transaction": [
        "CREATE TABLE p(i INT PRIMARY KEY, s VARCHAR)", "INSERT INTO p SELECT range, 'a' FROM range(100)", "BEGIN",
        "DELETE FROM p WHERE i < 50", "INSERT INTO p SELECT range, 'b' FROM range(50)", "DELETE FROM p WHERE i = 7",
        "INSERT INTO p VALUES (7, 'c')", "COMMIT",
    ],
    "self reference": [
        "CREATE TABLE r(i INT PRIMARY KEY, p INT REFERENCES r(i))", "INSERT INTO r VALUES (1, NULL)",
        "INSERT INTO r VALUES (2, 1), (3, 1)", "DELETE FROM r WHERE i = 3",
    ],
    "references in one transaction": [
        "BEGIN", "CREATE TABLE zparent(i INT PRIMARY KEY)", "CREATE TABLE achild(i INT REFERENCES zparent(i))",
        "INSERT INTO zparent VALUES (1), (2)", "INSERT INTO achild VALUES (1), (2), (2)", "COMMIT",
    ],
    "rename while writing": [
        "CREATE TABLE t AS FROM range(10)", "BEGIN", "DELETE FROM t WHERE range = 3", "INSERT INTO t VALUES (100)",
        "ALTER TABLE t RENAME range TO r", "ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (101)",
        "DELETE FROM u WHERE r = 4", "COMMIT",
    ],
    "drop and create again": [
        "CREATE TABLE t AS FROM range(10)", "BEGIN", "DELETE FROM t WHERE range = 1", "DROP TABLE t",
        "CREATE TABLE t(x VARCHAR)", "INSERT INTO t VALUES ('new')", "COMMIT",
    ],
    "update then drop a column": [
        "CREATE TABLE t(a INT, b INT, c INT)", "INSERT INTO t VALUES (1, 2, 3), (4, 5, 6)", "BEGIN",
        "UPDATE t SET c = 7 WHERE a = 1", "ALTER TABLE t DROP COLUMN b", "COMMIT",
    ],
    "odd names": [
        'CREATE TABLE "weird.na""me"("a b" INT, "SELECT" INT)', 'INSERT INTO "weird.na""me" VALUES (1, 2)',
        'UPDATE "weird.na""me" SET "a b" = 3', 'CREATE SCHEMA "sch.ema"', 'CREATE TABLE "sch.ema"."t\'t"(i INT)',
        'INSERT INTO "SCH.EMA"."T\'T" VALUES (1)',
    ],
    "macros in the search path": [
        "CREATE SCHEMA app", "CREATE TABLE app.x(i INT)", "USE cp.app", "CREATE MACRO first_x() AS (SELECT min(i) FROM x)",
        "CREATE MACRO all_x() AS TABLE FROM x", "COMMENT ON MACRO first_x IS 'smallest'", "USE cp",
    ],
    "prepared": [
        "CREATE TABLE t(i INT, s VARCHAR)", "PREPARE p AS INSERT INTO t VALUES ($1, $2)", "EXECUTE p(1, 'a')",
        "EXECUTE p(2, 'b')", "PREPARE d AS DELETE FROM t WHERE i = $1", "EXECUTE d(1)",
    ],
    "database copy": [
        "ATTACH ':memory:' AS m", "CREATE TABLE m.x(i INT PRIMARY KEY, s VARCHAR)",
        "INSERT INTO m.x SELECT range, 's' FROM range(100)", "CREATE VIEW m.vv AS SELECT i FROM m.x",
        "COPY FROM DATABASE m TO cp", "DELETE FROM x WHERE i % 2 = 0",
    ],
}  # fmt: skip


@pytest.mark.parametrize("checkpoint", [False, True], ids=["plain", "checkpoints"])
@pytest.mark.parametrize("name", list(CASES))
def test_case(cluster: Cluster, name: str, checkpoint: bool) -> None:
    """All replicas equal after each case; row ids may differ between replicas after checkpoints of one of them."""
    con = cluster[0].con
    before = cluster.assert_equal()
    in_transaction = False
    for statement in CASES[name]:
        con.execute(statement).fetchall()
        in_transaction = statement == "BEGIN" or (in_transaction and statement != "COMMIT")
        if checkpoint and not in_transaction:
            cluster[1].command("wait")
            cluster[1].command("checkpoint")
    assert cluster.assert_equal() != before


def test_row_ids_may_differ(cluster: Cluster) -> None:
    """After most rows went, a checkpoint renumbers the rest on one replica only: rows are found by value all the same."""
    a, b, c = cluster.replicas
    a.con.execute("CREATE TABLE k(i INT PRIMARY KEY, s VARCHAR)")
    a.con.execute("CREATE TABLE n(i INT, s VARCHAR)")
    for table in ("k", "n"):
        a.con.execute(f"INSERT INTO {table} SELECT range, 's' || (range % 10) FROM range(300000)")
        a.con.execute(f"DELETE FROM {table} WHERE i % 10 <> 0")
    b.command("wait")
    b.command("checkpoint")
    c.command("wait")
    for table in ("k", "n"):
        ids = [replica.rows(f"SELECT max(rowid) FROM {table}") for replica in (a, b)]
        assert ids[0] != ids[1], "the checkpoint did not renumber: the test tests nothing"
        b.con.execute(f"UPDATE {table} SET s = 'b' WHERE i % 100 = 0")
        c.command("wait")
        c.con.execute(f"DELETE FROM {table} WHERE i % 100 = 10")
        b.command("wait")
    cluster.assert_equal()


def test_data_frames_and_appends(cluster: Cluster) -> None:
    a = cluster[0]
    a.con.execute("CREATE TABLE t(i BIGINT, s VARCHAR)")
    frame = pandas.DataFrame({"i": range(5000), "s": [f"row {i}" for i in range(5000)]})
    a.con.execute("INSERT INTO t FROM frame")
    a.con.append("t", frame)
    assert frame.shape == (5000, 2)
    cluster.assert_equal()
    assert cluster[1].rows("SELECT count(*), count(DISTINCT i) FROM t") == [(10000, 5000)]


def test_changed_before_and_after_an_alter_is_refused_in_words(replica: Replica) -> None:
    con = replica.con
    con.execute("CREATE TABLE t(i INT)")
    con.execute("INSERT INTO t VALUES (1)")
    con.execute("BEGIN")
    con.execute("UPDATE t SET i = 2")
    con.execute("ALTER TABLE t ADD COLUMN j INT")
    con.execute("UPDATE t SET j = 3")
    with pytest.raises(
        duckdb.Error, match="quack not_supported: table .*COMMIT before or after the ALTER"
    ):
        con.execute("COMMIT")
    assert replica.rows("FROM t") == [(1,)]


def test_open_readers_keep_their_snapshot(cluster: Cluster) -> None:
    """Applying does not disturb a local reader, and the reader does not stop the applier."""
    a, b, _ = cluster.replicas
    a.con.execute("CREATE TABLE t AS SELECT range i, 'old' s FROM range(1000)")
    b.command("wait")
    reader = b.session()
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM t WHERE s = 'old'").fetchall() == [(1000,)]
    a.con.execute("UPDATE t SET s = 'new'")
    a.con.execute("DELETE FROM t WHERE i < 500")
    a.con.execute("ALTER TABLE t ADD COLUMN j INT")
    b.command("wait")
    assert reader.execute("SELECT count(*) FROM t WHERE s = 'old'").fetchall() == [(1000,)]
    reader.execute("COMMIT")
    assert reader.execute("SELECT count(*), min(s) FROM t").fetchall() == [(500, "new")]
    cluster.assert_equal()


def test_export_of_the_catalog(cluster: Cluster, tmp_path: Path) -> None:
    """The catalog can be read out as a whole."""
    a = cluster[0]
    a.con.execute("CREATE TABLE t AS FROM range(10)")
    a.con.execute(f"COPY t TO '{tmp_path}/t.parquet'")
    assert duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/t.parquet'").fetchall() == [(10,)]


def test_what_would_stay_on_one_node_is_refused(cluster: Cluster) -> None:
    """Ownership is in no record of the catalog's changes but its dependencies."""
    node = cluster[0]
    node.con.execute("CREATE SEQUENCE s")
    node.con.execute("CREATE TABLE t(i INT)")
    with pytest.raises(duckdb.Error, match="OWNED BY is not replicated; drop the sequence when"):
        node.con.execute("ALTER SEQUENCE s OWNED BY t")
    node.con.execute("DROP TABLE t")
    cluster.assert_equal()
    assert node.rows("SELECT nextval('s')") == [(1,)]


def test_a_session_never_checkpoints(tmp_path: Path) -> None:
    """DuckDB would at the COMMIT of changes that leave nothing; a node takes its checkpoints itself."""
    replica = Cluster(tmp_path, 1)[0]
    replica.con.execute("SET GLOBAL checkpoint_threshold = '1KB'")
    replica.con.execute("CREATE TABLE t AS SELECT range AS i FROM range(100000)")
    replica.command("checkpoint")
    replica.con.execute("INSERT INTO t SELECT range FROM range(100000)")
    headers = (tmp_path / "n0.db").read_bytes()[:12288]
    replica.con.execute("BEGIN")
    replica.con.execute("INSERT INTO t VALUES (-1)")
    replica.con.execute("DELETE FROM t WHERE i = -1")
    replica.con.execute("COMMIT")
    assert (tmp_path / "n0.db").read_bytes()[:12288] == headers
    replica.command("checkpoint")
    assert (tmp_path / "n0.db").read_bytes()[:12288] != headers
    replica.close()
