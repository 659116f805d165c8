"""Random statements on a plain DuckDB and on a replica; `make oracle` runs more."""

from __future__ import annotations

import random
from pathlib import Path

import oracle
import pytest
from catalog_replica import Cluster


@pytest.mark.parametrize("seed", range(1, 7))
def test_same_as_duckdb(tmp_path: Path, seed: int) -> None:
    result = oracle.run(tmp_path, seed, oracle.STATEMENTS)
    assert result["difference"] is None, result["before"]


@pytest.mark.parametrize("groups", [4, 16])
def test_groups_do_not_show(tmp_path: Path, groups: int) -> None:
    moves = 0
    for seed in range(groups, groups + 3):
        (tmp_path / str(seed)).mkdir()
        result = oracle.run(tmp_path / str(seed), seed, oracle.STATEMENTS, groups)
        assert result["difference"] is None, result["before"]
        moves += result["moves"]
    assert moves > 0


def test_a_difference_is_found(cluster: Cluster) -> None:
    """The comparison itself: one row too many on the replicas, then one other value in a row."""
    test = oracle.Run(cluster, random.Random(1))
    for sql in ("CREATE TABLE t0(k INTEGER, c0 DOUBLE)", "INSERT INTO t0 VALUES (1, '-0.0')"):
        assert test.both(sql) is None
    assert test.finish() is None
    test.replica.execute("INSERT INTO t0 VALUES (2, 1)")
    assert "t0" in str(test.finish())
    assert "SELECT" in str(test.both("SELECT * FROM t0"))
    test.replica.execute("DELETE FROM t0 WHERE k = 2")
    test.replica.execute("UPDATE t0 SET c0 = 0.5")
    assert "t0" in str(test.finish())
