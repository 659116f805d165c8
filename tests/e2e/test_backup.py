"""Goal: a backup holds exactly the state of its index, damage is found, and a new cluster lives on it.

Real processes over mTLS; commands are run as an operator would, as processes of their own.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
import threading
import time

import duckdb
import pytest
import yaml

from probes import compare_changes
from quack.backup.manifest import MANIFEST
from quack.cluster.local import LocalCluster, LocalNode
from quack.errors import code_of

QUACK = [sys.executable, "-m", "quack"]


def call(*arguments: str, timeout_s: float = 180) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*QUACK, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def answer(*arguments: str) -> dict[str, object]:
    done = call(*arguments, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def refused(*arguments: str) -> dict[str, object]:
    done = call(*arguments, "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["ok"] is False
    return document


def new_cluster(folder: pathlib.Path) -> LocalCluster:
    """Three nodes with files and certificates of their own that were never started."""
    return LocalCluster.create(folder, 3)


def state_hash(cluster: LocalCluster, node: LocalNode) -> list[tuple[object, ...]]:
    session = cluster.connect(node)
    try:
        session.execute("SET quack_consistency = 'linearizable'")
        session.execute("SELECT count(*) FROM cp.rows").fetchall()
        found = session.execute(
            "SELECT * EXCLUDE (applied_index) FROM quack_state_hash('cp') ORDER BY ALL"
        )
        return found.fetchall()
    finally:
        session.close()


class Writer:
    """Inserts the numbers from 1 on, one transaction each, until told to stop."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.acknowledged = 0
        self._over = threading.Event()
        self._session = cluster.connect()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                number = self.acknowledged + 1
                self._session.execute("INSERT INTO cp.ledger VALUES (?)", [number])
                self.acknowledged = number
        except Exception as error:
            self._failure = error

    def reach(self, number: int) -> None:
        deadline = time.monotonic() + 120
        while self.acknowledged < number:
            assert self._failure is None and time.monotonic() < deadline, self._failure
            time.sleep(0.02)

    def stop(self) -> None:
        self._over.set()
        self._thread.join()
        self._session.close()
        assert self._failure is None, self._failure


def fill(cluster: LocalCluster) -> None:
    session = cluster.connect()
    session.execute("SELECT quack_changes_set_retention('64MB')")
    session.execute("CREATE TABLE cp.rows (id INTEGER PRIMARY KEY, name VARCHAR)")
    session.execute("CREATE SEQUENCE cp.numbers START 7")
    session.execute("CREATE TABLE cp.ledger (number BIGINT)")
    session.execute(
        "INSERT INTO cp.rows SELECT i, 'name ' || md5(i::VARCHAR) FROM range(30000) r(i)"
    )
    session.execute("DELETE FROM cp.rows WHERE id % 3 = 0")
    session.execute("CREATE VIEW cp.names AS SELECT name FROM cp.rows")
    # What DuckDB binds when it opens the file, with functions from beyond its core.
    session.execute(
        "CREATE TABLE cp.bound (id UUID DEFAULT gen_random_uuid(), due TIMESTAMPTZ DEFAULT now() + INTERVAL 1 DAY,"
        " x DOUBLE CHECK (abs(x) < 100), y DOUBLE AS (sqrt(x)), doc JSON DEFAULT json_object('a', 1),"
        " name VARCHAR COLLATE de DEFAULT reverse('eman'))"
    )
    session.execute("CREATE INDEX by_size ON cp.bound (abs(x))")
    session.execute("INSERT INTO cp.bound (x) VALUES (4), (9)")
    session.close()


