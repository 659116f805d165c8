"""Retries, unknown outcomes, deadlines, request ids, consistency levels, sequences."""

from __future__ import annotations

import threading
from pathlib import Path

import duckdb
import pytest
from catalog_replica import Cluster, Replica, command

REQUEST = "00112233445566778899aabbccddeeff"


def test_unavailable_attempts_are_retried(replica: Replica) -> None:
    replica.con.execute("CREATE TABLE t(i INT)")
    replica.command("fault", "unavailable", "4")
    replica.con.execute("INSERT INTO t VALUES (1)")
    assert replica.rows("FROM t") == [(1,)]


@pytest.mark.parametrize("fault", ["unknown", "lost", "twice"])
def test_ambiguous_attempts_commit_once(replica: Replica, fault: str) -> None:
    """The answer is lost, or the proposal, or it arrives twice: the rows are there exactly once."""
    replica.con.execute("CREATE TABLE t(i INT)")
    replica.command("fault", fault, "3")
    replica.con.execute("INSERT INTO t VALUES (1)")
    replica.con.execute("INSERT INTO t VALUES (2)")
    assert replica.rows("FROM t ORDER BY i") == [(1,), (2,)]


def test_deadline_without_an_attempt_that_could_commit_is_a_clear_no(replica: Replica) -> None:
    replica.con.execute("CREATE TABLE t(i INT)")
    replica.command("fault", "unavailable", "1000")
    command(replica.con, "timeout", "300")
    with pytest.raises(duckdb.Error, match="quack unavailable: .*injected: no leader"):
        replica.con.execute("INSERT INTO t VALUES (1)")
    command(replica.con, "timeout", "0")
    replica.command("fault", "none", "0")
    assert replica.rows("SELECT count(*) FROM t") == [(0,)]


def test_unknown_outcome_resolves_by_its_request(replica: Replica) -> None:
    """Applying stops, so the deadline passes underway; later the request id tells what became of it."""
    replica.con.execute("CREATE TABLE t(i INT)")
    replica.command("pause")
    command(replica.con, "request", REQUEST)
    command(replica.con, "timeout", "300")
    with pytest.raises(duckdb.Error, match=f"quack outcome_unknown: .*{REQUEST}"):
        replica.con.execute("INSERT INTO t VALUES (1)")
    command(replica.con, "timeout", "0")
    assert replica.command("outcome", REQUEST) == "unremembered"
    replica.command("resume")
    replica.command("wait")
    assert replica.command("outcome", REQUEST) == "ok"
    # The client retries with the same request: the first outcome stands, nothing happens twice.
    command(replica.con, "request", REQUEST)
    replica.con.execute("INSERT INTO t VALUES (1)")
    assert replica.rows("SELECT count(*) FROM t") == [(1,)]
    assert command(replica.con, "last_commit").startswith(f"ok|{REQUEST}|")


def test_request_outcomes_survive_a_restart(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "n0.db", "restart", "n0", str(tmp_path / "log"))
    replica.con.execute("CREATE TABLE t(i INT PRIMARY KEY)")
    command(replica.con, "request", REQUEST)
    replica.con.execute("INSERT INTO t VALUES (1)")
    replica.close()
    replica = Replica(tmp_path / "n0.db", "restart2", "n0", str(tmp_path / "log"))
    assert replica.command("outcome", REQUEST) == "ok"
    command(replica.con, "request", REQUEST)
    replica.con.execute("INSERT INTO t VALUES (2)")
    assert replica.rows("FROM t") == [(1,)]
    replica.close()


#: Entries after its own for which an outcome is remembered (outcome_window.hpp).
WINDOW = 65536


@pytest.mark.parametrize("restarts", [False, True])
def test_a_request_older_than_the_window_is_never_told_as_not_committed(
    tmp_path: Path, restarts: bool
) -> None:
    replica = Replica(tmp_path / "n0.db", "window", "n0", str(tmp_path / "log"))
    replica.con.execute("CREATE TABLE t(i INT)")
    # As a client makes it: random digits, then the index it knows to lie before the request.
    request = "00112233445566778899" + f"{int(replica.command('applied')):012x}"
    command(replica.con, "request", request)
    replica.con.execute("INSERT INTO t VALUES (1)")
    committed = int(command(replica.con, "last_commit").split("|")[2])

    replica.command("noop", str(WINDOW))
    replica.command("wait")
    assert int(replica.command("applied")) == committed + WINDOW
    assert replica.command("outcome", request) == "ok"

    replica.command("noop", "1")
    replica.command("wait")
    if restarts:
        assert replica.command("checkpoint") == "ok"
        replica.close()
        replica = Replica(tmp_path / "n0.db", "window again", "n0", str(tmp_path / "log"))
    assert replica.command("outcome", request) == "unremembered"
    assert replica.command("resolve", request) == "outcome_unknown"
    assert replica.command("resolve", request) == "outcome_unknown"
    # A client that repeats the request now must not write it twice, nor hear that it failed.
    command(replica.con, "request", request)
    with pytest.raises(duckdb.Error, match="quack outcome_unknown: .*no longer known"):
        replica.con.execute("INSERT INTO t VALUES (1)")
    assert replica.rows("SELECT count(*) FROM t") == [(1,)]
    replica.close()


