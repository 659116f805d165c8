"""Goal: three processes over mTLS are one database: every node takes writes, all hold the same, one may die."""

from __future__ import annotations

import http.client
import threading
import time

import pytest
import quack_wire as wire
from server_node import Node, wait_for, wait_leader

pytestmark = pytest.mark.cluster


def hashes(node: Node) -> list[list[object]]:
    return node.sql("SELECT schema, object, type, rows, hash FROM quack_state_hash() ORDER BY ALL")


def same_state(nodes: list[Node]) -> bool:
    running = [node for node in nodes if node.process is not None]
    return len({node.status()["applied_index"] for node in running}) == 1 and all(
        hashes(node) == hashes(running[0]) for node in running
    )


def test_every_node_takes_writes_and_reads(trio):
    sessions = [node.session() for node in trio]
    sessions[0].query("CREATE TABLE shared (i INTEGER PRIMARY KEY, who VARCHAR)")
    for number in range(30):
        writer = sessions[number % 3]
        floor = {
            "X-Quack-Min-Positions": sessions[(number - 1) % 3].reply_headers["X-Quack-Positions"]
        }
        writer.query(f"INSERT INTO shared VALUES ({number}, '{number % 3}')", headers=floor)
    for session in sessions:
        rows = session.query(
            "SELECT count(*) FROM shared", headers={"X-Quack-Consistency": "linearizable"}
        )
        assert rows == [(30,)]
    wait_for(lambda: same_state(trio))


def test_session_reads_follow_to_another_node(trio):
    """What was written through one node is seen through another at once when the position travels along."""
    writer, reader = trio[0].session(), trio[1].session()
    writer.query("CREATE TABLE followed (i INTEGER)")
    for number in range(20):
        writer.query(f"INSERT INTO followed VALUES ({number})")
        position = writer.reply_headers["X-Quack-Positions"]
        rows = reader.query(
            "SELECT count(*) FROM followed", headers={"X-Quack-Min-Positions": position}
        )
        assert rows == [(number + 1,)]


def test_conflicting_updates_are_retried(trio):
    """Autocommit updates of one row from all nodes meet; the server repeats them until each counted once."""
    sessions = [node.session() for node in trio]
    sessions[0].query("CREATE TABLE counter (id INTEGER PRIMARY KEY, n INTEGER)")
    sessions[0].query("INSERT INTO counter VALUES (1, 0)")
    position = sessions[0].reply_headers["X-Quack-Positions"]
    done: list[int] = []
    failed: list[wire.QuackError] = []

    def count(session: wire.Session) -> None:
        good = 0
        for _ in range(10):
            try:
                session.query(
                    "UPDATE counter SET n = n + 1 WHERE id = 1",
                    headers={"X-Quack-Min-Positions": position},
                )
                good += 1
            except wire.QuackError as error:
                assert error.code == "conflict", error
                failed.append(error)
        done.append(good)

    threads = [threading.Thread(target=count, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = sessions[0].query(
        "SELECT n FROM counter", headers={"X-Quack-Consistency": "linearizable"}
    )
    assert rows == [(sum(done),)]
    assert all(error.code == "conflict" for error in failed), failed
    assert sum(done) >= 20


def test_leadership_moves_on_request(trio):
    leader = wait_leader(trio)
    target = next(node for node in trio if node is not leader)
    leader.sql(f"CALL quack_transfer_leadership('{target.parameters['node_id']}')")
    wait_for(lambda: target.status()["is_leader"])
    assert target.session().query("SELECT 1") == [(1,)]


def test_peers_are_shown(trio):
    rows = trio[0].sql("SELECT node_id, connected, last_error FROM quack_peers() ORDER BY node_id")
    assert [row[0] for row in rows] == ["n1", "n2"] and all(row[1] for row in rows)


def test_killed_leader_is_replaced_and_comes_back(trio):
    """Acknowledged rows survive SIGKILL of the leader; writes go on within seconds; the node catches up."""
    leader = wait_leader(trio)
    others = [node for node in trio if node is not leader]
    session = others[0].session()
    session.query("CREATE TABLE surviving (i INTEGER PRIMARY KEY)")
    for number in range(50):
        session.query(f"INSERT INTO surviving VALUES ({number})")
    leader.kill()
    started = time.monotonic()
    session.query("INSERT INTO surviving VALUES (50)", headers={"X-Quack-Deadline-Ms": "20000"})
    assert time.monotonic() - started < 10
    assert session.query("SELECT count(*) FROM surviving") == [(51,)]
    leader.start()
    wait_for(lambda: same_state(trio), 60)


def test_no_quorum_is_said_and_heals(trio):
    """One of three cannot write or read fresh; status says so; stale reads still work; all comes back."""
    survivor, *rest = trio
    for node in rest:
        node.kill()
    wait_for(lambda: not survivor.status()["linearizable_read_safe"], 20)
    session = survivor.session()
    assert session.query(
        "SELECT count(*) FROM surviving", headers={"X-Quack-Consistency": "eventual"}
    ) == [(51,)]
    for sql, consistency in (
        ("INSERT INTO surviving VALUES (99)", "session"),
        ("SELECT 1 FROM surviving", "linearizable"),
    ):
        with pytest.raises(wire.QuackError) as caught:
            session.query(
                sql, headers={"X-Quack-Consistency": consistency, "X-Quack-Deadline-Ms": "2000"}
            )
        assert caught.value.code in ("unavailable", "deadline_exceeded", "outcome_unknown"), (
            caught.value
        )
    assert survivor.status()["reason"]
    for consistency in ("eventual", "session", "linearizable"):
        headers = {"X-Quack-Consistency": consistency, "X-Quack-Deadline-Ms": "2000"}
        ((leader_id, reason),) = survivor.session().query(
            "SELECT leader_id, reason FROM quack_raft_status()", headers=headers
        )
        assert leader_id == "" and reason
    for node in rest:
        node.start()
    wait_leader(trio)
    wait_for(lambda: same_state(trio), 60)


def test_graceful_stop_hands_over(trio):
    """A node that stops on purpose hands leadership over; statements it was asked meanwhile fail as unavailable."""
    leader = wait_leader(trio)
    watcher = leader.session()
    watcher.query("CREATE TABLE handed (i INTEGER)")
    errors: list[wire.QuackError] = []

    def write(session: wire.Session) -> None:
        try:
            while True:
                session.query("INSERT INTO handed FROM range(200000)")  # a long way into the log
        except wire.QuackError as error:
            errors.append(error)
        except (OSError, http.client.HTTPException, wire.HttpError):
            pass  # the node is gone
        finally:
            session.http.close()

    writers = [threading.Thread(target=write, args=(leader.session(),)) for _ in range(4)]
    for writer in writers:
        writer.start()
    wait_for(lambda: watcher.query("SELECT count(*) > 0 FROM handed") == [(True,)])
    watcher.http.close()
    leader.stop()
    for writer in writers:
        writer.join()
    # "cancelled" is for those who asked for it: nobody repeats such a statement elsewhere.
    for error in errors:
        lost = error.message == "Invalid connection id"
        assert lost or error.code in ("unavailable", "outcome_unknown"), errors
    others = [node for node in trio if node is not leader]
    started = time.monotonic()
    wait_leader(others, 10)
    assert time.monotonic() - started < 5
    assert others[0].session().query("INSERT INTO handed VALUES (1)") == [(1,)]
    leader.start()
    wait_for(lambda: same_state(trio), 60)
