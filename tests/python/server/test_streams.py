"""Goal: rows that a client sends while its INSERT runs arrive once, in order, or not at all."""

from __future__ import annotations

import contextlib
import threading
import uuid

import pytest
import quack_wire as wire
from server_node import wait_for

pytestmark = pytest.mark.cluster

TYPES = ["INTEGER", "VARCHAR"]
LOGICAL = [wire.Type.of(name) for name in TYPES]


def chunk(first: int, count: int) -> bytes:
    numbers = list(range(first, first + count))
    return wire.write_chunk(LOGICAL, [numbers, [f"row {i}" for i in numbers]])


def begin(session: wire.Session, table: str, ordered: bool = True) -> tuple[wire.Prepared, str]:
    stream_id = str(uuid.uuid4())
    prepared = session.prepare(
        f"INSERT INTO {table} SELECT * FROM scan_data_from_quack_client('{stream_id}', "
        f"NULL::STRUCT(col0 INTEGER, col1 VARCHAR), ordered := {'true' if ordered else 'false'})",
        inline_rows=0,
    )
    assert prepared.needs_more and prepared.chunks == []
    return prepared, stream_id


def count_of(session: wire.Session, prepared: wire.Prepared) -> int:
    ((count,),) = list(session.fetch_all(prepared.uuid))
    return int(count)


@pytest.mark.parametrize("ordered", [True, False])
def test_batches_in_any_order(session, ordered):
    table = f"stream_{ordered}"
    session.query(f"CREATE TABLE {table} (i INTEGER, s VARCHAR)")
    prepared, stream_id = begin(session, table, ordered)
    for batch in (3, 1, 4, 2, 2, 3):
        session.send_data(stream_id, [chunk((batch - 1) * 2000, 2000)], batch=batch)
    session.send_data(stream_id, [], total=4)
    assert count_of(session, prepared) == 8000
    assert session.query(f"SELECT count(*), count(DISTINCT i), sum(i) FROM {table}") == [
        (8000, 8000, sum(range(8000)))
    ]
    if ordered:
        rows = session.query(f"SELECT i FROM {table}")
        assert rows == [(i,) for i in range(8000)]


def test_large_chunks_are_split(session):
    session.query("CREATE TABLE large (i INTEGER, s VARCHAR)")
    prepared, stream_id = begin(session, "large")
    session.send_data(stream_id, [chunk(0, 9000)], batch=1)
    session.send_data(stream_id, [], total=1)
    assert count_of(session, prepared) == 9000
    assert session.query("SELECT i FROM large") == [(i,) for i in range(9000)]


def test_nothing_sent(session):
    session.query("CREATE TABLE nothing (i INTEGER, s VARCHAR)")
    prepared, stream_id = begin(session, "nothing")
    session.send_data(stream_id, [], total=0)
    assert count_of(session, prepared) == 0


def test_nulls_and_unicode(session):
    session.query("CREATE TABLE texts (i INTEGER, s VARCHAR)")
    values = [None, "", "ü", "x" * 5000, "\U0001f986"]
    assert session.insert_stream("texts", TYPES, [[[1, 2, 3, None, 5], values]]) == 5
    assert session.query("SELECT * FROM texts") == list(
        zip([1, 2, 3, None, 5], values, strict=True)
    )


def test_inside_a_transaction(session):
    session.query("CREATE TABLE inside (i INTEGER, s VARCHAR)")
    session.query("BEGIN")
    assert session.insert_stream("inside", TYPES, [[[1], ["a"]]]) == 1
    assert session.query("SELECT count(*) FROM inside") == [(1,)]
    session.query("ROLLBACK")
    assert session.query("SELECT count(*) FROM inside") == [(0,)]


def test_failure_reaches_the_sender_and_the_reader(session):
    session.query("CREATE TABLE strict (i INTEGER PRIMARY KEY, s VARCHAR)")
    session.query("INSERT INTO strict VALUES (5, 'there')")
    prepared, stream_id = begin(session, "strict")
    session.send_data(stream_id, [chunk(0, 10)], batch=1)
    with contextlib.suppress(wire.QuackError):  # the failure may be known by now
        session.send_data(stream_id, [], total=1)
    with pytest.raises(wire.QuackError) as caught:
        list(session.fetch_all(prepared.uuid))
    assert caught.value.exception_type == "Constraint"

    def late_refusal() -> wire.QuackError | None:
        try:
            session.send_data(stream_id, [chunk(10, 10)], batch=2)
        except wire.QuackError as error:
            return error
        return None  # the reader heard of the failure a moment before the stream did

    assert wait_for(late_refusal).exception_type == "Constraint"
    assert session.query("SELECT * FROM strict") == [(5, "there")]


def test_wrong_types_are_refused(session):
    session.query("CREATE TABLE typed (i INTEGER, s VARCHAR)")
    _, stream_id = begin(session, "typed")
    wrong = wire.write_chunk([wire.Type.of("BIGINT"), wire.Type.of("VARCHAR")], [[1], ["a"]])
    with pytest.raises(wire.QuackError, match="BIGINT"):
        session.send_data(stream_id, [wrong], batch=1)
    session.cancel()
    assert session.query("SELECT count(*) FROM typed") == [(0,)]


def test_unknown_stream(session):
    with pytest.raises(wire.QuackError, match="reads the stream"):
        session.send_data("nobody", [chunk(0, 1)], batch=1)


def test_function_is_for_clients_only(node):
    with pytest.raises(Exception, match="Quack client"):
        node.sql("FROM scan_data_from_quack_client('x', NULL::STRUCT(a INTEGER))")


def test_dead_client_inserts_nothing(node, session):
    session.query("CREATE TABLE dead (i INTEGER, s VARCHAR)")
    dying = node.session(heartbeat_s=1)
    _, stream_id = begin(dying, "dead")
    dying.send_data(stream_id, [chunk(0, 2000)], batch=1)
    dying.http.close()

    def gone() -> bool:
        session.heartbeat()
        return dying.connection_id[:8] not in [
            row[0] for row in node.sql("SELECT session FROM quack_sessions()")
        ]

    wait_for(gone, 20)
    assert session.query("SELECT count(*) FROM dead") == [(0,)]


def test_back_pressure_bounds_the_buffer(node, session):
    """Eight senders push 160 MB into a stream whose statement reads as it can; memory stays bounded, nothing is lost."""
    session.query("CREATE TABLE pressed (i INTEGER, s VARCHAR)")
    prepared, stream_id = begin(session, "pressed", ordered=False)
    text = "x" * 10_000
    body = [wire.write_chunk(LOGICAL, [list(range(2000)), [text] * 2000])]

    def send(first: int) -> None:
        connection = session.open_http()
        session_copy = wire.Session.__new__(wire.Session)
        session_copy.__dict__.update(session.__dict__)
        session_copy.http = connection
        session_copy.send_data(stream_id, body, batch=first)
        connection.close()

    threads = [threading.Thread(target=send, args=(i,)) for i in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.send_data(stream_id, [], total=8)
    assert count_of(session, prepared) == 16000
    assert session.query("SELECT sum(length(s)) FROM pressed") == [(16000 * 10_000,)]
