"""Any two statements at the same time: one order of both, the same on every replica, and no replica out of service.

QUACK_DDL_PAIRS of the environment says how many pairs each test draws (all: 0), QUACK_DDL_SEED which.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator

import duckdb
from catalog_replica import Cluster, Replica
from test_conflicts import stale, start

PAIRS = int(os.environ.get("QUACK_DDL_PAIRS", "60"))
SEED = int(os.environ.get("QUACK_DDL_SEED", "1"))

SETUP = [
    "CREATE SCHEMA {k}",
    "CREATE TYPE {k}.ty AS ENUM ('a', 'b')",
    "CREATE SEQUENCE {k}.sq",
    "CREATE MACRO {k}.mc(x) AS x + 1",
    "CREATE TABLE {k}.t(i INT PRIMARY KEY, s VARCHAR, m {k}.ty)",
    "INSERT INTO {k}.t VALUES (1, 'one', 'a'), (2, 'two', 'b'), (3, 'three', NULL)",
    "CREATE TABLE {k}.n(i INT, s VARCHAR)",
    "INSERT INTO {k}.n VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    "CREATE TABLE {k}.p(i INT PRIMARY KEY)",
    "INSERT INTO {k}.p VALUES (1), (2)",
    "CREATE TABLE {k}.c(i INT REFERENCES {k}.p(i))",
    "CREATE TABLE {k}.d(i BIGINT DEFAULT nextval('{k}.sq'), j INT DEFAULT {k}.mc(1))",
    "CREATE VIEW {k}.v AS FROM {k}.p",
    "CREATE INDEX ix ON {k}.n(i)",
]
STATEMENTS = [
    "CREATE TABLE {k}.x(i BIGINT DEFAULT nextval('{k}.sq'), m {k}.ty)",
    "CREATE TABLE {k}.x(i INT DEFAULT {k}.mc(1))",
    "CREATE TABLE {k}.y(i INT REFERENCES {k}.p(i))",
    "CREATE TABLE {k}.y AS FROM {k}.t",
    "CREATE VIEW {k}.x AS FROM {k}.t",
    "CREATE TYPE {k}.x AS STRUCT(a {k}.ty)",
    "CREATE SCHEMA {k}.x",
    "CREATE INDEX x ON {k}.t(s)",
    "CREATE UNIQUE INDEX y ON {k}.n(i)",
    "ALTER TABLE {k}.t ADD COLUMN z INT DEFAULT 5",
    "ALTER TABLE {k}.d RENAME TO x",
    "ALTER TABLE {k}.d RENAME COLUMN j TO x",
    "ALTER TABLE {k}.d ALTER j TYPE BIGINT",
    "ALTER TABLE {k}.t ALTER s SET DEFAULT 'q'",
    "ALTER TABLE {k}.d ALTER i DROP DEFAULT",
    "ALTER TABLE {k}.t ALTER m TYPE VARCHAR",
    "ALTER TABLE {k}.c ALTER i SET NOT NULL",
    "ALTER TABLE {k}.d ADD PRIMARY KEY (i)",
    "ALTER VIEW {k}.v RENAME TO x",
    "COMMENT ON TABLE {k}.n IS 'c'",
    "COMMENT ON COLUMN {k}.t.s IS 'c'",
    "COMMENT ON TYPE {k}.ty IS 'c'",
    "DROP TABLE {k}.t",
    "DROP TABLE {k}.n",
    "DROP TABLE {k}.c",
    "DROP TABLE {k}.d",
    "DROP VIEW {k}.v",
    "DROP INDEX {k}.ix",
    "DROP TYPE {k}.ty CASCADE",
    "DROP SEQUENCE {k}.sq CASCADE",
    "DROP MACRO {k}.mc CASCADE",
    "DROP SCHEMA {k} CASCADE",
    "CREATE OR REPLACE TABLE {k}.n AS SELECT 7 AS i",
    "CREATE OR REPLACE VIEW {k}.v AS SELECT 1 AS q",
    "CREATE OR REPLACE MACRO {k}.mc2(x) AS x + 2",
    "INSERT INTO {k}.t VALUES (9, 'nine', 'a')",
    "INSERT INTO {k}.t VALUES (1, 'again', 'b') ON CONFLICT DO UPDATE SET s = 'up'",
    "INSERT INTO {k}.n SELECT i + 10, s FROM {k}.t",
    "INSERT INTO {k}.d DEFAULT VALUES",
    "INSERT INTO {k}.c VALUES (1)",
    "UPDATE {k}.t SET s = 'changed' WHERE i = 1",
    "UPDATE {k}.n SET i = i + 1",
    "DELETE FROM {k}.t WHERE i = 2",
    "DELETE FROM {k}.p WHERE i = 1",
    "TRUNCATE {k}.n",
]
#: All that the statements can make, drop or alter.
CATALOG = """
SELECT 'schema', schema_name, '' FROM duckdb_schemas() WHERE NOT internal AND schema_name IN ('{k}', 'x')
UNION ALL SELECT 'column', table_name || '.' || column_name, data_type || coalesce(comment, '')
  || is_nullable FROM duckdb_columns() WHERE schema_name = '{k}'
