"""Goal: reads are as fresh as the session asked for, and are refused in words when that cannot be known."""

from __future__ import annotations

import pathlib
import time

import duckdb
import pytest

from quack import errors
from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster


def test_setting_overrides_the_attachment(cluster: LocalCluster) -> None:
    """A session attached for eventual reads sees every write of others once it asks for linearizable ones."""
    writer = cluster.connect(cluster.nodes[0])
    reader = cluster.connect(cluster.nodes[1], consistency="eventual")
    writer.execute("CREATE OR REPLACE TABLE cp.fresh (i INTEGER)")
    reader.execute("SET quack_consistency = 'Linearizable'")
    for number in range(30):
        writer.execute(f"INSERT INTO cp.fresh VALUES ({number})")
        assert reader.execute("SELECT count(*) FROM cp.fresh").fetchall() == [(number + 1,)]
    reader.execute("SET quack_consistency = ''")
    reader.execute("SELECT count(*) FROM cp.fresh").fetchall()
    with pytest.raises(duckdb.InvalidInputException, match="eventual, session or linearizable"):
        reader.execute("SET quack_consistency = 'strong'")
    with pytest.raises(duckdb.InvalidInputException, match="eventual, session or linearizable"):
        cluster.connect(consistency="strong")
    reader.close()
    writer.close()


def test_session_reads_follow_to_other_nodes(cluster: LocalCluster) -> None:
    """A client that moves between nodes never reads older than what it wrote."""
    client = cluster.connect()
    client.execute("CREATE OR REPLACE TABLE cp.own (i INTEGER)")
    for number in range(10):
        client.execute(f"INSERT INTO cp.own VALUES ({number})")
        assert client.execute("SELECT count(*) FROM cp.own").fetchall() == [(number + 1,)]
    client.close()


@pytest.mark.parametrize("consistency", ["session", "linearizable"])
def test_explicit_transactions_read_one_snapshot(cluster: LocalCluster, consistency: str) -> None:
    """Two tables that others change together are read as of one moment, statement after statement."""
    reader = cluster.connect(cluster.nodes[1], consistency=consistency)
    writer = cluster.connect(cluster.nodes[0])
    writer.execute("CREATE OR REPLACE TABLE cp.left_side (n INTEGER)")
    writer.execute("CREATE OR REPLACE TABLE cp.right_side (n INTEGER)")
    writer.execute("INSERT INTO cp.left_side VALUES (0)")
    writer.execute("INSERT INTO cp.right_side VALUES (0)")
    reader.execute("SET quack_consistency = 'linearizable'")
    reader.execute("FROM cp.right_side").fetchall()
    reader.execute(f"SET quack_consistency = '{consistency}'")
    for number in range(1, 6):
        reader.execute("BEGIN")
        ((left,),) = reader.execute("SELECT n FROM cp.left_side").fetchall()
        writer.execute("BEGIN")
        writer.execute(f"UPDATE cp.left_side SET n = {number}")
        writer.execute(f"UPDATE cp.right_side SET n = {number}")
        writer.execute("COMMIT")
        ((right,),) = reader.execute("SELECT n FROM cp.right_side").fetchall()
        assert left == right
        assert reader.execute("SELECT n FROM cp.left_side").fetchall() == [(left,)]
        reader.execute("COMMIT")
        if consistency == "linearizable":
            assert left == number - 1
    reader.close()
    writer.close()


def test_without_quorum_only_eventual_reads_answer(tmp_path: pathlib.Path) -> None:
    """The error of a refused read has its code, the group, for how long, and the peers' last state."""
    with LocalCluster.create(tmp_path / "c", 3) as cluster:
        cluster.start()
        client = cluster.connect(cluster.nodes[0])
        client.execute("CREATE TABLE cp.q (i INTEGER)")
        client.execute("INSERT INTO cp.q VALUES (1)")
        cluster.nodes[1].kill()
        cluster.nodes[2].kill()
        client.execute("SET quack_request_timeout_ms = 4000")
        client.execute("SET quack_consistency = 'eventual'")
        assert client.execute("FROM cp.q").fetchall() == [(1,)]
        deadline = time.monotonic() + 20
        while client.execute(
            "SELECT linearizable_read_safe FROM quack_raft_status('cp')"
        ).fetchall()[0][0]:
            assert time.monotonic() < deadline  # until the lease of a leader has ended
            time.sleep(0.05)
        client.execute("SET quack_consistency = 'linearizable'")
        begun = time.monotonic()
        with pytest.raises(duckdb.Error) as caught:
            client.execute("FROM cp.q").fetchall()
        assert time.monotonic() - begun < 15
        assert errors.code_of(caught.value) == "unavailable", caught.value
        text = str(caught.value)
        assert "group root" in text and "no leader for" in text and " ms" in text
        assert "n1" in text and "n2" in text
        ((safe, reason),) = client.execute(
            "SELECT linearizable_read_safe, reason FROM quack_raft_status('cp')"
        ).fetchall()
        assert not safe and "no leader for" in reason
        client.execute("SET quack_consistency = 'session'")
        assert client.execute("FROM cp.q").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error) as caught:
            client.execute("INSERT INTO cp.q VALUES (2)")
        assert errors.code_of(caught.value) in ("unavailable", "outcome_unknown"), caught.value
        unknown = errors.typed(caught.value)
        cluster.nodes[1].start()
        cluster.wait_leader()
        if isinstance(unknown, errors.OutcomeUnknownError):
            ((outcome,),) = client.execute(
                "SELECT outcome FROM quack_transaction_outcome('cp', ?)", [unknown.token]
            ).fetchall()
            client.execute("SET quack_consistency = 'linearizable'")
            ((there,),) = client.execute("SELECT count(*) FROM cp.q WHERE i = 2").fetchall()
            assert (outcome, there) in (("committed", 1), ("not_committed", 0))
        client.close()
