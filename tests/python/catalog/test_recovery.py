"""Checkpoint, crash, replay, snapshot: whatever happens to the process, log plus file give the same state once."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import duckdb
import pytest
from catalog_replica import Cluster, Replica, command

from crash.disk import build_disk

HERE = Path(__file__).resolve().parent

CHILD = """
import os, signal, sys
sys.path.insert(0, {here!r})
from pathlib import Path
from catalog_replica import Replica
replica = Replica(Path({path!r}), "child", "n0", {log!r})
replica.con.execute("CREATE TABLE t(i INTEGER PRIMARY KEY, s VARCHAR)")
replica.con.execute("CREATE TABLE u(i INTEGER)")
replica.con.execute("CREATE SEQUENCE sq")
for i in range(40):
    replica.con.execute("INSERT INTO t(i, s) SELECT 100 * ? + range, 'r' FROM range(100)", [i])
    replica.con.execute("INSERT INTO u SELECT nextval('sq') FROM range(3)")
    replica.con.execute("DELETE FROM t WHERE i % 100 = ?", [i])
    replica.con.execute("UPDATE t SET s = s || 'x' WHERE i % 10 = ?", [i % 10])
    if i == {checkpoint_at}:
        replica.command("checkpoint")
    if i == 30:
        replica.con.execute("ALTER TABLE t ADD COLUMN extra INTEGER DEFAULT 5")
        replica.con.execute("CREATE INDEX ix ON t(s)")
print(replica.command("hash"), end="")
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


def run_and_kill(tmp_path: Path, checkpoint_at: int) -> list[tuple[str, ...]]:
    """A process writes, prints its hashes and dies by SIGKILL; returns the hashes."""
    script = CHILD.format(
        here=str(HERE),
        path=str(tmp_path / "n0.db"),
        log=str(tmp_path / "log"),
        checkpoint_at=checkpoint_at,
    )
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    return [tuple(line.split("|")[:5]) for line in child.stdout.splitlines()]


@pytest.mark.parametrize("checkpoint_at", [-1, 0, 20, 30, 39])
def test_kill_and_replay(tmp_path: Path, checkpoint_at: int) -> None:
    """The file holds the last checkpoint, the log the rest; replay gives exactly the state before the kill."""
    expected = run_and_kill(tmp_path, checkpoint_at)
    replica = Replica(tmp_path / "n0.db", uuid.uuid4().hex, "n0", str(tmp_path / "log"))
    assert replica.hashes() == expected
    assert replica.command("degraded") == ""
    # The sequence goes on above everything that was committed.
    replica.con.execute("INSERT INTO u SELECT nextval('sq')")
    assert replica.rows("SELECT count(*), count(DISTINCT i) FROM u") == [(121, 121)]
    replica.close()


def test_views_and_macros_of_files_that_are_gone(tmp_path: Path) -> None:
    """Replay does not read what they read: files may be gone by then, or on another machine."""
    first, second = tmp_path / "first.parquet", tmp_path / "second.parquet"
    for number, file in enumerate((first, second)):
        duckdb.sql(f"SELECT {number} AS i, 'x' AS s").write_parquet(str(file))
    log = str(tmp_path / "log")
    replica = Replica(tmp_path / "n0.db", uuid.uuid4().hex, "n0", log)
    for statement in (
        "CREATE TABLE t (i INTEGER)",
        f"CREATE VIEW v AS SELECT i, s FROM read_parquet('{first}')",
        "COMMENT ON COLUMN v.s IS 'text'",
        f"CREATE OR REPLACE VIEW v AS SELECT i FROM t UNION ALL SELECT i FROM read_parquet('{second}')",
        f"CREATE VIEW old AS FROM read_parquet('{first}')",
        "COMMENT ON COLUMN old.i IS 'number'",
        "ALTER VIEW old RENAME TO older",
        f"CREATE VIEW nothing AS FROM read_parquet('{first}')",
        "DROP VIEW nothing",
        f"CREATE MACRO among(low, high := 1 + 1) AS TABLE FROM read_parquet('{first}') WHERE i BETWEEN low AND high",
        f"CREATE MACRO most(least INTEGER) AS (SELECT max(i + least) FROM read_parquet('{first}'))",
        f"CREATE OR REPLACE MACRO most(least INTEGER) AS (SELECT max(i + least) FROM read_parquet('{second}'))",
    ):
        replica.con.execute(statement)
    expected = replica.hashes()
    replica.close()
    first.unlink()

    fresh = Replica(tmp_path / "fresh.db", uuid.uuid4().hex, "n1", log)
    assert fresh.hashes() == expected
    assert fresh.command("degraded") == ""
    assert fresh.rows("FROM v") == [(1,)]
    assert fresh.rows("SELECT most(5)") == [(6,)]
    columns = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'older'"
    assert fresh.rows(columns) == [("i", "INTEGER"), ("s", "VARCHAR")]
    for sql in ("FROM older", "FROM among(0)"):
        with pytest.raises(duckdb.IOException, match="No files found"):
            fresh.rows(sql)
    fresh.close()


