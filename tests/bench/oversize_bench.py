"""One INSERT … SELECT of very many rows into a cluster under load: rate, memory, and what others feel.

Three voters run as separate processes over mTLS. A client inserts all rows in one statement, that is
in one atomic transaction, either computed by the node (`--from node`) or streamed from the client's
own table (`--from client`), while another client inserts single rows all the time. With
`--kill-leader` the leader is killed in the middle and the statement is run until it is through. At
the end all nodes must hold the same. The last line is one JSON object.
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

import duckdb

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))

from quack.cluster.local import LocalCluster, LocalNode
from quack.errors import code_of

COLUMNS = "i AS id, i % 1000 AS kind, md5(i::VARCHAR) AS text"
TIMEOUT_MS = 3_600_000


class Memory(threading.Thread):
    """Peak of the resident memory of each node, and of its part that is no file."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.over = threading.Event()
        self.peak: dict[str, int] = {}

    def run(self) -> None:
        while not self.over.wait(0.2):
            for node in self.cluster.nodes:
                self.peak[node.node_id] = max(self.peak.get(node.node_id, 0), resident(node))


def resident(node: LocalNode) -> int:
    """Bytes; 0 when the node does not run."""
    if node.process is None:
        return 0
    try:
        text = pathlib.Path(f"/proc/{node.process.pid}/status").read_text()
    except OSError:
        return 0
    return sum(
        int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon")
    )


class SmallWriter(threading.Thread):
    """Inserts single rows and notes how long each took."""

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(daemon=True)
        self.cluster = cluster
        self.over = threading.Event()
        self.seconds: list[float] = []
        self.failures: dict[str, int] = {}

    def run(self) -> None:
        session = self.cluster.connect()
        session.execute(f"SET quack_request_timeout_ms = {TIMEOUT_MS}")
        while not self.over.is_set():
            begin = time.monotonic()
            try:
                session.execute("INSERT INTO cp.small VALUES (?)", [len(self.seconds)])
                self.seconds.append(time.monotonic() - begin)
            except duckdb.Error as error:
                code = str(code_of(error))
                self.failures[code] = self.failures.get(code, 0) + 1
        session.close()

    def percentile(self, share: float, since: int = 0) -> float | None:
        ordered = sorted(self.seconds[since:])
        if not ordered:
            return None
        return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1)


