"""Every kind of statement, executed on one replica, arrives bit-exactly on the others."""

from __future__ import annotations

import duckdb
import pytest
from catalog_replica import Cluster, Replica

DML = [
    ("insert values", ["INSERT INTO t VALUES (100, 'x', 1.5), (101, NULL, NULL)"]),
    (
        "insert select",
        ["INSERT INTO t SELECT 1000 + range, 's' || range, range / 3 FROM range(3000)"],
    ),
    ("insert default", ["INSERT INTO d(id) VALUES (1), (2)", "INSERT INTO d DEFAULT VALUES"]),
    ("random default", ["INSERT INTO d(id) SELECT range FROM range(100)"]),
    ("update all", ["UPDATE t SET s = s || '!', v = v * 2"]),
    ("update key", ["UPDATE t SET id = id + 1000 WHERE id < 10"]),
    ("update from", ["UPDATE t SET s = n.s FROM n WHERE n.id = t.id"]),
    ("update without key", ["UPDATE n SET s = 'z' WHERE id % 2 = 0"]),
    ("update twice", ["UPDATE n SET s = 'a'", "UPDATE n SET s = 'b', v = 7"]),
    ("delete", ["DELETE FROM t WHERE id % 3 = 0"]),
    ("delete using", ["DELETE FROM t USING n WHERE n.id = t.id AND n.id > 25"]),
    ("delete without key", ["DELETE FROM n WHERE id % 3 = 0"]),
    ("truncate", ["TRUNCATE n"]),
    (
        "on conflict nothing",
        ["INSERT INTO t VALUES (1, 'dup', 0), (500, 'new', 0) ON CONFLICT DO NOTHING"],
    ),
    (
        "on conflict update",
        [
            "INSERT INTO t VALUES (1, 'dup', 0), (501, 'new', 0) ON CONFLICT (id) DO UPDATE SET s = excluded.s"
        ],
    ),
    ("or replace", ["INSERT OR REPLACE INTO t VALUES (2, 'replaced', NULL)"]),
    (
        "merge",
        [
            "MERGE INTO t USING n ON n.id = t.id WHEN MATCHED AND n.id < 25 THEN UPDATE SET s = 'merged' "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (n.id, n.s, n.v)"
        ],
    ),
    (
        "returning",
        [
            "INSERT INTO t VALUES (700, 'r', 1) RETURNING *",
            "UPDATE t SET v = 9 WHERE id = 1 RETURNING s",
        ],
    ),
    ("delete returning", ["DELETE FROM t WHERE id < 5 RETURNING id"]),
    ("ctas", ["CREATE TABLE made AS SELECT range i, random() r, now() w FROM range(2500)"]),
    (
        "sequence",
        ["INSERT INTO q SELECT nextval('sq'), 'v' FROM range(50)", "SELECT nextval('sq')"],
    ),
    (
        "generated column",
        [
            "CREATE TABLE g(a INT, b INT AS (a * 2), c INT)",
            "INSERT INTO g VALUES (1, 3), (2, 4)",
            "UPDATE g SET c = 5 WHERE b = 4",
            "DELETE FROM g WHERE b = 2",
        ],
    ),
    (
        "index then update",
        [
            "CREATE INDEX ix ON t(s)",
            "UPDATE t SET s = 'ind' WHERE id < 10",
            "DELETE FROM t WHERE s = 'ind' AND id < 5",
        ],
    ),
    (
        "copy",
        [
            "COPY (SELECT range + 10000 id, 'copied' s, 1.0 v FROM range(100)) TO '{dir}/x.parquet'",
            "COPY t FROM '{dir}/x.parquet'",
        ],
    ),
]

