"""Goal: what another client does to the schema is seen by the next statement, without any refresh."""

from __future__ import annotations

import duckdb
import pytest

from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def reader(cluster: LocalCluster):
    """A client on another node with fresh reads that has looked at the schema before."""
    opened = cluster.connect(cluster.nodes[1], consistency="linearizable")
    opened.execute("SELECT count(*) FROM duckdb_tables()").fetchall()
    yield opened
    opened.close()


def columns(session: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    return [row[0] for row in session.execute(f"DESCRIBE cp.{table}").fetchall()]


def test_new_altered_and_dropped_tables(session, reader) -> None:
    session.execute("CREATE TABLE cp.f (i INTEGER)")
    assert reader.execute("SELECT count(*) FROM cp.f").fetchall() == [(0,)]
    session.execute("ALTER TABLE cp.f ADD COLUMN s VARCHAR DEFAULT 'd'")
    assert columns(reader, "f") == ["i", "s"]
    session.execute("ALTER TABLE cp.f RENAME COLUMN s TO t")
    assert columns(reader, "f") == ["i", "t"]
    assert reader.execute("SELECT count(*) FROM (DESCRIBE cp.f)").fetchall() == [(2,)]
    session.execute("DROP TABLE cp.f")
    with pytest.raises(duckdb.CatalogException):
        reader.execute("SELECT * FROM cp.f")
    session.execute("CREATE TABLE cp.f (other DOUBLE)")
    assert columns(reader, "f") == ["other"]
    session.execute("DROP TABLE cp.f")
    tables = "SELECT count(*) FROM information_schema.tables WHERE table_catalog = 'cp' AND table_name = 'f'"
    assert reader.execute(tables).fetchall() == [(0,)]


SHOWN = {
    "SHOW": ("SHOW d", 0),
    "DESCRIBE": ("DESCRIBE d", 0),
    "PRAGMA": ("PRAGMA table_info('d')", 1),
    "function": ("FROM pragma_table_info('d')", 1),
    "SUMMARIZE": ("SUMMARIZE d", 0),
}


@pytest.mark.parametrize(("statement", "name"), SHOWN.values(), ids=SHOWN.keys())
def test_definitions_are_shown_as_they_are_now(session, reader, statement: str, name: int) -> None:
    """Also to the session that has just changed them."""
    for one in (session, reader):
        one.execute("USE cp")
    session.execute("CREATE OR REPLACE TABLE d (i INTEGER)")
    for column in ("j", "k", "l"):
        session.execute(f"ALTER TABLE d ADD COLUMN {column} INTEGER")
        wanted = ["i", "j", "k", "l"][: "ijkl".index(column) + 1]
        for one in (session, reader):
            assert [row[name] for row in one.execute(statement).fetchall()] == wanted
    session.execute("DROP TABLE d")
    for one in (session, reader):
        one.execute("USE memory")


def test_mixed_and_local_inserts_use_the_new_columns(session, reader) -> None:
    session.execute("CREATE TABLE cp.g (i INTEGER)")
    reader.execute("CREATE TABLE here AS SELECT 1 AS i")
    reader.execute("INSERT INTO cp.g SELECT i FROM here")
    session.execute("ALTER TABLE cp.g ADD COLUMN j INTEGER")
    with pytest.raises(duckdb.BinderException, match="2 columns but 1 values"):
        reader.execute("INSERT INTO cp.g SELECT i FROM here")
    reader.execute("INSERT INTO cp.g SELECT i, i + 1 FROM here")
    assert reader.execute("SELECT g.* FROM cp.g, here ORDER BY ALL").fetchall() == [
        (1, 2),
        (1, None),
    ]
    session.execute("DROP TABLE cp.g")


def test_prepared_statements_follow(session, reader) -> None:
    session.execute("CREATE TABLE cp.p AS SELECT 1 AS a")
    reader.execute("PREPARE q AS SELECT * FROM cp.p")
    assert reader.execute("EXECUTE q").fetchall() == [(1,)]
    session.execute("CREATE OR REPLACE TABLE cp.p AS SELECT 'x' AS b, 2 AS c")
    assert reader.execute("EXECUTE q").fetchall() == [("x", 2)]
    session.execute("DROP TABLE cp.p")


def test_own_schema_changes_inside_a_transaction(session, reader) -> None:
    session.execute("BEGIN")
    session.execute("CREATE TABLE cp.mine (i INTEGER)")
    session.execute("ALTER TABLE cp.mine ADD COLUMN s VARCHAR")
    assert columns(session, "mine") == ["i", "s"]
    session.execute("INSERT INTO cp.mine SELECT range, 'r' FROM range(3)")
    assert session.execute("SELECT count(*) FROM cp.mine").fetchall() == [(3,)]
    with pytest.raises(duckdb.CatalogException):
        reader.execute("SELECT * FROM cp.mine")
    session.execute("ROLLBACK")
    with pytest.raises(duckdb.CatalogException):
        session.execute("SELECT * FROM cp.mine")
