"""Goal: one node speaks the Quack protocol, seen by an independent client; bad bytes lose nothing."""

from __future__ import annotations

import http.client
import pathlib
import subprocess
import sys
import threading
import time
import uuid

import pytest
import quack_wire as wire
from server_node import TOKEN, Node, make_single, wait_for

pytestmark = pytest.mark.cluster


def raw(node: Node, method: str, path: str, body: bytes = b"") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", node.port, timeout=30)
    connection.request(method, path, body or None)
    response = connection.getresponse()
    response.body = response.read()
    connection.close()
    return response


def test_http_surface(node):
    banner = raw(node, "GET", "/")
    assert banner.status == 200 and b"Quack" in banner.body and banner.body.count(b"\n") == 1
    options = raw(node, "OPTIONS", "/quack")
    assert options.status == 204
    assert options.headers["Access-Control-Allow-Methods"] == "GET, POST, OPTIONS"
    assert raw(node, "GET", "/quack").status == 404
    assert raw(node, "POST", "/other", b"x").status == 404


def test_undecodable_bodies_are_http_500(node):
    """Every prefix of a valid login is cut off somewhere else; none may pass or hurt."""
    writer = wire.header(wire.CONNECTION_REQUEST).field(1).string(TOKEN).field(2).string("v2.0.1")
    valid = bytes(
        writer.field(3).string("linux_amd64").field(4).unsigned(3).field(5).unsigned(3).end().out
    )
    for size in range(1, len(valid)):
        reply = raw(node, "POST", "/quack", valid[:size])
        assert reply.status == 500 and "EXCEPTION_WHAT" in reply.headers and reply.body == b"", size
    assert raw(node, "POST", "/quack", valid).status == 200
    unknown_field = bytes(wire.header(wire.HEARTBEAT_REQUEST).field(77).unsigned(1).end().out)
    with pytest.raises(wire.HttpError, match="found field id: 77"):
        session = node.session()
        writer = session.message(wire.HEARTBEAT_REQUEST)
        writer.out += unknown_field[-5:]
        session.call_raw(writer, wire.SUCCESS_RESPONSE)


def test_huge_lengths_are_refused_before_allocation(node):
    writer = wire.header(wire.CONNECTION_REQUEST).field(1).unsigned(2**62)
    assert raw(node, "POST", "/quack", bytes(writer.out)).status == 500


def test_large_body_of_a_stranger_is_refused(node):
    body = bytes(wire.header(wire.CONNECTION_REQUEST).field(1).string("x" * 300_000).end().out)
    try:
        assert raw(node, "POST", "/quack", body).status in (400, 413)
    except (ConnectionError, http.client.HTTPException):
        pass  # the node may hang up while the body is still being sent
    assert node.session().query("SELECT 1") == [(1,)]


