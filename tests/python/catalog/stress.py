"""Random writers on all replicas at once: whatever commits, commits everywhere alike.

`run` is one run inside this process. As a program, every seed runs in a process of its own, so that a crash is a
result like any other; the last line is a JSON object.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
from catalog_replica import Cluster, Replica
from change_fold import changes, content, fold

#: Errors that concurrency may cause; any other fails the run.
EXPECTED = (
    "quack conflict", "quack constraint", "quack schema_changed", "onflict", "Interrupted", "aborted",
    "no transaction is active", "does not exist", "already exists", "Duplicate key", "does not have a column",
    "depend on it", "altered", "dropped", "only one primary key", "COMMIT before CREATE INDEX",
    "Constraint Error", "outstanding updates", "values were supplied",
    "cancelled before it could finish",  # an eviction that came too late for the statement it meant
)  # fmt: skip
REPLICAS = 3
WRITERS_PER_REPLICA = 3
CHECKPOINT_PAUSE_S = 0.3
#: How many of the statements are DDL, by seed.
DDL_SHARES = (0.05, 0.2, 0.5)
#: A run that takes this much longer than its writers hangs.
GRACE_S = 90.0


def statement(rng: random.Random) -> str:
    """One random statement over a few tables."""
    table = rng.choice(["k", "n", "w"])
    low = rng.randrange(200)
    value = f"'{rng.randrange(1000)}'"
    return rng.choice(
        [
            f"INSERT INTO {table}(i, s) SELECT {low} + range, {value} FROM range({rng.randrange(1, 20)}) "
            + ("ON CONFLICT DO NOTHING" if table == "k" else ""),
            f"INSERT INTO {table}(i, s) VALUES ({rng.randrange(10000)}, {value})",
            f"UPDATE {table} SET s = {value} WHERE i BETWEEN {low} AND {low + 10}",
            f"UPDATE {table} SET i = i + 1000 WHERE i = {low}",
            f"DELETE FROM {table} WHERE i BETWEEN {low} AND {low + 3}",
            f"INSERT INTO {table}(i, s) SELECT nextval('sq') + 100000, {value}",
        ]
    )


def ddl(rng: random.Random) -> str:
    """One random change of the catalog."""
    name = rng.choice(["x1", "x2"])
    return rng.choice(
        [
            f"CREATE TABLE {name} AS SELECT range i FROM range({rng.randrange(50)})",
            f"DROP TABLE IF EXISTS {name}",
            f"CREATE OR REPLACE VIEW v AS SELECT count(*) c FROM {rng.choice(['k', 'n', 'w'])}",
            f"CREATE INDEX i{rng.randrange(3)} ON w(s)",
            f"DROP INDEX IF EXISTS i{rng.randrange(3)}",
            "CREATE UNIQUE INDEX u ON n(i)",
            "DROP INDEX IF EXISTS u",
            f"ALTER TABLE {name} ADD PRIMARY KEY (i)",
            f"ALTER TABLE w ADD COLUMN c{rng.randrange(4)} INT DEFAULT {rng.randrange(9)}",
            f"ALTER TABLE w DROP COLUMN IF EXISTS c{rng.randrange(4)}",
        ]
    )


class Writer(threading.Thread):
    """A session that writes until its deadline or its first unexpected error."""

    def __init__(self, replica: Replica, seed: int, deadline: float, ddl_share: float) -> None:
        super().__init__()
        self.con = replica.session()
        self.ddl_share = ddl_share
        self.rng = random.Random(seed)
        self.deadline = deadline
        self.committed = 0
        self.refused = 0
        self.failures: list[str] = []

    def run(self) -> None:
        while time.monotonic() < self.deadline and not self.failures:
            self.step()

    def step(self) -> None:
        explicit = self.rng.random() < 0.4
        count = self.rng.randrange(1, 4) if explicit else 1
        work = [
            ddl(self.rng) if self.rng.random() < self.ddl_share else statement(self.rng)
            for _ in range(count)
        ]
        if explicit:
            work = ["BEGIN", *work, "ROLLBACK" if self.rng.random() < 0.1 else "COMMIT"]
        try:
            for sql in work:
                self.con.execute(sql).fetchall()
            self.committed += 1
        except duckdb.Error as error:
            self.refused += 1
            if not any(text in str(error) for text in EXPECTED):
                self.failures.append(f"{work} at {sql}: {type(error).__name__}: {error}")
            self.roll_back()

    def roll_back(self) -> None:
        while True:
            try:
                self.con.execute("ROLLBACK")
                return
            except duckdb.InterruptException:
                continue
            except duckdb.Error as error:
                if "no transaction is active" not in str(error):
                    self.failures.append(f"ROLLBACK: {error}")
                return


def prepare(cluster: Cluster) -> None:
    cluster[0].command("retention", str(1 << 30))
    first = cluster[0].con
    first.execute("CREATE SEQUENCE sq")
    first.execute("CREATE TABLE k(i BIGINT PRIMARY KEY, s VARCHAR)")
    first.execute("CREATE TABLE n(i BIGINT, s VARCHAR)")
    first.execute("CREATE TABLE w(i BIGINT, s VARCHAR)")
    for replica in cluster.replicas:
        replica.command("wait")


def run_writers(cluster: Cluster, seed: int, seconds: float) -> list[Writer]:
    deadline = time.monotonic() + seconds
    writers = [
        Writer(replica, 1000 * seed + 10 * i + j, deadline, DDL_SHARES[seed % len(DDL_SHARES)])
        for i, replica in enumerate(cluster.replicas)
        for j in range(WRITERS_PER_REPLICA)
    ]
    for writer in writers:
        writer.start()
    rng = random.Random(seed)
    while time.monotonic() < deadline:
        time.sleep(CHECKPOINT_PAUSE_S)  # the pace of the disturbance
        try:
            cluster[rng.randrange(REPLICAS)].command("checkpoint")
        except duckdb.InvalidInputException as error:
            if "postponed" not in str(error):
                raise
    for writer in writers:
        writer.join()
    return writers


def compare_changes(replicas: list[Replica]) -> list[str]:
    """All tell the same changes, which make up the tables; that of w has columns with defaults, which are none."""
    problems = []
    for table in ("k", "n", "w"):
        feed = changes(replicas[0], table)
        problems += [
            f"the changes of {table} differ on {replica.node}"
            for replica in replicas[1:]
            if changes(replica, table) != feed
        ]
        if table != "w" and fold(feed) != content(replicas[0], table):
            problems.append(f"the changes of {table} do not make up its content")
    return problems


def run(directory: Path, seed: int, seconds: float) -> dict[str, Any]:
    """Writers on three replicas with checkpoints in between; then all must be equal, and a replay of the log too."""
    cluster = Cluster(directory, REPLICAS)
    prepare(cluster)
    writers = run_writers(cluster, seed, seconds)
    problems = [
        f"{replica.node} is degraded: {reason}"
        for replica in cluster.replicas
        if (reason := replica.command("degraded"))
    ]
    problems += [failure for writer in writers for failure in writer.failures]
    if not problems:
        hashes = cluster.assert_equal()
        fresh = Replica(directory / "fresh.db", cluster.log, "fresh")
        if fresh.hashes() != hashes:
            problems.append("a replay of the log differs from the replicas")
        problems += compare_changes([*cluster.replicas, fresh])
        fresh.close()
        cluster.close()
    committed = [writer.committed for writer in writers]
    if min(committed) == 0:
        problems.append("a writer committed nothing")
    return {
        "seed": seed,
        "ok": not problems,
        "seconds": seconds,
        "committed": sum(committed),
        "refused": sum(writer.refused for writer in writers),
        "problems": problems[:5],
    }


def run_in_process(seed: int, seconds: float) -> dict[str, Any]:
    """A run in a process of its own; its death or its hanging is a problem too."""
    command = [sys.executable, __file__, "--one", str(seed), "--seconds", str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE_S)
    except subprocess.TimeoutExpired as error:
        tail = (error.stderr or b"")[-4000:]
        return {"seed": seed, "ok": False, "seconds": seconds, "problems": [f"hangs: {tail!r}"]}
    lines = done.stdout.strip().splitlines()
    if done.returncode not in (0, 1) or not lines:
        problem = f"exit code {done.returncode}: {done.stderr[-4000:]}"
        return {"seed": seed, "ok": False, "seconds": seconds, "problems": [problem]}
    result: dict[str, Any] = json.loads(lines[-1])
    return result


def run_seeds(first: int, count: int, seconds: float) -> dict[str, Any]:
    """Lengths vary from half of `seconds` to half as much more."""
    committed = refused = 0
    failed = []
    for seed in range(first, first + count):
        result = run_in_process(seed, seconds * (0.5 + (seed % 5) / 4))
        print(json.dumps(result), flush=True)
        committed += result.get("committed", 0)
        refused += result.get("refused", 0)
        if not result["ok"]:
            failed.append(seed)
    return {
        "ok": not failed,
        "seeds": count,
        "first_seed": first,
        "failed_seeds": failed,
        "committed": committed,
        "refused": refused,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--one", type=int, help="run this seed in this process")
    arguments = parser.parse_args()
    if arguments.one is None:
        summary = run_seeds(arguments.first_seed, arguments.seeds, arguments.seconds)
        print(json.dumps(summary))
        return 0 if summary["ok"] else 1
    faulthandler.enable()
    faulthandler.dump_traceback_later(arguments.seconds + GRACE_S - 10, exit=True)
    with tempfile.TemporaryDirectory() as directory:
        result = run(Path(directory), arguments.one, arguments.seconds)
    print(json.dumps(result), flush=True)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
