"""Goal: a killed node costs an autocommit client nothing but time, and an open transaction a clear error."""

from __future__ import annotations

import pathlib
import threading
import time

import duckdb
import pytest

from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster


@pytest.fixture
def own_cluster(tmp_path: pathlib.Path):
    """Three voters of this test alone, because it kills some."""
    with LocalCluster.create(tmp_path / "c", 3) as running:
        running.start()
        yield running


def wait_running(cluster: LocalCluster, node) -> None:
    node.start()
    deadline = time.monotonic() + 30
    while cluster.status(node) is None:
        assert time.monotonic() < deadline, node.log_tail()
        time.sleep(0.1)


def test_inserts_go_on_through_kills(own_cluster: LocalCluster) -> None:
    """Values and streamed batches while each node in turn dies: every acknowledged row is there exactly once."""
    client = own_cluster.connect()
    client.execute("SET quack_request_timeout_ms = 60000")
    client.execute("CREATE TABLE cp.k (i BIGINT)")
    client.execute("CREATE TABLE batch (i BIGINT)")
    acknowledged = 0
    for node in own_cluster.nodes:
        killer = threading.Timer(0.3, node.kill)
        killer.start()
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            if acknowledged % 2 == 0:
                client.execute(f"INSERT INTO cp.k VALUES ({acknowledged})")
                acknowledged += 1
            else:
                client.execute(
                    f"INSERT INTO cp.k SELECT range FROM range({acknowledged}, {acknowledged + 101}), (VALUES (1)) v(x), (SELECT 1 FROM (SELECT count(*) FROM batch))"
                )
                acknowledged += 101
        killer.join()
        wait_running(own_cluster, node)
    fresh = own_cluster.connect(consistency="linearizable")
    counted = fresh.execute("SELECT count(*), count(DISTINCT i), max(i) FROM cp.k").fetchone()
    assert counted == (acknowledged, acknowledged, acknowledged - 1)
    fresh.close()
    client.close()


def test_open_transaction_gets_a_retryable_error(own_cluster: LocalCluster) -> None:
    node = own_cluster.nodes[1]
    client = own_cluster.connect(node)
    client.execute("CREATE TABLE cp.t (i INTEGER)")
    client.execute("BEGIN")
    client.execute("INSERT INTO cp.t VALUES (1)")
    node.kill()
    with pytest.raises(duckdb.Error) as error:
        client.execute("INSERT INTO cp.t VALUES (2)")
    assert "rolled back" in str(error.value)
    client.execute("ROLLBACK")
    client.execute("BEGIN")
    client.execute("INSERT INTO cp.t VALUES (3)")
    client.execute("COMMIT")
    assert client.execute("FROM cp.t").fetchall() == [(3,)]
    client.close()


def test_reads_move_to_another_node(own_cluster: LocalCluster) -> None:
    client = own_cluster.connect(own_cluster.nodes[0])
    client.execute("CREATE TABLE cp.r AS SELECT 1 AS i")
    own_cluster.nodes[0].kill()
    assert client.execute("SELECT * FROM cp.r").fetchall() == [(1,)]
    client.close()


def test_without_a_quorum_the_deadline_ends_it(own_cluster: LocalCluster) -> None:
    client = own_cluster.connect()
    client.execute("CREATE TABLE cp.q (i INTEGER)")
    client.execute("SET quack_request_timeout_ms = 3000")
    own_cluster.nodes[1].kill()
    own_cluster.nodes[2].kill()
    begun = time.monotonic()
    with pytest.raises(duckdb.Error):
        client.execute("INSERT INTO cp.q VALUES (1)")
    assert time.monotonic() - begun < 10
    client.close()