@pytest.mark.parametrize("token", ["", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_wrong_token(node, token):
    with pytest.raises(wire.QuackError, match="Authentication failed") as caught:
        node.session(token)
    assert caught.value.exception_type == "Permission" and caught.value.code == "unauthorized"
    assert TOKEN not in str(caught.value)


def test_version_that_nobody_speaks(node):
    with pytest.raises(wire.QuackError, match="versions 1 and 3"):
        node.session(version=2)


def test_heartbeat_of_zero_seconds(node):
    with pytest.raises(wire.QuackError, match="between 1 and"):
        node.session(heartbeat_s=0)


def test_unknown_session_and_message(node, session):
    stranger = node.session()
    stranger.connection_id = "0" * 32
    with pytest.raises(wire.QuackError, match="Invalid connection id"):
        stranger.query("SELECT 1")
    with pytest.raises(wire.QuackError, match="Unsupported message type"):
        session.call_raw(session.message(13).end(), wire.SUCCESS_RESPONSE)
    twice = node.session()
    twice.disconnect()
    with pytest.raises(wire.QuackError, match="Invalid connection id"):
        twice.disconnect()


def test_results_and_their_shapes(session):
    assert session.query("SELECT 42 AS a, 'hi' AS b, NULL::INTEGER AS c") == [(42, "hi", None)]
    created = session.prepare("CREATE TABLE shapes (i INTEGER PRIMARY KEY, s VARCHAR)")
    assert created.names == ["Count"] and created.rows() == []
    assert session.query("INSERT INTO shapes SELECT range, 'r' || range FROM range(3)") == [(3,)]
    assert session.query("UPDATE shapes SET s = 'x' WHERE i < 2") == [(2,)]
    assert session.query("DELETE FROM shapes WHERE i = 2 RETURNING *") == [(2, "r2")]
    begun = session.prepare("BEGIN")
    assert begun.names == ["Success"] and begun.rows() == []
    session.query("INSERT INTO shapes VALUES (9, NULL)")
    session.query("ROLLBACK")
    assert session.query("SELECT count(*) FROM shapes") == [(2,)]
    assert session.query("SELECT 1; SELECT 2") == [(1,)]
    with pytest.raises(wire.QuackError, match="did not return any columns"):
        session.query("-- only a comment")


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELEC 1", "Parser"),
        ("SELECT * FROM nowhere", "Catalog"),
        ("SELECT nowhere FROM range(3)", "Binder"),
        ("SELECT 'x'::INTEGER", "Conversion"),
        ("COMMIT", "TransactionContext"),
    ],
)
def test_errors_keep_their_type(session, sql, kind):
    with pytest.raises(wire.QuackError) as caught:
        session.query(sql)
    assert caught.value.exception_type == kind
    assert session.query("SELECT 1") == [(1,)]


def test_constraint_error_at_commit(session):
    session.query("CREATE TABLE keyed (i INTEGER PRIMARY KEY)")
    session.query("INSERT INTO keyed VALUES (1)")
    with pytest.raises(wire.QuackError, match="(?i)duplicate key") as caught:
        session.query("INSERT INTO keyed VALUES (1)")
    assert caught.value.exception_type == "Constraint"


def test_batches_are_named_and_repeatable(session):
    """A batch may be asked for again until it is acknowledged; the end says how many there were."""
    prepared = session.prepare(
        "SELECT range, repeat('x', 100) FROM range(200000)", inline_rows=1000
    )
    assert prepared.needs_more and len(prepared.rows()) >= 1000
    first, index, total = session.fetch(prepared.uuid, 1)
    assert (index, total) == (1, None)
    assert session.fetch(prepared.uuid, 1)[0] == first
    batches, rows = 1, [row for chunk in first for row in zip(*chunk, strict=True)]
    while True:
        chunks, index, total = session.fetch(prepared.uuid, batches + 1, batches)
        if index is None:
            break
        batches += 1
        rows += [row for chunk in chunks for row in zip(*chunk, strict=True)]
    assert total == batches and batches > 1
    assert session.fetch(prepared.uuid, batches + 1, batches)[2] == batches
    numbers = [row[0] for row in prepared.rows() + rows]
    assert numbers == list(range(200000))
    with pytest.raises(wire.QuackError, match="acknowledged"):
        session.fetch(prepared.uuid, 1)
    with pytest.raises(wire.QuackError, match="missing its batch index"):
        session.fetch(prepared.uuid, 0)
    with pytest.raises(wire.QuackError, match="no result"):
        session.fetch(12345, 1)


def test_inline_rows_zero_answers_at_once(session):
    prepared = session.prepare("SELECT 7", inline_rows=0)
    assert prepared.chunks == [] and prepared.needs_more
    assert list(session.fetch_all(prepared.uuid)) == [(7,)]


def test_catalog_traffic_is_all_inline(session):
    prepared = session.prepare("SELECT range FROM range(100000)", query_uuid=0)
    assert not prepared.needs_more and len(prepared.rows()) == 100000


