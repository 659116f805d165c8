"""Goal: a node that cannot start says which object is wrong, what was expected, what came, and loses nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
from server_node import TOKEN, Node, NodeError, free_port, make_single, single_parameters

pytestmark = pytest.mark.cluster


def refused(node: Node) -> str:
    with pytest.raises(NodeError) as caught:
        node.start()
    assert TOKEN not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"colour": "red"}, "colour.*unknown key"),
        ({"port": "9494"}, "port.*whole number"),
        ({"port": 70000}, "port.*70000"),
        ({"token": 5}, "token.*string"),
        ({"token": ""}, "token.*4 characters"),
        ({"node_id": "n9"}, "peers.*n9.*n0"),
        ({"peers": []}, "peers.*list"),
        (
            {"peers": [{"node_id": "n0", "role": "king", "host": "h", "port": 1}]},
            "role.*voter or learner.*king",
        ),
        ({"plaintext": False}, "tls"),
        ({"heartbeat_interval_ms": 400}, "heartbeat_interval_ms.*third"),
        ({"log_level": "loud"}, "log_level.*loud"),
        ({"cluster_id": ""}, "cluster_id"),
    ],
)
def test_parameters(tmp_path, changes, expected):
    node = make_single(tmp_path)
    node.parameters.update(changes)
    import re

    message = refused(node)
    assert re.search(expected, message, re.DOTALL), message


def test_port_in_use(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        node = make_single(tmp_path)
        node.parameters["port"] = port
        message = refused(node)
        assert str(port) in message and "in use" in message


def test_directory_of_another_cluster_and_node(tmp_path):
    node = make_single(tmp_path).start()
    node.wait_ready()
    node.session().query("CREATE TABLE kept (i INTEGER)")
    node.stop()
    message = refused(Node({**node.parameters, "cluster_id": "other"}, tmp_path / "a.log"))
    assert "'other'" in message and "'server-tests'" in message
    peers = [{**node.parameters["peers"][0], "node_id": "n7"}]
    message = refused(
        Node({**node.parameters, "node_id": "n7", "peers": peers}, tmp_path / "b.log")
    )
    assert "'n0'" in message and "'n7'" in message
    node.start()
    node.wait_ready()
    assert node.session().query("SELECT count(*) FROM kept") == [(0,)]
    node.stop()


def test_second_process(tmp_path):
    node = make_single(tmp_path).start()
    try:
        parameters = single_parameters(tmp_path)
        message = refused(Node(parameters, tmp_path / "second.log"))
        assert str(node.process.pid) in message and str(tmp_path / "data") in message
    finally:
        node.stop()


def test_directory_that_is_a_file(tmp_path):
    (tmp_path / "data").write_text("no directory")
    assert str(tmp_path / "data") in refused(make_single(tmp_path))


def test_start_twice_and_stop_twice(tmp_path):
    node = make_single(tmp_path).start()
    other = single_parameters(tmp_path, data_dir=str(tmp_path / "other"))
    text = json.dumps(other).replace("'", "''")
    with pytest.raises(NodeError, match="runs in this DuckDB instance already"):
        node.sql(f"CALL quack_node_start('{text}')")
    node.sql("CALL quack_node_stop()")
    with pytest.raises(NodeError, match="no node runs"):
        node.sql("CALL quack_node_stop()")
    with pytest.raises(NodeError, match="no node runs"):
        node.sql("FROM quack_raft_status()")
    node.ask({"sql": f"CALL quack_node_start('{text}')"})
    node.stop()


def test_no_json(tmp_path):
    script = "import quack; quack.connect().execute(\"CALL quack_node_start('{nonsense')\")"
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert "no JSON" in done.stderr


def test_restart_after_kill_keeps_everything(tmp_path):
    node = make_single(tmp_path).start()
    node.wait_ready()
    session = node.session()
    session.query("CREATE TABLE survivors (i INTEGER)")
    for i in range(20):
        session.query(f"INSERT INTO survivors VALUES ({i})")
    node.kill()
    node.start()
    node.wait_ready()
    assert node.session().query("SELECT count(*), sum(i) FROM survivors") == [(20, 190)]
    node.parameters["port"] = node.parameters["peers"][0]["port"] = free_port()
    node.stop()


def test_a_directory_without_its_log_does_not_vote_again(tmp_path):
    node = make_single(tmp_path).start()
    node.wait_ready()
    node.stop()
    for part in ("log", "catalog"):
        shutil.rmtree(tmp_path / "data" / part)
    message = refused(node)
    assert "votes are lost" in message and "quack cluster node replace n0" in message


def test_every_directory_has_an_incarnation_of_its_own(tmp_path):
    seen = set()
    for number in range(2):
        (tmp_path / str(number)).mkdir()
        node = make_single(tmp_path / str(number)).start()
        node.wait_ready()
        identity = json.loads((tmp_path / str(number) / "data" / "identity.json").read_text())
        assert identity["formed"] is True
        ((shown,),) = node.sql("SELECT incarnation FROM quack_members()")
        assert shown == identity["incarnation"]
        seen.add(shown)
        node.stop()
        node.start()
        node.wait_ready()
        assert node.sql("SELECT incarnation FROM quack_members()") == [[shown]]
        node.stop()
    assert len(seen) == 2
    (tmp_path / "0" / "data" / "identity.json").write_text('{"format": 1}')
    assert "format 1" in refused(make_single(tmp_path / "0"))
