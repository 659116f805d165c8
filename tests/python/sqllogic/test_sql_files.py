"""Goal: the same SQL gives the same answers on a plain DuckDB and on an attached cluster of three voters."""

from __future__ import annotations

import pathlib
import sys

import duckdb
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import runner

from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster

ROOT = pathlib.Path(__file__).parents[3] / "sql_tests"
FILES = sorted(ROOT.rglob("*.test"))

DROPS = (
    "SELECT 'DROP VIEW IF EXISTS ' || fmt FROM (SELECT '\"' || schema_name || '\".\"' || view_name || '\"' AS fmt"
    " FROM duckdb_views() WHERE database_name = current_database() AND NOT internal)",
    "SELECT 'DROP TABLE IF EXISTS \"' || schema_name || '\".\"' || table_name || '\" CASCADE' FROM duckdb_tables()"
    " WHERE database_name = current_database() AND schema_name <> '__quack'",
    "SELECT 'DROP SEQUENCE IF EXISTS \"' || schema_name || '\".\"' || sequence_name || '\"' FROM duckdb_sequences()"
    " WHERE database_name = current_database()",
    "SELECT 'DROP TYPE IF EXISTS \"' || schema_name || '\".\"' || type_name || '\"' FROM duckdb_types()"
    " WHERE database_name = current_database() AND NOT internal",
    "SELECT 'DROP SCHEMA IF EXISTS \"' || schema_name || '\" CASCADE' FROM duckdb_schemas()"
    " WHERE database_name = current_database() AND NOT internal AND schema_name <> '__quack'"
    " AND schema_name <> 'main'",
)


def clean(session: duckdb.DuckDBPyConnection) -> None:
    """Drop everything a file left on the cluster."""
    for listing in DROPS:
        for (statement,) in session.execute("FROM cp.query($$" + listing + "$$)").fetchall():
            kind, name = statement.split(" IF EXISTS ")
            session.execute(f"{kind} IF EXISTS cp.{name}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_local(path: pathlib.Path) -> None:
    """The expectations of the file are what plain DuckDB does."""
    database = duckdb.connect()
    database.execute("ATTACH ':memory:' AS cp")

    def connect() -> duckdb.DuckDBPyConnection:
        session = database.cursor()
        session.execute("USE cp")
        return session

    assert runner.run(path, "local", connect) > 0


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_cluster(path: pathlib.Path, cluster: LocalCluster) -> None:
    """The cluster does the same, each session on another node."""
    opened = 0

    def connect() -> duckdb.DuckDBPyConnection:
        nonlocal opened
        session = cluster.connect(
            cluster.nodes[opened % len(cluster.nodes)], consistency="linearizable"
        )
        opened += 1
        session.execute("USE cp")
        return session

    try:
        assert runner.run(path, "remote", connect) > 0
    finally:
        session = cluster.connect()
        clean(session)
        session.close()


def test_runner_catches_a_wrong_file(tmp_path: pathlib.Path) -> None:
    """Each kind of expectation that is not met is reported; a skip without reason is refused."""
    cases = {
        "query I\nSELECT 1\n----\n2\n": runner.Mismatch,
        "statement error\nSELECT 1\n----\nboom\n": runner.Mismatch,
        "statement error\nSELECT nosuch\n----\nwrong words\n": runner.Mismatch,
        "statement ok\nSELECT nosuch\n": runner.Mismatch,
        "skipif remote\nstatement ok\nSELECT 1\n": runner.FormatError,
        "statement error\nSELECT nosuch\n": runner.FormatError,
        "garbage\n": runner.FormatError,
    }
    for number, (text, kind) in enumerate(cases.items()):
        path = tmp_path / f"{number}.test"
        path.write_text(text)
        with pytest.raises(kind):
            runner.run(path, "local", duckdb.connect)
