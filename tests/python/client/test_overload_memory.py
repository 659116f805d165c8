"""Goal: bursts of far more work than a node takes leave its memory at a plateau, and clients see no error at all."""

from __future__ import annotations

import pathlib
import threading
import time

import duckdb
import pytest

from quack.cluster.local import LocalCluster

pytestmark = pytest.mark.cluster

CLIENTS = 30
LIMITS = {"statements_max": 3, "buffer_bytes_max": 16 * 1024 * 1024}


def resident_mb(pid: int) -> float:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def statistics(cluster: LocalCluster) -> dict[str, int]:
    session = cluster.connect(cluster.nodes[0])
    rows = session.execute("FROM quack_node_statistics('cp')").fetchall()
    session.close()
    return {str(name): int(value) for name, value in rows}


def test_bursts(tmp_path: pathlib.Path) -> None:
    with LocalCluster.create(tmp_path / "c", 1, settings={"limits": LIMITS}) as cluster:
        cluster.start()
        setup = cluster.connect()
        setup.execute("CREATE TABLE cp.filled (client INTEGER, i INTEGER, s VARCHAR)")
        errors: list[str] = []
        written = [0] * CLIENTS

        def work(client: duckdb.DuckDBPyConnection, number: int, until: float) -> None:
            try:
                while time.monotonic() < until:
                    client.execute(
                        f"INSERT INTO cp.filled SELECT {number}, range, repeat('x', 100) FROM range(500)"
                    )
                    written[number] += 500
                    client.execute("SELECT repeat('y', 1000) FROM range(3000)").fetchall()
                    client.execute("SELECT count(*), max(s) FROM cp.filled").fetchall()
            except duckdb.Error as error:
                errors.append(str(error))

        clients = [cluster.connect() for _ in range(CLIENTS)]
        levels = []
        for _ in range(3):
            until = time.monotonic() + 5
            crowd = [
                threading.Thread(target=work, args=(client, number, until))
                for number, client in enumerate(clients)
            ]
            for thread in crowd:
                thread.start()
            for thread in crowd:
                thread.join()
            levels.append(resident_mb(cluster.nodes[0].process.pid))
        assert errors == []
        told = statistics(cluster)
        assert told["statements_refused"] > 0
        assert (told["statements_max"], told["buffer_bytes_max"]) == (3, 16 * 1024 * 1024)
        assert told["statements"] <= 1 and told["buffer_bytes"] == 0
        assert levels[2] < levels[0] * 1.3 + 100, levels
        assert setup.execute("SELECT count(*) FROM cp.filled").fetchall() == [(sum(written),)]
        for client in [*clients, setup]:
            client.close()
