"""Goal: backups go to a real S3 server and come back, by command and at intervals."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import yaml

from probes import wait_until
from quack.backup.manifest import MANIFEST, read_manifest
from quack.backup.schedule import complete_backups
from quack.cluster.local import LocalCluster
from quack.config import load_config
from quack.errors import StorageError
from quack.storage import Store, open_store
from s3_server import s3_server

BUCKET = "backups"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with (
        s3_server(tmp_path_factory.mktemp("s3"), BUCKET) as environment,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in environment.items():
            patch.setenv(name, value)
        yield environment


def call(*arguments: str) -> tuple[int, dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-m", "quack", *arguments, "--json"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


def test_a_backup_in_s3_is_verified_restored_and_damage_is_named(
    s3: dict[str, str], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"s3://{BUCKET}/one/backup"
    with LocalCluster.create(tmp_path / "old", 1) as cluster:
        cluster.start()
        session = cluster.connect()
        session.execute("CREATE TABLE cp.t AS SELECT i, md5(i::VARCHAR) m FROM range(20000) r(i)")
        config = str(cluster.nodes[0].config_file)
        code, made = call("backup", "create", "--to", place, "--config", config)
        assert code == 0 and made["location"] == place, made
        code, again = call("backup", "create", "--to", place, "--config", config)
        assert code == 1 and again["code"] == "already_exists"
        session.close()
    assert call("backup", "verify", place)[0] == 0
    store = open_store(place)
    part = store.get("part-00000.zst")
    store.put("part-00000.zst", part[:100] + bytes([part[100] ^ 1]) + part[101:])
    code, found = call("backup", "verify", place)
    assert code == 1 and found["code"] == "corruption"
    assert f"{place}/part-00000.zst" in str(found["error"])
    store.put("part-00000.zst", part)
    with LocalCluster.create(tmp_path / "new", 1) as cluster:
        code, done = call("restore", place, "--config", str(cluster.nodes[0].config_file))
        assert code == 0, done
        cluster.start()
        session = cluster.connect()
        assert session.execute("SELECT count(*) FROM cp.t").fetchone() == (20_000,)
        session.close()
    code, found = call("backup", "verify", f"s3://{BUCKET}/nothing")
    assert code == 1 and found["code"] == "not_found"
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    code, found = call("backup", "verify", place)
    assert code == 1 and found["code"] == "unauthorized"
    assert s3["AWS_SECRET_ACCESS_KEY"] not in json.dumps(found)
    with pytest.raises(StorageError, match="quack:invalid_argument"):
        open_store("ftp://elsewhere/x")


@pytest.mark.parametrize("kind", ["folder", "s3"])
def test_the_leader_backs_up_at_intervals_and_keeps_the_newest(
    kind: str, s3: dict[str, str], tmp_path: pathlib.Path
) -> None:
    to = str(tmp_path / "backups") if kind == "folder" else f"s3://{BUCKET}/schedule"
    settings = {"backup": {"to": to, "interval_ms": 1000, "keep": 2}}
    with LocalCluster.create(tmp_path / "cluster", 3, settings=settings) as cluster:
        cluster.start()
        session = cluster.connect()
        session.execute("CREATE TABLE cp.t AS SELECT 1 AS one")
        session.close()
        cluster_id = load_config(cluster.nodes[0].config_file).cluster_id()
        place = open_store(to).below(cluster_id)

        def newest(store: Store = place) -> str:
            return (complete_backups(store) or [""])[-1]

        wait_until(newest, "a first backup")
        seen = newest()
        # Leadership moves, and with it the work.
        leader = cluster.wait_leader()
        leader.kill()
        cluster.wait_leader()
        wait_until(lambda: newest() > seen, "a backup by the next leader")
        seen = newest()
        wait_until(lambda: newest() > seen, "and another")
        wait_until(lambda: len(complete_backups(place)) <= 2, "old ones are removed")
        others = [node for node in cluster.nodes if node is not leader]
        assert any("backup_removed" in node.log_tail(2000) for node in others)
    # What a stop interrupted is no backup; all others are whole.
    for name in complete_backups(place):
        manifest = read_manifest(place.below(name))
        assert manifest.cluster_id == cluster_id
        assert call("backup", "verify", f"{to}/{cluster_id}/{name}")[0] == 0


def test_a_scheduled_backup_that_fails_says_why(tmp_path: pathlib.Path) -> None:
    to = tmp_path / "file"
    to.write_text("no folder")
    settings = {"backup": {"to": str(to), "interval_ms": 1000}}
    with LocalCluster.create(tmp_path / "cluster", 1, settings=settings) as cluster:
        cluster.start()
        node = cluster.nodes[0]
        wait_until(lambda: "backup_failed" in node.log_tail(2000), "it says so")
        assert str(to) in node.log_tail(2000)
        assert node.stop() == 0
    assert MANIFEST not in [file.name for file in tmp_path.iterdir()]


def test_a_node_stops_while_the_server_does_not_answer(tmp_path: pathlib.Path) -> None:
    settings = {"backup": {"to": "s3://silent/x", "interval_ms": 1000}}
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        LocalCluster.create(tmp_path / "cluster", 1, settings=settings) as cluster,
    ):
        node = cluster.nodes[0]
        node.environment = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }
        cluster.start()
        silent.settimeout(90)
        asked, _ = silent.accept()
        begun = time.monotonic()
        assert node.stop(40) == 0
        assert time.monotonic() - begun < 30
        asked.close()


def test_mistakes_in_the_schedule_are_found_with_their_lines(tmp_path: pathlib.Path) -> None:
    with LocalCluster.create(tmp_path / "cluster", 1) as cluster:
        file = cluster.nodes[0].config_file
        document = yaml.safe_load(file.read_text())
        for backup, words in (
            ({"to": "ftp://x/y", "interval_ms": 60_000}, "expected a path or s3://bucket/prefix"),
            ({"to": "/backups", "interval_ms": 5}, "greater than or equal to 1000"),
            ({"to": "/backups", "interval_ms": 5000, "keep": 0}, "greater than or equal to 1"),
            ({"to": "/backups"}, "missing; add it"),
            ({"to": "n0/data/backups", "interval_ms": 5000}, "lies in data_dir"),
            ({"to": "/backups", "interval_ms": 5000, "kept": 3}, "unknown key"),
        ):
            file.write_text(yaml.safe_dump({**document, "backup": backup}))
            done = subprocess.run(
                [sys.executable, "-m", "quack", "node", "--config", str(file)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 2 and words in done.stderr, (backup, done.stderr)
            assert "backup" in done.stderr and f"{file}:" in done.stderr
