"""Snapshot isolation, what it allows, and `quack_isolation = 'serializable'`."""

from __future__ import annotations

import threading
import time
import uuid
from pathlib import Path

import duckdb
import pytest
from catalog_replica import Cluster, Replica
from test_conflicts import race

DOCTORS = [
    "CREATE TABLE doctor(name VARCHAR PRIMARY KEY, on_call BOOLEAN)",
    "INSERT INTO doctor VALUES ('alice', true), ('bob', true)",
]


def prepare(cluster: Cluster, statements: list[str]) -> None:
    for statement in statements:
        cluster[0].con.execute(statement)
    for replica in cluster.replicas:
        replica.command("wait")


def go_off_call(replica: Replica, name: str, isolation: str) -> duckdb.DuckDBPyConnection:
    """Reads how many are on call, then takes one of them off; not committed yet."""
    con = replica.session()
    con.execute(f"SET quack_isolation = '{isolation}'")
    con.execute("BEGIN")
    assert con.execute("SELECT count(*) FROM doctor WHERE on_call").fetchall() == [(2,)]
    con.execute("UPDATE doctor SET on_call = false WHERE name = ?", [name])
    return con


def on_call(cluster: Cluster) -> int:
    cluster.assert_equal()
    return int(cluster[0].rows("SELECT count(*) FROM doctor WHERE on_call")[0][0])


def test_snapshot_isolation_allows_write_skew(cluster: Cluster) -> None:
    """Two transactions read both rows and each changes the other one: both commit, as documented."""
    prepare(cluster, DOCTORS)
    first = go_off_call(cluster[0], "alice", "snapshot")
    second = go_off_call(cluster[1], "bob", "snapshot")
    first.execute("COMMIT")
    second.execute("COMMIT")
    assert on_call(cluster) == 0


@pytest.mark.parametrize("other", [0, 1], ids=["same node", "another node"])
def test_serializable_refuses_write_skew(cluster: Cluster, other: int) -> None:
    prepare(cluster, DOCTORS)
    first = go_off_call(cluster[0], "alice", "serializable")
    second = go_off_call(cluster[other], "bob", "serializable")
    first.execute("COMMIT")
    with pytest.raises(duckdb.Error, match=r'quack conflict: table "main\.doctor" was changed'):
        second.execute("COMMIT")
    assert on_call(cluster) == 1


def test_serializable_commits_when_nothing_it_read_changed(cluster: Cluster) -> None:
    """Changes of tables that it did not read, and its own earlier commits, do not matter."""
    prepare(cluster, [*DOCTORS, "CREATE TABLE visits(i INT)"])
    con = go_off_call(cluster[0], "alice", "serializable")
    cluster[1].con.execute("INSERT INTO visits VALUES (1)")
    con.execute("COMMIT")
    con.execute("BEGIN")
    con.execute("UPDATE doctor SET on_call = true WHERE name = 'alice'")
    con.execute("COMMIT")
    assert on_call(cluster) == 2


READERS = {
    "aggregate": "INSERT INTO log SELECT count(*) FROM t",
    "join": "INSERT INTO log SELECT count(*) FROM log a JOIN t ON a.n = t.i",
    "subquery": "INSERT INTO log SELECT CASE WHEN EXISTS (SELECT * FROM t WHERE i = 99) THEN 1 ELSE 0 END",
    "cte": "WITH c AS MATERIALIZED (SELECT max(i) m FROM t) INSERT INTO log SELECT m FROM c",
    "view": "INSERT INTO log SELECT n FROM v",
    "macro": "INSERT INTO log SELECT * FROM m()",
    "point": "INSERT INTO log SELECT i FROM t WHERE i = 2",
    "absent": "INSERT INTO log SELECT count(*) FROM t WHERE i = 12345",
}


@pytest.mark.parametrize("reader", list(READERS), ids=list(READERS))
def test_serializable_sees_every_kind_of_read(cluster: Cluster, reader: str) -> None:
    """However a table was read: a row that another transaction adds to it meanwhile refuses the commit."""
    prepare(
        cluster,
        [
            "CREATE TABLE t(i INT PRIMARY KEY)",
            "INSERT INTO t SELECT range FROM range(10)",
            "CREATE TABLE log(n BIGINT)",
            "CREATE VIEW v AS SELECT count(*) n FROM t",
            "CREATE MACRO m() AS TABLE SELECT sum(i) FROM t",
        ],
    )
    for prepared in (False, True):
        con = cluster[0].session()
        con.execute("SET quack_isolation = 'serializable'")
        if prepared:
            con.execute(f"PREPARE p AS {READERS[reader]}")
        con.execute("BEGIN")
        con.execute("EXECUTE p" if prepared else READERS[reader])
        cluster[1].con.execute(f"INSERT INTO t VALUES ({100 + prepared})")
        cluster[0].command("wait")
        with pytest.raises(duckdb.Error, match=r'quack conflict: table "main\.t" was changed'):
            con.execute("COMMIT")
    cluster.assert_equal()
    assert cluster[0].rows("SELECT count(*) FROM log") == [(0,)]


def test_serializable_with_hidden_reads(cluster: Cluster) -> None:
    """Without the optimizer the reads are not noted: then any change refuses."""
    prepare(cluster, [*DOCTORS, "CREATE TABLE visits(i INT)"])
    con = cluster[0].session()
    con.execute("SET quack_isolation = 'serializable'")
    con.execute("SET enable_optimizer = false")
    con.execute("BEGIN")
    con.execute("INSERT INTO visits SELECT count(*) FROM doctor")
    cluster[1].con.execute("UPDATE doctor SET on_call = false WHERE name = 'bob'")
    cluster[0].command("wait")
    with pytest.raises(duckdb.Error, match="quack conflict: a table was changed"):
        con.execute("COMMIT")
    cluster.assert_equal()


