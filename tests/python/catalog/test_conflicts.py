"""First committer wins, decided at apply, alike on every replica; errors are typed."""

from __future__ import annotations

import threading
import time

import duckdb
import pytest
from catalog_replica import Cluster, Replica, command


def commit_code(con: duckdb.DuckDBPyConnection) -> str:
    return command(con, "last_commit").split("|")[0]


def expect(con: duckdb.DuckDBPyConnection, sql: str, code: str) -> str:
    """The statement must fail with this typed error."""
    with pytest.raises(duckdb.Error, match=f"quack {code}") as caught:
        con.execute(sql)
    return str(caught.value)


def stale(cluster: Cluster) -> tuple[Replica, Replica]:
    """Replica b does not apply what a commits: its next write is planned on an old state."""
    a, b, _ = cluster.replicas
    b.command("wait")
    b.command("pause")
    return a, b


def start(con: duckdb.DuckDBPyConnection, sql: str, errors: list[str]) -> threading.Thread:
    """Runs a statement that waits for its replica to apply; collects the error."""

    def run() -> None:
        try:
            con.execute(sql)
        except duckdb.Error as error:
            errors.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def wait_for_proposal(replica: Replica, count: int) -> None:
    """Until the replica's session waits for its entry."""
    deadline = time.monotonic() + 30
    while replica.command("waiting") != str(count):
        assert time.monotonic() < deadline
        time.sleep(0.005)


def race(cluster: Cluster, setup: list[str], first: str, second: str) -> str:
    """`first` commits on replica a while b is behind; `second` runs on b, planned on the old state. Returns b's error."""
    for statement in setup:
        cluster[0].con.execute(statement)
    a, b = stale(cluster)
    a.con.execute(first)
    errors: list[str] = []
    thread = start(b.con, second, errors)
    wait_for_proposal(b, 1)
    b.command("resume")
    thread.join()
    cluster.assert_equal()
    return errors[0] if errors else ""


TABLE = [
    "CREATE TABLE t(i INTEGER PRIMARY KEY, s VARCHAR)",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
]
PLAIN = [
    "CREATE TABLE t(i INTEGER, s VARCHAR)",
    "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (2, 'b')",
]


@pytest.mark.parametrize("setup", [TABLE, PLAIN], ids=["key", "no key"])
@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("UPDATE t SET s = 'x' WHERE i = 1", "UPDATE t SET s = 'y' WHERE i = 1", "conflict"),
        ("UPDATE t SET s = 'x' WHERE i = 1", "DELETE FROM t WHERE i = 1", "conflict"),
        ("DELETE FROM t WHERE i = 1", "UPDATE t SET s = 'y' WHERE i = 1", "conflict"),
        ("DELETE FROM t WHERE i = 1", "DELETE FROM t WHERE i = 1", "conflict"),
        ("DELETE FROM t WHERE i = 1", "DELETE FROM t WHERE i = 2", ""),
        ("UPDATE t SET s = 'x' WHERE i = 1", "UPDATE t SET s = 'y' WHERE i = 2", ""),
        ("INSERT INTO t VALUES (9, 'z')", "UPDATE t SET s = 'y'", ""),
        ("TRUNCATE t", "INSERT INTO t VALUES (10, 'w')", ""),
        ("DROP TABLE t", "INSERT INTO t VALUES (10, 'w')", "schema_changed"),
        ("ALTER TABLE t ADD COLUMN n INT", "DELETE FROM t WHERE i = 1", "schema_changed"),
        ("ALTER TABLE t RENAME TO u", "UPDATE t SET s = 'y'", "schema_changed"),
        ("CREATE OR REPLACE TABLE t AS SELECT 1 AS i, 'a' AS s", "DELETE FROM t", "schema_changed"),
        ("CREATE TABLE u(i INT)", "CREATE TABLE u(j INT)", "schema_changed"),
        ("CREATE TABLE u(i INT)", "CREATE TABLE v(j INT)", ""),
        ("CREATE TABLE u(i INT)", "INSERT INTO t VALUES (10, 'w')", ""),
        ("CREATE INDEX ix ON t(s)", "UPDATE t SET s = 'y' WHERE i = 1", "schema_changed"),
    ],
)
def test_race(cluster: Cluster, setup: list[str], first: str, second: str, code: str) -> None:
    error = race(cluster, setup, first, second)
    assert f"quack {code}:" in error if code else error == "", error


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("INSERT INTO t VALUES (9, 'first')", "INSERT INTO t VALUES (8, 'ok'), (9, 'second')"),
        ("INSERT INTO t VALUES (9, 'first')", "UPDATE t SET i = 9 WHERE i = 1"),
        ("UPDATE t SET i = 9 WHERE i = 1", "INSERT INTO t VALUES (9, 'second')"),
        ("UPDATE t SET i = 9 WHERE i = 1", "UPDATE t SET i = 9 WHERE i = 2"),
    ],
)
def test_unique_key_race(cluster: Cluster, first: str, second: str) -> None:
    """A key taken meanwhile is a constraint violation, and nothing of the second transaction stays."""
    error = race(cluster, TABLE, first, second)
    assert "quack constraint:" in error
    assert cluster[1].rows("SELECT count(*) FROM t WHERE i = 8") == [(0,)]
    assert len(cluster[1].rows("FROM t WHERE i = 9")) == 1


