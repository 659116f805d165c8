"""Goal: a node that is latched out of service answers its status functions and nothing else."""

from __future__ import annotations

import json
import pathlib

import duckdb
import pytest
import quack_wire as wire
from server_node import TOKEN, Node, make_single

import quack

pytestmark = pytest.mark.cluster

#: What `DataDirectory::Distrust` notes when the nodes have proven a state wrong.
REASON = "the state of node 'n0' is wrong: this is a test"
ANSWERED = [
    ("SELECT degraded, reason FROM quack_raft_status()", [(True, REASON)]),
    ("SELECT node_id FROM quack_raft_status() WHERE degraded AND reason <> '' ORDER BY 1", [("n0",)]),
    ("SELECT verdict, count(*) FROM quack_checksums() WHERE verdict = 'odd' GROUP BY ALL", []),
    ('SELECT count(*) FROM quack_raft_status() AS s JOIN quack_members() AS m USING (node_id)', [(1,)]),
    ("WITH s AS (FROM quack_raft_status()) SELECT upper(s.node_id) FROM s LIMIT 1", [("N0",)]),
    ("SELECT 1 FROM (SELECT degraded FROM quack_raft_status()) WHERE degraded", [(1,)]),
    ("SELECT node_id FROM quack_peers() UNION ALL SELECT 'x' FROM quack_raft_status()", [("x",)]),
    ("SELECT (SELECT node_id FROM quack_raft_status()) FROM quack_raft_status()", [("n0",)]),
]  # fmt: skip
REFUSED = [
    "FROM t",
    "SELECT count(*) FROM t",
    "SELECT 1",
    "VALUES (1)",
    "SELECT 1 FROM quack_raft_status() WHERE (SELECT count(*) FROM t) > 0",
    "SELECT (SELECT (SELECT max(i) FROM t) FROM quack_raft_status()) FROM quack_raft_status()",
    "SELECT 1 FROM quack_raft_status() ORDER BY (SELECT max(i) FROM t)",
    "SELECT 1 FROM quack_raft_status() LIMIT (SELECT max(i) FROM t)",
    "SELECT t.i FROM quack_raft_status(), t",
    "SELECT t.i FROM quack_raft_status() JOIN t ON true",
    "SELECT i FROM t UNION ALL SELECT 1 FROM quack_raft_status()",
    "WITH s AS (FROM t) SELECT s.i FROM s, quack_raft_status()",
    "WITH t AS (SELECT 1 AS i FROM quack_raft_status()) SELECT i FROM main.t, quack_raft_status()",
    "SELECT 1 FROM (WITH t AS (FROM quack_raft_status()) FROM t), t",
    "SELECT peek() FROM quack_raft_status()",
    "SELECT 1 FROM quack_raft_status() WHERE peek() > 0",
    "SELECT v.i FROM v, quack_raft_status()",
    "FROM all_of_t(), quack_raft_status()",
    "SELECT nextval('numbers') FROM quack_raft_status()",
    "SELECT * FROM query('FROM t'), quack_raft_status()",
    "SELECT * FROM duckdb_tables(), quack_raft_status()",
    "FROM duckdb_tables()",
    "FROM information_schema.tables",
    "FROM quack_state_hash()",
    "FROM quack_transaction_outcome('00000000000000000000000000000000')",
    "SET VARIABLE a = (SELECT max(i) FROM t)",
    "SET VARIABLE a = peek()",
    "PREPARE p AS FROM t",
    "DESCRIBE t",
    "EXPLAIN FROM t",
    "INSERT INTO t VALUES (2)",
    "UPDATE t SET i = 2",
    "DELETE FROM t",
    "CREATE TABLE other (i INTEGER)",
    "DROP TABLE t",
    "COPY t TO '/dev/null'",
    "CALL quack_member_demote('n0')",
    "SELECT degraded FROM quack_raft_status(); FROM t",
]