def test_replica_that_starts_empty_replays_everything(tmp_path: Path) -> None:
    expected = run_and_kill(tmp_path, 20)
    fresh = Replica(tmp_path / "fresh.db", uuid.uuid4().hex, "n1", str(tmp_path / "log"))
    assert fresh.hashes() == expected
    fresh.close()


@pytest.mark.parametrize("batch", [1, 2, 7, 1000])
def test_batch_size_does_not_change_the_state(tmp_path: Path, batch: int) -> None:
    """However many entries one Apply call takes, the state is the same: coalescing must not be visible."""
    expected = run_and_kill(tmp_path, -1)
    fresh = Replica(
        tmp_path / "fresh.db", uuid.uuid4().hex, "n1", str(tmp_path / "log"), batch=batch
    )
    assert fresh.hashes() == expected
    fresh.close()


def test_close_checkpoints_and_reopen_replays_nothing(tmp_path: Path) -> None:
    log = uuid.uuid4().hex
    replica = Replica(tmp_path / "n0.db", log, "n0", str(tmp_path / "log"))
    replica.con.execute("CREATE TABLE t AS SELECT range i FROM range(1000)")
    expected = replica.hashes()
    applied = replica.command("applied")
    replica.close()
    replica = Replica(tmp_path / "n0.db", log, "n0", str(tmp_path / "log"))
    assert replica.command("durable") == applied
    assert replica.hashes() == expected
    assert replica.command("stats").split("|")[0] == "0"
    replica.close()


def test_durable_moves_only_with_checkpoints(replica: Replica) -> None:
    replica.con.execute("CREATE TABLE t(i INT)")
    before = replica.command("durable")
    replica.con.execute("INSERT INTO t VALUES (1)")
    assert replica.command("durable") == before
    replica.command("checkpoint")
    assert replica.command("durable") == replica.command("applied") != before


def test_checkpoint_waits_for_young_transactions(tmp_path: Path) -> None:
    """However long checkpoints are blocked already, a transaction gets its whole patience; the refusal names it."""
    replica = Replica(tmp_path / "n0.db", uuid.uuid4().hex, "n0", patience_ms=2000)
    con = replica.con
    con.execute("CREATE TABLE t(i INT PRIMARY KEY, s VARCHAR)")
    con.execute("INSERT INTO t SELECT range, 'a' FROM range(10)")
    first = replica.session()
    first.execute("BEGIN")
    first.execute("UPDATE t SET s = 'first' WHERE i = 1")
    opened = time.monotonic()
    for blocked_for in (0.0, 1.0):  # the second one is opened late in the life of the blockade
        while time.monotonic() < opened + blocked_for:
            with pytest.raises(duckdb.InvalidInputException, match=r"postponed.*writer.*main\.t"):
                replica.command("checkpoint")
    young = replica.session()
    young.execute("BEGIN")
    young.execute("UPDATE t SET s = 'young' WHERE i = 2")
    young_opened = time.monotonic()
    # Until the first one's patience ends, and the young one's has not.
    while command(first, "doomed") == "ok":
        assert time.monotonic() < young_opened + 30
        with contextlib.suppress(duckdb.InvalidInputException):
            replica.command("checkpoint")
    assert time.monotonic() > opened + 2.0
    assert time.monotonic() < young_opened + 2.0, "too slow a machine to tell the two apart"
    assert command(young, "doomed") == "ok"
    young.execute("COMMIT")
    with pytest.raises(duckdb.Error, match="quack conflict"):
        first.execute("COMMIT")
    assert replica.rows("SELECT s FROM t WHERE i IN (1, 2) ORDER BY i") == [("a",), ("young",)]
    replica.command("checkpoint")
    replica.close()