class Waiting:
    """An INSERT of one row on a thread of its own whose commit waits, because the replica applies nothing."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.errors: list[str] = []
        replica.command("pause")
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        while replica.command("waiting") != "1":
            pass

    def _run(self) -> None:
        try:
            self.replica.con.execute("INSERT INTO t VALUES (1)")
        except duckdb.Error as error:
            self.errors.append(str(error))

    def error(self) -> str:
        """How it ended; it must end soon."""
        self.thread.join(30)
        assert not self.thread.is_alive()
        return self.errors[0]


def test_interrupt_while_waiting(replica: Replica) -> None:
    replica.con.execute("CREATE TABLE t(i INT)")
    waiting = Waiting(replica)
    replica.con.interrupt()
    assert "quack outcome_unknown" in waiting.error()
    replica.command("resume")
    replica.command("wait")
    assert replica.rows("FROM t") == [(1,)]


def test_a_node_that_goes_out_of_service_tells_those_who_wait(replica: Replica) -> None:
    """It applies nothing any more; who waits for their deadline could have asked another node long ago."""
    replica.con.execute("CREATE TABLE t(i INT)")
    command(replica.con, "timeout", "60000")
    waiting = Waiting(replica)
    replica.command("degrade", "this is a test")
    error = waiting.error()
    assert "quack outcome_unknown" in error
    assert "went out of service while the transaction was underway" in error


def test_linearizable_read_waits_for_what_is_committed(cluster: Cluster) -> None:
    """A replica that is behind answers `eventual` from its own state and `linearizable` only when caught up."""
    a, b, _ = cluster.replicas
    a.con.execute("CREATE TABLE t(i INT)")
    b.command("wait")
    b.command("pause")
    a.con.execute("INSERT INTO t VALUES (1)")
    assert b.rows("SELECT count(*) FROM t") == [(0,)]
    reader = b.session()
    command(reader, "consistency", "linearizable")
    command(reader, "timeout", "200")
    with pytest.raises(duckdb.Error, match="quack unavailable: linearizable read of group root"):
        reader.execute("SELECT count(*) FROM t")
    command(reader, "timeout", "0")
    result: list[object] = []
    thread = threading.Thread(
        target=lambda: result.extend(reader.execute("SELECT count(*) FROM t").fetchall())
    )
    thread.start()
    b.command("resume")
    thread.join(30)
    assert result == [(1,)]
    b.command("fault", "unavailable", "1")
    with pytest.raises(
        duckdb.Error, match="quack unavailable: linearizable read of group root failed on node n1"
    ):
        reader.execute("SELECT count(*) FROM t")


def test_read_only_transactions_propose_nothing(replica: Replica) -> None:
    replica.con.execute("CREATE TABLE t(i INT)")
    applied = replica.command("applied")
    replica.con.execute("BEGIN")
    replica.con.execute("FROM t")
    replica.con.execute("COMMIT")
    replica.con.execute("CREATE TEMP TABLE own AS SELECT 1 AS x")
    replica.con.execute("INSERT INTO t SELECT 1 WHERE false")
    replica.con.execute("DELETE FROM t")
    assert replica.command("applied") == applied


def test_sequences_never_repeat_across_replicas(cluster: Cluster) -> None:
    """Replicas draw from one sequence at the same time; overlapping draws conflict and are retried."""
    cluster[0].con.execute("CREATE SEQUENCE sq START 5 INCREMENT 3")
    cluster[0].con.execute("CREATE TABLE t(i BIGINT DEFAULT nextval('sq'), origin VARCHAR)")
    for replica in cluster.replicas:
        replica.command("wait")
    done: list[int] = []

    def insert(replica: Replica) -> None:
        con = replica.session()
        committed = 0
        for _ in range(200):
            if committed == 15:
                break
            try:
                con.execute("INSERT INTO t(origin) VALUES (?)", [replica.node])
                committed += 1
            except duckdb.Error as error:
                assert "used on another node" in str(error)
        done.append(committed)

    threads = [
        threading.Thread(target=insert, args=(replica,))
        for replica in cluster.replicas
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cluster.assert_equal()
    total = sum(done)
    assert total > 15
    for replica in cluster.replicas:
        assert replica.rows(
            "SELECT count(*), count(DISTINCT i), min((i - 5) % 3), max((i - 5) % 3) FROM t"
        ) == [(total, total, 0, 0)]


def test_setval_and_cycle(cluster: Cluster) -> None:
    a, b, _ = cluster.replicas
    a.con.execute("CREATE SEQUENCE sq MAXVALUE 3 CYCLE")
    assert [a.rows("SELECT nextval('sq')")[0][0] for _ in range(4)] == [1, 2, 3, 1]
    b.command("wait")
    assert b.rows("SELECT nextval('sq')") == [(2,)]
    a.command("wait")
    assert a.rows("SELECT nextval('sq')") == [(3,)]


def test_no_ops_advance_the_applied_vector(replica: Replica) -> None:
    replica.con.execute("CREATE TABLE t(i INT)")
    index = replica.command("noop")
    replica.command("wait")
    assert replica.command("applied") == index