def test_schema_and_drop_race(cluster: Cluster) -> None:
    error = race(cluster, ["CREATE SCHEMA app"], "DROP SCHEMA app", "CREATE TABLE app.x(i INT)")
    assert "quack schema_changed:" in error


DEPENDENTS = {
    "table on type": ("CREATE TYPE o AS ENUM ('a')", "CREATE TABLE d(m o)", "DROP TYPE o"),
    "type on type": ("CREATE TYPE o AS ENUM ('a')", "CREATE TYPE d AS STRUCT(m o)", "DROP TYPE o"),
    "table in schema": ("CREATE SCHEMA o", "CREATE TABLE o.d(i INT)", "DROP SCHEMA o"),
    "view in schema": ("CREATE SCHEMA o", "CREATE VIEW o.d AS SELECT 1", "DROP SCHEMA o"),
    "schema in schema": ("CREATE SCHEMA o", "CREATE SCHEMA o.d", "DROP SCHEMA o"),
    "table on sequence": (
        "CREATE SEQUENCE o", "CREATE TABLE d(i INT DEFAULT nextval('o'))", "DROP SEQUENCE o",
    ),
    "altered table on sequence": (
        "CREATE SEQUENCE o", "ALTER TABLE t ALTER i SET DEFAULT nextval('o')", "DROP SEQUENCE o",
    ),
    "added column on sequence": (
        "CREATE SEQUENCE o", "ALTER TABLE t ADD COLUMN d INT DEFAULT nextval('o')",
        "DROP SEQUENCE o",
    ),
    "table on macro": (
        "CREATE MACRO o(x) AS x + 1", "CREATE TABLE d(i INT DEFAULT o(1))", "DROP MACRO o",
    ),
    "table on table": (
        "CREATE TABLE o(i INT PRIMARY KEY)", "CREATE TABLE d(i INT REFERENCES o(i))",
        "DROP TABLE o",
    ),
}  # fmt: skip


@pytest.mark.parametrize("cascade", ["", " CASCADE"], ids=["restrict", "cascade"])
@pytest.mark.parametrize("name", DEPENDENTS)
def test_what_is_used_meanwhile_is_not_dropped(cluster: Cluster, name: str, cascade: str) -> None:
    setup, use, drop = DEPENDENTS[name]
    error = race(cluster, [*TABLE, setup], use, drop + cascade)
    assert "quack schema_changed:" in error, error
    listing = (
        "SELECT table_name FROM duckdb_tables() WHERE NOT internal UNION ALL SELECT view_name "
        "FROM duckdb_views() WHERE NOT internal UNION ALL SELECT type_name FROM duckdb_types() "
        "WHERE NOT internal UNION ALL SELECT schema_name FROM duckdb_schemas()"
    )
    for replica in cluster.replicas:
        replica.command("wait")
        found = {row[0] for row in replica.rows(listing)}
        assert found >= ({"t"} if "ALTER" in use else {"d", "t"}), found
    cluster[1].con.execute("CREATE TABLE goes_on(i INT)")
    cluster.assert_equal()


@pytest.mark.parametrize("name", DEPENDENTS)
def test_what_is_dropped_meanwhile_is_not_used(cluster: Cluster, name: str) -> None:
    setup, use, drop = DEPENDENTS[name]
    error = race(cluster, [*TABLE, setup], drop, use)
    assert "quack schema_changed:" in error, error
    cluster[1].con.execute("CREATE TABLE goes_on(i INT)")
    cluster.assert_equal()


def test_what_is_made_anew_meanwhile_is_another_object(cluster: Cluster) -> None:
    error = race(
        cluster,
        ["CREATE TYPE o AS ENUM ('a')"],
        "DROP TYPE o; CREATE TYPE o AS ENUM ('b')",
        "CREATE TABLE d(m o)",
    )
    assert "quack schema_changed:" in error, error