def test_several_results_of_one_session(session):
    """Two scans are read by turns; neither closes the other."""
    one = session.prepare("SELECT range FROM range(300000)", inline_rows=0)
    two = session.prepare("SELECT range + 1 FROM range(300000)", inline_rows=0)
    left, right = session.fetch_all(one.uuid), session.fetch_all(two.uuid)
    assert sum(b - a for (a,), (b,) in zip(left, right, strict=True)) == 300000


def test_repeated_prepare_runs_once(session):
    session.query("CREATE TABLE once (i INTEGER)")
    same = uuid.uuid4().int >> 1
    assert session.query("INSERT INTO once VALUES (1)", query_uuid=same) == [(1,)]
    assert session.query("INSERT INTO once VALUES (1)", query_uuid=same) == [(1,)]
    assert session.query("SELECT count(*) FROM once") == [(1,)]


def test_request_id_commits_once_over_sessions(node, session):
    session.query("CREATE TABLE idempotent (i INTEGER PRIMARY KEY)")
    headers = {"X-Quack-Request-Id": uuid.uuid4().hex}
    session.query("INSERT INTO idempotent VALUES (1)", headers=headers)
    node.session().query("INSERT INTO idempotent VALUES (1)", headers=headers)
    assert session.query("SELECT count(*) FROM idempotent") == [(1,)]
    ((outcome, index),) = session.query(
        f"SELECT outcome, commit_index FROM quack_transaction_outcome('{headers['X-Quack-Request-Id']}')"
    )
    assert outcome == "committed" and index > 0
    with pytest.raises(wire.QuackError, match="hex"):
        session.query(
            "INSERT INTO idempotent VALUES (2)", headers={"X-Quack-Request-Id": "nonsense"}
        )


def test_describe_runs_nothing(session):
    session.query("CREATE TABLE described (i INTEGER, s VARCHAR)")
    described = session.prepare(
        "INSERT INTO described VALUES (1, 'x') RETURNING *", headers={"X-Quack-Describe": "1"}
    )
    assert described.names == ["i", "s"] and described.rows() == [] and not described.needs_more
    assert session.reply_headers["X-Quack-Describe"] == "1"
    assert session.query("SELECT count(*) FROM described") == [(0,)]


def test_headers_tell_about_the_cluster(session):
    session.query("CREATE TABLE headers (i INTEGER)")
    before = session.reply_headers
    assert before["X-Quack-Node-Id"] == "n0" and before["X-Quack-Cluster-Id"] == "server-tests"
    assert before["X-Quack-Voters"].startswith("n0=127.0.0.1:")
    assert before["X-Quack-Leader"].startswith("127.0.0.1:")
    session.query("INSERT INTO headers VALUES (1)")
    after = session.reply_headers
    assert int(after["X-Quack-Request-Base"]) > int(before["X-Quack-Request-Base"])
    assert after["X-Quack-Positions"] != before["X-Quack-Positions"]
    assert after["X-Quack-Catalog-Version"] == before["X-Quack-Catalog-Version"]
    session.query("CREATE TABLE headers2 (i INTEGER)")
    assert int(session.reply_headers["X-Quack-Catalog-Version"]) > int(
        before["X-Quack-Catalog-Version"]
    )


SLOW = "SELECT count(*) FROM range(3000000) a, range(3000000) b WHERE (a.range * b.range) % 7 = 3"


def test_cancel_stops_the_work(node, session):
    failure: list[Exception] = []

    def run() -> None:
        try:
            session.query(SLOW)
        except wire.QuackError as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(
        lambda: node.sql("SELECT count(*) FROM quack_sessions() WHERE query LIKE '%3000000%'")[0][0]
    )
    other = session.open_http()
    started = time.monotonic()
    session.cancel(http_connection=other)
    thread.join(20)
    assert not thread.is_alive() and time.monotonic() - started < 2
    assert isinstance(failure[0], wire.QuackError) and failure[0].code == "cancelled"
    assert session.query("SELECT 1") == [(1,)]
    other.close()