def test_serializable_and_ddl(cluster: Cluster) -> None:
    """Any change of the catalog refuses: a view may mean something else now."""
    prepare(cluster, [*DOCTORS, "CREATE VIEW v AS SELECT 1 n"])
    con = cluster[0].session()
    con.execute("SET quack_isolation = 'serializable'")
    con.execute("BEGIN")
    con.execute("UPDATE doctor SET on_call = false WHERE (SELECT n FROM v) = 1")
    cluster[1].con.execute("CREATE OR REPLACE VIEW v AS SELECT 2 n")
    cluster[0].command("wait")
    with pytest.raises(duckdb.Error, match="quack schema_changed"):
        con.execute("COMMIT")
    cluster.assert_equal()


def test_last_changes_survive_restart_and_snapshot(tmp_path: Path) -> None:
    """A replica that starts from a file, and one that starts from an image, decide like the one that saw it all."""
    log = uuid.uuid4().hex
    a = Replica(tmp_path / "a.db", log, "a")
    b = Replica(tmp_path / "b.db", log, "b")
    for statement in DOCTORS:
        a.con.execute(statement)
    b.command("wait")
    b.command("pause")
    second = go_off_call(b, "bob", "serializable")
    a.con.execute("UPDATE doctor SET on_call = false WHERE name = 'alice'")
    a.command("checkpoint")
    image = tmp_path / "image"
    a.command("snapshot", str(image))
    a.close()
    reopened = Replica(tmp_path / "a.db", log, "a")
    c = Replica(tmp_path / "c.db", log, "c")
    c.command("pause")
    c.command("resume")
    b.command("resume")
    with pytest.raises(duckdb.Error, match="quack conflict"):
        second.execute("COMMIT")
    installed = Replica(image, log, "d")
    hashes = [replica.hashes() for replica in (reopened, b, c, installed)]
    assert all(other == hashes[0] for other in hashes)
    assert reopened.rows("SELECT count(*) FROM doctor WHERE on_call") == [(1,)]
    for replica in (reopened, b, c, installed):
        replica.close()


def test_setting_is_checked(replica: Replica) -> None:
    with pytest.raises(duckdb.InvalidInputException, match="expected 'snapshot' or 'serializable'"):
        replica.con.execute("SET quack_isolation = 'chaos'")


def test_conflict_names_table_and_key(cluster: Cluster) -> None:
    setup = [
        "CREATE TABLE t(i INTEGER, s VARCHAR, PRIMARY KEY (s, i))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    ]
    error = race(cluster, setup, "DELETE FROM t WHERE i = 2", "DELETE FROM t WHERE i = 2")
    assert 'row of table "main.t" with key (s, i) = (b, 2) was changed or deleted' in error


def test_conflict_names_row_without_key(cluster: Cluster) -> None:
    setup = [
        "CREATE TABLE t(i INTEGER, s VARCHAR, n INT)",
        "INSERT INTO t VALUES (1, repeat('é', 100), NULL), (2, 'b', 3)",
    ]
    error = race(cluster, setup, "UPDATE t SET n = 1 WHERE i = 1", "DELETE FROM t WHERE i = 1")
    assert f'row of table "main.t" with values (1, {"é" * 20}..., NULL) was changed' in error


def test_row_ids_stay_while_a_transaction_is_open(tmp_path: Path) -> None:
    """A client reads row ids and updates by them in its next statement: no checkpoint in between may move the rows.

    Transactions are let in again while a checkpoint writes, so this is tried with one that begins just then.
    """
    cluster = Cluster(tmp_path, 1)
    replica = cluster[0]
    replica.con.execute("SET debug_checkpoint_scan_sleep_ms = 200")
    replica.con.execute("CREATE TABLE t(k INTEGER PRIMARY KEY, v BIGINT[])")
    row_ids = "SELECT k, rowid FROM t ORDER BY k"
    moved = 0
    rounds = 0
    # On a busy machine the transaction may begin before or behind the moves.
    while rounds < 8 or (moved == 0 and rounds < 80):
        rounds += 1
        replica.con.execute("DELETE FROM t WHERE k % 2 = 0")
        # After a checkpoint appends begin a row group of their own; half-empty ones are merged.
        replica.con.execute("INSERT INTO t SELECT range, [] FROM range(500) ON CONFLICT DO NOTHING")
        before = replica.rows(row_ids)
        holder = replica.session()
        holder.execute("BEGIN")
        holder.execute("UPDATE t SET v = [1] WHERE k = 1")
        checkpoint = threading.Thread(target=lambda: replica.command("checkpoint"))
        checkpoint.start()  # closes the gate and waits for the holder
        time.sleep(
            0.02
        )  # the pace only: whenever it begins, the transaction below must see no row move
        release = threading.Timer(0.02, holder.execute, ["ROLLBACK"])
        release.start()
        session = replica.session()
        session.execute("BEGIN")
        seen = session.execute(row_ids).fetchall()
        release.join()
        checkpoint.join()
        assert session.execute(row_ids).fetchall() == seen
        key, row_id = seen[-1]
        updated = session.execute(f"UPDATE t SET v = [7] WHERE rowid = {row_id} RETURNING k")
        assert updated.fetchall() == [(key,)]
        session.execute("ROLLBACK")
        moved += seen != before
    assert moved > 0  # some checkpoint did move rows
    cluster.close()