@pytest.mark.timeout(600)
def test_a_backup_under_writes_is_verified_and_restored_into_a_new_cluster(
    tmp_path: pathlib.Path,
) -> None:
    place = tmp_path / "backup"
    with LocalCluster.create(tmp_path / "old", 3) as cluster:
        cluster.start()
        fill(cluster)
        follower = next(n for n in cluster.nodes if n is not cluster.wait_leader())
        writer = Writer(cluster)
        writer.reach(50)
        before = writer.acknowledged
        made = answer("backup", "create", "--to", str(place), "--config", str(follower.config_file))
        writer.reach(writer.acknowledged + 50)
        after = writer.acknowledged
        writer.stop()
        assert made["ok"] is True and made["index"] > 50 and made["bytes"] < made["image_bytes"]
        again = refused(
            "backup", "create", "--to", str(place), "--config", str(follower.config_file)
        )
        assert again["code"] == "already_exists" and str(place) in str(again["error"])
        quiet = tmp_path / "quiet"
        answer("backup", "create", "--to", str(quiet), "--config", str(follower.config_file))
        hashes = {str(state_hash(cluster, node)) for node in cluster.nodes}
        assert len(hashes) == 1

        checked = answer("backup", "verify", str(place))
        assert checked["index"] == made["index"] and checked["backup_id"] == made["backup_id"]

        # Into a file with the same cluster id it does not go.
        own = cluster.nodes[0]
        own.stop()
        wrong = refused("restore", str(quiet), "--config", str(own.config_file))
        assert wrong["code"] == "invalid_argument" and "cluster_id" in str(wrong["error"])

    # At rest: what the new cluster holds is what the old one held, on every node.
    with new_cluster(tmp_path / "new") as cluster:
        for node in cluster.nodes:
            answer("restore", str(quiet), "--config", str(node.config_file))
        over = refused("restore", str(quiet), "--config", str(cluster.nodes[0].config_file))
        assert over["code"] == "already_exists"
        cluster.start()
        assert {str(state_hash(cluster, node)) for node in cluster.nodes} == hashes
        session = cluster.connect()
        assert session.execute("SELECT count(*) FROM cp.names").fetchone() == (20_000,)
        assert session.execute("FROM cp.query('SELECT nextval(''numbers'')')").fetchone() == (7,)
        session.execute("INSERT INTO cp.rows VALUES (0, 'new')")
        session.execute("CREATE TABLE cp.later AS SELECT 1 AS one")
        assert compare_changes(session, "rows") == 0, "the backup brings the change feed"
        session.close()
        assert len({str(state_hash(cluster, node)) for node in cluster.nodes}) == 1
        # It is a cluster like any other after a crash of all.
        for node in cluster.nodes:
            node.kill()
        cluster.start()
        assert len({str(state_hash(cluster, node)) for node in cluster.nodes}) == 1

    # Under writes: a prefix of what was written, with all that was acknowledged before.
    with LocalCluster.create(tmp_path / "third", 1) as cluster:
        answer("restore", str(place), "--config", str(cluster.nodes[0].config_file))
        cluster.start()
        session = cluster.connect()
        count, last = session.execute("SELECT count(*), max(number) FROM cp.ledger").fetchone()
        session.close()
        assert count == last and before <= last <= after + 1


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("backups")
    with LocalCluster.create(folder / "cluster", 1) as cluster:
        cluster.start()
        fill(cluster)
        config = str(cluster.nodes[0].config_file)
        answer("backup", "create", "--to", str(folder / "backup"), "--config", config)
    return folder / "backup"