def test_checkpoint_gets_between_short_writers(replica: Replica) -> None:
    """Writers that overlap all the time do not keep a checkpoint away, and none of them is aborted."""
    replica.con.execute("CREATE TABLE t(i INT PRIMARY KEY, n INT)")
    replica.con.execute("INSERT INTO t SELECT range, 0 FROM range(4)")
    stop = threading.Event()
    errors: list[str] = []

    def write(row: int) -> None:
        con = replica.session()
        try:
            while not stop.is_set():
                con.execute("UPDATE t SET n = n + 1 WHERE i = ?", [row])
        except duckdb.Error as error:
            errors.append(str(error))

    writers = [threading.Thread(target=write, args=(row,)) for row in range(4)]
    for writer in writers:
        writer.start()
    done = 0
    deadline = time.monotonic() + 30
    while done < 5 and time.monotonic() < deadline:
        with contextlib.suppress(duckdb.InvalidInputException):
            replica.command("checkpoint")
            done += 1
    stop.set()
    for writer in writers:
        writer.join()
    assert done == 5
    assert errors == []


def test_checkpoint_with_open_reader_and_writer(replica: Replica) -> None:
    """An open reader keeps its snapshot; an idle writer is aborted with a typed error instead of blocking for ever."""
    con = replica.con
    con.execute("CREATE TABLE t(i INT, s VARCHAR)")
    con.execute("INSERT INTO t SELECT range, 'a' FROM range(10000)")
    reader = replica.session()
    reader.execute("BEGIN")
    assert reader.execute("SELECT count(*) FROM t").fetchall() == [(10000,)]
    writer = replica.session()
    writer.execute("BEGIN")
    writer.execute("UPDATE t SET s = 'open' WHERE i = 5")
    con.execute("DELETE FROM t WHERE i >= 5000")
    deadline = time.monotonic() + 30
    while replica.command("durable") != replica.command("applied"):
        assert time.monotonic() < deadline
        with contextlib.suppress(duckdb.InvalidInputException):  # postponed
            replica.command("checkpoint")
    assert reader.execute("SELECT count(*) FROM t").fetchall() == [(10000,)]
    reader.execute("COMMIT")
    with pytest.raises(duckdb.Error, match="quack conflict"):
        writer.execute("COMMIT")
    assert replica.rows("SELECT count(*), count(*) FILTER (s = 'open') FROM t") == [(5000, 0)]


def test_snapshot_installs_on_another_replica(tmp_path: Path) -> None:
    """A copy of the last checkpoint plus the log's tail equals the origin; sessions see the new state at once."""
    cluster = Cluster(tmp_path, 2)
    a, b = cluster.replicas
    b.command("pause")
    a.con.execute("CREATE TABLE t(i INTEGER PRIMARY KEY, s VARCHAR)")
    a.con.execute("INSERT INTO t SELECT range, 'x' FROM range(20000)")
    a.command("checkpoint")
    a.con.execute("INSERT INTO t VALUES (-1, 'after the checkpoint')")
    image = tmp_path / "image"
    index = a.command("snapshot", str(image))
    assert index == a.command("durable") != a.command("applied")
    b.command("install", str(image))
    assert b.command("applied") == index
    assert b.rows("SELECT count(*) FROM t") == [(20000,)]
    b.command("resume")
    cluster.assert_equal()
    b.con.execute("DELETE FROM t WHERE i % 2 = 0")
    cluster.assert_equal()
    assert not list(tmp_path.glob("*.snapshot.*"))
    cluster.close()