@pytest.mark.parametrize("name", DEPENDENTS)
def test_an_open_transaction_does_not_keep_a_drop_from_being_applied(
    cluster: Cluster, name: str
) -> None:
    setup, use, drop = DEPENDENTS[name]
    a, b, _ = cluster.replicas
    for statement in [*TABLE, setup]:
        a.con.execute(statement)
    b.command("wait")
    session = b.session()
    session.execute("BEGIN")
    session.execute(use)
    a.con.execute(drop)
    b.command("wait")
    expect(session, "COMMIT", "schema_changed|conflict")
    cluster.assert_equal()


def test_foreign_key_race(cluster: Cluster) -> None:
    """The referenced row goes while the reference is underway: the reference is refused."""
    setup = [
        "CREATE TABLE p(i INT PRIMARY KEY)", "CREATE TABLE c(i INT REFERENCES p(i))", "INSERT INTO p VALUES (1), (2)",
    ]  # fmt: skip
    assert "quack constraint:" in race(
        cluster, setup, "DELETE FROM p WHERE i = 1", "INSERT INTO c VALUES (1)"
    )
    assert "quack constraint:" in race(
        cluster, [], "INSERT INTO c VALUES (2)", "DELETE FROM p WHERE i = 2"
    )


def test_set_not_null_race(cluster: Cluster) -> None:
    """Data-dependent DDL is checked against the data at its place in the log."""
    error = race(
        cluster, TABLE, "INSERT INTO t VALUES (7, NULL)", "ALTER TABLE t ALTER s SET NOT NULL"
    )
    assert "quack constraint:" in error


def test_multi_statement_transaction_is_rejected_whole(cluster: Cluster) -> None:
    a = cluster[0]
    for statement in TABLE:
        a.con.execute(statement)
    a, b = stale(cluster)
    a.con.execute("UPDATE t SET s = 'x' WHERE i = 3")
    b.con.execute("BEGIN")
    b.con.execute("INSERT INTO t VALUES (50, 'mine')")
    b.con.execute("UPDATE t SET s = 'mine' WHERE i = 1")
    b.con.execute("DELETE FROM t WHERE i = 3")
    errors: list[str] = []
    thread = start(b.con, "COMMIT", errors)
    wait_for_proposal(b, 1)
    b.command("resume")
    thread.join()
    assert "quack conflict:" in errors[0]
    cluster.assert_equal()
    assert b.rows("SELECT i, s FROM t ORDER BY i") == [(1, "a"), (2, "b"), (3, "x")]


def test_constraint_inside_a_coalesced_batch_hits_only_its_entry(cluster: Cluster) -> None:
    """Many entries in one Apply call, some of them violating: exactly those are rejected."""
    a, b, c = cluster.replicas
    a.con.execute("CREATE TABLE t(i INTEGER PRIMARY KEY, origin VARCHAR)")
    for replica in (b, c):
        replica.command("wait")
        replica.command("pause")
    sessions = [(b, b.session()) for _ in range(6)] + [(c, c.session()) for _ in range(6)]
    errors: list[str] = []
    threads = []
    for number, (replica, session) in enumerate(sessions):
        sql = f"INSERT INTO t VALUES ({number % 6}, '{replica.node}'), ({100 + number}, 'x')"
        threads.append(start(session, sql, errors))
    wait_for_proposal(b, 6)
    wait_for_proposal(c, 6)
    b.command("resume")
    c.command("resume")
    for thread in threads:
        thread.join()
    assert len(errors) == 6
    assert all("quack constraint:" in error for error in errors)
    cluster.assert_equal()
    assert a.rows("SELECT count(*) FROM t") == [(12,)]


def roll_back(con: duckdb.DuckDBPyConnection) -> None:
    """Ends the transaction, if there is one; eviction may interrupt the ROLLBACK itself."""
    while True:
        try:
            con.execute("ROLLBACK")
            return
        except duckdb.InterruptException:
            continue
        except duckdb.TransactionException as error:
            assert "no transaction" in str(error)
            return