DDL = [
    (
        "schema",
        [
            "CREATE SCHEMA app",
            "CREATE TABLE app.x(i INT)",
            "INSERT INTO app.x VALUES (1)",
            "CREATE SCHEMA gone",
            "DROP SCHEMA gone",
        ],
    ),
    (
        "schema cascade",
        [
            "CREATE SCHEMA c",
            "CREATE TABLE c.x(i INT)",
            "CREATE VIEW c.v AS SELECT * FROM c.x",
            "DROP SCHEMA c CASCADE",
            "CREATE SCHEMA kept",
        ],
    ),
    (
        "schema with everything cascade",
        [
            "CREATE SCHEMA c",
            "CREATE TYPE c.m AS ENUM ('x')",
            "CREATE TABLE c.t(i c.m, j INT PRIMARY KEY)",
            "CREATE TABLE c.u(j INT REFERENCES c.t(j), m c.m[])",
            "CREATE INDEX cx ON c.u(j)",
            "CREATE VIEW c.v AS FROM c.u",
            "CREATE SEQUENCE c.s",
            "CREATE TABLE c.w(i INT DEFAULT nextval('c.s'))",
            "CREATE MACRO c.f(x) AS x + 1",
            "CREATE SCHEMA c.b",
            "CREATE TABLE c.b.t(i INT)",
            "DROP SCHEMA c CASCADE",
            "CREATE SCHEMA kept",
        ],
    ),
    (
        "nested types",
        [
            "CREATE TYPE mood AS ENUM ('happy', 'sad')",
            "CREATE TABLE m(i INT, m mood, l mood[])",
            "INSERT INTO m VALUES (1, 'sad', ['happy', 'sad']), (2, NULL, [])",
            "CREATE TYPE alias AS DECIMAL(10, 2)",
            "CREATE TABLE al(a alias)",
        ],
    ),
    (
        "views",
        [
            "CREATE VIEW v AS SELECT id, s FROM t",
            "CREATE OR REPLACE VIEW v AS SELECT id FROM t",
            "ALTER VIEW v RENAME TO w",
            "COMMENT ON VIEW w IS 'a view'",
            "CREATE VIEW z AS SELECT 1",
            "DROP VIEW z",
        ],
    ),
    (
        "indexes",
        [
            "CREATE INDEX i1 ON t(s)",
            "CREATE UNIQUE INDEX i2 ON n(id)",
            "CREATE INDEX i3 ON t((id % 7))",
            "DROP INDEX i1",
        ],
    ),
    (
        "sequences",
        [
            "CREATE SEQUENCE s2 START 10 INCREMENT 5 MAXVALUE 1000 CYCLE",
            "SELECT nextval('s2')",
            "DROP SEQUENCE s2",
            "CREATE SEQUENCE s3",
        ],
    ),
    (
        "macros",
        [
            "CREATE MACRO add(a, b) AS a + b",
            "CREATE MACRO tm(x) AS TABLE SELECT * FROM t WHERE id > x",
            "CREATE OR REPLACE MACRO add(a, b) AS a + b + 1",
            "CREATE MACRO bye() AS 1",
            "DROP MACRO bye",
            "DROP MACRO TABLE tm",
        ],
    ),
    (
        "alter columns",
        [
            "ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 42",
            "INSERT INTO t VALUES (900, 'a', 1, 2)",
            "ALTER TABLE t RENAME COLUMN extra TO more",
            "ALTER TABLE t ALTER more SET DEFAULT 7",
            "INSERT INTO t(id) VALUES (901)",
            "ALTER TABLE t ALTER more DROP DEFAULT",
            "ALTER TABLE t ALTER more TYPE VARCHAR USING more || 'x'",
            "ALTER TABLE t DROP COLUMN more",
        ],
    ),
    ("random add column", ["ALTER TABLE t ADD COLUMN r DOUBLE DEFAULT random()"]),
    (
        "alter constraints",
        [
            "ALTER TABLE n ALTER s SET NOT NULL",
            "ALTER TABLE n ALTER s DROP NOT NULL",
            "ALTER TABLE n ADD PRIMARY KEY (id)",
        ],
    ),
    ("rename table", ["ALTER TABLE t RENAME TO t2", "INSERT INTO t2 VALUES (800, 'after', 1)"]),
    (
        "rename cased",
        ['ALTER TABLE t RENAME TO "T two"', "INSERT INTO \"t TWO\" VALUES (800, 'after', 1)"],
    ),
    (
        "struct fields",
        [
            "CREATE TABLE st(s STRUCT(a INT, b VARCHAR))",
            "INSERT INTO st VALUES ({{'a': 1, 'b': 'x'}})",
            "ALTER TABLE st ADD COLUMN s.c INT DEFAULT 5",
            "ALTER TABLE st RENAME s.a TO aa",
            "UPDATE st SET s = {{'aa': 2, 'b': 'y', 'c': 3}}",
            "ALTER TABLE st DROP COLUMN s.b",
        ],
    ),
    ("drop", ["DROP TABLE n", "CREATE TABLE n(other DOUBLE)", "INSERT INTO n VALUES (0.5)"]),
    ("create or replace", ["CREATE OR REPLACE TABLE n AS SELECT 'replaced' AS x"]),
    ("if not exists", ["CREATE TABLE IF NOT EXISTS n(x INT)", "DROP TABLE IF EXISTS nope"]),
    (
        "comments",
        [
            "COMMENT ON TABLE t IS 'it''s a table'",
            "COMMENT ON COLUMN t.s IS 'text'",
            "COMMENT ON TABLE t IS NULL",
            "COMMENT ON SEQUENCE sq IS 'numbers'",
        ],
    ),
    (
        "checks",
        [
            "CREATE TABLE ck(i INT CHECK (i > 0), j INT NOT NULL, UNIQUE (i, j))",
            "INSERT INTO ck VALUES (1, 2), (1, 3)",
        ],
    ),
    (
        "foreign keys",
        [
            "CREATE TABLE parent(p INT PRIMARY KEY)",
            "CREATE TABLE child(c INT REFERENCES parent(p))",
            "INSERT INTO parent VALUES (1), (2)",
            "INSERT INTO child VALUES (1)",
            "DELETE FROM parent WHERE p = 2",
            "DROP TABLE child",
            "DELETE FROM parent",
        ],
    ),
    (
        "default sequence",
        [
            "CREATE TABLE ds(i INT DEFAULT nextval('sq'), s VARCHAR)",
            "INSERT INTO ds(s) VALUES ('a'), ('b')",
        ],
    ),
    (
        "trigger",
        [
            "CREATE TABLE audit(i INT)",
            "CREATE TRIGGER tr AFTER INSERT ON t REFERENCING NEW TABLE AS nw FOR EACH STATEMENT "
            "INSERT INTO audit SELECT id FROM nw",
            "INSERT INTO t VALUES (950, 'trig', 1)",
            "DROP TRIGGER tr ON t",
            "INSERT INTO t VALUES (951, 'no trig', 1)",
        ],
    ),
]