def test_transaction_open_over_a_snapshot_install_commits_nothing(tmp_path: Path) -> None:
    """What was done before the install is gone: the rest must not commit alone."""
    cluster = Cluster(tmp_path, 2)
    a, b = cluster.replicas
    a.con.execute("CREATE TABLE t(i INTEGER PRIMARY KEY, n INTEGER)")
    a.con.execute("INSERT INTO t VALUES (1, 0), (2, 0)")
    cluster.assert_equal()
    session = b.session()
    session.execute("BEGIN")
    session.execute("UPDATE t SET n = 1 WHERE i = 1")
    b.command("pause")
    a.con.execute("INSERT INTO t VALUES (3, 0)")
    a.command("checkpoint")
    image = tmp_path / "image"
    a.command("snapshot", str(image))
    b.command("install", str(image))
    b.command("resume")
    with pytest.raises(duckdb.Error):
        session.execute("UPDATE t SET n = 1 WHERE i = 2")
        session.execute("COMMIT")
    cluster.assert_equal()
    assert b.rows("SELECT i, n FROM t ORDER BY i") == [(1, 0), (2, 0), (3, 0)]
    cluster.close()


def test_a_statement_that_a_snapshot_install_stops_tells_who_took_the_database(
    tmp_path: Path,
) -> None:
    """The server knows by these words (detached.hpp) that nothing was done and the statement may be repeated."""
    cluster = Cluster(tmp_path, 2)
    a, b = cluster.replicas
    a.con.execute("CREATE TABLE t(i INT)")
    a.con.execute("INSERT INTO t SELECT range FROM range(200000)")
    b.command("wait")
    b.command("pause")
    a.con.execute("INSERT INTO t VALUES (-1)")
    a.command("checkpoint")
    image = tmp_path / "image"
    a.command("snapshot", str(image))
    stream = b.session().execute("FROM t")
    assert stream.fetchone() == (0,)
    reader = b.session()
    reader.execute("BEGIN TRANSACTION READ ONLY")
    assert reader.execute("SELECT count(*) FROM t").fetchall() == [(200000,)]
    assert b.command("install", str(image)) == "ok"
    with pytest.raises(duckdb.Error, match="the node detached it"):
        stream.fetchall()
    with pytest.raises(duckdb.Error, match="the node detached it"):
        reader.execute("SELECT count(*) FROM t")
    b.command("resume")
    cluster.assert_equal()
    cluster.close()


def test_bad_images_are_refused(tmp_path: Path) -> None:
    """Older, of another cluster, corrupt, or not an image at all: refused in words, the state stays."""
    cluster = Cluster(tmp_path, 2)
    a, b = cluster.replicas
    a.con.execute("CREATE TABLE t(i INT)")
    a.command("checkpoint")
    old = tmp_path / "old"
    a.command("snapshot", str(old))
    a.con.execute("INSERT INTO t VALUES (1)")
    expected = cluster.assert_equal()
    with pytest.raises(duckdb.Error, match="already"):
        b.command("install", str(old))
    garbage = tmp_path / "garbage"
    garbage.write_bytes(os.urandom(100_000))
    with pytest.raises(duckdb.Error, match="cannot be opened"):
        b.command("install", str(garbage))
    plain = tmp_path / "plain"
    duckdb.connect(str(plain)).execute("CREATE TABLE x(i INT)").close()
    with pytest.raises(duckdb.Error, match="no replication state"):
        b.command("install", str(plain))
    other = Replica(tmp_path / "other.db", uuid.uuid4().hex, "o", cluster_id="other-cluster")
    for _ in range(5):
        other.con.execute("CREATE OR REPLACE TABLE t AS SELECT 1")
    other.command("checkpoint")
    foreign = tmp_path / "foreign"
    other.command("snapshot", str(foreign))
    other.close()
    with pytest.raises(duckdb.Error, match="belongs to cluster 'other-cluster'"):
        b.command("install", str(foreign))
    assert cluster.assert_equal() == expected
    cluster.close()


