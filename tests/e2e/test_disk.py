"""Goal: a full, hung or failing disk costs no data; what can heal by itself does when the disk does.

Real processes. Disks that fill up are small file systems, one for each data_dir, filled by a
balloon file; on those that hang or fail, a preloaded library lets no sync end, or one fail.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import ssl
import subprocess
import threading
from collections.abc import Iterator

import duckdb
import pytest
import quack_wire

import probes
from crash.disk import Cut, CutDisk, build_disk
from probes import data_dir, tails
from quack.cluster.local import LocalCluster, LocalNode
from quack.extension import connect

pytestmark = pytest.mark.cluster

DISK_BYTES = 48 * 2**20
SETTINGS: dict[str, object] = {
    "log_segment_bytes": 256 * 1024,
    "checkpoint_log_bytes": 256 * 1024,
    "checkpoint_idle_ms": 200,
}

wait_until = functools.partial(probes.wait_until, timeout_s=120)
#: Of what the node has, however old.
query = functools.partial(probes.query, consistency="eventual")


@contextlib.contextmanager
def small_disks(cluster: LocalCluster) -> Iterator[None]:
    """Mount a small file system on every node's data_dir."""
    mounted = []
    try:
        for node in cluster.nodes:
            data_dir(node).mkdir(exist_ok=True)
            options = ["-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "tmpfs"]
            done = subprocess.run(
                ["mount", *options, str(data_dir(node))],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                pytest.skip(f"this user cannot mount a small file system: {done.stderr.strip()}")
            mounted.append(data_dir(node))
        yield
    finally:
        for node in cluster.nodes:
            node.kill()
        for place in mounted:
            subprocess.run(["umount", str(place)], check=True)


def balloon(node: LocalNode) -> pathlib.Path:
    return data_dir(node) / "balloon"


def fill_disk(node: LocalNode) -> None:
    """Take every free byte, and those that come free in the next moment."""
    with balloon(node).open("ab", buffering=0) as file:
        size = file.tell()
        step = 2**20
        while step >= 4096:
            try:
                os.posix_fallocate(file.fileno(), size, step)
                size += step
            except OSError:
                step //= 2


def free_disk(node: LocalNode) -> None:
    balloon(node).unlink()


def reason(cluster: LocalCluster, node: LocalNode) -> str:
    status = cluster.status(node)
    return str(status["reason"]) if status else ""


def no_space_on(node: LocalNode) -> str:
    return f"no space on {node.node_id}: {data_dir(node)}"


class Rows:
    """Writes numbered rows; knows which must be there and which may be."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.next = 0
        self.acknowledged: set[int] = set()
        session = cluster.connect()
        session.execute("CREATE TABLE cp.t (i INTEGER PRIMARY KEY, filler VARCHAR)")
        session.close()

    def write(self, *, timeout_ms: int = 20000, kib: int = 32) -> str:
        """One row of so many KiB through all nodes; the error in words, empty when acknowledged."""
        number = self.next
        self.next += 1
        session = connect()
        try:
            attach = self.cluster.attach_sql()[:-1] + f", request_timeout_ms {timeout_ms})"
            session.execute(attach)
            session.execute(
                "INSERT INTO cp.t SELECT ?, string_agg(md5((? * 1000000 + range)::VARCHAR), '')"
                " FROM range(? * 32)",
                [number, number, kib],
            )
        except duckdb.Error as error:
            return str(error)
        finally:
            session.close()
        self.acknowledged.add(number)
        return ""

    def write_many(self, count: int) -> None:
        for _ in range(count):
            error = self.write()
            assert not error, f"{error}\n{tails(self.cluster)}"

    def check(self) -> None:
        """Every acknowledged row is on every node, and the states are equal."""

        def is_equal() -> bool:
            seen = set()
            for node in self.cluster.nodes:
                rows = query(self.cluster, node, "SELECT i FROM cp.t")
                if rows is None or not self.acknowledged <= {row[0] for row in rows}:
                    return False
                state = query(
                    self.cluster, node, "SELECT * FROM quack_state_hash('cp') ORDER BY ALL"
                )
                seen.add(tuple(state or ()))
            return len(seen) == 1

        wait_until(is_equal, lambda: f"equal states\n{tails(self.cluster)}")


class Reader:
    """Reads at one node all the time: whatever happens there, never less than was acknowledged before.

    A read may be refused, but only with a code, so that a client knows that another node may do better.
    """

    def __init__(self, cluster: LocalCluster, node: LocalNode, rows: Rows) -> None:
        self.cluster = cluster
        self.node = node
        self.rows = rows
        self.reads = 0
        self.wrong: list[str] = []
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def read(self) -> None:
        least = len(self.rows.acknowledged)
        session = self.cluster.connect(self.node, consistency="linearizable")
        try:
            seen = session.execute("SELECT count(*) FROM cp.t").fetchall()[0][0]
        finally:
            session.close()
        self.reads += 1
        if seen < least:
            self.wrong.append(f"{seen} rows, {least} were acknowledged before")

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.read()
            except duckdb.Error as error:
                if "[quack:" not in str(error):
                    self.wrong.append(str(error))

    def __enter__(self) -> Reader:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.thread.join()
        assert not self.wrong, self.wrong[:3]
        assert self.reads > 0


@pytest.fixture
def cluster(tmp_path):
    made = LocalCluster.create(tmp_path / "cluster", 3, settings=dict(SETTINGS))
    with made, small_disks(made):
        made.start()
        yield made


def is_well(cluster: LocalCluster) -> bool:
    """Nobody complains, nobody is degraded."""
    for node in cluster.nodes:
        status = cluster.status(node)
        if status is None or status["degraded"] or status["reason"]:
            return False
    return True


def write_until_handed_over(rows: Rows, old: LocalNode) -> None:
    """Every write goes through while the leader changes."""

    def has_moved() -> bool:
        error = rows.write()
        assert not error, f"{error}\n{tails(rows.cluster)}"
        return rows.cluster.leader() not in (None, old)

    wait_until(has_moved, lambda: f"another leader\n{tails(rows.cluster)}")


def test_a_follower_without_space_for_a_large_transaction_waits_with_it(cluster):
    """What it may need is more than it has: it says so, applies nothing of it, and heals by itself."""
    leader = cluster.wait_leader()
    session = cluster.connect(leader)
    session.execute("CREATE TABLE cp.t (i INTEGER PRIMARY KEY, filler VARCHAR)")
    full = next(node for node in cluster.nodes if node is not leader)
    stat = os.statvfs(data_dir(full))
    with balloon(full).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, stat.f_bavail * stat.f_frsize - 22 * 2**20)
    # 12 MB of rows, 6 MB in the log, 16 MB and a margin of 8 that its file may need.
    session.execute(
        "INSERT INTO cp.t SELECT range, md5(range::VARCHAR) || md5((range + 0.5)::VARCHAR)"
        " FROM range(170000)"
    )
    wait_until(
        lambda: no_space_on(full) in reason(cluster, full),
        lambda: f"the alarm of {full.node_id}\n{tails(cluster)}",
    )
    assert "a large transaction may need" in reason(cluster, full)
    assert query(cluster, full, "SELECT count(*) FROM cp.t") == [(0,)]
    assert session.execute("SELECT count(*) FROM cp.t").fetchone() == (170_000,)
    free_disk(full)
    wait_until(
        lambda: query(cluster, full, "SELECT count(*) FROM cp.t") == [(170_000,)],
        lambda: f"the rows on {full.node_id}\n{tails(cluster)}",
    )
    wait_until(lambda: is_well(cluster), lambda: f"no alarm\n{tails(cluster)}")
    session.close()


def test_one_full_follower_does_not_stop_the_cluster(cluster):
    rows = Rows(cluster)
    rows.write_many(5)
    leader = cluster.wait_leader()
    full = next(node for node in cluster.nodes if node is not leader)
    fill_disk(full)
    with Reader(cluster, full, rows):
        rows.write_many(40)
        wait_until(lambda: no_space_on(full) in reason(cluster, full), lambda: "it says so")
    # Reads go on there, of what it has.
    assert query(cluster, full, "SELECT count(*) > 0 FROM cp.t") == [(True,)]
    free_disk(full)
    rows.check()
    wait_until(lambda: is_well(cluster), lambda: f"no complaints\n{tails(cluster)}")


def test_a_full_leader_hands_over(cluster):
    rows = Rows(cluster)
    rows.write_many(5)
    full = cluster.wait_leader()
    fill_disk(full)
    write_until_handed_over(rows, full)
    rows.write_many(10)
    assert no_space_on(full) in reason(cluster, full)
    free_disk(full)
    rows.check()
    wait_until(lambda: is_well(cluster), lambda: f"no complaints\n{tails(cluster)}")


def test_all_disks_full_and_free_again(cluster):
    rows = Rows(cluster)
    rows.write_many(5)
    for node in cluster.nodes:
        fill_disk(node)
    errors: list[str] = []

    def is_refused() -> bool:
        error = rows.write(timeout_ms=3000)
        errors.append(error)
        return any(no_space_on(node) in error for node in cluster.nodes)

    wait_until(is_refused, lambda: f"{errors[-4:]}\n{tails(cluster)}")
    for node in cluster.nodes:
        assert query(cluster, node, "SELECT count(*) >= 5 FROM cp.t") == [(True,)]
        status = cluster.status(node)
        assert status is not None and not status["degraded"]
    for node in cluster.nodes:
        free_disk(node)
    wait_until(lambda: rows.write(timeout_ms=5000) == "", lambda: f"writes again\n{tails(cluster)}")
    rows.write_many(20)
    rows.check()
    wait_until(lambda: is_well(cluster), lambda: f"no complaints\n{tails(cluster)}")


def test_a_disk_that_is_too_small_for_a_checkpoint(cluster):
    """The log keeps what the checkpoint would write, until it has no room either; a larger disk heals all."""
    rows = Rows(cluster)
    said: set[str] = set()

    def is_refused() -> bool:
        error = rows.write(timeout_ms=2000, kib=2048)
        said.update(
            n.node_id for n in cluster.nodes if "a checkpoint may need" in reason(cluster, n)
        )
        return "[quack:disk_full]" in error and any(no_space_on(n) in error for n in cluster.nodes)

    wait_until(is_refused, lambda: tails(cluster))
    assert said, tails(cluster)
    for node in cluster.nodes:
        status = cluster.status(node)
        assert status is not None and not status["degraded"]
        larger = f"remount,size={6 * DISK_BYTES}"
        subprocess.run(["mount", "-o", larger, str(data_dir(node))], check=True)
    wait_until(lambda: rows.write(timeout_ms=5000) == "", lambda: f"writes again\n{tails(cluster)}")
    rows.check()
    wait_until(lambda: is_well(cluster), lambda: f"no complaints\n{tails(cluster)}")


@contextlib.contextmanager
def session_of(cluster: LocalCluster, node: LocalNode) -> Iterator[quack_wire.Session]:
    """Open a session that knows no other node: a client of the extension would go to one."""
    tls = ssl.create_default_context(cafile=cluster.folder / "ca" / "ca.pem")
    tls.check_hostname = False
    session = quack_wire.Session(node.port, cluster.token, host=node.host, tls=tls)
    try:
        yield session
    finally:
        session.disconnect()
        session.http.close()


class Disks:
    """A cluster on disks that hang and fail when told to."""

    def __init__(self, cluster: LocalCluster, library: pathlib.Path) -> None:
        self.cluster = cluster
        self.rows: Rows
        self._disks = {node.node_id: CutDisk(library, node) for node in cluster.nodes}
        for disk in self._disks.values():
            disk.arm(Cut(after=0, mode="kill", seed=1))

    def of(self, node: LocalNode) -> CutDisk:
        return self._disks[node.node_id]

    def answer(self) -> None:
        for disk in self._disks.values():
            disk.answer()

    def follower(self) -> LocalNode:
        leader = self.cluster.wait_leader()
        return next(node for node in self.cluster.nodes if node is not leader)

    def wait_for_reason(self, node: LocalNode, words: str) -> None:
        wait_until(
            lambda: words in reason(self.cluster, node),
            lambda: f"{words!r} in {reason(self.cluster, node)!r}\n{tails(self.cluster)}",
        )


@pytest.fixture
def disks(tmp_path):
    library = build_disk(tmp_path)
    with LocalCluster.create(tmp_path / "cluster", 3, settings=dict(SETTINGS)) as made:
        found = Disks(made, library)
        try:
            made.start()
            found.rows = Rows(made)
            found.rows.write_many(5)
            yield found
        finally:
            found.answer()


@pytest.mark.parametrize("part", ["", "/catalog/"])
def test_a_leader_whose_disk_hangs_hands_over(disks, part):
    cluster, rows = disks.cluster, disks.rows
    hung = cluster.wait_leader()
    disks.of(hung).hang(part)
    write_until_handed_over(rows, hung)
    disks.wait_for_reason(hung, f"disk of node '{hung.node_id}' has not answered for")
    rows.write_many(20)
    # It takes no new work and says why; a client that may do the work elsewhere does.
    for statement in ("INSERT INTO t VALUES (-1, '')", "CREATE TABLE u (i INTEGER)"):
        with session_of(cluster, hung) as one, pytest.raises(quack_wire.QuackError) as refused:
            one.query(statement)
        assert f"disk of node '{hung.node_id}' has not answered for" in str(refused.value)
        assert str(data_dir(hung)) in str(refused.value)
        assert refused.value.code == "unavailable"
    session = cluster.connect(hung)
    session.execute("INSERT INTO cp.t VALUES (-2, '')")
    session.close()
    # It is not given up: what it has can be read, and it is not degraded.
    with session_of(cluster, hung) as one:
        eventual = {"X-Quack-Consistency": "eventual"}
        assert one.query("SELECT count(*) >= 5 FROM t", headers=eventual) == [(True,)]
    status = cluster.status(hung)
    assert status is not None
    assert not status["degraded"]
    disks.of(hung).answer()
    rows.check()
    wait_until(lambda: is_well(cluster), lambda: f"no complaints\n{tails(cluster)}")


def test_a_follower_whose_disk_hangs_disturbs_nobody(disks):
    cluster, rows = disks.cluster, disks.rows
    hung = disks.follower()
    disks.of(hung).hang()
    with Reader(cluster, hung, rows):
        rows.write_many(30)
        disks.wait_for_reason(hung, f"disk of node '{hung.node_id}' has not answered for")
        rows.write_many(10)
        disks.of(hung).answer()
        rows.check()
    wait_until(lambda: is_well(cluster), lambda: f"no complaints\n{tails(cluster)}")


@pytest.mark.parametrize("place", ["log", "catalog"])
@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_sync_that_fails_takes_the_node_out_of_service(disks, place, role):
    cluster, rows = disks.cluster, disks.rows
    broken = cluster.wait_leader() if role == "leader" else disks.follower()
    disk = disks.of(broken)
    disk.fail(f"/{place}/")

    def is_out() -> bool:
        error = rows.write()
        assert not error, f"{error}\n{tails(cluster)}"
        status = cluster.status(broken)
        return status is not None and bool(status["degraded"])

    wait_until(is_out, lambda: f"out of service\n{tails(cluster)}")
    status = cluster.status(broken)
    assert status is not None
    (failed,) = disk.failed()
    assert str(pathlib.Path(failed).parent) in str(status["reason"])
    # The second is DuckDB's wording.
    assert any(words in str(status["reason"]) for words in ("Input/output error", "fsync failed"))
    assert not status["is_leader"]
    rows.write_many(10)
    # It answers nothing but how it is, and does not try again.
    with session_of(cluster, broken) as one, pytest.raises(quack_wire.QuackError) as refused:
        one.query("SELECT count(*) FROM t")
    assert refused.value.code == "degraded"
    assert disk.synced_again() == []
    assert "degraded" in broken.log_tail(200)
    assert broken.stop() == 3
    assert disk.synced_again() == []
    broken.start()
    rows.check()
    wait_until(lambda: is_well(cluster), lambda: f"no complaints\n{tails(cluster)}")
