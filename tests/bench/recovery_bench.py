"""How long a node needs after kill -9, from its start until it has applied its log again.

One voter over mTLS, with a catalog of the size asked for in its file, writes log without a
checkpoint: first many transactions of one row, then few large ones. After each part it is killed
and started, and the time until it answers and has applied everything it had before is taken. The
last line is one JSON object with seconds, entries and bytes; the exit code is 0 only when every
acknowledged row is there again.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import threading
import time

from quack.cluster.local import LocalCluster

#: No checkpoint comes by itself.
NEVER: dict[str, object] = {
    "checkpoint_log_bytes": 1 << 36,
    "checkpoint_log_entries": 1 << 30,
    "checkpoint_interval_ms": 86_400_000,
    "checkpoint_idle_ms": 86_400_000,
    "checksum_interval_ms": 0,
}
CLIENTS = 8
LARGE_ROWS = 50_000


def write_small(cluster: LocalCluster, entries: int) -> int:
    """Put in rows one by one, from several sessions; returns how many."""

    def work(client: int) -> None:
        session = cluster.connect()
        for number in range(client, entries, CLIENTS):
            session.execute("INSERT INTO cp.t VALUES (?, md5(?::VARCHAR))", [number, number])
        session.close()

    workers = [threading.Thread(target=work, args=(client,)) for client in range(CLIENTS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return entries


def write_large(cluster: LocalCluster, megabytes: int) -> int:
    """Put in batches of rows that do not compress well; returns how many rows."""
    session = cluster.connect()
    rows = 0
    # Two md5 texts and a number take about 72 bytes; zstd leaves more than half.
    for batch in range(max(1, megabytes * 1_000_000 // (LARGE_ROWS * 40))):
        session.execute(
            f"""INSERT INTO cp.t SELECT range, md5((range * {batch + 7})::VARCHAR)
                || md5((range + {batch})::VARCHAR) FROM range({LARGE_ROWS})"""
        )
        rows += LARGE_ROWS
    session.close()
    return rows


def fill_catalog(cluster: LocalCluster, megabytes: int) -> int:
    """Put in rows that do not compress and have them written to the file; returns how many."""
    session = cluster.connect()
    session.execute("CREATE TABLE cp.big (h UBIGINT)")
    rows = 0
    while rows * 8 < megabytes * 1_000_000:
        session.execute(f"INSERT INTO cp.big SELECT hash(range + {rows}) FROM range(500000)")
        rows += 500_000
    session.close()
    return rows


def status(cluster: LocalCluster) -> dict[str, object]:
    return cluster.status(cluster.nodes[0]) or {}


def recover(cluster: LocalCluster, timeout_s: float = 600) -> dict[str, object]:
    """Kill the node, start it, and time it."""
    node = cluster.nodes[0]
    before = status(cluster)
    node.kill()
    begin = time.monotonic()
    node.start()
    while True:
        now = status(cluster)
        if now and int(str(now["applied_index"])) >= int(str(before["applied_index"])):
            break
        if time.monotonic() - begin > timeout_s:
            raise SystemExit(f"not applied again: {now}")
        time.sleep(0.02)
    return {
        "seconds": round(time.monotonic() - begin, 2),
        "entries": int(str(before["applied_index"])) - int(str(before["checkpoint_index"])),
        "log_bytes": int(str(before["log_disk_bytes"])),
    }


def run(arguments: argparse.Namespace, folder: pathlib.Path) -> dict[str, object]:
    settings = NEVER | {"log_segment_bytes": 1 << 20}
    with LocalCluster.create(folder, 1, settings=settings) as cluster:
        cluster.start()
        cluster.wait_leader()
        session = cluster.connect()
        session.execute("CREATE TABLE cp.t (i BIGINT, s VARCHAR)")
        session.close()
        large_rows = fill_catalog(cluster, arguments.catalog_megabytes)
        # A clean stop writes a checkpoint.
        if cluster.nodes[0].stop(timeout_s=300) != 0:
            raise SystemExit(f"no clean stop:\n{cluster.nodes[0].log_tail()}")
        cluster.start(timeout_s=300)
        file = cluster.nodes[0].log_file.parent / "data" / "catalog" / "cp.duckdb"
        catalog_bytes = file.stat().st_size
        empty = recover(cluster)
        rows = write_small(cluster, arguments.entries)
        small = recover(cluster)
        rows += write_large(cluster, arguments.megabytes)
        large = recover(cluster)
        session = cluster.connect(consistency="linearizable")
        counted = session.execute("SELECT count(*) FROM cp.t").fetchall()[0][0]
        large_counted = session.execute("SELECT count(*) FROM cp.big").fetchall()[0][0]
        session.close()
        cluster.stop()
    return {
        "ok": counted == rows and large_counted == large_rows,
        "rows": counted,
        "catalog_bytes": catalog_bytes,
        "empty": empty,
        "small": small,
        "small_and_large": large,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=20_000, help="transactions of one row")
    parser.add_argument("--megabytes", type=int, default=64, help="log in large transactions")
    parser.add_argument(
        "--catalog-megabytes", type=int, default=0, help="in the file, not replayed"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="quack-recovery-") as scratch:
        document = run(arguments, pathlib.Path(scratch))
    print(json.dumps(document))
    return 0 if document["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