def prepare(replica: Replica) -> None:
    replica.con.execute("CREATE TABLE t(id INTEGER PRIMARY KEY, s VARCHAR, v DOUBLE)")
    replica.con.execute("CREATE TABLE n(id INTEGER, s VARCHAR, v DOUBLE)")
    replica.con.execute(
        "CREATE TABLE d(id INTEGER, r DOUBLE DEFAULT random(), u UUID DEFAULT uuid(), "
        "w TIMESTAMPTZ DEFAULT now())"
    )
    replica.con.execute("CREATE SEQUENCE sq")
    replica.con.execute("CREATE TABLE q(i BIGINT, s VARCHAR)")
    replica.con.execute("INSERT INTO t SELECT range, 'row ' || range, range / 7 FROM range(30)")
    replica.con.execute("INSERT INTO n SELECT 20 + range, 'n' || range, NULL FROM range(10)")


@pytest.mark.parametrize("explicit", [False, True], ids=["autocommit", "transaction"])
@pytest.mark.parametrize(("name", "statements"), DML + DDL, ids=[case[0] for case in DML + DDL])
def test_statement(cluster: Cluster, name: str, statements: list[str], explicit: bool) -> None:
    """Runs on replica 0, alone or in one transaction; then all replicas must be equal and differ from before."""
    del name
    origin = cluster[0]
    prepare(origin)
    before = origin.hashes()
    if explicit:
        origin.con.execute("BEGIN")
    for statement in statements:
        origin.con.execute(statement.format(dir=cluster.directory)).fetchall()
    if explicit:
        origin.con.execute("COMMIT")
    after = cluster.assert_equal()
    if statements not in (["CREATE TABLE IF NOT EXISTS n(x INT)", "DROP TABLE IF EXISTS nope"],):
        assert after != before


