"""Goal: the commands of the README do what they say, as real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster
QUACK = [sys.executable, "-m", "quack"]


def call(*arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*QUACK, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def test_status_as_json_and_as_table(cluster):
    config = str(cluster.nodes[0].config_file)
    done = call("cp-metadata", "status", "--config", config, "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert document["enabled"] and document["ok"] and document["linearizable_read_safe"]
    assert document["leader_id"] in {"n0", "n1", "n2"}
    (group,) = document["groups"]
    assert group["group"] == "root" and sorted(group["voters"]) == ["n0", "n1", "n2"]
    assert "root" in call("cp-metadata", "status", "--config", config).stdout


def test_status_of_a_stopped_node_is_an_error_in_words(cluster, tmp_path):
    with LocalCluster.create(tmp_path / "never", 1) as other:
        done = call("cp-metadata", "status", "--config", str(other.nodes[0].config_file), "--json")
    assert done.returncode == 1
    assert "error:" in done.stderr and other.nodes[0].endpoint in done.stderr


def test_dev_runs_and_stops_cleanly(tmp_path):
    command = [*QUACK, "dev", "--nodes", "3", "--dir", str(tmp_path / "dev")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines: list[str] = []
    try:
        deadline = time.monotonic() + 120
        while not any("Ctrl-C stops" in line for line in lines):
            line = process.stdout.readline()
            assert line, "".join(lines)
            assert time.monotonic() < deadline
            lines.append(line)
        assert sum("ATTACH 'quack:" in line for line in lines) == 3
        assert (tmp_path / "dev" / "token").read_text().strip() not in "".join(lines)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_sigterm_hands_over_and_exits_zero(cluster):
    leader = cluster.wait_leader()
    assert leader.stop() == 0
    assert "node_stopped" in leader.log_tail(50)
    new = cluster.wait_leader()
    assert new.node_id != leader.node_id
    leader.start()
    cluster.wait_leader()


def test_help_exists_everywhere():
    for command in (
        [],
        ["node"],
        ["node", "inspect"],
        ["log", "dump"],
        ["log", "verify"],
        ["dev"],
        ["certs"],
        ["certs", "issue"],
        ["cp-metadata", "status"],
    ):
        done = call(*command, "--help")
        assert done.returncode == 0 and "Usage" in done.stdout
