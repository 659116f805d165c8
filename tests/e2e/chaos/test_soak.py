"""Goal: two minutes of every workload under drawn faults end in one state that all checkers accept."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run_chaos(tmp_path: pathlib.Path, *words: str, timeout_s: float = 280) -> dict:
    """Run the harness as its own process; returns its JSON line, and fails with it when not ok."""
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "tests" / "e2e")])
    done = subprocess.run(
        [sys.executable, "-m", "chaos", "--dir", str(tmp_path), *words],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.stdout.strip(), done.stderr[-4000:]
    document = json.loads(done.stdout.strip().splitlines()[-1])
    assert document["ok"] is (done.returncode == 0)
    assert document["ok"], f"{json.dumps(document, indent=1)}\n{done.stderr[-4000:]}"
    return document


@pytest.mark.timeout(400)
def test_two_minutes_of_faults(tmp_path: pathlib.Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", "1"))
    document = run_chaos(tmp_path, "--seed", str(seed), "soak", "--minutes", "2", timeout_s=390)
    assert document["faults"] >= 5
    assert document["hash_equal"]
    assert all(one["ok"] > 50 for one in document["operations"].values()), document


@pytest.mark.timeout(280)
def test_leader_dies_inside_commit(tmp_path: pathlib.Path) -> None:
    document = run_chaos(tmp_path, "--seed", "1", "commits", "--rounds", "12", timeout_s=270)
    assert document["commits"] == 36
    assert document["kills"] >= 2
    assert document["pauses"] >= 2
