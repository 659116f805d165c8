"""Goal: transactions of concurrent client connections do not mix, and end as DuckDB's do."""

from __future__ import annotations

import contextlib
import threading

import duckdb
import pytest

from quack.errors import code_of

pytestmark = pytest.mark.cluster


@pytest.fixture
def table(session: duckdb.DuckDBPyConnection):
    session.execute("CREATE OR REPLACE TABLE cp.acc (id INTEGER PRIMARY KEY, n INTEGER)")
    session.execute("INSERT INTO cp.acc VALUES (1, 0), (2, 0)")
    yield session
    session.execute("DROP TABLE IF EXISTS cp.acc")


def test_cursors_have_transactions_of_their_own(table) -> None:
    """Two connections of one process share the attachment, not the transaction."""
    one, two = table.cursor(), table.cursor()
    one.execute("BEGIN")
    one.execute("INSERT INTO cp.acc VALUES (10, 1)")
    two.execute("BEGIN")
    two.execute("INSERT INTO cp.acc VALUES (20, 2)")
    assert one.execute("SELECT id FROM cp.acc WHERE id >= 10").fetchall() == [(10,)]
    assert two.execute("SELECT id FROM cp.acc WHERE id >= 10").fetchall() == [(20,)]
    one.execute("ROLLBACK")
    two.execute("COMMIT")
    assert table.execute("SELECT id FROM cp.acc WHERE id >= 10").fetchall() == [(20,)]


def test_rollback_covers_streamed_rows_and_schema(table) -> None:
    table.execute("CREATE TABLE here AS SELECT range + 100 AS id, 5 AS n FROM range(5000)")
    table.execute("BEGIN")
    assert table.execute("INSERT INTO cp.acc SELECT * FROM here").fetchall() == [(5000,)]
    table.execute("CREATE TABLE cp.extra AS SELECT 1 AS x")
    assert table.execute("SELECT count(*) FROM cp.acc").fetchall() == [(5002,)]
    table.execute("ROLLBACK")
    assert table.execute("SELECT count(*) FROM cp.acc").fetchall() == [(2,)]
    with pytest.raises(duckdb.CatalogException):
        table.execute("FROM cp.extra")


def test_first_committer_wins(table, other) -> None:
    table.execute("BEGIN")
    table.execute("UPDATE cp.acc SET n = n + 1 WHERE id = 1")
    other.execute("UPDATE cp.acc SET n = n + 10 WHERE id = 1")
    with pytest.raises(duckdb.TransactionException, match="retry"):
        table.execute("COMMIT")
    assert other.execute("SELECT n FROM cp.acc WHERE id = 1").fetchall() == [(10,)]


def test_an_error_aborts_the_transaction(table) -> None:
    table.execute("BEGIN")
    table.execute("INSERT INTO cp.acc VALUES (3, 3)")
    with pytest.raises(duckdb.ConstraintException):
        table.execute("INSERT INTO cp.acc VALUES (1, 1)")
    with pytest.raises(duckdb.TransactionException, match="aborted"):
        table.execute("INSERT INTO cp.acc VALUES (4, 4)")
    table.execute("ROLLBACK")
    assert table.execute("SELECT count(*) FROM cp.acc").fetchall() == [(2,)]


def test_concurrent_increments_add_up(cluster, table) -> None:
    """Autocommit statements from several clients and nodes on one row: nothing is lost."""
    failures: list[str] = []

    def work(number: int) -> None:
        session = cluster.connect(cluster.nodes[number % 3])
        try:
            for _ in range(20):
                session.execute("UPDATE cp.acc SET n = n + 1 WHERE id = 2")
        except duckdb.Error as error:
            failures.append(str(error))
        finally:
            session.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    fresh = cluster.connect(consistency="linearizable")
    assert fresh.execute("SELECT n FROM cp.acc WHERE id = 2").fetchall() == [(80,)]
    fresh.close()


def test_two_databases_cannot_be_written_in_one_transaction(table) -> None:
    table.execute("CREATE TABLE here (i INTEGER)")
    table.execute("BEGIN")
    table.execute("INSERT INTO here VALUES (1)")
    with pytest.raises(duckdb.TransactionException, match="already modified|single"):
        table.execute("INSERT INTO cp.acc VALUES (5, 5)")
    table.execute("ROLLBACK")
    assert table.execute("SELECT count(*) FROM cp.acc").fetchall() == [(2,)]


def test_conflict_inside_a_transaction_is_a_conflict(table, other) -> None:
    """Rows that another client changed first: whole statements and such with local rows say so at once, definitely."""
    table.execute("CREATE TABLE picks AS SELECT 1 AS id, 7 AS v")
    for statement in (
        "UPDATE cp.acc SET n = picks.v FROM picks WHERE acc.id = picks.id",
        "DELETE FROM cp.acc WHERE id IN (SELECT id FROM picks)",
        "UPDATE cp.acc SET n = 8 WHERE id = 1",
    ):
        table.execute("BEGIN")
        table.execute("SELECT n FROM cp.acc").fetchall()
        other.execute("UPDATE cp.acc SET n = n + 1 WHERE id = 1")
        with pytest.raises(duckdb.Error) as caught:
            table.execute(statement)
            table.execute("COMMIT")
        assert code_of(caught.value) == "conflict", caught.value
        assert "acc" in str(caught.value), caught.value
        if statement.endswith("WHERE id = 1"):
            assert "table acc, rows (id = 1)" in str(caught.value), caught.value
        with contextlib.suppress(duckdb.TransactionException):
            table.execute("ROLLBACK")
    assert other.execute("SELECT n FROM cp.acc WHERE id = 1").fetchall() == [(3,)]


def skew(table: duckdb.DuckDBPyConnection, other: duckdb.DuckDBPyConnection) -> None:
    """Both read the whole table, each changes another row; the first one has committed."""
    for con, row in ((table, 1), (other, 2)):
        con.execute("BEGIN")
        assert con.execute("SELECT sum(n) FROM cp.acc").fetchall() == [(0,)]
        con.execute(f"UPDATE cp.acc SET n = 1 WHERE id = {row}")
    table.execute("COMMIT")


def test_serializable_transactions_refuse_write_skew(table, other) -> None:
    """The client's setting counts on the node: snapshot isolation commits both, serializable only the first."""
    skew(table, other)
    other.execute("COMMIT")
    assert other.execute("SELECT sum(n) FROM cp.acc").fetchall() == [(2,)]
    table.execute("UPDATE cp.acc SET n = 0")
    for con in (table, other):
        con.execute("SET quack_isolation = 'serializable'")
    skew(table, other)
    with pytest.raises(duckdb.Error, match=r"main\.acc.*\[quack:conflict\]"):
        other.execute("COMMIT")
    assert table.execute("SELECT sum(n) FROM cp.acc").fetchall() == [(1,)]
    table.execute("UPDATE cp.acc SET n = 0")
    for con in (table, other):
        con.execute("SET quack_isolation = 'snapshot'")
    skew(table, other)
    other.execute("COMMIT")