def test_deadline_stops_the_work(session):
    started = time.monotonic()
    with pytest.raises(wire.QuackError) as caught:
        session.query(SLOW, headers={"X-Quack-Deadline-Ms": "300"})
    assert caught.value.code == "deadline_exceeded" and time.monotonic() - started < 3
    assert session.query("SELECT 1") == [(1,)]
    with pytest.raises(wire.QuackError, match="decimal"):
        session.query("SELECT 1", headers={"X-Quack-Deadline-Ms": "soon"})


def test_lease_that_ends_rolls_back(node, session):
    """A client that falls silent loses its session and its open transaction; one that beats keeps it."""
    session.query("CREATE TABLE leases (i INTEGER)")
    silent, living = node.session(heartbeat_s=1), node.session(heartbeat_s=1)
    silent.query("BEGIN")
    silent.query("INSERT INTO leases VALUES (1)")

    def silent_is_gone() -> bool:
        living.heartbeat()
        ids = [row[0] for row in node.sql("SELECT session FROM quack_sessions()")]
        return silent.connection_id[:8] not in ids

    wait_for(silent_is_gone, 10)
    with pytest.raises(wire.QuackError, match="Invalid connection id"):
        silent.query("COMMIT")
    assert living.query("SELECT count(*) FROM leases") == [(0,)]
    living.disconnect()


def test_sessions_are_bounded(tmp_path):
    node = make_single(tmp_path, sessions_max=2).start()
    try:
        node.wait_ready()
        first, _ = node.session(), node.session()
        with pytest.raises(wire.QuackError, match="sessions") as caught:
            node.session()
        assert caught.value.code == "overloaded"
        first.disconnect()
        assert node.session().query("SELECT 1") == [(1,)]
    finally:
        node.stop()


def test_failed_logins_are_rate_limited(tmp_path):
    node = make_single(tmp_path, failed_logins_burst=5, failed_logins_per_second=1).start()
    try:
        codes = []
        for _ in range(8):
            with pytest.raises(wire.QuackError) as caught:
                node.session("wrong")
            codes.append(caught.value.code)
        assert codes[:5] == ["unauthorized"] * 5 and "overloaded" in codes[5:]
        wait_for(lambda: login(node), 10)
    finally:
        node.stop()


def login(node: Node) -> bool:
    try:
        node.session()
    except wire.QuackError:
        return False
    return True


def test_all_types_travel(session):
    """DuckDB's own catalogue of types and extreme values is decoded by the independent client."""
    names = [
        row[0] for row in session.query("SELECT column_name FROM (DESCRIBE FROM test_all_types())")
    ]
    for name in [name for name in names if name not in ("geometry", "variant")]:
        local = session.query(f'SELECT "{name}"::VARCHAR FROM test_all_types()')
        values = [row[0] for row in session.query(f'SELECT "{name}" FROM test_all_types()')]
        assert len(values) == 3 and values[2] is None, name
        if name in (
            "bool",
            "tinyint",
            "smallint",
            "int",
            "bigint",
            "hugeint",
            "varchar",
            "dec_18_6",
            "uuid",
        ):
            shown = [str(value).lower() if name == "bool" else str(value) for value in values[:2]]
            assert shown == [row[0] for row in local[:2]], name


def test_client_cannot_stop_the_node(session):
    with pytest.raises(wire.QuackError, match="own process") as caught:
        session.query("CALL quack_node_stop()")
    assert caught.value.code == "unauthorized"
    assert session.query("SELECT 1") == [(1,)]


def test_abandoned_result_is_given_up(tmp_path):
    """A result nobody fetches holds its snapshot for the time given, then the session is free again."""
    node = make_single(tmp_path, result_ttl_s=1, result_buffer_bytes_max=65536).start()
    try:
        node.wait_ready()
        session = node.session()
        abandoned = session.prepare("SELECT repeat('x', 1000) FROM range(1000000)", inline_rows=0)
        wait_for(lambda: node.sql("SELECT state FROM quack_sessions()") == [["idle"]], 20)
        with pytest.raises(wire.QuackError) as caught:
            session.fetch(abandoned.uuid, 1)
        assert caught.value.code == "cancelled"
        assert session.query("SELECT 1") == [(1,)]
    finally:
        node.stop()


