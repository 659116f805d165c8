"""Goal: members come, go and are replaced by commands, under load, and no acknowledged row is lost.

Real processes over mTLS; every command is run as an operator would, as a process of its own.
"""

from __future__ import annotations

import functools
import json
import pathlib
import shutil
import subprocess
import sys
import threading

import duckdb
import pytest
import yaml

import probes
from quack.cluster.bootstrap import GeneratedNode, prepare_node
from quack.cluster.local import LocalCluster, LocalNode

wait_until = functools.partial(probes.wait_until, timeout_s=60)

QUACK = [sys.executable, "-m", "quack"]


def call(*arguments: str, timeout_s: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*QUACK, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def command(cluster: LocalCluster, *arguments: str) -> dict[str, object]:
    """Run a cluster command through the first running node; it must succeed."""
    alive = next(node for node in cluster.nodes if node.running())
    done = call("cluster", *arguments, "--config", str(alive.config_file), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def members(cluster: LocalCluster) -> dict[str, str]:
    """Roles by name; of two under one name, the living one's last."""
    rows = command(cluster, "voter", "list")["members"]
    return {row["node_id"]: row["role"] for row in rows if row["role"] != "removed"}


def voters(cluster: LocalCluster) -> set[str]:
    return {name for name, role in members(cluster).items() if role == "voter"}


def join(cluster: LocalCluster, name: str) -> LocalNode:
    made = prepare_node(
        cluster.folder, name, like=cluster.nodes[0].config_file, ca_dir=cluster.folder / "ca"
    )
    node = LocalNode(cluster.folder, GeneratedNode(name, made.host, made.port, made.config_file))
    cluster.nodes.append(node)
    node.start()
    return node


class Writers:
    """Sessions that insert distinct rows until told to stop, and remember what was acknowledged."""

    def __init__(self, cluster: LocalCluster, count: int) -> None:
        self.cluster = cluster
        self.acknowledged: list[tuple[int, int]] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(number,)) for number in range(count)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        session = self.cluster.connect()
        row = 0
        while not self._stop.is_set():
            try:
                session.execute("INSERT INTO cp.rows VALUES (?, ?)", [number, row])
                self.acknowledged.append((number, row))
            except duckdb.Error as error:
                self.errors.append(str(error).splitlines()[0])
            row += 1
        session.close()

    def more(self, count: int) -> None:
        goal = len(self.acknowledged) + count
        wait_until(
            lambda: len(self.acknowledged) >= goal, f"{count} more writes ({self.errors[-3:]})"
        )


def check_rows(cluster: LocalCluster, names: set[str], acknowledged: list[tuple[int, int]]) -> None:
    """Each of these nodes holds every acknowledged row once, and all hold the same."""
    seen = []
    for node in cluster.nodes:
        if node.node_id not in names:
            continue
        session = cluster.connect(node, consistency="linearizable")
        rows = session.execute("SELECT writer, row FROM cp.rows").fetchall()
        session.close()
        assert len(rows) == len(set(rows)), f"{node.node_id} holds a row twice"
        missing = set(acknowledged) - set(rows)
        assert not missing, f"{node.node_id} lost {len(missing)} of {len(acknowledged)} rows"
        seen.append(sorted(rows))
    assert all(rows == seen[0] for rows in seen)


@pytest.fixture
def cluster(tmp_path: pathlib.Path):
    with LocalCluster.create(tmp_path / "cluster", 3) as running:
        running.start()
        session = running.connect()
        session.execute("CREATE TABLE cp.rows (writer INTEGER, row INTEGER)")
        session.close()
        yield running


def test_three_to_five_to_three_under_load(cluster):
    with Writers(cluster, 4) as writers:
        writers.more(50)
        for name in ("n3", "n4"):
            join(cluster, name)
            answer = command(cluster, "voter", "add", name)
            assert answer["result"] == f"node '{name}' is a voter"
            writers.more(50)
        assert voters(cluster) == {"n0", "n1", "n2", "n3", "n4"}
        leader = cluster.wait_leader()
        others = [node for node in cluster.nodes if node is not leader and node.node_id < "n3"]
        for node in (leader, others[0]):
            command(cluster, "voter", "remove", node.node_id)
            writers.more(50)
            wait_until(lambda n=node: "was removed from the cluster" in n.log_tail(400), "told so")
            assert node.stop() == 3
    gone = {leader.node_id, others[0].node_id}
    left = {"n0", "n1", "n2", "n3", "n4"} - gone
    assert voters(cluster) == left
    check_rows(cluster, left, writers.acknowledged)
    print(f"{len(writers.acknowledged)} acknowledged, {len(writers.errors)} errors")
    # They stay out, and say so.
    leader.start()
    wait_until(
        lambda: (cluster.status(leader) or {}).get("degraded"), "a removed node is out of service"
    )
    assert "removed from the cluster" in str(cluster.status(leader)["reason"])
    assert voters(cluster) == left


def test_a_lost_disk_is_a_new_member_and_replaced_by_one_command(cluster):
    leader = cluster.wait_leader()
    lost = next(node for node in cluster.nodes if node is not leader)
    with Writers(cluster, 2) as writers:
        writers.more(50)
        lost.kill()
        shutil.rmtree(lost.log_file.parent / "data")
        lost.start()
        wait_until(
            lambda: f"quack cluster node replace {lost.node_id}" in lost.log_tail(400), "told so"
        )
        wait_until(lambda: members(cluster).get(lost.node_id) == "waiting", "it waits")
        row = cluster.status(lost)
        assert row["role"] == "forming"
        assert f"quack cluster node replace {lost.node_id}" in str(row["reason"])
        refused = call(
            "cluster", "voter", "add", lost.node_id, "--config", str(leader.config_file), "--json"
        )
        assert refused.returncode == 1
        assert f"node replace {lost.node_id}" in json.loads(refused.stdout)["error"]
        answer = command(cluster, "node", "replace", lost.node_id)
        assert answer["result"] == f"node '{lost.node_id}' runs on its new disk as a voter"
        writers.more(50)
    assert voters(cluster) == {"n0", "n1", "n2"}
    check_rows(cluster, {"n0", "n1", "n2"}, writers.acknowledged)
    # Its vote counts: with it alone beside the leader there is a majority.
    third = next(n for n in cluster.nodes if n is not leader and n is not lost)
    third.kill()
    session = cluster.connect(lost)
    session.execute("INSERT INTO cp.rows VALUES (99, 99)")
    session.close()


def test_a_node_is_replaced_at_once_and_one_found_that_knocks_at_a_follower_alone(cluster):
    leader = cluster.wait_leader()
    lost, door = (node for node in cluster.nodes if node is not leader)
    # The command comes before anybody has noticed the loss.
    lost.kill()
    shutil.rmtree(lost.log_file.parent / "data")
    lost.start()
    answer = command(cluster, "node", "replace", lost.node_id)
    assert answer["result"] == f"node '{lost.node_id}' runs on its new disk as a voter"
    # A file that names one member, which does not lead.
    if cluster.wait_leader() is door:
        command(cluster, "leader", "stepdown", "--preferred", leader.node_id)
    made = prepare_node(cluster.folder, "n3", like=door.config_file, ca_dir=cluster.folder / "ca")
    document = yaml.safe_load(made.config_file.read_text())
    mode = document["cluster_mode"]
    mode["cp_metadata_peers"] = [
        peer for peer in mode["cp_metadata_peers"] if peer.startswith((f"{door.node_id}:", "n3:"))
    ]
    made.config_file.write_text(yaml.safe_dump(document))
    node = LocalNode(cluster.folder, made)
    cluster.nodes.append(node)
    node.start()
    answer = command(cluster, "voter", "add", "n3")
    assert answer["result"] == "node 'n3' is a voter"
    assert voters(cluster) == {"n0", "n1", "n2", "n3"}


def test_step_down_answers_who_leads(cluster):
    leader = cluster.wait_leader()
    target = next(node for node in cluster.nodes if node is not leader)
    answer = command(cluster, "leader", "stepdown", "--preferred", target.node_id)
    assert answer == {
        "ok": True,
        "result": f"node '{target.node_id}' leads now",
        "leader_id": target.node_id,
    }
    wait_until(lambda: cluster.wait_leader() is target, "the target leads")
    answer = command(cluster, "leader", "stepdown")
    assert answer["leader_id"] != target.node_id
    config = str(cluster.nodes[0].config_file)
    refused = call("cluster", "leader", "stepdown", "--preferred", "n9", "--config", config)
    assert refused.returncode == 1 and "not a member" in refused.stderr
    refused = call("cluster", "leader", "stepdown", "--group", "g7", "--config", config)
    assert refused.returncode == 2 and "no such group" in refused.stderr
    in_place = "every group is led by the node that it belongs to"
    assert command(cluster, "rebalance") == {"ok": True, "result": in_place}
    leader = cluster.wait_leader()
    down = next(node for node in cluster.nodes if node is not leader)
    down.kill()
    wait_until(
        lambda: (
            "not been heard of"
            in call(
                "cluster",
                "leader",
                "stepdown",
                "--preferred",
                down.node_id,
                "--config",
                str(leader.config_file),
            ).stderr
        ),
        "a dead successor is named",
    )
    session = cluster.connect(leader)
    with pytest.raises(duckdb.Error, match="not been heard of"):
        session.execute(f"CALL quack_transfer_leadership('{down.node_id}', 'cp')")
    down.start()
    wait_until(lambda: cluster.status(down) is not None, "it is back")

    def handed_over() -> bool:
        try:
            row = session.execute(
                f"CALL quack_transfer_leadership('{down.node_id}', 'cp')"
            ).fetchone()
        except duckdb.Error:
            return False
        return row[1] == down.node_id

    wait_until(handed_over, "handed over to the node that is back")
    session.close()


def test_demote_and_promote(cluster):
    leader = cluster.wait_leader().node_id
    command(cluster, "voter", "demote", leader)
    assert members(cluster)[leader] == "learner"
    assert cluster.wait_leader().node_id != leader
    command(cluster, "voter", "promote", leader)
    assert members(cluster)[leader] == "voter"
