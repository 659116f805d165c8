"""What an empty node that joins a loaded cluster costs those who write, and the leader.

Voters run as separate processes over mTLS with a catalog of a given size. Sessions insert row after
row, and the latency of every insert is taken: for a while before, and from the moment the newcomer
is let in until it has the state and follows. Meanwhile the leader's memory and files are looked at.
The last line is one JSON object; the exit code is 0 only when the newcomer got an image and holds
the same rows, and p99 while it joined was at most three times that before.

On one machine all nodes share its cores and its disk, which real ones do not.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

import duckdb

from quack.cluster.bootstrap import GeneratedNode, prepare_node
from quack.cluster.local import LocalCluster, LocalNode

RATIO_MAX = 3.0
ROW_BYTES = 8
BATCH_ROWS = 500_000
PAGE = os.sysconf("SC_PAGE_SIZE")


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values: list[float], seconds: float) -> dict[str, float]:
    return {
        "writes": len(values),
        "seconds": round(seconds, 1),
        "p50_ms": round(1000 * percentile(values, 0.5), 2),
        "p99_ms": round(1000 * percentile(values, 0.99), 2),
        "max_ms": round(1000 * max(values), 2),
    }


@dataclass
class Load:
    """Sessions that insert one row after the other, and how long each took."""

    cluster: LocalCluster
    writers: int
    stop: threading.Event = field(default_factory=threading.Event)
    #: (end, seconds), appended by all writers.
    taken: list[tuple[float, float]] = field(default_factory=list)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self.threads = [
            threading.Thread(target=self._work, args=(number,), daemon=True)
            for number in range(self.writers)
        ]
        for thread in self.threads:
            thread.start()

    def finish(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def between(self, begin: float, end: float) -> dict[str, float]:
        inside = [took for at, took in self.taken if begin <= at < end]
        return summary(inside, end - begin)

    def _work(self, number: int) -> None:
        session = self.cluster.connect()
        row = number
        while not self.stop.is_set():
            begin = time.monotonic()
            session.execute("INSERT INTO cp.small VALUES (?, 'a row like any other')", [row])
            end = time.monotonic()
            self.taken.append((end, end - begin))
            row += self.writers
        session.close()


class Watch:
    """The highest memory and disk use of one node, looked at every so often."""

    def __init__(self, node: LocalNode) -> None:
        assert node.process is not None
        self._pid = node.process.pid
        self._folder = node.log_file.parent / "data"
        self._stop = threading.Event()
        self.rss_max = self.rss()
        self.image_bytes_max = 0
        self.log_bytes_max = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def rss(self) -> int:
        text = pathlib.Path(f"/proc/{self._pid}/status").read_text()
        # Pages of mapped files are the system's to take back.
        line = next(line for line in text.splitlines() if line.startswith("RssAnon:"))
        return int(line.split()[1]) * 1024

    def _bytes(self, folder: str, pattern: str) -> int:
        total = 0
        for file in (self._folder / folder).glob(pattern):
            try:
                total += file.stat().st_blocks * 512
            except FileNotFoundError:
                continue
        return total

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.rss_max = max(self.rss_max, self.rss())
            images = self._bytes("catalog", "*.snapshot.*")
            self.image_bytes_max = max(self.image_bytes_max, images)
            self.log_bytes_max = max(self.log_bytes_max, self._bytes("log", "*"))

    def finish(self) -> None:
        self._stop.set()
        self._thread.join()


def fill(cluster: LocalCluster, megabytes: int) -> int:
    """Put in rows that do not compress; returns how many."""
    session = cluster.connect()
    session.execute("CREATE TABLE cp.big (h UBIGINT)")
    session.execute("CREATE TABLE cp.small (i BIGINT, s VARCHAR)")
    rows = 0
    while rows * ROW_BYTES < megabytes * 1_000_000:
        session.execute(f"INSERT INTO cp.big SELECT hash(range + {rows}) FROM range({BATCH_ROWS})")
        rows += BATCH_ROWS
    session.close()
    return rows


def wait_checkpoint(cluster: LocalCluster, timeout_s: float = 300) -> None:
    """Until every node has checkpointed all that is applied now."""
    index = max(int(str((cluster.status(node) or {})["applied_index"])) for node in cluster.nodes)
    deadline = time.monotonic() + timeout_s
    for node in cluster.nodes:
        while (
            int(str((cluster.status(node) or {"checkpoint_index": 0})["checkpoint_index"])) < index
        ):
            if time.monotonic() > deadline:
                raise SystemExit(f"no checkpoint of index {index} on {node.node_id}")
            time.sleep(0.5)


def make_newcomer(cluster: LocalCluster) -> LocalNode:
    made = prepare_node(
        cluster.folder, "newcomer", like=cluster.nodes[0].config_file, ca_dir=cluster.folder / "ca"
    )
    return LocalNode(
        cluster.folder, GeneratedNode("newcomer", made.host, made.port, made.config_file)
    )


def let_in(session: duckdb.DuckDBPyConnection, timeout_s: float = 60) -> None:
    """Make the newcomer a learner as soon as it has knocked."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            session.execute("CALL quack_member_add('newcomer', 'cp')")
            return
        except duckdb.Error as error:
            if "[quack:not_found]" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.2)


