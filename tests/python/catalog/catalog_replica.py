"""Replicas of the catalog inside this process, over an in-process log instead of consensus."""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

SEPARATOR = "\x1f"


def extension_path() -> str:
    """The test extension; QUACK_CATALOG_TEST_EXTENSION names another one."""
    return os.environ.get(
        "QUACK_CATALOG_TEST_EXTENSION",
        str(
            Path(__file__).resolve().parents[3]
            / "build"
            / "cmake"
            / "catalog_test"
            / "quack.duckdb_extension"
        ),
    )


@dataclass
class Replica:
    """One DuckDB instance with the replicated catalog `cp`."""

    path: Path
    log: str
    node: str
    log_file: str = ""
    cluster_id: str = "test-cluster"
    batch: int = 0
    patience_ms: int = 0
    checksum_ms: int = 0
    voters: str = ""
    leads: bool = False
    split_bytes: int = 0
    stream_ms: int = 0
    con: duckdb.DuckDBPyConnection = field(init=False)
    admin: duckdb.DuckDBPyConnection = field(init=False)

    def __post_init__(self) -> None:
        self.con = duckdb.connect(
            ":memory:", config={"allow_unsigned_extensions": "true", "threads": "2"}
        )
        self.con.execute(f"LOAD '{extension_path()}'")
        self.admin = self.con.cursor()
        self.command(
            "open",
            str(self.path),
            self.log,
            self.node,
            self.log_file,
            self.cluster_id,
            str(self.batch),
            str(self.patience_ms),
            str(self.checksum_ms),
            self.voters,
            str(int(self.leads)),
            str(self.split_bytes),
            str(self.stream_ms),
        )
        self.con.execute("USE cp")

    def command(self, *arguments: str) -> str:
        """Runs a command of the test extension that concerns the node, on a connection that never touches `cp`."""
        return command(self.admin, *arguments)

    def session(self) -> duckdb.DuckDBPyConnection:
        """Another session of the same node."""
        cursor = self.con.cursor()
        cursor.execute("USE cp")
        return cursor

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        return self.con.execute(sql, list(parameters)).fetchall()

    def hashes(self) -> list[tuple[str, ...]]:
        """Object hashes without the applied index."""
        self.command("wait")
        return [tuple(line.split("|")[:5]) for line in self.command("hash").splitlines()]

    def close(self) -> None:
        with contextlib.suppress(duckdb.Error):
            self.con.execute("ROLLBACK")
        self.command("close")
        self.admin.close()
        self.con.close()


def command(con: duckdb.DuckDBPyConnection, *arguments: str) -> str:
    row = con.execute("SELECT system.main.quack_test(?)", [SEPARATOR.join(arguments)]).fetchone()
    assert row is not None
    return str(row[0])


class Cluster:
    """Replicas that share one log."""

    def __init__(self, directory: Path, count: int, split_bytes: int = 0) -> None:
        self.directory = directory
        self.log = uuid.uuid4().hex
        self.replicas = [
            Replica(directory / f"n{i}.db", self.log, f"n{i}", split_bytes=split_bytes)
            for i in range(count)
        ]

    def __getitem__(self, index: int) -> Replica:
        return self.replicas[index]

    def assert_equal(self) -> list[tuple[str, ...]]:
        """All replicas hold bit-exactly the same; returns the hashes."""
        hashes = [replica.hashes() for replica in self.replicas]
        for replica, other in zip(self.replicas, hashes, strict=True):
            assert replica.command("degraded") == ""
            assert other == hashes[0], f"{replica.node} differs"
        return hashes[0]

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()