def test_own_writes_are_visible_before_commit_and_gone_after_rollback(cluster: Cluster) -> None:
    a, b, _ = cluster.replicas
    prepare(a)
    before = cluster.assert_equal()
    a.con.execute("BEGIN")
    a.con.execute("INSERT INTO t VALUES (1000, 'mine', 1)")
    a.con.execute("UPDATE t SET s = 'mine too' WHERE id = 1")
    a.con.execute("DELETE FROM t WHERE id = 2")
    a.con.execute("CREATE TABLE mine AS SELECT 1 AS x")
    a.con.execute("DROP TABLE n")
    assert a.rows("SELECT id, s FROM t WHERE s LIKE 'mine%' ORDER BY id") == [
        (1, "mine too"),
        (1000, "mine"),
    ]
    assert a.rows("SELECT x FROM mine") == [(1,)]
    assert b.rows("SELECT count(*) FROM t WHERE s LIKE 'mine%'") == [(0,)]
    a.con.execute("ROLLBACK")
    assert cluster.assert_equal() == before
    with pytest.raises(duckdb.CatalogException):
        a.con.execute("FROM mine")


def test_result_equals_plain_duckdb(cluster: Cluster) -> None:
    """The deterministic statements leave what plain DuckDB leaves."""
    plain = duckdb.connect(":memory:")
    origin = cluster[0]
    script = [
        "CREATE TABLE t(id INTEGER PRIMARY KEY, s VARCHAR, v DOUBLE)",
        "INSERT INTO t SELECT range, 'row ' || range, range / 7 FROM range(5000)",
        "UPDATE t SET s = 'up' WHERE id % 3 = 0",
        "UPDATE t SET id = id + 100000 WHERE id % 11 = 0",
        "DELETE FROM t WHERE id % 5 = 1",
        "INSERT INTO t SELECT id - 1, s, v FROM t WHERE id % 5 = 2 ON CONFLICT DO NOTHING",
        "BEGIN", "INSERT INTO t VALUES (-1, 'a', 1)", "UPDATE t SET v = 2 WHERE id = -1", "DELETE FROM t WHERE id = 7",
        "INSERT INTO t VALUES (7, 'again', 0)", "COMMIT",
    ]  # fmt: skip
    for statement in script:
        plain.execute(statement)
        origin.con.execute(statement)
    cluster.assert_equal()
    for replica in cluster.replicas:
        assert replica.rows("FROM t ORDER BY id") == plain.execute("FROM t ORDER BY id").fetchall()


def test_duplicates_without_key(cluster: Cluster) -> None:
    """A table without a key is a multiset: as many duplicates go as the statement took."""
    a, b, _ = cluster.replicas
    a.con.execute("CREATE TABLE m(x INT, s VARCHAR)")
    a.con.execute("INSERT INTO m SELECT range % 3, 'same' FROM range(3000)")
    b.command("wait")
    b.con.execute("DELETE FROM m WHERE rowid IN (SELECT rowid FROM m WHERE x = 1 LIMIT 10)")
    b.con.execute(
        "UPDATE m SET s = 'other' WHERE rowid IN (SELECT rowid FROM m WHERE x = 2 LIMIT 5)"
    )
    cluster.assert_equal()
    assert a.rows("SELECT x, s, count(*) FROM m GROUP BY ALL ORDER BY ALL") == [
        (0, "same", 1000), (1, "same", 990), (2, "other", 5), (2, "same", 995)
    ]  # fmt: skip