def hashes(cluster: LocalCluster, timeout_s: float = 600) -> list[tuple[object, ...]]:
    """The state of all nodes, which must be the same one; fails when it does not become so in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        seen = set()
        for node in cluster.nodes:
            session = cluster.connect(node)
            session.execute(f"SET quack_request_timeout_ms = {TIMEOUT_MS}")
            rows = session.execute("SELECT * FROM quack_state_hash('cp') ORDER BY ALL").fetchall()
            seen.add(tuple(rows))
            session.close()
        if len(seen) == 1:
            return list(seen.pop())
        if time.monotonic() > deadline:
            raise SystemExit(f"the nodes differ: {seen}")
        time.sleep(0.5)


def kill_when_under_way(cluster: LocalCluster, done: threading.Event) -> None:
    """Kill the leader when the first fragments are in the log; it comes back when there is another."""
    while not done.is_set():
        leader = cluster.leader()
        if leader is not None:
            session = cluster.connect(leader)
            (size,) = session.execute(
                "SELECT value FROM quack_node_statistics('cp') WHERE name = 'large_transaction_bytes'"
            ).fetchone() or (0,)
            session.close()
            if size > 0:
                leader.kill()
                cluster.wait_leader()
                leader.start()
                return
        time.sleep(0.05)


def insert(session: duckdb.DuckDBPyConnection, sql: str) -> int:
    """Until it is through; how many attempts it took."""
    attempts = 0
    while True:
        attempts += 1
        try:
            session.execute(sql)
            return attempts
        except duckdb.Error as error:
            if code_of(error) not in ("unavailable", "conflict", "not_leader"):
                raise
            print(f"attempt {attempts}: {str(error)[:200]}", file=sys.stderr)


def run(arguments: argparse.Namespace, folder: pathlib.Path) -> dict[str, object]:
    settings: dict[str, object] = {"memory_limit_mb": arguments.memory_mb}
    if arguments.split_bytes:
        settings["transaction_split_bytes"] = arguments.split_bytes
    with LocalCluster.create(folder, 3, settings=settings) as cluster:
        cluster.start()
        session = cluster.connect()
        session.execute(f"SET quack_request_timeout_ms = {TIMEOUT_MS}")
        key = "" if arguments.no_key else " PRIMARY KEY"
        session.execute(f"CREATE TABLE cp.large (id BIGINT{key}, kind INTEGER, text VARCHAR)")
        session.execute("CREATE TABLE cp.small (i BIGINT)")
        session.execute("CREATE TABLE cp.source (i BIGINT)")
        if arguments.source == "client":
            session.execute(
                f"CREATE TABLE source AS SELECT {COLUMNS} FROM range({arguments.rows}) r(i)"
            )
            sql = "INSERT INTO cp.large FROM source"
        else:
            sql = f"INSERT INTO cp.large SELECT {COLUMNS} FROM range({arguments.rows}) r(i)"
        writer = SmallWriter(cluster)
        memory = Memory(cluster)
        writer.start()
        memory.start()
        time.sleep(arguments.before)
        quiet = len(writer.seconds)
        before = {"p50": writer.percentile(0.5), "p99": writer.percentile(0.99)}
        memory_before = dict(memory.peak)
        done = threading.Event()
        killer = threading.Thread(target=kill_when_under_way, args=(cluster, done), daemon=True)
        if arguments.kill_leader:
            killer.start()
        begin = time.monotonic()
        attempts = insert(session, sql)
        seconds = time.monotonic() - begin
        done.set()
        writer.over.set()
        writer.join()
        memory.over.set()
        memory.join()
        if arguments.kill_leader:
            killer.join()
        state = hashes(cluster)
        (count,) = session.execute("SELECT count(*) FROM cp.large").fetchone() or (0,)
        statistics = {}
        for node in cluster.nodes:
            other = cluster.connect(node)
            statistics[node.node_id] = dict(
                other.execute("SELECT name, value FROM quack_node_statistics('cp')").fetchall()
            )
            other.close()
        session.close()
        cluster.stop()
    return {
        "ok": count == arguments.rows
        and len(state) > 0
        and all(s["large_transactions_open"] == 0 for s in statistics.values()),
        "rows": arguments.rows,
        "from": arguments.source,
        "key": not arguments.no_key,
        "killed_leader": arguments.kill_leader,
        "attempts": attempts,
        "seconds": round(seconds, 1),
        "rows_per_second": round(arguments.rows / seconds),
        "memory_limit_mb": arguments.memory_mb,
        "peak_memory_mb": {name: size >> 20 for name, size in sorted(memory.peak.items())},
        "memory_before_mb": {name: size >> 20 for name, size in sorted(memory_before.items())},
        "log_appended_mb": {
            name: s["log_appended_bytes"] >> 20 for name, s in sorted(statistics.items())
        },
        "small_writes": len(writer.seconds) - quiet,
        "small_failures": writer.failures,
        "small_ms_before": before,
        "small_ms": {
            "p50": writer.percentile(0.5, quiet),
            "p99": writer.percentile(0.99, quiet),
            "max": writer.percentile(1, quiet),
        },
        "cores": os.cpu_count(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--from", dest="source", choices=["node", "client"], default="client")
    parser.add_argument("--no-key", action="store_true", help="a table without primary key")
    parser.add_argument("--kill-leader", action="store_true")
    parser.add_argument("--memory-mb", type=int, default=1024, help="DuckDB's limit on each node")
    parser.add_argument("--split-bytes", type=int, default=0, help="0 = the default")
    parser.add_argument("--before", type=float, default=10, help="seconds of small writes alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quack-oversize-") as scratch:
        document = run(arguments, pathlib.Path(scratch))
    print(json.dumps(document))
    return 0 if document["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