UNION ALL SELECT 'table', table_name, coalesce(comment, '') || has_primary_key || index_count
  FROM duckdb_tables() WHERE schema_name = '{k}'
UNION ALL SELECT 'view', view_name, '' FROM duckdb_views() WHERE schema_name = '{k}'
UNION ALL SELECT 'index', index_name, table_name FROM duckdb_indexes() WHERE schema_name = '{k}'
UNION ALL SELECT 'sequence', sequence_name, '' FROM duckdb_sequences() WHERE schema_name = '{k}'
UNION ALL SELECT 'type', type_name, coalesce(comment, '') FROM duckdb_types() WHERE schema_name = '{k}'
UNION ALL SELECT 'macro', function_name, '' FROM duckdb_functions() WHERE schema_name = '{k}'
ORDER BY ALL
"""


def drawn(salt: int) -> list[tuple[str, str]]:
    pairs = list(itertools.product(STATEMENTS, repeat=2))
    return random.Random(SEED * 10 + salt).sample(pairs, PAIRS) if PAIRS else pairs


def catalog_of(con: duckdb.DuckDBPyConnection, name: str) -> list[tuple[str, ...]]:
    return con.execute(CATALOG.format(k=name)).fetchall()


def one_order(statements: list[str]) -> list[tuple[str, ...]]:
    """What plain DuckDB has afterwards, or ``refused`` when it refuses one of them."""
    plain = duckdb.connect()
    plain.execute("ATTACH ':memory:' AS cp")
    plain.execute("USE cp")
    try:
        for statement in [*SETUP, *statements]:
            plain.execute(statement.format(k="k"))
        return catalog_of(plain, "k")
    except duckdb.Error:
        return [("refused", "", "")]
    finally:
        plain.close()


def prepare(cluster: Cluster, name: str) -> tuple[Replica, Replica]:
    a, b, _ = cluster.replicas
    for statement in SETUP:
        a.con.execute(statement.format(k=name))
    b.command("wait")
    return a, b


def check(cluster: Cluster, name: str, first: str, second: str, error: str) -> None:
    said = f"{first} | {second} | {error}"
    hashes = [replica.hashes() for replica in cluster.replicas]
    assert [replica.command("degraded") for replica in cluster.replicas] == ["", "", ""], said
    assert hashes == [hashes[0]] * 3, said
    assert not any(word in error for word in ("outcome_unknown", "INTERNAL", "degraded")), said
    found = [
        tuple(value.replace(name, "k") for value in row) for row in catalog_of(cluster[1].con, name)
    ]
    orders = [[first]] if error else [[first, second], [second, first]]
    assert any(found == one_order(order) for order in orders), said
    cluster[0].con.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")


def pairs(salt: int) -> Iterator[tuple[str, str, str]]:
    for number, (first, second) in enumerate(drawn(salt)):
        yield f"k{number}", first, second


def test_one_is_planned_before_the_other_is_applied(cluster: Cluster) -> None:
    for name, first, second in pairs(1):
        prepare(cluster, name)
        a, b = stale(cluster)
        a.con.execute(first.format(k=name))
        errors: list[str] = []
        thread = start(b.con, second.format(k=name), errors)
        while thread.is_alive() and b.command("waiting") == "0":
            thread.join(0.002)
        b.command("resume")
        thread.join()
        check(cluster, name, first, second, errors[0] if errors else "")
    cluster.assert_equal()


def test_one_is_open_while_the_other_is_applied(cluster: Cluster) -> None:
    for name, first, second in pairs(2):
        a, b = prepare(cluster, name)
        session = b.session()
        session.execute("BEGIN")
        session.execute(second.format(k=name))
        a.con.execute(first.format(k=name))
        error = ""
        try:
            session.execute("COMMIT")
        except duckdb.Error as refusal:
            error = str(refusal)
        session.close()
        check(cluster, name, first, second, error)
    cluster.assert_equal()