def test_all_types(cluster: Cluster) -> None:
    """Every type DuckDB has, inserted, updated and deleted by value."""
    a, b, _ = cluster.replicas
    a.con.execute("CREATE TABLE types AS FROM test_all_types()")
    a.con.execute("INSERT INTO types FROM test_all_types()")
    b.command("wait")
    b.con.execute("UPDATE types SET varchar = 'changed' WHERE bool")
    b.con.execute("DELETE FROM types WHERE NOT bool")
    cluster.assert_equal()
    columns = [row[0] for row in a.rows("SELECT column_name FROM (DESCRIBE types)")]
    for column in columns:
        b.command("wait")
        b.con.execute(f'UPDATE types SET "{column}" = NULL WHERE bool IS NOT NULL')
    hashes = cluster.assert_equal()
    assert next(row for row in hashes if row[1] == "types")[3] == "4"


def test_floats_keep_their_bits(cluster: Cluster) -> None:
    """-0.0, NaN and infinities are told apart by their bits, also as old rows."""
    a, b, _ = cluster.replicas
    a.con.execute("CREATE TABLE f(x DOUBLE, y FLOAT)")
    a.con.execute(
        "INSERT INTO f VALUES ('0.0', '0.0'), ('-0.0', '-0.0'), ('nan', 'nan'), ('inf', '-inf'), (NULL, NULL)"
    )
    b.command("wait")
    b.con.execute("DELETE FROM f WHERE x::VARCHAR = '-0.0'")
    cluster.assert_equal()
    b.con.execute("UPDATE f SET y = 1 WHERE isnan(x)")
    b.con.execute("DELETE FROM f WHERE x IS NULL")
    cluster.assert_equal()
    assert [str(row) for row in a.rows("FROM f ORDER BY x")] == [
        "(0.0, 0.0)",
        "(inf, -inf)",
        "(nan, 1.0)",
    ]


def test_delete_before_add_primary_key_keeps_its_order(cluster: Cluster) -> None:
    """DDL and DML of one transaction keep their order: the key could not be added before the delete."""
    a = cluster[0]
    a.con.execute("CREATE TABLE p(i INT, s VARCHAR)")
    a.con.execute("INSERT INTO p VALUES (1, 'keep'), (1, 'drop'), (2, 'keep')")
    a.con.execute("BEGIN")
    a.con.execute("DELETE FROM p WHERE s = 'drop'")
    a.con.execute("COMMIT")
    a.con.execute("BEGIN")
    a.con.execute("ALTER TABLE p ADD PRIMARY KEY (i)")
    a.con.execute("INSERT INTO p VALUES (3, 'new')")
    a.con.execute("CREATE TABLE p2 AS FROM p")
    a.con.execute("ALTER TABLE p2 RENAME TO p3")
    a.con.execute("COMMIT")
    cluster.assert_equal()
    assert a.rows("SELECT count(*) FROM p3") == [(3,)]


def test_meta_schema_is_read_only(replica: Replica) -> None:
    """Users may read `__quack`, not write it, by DML or DDL."""
    con = replica.con
    assert replica.rows("SELECT count(*) FROM __quack.state")[0][0] >= 2
    for statement in [
        "INSERT INTO __quack.state VALUES (1, 2, 'x', 'y')", "DELETE FROM __quack.entries",
        "UPDATE __quack.entries SET idx = 5", "DROP TABLE __quack.entries", "CREATE TABLE __quack.mine(i INT)",
        "ALTER TABLE __quack.state ADD COLUMN x INT", "DROP SCHEMA __quack CASCADE", "CREATE INDEX ix ON __quack.state(idx)",
    ]:  # fmt: skip
        with pytest.raises(duckdb.Error, match="__quack"):
            con.execute(statement)
    assert replica.rows("SELECT count(*) FROM __quack.state")[0][0] >= 2
    assert replica.command("degraded") == ""


def test_attach_by_a_user_is_refused(replica: Replica, tmp_path: object) -> None:
    with pytest.raises(duckdb.PermissionException, match="reserved for the node"):
        replica.con.execute(f"ATTACH '{tmp_path}/own.db' AS own (TYPE quack_replica)")
    with pytest.raises(duckdb.Error, match="done by its node"):
        replica.con.execute("CHECKPOINT cp")
