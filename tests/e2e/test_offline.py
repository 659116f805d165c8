"""Goal: the offline tools tell the truth about a data_dir and leave every byte as it was."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import duckdb
import pytest

from quack.cluster.local import LocalCluster
from quack.errors import ClusterError
from quack.offline import inspect_node, log_groups, log_records, log_summary

pytestmark = pytest.mark.cluster
QUACK = [sys.executable, "-m", "quack"]
MARKER = b"the bytes that will be damaged"


def call(*arguments: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*QUACK, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture
def stopped(tmp_path):
    """The data_dir of a node that wrote a marked row and was killed."""
    with LocalCluster.create(tmp_path / "one", 1) as cluster:
        cluster.start()
        session = cluster.connect()
        session.execute("CREATE TABLE cp.t (s VARCHAR)")
        session.execute("INSERT INTO cp.t VALUES (?)", [MARKER.decode()])
        session.execute("INSERT INTO cp.t VALUES ('behind it')")
        session.close()
        cluster.nodes[0].kill()
        yield tmp_path / "one" / "n0" / "data"


def test_a_sound_directory(stopped):
    before = contents(stopped)
    done = call("node", "inspect", stopped, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["ok"] and report["problems"] == [] and report["in_use_by"] is None
    assert report["identity"]["node_id"] == "n0" and report["identity"]["formed"] is True
    (group,) = report["log"]["groups"]
    assert group["term"] >= 1 and group["voted_for"] and group["last_index"] >= 3
    assert report["catalog"]["cluster_id"] == report["identity"]["cluster_id"]
    assert report == inspect_node(stopped)
    words = call("node", "inspect", stopped)
    assert words.returncode == 0 and "formed" in words.stdout and "PROBLEM" not in words.stdout

    done = call("log", "verify", stopped, "--json")
    assert done.returncode == 0 and json.loads(done.stdout) == log_summary(stopped)
    assert "no damage" in call("log", "verify", stopped / "log").stdout
    assert log_groups(stopped) == report["log"]["groups"]

    done = call("log", "dump", stopped, "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert records == log_records(stopped)
    assert {"create_group", "hard_state", "entry"} <= {r["type"] for r in records}
    assert all(record["is_sound"] for record in records)
    entries = [record["index"] for record in records if record["type"] == "entry"]
    assert entries == list(range(1, group["last_index"] + 1))
    assert len(call("log", "dump", stopped).stdout.splitlines()) == len(records)
    assert call("log", "dump", stopped, "--group", "77").stdout == ""
    assert contents(stopped) == before


def test_a_damaged_log_and_a_damaged_catalog(stopped):
    (segment,) = (stopped / "log").glob("segment-*.log")
    text = bytearray(segment.read_bytes())
    place = text.find(MARKER)
    text[place] ^= 1
    segment.write_bytes(text)
    catalog = stopped / "catalog" / "cp.duckdb"
    text = bytearray(catalog.read_bytes())
    text[3 * 4096 + 100] ^= 1
    catalog.write_bytes(text)
    before = contents(stopped)

    done = call("log", "verify", stopped, "--json")
    summary = json.loads(done.stdout)
    assert done.returncode == 1 and not summary["ok"] and summary["damages"] == 1
    assert str(segment) in summary["first_damage"] and "offset" in summary["first_damage"]
    assert "1 damaged places" in call("log", "verify", stopped).stdout
    damaged = [record for record in log_records(stopped) if not record["is_sound"]]
    assert len(damaged) == 1
    assert damaged[0]["offset"] < place < damaged[0]["offset"] + damaged[0]["size"]
    assert "DAMAGED" in call("log", "dump", stopped).stdout

    done = call("node", "inspect", stopped, "--json")
    report = json.loads(done.stdout)
    assert done.returncode == 1 and not report["ok"]
    log, checksum = report["problems"]
    assert log.startswith("log: ") and checksum.startswith("catalog: ") and "checksum" in checksum
    assert "PROBLEM" in call("node", "inspect", stopped).stdout
    assert contents(stopped) == before


def test_a_running_node_and_no_node(cluster, tmp_path):
    node = cluster.wait_leader()
    data = node.log_file.parent / "data"
    report = inspect_node(data)
    assert report["ok"] and node.process is not None and report["in_use_by"] == node.process.pid
    (tmp_path / "empty").mkdir()
    done = call("node", "inspect", tmp_path / "empty", "--json")
    assert done.returncode == 1 and "no node has started" in json.loads(done.stdout)["problems"][0]
    for command in (["log", "verify"], ["log", "dump"], ["node", "inspect"]):
        done = call(*command, tmp_path / "nowhere")
        assert done.returncode == 1 and str(tmp_path / "nowhere") in done.stderr
    with pytest.raises(ClusterError, match="no log segments"):
        log_summary(tmp_path / "empty")
    assert call("node").returncode == 2
    session = cluster.connect(node)
    with pytest.raises(duckdb.Error):
        session.execute("FROM cp.query('FROM quack_log_summary(''/tmp'')')").fetchall()
    session.close()