def test_checkpoint_on_request(node, session):
    """After the call the file alone, without the log, holds what was applied before it."""
    session.query("CREATE TABLE checkpointed (i INTEGER)")
    ((text,),) = session.query("CALL quack_checkpoint()")
    ((applied, checkpoint),) = node.sql(
        "SELECT applied_index, checkpoint_index FROM quack_raft_status()"
    )
    assert text == f"checkpoint at index {checkpoint}" and checkpoint == applied


def test_hooks_of_the_operator(tmp_path):
    """DuckDB's own settings name functions that admit clients and allow, refuse or rewrite statements."""
    node = make_single(tmp_path).start()
    try:
        node.wait_ready()
        node.sql(
            "CREATE MACRO memory.main.admit(session, given, expected) AS given = 'open sesame'"
        )
        node.sql(
            "CREATE MACRO memory.main.allow(session, text) AS CASE "
            "WHEN text LIKE '%secret%' THEN 'false' WHEN text = 'SELECT 1' THEN 'SELECT 2' ELSE text END"
        )
        node.sql("SET GLOBAL quack_authentication_function = 'memory.main.admit'")
        session = node.session("open sesame")
        with pytest.raises(wire.QuackError, match="Authentication failed"):
            node.session(TOKEN)
        node.sql("SET GLOBAL quack_authorization_function = 'memory.main.allow'")
        assert session.query("SELECT 1") == [(2,)]
        assert session.query("SELECT 3") == [(3,)]
        node.sql(
            "CREATE OR REPLACE MACRO memory.main.allow(session, text) AS text NOT LIKE '%secret%'"
        )
        assert session.query("SELECT 1") == [(1,)]
        with pytest.raises(wire.QuackError, match="Authorization failed") as caught:
            session.query("SELECT 'secret'")
        assert caught.value.code == "unauthorized"
        node.sql("SET GLOBAL quack_authorization_function = 'no_such_function'")
        with pytest.raises(wire.QuackError, match="Authorization failed"):
            session.query("SELECT 1")
    finally:
        node.stop()


CLIENT_THAT_DIES = """
import sys
sys.path.insert(0, sys.argv[1])
import quack_wire
session = quack_wire.Session(int(sys.argv[2]), sys.argv[3])
print("ready", flush=True)
session.query(sys.argv[4])
"""


def test_work_of_a_dead_client_stops(node):
    """SIGKILL of a client in the middle of a long query: the node stops working for it within seconds."""
    here = str(pathlib.Path(__file__).parent)
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT_THAT_DIES, here, str(node.port), TOKEN, SLOW],
        stdout=subprocess.PIPE,
    )
    running = "SELECT count(*) FROM quack_sessions() WHERE query LIKE '%3000000%'"
    wait_for(lambda: node.sql(running)[0][0] == 1)
    client.kill()
    client.wait()
    client.stdout.close()
    started = time.monotonic()
    wait_for(lambda: node.sql(running)[0][0] == 0, 10)
    assert time.monotonic() - started < 4


def test_lost_connection_finds_its_statement_again(node, session):
    """The connection breaks while the statement runs; the same uuid on a new connection gets the answer."""
    session.query("CREATE TABLE reconnected (i INTEGER)")
    same = uuid.uuid4().int >> 1
    sql = "INSERT INTO reconnected SELECT count(*) FROM range(60000000) t(a) WHERE a % 7 = 1"
    first = session.open_http()
    writer = session.message(wire.PREPARE_REQUEST).field(1).string(sql).field(2).hugeint(same).end()
    first.request("POST", "/quack", bytes(writer.out))
    first.close()
    assert session.query(sql, query_uuid=same) == [(1,)]
    assert session.query("SELECT count(*) FROM reconnected") == [(1,)]