def latched(folder: pathlib.Path) -> Node:
    node = make_single(folder)
    node.start()
    node.wait_ready()
    session = node.session()
    for statement in (
        "CREATE TABLE t (i INTEGER)",
        "INSERT INTO t VALUES (1)",
        "CREATE VIEW v AS FROM t",
        "CREATE MACRO peek() AS (SELECT max(i) FROM t)",
        "CREATE MACRO all_of_t() AS TABLE FROM t",
        "CREATE SEQUENCE numbers",
    ):
        session.query(statement)
    node.stop()
    file = folder / "data" / "identity.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"distrusted": REASON}))
    return node.start()


def refusal(session: wire.Session, statement: str, **options: object) -> wire.QuackError:
    with pytest.raises(wire.QuackError) as caught:
        session.query(statement, **options)
    return caught.value


def test_only_status_is_answered(tmp_path):
    node = latched(tmp_path)
    try:
        status = node.status()
        assert (status["degraded"], status["reason"], status["is_leader"]) == (True, REASON, False)
        session = node.session()
        for consistency in ("eventual", "session", "linearizable"):
            headers = {"X-Quack-Consistency": consistency}
            for statement, rows in ANSWERED:
                assert session.query(statement, headers=headers) == rows, statement
            for statement in REFUSED:
                error = refusal(session, statement, headers=headers)
                assert error.code == "degraded", (statement, error)
                assert REASON in error.message and "quack_raft_status()" in error.message
        # A transaction does not open a way around.
        session.query("BEGIN")
        assert session.query(ANSWERED[1][0]) == ANSWERED[1][1]
        assert refusal(session, "FROM t").code == "degraded"
        session.query("ROLLBACK")

        old = node.session(version=1)
        chunk = wire.write_chunk([wire.Type.of("INTEGER")], [[3]])
        with pytest.raises(wire.QuackError) as caught:
            old.append("main", "t", chunk)
        assert "out of service" in caught.value.message
        with pytest.raises(wire.QuackError) as caught:
            old.query("FROM t")
        assert "out of service" in caught.value.message
    finally:
        node.stop()


def test_status_through_an_attached_catalog(tmp_path):
    node = latched(tmp_path)
    client = quack.connect()
    try:
        client.execute(
            f"ATTACH 'quack:127.0.0.1:{node.port}' AS cp "
            f"(TYPE quack, TOKEN '{TOKEN}', plaintext true, request_timeout_ms 5000)"
        )
        for _ in range(2):
            assert client.execute(
                "SELECT node_id, reason FROM quack_raft_status('cp') WHERE degraded ORDER BY node_id"
            ).fetchall() == [("n0", REASON)]
            assert (
                client.execute(
                    "SELECT verdict, count(*) FROM quack_checksums('cp') WHERE verdict <> 'equal' "
                    "GROUP BY verdict ORDER BY ALL"
                ).fetchall()
                == []
            )
            with pytest.raises(duckdb.Error, match=r"this is a test.*\[quack:degraded\]"):
                client.execute("SELECT count(*) FROM cp.t").fetchall()
            with pytest.raises(duckdb.Error, match=r"this is a test.*\[quack:degraded\]"):
                client.execute("INSERT INTO cp.t VALUES (5)")
    finally:
        client.close()
        node.stop()


def test_a_node_without_peers_is_not_reseeded(tmp_path):
    """Its data, even if wrong, may be all there is."""
    node = latched(tmp_path)
    try:
        session = node.session()
        ((code, message, _),) = session.query("SELECT * FROM quack_reseed_outcome('n0')")
        assert code == "invalid_argument" and "no peers" in message
        ((code, message, _),) = session.query("SELECT * FROM quack_reseed_outcome('n1')")
        assert code == "invalid_argument" and "this is node 'n0', not 'n1'" in message
    finally:
        node.stop()
    assert not (tmp_path / "data" / "quarantine").exists()
    node.start()
    try:
        assert node.status()["reason"] == REASON
    finally:
        node.stop()