def flip(file: pathlib.Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 1
    file.write_bytes(data)


def test_damage_is_found_and_named_and_is_not_restored(
    backup: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with new_cluster(tmp_path / "new") as cluster:
        node = cluster.nodes[0]
        for name in (MANIFEST, "part-00000.zst"):
            file = backup / name
            for offset in (0, file.stat().st_size // 2, file.stat().st_size - 2):
                flip(file, offset)
                found = refused("backup", "verify", str(backup))
                assert found["code"] == "corruption" and str(file) in str(found["error"])
                found = refused("restore", str(backup), "--config", str(node.config_file))
                assert found["code"] == "corruption" and str(file) in str(found["error"])
                assert not (cluster.folder / node.node_id / "data").exists()
                flip(file, offset)
        moved = backup / "elsewhere"
        (backup / "part-00000.zst").rename(moved)
        found = refused("backup", "verify", str(backup))
        assert found["code"] == "not_found" and "part-00000.zst" in str(found["error"])
        moved.rename(backup / "part-00000.zst")
        answer("backup", "verify", str(backup))
    found = refused("backup", "verify", str(tmp_path / "nowhere"))
    assert found["code"] == "not_found" and "no backup lies here" in str(found["error"])


def test_first_members_must_hold_the_same_backup(
    backup: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with new_cluster(tmp_path / "new") as cluster:
        for node in cluster.nodes[:2]:
            answer("restore", str(backup), "--config", str(node.config_file))
        for node in cluster.nodes:
            node.start()
        empty = cluster.nodes[2]

        def says(node: LocalNode) -> bool:
            return "must hold the same state" in node.log_tail(400)

        deadline = time.monotonic() + 60
        while not all(says(node) for node in cluster.nodes):
            assert time.monotonic() < deadline, empty.log_tail(20)
            time.sleep(0.1)
        assert all((cluster.status(n) or {}).get("role") == "forming" for n in cluster.nodes)
        empty.kill()
        subprocess.run(["rm", "-r", str(cluster.folder / empty.node_id / "data")], check=True)
        answer("restore", str(backup), "--config", str(empty.config_file))
        empty.start()
        cluster.wait_leader()
        assert len({str(state_hash(cluster, node)) for node in cluster.nodes}) == 1


def test_one_node_is_restored_and_others_join_it(
    backup: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    with new_cluster(tmp_path / "new") as cluster:
        first = cluster.nodes[0]
        document = yaml.safe_load(first.config_file.read_text())
        mode = document["cluster_mode"]
        mode["cp_metadata_peers"] = [p for p in mode["cp_metadata_peers"] if p.startswith("n0:")]
        first.config_file.write_text(yaml.safe_dump(document))
        answer("restore", str(backup), "--config", str(first.config_file))
        for node in cluster.nodes:
            node.start()
        for name in ("n1", "n2"):
            answer("cluster", "voter", "add", name, "--config", str(first.config_file))
        assert len({str(state_hash(cluster, node)) for node in cluster.nodes}) == 1
        session = cluster.connect()
        assert session.execute("SELECT count(*) FROM cp.rows").fetchone() == (20_000,)
        session.close()


def test_images_are_read_by_sql_bounded_and_closed(tmp_path: pathlib.Path) -> None:
    with LocalCluster.create(tmp_path / "cluster", 1) as cluster:
        cluster.start()
        fill(cluster)
        session = cluster.connect()

        def ask(call: str) -> dict[str, object]:
            found = session.execute(f"FROM {call}")
            names = [column[0] for column in found.description]
            return dict(zip(names, found.fetchone(), strict=True))

        def refusal(call: str) -> str | None:
            with pytest.raises(duckdb.Error) as caught:
                ask(call)
            return code_of(caught.value)

        opened = ask("quack_backup_open('cp')")
        image, size = opened["image"], int(str(opened["bytes"]))
        data = b""
        while len(data) < size:
            row = ask(f"quack_backup_read('{image}', '{len(data)}', '1000000', 'cp')")
            data += row["data"]
        assert len(data) == size and data[8:12] == b"DUCK"
        end = ask(f"quack_backup_read('{image}', '{size}', '10', 'cp')")
        assert end["data"] == b""
        past = f"quack_backup_read('{image}', '{size + 1}', '10', 'cp')"
        assert refusal(past) == "invalid_argument"
        assert refusal(f"quack_backup_read('{image}', 'x', '10', 'cp')") == "invalid_argument"
        assert refusal("quack_backup_read('n7/5', '0', '10', 'cp')") == "not_found"
        # A follower that needs an image must not find all places taken for long.
        images = [image]
        while True:
            try:
                images.append(ask("quack_backup_open('cp')")["image"])
            except duckdb.Error as error:
                assert code_of(error) == "overloaded"
                break
        assert len(images) == 4
        folder = cluster.folder / "n0" / "data" / "catalog"
        assert len(list(folder.glob("*.snapshot.*"))) == 4
        for one in images:
            ask(f"quack_backup_close('{one}', 'cp')")
        deadline = time.monotonic() + 30
        while list(folder.glob("*.snapshot.*")):
            assert time.monotonic() < deadline, "the copies are gone with the images"
            time.sleep(0.05)
        assert refusal(f"quack_backup_read('{image}', '0', '10', 'cp')") == "not_found"
        assert ask("quack_backup_open('cp')")["image"] not in images
        session.close()