def test_foreign_files_are_refused_at_open(tmp_path: Path) -> None:
    replica = Replica(tmp_path / "n0.db", uuid.uuid4().hex, "n0", cluster_id="one")
    replica.close()
    with pytest.raises(duckdb.Error, match="belongs to cluster 'one'"):
        Replica(tmp_path / "n0.db", uuid.uuid4().hex, "n0", cluster_id="two")
    plain = tmp_path / "plain.db"
    duckdb.connect(str(plain)).execute("CREATE TABLE x(i INT)").close()
    with pytest.raises(duckdb.Error, match="not written by a node"):
        Replica(plain, uuid.uuid4().hex, "n0")
    # It is left as it was.
    assert duckdb.connect(str(plain)).execute("SELECT count(*) FROM x").fetchall() == [(0,)]


def test_file_is_locked_against_other_processes(replica: Replica) -> None:
    """Also after a snapshot was copied: closing a descriptor of the file must not drop DuckDB's lock."""
    replica.con.execute("CREATE TABLE t(i INT)")
    replica.command("checkpoint")
    replica.command("snapshot", str(replica.path) + ".copy")
    script = f"import duckdb; duckdb.connect({str(replica.path)!r})"
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert child.returncode != 0
    assert "Conflicting lock" in child.stderr


@pytest.mark.parametrize("size", [0, 4096, 8192])
def test_a_file_that_was_never_finished_is_made_anew(tmp_path: Path, size: int) -> None:
    """The process ended while DuckDB made the file: between its creation and its third header."""
    path = tmp_path / "n0.db"
    with duckdb.connect(str(tmp_path / "whole.db")):
        pass
    path.write_bytes((tmp_path / "whole.db").read_bytes()[:size])
    replica = Replica(path, f"unfinished-{size}", "n0")
    replica.con.execute("CREATE TABLE t(i INT)")
    replica.close()
    again = Replica(path, f"unfinished-again-{size}", "n0")
    assert again.rows("FROM t") == []
    again.close()


def test_a_damaged_file_is_not_taken_for_an_unfinished_one(tmp_path: Path) -> None:
    path = tmp_path / "n0.db"
    path.write_bytes(bytes(3 * 4096))
    with pytest.raises(duckdb.Error, match="not a valid DuckDB database file"):
        Replica(path, "damaged", "n0")
    assert path.read_bytes() == bytes(3 * 4096)


CHECKPOINTS = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
from catalog_replica import Replica
replica = Replica(Path({path!r}), "child", "n0", {log!r})
replica.con.execute("CREATE TABLE t(i INTEGER PRIMARY KEY)")
for i in range(5):
    replica.con.execute("INSERT INTO t VALUES (?)", [i])
    replica.command("checkpoint")
    print(i, flush=True)
os._exit(0)
"""


def test_names_that_checkpoints_changed_are_durable(tmp_path: Path) -> None:
    """The machine dies during or after one of several checkpoints, and names that were not synced are lost.

    A checkpoint removes DuckDB's log of before it; one that comes back two checkpoints later does not fit the file.
    """
    library = build_disk(tmp_path)
    data = tmp_path / "data"
    counter = tmp_path / "changes"

    def run(after: int, seed: int) -> str:
        for folder in (data, tmp_path / "aside"):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        for file in (counter, tmp_path / "log"):
            file.unlink(missing_ok=True)
        script = "import os" + CHECKPOINTS.format(
            here=str(HERE), path=str(data / "n0.db"), log=str(tmp_path / "log")
        )
        cut = {
            "DIR": data,
            "AFTER": after,
            "MODE": "power",
            "SEED": seed,
            "COUNT": counter,
            "ASIDE": tmp_path / "aside",
        }
        environment = {f"QUACK_CUT_{name}": str(value) for name, value in cut.items()}
        child = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **environment, "LD_PRELOAD": str(library)},
        )
        assert child.returncode == (-signal.SIGKILL if after else 0), child.stderr
        return child.stdout

    assert run(0, 0).split() == ["0", "1", "2", "3", "4"]
    (changes,) = struct.unpack("<Q", counter.read_bytes()[:8])
    assert changes > 40
    reached = set()
    for step in range(16):
        said = run(changes - 2 * step, step).split()
        reached.add(len(said))
        replica = Replica(data / "n0.db", uuid.uuid4().hex, "n0", str(tmp_path / "log"))
        replica.command("wait")
        count = replica.rows("SELECT count(*) FROM t")[0][0]
        assert len(said) <= count <= len(said) + 1
        replica.close()
    assert len(reached) > 1
