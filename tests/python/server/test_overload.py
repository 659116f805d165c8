"""Goal: far more work than a node takes is refused in words, while heartbeats, status, open transactions and the way back
to normal are untouched."""

from __future__ import annotations

import select
import threading
import time

import pytest
import quack_wire as wire
from server_node import Node, make_single, wait_for

pytestmark = pytest.mark.cluster

STATEMENTS_MAX = 4
CLIENTS = 40
#: Keeps one of DuckDB's threads busy for a while.
WORK = "SELECT count(*) FROM range(20000000) t(a) WHERE hash(a) = 1"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory):
    """A node that takes few statements and few bytes at once."""
    node = make_single(
        tmp_path_factory.mktemp("small"),
        statements_max=STATEMENTS_MAX,
        statements_reserve=4,
        buffer_bytes_max=8 * 1024 * 1024,
        result_buffer_bytes_max=4 * 1024 * 1024,
    ).start()
    node.wait_ready()
    yield node
    node.stop()


def statistics(node: Node) -> dict[str, int]:
    return {str(name): int(value) for name, value in node.sql("FROM quack_node_statistics()")}


class Burst:
    """Many clients that send without pause until told to stop."""

    def __init__(self, node: Node, sql: str) -> None:
        self.done = 0
        self.refused: list[wire.QuackError] = []
        self.other: list[Exception] = []
        self.stopping = threading.Event()
        self.sessions = [node.session() for _ in range(CLIENTS)]
        self.sql = sql
        self.threads = [
            threading.Thread(target=self.run, args=(session,)) for session in self.sessions
        ]

    def run(self, session: wire.Session) -> None:
        while not self.stopping.is_set():
            try:
                session.query(self.sql)
                self.done += 1
            except wire.QuackError as error:
                (self.refused if error.code == "overloaded" else self.other).append(error)
                time.sleep(int(error.extra_info.get("quack_retry_after_ms", "0")) / 1000)
            except Exception as error:
                self.other.append(error)
                return

    def __enter__(self) -> Burst:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()
        for session in self.sessions:
            session.disconnect()


def test_burst_is_refused_in_words(small):
    before, inside = small.session(), small.session()
    before.query("CREATE TABLE kept (i INTEGER)")
    inside.query("BEGIN")
    inside.query("INSERT INTO kept VALUES (1)")
    with Burst(small, WORK) as burst:
        wait_for(lambda: len(burst.refused) > 2 * CLIENTS and burst.done > 4, 60)
        # What renews, tells or ends is served all the time.
        slowest = 0.0
        for _ in range(5):
            begun = time.monotonic()
            before.heartbeat()
            ((leader,),) = before.query("SELECT leader_id FROM quack_raft_status()")
            assert leader == "n0"
            slowest = max(slowest, time.monotonic() - begun)
        inside.query("INSERT INTO kept VALUES (2)")
        inside.query("COMMIT")
        assert statistics(small)["statements"] <= STATEMENTS_MAX + 4
    assert burst.other == []
    error = burst.refused[0]
    assert error.extra_info["quack_retry_after_ms"].isdigit()
    assert "statements_max" in error.message and "retry after" in error.message
    assert slowest < 5
    after = statistics(small)
    assert after["statements"] == 0 and after["statements_refused"] >= len(burst.refused)
    assert before.query("SELECT count(*) FROM kept") == [(2,)]


def test_buffers_of_results_are_bounded_over_all_sessions(small):
    """Results nobody fetches fill the node's budget and no more; each reader still gets all its rows."""
    sql = "SELECT i, repeat('x', 1000) FROM range(20000) t(i)"
    sessions = [small.session() for _ in range(4)]
    prepared = [session.prepare(sql, inline_rows=0) for session in sessions]
    wait_for(lambda: statistics(small)["buffer_bytes"] >= 8 * 1024 * 1024, 20)
    limit = 8 * 1024 * 1024 + 4 * 3 * 1024 * 1024  # and at most one batch and a chunk per reader
    for _ in range(10):
        assert statistics(small)["buffer_bytes"] <= limit
        time.sleep(0.02)
    for session, one in zip(sessions, prepared, strict=True):
        assert sum(1 for _ in session.fetch_all(one.uuid)) == 20000
    for session in sessions:
        session.disconnect()
    wait_for(lambda: statistics(small)["buffer_bytes"] == 0)


def test_large_requests_wait_for_room(small):
    """A body that does not fit beside others is refused with 503 before it is read."""
    blocker = small.session()
    held = blocker.prepare("SELECT repeat('x', 1000) FROM range(50000)", inline_rows=0)
    other = small.session()
    filler = other.prepare("SELECT repeat('x', 1000) FROM range(50000)", inline_rows=0)
    wait_for(lambda: statistics(small)["buffer_bytes"] >= 8 * 1024 * 1024, 20)
    late = small.session()
    with pytest.raises(wire.HttpError) as caught:
        late.query(f"SELECT length('{'y' * 3000000}')")
    assert caught.value.status == 503
    for session, one in ((blocker, held), (other, filler)):
        session.cancel(one.uuid)
        session.disconnect()
    wait_for(lambda: statistics(small)["buffer_bytes"] == 0)
    assert small.session().query(f"SELECT length('{'y' * 3000000}')") == [(3000000,)]


def test_refusal_reaches_a_client_that_still_sends(small):
    """The node reads on for a while after it refused a body: a connection closed with unread bytes is reset, and the
    reset would overtake the answer."""
    http = small.session().open_http()
    http.putrequest("POST", "/quack")
    http.putheader("Content-Length", str(1 << 40))
    http.endheaders()
    readable, _, _ = select.select([http.sock], [], [], 20)
    assert readable  # refused by its announced size
    for _ in range(64):
        http.send(b"y" * 65536)
    assert http.getresponse().status == 413
    http.close()


def test_connections_of_the_reserve(tmp_path):
    """Past the limit of connections, heartbeats, status and DISCONNECT still get through; the rest is told why not."""
    node = make_single(tmp_path, connections_max=6).start()
    try:
        node.wait_ready()
        sessions = [node.session() for _ in range(6)]
        for session in sessions:
            session.query("SELECT 1")
        known = sessions[0].connection_id
        with pytest.raises(wire.QuackError) as caught:
            node.session()
        assert caught.value.code == "overloaded" and "connections_max" in caught.value.message
        assert caught.value.extra_info["quack_retry_after_ms"].isdigit()
        extra = sessions[0].open_http()
        writer = wire.header(wire.HEARTBEAT_REQUEST, known).end()
        sessions[0].call_raw(writer, wire.SUCCESS_RESPONSE, None, extra)[0].end()
        sessions[0].prepare("SELECT leader_id FROM quack_raft_status()", http_connection=extra)
        extra.close()
        sessions[1].http.close()
        wait_for(
            lambda: int(dict(node.sql("FROM quack_node_statistics()"))["client_connections"]) < 6
        )
        node.session().query("SELECT 1")
    finally:
        node.stop()
