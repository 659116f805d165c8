"""Goal: a write has one outcome under its request id, whoever repeats it where, and asking for the outcome settles it."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import uuid

import pytest
import quack_wire as wire
from server_node import Node, wait_leader

pytestmark = pytest.mark.cluster


def new_id(base: int) -> str:
    """20 random hex digits and the root index that the client knew when it made the id."""
    return secrets.token_hex(10) + f"{base:012x}"


def fresh_id(session: wire.Session) -> str:
    return new_id(int(session.reply_headers["X-Quack-Request-Base"]))


def outcome(session: wire.Session, request_id: str) -> tuple[str, str]:
    ((found, code),) = session.query(
        f"SELECT outcome, code FROM quack_transaction_outcome('{request_id}')"
    )
    return found, code


@pytest.fixture
def sessions(trio: list[Node]) -> list[wire.Session]:
    """One session per node."""
    wait_leader(trio)
    opened = [node.session() for node in trio]
    opened[0].query("CREATE OR REPLACE TABLE named (i INTEGER PRIMARY KEY, n INTEGER)")
    position = opened[0].reply_headers["X-Quack-Positions"]
    for session in opened[1:]:
        session.query("SELECT 1", headers={"X-Quack-Min-Positions": position})
    return opened


def test_committed_is_told_by_every_node(sessions):
    request_id = fresh_id(sessions[0])
    sessions[0].query("INSERT INTO named VALUES (1, 1)", headers={"X-Quack-Request-Id": request_id})
    for session in sessions:
        assert outcome(session, request_id) == ("committed", "")


def test_repetition_on_another_node_counts_once(sessions):
    sessions[0].query("INSERT INTO named VALUES (2, 0)")
    headers = {
        "X-Quack-Request-Id": fresh_id(sessions[0]),
        "X-Quack-Min-Positions": sessions[0].reply_headers["X-Quack-Positions"],
    }
    sessions[0].query("UPDATE named SET n = n + 1 WHERE i = 2", headers=headers)
    for session in sessions:
        assert session.query(
            "UPDATE named SET n = n + 1 WHERE i = 2", headers={**headers, "X-Quack-Repeat": "1"}
        ) == [(None,)]
    rows = sessions[1].query(
        "SELECT n FROM named WHERE i = 2", headers={"X-Quack-Consistency": "linearizable"}
    )
    assert rows == [(1,)]


def test_asking_settles_what_never_came(sessions):
    """Not committed is final: the request that arrives later is refused on every node, to be begun anew."""
    request_id = fresh_id(sessions[0])
    assert outcome(sessions[1], request_id) == ("not_committed", "cancelled")
    for session in sessions:
        with pytest.raises(wire.QuackError) as caught:
            session.query(
                "INSERT INTO named VALUES (3, 3)", headers={"X-Quack-Request-Id": request_id}
            )
        assert caught.value.code == "conflict"
        assert outcome(session, request_id) == ("not_committed", "cancelled")
    assert sessions[0].query("SELECT count(*) FROM named WHERE i = 3") == [(0,)]


def test_asking_races_with_the_request(sessions):
    """Whatever the outcome function says while the write is underway, the write agrees with it."""
    answers: set[str] = set()
    for number in range(100, 130):
        request_id = fresh_id(sessions[0])
        told: list[str] = []

        def ask(request_id: str = request_id, told: list[str] = told) -> None:
            told.append(outcome(sessions[2], request_id)[0])

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            sessions[1].query(
                f"INSERT INTO named VALUES ({number}, 0)",
                headers={"X-Quack-Request-Id": request_id},
            )
            written = True
        except wire.QuackError as error:
            assert error.code == "conflict", error
            written = False
        asking.join()
        ((there,),) = sessions[2].query(
            f"SELECT count(*) FROM named WHERE i = {number}",
            headers={"X-Quack-Consistency": "linearizable"},
        )
        assert (told, there) == (["committed"], 1) if written else (["not_committed"], 0)
        answers |= set(told)
    assert answers <= {"committed", "not_committed"}


def test_explicit_commit_is_settled_too(sessions):
    session = sessions[0]
    request_id = fresh_id(session)
    session.query("BEGIN")
    session.query("INSERT INTO named VALUES (4, 4)")
    assert outcome(sessions[1], request_id) == ("not_committed", "cancelled")
    with pytest.raises(wire.QuackError) as caught:
        session.query("COMMIT", headers={"X-Quack-Request-Id": request_id})
    assert caught.value.code == "conflict"
    request_id = fresh_id(sessions[1])
    session.query("BEGIN")
    session.query("INSERT INTO named VALUES (4, 4)")
    session.query("COMMIT", headers={"X-Quack-Request-Id": request_id})
    assert outcome(sessions[1], request_id) == ("committed", "")


def test_failed_repetition_is_definite(sessions):
    """A repetition that fails on its own merits says so only when the first sending can no longer commit."""
    sessions[0].query("INSERT INTO named VALUES (5, 0)")
    position = sessions[0].reply_headers["X-Quack-Positions"]
    request_id = fresh_id(sessions[0])
    with pytest.raises(wire.QuackError, match="uplicate"):
        sessions[1].query(
            "INSERT INTO named VALUES (5, 1)",
            headers={
                "X-Quack-Request-Id": request_id,
                "X-Quack-Repeat": "1",
                "X-Quack-Min-Positions": position,
            },
        )
    assert outcome(sessions[2], request_id) == ("not_committed", "cancelled")


def test_concurrent_repetitions_commit_once(sessions):
    """The same update is sent to all nodes at once, while others fight for the row: it counts once."""
    sessions[0].query("INSERT INTO named VALUES (6, 0)")
    position = sessions[0].reply_headers["X-Quack-Positions"]
    rounds = 10
    for _ in range(rounds):
        headers = {
            "X-Quack-Request-Id": fresh_id(sessions[0]),
            "X-Quack-Min-Positions": position,
        }
        failed: list[wire.QuackError] = []

        def send(
            session: wire.Session,
            headers: dict[str, str] = headers,
            failed: list[wire.QuackError] = failed,
        ) -> None:
            try:
                session.query("UPDATE named SET n = n + 1 WHERE i = 6", headers=headers)
            except wire.QuackError as error:
                failed.append(error)

        threads = [threading.Thread(target=send, args=(session,)) for session in sessions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
    rows = sessions[0].query(
        "SELECT n FROM named WHERE i = 6", headers={"X-Quack-Consistency": "linearizable"}
    )
    assert rows == [(rounds,)]


def test_outcomes_survive_restart_and_leader_change(trio, sessions):
    written, never = fresh_id(sessions[0]), fresh_id(sessions[0])
    sessions[0].query("INSERT INTO named VALUES (7, 7)", headers={"X-Quack-Request-Id": written})
    assert outcome(sessions[0], never)[0] == "not_committed"
    leader = wait_leader(trio)
    leader.kill()
    others = [node for node in trio if node is not leader]
    wait_leader(others)
    for node in others:
        session = node.session()
        assert outcome(session, written) == ("committed", "")
        assert outcome(session, never) == ("not_committed", "cancelled")
    leader.start()
    wait_leader(trio)
    session = leader.session()
    assert outcome(session, written) == ("committed", "")
    assert outcome(session, never) == ("not_committed", "cancelled")


def test_a_cancelled_commit_tells_the_truth(sessions):
    """COMMIT that is stopped while it waits: whoever hears that nothing was committed can rely on it."""
    chance = random.Random(11)
    session = sessions[0]
    cancelling = session.open_http()
    seen = {"committed": 0, "stopped": 0}
    for number in range(100):
        session.query("BEGIN")
        session.query(f"INSERT INTO named VALUES ({1000 + number}, 0)")
        request_id, query_uuid = fresh_id(session), uuid.uuid4().int >> 1

        def cancel(query_uuid: int = query_uuid) -> None:
            with contextlib.suppress(wire.QuackError):
                session.cancel(query_uuid, cancelling)

        timer = threading.Timer(chance.uniform(0, 0.006), cancel)
        timer.start()
        told = "committed"
        try:
            session.prepare(
                "COMMIT", query_uuid=query_uuid, headers={"X-Quack-Request-Id": request_id}
            )
        except wire.QuackError as error:
            told = error.code
        timer.join()
        with contextlib.suppress(wire.QuackError):
            session.query("ROLLBACK")
        ((there,),) = session.query(f"SELECT count(*) FROM named WHERE i = {1000 + number}")
        assert outcome(sessions[1], request_id)[0] == ("committed" if there else "not_committed")
        if told in ("committed", "cancelled"):
            assert there == (told == "committed"), (number, told)
        else:
            assert told == "outcome_unknown", told
        seen["committed" if told == "committed" else "stopped"] += 1
    assert sum(seen.values()) == 100
    cancelling.close()
