"""Goal: who keeps a node from freeing space is named with his session, and never stops writes."""

from __future__ import annotations

import pytest
from server_node import make_single, wait_for

pytestmark = pytest.mark.cluster

#: Who reads does not count: statements that ask for the list open a transaction themselves.
LIST = """SELECT session, kind, holds_checkpoint, open_ms, snapshot_index, writes, connection
          FROM quack_open_transactions() WHERE session IS NOT NULL"""


def test_a_reader_that_holds_back_the_checkpoint_is_named(tmp_path):
    node = make_single(tmp_path, checkpoint_idle_ms=100, checkpoint_reader_patience_ms=600_000)
    node.start()
    try:
        node.wait_ready()
        writer = node.session()
        writer.query("CREATE TABLE t (i INTEGER)")
        writer.query("INSERT INTO t SELECT range FROM range(1000)")
        reader = node.session()
        reader.query("BEGIN")
        assert reader.query("SELECT count(*) FROM t WHERE i >= 0") == [(1000,)]
        (row,) = node.sql(LIST)
        assert row[0] == reader.connection_id[:8] and row[1:3] == ["reader", False]

        # A checkpoint cannot go past a reader that is older than a committed update.
        writer.query("UPDATE t SET i = -i")
        (row,) = wait_for(lambda: [one for one in node.sql(LIST) if one[2]], 60)
        assert row[0] == reader.connection_id[:8] and row[1] == "reader"
        assert row[3] > 0 and 0 < row[4] < node.status()["applied_index"] and row[5] == []
        reason = wait_for(lambda: node.status()["reason"], 60)
        assert f"connection {row[6]} (reader" in reason
        # Writes go on, and the reader sees what it saw.
        for number in range(20):
            writer.query(f"INSERT INTO t VALUES ({5000 + number})")
        assert reader.query("SELECT count(*) FROM t WHERE i >= 0") == [(1000,)]
        assert node.status()["degraded"] is False

        reader.query("ROLLBACK")
        assert node.sql(LIST) == []
        index = node.status()["applied_index"]
        wait_for(
            lambda: (
                node.sql("SELECT checkpoint_index FROM quack_raft_status()")[0][0] >= index
                and node.status()["reason"] == ""
            ),
            60,
        )
    finally:
        node.stop()


def test_a_writer_is_listed_with_its_tables(tmp_path):
    node = make_single(tmp_path)
    node.start()
    try:
        node.wait_ready()
        session = node.session()
        session.query("CREATE TABLE t (i INTEGER)")
        session.query("BEGIN")
        session.query("INSERT INTO t VALUES (1)")
        (row,) = node.sql(LIST)
        assert row[0] == session.connection_id[:8] and row[1] == "writer"
        assert row[5] == ["main.t"]
        session.query("COMMIT")
        assert node.sql(LIST) == []
    finally:
        node.stop()