def wait_joined(session: duckdb.DuckDBPyConnection, timeout_s: float) -> dict[str, float]:
    """Until the newcomer follows; when it had the image, and how long that took."""
    begin = time.monotonic()
    marks: dict[str, float] = {}
    while time.monotonic() - begin < timeout_s:
        now = round(time.monotonic() - begin, 1)
        for state, done, total, rate in session.execute(
            """SELECT state, bytes_done, bytes_total, bytes_per_second
               FROM quack_snapshot_transfers('cp') WHERE peer = 'newcomer'"""
        ).fetchall():
            marks.setdefault(f"{state}_s", now)
            if total and done == total:
                marks["image_bytes"] = total
                marks["image_bytes_per_second"] = rate
        follows = session.execute(
            """SELECT state = 'replicate' AND lag < 500 FROM quack_members('cp')
               WHERE node_id = 'newcomer' AND role = 'learner'"""
        ).fetchone()
        if follows and follows[0]:
            marks["follows_s"] = now
            return marks
        time.sleep(0.25)
    raise SystemExit(f"the newcomer does not follow within {timeout_s:.0f} s: {marks}")


def count(cluster: LocalCluster, node: LocalNode) -> list[tuple[int, ...]]:
    session = cluster.connect(node, consistency="linearizable")
    rows = session.execute(
        """SELECT (SELECT count(*) FROM cp.big), (SELECT bit_xor(h) FROM cp.big),
                  (SELECT count(*) FROM cp.small)"""
    ).fetchall()
    session.close()
    return rows


def run(arguments: argparse.Namespace, folder: pathlib.Path) -> dict[str, object]:
    settings: dict[str, object] = {"checksum_interval_ms": 0}
    if arguments.bytes_per_second is not None:
        settings["snapshot_bytes_per_second"] = arguments.bytes_per_second
    with LocalCluster.create(folder, arguments.nodes, settings=settings) as cluster:
        cluster.start()
        begin = time.monotonic()
        rows = fill(cluster, arguments.megabytes)
        wait_checkpoint(cluster)
        print(f"{rows} rows in {time.monotonic() - begin:.0f} s", file=sys.stderr)
        leader = cluster.wait_leader()
        session = cluster.connect(leader)
        load = Load(cluster, arguments.writers)
        load.start()
        time.sleep(arguments.warmup)
        watch = Watch(leader)
        rss_before = watch.rss()
        before_begin = time.monotonic()
        time.sleep(arguments.seconds)
        before_end = time.monotonic()
        newcomer = make_newcomer(cluster)
        newcomer.start()
        let_in(session)
        join_begin = time.monotonic()
        marks = wait_joined(session, 600)
        join_end = time.monotonic()
        load.finish()
        watch.finish()
        before, during = load.between(before_begin, before_end), load.between(join_begin, join_end)
        slowest = sorted(
            (round(at - join_begin, 1), round(1000 * took))
            for at, took in sorted(load.taken, key=lambda pair: -pair[1])[:20]
        )
        installed = "snapshot_installed" in newcomer.log_file.read_text()
        same = count(cluster, newcomer) == count(cluster, leader)
        newcomer.stop()
    ratio = during["p99_ms"] / before["p99_ms"]
    return {
        "ok": installed and same and ratio <= RATIO_MAX,
        "catalog_bytes": marks.get("image_bytes"),
        "p99_ratio": round(ratio, 2),
        "before": before,
        "during": during,
        "join": marks,
        "leader": {
            "rss_before": rss_before,
            "rss_max": watch.rss_max,
            "image_bytes_max": watch.image_bytes_max,
            "log_bytes_max": watch.log_bytes_max,
        },
        "slowest_s_ms": slowest,
        "installed": installed,
        "same_rows": same,
        "cores": os.cpu_count(),
        "nodes": arguments.nodes,
        "writers": arguments.writers,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000, help="size of the catalog")
    parser.add_argument("--nodes", type=int, default=3, help="voters before the newcomer")
    parser.add_argument("--writers", type=int, default=4, help="sessions that insert rows")
    parser.add_argument("--seconds", type=float, default=30, help="length of the window before")
    parser.add_argument("--warmup", type=float, default=5, help="load before the window")
    parser.add_argument("--bytes-per-second", type=int, help="rate limit; default: the nodes' own")
    parser.add_argument("--dir", help="where the nodes' files go; default: the system's place")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quack-join-", dir=arguments.dir) as scratch:
        document = run(arguments, pathlib.Path(scratch))
    print(json.dumps(document))
    return 0 if document["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