def test_money_is_conserved(cluster: Cluster) -> None:
    """Concurrent transfers from all replicas, retried on conflict: no update is lost."""
    cluster[0].con.execute("CREATE TABLE acc(id INT PRIMARY KEY, bal INT)")
    cluster[0].con.execute("INSERT INTO acc SELECT range, 100 FROM range(5)")
    for replica in cluster.replicas:
        replica.command("wait")
    outcomes = {"ok": 0, "conflict": 0}
    lock = threading.Lock()

    def transfer(con: duckdb.DuckDBPyConnection, seed: int) -> None:
        for step in range(12):
            source, target = (seed + step) % 5, (seed * 3 + step * 2 + 1) % 5
            if source == target:
                continue
            try:
                con.execute("BEGIN")
                con.execute("UPDATE acc SET bal = bal - 1 WHERE id = ?", [source])
                con.execute("UPDATE acc SET bal = bal + 1 WHERE id = ?", [target])
                con.execute("COMMIT")
                key = "ok"
            except duckdb.Error as error:
                assert (
                    "onflict" in str(error) or "INTERRUPT" in str(error) or "aborted" in str(error)
                ), str(error)
                key = "conflict"
                roll_back(con)
            with lock:
                outcomes[key] += 1

    threads = [
        threading.Thread(target=transfer, args=(replica.session(), 2 * i + j))
        for i, replica in enumerate(cluster.replicas)
        for j in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cluster.assert_equal()
    assert cluster[0].rows("SELECT sum(bal) FROM acc") == [(500,)]
    assert outcomes["ok"] > 0


def test_open_local_writer_is_evicted(cluster: Cluster) -> None:
    """A committed entry needs the row that an idle local transaction changed: the local one goes, with its reason."""
    a, b, _ = cluster.replicas
    for statement in TABLE:
        a.con.execute(statement)
    b.command("wait")
    idle = b.session()
    idle.execute("BEGIN")
    idle.execute("UPDATE t SET s = 'idle' WHERE i = 1")
    a.con.execute("UPDATE t SET s = 'winner' WHERE i = 1")
    b.command("wait")
    assert "conflict" in command(idle, "doomed")
    expect(idle, "COMMIT", "conflict")
    cluster.assert_equal()
    assert b.rows("SELECT s FROM t WHERE i = 1") == [("winner",)]
    idle.execute("UPDATE t SET s = 'again' WHERE i = 1")
    assert command(idle, "doomed") == "ok"
    cluster.assert_equal()


def test_ddl_evicts_local_ddl_and_writers(cluster: Cluster) -> None:
    a, b, _ = cluster.replicas
    for statement in TABLE:
        a.con.execute(statement)
    a.con.execute("CREATE TABLE u AS FROM t")
    b.command("wait")
    idle = b.session()
    idle.execute("BEGIN")
    idle.execute("ALTER TABLE t ADD COLUMN mine INT")
    other = b.session()
    other.execute("BEGIN")
    other.execute("UPDATE u SET s = 'open'")
    a.con.execute("CREATE INDEX ix ON u(s)")
    a.con.execute("ALTER TABLE t ADD COLUMN theirs INT")
    b.command("wait")
    expect(idle, "COMMIT", "conflict")
    expect(other, "COMMIT", "conflict")
    cluster.assert_equal()


def test_stale_index_danger(cluster: Cluster) -> None:
    """An update planned without an index must not leave an index created meanwhile stale (here: it is rejected)."""
    error = race(cluster, TABLE, "CREATE INDEX ix ON t(s)", "UPDATE t SET s = 'idx' WHERE i = 2")
    assert "quack schema_changed:" in error
    for replica in cluster.replicas:
        cluster.assert_equal()
        replica.con.execute("UPDATE t SET s = 'found' WHERE i = 2")
        replica.command("wait")
        assert replica.rows("SELECT i FROM t WHERE s = 'found'") == [(2,)]


def test_lost_mark_of_a_conflicting_alter(cluster: Cluster) -> None:
    """DuckDB leaves a table marked as altered when an ALTER meets a conflict: it must stay writable all the same."""
    a, b, _ = cluster.replicas
    a.con.execute("CREATE TABLE t AS SELECT range i, range::VARCHAR s FROM range(300000)")
    b.command("wait")
    errors: list[str] = []
    slow = "ALTER TABLE t ALTER s TYPE VARCHAR USING md5(md5(md5(repeat(s, 20))))"
    thread = start(b.session(), slow, errors)
    probe = b.session()
    deadline = time.monotonic() + 30
    while not is_marked_altered(probe):
        assert thread.is_alive()
        assert time.monotonic() < deadline
    a.con.execute("COMMENT ON TABLE t IS 'has the same storage'")
    thread.join()
    assert len(errors) == 1
    a.con.execute("INSERT INTO t VALUES (-1, 'after')")
    a.con.execute("UPDATE t SET s = 'updated' WHERE i = 1")
    cluster.assert_equal()
    b.con.execute("INSERT INTO t VALUES (-2, 'after')")
    cluster.assert_equal()


def is_marked_altered(con: duckdb.DuckDBPyConnection) -> bool:
    con.execute("BEGIN")
    try:
        con.execute("INSERT INTO t VALUES (-1, 'probe')")
    except duckdb.TransactionException as error:
        return "altered" in str(error)
    finally:
        con.execute("ROLLBACK")
    return False
